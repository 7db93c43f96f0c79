"""What fits and what a reading was: threads with an observed outcome. Assumed values stand in each test."""

from __future__ import annotations

from typing import Any

import pytest

from tests.user_cases.asking import GIB, Ask, dense, devices, gpt, question

LLAMA_2_70B = {"preset": "llama-2-70b"}


def qwen25_32b() -> dict[str, Any]:
    """Qwen2.5-32B: 64 layers, biases on query, key and value."""
    model = dense(64, 5120, 40, 27648, 152064, kv_heads=8)
    model["transformer"]["blocks"][0]["attention"] |= {"head_dim": 128, "bias": True, "output_bias": False}
    return model


@pytest.mark.parametrize(
    ("nodes", "length", "verdict"), [(1, 20_000, "does_not_fit"), (2, 20_000, "ok"), (2, 32_768, "does_not_fit")]
)
def test_thirty_two_billion_parameters_on_one_and_two_nodes(ask: Ask, nodes: int, length: int, verdict: str) -> None:
    """simplescaling/s1#13, #25, #106 (A14): full fine-tuning, FSDP full shard, fp32 states, 8 and 16 H100.

    Assumed: one sequence a device, all layers recomputed, a cross entropy of 6 bytes a logit (with 14, an eager one, two nodes
    at 20 k would be refused too).
    """
    problem = question(
        qwen25_32b(), devices("H100-SXM5-80", 8 * nodes), length, 8 * nodes, "accelerate", kernels={"loss": "fused"}
    )
    assert ask(problem, dp=8 * nodes, zero=3, recompute="full").verdict == verdict


def consumer_nodes() -> dict[str, Any]:
    kinds = (("small", "RTX3080-10"), ("large", "RTX4090-24"))
    return {"groups": [{"name": name, "device": device, "nodes": 2, "devices_per_node": 2} for name, device in kinds]}


@pytest.mark.parametrize("words", [{"pp": 8}, {"tp": 2, "pp": 4}, {"pp": 4, "dp": 2, "zero": 1}])
def test_two_kinds_of_consumer_devices(ask: Ask, words: dict[str, int]) -> None:
    """NVIDIA/Megatron-LM#1757 (A15): Llama-7B, AdamW, 2 nodes of 2 x 3080 (10 GB) and 2 x 4090 (24 GB): no even layout fits
    the 10 GB devices. Assumed: 2,048 tokens, all layers recomputed."""
    problem = question({"preset": "llama-2-7b"}, consumer_nodes(), 2048, 64)
    answer = ask(problem, groups=["small", "large"], recompute="full", **words)
    assert answer.verdict == "does_not_fit"
    assert {stage["group"] for stage in answer.stages if stage["verdict"] == "no"} == {"small"}


def test_what_fits_two_kinds_of_consumer_devices(ask: Ask) -> None:
    """The same with stages by kind and the optimizer in host memory: what would fit."""
    problem = question({"preset": "llama-2-7b"}, consumer_nodes(), 2048, 64, optimizer={"main_gradient": "bf16"})
    answer = ask(problem, groups=["small", "large"], pp=8, recompute="full", offload_optimizer=1.0)
    assert answer.verdict == "ok"
    assert all(stage["host"] > 0 for stage in answer.stages)


def test_seventy_billion_parameters_on_128(ask: Ask) -> None:
    """NVIDIA/Megatron-LM#1031 (A22): TP8 PP2 dies, TP8 PP8 with recompute runs, slower a device than 768 GPUs with TP8 PP2.

    Assumed: no distributed optimizer on 128 devices, 4,096 tokens, one sequence a micro-batch, batch 512 and 3,072.
    """
    place = devices("H100-SXM5-80", 128)
    dead = ask(question(LLAMA_2_70B, place, 4096, 512), tp=8, pp=2, dp=8, zero=0)
    runs = ask(question(LLAMA_2_70B, place, 4096, 512), tp=8, pp=8, dp=2, zero=0, recompute="full")
    published = ask(question(LLAMA_2_70B, devices("H100-SXM5-80", 768), 4096, 3072), tp=8, pp=2, dp=48, zero=1)
    assert [answer.verdict for answer in (dead, runs, published)] == ["does_not_fit", "ok", "ok"]
    assert published.prediction["mfu"] > 1.2 * runs.prediction["mfu"]
    bubble, ideal = (
        answer.prediction["time_breakdown_s"]["bubble"] / answer.prediction["step_time_s"] for answer in (runs, published)
    )
    assert bubble > ideal


