"""Strict JSON bodies: read with a size cap while streaming, parsed so that one document has one meaning.

Refused beside malformed text: duplicate keys, NaN and infinities, numbers too large for a float, lone surrogates, NUL
characters and deep nesting. All of them have a pointer where the document as a whole could be read.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from planner_service.problems import MAX_ERRORS, FieldProblem, Problem, pointer

MAX_NUMBER_DIGITS = 300
MAX_VALUES = 2_000_000
"""as many as the solver takes; to look at each one of more would only cost time"""
DRAIN_BYTES = 2**26
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands in the parsed tree for a number that is not allowed."""

    code: str
    message: str


class _Duplicated(dict):  # type: ignore[type-arg]
    """An object in which a key occurred twice."""

    repeated: str = ""


async def read_limited(chunks: AsyncIterator[bytes], limit_bytes: int, announced_bytes: int | None, waits: bool = False) -> bytes:
    """The whole body, or 413 as soon as it is known to be too large.

    After the limit is passed some more is read and thrown away, so that a client that is still sending gets the answer; one that
    waits to be asked for the body, or announces far too much, gets it at once.
    """
    too_large = announced_bytes is not None and announced_bytes > limit_bytes
    if announced_bytes is not None and too_large and (waits or announced_bytes > DRAIN_BYTES):
        raise _body_too_large(limit_bytes)
    kept = bytearray()
    total_bytes = 0
    async for chunk in chunks:
        total_bytes += len(chunk)
        too_large = too_large or total_bytes > limit_bytes
        if too_large:
            kept.clear()
            if total_bytes > DRAIN_BYTES:
                break
        else:
            kept += chunk
    if too_large:
        raise _body_too_large(limit_bytes)
    return bytes(kept)


def _body_too_large(limit_bytes: int) -> Problem:
    return Problem(413, "body_too_large", f"At most {limit_bytes} bytes are accepted.", headers={"Connection": "close"})


def parse_json(raw: bytes, max_depth: int = 64, *, infinities: bool = False) -> Any:
    """The value of a JSON text; raises `Problem` 400 when it cannot be read and 422 when it must not be used.

    `infinities`: files of other tools, as Python's json writes them, may hold NaN and Infinity where nobody reads them.
    """
    if not raw.strip():
        raise _malformed("The body is empty.")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _malformed(f"The body is not UTF-8 (byte {error.start}).") from None
    try:
        constant = float if infinities else _constant
        value = json.loads(text, object_pairs_hook=_object, parse_constant=constant, parse_float=_float, parse_int=_integer)
    except RecursionError:
        raise _malformed(f"The document is nested deeper than {max_depth} levels.") from None
    except json.JSONDecodeError as error:
        raise _malformed(f"{error.msg} at line {error.lineno}, column {error.colno}.") from None
    errors = list(_findings(value, max_depth, check_text="\\" in text or "\0" in text))
    if errors:
        raise Problem(422, "invalid_document", "The document is JSON, but not one with a single clear meaning.", errors)
    return value


def require_object(value: Any, at: str = "") -> dict[str, Any]:
    """The value as a JSON object, 422 otherwise."""
    if not isinstance(value, dict):
        error = FieldProblem(at, "wrong_type", "This must be a JSON object.", ("object",))
        raise Problem(422, "invalid_document", "A JSON object is expected.", [error])
    return value


def require_members(document: dict[str, Any], required: tuple[str, ...]) -> None:
    """Exactly these members must be present, 422 otherwise."""
    errors = [
        FieldProblem(pointer([name]), "missing", "This member is required.", required)
        for name in required
        if name not in document
    ]
    unknown = [name for name in document if name not in required]
    errors += [_unknown(name, required) for name in unknown[:MAX_ERRORS]]
    if errors:
        raise Problem(422, "invalid_document", f"The members are: {', '.join(required)}.", errors)


def _unknown(name: str, known: tuple[str, ...]) -> FieldProblem:
    """A member that is not known, with the nearest that is."""
    near = difflib.get_close_matches(name[:100], known, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return FieldProblem(pointer([name]), "unknown_field", f"This member is not known.{hint}", known)


def _malformed(detail: str) -> Problem:
    """400: there is no document to point into."""
    return Problem(400, "malformed_json", detail)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, marked when a key was repeated."""
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    marked = _Duplicated(made)
    seen: set[str] = set()
    marked.repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    return marked


def _constant(name: str) -> _Refused:
    """NaN, Infinity, -Infinity: not JSON, though Python reads them."""
    return _Refused("invalid", f"{name} is not a JSON number.")


def _float(text: str) -> float | _Refused:
    """A float that is finite."""
    if len(text) > MAX_NUMBER_DIGITS:
        _long_number(text)
    value = float(text)
    return value if abs(value) != float("inf") else _Refused("too_large", "The number is too large.")


def _integer(text: str) -> int | float:
    """An integer; one beyond 64 bits becomes the float that every other JSON reader would make of it."""
    if len(text) > MAX_NUMBER_DIGITS:
        _long_number(text)
    value = int(text)
    return value if -(2**63) <= value < 2**63 else float(value)


def _long_number(text: str) -> NoReturn:
    """400: a number of thousands of digits is an attack or an accident."""
    raise _malformed(f"A number has {len(text)} characters; at most {MAX_NUMBER_DIGITS} are accepted.")


def _findings(root: Any, max_depth: int, check_text: bool) -> Iterator[FieldProblem]:
    """Everything refused, in document order, without recursion; too deep a document is 400."""
    stack: list[tuple[Any, Path]] = [(root, ())]
    left = MAX_VALUES
    while stack:
        value, path = stack.pop()
        left -= len(value) if isinstance(value, dict | list) else 0
        if left < 0:
            message = f"The document has more than {MAX_VALUES} values."
            raise Problem(422, "invalid_document", message, [FieldProblem("", "too_large", message)])
        if isinstance(value, dict):
            if len(path) >= max_depth:
                raise _malformed(f"The document is nested deeper than {max_depth} levels.")
            yield from _object_findings(value, path, check_text)
            stack.extend((item, (*path, key)) for key, item in reversed(value.items()))
        elif isinstance(value, list):
            if len(path) >= max_depth:
                raise _malformed(f"The document is nested deeper than {max_depth} levels.")
            stack.extend(
                (item, (*path, index)) for index, item in zip(range(len(value) - 1, -1, -1), reversed(value), strict=True)
            )
        elif isinstance(value, _Refused):
            yield FieldProblem(pointer(path), value.code, value.message)
        elif check_text and isinstance(value, str) and not _is_text(value):
            yield FieldProblem(pointer(path), "invalid", "The string holds a NUL or half of a surrogate pair.")


def _object_findings(value: dict[str, Any], path: Path, check_text: bool) -> Iterator[FieldProblem]:
    """What is wrong with the keys of one object."""
    if isinstance(value, _Duplicated):
        yield FieldProblem(pointer((*path, value.repeated)), "duplicate_key", "The key occurs more than once.")
    if check_text:
        for key in value:
            if not _is_text(key):
                yield FieldProblem(pointer(path), "invalid", "A key holds a NUL or half of a surrogate pair.")


def _is_text(value: str) -> bool:
    """Whether both databases and UTF-8 can hold the string."""
    if "\0" in value:
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
