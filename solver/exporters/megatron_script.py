"""The launch script: one bash file that starts itself under torchrun, on one node, by hand on several, or by Slurm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from solver.exporters.launch_nodes import LaunchNodes


@dataclass(frozen=True)
class FlagGroup:
    """Flags that become one bash array, with what they mean as comment lines."""

    name: str
    comments: tuple[str, ...]
    flags: tuple[str, ...]


def script(
    header: Sequence[str], nodes: LaunchNodes, variables: Mapping[str, str], vocab_size: int, groups: Sequence[FlagGroup]
) -> str:
    """`header` becomes comment lines, `variables` exported environment variables."""
    parts = [
        "#!/usr/bin/env bash",
        "\n".join(f"# {line}".rstrip() for line in header),
        _OPTIONS,
        _nodes(nodes),
        "\n".join(f"export {name}={value}" for name, value in variables.items()),
        "\n\n".join(_array(group) for group in groups),
        _DATA.replace("@VOCAB@", str(vocab_size)).replace("@VOCAB_WITHOUT_EOD@", str(vocab_size - 1)),
        _RUN.replace("@ARRAYS@", " ".join(f'"${{{group.name}[@]}}"' for group in groups)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _array(group: FlagGroup) -> str:
    comments = [f"# {line}" for line in group.comments]
    return "\n".join([*comments, f"{group.name}=(", *(f"  {flag}" for flag in group.flags), ")"])


def _nodes(nodes: LaunchNodes) -> str:
    lines = ["# Nodes in launch order; the ranks of a node follow each other."]
    for run in nodes.runs():
        lines.append(
            f"#   node rank {_range(run.node_ranks)}: group {run.group}, node {_range(run.nodes)} (ranks {_range(run.ranks)})"
        )
    lines.append(f"NNODES={len(nodes.nodes)}")
    lines.append(f"PROCESSES=({' '.join(str(count) for count in nodes.processes)})  # a node rank")
    lines.append(f"MIXED_GROUPS={int(len({node.group for node in nodes.nodes}) > 1)}")
    if any(node.local_devices != tuple(range(len(node.local_devices))) for node in nodes.nodes):
        devices = " ".join(",".join(str(device) for device in node.local_devices) for node in nodes.nodes)
        lines.append(f"DEVICES=({devices})  # a node rank: CUDA_VISIBLE_DEVICES")
    return "\n".join(lines)


def _range(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"


_OPTIONS = """
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
"""

_DATA = """
# Data and tokenizer are not part of the plan.
if ((MOCK_DATA)); then
  # The null tokenizer adds one token (end of document): the vocabulary has @VOCAB@ entries before padding.
  DATA_ARGS=(--mock-data --tokenizer-type NullTokenizer --vocab-size @VOCAB_WITHOUT_EOD@)
else
  [[ -n "${DATA_PATH:-}" ]] || refuse "set DATA_PATH (prefix of the preprocessed data set), or pass --mock-data"
  [[ -n "${TOKENIZER_MODEL:-}" ]] || refuse "set TOKENIZER_MODEL (its vocabulary has @VOCAB@ entries), or pass --mock-data"
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
"""

_RUN = """
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
  @ARRAYS@
  "${DATA_ARGS[@]}" "${RUN_ARGS[@]}" "${EXTRA[@]}" "$@"
)
if ((DRY_RUN)); then
  printf '%q ' "${COMMAND[@]}"
  echo
else
  exec "${COMMAND[@]}"
fi
"""