def test_estimate_and_reading_of_llama_2_7b(ask: Ask) -> None:
    """NVIDIA/Megatron-LM PR#482: bf16, b 2, B 2048, 16 GPUs, DP8 PP2: 69.1 GB real.

    Assumed: 4,096 tokens, an eager SwiGLU (Megatron-LM of 2023), distributed optimizer.
    """
    problem = question({"preset": "llama-2-7b"}, devices("A100-SXM4-80", 16), 4096, 2048, kernels={"glu": "eager"})
    assert ask(problem, pp=2, dp=8, mbs=2).worst("device") / 1e9 == pytest.approx(69.1, rel=0.03)


def test_estimate_and_snapshot_of_sixteen_billion(ask: Ask) -> None:
    """FlagOpen/FlagScale PR#454: 16 B, TP4 with sequence parallelism: weights and optimizer 46,983 MB, activations 8,989 MB.

    Assumed: 48 layers of width 5,120 and 13,312, vocabulary 100,008; two replicas (12 bytes a parameter in all), 4,096 tokens.
    """
    problem = question(dense(48, 5120, 40, 13312, 100008), devices("A100-SXM4-80", 8), 4096, 64)
    answer = ask(problem, tp=4, dp=2)
    states = sum(answer.item(name) for name in ("weights", "gradients", "optimizer"))
    assert states / 1e6 == pytest.approx(46_983, rel=0.03)
    assert (answer.worst("allocated") - states) / 1e6 == pytest.approx(8_989, rel=0.03)


def test_estimate_and_reading_of_seven_billion(ask: Ask) -> None:
    """aliyun/aicb PR#36: 7 B, TP8, 32 GPUs: 1.92 GB of weights, 11.52 GB of optimizer, 21 GB real.

    Assumed: a GPT of 36 layers (it has the 1.92 GB), no distributed optimizer, one sequence of 2,048 tokens.
    """
    problem = question(gpt(36, 4096, 32, 50257), devices("A100-SXM4-80", 32), 2048, 32)
    answer = ask(problem, tp=8, dp=4, zero=0)
    assert answer.item("weights") / 1e9 == pytest.approx(1.92, rel=0.01)
    assert answer.item("optimizer") / 1e9 == pytest.approx(11.52, rel=0.01)
    assert answer.worst("device") / 1e9 == pytest.approx(21, rel=0.05)


@pytest.mark.parametrize(
    ("words", "read_gib"),
    [
        ({"dp": 8, "mbs": 2}, 81.85),
        ({"tp": 8, "dp": 4, "mbs": 16}, 43.45),
        ({"tp": 8, "dp": 4, "mbs": 32}, 70.79),
        ({"tp": 8, "dp": 4, "mbs": 64}, None),
    ],
)
def test_qwen3_32b_with_fsdp(ask: Ask, words: dict[str, int], read_gib: float | None) -> None:
    """pytorch/torchtitan PR#1690: H100 of 95 GB, full recompute, compiled; the last one died. Assumed: 4,096 tokens."""
    place = devices("H100-SXM5-96", 8 if "tp" not in words else 32)
    answer = ask(question({"preset": "qwen3-32b"}, place, 4096, 256, "torchtitan"), zero=3, recompute="full", **words)
    if read_gib is None:
        assert answer.verdict == "does_not_fit"
    else:
        assert answer.verdict == "ok"
        assert answer.worst("reserved") / GIB == pytest.approx(read_gib, rel=0.06)


@pytest.mark.parametrize("words", [{"tp": 8, "zero": 2}, {"tp": 4, "pp": 2, "zero": 1}])
def test_seventy_billion_parameters_on_32(ask: Ask, words: dict[str, int]) -> None:
    """hpcaitech/ColossalAI#5139, #5068: 70 B on 32 A100 dies with tp 8 ZeRO 2 and with tp 4 pp 2 ZeRO 1.

    Assumed: 80 GB, 4,096 tokens, one sequence, no sequence parallelism, no recompute.
    """
    problem = question(LLAMA_2_70B, devices("A100-SXM4-80", 32), 4096, 32)
    assert ask(problem, dp=4, sequence_parallel=False, **words).verdict == "does_not_fit"


