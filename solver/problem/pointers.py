"""From pydantic's errors to FieldErrors: JSON pointers of the user's document, closed codes, what is allowed."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from solver.catalog.names import nearest
from solver.errors import FIELD_CODES, FieldError
from solver.problem.spec import SMALLEST

Path = tuple[str | int, ...]

_CODES: Final = {
    "extra_forbidden": "unknown_field",
    "missing": "missing",
    "union_tag_not_found": "missing",
    "union_tag_invalid": "unknown_name",
    "literal_error": "unknown_name",
    "greater_than": "out_of_range",
    "greater_than_equal": "out_of_range",
    "less_than": "out_of_range",
    "less_than_equal": "out_of_range",
    "too_short": "out_of_range",
    "too_long": "too_large",
    "string_too_short": "out_of_range",
    "string_too_long": "too_large",
    "int_parsing_size": "out_of_range",
}


def pointer(path: Path) -> str:
    """The JSON pointer (RFC 6901) of a path of keys and indices."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def user_path(path: Path, moved: Mapping[Path, Path]) -> Path:
    """The path in the user's document of a path in the expanded one, by its longest moved prefix."""
    for size in range(len(path), 0, -1):
        if path[:size] in moved:
            return moved[path[:size]] + path[size:]
    return path


def field_errors(error: ValidationError, root: type[BaseModel], document: Any) -> Iterator[tuple[Path, FieldError]]:
    """Each error with its path in the (expanded) document; the pointer is filled in by the caller's path mapping."""
    for item in error.errors(include_url=False, include_input=True, include_context=True):
        path = _real_path(item["loc"], document, item["type"] == "missing")
        yield path, _field_error(item, path, _candidates(root, item["loc"]))


def _real_path(location: Path, document: Any, is_missing: bool) -> Path:
    """The location without the tags that pydantic puts in for discriminated unions, and without '[key]' marks.

    Only the last part of a missing field is a key that the document does not hold.
    """
    path: list[str | int] = []
    here = document
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if _holds(here, part):
            here = here[part]
        elif part == "[key]" or (isinstance(here, Mapping) and not (last and is_missing)):
            continue
        path.append(part)
    return tuple(path)


def _holds(value: Any, part: str | int) -> bool:
    if isinstance(value, Mapping):
        return part in value
    return isinstance(value, list | tuple) and isinstance(part, int) and part < len(value)


def _field_error(item: Any, path: Path, candidates: tuple[Any, ...]) -> FieldError:
    kind, context, value = item["type"], item.get("ctx", {}), item.get("input")
    code = kind if kind in FIELD_CODES else _CODES.get(kind, "wrong_type")
    message, allowed = str(item["msg"]), context.get("allowed")
    if kind == "extra_forbidden":
        allowed = sorted(_field_names(candidates))
        message = f"unknown field {str(path[-1])[:80]!r}{_suggestion(str(path[-1]), allowed)}"
    elif kind == "missing":
        message = "this field is needed"
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        allowed = sorted(tag for model in candidates for tag in _tags(model))
        message = f"kind must be one of: {', '.join(allowed)}"
    elif kind == "literal_error":
        allowed = [v for c in candidates if get_origin(c) is Literal for v in get_args(c)]
        code = code if isinstance(value, str) else "wrong_type"
        message = f"must be one of: {', '.join(map(str, allowed))}" + (
            _suggestion(value, allowed) if isinstance(value, str) else ""
        )
    elif kind == "greater_than_equal" and context.get("ge") == SMALLEST:
        message = "must be above 0"
    elif code == "too_large" and isinstance(value, str):
        message = f"at most {context.get('max_length')} characters"
    elif code == "wrong_type" and kind != "wrong_type":
        message = _type_message(kind, message)
    return FieldError(pointer(path), code, message, None if not isinstance(allowed, list) else tuple(allowed))


def _type_message(kind: str, message: str) -> str:
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "an object is needed"
    if kind in ("tuple_type", "list_type"):
        return "a list is needed"
    return message[:200]


def _suggestion(name: str, known: list[str]) -> str:
    close = nearest(name, known)
    return f"; did you mean {close!r}?" if close else ""


def _candidates(root: type[BaseModel], location: Path) -> tuple[Any, ...]:
    """The types that the location may have: models for objects, Literals for closed sets."""
    here: tuple[Any, ...] = (root,)
    for position, part in enumerate(location):
        if location[position + 1 :] == ("[key]",):
            return tuple(found for kind in here if get_origin(kind) is dict for found in _flatten(get_args(kind)[0]))
        step = tuple(found for kind in here for found in _step(kind, part))
        if not step:
            return here
        here = step
    return here


def _step(kind: Any, part: str | int) -> Iterator[Any]:
    """The types reached from `kind` by a key, an index or a union tag."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if part == (field.alias or name):
                yield from _flatten(field.annotation)
        if part in _tags(kind):
            yield kind
    elif get_origin(kind) is tuple and isinstance(part, int):
        arguments = [a for a in get_args(kind) if a is not Ellipsis]
        yield from _flatten(arguments[min(part, len(arguments) - 1)])
    elif get_origin(kind) is dict:
        yield from _flatten(get_args(kind)[1])


def _flatten(annotation: Any) -> Iterator[Any]:
    """The members of a union, without Annotated and None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _flatten(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _flatten(member)
    elif annotation is not type(None):
        yield annotation


def _tags(kind: Any) -> tuple[str, ...]:
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)) or "kind" not in kind.model_fields:
        return ()
    annotation = kind.model_fields["kind"].annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _field_names(candidates: tuple[Any, ...]) -> set[str]:
    models = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
    return {field.alias or name for model in models for name, field in model.model_fields.items()}
