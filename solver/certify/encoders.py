"""The tensors of the modules before the language model on a rank of the first stage: own arithmetic of the certificate.

An encoder is split over the tensor ranks where its heads and widths divide, else whole on every rank; patch projection, positions
and projectors are whole on every rank. Trained ones keep the input of every layer and rebuild one layer at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from solver.certify.saved import Software, layer_input, saved_tensors
from solver.certify.tensors import Grid, Parameter, layer_parameters, norm
from solver.cost.encoder_loads import Load, encoder_loads
from solver.problem.model import Module, Transformer
from solver.problem.problem import Problem


class EncoderBytes(NamedTuple):
    """Of all modules on one rank: weights by whether they are trained, bytes kept per micro-batch, the widest layer at work."""

    trained: list[Parameter]
    frozen: list[Parameter]
    saved_bytes: float
    work_bytes: float


def encoder_bytes(problem: Problem, grid: Grid, mbs: int, software: Software) -> EncoderBytes:
    """List what every module before the language model has, at the rows of one micro-batch."""
    trained: list[Parameter] = []
    frozen: list[Parameter] = []
    saved = work = 0.0
    for module, load in zip(problem.encoders, encoder_loads(problem), strict=True):
        returns = module.trainable or _fed_by_trained(problem, module)
        (trained if module.trainable else frozen).extend(_parameters(module, grid))
        kept, widest = _kept(module, load, grid, mbs, software, returns=returns)
        saved, work = saved + kept, max(work, widest)
    return EncoderBytes(trained, frozen, saved, work)


def _fed_by_trained(problem: Problem, module: Module) -> bool:
    """Gradients go through a frozen module to what feeds it."""
    sources = {edge.source for edge in module.inputs}
    return any(other.name in sources and (other.trainable or _fed_by_trained(problem, other)) for other in problem.encoders)


def _own_grid(encoder: Transformer, load: Load, grid: Grid, mbs: int) -> Grid:
    divides = all(
        size % grid.tp == 0
        for block in encoder.blocks
        for size in ([block.attention.heads] if block.attention is not None else [])
        + ([block.mlp.hidden_size] if block.mlp is not None else [])
    )
    tp = grid.tp if divides else 1
    tokens = mbs * load.most_tokens
    return replace(
        grid,
        tp=tp,
        cp=1,
        ep=1,
        etp=1,
        sequence_parallel=grid.sequence_parallel and tp > 1,
        row_tokens=load.unit_tokens,
        tokens=tokens,
    )


def _parameters(module: Module, grid: Grid) -> Iterator[Parameter]:
    for operator in module.layers.operators if module.layers is not None else ():
        ranks = grid.tp if "parameter" in operator.partitionable else 1
        yield Parameter(operator.name, operator.repeat * operator.parameters / ranks)
    encoder = module.transformer
    if encoder is None:
        return
    own = _own_grid(encoder, Load(0.0, 0.0, 1), grid, 1)
    for block in encoder.blocks:
        for entry in layer_parameters(encoder, block, own):
            yield Parameter(entry.name, block.repeat * entry.numbers)
    yield norm(encoder, "last norm")
    yield Parameter("patch projection", encoder.embedding_features * encoder.hidden_size)
    yield Parameter("positions", (encoder.learned_positions or 0) * encoder.hidden_size)
    if encoder.output_features:
        yield Parameter("projectors", encoder.output_count * _projector(encoder))


def _projector(encoder: Transformer) -> float:
    """Weights and biases from merged tokens to the features handed on."""
    widths = [encoder.hidden_size * encoder.output_merge, encoder.output_features]
    if encoder.output_hidden_size:
        widths.insert(1, encoder.output_hidden_size)
    return sum(wide * narrow + narrow for wide, narrow in itertools.pairwise(widths))


def _kept(module: Module, load: Load, grid: Grid, mbs: int, software: Software, *, returns: bool) -> tuple[float, float]:
    """(bytes of one micro-batch in flight, bytes of the widest layer) of one module."""
    if module.layers is not None:
        return _operators_kept(module, load, grid, mbs, returns=returns)
    encoder = module.transformer
    assert encoder is not None, "a module is a transformer or operators"
    own = _own_grid(encoder, load, grid, mbs)
    layers = sum(block.repeat for block in encoder.blocks)
    inputs = layers * layer_input(encoder, own).size_bytes if returns else 0.0
    widest = max(sum(tensor.size_bytes for tensor in saved_tensors(encoder, block, own, software)) for block in encoder.blocks)
    token = own.element_bytes * own.tokens
    joined = encoder.output_merge * encoder.output_pool
    handed_on = token * encoder.output_features * encoder.output_count / joined
    ends = 0.0
    if returns:
        between = 2 * encoder.output_hidden_size * encoder.output_count / joined
        ends = token * (encoder.embedding_features + encoder.hidden_size + between)
    return inputs + handed_on + ends, widest if returns else 0.5 * widest


def _operators_kept(module: Module, load: Load, grid: Grid, mbs: int, *, returns: bool) -> tuple[float, float]:
    assert module.layers is not None
    kept = widest = 0.0
    for operator in module.layers.operators:
        ranks = grid.tp if "parameter" in operator.partitionable else 1
        one = operator.activation_bytes_per_token * mbs * load.most_tokens / ranks
        kept += operator.repeat * one
        widest = max(widest, one)
    return kept if returns else 0.0, 0.5 * widest
