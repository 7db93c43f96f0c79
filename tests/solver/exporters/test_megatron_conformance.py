"""Exports and rules against Megatron-core itself, on CPU; skipped where it is not installed (`pip install megatron-core torch`).

Megatron checks in three places (arguments, config, layer counts); this asks the last two, which need no process group.
"""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest

pytest.importorskip("torch", reason="Megatron-core needs torch", exc_type=ImportError)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("megatron.core", reason="Megatron-core is not installed", exc_type=ImportError)
    from megatron.core.transformer import MLATransformerConfig, TransformerConfig
    from megatron.core.transformer.pipeline_parallel_layer_layout import LayerType, PipelineParallelLayerLayout
    from megatron.core.transformer.transformer_block import get_num_layers_to_build

from solver.frameworks import get_rule_set
from solver.layout import Layout, UniformLayout
from solver.problem import Problem
from tests.solver.exporters.cases import CASES
from tests.solver.exporters.test_megatron_core import flags_of
from tests.solver.frameworks.problems import problem, qwen2_5_7b, qwen3_30b_a3b, uniform_model

FIELDS = {
    "num-layers": ("num_layers", int),
    "hidden-size": ("hidden_size", int),
    "ffn-hidden-size": ("ffn_hidden_size", int),
    "num-attention-heads": ("num_attention_heads", int),
    "kv-channels": ("kv_channels", int),
    "num-query-groups": ("num_query_groups", int),
    "q-lora-rank": ("q_lora_rank", int),
    "kv-lora-rank": ("kv_lora_rank", int),
    "qk-head-dim": ("qk_head_dim", int),
    "qk-pos-emb-head-dim": ("qk_pos_emb_head_dim", int),
    "v-head-dim": ("v_head_dim", int),
    "rope-type": ("rope_type", str),
    "normalization": ("normalization", str),
    "mtp-num-layers": ("mtp_num_layers", int),
    "num-experts": ("num_moe_experts", int),
    "moe-ffn-hidden-size": ("moe_ffn_hidden_size", int),
    "moe-router-topk": ("moe_router_topk", int),
    "moe-router-num-groups": ("moe_router_num_groups", int),
    "moe-router-group-topk": ("moe_router_group_topk", int),
    "moe-shared-expert-intermediate-size": ("moe_shared_expert_intermediate_size", int),
    "moe-token-dispatcher-type": ("moe_token_dispatcher_type", str),
    "tensor-model-parallel-size": ("tensor_model_parallel_size", int),
    "context-parallel-size": ("context_parallel_size", int),
    "pipeline-model-parallel-size": ("pipeline_model_parallel_size", int),
    "expert-model-parallel-size": ("expert_model_parallel_size", int),
    "expert-tensor-parallel-size": ("expert_tensor_parallel_size", int),
    "num-virtual-stages-per-pipeline-rank": ("virtual_pipeline_model_parallel_size", int),
    "microbatch-group-size-per-virtual-pipeline-stage": ("microbatch_group_size_per_vp_stage", int),
    "pipeline-model-parallel-layout": ("pipeline_model_parallel_layout", str),
    "cp-comm-type": ("cp_comm_type", str),
    "recompute-granularity": ("recompute_granularity", str),
    "recompute-method": ("recompute_method", str),
    "recompute-num-layers": ("recompute_num_layers", int),
    "attention-dropout": ("attention_dropout", float),
    "hidden-dropout": ("hidden_dropout", float),
}
SWITCHES = {
    "sequence-parallel": {"sequence_parallel": True},
    "swiglu": {"gated_linear_unit": True},
    "disable-bias-linear": {"add_bias_linear": False},
    "add-qkv-bias": {"add_qkv_bias": True},
    "qk-layernorm": {"qk_layernorm": True},
    "moe-grouped-gemm": {"moe_grouped_gemm": True},
    "bf16": {"bf16": True},
}


def config_of(flags: dict[str, str]) -> Any:
    """What the arguments make of the flags (`core_transformer_config_from_args`)."""
    import torch

    values: dict[str, Any] = {"pipeline_dtype": torch.bfloat16, "params_dtype": torch.bfloat16}
    for flag, value in flags.items():
        if flag in FIELDS:
            name, kind = FIELDS[flag]
            values[name] = kind(value)
        values |= SWITCHES.get(flag, {})
    if "recompute-modules" in flags:
        values["recompute_modules"] = flags["recompute-modules"].split()
    if "moe-layer-freq" in flags:
        values["moe_layer_freq"] = eval(flags["moe-layer-freq"], {"__builtins__": {}})
    latent = "multi-latent-attention" in flags
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return (MLATransformerConfig if latent else TransformerConfig)(**values)


