"""The bytes of one rank of every class of equal ranks, added up tensor by tensor.

A class is one part of one stage: its ranks hold the same slices of the same layers and the same micro-batches in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from solver.certify.tensors import (
    Grid,
    Parameter,
    layer_input,
    layer_parameters,
    norm,
    padded_vocabulary,
    saved_tensors,
    table_numbers,
)
from solver.layout import Layout, Part, Recompute, Stage
from solver.problem.cluster import Group
from solver.problem.model import Block, Transformer
from solver.problem.problem import Problem
from solver.schedules import get_schedule

STATE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "none": 0}
OPTIMIZER_MOMENTS = {"adamw": 2, "adam": 2, "sgd": 1}
FUSED_LOSS_BYTES_PER_LOGIT = 6.0
GATHERED_LOSS_BYTES_PER_LOGIT = 14.0
LOSS_CHUNKS = 8
LIVE_LAYERS = 2
HOST_GRADIENT_BYTES = 4
COMMUNICATOR_AXES = ("tp", "cp", "dp", "pp", "ep")
DEFAULT_SELECTION = ("core_attn",)


@dataclass(frozen=True)
class RankBytes:
    """Bytes of one rank of a class; `host` is what all ranks of a node full of this class keep in host memory."""

    stage: int
    group: str
    items: dict[str, float]
    allocator: float
    context: float
    device_interval: tuple[float, float]
    limit: float
    capacity: float
    host: float
    verdict: str

    @property
    def allocated(self) -> float:
        return sum(self.items.values())

    @property
    def reserved(self) -> float:
        return self.allocated + self.allocator

    @property
    def device(self) -> float:
        return self.reserved + self.context


@dataclass(frozen=True)
class RankClass:
    """One part of one stage with what is needed to list its tensors."""

    problem: Problem
    layout: Layout
    index: int
    stage: Stage
    part: Part
    group: Group
    grid: Grid

    @property
    def model(self) -> Transformer:
        return self.problem.transformer

    @property
    def replicas(self) -> int:
        """Data-parallel ranks of the whole stage, its other parts included."""
        return sum(part.size("dp") for part in self.stage.parts)

    @property
    def gradient_bytes(self) -> int:
        return STATE_BYTES[self.problem.workload.optimizer.main_gradient]


def rank_classes(problem: Problem, layout: Layout) -> Iterator[RankClass]:
    """Every part of every stage, in pipeline order."""
    groups = {group.name: group for group in problem.cluster.groups}
    for index, stage in enumerate(layout.stages):
        for part in stage.parts:
            group = groups[part.group]
            yield RankClass(problem, layout, index, stage, part, group, _grid(problem, layout, stage, part, group))


def _grid(problem: Problem, layout: Layout, stage: Stage, part: Part, group: Group) -> Grid:
    workload = problem.workload
    tp, cp = part.size("tp"), part.size("cp")
    return Grid(
        tp=tp,
        cp=cp,
        ep=part.size("ep"),
        etp=part.size("etp"),
        sequence_parallel=stage.strategy.sequence_parallel and tp > 1,
        row_tokens=workload.max_sequence_length,
        tokens=layout.mbs * workload.max_sequence_length / cp,
        element_bytes=4 if (group.precision or workload.precision) == "fp32" else 2,
        expert_imbalance=workload.expert_imbalance,
    )


def rank_bytes(rank: RankClass) -> RankBytes:
    """All bytes of one rank of the class."""
    settings = rank.problem.workload.software.assumptions
    items = {**_states(rank), **_working_set(rank)}
    static = items["weights"] + items["gradients"] + items["optimizer"]
    dynamic = sum(items.values()) - static
    allocator = (settings["allocator_factor"] - 1) * dynamic
    context = settings["context_bytes"] + settings["communicator_bytes"] * _communicators(rank)
    device = static + dynamic + allocator + context
    doubt = settings["memory_static_error_fraction"] * (static + context)
    doubt += settings["memory_dynamic_error_fraction"] * settings["allocator_factor"] * dynamic
    free = 1 - rank.problem.cluster.memory_reserve_fraction
    limit = rank.group.device.memory_bytes * free
    host = _host_bytes(rank)
    host_fits = host <= rank.group.host.memory_bytes * free
    return RankBytes(
        stage=rank.index,
        group=rank.group.name,
        items=items,
        allocator=allocator,
        context=context,
        device_interval=(device - doubt, device + doubt),
        limit=limit,
        capacity=rank.group.device.memory_bytes,
        host=host,
        verdict=_verdict(device, device + doubt, limit) if host_fits else "no",
    )


def _verdict(middle: float, upper: float, limit: float) -> str:
    if upper <= limit:
        return "safe"
    return "fits" if middle <= limit else "no"


def _communicators(rank: RankClass) -> int:
    """Axes of more than one rank, each with its own communicator buffers."""
    sizes = {axis: rank.part.size(axis) for axis in ("tp", "cp", "ep")} | {"dp": rank.replicas, "pp": rank.layout.pp}
    return sum(sizes[axis] > 1 for axis in COMMUNICATOR_AXES)


# -------------------------------------------------------------------------------------------------------------------- states
def held_layers(rank: RankClass) -> Iterator[tuple[Block, Recompute, bool]]:
    """(sizes, recompute, prediction head?) of every layer held; multi-token-prediction layers last and like the last layer."""
    blocks = list(chain.from_iterable([block] * block.repeat for block in rank.model.blocks))
    recompute = rank.stage.strategy.recompute
    for layer in rank.stage.layers:
        recompute = rank.stage.recompute_of(layer)
        yield blocks[layer], recompute, False
    if "mtp" in rank.stage.holds:
        for _ in range(rank.model.mtp_layers):
            yield blocks[-1], recompute, True


def _per_layer_parameters(rank: RankClass) -> list[list[Parameter]]:
    return [list(layer_parameters(rank.model, block, rank.grid, prediction_head=head)) for block, _, head in held_layers(rank)]


def _end_parameters(rank: RankClass) -> Iterator[Parameter]:
    """Embedding, positions, final norm and output projection, where the stage holds them."""
    model, holds, split = rank.model, rank.stage.holds, rank.layout.pp > 1
    table = table_numbers(model, rank.grid)
    if "embedding" in holds:
        yield Parameter("embedding", table)
        if model.learned_positions:
            yield Parameter("positions", model.learned_positions * model.hidden_size)
    if "head" in holds:
        yield norm(model, "final norm")
        if not model.tied_embeddings or split:
            yield Parameter("output projection", table)
    if "mtp" in holds and split and not model.tied_embeddings:
        yield Parameter("prediction embedding", table)


def _sharded(rank: RankClass, shard: int, routed: bool) -> float:
    """Ranks over which one kind of state is cut; routed experts are cut over the replicas of their own mesh."""
    if shard == 1 or not routed:
        return float(shard)
    ranks = rank.replicas * rank.grid.cp
    copies = rank.grid.tp * ranks / (rank.grid.ep * rank.grid.etp)
    return max(1.0, copies * shard / ranks)


def _state_bytes(rank: RankClass, parameters: list[Parameter], bytes_each: float, shard: int) -> float:
    return sum(bytes_each * entry.numbers / _sharded(rank, shard, entry.routed) for entry in parameters)


def _optimizer_bytes_each(rank: RankClass) -> float:
    optimizer = rank.problem.workload.optimizer
    if optimizer.state_bytes_per_parameter is not None:
        return optimizer.state_bytes_per_parameter
    master = 0 if rank.grid.element_bytes == 4 else STATE_BYTES[optimizer.master]
    return master + OPTIMIZER_MOMENTS[optimizer.name] * STATE_BYTES[optimizer.moments]


def _all_parameters(rank: RankClass) -> list[Parameter]:
    return [*chain.from_iterable(_per_layer_parameters(rank)), *_end_parameters(rank)]


def _states(rank: RankClass) -> dict[str, float]:
    parameters = _all_parameters(rank)
    shard, offloaded = rank.stage.strategy.shard, rank.stage.strategy.offload.optimizer
    gradients = _state_bytes(rank, parameters, rank.gradient_bytes, shard.gradients.shard)
    optimizer = _state_bytes(rank, parameters, _optimizer_bytes_each(rank), shard.optimizer.shard)
    return {
        "weights": _state_bytes(rank, parameters, rank.grid.element_bytes, shard.parameters.shard),
        "gradients": gradients * (1 - offloaded) if shard.zero >= 2 else gradients,
        "optimizer": optimizer * (1 - offloaded),
    }


def _host_bytes(rank: RankClass) -> float:
    """Offloaded optimizer states and their fp32 gradients, of a node full of ranks of this class."""
    fraction = rank.stage.strategy.offload.optimizer
    each = _optimizer_bytes_each(rank) + HOST_GRADIENT_BYTES
    states = _state_bytes(rank, _all_parameters(rank), each, rank.stage.strategy.shard.optimizer.shard)
    return fraction * states * rank.group.devices_per_node


# --------------------------------------------------------------------------------------------------------------- working set
def _working_set(rank: RankClass) -> dict[str, float]:
    """Activations in flight, then whichever is larger of one layer's work and the loss, then gather and sharding buffers."""
    schedule = get_schedule(rank.layout.schedule.kind)
    in_flight = schedule.in_flight(rank.index, rank.layout.pp, rank.layout.vpp, rank.part.micro_batches)
    boundary = layer_input(rank.model, rank.grid).size_bytes
    items = {"activations": in_flight * (_saved_bytes(rank) + boundary)}
    work, logits = _work_bytes(rank), _logits_bytes(rank)
    items["workspace" if work >= logits else "logits"] = max(work, logits)
    items["buffers"] = _gather_bytes(rank) + _sharding_buffer_bytes(rank)
    return items


