"""The model: a transformer by its sizes (the normal form of presets and configs), or one of the other model forms.

Where a size defaults to another one (key/value heads, head width) the field is 0 until `complete` has filled it; a
problem that came out of `parse_problem` holds no such zero.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from solver.problem.layers import Layers
from solver.problem.spec import Count, Flag, Name, Natural, Quantity, Sized, Spec, later, one_of

#: More layers than this are a mistake rather than a model.
MAX_LAYERS: Final = 4096


class SoftmaxAttention(Spec):
    """Multi-head attention with grouped keys and values; window_tokens null means the whole sequence."""

    kind: Literal["softmax"]
    heads: Count
    kv_heads: Count = later(0)
    head_dim: Count = later(0)
    causal: Flag = True
    window_tokens: Count | None = None
    bias: Flag = False
    qk_norm: Flag = False


class MlaAttention(Spec):
    """Multi-head latent attention (DeepSeek): keys and values from a compressed vector of kv_lora_rank."""

    kind: Literal["mla"]
    heads: Count
    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count
    causal: Flag = True


class LinearAttention(Spec):
    """Linear attention: time linear in the length (parsed, not yet priced)."""

    kind: Literal["linear"]
    heads: Count
    kv_heads: Count = later(0)
    head_dim: Count = later(0)
    causal: Flag = True
    bias: Flag = False


Attention = Annotated[SoftmaxAttention | MlaAttention | LinearAttention, Field(discriminator="kind")]


class DenseMlp(Spec):
    """A dense feed-forward layer; gated has two input projections (SwiGLU)."""

    kind: Literal["dense"]
    hidden_size: Count
    gated: Flag = True
    bias: Flag = False


class MoeMlp(Spec):
    """Routed experts. hidden_size is that of one expert, shared_hidden_size the sum over the shared ones."""

    kind: Literal["moe"]
    hidden_size: Count
    gated: Flag = True
    experts: Count
    top_k: Count
    shared_hidden_size: Natural = 0
    shared_gate: Flag = False
    groups: Natural = 0

    @model_validator(mode="after")
    def _sizes_agree(self) -> MoeMlp:
        if self.top_k > self.experts:
            raise PydanticCustomError("out_of_range", "top_k is larger than the number of experts")
        if self.groups and self.experts % self.groups:
            raise PydanticCustomError("conflict", "groups does not divide the number of experts")
        if self.shared_gate and not self.shared_hidden_size:
            raise PydanticCustomError("conflict", "shared_gate needs shared_hidden_size")
        return self


Mlp = Annotated[DenseMlp | MoeMlp, Field(discriminator="kind")]


class Block(Spec):
    """`repeat` equal layers in a row, each attention then feed-forward (either may be null)."""

    repeat: Annotated[Count, Field(le=MAX_LAYERS)] = 1
    attention: Attention | None = None
    mlp: Mlp | None = None

    @model_validator(mode="after")
    def _not_empty(self) -> Block:
        if self.attention is None and self.mlp is None:
            raise PydanticCustomError("missing", "a block needs attention, mlp or both")
        return self


class Transformer(Spec):
    """A decoder (or encoder) stack by its sizes. vocab_size 0: no embedding and no head (an encoder of features)."""

    hidden_size: Count
    vocab_size: Natural = 0
    tied_embeddings: Flag = False
    norm: Literal["rms", "layer"] = "rms"
    learned_positions: Count | None = None
    mtp_layers: Natural = 0
    blocks: Annotated[tuple[Block, ...], Sized(1, MAX_LAYERS)]

    @property
    def layers(self) -> int:
        """Number of layers, multi-token-prediction layers not counted."""
        return sum(block.repeat for block in self.blocks)


class ModuleInput(Spec):
    """An edge between modules: one token of the source becomes tokens_ratio tokens here."""

    source: Annotated[Name, Field(alias="from")]
    tokens_ratio: Quantity = 1.0


MODEL_FORMS = ("preset", "hf_config", "transformer", "layers")


class Module(Spec):
    """One of several modules: a model form, whether it is trained, and what feeds it."""

    name: Name
    trainable: Flag = True
    inputs: tuple[ModuleInput, ...] = ()
    preset: Name | None = None
    hf_config: dict[str, Any] | None = None
    transformer: Transformer | None = None
    layers: Layers | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Module:
        one_of(self, MODEL_FORMS, "a module")
        return self


class Model(Spec):
    """Exactly one model form. After parsing, presets and configs have become `transformer`."""

    preset: Name | None = None
    hf_config: dict[str, Any] | None = None
    transformer: Transformer | None = None
    modules: Annotated[tuple[Module, ...], Sized(1, 64)] | None = None
    layers: Layers | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Model:
        one_of(self, (*MODEL_FORMS, "modules"), "model")
        return self
