"""Modules before the language model, priced on its first stage: run once per micro-batch, beside the embedding.

An encoder is split over the tensor ranks where its heads and widths divide, else every rank has all of it; its ends (patch
projection, projector) are on every rank. Context-parallel ranks each run all images of their rows. A trained encoder keeps the
input of every layer and rebuilds the layers in the backward; a frozen one runs forward only (and passes gradients through where
something before it is trained).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from solver.cost import columns as col
from solver.cost.architecture import LayerKind, architecture, attention_flops_per_work, projection_flops_per_token
from solver.cost.encoder_loads import Load, encoder_loads
from solver.cost.operators import LayerCosts, Points, fill_times
from solver.cost.saved import saved_bytes
from solver.cost.scenarios import WHOLE, Reach, WorkShare, reach, reached_work
from solver.cost.storage import layer_parameters
from solver.problem import Model, Problem, Transformer
from solver.problem.layers import Layers
from solver.problem.model import Module

FROZEN_WORK = 0.5
"""share of a layer's tensors that live at once where nothing is kept for a backward"""


@dataclass(slots=True)
class EncoderCosts:
    """Sums over the modules at each point: seconds and saved bytes per micro-batch, parameters on a rank, the widest layer."""

    forward_s: np.ndarray
    backward_s: np.ndarray
    trained: np.ndarray
    frozen: np.ndarray
    saved: np.ndarray
    work: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.work = np.zeros_like(self.saved)

    @staticmethod
    def none(points: int) -> EncoderCosts:
        """No module."""
        return EncoderCosts(*(np.zeros(points) for _ in range(5)))


def encoder_costs(costs: LayerCosts) -> EncoderCosts:
    """All modules before the language model at the points of `costs`."""
    problem = costs.problem
    total = EncoderCosts.none(len(costs.points))
    for module, load in zip(problem.encoders, encoder_loads(problem), strict=True):
        if module.transformer is not None:
            _add_transformer(costs, module, module.transformer, load, total)
        elif module.layers is not None:
            _add_operators(costs, module, module.layers, load, total)
    return total


def gradients_pass(problem: Problem, module: Module) -> bool:
    """Whether something that feeds the module is trained, so that a frozen module still has a backward."""
    named = {other.name: other for other in problem.encoders}
    return any(named[edge.source].trainable or gradients_pass(problem, named[edge.source]) for edge in module.inputs)


# ---------------------------------------------------------------------------------------------------------------- transformers
def split_over_tensor(encoder: Transformer, tp: np.ndarray) -> np.ndarray:
    """Tensor ranks that share the encoder: all of them, or one where a head or a width does not divide."""
    fits = np.ones(tp.shape, dtype=bool)
    for block in encoder.blocks:
        sizes = [] if block.mlp is None else [block.mlp.hidden_size]
        if block.attention is not None:
            sizes.append(block.attention.heads)
        for size in sizes:
            fits &= size % tp == 0
    return np.where(fits, tp, 1)


def _inner_costs(costs: LayerCosts, encoder: Transformer, tokens: float, unit_tokens: int) -> LayerCosts:
    """The encoder's own sizes at the points of the language model: rows are sequences of `unit_tokens`."""
    points = costs.points
    one = np.ones(len(points), dtype=np.int64)
    tp = split_over_tensor(encoder, points.tp)
    inner = Points(
        tp=tp,
        cp=one,
        cp_kind=np.zeros(len(points), dtype=np.int64),
        ep=one,
        etp=one,
        mbs=points.mbs * (tokens / unit_tokens),
        sp=np.where(tp > 1, points.sp, 0),
        row_tokens=unit_tokens,
    )
    problem = costs.problem.model_copy(update={"model": Model(transformer=encoder)})
    shares = {within: WorkShare(_unit_work(unit_tokens, within), 0.0) for within in _reaches(problem, encoder)}
    return LayerCosts(problem, costs.device, costs.network, inner, shares, 0.0, costs.shared)


