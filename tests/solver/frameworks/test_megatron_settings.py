"""Rules over launch settings: each has one launch that breaks it and the same launch mended; releases; strings of layouts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.exporters.megatron_settings import read_flags, settings_of
from solver.frameworks.megatron_core.layout_string import LayoutStringError, layout_findings, virtual_stages
from solver.frameworks.megatron_core.settings import Settings
from solver.frameworks.megatron_core.settings_rules import SETTINGS_RULES, settings_violations
from solver.frameworks.megatron_core.versions import RELEASES, order

DENSE = Settings(
    world_size=64, num_layers=32, hidden_size=4096, heads=32, kv_heads=8, kv_channels=128, ffn_hidden_size=14336,
    seq_length=4096, max_positions=4096, micro_batch_size=1, global_batch_size=64, device_max_connections=1,
)  # fmt: skip
MOE = replace(DENSE, experts=128, moe_ffn_hidden_size=768, etp=1, ep=8, kv_heads=4, num_layers=48, hidden_size=2048)

#: rule: (launch, changes that break it, changes that mend it, first check that notices); releases where not the latest.
CASES: dict[str, tuple[Settings, dict[str, Any], dict[str, Any], str | None]] = {
    "MC01": (DENSE, {"tp": 8, "pp": 3}, {"tp": 8, "pp": 2}, "arguments"),
    "MC02": (MOE, {"world_size": 8, "tp": 4, "ep": 4, "etp": 4, "sequence_parallel": True}, {"etp": 1}, "build"),
    "MC03": (MOE, {"rank_order_ends_in_pp": False, "pp": 4, "ep": 4}, {"rank_order_ends_in_pp": True}, "build"),
    "MC04": (MOE, {"tp": 2, "ep": 4, "etp": None, "sequence_parallel": True}, {"etp": 1}, "arguments"),
    "MC05": (replace(DENSE, heads=28, kv_heads=28), {"tp": 8}, {"tp": 4}, "config"),
    "MC06": (replace(DENSE, heads=30, kv_heads=5), {"tp": 2}, {"tp": 1}, "config"),
    "MC07": (DENSE, {"kv_channels": None, "hidden_size": 4097}, {"hidden_size": 4096}, "arguments"),
    "MC09": (DENSE, {"global_batch_size": 60}, {"global_batch_size": 128}, "arguments"),
    "MC10": (DENSE, {"cp": 8, "seq_length": 4088}, {"seq_length": 4096}, "arguments"),
    "MC11": (DENSE, {"tp": 8, "cp": 2, "sequence_parallel": True, "seq_length": 4088}, {"seq_length": 4096}, "first_step"),
    "MC12": (DENSE, {"sequence_parallel": True}, {"sequence_parallel": False}, "arguments"),
    "MC13": (DENSE, {"seq_length": 8192}, {"max_positions": 8192}, "arguments"),
    "MC14": (replace(DENSE, num_layers=30), {"pp": 4}, {"first_stage_layers": 7, "last_stage_layers": 7}, "arguments"),
    "MC15": (replace(DENSE, num_layers=30), {"pp": 4, "account_for_embedding": True}, {"account_for_loss": True}, "config"),
    "MC16": (replace(DENSE, num_layers=40), {"pp": 2, "first_stage_layers": 9, "last_stage_layers": 11},
             {"first_stage_layers": 19, "last_stage_layers": 21}, "config"),
    "MC17": (DENSE, {"pp": 4, "first_stage_layers": 8, "layers_per_virtual_stage": 4},
             {"layers_per_virtual_stage": None, "vpp": 2}, "arguments"),
    "MC17-one": (DENSE, {"pp": 4, "vpp": 2, "layers_per_virtual_stage": 4}, {"vpp": None}, "arguments"),
    "MC18": (DENSE, {"pp": 2, "layout": "Et*16|t*16L", "first_stage_layers": 16}, {"first_stage_layers": None}, "config"),
    "MC18-vpp": (DENSE, {"pp": 2, "layout": "Et*8|t*8|t*8|t*8L", "vpp": 4}, {"vpp": 2}, "config"),
    "MC19": (DENSE, {"pp": 2, "layout": "Et*16|t*15L"}, {"layout": "Et*15|t*17L"}, "config"),
    "MC20": (DENSE, {"vpp": 2}, {"pp": 4, "global_batch_size": 64}, "arguments"),
    "MC21": (DENSE, {"pp": 4, "vpp": 2, "global_batch_size": 48}, {"global_batch_size": 64}, "first_step"),
    "MC22": (MOE, {"ep": 12, "world_size": 12, "global_batch_size": 12}, {"ep": 4}, "arguments"),
    "MC23": (MOE, {"tp": 2}, {"sequence_parallel": True}, "first_step"),
    "MC24": (MOE, {"router_groups": 5}, {"router_groups": 4}, "config"),
    "MC25": (MOE, {"linear_bias": True, "tp": 2, "etp": 2, "ep": 4, "sequence_parallel": True}, {"etp": 1}, "config"),
    "MC26": (DENSE, {"recompute": "full"}, {"recompute_method": "uniform", "recompute_layers": 1}, "config"),
    "MC27": (DENSE, {"recompute": "full", "recompute_method": "uniform", "recompute_layers": 40}, {"recompute_layers": 32}, None),
    "MC28": (MOE, {"recompute": "selective", "recompute_modules": ("moe_act",)}, {"grouped_gemm": True}, "config"),
    "MC29": (DENSE, {"tp": 2, "distribute_saved": True, "recompute": "full", "recompute_method": "uniform",
                     "recompute_layers": 1, "sequence_parallel": True}, {"sequence_parallel": False}, "config"),
    "MC30": (DENSE, {"offloaded_layers": 4, "recompute": "selective"}, {"recompute": None}, "config"),
    "MC31": (DENSE, {"fine_grained_offload": True, "offload_modules": ("attn_proj",)},
             {"offload_modules": ("attn_proj", "core_attn")}, "config"),
    "MC32": (DENSE, {"optimizer_offload": True}, {"precision_aware_optimizer": True, "distributed_optimizer": True}, "arguments"),
    "MC33": (DENSE, {"overlap_param_gather": True, "overlap_grad_reduce": True}, {"distributed_optimizer": True}, "arguments"),
    "MC34": (replace(DENSE, fsdp="torch", gradient_fusion=False, device_max_connections=None), {"pp": 2}, {"pp": 1}, "arguments"),
    "MC35": (replace(DENSE, fsdp="megatron", checkpoint_format="fsdp_dtensor", device_max_connections=8),
             {"device_max_connections": 1},
             {"device_max_connections": 8}, "arguments"),
    "MC36": (DENSE, {"tp": 2, "device_max_connections": None}, {"blackwell": True}, "arguments"),
    "MC37": (DENSE, {"tp": 2, "tp_comm_overlap": True}, {"sequence_parallel": True}, "arguments"),
    "MC38": (DENSE, {"cp": 4, "cp_comm_types": ("a2a+p2p",), "hierarchical_cp_sizes": (2, 4)},
             {"hierarchical_cp_sizes": (2, 2)}, "arguments"),
    "MC38-list": (DENSE, {"cp": 2, "cp_comm_types": ("p2p", "allgather")}, {"cp_comm_types": ("p2p",) * 32}, "config"),
    "MC39": (DENSE, {"cp": 16, "cp_comm_types": ("a2a",)}, {"cp": 8}, "first_step"),
    "MC40": (DENSE, {"hybrid_context_parallel": True, "pp": 2, "max_tokens_per_rank": 4096}, {"pp": 1}, "arguments"),
    "MC41": (MOE, {"expert_comm_overlap": True, "pp": 4}, {"vpp": 2}, "config"),
    "MC42": (DENSE, {"latent_attention": True}, {"kv_heads": None}, "arguments"),
    "MC43": (replace(DENSE, linear_key_heads=16, linear_value_heads=32), {"tp": 8, "cp": 4}, {"cp": 2}, "config"),
    "MC44": (DENSE, {"mtp_layers": 1, "positions": "learned_absolute"}, {"positions": "rope"}, "arguments"),
    "MC45": (DENSE, {"pp": 2, "pipeline_dtype_set": False}, {"pipeline_dtype_set": True}, "config"),
    "MC46": (replace(DENSE, hybrid_pattern="M*M*|M*M*|M*M*"), {"pp": 2, "global_batch_size": 64},
             {"hybrid_pattern": "M*M*|M*M*"}, "arguments"),
    "MC47": (DENSE, {"defer_embedding_gradient": True}, {"pp": 2}, "arguments"),
    "MC48": (replace(MOE, ep=1), {"dispatcher": "flex"}, {"ep": 2}, "config"),
    "MC50": (DENSE, {"hyper_connections": True, "pp": 2}, {"pp": 1}, "config"),
    "MC51": (replace(DENSE, heads=28, kv_heads=28, ffn_hidden_size=18944, world_size=28, global_batch_size=28), {"tp": 28},
             {"tp": 4}, "build"),
    "MC52": (replace(DENSE, distributed_optimizer=True), {"optimizer_instances": 3}, {"optimizer_instances": 2}, "build"),
    "MC53": (MOE, {"hybrid_context_parallel": True, "max_tokens_per_rank": 4096},
             {"experts": None, "ep": 1, "moe_ffn_hidden_size": None},
             "arguments"),
    "MCX-fp16": (MOE, {"precision": "fp16"}, {"ep": 1}, "arguments"),
}  # fmt: skip


def ids(settings: Settings, release: str = RELEASES[-1]) -> set[str]:
    return {found.rule for found in settings_violations(settings, release)}


def test_every_rule_has_a_case() -> None:
    """And no launch used as a base breaks anything."""
    assert {rule.id for rule in SETTINGS_RULES} == set(CASES)
    for base, _, _, _ in CASES.values():
        assert ids(base) == set(), base


@pytest.mark.parametrize("rule", sorted(CASES))
def test_rule_refuses_one_launch_and_takes_the_mended_one(rule: str) -> None:
    """With the values at fault and the check that notices."""
    base, breaking, mending, fires = CASES[rule]
    broken = replace(base, **breaking)
    found = {violation.rule: violation for violation in settings_violations(broken)}
    assert rule in found
    assert found[rule].message
    assert found[rule].fires[:1] == ((fires,) if fires else ())
    assert found[rule].values
    assert ids(replace(broken, **mending)) == set()


@pytest.mark.parametrize("rule", sorted(CASES))
def test_nearest_settings_are_legal(rule: str) -> None:
    """Every value offered for a setting obeys the rule, all else kept."""
    base, breaking, _, _ = CASES[rule]
    broken = replace(base, **breaking)
    for violation in settings_violations(broken):
        if violation.rule != rule:
            continue
        named = {name: values for name, values in violation.nearest.items() if name in broken.__dataclass_fields__}
        if len(named) > 1 and rule == "MC16":
            joint = replace(broken, **{name: values[0] for name, values in named.items()})
            assert rule not in ids(joint)
            continue
        for name, values in named.items():
            if isinstance(getattr(broken, name), tuple) or name == "recompute_method":
                continue
            for value in values:
                assert rule not in ids(replace(broken, **{name: value})), (name, value)


@pytest.mark.parametrize(
    ("changes", "rule", "first"),
    [
        ({"tp": 16, "heads": 32, "kv_heads": 8}, "MC06", "0.16"),
        ({"num_layers": 30, "pp": 4, "account_for_embedding": True, "account_for_loss": True}, "MC15", "0.11"),
        ({"pp": 4, "vpp": 2, "first_stage_layers": 6, "last_stage_layers": 6, "num_layers": 28}, "MC16", "0.11"),
        ({"pp": 2, "layout": "Et*15|t*17L"}, "MC18", "0.13"),
        ({"mtp_layers": 1}, "MC44", "0.12"),
        ({"recompute": "selective", "recompute_modules": ("mlp",)}, "MC28", "0.12"),
        ({"fine_grained_offload": True, "offload_modules": ("qkv_linear",)}, "MC31", "0.16"),
    ],
)
def test_what_later_releases_brought(changes: dict[str, Any], rule: str, first: str) -> None:
    """Refused before, taken from then on."""
    settings = replace(DENSE, **changes)
    for release in RELEASES:
        assert (rule in ids(settings, release)) == (order(release) < order(first)), release


def test_releases_of_experts() -> None:
    """Biased experts from 0.15 at etp 1, overlap of their communication from 0.14, linear attention over cp from 0.20."""
    biased = replace(MOE, linear_bias=True, grouped_gemm=True)
    assert [release for release in RELEASES if "MC25" not in ids(biased, release)] == ["0.15", "0.16", "0.20"]
    one_by_one = replace(biased, grouped_gemm=False)
    assert [release for release in RELEASES if "MC25" in ids(one_by_one, release)] == ["0.13", "0.14"]
    overlap = replace(MOE, expert_comm_overlap=True)
    assert [release for release in RELEASES if "MC41" not in ids(overlap, release)] == ["0.14", "0.15", "0.16", "0.20"]
    linear = replace(DENSE, linear_key_heads=16, linear_value_heads=32, cp=2)
    assert "MC43" in ids(linear, "0.16")
    assert "MC43" not in ids(linear, "0.20")


def test_left_over_layers_of_first_and_last() -> None:
    """20 of 40 layers on two stages: dropped by 0.10 and 0.13 to 0.15, a division by zero in 0.11 and 0.12, refused from 0.16."""
    settings = replace(DENSE, num_layers=40, pp=2, first_stage_layers=9, last_stage_layers=11)
    severities = {
        release: next(found.severity for found in settings_violations(settings, release) if found.rule == "MC16")
        for release in RELEASES
    }
    silent = {release for release, severity in severities.items() if severity == "silently_changed"}
    assert silent == {"0.10", "0.13", "0.14", "0.15"}
    whole = replace(settings, first_stage_layers=19, last_stage_layers=21)
    assert [release for release in RELEASES if ids(whole, release)] == ["0.11", "0.12"]
    assert all(not ids(replace(whole, last_stage_layers=None), release) for release in RELEASES)


def test_layers_were_dropped_silently_once() -> None:
    """Release 0.10 builds 28 of 30 layers on four stages; later ones refuse."""
    settings = replace(DENSE, num_layers=30, pp=4)
    old = {found.rule: found for found in settings_violations(settings, "0.10")}["MC14"]
    new = {found.rule: found for found in settings_violations(settings)}["MC14"]
    assert (old.severity, new.severity) == ("silently_changed", "refused")
    assert new.nearest["layers_per_stage"] == [7, 8, 8, 7]
    assert new.fires == ("arguments", "build")


#: What Megatron-LM v0.20 did when it was run: the input, and the first of its checks that refused (None: it ran).
PROBED: list[tuple[dict[str, Any], str | None, str | None]] = [
    ({"num_layers": 30, "pp": 4}, "MC14", "arguments"),
    ({"num_layers": 36, "pp": 12, "vpp": 2, "world_size": 96}, "MC14", "arguments"),
    ({"num_layers": 36, "pp": 12, "layers_per_virtual_stage": 2, "world_size": 96}, "MC14", "arguments"),
    ({"num_layers": 40, "pp": 2, "first_stage_layers": 9, "last_stage_layers": 11}, "MC16", "config"),
    ({"num_layers": 24, "last_stage_layers": 2}, "MC16", "config"),
    ({"num_layers": 7, "pp": 2, "first_stage_layers": 3}, None, None),
    ({"num_layers": 30, "pp": 4, "account_for_embedding": True, "account_for_loss": True}, None, None),
    ({"num_layers": 62, "pp": 8, "vpp": 4, "account_for_embedding": True, "account_for_loss": True}, None, None),
    ({"num_layers": 32, "pp": 4, "first_stage_layers": 8, "account_for_loss": True}, "MC15", "config"),
    ({"vpp": 2}, "MC20", "arguments"),
    ({"num_layers": 28, "pp": 4, "vpp": 2, "first_stage_layers": 6, "last_stage_layers": 6}, None, None),
    ({"pp": 2, "layout": "Et*16|t*15L"}, "MC19", "config"),
    ({"pp": 2, "layout": "Et*16|t*16L", "first_stage_layers": 16}, "MC18", "config"),
    ({"heads": 28, "kv_heads": 4, "ffn_hidden_size": 18944, "tp": 8, "world_size": 8}, "MC05", "config"),
    ({"heads": 28, "kv_heads": 4, "ffn_hidden_size": 18944, "tp": 7, "world_size": 7}, "MC06", "config"),
    ({"heads": 28, "kv_heads": 4, "ffn_hidden_size": 18944, "tp": 28, "world_size": 28}, "MC51", "build"),
    ({"recompute": "full"}, "MC26", "config"),
    ({"global_batch_size": 60, "world_size": 8}, "MC09", "arguments"),
    ({"cp": 2, "cp_comm_types": ("p2p", "a2a")}, "MC38-list", "build"),
]


@pytest.mark.parametrize(("changes", "rule", "fires"), PROBED)
def test_probed_inputs(changes: dict[str, Any], rule: str | None, fires: str | None) -> None:
    """The table of inputs that were run through Megatron's arguments, config and layer counts."""
    settings = replace(DENSE, global_batch_size=480) if "global_batch_size" not in changes else DENSE
    settings = replace(settings, **changes)
    settings = replace(settings, global_batch_size=changes.get("global_batch_size", 2 * settings.pp * settings.dp))
    found = {violation.rule: violation for violation in settings_violations(settings)}
    if rule is None:
        assert found == {}
    else:
        assert fires in found[rule].fires


