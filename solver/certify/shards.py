"""The largest shard of tensors that are cut by whole rows, over an equal share: own arithmetic of the certificate."""

from __future__ import annotations

from itertools import chain
from math import ceil

from solver.certify.tensors import Grid, Parameter, layer_parameters, table_numbers
from solver.problem.model import MoeMlp, Transformer


def row_excess(model: Transformer, grid: Grid, ranks: int) -> float:
    """Matrices outside the routed experts, of the whole model."""
    held: list[Parameter] = []
    for block in model.blocks:
        held += [entry for entry in layer_parameters(model, block, grid) if not entry.routed] * block.repeat
    held += [entry for entry in layer_parameters(model, model.blocks[-1], grid) if not entry.routed] * model.mtp_layers
    tables = 1 if model.tied_embeddings else 2
    numbers = table_numbers(model, grid)
    held += [Parameter("table", numbers, rows=numbers / model.hidden_size)] * tables
    matrices = [entry for entry in held if entry.rows]
    padded = sum(ceil(entry.rows / ranks) * ranks * entry.numbers / entry.rows for entry in matrices)
    whole = sum(entry.numbers for entry in matrices)
    return padded / whole if whole else 1.0


def expert_excess(model: Transformer, grid: Grid, ranks: float) -> float:
    """Routed experts: cut by expert, or by the rows of one where there are more ranks than experts."""
    repeats = chain(((block.mlp, block.repeat) for block in model.blocks), [(model.blocks[-1].mlp, model.mtp_layers)])
    padded = whole = 0.0
    for mlp, count in repeats:
        if not isinstance(mlp, MoeMlp):
            continue
        local, width = mlp.experts / grid.ep, mlp.hidden_size / grid.etp
        rows = local if ranks <= local else width
        padded += count * local * width * ceil(rows / ranks) * ranks / rows
        whole += count * local * width
    return padded / whole if whole else 1.0
