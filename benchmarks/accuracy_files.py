"""The measured files, what of them is scored, and the figures that are asked of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from benchmarks.fit.data import MEASUREMENTS, Run, listed
from solver.validate import Predicted, Row, case_of, measured_step, parse_rows, predict
from solver.validate.memory import as_read, measured_bytes
from solver.validate.summary import summary

HOPPER_OR_OLDER = ("A100", "A800", "V100", "H100", "H200")
"""kinds of device whose constants runs have set"""
NEWEST_RELEASES = ("(26.06)", "(26.07)", "(26.08)")
CONTRADICTED = ("bigscience_176b_a100-0043", "bigscience_176b_a100-0088")
"""memory readings that contradict their neighbours in the source"""


@dataclass(frozen=True, slots=True)
class Target:
    """`metric` of `column` is to be at most (or, with `least`, at least) `limit`."""

    column: str
    metric: str
    limit: float
    least: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """Cells that its runs are compared at, rows taken, whether only rows outside the fit count, and targets."""

    name: str
    cells: dict[str, str] = field(default_factory=dict)
    taken: Callable[[Row], bool] = lambda row: True
    unfitted_only: bool = False
    targets: tuple[Target, ...] = ()


def _t(text: str) -> tuple[Target, ...]:
    """Targets written as `column.metric <= 3.5` (percent) or `column.metric >= 0.9`."""
    found = []
    for part in text.split(";"):
        name, relation, limit = part.split()
        column, metric = name.split(".", 1)
        ratio = float(limit) if metric.startswith(("tau", "called", "false", "inside")) else float(limit) / 100.0
        found.append(Target(column, metric, ratio, relation == ">="))
    return tuple(found)


_FILES = (
    File("korthikanti2022", targets=_t("fitted.mean <= 3.5; fitted.max <= 8; left_out.mean <= 6")),
    File("narayanan_sc21", cells={"vpp": "1"}, targets=_t("fitted.mean <= 2; left_out.mean <= 3")),
    File(
        "vtrain_multi_node",
        unfitted_only=True,
        targets=_t(
            "fitted.mean <= 7; fitted.median <= 3; left_out.mean <= 8.5; plus_five.median <= 3.5; beside.tau_3.6B >= 0.90;"
            "beside.tau_18.4B >= 0.58; beside.tau_39.1B >= 0.50; beside.tau_175B >= 0.82; beside.regret_18.4B <= 4.5;"
            "beside.regret_3.6B <= 3; beside.regret_39.1B <= 3; beside.regret_175B <= 3"
        ),
    ),
    File("vtrain_single_node", unfitted_only=True, targets=_t("fitted.mean <= 7; fitted.median <= 5; plus_five.median <= 8.5")),
    File(
        "bigscience_176b_a100",
        targets=_t(
            "fitted.median <= 3; plus_five.median <= 6; beside.memory_median <= 4.5; beside.memory_p90 <= 10;"
            "beside.memory_under <= 10; beside.called_out_of_memory >= 5; beside.false_alarms <= 3"
        ),
    ),
    File("bigscience_v100", taken=lambda row: row.model == "gpt-1b3", targets=_t("beside.memory_median <= 6")),
    File("mosaicml_mpt_a100", targets=_t("fitted.median <= 4; fitted.p90 <= 12; left_out.median <= 8; left_out.p90 <= 25")),
    File("internevo", targets=_t("fitted.median <= 4; fitted.p90 <= 10; left_out.median <= 11; plus_five.median <= 4")),
    File(
        "torchtitan",
        targets=_t(
            "fitted.median <= 4; fitted.p90 <= 10; left_out.median <= 12; beside.memory_median <= 5; beside.memory_p90 <= 12"
        ),
    ),
    File("ibm_fms_fsdp", targets=_t("fitted.median <= 5; left_out.median <= 9")),
    File(
        "nvidia_nemo_2024",
        taken=lambda row: (row.gpu or "").startswith(HOPPER_OR_OLDER),
        targets=_t("fitted.median <= 7; left_out.median <= 11"),
    ),
    File(
        "megatron_moe_modelzoo",
        taken=lambda row: (row.gpu or "").startswith(HOPPER_OR_OLDER),
        targets=_t("fitted.median <= 7; fitted.p90 <= 20; left_out.median <= 20"),
    ),
    File(
        "megatron_bridge_moe",
        taken=lambda row: any(release in (row.source_ref or "") for release in NEWEST_RELEASES),
        targets=_t("fitted.median <= 7; fitted.p90 <= 20; left_out.median <= 20"),
    ),
    File("megatron_core_h100", targets=_t("beside.inside >= 0.8; beside.width <= 30")),
)
FILES = {entry.name: entry for entry in _FILES}
SIZES = {"gpt-h3072-l30": "3.6B", "gpt-h6144-l40": "18.4B", "gpt-h8192-l48": "39.1B", "gpt-h12288-l96": "175B"}


@dataclass(frozen=True, slots=True)
class FileRuns:
    """`scored`: runs whose time is compared; `scored_as` says which; `beside`: order, memory, verdicts, intervals."""

    scored: tuple[Run, ...]
    scored_as: str
    beside: dict[str, float]


@cache
def predictions(name: str) -> tuple[tuple[Row, Predicted], ...]:
    """Rows of a file with their predictions; refused ones are left out."""
    entry = FILES[name]
    rows = parse_rows((MEASUREMENTS / f"{name}.csv").read_text(encoding="utf-8"), entry.cells)
    rows = [row for row in rows if entry.taken(row)]
    return tuple((row, p) for row, p in zip(rows, predict(rows), strict=True) if isinstance(p, Predicted))


def read_file(name: str) -> FileRuns:
    """What is scored of a file: stated rows; where no row states all cells, the completed ones."""
    entry = FILES[name]
    timed = [(row, p, measured_step(row if row.gbs is not None else p.row).step_s) for row, p in predictions(name)]
    stated = [(row, p, seconds) for row, p, seconds in timed if not p.completed and seconds is not None]
    kept = stated or [(row, p, seconds) for row, p, seconds in timed if seconds is not None]
    kind = "stated" if stated else "completed"
    if entry.unfitted_only:
        fitted = listed()
        kept = [(row, p, seconds) for row, p, seconds in kept if row.row_id not in fitted]
        kind += ", not fitted"
    runs = tuple(Run(name, case_of(p.row), float(seconds)) for _, p, seconds in kept if seconds is not None)
    return FileRuns(scored=runs, scored_as=kind, beside=beside(name))


def beside(name: str) -> dict[str, float]:
    """Figures beside the step time, with the constants that ship."""
    pairs = predictions(name)
    text = summary(name, [row for row, _ in pairs], [p for _, p in pairs])
    found: dict[str, float] = {}
    for group in (text["ranking"] or {"groups": ()})["groups"]:
        size = SIZES.get(group["name"].split(" / ")[0])
        if size and name == "vtrain_multi_node":
            found[f"tau_{size}"], found[f"regret_{size}"] = group["tau_b"], group["regret_fraction"]
    if text["ranking"]:
        found["mean_tau"], found["max_regret"] = text["ranking"]["mean_tau_b"], text["ranking"]["max_regret_fraction"]
    found.update(_memory(pairs))
    verdict = text["verdict"]
    if verdict and verdict["out_of_memory_rows"]:
        found["called_out_of_memory"], found["false_alarms"] = verdict["out_of_memory_called"], verdict["false_alarms"]
        found["out_of_memory_rows"] = verdict["out_of_memory_rows"]
    completed = text["step_time_completed"]
    if completed:
        found["inside"] = completed["inside_interval"]
        found["width"] = max(p.interval_s[1] / p.interval_s[0] - 1.0 for _, p in pairs if p.completed)
    return {key: value for key, value in found.items() if value is not None}


def _memory(pairs: tuple[tuple[Row, Predicted], ...]) -> dict[str, float]:
    """Errors of the readings of stated rows, each in the terms of its reading."""
    ratios = []
    for row, p in pairs:
        reading = measured_bytes(row)
        if reading is not None and not p.completed and row.row_id not in CONTRADICTED:
            ratios.append(as_read(row, p.memory) / reading)
    if not ratios:
        return {}
    size = np.abs(np.array(ratios) - 1.0)
    return {
        "memory_rows": len(ratios),
        "memory_median": float(np.median(size)),
        "memory_p90": float(np.quantile(size, 0.9)),
        "memory_signed": float(np.median(ratios)) - 1.0,
        "memory_under": max(0.0, 1.0 - min(ratios)),
    }
