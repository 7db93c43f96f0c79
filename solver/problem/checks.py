"""Fields that must agree with each other, checked on the complete problem."""

from __future__ import annotations

from typing import Final

from solver.catalog import nearest
from solver.problem.cluster import MAX_DEVICES, Cluster, Group
from solver.problem.findings import Findings
from solver.problem.model import MAX_LAYERS, Transformer
from solver.problem.problem import Problem
from solver.problem.statistics import expected_draws, expected_rows
from solver.problem.supported import PRECISIONS
from solver.problem.workload import Workload

#: Most sequence lengths drawn for all scenarios together.
MAX_DRAWS: Final = 1 << 25
#: Most rows of one global batch.
MAX_ROWS: Final = 1 << 20


def check(problem: Problem, findings: Findings) -> None:
    """Note every disagreement. What `complete` could not fill was noted there and is passed over."""
    if problem.model.transformer is not None:
        _check_model(problem.model.transformer, problem.workload, findings)
    elif problem.model.modules is not None and problem.model.modules[-1].transformer is not None:
        _check_model(problem.model.modules[-1].transformer, problem.workload, findings)
    _check_lengths(problem.workload, findings)
    _check_assumptions(problem.workload, findings)
    _check_groups(problem.cluster, findings)
    _check_links(problem.cluster, findings)
    for index, group in enumerate(problem.cluster.groups):
        _check_precision(group, index, problem.workload, findings)
    _check_objective(problem, findings)
    _check_batch_words(problem, findings)


def _check_model(transformer: Transformer, workload: Workload, findings: Findings) -> None:
    if not transformer.vocab_size:
        findings.add(("model", "transformer", "vocab_size"), "missing", "a language model needs its vocab_size")
    if transformer.layers > MAX_LAYERS:
        findings.add(("model", "transformer", "blocks"), "too_large", f"more than {MAX_LAYERS} layers")
    positions = transformer.learned_positions
    if positions is not None and workload.max_sequence_length > positions:
        message = f"the model has {positions} learned positions; sequences of {workload.max_sequence_length} do not fit"
        findings.add(("workload", "max_sequence_length"), "conflict", message)


def _check_lengths(workload: Workload, findings: Findings) -> None:
    longest, limit = workload.sequence_lengths.longest_tokens, workload.max_sequence_length
    if longest > limit >= 1 and not workload.truncate:
        message = f"sequences of {longest} tokens are longer than max_sequence_length {limit}; set truncate: true to cut them"
        findings.add(("workload", "max_sequence_length"), "conflict", message)
    if len(workload.batching) > 1 and workload.global_batch.tokens is None:
        message = "several batching policies are compared at equal tokens: give global_batch.tokens"
        findings.add(("workload", "batching"), "conflict", message)
    rows = expected_rows(workload)
    if rows > MAX_ROWS:
        message = f"a batch of about {rows:.3g} rows is more than {MAX_ROWS}"
        findings.add(("workload", "global_batch"), "too_large", message)
    draws = expected_draws(workload)
    if draws > MAX_DRAWS:
        message = (
            f"the scenarios would draw about {draws:.3g} sequences, more than {MAX_DRAWS}; ask for fewer batches or a smaller one"
        )
        findings.add(("workload", "global_batch"), "too_large", message)


def _check_assumptions(workload: Workload, findings: Findings) -> None:
    for name, value in workload.software.assumptions.items():
        path = ("workload", "software", "assumptions", name)
        if name.endswith(("_fraction", "_efficiency")) and value > 1:
            findings.add(path, "out_of_range", "a fraction is at most 1")
        if name.endswith(("_efficiency", "_exponent", "_factor", "_ratio")) and value <= 0:
            findings.add(path, "out_of_range", "must be above 0")
    zero = workload.software.assumptions.get("default_zero", 0.0)
    if zero not in (0.0, 1.0, 2.0, 3.0):
        findings.add(("workload", "software", "assumptions", "default_zero"), "out_of_range", "a ZeRO stage", (0, 1, 2, 3))


def _check_groups(cluster: Cluster, findings: Findings) -> None:
    seen: set[str] = set()
    for index, group in enumerate(cluster.groups):
        if group.name in seen:
            findings.add(("cluster", "groups", index, "name"), "conflict", f"two groups are called {group.name[:80]!r}")
        seen.add(group.name)
    if cluster.devices > MAX_DEVICES:
        message = f"{cluster.devices} devices are more than {MAX_DEVICES}"
        findings.add(("cluster", "groups"), "too_large", message)


def _check_links(cluster: Cluster, findings: Findings) -> None:
    names = [group.name for group in cluster.groups]
    seen: set[frozenset[str]] = set()
    for index, link in enumerate(cluster.links):
        path = ("cluster", "links", index, "between")
        for end, name in enumerate(link.between):
            if name not in names:
                close = nearest(name, names)
                hint = f"; did you mean {close!r}?" if close else ""
                findings.add((*path, end), "unknown_name", f"no group is called {name[:80]!r}{hint}", names)
        if frozenset(link.between) in seen:
            findings.add(path, "conflict", "this pair of groups is linked twice")
        seen.add(frozenset(link.between))


def _check_precision(group: Group, index: int, workload: Workload, findings: Findings) -> None:
    """The device must have a peak for the precision that the group runs in."""
    precision = group.precision or workload.precision
    peaks = tuple(sorted(dtype for dtype in group.device.peak_flops_per_s if dtype in ("bf16", "fp16", "fp32", "fp8")))
    if precision not in peaks and precision in PRECISIONS:
        path = ("cluster", "groups", index, "precision") if group.precision else ("workload", "precision")
        findings.add(path, "conflict", f"{group.device.name} (group {group.name[:80]}) has no {precision}", peaks)


def _check_objective(problem: Problem, findings: Findings) -> None:
    needs_price = problem.objective.kind == "cost" or problem.constraints.max_price_per_hour is not None
    for index, group in enumerate(problem.cluster.groups):
        if needs_price and group.price_per_device_hour is None:
            message = "the objective cost and max_price_per_hour need the price of every group"
            findings.add(("cluster", "groups", index, "price_per_device_hour"), "missing", message)


def _check_batch_words(problem: Problem, findings: Findings) -> None:
    """A fixed gbs must lie within the tolerance of global_batch.sequences."""
    batch, fixed = problem.workload.global_batch, problem.constraints.fixed.get("gbs")
    if fixed is None or batch.sequences is None:
        return
    if abs(fixed - batch.sequences) > batch.tolerance * batch.sequences:
        message = f"gbs {fixed} is not within the tolerance of global_batch.sequences ({batch.sequences})"
        findings.add(("constraints", "fixed", "gbs"), "conflict", message, (batch.sequences,))
