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
from solver.errors import InvalidProblem
from solver.problem import Model, Transformer, parse_problem
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


def test_devices_that_people_meet_are_there() -> None:
    """Beside the hardware table: parts for export, the newest generations, consumer cards, other vendors."""
    assert {
        *("A800-SXM4-80", "H800-SXM5-80", "GB300-SXM-288", "B300-SXM-288", "MI355X-288", "MI350X-288", "H20-SXM-96"),
        *("H100-NVL-94", "H100-SXM5-96", "H100-SXM5-64", "A100-SXM4-64", "GH200-96", "L4-24", "T4-16", "RTX3090-24"),
        *("RTX3080-10", "RTX2080Ti-11", "MI250X-GCD-64", "Trainium1-32", "Trainium2-96", "Ascend910C", "A100-PCIe-40"),
    } <= set(catalog.devices())


@pytest.mark.parametrize("name", sorted(catalog.devices()))
def test_dtypes_are_those_of_the_generation(name: str) -> None:
    """No bf16 before Ampere, no fp8 before Ada and Hopper; every device has one of the 16-bit types."""
    peaks = set(catalog.devices()[name].content["peak_flops_per_s"])
    assert ("bf16" in peaks) != name.startswith(("V100", "T4", "RTX2080"))
    without = ("V100", "T4", "RTX2", "RTX3", "RTXA", "A100", "A800", "A10", "A30", "A40", "MI2", "TPUv4", "TPUv5", "Ascend")
    assert ("fp8" in peaks) != name.startswith(without)
    assert peaks & {"bf16", "fp16"}


@pytest.mark.parametrize(
    ("device", "precision", "code", "allowed"),
    [
        ("V100-SXM2-16", "bf16", "conflict", ("fp16", "fp32")),
        ("T4-16", "bf16", "conflict", ("fp16", "fp32")),
        ("TPUv5p", "fp16", "conflict", ("bf16",)),
        ("Gaudi2-96", "fp32", "conflict", ("bf16", "fp8")),
    ],
)
def test_precision_is_checked_against_the_device(device: str, precision: str, code: str, allowed: tuple[str, ...]) -> None:
    """What the device lacks is refused with what it has."""
    with pytest.raises(InvalidProblem) as caught:
        parse_problem(small(**{"cluster.groups.0.device": device, "workload.precision": precision}))
    (item,) = caught.value.errors
    assert (item.pointer, item.code, item.allowed) == ("/workload/precision", code, allowed)
    assert device in item.message


def test_a_device_of_ones_own_is_given_inline() -> None:
    """With the defaults of an unlisted node, and its own dtypes."""
    own = {
        "name": "my-accelerator",
        "vendor": "me",
        "peak_flops_per_s": {"bf16": 1.0e15},
        "memory_bytes": 1.0e11,
        "memory_bytes_per_s": 2.0e12,
        "power_w": 500.0,
    }
    group = parse_problem(small(**{"cluster.groups.0.device": own})).cluster.groups[0]
    assert group.device.name == "my-accelerator"
    assert (group.devices_per_node, group.fabric[0].name) == (8, "node")
    with pytest.raises(InvalidProblem, match="has no fp16"):
        parse_problem(small(**{"cluster.groups.0.device": own, "workload.precision": "fp16"}))


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("memory_bytes", 0, "must be above 0"),
        ("name", "x" * 201, "at most 200 characters"),
        ("peak_flops_per_s", {"bfloat16": 1e15}, "must be one of: .*bf16.*; did you mean 'bf16'"),
    ],
)
def test_what_is_wrong_with_a_device_of_ones_own(field: str, value: object, words: str) -> None:
    """In words that say what is allowed."""
    own = {"name": "mine", "vendor": "me", "peak_flops_per_s": {"bf16": 1e15}, "memory_bytes": 1e11, "memory_bytes_per_s": 2e12}
    with pytest.raises(InvalidProblem, match=words):
        parse_problem(small(**{"cluster.groups.0.device": own | {field: value}}))


@pytest.mark.parametrize("name", sorted(catalog.devices()))
def test_device_content_is_a_device(name: str) -> None:
    """The content is the inline form of a device, all rates given, and a group of it parses."""
    device = catalog.devices()[name]
    assert DeviceSpec.model_validate(device.content).name == name
    assert set(device.content["rates"]) == set(DeviceRates.model_fields)
    assert device.content["power_w"] > 0
    precision = "bf16" if "bf16" in device.content["peak_flops_per_s"] else "fp16"
    for nodes in (1, 2, 1000):
        problem = parse_problem(
            small(**{"cluster.groups.0.device": name, "workload.precision": precision, "cluster.groups.0.nodes": nodes})
        )
        group = problem.cluster.groups[0]
        assert group.device.name == name
        assert group.fabric[-1].span_devices == nodes * device.devices_per_node
        leaving = [tier for tier in group.fabric if tier.span_devices > device.devices_per_node]
        assert [tier.ports_per_node is not None for tier in leaving] == [i == 0 for i in range(len(leaving))]


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
    """Presets hold a transformer or modules; sizes and published parameters have their sources. Ids are lower case."""
    model = catalog.models()[name]
    assert name == name.lower()
    assert Transformer.model_validate(model.transformer).layers > 0
    assert Model.model_validate(model.model)
    assert set(model.sources) == {*model.model, "published_parameters"}


