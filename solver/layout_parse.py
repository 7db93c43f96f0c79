"""Layout documents: from a mapping to a `Layout` or `UniformLayout`, with typed errors for whatever is not understood."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from solver.errors import FieldError, InvalidProblem
from solver.layout import SCHEDULE_KINDS, Layout, Offload, Stage, UniformLayout

SCHEDULES = SCHEDULE_KINDS
CP_KINDS = ("ring", "all_to_all")
POLICIES = ("padded", "packed_static_cp")
SYNCS = ("all_reduce", "reduce_scatter")
SELECTIVE_MODULES = ("core_attn", "layernorm", "mlp", "moe_act", "mla_up_proj", "op")
OFFLOAD_GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
HONOURED_OVERRIDES = ("layers", "recompute")

_CODES = {
    "missing": "missing",
    "unknown_field": "unknown_field",
    "extra_forbidden": "unknown_field",
    "wrong_type": "wrong_type",
    "conflict": "conflict",
    "greater_than": "out_of_range",
    "greater_than_equal": "out_of_range",
    "less_than": "out_of_range",
    "less_than_equal": "out_of_range",
    "too_short": "out_of_range",
    "too_long": "too_large",
    "literal_error": "unknown_name",
    "finite_number": "out_of_range",
    "int_from_float": "wrong_type",
}


def parse_layout(document: Mapping[str, Any]) -> UniformLayout | Layout:
    """A document with `modules` is a full layout, any other one is in classical words; raises `InvalidProblem`."""
    if not isinstance(document, Mapping):
        raise InvalidProblem((FieldError("", "wrong_type", "a layout is an object", None),))
    model = Layout if "modules" in document else UniformLayout
    try:
        layout: UniformLayout | Layout = model.model_validate(dict(document))
    except ValidationError as error:
        raise InvalidProblem(tuple(_field_errors(error))) from error
    errors = refuse_unsupported(layout)
    if errors:
        raise InvalidProblem(errors)
    return layout


def _field_errors(error: ValidationError) -> Iterator[FieldError]:
    for entry in error.errors(include_url=False):
        pointer = "".join(f"/{_escape(str(part))}" for part in entry["loc"])
        context = entry.get("ctx") or {}
        if entry["type"] == "unknown_field":
            for name in context["unknown"]:
                yield _unknown_field(f"{pointer}/{_escape(name)}", name, tuple(context["known"]))
            continue
        code = _CODES.get(entry["type"], "wrong_type" if entry["type"].endswith(("_type", "_parsing")) else "invalid")
        if entry["type"] == "conflict":
            pointer = f"{pointer}/{context['field']}"
        yield FieldError(pointer, code, _message(entry["msg"], entry["input"]), _allowed(entry["type"], context))


def _unknown_field(pointer: str, name: str, known: tuple[str, ...]) -> FieldError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return FieldError(pointer, "unknown_field", f"unknown field {name!r}{hint}", known)


def _message(message: str, value: object) -> str:
    return f"{message}, got {value!r}" if isinstance(value, str | int | float | bool) else message


def _allowed(kind: str, context: Mapping[str, Any]) -> tuple[object, ...] | None:
    if kind == "literal_error":
        return tuple(part.strip().strip("'") for part in str(context["expected"]).replace(" or ", ", ").split(","))
    bounds = tuple(
        f"{symbol} {context[name]}" for name, symbol in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")) if name in context
    )
    return bounds or None


def _escape(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


def refuse_unsupported(layout: UniformLayout | Layout) -> tuple[FieldError, ...]:
    """What the schema knows but no cost model, search or certificate honours yet, each with its pointer."""
    return tuple(_unsupported_uniform(layout) if isinstance(layout, UniformLayout) else _unsupported(layout))


def _not_supported(pointer: str, value: object, allowed: tuple[object, ...]) -> FieldError:
    return FieldError(pointer, "not_supported", f"{value!r} is not supported yet", allowed)


def _check(pointer: str, value: object, allowed: tuple[object, ...]) -> Iterator[FieldError]:
    if value not in allowed:
        yield _not_supported(pointer, value, allowed)


def _unsupported_uniform(layout: UniformLayout) -> Iterator[FieldError]:
    yield from _check("/schedule", layout.schedule.kind, SCHEDULES)
    yield from _check("/cp_kind", layout.cp_kind, CP_KINDS)
    yield from _check("/offload_optimizer", layout.offload_optimizer, OFFLOAD_GRID)
    yield from _check("/offload_activations", layout.offload_activations, (0.0,))
    yield from _check("/offload_parameters", layout.offload_parameters, (0.0,))
    yield from _unsupported_modules("/recompute/modules", layout.recompute.modules)


def _unsupported_modules(pointer: str, modules: tuple[str, ...]) -> Iterator[FieldError]:
    for index, name in enumerate(modules):
        yield from _check(f"{pointer}/{index}", name, SELECTIVE_MODULES)


def _unsupported(layout: Layout) -> Iterator[FieldError]:
    yield from _check("/schedule/kind", layout.schedule.kind, SCHEDULES)
    yield from _check("/sequence_policy", layout.sequence_policy, POLICIES)
    yield from _check("/gradient_sync/kind", layout.gradient_sync.kind, SYNCS)
    yield from _check("/equivalence", layout.equivalence, ("exact",))
    if len(layout.modules) > 1:
        yield _not_supported("/modules/1", "several modules", ("one module",))
    for index, module in enumerate(layout.modules):
        yield from _check(f"/modules/{index}/placement", module.placement, (None,))
        yield from _check(f"/modules/{index}/boundary", module.boundary, (None,))
        for number, stage in enumerate(module.stages):
            yield from _unsupported_stage(f"/modules/{index}/stages/{number}", stage)


def _unsupported_stage(pointer: str, stage: Stage) -> Iterator[FieldError]:
    yield from _check(f"{pointer}/strategy/context_parallel/kind", stage.strategy.cp_kind, CP_KINDS)
    yield from _unsupported_offload(f"{pointer}/strategy/offload", stage.strategy.offload)
    yield from _unsupported_modules(f"{pointer}/strategy/recompute/modules", stage.strategy.recompute.modules)
    for index, override in enumerate(stage.overrides):
        for name in type(override).model_fields:
            if name not in HONOURED_OVERRIDES and getattr(override, name) is not None:
                yield _not_supported(f"{pointer}/overrides/{index}/{name}", "a change per layer", HONOURED_OVERRIDES)
        if override.recompute is not None:
            yield from _unsupported_modules(f"{pointer}/overrides/{index}/recompute/modules", override.recompute.modules)


def _unsupported_offload(pointer: str, offload: Offload) -> Iterator[FieldError]:
    yield from _check(f"{pointer}/optimizer", offload.optimizer, OFFLOAD_GRID)
    yield from _check(f"{pointer}/activations", offload.activations, (0.0,))
    yield from _check(f"{pointer}/parameters", offload.parameters, (0.0,))
