"""Seconds to rebuild what the selective recompute modules drop."""

from __future__ import annotations

import numpy as np

from solver.cost.architecture import LayerKind
from solver.cost.operators import dense, experts, softmax
from solver.cost.operators.context import LayerCosts
from solver.cost.operators.norms import NORM_BYTES
from solver.cost.operators.products import forward_s
from solver.problem import Problem


def selective_modules(problem: Problem) -> tuple[str, ...]:
    """What `selective` recompute drops in the search: the scores when they are materialised, else cheap large tensors.

    `op`: all but attention and every second product (the profile's meaning of selective, torchtitan).
    """
    if problem.workload.software.assumptions["selective_saves_operators"] > 0.0:
        return ("op",)
    if problem.workload.kernels.attention == "unfused":
        return ("core_attn",)
    model = problem.transformer
    modules = ["layernorm"]
    if any(block.mlp is not None and block.mlp.kind == "dense" for block in model.blocks):
        modules.append("mlp")
    if any(block.mlp is not None and block.mlp.kind == "moe" for block in model.blocks):
        modules.append("moe_act")
    if any(block.attention is not None and block.attention.kind == "mla" for block in model.blocks):
        modules.append("mla_up_proj")
    return tuple(modules)


def selective_s(costs: LayerCosts, kind: LayerKind) -> np.ndarray:
    """Seconds of the selective module list without the attention core."""
    modules = selective_modules(costs.problem)
    seconds = np.zeros(len(costs.points))
    if "layernorm" in modules:
        seconds = seconds + costs.stream_factor_s(kind.norms * NORM_BYTES * costs.hidden * costs.local_tokens)
    mlp = kind.mlp
    if mlp is not None and mlp.kind == "dense" and "mlp" in modules:
        seconds = seconds + forward_s(costs, dense.products(costs, mlp)[0])
        seconds = seconds + costs.stream_factor_s(dense.activation_bytes(costs, mlp.hidden_size, gated=mlp.gated))
        seconds = seconds + costs.gather_s(costs.tokens)
    if mlp is not None and mlp.kind == "moe" and "moe_act" in modules:
        rows = costs.routed_rows(mlp)
        seconds = seconds + costs.stream_factor_s(rows * experts.ROUTED_ACTIVATION_BYTES * mlp.hidden_size)
    attention = kind.attention
    if attention is not None and attention.kind == "mla" and "mla_up_proj" in modules:
        for product in softmax.latent_up(costs, attention):
            seconds = seconds + forward_s(costs, product)
    return seconds
