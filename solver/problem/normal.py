"""The normal form: two documents that ask the same have equal normal forms, whatever their spelling."""

from __future__ import annotations

from collections import Counter
from typing import Any

from solver.problem.cluster import Cluster, Group, Link
from solver.problem.lengths import SequenceLengths
from solver.problem.model import Block, Model, Module, Transformer
from solver.problem.options import Constraints
from solver.problem.problem import Problem
from solver.problem.workload import Scenarios, Workload


def normalise(problem: Problem) -> Problem:
    """The same question with groups, links, counts and allowed values in order, and what cannot matter dropped.

    Takes a parsed (complete) problem. Idempotent.
    """
    return problem.model_copy(
        update={
            "model": _normal_model(problem.model),
            "workload": _normal_workload(problem.workload),
            "cluster": _normal_cluster(problem.cluster, problem.workload),
            "constraints": _normal_constraints(problem.constraints),
        }
    )


def normal_form(problem: Problem) -> dict[str, Any]:
    """The normal form as a JSON document, which `parse_problem` takes; the profile's name is replaced by its content."""
    document = normalise(problem).model_dump(mode="json", by_alias=True, exclude_none=True)
    document["search"] = problem.search.model_dump(mode="json")
    software = document["workload"]["software"]
    document["workload"]["software"] = {"assumptions": software["assumptions"]}
    if problem.workload.sequence_lengths.samples is not None:
        del document["workload"]["sequence_lengths"]["counts"]  # they follow from the samples and the modules
    return document


def _normal_model(model: Model) -> Model:
    if model.modules is not None:
        return model.model_copy(update={"modules": tuple(_normal_module(module) for module in model.modules)})
    assert model.transformer is not None, "a parsed problem has a transformer"
    return model.model_copy(update={"transformer": _normal_transformer(model.transformer)})


def _normal_module(module: Module) -> Module:
    if module.transformer is None:
        return module
    return module.model_copy(update={"transformer": _normal_transformer(module.transformer)})


def _normal_transformer(transformer: Transformer) -> Transformer:
    """Equal blocks in a row become one."""
    blocks: list[Block] = []
    for block in transformer.blocks:
        if blocks and blocks[-1].model_copy(update={"repeat": block.repeat}) == block:
            blocks[-1] = block.model_copy(update={"repeat": blocks[-1].repeat + block.repeat})
        else:
            blocks.append(block)
    return transformer.model_copy(update={"blocks": tuple(blocks)})


def _normal_workload(workload: Workload) -> Workload:
    lengths = workload.sequence_lengths
    scenarios = None if lengths.is_constant else workload.scenarios or Scenarios()
    return workload.model_copy(
        update={
            "sequence_lengths": _normal_lengths(lengths),
            "truncate": workload.truncate and lengths.longest_tokens > workload.max_sequence_length,
            "batching": tuple(sorted(workload.batching)),
            "scenarios": scenarios,
        }
    )


def _normal_lengths(lengths: SequenceLengths) -> SequenceLengths:
    """Counts by length, equal lengths added up; samples likewise. A form is never turned into another one."""
    if lengths.counts is None:
        return lengths
    total: Counter[int] = Counter()
    for length, count in lengths.counts:
        total[length] += count
    update: dict[str, Any] = {"counts": tuple(sorted(total.items()))}
    if lengths.samples is not None:
        samples: Counter[tuple[tuple[str, int], ...]] = Counter()
        for own, count in lengths.samples:
            samples[tuple(sorted((name, tokens) for name, tokens in own.items() if tokens))] += count
        update["samples"] = tuple((dict(own), count) for own, count in sorted(samples.items()))
    return lengths.model_copy(update=update)


def _normal_cluster(cluster: Cluster, workload: Workload) -> Cluster:
    groups = tuple(sorted((_normal_group(group, workload) for group in cluster.groups), key=lambda group: group.name))
    links = tuple(sorted((_normal_link(link) for link in cluster.links), key=lambda link: link.between))
    return cluster.model_copy(update={"groups": groups, "links": links})


def _normal_group(group: Group, workload: Workload) -> Group:
    peaks = dict(sorted(group.device.peak_flops_per_s.items()))
    device = group.device.model_copy(update={"peak_flops_per_s": peaks})
    return group.model_copy(update={"device": device, "precision": group.precision or workload.precision})


def _normal_link(link: Link) -> Link:
    return link.model_copy(update={"between": tuple(sorted(link.between))})


def _normal_constraints(constraints: Constraints) -> Constraints:
    """Words in order, allowed values ascending and once each."""
    allowed = {word: tuple(sorted(set(values), key=_rank)) for word, values in sorted(constraints.allowed.items())}
    return constraints.model_copy(update={"fixed": dict(sorted(constraints.fixed.items())), "allowed": allowed})


def _rank(value: Any) -> tuple[str, Any]:
    return ("", value) if isinstance(value, int | float) else (str(type(value)), value)
