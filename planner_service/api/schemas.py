"""JSON schemas of the service's own documents; those of the solver come from `SolverPort.schemas`."""

from __future__ import annotations

from typing import Any

from planner_service.states import State

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
SEARCH_ID: Schema = {"type": "string", "pattern": "^[0-7][0-9A-HJKMNP-TV-Z]{25}$"}
MOMENT: Schema = {"type": "string", "format": "date-time"}
MAX_LABEL_CHARS, MAX_NOTE_CHARS, MAX_TAGS, MAX_TAG_CHARS = 100, 2000, 20, 50
LABELS: dict[str, Schema] = {
    "label": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_LABEL_CHARS},
    "note": {"type": ["string", "null"], "minLength": 1, "maxLength": MAX_NOTE_CHARS},
    "tags": {
        "type": "array",
        "maxItems": MAX_TAGS,
        "uniqueItems": True,
        "items": {"type": "string", "minLength": 1, "maxLength": MAX_TAG_CHARS},
    },
}


def reference(name: str) -> Schema:
    """A component by name."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(schema: Schema) -> Schema:
    """The schema or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def record(description: str = "", optional: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object whose members are required unless they are named in `optional`."""
    required = [name for name in properties if name not in optional]
    made = {"type": "object", "required": required, "properties": properties}
    return {**made, "description": description} if description else made


def array(items: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": items}


SUMMARY: dict[str, Schema] = {
    "id": SEARCH_ID,
    "state": reference("State"),
    "problem_digest": DIGEST,
    "request_digest": DIGEST,
    "model": TEXT,
    "framework": TEXT,
    **LABELS,
    "created_at": MOMENT,
    "finished_at": nullable(MOMENT),
    "progress": reference("Progress"),
}
FINDING = record(
    pointer={**TEXT, "description": "RFC 6901 into the document sent; /query/NAME and /header/NAME for those"},
    code=TEXT,
    message=TEXT,
    allowed={"type": ["array", "null"]},
)
COMPONENTS: dict[str, Schema] = {
    "Progress": record(
        "Cells closed, of how many (null before they are counted), the best value found, the bound proven, and the gap between",
        done={"type": "integer", "minimum": 0},
        total={"type": ["integer", "null"], "minimum": 0},
        incumbent={"type": ["number", "null"]},
        bound={"type": ["number", "null"]},
        gap={"type": ["number", "null"]},
    ),
    "State": {"type": "string", "enum": [state.value for state in State]},
    "ErrorDocument": record(
        "RFC 9457 problem document",
        ("request_id",),
        type=TEXT,
        title=TEXT,
        status={"type": "integer"},
        detail=TEXT,
        code=TEXT,
        errors=array(FINDING),
        request_id={**TEXT, "description": "Under which the service logged its own mistake"},
    ),
    "Search": record(
        "A search; `result` once there is one, `error` when it failed",
        **SUMMARY,
        result=nullable(reference("Result")),
        error=nullable(reference("ErrorDocument")),
    ),
    "SearchSummary": record("A search without its result", **SUMMARY),
    "SearchList": record(searches=array(reference("SearchSummary")), next=nullable(TEXT)),
    "SearchEdit": {"type": "object", "minProperties": 1, "additionalProperties": False, "properties": LABELS},
    "EvaluationRequest": {
        "type": "object",
        "required": ["problem", "layout"],
        "additionalProperties": False,
        "properties": {
            "problem": reference("Problem"),
            "layout": {"anyOf": [reference("UniformLayout"), reference("LayoutInput")]},
        },
    },
    "ComparisonRequest": {
        "type": "object",
        "required": ["plans"],
        "additionalProperties": False,
        "properties": {"plans": {"type": "array", "minItems": 2, "maxItems": 6, "uniqueItems": True, "items": DIGEST}},
    },
    "Export": record(
        framework=TEXT,
        version=TEXT,
        files=array(record(path=TEXT, media_type=TEXT, content=TEXT)),
        command=TEXT,
    ),
    "CalibrationRequest": {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "description": "Measured runs (CSV in the header of the measurements, or rows), nccl-tests outputs, or both",
        "properties": {
            "name": {**TEXT, "minLength": 1, "maxLength": 100},
            "base": {"type": ["string", "null"], "description": "The profile to refit; default: that of the runs' framework"},
            "runs": {"anyOf": [TEXT, array({"type": "object"}), {"type": "null"}]},
            "collectives": {"type": ["array", "null"], "items": TEXT},
            "device": {"type": ["string", "null"], "description": "Of nccl-tests outputs that do not say"},
            "ranks": {"type": ["integer", "null"], "minimum": 1},
            "nodes": {"type": ["integer", "null"], "minimum": 1},
        },
    },
    "Profile": record(
        "A software profile: what it assumes, rates of devices, what set each constant, and its error on the runs",
        ("constants", "error", "rows", "aliases", "sources"),
        name=TEXT,
        base={"type": ["string", "null"]},
        software=record(name=TEXT, assumptions={"type": "object", "additionalProperties": {"type": "number"}}),
        devices=array(record(name=TEXT, rates={"type": "object", "additionalProperties": {"type": "number"}})),
        constants=array(record(of=TEXT, name=TEXT, before={"type": "number"}, after={"type": "number"}, set_by=TEXT)),
        error={"type": "object"},
        rows={"type": "object"},
        aliases=array(TEXT),
        sources={"type": "object"},
    ),
    "Profiles": record(
        profiles=array(record(name=TEXT, base={"type": ["string", "null"]}, kind={"enum": ["shipped", "calibrated"]}))
    ),
    "HfConfig": {"type": "object", "description": "The content of a Hugging Face config.json"},
    "ImportedModel": record(
        kind={"const": "hf-config"},
        model=reference("Model"),
        parameters=record(
            "Sizes in parameters: without prediction layers (mtp), active without experts a token does not visit",
            total={"type": "integer"},
            active={"type": "integer"},
            parts={"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        warnings=array(TEXT),
    ),
    "ImportedLengths": record(
        "Lengths read from a file, ready for a problem, and what they are like",
        kind={"const": "lengths"},
        formats=array(TEXT),
        sequence_lengths={"type": "object"},
        max_sequence_length={"type": "integer"},
        truncate={"type": "boolean"},
        statistics={"type": "object"},
        limit={"type": "object"},
        max_relative_error={"type": "number"},
        warnings=array(TEXT),
    ),
    "Devices": record(devices=array(record(name=TEXT, aliases=array(TEXT), devices_per_node={"type": "integer"}))),
    "Models": record(models=array(record(name=TEXT))),
    "Frameworks": record(
        frameworks=array(
            record(
                name=TEXT,
                versions=array(TEXT),
                capabilities={"type": "object"},
                exports={"type": "boolean"},
                rules=array(record(id=TEXT, severity=TEXT, fires=array(TEXT), text=TEXT)),
            )
        )
    ),
    "Status": record(status={"enum": ["ok", "ready"]}),
    "Timeline": record(
        "One step as the simulator runs it, times in seconds since its start",
        plan_id=DIGEST,
        scenario={"type": "integer"},
        step_time_s={"type": "number"},
        operations=array(
            record(
                chain={"type": "integer"},
                replica={"type": "integer"},
                stage={"type": "integer"},
                virtual_stage={"type": ["integer", "null"]},
                micro_batch={"type": ["integer", "null"]},
                kind={"enum": ["F", "B", "sync", "optimizer"]},
                start_s={"type": "number"},
                end_s={"type": "number"},
            )
        ),
    ),
    "Comparison": record(
        "Plans against the fastest of them: what differs in the layouts, where the seconds and bytes go, and why",
        plans=array(
            record(
                plan_id=DIGEST,
                step_time_s={"type": "number"},
                slower_by_fraction={"type": "number"},
                verdict={"enum": ["safe", "fits", "no"]},
                time_difference_s={"type": "object", "additionalProperties": {"type": "number"}},
                worst_memory_difference_bytes={"type": "object", "additionalProperties": {"type": "number"}},
                layout_differences=array(record(pointer=TEXT, value={}, fastest={})),
                why=array(TEXT),
            )
        ),
        fastest=DIGEST,
        same_problem={"type": "boolean"},
    ),
}
