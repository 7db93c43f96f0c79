"""Rows as problems and layouts."""

from __future__ import annotations

import pytest

from solver.errors import InvalidProblem
from solver.evaluate import Evaluator
from solver.validate import Case, Constants, Harness, Refused, case_of, measured_step, parse_rows
from solver.validate.machines import catalogue_device, stated_rate
from tests.solver.validate import sample_rows as samples

KINDS = {
    "dense": samples.DENSE,
    "fully_sharded": samples.FULLY_SHARDED,
    "experts": samples.EXPERTS,
    "context": samples.CONTEXT,
    "unfused": samples.UNFUSED,
    "unlike": samples.UNLIKE,
}


def cases(*changes: dict[str, str]) -> list[Case]:
    return [case_of(row) for row in parse_rows(samples.document(*changes))]


@pytest.mark.parametrize("kind", KINDS)
def test_batched_prediction_is_the_evaluation(kind: str) -> None:
    found = cases(samples.DENSE, KINDS[kind], {**KINDS[kind], "gbs": "128"})
    seconds = Harness(found).predict()
    for case, predicted in zip(found, seconds, strict=True):
        assert predicted == pytest.approx(Evaluator(case.problem).plan(case.layout).prediction.step_time_s, rel=1e-12)


def test_blank_cells_mean_what_the_design_says() -> None:
    (row,) = parse_rows(samples.document(samples.UNFUSED))
    assert (row.zero_stage, row.sp, row.cp, row.ep, row.flash_attn) == (0, 0, 1, 1, 0)
    case = case_of(row)
    assert case.problem.workload.kernels.attention == "unfused"
    (blank,) = parse_rows(samples.document({"recompute": "see notes", "mbs": "unstated", "vpp": "", "pp": "1", "dp": "4"}))
    assert (blank.recompute, blank.mbs, blank.vpp) == (None, None, 1)


def test_columns_are_overridden_and_blanked() -> None:
    text = samples.document(samples.DENSE)
    assert parse_rows(text, {"mbs": "4"})[0].mbs == 4
    assert parse_rows(text, {"mbs": ""})[0].mbs is None
    with pytest.raises(InvalidProblem) as caught:
        parse_rows(text, {"mbsize": "4"})
    assert caught.value.errors[0].pointer == "/mbsize"


def test_cells_of_another_kind_are_named() -> None:
    rows = parse_rows(samples.document({"tp": "two"}, {"gbs": "1.5"}, {"pp": "0"}, {"params_b": "nan"}, samples.DENSE))
    assert [(row.fault or "").split(" ")[0] for row in rows] == ["tp", "gbs", "pp", "params_b", ""]


@pytest.mark.parametrize("text", ["nan", "-1", "inf", "about 3"])
def test_measured_cells_that_are_no_measurement_count_as_blank(text: str) -> None:
    bad = {"step_time_s": text, "tokens_s_gpu": text, "tflops_gpu": text, "peak_mem_gb": text}
    (row,) = parse_rows(samples.document(bad))
    assert (row.fault, row.step_time_s, row.peak_mem_gb) == (None, None, None)
    assert all(name in (row.doubt or "") for name in bad)
    assert case_of(row).document == cases(samples.DENSE)[0].document


def test_documents_of_other_programs_are_read() -> None:
    text = samples.document({"notes": "one\u2028two\x0cthree"}, samples.DENSE)
    rows = parse_rows("\ufeff" + text.replace("\n", "\r\n"))
    assert [row.row_id for row in rows] == ["row-0", "row-1"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (samples.FINE_TUNED, "lora"),
        (samples.UNSTATED, "mbs, recompute"),
        ({"gpu": "Abacus-1"}, "Abacus-1"),
        ({"dp": "3"}, "is not 8 devices"),
        ({"heads": "13"}, "heads"),
        ({"seq_len": ""}, "seq_len"),
    ],
)
def test_rows_that_say_too_little_are_refused_with_the_reason(changes: dict[str, str], words: str) -> None:
    (row,) = parse_rows(samples.document(changes))
    with pytest.raises(Refused, match=words):
        case_of(row)


def test_measured_columns_ids_and_notes_change_nothing() -> None:
    loud = {"step_time_s": "99", "peak_mem_gb": "3", "mem_kind": "x", "notes": "eager", "source_id": "other", "status": "oom"}
    first, second = cases(samples.DENSE, {**loud, "row_id": "another"})
    assert first.document == second.document
    assert first.layout == second.layout


