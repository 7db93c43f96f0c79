"""Breaking changes between two OpenAPI documents, found by walking both; and the golden file.

    python -m tests.service.openapi_changes            what would break clients of tests/golden/openapi.json
    python -m tests.service.openapi_changes --accept   writes the golden file anew, breaking or not

Breaking is: a path, method, status, media type or parameter that is gone; a parameter or request member that has become
required; a request that is refused now (a member, enumeration value, type or alternative gone, a bound narrower, an object
closed); an answer that lacks what was promised (a member gone or optional, an enumeration value gone) or is of a type that it
never was. Clients must ignore members they do not know, and unions and enumerations of answers may grow.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "openapi.json"
HINT = "If this is meant: python -m tests.service.openapi_changes --accept"
LOWER, UPPER = ("minimum", "minLength", "minItems", "minProperties"), ("maximum", "maxLength", "maxItems", "maxProperties")
Schema = Any


def breaking_changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Sentences, one a change."""
    return sorted(set(_paths(old, new)))


def _paths(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for path, operations in old["paths"].items():
        if path not in new["paths"]:
            yield f"{path} is gone"
            continue
        for method, operation in operations.items():
            where = f"{method.upper()} {path}"
            if method not in new["paths"][path]:
                yield f"{where} is gone"
            else:
                yield from _operation(where, operation, new["paths"][path][method], Walk(old, new))


def _operation(where: str, old: dict[str, Any], new: dict[str, Any], walk: Walk) -> Iterator[str]:
    if old.get("operationId") != new.get("operationId"):
        yield f"{where}: operationId {old.get('operationId')} is gone"
    before = {(item["in"], item["name"]): item for item in old.get("parameters", ())}
    after = {(item["in"], item["name"]): item for item in new.get("parameters", ())}
    for key, item in before.items():
        if key not in after:
            yield f"{where}: {key[0]} parameter {key[1]} is gone"
        else:
            yield from walk.request(f"{where} {key[1]}", item["schema"], after[key]["schema"])
    for key, item in after.items():
        if item.get("required") and not before.get(key, {}).get("required"):
            yield f"{where}: {key[0]} parameter {key[1]} has become required"
    yield from _contents(f"{where} body", old.get("requestBody", {}), new.get("requestBody", {}), walk.request)
    if new.get("requestBody", {}).get("required") and not old.get("requestBody", {}).get("required"):
        yield f"{where}: a body has become required"
    for status, answer in old["responses"].items():
        if status not in new["responses"]:
            yield f"{where}: status {status} is gone"
        else:
            yield from _contents(f"{where} {status}", answer, new["responses"][status], walk.answer)


def _contents(where: str, old: dict[str, Any], new: dict[str, Any], compare: Any) -> Iterator[str]:
    for media, content in old.get("content", {}).items():
        if media not in new.get("content", {}):
            yield f"{where}: {media} is gone"
        else:
            yield from compare(where, content["schema"], new["content"][media]["schema"])


class Walk:
    """Compares schemas of two documents; a pair of components is looked at once."""

    def __init__(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        self._old, self._new = old["components"]["schemas"], new["components"]["schemas"]
        self._seen: set[tuple[str, str, bool]] = set()

    def request(self, where: str, old: Schema, new: Schema) -> Iterator[str]:
        """What was accepted must still be."""
        yield from self._schema(where, old, new, asked=True)

    def answer(self, where: str, old: Schema, new: Schema) -> Iterator[str]:
        """What was promised must still hold."""
        yield from self._schema(where, old, new, asked=False)

    def _schema(self, where: str, old: Schema, new: Schema, asked: bool) -> Iterator[str]:
        if isinstance(old, bool) or isinstance(new, bool) or not old or not new:
            if (asked and new is False) or (not asked and old and old is not True and not new):
                yield f"{where}: is not what it was"
            return
        if "$ref" in old or "$ref" in new:
            key = (str(old.get("$ref")), str(new.get("$ref")), asked)
            if key in self._seen:
                return
            self._seen.add(key)
        old, new = self._follow(old, self._old), self._follow(new, self._new)
        alternatives = [part.get("anyOf") or part.get("oneOf") for part in (old, new)]
        if any(alternatives):
            yield from self._alternatives(where, alternatives[0] or [old], alternatives[1] or [new], asked)
            return
        yield from _types(where, old, new, asked)
        yield from _enumerations(where, old, new, asked)
        yield from _bounds(where, old, new, asked)
        yield from self._members(where, old, new, asked)
        if "items" in old and "items" in new:
            yield from self._schema(f"{where}[]", old["items"], new["items"], asked)
        before, after = old.get("additionalProperties"), new.get("additionalProperties")
        if isinstance(before, dict) and isinstance(after, dict):
            yield from self._schema(f"{where}.*", before, after, asked)

    def _follow(self, schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema:
            schema = components[schema["$ref"].rpartition("/")[2]]
        return schema

    def _alternatives(self, where: str, old: list[Schema], new: list[Schema], asked: bool) -> Iterator[str]:
        """Each one that must be matched (of the old when asked, of the new when answered) has a partner that breaks nothing;
        a union of answers may grow, though not by null."""
        for schema in old if asked else new:
            partners = new if asked else old
            pairs = [(schema, other) if asked else (other, schema) for other in partners]
            kept = set(self._seen)
            found = []
            for one, other in pairs:
                self._seen = set(kept)
                found.append(list(self._schema(where, one, other, asked)))
            fewest = min(found, key=len)
            grows = not asked and len(partners) > 1 and schema.get("type") != "null"
            if fewest and not grows:
                shape = schema.get("$ref") or schema.get("type") or schema.get("enum") or "one"
                yield f"{where}: alternative {shape} is {'refused now' if asked else 'new'} ({fewest[0]})"

    def _members(self, where: str, old: Schema, new: Schema, asked: bool) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        for name, schema in before.items():
            if name in after:
                yield from self._schema(f"{where}.{name}", schema, after[name], asked)
            elif not asked or new.get("additionalProperties") is False:
                yield f"{where}.{name} is gone"
        if asked:
            for name in set(new.get("required", ())) - set(old.get("required", ())):
                yield f"{where}.{name} has become required"
            if new.get("additionalProperties") is False and old.get("additionalProperties") is not False:
                yield f"{where} takes no further members any more"
        else:
            for name in set(old.get("required", ())) - set(new.get("required", ())):
                yield f"{where}.{name} is not promised any more"


def _type_set(schema: Schema) -> set[str]:
    kinds = schema.get("type", ())
    found = {kinds} if isinstance(kinds, str) else set(kinds)
    return found | {"integer"} if "number" in found else found


def _types(where: str, old: Schema, new: Schema, asked: bool) -> Iterator[str]:
    wide, narrow = (_type_set(new), _type_set(old)) if asked else (_type_set(old), _type_set(new))
    if wide and (not narrow or narrow - wide):
        extra = ", ".join(sorted(narrow - wide)) or "anything"
        yield f"{where}: {extra} is {'refused now' if asked else 'new'}"


def _values(schema: Schema) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _enumerations(where: str, old: Schema, new: Schema, asked: bool) -> Iterator[str]:
    before, after = _values(old), _values(new)
    if before is None and after is not None and asked:
        yield f"{where}: only some values are accepted now"
    for value in before or () if after is not None else ():
        if value not in after:
            yield f"{where}: value {value!r} is gone"


def _bounds(where: str, old: Schema, new: Schema, asked: bool) -> Iterator[str]:
    if not asked:
        return
    for names, narrower in ((LOWER, lambda a, b: b > a), (UPPER, lambda a, b: b < a)):
        for name in names:
            if name in new and (name not in old or narrower(old[name], new[name])) and not (name in LOWER and new[name] <= 0):
                yield f"{where}: {name} is {new[name]} now"
    if new.get("pattern") not in (None, old.get("pattern")):
        yield f"{where}: another pattern"


def current_document() -> dict[str, Any]:
    """The document of this checkout, without a server."""
    from planner_service.app import create_app
    from planner_service.settings import Settings

    return create_app(Settings(database_url="sqlite:///never-opened.db")).openapi()


def text_of(document: dict[str, Any]) -> str:
    """As the golden file has it."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    """See the module's first lines."""
    document = current_document()
    changes = breaking_changes(json.loads(GOLDEN.read_text()), document) if GOLDEN.exists() else []
    print("\n".join(changes) or "nothing breaks")
    if "--accept" in sys.argv[1:]:
        GOLDEN.write_text(text_of(document))
        return 0
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main())
