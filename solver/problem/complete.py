"""Fills every default that is a fact: sizes of presets and configs, catalogue nodes, software profile, links, lengths.

What cannot be filled is noted in the findings; the result is then not used.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from solver import catalog
from solver.errors import InvalidProblem
from solver.importers.hf_config import import_hf_config
from solver.problem.cluster import Cluster, FabricTier, Group, Host, Link
from solver.problem.constraints import typed_constraints
from solver.problem.fabric import complete_fabric
from solver.problem.findings import Findings
from solver.problem.model import Block, LinearAttention, Model, SoftmaxAttention, Transformer
from solver.problem.pointers import Path
from solver.problem.problem import Problem
from solver.problem.workload import Kernels, Software, Workload

#: Frameworks that run on the profile of another one until they have their own.
_PROFILE_OF_FRAMEWORK = {"any": "megatron-core"}


def complete(problem: Problem, findings: Findings) -> Problem:
    """The problem with every gap filled."""
    return problem.model_copy(
        update={
            "model": _complete_model(problem.model, findings),
            "workload": _complete_workload(problem.workload, problem.framework.name, findings),
            "cluster": _complete_cluster(problem.cluster, findings),
            "constraints": typed_constraints(problem.constraints, findings),
        }
    )


def _complete_model(model: Model, findings: Findings) -> Model:
    """The model as `transformer`; other forms stay as they are (and are refused elsewhere)."""
    transformer = _sizes(model, findings)
    if transformer is None:
        return model
    path = ("model", "transformer")
    blocks = tuple(
        _complete_block(block, transformer, (*path, "blocks", i), findings) for i, block in enumerate(transformer.blocks)
    )
    return Model(transformer=transformer.model_copy(update={"blocks": blocks}))


def _sizes(model: Model, findings: Findings) -> Transformer | None:
    if model.preset is not None:
        try:
            preset = catalog.find_model(model.preset).model
        except catalog.UnknownName as error:
            code = "ambiguous_name" if error.ambiguous else "unknown_name"
            findings.add(("model", "preset"), code, str(error), error.candidates)
            return None
        return _only_transformer(preset, ("model", "preset"), findings)
    if model.hf_config is not None:
        try:
            imported = import_hf_config(model.hf_config).model
        except InvalidProblem as error:
            for item in error.errors:
                parts = tuple(p.replace("~1", "/").replace("~0", "~") for p in item.pointer.split("/")[1:])
                findings.take(("model", "hf_config", *parts), item)
            return None
        return _only_transformer(imported, ("model", "hf_config"), findings)
    return model.transformer


def _only_transformer(content: dict[str, Any], path: Path, findings: Findings) -> Transformer | None:
    if "modules" in content:
        findings.add(path, "not_supported", "a vision tower beside the language model is not supported in this version")
        return None
    return Transformer.model_validate(content["transformer"])


def _complete_block(block: Block, transformer: Transformer, path: tuple[str | int, ...], findings: Findings) -> Block:
    """Key/value heads default to the heads, the head width to hidden_size / heads, keys to the width of values."""
    block = block.model_copy(update={"norms": block.norm_count})
    attention = block.attention
    if not isinstance(attention, SoftmaxAttention | LinearAttention):
        return block
    kv_heads = attention.kv_heads or attention.heads
    if attention.heads % kv_heads:
        findings.add((*path, "attention", "kv_heads"), "conflict", f"kv_heads must divide heads ({attention.heads})")
    if not attention.head_dim and transformer.hidden_size % attention.heads:
        findings.add((*path, "attention", "heads"), "conflict", "heads does not divide hidden_size; give head_dim")
    head_dim = attention.head_dim or max(1, transformer.hidden_size // attention.heads)
    filled: dict[str, int | bool] = {"kv_heads": kv_heads, "head_dim": head_dim}
    if isinstance(attention, LinearAttention):
        filled["key_head_dim"] = attention.key_head_dim or head_dim
    else:
        filled["output_bias"] = attention.has_output_bias
    return block.model_copy(update={"attention": attention.model_copy(update=filled)})


def _complete_workload(workload: Workload, framework: str, findings: Findings) -> Workload:
    software, kernels = _complete_software(workload.software, framework, findings)
    stated = {key: getattr(workload.kernels, key) for key in workload.kernels.model_fields_set}
    return workload.model_copy(
        update={
            "max_sequence_length": workload.max_sequence_length or workload.sequence_lengths.longest_tokens,
            "software": software,
            "kernels": Kernels.model_validate({**kernels, **stated}),
        }
    )


def _complete_software(software: Software, framework: str, findings: Findings) -> tuple[Software, dict[str, str]]:
    """All assumptions of the profile, with the overrides; its choice of kernels."""
    name = software.name or _PROFILE_OF_FRAMEWORK.get(framework, framework)
    try:
        profile = catalog.find_profile(name)
    except catalog.UnknownName as error:
        path = ("workload", "software", "name") if software.name else ("framework", "name")
        code = "unknown_name" if software.name else "not_supported"
        findings.add(path, code, str(error), error.candidates)
        return software, {}
    for assumption in software.assumptions:
        if assumption not in profile.assumptions:
            close = catalog.nearest(assumption, profile.assumptions)
            hint = f"; did you mean {close!r}?" if close else ""
            message = f"{profile.name} has no assumption {assumption[:80]!r}{hint}"
            findings.add(
                ("workload", "software", "assumptions", assumption), "unknown_name", message, sorted(profile.assumptions)
            )
    values = {**profile.assumptions, **software.assumptions}
    complete = {key: values[key] for key in sorted(values)}
    return Software(name=profile.name, version=software.version, assumptions=complete), profile.kernels


def _complete_cluster(cluster: Cluster, findings: Findings) -> Cluster:
    groups = tuple(_complete_group(group, i, findings) for i, group in enumerate(cluster.groups))
    return cluster.model_copy(update={"groups": groups, "links": _complete_links(cluster.links, groups)})


def _node_defaults(device: str) -> tuple[int, dict[str, float], list[dict[str, Any]]]:
    """devices_per_node, host and fabric of a catalogue device, or of a node that is not in the catalogue."""
    known = catalog.devices().get(device)
    if known is not None:
        return known.devices_per_node, known.host, list(known.fabric)
    other = catalog.unlisted_node()
    return other["devices_per_node"], other["host"], other["fabric"]


def _complete_group(group: Group, index: int, findings: Findings) -> Group:
    per_node, host, default_fabric = _node_defaults(group.device.name)
    devices_per_node = group.devices_per_node or per_node
    tiers = group.fabric or tuple(FabricTier.model_validate(tier) for tier in default_fabric)
    path = ("cluster", "groups", index, "fabric")
    fabric = complete_fabric(tiers, group.nodes, devices_per_node, given=bool(group.fabric), path=path, findings=findings)
    given = {key: value for key, value in group.host.model_dump().items() if value}
    filled = {"devices_per_node": devices_per_node, "host": Host.model_validate({**host, **given}), "fabric": fabric}
    return group.model_copy(update=filled)


def _complete_links(links: tuple[Link, ...], groups: tuple[Group, ...]) -> tuple[Link, ...]:
    """The links given, and for every other pair of groups the slower of the two outermost tiers.

    Without a link, collectives may span groups of one vendor only.
    """
    linked = {frozenset(link.between) for link in links}
    missing = [(a, b) for a, b in combinations(groups, 2) if a.name != b.name and frozenset((a.name, b.name)) not in linked]
    return links + tuple(_default_link(a, b) for a, b in missing)


def _default_link(first: Group, second: Group) -> Link:
    rates = [group.fabric[-1].bytes_per_s_per_device * group.devices_per_node for group in (first, second)]
    return Link(
        between=(first.name, second.name),
        bytes_per_s_per_node=min(rates),
        latency_s=max(first.fabric[-1].latency_s, second.fabric[-1].latency_s),
        collectives=first.device.vendor == second.device.vendor,
    )
