"""A small, safe YAML 1.2 reader: events of ruamel.yaml, built into JSON values by the core schema.

Anchors, aliases, tags and several documents are refused: nothing can grow beyond what was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from solver.problem.pointers import Path
from solver.problem.tree import MAX_DEPTH

_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_MAX_DIGITS: Final = 400


class YamlTrouble(Exception):
    """The text is not a document that is taken; `path` says where, as far as known."""

    def __init__(self, path: Path, code: str, message: str) -> None:
        super().__init__(message)
        self.path, self.code, self.message = path, code, message


class _Open:
    """A mapping or sequence still being read; `key` is that of the value expected next, or of the value being read."""

    def __init__(self, value: dict[str, Any] | list[Any]) -> None:
        self.value = value
        self.key: str | None = None
        self.expects_key = isinstance(value, dict)


def read_yaml(text: str) -> Any:
    """The value of the single document of the text; raises YamlTrouble."""
    try:
        return _build(YAML(typ="safe", pure=True).parse(text))
    except YAMLError as error:
        raise YamlTrouble((), "invalid", f"not YAML: {_place(error)}") from error
    except (ValueError, RecursionError) as error:
        raise YamlTrouble((), "invalid", f"not YAML: {str(error)[:200]}") from error


def _place(error: YAMLError) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return f"{str(problem or type(error).__name__)[:200]}{where}"


def _build(events: Iterator[Any]) -> Any:
    stack: list[_Open] = []
    root: list[Any] = []
    documents = 0
    for event in events:
        if isinstance(event, DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise YamlTrouble((), "invalid", "one document is expected")
        elif isinstance(event, MappingEndEvent | SequenceEndEvent):
            stack.pop()
        elif isinstance(event, AliasEvent | MappingStartEvent | SequenceStartEvent | ScalarEvent):
            _take(event, stack, root)
    return root[0] if root else None


def _take(event: Any, stack: list[_Open], root: list[Any]) -> None:
    if isinstance(event, AliasEvent) or event.anchor is not None:
        raise YamlTrouble(_path(stack), "invalid", "anchors and aliases are not taken")
    if isinstance(event, ScalarEvent):
        _place_value(_scalar(event, stack), event, stack, root)
        return
    if event.tag is not None and not event.implicit:
        raise YamlTrouble(_path(stack), "invalid", f"the tag {str(event.tag)[:80]!r} is not taken")
    if len(stack) >= MAX_DEPTH:
        raise YamlTrouble(_path(stack)[:4], "too_large", f"nested deeper than {MAX_DEPTH}")
    value: dict[str, Any] | list[Any] = {} if isinstance(event, MappingStartEvent) else []
    _place_value(value, event, stack, root)
    stack.append(_Open(value))


def _path(stack: list[_Open]) -> Path:
    """Where the value read now belongs."""
    path: list[str | int] = []
    for depth, level in enumerate(stack):
        is_top = depth == len(stack) - 1
        if isinstance(level.value, list):
            path.append(len(level.value) - (0 if is_top else 1))
        elif level.key is not None and not (is_top and level.expects_key):
            path.append(level.key)
    return tuple(path)


def _place_value(value: Any, event: Any, stack: list[_Open], root: list[Any]) -> None:
    """Put a value where it belongs: the root, the end of a list, a key, or the value of the key before it."""
    if not stack:
        root.append(value)
        return
    top = stack[-1]
    if isinstance(top.value, list):
        top.value.append(value)
    elif top.expects_key:
        top.key = _as_key(value, event, top.value, stack)
        top.expects_key = False
    else:
        assert top.key is not None
        top.value[top.key] = value
        top.expects_key = True


def _as_key(value: Any, event: Any, holder: dict[str, Any], stack: list[_Open]) -> str:
    if not isinstance(event, ScalarEvent):
        raise YamlTrouble(_path(stack), "invalid", "a key must be a plain string")
    if not isinstance(value, str):
        raise YamlTrouble(_path(stack), "invalid", f"the key {event.value[:80]!r} is not a string; quote it")
    if value in holder:
        raise YamlTrouble((*_path(stack), value), "duplicate_key", f"the key {value[:80]!r} is given twice")
    return value


def _scalar(event: Any, stack: list[_Open]) -> Any:
    """The value of a scalar: quoted ones are strings, plain ones by the core schema."""
    if event.tag is not None and str(event.tag) not in ("!", "tag:yaml.org,2002:str"):
        raise YamlTrouble(_path(stack), "invalid", f"the tag {str(event.tag)[:80]!r} is not taken")
    text: str = event.value
    if event.style is not None or event.tag is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _NOT_FINITE.fullmatch(text):
        raise YamlTrouble(_path(stack), "invalid", "a finite number is needed")
    if len(text) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
