"""What a row's gpu and interconnect columns say about the machine: catalogue devices, and the tiers outside a node.

A known machine (`catalog/clusters/*.toml`, by the texts that name its interconnect) gives nominal facts with a source; else rates
written in the text ("8x400 Gb/s per node", "InfiniBand 8x50 GB/s", "3.2 Tbps/node", "400 Gb/s per GPU"); else the device's usual
node, and a note.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from solver.catalog import CatalogCluster, CatalogDevice, UnknownName, clusters, devices, find_device
from solver.validate.refusal import Refused
from solver.validate.rows import Row

AMBIGUOUS = {frozenset({"a100"}): "A100-SXM4-80", frozenset({"a100", "sxm"}): "A100-SXM4-80", frozenset({"v100"}): "V100-SXM2-32"}
"""published spellings (as words) that leave the memory size open, and the device taken for them"""
NOT_A_KIND = frozenset({"nvidia", "amd", "instinct", "tesla", "intel", "google", "aws", "gpu", "gpus", "oam", "tensor", "core"})
"""words beside the name of a device that tell no two devices apart"""
COUNTED = re.compile(r"^\s*(?:(\d+)\s*x\s*)?(.+?)\s*$")
UNIT = r"([GT](?:[Bb](?:/s|ps)|bit/s|(?![A-Za-z])))"
PER_NODE = re.compile(
    rf"(?:(\d+)\s*x\s*)?(?:[A-Z]+)?(\d+(?:\.\d+)?)\s*{UNIT}[^;,]*?(?i:per\s+|/)(?i:(node|host|server)|GPU|device)"
)
COUNT_OF_PORTS = re.compile(rf"(\d+)\s*x\s*(?:[A-Za-z]+\s*)?(\d+(?:\.\d+)?)\s*{UNIT}")
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
    """The catalogue's device of a published name: as the catalogue writes it, else by its words in any order."""
    try:
        return find_device(text)
    except UnknownName as error:
        words = _words_of(text)
        taken = AMBIGUOUS.get(words) or _device_of_words(words) or _only_of_its_kind(words)
        if taken is None:
            raise Refused(str(error)) from error
    notes.append(f"{text} taken as {taken}")
    return find_device(taken)


def _words_of(text: str) -> frozenset[str]:
    """What a device's name says: "NVIDIA H100 80G HBM3 SXM5" is {h100, 80gb, sxm}."""
    words = re.split(r"[\s_()/,-]+", text.lower())
    plain = {re.sub(r"^(\d+)g$", r"\1gb", re.sub(r"^sxm\d$", "sxm", word)) for word in words}
    return frozenset(word for word in plain if word and word not in NOT_A_KIND and not word.startswith("hbm"))


def _only_of_its_kind(words: frozenset[str]) -> str | None:
    """The only device with these words but for its memory, which some count in other units (B200-192GB)."""
    kind = {word for word in words if not re.fullmatch(r"\d+gb", word)}
    found = [name for name, device in devices().items() if any(kind <= _words_of(alias) for alias in (name, *device.aliases))]
    return found[0] if kind and len(found) == 1 else None


def _device_of_words(words: frozenset[str]) -> str | None:
    """The only device that has these words as its name or an alias."""
    known = {name: {_words_of(alias) for alias in (name, *device.aliases)} for name, device in devices().items()}
    found = [name for name, spellings in known.items() if words and words in spellings]
    return found[0] if len(found) == 1 else None


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
        count, size, unit, node = match.groups()
        total = _bytes_per_s(size, unit) * int(count or 1)
        ports = int(count) if count else per_node
        return (total / per_node, ports) if node else (total, per_node)
    ported = COUNT_OF_PORTS.search(text)
    if ported:
        count, size, unit = ported.groups()
        return _bytes_per_s(size, unit) * int(count) / per_node, int(count)
    return None


def _bytes_per_s(size: str, unit: str) -> float:
    """Gb/s, Gbps, Gbit/s and a bare G are bits; GB/s and GBps bytes; the same with T."""
    return float(size) * (1e12 if unit[0] == "T" else 1e9) / (1.0 if unit[1:2] == "B" else 8.0)