def _reaches(problem: Problem, encoder: Transformer) -> set[Reach]:
    attentions = [block.attention for block in encoder.blocks if block.attention is not None]
    return {WHOLE, *(reach(problem, attention) for attention in attentions if attention.kind != "linear")}


def _unit_work(unit_tokens: int, within: Reach) -> float:
    return float(reached_work(np.array([unit_tokens]), within).sum())


def encoder_kinds(encoder: Transformer) -> list[tuple[LayerKind, int]]:
    """Kinds of layer with how many there are of each."""
    shape = architecture(encoder)
    return [(kind, int((shape.kind_of_layer == index).sum())) for index, kind in enumerate(shape.kinds)]


def _add_transformer(costs: LayerCosts, module: Module, encoder: Transformer, load: Load, total: EncoderCosts) -> None:
    backward = module.trainable or gradients_pass(costs.problem, module)
    parameters = _end_parameters(encoder) + np.zeros(len(costs.points))
    usual = _inner_costs(costs, encoder, load.mean_tokens, load.unit_tokens)
    worst = _inner_costs(costs, encoder, load.most_tokens, load.unit_tokens)
    widest = np.zeros(len(costs.points))
    for kind, count in encoder_kinds(encoder):
        dense, expert = layer_parameters(usual, kind)
        parameters = parameters + count * (dense + expert)
        table = np.zeros((len(costs.points), col.KIND_COLUMNS))
        fill_times(usual, kind, table)
        if load.mean_tokens > 0.0:
            total.forward_s += count * table[:, col.FORWARD_BASE]
            total.backward_s += count * (table[:, col.BACKWARD_BASE] + table[:, col.FORWARD_BASE]) * backward
        kept = saved_bytes(worst, kind)
        total.saved += count * kept[:, col.OPTION_FULL] * backward
        widest = np.maximum(widest, kept[:, col.OPTION_NONE])
    total.work = np.maximum(total.work, widest * (1.0 if backward else FROZEN_WORK))
    if load.mean_tokens > 0.0:
        _add_ends(usual, encoder, total, backward=backward)
    total.saved += _end_bytes(worst, encoder, backward=backward)
    if module.trainable:
        total.trained += parameters
    else:
        total.frozen += parameters


def _end_parameters(encoder: Transformer) -> float:
    """Patch projection, positions, last norm, projectors with their biases; on every rank."""
    hidden = encoder.hidden_size
    norm = hidden * (2 if encoder.norm == "layer" else 1)
    first = (encoder.embedding_features + (encoder.learned_positions or 0)) * hidden + norm
    if not encoder.output_features:
        return float(first)
    merged, middle = hidden * encoder.output_merge, encoder.output_hidden_size
    projector = (merged + 1) * middle + ((middle or merged) + 1) * encoder.output_features
    return float(first + encoder.output_count * projector)


def _end_products(encoder: Transformer) -> list[tuple[float, float, float]]:
    """(tokens out of one token in, width out, width in) of the projections."""
    hidden, share = float(encoder.hidden_size), 1.0 / (encoder.output_merge * encoder.output_pool)
    found = [(1.0, hidden, float(encoder.embedding_features))] if encoder.embedding_features else []
    if not encoder.output_features:
        return found
    merged, middle, out = hidden * encoder.output_merge, float(encoder.output_hidden_size), float(encoder.output_features)
    projector = [(share, middle, merged), (share, out, middle)] if middle else [(share, out, merged)]
    return found + projector * encoder.output_count


def _add_ends(inner: LayerCosts, encoder: Transformer, total: EncoderCosts, *, backward: bool) -> None:
    one = inner.one
    for share, width, depth in _end_products(encoder):
        rows = inner.tokens * share
        total.forward_s += inner.device.gemm_s(rows, width * one, depth * one)
        if backward:
            total.backward_s += inner.device.gemm_s(rows, depth * one, width * one)
            total.backward_s += inner.device.gemm_s(width * one, depth * one, rows)


