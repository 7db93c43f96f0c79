"""The bytes of one rank of every class of equal ranks, added up tensor by tensor.

A class is one part of one stage: its ranks hold the same slices of the same layers and the same micro-batches in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from solver.certify.encoders import EncoderBytes, encoder_bytes
from solver.certify.saved import Software, layer_input, operator_saved, saved_tensors
from solver.certify.shards import expert_excess, row_excess
from solver.certify.tensors import Grid, Parameter, layer_parameters, norm, padded_vocabulary, table_numbers
from solver.layout import Layout, Part, Recompute, Stage
from solver.problem.cluster import Group
from solver.problem.model import Block, Transformer
from solver.problem.problem import Problem
from solver.schedules import get_schedule

STATE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "none": 0}
OPTIMIZER_MOMENTS = {"adamw": 2, "adam": 2, "sgd": 1, "lion": 1}
FUSED_LOSS_BYTES_PER_LOGIT = 6.0
GATHERED_LOSS_BYTES_PER_LOGIT = 14.0
LOSS_CHUNKS = 8
LIVE_LAYERS = 2
FP32_BYTES = 4
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
    def settings(self) -> dict[str, float]:
        """Constants of the software profile."""
        return self.problem.workload.software.assumptions

    @property
    def gradient_bytes(self) -> int:
        return STATE_BYTES[self.problem.workload.optimizer.main_gradient]

    @property
    def rebuilds_operators(self) -> bool:
        """Whether selective recompute keeps attention and every second product, and rebuilds the rest."""
        return self.settings["selective_saves_operators"] > 0

    @property
    def software(self) -> Software:
        return Software.of(self.problem.workload)

    @property
    def encoders(self) -> EncoderBytes:
        """The modules before the language model, where this stage runs them."""
        if "embedding" not in self.stage.holds:
            return EncoderBytes([], [], 0.0, 0.0)
        return encoder_bytes(self.problem, self.grid, self.layout.mbs, self.software)


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
        vocabulary_multiple=int(workload.software.assumptions["vocabulary_multiple"]),
    )


def rank_bytes(rank: RankClass) -> RankBytes:
    """All bytes of one rank of the class."""
    settings = rank.settings
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
    model, holds = rank.model, rank.stage.holds
    split = "embedding" not in holds
    table = table_numbers(model, rank.grid)
    if "embedding" in holds:
        yield Parameter("embedding", table)
        if model.learned_positions:
            yield Parameter("positions", model.learned_positions * model.hidden_size)
    if "head" in holds:
        yield norm(model, "final norm")
        if model.head_bias:
            yield Parameter("output bias", table / model.hidden_size)
        if not model.tied_embeddings or split:
            yield Parameter("output projection", table)
    if "mtp" in holds and split and not model.tied_embeddings:
        yield Parameter("prediction embedding", table)


def _sharded(rank: RankClass, shard: int, routed: bool) -> float:
    """Ranks over which one kind of state is cut; routed experts are cut over the replicas of their own mesh."""
    if shard == 1 or not routed:
        return float(shard)
    ranks = rank.replicas * rank.grid.cp
    return max(1.0, _expert_copies(rank) * shard / ranks)


def _expert_copies(rank: RankClass) -> float:
    """Ranks of a stage that hold the same routed experts."""
    return rank.grid.tp * rank.replicas * rank.grid.cp / (rank.grid.ep * rank.grid.etp)


def _state_bytes(rank: RankClass, parameters: list[Parameter], bytes_each: float, shard: int) -> float:
    pieces = [_sharded(rank, shard, routed) / _excess(rank, shard, routed) for routed in (False, True)]
    return sum(bytes_each * entry.numbers / pieces[entry.routed] for entry in parameters)


def _excess(rank: RankClass, shard: int, routed: bool) -> float:
    """The largest shard over an equal one, where shards are whole rows."""
    if not rank.settings["shards_are_rows"] or shard == 1:
        return 1.0
    ranks = _sharded(rank, shard, routed)
    return expert_excess(rank.model, rank.grid, ranks) if routed else row_excess(rank.model, rank.grid, shard)


def _updated_bytes(rank: RankClass, bytes_each: float) -> float:
    """Bytes of what the optimizer keeps. Where one rank is all of data parallelism there is nothing to state in the layout,
    but a distributed optimizer still cuts the experts over the tensor ranks that repeat them."""
    shard = rank.stage.strategy.shard.optimizer.shard
    parameters = _all_parameters(rank)
    if not _cuts_experts_alone(rank):
        return _state_bytes(rank, parameters, bytes_each, shard)
    copies = max(1.0, _expert_copies(rank))
    if rank.settings["shards_are_rows"]:
        copies /= expert_excess(rank.model, rank.grid, copies)
    return sum(bytes_each * entry.numbers / (copies if entry.routed else 1.0) for entry in parameters)


def _cuts_experts_alone(rank: RankClass) -> bool:
    """A distributed optimizer whose only shards are those of the experts."""
    return rank.replicas * rank.grid.cp == 1 and rank.settings["default_zero"] >= 1


def _optimizer_bytes_each(rank: RankClass) -> tuple[float, float]:
    """(master copy, moments) bytes a parameter."""
    optimizer = rank.problem.workload.optimizer
    if optimizer.state_bytes_per_parameter is not None:
        return 0.0, optimizer.state_bytes_per_parameter
    master = 0 if rank.grid.element_bytes == FP32_BYTES else STATE_BYTES[optimizer.master]
    if optimizer.name == "adamw_8bit":
        return float(master), 2.0
    return float(master), float(OPTIMIZER_MOMENTS[optimizer.name] * STATE_BYTES[optimizer.moments])


def _kept_bytes_each(rank: RankClass) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) bytes a parameter as the software keeps them."""
    settings = rank.settings
    master, moments = _optimizer_bytes_each(rank)
    weights: float = rank.grid.element_bytes
    if settings["weights_are_master"] and master > weights:
        weights, master = master, 0.0
    gradients: float = rank.gradient_bytes
    step = 0.0
    if rank.gradient_bytes < FP32_BYTES:
        step = settings["step_gradient_bytes_per_parameter"]
        if rank.stage.strategy.shard.zero == 0 and rank.replicas * rank.grid.cp > 1:
            step += settings["whole_step_gradient_bytes_per_parameter"]
    else:
        gradients += settings["accumulated_gradient_bytes_per_parameter"]
    return weights + settings["state_padding_bytes_per_parameter"], gradients, master + moments + step


