"""`planner evaluate` in this process, as a user calls it: a problem and a layout in files, JSON on stdout, an exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from planner_service.cli.commands import app

Ask = Callable[..., "Answer"]
GIB = 2.0**30
EXITS = {"ok": 0, "illegal": 2, "does_not_fit": 3}


class Answer:
    """An evaluation. Bytes are those of the worst rank of a stage."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.verdict: str = content["verdict"]
        self.violations: list[dict[str, Any]] = content["violations"]
        self.plan: dict[str, Any] | None = content["plan"]

    @property
    def prediction(self) -> dict[str, Any]:
        assert self.plan is not None, self.violations
        found: dict[str, Any] = self.plan["prediction"]
        return found

    @property
    def stages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.prediction["memory_bytes"]
        return found

    def worst(self, kind: str) -> float:
        """`allocated`, `reserved` or `device` bytes of the worst stage."""
        return max(float(stage[kind]) for stage in self.stages)

    def item(self, name: str, stage: int = 0) -> float:
        """An item of one stage, 0 where it is not shown."""
        return float(self.stages[stage]["items"].get(name, 0.0))


def planner_evaluate(folder: Path, problem: dict[str, Any], layout: dict[str, Any]) -> Answer:
    """Run the command; its exit code must be that of the verdict."""
    paths = [folder / "problem.json", folder / "layout.json"]
    for path, content in zip(paths, (problem, layout), strict=True):
        path.write_text(json.dumps(content))
    run = CliRunner().invoke(app, ["evaluate", *map(str, paths), "--json"])
    assert run.stdout, run.output
    answer = Answer(json.loads(run.stdout))
    assert run.exit_code == EXITS[answer.verdict]
    return answer


def dense(layers: int, hidden: int, heads: int, ffn: int, vocab: int, **other: Any) -> dict[str, Any]:
    """A dense transformer: `kv_heads`, `gated`, `bias`, and fields of the transformer."""
    bias = other.pop("bias", False)
    attention = {"kind": "softmax", "heads": heads, "kv_heads": other.pop("kv_heads", heads), "bias": bias}
    mlp = {"kind": "dense", "hidden_size": ffn, "gated": other.pop("gated", True), "bias": bias}
    blocks = [{"repeat": layers, "attention": attention, "mlp": mlp}]
    return {"transformer": {"hidden_size": hidden, "vocab_size": vocab, "blocks": blocks, **other}}


def gpt(layers: int, hidden: int, heads: int, vocab: int, **other: Any) -> dict[str, Any]:
    """GPT-2's form: GELU of four times the width, layer norms, biases."""
    return dense(layers, hidden, heads, 4 * hidden, vocab, **{"gated": False, "norm": "layer", "bias": True, **other})


def devices(name: str, count: int, per_node: int = 8, **other: Any) -> dict[str, Any]:
    """A cluster of one kind of device."""
    return {"groups": [{"name": "g", "device": name, "nodes": count // per_node, "devices_per_node": per_node, **other}]}


def question(
    model: dict[str, Any], cluster: dict[str, Any], length: int, rows: int, software: str = "megatron-core", **workload: Any
) -> dict[str, Any]:
    """A problem of documents of one length."""
    lengths = {"sequence_lengths": {"constant": length}, "global_batch": {"sequences": rows}}
    return {"model": model, "workload": {**lengths, "software": software, **workload}, "cluster": cluster}
