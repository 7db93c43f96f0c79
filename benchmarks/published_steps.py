"""Predicted against published step times of dense GPT runs whose layout is stated in full.

Reads rows in the header of the shared measurements (PLANNER_SHARED_DIR, default ../shared) in place and prints one line a row. No
constant is fitted here; `planner validate` will replace this script.

    python benchmarks/published_steps.py [FILE.csv ...]
"""

from __future__ import annotations

import csv
import os
import statistics
import sys
from pathlib import Path
from typing import Any

import solver

SHARED = Path(os.environ.get("PLANNER_SHARED_DIR", Path(__file__).resolve().parents[2] / "shared"))
DEFAULT_FILES = ("korthikanti2022.csv", "narayanan_sc21.csv")
DEVICES = {"A100-80GB": "A100-SXM4-80", "H100-80GB-SXM": "H100-SXM5-80"}


def problem_of(row: dict[str, str]) -> dict[str, Any]:
    """The problem a row states: a GPT of its sizes on its devices; attention scores are materialised where the row says so."""
    heads, hidden = int(row["heads"]), int(row["hidden"])
    attention = {"kind": "softmax", "heads": heads, "head_dim": int(row["head_dim"] or hidden // heads), "bias": True}
    mlp = {"kind": "dense", "hidden_size": int(row["ffn"]), "gated": row["gated_mlp"] == "1", "bias": True}
    return {
        "model": {
            "transformer": {
                "hidden_size": hidden,
                "vocab_size": int(row["vocab"]),
                "tied_embeddings": True,
                "norm": "layer",
                "learned_positions": int(row["seq_len"]),
                "blocks": [{"repeat": int(row["layers"]), "attention": attention, "mlp": mlp}],
            }
        },
        "workload": {
            "sequence_lengths": {"constant": int(row["seq_len"])},
            "global_batch": {"sequences": int(row["gbs"])},
            "precision": row["precision"].lower(),
            "kernels": {"attention": "unfused" if row["flash_attn"] == "0" else "flash", "dropout": 0.1},
        },
        "cluster": {
            "groups": [
                {
                    "name": "nodes",
                    "device": DEVICES[row["gpu"]],
                    "nodes": -(-int(row["gpus"]) // int(row["gpus_per_node"])),
                    "devices_per_node": int(row["gpus_per_node"]),
                }
            ]
        },
        "framework": "any",
    }


def layout_of(row: dict[str, str]) -> dict[str, Any]:
    """The layout of a row in classical words; vpp that is not stated is 1."""
    degrees = {name: int(row[name] or 1) for name in ("tp", "pp", "dp", "cp", "mbs", "vpp")}
    recompute = row["recompute"].split(":")[0]
    return {**degrees, "recompute": recompute, "zero": int(row["zero_stage"]), "sequence_parallel": row["sp"] == "1"}


def main(names: list[str]) -> int:
    """Print the table of every file, and its mean and largest error."""
    folder = SHARED / "data" / "measurements"
    paths = [Path(name) for name in names] or [folder / name for name in DEFAULT_FILES]
    for path in paths:
        errors = []
        print(f"{path.name}\n  {'row':26} {'model':16} {'published s':>11} {'predicted s':>11} {'error':>7}")
        for row in csv.DictReader(path.read_text().splitlines()):
            normal = solver.normalise(solver.parse_problem(problem_of(row)))
            evaluation = solver.evaluate(normal, layout_of(row))
            if evaluation.plan is None:
                print(f"  {row['row_id']:26} {row['model']:16} refused: {'; '.join(v.message for v in evaluation.violations)}")
                continue
            predicted, measured = evaluation.plan.prediction.step_time_s, float(row["step_time_s"])
            errors.append(predicted / measured - 1.0)
            print(f"  {row['row_id']:26} {row['model']:16} {measured:11.3f} {predicted:11.3f} {errors[-1]:+7.1%}")
        if errors:
            sizes = [abs(error) for error in errors]
            print(f"  mean |error| {statistics.mean(sizes):.1%}, median {statistics.median(sizes):.1%}, max {max(sizes):.1%}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
