"""nccl-tests output -> achieved over nominal rate of the links inside a node, or of the network between nodes.

A line is `size count type redop root time algbw busbw ...`; the bus bandwidth of the largest message is the asymptote. Ranks,
nodes and device come from the header ("Rank ... NVIDIA B200 (node 1)"); tails without one need them from the caller.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from solver.catalog import UnknownName, find_device
from solver.errors import FieldError, InvalidProblem

RANK = re.compile(r"^#\s*Rank\s+(\d+)\s.*?\]\s*(.+?)\s*(?:\(node (\d+)\))?\s*$")
HOST = re.compile(r"\bon\s+(\S+)\s+device\b")
ACROSS = re.compile(r"across (\d+) nodes")
OPERATIONS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter", "alltoall": "all_to_all"}
LEAST_BYTES = 1 << 26
"""messages below this are bound by latency"""


@dataclass(frozen=True, slots=True)
class Collective:
    """`bus_bytes_per_s` of the largest message: bytes / time x (2 (n-1)/n for an all-reduce, (n-1)/n for the others)."""

    operation: str
    device: str | None
    ranks: int | None
    nodes: int | None
    message_bytes: int
    bus_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class LinkRate:
    """`rate` is the name of a device rate: scaleup_efficiency or scaleout_efficiency."""

    device: str
    rate: str
    value: float
    message_bytes: int


def read_nccl_tests(text: str, pointer: str) -> Collective:
    """The largest message of one output; raises InvalidProblem."""
    best: tuple[int, float] | None = None
    sums = False
    for line in text.splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].isdigit() or not words[1].isdigit():
            continue
        try:
            size, bus = int(words[0]), float(words[7])
        except ValueError:
            continue
        sums = sums or words[3] not in ("none", "-1")
        if best is None or size >= best[0]:
            best = (size, bus)
    if best is None:
        raise _refusal(pointer, "no line `size count type redop root time algbw busbw` was found")
    if best[0] < LEAST_BYTES:
        raise _refusal(pointer, f"the largest message has {best[0]} bytes; rates need at least {LEAST_BYTES}")
    ranks, nodes, device = _header(text)
    named = next((op for word, op in OPERATIONS.items() if word in text.lower().replace("_", "").replace("-", "")), None)
    operation = named or ("all_reduce" if sums else "all_gather")
    return Collective(operation, device, ranks, nodes, best[0], best[1] * 1e9)


def _header(text: str) -> tuple[int | None, int | None, str | None]:
    """(ranks, nodes, device) of the header lines, None where they do not say."""
    highest, device, nodes, hosts = -1, None, set(), set()
    for line in text.splitlines():
        match = RANK.match(line)
        if match:
            highest = max(highest, int(match.group(1)))
            device = match.group(2)
            nodes.add(match.group(3) or "0")
            hosts.update(HOST.findall(line))
    if highest < 0:
        return None, None, None
    across = ACROSS.search(text)
    count = int(across.group(1)) if across else max(len(hosts), len(nodes))
    return highest + 1, count, device


def link_rate(measured: Collective, pointer: str, *, device: str | None, ranks: int | None, nodes: int | None) -> LinkRate:
    """The link efficiency that explains a collective in the model's own terms; arguments fill what the text does not say."""
    name, size, count = device or measured.device, ranks or measured.ranks, nodes or measured.nodes
    if name is None or size is None or count is None:
        raise _refusal(pointer, "the text does not say device, ranks and nodes; give them")
    try:
        entry = find_device(name)
    except UnknownName as error:
        raise InvalidProblem((FieldError(pointer, "unknown_name", str(error), error.candidates),)) from error
    if size < 2 or size % count:
        raise _refusal(pointer, f"{size} ranks on {count} nodes")
    factor = (size - 1) / size * (2.0 if measured.operation == "all_reduce" else 1.0)
    seconds_per_byte = factor / measured.bus_bytes_per_s
    passes = 2.0 if measured.operation == "all_reduce" else 1.0
    inside = size // count
    if count == 1:
        nominal = float(entry.fabric[0]["bytes_per_s_per_device"])
        achieved = passes * (size - 1) / size / seconds_per_byte
        return LinkRate(entry.name, "scaleup_efficiency", min(1.0, achieved / nominal), measured.message_bytes)
    if len(entry.fabric) < 2:
        raise _refusal(pointer, f"the catalogue knows no network of {entry.name}")
    nominal = float(entry.fabric[1]["bytes_per_s_per_device"])
    exchanged = measured.operation == "all_to_all"
    share = inside * (count - 1) / size if exchanged else passes * (count - 1) / count / inside
    return LinkRate(entry.name, "scaleout_efficiency", min(1.0, share / seconds_per_byte / nominal), measured.message_bytes)


def _refusal(pointer: str, message: str) -> InvalidProblem:
    return InvalidProblem((FieldError(pointer, "invalid", message, None),))
