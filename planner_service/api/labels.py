"""Label, note and tags of a search: what people call it. They never change what is searched."""

from __future__ import annotations

import difflib
from typing import Any

from planner_service.api.schemas import MAX_LABEL_CHARS, MAX_NOTE_CHARS, MAX_TAG_CHARS, MAX_TAGS
from planner_service.problems import FieldProblem, Problem, pointer

MEMBERS = ("label", "note", "tags")
LINE_ENDS = "\n\t"


def edit_of(document: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `SearchStore.edit`; raises 422."""
    errors = [_unknown(name) for name in document if name not in MEMBERS]
    if not document:
        errors.append(FieldProblem("", "missing", "Give at least one of the members.", MEMBERS))
    errors += _text_errors("label", document, MAX_LABEL_CHARS, "")
    errors += _text_errors("note", document, MAX_NOTE_CHARS, LINE_ENDS)
    errors += _tag_errors(document.get("tags", []))
    if errors:
        raise Problem(422, "invalid_document", f"{errors[0].pointer or '/'}: {errors[0].message}", errors)
    made = dict(document)
    if "tags" in made:
        made["tags"] = tuple(made["tags"])
    return made


def label_of(text: str | None) -> str | None:
    """A label given in the query; raises 422."""
    errors = [] if text is None else _text_errors("label", {"label": text}, MAX_LABEL_CHARS, "")
    if errors:
        findings = [FieldProblem("/query/label", error.code, error.message, error.allowed) for error in errors]
        raise Problem(422, "invalid_parameter", f"/query/label: {errors[0].message}", findings)
    return text


def _unknown(name: str) -> FieldProblem:
    near = difflib.get_close_matches(name, MEMBERS, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return FieldProblem(pointer([name]), "unknown_field", f"This member is not known.{hint}", MEMBERS)


def _text_errors(name: str, document: dict[str, Any], most: int, also: str) -> list[FieldProblem]:
    """What is wrong with a member that may be text or null."""
    value = document.get(name)
    if value is None:
        return []
    return _errors_of(value, pointer([name]), most, also, "null takes it away")


def _tag_errors(value: Any) -> list[FieldProblem]:
    """What is wrong with the list of tags."""
    if not isinstance(value, list):
        return [FieldProblem("/tags", "wrong_type", "This must be a list of strings.", ("array",))]
    errors = []
    if len(value) > MAX_TAGS:
        errors.append(FieldProblem("/tags", "too_long", f"At most {MAX_TAGS} tags.", (f"0 to {MAX_TAGS} tags",)))
    for index, tag in enumerate(value[:MAX_TAGS]):
        errors += _errors_of(tag, f"/tags/{index}", MAX_TAG_CHARS, "", "leave it out instead")
    if not errors and len(set(value)) < len(value):
        errors.append(FieldProblem("/tags", "duplicate_value", "A tag occurs more than once."))
    return errors


def _errors_of(value: Any, place: str, most: int, also: str, instead: str) -> list[FieldProblem]:
    """What is wrong with one text."""
    if not isinstance(value, str):
        return [FieldProblem(place, "wrong_type", "This must be a string.", ("string",))]
    allowed = (f"1 to {most} characters",)
    if not value.strip():
        return [FieldProblem(place, "too_short", f"An empty text says nothing; {instead}.", allowed)]
    if len(value) > most:
        return [FieldProblem(place, "too_long", f"It has {len(value)} characters.", allowed)]
    if any(not char.isprintable() and char not in also for char in value):
        return [FieldProblem(place, "invalid", "It holds characters that cannot be printed.")]
    return []
