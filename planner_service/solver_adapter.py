"""The package `solver` behind the service's protocol: typed errors become problems, answers become JSON texts."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

import orjson
from pydantic import BaseModel, ValidationError

import solver
from planner_service.problems import FieldProblem, Problem
from planner_service.solver_port import (
    NOTHING_KNOWN,
    Checked,
    Document,
    EvaluationAnswer,
    LengthFiles,
    LengthWish,
    OnIncumbent,
    OnProgress,
    SearchAnswer,
    ShouldStop,
    Start,
)
from planner_service.solver_profiles import calibration, shipped_profiles, with_profile
from planner_service.solver_schemas import solver_schemas
from planner_service.solver_timeline import timeline_document
from planner_service.store.records import StoredPlan

PROVEN = ("optimal", "infeasible")


class RealSolver:
    """See `SolverPort`."""

    def check(self, problem: Document) -> Checked:
        """Parses and normalises; every refusal has the pointer of the client's document."""
        with refusals():
            parsed = solver.parse_problem(problem)
            normal = solver.normalise(parsed)
            return Checked(
                solver.problem_digest(normal),
                solver.request_digest(normal),
                normal.search.time_limit_s,
                normal.framework.name,
                model_name(problem.get("model")),
                near_digest(normal),
                self.versions(),
            )

    def admit(self, problem: Document, most_skeletons: int) -> int:
        """Counts by formulas, in milliseconds."""
        with refusals():
            found = solver.skeletons_at_least(solver.normalise(solver.parse_problem(problem)), most_skeletons)
        if found > most_skeletons:
            text = f"the space has more than {most_skeletons} skeletons; narrow it with constraints.allowed (pp, tp, cp, dp, mbs)"
            raise Problem(422, "too_large", text, [FieldProblem("/constraints/allowed", "too_large", text)])
        return found

    def versions(self) -> str:
        """Canonical JSON of the solver's versions."""
        return orjson.dumps(solver.versions(), option=orjson.OPT_SORT_KEYS).decode()

    def warm(self) -> None:
        """Loads the kernels; on a fresh machine this compiles them once."""
        solver.warm()

    def search(
        self,
        problem: Document,
        should_stop: ShouldStop,
        on_progress: OnProgress,
        cancelled: ShouldStop,
        *,
        start: Start = NOTHING_KNOWN,
        on_incumbent: OnIncumbent | None = None,
    ) -> SearchAnswer:
        """The result text and all plans in it, each with the problem it follows from."""
        with refusals():
            parsed = solver.parse_problem(problem)
            outcome = solver.search(
                parsed,
                should_stop=should_stop,
                on_progress=lambda progress: on_progress(progress.model_dump(mode="json")),
                on_incumbent=_layout_documents(on_incumbent),
                seeds=[layout for layout in map(_layout, (*start.layouts, *start.near)) if layout is not None],
                known_bound=start.bound,
            )
            result = outcome.result
            if cancelled() and result.stopped_by == "time":
                result = result.model_copy(update={"stopped_by": "cancelled"})
            plans = tuple(
                StoredPlan(key, json_text(plan), json_text(solver.normal_form(outcome.problems[key])))
                for key, plan in outcome.plans.items()
            )
            return SearchAnswer(json_text(result), result.status in PROVEN, plans)

    def evaluate(self, problem: Document, layout: Document) -> EvaluationAnswer:
        """The verdict on one layout; malformed layouts are refused with pointers below /layout."""
        with refusals("/problem"):
            normal = solver.normalise(solver.parse_problem(problem))
        with refusals("/layout"):
            evaluation = solver.evaluate(normal, layout)
        plan = evaluation.plan
        stored = StoredPlan(plan.id, json_text(plan), json_text(solver.normal_form(normal))) if plan is not None else None
        return EvaluationAnswer(json_text(evaluation), stored)

    def export(self, plan: StoredPlan, framework: str) -> str:
        """The export document; what the framework cannot express is refused with 409, an unknown framework with 404."""
        known = solver.exporter_names()
        if framework not in known:
            error = FieldProblem("", "unknown_name", "There is no export for this framework.", known)
            raise Problem(404, "not_found", "There is no export for this framework.", [error])
        with refusals():
            problem = solver.normalise(solver.parse_problem(orjson.loads(plan.context)))
            return json_text(solver.export(problem, solver.Plan.model_validate_json(plan.body), framework))

    def timeline(self, plan: StoredPlan, scenario: int) -> str:
        """The simulator's run of a stored plan."""
        with refusals():
            problem = solver.normalise(solver.parse_problem(orjson.loads(plan.context)))
            return json_text(timeline_document(problem, solver.Plan.model_validate_json(plan.body), scenario))

    def schemas(self) -> Document:
        """See `solver_schemas`."""
        return solver_schemas()

    def calibrate(self, request: Document) -> str:
        """The profile document; its faults have pointers into the request."""
        with refusals():
            return json_text(calibration(request))

    def profiles(self) -> list[Document]:
        """See `shipped_profiles`."""
        return shipped_profiles()

    def with_profile(self, problem: Document, profile: Document) -> Document:
        """See `solver_profiles`."""
        return with_profile(problem, profile)

    def import_hf_config(self, config: Document) -> str:
        """The explicit sizes that a config.json means, and its parameters by part."""
        with refusals():
            made = solver.import_hf_config(config)
            count = solver.count_model_parameters(made.model)
        parameters = {"total": count.total, "active": count.active, "parts": dataclasses.asdict(count.parts)}
        return json_text({"kind": "hf-config", "model": made.model, "parameters": parameters, "warnings": made.warnings})

    def import_lengths(self, files: LengthFiles, wish: LengthWish) -> str:
        """What `solver.import_lengths` understood; the file is one value, so faults point at the root."""
        wanted = solver.Wish(wish.column, wish.max_tokens, wish.characters_per_token)
        limit = {} if wish.max_unpacked_bytes is None else {"max_unpacked_bytes": wish.max_unpacked_bytes}
        with refusals():
            made = solver.import_lengths(files, wanted, **limit)
        return json_text({"kind": "lengths", **dataclasses.asdict(made)})

    def devices(self) -> str:
        """Every device: the inline form, what a group of them defaults to, and the sources."""
        entries = []
        for device in solver.devices().values():
            entry = {"aliases": device.aliases, "devices_per_node": device.devices_per_node, "host": device.host}
            entries.append({**device.content, **entry, "fabric": device.fabric, "sources": device.sources})
        return json_text({"devices": entries})

    def models(self) -> str:
        """Every preset with its explicit sizes and sources."""
        return json_text({"models": list(solver.models().values())})

    def frameworks(self) -> str:
        """Every framework with the versions that have rules, and capabilities and rules of the newest."""
        entries = []
        for name in solver.framework_names():
            rules = solver.get_rule_set(name)
            entry = {"name": name, "versions": solver.framework_versions(name), "capabilities": rules.capabilities}
            told = [{"id": rule.id, "severity": rule.severity, "fires": rule.fires, "text": rule.text} for rule in rules.rules]
            entries.append({**entry, "exports": name in solver.exporter_names(), "rules": told})
        return json_text({"frameworks": entries})


