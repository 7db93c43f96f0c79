"""The command line: exit codes, what is printed where, references to files, and the demo."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time

import orjson
import pytest
from rich.console import Console

from planner_service.cli import commands, context, demo, exporting
from planner_service.cli.backends import LocalBackend
from planner_service.cli.exits import UnreadableInput
from planner_service.cli.inputs import load_document
from planner_service.cli.plan_file import check_plan_file
from planner_service.cli.render_plan import render_time
from tests.service.fake_solver import NAME, plan
from tests.service.servers import SERVE

GOOD = "model: {preset: x}\nworkload: {}\ncluster: {}\n"


@pytest.fixture(autouse=True)
def _fake_solver(monkeypatch):
    """Commands in this process use the fake solver; the environment names no server."""
    monkeypatch.delenv("PLANNER_URL", raising=False)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setattr(context, "LocalBackend", lambda: LocalBackend(NAME))
    monkeypatch.setattr(exporting, "LocalBackend", lambda: LocalBackend(NAME))


@pytest.fixture
def planner(monkeypatch, capfdbinary):
    """Runs a command; returns exit code, stdout, stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["planner", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            commands.main()
        out, err = capfdbinary.readouterr()
        return ended.value.code, out.decode(), err.decode()

    return run


@pytest.fixture
def problem_file(tmp_path):
    """Writes a YAML problem with a behaviour of the fake solver."""

    def write(**behaviour):
        path = tmp_path / "problem.yaml"
        path.write_text(GOOD + f"behaviour: {json.dumps(behaviour)}\n")
        return path

    return write


def test_plan_reads_well(planner, problem_file):
    """Verdict, layout, memory, time, reasons and proof are on stdout; progress is on stderr."""
    code, out, err = planner("plan", problem_file(steps=2, step_s=0.05))
    assert code == 0
    for words in (
        "OPTIMAL",
        "step 1.5 s",
        "MFU 42.0 %",
        "gap 0.00 %",
        "0–3 (4) + embedding",
        "big 0–7",
        "tp 4 dp 2",
        "micro-batches",
    ):
        assert words in out
    for words in (
        "selective (core_attn); 1 layer full",
        "2 / 2 / 2",
        "optimizer 50 %",
        "limit 74.4",
        "safe",
        "fits",
        "host 93.1",
    ):
        assert words in out
    for words in (
        "tp exposed 100 ms",
        "hidden behind compute: tp 50 ms",
        "Stage 1 is full.",
        "+6.6 % tied",
        "waits for the link",
    ):
        assert words in out
    for words in (
        "100 = 60 bound, 30 infeasible, 10 evaluated, 0 open",
        "123,456 layouts",
        "big, big+small",
        "expressible in: fake",
    ):
        assert words in out
    assert "[bold]not markup[/]" in out
    assert "cells closed" in err
    assert "cells closed" not in out


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ({"status": "optimal"}, 0),
        ({"status": "feasible"}, 0),
        ({"status": "infeasible"}, 3),
        ({"status": "unknown"}, 6),
        ({"refuse": True}, 64),
    ],
)
def test_exit_codes_of_plan(planner, problem_file, behaviour, code):
    """As the contract lists them."""
    assert planner("plan", problem_file(**behaviour))[0] == code


def test_infeasible_says_what_binds(planner, problem_file):
    """What binds, and each relaxation with its change."""
    _, out, _ = planner("plan", problem_file(status="infeasible"))
    assert "States need more than there is." in out
    assert "/cluster/groups/0/nodes = 2" in out


def test_json_is_what_http_returns(planner, problem_file, live_server):
    """The same members in process as from a server, and nothing else on stdout."""
    path = problem_file()
    _, here, _ = planner("plan", path, "--json")
    code, there, _ = planner("plan", path, "--json", "--server", live_server)
    assert code == 0
    one, other = json.loads(here), json.loads(there)
    assert list(one) == list(other)
    for key in ("state", "problem_digest", "request_digest"):
        assert one[key] == other[key]
    assert set(one["result"]) == set(other["result"])


def test_an_internal_error_is_one(planner, problem_file):
    """In process a failure of the solver is code 1, without a traceback."""
    code, _, err = planner("plan", problem_file(error=True))
    assert code == 1
    assert "RuntimeError" in err
    assert "Traceback" not in err


def test_a_failed_search_at_a_server_is_five(planner, problem_file, live_server):
    """The service failed."""
    assert planner("plan", problem_file(error=True), "--server", live_server)[0] == 5


