"""The report: every row appears, completed rows are marked, summaries count what they say."""

from __future__ import annotations

import json
import math

import pytest

from solver.errors import InvalidProblem
from solver.validate import parse_rows, predict, validate
from solver.validate.complete import blanks, completions
from solver.validate.memory import as_read, reading_kind
from solver.validate.ranking import kendall_tau_b, rank
from solver.validate.summary import errors_of
from tests.solver.validate import sample_rows as samples

EVERY_KIND = (
    samples.DENSE,
    samples.FULLY_SHARDED,
    samples.EXPERTS,
    samples.CONTEXT,
    samples.UNFUSED,
    samples.UNLIKE,
    samples.TOKENS_ONLY,
    samples.FLOPS_ONLY,
    samples.MEMORY,
    samples.UNSTATED,
    samples.FINE_TUNED,
    samples.OUT_OF_MEMORY,
)
ROW_KEYS = {
    "row_id", "predicted_step_time_s", "predicted_interval_s", "predicted_peak_memory_bytes", "fits", "safe", "completed",
    "measured_kind", "skipped_reason",
}  # fmt: skip
LOUD = {name: "" for name in ("step_time_s", "tflops_gpu", "mfu_pct", "hfu_pct", "tokens_s_gpu", "peak_mem_gb", "mem_kind")}


def test_every_row_appears_with_every_key() -> None:
    report = validate([("ours.csv", samples.document(*EVERY_KIND)), ("more.csv", samples.document(samples.DENSE))]).document()
    assert [row["row_id"] for row in report["rows"]] == [f"row-{i}" for i in range(len(EVERY_KIND))] + ["row-0"]
    assert all(set(row) == ROW_KEYS for row in report["rows"])
    json.dumps(report, allow_nan=False)
    counts = report["files"][0]["rows"]
    assert counts == {"total": 12, "used": 10, "completed": 1, "refused": 1}
    assert sum(report["files"][0]["refused_reasons"].values()) == 1


def test_predictions_do_not_read_what_was_measured() -> None:
    seen = validate([("a", samples.document(*EVERY_KIND))]).rows
    blind = validate([("a", samples.document(*({**kind, **LOUD, "notes": "x"} for kind in EVERY_KIND)))]).rows
    for first, second in zip(seen, blind, strict=True):
        assert {**first, "measured_kind": None} == {**second, "measured_kind": None}
    assert [row["measured_kind"] for row in seen][6:9] == ["tokens_s_gpu", "tflops_gpu", None]


def test_measurements_of_nothing_are_not_compared() -> None:
    rows = ({"step_time_s": "0", "peak_mem_gb": "0"}, {"step_time_s": "nan", "tokens_s_gpu": "inf"})
    report = validate([("a", samples.document(*rows))])
    assert (report.files[0]["step_time"], report.files[0]["memory"]) == (None, [])
    assert "tokens_s_gpu" in report.comparisons[1].notes[-1]
    json.dumps(report.document(), allow_nan=False)


def test_out_of_memory_is_called() -> None:
    entry = validate([("a", samples.document(samples.DENSE, samples.OUT_OF_MEMORY))]).files[0]["verdict"]
    assert (entry["precision"], entry["recall"], entry["f1"]) == (1.0, 1.0, 1.0)
    assert (entry["out_of_memory_rows"], entry["out_of_memory_called"], entry["false_alarms"]) == (1, 1, 0)


def test_completed_row_takes_the_fastest_legal_value_that_fits() -> None:
    (row,) = parse_rows(samples.document(samples.UNSTATED))
    assert blanks(row) == ("mbs", "recompute")
    (chosen,) = predict([row])
    assert not isinstance(chosen, str)
    assert chosen.completed
    options = [found for found in predict(list(completions(row))) if not isinstance(found, str) and found.memory.fits]
    assert chosen.step_s == min(option.step_s for option in options)
    tied = [option.step_s for option in options if option.step_s <= chosen.interval_s[1]]
    assert all(chosen.interval_s[0] <= seconds <= chosen.interval_s[1] for seconds in tied)


def test_blank_batch_is_chosen_per_token() -> None:
    (row,) = parse_rows(samples.document({"gbs": "", "step_time_s": "", "tokens_s_gpu": "9000"}))
    (chosen,) = predict([row])
    assert not isinstance(chosen, str)
    assert chosen.row.gbs is not None
    assert chosen.row.gbs == max(option.gbs or 0 for option in completions(row)), "more micro-batches, less bubble"


def test_file_without_the_header_is_refused() -> None:
    with pytest.raises(InvalidProblem):
        validate([("a", "x,y\n1,2\n")])


def test_errors_are_of_the_ratio() -> None:
    found = errors_of([1.1, 0.9, 1.0, 1.3])
    assert found is not None
    assert (found.median, found.mean, found.max) == pytest.approx((0.1, 0.125, 0.3))
    assert found.signed_median == pytest.approx(0.05)
    assert errors_of([]) is None


def test_tau_counts_pairs_that_differ() -> None:
    assert kendall_tau_b([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 1.0
    assert kendall_tau_b([3.0, 2.0, 1.0], [1.0, 2.0, 3.0]) == -1.0
    assert kendall_tau_b([1.0, 2.0], [1.0, 1.02]) is None, "nearer than the noise"
    assert kendall_tau_b([1.0, 1.0, 2.0], [1.0, 1.5, 2.0]) == pytest.approx(2 / math.sqrt(6))


def test_groups_and_regret() -> None:
    rows = parse_rows(samples.document(samples.DENSE, {"mbs": "4"}, {"mbs": "1"}, {"gbs": "32"}, {"gbs": "32"}))
    (group,) = rank(rows, [3.0, 1.0, 2.0, 1.0, 2.0], [3.0, 2.5, 2.0, 1.0, 2.0])
    assert (group.rows, group.layouts) == (3, 3)
    assert group.regret_fraction == pytest.approx(0.25)


def test_memory_is_compared_as_it_was_read() -> None:
    kinds = ("GiB, max reserved", "torch allocated GB", "nvidia-smi, first/last node", "")
    rows = parse_rows(samples.document(*({"mem_kind": kind, "peak_mem_gb": "20"} for kind in kinds)))
    assert [reading_kind(row) for row in rows] == ["reserved", "allocated", "device", "device"]
    (predicted,) = predict(rows[:1])
    assert not isinstance(predicted, str)
    memory = predicted.memory
    reserved, allocated, ends, worst = (as_read(row, memory) for row in rows)
    assert allocated < reserved < worst
    assert ends <= worst == memory.peak_bytes