def test_probed_expert_grids() -> None:
    """TP4 EP4 on 8 GPUs: the unset expert tensor parallel size becomes 4, and 16 ranks are needed."""
    asked = replace(MOE, world_size=8, tp=4, ep=4, etp=None, sequence_parallel=True, global_batch_size=8)
    assert ids(asked) == {"MC02", "MC04"}
    assert ids(replace(asked, etp=1)) == set()
    assert "MC02" in ids(replace(MOE, world_size=8, ep=16, global_batch_size=8))


@pytest.mark.parametrize(
    ("text", "pp", "layers", "mtp", "good"),
    [
        ("Et*3|(tt|)*29|L", 16, 61, 0, True),
        ("Et*3|(tt|)*29m|L", 16, 61, 1, True),
        ("Et|(tt|)*30mL", 8, 61, 1, True),
        ("Et*3|(tt|)*28|L", 16, 61, 0, False),
        ("t*3|(tt|)*29|L", 16, 61, 0, False),
        ("Et*3|(tt|)*29|tL", 16, 61, 0, False),
        ("Et*3m|(tt|)*29|L", 16, 61, 1, False),
        ("Et*15|t*17L", 2, 32, 0, True),
        ("E|t*16|t*16|L", 2, 32, 0, True),
        ("Et*16|t*16L", 4, 32, 0, False),
        ("Et*16|x*16L", 2, 32, 0, False),
        ("E(t", 2, 1, 0, False),
        ("", 1, 1, 0, False),
        ("Et*999999999L", 1, 1, 0, False),
        ("E((t*9999)*9999)*9999L", 1, 1, 0, False),
    ],
)
def test_layout_strings(text: str, pp: int, layers: int, mtp: int, good: bool) -> None:
    """DeepSeek-V3 has 61 layers and one prediction layer (deepseek-ai/DeepSeek-V3#19, Megatron-LM PR#2280)."""
    assert (layout_findings(text, pp, layers, mtp) == []) == good


@given(st.text("Etml|()*0123456789, x", max_size=30))
def test_any_string_is_read_or_refused(text: str) -> None:
    """Never another error."""
    try:
        stages = virtual_stages(text)
    except LayoutStringError:
        return
    assert set("".join(stages)) <= set("EtmL")


def test_flags_are_read_back() -> None:
    """Unset flags have Megatron's own defaults."""
    flags = read_flags(
        ["--num-layers 30", "--hidden-size 64", "--num-attention-heads 4", "--seq-length 8", "--micro-batch-size 1",
         "--global-batch-size 2", "--pipeline-model-parallel-size 2", "--pipeline-model-parallel-layout 'Et*15|t*15L'",
         "--sequence-parallel", "--swiglu"]
    )  # fmt: skip
    settings = settings_of(flags, 4, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, blackwell=False)
    assert (settings.num_layers, settings.pp, settings.layout, settings.virtual) == (30, 2, "Et*15|t*15L", 1)
    assert (settings.untied_embeddings, settings.linear_bias, settings.precision) == (False, True, "fp32")
    assert (settings.device_max_connections, settings.dp, settings.micro_batches) == (1, 2, 1)
    assert ids(settings) == {"MC12"}
