"""Bytes a parameter of weights, gradients and optimizer states, as they are used and as a software profile keeps them."""

from __future__ import annotations

import numpy as np

from solver.cost import columns as col
from solver.problem import Problem
from solver.units import STATE_BYTES

MOMENTS = {"adamw": 2, "adam": 2, "adamw_8bit": 2, "lion": 1, "sgd": 1}
"""kept numbers per parameter beside the master copy; those of adamw_8bit take one byte each"""
HOST_GRADIENT_BYTES = 4.0
"""fp32 gradient beside an offloaded optimizer state"""


def state_bytes(problem: Problem) -> tuple[float, float, float]:
    """(weight, gradient, optimizer) bytes a parameter (cost_models 1.2)."""
    workload = problem.workload
    optimizer = workload.optimizer
    weight = 4.0 if workload.precision == "fp32" else 2.0
    gradient = STATE_BYTES[optimizer.main_gradient]
    if optimizer.name == "custom":
        return weight, float(gradient), float(optimizer.state_bytes_per_parameter or 0.0)
    master = 0.0 if workload.precision == "fp32" else float(STATE_BYTES[optimizer.master])
    moment = 1.0 if optimizer.name == "adamw_8bit" else float(STATE_BYTES[optimizer.moments])
    return weight, float(gradient), master + MOMENTS[optimizer.name] * moment


def fill_kept_states(problem: Problem, values: np.ndarray) -> None:
    """Write the memory scalars of the profile (memory prototype 1.1: states, bytes a parameter).

    DeepSpeed fp16 keeps 2 + 2 and, sharded, 12 + 4 (the fp32 gradient of the step); its BF16_Optimizer 2 + 4 + 2 whole; FSDP with
    mixed precision keeps the master copy as the parameter.
    """
    settings = problem.workload.software.assumptions
    weight, gradient, optimizer = state_bytes(problem)
    kept_weight, kept_optimizer = weight, optimizer
    if settings["weights_are_master"] > 0.0 and master_bytes(problem) > weight:
        kept_weight, kept_optimizer = master_bytes(problem), optimizer - master_bytes(problem)
    narrow = gradient < 4.0
    values[col.KEPT_WEIGHT_STATE] = kept_weight + settings["state_padding_bytes_per_parameter"]
    values[col.KEPT_GRADIENT_STATE] = gradient + (0.0 if narrow else settings["accumulated_gradient_bytes_per_parameter"])
    values[col.KEPT_OPTIMIZER_STATE] = kept_optimizer + (settings["step_gradient_bytes_per_parameter"] if narrow else 0.0)
    if narrow:
        values[col.WHOLE_STEP_STATE] = settings["whole_step_gradient_bytes_per_parameter"]
    values[col.HOST_STATE] = kept_optimizer + HOST_GRADIENT_BYTES
    values[col.LIVE_GRADIENT_STATE] = gradient + settings["live_gradient_copy_bytes_per_parameter"]
    values[col.UNPIPED_COPY_STATE] = settings["unpiped_gradient_copy_bytes_per_parameter"]
    values[col.BUCKET_COUNT] = settings["gradient_bucket_count"]
    values[col.WORKING_SET_FACTOR] = settings["working_set_factor"]
    values[col.PIPELINE_KEEPS_GATHERED] = settings["pipeline_keeps_gathered"]
    values[col.SELECTIVE_REBUILDS] = settings["selective_saves_operators"]
    values[col.EXPERTS_ALWAYS_SHARDED] = float(settings["default_zero"] >= 1.0)


def master_bytes(problem: Problem) -> float:
    """Bytes of the master copy of a parameter, 0 without one."""
    workload = problem.workload
    if workload.precision == "fp32" or workload.optimizer.name == "custom":
        return 0.0
    return float(STATE_BYTES[workload.optimizer.master])