def test_network_comes_from_the_interconnect_text() -> None:
    eight_ports = {"gpus": "16", "dp": "4", "interconnect": "4x100 Gb/s Ethernet per node"}
    case, known, other = cases(eight_ports, {**eight_ports, "interconnect": "Selene"}, {**eight_ports, "interconnect": "x"})
    network = case.problem.cluster.groups[0].fabric[-1]
    assert (network.bytes_per_s_per_device, network.ports_per_node) == (6.25e9, 4)
    assert known.cluster_name == "selene"
    assert known.problem.cluster.groups[0].fabric[-1].bytes_per_s_per_device == 2.5e10
    assert any("network not understood" in note for note in other.notes)


@pytest.mark.parametrize(
    ("text", "rate", "ports"),
    [
        ("EFA 3200 Gbps/node", 5.0e10, 8),
        ("3.2 Tb/s per server", 5.0e10, 8),
        ("8x NDR400 Gb/s", 5.0e10, 8),
        ("4 x 200G InfiniBand", 1.25e10, 4),
        ("25 GB/s per node", 3.125e9, 8),
    ],
)
def test_units_of_published_networks(text: str, rate: float, ports: int) -> None:
    assert stated_rate(text, 8) == (rate, ports)


@pytest.mark.parametrize("text", ["", "HDR InfiniBand", "100GbE", "NVLink 900 GB/s; 8x H100"])
def test_networks_without_a_rate_of_a_node_are_not_guessed(text: str) -> None:
    assert stated_rate(text, 8) is None


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("NVIDIA H100 80G HBM3 SXM5", "H100-SXM5-80"),
        ("A100-40G", "A100-SXM4-40"),
        ("A100 SXM", "A100-SXM4-80"),
        ("AMD MI300X", "MI300X-192"),
        ("B200-192GB", "B200-SXM-180"),
    ],
)
def test_published_names_of_devices(text: str, device: str) -> None:
    notes: list[str] = []
    assert catalogue_device(text, notes).name == device
    assert notes == [f"{text} taken as {device}"]


@pytest.mark.parametrize("text", ["H100-92GB", "GH200", "A100-123GB", "GPU", "H20"])
def test_names_of_several_devices_are_refused(text: str) -> None:
    with pytest.raises(Refused):
        catalogue_device(text, [])


@pytest.mark.parametrize(
    ("framework", "sharding", "profile"),
    [
        ("HF Accelerate (FSDP)", "fsdp", "accelerate"),
        ("Transformers + DeepSpeed", "zero3", "deepspeed"),
        ("Transformers", "FSDP full shard", "fms-fsdp"),
        ("Megatron-LM (core r0.7)", "dist-optimizer", "megatron-core"),
        ("Megatron-LM", "ddp", "megatron-lm-2021"),
    ],
)
def test_published_names_of_frameworks(framework: str, sharding: str, profile: str) -> None:
    (case,) = cases({"framework": framework, "sharding": sharding, "zero_stage": "3" if "megatron" not in profile else "1"})
    assert case.profile == profile


def test_unlike_devices_are_two_groups() -> None:
    (case,) = cases(samples.UNLIKE)
    assert case.devices == ("A100-SXM4-80", "H100-SXM5-80")
    with pytest.raises(Refused, match="which kind"):
        cases({**samples.UNLIKE, "gpu": "8x A100 + H100"})


def test_constants_of_a_device_touch_its_rows_only() -> None:
    found = cases(samples.DENSE, {"gpu": "H100"})
    harness = Harness(found)
    shipped = harness.predict()
    slower = harness.predict(Constants(devices={"H100-SXM5-80": {"gemm_efficiency": 0.2}}))
    assert slower[0] == shipped[0]
    assert slower[1] > 1.5 * shipped[1]
    later = harness.predict(Constants(profiles={found[1].profile: {"step_overhead_s": 1.0}}), only=[1])
    assert later[1] > shipped[1] + 0.9
    assert later[0] != later[0], "left out"


def test_measured_seconds_by_column_and_convention() -> None:
    step, tokens, flops, none = parse_rows(
        samples.document(samples.DENSE, samples.TOKENS_ONLY, samples.FLOPS_ONLY, samples.OUT_OF_MEMORY)
    )
    assert measured_step(step).step_s == 2.5
    assert measured_step(tokens).step_s == pytest.approx(64 * 2048 / (6000 * 8))
    products = 24 * (4 * 2048**2 + 2 * 2048 * 8192) + 51200 * 2048
    per_token = 6 * products + 12 * 24 * 2048 * 2048
    assert measured_step(flops).step_s == pytest.approx(64 * 2048 * per_token / (120e12 * 8))
    assert measured_step(none).step_s is None
