#!/usr/bin/env bash

# Megatron-core launch script, checked against the rules of Megatron-LM 0.20.
# Plan 7bdf9e143586439973eb6ec704239b2eb9d93c46f0ad1172efd2d097d3afa306
#   (solver 0.1.0, cost model 1, data 2026-12)
#
# Derived numbers (Megatron computes them itself; they must come out the same):
#   world size               256 on 32 nodes
#   data parallel size       8
#   expert data parallel     2
#   micro-batches a replica  512
#   global batch             4096 sequences of 4096 tokens
#   padded vocabulary        129280 (of 129280)
#   layers a virtual stage   3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0
# Predicted: 12.5 s a step, memory safe.
# Note: Rotary base and scaling, router score function and learning rate do not change the plan: give them in EXTRA_ARGS.

set -euo pipefail

usage() {
  cat <<'USAGE'
usage: launch.sh [--mock-data] [--srun] [--dry-run] [-- EXTRA_MEGATRON_FLAGS...]
  --mock-data  random tokens instead of DATA_PATH and TOKENIZER_MODEL: starts as it is
  --srun       start one torchrun a node with srun (inside a Slurm allocation)
  --dry-run    print the command instead of running it
Set before starting:
  MEGATRON_PATH    directory of Megatron-LM that holds pretrain_gpt.py
  DATA_PATH        prefix of the preprocessed data set       (not with --mock-data)
  TOKENIZER_MODEL  tokenizer of the model, a name or a path  (not with --mock-data)
Several nodes without --srun: run on each node with NODE_RANK and MASTER_ADDR (MASTER_PORT defaults to 29500).
--srun over several groups: HOSTFILE, one host a line in launch order.
Optional: TRAIN_ITERS, LR, MIN_LR, CHECKPOINT_PATH, EXTRA_ARGS.
USAGE
}

refuse() { echo "launch.sh: $1" >&2; exit 64; }

MOCK_DATA=0 SRUN=0 DRY_RUN=0 ARGUMENTS=("$@")
while (($#)); do
  case "$1" in
    --mock-data) MOCK_DATA=1 ;;
    --srun) SRUN=1 ;;
    --dry-run) DRY_RUN=1 ;;
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    *) usage >&2; refuse "unknown argument $1" ;;
  esac
  shift
done

# Nodes in launch order; the ranks of a node follow each other.
#   node rank 0-31: group h100, node 0-31 (ranks 0-255)
NNODES=32
PROCESSES=(8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8)  # a node rank
MIXED_GROUPS=0

export CUDA_DEVICE_MAX_CONNECTIONS=1

# Model; the vocabulary is padded to 129280.
MODEL_ARGS=(
  --num-layers 61
  --hidden-size 7168
  --ffn-hidden-size 18432
  --num-attention-heads 128
  --kv-channels 128
  --multi-latent-attention
  --q-lora-rank 1536
  --kv-lora-rank 512
  --qk-head-dim 128
  --qk-pos-emb-head-dim 64
  --v-head-dim 128
  --qk-layernorm
  --normalization RMSNorm
  --swiglu
  --disable-bias-linear
  --position-embedding-type rope
  --rope-type rope
  --max-position-embeddings 4096
  --untie-embeddings-and-output-weights
  --make-vocab-size-divisible-by 128
  --mtp-num-layers 1
)

# Experts.
MOE_ARGS=(
  --num-experts 256
  --moe-ffn-hidden-size 2048
  --moe-router-topk 8
  --moe-layer-freq '([0]*3+[1]*58)'
  --moe-token-dispatcher-type alltoall
  --moe-grouped-gemm
  --moe-shared-expert-intermediate-size 2048
  --moe-router-num-groups 8
  --moe-router-group-topk "${MOE_ROUTER_GROUP_TOPK:-4}"
)

# Layout.
PARALLEL_ARGS=(
  --tensor-model-parallel-size 2
  --context-parallel-size 1
  --pipeline-model-parallel-size 16
  --expert-model-parallel-size 8
  --expert-tensor-parallel-size 1
  --sequence-parallel
  --pipeline-model-parallel-layout 'Et*3|(tt|)*29|mL'
  --microbatch-group-size-per-virtual-pipeline-stage 16
)

# Data parallel: optimizer states and gradients.
DATA_PARALLEL_ARGS=(
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
)

# Recompute.
RECOMPUTE_ARGS=(
  --recompute-granularity selective
  --recompute-modules core_attn
)

# Batch.
BATCH_ARGS=(
  --seq-length 4096
  --micro-batch-size 1
  --global-batch-size 4096
)

# Precision.
PRECISION_ARGS=(
  --bf16
  --accumulate-allreduce-grads-in-fp32
)

