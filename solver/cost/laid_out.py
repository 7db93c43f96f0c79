"""A plan's layout as the arrays of the cost kernels, whatever its stages and parts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from solver.cost import columns as col
from solver.cost.operators import Points, selective_modules
from solver.cost.table import CostModel, MeshShape, peer_table
from solver.errors import FieldError, InvalidProblem
from solver.layout import Layout, Part, Recompute, Stage
from solver.schedules import get_schedule


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """`count` equal pipeline replicas; `parts[stages]` is the part of each stage they run on."""

    count: int
    micro_batches: int
    parts: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LaidOut:
    """Tables and index arrays of one layout; rows of `kinds`/`points`/`meshes` are (stage, part) in order."""

    layout: Layout
    chains: tuple[Chain, ...]
    kinds: np.ndarray
    points: np.ndarray
    meshes: np.ndarray
    peers: np.ndarray
    bounds: np.ndarray
    options: np.ndarray
    point_at: np.ndarray
    zero: int
    offload: float
    schedule: int

    @property
    def count(self) -> np.ndarray:
        return np.array([chain.count for chain in self.chains], dtype=np.int64)

    @property
    def micro_batches(self) -> np.ndarray:
        return np.array([chain.micro_batches for chain in self.chains], dtype=np.int64)


def lay_out(model: CostModel, layout: Layout) -> LaidOut:
    """Arrays of a legal layout; raises InvalidProblem (`not_supported`) for boundaries that would reshard micro-batches."""
    return lay_out_with(model, layout, *_point_rows(model, layout), _mesh_rows(model, layout))


def lay_out_with(model: CostModel, layout: Layout, kinds: np.ndarray, points: np.ndarray, meshes: np.ndarray) -> LaidOut:
    """Arrays of a legal layout over tables given by the caller, whose rows are (stage, part) in order."""
    stages = layout.stages
    starts = np.cumsum([0, *(len(stage.parts) for stage in stages)])
    chains = _chains(layout)
    point_at = np.array([[starts[i] + chain.parts[i] for i in range(len(stages))] for chain in chains], dtype=np.int64)
    strategy = stages[0].strategy
    _check_alike(layout)
    _check_priced(model, layout)
    return LaidOut(
        layout=layout,
        chains=chains,
        kinds=kinds,
        points=points,
        meshes=meshes,
        peers=peer_table(model),
        bounds=_bounds(layout),
        options=_options(model, layout),
        point_at=point_at,
        zero=strategy.shard.zero,
        offload=float(strategy.offload.optimizer),
        schedule=get_schedule(layout.schedule.kind).code,
    )


def _check_alike(layout: Layout) -> None:
    """States and offload of one kind on all stages (stages that differ there are not priced yet)."""
    first = layout.stages[0].strategy
    for index, stage in enumerate(layout.stages):
        same = _sharded(stage) == _sharded(layout.stages[0]) and stage.strategy.offload == first.offload
        if not same:
            message = "stages with different ZeRO levels or offload are not supported yet"
            raise InvalidProblem((FieldError(f"/modules/0/stages/{index}/strategy", "not_supported", message, None),))


def _check_priced(model: CostModel, layout: Layout) -> None:
    """Choices that a layout may state but that have one price only are refused when they state another (nothing is ignored)."""
    overlaps = model.problem.workload.software.assumptions["gradient_overlap_fraction"] > 0.0
    policy = {"padded": "padded", "packed": "packed_static_cp"}[model.problem.workload.batching[0]]
    found = []
    if layout.gradient_sync.overlap != overlaps:
        message = f"overlap {layout.gradient_sync.overlap} is not what the software profile assumes (gradient_overlap_fraction)"
        found.append(FieldError("/gradient_sync/overlap", "not_supported", message, (overlaps,)))
    if layout.sequence_policy != policy:
        message = f"{layout.sequence_policy} does not go with the problem's batching"
        found.append(FieldError("/sequence_policy", "conflict", message, (policy,)))
    for index, stage in enumerate(layout.stages):
        if stage.strategy.reshard_after_forward is False and stage.strategy.shard.zero >= 3:
            message = "parameters that stay gathered after the forward pass are not priced yet"
            pointer = f"/modules/0/stages/{index}/strategy/reshard_after_forward"
            found.append(FieldError(pointer, "not_supported", message, (True,)))
        if stage.strategy.shard.zero >= 1 and layout.gradient_sync.kind == "all_reduce":
            message = "sharded states reduce-scatter their gradients"
            found.append(FieldError("/gradient_sync/kind", "conflict", message, ("reduce_scatter",)))
            break
    if found:
        raise InvalidProblem(tuple(found))


def _sharded(stage: Stage) -> int:
    """ZeRO level of a stage; -1 where one rank holds everything, which goes with any."""
    return stage.strategy.shard.zero


def _chains(layout: Layout) -> tuple[Chain, ...]:
    """Replica classes: walk the replicas of every stage in parallel, splitting where any stage changes its part."""
    stages = layout.stages
    edges = sorted({edge for stage in stages for edge in _part_edges(stage)})
    chains = []
    for first, after in pairwise(edges):
        parts = []
        micro_batches = set()
        for stage in stages:
            index = int(np.searchsorted(_part_edges(stage), first, side="right")) - 1
            if index >= len(stage.parts):
                raise _reshard_error()
            parts.append(index)
            micro_batches.add(stage.parts[index].micro_batches)
        if len(micro_batches) != 1:
            raise _reshard_error()
        chains.append(Chain(count=after - first, micro_batches=micro_batches.pop(), parts=tuple(parts)))
    return tuple(chains)


def _part_edges(stage: Stage) -> list[int]:
    edges = [0]
    for part in stage.parts:
        edges.append(edges[-1] + part.size("dp"))
    return edges


def _reshard_error() -> InvalidProblem:
    message = "stages whose replicas do not line up (equal dp and micro_batches part by part) are not supported yet"
    return InvalidProblem((FieldError("/modules/0/stages", "not_supported", message, None),))


def _point_rows(model: CostModel, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Cost tables of every (stage, part): one call per group for its distinct points."""
    names = [group.name for group in model.problem.cluster.groups]
    entries = [(names.index(part.group), _point_key(stage, part), stage, part) for stage in layout.stages for part in stage.parts]
    kinds = np.zeros((len(entries), len(model.architecture.kinds), col.KIND_COLUMNS))
    points = np.zeros((len(entries), col.POINT_COLUMNS))
    for group in sorted({entry[0] for entry in entries}):
        distinct = sorted({entry[1] for entry in entries if entry[0] == group})
        rows = [index for index, entry in enumerate(entries) if entry[0] == group]
        first = {entries[index][1]: (layout.mbs, entries[index][2], entries[index][3]) for index in reversed(rows)}
        shapes = points_of([first[key] for key in distinct], model.scenarios.row_tokens)
        table = [distinct.index(entries[index][1]) for index in rows]
        group_kinds, group_points = model.point_tables(group, shapes)
        kinds[rows], points[rows] = group_kinds[table], group_points[table]
    return kinds, points


