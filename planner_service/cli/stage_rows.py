"""The rows of the layout table: one a part of a stage, neighbouring stages that differ only in their place drawn as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from planner_service.cli.figures import count_in, mesh_sizes, percent, ranges

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StageRow:
    """What a part of a stage is, as texts; `first` and `last` are stage numbers, `layers` their ranges."""

    module: str
    first: int
    last: int
    layers: tuple[tuple[int, int], ...]
    layer_count: int
    holds: str
    devices: tuple[tuple[str, int, int], ...]
    mesh: str
    micro_batches: str
    recompute: str
    shards: str
    offload: str
    heads_stage: bool

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for rows that may be drawn as one."""
        sizes = tuple((group, last - first) for group, first, last in self.devices)
        return (self.module, self.layer_count, len(self.layers), self.holds, sizes, self.mesh, self.micro_batches, self.recompute)

    def texts(self) -> list[str]:
        """The cells of the row."""
        stages = f"{self.first}" if self.first == self.last else f"{self.first}–{self.last}"
        name = stages if self.module == "model" else f"{self.module} {stages}"
        each = " each" if self.last > self.first else ""
        layers = f"{ranges(self.layers)} ({self.layer_count}{each}){self.holds}"
        shared = [self.recompute, self.shards, self.offload] if self.heads_stage else ["", "", ""]
        return [
            name if self.heads_stage else "",
            layers if self.heads_stage else "",
            devices_text(self.devices),
            self.mesh,
            self.micro_batches,
            *shared,
        ]


def stage_rows(layout: Document) -> list[StageRow]:
    """All rows of a layout."""
    rows = [
        row for module in layout["modules"] for index, stage in enumerate(module["stages"]) for row in _rows(module, index, stage)
    ]
    if any(not row.heads_stage for row in rows):
        return rows
    return [_merged(list(group)) for _, group in groupby(rows, key=lambda row: row.alike)]


def _merged(rows: list[StageRow]) -> StageRow:
    """Neighbours as one row."""
    layers = tuple(joined(pair for row in rows for pair in row.layers))
    devices = tuple(
        (group, first, last)
        for group, items in groupby((item for row in rows for item in row.devices), key=lambda item: item[0])
        for first, last in joined((first, last) for _, first, last in items)
    )
    return replace(rows[0], last=rows[-1].last, layers=layers, devices=devices)


def joined(pairs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Ranges in order, neighbours joined."""
    current: tuple[int, int] | None = None
    for first, last in sorted(pair for pair in pairs if pair[1] >= pair[0]):
        if current is not None and first <= current[1] + 1:
            current = (current[0], max(current[1], last))
            continue
        if current is not None:
            yield current
        current = (first, last)
    if current is not None:
        yield current


def _rows(module: Document, index: int, stage: Document) -> Iterator[StageRow]:
    """The rows of a stage: what all its parts share stands in the first."""
    strategy = stage["strategy"]
    for number, part in enumerate(stage["parts"]):
        yield StageRow(
            module=module["module"],
            first=index,
            last=index,
            layers=tuple((chunk[0], chunk[1]) for chunk in stage["chunks"] if chunk),
            layer_count=count_in(stage["chunks"]),
            holds="".join(f" + {what}" for what in stage.get("holds") or ()),
            devices=tuple((item["group"], item["first"], item["first"] + item["count"] - 1) for item in part["devices"]),
            mesh=mesh_text(part),
            micro_batches=str(part["micro_batches"]) + ("" if part["share"] == 1 else f" ({percent(part['share'])})"),
            recompute=recompute_text(stage),
            shards=shards_text(strategy.get("shard")),
            offload=offload_text(strategy.get("offload")),
            heads_stage=number == 0,
        )


def devices_text(devices: Iterable[tuple[str, int, int]]) -> str:
    """`h100 0–15, a100 0–15`."""
    return ", ".join(f"{group} {ranges([(first, last)])}" for group, first, last in devices)


def mesh_text(part: Document) -> str:
    """Degrees above one, `1 device` when there are none."""
    sizes = {axis: size for axis, size in mesh_sizes(part["mesh"]).items() if size > 1}
    expert = {axis: size for axis, size in mesh_sizes(part.get("expert_mesh") or ()).items() if size > 1}
    text = " ".join(f"{axis} {size}" for axis, size in sizes.items()) or "1 device"
    return f"{text}; {' '.join(f'{axis} {size}' for axis, size in expert.items())}" if expert else text


def recompute_text(stage: Document) -> str:
    """The stage's recompute, and how many of its layers do something else."""
    text = _recompute_word(stage["strategy"]["recompute"])
    others = [
        f"{_layers(count_in([override['layers']]))} {_recompute_word(override['recompute'])}"
        for override in stage.get("overrides") or ()
        if override.get("recompute")
    ]
    return "; ".join([text, *others])


def _layers(count: int) -> str:
    return f"{count} layer" if count == 1 else f"{count} layers"


def _recompute_word(recompute: Document) -> str:
    modules = recompute.get("modules") or ()
    return str(recompute["kind"]) + (f" ({', '.join(modules)})" if modules else "")


def shards_text(shard: Document | None) -> str:
    """Over how many ranks parameters, gradients and optimizer states are sharded."""
    if not shard:
        return "–"
    return " / ".join(str(shard[kind]["shard"]) for kind in ("parameters", "gradients", "optimizer"))


def offload_text(offload: Document | None) -> str:
    """What is kept in host memory."""
    kept = [f"{name} {percent(value, 0)}" for name, value in (offload or {}).items() if value]
    return ", ".join(kept) or "–"