def _all_parameters(rank: RankClass) -> list[Parameter]:
    return [*chain.from_iterable(_per_layer_parameters(rank)), *_end_parameters(rank), *rank.encoders.trained]


def _states(rank: RankClass) -> dict[str, float]:
    parameters = _all_parameters(rank)
    shard, offloaded = rank.stage.strategy.shard, rank.stage.strategy.offload.optimizer
    weight_bytes, gradient_bytes, optimizer_bytes = _kept_bytes_each(rank)
    gradients = _state_bytes(rank, parameters, gradient_bytes, shard.gradients.shard)
    frozen = _state_bytes(rank, rank.encoders.frozen, rank.grid.element_bytes, shard.parameters.shard)
    return {
        "weights": _state_bytes(rank, parameters, weight_bytes, shard.parameters.shard) + frozen,
        "gradients": gradients * (1 - offloaded) if shard.zero >= 2 else gradients,
        "optimizer": _updated_bytes(rank, optimizer_bytes) * (1 - offloaded),
    }


def _host_bytes(rank: RankClass) -> float:
    """Offloaded optimizer states and their fp32 gradients, of a node full of ranks of this class."""
    master, moments = _optimizer_bytes_each(rank)
    if rank.settings["weights_are_master"] and master > rank.grid.element_bytes:
        master = 0.0
    each = master + moments + FP32_BYTES
    return rank.stage.strategy.offload.optimizer * _updated_bytes(rank, each) * rank.group.devices_per_node