def _saved_bytes(rank: RankClass) -> float:
    """Bytes all layers of the stage keep of one micro-batch, each under its own recompute."""
    total = 0.0
    for block, recompute, head in held_layers(rank):
        if recompute.kind == "full":
            total += layer_input(rank.model, rank.grid).size_bytes
            continue
        dropped = (recompute.modules or DEFAULT_SELECTION) if recompute.kind == "selective" else ()
        tensors = saved_tensors(rank.model, block, rank.grid, rank.problem.workload.kernels, prediction_head=head)
        total += sum(tensor.size_bytes for tensor in tensors if tensor.rebuilt_by not in dropped)
    return total


def _work_bytes(rank: RankClass) -> float:
    """The largest layer's full set while it is recomputed; half of it (gradients beside values) when none is."""
    kernels = rank.problem.workload.kernels
    held = list(held_layers(rank))
    sets = (saved_tensors(rank.model, block, rank.grid, kernels, prediction_head=head) for block, _, head in held)
    largest = max((sum(tensor.size_bytes for tensor in tensors) for tensors in sets), default=0.0)
    return largest if any(recompute.kind == "full" for _, recompute, _ in held) else 0.5 * largest


def _logits_bytes(rank: RankClass) -> float:
    if "head" not in rank.stage.holds:
        return 0.0
    loss = rank.problem.workload.kernels.loss
    kept = rank.problem.workload.software.assumptions["loss_bytes_per_logit"]
    columns = padded_vocabulary(rank.model.vocab_size, rank.grid.tp) / (1 if loss == "gathered" else rank.grid.tp)
    bytes_each = {
        "fused": FUSED_LOSS_BYTES_PER_LOGIT,
        "gathered": GATHERED_LOSS_BYTES_PER_LOGIT,
        "chunked": kept / LOSS_CHUNKS,
        "vocab_parallel": kept,
    }[loss]
    return (1 + rank.model.mtp_layers) * bytes_each * rank.grid.tokens * columns


def _gather_bytes(rank: RankClass) -> float:
    """Inputs gathered over the sequence-parallel ranks that live at once."""
    if not rank.grid.sequence_parallel:
        return 0.0
    count = rank.problem.workload.software.assumptions["gather_buffer_count"]
    return count * rank.grid.element_bytes * rank.model.hidden_size * rank.grid.tokens


def _sharding_buffer_bytes(rank: RankClass) -> float:
    """ZeRO 2: one gradient bucket. ZeRO 3: two gathered layers, one layer's gradients, the embedding or head table."""
    zero = rank.stage.strategy.shard.zero
    if zero < 2:
        return 0.0
    if zero == 2:
        unsharded = _state_bytes(rank, _all_parameters(rank), rank.gradient_bytes, 1)
        return min(rank.problem.workload.software.assumptions["gradient_bucket_bytes"], unsharded)
    largest = max((sum(entry.numbers for entry in layer) for layer in _per_layer_parameters(rank)), default=0.0)
    table = table_numbers(rank.model, rank.grid) if {"embedding", "head"} & set(rank.stage.holds) else 0.0
    return (LIVE_LAYERS * rank.grid.element_bytes + rank.gradient_bytes) * largest + rank.grid.element_bytes * table