def test_no_server_is_five(planner, problem_file, monkeypatch):
    """An unreachable service, by option and by environment."""
    assert planner("plan", problem_file(), "--server", "http://127.0.0.1:1")[0] == 5
    monkeypatch.setenv("PLANNER_URL", "http://127.0.0.1:1")
    assert planner("plan", problem_file())[0] == 5
    assert planner("export", "0" * 64, "fake", "--server", "not a url")[0] == 5


@pytest.mark.parametrize(
    ("layout", "code", "words"),
    [({"tp": 4}, 0, "LEGAL, FITS"), ({"tp": 3}, 2, "nearest legal: tp 4"), ({"tp": 1}, 3, "DOES NOT FIT")],
)
def test_evaluate(planner, problem_file, tmp_path, layout, code, words):
    """Legal, illegal with the nearest legal values, too large."""
    path = tmp_path / "layout.json"
    path.write_text(json.dumps(layout))
    got, out, _ = planner("evaluate", problem_file(), path)
    assert got == code
    assert words in out


def test_wrong_input_names_pointer_and_allowed(planner, tmp_path):
    """On stderr: pointer, message, allowed; code 64."""
    path = tmp_path / "p.yaml"
    path.write_text(GOOD + "modell: 1\n")
    code, out, err = planner("plan", path)
    assert code == 64
    assert out == ""
    assert "/modell: unknown" in err
    assert "allowed: model, workload" in err


@pytest.mark.parametrize("text", ["{", "[1, 2]", "a: 1\na: 2\n", "a: .nan\n", "- x", "\x00", "&a [*a]"])
@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_unreadable_files(planner, tmp_path, text, ending):
    """64 for whatever is no problem document."""
    path = tmp_path / f"p.{ending}"
    path.write_text(text)
    assert planner("plan", path)[0] == 64


@pytest.mark.parametrize(
    "arguments", [(), ("nothing",), ("plan",), ("plan", "a", "b"), ("plan", "--bogus"), ("plan", "missing.yaml"), ("import",)]
)
def test_wrong_usage(planner, arguments):
    """64, whatever is wrong with the arguments."""
    assert planner(*arguments)[0] == 64


def test_help(planner):
    """Help is no error."""
    code, out, _ = planner("--help")
    assert code == 0
    assert "demo" in out


