"""Signs in a config.json that the model is more than its family says; each is refused by field and value, never dropped."""

from __future__ import annotations

from typing import Any, Final

from solver.importers.config_reader import ConfigReader, short
from solver.importers.hf_families import Family

#: Keys that change the layers of a model. One that the reading of the family did not look at is refused when it is in force.
_STRUCTURE: Final = (
    "num_local_experts",
    "num_experts",
    "n_routed_experts",
    "moe_num_experts",
    "num_experts_per_tok",
    "kv_lora_rank",
    "hybrid_override_pattern",
    "full_attention_interval",
    "attn_type_list",
    "attn_layer_period",
    "attn_layer_indices",
    "layers_block_type",
    "linear_attn_config",
    "linear_num_value_heads",
    "mamba_num_heads",
    "mamba_n_heads",
    "mamba_d_state",
    "ssm_state_size",
    "ssm_cfg",
    "sliding_window",
    "attention_chunk_size",
    "layer_types",
    "interleave_moe_layer_step",
)
#: Keys of things that no family read here can say.
_FOREIGN: Final = {
    "cross_attention_layers": "cross-attention layers",
    "index_topk": "sparse attention by an index",
    "index_n_heads": "sparse attention by an index",
    "zero_expert_num": "zero experts",
    "moe_latent_size": "experts on a latent vector",
    "laurel_rank": "augmented residuals",
    "altup_num_inputs": "alternating updates",
    "hidden_size_per_layer_input": "embeddings of their own for every layer",
    "vocab_size_per_layer_input": "embeddings of their own for every layer",
    "num_kv_shared_layers": "layers that share keys and values",
    "use_cla": "layers that share keys and values",
    "block_configs": "layers of widths of their own",
    "ffn_multipliers": "layers of widths of their own",
    "num_query_heads": "layers of heads of their own",
    "num_mem_blocks": "layers that share their weights",
    "hybrid_layer_ids": "layers that share their weights",
    "add_cross_attention": "cross attention",
    "is_encoder_decoder": "an encoder and a decoder",
    "conv_L_cache": "convolution layers",
    "time_mix_extra_dim": "RWKV layers",
    "attention_hidden_size": "RWKV layers",
    "mamba_d_ssm": "attention and a recurrence in one layer",
    "block_types": "recurrent blocks of another kind",
    "hc_mult": "hyper-connections",
    "parallel_attn_mlp_res": "a dense feed-forward beside the experts",
    "type_vocab_size": "segment embeddings of an encoder",
    "num_loops": "looped layers",
}


def check_structure(reader: ConfigReader, family: Family, *, complete: bool) -> None:
    """Refuse what would make it another model than the one read; keys nobody looked at only where the reading is `complete`."""
    for key, what in _FOREIGN.items():
        if _in_force(reader.config.get(key)):
            reader.refuse(key, "not_supported", f"{key} {short(reader.config[key])}: {what} cannot be expressed")
    for key in _STRUCTURE:
        value = reader.config.get(key)
        if complete and key not in reader.read and _in_force(value) and value != 1:
            reader.refuse(key, "not_supported", f"{key} {short(value)} in a config of {family.name} is not understood")
    embedded = reader.config.get("word_embed_proj_dim")
    if embedded is not None and embedded != reader.config.get("hidden_size"):
        reader.refuse("word_embed_proj_dim", "not_supported", "embeddings of another width than the layers are not supported")


def _in_force(value: Any) -> bool:
    return value is not None and value is not False and value not in (0, [], "", {})


def note_harmless(reader: ConfigReader) -> None:
    """Warn of what is in the config but not in the sizes."""
    stored = reader.config.get("quantization_config")
    if isinstance(stored, dict):
        method = short(stored.get("quant_method"))
        reader.warnings.append(
            f"quantization_config ({method}) describes the stored weights; the training precision is the workload's"
        )
    longest = reader.config.get("max_position_embeddings")
    if isinstance(longest, int) and not isinstance(longest, bool):
        reader.warnings.append(
            f"max_position_embeddings {longest} bounds the sequence length the model was made for; it is not enforced"
        )
    for key in ("attention_dropout", "attn_pdrop", "resid_pdrop", "embd_pdrop"):
        value = reader.config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            reader.warnings.append(f"{key} {value} is not taken over; set workload.kernels.dropout")
