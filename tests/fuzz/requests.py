"""One request from a seed and a number: by the OpenAPI document, damaged examples, damaged bytes, and no HTTP at all."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from planner_service.api.examples import LAYOUT, PROBLEM
from tests.fuzz.instances import TEXTS, Instances, damaged, damaged_bytes

QUICK = {"search": {"time_limit_s": 1.0, "alternatives": 1}}
GOOD: dict[str, Any] = {"/v1/searches": {**PROBLEM, **QUICK}}
"""Where the example of the document would take too long."""
JSON = "application/json"
LENGTHS = b"length\n4096\n300\n17\n"
FILES = (
    LENGTHS,
    b"4096\n300\n",
    b'{"length": 5}\n{"length": 7}\n',
    b'{"counts": [[512, 3]]}',
    b"[1, 2, 3]",
    gzip.compress(LENGTHS, mtime=0),
    gzip.compress(b"\0" * 2**20, mtime=0),
    b"PAR1" + b"\0" * 20 + b"PAR1",
    b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }".ljust(127) + b"\n" + bytes(16),
    b"MMIDIDX\x00\x00" + bytes(60),
    b"",
)
"""Files that hold, or nearly hold, sequence lengths."""
WEIGHTS = {"/v1/calibrations": 0.2, "/v1/plans/{plan_id}/timeline": 0.5}
"""How often compared with 1 for most, 4 for those with bodies: these take seconds when they are right."""
HEADERS: dict[str, tuple[str, ...]] = {
    "Accept": ("*/*", "application/json", "text/html", "application/*;q=0", "x", "", "*/*;q=x", "application/json, text/plain"),
    "Prefer": ("wait=0", "wait=1", "wait=-1", "wait", "respond-async", "wait=99999999999999", "x" * 500),
    "If-None-Match": ("*", '"x"', "W/", ",,,", "x" * 500),
    "Idempotency-Key": ("k1", "k2", "k3", "", "a b", "x" * 300),
    "Last-Event-ID": ("0", "1", "5", "-1", "x", "9" * 30),
    "Content-Type": ("text/plain", "application/json; charset=utf-8", "application/json;charset=x", "", "application/yaml"),
    "Content-Encoding": ("gzip", "identity"),
    "Expect": ("100-continue",),
    "Range": ("bytes=0-1",),
    "Host": ("", "x", "[::1", "a" * 300),
    "X-Forwarded-For": ("127.0.0.1",),
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO")
PATHS = (
    "/",
    "/v1",
    "/v1/searches/",
    "//v1/searches",
    "/v1/../healthz",
    "/v1/plans/%00",
    "/%ff%fe",
    "/v1/searches/x/events/y",
    "/docs",
)
GARBAGE = (
    b"\x00" * 40,
    b"\x16\x03\x01\x02\x00\x01\x00",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /healthz HTTP/1.1\r\nA" + b"a" * 70_000,
)


@dataclass(frozen=True, slots=True)
class Request:
    """What goes over the wire, and which operation it means (None: none that is documented)."""

    payload: bytes
    operation: tuple[str, str] | None = None
    head: bool = False


@dataclass(slots=True)
class Known:
    """Ids that answers have named, the newest last."""

    searches: list[str] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)

    def note(self, document: Any) -> None:
        """Collects the ids in an answer."""
        if isinstance(document, dict) and "problem_digest" in document:
            self._add(self.searches, document["id"])
            plan = (document.get("result") or {}).get("plan")
            if plan:
                self._add(self.plans, plan["id"])
        elif isinstance(document, dict) and isinstance(document.get("plan"), dict):
            self._add(self.plans, document["plan"]["id"])

    @staticmethod
    def _add(ids: list[str], new: str) -> None:
        if new not in ids:
            ids.append(new)
            del ids[:-50]


class Requests:
    """Request number `index` of `seed`; ids come from what is known, everything else from the two numbers."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self._document = document
        self._seed = seed
        operations = [(path, method) for path, methods in document["paths"].items() for method in methods]
        self._operations = operations
        bodies = ["requestBody" in document["paths"][path][method] for path, method in operations]
        self._weights = [WEIGHTS.get(path, 4.0 if body else 1.0) for (path, _), body in zip(operations, bodies, strict=True)]

    def number(self, index: int, known: Known) -> Request:
        """The request."""
        source = random.Random(f"{self._seed}:{index}")
        roll = source.random()
        if roll < 0.03:
            return Request(source.choice(GARBAGE) if source.random() < 0.5 else source.randbytes(source.randrange(1, 400)))
        if roll < 0.08:
            return self._somewhere(source)
        return self._operation(source, known)

    def _somewhere(self, source: random.Random) -> Request:
        """Any method at any address."""
        path = source.choice((*PATHS, *self._document["paths"]))
        method = source.choice(METHODS)
        return Request(wire(method, quote(path, safe="/%:.{}"), {}, b""), None, head=method == "HEAD")

    def _operation(self, source: random.Random, known: Known) -> Request:
        path, method = source.choices(self._operations, self._weights)[0]
        operation = self._document["paths"][path][method]
        instances = Instances(self._document["components"]["schemas"], source, source.choice((0.0, 0.02, 0.1)))
        target, query = path, []
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path":
                target = target.replace("{" + parameter["name"] + "}", quote(self._id(parameter["name"], source, known), safe=""))
            elif parameter["in"] == "query" and source.random() < 0.25:
                query.append(f"{parameter['name']}={quote(str(instances.value(parameter['schema'])), safe='')}")
        if source.random() < 0.03:
            query.append(source.choice(("x=1", "limit=1&limit=2", "%00=%00", "=", "&&", "state", "a" * 300 + "=1")))
        headers = {name: source.choice(values) for name, values in HEADERS.items() if source.random() < 0.04}
        body = self._body(path, operation, instances, source)
        if "requestBody" in operation:
            headers = {"Content-Type": next(iter(operation["requestBody"]["content"])), **headers}
        full = target + ("?" + "&".join(query) if query else "")
        head = method == "get" and source.random() < 0.05
        return Request(wire("HEAD" if head else method.upper(), full, headers, body), (path, method), head)

    def _id(self, name: str, source: random.Random, known: Known) -> str:
        """An id that exists, or existed, or never did."""
        pool = {"search_id": known.searches, "plan_id": known.plans}.get(name, ["megatron-core", "any", "fake"])
        if pool and source.random() < 0.8:
            return source.choice(pool)
        return source.choice((*TEXTS, "0" * 26, "f" * 64)) or "x"

    def _body(self, path: str, operation: dict[str, Any], instances: Instances, source: random.Random) -> bytes:
        """By the schema, or a good one that was damaged as a document or as bytes."""
        if "requestBody" not in operation:
            return b""
        if JSON not in operation["requestBody"]["content"]:
            return damaged_bytes(source.choice(FILES), source) if source.random() < 0.8 else source.choice(FILES)
        content = operation["requestBody"]["content"][JSON]
        good = GOOD.get(path, content["example"])
        roll = source.random()
        if roll < 0.3:
            return encoded(instances.value(content["schema"]))
        if roll < 0.75:
            return encoded(damaged(good, source))
        if roll < 0.9:
            return damaged_bytes(encoded(good), source)
        if path == "/v1/evaluations":
            layout = {**LAYOUT, source.choice(list(LAYOUT)): source.choice((1, 2, 3, 4, 8))}
            return encoded({"problem": PROBLEM, "layout": layout})
        return encoded(good)


def encoded(value: Any) -> bytes:
    """JSON, with NaN where there is one and without minding half surrogates."""
    return json.dumps(value).encode("utf-8", "surrogatepass")


def wire(method: str, target: str, headers: dict[str, str], body: bytes) -> bytes:
    """An HTTP/1.1 request that ends its connection."""
    lines = [f"{method} {target} HTTP/1.1", *([] if "Host" in headers else ["Host: fuzz"]), "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method in ("POST", "PATCH", "PUT"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + body
