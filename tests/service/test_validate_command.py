"""`planner validate` on the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner_service.api.examples import PROBLEM
from planner_service.cli.commands import app
from planner_service.cli.exits import UnreadableInput
from planner_service.cli.inputs import load_document
from tests.solver.validate import sample_rows as samples


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    path = tmp_path / "ours.csv"
    path.write_text(samples.document(samples.DENSE, samples.UNSTATED, samples.FINE_TUNED, samples.MEMORY), encoding="utf-8")
    return path


def test_json_is_the_report(measured: Path) -> None:
    answer = CliRunner().invoke(app, ["validate", str(measured), "--json", "--set", "recompute=full"])
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert [row["row_id"] for row in report["rows"]] == ["row-0", "row-1", "row-2", "row-3"]
    assert report["files"][0]["file"] == "ours.csv"


def test_terminal_lists_every_row_and_the_summary(measured: Path) -> None:
    answer = CliRunner().invoke(app, ["validate", str(measured)])
    assert answer.exit_code == 0, answer.output
    assert all(f"row-{number}" in answer.output for number in range(4))
    assert "2 used, 1 completed, 1 refused" in answer.output
    assert "signed median" in answer.output
    hidden = CliRunner().invoke(app, ["validate", str(measured), "--summary"])
    assert "row-0" not in hidden.output
    assert "signed median" in hidden.output


@pytest.mark.parametrize("arguments", [["--set", "mbs"], ["--set", "speed=1"], ["missing.csv"]])
def test_wrong_usage_is_64(measured: Path, arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["validate", str(measured), *arguments]).exit_code == 64


def test_calibrate_writes_a_profile(measured: Path, tmp_path: Path) -> None:
    output = tmp_path / "ours.json"
    answer = CliRunner().invoke(app, ["calibrate", str(measured), "--name", "ours", "--output", str(output), "--json"])
    assert answer.exit_code == 0, answer.output
    profile = json.loads(output.read_text(encoding="utf-8"))
    assert profile == json.loads(answer.stdout)
    assert (profile["name"], profile["rows"]["used"]) == ("ours", 2)
    shown = CliRunner().invoke(app, ["calibrate", str(measured)])
    assert "set by" in shown.output


def test_problem_file_names_a_profile_file(measured: Path, tmp_path: Path) -> None:
    CliRunner().invoke(app, ["calibrate", str(measured), "--output", str(tmp_path / "ours.json")])
    problem = tmp_path / "problem.json"
    problem.write_text(json.dumps({**PROBLEM, "cluster": {**PROBLEM["cluster"], "profile": "ours.json"}}), encoding="utf-8")
    document = load_document(str(problem))
    profile = json.loads((tmp_path / "ours.json").read_text(encoding="utf-8"))
    assert document["workload"]["software"] == profile["software"]
    assert "profile" not in document["cluster"]
    (tmp_path / "ours.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UnreadableInput):
        load_document(str(problem))


def test_calibrate_on_nothing_is_64(tmp_path: Path) -> None:
    empty = tmp_path / "nothing.txt"
    empty.write_text("no collective here", encoding="utf-8")
    assert CliRunner().invoke(app, ["calibrate", str(empty)]).exit_code == 64
