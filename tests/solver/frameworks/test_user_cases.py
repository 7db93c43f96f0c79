"""What people got stuck on (public threads, named in the docstrings): the rule that answers each and the nearest legal values."""

from __future__ import annotations

from typing import Any

import pytest

from solver.frameworks import get_rule_set
from solver.layout import UniformLayout
from solver.plan import Violation
from solver.problem import Problem
from tests.solver.frameworks.problems import moe, problem, qwen2_5_7b, qwen3_30b_a3b, uniform_model

MEGATRON = get_rule_set("megatron-core")
ANY = get_rule_set("any")


def broken(asked: Problem, **words: Any) -> dict[str, Violation]:
    return {found.rule: found for found in MEGATRON.violations(asked, UniformLayout(**words))}


def test_thirty_layers_on_four_stages() -> None:
    """NVIDIA/Megatron-LM#1304: layers were dropped silently."""
    found = broken(problem(uniform_model(30), nodes=4), pp=4, dp=1)
    assert set(found) == {"MC14"}
    assert found["MC14"].nearest["layers_per_stage"] == [7, 8, 8, 7]
    assert found["MC14"].nearest["pp"] == [1, 2, 3, 5, 6, 10, 15, 30]
    assert ANY.violations(problem(uniform_model(30), nodes=4), UniformLayout(pp=4, dp=1)) == ()


def test_seven_layers_on_two_stages_can_be_split() -> None:
    """NVIDIA/Megatron-LM#381."""
    found = broken(problem(uniform_model(7)), pp=2, dp=1)
    assert found["MC14"].nearest["layers_per_stage"] in ([3, 4], [4, 3])


def test_forty_six_layers_on_four_stages() -> None:
    """modelscope/ms-swift#5737: GLM-4.5-Air, TP8 PP4 EP16 ETP1, b 2, B 16."""
    model = moe(46, 128, 1408, heads=96, kv_heads=8)
    found = broken(problem(model, nodes=8, rows=16), tp=8, pp=4, ep=16, mbs=2, dp=2)
    assert set(found) == {"MC14"}
    assert found["MC14"].nearest["layers_per_stage"] == [11, 12, 12, 11]


def test_twenty_eight_heads_over_eight() -> None:
    """PKU-DAIR/Hetu-Galvatron#5: Qwen2.5-7B."""
    found = broken(problem(qwen2_5_7b()), tp=8)
    assert "MC05" in found
    assert found["MC05"].severity == "refused"
    assert found["MC05"].values == {"tp": 8}
    assert found["MC05"].nearest["tp"] == [1, 2, 4]
    for tp, rules in ((7, {"MC06", "MC51"}), (14, {"MC06", "MC51"}), (28, {"MC51"})):
        assert rules <= set(broken(problem(qwen2_5_7b(), nodes=7), tp=tp, dp=1)), tp


def test_key_value_heads_are_replicated() -> None:
    """pytorch/torchtitan PR#2577: two kv heads at tp 4 are legal in Megatron."""
    assert broken(problem(uniform_model(8, 16, 2, 4096)), tp=4) == {}


@pytest.mark.parametrize(("micro_batches", "legal"), [(3, False), (6, True), (8, False), (12, True)])
def test_interleaving_needs_micro_batches(micro_batches: int, legal: bool) -> None:
    """NVIDIA-NeMo/Speech#14288: PP 6, M 3."""
    found = broken(problem(uniform_model(24), rows=micro_batches), pp=6, vpp=2, dp=1)
    assert ("MC21" not in found) == legal
    if not legal:
        assert 6 in found["MC21"].nearest["micro_batches"]
        assert min(found["MC21"].nearest["micro_batches"]) == 6


def test_expert_grid_with_and_without_expert_tensor_parallel() -> None:
    """NVIDIA-NeMo/Megatron-Bridge#546: Qwen3-30B-A3B, TP4 EP4 on 8 or 4 GPUs."""
    asked = problem(qwen3_30b_a3b())
    assert "MC02" in broken(asked, tp=4, ep=4, etp=4, dp=2)
    assert broken(asked, tp=4, ep=4, dp=2) == {}
    assert broken(asked, tp=4, ep=4, dp=1) == {}


