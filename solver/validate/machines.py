"""What a row's gpu and interconnect columns say about the machine: catalogue devices, and the tiers outside a node.

A known machine (`catalog/clusters/*.toml`, by the texts that name its interconnect) gives nominal facts with a source; else rates
written in the text ("8x400 Gb/s per node", "InfiniBand 8x50 GB/s", "400 Gb/s per GPU"); else the device's usual node, and a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from solver.catalog import CatalogCluster, CatalogDevice, UnknownName, clusters, find_device
from solver.validate.refusal import Refused
from solver.validate.rows import Row

AMBIGUOUS = {"a100": "A100-SXM4-80", "v100": "V100-SXM2-32"}
"""published spellings that leave the memory size open, and the device taken for them"""
COUNTED = re.compile(r"^\s*(?:(\d+)\s*x\s+)?(.+?)\s*$")
PER_NODE = re.compile(r"(?:(\d+)\s*x\s*)?(?:[A-Z]+)?(\d+(?:\.\d+)?)\s*(Gb/s|GB/s)[^;,]*?per\s+(node|GPU|device)", re.IGNORECASE)
COUNT_OF_PORTS = re.compile(r"(\d+)\s*x\s*(?:[A-Za-z]+)?(\d+(?:\.\d+)?)\s*(Gb/s|GB/s)")
DEFAULT_LATENCY_S = 1.0e-5


@dataclass(frozen=True, slots=True)
class Machine:
    """Groups of the problem document, and what was assumed of them."""

    groups: tuple[dict[str, Any], ...]
    cluster: CatalogCluster | None
    notes: tuple[str, ...]


def machine_of(row: Row) -> Machine:
    """The machine of a row; raises Refused for devices that the catalogue does not have."""
    if row.gpu is None or row.gpus is None:
        raise Refused("gpu or gpus is blank")
    kinds = [COUNTED.match(part) for part in row.gpu.split("+")]
    counts = _counts(row, [match.group(1) if match else None for match in kinds])
    cluster = known_cluster(row.interconnect)
    notes: list[str] = []
    groups: list[dict[str, Any]] = []
    for match, count in zip(kinds, counts, strict=True):
        assert match is not None, "every text matches"
        device = catalogue_device(match.group(2), notes)
        per_node = min(row.gpus_per_node or device.devices_per_node, max(count, 1) if len(kinds) > 1 else 10**6)
        groups.append(
            {
                "name": f"g{len(groups)}" if len(kinds) > 1 else "nodes",
                "device": device.name,
                "nodes": -(-count // per_node),
                "devices_per_node": per_node,
                "fabric": _fabric(device, per_node, cluster, row.interconnect, notes),
            }
        )
    return Machine(groups=tuple(groups), cluster=cluster, notes=tuple(notes))


def _counts(row: Row, given: list[str | None]) -> list[int]:
    """Devices of each kind: as written ("16x A100 + 8x H100"), else equal shares of gpus."""
    assert row.gpus is not None, "checked by the caller"
    if all(given):
        counts = [int(text or 0) for text in given]
        if sum(counts) != row.gpus:
            raise Refused(f"{row.gpu} are not {row.gpus} devices")
        return counts
    if any(given) or row.gpus % len(given):
        raise Refused(f"how many of the {row.gpus} devices are of which kind is not stated ({row.gpu})")
    return [row.gpus // len(given)] * len(given)


def catalogue_device(text: str, notes: list[str]) -> CatalogDevice:
    """The catalogue's device of a published name."""
    taken = AMBIGUOUS.get(text.lower())
    try:
        device = find_device(taken or text)
    except UnknownName as error:
        raise Refused(str(error)) from error
    if taken is not None:
        notes.append(f"{text} taken as {device.name}")
    return device


def known_cluster(interconnect: str | None) -> CatalogCluster | None:
    """The published machine whose interconnect text this is."""
    text = (interconnect or "").lower()
    found = [entry for entry in clusters().values() if any(words.lower() in text for words in entry.match)]
    return found[0] if found else None


def _fabric(
    device: CatalogDevice, per_node: int, cluster: CatalogCluster | None, interconnect: str | None, notes: list[str]
) -> list[dict[str, Any]]:
    """Tiers innermost first: the device's own links, then the network."""
    inner = {**device.fabric[0], "span_devices": max(per_node, 1)}
    if cluster is not None:
        outer = [dict(tier) for tier in cluster.fabric]
        if cluster.scaleup_span_devices is not None:
            inner["span_devices"] = cluster.scaleup_span_devices // per_node * per_node
            outer = [{key: value for key, value in tier.items() if key != "ports_per_node"} for tier in outer]
        return [inner, *outer]
    stated = stated_rate(interconnect, per_node)
    if stated is None:
        notes.append(f"network not understood ({interconnect}); the usual node of {device.name} is taken")
        return [inner, *(dict(tier) for tier in device.fabric[1:])]
    rate, ports = stated
    tier = {"name": "network", "bytes_per_s_per_device": rate, "latency_s": DEFAULT_LATENCY_S, "ports_per_node": ports}
    return [inner, tier]


def stated_rate(interconnect: str | None, per_node: int) -> tuple[float, int] | None:
    """(bytes/s of a device, ports of a node) written in an interconnect text; None when no rate of a node or device is."""
    text = interconnect or ""
    match = PER_NODE.search(text)
    if match:
        count, size, unit, scope = match.groups()
        total = float(size) * (1e9 if unit == "GB/s" else 1.25e8) * int(count or 1)
        ports = int(count) if count else per_node
        return (total / per_node, ports) if scope.lower() == "node" else (total, per_node)
    ported = COUNT_OF_PORTS.search(text)
    if ported:
        count, size, unit = ported.groups()
        return float(size) * (1e9 if unit == "GB/s" else 1.25e8) * int(count) / per_node, int(count)
    return None
