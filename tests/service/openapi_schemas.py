"""Validators of answers and bodies by the OpenAPI document."""

from __future__ import annotations

from functools import cache
from typing import Any

import jsonschema


class Contract:
    """What the document says of each operation."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self._validator = cache(self._make)

    def operation(self, path: str, method: str) -> dict[str, Any]:
        """By template and lower-case method."""
        return self.document["paths"][path][method]

    def complaint(self, path: str, method: str, status: int, media: str, content: Any) -> str | None:
        """What is wrong with an answer, or None; `content` is the parsed JSON, or the text of other media."""
        responses = self.operation(path, method)["responses"]
        if str(status) not in responses:
            return f"{method.upper()} {path}: status {status} is not documented"
        offered = responses[str(status)].get("content", {})
        if not offered:
            return None if not content else f"{method.upper()} {path} {status}: content where none is documented"
        if media not in offered:
            return f"{method.upper()} {path} {status}: {media} is not documented"
        return self._schema_complaint(f"{method.upper()} {path} {status}", offered[media]["schema"], content)

    def body_complaint(self, path: str, method: str, body: Any) -> str | None:
        """What is wrong with a request body."""
        content = self.operation(path, method)["requestBody"]["content"]["application/json"]
        return self._schema_complaint(f"{method.upper()} {path}", content["schema"], body)

    def component_complaint(self, name: str, value: Any) -> str | None:
        """What is wrong with a value of a component."""
        return self._schema_complaint(name, {"$ref": f"#/components/schemas/{name}"}, value)

    def _schema_complaint(self, where: str, schema: dict[str, Any], value: Any) -> str | None:
        key = schema["$ref"] if set(schema) == {"$ref"} else None
        validator = self._validator(key) if key else self._make(None, schema)
        error = jsonschema.exceptions.best_match(validator.iter_errors(value))
        return None if error is None else f"{where}: {error.json_path}: {error.message[:300]}"

    def _make(self, reference: str | None, schema: dict[str, Any] | None = None) -> jsonschema.Draft202012Validator:
        whole = {"components": self.document["components"], **(schema or {"$ref": reference})}
        return jsonschema.Draft202012Validator(whole)
