"""RFC 9457 problem documents: the one shape in which the service and the command line refuse something.

A `Problem` knows its HTTP status; it is raised anywhere, travels over the pipe from a child process, and is stored as
the error of a failed search. Input is never echoed: texts are shortened, and cleaned of what JSON cannot carry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 100
MAX_TEXT = 500
MAX_ALLOWED = 200

TITLES = {
    "malformed_request": "The request is not HTTP that this server reads",
    "malformed_json": "The body is not JSON",
    "invalid_document": "The document is not valid",
    "invalid_problem": "The problem is not valid",
    "invalid_layout": "The layout is not valid",
    "invalid_parameter": "A parameter is not valid",
    "body_too_large": "The body is too large",
    "body_timeout": "The body did not arrive in time",
    "unsupported_media_type": "The media type is not supported",
    "not_found": "There is no such resource",
    "gone": "The resource was deleted or evicted",
    "not_acceptable": "None of the accepted media types is available",
    "not_ended": "The search has not ended",
    "idempotency_key_reused": "The idempotency key belongs to another request",
    "too_many_streams": "Too many event streams are open",
    "method_not_allowed": "The method is not allowed here",
    "queue_full": "Too many searches are waiting",
    "not_expressible": "The plan cannot be expressed in this framework",
    "illegal_layout": "The layout is not legal",
    "certification_failed": "The plan found did not pass its own check",
    "poisoned": "The search ended its process too often",
    "time_limit": "The search did not stop in time",
    "memory_limit": "The work needs more memory than allowed",
    "cpu_limit": "The search needs more processor time than allowed",
    "too_large": "The work is larger than the service allows",
    "internal_error": "The service made an error",
    "unavailable": "The service is not ready",
}


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing wrong with one field: RFC 6901 pointer into the client's document, a stable code, and what is allowed."""

    pointer: str
    code: str
    message: str
    allowed: tuple[Any, ...] | None = None

    def document(self) -> dict[str, Any]:
        """As it appears in `errors`."""
        allowed = None if self.allowed is None else [_plain(item) for item in self.allowed[:MAX_ALLOWED]]
        return {"pointer": _clean(self.pointer), "code": self.code, "message": _clean(self.message), "allowed": allowed}


class Problem(Exception):
    """A refusal with everything a client needs to act on it."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str = "",
        errors: Iterable[FieldProblem] = (),
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail or code)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)[:MAX_ERRORS]
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})

    def document(self) -> dict[str, Any]:
        """The problem document."""
        return {
            "type": f"/problems/{self.code}",
            "title": TITLES.get(self.code, self.code.replace("_", " ")),
            "status": self.status,
            "detail": _clean(self.detail),
            "code": self.code,
            "errors": [error.document() for error in self.errors],
            **self.extra,
        }

    def text(self) -> str:
        """The problem document as JSON text."""
        return orjson.dumps(self.document()).decode()


KNOWN_KEYS = frozenset({"type", "title", "status", "detail", "code", "errors"})


def problem_from(document: Mapping[str, Any]) -> Problem:
    """A problem read back from its document (from a child process or a server)."""
    errors = [
        FieldProblem(
            str(item.get("pointer", "")),
            str(item.get("code", "invalid")),
            str(item.get("message", "")),
            None if item.get("allowed") is None else tuple(item["allowed"]),
        )
        for item in document.get("errors") or ()
    ]
    extra = {key: value for key, value in document.items() if key not in KNOWN_KEYS}
    code = str(document.get("code", "internal_error"))
    return Problem(int(document.get("status", 500)), code, str(document.get("detail", "")), errors, extra=extra)


def pointer(path: Iterable[str | int]) -> str:
    """RFC 6901 text of a path."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _clean(text: str) -> str:
    """Text that is safe in JSON, logs and terminals, and short."""
    short = text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
    encodable = short.encode("utf-8", "backslashreplace").decode()
    return "".join(char if char.isprintable() or char == "\n" else f"\\u{ord(char):04x}" for char in encodable)


def _plain(value: Any) -> Any:
    """A JSON value for something in `allowed`."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _clean(str(value))