def _point_key(stage: Stage, part: Part) -> tuple[int, ...]:
    """tp, cp, cp kind, ep, etp, sp of a part."""
    sizes = (part.size("tp"), part.size("cp"), int(stage.strategy.cp_kind != "ring"), part.size("ep"), part.size("etp"))
    return (*sizes, int(stage.strategy.sequence_parallel))


def points_of(chosen: list[tuple[int, Stage, Part]], row_tokens: int) -> Points:
    """Points of (micro-batch size, stage, part), in order."""
    return Points(
        tp=np.array([part.size("tp") for _, _, part in chosen]),
        cp=np.array([part.size("cp") for _, _, part in chosen]),
        cp_kind=np.array([0 if stage.strategy.cp_kind == "ring" else 1 for _, stage, _ in chosen]),
        ep=np.array([part.size("ep") for _, _, part in chosen]),
        etp=np.array([part.size("etp") for _, _, part in chosen]),
        mbs=np.array([mbs for mbs, _, _ in chosen]),
        sp=np.array([int(stage.strategy.sequence_parallel) for _, stage, _ in chosen]),
        row_tokens=row_tokens,
    )


def _mesh_rows(model: CostModel, layout: Layout) -> np.ndarray:
    """Gradient meshes of every (stage, part); equal ones are computed once."""
    names = [group.name for group in model.problem.cluster.groups]
    known: dict[tuple[object, ...], np.ndarray] = {}
    rows = []
    for stage in layout.stages:
        spread: dict[int, int] = {}
        for part in stage.parts:
            spread[names.index(part.group)] = spread.get(names.index(part.group), 0) + part.size("dp")
        shared = stage.strategy.shard.optimizer.replicate if stage.strategy.shard.zero else 1
        for part in stage.parts:
            sizes = {axis: part.size(axis) for axis in ("tp", "cp", "ep", "etp")}
            key = (tuple(sorted(spread.items())), tuple(sizes.values()), shared)
            if key not in known:
                known[key] = _mesh_row(model, spread, sizes, shared)
            rows.append(known[key])
    return np.array(rows)


def _mesh_row(model: CostModel, spread: dict[int, int], sizes: dict[str, int], replicate: int) -> np.ndarray:
    if len(spread) > 1:
        return model.cross_mesh(tuple(sorted(spread.items())), **sizes)
    (group, dp), *_ = spread.items()
    row: np.ndarray = model.mesh_table(group, MeshShape.of(dp=dp, replicate=replicate, **sizes))[0]
    return row


def _bounds(layout: Layout) -> np.ndarray:
    counts = [last - first + 1 for _, _, (first, last) in layout.virtual_stages()]
    return np.cumsum([0, *counts]).astype(np.int64)


def _options(model: CostModel, layout: Layout) -> np.ndarray:
    options = np.zeros(model.architecture.layers, dtype=np.int64)
    for stage in layout.stages:
        for layer in stage.layers:
            options[layer] = option_of(model, stage.recompute_of(layer))
    return options


def option_of(model: CostModel, recompute: Recompute) -> int:
    """Option column of a recompute; selective without modules is the attention core (Megatron's default), or the profile's."""
    if recompute.kind == "none":
        return col.OPTION_NONE
    if recompute.kind == "full":
        return col.OPTION_FULL
    known = selective_modules(model.problem)
    modules = tuple(recompute.modules) or (known if "op" in known else ("core_attn",))
    if set(modules) == {"core_attn"}:
        return col.OPTION_CORE_ATTENTION
    if set(modules) == set(known):
        return col.OPTION_SELECTIVE
    message = f"selective recompute of {sorted(modules)} is not priced"
    allowed = (["core_attn"], sorted(known))
    raise InvalidProblem((FieldError("/modules/0/stages/0/strategy/recompute/modules", "not_supported", message, allowed),))


def recompute_of(model: CostModel, option: int) -> Recompute:
    """The recompute that an option column stands for."""
    if option == col.OPTION_NONE:
        return Recompute(kind="none")
    if option == col.OPTION_FULL:
        return Recompute(kind="full")
    modules = ("core_attn",) if option == col.OPTION_CORE_ATTENTION else selective_modules(model.problem)
    return Recompute(kind="selective", modules=modules)
