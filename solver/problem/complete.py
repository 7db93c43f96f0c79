"""Fills every default that is a fact: sizes of presets and configs, catalogue nodes, software profile, links, lengths.

What cannot be filled is noted in the findings; the result is then not used.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

from solver import catalog
from solver.problem.cluster import Cluster, FabricTier, Group, Host, Link
from solver.problem.complete_model import complete_model
from solver.problem.constraints import typed_constraints
from solver.problem.fabric import complete_fabric
from solver.problem.findings import Findings
from solver.problem.problem import Problem
from solver.problem.samples import complete_lengths
from solver.problem.workload import Kernels, Software, Workload

#: Frameworks that run on the profile of another one until they have their own.
_PROFILE_OF_FRAMEWORK = {"any": "megatron-core"}


def complete(problem: Problem, findings: Findings) -> Problem:
    """The problem with every gap filled."""
    model = complete_model(problem.model, findings)
    lengths = complete_lengths(problem.workload.sequence_lengths, model.modules, findings)
    workload = problem.workload.model_copy(update={"sequence_lengths": lengths})
    return problem.model_copy(
        update={
            "model": model,
            "workload": _complete_workload(workload, problem.framework.name, findings),
            "cluster": _complete_cluster(problem.cluster, findings),
            "constraints": typed_constraints(problem.constraints, findings),
        }
    )


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
