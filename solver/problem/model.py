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
    """Multi-head attention with grouped keys and values.

    A token sees the whole sequence, or its last `window_tokens`, or the tokens of its own chunk of `chunk_tokens`. `bias` is
    that of the query, key and value projections and, unless `output_bias` says otherwise, of the output projection.
    `output_gate` doubles the query projection; `sinks` adds one learned score a head.
    """

    kind: Literal["softmax"]
    heads: Count
    kv_heads: Count = later(0)
    head_dim: Count = later(0)
    causal: Flag = True
    window_tokens: Count | None = None
    chunk_tokens: Count | None = None
    bias: Flag = False
    output_bias: Flag | None = None
    qk_norm: Flag = False
    output_gate: Flag = False
    sinks: Flag = False

    @model_validator(mode="after")
    def _one_reach(self) -> SoftmaxAttention:
        if self.window_tokens is not None and self.chunk_tokens is not None:
            raise PydanticCustomError("conflict", "window_tokens and chunk_tokens exclude each other")
        return self

    @property
    def has_output_bias(self) -> bool:
        """Whether the output projection has a bias."""
        return self.bias if self.output_bias is None else self.output_bias


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
    """A linear recurrence in chunks: gated delta rule, Mamba-2 and their kind; time linear in the length.

    `heads` x `head_dim` is the width of values and state outputs, `kv_heads` x `key_head_dim` that of keys and of queries
    (groups x state size in Mamba-2). `gate`: a second projection of value width. `decays_per_head`: scalars projected per
    head (1: Mamba-2's step; 2: decay and beta of the delta rule). `conv_kernel`: depthwise causal convolution over queries,
    keys and values, 0 for none. `chunk_tokens`: chunk of the chunked algorithm.
    """

    kind: Literal["linear"]
    heads: Count
    kv_heads: Count = later(0)
    head_dim: Count = later(0)
    key_head_dim: Count = later(0)
    conv_kernel: Natural = 0
    gate: Flag = True
    decays_per_head: Natural = 1
    chunk_tokens: Count = 64
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
    """Routed experts. hidden_size is that of one expert, shared_hidden_size the sum over the shared ones.

    `bias` is that of the experts' projections, `router_bias` one number an expert.
    """

    kind: Literal["moe"]
    hidden_size: Count
    gated: Flag = True
    experts: Count
    top_k: Count
    shared_hidden_size: Natural = 0
    shared_gate: Flag = False
    groups: Natural = 0
    bias: Flag = False
    router_bias: Flag = False

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
    """`repeat` equal layers in a row, each attention then feed-forward (either may be null).

    `norms` counts the norms of a layer, by default one a sublayer (4 where outputs are normalised too; 1 where attention and
    feed-forward share one). `parallel`: attention and feed-forward read the same input and are added together.
    """

    repeat: Annotated[Count, Field(le=MAX_LAYERS)] = 1
    attention: Attention | None = None
    mlp: Mlp | None = None
    norms: Annotated[Natural, Field(le=8)] | None = None
    parallel: Flag = False

    @model_validator(mode="after")
    def _not_empty(self) -> Block:
        if self.attention is None and self.mlp is None:
            raise PydanticCustomError("missing", "a block needs attention, mlp or both")
        if self.parallel and (self.attention is None or self.mlp is None):
            raise PydanticCustomError("conflict", "a parallel block needs attention and mlp")
        return self

    @property
    def norm_count(self) -> int:
        """Norms of a layer."""
        default = (self.attention is not None) + (self.mlp is not None)
        return default if self.norms is None else self.norms


class Transformer(Spec):
    """A decoder (or encoder) stack by its sizes. vocab_size 0: no embedding and no head (an encoder of features).

    An encoder of features has an input projection from `embedding_features` numbers a token (the values of an image patch),
    and an output projection: `output_merge` neighbouring tokens, joined (each the mean of `output_pool`), become one of
    `output_features` numbers, through `output_hidden_size` in between where that is not 0; `output_count` of them (feature
    maps of inner layers beside the last).
    """

    hidden_size: Count
    vocab_size: Natural = 0
    tied_embeddings: Flag = False
    norm: Literal["rms", "layer"] = "rms"
    learned_positions: Count | None = None
    mtp_layers: Natural = 0
    head_bias: Flag = False
    embedding_features: Natural = 0
    output_features: Natural = 0
    output_hidden_size: Natural = 0
    output_merge: Count = 1
    output_pool: Count = 1
    output_count: Count = 1
    blocks: Annotated[tuple[Block, ...], Sized(1, MAX_LAYERS)]

    @model_validator(mode="after")
    def _ends_agree(self) -> Transformer:
        if self.vocab_size and (self.embedding_features or self.output_features):
            raise PydanticCustomError("conflict", "embedding_features and output_features belong to an encoder (vocab_size 0)")
        several = max(self.output_merge, self.output_pool, self.output_count) > 1
        if not self.output_features and (self.output_hidden_size or several):
            raise PydanticCustomError("conflict", "the sizes of an output projection need output_features")
        if not self.vocab_size and (self.head_bias or self.mtp_layers):
            raise PydanticCustomError("conflict", "head_bias and mtp_layers need a vocab_size")
        return self

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
