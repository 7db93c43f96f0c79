"""The layout of a row: its degrees, split of layers, shard groups and recompute, checked by the structural rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from solver.cost.operators import selective_modules
from solver.dimensions.words import expand_uniform
from solver.frameworks import get_rule_set
from solver.layout import Layout, Recompute, UniformLayout
from solver.layout_parse import parse_layout
from solver.problem import Problem
from solver.validate.frameworks import FrameworkUse
from solver.validate.refusal import Refused
from solver.validate.rows import Row, known

GROUP_OF_SHARDS = re.compile(r"zero1 group (\d+)")
SCORES_ONLY = ("core_attention", "core_attn")
BLOCKS = "selective:blocks"
"""whole blocks are recomputed, evenly spread; `selective:blocks 1/3` says which share"""
EQUAL_SPLIT_RULES = ("S12",)
"""rules about chunks of equal length, which a stated split answers itself"""


def legal_layout(problem: Problem, row: Row, use: FrameworkUse | None, groups: Sequence[str], notes: list[str]) -> Layout:
    """The layout of a row all of whose cells are known; raises Refused."""
    words = parse_layout(_words(row, groups))
    assert isinstance(words, UniformLayout), "classical words"
    rules = get_rule_set(problem.framework.name, problem.framework.version)
    split = _layer_split(row, use)
    skipped = EQUAL_SPLIT_RULES if split else ()
    violations = tuple(item for item in rules.violations(problem, words) if item.rule not in skipped)
    if not violations:
        recompute = _recompute(problem, row.recompute or "none", known(row.layers), notes)
        layout = expand_uniform(problem, words, split, _copies(row), recompute)
        violations = rules.violations(problem, layout) if split else ()
        if not violations:
            return layout
    raise Refused("; ".join(violation.message for violation in violations))


def _words(row: Row, groups: Sequence[str]) -> dict[str, Any]:
    """Classical words of the row's layout, recompute apart."""
    replica = known(row.tp) * known(row.pp) * known(row.cp)
    if known(row.gpus) % replica or (row.dp is not None and row.dp * replica != row.gpus):
        raise Refused(f"tp {row.tp} x pp {row.pp} x cp {row.cp} x dp {row.dp} is not {row.gpus} devices")
    words: dict[str, Any] = {name: getattr(row, name) for name in ("tp", "pp", "cp", "ep", "vpp", "mbs", "gbs")}
    return {
        **words,
        **({"groups": list(groups)} if len(groups) > 1 else {}),
        "dp": known(row.gpus) // replica,
        "zero": row.zero_stage,
        "sequence_parallel": bool(row.sp) and known(row.tp) > 1,
    }


def _recompute(problem: Problem, text: str, layers: int, notes: list[str]) -> list[Recompute]:
    """Recompute of every layer: none, full, the scores alone, whole blocks, or the module set that the model prices."""
    kind, _, modules = text.partition(":")
    if kind in ("none", "full"):
        return [Recompute(kind=kind)] * layers
    if kind != "selective":
        raise Refused(f"recompute {text!r} is not understood")
    if text.startswith(BLOCKS):
        return _blocks(text, layers, notes)
    if modules.strip() in SCORES_ONLY:
        return [Recompute(kind="selective", modules=("core_attn",))] * layers
    priced = selective_modules(problem)
    notes.append(f"recompute {text} priced as that of {', '.join(priced)}")
    return [Recompute(kind="selective", modules=priced)] * layers


def _blocks(text: str, layers: int, notes: list[str]) -> list[Recompute]:
    """Full recompute of a share of the blocks, evenly spread; all of them where the share is not stated."""
    share = text.removeprefix(BLOCKS).strip() or "1/1"
    part, _, whole = share.partition("/")
    if not (part.isdigit() and whole.isdigit() and 0 < int(part) <= int(whole)):
        raise Refused(f"recompute {text!r} is not understood")
    notes.append(f"{share} of the blocks recomputed")
    chosen = {layer * int(whole) // int(part) for layer in range(layers * int(part) // int(whole))}
    return [Recompute(kind="full" if layer in chosen else "none") for layer in range(layers)]


def _layer_split(row: Row, use: FrameworkUse | None) -> list[int] | None:
    """Layers per chunk where embedding and head count as layers: the first and the last chunk hold one less."""
    layers, stages = known(row.layers), known(row.pp)
    total, chunks = layers + 2, stages * known(row.vpp)
    if use is None or not use.embedding_counts_as_layer or stages < 2 or layers % chunks == 0 or total % chunks:
        return None
    return [total // chunks - (index in (0, chunks - 1)) for index in range(chunks)]


def _copies(row: Row) -> int:
    """Copies of a shard group: hybrid sharding keeps it in a node, `zero1 group N` names its size."""
    tp = known(row.tp)
    ranks = known(row.gpus) // (tp * known(row.pp))
    text = (row.sharding or "").lower()
    named = GROUP_OF_SHARDS.search(text)
    size = int(named.group(1)) if named else ranks
    if text.startswith("hsdp"):
        size = max(1, (row.gpus_per_node or ranks) // tp)
    return ranks // size if 0 < size <= ranks and ranks % size == 0 else 1
