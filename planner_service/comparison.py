"""Differences between stored plans, from their documents alone: where the seconds and bytes go, which fields differ, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from planner_service.problems import pointer
from planner_service.store.records import StoredPlan

Document = dict[str, Any]
MAX_DIFFERENCES = 200
NOTABLE_FRACTION = 0.001
"""of the fastest step: smaller differences are not called a reason"""
WORDS = {
    "compute": "computing",
    "bubble": "waiting in the pipeline's bubble",
    "imbalance": "waiting for unequal work",
    "optimizer": "the optimizer's update",
}


def compare_plans(plans: Sequence[StoredPlan]) -> str:
    """A JSON text: every plan against the fastest, in the order given."""
    documents = [orjson.loads(plan.body) for plan in plans]
    fastest = min(documents, key=lambda document: (document["prediction"]["step_time_s"], document["id"]))
    made = {
        "fastest": fastest["id"],
        "same_problem": len({plan.context for plan in plans}) == 1,
        "plans": [_against(document, fastest) for document in documents],
    }
    return orjson.dumps(made).decode()


def _against(plan: Document, fastest: Document) -> Document:
    """One plan against the fastest."""
    mine, best = plan["prediction"], fastest["prediction"]
    seconds = _difference(_seconds(mine), _seconds(best))
    return {
        "plan_id": plan["id"],
        "step_time_s": mine["step_time_s"],
        "slower_by_fraction": mine["step_time_s"] / best["step_time_s"] - 1.0,
        "verdict": mine["verdict"],
        "time_difference_s": seconds,
        "worst_memory_difference_bytes": _difference(_worst_items(mine), _worst_items(best)),
        "layout_differences": list(_differences(plan["layout"], fastest["layout"], ()))[:MAX_DIFFERENCES],
        "why": _why(plan, fastest, seconds),
    }


def _seconds(prediction: Document) -> dict[str, float]:
    """The parts of the step that add up to it; communication by axis, what is exposed of it."""
    breakdown = prediction["time_breakdown_s"]
    parts = {name: breakdown[name] for name in WORDS}
    return parts | {f"communication_{axis}": both["exposed"] for axis, both in breakdown["communication"].items()}


def _worst_items(prediction: Document) -> dict[str, float]:
    """Items of the part that comes nearest to its limit, and what it takes of the device."""
    worst = max(prediction["memory_bytes"], key=lambda entry: entry["device"] / entry["limit"])
    return {**worst["items"], "device": worst["device"]}


def _difference(mine: dict[str, float], best: dict[str, float]) -> dict[str, float]:
    """Mine minus best, of everything that either has."""
    return {name: mine.get(name, 0.0) - best.get(name, 0.0) for name in sorted(mine.keys() | best.keys())}


def _differences(mine: Any, best: Any, path: tuple[str | int, ...]) -> Iterator[Document]:
    """Fields that differ, by pointer into the layout; lists of unequal length differ as a whole."""
    if isinstance(mine, dict) and isinstance(best, dict):
        for name in sorted(mine.keys() | best.keys()):
            yield from _differences(mine.get(name), best.get(name), (*path, name))
    elif isinstance(mine, list) and isinstance(best, list) and len(mine) == len(best):
        for index, (one, other) in enumerate(zip(mine, best, strict=True)):
            yield from _differences(one, other, (*path, index))
    elif mine != best:
        yield {"pointer": pointer(path), "value": mine, "fastest": best}


def _why(plan: Document, fastest: Document, seconds: dict[str, float]) -> list[str]:
    """Sentences: the largest losses first, then what is won elsewhere."""
    if plan["id"] == fastest["id"]:
        return ["This is the fastest of them."]
    least_s = NOTABLE_FRACTION * fastest["prediction"]["step_time_s"]
    notable = [(name, value) for name, value in seconds.items() if abs(value) >= least_s]
    losses = sorted((item for item in notable if item[1] > 0), key=lambda item: -item[1])
    wins = sorted((item for item in notable if item[1] < 0), key=lambda item: item[1])
    said = [f"{_words(name)} takes {value:.4g} s more of a step" for name, value in losses]
    said += [f"{_words(name)} takes {-value:.4g} s less of a step" for name, value in wins]
    return said or [f"Their steps differ by less than {NOTABLE_FRACTION:.1%} in every part."]


def _words(name: str) -> str:
    """A part of the step in words."""
    return WORDS.get(name) or f"communication over {name.removeprefix('communication_')} that nothing hides"
