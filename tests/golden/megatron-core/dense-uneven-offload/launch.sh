#!/usr/bin/env bash

# Megatron-core launch script, checked against the rules of Megatron-LM 0.20.
# Plan 3cd66ddee6ee2200bdc2cf26f34cc06c7507efa21cbd2f6dddf915e570cfc409
#   (solver 0.1.0, cost model 1, data 2026-12)
#
# Derived numbers (Megatron computes them itself; they must come out the same):
#   world size               16 on 2 nodes
#   data parallel size       1
#   micro-batches a replica  64
#   global batch             64 sequences of 8192 tokens
#   padded vocabulary        128512 (of 128256)
#   layers a virtual stage   20, 21, 21, 18
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
#   node rank 0-1: group a100, node 0-1 (ranks 0-15)
NNODES=2
PROCESSES=(8 8)  # a node rank
MIXED_GROUPS=0

export CUDA_DEVICE_MAX_CONNECTIONS=1

# Model; the vocabulary is padded to 128512.
MODEL_ARGS=(
  --num-layers 80
  --hidden-size 8192
  --ffn-hidden-size 28672
  --num-attention-heads 64
  --kv-channels 128
  --group-query-attention
  --num-query-groups 8
  --normalization RMSNorm
  --swiglu
  --disable-bias-linear
  --position-embedding-type rope
  --max-position-embeddings 8192
  --untie-embeddings-and-output-weights
  --make-vocab-size-divisible-by 128
)

# Layout.
PARALLEL_ARGS=(
  --tensor-model-parallel-size 4
  --context-parallel-size 1
  --pipeline-model-parallel-size 4
  --expert-model-parallel-size 1
  --expert-tensor-parallel-size 1
  --sequence-parallel
  --pipeline-model-parallel-layout 'Et*20|(t*21|)*2t*18L'
)

# Data parallel: optimizer states and gradients.
DATA_PARALLEL_ARGS=(
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
)

# Recompute.
RECOMPUTE_ARGS=(
  --recompute-granularity full
  --recompute-method uniform
  --recompute-num-layers 1
)

# Batch.
BATCH_ARGS=(
  --seq-length 8192
  --micro-batch-size 1
  --global-batch-size 64
)

# Precision.
PRECISION_ARGS=(
  --bf16
  --accumulate-allreduce-grads-in-fp32
)

# Optimizer.
OPTIMIZER_ARGS=(
  --optimizer adam
  --use-precision-aware-optimizer
  --main-grads-dtype fp32
  --main-params-dtype fp32
  --exp-avg-dtype fp32
  --exp-avg-sq-dtype fp32
  --optimizer-cpu-offload
  --optimizer-offload-fraction 0.5
)

# Kernels.
KERNEL_ARGS=(
  --transformer-impl transformer_engine
  --attention-backend flash
  --attention-dropout 0
  --hidden-dropout 0
)

# Data and tokenizer are not part of the plan.
if ((MOCK_DATA)); then
  # The null tokenizer adds one token (end of document): the vocabulary has 128256 entries before padding.
  DATA_ARGS=(--mock-data --tokenizer-type NullTokenizer --vocab-size 128255)
else
  [[ -n "${DATA_PATH:-}" ]] || refuse "set DATA_PATH (prefix of the preprocessed data set), or pass --mock-data"
  [[ -n "${TOKENIZER_MODEL:-}" ]] || refuse "set TOKENIZER_MODEL (its vocabulary has 128256 entries), or pass --mock-data"
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
  "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" "${DATA_PARALLEL_ARGS[@]}" "${RECOMPUTE_ARGS[@]}" "${BATCH_ARGS[@]}" "${PRECISION_ARGS[@]}" "${OPTIMIZER_ARGS[@]}" "${KERNEL_ARGS[@]}"
  "${DATA_ARGS[@]}" "${RUN_ARGS[@]}" "${EXTRA[@]}" "$@"
)
if ((DRY_RUN)); then
  printf '%q ' "${COMMAND[@]}"
  echo
else
  exec "${COMMAND[@]}"
fi
