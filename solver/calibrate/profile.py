"""A calibration as a document that is used by name: the profile's constants, device rates, what they rest on, and their error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.calibrate.collectives import LinkRate, link_rate, read_nccl_tests
from solver.calibrate.runs import Fitted, error_fraction, left_out, refit
from solver.catalog import UnknownName, find_device, find_profile
from solver.errors import FieldError, InvalidProblem
from solver.validate.cases import Case, case_of
from solver.validate.constants import Constants
from solver.validate.harness import Harness
from solver.validate.measured import measured_step
from solver.validate.predict import predict
from solver.validate.refusal import Refused
from solver.validate.rows import Row, parse_rows

NEAR = 0.01
"""a constant that moved by less than this fraction is where its prior was"""


@dataclass(frozen=True, slots=True)
class Measurements:
    """What a calibration rests on: runs in the header of the measurements README, and nccl-tests outputs."""

    runs: str | None = None
    collectives: Sequence[str] = ()
    device: str | None = None
    ranks: int | None = None
    nodes: int | None = None


def calibrate(measurements: Measurements, *, name: str, base: str | None = None) -> dict[str, Any]:
    """The profile document of the measurements.

    `base` is the profile that is refitted (default: the one of the runs' framework, else megatron-core). Raises InvalidProblem
    when there is nothing to learn from.
    """
    links = _links(measurements)
    rows = parse_rows(measurements.runs) if measurements.runs is not None else []
    cases, seconds, refused = _usable(rows, base)
    if not cases and not links:
        details = "; ".join(f"{row_id}: {reason}" for row_id, reason in list(refused.items())[:5]) or "no measurement was given"
        raise InvalidProblem((FieldError("/runs", "invalid", f"nothing to calibrate on: {details}", None),))
    start = Constants(devices=_link_rates(links))
    profile = _profile_name(cases, base)
    document: dict[str, Any] = {"name": name, "base": profile, "software": {"name": profile, "assumptions": {}}}
    fitted = None
    if cases:
        harness = Harness(cases)
        indices = list(range(len(cases)))
        measured = np.array(seconds)
        fitted = refit(harness, indices, measured, start)
        before = np.log(harness.predict(start) / measured)
        after = np.log(harness.predict(fitted.constants) / measured)
        out = left_out(harness, indices, measured, start)
        shipped = find_profile(profile).assumptions["time_error_fraction"]
        document["software"]["assumptions"] = {
            **{key: value for key, value in fitted.constants.profiles.get(profile, {}).items()},
            "time_error_fraction": error_fraction(out, shipped),
        }
        document["error"] = {
            "rows": len(cases),
            "median_before": float(np.median(np.abs(np.expm1(before)))),
            "median_after": float(np.median(np.abs(np.expm1(after)))),
            "median_left_out": float(np.median(np.abs(np.expm1(out)))),
        }
    constants = fitted.constants if fitted is not None else start
    document["devices"] = [{"name": device, "rates": dict(rates)} for device, rates in sorted(constants.devices.items()) if rates]
    document["constants"] = _constants(fitted, links)
    document["rows"] = {"used": len(cases), "refused": refused}
    return document


def _usable(rows: Sequence[Row], base: str | None) -> tuple[list[Case], list[float], dict[str, str]]:
    """Cases with measured seconds; rows with blanks are completed as `validate` does."""
    cases: list[Case] = []
    seconds: list[float] = []
    refused: dict[str, str] = {}
    for row, predicted in zip(rows, predict(rows), strict=True):
        if isinstance(predicted, str):
            refused[row.row_id] = predicted
            continue
        step_s = measured_step(row if row.gbs is not None else predicted.row).step_s
        if step_s is None:
            refused[row.row_id] = "no step time, tokens/s or convertible TFLOP/s of a run that ended well"
            continue
        try:
            cases.append(case_of(predicted.row, profile=base))
        except Refused as error:
            refused[row.row_id] = str(error)
            continue
        seconds.append(step_s)
    return cases, seconds, refused


def _profile_name(cases: Sequence[Case], base: str | None) -> str:
    names = {case.profile for case in cases}
    if len(names) > 1:
        message = f"the runs are of several profiles: {', '.join(sorted(names))}; name the one to refit"
        raise InvalidProblem((FieldError("/base", "conflict", message, tuple(sorted(names))),))
    if names:
        return names.pop()
    try:
        return find_profile(base or "megatron-core").name
    except UnknownName as error:
        raise InvalidProblem((FieldError("/base", "unknown_name", str(error), error.candidates),)) from error


def _links(measurements: Measurements) -> list[LinkRate]:
    found = []
    for index, text in enumerate(measurements.collectives):
        pointer = f"/collectives/{index}"
        read = read_nccl_tests(text, pointer)
        device, ranks, nodes = measurements.device, measurements.ranks, measurements.nodes
        found.append(link_rate(read, pointer, device=device, ranks=ranks, nodes=nodes))
    return found


def _link_rates(links: Sequence[LinkRate]) -> dict[str, dict[str, float]]:
    """The measurement with the largest message counts where several tell the same rate."""
    rates: dict[str, dict[str, float]] = {}
    for link in sorted(links, key=lambda entry: entry.message_bytes):
        rates.setdefault(link.device, {})[link.rate] = link.value
    return rates


def _constants(fitted: Fitted | None, links: Sequence[LinkRate]) -> list[dict[str, Any]]:
    """Every constant that was tried: its value before and after, and whether the measurements determined it."""
    found: list[dict[str, Any]] = [
        {
            "of": link.device,
            "name": link.rate,
            "before": float(find_device(link.device).content["rates"][link.rate]),
            "after": link.value,
            "set_by": "collective",
        }
        for link in links
    ]
    if fitted is None:
        return found
    for parameter, value, known in zip(fitted.parameters, fitted.values, fitted.determined, strict=True):
        moved = abs(value - parameter.shipped) > NEAR * parameter.shipped
        found.append(
            {
                "of": parameter.owner,
                "name": parameter.name,
                "before": parameter.shipped,
                "after": value,
                "set_by": "runs" if known else ("prior and runs" if moved else "prior"),
            }
        )
    return found
