"""Messages between the service and its child processes: one JSON object a line, nothing is ever unpickled.

To the child: a job (`{"kind": "search", ...}`, or another kind of `child.run_job`), and during a search perhaps
`{"kind": "cancel"}`. End of input means that the parent is gone. From the child: `{"time_limit_s": x}` and
`{"progress": {...}, "layout": {...}}` of a search (the layout only with the progress that first tells its value), and for each
job one of `{"answer": {...}}` and `{"problem": {...}}`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from planner_service.solver_port import EvaluationAnswer, SearchAnswer, Start
from planner_service.store.records import Claim, StoredPlan

MAX_MESSAGE_BYTES = 256 * 2**20


def encode(message: dict[str, Any]) -> bytes:
    """One line."""
    return orjson.dumps(message) + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The object of a line."""
    message = orjson.loads(line)
    assert isinstance(message, dict)
    return message


def plan_document(plan: StoredPlan | None) -> dict[str, str] | None:
    """A stored plan as JSON."""
    return asdict(plan) if plan else None


def start_document(claim: Claim) -> dict[str, Any]:
    """What is known at the start of a claimed search, as JSON."""
    known = claim.checkpoint
    layouts = [orjson.loads(known.layout)] if known is not None and known.layout is not None else []
    plans = [(orjson.loads(result) or {}).get("plan") for result in claim.neighbours]
    near = [plan["layout"] for plan in plans if isinstance(plan, dict) and "layout" in plan]
    return {"layouts": layouts, "near": near, "bound": known.bound if known is not None else None}


def start_of(document: dict[str, Any]) -> Start:
    """The inverse of `start_document`."""
    return Start(tuple(document["layouts"]), tuple(document["near"]), document["bound"])


def search_document(answer: SearchAnswer) -> dict[str, Any]:
    """A search answer as JSON; the result stays a text inside."""
    return {"result": answer.result, "proven": answer.proven, "plans": [plan_document(plan) for plan in answer.plans]}


def search_answer(document: dict[str, Any]) -> SearchAnswer:
    """The inverse of `search_document`."""
    return SearchAnswer(document["result"], document["proven"], tuple(StoredPlan(**plan) for plan in document["plans"]))


def evaluation_document(answer: EvaluationAnswer) -> dict[str, Any]:
    """An evaluation answer as JSON."""
    return {"evaluation": answer.evaluation, "plan": plan_document(answer.plan)}


def evaluation_answer(document: dict[str, Any]) -> EvaluationAnswer:
    """The inverse of `evaluation_document`."""
    return EvaluationAnswer(document["evaluation"], StoredPlan(**document["plan"]) if document["plan"] else None)
