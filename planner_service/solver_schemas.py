"""JSON schemas of the solver's documents for OpenAPI, with the shorthands clients may write (DESIGN 3.7)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

import solver

Schema = dict[str, Any]
REF = "#/components/schemas/"
ASKED: tuple[type[BaseModel], ...] = (solver.Problem, solver.UniformLayout, solver.Layout)
ANSWERED: tuple[type[BaseModel], ...] = (solver.Result, solver.Plan, solver.Evaluation)
BOUNDS = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
NAMES = {
    "Layout-Input": "LayoutInput",
    "Layout-Output": "Layout",
    "Module-Output": "LayoutModuleOutput",
    "Search": "SearchOptions",
    "solver__layout__Module": "LayoutModule",
    "solver__problem__model__Module": "ModelModule",
}
STRINGS = (
    ("Problem", "framework"),
    ("Problem", "objective"),
    ("Workload", "optimizer"),
    ("Workload", "software"),
    ("Workload", "task"),
    ("Group", "device"),
    ("UniformLayout", "recompute"),
    ("UniformLayout", "schedule"),
)
"""Where a string may stand for the object."""


def solver_schemas() -> dict[str, Schema]:
    """All components by name; `Problem`, `LayoutInput`, `UniformLayout` are asked, the others are answered."""
    wanted: list[Any] = [(model, "validation") for model in ASKED] + [(model, "serialization") for model in ANSWERED]
    _, top = models_json_schema(wanted, ref_template=REF + "{model}")
    answered = _reachable(top["$defs"], [model.__name__ for model in ANSWERED])
    made = {NAMES.get(name, name): _plain(schema, open_ended=name in answered) for name, schema in top["$defs"].items()}
    for name, member in STRINGS:
        _also_string(made[name]["properties"], member)
    workload, cluster = made["Workload"]["properties"], made["Cluster"]["properties"]
    workload["batching"] = {"anyOf": [workload["batching"], workload["batching"]["items"]]}
    matrix = {"type": "object", "required": ["node_matrix"], "properties": {"node_matrix": {"$ref": REF + "NodeMatrix"}}}
    cluster["links"] = {"anyOf": [cluster["links"], matrix]}
    made["Constraints"]["properties"]["allowed"]["additionalProperties"] = True
    return made


def _also_string(properties: Schema, member: str) -> None:
    """The member may be given as a string; its default, if any, stays at the top."""
    schema = dict(properties[member])
    kept = {key: schema.pop(key) for key in ("default", "title") if key in schema}
    properties[member] = {"anyOf": [schema, {"type": "string"}], **kept}


def _reachable(defs: dict[str, Schema], roots: list[str]) -> set[str]:
    """Names of the definitions that answers are made of."""
    found: set[str] = set()
    open_names = list(roots)
    while open_names:
        name = open_names.pop()
        if name not in found:
            found.add(name)
            open_names += _references(defs[name])
    return found


def _references(schema: Any) -> list[str]:
    """Names a schema refers to."""
    if isinstance(schema, dict):
        own = [schema["$ref"].removeprefix(REF)] if isinstance(schema.get("$ref"), str) else []
        return own + [name for value in schema.values() for name in _references(value)]
    if isinstance(schema, list):
        return [name for value in schema for name in _references(value)]
    return []


def _plain(schema: Any, open_ended: bool) -> Any:
    """JSON Schema keywords for our bounds, short names; answers may get more members later, so they are not closed."""
    if isinstance(schema, list):
        return [_plain(value, open_ended) for value in schema]
    if not isinstance(schema, dict):
        return schema
    made: Schema = {}
    for key, value in schema.items():
        if key == "additionalProperties" and value is False and open_ended:
            continue
        if key == "$ref":
            made[key] = REF + NAMES.get(value.removeprefix(REF), value.removeprefix(REF))
        elif key in BOUNDS and not isinstance(value, dict | list):
            made[BOUNDS[key]] = value
        elif key in ("properties", "$defs"):
            made[key] = {name: _plain(inner, open_ended) for name, inner in value.items()}
        elif key == "default":
            made[key] = value
        elif key != "title" or not isinstance(value, str):
            made[key] = _plain(value, open_ended)
    return made
