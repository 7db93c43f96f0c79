"""Seconds and saved bytes of one layer kind at an array of points (tp, cp, ep, etp, mbs on one device kind).

Forward and backward are `base + slope x attention work` (see `solver.cost.scenarios`). Formulas: cost_models 1.5-1.7 and the
time prototype for time, the agreed tensor table (README, "Memory") for saved bytes. `T = mbs x row / cp` tokens of a rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.cost import columns as col
from solver.cost.architecture import LayerKind
from solver.cost.compute import DeviceCosts, soft_maximum
from solver.cost.network import Network
from solver.problem import Attention, MlaAttention, Mlp, MoeMlp, Problem

NORM_BYTES = 4.0
"""bytes an element of a fused norm moves (read and write of 16-bit values)"""
EAGER_NORM_BYTES = 30.0
RESIDUAL_BYTES = 6.0
RESIDUAL_DROPOUT_BYTES = 7.0
BACKWARD_STREAM_RATIO = 1.6
UNFUSED_GEMM_RATE = 0.69
UNFUSED_SCORE_BYTES = {False: (4.0, 8.0), True: (9.0, 15.0)}
"""forward and backward bytes a score of unfused attention moves, without and with dropout"""
ATTENTION_BACKWARD_FLOPS = 2.5
NARROW_HEAD_PENALTY = 1.2
CUDA_GRAPH_LAUNCH_FRACTION = 0.1
"""what is left of the launch floor when a captured graph is replayed"""
CONTEXT_PENALTY = 1.22
"""flash attention on a context-parallel slice is this much slower"""


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Arrays of equal length; `sp` 1 where sequence parallel; `tokens` = T."""

    tp: np.ndarray
    cp: np.ndarray
    cp_kind: np.ndarray
    ep: np.ndarray
    etp: np.ndarray
    mbs: np.ndarray
    sp: np.ndarray
    row_tokens: int

    @property
    def tokens(self) -> np.ndarray:
        return np.asarray(self.mbs * self.row_tokens / self.cp)

    @property
    def sequence_divisor(self) -> np.ndarray:
        """Ranks over which norm and residual tensors are spread."""
        return np.where(self.sp > 0, self.tp, 1)

    def __len__(self) -> int:
        return int(self.tp.shape[0])


@dataclass(slots=True)
class Pass:
    """Device seconds, exposed and hidden communication of one direction, before the launch floor."""

    device_s: np.ndarray
    tensor_s: np.ndarray
    context_s: np.ndarray
    expert_s: np.ndarray
    tensor_hidden_s: np.ndarray
    context_hidden_s: np.ndarray
    expert_hidden_s: np.ndarray

    @property
    def exposed_s(self) -> np.ndarray:
        return np.asarray(self.tensor_s + self.context_s + self.expert_s)