def model_name(model: Any) -> str:
    """What a list of searches calls the model of a problem document: its preset, or the kind of its definition."""
    if not isinstance(model, Mapping):
        return ""
    preset = model.get("preset")
    if isinstance(preset, str):
        return preset[:200]
    config = model.get("hf_config")
    kind = config.get("model_type") if isinstance(config, Mapping) else None
    return kind[:200] if isinstance(kind, str) else "custom"


def near_digest(problem: solver.Problem) -> str:
    """Equal for problems with the same model, devices, precision and framework: batch, lengths and node counts may differ."""
    form = solver.normal_form(problem)
    workload = {name: form["workload"][name] for name in ("precision", "task", "batching")}
    devices = sorted((group["device"]["name"], group["devices_per_node"]) for group in form["cluster"]["groups"])
    near = {"model": form["model"], "workload": workload, "devices": devices, "framework": form["framework"]["name"]}
    return hashlib.sha256(orjson.dumps(near, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _layout(document: Document) -> solver.Layout | None:
    """A stored layout; None when these versions do not read it any more."""
    try:
        return solver.Layout.model_validate(document)
    except ValidationError:
        return None


def _layout_documents(on_incumbent: OnIncumbent | None) -> Callable[[float, Callable[[], solver.Layout]], None] | None:
    """The same callback for layouts instead of documents."""
    if on_incumbent is None:
        return None
    return lambda value, make: on_incumbent(value, lambda: make().model_dump(mode="json"))


@contextmanager
def refusals(prefix: str = "") -> Iterator[None]:
    """Turns the solver's typed errors into problems, their pointers below `prefix`."""
    try:
        yield
    except solver.InvalidProblem as error:
        errors = [_field(item, prefix) for item in error.errors]
        raise Problem(422, "invalid_problem", _summary(errors), errors) from error
    except solver.IllegalLayout as error:
        errors = [FieldProblem(prefix, violation.rule, violation.message) for violation in error.violations]
        raise Problem(422, "illegal_layout", _summary(errors), errors) from error
    except solver.NotExpressible as error:
        errors = [_field(item, prefix) for item in error.fields]
        raise Problem(409, "not_expressible", _summary(errors), errors) from error
    except solver.CertificationFailed as error:
        errors = [FieldProblem("", "certification_failed", finding) for finding in error.findings]
        raise Problem(500, "certification_failed", _summary(errors), errors) from error
    except solver.SolverError as error:
        raise Problem(422, error.code, str(error)) from error


def json_text(value: Any) -> str:
    """Canonical JSON text of a model, a dataclass or plain data: made once, then kept as it is."""
    return orjson.dumps(value, default=_jsonable).decode()


def _jsonable(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value).__name__)


def _field(error: Any, prefix: str) -> FieldProblem:
    return FieldProblem(prefix + error.pointer, error.code, error.message, error.allowed)


def _summary(errors: list[FieldProblem]) -> str:
    """One sentence about the first error and how many there are."""
    if not errors:
        return ""
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{errors[0].pointer or '/'}: {errors[0].message}{more}"


def lengths_form(name: str, stream: BinaryIO, max_tokens: int | None) -> Document:
    """The `sequence_lengths` of a problem that a file of lengths stands for."""
    with refusals("/workload/sequence_lengths"):
        return solver.import_lengths([(name, stream)], solver.Wish(max_tokens=max_tokens)).sequence_lengths


def load_yaml(raw: bytes) -> Any:
    """The document in a YAML 1.2 text."""
    with refusals():
        return solver.load_document(raw, "yaml")
