"""Any network as a chain or DAG of operators, by formulas per token or by measured costs."""

from __future__ import annotations

from typing import Annotated, Literal

from solver.problem.spec import Amount, Count, Name, Natural, Sized, Spec

RecomputeKind = Literal["none", "selective", "full"]
Partitionable = Literal["sample", "sequence", "attribute", "parameter", "expert"]


class OperatorCost(Spec):
    """One measurement: seconds of one micro-batch, bytes of one device, at (device, tp, mbs, recompute)."""

    device: Name
    tp: Count = 1
    mbs: Count = 1
    recompute: RecomputeKind = "none"
    forward_s: Amount
    backward_s: Amount
    parameter_bytes: Amount = 0.0
    activation_bytes: Amount = 0.0
    fixed_bytes: Amount = 0.0
    sync_s: Amount = 0.0


class Operator(Spec):
    """One operator (repeated); inputs null means the one before it in the list."""

    name: Name
    repeat: Count = 1
    inputs: tuple[Name, ...] | None = None
    parameters: Natural = 0
    forward_flops_per_token: Amount = 0.0
    activation_bytes_per_token: Amount = 0.0
    output_bytes_per_token: Amount = 0.0
    partitionable: tuple[Partitionable, ...] = ()
    costs: tuple[OperatorCost, ...] = ()


class Layers(Spec):
    """Operators and the formula that combines their costs."""

    cost_formula: Literal["native", "galvatron", "piper", "sailor", "aceso", "zorse"] = "native"
    operators: Annotated[tuple[Operator, ...], Sized(1, 65536)]
