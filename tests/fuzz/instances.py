"""Random values of a JSON schema: mostly right, here and there wrong, now and then hostile."""

from __future__ import annotations

import json
import random
from typing import Any

Schema = Any
TEXTS = (
    "",
    " ",
    "x",
    "llama-3.1-8b",
    "H100-SXM5-80",
    "megatron-core",
    "é☃\U0001f600",
    "a" * 300,
    "../../etc/passwd",
    "'; DROP TABLE searches;--",
    "<script>",
    "{{7*7}}",
    "\u202e",
    "null",
    "1e999",
    "0" * 64,
)
NUMBERS = (0, 1, -1, 2, 3, 7, 8, 64, 4096, 2**31, 2**53 - 1, 2**53, 2**63, 2**64, -(2**63), 0.5, -0.0, 1e-300, 1e300, 1.0, 1e6)
WRONG = (None, True, False, 0, -1, 1.5, "", "x", [], {}, [[]], [None], {"x": None}, 2**70, 1e308, "\x7f")
MAX_DEPTH = 9


def anything(source: random.Random) -> Any:
    """One of the wrong values, a copy of its own."""
    return json.loads(json.dumps(source.choice(WRONG)))


class Instances:
    """Makes values by the components of one document; `wrong` is the chance that a place is filled with anything."""

    def __init__(self, components: dict[str, Schema], source: random.Random, wrong: float = 0.03) -> None:
        self._components = components
        self._random = source
        self._wrong = wrong

    def value(self, schema: Schema, depth: int = 0) -> Any:
        """A value that (mostly) fulfils the schema."""
        if self._random.random() < self._wrong or not isinstance(schema, dict) or not schema:
            return anything(self._random)
        if "$ref" in schema:
            return self.value(self._components[schema["$ref"].rpartition("/")[2]], depth)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self.value(self._random.choice(schema[word]), depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = kinds if isinstance(kinds, str) else self._random.choice(kinds)
        return getattr(self, f"_{kind}")(schema, depth)

    def _object(self, schema: Schema, depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", ())
        chance = 0.35 if depth < MAX_DEPTH else 0.0
        made = {
            name: self.value(inner, depth + 1)
            for name, inner in properties.items()
            if (name in required and self._random.random() > self._wrong / 2) or self._random.random() < chance
        }
        if self._random.random() < self._wrong:
            made[self._random.choice(TEXTS)] = anything(self._random)
        return made

    def _array(self, schema: Schema, depth: int) -> list[Any]:
        if "prefixItems" in schema:
            return [self.value(inner, depth + 1) for inner in schema["prefixItems"]]
        least = schema.get("minItems", 0)
        count = least if depth >= MAX_DEPTH else least + self._random.choice((0, 0, 1, 1, 2, 3))
        return [self.value(schema.get("items", {}), depth + 1) for _ in range(count)]

    def _string(self, schema: Schema, depth: int) -> str:
        if schema.get("pattern", "").startswith("^[0-9a-f]{64}"):
            return f"{self._random.getrandbits(256):064x}"
        return self._random.choice(TEXTS)

    def _integer(self, schema: Schema, depth: int) -> int | float:
        low, high = schema.get("minimum", 0), schema.get("maximum", 2**53)
        roll = self._random.random()
        if roll < 0.1:
            return self._random.choice((low - 1, high + 1, low, high, 1.0, *NUMBERS))
        return min(max(low, int(2 ** self._random.uniform(0, 14))), high)

    def _number(self, schema: Schema, depth: int) -> float:
        if self._random.random() < 0.1:
            return self._random.choice(NUMBERS)
        low, high = schema.get("minimum", 0.0), schema.get("maximum", 1e15)
        return self._random.uniform(low, min(high, low + 10 ** self._random.uniform(-3, 13)))

    def _boolean(self, schema: Schema, depth: int) -> bool:
        return self._random.random() < 0.5

    def _null(self, schema: Schema, depth: int) -> None:
        return None


def damaged(document: Any, source: random.Random) -> Any:
    """A copy of a good document with one to three places changed."""
    made = json.loads(json.dumps(document))
    for _ in range(source.randint(1, 3)):
        _damage(made, source)
    return made


def _damage(document: Any, source: random.Random) -> None:
    """Changes, removes, adds or copies one member somewhere."""
    places = [(holder, key) for holder, key in _places(document)]
    if not places:
        return
    holder, key = source.choice(places)
    action = source.randrange(5)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[source.choice(TEXTS)] = anything(source)
    elif action == 2:
        other_holder, other_key = source.choice(places)
        holder[key] = json.loads(json.dumps(other_holder[other_key]))
    elif action == 3:
        holder[key] = source.choice(NUMBERS)
    else:
        holder[key] = anything(source) if source.random() < 0.5 else source.choice(TEXTS)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (holder, key) of a document."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [(value, key) for key, _ in items] + [place for _, inner in items for place in _places(inner)]


def damaged_bytes(raw: bytes, source: random.Random) -> bytes:
    """A copy with some bytes changed, removed or added."""
    body = bytearray(raw)
    for _ in range(source.randint(1, 5)):
        position = source.randrange(len(body) + 1)
        body[position : position + source.randrange(4)] = source.randbytes(source.randrange(4))
    return bytes(body)