@pytest.mark.parametrize(("host_bytes", "verdict"), [(100e9, "does_not_fit"), (128e9, "ok")])
@pytest.mark.parametrize("zero", [2, 3])
def test_offload_needs_host_memory(ask: Ask, host_bytes: float, verdict: str, zero: int) -> None:
    """deepspeedai/DeepSpeed#3982 and others: 6 B on 4 A40 with 100 GB of host memory; Adam alone takes 16 bytes a parameter.

    Assumed: GPT-J's sizes, 2,048 tokens, one sequence.
    """
    place = devices("A40-48", 4, 4, host={"memory_bytes": host_bytes})
    problem = question(gpt(28, 4096, 16, 50400), place, 2048, 16, "deepspeed")
    answer = ask(problem, dp=4, zero=zero, offload_optimizer=1.0, recompute="full")
    assert answer.stages[0]["host"] == pytest.approx(16 * 6.05e9, rel=0.02)
    assert answer.verdict == verdict


def test_thirty_billion_parameters_with_lion(ask: Ask) -> None:
    """mosaicml/llm-foundry#437: MPT-30B with Lion: 12 bytes a parameter are 360 GB, so 24 V100 of 16 GB or more."""
    model = gpt(48, 7168, 64, 50432, tied_embeddings=True)
    for count in (16, 24, 32):
        problem = question(
            model, devices("V100-SXM2-16", count), 2048, count, "llm-foundry", precision="fp16", optimizer={"name": "lion"}
        )
        answer = ask(problem, dp=count, zero=3, recompute="full")
        states = sum(answer.item(name) for name in ("weights", "gradients", "optimizer"))
        assert states * count == pytest.approx(360e9, rel=0.01)
        assert (states < answer.stages[0]["limit"]) == (count >= 24)


def test_experts_under_zero_two(ask: Ask) -> None:
    """QwenLM/Qwen3-VL#2053 (A21): 30B-A3B dies at the optimizer step under ZeRO-2, every GPU keeps 61 GB of weights; ZeRO-3 fits.

    Assumed: the language part alone, 4,096 tokens, 32 H100, all layers recomputed.
    """
    problem = question(
        {"preset": "qwen3-30b-a3b"}, devices("H100-SXM5-80", 32), 4096, 32, "deepspeed", optimizer={"main_gradient": "bf16"}
    )
    two, three = (ask(problem, dp=32, zero=zero, recompute="full") for zero in (2, 3))
    assert two.item("weights") > 61e9
    assert (two.verdict, three.verdict) == ("does_not_fit", "ok")


def test_long_sequences_need_context_parallelism(ask: Ask) -> None:
    """princeton-nlp/ProLong#10, axolotl#1972: 64 k tokens of Llama-3-8B die on 4 A800, fully sharded.

    Assumed: bf16 gradients.
    """
    problem = question(
        {"preset": "llama-3.1-8b"}, devices("A800-SXM4-80", 4, 4), 65536, 4, "accelerate", optimizer={"main_gradient": "bf16"}
    )
    sharded, cut = (ask(problem, zero=3, recompute="full", **words) for words in ({"dp": 4}, {"cp": 4, "dp": 1}))
    assert (sharded.verdict, cut.verdict) == ("does_not_fit", "ok")


def test_fourteen_billion_parameters_over_four(ask: Ask) -> None:
    """skypilot-org/skypilot PR#10269: 14 B at TP4 with 16 bytes a parameter takes about 56 of 80 GB.

    Assumed: Qwen2.5-14B's sizes, bf16 gradients (2 + 2 + 12 bytes).
    """
    model = dense(48, 5120, 40, 13824, 152064, kv_heads=8)
    problem = question(model, devices("H100-SXM5-80", 4, 4), 4096, 8, optimizer={"main_gradient": "bf16"})
    answer = ask(problem, tp=4, dp=1, zero=0, recompute="full")
    states = sum(answer.item(name) for name in ("weights", "gradients", "optimizer"))
    assert states == pytest.approx(16 * 14.77e9 / 4, rel=0.01)
    assert answer.worst("device") / 1e9 == pytest.approx(59, rel=0.1)
