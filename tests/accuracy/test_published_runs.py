"""The figures that are asked of the cost model on published runs, with the constants that ship (README, "Accuracy").

What is missed is listed with a ceiling (or floor) near the value it has, so that it does not get worse unseen.
"""

from __future__ import annotations

import pytest

from benchmarks.accuracy import file_entry
from benchmarks.accuracy_files import FILES, MEASUREMENTS, Target
from benchmarks.accuracy_report import json_entries, value_of

needs_runs = pytest.mark.skipif(not MEASUREMENTS.is_dir(), reason="no shared measurements (PLANNER_SHARED_DIR)")
MISSED: dict[str, float] = {
    "vtrain_multi_node.fitted.mean": 0.085,
    "vtrain_multi_node.fitted.median": 0.040,
    "vtrain_multi_node.beside.tau_39.1B": 0.471,
    "vtrain_single_node.fitted.mean": 0.076,
    "vtrain_single_node.fitted.median": 0.057,
    "internevo.fitted.median": 0.044,
    "torchtitan.fitted.median": 0.048,
    "torchtitan.fitted.p90": 0.149,
    "ibm_fms_fsdp.fitted.median": 0.077,
    "megatron_moe_modelzoo.fitted.median": 0.234,
    "megatron_moe_modelzoo.fitted.p90": 0.387,
    "megatron_bridge_moe.fitted.median": 0.112,
    "megatron_bridge_moe.fitted.p90": 0.859,
    "megatron_core_h100.beside.inside": 0.754,
}
"""figure: value that it must not be worse than"""


@needs_runs
@pytest.mark.ci
@pytest.mark.parametrize("name", FILES)
def test_figures_of_a_file(name: str) -> None:
    figures = json_entries([file_entry(name, ("fitted",), refits=None)])
    assert figures
    worse = {}
    for figure in figures:
        key = figure["id"].removeprefix("accuracy.")
        known = MISSED.get(key)
        if known is None:
            if not figure["met"]:
                worse[key] = (figure["value"], figure["target"])
        elif abs(figure["value"]) > known if figure["target"] < known else figure["value"] < known:
            worse[key] = (figure["value"], known)
    assert not worse


@needs_runs
def test_missed_figures_are_figures() -> None:
    known = {f"{name}.{target.column}.{target.metric}" for name, entry in FILES.items() for target in entry.targets}
    assert set(MISSED) <= known | {f"{name}.fitted.signed" for name in FILES}


def test_targets_read_their_columns() -> None:
    entry = {"file": "korthikanti2022", "beside": {"tau": 0.5}, "rows": 8}
    assert value_of(entry, Target("beside", "tau", 0.4, least=True)) == 0.5
    assert value_of(entry, Target("fitted", "mean", 0.04)) is None