class LayerCosts:
    """Costs of layer kinds of one problem on one device kind."""

    def __init__(self, problem: Problem, device: DeviceCosts, network: Network, points: Points, least_work: float) -> None:
        self.problem = problem
        model = problem.model.transformer
        assert model is not None, "the cost model works on normalised problems"
        self.model = model
        self.hidden = float(self.model.hidden_size)
        self.workload = problem.workload
        self.kernels = problem.workload.kernels
        self.settings = problem.workload.software.assumptions
        self.device = device
        self.network = network
        self.points = points
        self.least_work = least_work
        self.tokens = points.tokens
        self.local_tokens = self.tokens / points.sequence_divisor
        self.element = device.element_bytes
        self.dropout = self.kernels.dropout > 0.0
        self.gated_tensors = 3.0 if self.kernels.glu == "fused" else 4.0
        self.imbalance = self.workload.expert_imbalance

    # ------------------------------------------------------------------------------------------------------------------ time
    def fill_times(self, kind: LayerKind, out: np.ndarray) -> None:
        """Write the time columns of one kind into `out[points, KIND_COLUMNS]`."""
        forward, backward = self._pass(kind, forward=True), self._pass(kind, forward=False)
        forward_slope, backward_slope = self._attention_slopes(kind.attention)
        floor = self.settings["launch_floor_s_per_layer"] * (CUDA_GRAPH_LAUNCH_FRACTION if self.kernels.cuda_graphs else 1.0)
        exponent = self.settings["launch_floor_exponent"]
        ratio = self.settings["backward_launch_ratio"]
        for direction, slope, launches, base_column in (
            (forward, forward_slope, floor, col.FORWARD_BASE),
            (backward, backward_slope, floor * ratio, col.BACKWARD_BASE),
        ):
            at_least = slope * self.least_work * self.points.mbs
            busy = direction.device_s + direction.exposed_s + at_least
            out[:, base_column] = soft_maximum(busy, launches, exponent) - at_least
            out[:, base_column + 1] = slope
        out[:, col.TENSOR_FORWARD], out[:, col.TENSOR_BACKWARD] = forward.tensor_s, backward.tensor_s
        out[:, col.CONTEXT_FORWARD], out[:, col.CONTEXT_BACKWARD] = forward.context_s, backward.context_s
        out[:, col.EXPERT_FORWARD], out[:, col.EXPERT_BACKWARD] = forward.expert_s, backward.expert_s
        out[:, col.TENSOR_HIDDEN] = forward.tensor_hidden_s + backward.tensor_hidden_s
        out[:, col.CONTEXT_HIDDEN] = forward.context_hidden_s + backward.context_hidden_s
        out[:, col.EXPERT_HIDDEN] = forward.expert_hidden_s + backward.expert_hidden_s
        self._fill_recompute(kind, forward_slope, out)

    def _pass(self, kind: LayerKind, *, forward: bool) -> Pass:
        device = self._projection_s(kind, forward=forward) + self._stream_s(kind, forward=forward)
        tensor = self._tensor_s(kind)
        tensor_overlap = self.settings["tensor_overlap_fraction"]
        context = self._context_s(kind.attention, forward=forward)
        slope = self._attention_slopes(kind.attention)[0 if forward else 1]
        exposed_fraction = self.settings["context_parallel_exposed_fraction"]
        window = slope * self.least_work * self.points.mbs
        ring = self.points.cp_kind == 0
        context_exposed = np.where(ring, np.maximum(exposed_fraction * context, context - window), context)
        expert = self._expert_s(kind.mlp)
        expert_overlap = self.settings["expert_overlap_fraction"]
        return Pass(
            device_s=device,
            tensor_s=tensor * (1.0 - tensor_overlap),
            context_s=context_exposed,
            expert_s=expert * (1.0 - expert_overlap),
            tensor_hidden_s=tensor * tensor_overlap,
            context_hidden_s=context - context_exposed,
            expert_hidden_s=expert * expert_overlap,
        )

    def _fill_recompute(self, kind: LayerKind, forward_slope: np.ndarray, out: np.ndarray) -> None:
        overhead = self.device.kernel_overhead_s
        out[:, col.RECOMPUTE_BASE + col.OPTION_NONE] = 0.0
        out[:, col.RECOMPUTE_SLOPE + col.OPTION_NONE] = 0.0
        out[:, col.RECOMPUTE_BASE + col.OPTION_CORE_ATTENTION] = 2.0 * overhead
        out[:, col.RECOMPUTE_SLOPE + col.OPTION_CORE_ATTENTION] = forward_slope
        out[:, col.RECOMPUTE_BASE + col.OPTION_SELECTIVE] = self._selective_s(kind)
        out[:, col.RECOMPUTE_SLOPE + col.OPTION_SELECTIVE] = (
            forward_slope if "core_attn" in selective_modules(self.problem) else 0.0
        )
        out[:, col.RECOMPUTE_BASE + col.OPTION_FULL] = out[:, col.FORWARD_BASE]
        out[:, col.RECOMPUTE_SLOPE + col.OPTION_FULL] = forward_slope

    def _selective_s(self, kind: LayerKind) -> np.ndarray:
        """Seconds to rebuild what the selective module list drops."""
        modules = selective_modules(self.problem)
        extra = self.settings["elementwise_factor"]
        seconds = np.zeros(len(self.points))
        if "layernorm" in modules:
            seconds = seconds + self.device.stream_s(2.0 * NORM_BYTES * self.hidden * self.local_tokens * extra)
        mlp = kind.mlp
        if mlp is not None and mlp.kind == "dense" and "mlp" in modules:
            width = (2.0 if mlp.gated else 1.0) * mlp.hidden_size / self.points.tp
            seconds = seconds + self.device.gemm_s(self.tokens, width, self.hidden)
            seconds = seconds + self.device.stream_s(self._activation_stream_bytes(mlp, self.tokens / self.points.tp) * extra)
            seconds = seconds + self._gather_s(self.tokens)
        if mlp is not None and mlp.kind == "moe" and "moe_act" in modules:
            rows = self.routed_rows(mlp)
            seconds = seconds + self.device.stream_s(rows * 6.0 * mlp.hidden_size * extra)
        attention = kind.attention
        if attention is not None and attention.kind == "mla" and "mla_up_proj" in modules:
            for m, n, k in self._latent_up(attention):
                seconds = seconds + self.device.gemm_s(m, n, k)
        return seconds

    def _projection_s(self, kind: LayerKind, *, forward: bool) -> np.ndarray:
        seconds = np.zeros(len(self.points))
        for m, n, k, batch in self._products(kind):
            if forward:
                seconds = seconds + self.device.gemm_s(m, n, k, batch)
                continue
            accumulate = self.device.stream_s(10.0 * n * k * batch)
            seconds = seconds + self.device.gemm_s(m, k, n, batch) + self.device.gemm_s(n, k, m, batch) + accumulate
        return seconds

    def _products(self, kind: LayerKind) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """(m, n, k, batch) of every weight product of the forward pass."""
        products = self._attention_products(kind.attention) + self._mlp_products(kind.mlp)
        if kind.prediction_head:
            products.append((self.tokens, self.hidden / self.points.tp, np.full(len(self.points), 2.0 * self.hidden)))
        one = np.ones(len(self.points))
        result = [(m + 0.0 * one, n + 0.0 * one, k + 0.0 * one, one) for m, n, k in products]
        mlp = kind.mlp
        if mlp is not None and mlp.kind == "moe":
            points = self.points
            batch = mlp.experts / points.ep
            rows = self.routed_rows(mlp) * points.etp / batch
            width = mlp.hidden_size / points.etp
            result.append((rows, (2.0 if mlp.gated else 1.0) * width, self.hidden * one, batch))
            result.append((rows, self.hidden * one, width, batch))
        return result

    def _attention_products(self, attention: Attention | None) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        if attention is None:
            return []
        one = np.ones(len(self.points))
        tp = self.points.tp
        if attention.kind != "mla":
            width = attention.head_dim * (attention.heads / tp + 2.0 * self.kv_heads(attention))
            return [
                (self.tokens, width, self.hidden * one),
                (self.tokens, self.hidden * one, attention.head_dim * attention.heads / tp),
            ]
        down = [(self.local_tokens, (attention.kv_lora_rank + attention.qk_rope_head_dim) * one, self.hidden * one)]
        if attention.q_lora_rank:
            down.append((self.local_tokens, attention.q_lora_rank * one, self.hidden * one))
        out = (self.tokens, self.hidden * one, attention.heads * attention.v_head_dim / tp)
        return [*down, *self._latent_up(attention), out]

    def _latent_up(self, attention: MlaAttention) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        one = np.ones(len(self.points))
        tp = self.points.tp
        query = attention.heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim) / tp
        value = attention.heads * (attention.qk_nope_head_dim + attention.v_head_dim) / tp
        depth = float(attention.q_lora_rank or self.hidden)
        return [(self.tokens, query, depth * one), (self.tokens, value, attention.kv_lora_rank * one)]

    def _mlp_products(self, mlp: Mlp | None) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        if mlp is None:
            return []
        one = np.ones(len(self.points))
        wide = 2.0 if mlp.gated else 1.0
        if mlp.kind == "dense":
            width = mlp.hidden_size / self.points.tp
            return [(self.tokens, wide * width, self.hidden * one), (self.tokens, self.hidden * one, width)]
        products = [(self.local_tokens, mlp.experts * one, self.hidden * one)]
        if mlp.shared_hidden_size:
            width = mlp.shared_hidden_size / self.points.tp
            products += [(self.tokens, wide * width, self.hidden * one), (self.tokens, self.hidden * one, width)]
        return products

    def _stream_s(self, kind: LayerKind, *, forward: bool) -> np.ndarray:
        """Norms, residuals, activation, rotary, transposes: bytes-bound (time prototype 1.2)."""
        eager = self.kernels.norm == "eager" and self.model.norm == "rms"
        norm = EAGER_NORM_BYTES if eager else NORM_BYTES
        residual = RESIDUAL_DROPOUT_BYTES if self.dropout else RESIDUAL_BYTES
        moved = self.local_tokens * self.hidden * (2.0 * norm + 2.0 * residual)
        attention = kind.attention
        if attention is not None:
            width = attention.head_dim if attention.kind != "mla" else attention.qk_nope_head_dim + attention.qk_rope_head_dim
            heads = attention.heads / self.points.tp + self.kv_heads(attention)
            rotary = 0.0 if self.model.learned_positions else 4.0
            moved = moved + self.tokens * (rotary * heads * width + 4.0 * (heads + self.kv_heads(attention)) * width)
            if self.kernels.attention == "unfused":
                moved = moved + self.tokens * 4.0 * attention.heads * width / self.points.tp
        mlp = kind.mlp
        if mlp is not None and mlp.kind == "dense":
            moved = moved + self._activation_stream_bytes(mlp, self.tokens / self.points.tp)
        elif mlp is not None:
            rows = self.routed_rows(mlp)
            moved = moved + rows * (12.0 * self.hidden + 6.0 * mlp.hidden_size)
            moved = moved + 6.0 * (mlp.shared_hidden_size or 0) * self.tokens / self.points.tp
        ratio = 1.0 if forward else BACKWARD_STREAM_RATIO
        return self.device.stream_s(moved * self.settings["elementwise_factor"] * ratio)

    def _activation_stream_bytes(self, mlp: Mlp, tokens: np.ndarray) -> np.ndarray:
        per_width = 4.0 if not mlp.gated else (6.0 if self.kernels.glu == "fused" else 10.0)
        return tokens * per_width * mlp.hidden_size

    def _attention_slopes(self, attention: Attention | None) -> tuple[np.ndarray, np.ndarray]:
        """Seconds per unit of attention work of one micro-batch, forward and backward."""
        if attention is None:
            return np.zeros(len(self.points)), np.zeros(len(self.points))
        points, device = self.points, self.device
        heads = attention.heads / points.tp / points.cp
        if attention.kind == "mla":
            width = float(attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim)
            head_dim = attention.qk_nope_head_dim + attention.qk_rope_head_dim
        else:
            width, head_dim = 2.0 * attention.head_dim, attention.head_dim
        if self.kernels.attention == "unfused":
            read, write = UNFUSED_SCORE_BYTES[self.dropout]
            product = 2.0 * width * heads / (device.gemm_flops_per_s * UNFUSED_GEMM_RATE)
            return product + heads * read / device.bytes_per_s, 2.0 * product + heads * write / device.bytes_per_s
        flops = width * heads * (1.0 if attention.causal else 2.0)
        penalty = np.where(points.cp > 1, CONTEXT_PENALTY, 1.0) * (NARROW_HEAD_PENALTY if head_dim <= 64 else 1.0)
        forward = flops * penalty / device.attention_forward_flops_per_s
        backward = flops * penalty * ATTENTION_BACKWARD_FLOPS / device.attention_backward_flops_per_s
        return forward, backward

    # --------------------------------------------------------------------------------------------------------- communication
    def _gather_s(self, tokens: np.ndarray) -> np.ndarray:
        latency, slope = self.network.gather(self.points.tp, np.ones(len(self.points)))
        return np.asarray(latency + slope * tokens * self.hidden * self.element)

    def _tensor_s(self, kind: LayerKind) -> np.ndarray:
        """All-gather + reduce-scatter (or the equal all-reduce) around attention and around the dense or shared MLP."""
        pairs = 0.0
        if kind.attention is not None:
            pairs += 1.0
        mlp = kind.mlp
        if mlp is not None and (mlp.kind == "dense" or mlp.shared_hidden_size):
            pairs += 1.0
        return 2.0 * pairs * self._gather_s(self.tokens)

    def _context_s(self, attention: Attention | None, *, forward: bool) -> np.ndarray:
        if attention is None:
            return np.zeros(len(self.points))
        points = self.points
        if attention.kind == "mla":
            keys = attention.heads / points.tp * (attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim)
            queries = (
                attention.heads / points.tp * (attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.v_head_dim)
            )
        else:
            keys = 2.0 * self.kv_heads(attention) * attention.head_dim
            queries = 2.0 * attention.heads / points.tp * attention.head_dim
        rounds = points.cp - 1
        latency, slope = self.network.point_to_point(points.tp * points.cp / 2.0)
        directions = 1.0 if forward else 2.0
        ring = rounds * latency + directions * rounds * self.tokens * keys * self.element * slope
        exchange_latency, exchange_slope = self.network.all_to_all(points.cp, points.tp)
        exchange = 4.0 * exchange_latency + exchange_slope * self.tokens * (keys + queries) * self.element
        return np.asarray(np.where(points.cp > 1, np.where(points.cp_kind == 0, ring, exchange), 0.0))

    def _expert_s(self, mlp: Mlp | None) -> np.ndarray:
        if mlp is None or mlp.kind != "moe":
            return np.zeros(len(self.points))
        points = self.points
        held = self.routed_rows(mlp) * self.hidden * self.element
        latency, slope = self.network.all_to_all(points.ep, points.etp)
        dispatch = 2.0 * (latency + slope * held)
        gather_latency, gather_slope = self.network.gather(points.etp, np.ones(len(points)))
        return np.asarray(dispatch + 2.0 * (gather_latency + gather_slope * held * points.etp))

    # -------------------------------------------------------------------------------------------------------------- helpers
    def kv_heads(self, attention: Attention) -> np.ndarray:
        """Key/value heads on a rank; more tensor ranks than heads replicate them. MLA expands to all heads."""
        if attention.kind == "mla":
            return np.asarray(attention.heads / self.points.tp)
        return np.asarray(np.maximum(attention.kv_heads / self.points.tp, 1.0))

    def routed_rows(self, mlp: MoeMlp) -> np.ndarray:
        """Token copies that the fullest rank's experts receive from one rank's worth of tokens."""
        return np.asarray(self.imbalance * mlp.top_k * self.local_tokens)


def selective_modules(problem: Problem) -> tuple[str, ...]:
    """What `selective` recompute drops in the search: the scores when they are materialised, else cheap large tensors."""
    if problem.workload.kernels.attention == "unfused":
        return ("core_attn",)
    model = problem.model.transformer
    assert model is not None
    modules = ["layernorm"]
    if any(block.mlp is not None and block.mlp.kind == "dense" for block in model.blocks):
        modules.append("mlp")
    if any(block.mlp is not None and block.mlp.kind == "moe" for block in model.blocks):
        modules.append("moe_act")
    if any(block.attention is not None and block.attention.kind == "mla" for block in model.blocks):
        modules.append("mla_up_proj")
    return tuple(modules)