def test_cycles_are_blocks_in_their_order() -> None:
    """Gemma 2: a layer with a window and a full one, 23 times."""
    blocks = catalog.find_model("gemma-2-27b").transformer["blocks"]
    assert [block["attention"].get("window_tokens") for block in blocks] == [4096, None] * 23


def test_the_catalogue_has_the_models_people_name() -> None:
    """At least 30, and those of the main examples."""
    assert len(catalog.models()) >= 30
    for name in (
        "llama-3.1-405b",
        "deepseek-v3",
        "mixtral-8x22b",
        "gpt-oss-120b",
        "qwen3-next-80b-a3b",
        "qwen2.5-vl-7b",
        "gemma-2-27b",
    ):
        assert catalog.find_model(name)


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
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16"),
        ("NVIDIA H200", "H200-SXM-141"),
        ("NVIDIA GeForce RTX 4090", "RTX4090-24"),
        ("AMD Instinct MI300X", "MI300X-192"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    """In any case of letters and with any separators."""
    assert catalog.find_device(alias).name == name
    assert catalog.find_device(alias.upper()).name == name
    for separator in ("_", " ", ""):
        assert catalog.find_device(f" {alias} ".replace("-", separator).replace(" ", separator)).name == name


def test_separators_of_presets_are_free() -> None:
    """As the publisher writes it, or not."""
    assert catalog.find_model("Llama3.1 8B").name == "llama-3.1-8b"


#: Aliases that name several devices on purpose: they are refused with the candidates.
AMBIGUOUS = {
    "a100": ("A100-SXM4-40", "A100-SXM4-80"),
    "a100-sxm": ("A100-SXM4-40", "A100-SXM4-80"),
    "a100-pcie": ("A100-PCIe-40", "A100-PCIe-80"),
    "v100": ("V100-SXM2-16", "V100-SXM2-32"),
    "v100-pcie": ("V100-PCIe-16", "V100-PCIe-32"),
    "h20": ("H20-SXM-141", "H20-SXM-96"),
    "gh200": ("GH200-144", "GH200-96"),
    "mi250x": ("MI250X-128", "MI250X-GCD-64"),
}


def test_aliases_are_unique_but_for_the_named_ones() -> None:
    """In any case of letters; an alias is never another device's name."""
    owners: dict[str, set[str]] = {}
    for device in catalog.devices().values():
        for word in (device.name, *device.aliases):
            owners.setdefault(word.lower(), set()).add(device.name)
    assert {word: tuple(sorted(names)) for word, names in owners.items() if len(names) > 1} == AMBIGUOUS


@pytest.mark.parametrize("alias", sorted(AMBIGUOUS))
def test_ambiguous_alias_is_refused_with_the_candidates(alias: str) -> None:
    """`a100` does not say which."""
    with pytest.raises(UnknownName) as caught:
        catalog.find_device(alias)
    assert caught.value.ambiguous
    assert caught.value.candidates == AMBIGUOUS[alias]
    with pytest.raises(InvalidProblem) as refused:
        parse_problem(small(**{"cluster.groups.0.device": alias}))
    assert refused.value.errors[0].code == "ambiguous_name"


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


needs_table = pytest.mark.skipif(not HARDWARE.is_file(), reason="no shared hardware table (PLANNER_SHARED_DIR)")


def table() -> dict[str, dict[str, str]]:
    """Rows of the hardware table by device."""
    with HARDWARE.open(encoding="utf-8") as file:
        return {row["device"]: row for row in csv.DictReader(file)}


@needs_table
def test_every_row_of_the_hardware_table_is_a_device() -> None:
    """Under its own name."""
    assert set(table()) <= set(catalog.devices())


@needs_table
def test_devices_of_the_measurements_have_names() -> None:
    """What the gpu columns print names one device (the bare A100 names two and is refused)."""
    for path in sorted((HARDWARE.parent / "measurements").glob("*.csv")):
        with path.open(encoding="utf-8") as file:
            for name in {row["gpu"] for row in csv.DictReader(file)} - {"A100"}:
                assert catalog.find_device(name)


@needs_table
@pytest.mark.parametrize("name", sorted(table()) if HARDWARE.is_file() else [])
def test_devices_agree_with_the_hardware_table(name: str) -> None:
    """Peaks, bandwidths and power are the table's figures; memory is what the driver leaves of the nominal capacity."""
    row, device = table()[name], catalog.devices()[name]
    content = device.content
    dense = content["peak_flops_per_s"].get("bf16") or content["peak_flops_per_s"]["fp16"]
    figures = {
        "bf16_dense_tflops": dense / 1e12,
        "fp8_dense_tflops": content["peak_flops_per_s"].get("fp8", 0.0) / 1e12,
        "mem_bw_GBps": content["memory_bytes_per_s"] / 1e9,
        "power_w": content["power_w"],
        "scaleup_uni_GBps_per_dev": device.fabric[0]["bytes_per_s_per_device"] / 1e9,
    }
    for column, value in figures.items():
        if row[column]:
            assert value == pytest.approx(float(row[column])), column
    assert 0.9 * float(row["mem_gb"]) * 1e9 < content["memory_bytes"] < float(row["mem_gb"]) * 2**30
    if row["nic_GBps_per_dev_typical"]:
        out = device.fabric[-1]
        ports = out.get("ports_per_node", device.devices_per_node)
        a_device, a_port = out["bytes_per_s_per_device"], out["bytes_per_s_per_device"] * device.devices_per_node / ports
        assert pytest.approx(float(row["nic_GBps_per_dev_typical"]) * 1e9, rel=0.03) in (a_device, a_port)