@pytest.mark.parametrize(("cp", "tp", "multiple"), [(2, 4, 8), (8, 8, 64), (4, 2, 8)])
def test_sequences_divide_for_context_and_sequence_parallel(cp: int, tp: int, multiple: int) -> None:
    """NVIDIA-NeMo/RL#3563: lcm(2 CP, CP TP)."""
    model = uniform_model(8, 64, 8, 16384)
    assert broken(problem(model, nodes=8, length=multiple * 33), cp=cp, tp=tp) == {}
    odd = broken(problem(model, nodes=8, length=multiple * 33 + multiple // 2), cp=cp, tp=tp)
    assert set(odd) & {"MC10", "MC11"}


def test_padded_vocabulary_is_reported() -> None:
    """NVIDIA/Megatron-LM#1754: 50257 becomes 50304 at tp 1, 50432 at tp 2."""
    asked = problem(uniform_model(8, vocab_size=50257))
    for tp, padded in ((1, 50304), (2, 50432)):
        changed = {found.rule: found for found in MEGATRON.changes(asked, UniformLayout(tp=tp))}
        assert changed["MC08"].severity == "changed"
        assert changed["MC08"].nearest["padded_vocab_size"] == padded
    assert broken(asked, tp=2) == {}


def test_batch_must_divide() -> None:
    found = broken(problem(uniform_model(8), rows=60), dp=8)
    assert set(found) == {"MC09"}


def test_moe_with_tensor_parallel_needs_sequence_parallel() -> None:
    """NVIDIA/Megatron-LM#1587."""
    assert set(broken(problem(qwen3_30b_a3b()), tp=2, sequence_parallel=False)) == {"MC23"}
    assert MEGATRON.changes(problem(uniform_model(8)), UniformLayout(tp=1, sequence_parallel=True))[0].rule == "MC12"


def test_all_to_all_scatters_heads() -> None:
    found = broken(problem(uniform_model(8, 32, 4, 4096)), tp=2, cp=4, cp_kind="all_to_all")
    assert set(found) == {"MC39"}
    assert broken(problem(uniform_model(8, 32, 4, 4096)), tp=2, cp=2, cp_kind="all_to_all") == {}


def test_zero_and_offload_are_limited() -> None:
    asked = problem(uniform_model(8))
    assert broken(asked, zero=3)["CAP-zero"].nearest["zero"] == [0, 1]
    assert set(broken(asked, zero=0, offload_optimizer=0.5)) == {"MC32"}
    assert broken(asked, zero=1, offload_optimizer=0.5) == {}
    assert ANY.violations(asked, UniformLayout(zero=3)) == ()


def test_answers_are_in_the_words_of_layouts() -> None:
    """Kinds and flags by name and as true or false, in the broken values and in the nearest legal ones."""
    found = broken(problem(uniform_model(32, 32, 8), nodes=2), tp=4, cp=4, cp_kind="all_to_all")["MC39"]
    assert found.values == {"cp": 4, "tp": 4, "cp_kind": "all_to_all"}
    assert found.nearest["cp_kind"] == ["ring"]
    found = broken(problem(qwen3_30b_a3b()), tp=2, ep=4, sequence_parallel=False)["MC23"]
    assert found.values == {"sequence_parallel": False, "tp": 2}
    assert found.nearest["sequence_parallel"] == [True]


def test_sizes_that_a_model_has_not_are_called_none() -> None:
    """A dense model has no experts; the message says so instead of leaving a hole."""
    message = broken(problem(qwen2_5_7b(), nodes=7), tp=7, dp=1)["MC51"].message
    assert message == "tp 7 does not divide the feed-forward sizes (dense 18944, shared none) or etp 1 those of experts (none)"
