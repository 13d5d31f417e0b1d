#!/usr/bin/env bash
# llama2-13b on 1 node of 8 x NVIDIA A100-SXM4-80GB: megatron-deepspeed
# dp 8, ZeRO-3, micro-batch 1, accumulation 64, bf16, recompute none
#
# Run it once. Arguments are passed on to the training script.
set -euo pipefail

# The training script, and its own arguments (data, tokenizer, output folder).
TRAIN_SCRIPT="${TRAIN_SCRIPT:-}"
DATA_PATH="${DATA_PATH:-}"
TRAIN_ARGS=(
  --data-path "$DATA_PATH"
  --tokenizer-type NullTokenizer
  --vocab-size 31999
  --train-iters 1000
  --split '949,50,1'
  --log-interval 10
)

fail() {
  echo "launch.sh: $1" >&2
  exit 2
}

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[[ -n "$TRAIN_SCRIPT" ]] || fail 'set TRAIN_SCRIPT to pretrain_gpt.py of a Megatron-DeepSpeed checkout, for example: TRAIN_SCRIPT=~/Megatron-DeepSpeed/pretrain_gpt.py bash launch.sh'
[[ -f "$TRAIN_SCRIPT" ]] || fail "TRAIN_SCRIPT: no file $TRAIN_SCRIPT"
[[ -n "$DATA_PATH" ]] || fail 'set DATA_PATH to the prefix of a data set that tools/preprocess_data.py made (without .bin), or edit TRAIN_ARGS'
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
PLAN_ARGS=(
  --num-layers 40
  --hidden-size 5120
  --ffn-hidden-size 13824
  --num-attention-heads 40
  --kv-channels 128
  --num-key-value-heads 40
  --seq-length 4096
  --max-position-embeddings 4096
  --normalization rmsnorm
  --layernorm-epsilon 1e-05
  --use-rotary-position-embeddings
  --rotary-position-embeddings-theta 10000
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --attention-dropout 0.0
  --hidden-dropout 0.0
  --no-query-key-layer-scaling
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 1
  --micro-batch-size 1
  --global-batch-size 512
  --deepspeed
  --deepspeed_config "$HERE/deepspeed_config.json"
  --zero-stage 3
  --distributed-backend nccl
  --no-gradient-accumulation-fusion
  --no-pipeline-parallel
  --bf16
  --use-flash-attn-v2
  --optimizer adam
  --lr 0.0003
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --adam-eps 1e-08
  --ds_fused_adam
  --clip-grad 1.0
  --lr-decay-style cosine
  --lr-warmup-iters 100
)
exec torchrun "${LAUNCHER_ARGS[@]}" "$TRAIN_SCRIPT" "${PLAN_ARGS[@]}" "${TRAIN_ARGS[@]}" "$@"