# Optimizer.
OPTIMIZER_ARGS=(
  --optimizer adam
)

# Kernels.
KERNEL_ARGS=(
  --transformer-impl transformer_engine
  --attention-backend fused
  --attention-dropout 0
  --hidden-dropout 0
)

# Data and tokenizer are not part of the plan.
if ((MOCK_DATA)); then
  # The null tokenizer adds one token (end of document): the vocabulary has 129280 entries before padding.
  DATA_ARGS=(--mock-data --tokenizer-type NullTokenizer --vocab-size 129279)
else
  [[ -n "${DATA_PATH:-}" ]] || refuse "set DATA_PATH (prefix of the preprocessed data set), or pass --mock-data"
  [[ -n "${TOKENIZER_MODEL:-}" ]] || refuse "set TOKENIZER_MODEL (its vocabulary has 129280 entries), or pass --mock-data"
  DATA_ARGS=(
    --data-path "$DATA_PATH"
    --tokenizer-type "${TOKENIZER_TYPE:-HuggingFaceTokenizer}"
    --tokenizer-model "$TOKENIZER_MODEL"
  )
fi
[[ -n "${MEGATRON_PATH:-}" ]] || refuse "set MEGATRON_PATH (directory of Megatron-LM that holds pretrain_gpt.py)"

# Hyperparameters below do not change what a step costs.
RUN_ARGS=(
  --train-iters "${TRAIN_ITERS:-100}"
  --lr "${LR:-1.0e-4}"
  --min-lr "${MIN_LR:-1.0e-5}"
  --lr-decay-style cosine
  --clip-grad 1.0
  --weight-decay 0.1
  --init-method-std 0.02
  --split 100,0,0
  --eval-iters 0
  --log-interval 1
  --log-throughput
)
if [[ -n "${CHECKPOINT_PATH:-}" ]]; then
  RUN_ARGS+=(--save "$CHECKPOINT_PATH" --load "$CHECKPOINT_PATH" --save-interval 500 --ckpt-format torch_dist)
fi
read -r -a EXTRA <<<"${EXTRA_ARGS:-}"

if ((SRUN)) && [[ -z "${LAUNCHED_BY_SRUN:-}" ]]; then
  [[ -n "${SLURM_JOB_ID:-}" ]] || refuse "--srun needs a Slurm allocation of $NNODES nodes (salloc or sbatch)"
  SRUN_ARGS=(--nodes="$NNODES" --ntasks="$NNODES" --ntasks-per-node=1)
  if ((MIXED_GROUPS)); then
    [[ -n "${HOSTFILE:-}" ]] || refuse "set HOSTFILE: one host a line, in the launch order above"
    export SLURM_HOSTFILE="$HOSTFILE"
    SRUN_ARGS+=(--distribution=arbitrary)
    MASTER_ADDR="$(head -n 1 "$HOSTFILE")"
  else
    MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
  fi
  export MASTER_ADDR LAUNCHED_BY_SRUN=1
  exec srun "${SRUN_ARGS[@]}" bash "$0" "${ARGUMENTS[@]}"
fi

if [[ -n "${LAUNCHED_BY_SRUN:-}" ]]; then NODE_RANK="$SLURM_PROCID"; fi
if ((NNODES > 1)); then
  [[ -n "${NODE_RANK:-}" ]] || refuse "set NODE_RANK (0 to $((NNODES - 1)), in the launch order above)"
  [[ -n "${MASTER_ADDR:-}" ]] || refuse "set MASTER_ADDR (the host of node rank 0)"
fi
NODE_RANK="${NODE_RANK:-0}"
if [[ -n "${DEVICES+set}" ]]; then export CUDA_VISIBLE_DEVICES="${DEVICES[$NODE_RANK]}"; fi
COMMAND=(
  torchrun
  --nnodes "$NNODES"
  --nproc-per-node "${PROCESSES[$NODE_RANK]}"
  --node-rank "$NODE_RANK"
  --master-addr "${MASTER_ADDR:-127.0.0.1}"
  --master-port "${MASTER_PORT:-29500}"
  "$MEGATRON_PATH/pretrain_gpt.py"
  "${MODEL_ARGS[@]}" "${MOE_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${DATA_PARALLEL_ARGS[@]}" "${RECOMPUTE_ARGS[@]}" "${BATCH_ARGS[@]}" "${PRECISION_ARGS[@]}" "${OPTIMIZER_ARGS[@]}" "${KERNEL_ARGS[@]}"
  "${DATA_ARGS[@]}" "${RUN_ARGS[@]}" "${EXTRA[@]}" "$@"
)
if ((DRY_RUN)); then
  printf '%q ' "${COMMAND[@]}"
  echo
else
  exec "${COMMAND[@]}"
fi
