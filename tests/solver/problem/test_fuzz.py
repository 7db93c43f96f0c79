"""Whatever is put anywhere into a problem, it is parsed or refused with pointers, never a crash."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from solver.errors import FIELD_CODES, InvalidProblem
from solver.problem import Problem, normal_form, parse_problem, problem_digest
from tests.solver.problem.documents import changed, mixed

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "bf16", "h100", "a100", "lora", "any", "\ud800", "x" * 1000, 2**53, -1, 1e308, 1e-320, 10**400]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["kind", "name", "constant", "heads", "tokens", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PATHS = st.sampled_from(
    [
        "model",
        "model.preset",
        "model.hf_config",
        "model.transformer",
        "model.modules",
        "model.layers",
        "workload",
        "workload.sequence_lengths",
        "workload.sequence_lengths.counts",
        "workload.sequence_lengths.counts.0",
        "workload.sequence_lengths.counts.0.1",
        "workload.sequence_lengths.histogram",
        "workload.sequence_lengths.lognormal",
        "workload.max_sequence_length",
        "workload.truncate",
        "workload.batching",
        "workload.global_batch",
        "workload.global_batch.sequences",
        "workload.scenarios",
        "workload.precision",
        "workload.optimizer",
        "workload.task",
        "workload.software",
        "workload.software.assumptions",
        "workload.kernels",
        "cluster",
        "cluster.groups",
        "cluster.groups.0",
        "cluster.groups.0.device",
        "cluster.groups.0.nodes",
        "cluster.groups.0.devices_per_node",
        "cluster.groups.0.host",
        "cluster.groups.0.fabric",
        "cluster.groups.1.name",
        "cluster.links",
        "cluster.links.0",
        "cluster.links.0.between",
        "cluster.network_trace",
        "objective",
        "framework",
        "constraints",
        "constraints.fixed",
        "constraints.allowed",
        "constraints.allowed.tp",
        "search",
        "running",
    ]
)


def outcome(document: dict[str, Any]) -> Problem | InvalidProblem:
    """The problem, or why not."""
    try:
        return parse_problem(document)
    except InvalidProblem as error:
        return error


@settings(max_examples=400, deadline=None)
@given(PATHS, VALUES)
def test_any_value_anywhere(path: str, value: Any) -> None:
    """Parsed (and then it has a digest), or refused with known codes."""
    problem = outcome(changed(mixed(), {path: value}))
    if isinstance(problem, InvalidProblem):
        assert {item.code for item in problem.errors} <= set(FIELD_CODES)
        assert all(item.pointer == "" or item.pointer.startswith("/") for item in problem.errors)
        assert all(len(item.message) < 2000 for item in problem.errors)
        return
    assert len(problem_digest(problem)) == 64
    assert problem_digest(parse_problem(normal_form(problem))) == problem_digest(problem)
