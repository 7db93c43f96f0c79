"""The runs that constants are fitted on are those that validation predicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fit import data
from benchmarks.fit.runs import all_runs
from solver.validate import parse_rows, predict
from solver.validate.predict import Predicted
from tests.solver.validate import sample_rows as samples


def test_share_of_recomputed_blocks_is_that_of_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = samples.document({**samples.FULLY_SHARDED, "recompute": "selective:blocks", "step_time_s": "2.0"})
    (tmp_path / "ours.csv").write_text(text, encoding="utf-8")
    monkeypatch.setattr(data, "MEASUREMENTS", tmp_path)
    (run,) = all_runs()
    (prediction,) = predict(parse_rows(text))
    assert isinstance(prediction, Predicted)
    assert run.case.row.recompute == prediction.row.recompute != "selective:blocks"
