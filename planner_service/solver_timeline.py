"""One step of a plan as the simulator runs it, for people and pages that draw it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

import solver
from planner_service.problems import FieldProblem, Problem

MAX_OPERATIONS = 100_000


def timeline_document(problem: solver.Problem, plan: solver.Plan, scenario: int) -> dict[str, Any]:
    """The operations of the replica that ends last in each chain of stages; raises `Problem` 422."""
    costs = solver.ledger(problem, plan.layout)
    run = solver.simulate(costs)
    scenarios = len(run.scenario_s)
    if scenario >= scenarios:
        finding = FieldProblem(
            "/query/scenario", "out_of_range", f"The plan has {scenarios} scenarios.", (f"0 to {scenarios - 1}",)
        )
        raise Problem(422, "invalid_parameter", finding.message, [finding])
    _refuse_huge(costs, scenario)
    pairs = zip(run.ends_s[scenario], costs.chains, strict=True)
    last = [int(np.argmax(np.max(ends + chain.sync_s + chain.optimizer_s, axis=1))) for ends, chain in pairs]
    chains = tuple(_one_replica(chain, scenario, index) for chain, index in zip(costs.chains, last, strict=True))
    operations = solver.simulate(replace(costs, chains=chains), timeline_of=0).timeline
    return {
        "plan_id": plan.id,
        "scenario": scenario,
        "step_time_s": run.scenario_s[scenario],
        "operations": [{**asdict(operation), "replica": last[operation.chain]} for operation in operations],
    }


def _one_replica(chain: Any, scenario: int, index: int) -> Any:
    """The chain with the work of one replica in one scenario."""
    return replace(chain, count=1, attention_work=(chain.attention_work[scenario][index : index + 1],))


def _refuse_huge(costs: Any, scenario: int) -> None:
    """422 for more operations than anybody can look at."""
    count = sum(2 * costs.stages * costs.vpp * chain.attention_work[scenario].shape[1] for chain in costs.chains)
    if count > MAX_OPERATIONS:
        detail = f"The step has {count} operations in its chains; at most {MAX_OPERATIONS} are listed."
        raise Problem(422, "too_large", detail, [FieldProblem("", "too_large", detail, (f"0 to {MAX_OPERATIONS}",))])
