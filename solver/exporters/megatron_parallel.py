"""Parallelism, recompute and gradient synchronisation of a layout as Megatron-core flags, and the order of its ranks."""

from __future__ import annotations

from collections.abc import Iterator

from solver.errors import FieldError
from solver.exporters.megatron_pipeline import layout_string, needs_layout_string
from solver.frameworks import recomputed_per_chunk
from solver.frameworks.columns import zero_stage
from solver.layout import Layout, Part
from solver.problem.problem import Problem

_CP_COMM_TYPES = {"ring": "p2p", "all_to_all": "a2a"}
_ORDER = ("tp", "cp", "dp")
_EXPERT_ORDER = ("etp", "ep", "edp")


def inexpressible_order(layout: Layout) -> Iterator[FieldError]:
    """Ranks go tp, cp, dp, pp from the innermost out (etp, ep, edp for experts), parts of a stage one after the other."""
    following = 0
    for index, stage in enumerate(layout.stages):
        for number, part in enumerate(stage.parts):
            pointer = f"/layout/modules/0/stages/{index}/parts/{number}"
            for first, last in part.ranks:
                if first != following:
                    text = f"ranks follow the stages: rank {following} is next, not {first}"
                    yield FieldError(f"{pointer}/ranks", "not_supported", text, None)
                following = last + 1
            yield from _inexpressible_mesh(pointer, part)
    kind = layout.gradient_sync.kind
    if (kind == "reduce_scatter") != (zero_stage(layout, layout.stages[0]) > 0):
        text = f"{kind} goes with the {'distributed' if kind == 'reduce_scatter' else 'plain'} optimizer"
        yield FieldError("/layout/gradient_sync/kind", "conflict", text, None)


def _inexpressible_mesh(pointer: str, part: Part) -> Iterator[FieldError]:
    for name, mesh, order in (("mesh", part.mesh, _ORDER), ("expert_mesh", part.expert_mesh, _EXPERT_ORDER)):
        axes = [entry.axis for entry in mesh if entry.size > 1]
        if axes != sorted(axes, key=order.index):
            text = f"axes go {', '.join(order)} from the innermost out"
            yield FieldError(f"{pointer}/{name}", "not_supported", text, order)


def parallel_flags(problem: Problem, layout: Layout) -> list[str]:
    part, strategy = layout.stages[0].parts[0], layout.stages[0].strategy
    flags = [
        f"--tensor-model-parallel-size {part.size('tp')}",
        f"--context-parallel-size {part.size('cp')}",
        f"--pipeline-model-parallel-size {layout.pp}",
        f"--expert-model-parallel-size {part.size('ep')}",
        f"--expert-tensor-parallel-size {part.size('etp')}",
    ]
    if part.size("tp") > 1 and strategy.sequence_parallel:
        flags.append("--sequence-parallel")
    if part.size("cp") > 1:
        flags.append(f"--cp-comm-type {_CP_COMM_TYPES[strategy.cp_kind]}")
    return [*flags, *_pipeline_flags(problem, layout)]


def _pipeline_flags(problem: Problem, layout: Layout) -> list[str]:
    flags = []
    if needs_layout_string(problem, layout):
        flags.append(f"--pipeline-model-parallel-layout '{layout_string(problem, layout)}'")
    elif layout.vpp > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {layout.vpp}")
    if layout.vpp > 1:
        flags.append(f"--microbatch-group-size-per-virtual-pipeline-stage {layout.pp}")
    return flags


def data_parallel_flags(layout: Layout) -> list[str]:
    flags, zero = [], zero_stage(layout, layout.stages[0])
    if zero:
        flags.append("--use-distributed-optimizer")
        replicas = layout.stages[0].strategy.shard.optimizer.replicate
        flags += [f"--num-distributed-optimizer-instances {replicas}"] if replicas > 1 else []
    if layout.gradient_sync.overlap:
        flags += ["--overlap-grad-reduce", *(["--overlap-param-gather"] if zero else [])]
    return flags


def recompute_flags(layout: Layout) -> list[str]:
    """Full recompute of all layers as `uniform` 1, of the first N of every virtual stage as `block` N (MC26, MC27)."""
    kinds = {stage.recompute_of(layer).kind for stage in layout.stages for layer in stage.layers}
    if kinds == {"selective"}:
        return ["--recompute-granularity selective", "--recompute-modules core_attn"]
    if kinds == {"full"}:
        return ["--recompute-granularity full", "--recompute-method uniform", "--recompute-num-layers 1"]
    count = recomputed_per_chunk(layout)
    assert count is not None, "other mixtures are refused before"
    return ["--recompute-granularity full", "--recompute-method block", f"--recompute-num-layers {count}"] if count else []


def environment(layout: Layout) -> dict[str, str]:
    """MC36: kernels of tensor and context parallelism are launched in order before Blackwell."""
    part = layout.stages[0].parts[0]
    return {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if part.size("tp") > 1 or part.size("cp") > 1 else {}
