"""A transformer as Megatron-core flags, and what of it has no flag."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from solver.errors import FieldError
from solver.frameworks.megatron_core import VOCAB_DIVISIBLE_BY
from solver.problem.model import Block, DenseMlp, LinearAttention, MlaAttention, MoeMlp, SoftmaxAttention, Transformer

_BLOCKS = "/model/transformer/blocks"


def _no_field(pointer: str, message: str) -> FieldError:
    return FieldError(pointer, "not_supported", message, None)


def inexpressible_model(model: Transformer) -> Iterator[FieldError]:
    """One attention, at most one dense and one routed feed-forward for all layers; causal; biases everywhere or nowhere."""
    first, seen = model.blocks[0].attention, {mlp.kind: mlp for block in reversed(model.blocks) if (mlp := block.mlp)}
    for index, block in enumerate(model.blocks):
        if block.attention is None or block.mlp is None:
            yield _no_field(f"{_BLOCKS}/{index}", "every layer has attention and a feed-forward")
        elif block.attention != first:
            yield _no_field(f"{_BLOCKS}/{index}/attention", "all layers have the same attention")
        elif block.mlp != seen[block.mlp.kind]:
            yield _no_field(f"{_BLOCKS}/{index}/mlp", f"all {block.mlp.kind} layers have the same feed-forward")
        yield from _unwritten(block, f"{_BLOCKS}/{index}")
    if len({mlp.gated for mlp in seen.values()}) > 1:
        yield _no_field(f"{_BLOCKS}/0/mlp/gated", "dense and routed feed-forwards are both gated or both not")
    if first is not None and not first.causal:
        yield _no_field(f"{_BLOCKS}/0/attention/causal", "pretrain_gpt.py trains causal attention")
    if first is not None and _attention_bias(model) < _mlp_bias(model):
        yield _no_field(f"{_BLOCKS}/0/mlp/bias", "feed-forward biases come with attention biases")
    if len({mlp.bias for mlp in seen.values()}) > 1:
        yield _no_field(f"{_BLOCKS}/0/mlp/bias", "dense and routed feed-forwards both have biases or both have none")
    if isinstance(first, SoftmaxAttention) and first.bias and first.has_output_bias != _mlp_bias(model):
        yield _no_field(f"{_BLOCKS}/0/attention/output_bias", "the bias of attention outputs comes with feed-forward biases")
    if not model.vocab_size:
        yield _no_field("/model/transformer/vocab_size", "the model has an embedding and a head")
    if model.head_bias:
        yield _no_field("/model/transformer/head_bias", "the head has no bias")


def _unwritten(block: Block, pointer: str) -> Iterator[FieldError]:
    """What layers may have and these flags do not say."""
    attention, mlp = block.attention, block.mlp
    if isinstance(attention, LinearAttention):
        yield _no_field(f"{pointer}/attention/kind", "linear attention is not exported")
    if isinstance(attention, SoftmaxAttention):
        for name in ("window_tokens", "chunk_tokens", "output_gate", "sinks"):
            if getattr(attention, name):
                yield _no_field(f"{pointer}/attention/{name}", f"{name} of attention is not exported")
    if block.norms is not None and block.norms != 2:
        yield _no_field(f"{pointer}/norms", "every layer has two norms")
    if block.parallel:
        yield _no_field(f"{pointer}/parallel", "attention and feed-forward follow each other")
    if isinstance(mlp, MoeMlp) and mlp.router_bias:
        yield _no_field(f"{pointer}/mlp/router_bias", "the router has no bias")


def _attention_bias(model: Transformer) -> bool:
    attention = model.blocks[0].attention
    return isinstance(attention, SoftmaxAttention) and attention.bias


def _mlp_bias(model: Transformer) -> bool:
    return any(block.mlp is not None and block.mlp.bias for block in model.blocks)


def model_flags(model: Transformer, row_tokens: int) -> list[str]:
    dense = next((block.mlp for block in model.blocks if isinstance(block.mlp, DenseMlp)), None)
    moe = next((block.mlp for block in model.blocks if isinstance(block.mlp, MoeMlp)), None)
    mlp = dense or moe
    assert mlp is not None, "models without feed-forward are refused before"
    flags = [
        f"--num-layers {model.layers}",
        f"--hidden-size {model.hidden_size}",
        f"--ffn-hidden-size {mlp.hidden_size}",
        *_attention_flags(model),
        f"--normalization {'RMSNorm' if model.norm == 'rms' else 'LayerNorm'}",
        *(["--swiglu"] if mlp.gated else []),
        *_bias_flags(model),
        *_position_flags(model, row_tokens),
        *([] if model.tied_embeddings else ["--untie-embeddings-and-output-weights"]),
        f"--make-vocab-size-divisible-by {VOCAB_DIVISIBLE_BY}",
    ]
    if model.mtp_layers:
        flags.append(f"--mtp-num-layers {model.mtp_layers}")
    return flags


def _attention_flags(model: Transformer) -> list[str]:
    attention = model.blocks[0].attention
    if isinstance(attention, MlaAttention):
        return _latent_attention_flags(attention)
    assert isinstance(attention, SoftmaxAttention), "other attention is refused while the problem is parsed"
    flags = [f"--num-attention-heads {attention.heads}", f"--kv-channels {attention.head_dim}"]
    if attention.kv_heads != attention.heads:
        flags += ["--group-query-attention", f"--num-query-groups {attention.kv_heads}"]
    return [*flags, *(["--qk-layernorm"] if attention.qk_norm else [])]


def _latent_attention_flags(attention: MlaAttention) -> list[str]:
    """MC42: no grouped-query flags beside these; the compressed vectors are normalised."""
    query = [f"--q-lora-rank {attention.q_lora_rank}"] if attention.q_lora_rank else []
    return [
        f"--num-attention-heads {attention.heads}",
        f"--kv-channels {attention.v_head_dim}",
        "--multi-latent-attention",
        *query,
        f"--kv-lora-rank {attention.kv_lora_rank}",
        f"--qk-head-dim {attention.qk_nope_head_dim}",
        f"--qk-pos-emb-head-dim {attention.qk_rope_head_dim}",
        f"--v-head-dim {attention.v_head_dim}",
        "--qk-layernorm",
    ]


def _bias_flags(model: Transformer) -> list[str]:
    if _mlp_bias(model):
        return []
    return ["--disable-bias-linear", *(["--add-qkv-bias"] if _attention_bias(model) else [])]


def _position_flags(model: Transformer, row_tokens: int) -> list[str]:
    if model.learned_positions is not None:
        return ["--position-embedding-type learned_absolute", f"--max-position-embeddings {model.learned_positions}"]
    rope_type = ["--rope-type rope"] if isinstance(model.blocks[0].attention, MlaAttention) else []
    return ["--position-embedding-type rope", *rope_type, f"--max-position-embeddings {row_tokens}"]


def moe_flags(model: Transformer, precision: str) -> list[str]:
    """Flags of routed experts; empty for dense models. Group top-k does not change the plan: half of the groups unless set."""
    moe = next((block.mlp for block in model.blocks if isinstance(block.mlp, MoeMlp)), None)
    if moe is None:
        return []
    flags = [
        f"--num-experts {moe.experts}",
        f"--moe-ffn-hidden-size {moe.hidden_size}",
        f"--moe-router-topk {moe.top_k}",
        f"--moe-layer-freq '{layer_pattern(model)}'",
        "--moe-token-dispatcher-type alltoall",
        *(["--moe-grouped-gemm"] if precision == "bf16" else []),
    ]
    if moe.shared_hidden_size:
        flags.append(f"--moe-shared-expert-intermediate-size {moe.shared_hidden_size}")
    if moe.shared_gate:
        flags.append("--moe-shared-expert-gate")
    if moe.groups > 1:
        flags.append(f"--moe-router-num-groups {moe.groups}")
        flags.append(f'--moe-router-group-topk "${{MOE_ROUTER_GROUP_TOPK:-{max(1, moe.groups // 2)}}}"')
    return flags


def layer_pattern(model: Transformer) -> str:
    """Python list expression, 1 where a layer has experts: `([0]*3+[1]*58)`."""
    kinds = [int(isinstance(block.mlp, MoeMlp)) for block in model.blocks for _ in range(block.repeat)]
    return "(" + "+".join(f"[{kind}]*{len(list(group))}" for kind, group in groupby(kinds)) + ")"
