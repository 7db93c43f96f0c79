"""Small configs of each kind, written for the tests."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

LLAMA: Config = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "vocab_size": 1000,
}
MISTRAL: Config = {
    **LLAMA,
    "model_type": "mistral",
    "architectures": ["MistralForCausalLM"],
    "num_key_value_heads": 2,
    "sliding_window": None,
}
MIXTRAL: Config = {
    **MISTRAL,
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN2: Config = {
    **LLAMA,
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "num_key_value_heads": 2,
    "use_sliding_window": False,
    "sliding_window": 32,
    "max_window_layers": 3,
}
QWEN3: Config = {
    **LLAMA,
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": None,
    "use_sliding_window": False,
}
QWEN3_MOE: Config = {
    **QWEN3,
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
QWEN3_NEXT: Config = {
    **QWEN3_MOE,
    "model_type": "qwen3_next",
    "architectures": ["Qwen3NextForCausalLM"],
    "full_attention_interval": 2,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "shared_expert_intermediate_size": 32,
}
DEEPSEEK_V3: Config = {
    **LLAMA,
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_key_value_heads": 8,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_routed_experts": 16,
    "n_shared_experts": 2,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "n_group": 4,
    "topk_group": 2,
    "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1,
}
GLM4_MOE: Config = {
    **LLAMA,
    "model_type": "glm4_moe",
    "architectures": ["Glm4MoeForCausalLM"],
    "head_dim": 16,
    "num_key_value_heads": 2,
    "attention_bias": True,
    "use_qk_norm": True,
    "first_k_dense_replace": 2,
    "n_routed_experts": 16,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 32,
    "n_group": 1,
}
GPT_OSS: Config = {
    **MIXTRAL,
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "head_dim": 16,
    "attention_bias": True,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "experts_per_token": 2,
}
LLAMA4: Config = {
    **LLAMA,
    "model_type": "llama4_text",
    "architectures": ["Llama4ForCausalLM"],
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 32,
    "intermediate_size_mlp": 128,
    "num_local_experts": 8,
    "num_experts_per_tok": 1,
    "interleave_moe_layer_step": 2,
    "attention_chunk_size": 32,
}
GEMMA2: Config = {
    **LLAMA,
    "model_type": "gemma2",
    "architectures": ["Gemma2ForCausalLM"],
    "num_key_value_heads": 4,
    "head_dim": 16,
    "sliding_window": 16,
}
GEMMA3: Config = {
    **GEMMA2,
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "num_hidden_layers": 7,
    "sliding_window_pattern": 6,
}
ERNIE: Config = {
    **LLAMA,
    "model_type": "ernie4_5_moe",
    "architectures": ["Ernie4_5_MoeForCausalLM"],
    "num_key_value_heads": 2,
    "use_bias": False,
    "moe_num_experts": 8,
    "moe_k": 2,
    "moe_intermediate_size": 32,
    "moe_num_shared_experts": 1,
    "moe_layer_start_index": 1,
    "moe_layer_end_index": 2,
    "moe_layer_interval": 1,
}
JAMBA: Config = {
    **MIXTRAL,
    "model_type": "jamba",
    "architectures": ["JambaForCausalLM"],
    "num_experts": 4,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "attn_layer_period": 4,
    "attn_layer_offset": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
}
del JAMBA["num_local_experts"]
NEMOTRON_H: Config = {
    **LLAMA,
    "model_type": "nemotron_h",
    "architectures": ["NemotronHForCausalLM"],
    "num_key_value_heads": 2,
    "attention_head_dim": 8,
    "hybrid_override_pattern": "M-*-",
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "n_groups": 2,
    "ssm_state_size": 32,
    "conv_kernel": 4,
    "chunk_size": 64,
    "time_step_limit": [0.0, float("inf")],
}
MAMBA2: Config = {
    "model_type": "mamba2",
    "architectures": ["Mamba2ForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "vocab_size": 1000,
    "num_heads": 8,
    "head_dim": 16,
    "state_size": 32,
    "n_groups": 2,
    "conv_kernel": 4,
    "chunk_size": 64,
}
MINIMAX: Config = {
    **MIXTRAL,
    "model_type": "minimax_text_01",
    "architectures": ["MiniMaxText01ForCausalLM"],
    "attn_type_list": [0, 0, 0, 1],
}
GPT2: Config = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 64,
    "n_head": 8,
    "n_layer": 4,
    "n_positions": 128,
    "vocab_size": 1000,
    "activation_function": "gelu_new",
}
GPT_BIGCODE: Config = {**GPT2, "model_type": "gpt_bigcode", "architectures": ["GPTBigCodeForCausalLM"], "multi_query": True}
GPT_NEOX: Config = {
    **LLAMA,
    "model_type": "gpt_neox",
    "architectures": ["GPTNeoXForCausalLM"],
    "use_parallel_residual": True,
}
FALCON: Config = {
    "model_type": "falcon",
    "architectures": ["FalconForCausalLM"],
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "vocab_size": 1000,
    "multi_query": True,
    "parallel_attn": True,
    "new_decoder_architecture": False,
}
PHI_MSFT: Config = {
    "model_type": "phi-msft",
    "architectures": ["PhiForCausalLM"],
    "n_embd": 64,
    "n_head": 8,
    "n_head_kv": None,
    "n_inner": None,
    "n_layer": 4,
    "n_positions": 128,
    "vocab_size": 1000,
}
OPT: Config = {
    "model_type": "opt",
    "architectures": ["OPTForCausalLM"],
    "hidden_size": 64,
    "ffn_dim": 128,
    "num_attention_heads": 8,
    "num_hidden_layers": 4,
    "max_position_embeddings": 128,
    "vocab_size": 1000,
}
DBRX: Config = {
    "model_type": "dbrx",
    "architectures": ["DbrxForCausalLM"],
    "d_model": 64,
    "n_heads": 8,
    "n_layers": 4,
    "vocab_size": 1000,
    "attn_config": {"kv_n_heads": 2},
    "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 8, "moe_top_k": 2},
}
KIMI_LINEAR: Config = {
    **DEEPSEEK_V3,
    "model_type": "kimi_linear",
    "architectures": ["KimiLinearForCausalLM"],
    "q_lora_rank": None,
    "num_shared_experts": 2,
    "linear_attn_config": {"full_attn_layers": [4], "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4},
}
del KIMI_LINEAR["n_shared_experts"]
#: A model_type that is not known, with the usual keys.
CUSTOM: Config = {
    **LLAMA,
    "model_type": "ourmodel",
    "architectures": ["OurModelForCausalLM"],
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}

TEXT: dict[str, Config] = {
    config["model_type"]: config
    for config in (
        LLAMA, MISTRAL, MIXTRAL, QWEN2, QWEN3, QWEN3_MOE, QWEN3_NEXT, DEEPSEEK_V3, GLM4_MOE, GPT_OSS, LLAMA4, GEMMA2, GEMMA3,
        ERNIE, JAMBA, NEMOTRON_H, MAMBA2, MINIMAX, GPT2, GPT_BIGCODE, GPT_NEOX, FALCON, PHI_MSFT, OPT, DBRX, KIMI_LINEAR, CUSTOM,
    )
}  # fmt: skip

QWEN2_5_VL: Config = {
    **{key: value for key, value in QWEN2.items() if key != "architectures"},
    "model_type": "qwen2_5_vl",
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "vision_config": {
        "depth": 4,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "in_chans": 3,
        "out_hidden_size": 64,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [1, 3],
    },
}
QWEN3_VL: Config = {
    "model_type": "qwen3_vl",
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "tie_word_embeddings": False,
    "text_config": {**QWEN3, "model_type": "qwen3_vl_text"},
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 4,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_heads": 4,
        "in_channels": 3,
        "num_position_embeddings": 64,
        "out_hidden_size": 64,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "deepstack_visual_indexes": [1, 2],
    },
}
LLAVA: Config = {
    "model_type": "llava",
    "architectures": ["LlavaForConditionalGeneration"],
    "text_config": {"model_type": "llama", "vocab_size": 32064},
    "vision_config": {
        "model_type": "clip_vision_model",
        "hidden_size": 32,
        "image_size": 56,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "patch_size": 14,
    },
}
INTERNVL: Config = {
    "model_type": "internvl_chat",
    "architectures": ["InternVLChatModel"],
    "downsample_ratio": 0.5,
    "llm_config": {**QWEN2},
    "vision_config": {**LLAVA["vision_config"], "model_type": "intern_vit_6b"},
}
VISION: dict[str, Config] = {config["model_type"]: config for config in (QWEN2_5_VL, QWEN3_VL, LLAVA, INTERNVL)}
ALL: dict[str, Config] = {**TEXT, **VISION}
