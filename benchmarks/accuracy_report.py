"""The figures of benchmarks/accuracy.py as a table, as Markdown and as benchmark entries."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy_files import FILES, Target
from benchmarks.accuracy_shipped import shipped_value
from benchmarks.accuracy_text import HEAD, reason
from benchmarks.fit.parameters import Parameter, parameters

Entry = dict[str, Any]
MOST = {"device": 10, "profile": 5, "shared": 30}
TITLES = {"fitted": "fitted", "left_out": "left out", "plus_five": "+5"}
SIGNED_LIMIT = 0.04
SIGNED_ROWS = 20
FAMILY_KEY = "launch_floor_s_per_layer"
"""every family of profiles has one of its own"""


def value_of(entry: Entry, target: Target) -> float | None:
    """The figure a target is about."""
    if target.column == "beside":
        found = entry["beside"].get(target.metric)
        return None if found is None else float(found)
    column = entry.get(target.column)
    return None if column is None else float(getattr(column, target.metric))


def json_entries(found: list[Entry]) -> list[Entry]:
    """One benchmark entry per target, and per file of 20 rows and more its signed median."""
    figures = []
    for entry in found:
        targets = list(FILES[entry["file"]].targets)
        if "fitted" in entry and entry["rows"] >= SIGNED_ROWS:
            targets.append(Target("fitted", "signed", SIGNED_LIMIT))
        for target in targets:
            value = value_of(entry, target)
            if value is None:
                continue
            size = abs(value) if target.metric == "signed" else value
            figures.append(
                {
                    "id": f"accuracy.{entry['file']}.{target.column}.{target.metric}",
                    "work": f"{entry['rows']} rows ({entry['scored_as']})",
                    "value": value,
                    "unit": "1",
                    "target": target.limit,
                    "met": size >= target.limit if target.least else size <= target.limit,
                }
            )
    return figures


def _column(entry: Entry, name: str) -> str:
    errors = entry.get(name)
    if errors is None:
        return "-"
    return f"{errors.mean:.1%} / {errors.median:.1%} / {errors.p90:.1%} ({errors.signed:+.1%})"


def print_table(found: list[Entry], figures: list[Entry]) -> None:
    """Mean / median / p90 (signed median) per column, then every target."""
    print(f"{'file':24} {'rows':>5} {'scored':22} {'fitted':32} {'left out':32} {'left out + 5':32}")
    for entry in found:
        columns = " ".join(f"{_column(entry, name):32}" for name in TITLES)
        print(f"{entry['file']:24} {entry['rows']:5} {entry['scored_as']:22} {columns}")
        shown = ", ".join(f"{name} {value:.3g}" for name, value in entry["beside"].items())
        if shown:
            print(f"{'':24} {shown}")
    missed = [figure for figure in figures if not figure["met"]]
    print(f"\n{len(figures) - len(missed)} of {len(figures)} targets met")
    for figure in missed:
        print(f"  missed: {figure['id']} {figure['value']:.3g}, target {figure['target']:.3g}, {figure['work']}")


def print_markdown(found: list[Entry], figures: list[Entry]) -> None:
    """The accuracy section of the README."""
    print(HEAD)
    print("| file (rows) | fitted: mean / median / p90 (signed) | left out | left out + 5 rows | beside |")
    print("| --- | --- | --- | --- | --- |")
    for entry in found:
        columns = " | ".join(_column(entry, name) for name in TITLES)
        print(f"| {entry['file']} ({entry['rows']}, {entry['scored_as']}) | {columns} | {_beside(entry['beside'])} |")
    missed = [figure for figure in figures if not figure["met"]]
    print(f"\n{len(figures) - len(missed)} of {len(figures)} figures that were asked for are met. Missed:\n")
    for figure in missed:
        name = figure["id"].removeprefix("accuracy.")
        print(f"- `{name}`: {figure['value']:.3g} against {figure['target']:.3g}. {reason(name)}")
    counts = constant_counts()
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    print(f"\nFitted constants: {listed}. `python -m benchmarks.accuracy` prints each with its value.")


def constant_counts() -> dict[str, int]:
    """Fitted constants by what they count for."""
    counts: dict[str, int] = {}
    for parameter in parameters():
        counts[owner(parameter)] = counts.get(owner(parameter), 0) + 1
    return counts


def _beside(beside: dict[str, float]) -> str:
    parts = []
    if "memory_median" in beside:
        parts.append(f"memory {beside['memory_median']:.1%} / p90 {beside['memory_p90']:.1%} of {beside['memory_rows']:.0f} rows")
    if "called_out_of_memory" in beside:
        called = f"{beside['called_out_of_memory']:.0f} of {beside['out_of_memory_rows']:.0f}"
        parts.append(f"{called} out-of-memory runs called, {beside['false_alarms']:.0f} false alarms")
    taus = [f"{name[4:]} {value:.2f}" for name, value in beside.items() if name.startswith("tau_")]
    if taus:
        regrets = [f"{value:.1%}" for name, value in beside.items() if name.startswith("regret_")]
        parts.append(f"tau {', '.join(taus)}; regret {', '.join(regrets)}")
    elif "mean_tau" in beside:
        parts.append(f"tau {beside['mean_tau']:.2f}, regret at most {beside['max_regret']:.1%}")
    if "inside" in beside:
        parts.append(f"{beside['inside']:.0%} inside the interval (width {beside['width']:.0%})")
    return "; ".join(parts)


def print_constants() -> None:
    """Every fitted constant with the value that ships, and how many there are of each kind."""
    print("\nfitted constants, as shipped")
    counts = constant_counts()
    for parameter in parameters():
        value = shipped_value(parameter)
        shown = "-" if value is None else f"{value:.4g}"
        print(f"  {shown:>10}  prior {parameter.prior:<8.4g}  {owner(parameter)} {parameter.key}")
    print("\nhow many: " + ", ".join(f"{name} {count}" for name, count in counts.items()))
    over = [name for name, count in counts.items() if count > MOST.get(name.split(" ")[0], 10)]
    print("within 10 a device kind, 5 a profile, 30 shared" if not over else f"more than allowed: {', '.join(over)}")


def owner(parameter: Parameter) -> str:
    """What a constant counts for; one that several families of profiles have in common is shared."""
    families = {entry.targets for entry in parameters() if entry.kind == "profile" and entry.key == FAMILY_KEY}
    if parameter.kind == "profile" and not any(set(parameter.targets) <= set(family) for family in families):
        return "shared"
    if parameter.kind == "tier":
        return "shared"
    return f"{parameter.kind} {'+'.join(parameter.targets)}".strip()
