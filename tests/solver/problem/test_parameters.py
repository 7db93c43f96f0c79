"""Parameter counts by formula."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from solver import catalog
from solver.problem import Transformer, count_model_parameters, count_parameters, parameter_count


@pytest.mark.parametrize("name", sorted(catalog.models()))
def test_presets_have_their_published_size(name: str) -> None:
    """Within 0.5 % of what the authors say (multi-token prediction is not part of those figures)."""
    model = catalog.models()[name]
    assert count_model_parameters(model.model).total == pytest.approx(model.published_parameters, rel=0.005)


def test_llama_8b_exactly() -> None:
    """8,030,261,248: the sum of the tensors in the checkpoint."""
    assert parameter_count(Transformer.model_validate(catalog.find_model("llama-3.1-8b").transformer)) == 8_030_261_248


def test_gpt2_exactly() -> None:
    """124,439,808: the sum of the tensors in the checkpoint (tied head counted once)."""
    assert parameter_count(Transformer.model_validate(catalog.find_model("gpt2").transformer)) == 124_439_808


def test_deepseek_prediction_layer() -> None:
    """The model card: 14e9 for the prediction module, of which 2 x vocabulary x hidden are shared with the model."""
    transformer = Transformer.model_validate(catalog.find_model("deepseek-v3").transformer)
    own = parameter_count(transformer) - parameter_count(transformer, with_mtp=False)
    shared = 2 * transformer.vocab_size * transformer.hidden_size
    assert own + shared == pytest.approx(14e9, rel=0.05)


def one_layer(**block: Any) -> Transformer:
    """Hidden 64, vocabulary 100, one layer."""
    dense = {"kind": "dense", "hidden_size": 128}
    content = {"attention": {"kind": "softmax", "heads": 8, "kv_heads": 2, "head_dim": 16}, "mlp": dense, **block}
    return Transformer.model_validate({"hidden_size": 64, "vocab_size": 100, "blocks": [content]})


def test_parts_add_up() -> None:
    """Attention 64 (8 + 4) 16 + 8 16 64, feed-forward 3 64 128, two tables, three norms."""
    count = count_parameters(one_layer())
    parts = count.parts
    assert (parts.embedding, parts.head, parts.norms) == (6400, 6400, 192)
    assert (parts.attention, parts.dense_mlp, parts.experts) == (64 * 192 + 128 * 64, 3 * 64 * 128, 0)
    assert count.total == count.active == 6400 * 2 + 192 + 20480 + 24576


SOFTMAX = {"kind": "softmax", "heads": 8, "kv_heads": 2, "head_dim": 16}
MOE = {"kind": "moe", "hidden_size": 32, "experts": 4, "top_k": 2}


@pytest.mark.parametrize(
    ("changed", "base", "more"),
    [
        ({"attention": {**SOFTMAX, "output_gate": True}}, {}, 64 * 128),
        ({"attention": {**SOFTMAX, "sinks": True}}, {}, 8),
        ({"attention": {**SOFTMAX, "bias": True}}, {}, 128 + 64 + 64),
        ({"attention": {**SOFTMAX, "bias": True, "output_bias": False}}, {}, 128 + 64),
        ({"attention": {**SOFTMAX, "window_tokens": 8}}, {}, 0),
        ({"norms": 4}, {}, 2 * 64),
        ({"norms": 1, "parallel": True}, {}, -64),
        ({"mlp": {**MOE, "bias": True}}, {"mlp": MOE}, 4 * (2 * 32 + 64)),
        ({"mlp": {**MOE, "router_bias": True}}, {"mlp": MOE}, 4),
    ],
)
def test_options_of_a_layer(changed: dict[str, Any], base: dict[str, Any], more: int) -> None:
    """What each option adds."""
    assert parameter_count(one_layer(**changed)) - parameter_count(one_layer(**base)) == more


def test_linear_attention() -> None:
    """Gated delta rule: queries and keys 2 x 2 x 8, values and gate 2 x 4 x 16, two scalars a head, convolution 4 wide."""
    attention = {"kind": "linear", "heads": 4, "kv_heads": 2, "head_dim": 16, "key_head_dim": 8}
    full = {**attention, "conv_kernel": 4, "decays_per_head": 2}
    count = count_parameters(one_layer(attention=full)).parts.attention
    assert count == 64 * (32 + 128 + 8) + 4 * (32 + 64) + 16 + 12 + 64 * 64


def test_idle_experts_are_not_active() -> None:
    """Two of four experts of a layer work on a token; the router and the shared expert always do."""
    count = count_parameters(one_layer(mlp={**MOE, "shared_hidden_size": 32}))
    assert count.parts.experts == 5 * 3 * 64 * 32 + 64 * 4
    assert count.total - count.active == 2 * 3 * 64 * 32


def test_encoder_ends() -> None:
    """Patch projection, and a projector that merges 4 tokens: 256 -> 32 -> 48 with biases; all of it is vision."""
    content = {"hidden_size": 64, "embedding_features": 12, "output_features": 48, "output_hidden_size": 32, "output_merge": 4}
    encoder = Transformer.model_validate({**content, "blocks": [{"mlp": {"kind": "dense", "hidden_size": 128}}]})
    alone = parameter_count(encoder)
    assert alone == 12 * 64 + 257 * 32 + 33 * 48 + 3 * 64 * 128 + 2 * 64
    language = one_layer()
    both = count_parameters(language, [encoder])
    assert (both.parts.vision, both.total, both.active) == (alone, parameter_count(language) + alone, parameter_count(language))


@pytest.mark.parametrize(
    "changes",
    [
        {"embedding_features": 12},
        {"vocab_size": 0, "output_merge": 4},
        {"vocab_size": 0, "head_bias": True},
        {"vocab_size": 0, "mtp_layers": 1},
    ],
)
def test_ends_that_disagree_are_refused(changes: dict[str, Any]) -> None:
    """A vocabulary belongs to language models, projections of features to encoders."""
    with pytest.raises(ValidationError):
        Transformer.model_validate({**one_layer().model_dump(), **changes})
