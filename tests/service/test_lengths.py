"""Lengths from files: the command, the HTTP call, and references in problem files."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from planner_service.app import create_app
from planner_service.cli import commands
from planner_service.cli.exits import UnreadableInput
from planner_service.cli.inputs import load_document
from planner_service.problems import Problem
from planner_service.solver_port import DEFAULT_SOLVER
from tests.solver.importers.length_files import mmap_idx

COUNTS = [[3, 1], [5, 2], [900, 1]]
LINES = b"5\n3\n900\n5\n"


@pytest.fixture
def real_client(settings: Any) -> Any:
    """A client of the service with the real solver."""
    with TestClient(create_app(settings, DEFAULT_SOLVER)) as made:
        yield made


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> Any:
    """Runs a command; returns exit code, stdout, stderr."""
    monkeypatch.delenv("PLANNER_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "150")

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["planner", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            commands.main()
        out, err = capfdbinary.readouterr()
        return ended.value.code, out.decode(), err.decode()

    return run


def test_the_command_prints_what_http_returns(planner: Any, real_client: TestClient, tmp_path: Path) -> None:
    """Byte for byte."""
    path = tmp_path / "a.idx"
    path.write_bytes(mmap_idx([5, 3, 900, 5]))
    code, out, _ = planner("import", "lengths", path, "--max", "512", "--json")
    assert code == 0
    answer = real_client.post("/v1/imports/lengths?name=a.idx&max=512", content=path.read_bytes())
    assert (answer.status_code, answer.text) == (200, out.strip())
    document = json.loads(out)
    assert document["kind"] == "lengths"
    assert document["sequence_lengths"] == {"counts": COUNTS}
    assert (document["max_sequence_length"], document["truncate"]) == (512, True)
    assert document["limit"]["documents_above_fraction"] == 0.25


def test_the_command_reads_well(planner: Any, tmp_path: Path) -> None:
    """Figures on stdout, notes on stderr; several files together."""
    first, second = tmp_path / "a.txt.gz", tmp_path / "b.jsonl"
    first.write_bytes(gzip.compress(LINES))
    second.write_text('{"text": "four letters a token"}\n')
    code, out, err = planner("import", "lengths", first, second, "--characters-per-token", "4")
    assert code == 0
    for words in ("5 documents, 918 tokens (lines, jsonl)", "padded", "first-fit decreasing", '"counts"'):
        assert words in out
    assert "4 characters a token" in err
    assert "letters" not in out + err
    assert len(out.splitlines()) < 12
    assert "sequence_lengths: {file: PATH}" in out


def test_refusals_end_with_64(planner: Any, tmp_path: Path) -> None:
    """A damaged file, a missing one."""
    bad = tmp_path / "a.txt"
    bad.write_text("5\n-1\n")
    code, out, err = planner("import", "lengths", bad)
    assert (code, out) == (64, "")
    assert "line 2" in err
    assert planner("import", "lengths", tmp_path / "none.txt")[0] == 64


def test_http_refuses_with_problem_documents(real_client: TestClient, settings: Any) -> None:
    """Typed errors, limits on the body and on what gzip unpacks to, strict parameters."""

    def post(content: bytes, query: str = "") -> httpx.Response:
        return real_client.post(f"/v1/imports/lengths{query}", content=content)

    refused = post(b"5\nx\n")
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, "wrong_type")
    assert post(b"1" * (settings.max_body_bytes + 1)).status_code == 413
    bomb = gzip.compress(b"5\n" * (8 * settings.max_body_bytes))
    assert post(bomb, "?name=a.txt.gz").json()["errors"][0]["code"] == "too_large"
    assert post(LINES, "?max=0").status_code == 422
    assert post(LINES, "?colum=x").status_code == 422
    assert post(b"").json()["errors"][0]["code"] == "missing"
    assert post(LINES).status_code == 200


@pytest.mark.parametrize(
    ("name", "raw"), [("a.txt", LINES), ("a.idx", mmap_idx([5, 3, 900, 5])), ("a.csv", b"length\n5\n3\n900\n5\n")]
)
def test_problem_files_refer_to_length_files(tmp_path: Path, name: str, raw: bytes) -> None:
    """`sequence_lengths: {file: ...}` is expanded before anything else; files that hold the form itself still work."""
    (tmp_path / name).write_bytes(raw)
    (tmp_path / "form.json").write_text(json.dumps({"counts": COUNTS}))
    for file in (name, "form.json"):
        problem = tmp_path / "problem.yaml"
        problem.write_text(f"workload:\n  sequence_lengths: {{file: {file}}}\n  max_sequence_length: 512\n")
        assert load_document(str(problem))["workload"]["sequence_lengths"] == {"counts": COUNTS}


def test_references_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, and one that is refused, with a pointer."""
    problem = tmp_path / "problem.yaml"
    problem.write_text("workload:\n  sequence_lengths: {file: none.txt}\n")
    with pytest.raises(UnreadableInput, match="none"):
        load_document(str(problem))
    (tmp_path / "none.txt").write_text("0\n")
    with pytest.raises(Problem) as refused:
        load_document(str(problem))
    assert refused.value.errors[0].pointer == "/workload/sequence_lengths"


def test_a_server_reads_one_file(planner: Any, tmp_path: Path) -> None:
    """Several files are refused before anything is sent."""
    (tmp_path / "a.txt").write_bytes(LINES)
    code, _, err = planner("import", "lengths", tmp_path / "a.txt", tmp_path / "a.txt", "--server", "http://127.0.0.1:9")
    assert code == 64
    assert "one file" in err
