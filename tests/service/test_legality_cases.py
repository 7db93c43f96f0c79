"""Public threads about legality, answered by `planner evaluate` for Megatron-core: verdict, rule, nearest legal values.

Where a thread states no length, batch or cluster, the values here are assumed and marked so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from planner_service.cli import commands

H100 = "H100-SXM5-80"
QWEN2_5_7B = {"repeat": 28, "attention": {"kind": "softmax", "heads": 28, "kv_heads": 4, "head_dim": 128, "bias": True},
              "mlp": {"kind": "dense", "hidden_size": 18944}}  # fmt: skip


def dense(layers: int, heads: int = 32, kv_heads: int = 8, ffn: int = 14336, hidden: int = 4096, **more: Any) -> dict[str, Any]:
    """A dense model by its sizes."""
    attention = {"kind": "softmax", "heads": heads, "kv_heads": kv_heads, "head_dim": 128}
    block = {"repeat": layers, "attention": attention, "mlp": {"kind": "dense", "hidden_size": ffn}}
    return {"transformer": {"hidden_size": hidden, "vocab_size": 32000, "blocks": [block], **more}}


def experts(layers: int, count: int, ffn: int, heads: int, kv_heads: int, hidden: int, top_k: int = 8) -> dict[str, Any]:
    """A model whose every layer has experts."""
    attention = {"kind": "softmax", "heads": heads, "kv_heads": kv_heads, "head_dim": 128}
    mlp = {"kind": "moe", "hidden_size": ffn, "experts": count, "top_k": top_k}
    return {
        "transformer": {
            "hidden_size": hidden, "vocab_size": 151936, "blocks": [{"repeat": layers, "attention": attention, "mlp": mlp}]
        }
    }  # fmt: skip


@pytest.fixture
def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> Any:
    """Exit code and document of `planner evaluate --json` in this process. Assumed unless given: 4,096 tokens, gbs 64."""
    monkeypatch.delenv("PLANNER_URL", raising=False)

    def run(
        model: dict[str, Any], layout: dict[str, Any], devices: int = 8, gbs: int = 64, tokens: int = 4096, **fields: Any
    ) -> tuple[int, dict[str, Any]]:
        per_node = min(devices, 8)
        group = {"name": "g", "device": fields.pop("device", H100), "nodes": devices // per_node, "devices_per_node": per_node}
        workload = {"sequence_lengths": {"constant": tokens}, "global_batch": {"sequences": gbs}, **fields.pop("workload", {})}
        framework = {"name": "megatron-core", "version": fields.pop("version", "latest-known")}
        problem = {"model": model, "workload": workload, "cluster": {"groups": [group]}, "framework": framework}
        (tmp_path / "problem.json").write_text(json.dumps(problem))
        (tmp_path / "layout.json").write_text(json.dumps(layout))
        paths = [str(tmp_path / name) for name in ("problem.json", "layout.json")]
        monkeypatch.setattr(sys, "argv", ["planner", "evaluate", *paths, "--json"])
        with pytest.raises(SystemExit) as ended:
            commands.main()
        out, errors = capfdbinary.readouterr()
        assert out, errors
        return ended.value.code, json.loads(out)

    return run


def broken(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Violations that forbid, by rule."""
    return {found["rule"]: found for found in document["violations"] if found["severity"] != "changed"}


