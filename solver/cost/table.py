"""Cost tables of a problem: everything the stage kernels need, tabulated once per distinct point and gradient mesh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.cost import columns as col
from solver.cost.architecture import Architecture, LayerKind, architecture, padded_vocabulary
from solver.cost.compute import DeviceCosts
from solver.cost.encoders import EncoderCosts, encoder_costs
from solver.cost.network import GroupLink, Network, group_link, group_network
from solver.cost.operators import LayerCosts, Points, fill_times
from solver.cost.saved import saved_bytes
from solver.cost.scenarios import ScenarioSet, scenario_set
from solver.cost.shards import expert_excess, row_excess
from solver.cost.shared import SharedConstants, shared_constants
from solver.cost.states import fill_kept_states, state_bytes
from solver.cost.storage import layer_parameters, norm_width
from solver.problem import Problem

FUSED_LOSS_STREAM_BYTES = 12.0
"""bytes a logit moves through a fused loss (time prototype 1.2)"""
FUSED_BYTES_PER_LOGIT = 6.0
GATHERED_BYTES_PER_LOGIT = 14.0
LOSS_CHUNKS = 8.0
FORWARD_LOSS_SHARE = 0.4
EMBEDDING_STREAM_BYTES = 6.0
HOST_UPDATE_BYTES_PER_S = 2.0e10
"""host memory traffic one device's share of a CPU optimizer sustains"""


