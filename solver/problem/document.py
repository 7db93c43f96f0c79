"""Text -> document: JSON, or YAML 1.2 by its core schema. Duplicate keys, NaN, excess and trickery are refused."""

from __future__ import annotations

import json
from typing import Any, Final, Literal

from solver.problem.findings import Findings
from solver.problem.pointers import Path
from solver.problem.tree import check_tree
from solver.problem.yaml_reader import YamlTrouble, read_yaml

MAX_JSON_BYTES: Final = 64 << 20
MAX_YAML_BYTES: Final = 2 << 20


class _Duplicated(dict[str, Any]):
    """An object in which a key came twice."""

    key = ""


def load_document(text: str | bytes, media: Literal["json", "yaml"]) -> dict[str, Any]:
    """The document; raises InvalidProblem."""
    findings = Findings()
    decoded = _decoded(text, media, findings)
    findings.raise_if_any({})
    document = _read_json(decoded, findings) if media == "json" else _read_yaml(decoded, findings)
    findings.raise_if_any({})
    check_tree(document, findings)
    findings.raise_if_any({})
    if not isinstance(document, dict):
        findings.add((), "wrong_type", "the document must be an object")
        findings.raise_if_any({})
    assert isinstance(document, dict)
    return document


def _decoded(text: str | bytes, media: str, findings: Findings) -> str:
    limit = MAX_JSON_BYTES if media == "json" else MAX_YAML_BYTES
    if len(text) > limit:
        findings.add((), "too_large", f"{len(text)} bytes are more than the {limit} taken as {media}")
        return ""
    if isinstance(text, str):
        return text
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        findings.add((), "invalid", f"not UTF-8 at byte {error.start}")
        return ""


def _read_json(text: str, findings: Findings) -> Any:
    duplicated: list[_Duplicated] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) == len(pairs):
            return found
        seen: set[str] = set()
        marked = _Duplicated(found)
        for key, _ in pairs:
            if key in seen:
                marked.key = key
            seen.add(key)
        duplicated.append(marked)
        return marked

    try:
        document = json.loads(text, object_pairs_hook=members, parse_constant=_refuse_constant)
    except RecursionError:
        findings.add((), "too_large", "nested too deep")
        return None
    except json.JSONDecodeError as error:
        findings.add((), "invalid", f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}")
        return None
    except ValueError as error:
        findings.add((), "invalid", f"not JSON: {str(error)[:200]}")
        return None
    if duplicated:
        _note_duplicates(document, findings)
    return document


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _note_duplicates(document: Any, findings: Findings) -> None:
    stack: list[tuple[Path, Any]] = [((), document)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, _Duplicated):
            findings.add((*path, value.key), "duplicate_key", f"the key {value.key[:80]!r} is given twice")
        if isinstance(value, dict):
            stack.extend(((*path, key), item) for key, item in value.items())
        elif isinstance(value, list):
            stack.extend(((*path, index), item) for index, item in enumerate(value))


def _read_yaml(text: str, findings: Findings) -> Any:
    try:
        return read_yaml(text)
    except YamlTrouble as error:
        findings.add(error.path, error.code, error.message)
        return None
