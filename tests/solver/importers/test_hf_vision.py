"""Vision-language configs: a tower that feeds the language model, joined as the class of the whole config says."""

from __future__ import annotations

from typing import Any

import pytest

from solver.problem import Transformer
from tests.solver.importers.configs import INTERNVL, LLAVA, QWEN2, QWEN2_5_VL, QWEN3_VL, VISION
from tests.solver.importers.reading import model, refused, sizes, warnings


def tower(config: dict[str, Any]) -> Transformer:
    """The vision module."""
    modules = model(config).modules
    assert modules is not None
    assert [module.name for module in modules] == ["vision", "language"]
    assert modules[0].transformer is not None
    return modules[0].transformer


def ratio(config: dict[str, Any]) -> float:
    """Language tokens that a patch becomes."""
    modules = model(config).modules
    assert modules is not None
    edge = modules[1].inputs[0]
    assert edge.source == "vision"
    return edge.tokens_ratio


@pytest.mark.parametrize(
    ("name", "features", "merge", "through", "count", "positions"),
    [
        ("qwen2_5_vl", 3 * 2 * 14 * 14, 4, 128, 1, None),
        ("qwen3_vl", 3 * 2 * 16 * 16 + 1, 4, 128, 3, 64),
        ("llava", 3 * 14 * 14, 1, 4096, 1, 17),
        ("internvl_chat", 3 * 14 * 14 + 1, 4, 64, 1, 17),
    ],
)
def test_towers(name: str, features: int, merge: int, through: int, count: int, positions: int | None) -> None:
    """Input of a patch, output projections, positions; no causal mask."""
    vision = tower(VISION[name])
    assert (vision.vocab_size, vision.embedding_features, vision.learned_positions) == (0, features, positions)
    assert (vision.output_merge, vision.output_hidden_size, vision.output_count) == (merge, through, count)
    assert vision.output_features == sizes(VISION[name]).hidden_size
    assert ratio(VISION[name]) == 1 / merge
    for block in vision.blocks:
        assert block.attention is not None
        assert not block.attention.causal


def test_windows_of_patches_are_chunks() -> None:
    """112 pixels of 14 each: 64 patches, but for the layers that see all."""
    chunks = [
        block.attention.chunk_tokens
        for block in tower(QWEN2_5_VL).blocks
        if block.attention and block.attention.kind == "softmax"
    ]
    assert chunks == [64, None, 64, None]


def test_sizes_beside_the_vision_config() -> None:
    """The older form: the language model at the top level."""
    assert sizes(QWEN2_5_VL).blocks == sizes(QWEN2).blocks


def test_nested_configs_take_the_defaults_of_their_class() -> None:
    """LLaVA's text_config names what differs from LlamaConfig."""
    transformer = sizes(LLAVA)
    assert (transformer.hidden_size, transformer.layers, transformer.vocab_size) == (4096, 32, 32064)
    assert "hidden_size = 4096" in warnings(LLAVA)
    assert ("/text_config/model_type", "missing") not in {
        (p, c) for p, c in refused({**LLAVA, "text_config": None, "vision_config": 3})
    }


def test_ends_of_the_whole_config() -> None:
    """A class of transformers ties by the whole config; code beside the weights by the nested one. Differences are told."""
    tied = {**QWEN3_VL, "tie_word_embeddings": True, "text_config": {**QWEN3_VL["text_config"], "tie_word_embeddings": False}}
    assert sizes(tied).tied_embeddings
    assert "tie_word_embeddings is False in one place" in warnings(tied)
    inner = {**INTERNVL, "tie_word_embeddings": False, "llm_config": {**QWEN2, "tie_word_embeddings": True}}
    assert sizes(inner).tied_embeddings
    assert "vocab_size is 9 in one place" in warnings({**QWEN3_VL, "vocab_size": 9})


def test_unknown_towers_are_told() -> None:
    """Read by their keys."""
    config = {**LLAVA, "vision_config": {**LLAVA["vision_config"], "model_type": "ourtower"}}
    assert "'ourtower' is not known" in warnings(config)
    assert tower(config).learned_positions == 16


def test_thinker_of_an_omni_model() -> None:
    """One more level; what is heard and spoken is refused."""
    assert sizes({"model_type": "omni", "thinker_config": QWEN3_VL}).blocks == sizes(QWEN3_VL).blocks
    heard = {"model_type": "omni", "thinker_config": {**QWEN3_VL, "audio_config": {"d_model": 8}}}
    assert refused(heard) == {("/thinker_config/audio_config", "not_supported")}


@pytest.mark.parametrize(
    ("changed", "pointer", "code"),
    [
        ({"vision_config": []}, "/vision_config", "wrong_type"),
        ({"vision_config": {**LLAVA["vision_config"], "patch_size": None}}, "/vision_config/patch_size", "missing"),
        (
            {"vision_config": {**LLAVA["vision_config"], "num_attention_heads": 5}},
            "/vision_config/num_attention_heads",
            "conflict",
        ),
        ({"text_config": "llama"}, "/text_config", "wrong_type"),
        ({"text_config": {"model_type": "llama", "vocab_size": "many"}}, "/text_config/vocab_size", "wrong_type"),
    ],
)
def test_errors_point_into_the_nested_config(changed: dict[str, Any], pointer: str, code: str) -> None:
    """Where the key is missing or wrong."""
    assert (pointer, code) in refused({**LLAVA, **changed})
