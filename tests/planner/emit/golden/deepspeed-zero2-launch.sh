#!/usr/bin/env bash
# llama2-7b on 1 node of 8 x NVIDIA A100-SXM4-80GB: deepspeed
# dp 8, ZeRO-2, micro-batch 1, accumulation 8, bf16, recompute none
#
# Run it once. Arguments are passed on to the training script.
set -euo pipefail

# The training script, and its own arguments (data, tokenizer, output folder).
TRAIN_SCRIPT="${TRAIN_SCRIPT:-}"  # default: train.py
TRAIN_ARGS=()

fail() {
  echo "launch.sh: $1" >&2
  exit 2
}

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
PLAN_ARGS=(
  --deepspeed
  --deepspeed_config "$HERE/deepspeed_config.json"
)
if [[ -z "$TRAIN_SCRIPT" ]]; then
  TRAIN_SCRIPT="$HERE/train.py"
  PLAN_ARGS=() # it reads plan.json and deepspeed_config.json beside it
fi
[[ -f "$TRAIN_SCRIPT" ]] || fail "TRAIN_SCRIPT: no file $TRAIN_SCRIPT"
command -v torchrun > /dev/null || fail "torchrun is not on PATH: activate the environment that has torch"

# What the plan relies on.
export PYTORCH_CUDA_ALLOC_CONF="${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}"
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-16}"
export NCCL_DEBUG="${NCCL_DEBUG:-WARN}"
export TORCH_NCCL_ASYNC_ERROR_HANDLING="${TORCH_NCCL_ASYNC_ERROR_HANDLING:-1}"
export TOKENIZERS_PARALLELISM="${TOKENIZERS_PARALLELISM:-false}"

LAUNCHER_ARGS=(
  --standalone
  --nproc-per-node 8
)
exec torchrun "${LAUNCHER_ARGS[@]}" "$TRAIN_SCRIPT" "${PLAN_ARGS[@]}" "${TRAIN_ARGS[@]}" "$@"
