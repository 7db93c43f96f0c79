"""What is known of a search over all its attempts: none of its numbers ever gets worse, whatever a new attempt has found yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from planner_service.store.records import NO_PROGRESS, Checkpoint


@dataclass(slots=True)
class Best:
    """Merged progress, and the layout that its incumbent rests on; `stored` when the store has all of it."""

    progress: dict[str, Any] = field(default_factory=lambda: dict(orjson.loads(NO_PROGRESS)))
    layout: dict[str, Any] | None = None
    stored: bool = True
    improved: bool = False

    def learn(self, progress: dict[str, Any], layout: dict[str, Any] | None) -> None:
        """Takes in what the child says; `layout` comes with the progress that first tells its value."""
        merged = merge(self.progress, progress)
        if merged == self.progress:
            return
        self.improved |= merged["incumbent"] != self.progress.get("incumbent")
        if layout is not None and merged["incumbent"] == progress.get("incumbent"):
            self.layout = layout
        self.progress, self.stored = merged, False

    @property
    def text(self) -> str:
        """The progress as it is stored."""
        return orjson.dumps(self.progress).decode()

    @property
    def checkpoint(self) -> Checkpoint:
        """What the next attempt begins with."""
        layout = None if self.layout is None else orjson.dumps(self.layout).decode()
        return Checkpoint(layout, self.progress.get("incumbent"), self.progress.get("bound"))

    def mark_stored(self) -> None:
        """The store has it."""
        self.stored, self.improved = True, False


def known_before(progress: str, checkpoint: Checkpoint | None) -> Best:
    """What earlier attempts left. Numbers without their checkpoint are forgotten: nothing would stand behind them."""
    if checkpoint is None:
        return Best()
    layout = None if checkpoint.layout is None else orjson.loads(checkpoint.layout)
    return Best(progress=dict(orjson.loads(progress)), layout=layout)


def merge(known: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """Each number as good as in either: closed cells of the attempt that got furthest, least incumbent, greatest bound."""
    incumbent = _best(min, known.get("incumbent"), newer.get("incumbent"))
    bound = _best(max, known.get("bound"), newer.get("bound"))
    if incumbent is not None and bound is not None:
        bound = min(bound, incumbent)
    return {
        **newer,
        "done": max(known.get("done") or 0, newer.get("done") or 0),
        "total": newer.get("total") if newer.get("total") is not None else known.get("total"),
        "incumbent": incumbent,
        "bound": bound,
        "gap": (incumbent - bound) / incumbent if incumbent and bound is not None else None,
    }


def _best(choose: Any, *values: float | None) -> float | None:
    """The better of the values that are there."""
    return choose((value for value in values if value is not None), default=None)