def built_layers(config: Any, layout: Layout) -> list[list[int]]:
    """Layers that every rank builds, by stage and chunk."""
    custom = config.pipeline_model_parallel_layout
    if custom is not None:
        return [[len([kind for kind in chunk if kind is LayerType.decoder]) for chunk in stage] for stage in custom.layout]
    chunks = [None] if layout.vpp == 1 else list(range(layout.vpp))
    return [[get_num_layers_to_build(config, vp_stage=chunk, pp_rank=stage) for chunk in chunks] for stage in range(layout.pp)]


@pytest.mark.parametrize("name", CASES)
def test_megatron_builds_the_layers_of_the_plan(name: str) -> None:
    asked, layout = CASES[name]()
    config = config_of(flags_of(asked, layout))
    expected = [[last - first + 1 for first, last in stage.chunks] for stage in layout.stages]
    assert built_layers(config, layout) == expected


def accepted(asked: Problem, words: UniformLayout) -> bool:
    """Whether config and layer counts take the sizes (no layout string, as a user would write them)."""
    model = asked.transformer
    block = model.blocks[0]
    moe = block.mlp.kind == "moe"
    flags = {
        "num-layers": str(model.layers),
        "hidden-size": str(model.hidden_size),
        "ffn-hidden-size": str(block.mlp.hidden_size),
        "num-attention-heads": str(block.attention.heads),
        "kv-channels": str(block.attention.head_dim),
        "num-query-groups": str(block.attention.kv_heads),
        "tensor-model-parallel-size": str(words.tp),
        "pipeline-model-parallel-size": str(words.pp),
        "disable-bias-linear": "",
    }
    if words.sequence_parallel:
        flags["sequence-parallel"] = ""
    if words.vpp > 1:
        flags["num-virtual-stages-per-pipeline-rank"] = str(words.vpp)
    if moe:
        flags |= {
            "num-experts": str(block.mlp.experts),
            "moe-router-topk": str(block.mlp.top_k),
            "moe-token-dispatcher-type": "alltoall",
        }
        flags |= {"expert-model-parallel-size": str(words.ep), "expert-tensor-parallel-size": str(words.etp)}
    try:
        config = config_of(flags)
        chunks = [None] if words.vpp == 1 else list(range(words.vpp))
        for stage, chunk in itertools.product(range(words.pp), chunks):
            get_num_layers_to_build(config, vp_stage=chunk, pp_rank=stage)
    except (AssertionError, ValueError):
        return False
    return True


# Rules that config and layer counts check; the others fire in the arguments, the layers or the first step.
CHECKED_HERE = {"MC05", "MC06", "MC14"}


@pytest.mark.parametrize(
    "asked", [problem(qwen2_5_7b(), nodes=8), problem(qwen3_30b_a3b(), nodes=8), problem(uniform_model(30), nodes=8)]
)
def test_rules_agree_with_megatron(asked: Problem) -> None:
    rules = get_rule_set("megatron-core")
    compared = set()
    for tp, pp, vpp in itertools.product((1, 2, 4, 5, 7, 8, 14, 28, 32), (1, 2, 3, 4, 5, 7, 8), (1, 2, 3)):
        if vpp > 1 and pp == 1:
            continue
        words = UniformLayout(tp=tp, pp=pp, vpp=vpp, dp=1)
        broken = {found.rule for found in rules.violations(asked, words)} & CHECKED_HERE
        assert accepted(asked, words) == (not broken), (tp, pp, vpp, broken)
        compared |= broken or {"legal"}
    assert {"MC05", "MC14", "legal"} <= compared


@pytest.mark.parametrize("counts", [[7, 8, 8, 7], [30, 0, 0, 0], [10, 10, 10, 0]])
def test_layout_strings_pass_validation(counts: list[int]) -> None:
    from solver.dimensions.words import expand_uniform
    from solver.exporters.megatron_pipeline import layout_string

    asked = problem(uniform_model(30, mtp_layers=1))
    layout = expand_uniform(asked, UniformLayout(pp=4, dp=2), counts)
    parsed = PipelineParallelLayerLayout.from_str(layout_string(asked, layout), 4)
    parsed.validate_layer_layout(num_layers=30, mtp_num_layers=1)
