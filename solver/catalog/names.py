"""Looking a name up among names and aliases, and finding the nearest known one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping


class UnknownName(LookupError):
    """No entry, or several, of that name; `candidates` are the names to choose from, nearest first."""

    def __init__(self, what: str, name: str, candidates: tuple[str, ...], *, ambiguous: bool) -> None:
        self.candidates = candidates
        self.ambiguous = ambiguous
        if ambiguous:
            text = f"the {what} {name[:80]!r} may be {' or '.join(candidates)}; give the full name"
        else:
            close = nearest(name, candidates)
            text = f"unknown {what} {name[:80]!r}" + (f"; did you mean {close!r}?" if close else "")
        super().__init__(text)


def _folded(name: str) -> str:
    """Lower case without spaces, hyphens and underscores: people write RTX 4090, rtx-4090 and RTX_4090."""
    return re.sub(r"[\s_-]+", "", name).lower()


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, if any is alike."""
    by_folded = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name[:80].lower(), sorted(by_folded), n=1, cutoff=0.5)
    return by_folded[found[0]] if found else None


def find_name(what: str, name: str, aliases: Mapping[str, tuple[str, ...]]) -> str:
    """The entry called `name` exactly, or the only one with it as name or alias in any case and with any separators."""
    if name in aliases:
        return name
    folded = _folded(name)
    hits = tuple(sorted(n for n, more in aliases.items() if folded in map(_folded, (n, *more))))
    if len(hits) == 1:
        return hits[0]
    raise UnknownName(what, name, hits or tuple(sorted(aliases)), ambiguous=bool(hits))
