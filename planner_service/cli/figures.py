"""Numbers and bars as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

GIB = 2.0**30
COLOURS = ("cyan", "magenta", "yellow", "blue", "green", "red", "bright_cyan", "bright_magenta", "white", "bright_black")


def seconds(value: float | None) -> str:
    """Seconds with four figures."""
    if value is None:
        return "–"
    if value >= 1.0 or value == 0.0:
        return f"{value:.4g} s" if value < 10_000 else f"{value:,.0f} s"
    return f"{value * 1e3:.4g} ms" if value >= 1e-3 else f"{value * 1e6:.4g} µs"


def gib(value_bytes: float) -> str:
    """Bytes as GiB."""
    return f"{value_bytes / GIB:.1f}"


def percent(fraction: float | None, digits: int = 1) -> str:
    """A fraction as per cent."""
    return "–" if fraction is None else f"{100 * fraction:.{digits}f} %"


def ranges(pairs: Iterable[Sequence[int]]) -> str:
    """`0–39, 80–81`; an empty range (last before first) is left out."""
    shown = [f"{first}" if first == last else f"{first}–{last}" for first, last in pairs if last >= first]
    return ", ".join(shown) or "none"


def count_in(pairs: Iterable[Sequence[int]]) -> int:
    """How many numbers the ranges hold."""
    return sum(max(0, pair[-1] - pair[0] + 1) for pair in pairs if pair)


def glyphs(out: Console) -> str:
    """The characters of a bar's parts, told apart by colour on a terminal and by shape elsewhere."""
    unicode = (out.encoding or "").lower().startswith("utf")
    if out.color_system is not None:
        return ("█" if unicode else "#") * len(COLOURS)
    return "█▓▒░▚◆▪▫·˙" if unicode else "#=+-:*ox.~"


def stacked(parts: Sequence[tuple[str, float]], total: float, width: int, blocks: str, mark: float | None = None) -> str:
    """A bar of parts as rich markup, `mark` drawn where the bar is empty; rounding never makes it longer than `width`."""
    bar, drawn, sum_so_far = "", 0, 0.0
    for index, (_, value) in enumerate(parts):
        sum_so_far += max(value, 0.0)
        end = min(width, round(width * sum_so_far / total)) if total > 0 else 0
        bar += _piece(index, blocks, end - drawn) if end > drawn else ""
        drawn = max(drawn, end)
    rest = [" "] * (width - drawn)
    place = round(width * mark / total) - drawn if mark is not None and total > 0 else -1
    if 0 <= place < len(rest):
        rest[place] = "|"
    return bar + "".join(rest)


def legend(parts: Sequence[tuple[str, str]], blocks: str, width: int) -> str:
    """The words of a stacked bar as rich markup, in lines that fit; an item is never broken over two lines."""
    lines: list[list[str]] = [[]]
    used = 0
    for index, (name, text) in enumerate(parts):
        length = len(name) + len(text) + 5
        if used + length > width and lines[-1]:
            lines.append([])
            used = 0
        lines[-1].append(f"{_piece(index, blocks, 1)} {name} {text}")
        used += length
    return "\n".join("  ".join(line) for line in lines)


def _piece(index: int, blocks: str, length: int) -> str:
    """A run of one part's character in its colour."""
    return f"[{COLOURS[index % len(COLOURS)]}]{blocks[index % len(blocks)] * length}[/]"


def mesh_sizes(mesh: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Axis to size."""
    return {axis["axis"]: axis["size"] for axis in mesh}