def _end_bytes(inner: LayerCosts, encoder: Transformer, *, backward: bool) -> np.ndarray:
    """The features handed on; where there is a backward also the inputs of the projections and what is between them."""
    share = 1.0 / (encoder.output_merge * encoder.output_pool)
    kept = share * encoder.output_features * encoder.output_count
    if backward:
        kept += encoder.embedding_features + encoder.hidden_size
        kept += 2.0 * share * encoder.output_hidden_size * encoder.output_count
    return np.asarray(inner.element * kept * inner.tokens)


# ------------------------------------------------------------------------------------------------------------------- operators
def _add_operators(costs: LayerCosts, module: Module, layers: Layers, load: Load, total: EncoderCosts) -> None:
    """A chain of operators by formulas: one square product of their FLOPs each, backward twice the forward."""
    backward = module.trainable or gradients_pass(costs.problem, module)
    widest = np.zeros(len(costs.points))
    for operator in layers.operators:
        ranks = np.where("parameter" in operator.partitionable, costs.points.tp, 1)
        side = np.sqrt(operator.forward_flops_per_token / 2.0)
        if load.mean_tokens > 0.0 and side > 0.0:
            tokens = costs.points.mbs * load.mean_tokens
            seconds = operator.repeat * costs.device.gemm_s(tokens, side / ranks, side * costs.one)
            total.forward_s += seconds
            total.backward_s += (2.0 if module.trainable else 1.0) * seconds * backward
        kept = operator.activation_bytes_per_token * costs.points.mbs * load.most_tokens / ranks
        total.saved += operator.repeat * kept * backward
        widest = np.maximum(widest, kept)
        if module.trainable:
            total.trained += operator.repeat * operator.parameters / ranks
        else:
            total.frozen += operator.repeat * operator.parameters / ranks
    total.work = np.maximum(total.work, widest * FROZEN_WORK)


# ----------------------------------------------------------------------------------------------------------------- model FLOPs
def encoder_flops_per_row(problem: Problem) -> float:
    """Model FLOPs of one step and row: forward, and twice as much backward where trained (as much where gradients pass)."""
    total = 0.0
    for module, load in zip(problem.encoders, encoder_loads(problem), strict=True):
        passes = 3.0 if module.trainable else 2.0 if gradients_pass(problem, module) else 1.0
        per_token = 0.0
        if module.transformer is not None:
            encoder = module.transformer
            for kind, count in encoder_kinds(encoder):
                per_token += count * projection_flops_per_token(kind, encoder.hidden_size)
                per_token += count * _score_flops_per_token(problem, kind, load.unit_tokens)
            per_token += sum(2.0 * share * width * depth for share, width, depth in _end_products(encoder))
        elif module.layers is not None:
            per_token = sum(op.repeat * op.forward_flops_per_token for op in module.layers.operators)
        total += passes * per_token * load.mean_tokens
    return total


def _score_flops_per_token(problem: Problem, kind: LayerKind, unit_tokens: int) -> float:
    attention = kind.attention
    if attention is None or attention.kind == "linear":
        return 0.0
    seen = reach(problem, attention)[1] or unit_tokens
    return attention_flops_per_work(kind) * min(seen, unit_tokens)


# ----------------------------------------------------------------------------------------------------------------- what is told
def encoder_notes(problem: Problem) -> tuple[str, ...]:
    """What a plan says of the modules beside the one it plans."""
    notes = []
    for module, load in zip(problem.encoders, encoder_loads(problem), strict=True):
        how = "trained, its layers rebuilt in the backward" if module.trainable else "frozen"
        notes.append(
            f"Module {module.name} ({how}) runs on the first stage beside the embedding: "
            f"{load.mean_tokens:,.0f} tokens of its own a row, in sequences of {load.unit_tokens:,}."
        )
    if problem.encoders and problem.workload.sequence_lengths.samples is None:
        notes.append(
            "The lengths do not say how many tokens come from images: every token is taken as one that does. "
            "Give joint samples to price less."
        )
    return tuple(notes)
