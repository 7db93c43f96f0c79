"""Parameter counts by formula."""

from __future__ import annotations

import pytest

from solver import catalog
from solver.problem import Transformer, parameter_count


@pytest.mark.parametrize("name", sorted(catalog.models()))
def test_presets_have_their_published_size(name: str) -> None:
    """Within 0.5 % of what the authors say (multi-token prediction is not part of those figures)."""
    model = catalog.models()[name]
    count = parameter_count(Transformer.model_validate(model.transformer), with_mtp=False)
    assert count == pytest.approx(model.published_parameters, rel=0.005)


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
