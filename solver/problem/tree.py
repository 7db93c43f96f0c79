"""Is this a JSON document at all: string keys, finite numbers, sound text, not too deep, not too large."""

from __future__ import annotations

import math
from typing import Any, Final

from solver.problem.findings import Findings
from solver.problem.pointers import Path

MAX_DEPTH: Final = 64
MAX_NODES: Final = 2_000_000
#: A config of another tool, written by Python, may hold infinities in fields that are not read.
_FOREIGN: Final = ("model", "hf_config")


def check_tree(document: Any, findings: Findings) -> None:
    """Note what is not JSON. Walks without recursion; stops at the first sign of excess."""
    stack: list[tuple[Path, Any]] = [((), document)]
    seen = 0
    while stack:
        path, value = stack.pop()
        seen += 1
        if seen > MAX_NODES:
            findings.add((), "too_large", f"the document has more than {MAX_NODES} values")
            return
        if len(path) > MAX_DEPTH:
            findings.add(path[:4], "too_large", f"nested deeper than {MAX_DEPTH}")
            return
        if isinstance(value, dict):
            stack.extend(_members(value, path, findings))
        elif isinstance(value, list | tuple):
            stack.extend(((*path, i), item) for i, item in enumerate(value))
        else:
            _check_scalar(value, path, findings)


def _members(value: dict[Any, Any], path: Path, findings: Findings) -> list[tuple[Path, Any]]:
    inside: list[tuple[Path, Any]] = []
    for key, item in value.items():
        if isinstance(key, str) and _is_sound(key):
            inside.append(((*path, key), item))
        else:
            findings.add(path, "invalid", f"the key {str(key)[:80]!a} is not a string of Unicode characters")
    return inside


def _check_scalar(value: Any, path: Path, findings: Findings) -> None:
    if isinstance(value, float):
        if not math.isfinite(value) and path[:2] != _FOREIGN:
            findings.add(path, "invalid", "a finite number is needed")
    elif isinstance(value, str):
        if not _is_sound(value):
            findings.add(path, "invalid", "the text is not valid Unicode")
    elif value is not None and not isinstance(value, int):
        findings.add(path, "invalid", f"{type(value).__name__} is not a JSON value")


def _is_sound(text: str) -> bool:
    """No lone surrogate: the text can be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