@dataclass(frozen=True, slots=True, eq=False)
class CostModel:
    """A normalised problem with its architecture, scenarios and per-group rates; builds tables on demand."""

    problem: Problem
    architecture: Architecture
    scenarios: ScenarioSet
    networks: tuple[Network, ...]
    links: dict[tuple[int, int], GroupLink]
    scalars: np.ndarray
    groups: np.ndarray
    shared: SharedConstants

    def point_tables(self, group: int, points: Points) -> tuple[np.ndarray, np.ndarray]:
        """(kind table [points, kinds, KIND_COLUMNS], point table [points, POINT_COLUMNS]) on one group."""
        costs = self.layer_costs(group, points)
        kinds = np.zeros((len(points), len(self.architecture.kinds), col.KIND_COLUMNS))
        table = np.zeros((len(points), col.POINT_COLUMNS))
        self._fill_points(costs, group, table)
        for index, kind in enumerate(self.architecture.kinds):
            self._fill_kind(costs, kind, kinds[:, index, :], table)
        return kinds, table

    def layer_costs(self, group: int, points: Points) -> LayerCosts:
        """Operator costs of points on one group."""
        spec = self.problem.cluster.groups[group]
        settings = self.problem.workload.software.assumptions
        precision = spec.precision or self.problem.workload.precision
        device = DeviceCosts(spec.device, precision, settings, self.shared)
        scenarios = self.scenarios
        return LayerCosts(self.problem, device, self.networks[group], points, scenarios.shares, scenarios.least_work, self.shared)

    def _fill_kind(self, costs: LayerCosts, kind: LayerKind, out: np.ndarray, table: np.ndarray) -> None:
        out[:, col.DENSE_PARAMETERS], out[:, col.EXPERT_PARAMETERS] = layer_parameters(costs, kind)
        out[:, col.ACTIVATION : col.ACTIVATION + col.OPTIONS] = saved_bytes(costs, kind)
        fill_times(costs, kind, out)
        if kind.prediction_head:
            out[:, col.FORWARD_BASE] += table[:, col.HEAD_FORWARD]
            out[:, col.BACKWARD_BASE] += table[:, col.HEAD_BACKWARD]
            out[:, col.WEIGHT_BASE] += table[:, col.HEAD_WEIGHT]

    def _fill_points(self, costs: LayerCosts, group: int, table: np.ndarray) -> None:
        points, model = costs.points, self.architecture.model
        hidden, tokens = costs.hidden, costs.tokens
        vocabulary = padded_vocabulary(model.vocab_size, points.tp, costs.settings["vocabulary_multiple"]) / points.tp
        table[:, col.TABLE_PARAMETERS] = vocabulary * hidden
        table[:, col.EMBEDDING_PARAMETERS] = vocabulary * hidden + (model.learned_positions or 0) * hidden
        head_bias = vocabulary if model.head_bias else 0.0
        table[:, col.NORM_PARAMETERS] = norm_width(costs) * hidden + head_bias
        table[:, col.BOUNDARY_BYTES] = costs.element * hidden * costs.local_tokens
        gathers = (points.sp > 0) & (points.tp > 1)
        buffers = self.problem.workload.software.assumptions["gather_buffer_count"]
        table[:, col.GATHER_BYTES] = np.where(gathers, buffers * costs.element * hidden * tokens, 0.0)
        table[:, col.LOGITS_BYTES] = self._logits_bytes(costs, vocabulary)
        self._fill_ends(costs, vocabulary, table)
        if self.problem.encoders:
            _fill_encoders(encoder_costs(costs), table)
        table[:, col.POINT_TP], table[:, col.POINT_CP] = points.tp, points.cp
        table[:, col.POINT_EP], table[:, col.POINT_ETP] = points.ep, points.etp
        table[:, col.POINT_MBS] = points.mbs
        table[:, col.POINT_GROUP] = group
        table[:, col.WEIGHT_BYTES] = costs.element
        table[:, col.STREAM_BYTES_PER_S] = costs.device.bytes_per_s

    def _logits_bytes(self, costs: LayerCosts, vocabulary: np.ndarray) -> np.ndarray:
        loss = costs.kernels.loss
        per_logit = costs.settings["loss_bytes_per_logit"]
        heads = 1.0 + self.architecture.mtp_layers
        logits: np.ndarray = heads * costs.tokens * vocabulary
        if loss == "fused":
            return logits * FUSED_BYTES_PER_LOGIT
        if loss == "chunked":
            return logits * per_logit / LOSS_CHUNKS
        if loss == "gathered":
            return np.asarray(logits * costs.points.tp * GATHERED_BYTES_PER_LOGIT)
        whole = costs.settings["whole_loss_bytes_per_logit"] or per_logit
        return np.asarray(logits * np.where(costs.points.tp > 1, per_logit, whole))

    def _fill_ends(self, costs: LayerCosts, vocabulary: np.ndarray, table: np.ndarray) -> None:
        """Embedding and head: three products, the loss's bytes, the sequence-parallel collectives around them."""
        device, tokens, hidden = costs.device, costs.tokens, costs.hidden
        one = np.ones(len(costs.points))
        lookup = device.stream_s(EMBEDDING_STREAM_BYTES * hidden * tokens) + device.kernel_overhead_s
        gather = costs.gather_s(tokens)
        per_logit = FUSED_LOSS_STREAM_BYTES if costs.kernels.loss == "fused" else self.shared.loss_stream_bytes
        loss_s = device.stream_s(per_logit * tokens * vocabulary)
        product = device.gemm_s(tokens, vocabulary, hidden * one)
        weight = device.gemm_s(vocabulary, hidden * one, tokens)
        backward = device.gemm_s(tokens, hidden * one, vocabulary) + weight
        table[:, col.EMBEDDING_FORWARD] = lookup + gather
        table[:, col.EMBEDDING_BACKWARD] = lookup + gather
        table[:, col.HEAD_FORWARD] = product + FORWARD_LOSS_SHARE * loss_s + gather
        table[:, col.HEAD_BACKWARD] = backward + (1.0 - FORWARD_LOSS_SHARE) * loss_s + gather
        table[:, col.HEAD_WEIGHT] = weight

    # ---------------------------------------------------------------------------------------------------------------- meshes
    def mesh_table(self, group: int, shape: MeshShape) -> np.ndarray:
        """float64[meshes, MESH_COLUMNS] of stages that sit on one group."""
        network = self.networks[group]
        table = np.zeros((shape.tp.shape[0], col.MESH_COLUMNS))
        ranks = shape.cp * shape.dp
        shard = np.maximum(ranks // shape.replicate, 1)
        expert_ranks = np.maximum(shape.tp * ranks // (shape.ep * shape.etp), 1)
        expert_shard = np.maximum(expert_ranks // shape.replicate, 1)
        table[:, col.SHARD_RANKS], table[:, col.EXPERT_SHARD_RANKS] = shard, expert_shard
        table[:, col.REPLICATED_RANKS], table[:, col.EXPERT_REPLICATED_RANKS] = ranks // shard, expert_ranks // expert_shard
        table[:, col.SHARD_LATENCY], table[:, col.SHARD_SLOPE] = network.gather(shard, shape.tp)
        table[:, col.SHARD_LOAD] = network.load(shard, shape.tp)
        table[:, col.REPLICA_LATENCY], table[:, col.REPLICA_SLOPE] = network.gather(ranks // shard, shape.tp * shard)
        stride = shape.etp * shape.ep
        table[:, col.EXPERT_SHARD_LATENCY], table[:, col.EXPERT_SHARD_SLOPE] = network.gather(expert_shard, stride)
        replica = network.gather(expert_ranks // expert_shard, stride * expert_shard)
        table[:, col.EXPERT_REPLICA_LATENCY], table[:, col.EXPERT_REPLICA_SLOPE] = replica
        table[:, col.PEER_LATENCY], table[:, col.PEER_SLOPE] = network.point_to_point(shape.tp * ranks)
        table[:, col.MESH_DP] = shape.dp
        self._fill_excess(shape, shard, expert_shard, table)
        table[:, col.SYNC_FIXED] = self._sync_fixed_s(group, ranks, shard, shape.tp)
        return table

    def _fill_excess(self, shape: MeshShape, shard: np.ndarray, expert_shard: np.ndarray, table: np.ndarray) -> None:
        """How far the largest shard is above an equal one."""
        settings = self.problem.workload.software.assumptions
        table[:, col.SHARD_EXCESS] = table[:, col.EXPERT_SHARD_EXCESS] = 1.0
        if settings["shards_are_rows"] > 0.0:
            multiple = settings["vocabulary_multiple"]
            table[:, col.SHARD_EXCESS] = row_excess(self.architecture, shape.tp, shard, multiple)
            table[:, col.EXPERT_SHARD_EXCESS] = expert_excess(self.architecture, shape.ep, shape.etp, expert_shard)

    def _sync_fixed_s(self, group: int, ranks: np.ndarray, shard: np.ndarray, tp: np.ndarray) -> np.ndarray:
        """Waiting per doubling of the nodes that reduce gradients; one broadcast a rank where parameters are not gathered."""
        per_node = self.problem.cluster.groups[group].devices_per_node
        nodes = np.maximum(ranks * np.minimum(tp, per_node) / per_node, 1.0)
        fixed = self.shared.gradient_step_s * np.log2(nodes)
        if self.problem.workload.software.assumptions["parameter_broadcast"] > 0.0:
            fixed = fixed + np.where(shard * tp > per_node, self.shared.broadcast_latency_s * shard, 0.0)
        return np.asarray(np.where(ranks > 1, fixed, 0.0))

    def cross_mesh(self, parts: tuple[tuple[int, int], ...], tp: int, cp: int, ep: int, etp: int) -> np.ndarray:
        """One mesh row for a stage whose equal meshes sit on several groups: `parts` are (group, dp).

        Gather inside each group, then exchange over the links: the second step moves `(K-1)/K` of what a rank of the smallest
        part holds.
        """
        row = np.zeros(col.MESH_COLUMNS)
        for group, dp in parts:
            single = MeshShape.of(tp=tp, cp=cp, dp=dp, ep=ep, etp=etp, replicate=1)
            np.maximum(row, self.mesh_table(group, single)[0], out=row)
        total = sum(dp for _, dp in parts) * cp
        least = min(dp for _, dp in parts) * cp
        links = [self.links[min(a, b), max(a, b)] for a, _ in parts for b, _ in parts if a < b]
        slowest = min(link.bytes_per_s for link in links)
        latency = max(link.latency_s for link in links)
        exchanged = (len(parts) - 1) / len(parts) / slowest
        row[col.SHARD_RANKS] = total
        row[col.EXPERT_SHARD_RANKS] = max(1, tp * total // (ep * etp))
        row[col.REPLICATED_RANKS] = row[col.EXPERT_REPLICATED_RANKS] = 1
        row[col.SHARD_LATENCY] += latency
        row[col.SHARD_SLOPE] += exchanged / least
        row[col.EXPERT_SHARD_LATENCY] += latency
        row[col.EXPERT_SHARD_SLOPE] += exchanged / max(1, tp * least // (ep * etp))
        row[col.MESH_DP] = total // cp
        whole = MeshShape.of(tp=tp, cp=cp, dp=total // cp, ep=ep, etp=etp, replicate=1)
        self._fill_excess(whole, np.array([total]), row[None, col.EXPERT_SHARD_RANKS], row[None, :])
        return row

    def collectives_cross(self, first: int, second: int) -> bool:
        """Whether collectives may span the two groups."""
        return self.links[min(first, second), max(first, second)].collectives

    def peer_across(self, first: int, second: int) -> tuple[float, float]:
        """(latency_s, s per byte) of a pipeline boundary between two groups."""
        link = self.links[min(first, second), max(first, second)]
        return link.latency_s, 1.0 / link.bytes_per_s


def _fill_encoders(encoders: EncoderCosts, table: np.ndarray) -> None:
    """The modules before the language model belong to the embedding: same stage, once per micro-batch."""
    table[:, col.EMBEDDING_FORWARD] += encoders.forward_s
    table[:, col.EMBEDDING_BACKWARD] += encoders.backward_s
    table[:, col.EMBEDDING_PARAMETERS] += encoders.trained
    table[:, col.ENCODER_PARAMETERS] = encoders.trained + encoders.frozen
    table[:, col.FROZEN_PARAMETERS] = encoders.frozen
    table[:, col.ENCODER_SAVED] = encoders.saved
    table[:, col.ENCODER_WORK] = encoders.work


@dataclass(frozen=True, slots=True, eq=False)
class MeshShape:
    """Integer arrays of equal length; `replicate` is the number of copies of a shard group."""

    tp: np.ndarray
    cp: np.ndarray
    dp: np.ndarray
    ep: np.ndarray
    etp: np.ndarray
    replicate: np.ndarray

    @staticmethod
    def of(*, tp: int, cp: int, dp: int, ep: int, etp: int, replicate: int) -> MeshShape:
        """A single mesh."""
        return MeshShape(*(np.array([value], dtype=np.int64) for value in (tp, cp, dp, ep, etp, replicate)))


def peer_table(model: CostModel) -> np.ndarray:
    """float64[groups, groups, 2] latency and s/byte of a pipeline boundary between two groups."""
    size = len(model.networks)
    table = np.zeros((size, size, 2))
    for first in range(size):
        for second in range(size):
            if first != second:
                table[first, second] = model.peer_across(first, second)
    return table


def cost_model(problem: Problem, shared: SharedConstants | None = None) -> CostModel:
    """Compile a normalised problem; `shared` other than the shipped constants is for fitting them."""
    shared = shared or shared_constants()
    model = problem.transformer
    shape = architecture(model)
    scenarios = scenario_set(problem)
    groups = problem.cluster.groups
    networks = tuple(group_network(group, shared) for group in groups)
    links = {(a, b): group_link(problem, a, b, shared) for a in range(len(groups)) for b in range(a + 1, len(groups))}
    return CostModel(
        problem=problem,
        architecture=shape,
        scenarios=scenarios,
        networks=networks,
        links=links,
        scalars=_scalars(problem, shape, scenarios, shared),
        groups=_group_table(problem),
        shared=shared,
    )


def _scalars(problem: Problem, shape: Architecture, scenarios: ScenarioSet, shared: SharedConstants) -> np.ndarray:
    settings = problem.workload.software.assumptions
    values = np.zeros(col.SCALARS)
    values[col.WEIGHT_STATE], values[col.GRADIENT_STATE], values[col.OPTIMIZER_STATE] = state_bytes(problem)
    values[col.TIED] = float(shape.model.tied_embeddings)
    for column, name in (
        (col.GRADIENT_OVERLAP, "gradient_overlap_fraction"),
        (col.GATHER_OVERLAP, "parameter_gather_overlap_fraction"),
        (col.SHARD_OVERLAP, "shard_overlap_fraction"),
        (col.PEER_EXPOSED, "p2p_exposed_fraction"),
        (col.STEP_OVERHEAD, "step_overhead_s"),
        (col.BUCKET_BYTES, "gradient_bucket_bytes"),
        (col.CONTEXT_BYTES, "context_bytes"),
        (col.COMMUNICATOR_BYTES, "communicator_bytes"),
        (col.ALLOCATOR_FACTOR, "allocator_factor"),
        (col.STATIC_ERROR, "memory_static_error_fraction"),
        (col.DYNAMIC_ERROR, "memory_dynamic_error_fraction"),
        (col.OFFLOAD_OVERLAP, "offload_overlap_fraction"),
        (col.OFFLOAD_EFFICIENCY, "offload_pcie_efficiency"),
    ):
        values[column] = settings[name]
    fill_kept_states(problem, values)
    values[col.HOST_UPDATE_BYTES_PER_S] = HOST_UPDATE_BYTES_PER_S
    values[col.OPTIMIZER_EFFICIENCY] = shared.optimizer_efficiency
    values[col.PEER_FIXED] = shared.peer_latency_s
    values[col.OVERLAP_SLOWDOWN] = shared.overlap_slowdown_fraction
    values[col.MTP_LAYERS], values[col.MTP_KIND] = shape.mtp_layers, shape.mtp_kind
    values[col.LEAST_WORK], values[col.MEAN_WORK] = scenarios.least_work, float(scenarios.work.mean())
    values[col.DEMAND_SAFE] = float(problem.constraints.memory != "fits")
    return values


def _group_table(problem: Problem) -> np.ndarray:
    table = np.zeros((len(problem.cluster.groups), col.GROUP_COLUMNS))
    keep = 1.0 - problem.cluster.memory_reserve_fraction
    for index, group in enumerate(problem.cluster.groups):
        table[index, col.CAPACITY_BYTES] = group.device.memory_bytes
        table[index, col.LIMIT_BYTES] = group.device.memory_bytes * keep
        table[index, col.HOST_LIMIT_BYTES] = group.host.memory_bytes * keep
        table[index, col.PCIE_BYTES_PER_S] = group.host.pcie_bytes_per_s
        table[index, col.DEVICES_PER_NODE] = group.devices_per_node
    return table
