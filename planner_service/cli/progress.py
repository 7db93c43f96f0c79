"""How a running search is shown: one live line on a terminal, a plain line now and then elsewhere; always on stderr."""

from __future__ import annotations

import time
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner

PLAIN_INTERVAL_S = 2.0


def progress_text(progress: dict[str, Any], elapsed_s: float) -> str:
    """Cells closed, best so far, bound, gap."""
    done, total = progress.get("done") or 0, progress.get("total")
    parts = [f"{done:,} of {total:,} cells closed" if total else "starting"]
    if progress.get("incumbent") is not None:
        parts.append(f"best {progress['incumbent']:.4g}")
    if progress.get("bound") is not None:
        parts.append(f"bound {progress['bound']:.4g}")
    if progress.get("gap") is not None:
        parts.append(f"gap {100 * progress['gap']:.2f} %")
    return " · ".join([*parts, f"{elapsed_s:.0f} s"])


class ProgressLine:
    """A context manager whose `update` takes the progress of a search."""

    def __init__(self, errors: Console, quiet: bool = False) -> None:
        self._errors = errors
        self._quiet = quiet
        self._began_s = time.monotonic()
        self._last_plain_s = 0.0
        self._last_text = ""
        self._live = Live(console=errors, transient=True, refresh_per_second=8) if errors.is_terminal and not quiet else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, progress: dict[str, Any], state: str = "running") -> None:
        """Shows the newest progress."""
        elapsed_s = time.monotonic() - self._began_s
        text = f"{state}: {progress_text(progress, elapsed_s)}"
        if self._live is not None:
            self._live.update(Spinner("dots", text))
        elif not self._quiet:
            self._plain(text, elapsed_s)

    def _plain(self, text: str, elapsed_s: float) -> None:
        """A line at the start, one with the first figures, and one every few seconds."""
        key = text.rpartition(" · ")[0]
        early = self._last_text == "" or self._last_text.endswith("starting")
        if key != self._last_text and (early or elapsed_s - self._last_plain_s >= PLAIN_INTERVAL_S):
            self._last_plain_s, self._last_text = elapsed_s, key
            self._errors.print(text, highlight=False, soft_wrap=True)
