"""Configs of families that are not in the shared folder, typed from their public config.json, against their published sizes.

Sizes in 10^9 as the model cards round them; the prediction layers are not part of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from solver.importers import import_hf_config
from solver.problem import Model, count_model_parameters
from tests.solver.importers.reading import refused

FAMILIES = json.loads((Path(__file__).parent / "other_families.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_published_sizes(name: str) -> None:
    """Total within 3 % of the rounded figure, active within 15 % (cards differ in what of the tables they count)."""
    config, total, active = (FAMILIES[name][key] for key in ("config", "total_1e9", "active_1e9"))
    imported = import_hf_config(config)
    assert Model.model_validate(imported.model)
    count = count_model_parameters(imported.model)
    assert count.total / 1e9 == pytest.approx(total, rel=0.03)
    if active is not None:
        tables = count.parts.embedding + count.parts.head
        assert (count.active - tables) / 1e9 * 0.85 <= active <= count.active / 1e9 * 1.15


@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        (
            {
                "architectures": ["Gemma3nForConditionalGeneration"],
                "model_type": "gemma3n",
                "text_config": {
                    "model_type": "gemma3n_text",
                    "altup_num_inputs": 4,
                    "hidden_size": 2048,
                    "hidden_size_per_layer_input": 256,
                    "intermediate_size": [16384] * 35,
                    "laurel_rank": 64,
                    "num_attention_heads": 8,
                    "num_hidden_layers": 35,
                    "num_key_value_heads": 2,
                    "vocab_size": 262400,
                    "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 7,
                    "sliding_window": 512,
                },
            },
            "/text_config/altup_num_inputs",
        ),
        (
            {
                "model_type": "zamba2",
                "architectures": ["Zamba2ForCausalLM"],
                "hidden_size": 2560,
                "num_hidden_layers": 54,
                "num_attention_heads": 32,
                "num_mem_blocks": 2,
                "hybrid_layer_ids": [6, 12],
                "vocab_size": 32000,
                "intermediate_size": 10240,
                "mamba_d_state": 64,
            },
            "/num_mem_blocks",
        ),
        ({"model_type": "deepseek_v32", "hidden_size": 64, "index_topk": 2048}, "/index_topk"),
        ({"model_type": "nemotron-nas", "hidden_size": 64, "block_configs": [{"ffn": {}}]}, "/block_configs"),
        ({"model_type": "hunyuan", "hidden_size": 64, "use_cla": True}, "/use_cla"),
        (
            {"model_type": "mllama", "text_config": {"model_type": "mllama_text_model", "cross_attention_layers": [3]}},
            "/text_config/cross_attention_layers",
        ),
        ({"model_type": "t5", "is_encoder_decoder": True}, "/is_encoder_decoder"),
        ({"model_type": "arctic", "hidden_size": 64, "parallel_attn_mlp_res": True}, "/parallel_attn_mlp_res"),
        ({"model_type": "bert", "hidden_size": 64, "type_vocab_size": 2}, "/type_vocab_size"),
    ],
)
def test_what_cannot_be_expressed_is_refused_by_its_key(config: dict[str, Any], pointer: str) -> None:
    """Shared weights, alternating updates, sparse indices, layers of widths of their own ..."""
    assert (pointer, "not_supported") in refused(config)


def test_the_default_that_counts_is_the_one_told() -> None:
    """Tied by the class of the whole config, where the class of the language model alone would not tie."""
    config = json.loads(json.dumps(FAMILIES["mistral-small-3.1-24b"]["config"]))
    del config["tie_word_embeddings"]
    imported = import_hf_config(config)
    assert imported.model["modules"][1]["transformer"]["tied_embeddings"]
    assert "tie_word_embeddings = true" in imported.warnings[0]
