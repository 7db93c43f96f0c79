"""A measured-runs document of our own, one row of every kind; the measured figures are made up."""

from __future__ import annotations

HEADER = (
    "row_id,source_id,source_ref,confidence,model,params_b,layers,hidden,heads,kv_heads,head_dim,ffn,gated_mlp,vocab,seq_len,"
    "n_experts,topk,moe_ffn,shared_ffn,n_dense_layers,arch_source,gpu,gpus,gpus_per_node,interconnect,peak_tflops,tp,pp,dp,cp,ep,"
    "sp,vpp,mbs,gbs,recompute,zero_stage,sharding,precision,flash_attn,framework,task,step_time_s,tflops_gpu,mfu_pct,hfu_pct,"
    "tokens_s_gpu,peak_mem_gb,mem_kind,status,flops_convention,derived_fields,notes"
)
COLUMNS = HEADER.split(",")

GPT = {
    "model": "gpt-small",
    "layers": "24",
    "hidden": "2048",
    "heads": "16",
    "kv_heads": "16",
    "ffn": "8192",
    "gated_mlp": "0",
    "vocab": "51200",
    "seq_len": "2048",
    "gpu": "A100-80GB",
    "gpus": "8",
    "gpus_per_node": "8",
    "interconnect": "NVSwitch; 8x HDR200 InfiniBand, 200 Gb/s per GPU",
    "tp": "2",
    "pp": "2",
    "dp": "2",
    "sp": "1",
    "vpp": "1",
    "mbs": "2",
    "gbs": "64",
    "recompute": "none",
    "zero_stage": "1",
    "sharding": "dist-optimizer",
    "precision": "bf16",
    "flash_attn": "2",
    "framework": "Megatron-Core",
    "task": "pretrain",
    "step_time_s": "2.5",
    "status": "ok",
}


def document(*rows: dict[str, str]) -> str:
    """A CSV of rows given as changes to a small dense GPT on one node."""
    lines = [",".join(COLUMNS)]
    for number, changes in enumerate(rows):
        cells = {"row_id": f"row-{number}", "source_id": "ours", **GPT, **changes}
        lines.append(",".join(_quoted(cells.get(name, "")) for name in COLUMNS))
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return f'"{text}"' if "," in text else text


DENSE: dict[str, str] = {}
FULLY_SHARDED = {
    "tp": "1", "pp": "1", "dp": "8", "sp": "0", "zero_stage": "3", "sharding": "FSDP2 8", "framework": "torchtitan",
    "recompute": "full",
}  # fmt: skip
EXPERTS = {
    "model": "moe", "gated_mlp": "1", "n_experts": "16", "topk": "2", "moe_ffn": "1024", "n_dense_layers": "0", "ep": "4",
    "tp": "1", "pp": "1", "dp": "8", "sp": "0",
}  # fmt: skip
CONTEXT = {"gated_mlp": "1", "cp": "2", "tp": "2", "pp": "1", "dp": "2", "seq_len": "8192", "mbs": "1"}
UNFUSED = {
    "framework": "Megatron-DeepSpeed",
    "flash_attn": "",
    "sp": "",
    "zero_stage": "",
    "sharding": "ddp",
    "recompute": "full",
}
UNLIKE = {"gpu": "8x A100-80GB + 8x H100", "gpus": "16", "dp": "4"}
TOKENS_ONLY = {"step_time_s": "", "tokens_s_gpu": "6000"}
FLOPS_ONLY = {"step_time_s": "", "tflops_gpu": "120", "flops_convention": "megatron_model"}
MEMORY = {"step_time_s": "", "peak_mem_gb": "20", "mem_kind": "GiB, max reserved"}
UNSTATED = {"mbs": "", "recompute": "unstated"}
FINE_TUNED = {"task": "lora"}
OUT_OF_MEMORY = {"step_time_s": "", "status": "oom", "mbs": "32", "gpu": "A100-40GB"}
