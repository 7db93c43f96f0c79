"""Conformance of the catalogue: every file discovered is complete, sourced, and found by its names."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from solver import catalog
from solver.catalog import UnknownName
from solver.problem import Transformer, parse_problem
from solver.problem.cluster import DeviceRates, DeviceSpec
from tests.solver.problem.documents import small

HARDWARE = Path(os.environ.get("PLANNER_SHARED_DIR", Path(__file__).resolve().parents[3] / "../shared")) / "data/hardware.csv"
FOLDERS = {"devices": catalog.devices, "models": catalog.models, "profiles": catalog.profiles}


@pytest.mark.parametrize("folder", sorted(FOLDERS))
def test_every_file_is_discovered(folder: str) -> None:
    """One entry a file."""
    files = [f.name for f in resources.files("solver.catalog").joinpath(folder).iterdir() if f.name.endswith(".toml")]
    assert files
    assert len(FOLDERS[folder]()) == len(files)


@pytest.mark.parametrize("name", sorted(catalog.devices()))
def test_device_content_is_a_device(name: str) -> None:
    """The content is the inline form of a device, all rates given, and a group of it parses."""
    device = catalog.devices()[name]
    assert DeviceSpec.model_validate(device.content).name == name
    assert set(device.content["rates"]) == set(DeviceRates.model_fields)
    assert device.content["power_w"] > 0
    precision = "bf16" if "bf16" in device.content["peak_flops_per_s"] else "fp16"
    problem = parse_problem(
        small(**{"cluster.groups.0.device": name, "workload.precision": precision, "cluster.groups.0.nodes": 2})
    )
    group = problem.cluster.groups[0]
    assert group.device.name == name
    assert [tier.span_devices for tier in group.fabric] == [8, 16]


def numbers(data: dict[str, Any]) -> Iterator[str]:
    """The dotted names of what needs a source: scalars, tables of peaks, fabric tiers by name."""
    for key, value in data.items():
        if key in ("name", "vendor", "aliases", "sources"):
            continue
        if key == "fabric":
            yield from (f"fabric.{tier['name']}" for tier in value)
        elif key in ("rates", "host"):
            yield from (f"{key}.{inner}" for inner in value)
        else:
            yield key


@pytest.mark.parametrize("name", sorted(catalog.devices()))
def test_every_number_of_a_device_has_a_source(name: str) -> None:
    """And no source speaks of a number that is not there."""
    device = catalog.devices()[name]
    data = {
        **device.content,
        "devices_per_node": device.devices_per_node,
        "host": device.host,
        "fabric": device.fabric,
    }
    assert set(numbers(data)) == set(device.sources)
    assert all(isinstance(text, str) and len(text) > 10 for text in device.sources.values())


def test_every_number_of_the_unlisted_node_has_a_source() -> None:
    """The same for what is assumed of a node that is not in the catalogue."""
    node = catalog.unlisted_node()
    assert set(numbers(node)) == set(node["sources"])


@pytest.mark.parametrize("name", sorted(catalog.models()))
def test_model_is_a_transformer_with_sources(name: str) -> None:
    """Presets hold a transformer; sizes and published parameters have their sources. Ids are lower case."""
    model = catalog.models()[name]
    assert name == name.lower()
    assert Transformer.model_validate(model.transformer).layers > 0
    assert set(model.sources) == {"transformer", "published_parameters"}


@pytest.mark.parametrize("name", sorted(catalog.profiles()))
def test_profile_values_have_sources_and_pass_the_checks(name: str) -> None:
    """Every assumption is a number with a source, and writing the whole profile out is accepted."""
    profile = catalog.profiles()[name]
    assert set(profile.sources) == set(profile.assumptions)
    assert all(len(text) > 10 for text in profile.sources.values())
    given = {"name": name, "assumptions": profile.assumptions}
    assert parse_problem(small(**{"workload.software": given})).workload.software.assumptions == profile.assumptions


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("H100-SXM5-80GB", "H100-SXM5-80"),
        ("h100", "H100-SXM5-80"),
        ("A100-SXM4-80GB", "A100-SXM4-80"),
        ("a100-40gb", "A100-SXM4-40"),
        ("v100-32", "V100-SXM2-32"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    """In any case of letters."""
    assert catalog.find_device(alias).name == name
    assert catalog.find_device(alias.upper()).name == name


def test_ambiguous_alias_is_refused_with_the_candidates() -> None:
    """`a100` does not say which."""
    with pytest.raises(UnknownName) as caught:
        catalog.find_device("a100")
    assert caught.value.ambiguous
    assert caught.value.candidates == ("A100-SXM4-40", "A100-SXM4-80")


def test_unknown_name_offers_the_nearest() -> None:
    """With the whole list."""
    with pytest.raises(UnknownName, match=r"did you mean 'llama-3.1-70b'") as caught:
        catalog.find_model("lama-3.1-70b")
    assert not caught.value.ambiguous
    assert set(caught.value.candidates) == set(catalog.models())


@pytest.mark.parametrize("name", sorted(catalog.models()))
def test_model_aliases_name_one_preset(name: str) -> None:
    """No alias of a model is shared."""
    assert all(catalog.find_model(alias).name == name for alias in catalog.models()[name].aliases)


@pytest.mark.skipif(not HARDWARE.is_file(), reason="no shared hardware table (PLANNER_SHARED_DIR)")
@pytest.mark.parametrize("name", sorted(catalog.devices()))
def test_devices_agree_with_the_hardware_table(name: str) -> None:
    """Ids are those of the table; peaks, bandwidths and power are its figures."""
    with HARDWARE.open(encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["device"] == name)
    device = catalog.devices()[name]
    content = device.content
    dense = content["peak_flops_per_s"].get("bf16", content["peak_flops_per_s"]["fp16"])
    assert dense == pytest.approx(float(row["bf16_dense_tflops"]) * 1e12)
    if row["fp8_dense_tflops"]:
        assert content["peak_flops_per_s"]["fp8"] == pytest.approx(float(row["fp8_dense_tflops"]) * 1e12)
    assert content["memory_bytes_per_s"] == pytest.approx(float(row["mem_bw_GBps"]) * 1e9)
    assert content["power_w"] == pytest.approx(float(row["power_w"]))
    assert float(row["mem_gb"]) * 1e9 < content["memory_bytes"] < float(row["mem_gb"]) * 2**30
    up, out = device.fabric
    assert up["bytes_per_s_per_device"] == pytest.approx(float(row["scaleup_uni_GBps_per_dev"]) * 1e9)
    nic_bytes_per_s = out["bytes_per_s_per_device"] * device.devices_per_node / out["ports_per_node"]
    assert nic_bytes_per_s == pytest.approx(float(row["nic_GBps_per_dev_typical"]) * 1e9)