# --------------------------------------------------------------------------------------------------------------- working set
def _working_set(rank: RankClass) -> dict[str, float]:
    """Activations in flight, then whichever is larger of one layer's work and the loss, then gather and sharding buffers."""
    schedule = get_schedule(rank.layout.schedule.kind)
    in_flight = schedule.in_flight(rank.index, rank.layout.pp, rank.layout.vpp, rank.part.micro_batches)
    boundary = layer_input(rank.model, rank.grid).size_bytes
    encoders = rank.encoders
    items = {"activations": in_flight * (_saved_bytes(rank) + boundary + encoders.saved_bytes)}
    work = max(_work_bytes(rank), rank.settings["working_set_factor"] * encoders.work_bytes)
    logits = _logits_bytes(rank)
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
        if recompute.kind == "selective" and rank.rebuilds_operators:
            total += sum(tensor.size_bytes for tensor in operator_saved(rank.model, block, rank.grid, rank.software))
            continue
        dropped = (recompute.modules or DEFAULT_SELECTION) if recompute.kind == "selective" else ()
        tensors = saved_tensors(rank.model, block, rank.grid, rank.software, prediction_head=head)
        total += sum(tensor.size_bytes for tensor in tensors if tensor.rebuilt_by not in dropped)
    return total


def _work_bytes(rank: RankClass) -> float:
    """The largest layer's full set while it is rebuilt as a whole; half of it (gradients beside values) when none is."""
    held = list(held_layers(rank))
    sets = (saved_tensors(rank.model, block, rank.grid, rank.software, prediction_head=head) for block, _, head in held)
    largest = max((sum(tensor.size_bytes for tensor in tensors) for tensors in sets), default=0.0)
    whole = ("full", "selective") if rank.rebuilds_operators else ("full",)
    share = 1.0 if any(recompute.kind in whole for _, recompute, _ in held) else 0.5
    return share * rank.settings["working_set_factor"] * largest


def _logits_bytes(rank: RankClass) -> float:
    if "head" not in rank.stage.holds:
        return 0.0
    loss = rank.problem.workload.kernels.loss
    kept = rank.settings["loss_bytes_per_logit"]
    split = rank.grid.tp > 1 or not rank.settings["whole_loss_bytes_per_logit"]
    rows = padded_vocabulary(rank.model.vocab_size, rank.grid.tp, rank.grid.vocabulary_multiple)
    columns = rows / (1 if loss == "gathered" else rank.grid.tp)
    bytes_each = {
        "fused": FUSED_LOSS_BYTES_PER_LOGIT,
        "gathered": GATHERED_LOSS_BYTES_PER_LOGIT,
        "chunked": kept / LOSS_CHUNKS,
        "vocab_parallel": kept if split else rank.settings["whole_loss_bytes_per_logit"],
    }[loss]
    return (1 + rank.model.mtp_layers) * bytes_each * rank.grid.tokens * columns


def _gather_bytes(rank: RankClass) -> float:
    """Inputs gathered over the sequence-parallel ranks that live at once."""
    if not rank.grid.sequence_parallel:
        return 0.0
    count = rank.settings["gather_buffer_count"]
    return count * rank.grid.element_bytes * rank.model.hidden_size * rank.grid.tokens


def _sharding_buffer_bytes(rank: RankClass) -> float:
    """ZeRO 1 and 2: gradient buckets, and a copy without pipeline. ZeRO 3: two gathered layers, one layer's gradients, the
    tables held; or the gathered stage with its gradients."""
    zero, settings, element = rank.stage.strategy.shard.zero, rank.settings, rank.grid.element_bytes
    held = sum(entry.numbers for entry in _all_parameters(rank))
    if zero == 0:
        return 0.0
    bucket = min(settings["gradient_bucket_bytes"], rank.gradient_bytes * held)
    if zero == 2:
        return max(1.0, settings["gradient_bucket_count"]) * bucket
    if zero == 1:
        copy = settings["unpiped_gradient_copy_bytes_per_parameter"] * held if rank.layout.pp == 1 else 0.0
        return settings["gradient_bucket_count"] * bucket + copy
    if rank.layout.pp > 1 and settings["pipeline_keeps_gathered"]:
        return (element + rank.gradient_bytes) * held
    largest = max((sum(entry.numbers for entry in layer) for layer in _per_layer_parameters(rank)), default=0.0)
    names = ("embedding", "output projection")
    tables = sum(entry.numbers for entry in _end_parameters(rank) if entry.name in names)
    live = rank.gradient_bytes + settings["live_gradient_copy_bytes_per_parameter"]
    return (LIVE_LAYERS * element + live) * largest + element * tables + settings["gradient_bucket_count"] * bucket
