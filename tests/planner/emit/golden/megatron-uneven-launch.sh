#!/usr/bin/env bash
# llama2-7b on 1 node of 8 x NVIDIA A100-SXM4-80GB: megatron
# dp 1, tp 2, pp 4, ZeRO-1, micro-batch 1, accumulation 64, bf16, recompute none
#
# Run it once. Arguments are passed on to the training script.
set -euo pipefail

# The training script, and its own arguments (data, tokenizer, output folder).
TRAIN_SCRIPT="${TRAIN_SCRIPT:-}"
TRAIN_ARGS=(
  --mock-data
  --tokenizer-type NullTokenizer
  --vocab-size 31999
  --train-iters 1000
  --log-interval 10
  --log-throughput
)

fail() {
  echo "launch.sh: $1" >&2
  exit 2
}

[[ -n "$TRAIN_SCRIPT" ]] || fail 'set TRAIN_SCRIPT to pretrain_gpt.py of a Megatron-LM checkout (tag core_v0.16.1), for example: TRAIN_SCRIPT=~/Megatron-LM/pretrain_gpt.py bash launch.sh'
[[ -f "$TRAIN_SCRIPT" ]] || fail "TRAIN_SCRIPT: no file $TRAIN_SCRIPT"
command -v torchrun > /dev/null || fail "torchrun is not on PATH: activate the environment that has torch"

# What the plan relies on.
export CUDA_DEVICE_MAX_CONNECTIONS=1
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
PLAN_ARGS=(
  --num-layers 32
  --hidden-size 4096
  --ffn-hidden-size 11008
  --num-attention-heads 32
  --kv-channels 128
  --seq-length 2048
  --max-position-embeddings 2048
  --position-embedding-type rope
  --rotary-base 10000
  --normalization RMSNorm
  --norm-epsilon 1e-05
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --no-create-attention-mask-in-dataloader
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --tensor-model-parallel-size 2
  --pipeline-model-parallel-size 4
  --pipeline-model-parallel-layout 'Et*7|t*9|t*9|t*7L'
  --micro-batch-size 1
  --global-batch-size 64
  --bf16
  --attention-backend flash
  --cross-entropy-loss-fusion
  --use-distributed-optimizer
  --optimizer adam
  --lr 0.0003
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --adam-eps 1e-08
  --clip-grad 1.0
  --lr-decay-style cosine
  --lr-warmup-iters 100
)
exec torchrun "${LAUNCHER_ARGS[@]}" "$TRAIN_SCRIPT" "${PLAN_ARGS[@]}" "${TRAIN_ARGS[@]}" "$@"