def test_references_are_expanded(tmp_path):
    """Configs, counts and whole parts of a problem may stand in files beside it."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "lengths.csv").write_text("# tokens, documents\nlength,count\n512,10\n1024,5\n")
    (tmp_path / "cluster.yaml").write_text("groups: [{name: a, device: {file: device.json}}]\n")
    (tmp_path / "device.json").write_text('{"name": "x"}')
    path = tmp_path / "problem.yaml"
    path.write_text(
        "model: {hf_config: sub/config.json}\n"
        "workload: {sequence_lengths: {counts: lengths.csv}}\n"
        "cluster: {file: cluster.yaml}\n"
    )
    document = load_document(str(path))
    assert document["model"]["hf_config"] == {"model_type": "llama"}
    assert document["workload"]["sequence_lengths"]["counts"] == [[512, 10], [1024, 5]]
    assert document["cluster"]["groups"][0]["device"] == {"name": "x"}


def test_references_that_fail(planner, tmp_path):
    """A missing file, a circle, words for numbers: 64."""
    path = tmp_path / "p.yaml"
    (tmp_path / "circle.yaml").write_text("a: {file: circle.yaml}\n")
    (tmp_path / "words.csv").write_text("length,count\nmany,few\n")
    for name in ("missing.json", "circle.yaml", "words.csv"):
        path.write_text(GOOD + f"behaviour: {{file: {name}}}\n")
        code, _, err = planner("plan", path)
        assert code == 64
        assert name in err


def test_output_then_export(planner, problem_file, tmp_path):
    """The file of one command feeds the other; refusals are exit code 2."""
    made = tmp_path / "plan.json"
    assert planner("plan", problem_file(), "-o", made)[0] == 0
    code, out, _ = planner("export", made, "fake")
    assert code == 0
    assert "torchrun --tp [4]" in out
    code, out, _ = planner("export", made, "fake", "-o", tmp_path / "out")
    assert code == 0
    assert (tmp_path / "out" / "conf" / "run.sh").read_text() == "torchrun --tp [4]\n"
    code, _, err = planner("export", made, "other")
    assert code == 2
    assert "/layout/share" in err
    assert planner("export", made, "fake", "--plan", plan("alternative").id)[0] == 0
    assert planner("export", made, "fake", "--plan", "0" * 64)[0] == 64
    assert planner("export", problem_file(), "fake")[0] == 64


def test_export_stays_in_its_directory(tmp_path):
    """A path that leads out is refused."""
    from planner_service.cli.exits import UnreadableInput

    for path in ("../x", "/etc/x", "a/../../x"):
        with pytest.raises(UnreadableInput):
            list(exporting.write_files(tmp_path, [{"path": path, "content": ""}]))


def test_export_by_id_at_a_server(planner, problem_file, live_server):
    """A plan found at the service is exported there; without a service an id is not enough."""
    _, out, _ = planner("plan", problem_file(), "--json", "--server", live_server)
    plan_id = json.loads(out)["result"]["plan"]["id"]
    code, out, _ = planner("export", plan_id, "fake", "--json", "--server", live_server)
    assert code == 0
    assert json.loads(out)["command"] == plan_id
    assert planner("export", "0" * 64, "fake", "--server", live_server)[0] == 64
    assert planner("export", plan_id, "fake")[0] == 64


def test_import(planner, tmp_path):
    """The spec on stdout, the warnings on stderr."""
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama"}')
    code, out, err = planner("import", "hf-config", path)
    assert code == 0
    assert json.loads(out) == {"model": {"transformer": {"hidden_size": 8}}}
    assert "rope scaling" in err
    path.write_text("{}")
    assert planner("import", "hf-config", path)[0] == 64


def test_interrupt_gives_what_was_found(problem_file):
    """Ctrl-C once: the best so far, in the state cancelled."""
    backend, began_s, sent = LocalBackend(NAME), time.monotonic(), []

    def interrupt(progress, state):
        if progress["total"] is not None and not sent:
            sent.append(threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)))
            sent[0].start()

    content, plans = backend.search(load_document(str(problem_file(steps=1, step_s=60))), interrupt)
    document = orjson.loads(content)
    assert time.monotonic() - began_s < 5
    assert document["state"] == "cancelled"
    assert document["result"]["stopped_by"] == "cancelled"
    assert plans


def test_demo(planner, problem_file, monkeypatch):
    """Service, search, plan and curl in one command; afterwards the service is gone."""
    monkeypatch.setattr(demo, "serve_command", lambda url: [sys.executable, "-c", SERVE, url, NAME])
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    code, out, _ = planner("demo", "--problem", problem_file(steps=2, step_s=0.2))
    assert code == 0
    for words in ("service at http://127.0.0.1:", "OPTIMAL", "Certificate", "curl -sS", "service stopped"):
        assert words in out
    url = next(line for line in out.splitlines() if line.startswith("service at ")).split()[2].rstrip(",")
    assert planner("plan", problem_file(), "--server", url)[0] == 5


def test_the_curl_of_the_demo_works(problem_file, live_server, capsys):
    """As printed, pasted into a shell, it gives the finished search."""

    document = load_document(str(problem_file(name='it\'s "quoted" $HOME')))
    demo.print_curl(Console(file=sys.stdout), live_server, document, keep=True)
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("curl"))
    assert shlex.split(line)[0] == "curl"
    made = subprocess.run(["sh", "-c", line], capture_output=True, check=True)
    assert orjson.loads(made.stdout)["state"] == "done"


def test_a_place_that_cannot_be_written_is_noticed_before_the_search(tmp_path):
    """`--output` into a folder that is not there ends with 64 at once."""
    target = tmp_path / "missing" / "plan.json"
    with pytest.raises(UnreadableInput):
        check_plan_file(target)
    with pytest.raises(UnreadableInput):
        check_plan_file(tmp_path)
    check_plan_file(tmp_path / "plan.json")


def test_rounding_is_not_shown_as_time() -> None:
    """A bubble of 6e-14 s in a step of 42 s is what adding up floats leaves."""
    breakdown = {"compute": 42.0, "communication": {}, "bubble": 6e-14, "imbalance": 0.0, "optimizer": 0.3}
    out = Console(file=io.StringIO(), width=120)
    render_time(out, {"time_breakdown_s": breakdown})
    text = out.file.getvalue()
    assert "optimizer" in text
    assert "bubble" not in text
