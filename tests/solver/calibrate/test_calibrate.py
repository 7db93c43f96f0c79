"""Calibration: five runs of a machine with hidden constants are enough to help, and what they cannot tell stays."""

from __future__ import annotations

import numpy as np
import pytest

import solver
from solver.calibrate import Measurements, apply_profile, calibrate, refit
from solver.calibrate.posterior import most_probable
from solver.calibrate.runs import error_fraction
from solver.errors import InvalidProblem
from solver.validate import Case, Constants, Harness, case_of, parse_rows
from tests.solver.validate import sample_rows as samples

HIDDEN = Constants(
    profiles={"megatron-core": {"launch_floor_s_per_layer": 9.0e-4, "elementwise_factor": 3.2, "kernel_overhead_s": 3.0e-5}},
    devices={"A100-SXM4-80": {"gemm_efficiency": 0.78}},
)
SHAPES = [
    {"mbs": mbs, "gbs": gbs, "tp": tp, "pp": pp, "dp": str(8 // int(tp) // int(pp)), "hidden": hidden, "ffn": ffn}
    for mbs, gbs, tp, pp, hidden, ffn in (
        ("1", "32", "1", "1", "1024", "4096"),
        ("2", "64", "2", "2", "2048", "8192"),
        ("4", "64", "4", "1", "2048", "8192"),
        ("8", "128", "1", "2", "4096", "16384"),
        ("1", "64", "8", "1", "4096", "16384"),
        ("2", "128", "2", "4", "1024", "4096"),
        ("4", "128", "1", "1", "1024", "4096"),
        ("1", "16", "4", "2", "2048", "8192"),
        ("2", "32", "8", "1", "1024", "4096"),
        ("4", "256", "2", "1", "4096", "16384"),
    )
]


def runs() -> tuple[list[Case], np.ndarray]:
    """Ten runs measured on a machine whose constants are HIDDEN, with 2 % noise."""
    cases = [case_of(row) for row in parse_rows(samples.document(*SHAPES))]
    noise = np.random.default_rng(7).normal(0.0, 0.02, len(cases))
    return cases, Harness(cases).predict(HIDDEN) * np.exp(noise)


def test_five_runs_halve_the_error_on_the_others() -> None:
    cases, measured = runs()
    harness = Harness(cases)
    others = [5, 6, 7, 8, 9]
    before = np.abs(harness.predict() / measured - 1.0)[others]
    fitted = refit(harness, [0, 1, 2, 3, 4], measured)
    after = np.abs(harness.predict(fitted.constants) / measured - 1.0)[others]
    assert np.median(before) > 0.15, "the hidden machine is unlike the shipped profile"
    assert np.median(after) < 0.5 * np.median(before)
    assert np.median(after) < 0.08


def test_what_the_runs_do_not_show_stays_as_shipped() -> None:
    cases, measured = runs()
    fitted = refit(Harness(cases), [0, 1, 2, 3, 4], measured)
    table = {
        p.name: (p.shipped, value, known)
        for p, value, known in zip(fitted.parameters, fitted.values, fitted.determined, strict=True)
    }
    shipped, value, known = table["scaleout_efficiency"]
    assert (value, known) == (shipped, False), "one node says nothing about the network"
    assert any(known for _, _, known in table.values())
    launches = [table[name] for name in ("launch_floor_s_per_layer", "kernel_overhead_s")]
    assert any(value > 1.5 * shipped for shipped, value, _ in launches), "the hidden machine launches slowly"


def test_profile_document_is_used_by_content() -> None:
    _, measured = runs()
    rows = [{**shape, "step_time_s": f"{seconds:.5f}"} for shape, seconds in zip(SHAPES, measured, strict=True)]
    profile = calibrate(Measurements(runs=samples.document(*rows[:5], samples.FINE_TUNED)), name="ours")
    assert profile["base"] == "megatron-core"
    assert profile["rows"]["used"] == 5
    assert list(profile["rows"]["refused"]) == ["row-5"]
    assert profile["error"]["median_after"] < profile["error"]["median_before"]
    case = case_of(parse_rows(samples.document(rows[6]))[0])
    problem = apply_profile({**case.document, "cluster": {**case.document["cluster"], "profile": "ours"}}, profile)
    layout = {"tp": 1, "pp": 1, "dp": 8, "mbs": 4, "zero": 1, "sequence_parallel": False}
    evaluation = solver.evaluate(solver.normalise(solver.parse_problem(problem)), layout)
    assert evaluation.plan is not None
    prediction = evaluation.plan.prediction
    assert prediction.step_time_s == pytest.approx(measured[6], rel=0.1)
    low, high = prediction.step_time_interval_s
    width = profile["software"]["assumptions"]["time_error_fraction"]
    assert (high - low) / 2.0 / prediction.step_time_s == pytest.approx(width)


def test_own_assumptions_win_over_the_profile() -> None:
    profile = {
        "software": {"name": "megatron-core", "assumptions": {"step_overhead_s": 1.0, "kernel_overhead_s": 1e-5}},
        "devices": [],
    }
    applied = apply_profile({"workload": {"software": {"name": "ours", "assumptions": {"step_overhead_s": 2.0}}}}, profile)
    assert applied["workload"]["software"]["assumptions"] == {"step_overhead_s": 2.0, "kernel_overhead_s": 1e-5}


def test_prior_holds_without_data_and_yields_to_it() -> None:
    width = np.array([0.5, 0.5])
    found = most_probable(lambda shift: np.array([shift[0] - 0.4] * 4), 0.05, width)
    assert found.shift[0] == pytest.approx(0.4, abs=0.01)
    assert found.shift[1] == 0.0
    assert found.determined.tolist() == [True, False]


def test_error_shrinks_with_runs_that_agree() -> None:
    assert error_fraction(np.zeros(0), 0.12) == pytest.approx(0.12)
    few, many = error_fraction(np.full(5, 0.02), 0.12), error_fraction(np.full(50, 0.02), 0.12)
    assert 0.03 <= many < few < 0.12
    assert error_fraction(np.full(5, 0.2), 0.12) > 0.2


ONE_NODE = """# nThread 1 nGpus 8 minBytes 8388608 maxBytes 17179869184 step: 2(factor)
#  Rank  0 Group  0 Pid 1 device  0 [0000:8f:00] NVIDIA A100-SXM4-80GB
#  Rank  7 Group  0 Pid 1 device  7 [0000:cc:00] NVIDIA A100-SXM4-80GB
#       size         count      type   redop    root     time   algbw   busbw
     8388608       2097152     float     sum      -1    150.0   55.92   97.86
  8589934592    2147483648     float     sum      -1    64000  134.22  234.88
"""
TAIL = "  8589934592    2147483648     float     sum      -1    90000   95.44  178.96       0\n"


def test_link_rates_come_from_the_largest_message() -> None:
    profile = calibrate(Measurements(collectives=(ONE_NODE,)), name="ours")
    (entry,) = profile["constants"]
    assert (entry["of"], entry["name"], entry["set_by"]) == ("A100-SXM4-80", "scaleup_efficiency", "collective")
    assert entry["after"] == pytest.approx(234.88 / 300.0)
    assert profile["devices"] == [{"name": "A100-SXM4-80", "rates": {"scaleup_efficiency": entry["after"]}}]


def test_tail_without_a_header_needs_to_be_told() -> None:
    with pytest.raises(InvalidProblem, match="device, ranks and nodes"):
        calibrate(Measurements(collectives=(TAIL,)), name="ours")
    told = Measurements(collectives=(TAIL,), device="A100-SXM4-80", ranks=16, nodes=2)
    (entry,) = calibrate(told, name="ours")["constants"]
    assert entry["name"] == "scaleout_efficiency"
    seconds = 8589934592 * (2 * 15 / 16) / 178.96e9
    assert entry["after"] == pytest.approx(2 * 8589934592 * (1 / 2) / 8 / seconds / 25e9)


@pytest.mark.parametrize("text", ["", "no numbers here", "  8192 2048 float sum -1 10.0 1.0 1.5 0\n"])
def test_collectives_that_tell_nothing_are_refused(text: str) -> None:
    with pytest.raises(InvalidProblem):
        calibrate(Measurements(collectives=(text,)), name="ours")


def test_runs_that_tell_nothing_are_refused() -> None:
    with pytest.raises(InvalidProblem, match="lora"):
        calibrate(Measurements(runs=samples.document(samples.FINE_TUNED)), name="ours")
