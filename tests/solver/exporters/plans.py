"""Plans around layouts, with a prediction that only fills its place."""

from __future__ import annotations

from solver.layout import Layout
from solver.plan import MemoryEntry, Plan, Prediction, TimeBreakdown, Versions, plan_id
from solver.problem import Problem

VERSIONS = Versions(solver="0.1.0", cost_model="1", data="2026-12")


def plan_of(problem: Problem, layout: Layout) -> Plan:
    memory = MemoryEntry(
        stage=0,
        group=problem.cluster.groups[0].name,
        items={"weights": 1.0},
        allocated=1.0,
        allocator=0.0,
        reserved=1.0,
        context=0.0,
        device=1.0,
        device_interval=(1.0, 1.0),
        limit=2.0,
        capacity=2.0,
        verdict="safe",
    )
    prediction = Prediction(
        step_time_s=12.5,
        step_time_interval_s=(12.0, 13.0),
        tokens_per_s=1000.0,
        tokens_per_s_per_device=10.0,
        mfu=0.4,
        mfu_convention="model FLOPs",
        time_breakdown_s=TimeBreakdown(compute=12.5, communication={}, bubble=0.0, imbalance=0.0, optimizer=0.0),
        memory_bytes=(memory,),
        verdict="safe",
        provenance={"compute": "analytical"},
    )
    context: dict[str, dict[str, str]] = {"model": {}, "workload": {}, "cluster": {}, "framework": {}}
    return Plan(id=plan_id(context, layout, VERSIONS), layout=layout, prediction=prediction, versions=VERSIONS)
