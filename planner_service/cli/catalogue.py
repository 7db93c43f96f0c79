"""`planner devices`: what can be named in a problem's cluster."""

from __future__ import annotations

from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from planner_service.cli.commands import AsJson, Server, app
from planner_service.cli.context import backend, console, server_url, write_raw
from planner_service.cli.exits import refusals_shown

GIB_BYTES = 2**30


@app.command()
def devices(as_json: AsJson = False, server: Server = None) -> None:
    """The devices of the catalogue with their figures; any other is given inline."""
    with refusals_shown(console(stderr=True), server_url(server) is not None), backend(server) as place:
        content = place.devices()
        if as_json:
            write_raw(content)
        else:
            render_devices(console(), orjson.loads(content)["devices"])


def render_devices(out: Console, entries: list[dict[str, Any]]) -> None:
    """One line a device."""
    table = Table(box=None, pad_edge=False)
    for name in ("device", "a node", "memory GiB", "TB/s", "peak TFLOPS (dense)", "also called"):
        table.add_column(name, overflow="fold")
    for entry in sorted(entries, key=lambda entry: (entry["vendor"], entry["name"])):
        peaks = ", ".join(f"{dtype} {rate / 1e12:g}" for dtype, rate in entry["peak_flops_per_s"].items())
        memory, bandwidth = entry["memory_bytes"] / GIB_BYTES, entry["memory_bytes_per_s"] / 1e12
        aliases = ", ".join(entry["aliases"])
        table.add_row(entry["name"], str(entry["devices_per_node"]), f"{memory:.1f}", f"{bandwidth:g}", peaks, aliases)
    out.print(table, highlight=False)
