"""Precision, optimizer, kernels and batch of a workload as Megatron-core flags, and what of them has no flag."""

from __future__ import annotations

from collections.abc import Iterator

from solver.errors import FieldError
from solver.frameworks import read_facts
from solver.layout import Layout
from solver.problem.model import MlaAttention
from solver.problem.problem import Problem
from solver.problem.workload import Workload

_ADAM = ("adam", "adamw")
_MOMENTS = ("fp32", "bf16", "fp16", "fp8")
_MASTERS = ("fp32", "fp16")
_GRADIENTS = ("fp32", "bf16")


def needs_precision_aware_optimizer(problem: Problem, layout: Layout) -> bool:
    """State types other than fp32, and optimizer offload, go through the precision-aware optimizer (MC32)."""
    facts = read_facts(problem)
    return layout.stages[0].strategy.offload.optimizer > 0 or (facts.optimizer in _ADAM and not facts.plain_states)


def inexpressible_workload(problem: Problem, layout: Layout) -> Iterator[FieldError]:
    workload = problem.workload
    yield from _inexpressible_optimizer(workload)
    yield from _inexpressible_kernels(problem, layout)
    if workload.precision == "fp8":
        yield FieldError("/workload/precision", "not_supported", "fp8 is not exported", ("bf16", "fp16", "fp32"))
    if len({group.precision or workload.precision for group in problem.cluster.groups}) > 1:
        yield FieldError("/cluster/groups", "not_supported", "all groups compute in the same precision", None)
    if workload.task.kind == "lora":
        yield FieldError("/workload/task", "not_supported", "pretrain_gpt.py trains all weights", ("pretrain", "finetune"))


def _inexpressible_optimizer(workload: Workload) -> Iterator[FieldError]:
    optimizer = workload.optimizer
    if optimizer.name not in (*_ADAM, "sgd"):
        text = f"the optimizer {optimizer.name!r} is not exported"
        yield FieldError("/workload/optimizer/name", "not_supported", text, (*_ADAM, "sgd"))
        return
    if workload.precision == "fp32" or optimizer.name == "sgd":
        return
    for name, value, allowed in (
        ("master", optimizer.master, _MASTERS),
        ("moments", optimizer.moments, _MOMENTS),
        ("main_gradient", optimizer.main_gradient, _GRADIENTS),
    ):
        if value not in allowed:
            yield FieldError(f"/workload/optimizer/{name}", "not_supported", f"{name} in {value} is not available", allowed)


def _inexpressible_kernels(problem: Problem, layout: Layout) -> Iterator[FieldError]:
    kernels = problem.workload.kernels
    if kernels.loss in ("gathered", "chunked"):
        text = f"the loss is computed on the sharded vocabulary, not {kernels.loss}"
        yield FieldError("/workload/kernels/loss", "not_supported", text, ("vocab_parallel", "fused"))
    if kernels.norm == "eager":
        yield FieldError("/workload/kernels/norm", "not_supported", "norms are fused", ("fused",))
    if kernels.attention == "flash" and problem.workload.precision == "fp32":
        text = "flash attention computes in 16 bits"
        yield FieldError("/workload/kernels/attention", "conflict", text, ("unfused",))
    recomputes = any(stage.recompute_of(layer).kind == "full" for stage in layout.stages for layer in stage.layers)
    if kernels.cuda_graphs and recomputes:
        yield FieldError("/workload/kernels/cuda_graphs", "conflict", "CUDA graphs exclude full recompute", (False,))


def optimizer_flags(problem: Problem, layout: Layout) -> list[str]:
    optimizer, offload = problem.workload.optimizer, layout.stages[0].strategy.offload.optimizer
    flags = [f"--optimizer {'sgd' if optimizer.name == 'sgd' else 'adam'}"]
    if needs_precision_aware_optimizer(problem, layout):
        flags += [
            "--use-precision-aware-optimizer",
            f"--main-grads-dtype {optimizer.main_gradient}",
            f"--main-params-dtype {optimizer.master}",
            f"--exp-avg-dtype {optimizer.moments}",
            f"--exp-avg-sq-dtype {optimizer.moments}",
        ]
    if offload > 0:
        flags += ["--optimizer-cpu-offload", f"--optimizer-offload-fraction {offload:g}"]
    return flags


def precision_flags(problem: Problem) -> list[str]:
    workload = problem.workload
    flags = [] if workload.precision == "fp32" else [f"--{workload.precision}"]
    if workload.precision == "bf16":
        whole = workload.optimizer.main_gradient == "fp32"
        flags.append("--accumulate-allreduce-grads-in-fp32" if whole else "--grad-reduce-in-bf16")
    return flags


def kernel_flags(problem: Problem) -> list[str]:
    kernels, model = problem.workload.kernels, problem.transformer
    latent = isinstance(model.blocks[0].attention, MlaAttention)
    backend = "unfused" if kernels.attention == "unfused" else "fused" if latent else "flash"
    flags = ["--transformer-impl transformer_engine", f"--attention-backend {backend}"]
    flags += ["--no-bias-swiglu-fusion", "--no-bias-gelu-fusion"] if kernels.glu == "eager" else []
    flags += ["--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl te"] if kernels.loss == "fused" else []
    flags += ["--cuda-graph-impl local"] if kernels.cuda_graphs else []
    return [*flags, f"--attention-dropout {kernels.dropout:g}", f"--hidden-dropout {kernels.dropout:g}"]


def batch_flags(problem: Problem, layout: Layout) -> list[str]:
    return [
        f"--seq-length {problem.workload.max_sequence_length}",
        f"--micro-batch-size {layout.mbs}",
        f"--global-batch-size {layout.global_batch_sequences()}",
    ]
