"""Problems and layouts whose exports are kept as golden files."""

from __future__ import annotations

from typing import Any

from solver.dimensions.words import expand_uniform
from solver.layout import Layout, Override, Recompute, UniformLayout
from solver.problem import Problem, parse_problem


def ask(preset: str, rows: int, groups: list[dict[str, Any]], length: int = 4096, **workload: Any) -> Problem:
    return parse_problem(
        {
            "model": {"preset": preset},
            "workload": {"sequence_lengths": {"constant": length}, "global_batch": {"sequences": rows}, **workload},
            "cluster": {"groups": groups},
            "framework": "megatron-core",
        }
    )


def h100(nodes: int) -> dict[str, Any]:
    return {"name": "h100", "device": "H100-SXM5-80", "nodes": nodes, "devices_per_node": 8}


def a100(nodes: int) -> dict[str, Any]:
    return {"name": "a100", "device": "A100-SXM4-80", "nodes": nodes, "devices_per_node": 8}


def with_recomputed_layers(layout: Layout, count: int) -> Layout:
    """Full recompute of the first layers of every virtual stage."""
    stages = []
    for stage in layout.stages:
        overrides = tuple(
            Override(layers=(first, first + count - 1), recompute=Recompute(kind="full")) for first, _ in stage.chunks
        )
        stages.append(stage.model_copy(update={"overrides": overrides}))
    return layout.model_copy(update={"modules": (layout.modules[0].model_copy(update={"stages": tuple(stages)}),)})


def dense_one_node() -> tuple[Problem, Layout]:
    asked = ask("llama-3.1-8b", 128, [a100(1)], length=8192)
    return asked, expand_uniform(asked, UniformLayout(tp=2, recompute="selective"))


def dense_interleaved_block_recompute() -> tuple[Problem, Layout]:
    asked = ask("gpt3-175b", 1536, [a100(128)], length=2048)
    layout = expand_uniform(asked, UniformLayout(tp=8, pp=8, vpp=2))
    return asked, with_recomputed_layers(layout, 2)


def dense_uneven_offload() -> tuple[Problem, Layout]:
    asked = ask("llama-3.1-70b", 64, [a100(2)], length=8192)
    words = UniformLayout(tp=4, cp=1, pp=4, recompute="full", offload_optimizer=0.5)
    return asked, expand_uniform(asked, words, layers_per_chunk=[20, 21, 21, 18])


def deepseek() -> tuple[Problem, Layout]:
    asked = ask("deepseek-v3", 4096, [h100(32)])
    counts = [3] + [2] * 29 + [0, 0]
    return asked, expand_uniform(asked, UniformLayout(tp=2, pp=16, vpp=2, ep=8, recompute="selective"), counts)


def experts_context_parallel() -> tuple[Problem, Layout]:
    asked = ask("qwen3-30b-a3b", 64, [h100(2)], length=32768)
    return asked, expand_uniform(asked, UniformLayout(tp=2, cp=2, ep=8, cp_kind="all_to_all"))


def unlike_groups() -> tuple[Problem, Layout]:
    asked = ask("llama-3.1-70b", 64, [h100(2), a100(2)], length=8192)
    words = UniformLayout(tp=8, pp=4, groups=("h100", "a100"))
    return asked, expand_uniform(asked, words, layers_per_chunk=[26, 26, 14, 14])


CASES = {
    "dense-one-node": dense_one_node,
    "dense-interleaved-block-recompute": dense_interleaved_block_recompute,
    "dense-uneven-offload": dense_uneven_offload,
    "deepseek-v3": deepseek,
    "experts-context-parallel": experts_context_parallel,
    "unlike-groups": unlike_groups,
}