def changed(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the framework changes and says so, by rule."""
    return {found["rule"]: found for found in document["violations"] if found["severity"] == "changed"}


def test_a01_thirty_layers_on_four_stages(evaluated: Any) -> None:
    """NVIDIA/Megatron-LM#1304. Assumed: widths of an 8B model, 32 devices, dp 1."""
    code, document = evaluated(dense(30), {"pp": 4, "dp": 1}, devices=32)
    assert (code, document["verdict"]) == (2, "illegal")
    (violation,) = broken(document).values()
    assert (violation["rule"], violation["severity"]) == ("MC14", "refused")
    assert violation["fires"] == ["arguments", "build"]
    assert violation["nearest"]["layers_per_stage"] == [7, 8, 8, 7]
    assert set(violation["nearest"]["pp"]) <= {1, 2, 3, 5, 6, 10, 15, 30}
    old = broken(evaluated(dense(30), {"pp": 4, "dp": 1}, devices=32, version="0.10")[1])["MC14"]
    assert old["severity"] == "silently_changed"


def written_out(counts: list[int]) -> dict[str, Any]:
    """A layout of one device a stage, with these layers on the stages."""
    stages = []
    for index, count in enumerate(counts):
        first = sum(counts[:index])
        holds = ["embedding"] * (index == 0) + ["head"] * (index == len(counts) - 1)
        shard = {name: {"replicate": 1, "shard": 1} for name in ("parameters", "gradients", "optimizer")}
        part = {
            "devices": [{"group": "g", "first": index, "count": 1}],
            "ranks": [[index, index]],
            "mesh": [{"axis": "dp", "size": 1, "stride": 1}],
            "share": 1.0,
            "micro_batches": 64,
        }
        strategy = {"sequence_parallel": False, "shard": shard, "recompute": {"kind": "none"}}
        stages.append({"chunks": [[first, first + count - 1]], "holds": holds, "parts": [part], "strategy": strategy})
    return {"modules": [{"stages": stages}], "mbs": 1, "gradient_sync": {"kind": "all_reduce", "overlap": True},
            "idle_devices": [{"group": "g", "first": len(counts), "count": 8 - len(counts)}],
            "sequence_policy": "packed_static_cp"}  # fmt: skip


@pytest.mark.parametrize("counts", [[3, 4], [4, 3]])
def test_a02_seven_layers_on_two_stages(evaluated: Any, counts: list[int]) -> None:
    """NVIDIA/Megatron-LM#381: first 3, last 4 is valid, in every release. Assumed: widths of a 1B model."""
    model = dense(7, 16, 16, 8192, 2048)
    assert "MC14" in broken(evaluated(model, {"pp": 2, "dp": 1})[1])
    for version in ("latest-known", "0.10"):
        code, document = evaluated(model, written_out(counts), version=version)
        assert (code, broken(document)) == (0, {}), document["violations"]
    assert document["plan"]["prediction"]["step_time_s"] > 0


def test_a03_forty_six_layers_on_four_stages(evaluated: Any) -> None:
    """modelscope/ms-swift#5737: GLM-4.5-Air, TP8 PP4 EP16 ETP1, b 2, B 16. Assumed: 64 devices."""
    model = experts(46, 128, 1408, 96, 8, 4096)
    code, document = evaluated(model, {"tp": 8, "pp": 4, "ep": 16, "mbs": 2, "dp": 2}, devices=64, gbs=16)
    assert code == 2
    assert broken(document)["MC14"]["nearest"]["layers_per_stage"] == [11, 12, 12, 11]
    # W is a multiple of lcm(TP PP, ETP EP PP) = 64: 32 devices are refused by the expert grid.
    assert "MC02" in broken(evaluated(model, {"tp": 8, "pp": 4, "ep": 16, "mbs": 2, "dp": 1}, devices=32, gbs=16)[1])
    # B 16 at b 2: dp divides 8.
    assert "MC09" in broken(evaluated(model, {"tp": 8, "mbs": 2, "dp": 3}, devices=24, gbs=16)[1])


def test_a04_twenty_eight_heads_over_eight(evaluated: Any) -> None:
    """PKU-DAIR/Hetu-Galvatron#5: Qwen2.5-7B on 8 GPUs; 7, 14, 28 fail on key/value heads or the feed-forward."""
    model = {"transformer": {"hidden_size": 3584, "vocab_size": 152064, "blocks": [QWEN2_5_7B]}}
    code, document = evaluated(model, {"tp": 8})
    assert code == 2
    assert broken(document)["MC05"]["nearest"]["tp"] == [1, 2, 4]
    for tp, rule in ((7, "MC06"), (14, "MC06"), (28, "MC51")):
        assert rule in broken(evaluated(model, {"tp": tp, "dp": 1}, devices=56)[1])


def test_a07_padded_vocabulary(evaluated: Any) -> None:
    """NVIDIA/Megatron-LM#1754: 50257 becomes 50304 at tp 1 and 50432 at tp 2; a legal layout says so. Assumed: the widths."""
    model = dense(8, 16, 16, 8192, 2048, vocab_size=50257)
    for tp, padded in ((1, 50304), (2, 50432)):
        code, document = evaluated(model, {"tp": tp})
        assert (code, document["verdict"]) == (0, "ok")
        assert changed(document)["MC08"]["nearest"] == {"padded_vocab_size": padded}
        assert changed(document)["MC08"]["fires"] == ["arguments"]


@pytest.mark.parametrize(("micro_batches", "legal"), [(3, False), (6, True), (7, False), (12, True)])
def test_a09_interleaving_needs_micro_batches(evaluated: Any, micro_batches: int, legal: bool) -> None:
    """NVIDIA-NeMo/Speech#14288: PP 6, V > 1, M 3 fails at the first step; 6 is the smallest. Assumed: 24 layers, V 2."""
    model = dense(24, 16, 16, 8192, 2048)
    _, document = evaluated(model, {"pp": 6, "vpp": 2, "dp": 1}, gbs=micro_batches)
    assert ("MC21" not in broken(document)) == legal
    if not legal:
        assert broken(document)["MC21"]["fires"] == ["first_step"]
        assert min(broken(document)["MC21"]["nearest"]["micro_batches"]) == 6


@pytest.mark.parametrize("devices", [4, 8])
def test_a10_expert_grid(evaluated: Any, devices: int) -> None:
    """NVIDIA-NeMo/Megatron-Bridge#546: Qwen3-30B-A3B, TP4 EP4 on 8 or 4 GPUs: ETP 4 needs 16, ETP 1 needs 4."""
    model = experts(48, 128, 768, 32, 4, 2048)
    code, document = evaluated(model, {"tp": 4, "ep": 4, "etp": 4}, devices=devices)
    assert code == 2
    assert broken(document)["MC02"]["fires"] == ["build"]
    assert 1 in broken(document)["MC02"]["nearest"]["etp"]
    _, document = evaluated(model, {"tp": 4, "ep": 4}, devices=devices)
    assert broken(document) == {}
    mesh = document["plan"]["layout"]["modules"][0]["stages"][0]["parts"][0]["expert_mesh"]
    assert "etp" not in {entry["axis"] for entry in mesh}


@pytest.mark.parametrize(("tp", "cp", "multiple", "heads"), [(4, 2, 8, 32), (3, 4, 24, 24), (8, 8, 64, 32)])
def test_a13_sequences_are_cut_for_both(evaluated: Any, tp: int, cp: int, multiple: int, heads: int) -> None:
    """NVIDIA-NeMo/RL#3563: pad to lcm(2 CP, CP TP). Assumed: packs of 32 to 2,000 tokens in rows of 4,800 multiples."""
    model = dense(8, heads, heads, 3072, 3072)
    devices = tp * cp
    good, bad = multiple * 100, multiple * 100 + multiple // 2
    group = {"devices": 8 * -(-devices // 8)}
    assert broken(evaluated(model, {"tp": tp, "cp": cp, "dp": 1}, tokens=good, **group)[1]) == {}
    found = broken(evaluated(model, {"tp": tp, "cp": cp, "dp": 1}, tokens=bad, **group)[1])
    (violation,) = [found[rule] for rule in ("MC11", "MC10") if rule in found][:1]
    assert violation["nearest"]["sequence_multiple"] == multiple
    assert violation["nearest"]["max_sequence_length"] == [good, good + multiple]
    lengths = {"sequence_lengths": {"counts": [[32, 9], [good, 1]]}, "batching": "packed"}
    _, document = evaluated(model, {"tp": tp, "cp": cp, "dp": 1}, workload=lengths, **group)
    assert changed(document)["MC11-documents"]["nearest"]["sequence_multiple"] == multiple


def test_a19_deepseek_v3_has_sixty_one_layers_and_one_more(evaluated: Any) -> None:
    """deepseek-ai/DeepSeek-V3#19, Megatron-LM PR#2280: 61 layers and one prediction layer, TP2 PP16 EP64 on 1,024 GPUs: PP16
    V2 needs a layout string, which the nearest split fills with 61. Assumed: gbs 8192, b 1."""
    model = {"preset": "deepseek-v3"}
    code, document = evaluated(model, {"tp": 2, "pp": 16, "vpp": 2, "ep": 64, "dp": 32}, devices=1024, gbs=8192)
    assert code == 2
    assert set(broken(document)) == {"MC14"}
    assert sum(broken(document)["MC14"]["nearest"]["layers_per_stage"]) == 61
    assert len(broken(document)["MC14"]["nearest"]["layers_per_stage"]) == 32


def test_key_value_heads_are_replicated(evaluated: Any) -> None:
    """pytorch/torchtitan PR#2577, the Megatron half: two key/value heads at TP 4 are legal from 0.16, refused before."""
    model = dense(8, 16, 2, 4096, 2048)
    assert broken(evaluated(model, {"tp": 4})[1]) == {}
    assert set(broken(evaluated(model, {"tp": 4}, version="0.15")[1])) == {"MC06"}


def test_experts_at_tp_need_sequence_parallel(evaluated: Any) -> None:
    """NVIDIA/Megatron-LM#1587: refused at the first forward pass, legal with sequence parallel."""
    model = experts(8, 64, 768, 16, 4, 2048)
    _, document = evaluated(model, {"tp": 2, "ep": 4, "sequence_parallel": False})
    assert set(broken(document)) == {"MC23"}
    assert broken(document)["MC23"]["fires"] == ["first_step"]
    assert broken(evaluated(model, {"tp": 2, "ep": 4})[1]) == {}


def test_context_and_expert_parallel_go_together(evaluated: Any) -> None:
    """NVIDIA/Megatron-LM#1459: folded; ep may exceed dp. Assumed: cp 4, ep 8 on 8 GPUs, dp 2."""
    model = experts(8, 64, 768, 16, 4, 2048)
    code, document = evaluated(model, {"cp": 4, "ep": 8, "dp": 2}, tokens=8192)
    assert (code, broken(document)) == (0, {})


def test_twenty_five_heads(evaluated: Any) -> None:
    """hpcaitech/ColossalAI#116, asked of Megatron: GPT-2 XL's 25 heads at TP 4. Assumed: 8 layers, 4,000 tokens."""
    code, document = evaluated(dense(8, 25, 25, 6400, 1600), {"tp": 4, "dp": 1}, tokens=4000)
    assert code == 2
    assert broken(document)["MC05"]["nearest"]["tp"] == [1, 5]


def test_six_gpu_nodes(evaluated: Any) -> None:
    """facebookresearch/metaseq#209: 96 heads at TP 6 are legal on heads; feed-forward and vocabulary too. Assumed: 4,200."""
    model = dense(8, 96, 96, 49152, 12288, vocab_size=50272)
    _, document = evaluated(model, {"tp": 6, "dp": 1}, tokens=4200)
    assert broken(document) == {}
    assert changed(document)["MC08"]["nearest"]["padded_vocab_size"] % (128 * 6) == 0
    assert "MC51" in broken(evaluated(dense(8, 96, 96, 49153, 12288), {"tp": 6, "dp": 1})[1])


def test_world_size_and_pipeline(evaluated: Any) -> None:
    """hpcaitech/ColossalAI#6202, asked of Megatron: 8 devices at pp 3 use six at most; dp 3 needs more than there are."""
    _, document = evaluated(dense(9, 16, 16, 4096, 2048), {"pp": 3, "dp": 3}, gbs=63)
    assert 2 in broken(document)["MC01"]["nearest"]["dp"]


def test_biased_experts_need_etp_one(evaluated: Any) -> None:
    """NVIDIA-NeMo/Speech#14838: gpt-oss on few GPUs, where ETP silently follows TP. Assumed: 8 layers, 32 experts, 8 GPUs."""
    model = experts(8, 32, 2880, 64, 8, 2880, top_k=4)
    block = model["transformer"]["blocks"][0]
    block["mlp"]["bias"] = True
    block["attention"] |= {"head_dim": 64, "bias": True}
    _, document = evaluated(model, {"tp": 2, "ep": 4, "etp": 2})
    assert broken(document)["MC25"]["nearest"]["etp"] == [1]
    assert broken(evaluated(model, {"tp": 2, "ep": 4})[1]) == {}
    assert "MC25" in broken(evaluated(model, {"tp": 2, "ep": 4}, version="0.14")[1])
