"""Pipeline shape for Megatron-core: nothing when the framework's even split is meant, else a layout string.

Grammar of the string (pipeline_parallel_layer_layout.py): virtual stages in pipeline order, separated by `|`; E embedding,
t one layer, m one multi-token prediction layer, L loss; `x*n` and `(x)*n` repeat.
"""

from __future__ import annotations

from itertools import groupby

from solver.layout import Layout
from solver.problem.problem import Problem


def needs_layout_string(problem: Problem, layout: Layout) -> bool:
    if layout.pp == 1:
        return False
    counts = {last - first + 1 for _, _, (first, last) in layout.virtual_stages()}
    return len(counts) > 1 or problem.transformer.mtp_layers > 0


def layout_string(problem: Problem, layout: Layout) -> str:
    stages = _stages(problem, layout)
    runs = [(text, len(list(group))) for text, group in groupby(stages)]
    joined = "".join(_repeat(f"{text}|", count) for text, count in runs)
    return joined.removesuffix("|")


def _stages(problem: Problem, layout: Layout) -> list[str]:
    last_chunk, last_stage = layout.vpp - 1, layout.pp - 1
    stages = []
    for stage, chunk, (first, last) in layout.virtual_stages():
        text = "E" if (stage, chunk) == (0, 0) else ""
        text += _letters("t", last - first + 1)
        if chunk == last_chunk and "mtp" in layout.stages[stage].holds:
            text += _letters("m", problem.transformer.mtp_layers)
        stages.append(text + ("L" if (stage, chunk) == (last_stage, last_chunk) else ""))
    return stages


def _letters(letter: str, count: int) -> str:
    return letter * count if count < 3 else f"{letter}*{count}"


def _repeat(text: str, count: int) -> str:
    return text if count == 1 else f"({text})*{count}"
