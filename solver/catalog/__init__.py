"""Facts beside the code: devices, model presets, software profiles, published machines, one TOML file each, found by listing the
folder.

Every number of a file has a source in its [sources] table. Names are looked up exactly, then by alias; an alias that
several entries share is refused with the candidates.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final

from solver.catalog.names import UnknownName, find_name, nearest

_DEVICE_CONTENT: Final = (
    "name",
    "vendor",
    "peak_flops_per_s",
    "memory_bytes",
    "memory_bytes_per_s",
    "power_w",
    "streaming_multiprocessors",
    "rates",
)


@dataclass(frozen=True)
class CatalogDevice:
    """A device file: `content` is the inline form of the device, the rest are the defaults of a group of them."""

    name: str
    aliases: tuple[str, ...]
    content: dict[str, Any]
    devices_per_node: int
    host: dict[str, float]
    fabric: tuple[dict[str, Any], ...]
    sources: dict[str, Any]


@dataclass(frozen=True)
class CatalogModel:
    """A model preset: `model` is a document of problem.model.Model, of one `transformer` or of `modules`."""

    name: str
    aliases: tuple[str, ...]
    model: dict[str, Any]
    published_parameters: float
    sources: dict[str, Any]

    @property
    def transformer(self) -> dict[str, Any]:
        """The (language) model: the last module."""
        last: dict[str, Any] = (
            self.model["transformer"] if "transformer" in self.model else self.model["modules"][-1]["transformer"]
        )
        return last


@dataclass(frozen=True)
class CatalogProfile:
    """A software profile: `assumptions` by name, with the source of each; `kernels`: choices a problem may leave open.

    A file may name a `base` and state what differs.
    """

    name: str
    aliases: tuple[str, ...]
    assumptions: dict[str, float]
    sources: dict[str, str]
    kernels: dict[str, str]


@dataclass(frozen=True)
class CatalogCluster:
    """A published machine: `match` are texts that name its interconnect, `fabric` the tiers outside the node, `software` the
    profile that a framework runs on there (by framework name), `heads` those of its runs by hidden size,
    `scaleup_span_devices` the innermost domain where it is wider than a node."""

    name: str
    match: tuple[str, ...]
    fabric: tuple[dict[str, Any], ...]
    scaleup_span_devices: int | None
    software: dict[str, str]
    heads: dict[str, int]
    sources: dict[str, str]


def _read_folder(folder: str) -> list[dict[str, Any]]:
    """The parsed TOML files of one folder of the catalogue, ordered by file name."""
    files = [f for f in resources.files(__name__).joinpath(folder).iterdir() if f.name.endswith(".toml")]
    return [tomllib.loads(f.read_text(encoding="utf-8")) for f in sorted(files, key=lambda f: f.name)]


@cache
def devices() -> dict[str, CatalogDevice]:
    """All devices by name. Treat as read only."""
    return {entry.name: entry for entry in map(_device, _read_folder("devices"))}


def _device(data: dict[str, Any]) -> CatalogDevice:
    return CatalogDevice(
        name=data["name"],
        aliases=tuple(data.get("aliases", ())),
        content={key: data[key] for key in _DEVICE_CONTENT if key in data},
        devices_per_node=data["devices_per_node"],
        host=data["host"],
        fabric=tuple(data["fabric"]),
        sources=data["sources"],
    )


@cache
def models() -> dict[str, CatalogModel]:
    """All model presets by name. Treat as read only."""
    return {entry.name: entry for entry in map(_model, _read_folder("models"))}


def _model(data: dict[str, Any]) -> CatalogModel:
    if "modules" in data:
        modules = [{**module, "transformer": _without_cycles(module["transformer"])} for module in data["modules"]]
        content: dict[str, Any] = {"modules": modules}
    else:
        content = {"transformer": _without_cycles(data["transformer"])}
    return CatalogModel(
        name=data["name"],
        aliases=tuple(data.get("aliases", ())),
        model=content,
        published_parameters=data["published_parameters"],
        sources=data["sources"],
    )


def _without_cycles(transformer: dict[str, Any]) -> dict[str, Any]:
    """A file may give blocks that repeat in the same order as `cycles` of them."""
    if "cycles" not in transformer:
        return transformer
    blocks = [dict(block) for cycle in transformer["cycles"] for _ in range(cycle["times"]) for block in cycle["blocks"]]
    return {**{key: value for key, value in transformer.items() if key != "cycles"}, "blocks": blocks}


@cache
def profiles() -> dict[str, CatalogProfile]:
    """All software profiles by name, what they leave out taken from their base, then the defaults. Treat as read only."""
    files = {data["name"]: data for data in _read_folder("profiles")}
    return {name: _profile(data, files, _read_file("memory_defaults.toml")) for name, data in files.items()}


def _profile(data: dict[str, Any], files: dict[str, dict[str, Any]], defaults: dict[str, Any]) -> CatalogProfile:
    """A profile with all its assumptions."""
    entries = {**defaults, **_inherited(data, files, "assumptions")}
    return CatalogProfile(
        name=data["name"],
        aliases=tuple(data.get("aliases", ())),
        assumptions={key: float(entry["value"]) for key, entry in entries.items()},
        sources={key: entry["source"] for key, entry in entries.items()},
        kernels=_inherited(data, files, "kernels"),
    )


def _inherited(data: dict[str, Any], files: dict[str, dict[str, Any]], table: str) -> dict[str, Any]:
    """A table of a file over that of its base."""
    base = _inherited(files[data["base"]], files, table) if "base" in data else {}
    return {**base, **data.get(table, {})}


@cache
def shared() -> dict[str, dict[str, Any]]:
    """Constants of the cost model that belong to no device and no software: {name: {value, source}}. Treat as read only."""
    return _read_file("shared.toml")


def _read_file(name: str) -> dict[str, Any]:
    return tomllib.loads(resources.files(__name__).joinpath(name).read_text(encoding="utf-8"))


@cache
def clusters() -> dict[str, CatalogCluster]:
    """All published machines by name. Treat as read only."""
    return {
        data["name"]: CatalogCluster(
            name=data["name"],
            match=tuple(data["match"]),
            fabric=tuple(data["fabric"]),
            scaleup_span_devices=data.get("scaleup_span_devices"),
            software=data.get("software", {}),
            heads=data.get("heads", {}),
            sources=data["sources"],
        )
        for data in _read_folder("clusters")
    }


@cache
def unlisted_node() -> dict[str, Any]:
    """What is assumed of a node whose device is given inline: devices_per_node, host, fabric."""
    return _read_file("unlisted_node.toml")


def find_device(name: str) -> CatalogDevice:
    """The device of that name or alias; raises UnknownName."""
    return devices()[find_name("device", name, {k: v.aliases for k, v in devices().items()})]


def find_model(name: str) -> CatalogModel:
    """The preset of that name or alias; raises UnknownName."""
    return models()[find_name("model preset", name, {k: v.aliases for k, v in models().items()})]


def find_profile(name: str) -> CatalogProfile:
    """The software profile of that name or alias; raises UnknownName."""
    return profiles()[find_name("software profile", name, {k: v.aliases for k, v in profiles().items()})]


__all__ = [
    "CatalogCluster",
    "CatalogDevice",
    "CatalogModel",
    "CatalogProfile",
    "UnknownName",
    "clusters",
    "devices",
    "find_device",
    "find_model",
    "find_profile",
    "models",
    "nearest",
    "profiles",
    "shared",
    "unlisted_node",
]
