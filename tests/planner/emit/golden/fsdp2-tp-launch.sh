#!/usr/bin/env bash
# llama3-70b on 4 nodes of 8 x NVIDIA H100 80GB HBM3: fsdp2
# dp 4, tp 8, ZeRO-3, micro-batch 1, accumulation 16, bf16, recompute full
#
# Run it on every node: NODE_RANK=0..3 MASTER_ADDR=<node 0> bash launch.sh Arguments are passed on to the training script.
set -euo pipefail

# torchrun starts this module; its own arguments (data, output folder) go here.
TRAIN_MODULE=torchtitan.train
HF_ASSETS_PATH="${HF_ASSETS_PATH:-}"
TRAIN_ARGS=(
  --hf_assets_path "$HF_ASSETS_PATH"
  --training.steps 1000
  --metrics.log_freq 10
)

fail() {
  echo "launch.sh: $1" >&2
  exit 2
}

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
[[ -n "$HF_ASSETS_PATH" ]] || fail 'set HF_ASSETS_PATH to a folder with the model'"'"'s tokenizer (tokenizer.json), for example one that scripts/download_hf_assets.py of torchtitan made'
command -v torchrun > /dev/null || fail "torchrun is not on PATH: activate the environment that has torch"

# One torchrun on each of the 4 nodes; node 0 hosts the rendezvous.
NODE_RANK="${NODE_RANK:-${SLURM_NODEID:-}}"
MASTER_ADDR="${MASTER_ADDR:-}"
MASTER_PORT="${MASTER_PORT:-29500}"
[[ "$NODE_RANK" =~ ^[0-9]+$ && "$NODE_RANK" -lt 4 ]] || fail "set NODE_RANK to 0..3, another on each of the 4 nodes"
[[ -n "$MASTER_ADDR" ]] || fail "set MASTER_ADDR to the name or address of node 0, the same on every node"
[[ "$MASTER_PORT" =~ ^[0-9]+$ ]] || fail "MASTER_PORT must be a free port on node 0, the same on every node"

# What the plan relies on.
export PYTHONPATH="$HERE${PYTHONPATH:+:$PYTHONPATH}"
export PYTORCH_CUDA_ALLOC_CONF="${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}"
export PYTORCH_ALLOC_CONF="${PYTORCH_ALLOC_CONF:-expandable_segments:True}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-14}"
export NCCL_DEBUG="${NCCL_DEBUG:-WARN}"
export TORCH_NCCL_ASYNC_ERROR_HANDLING="${TORCH_NCCL_ASYNC_ERROR_HANDLING:-1}"
export TOKENIZERS_PARALLELISM="${TOKENIZERS_PARALLELISM:-false}"

LAUNCHER_ARGS=(
  --nnodes 4
  --nproc-per-node 8
  --node-rank "$NODE_RANK"
  --master-addr "$MASTER_ADDR"
  --master-port "$MASTER_PORT"
)
PLAN_ARGS=(
  --module titan_model
  --config plan
  --training.seq_len 2048
  --training.local_batch_size 1
  --training.global_batch_size 64
  --training.max_norm 1.0
  --training.dtype float32
  --training.mixed_precision_param bfloat16
  --training.mixed_precision_reduce float32
  --parallelism.data_parallel_replicate_degree 1
  --parallelism.data_parallel_shard_degree 4
  --parallelism.fsdp_reshard_after_forward always
  --parallelism.tensor_parallel_degree 8
  --parallelism.context_parallel_degree 1
  --parallelism.pipeline_parallel_degree 1
  --parallelism.enable_sequence_parallel
  --training.disable_cuda_graphs
)
exec torchrun "${LAUNCHER_ARGS[@]}" -m "$TRAIN_MODULE" "${PLAN_ARGS[@]}" "${TRAIN_ARGS[@]}" "$@" activation-checkpoint:full
