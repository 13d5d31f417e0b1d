"""The columns of a table of runs; any may be missing, every cell may be empty."""

WHOLE = (
    *("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "topk"),
    *("n_gpus", "gpus_per_node", "seq_len", "micro_batch", "global_batch_seqs", "grad_accum"),
    *("dp", "tp", "pp", "cp", "ep", "virtual_stages", "zero_stage"),
)
NUMBERS = (
    *WHOLE,
    *("params_b", "gpu_mem_gb", "step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu"),
    *("mfu_pct", "peak_mem_gib"),
)
FLAGS = ("gated_mlp", "tied_embeddings", "sequence_parallel", "fused_norm")
TEXTS = (
    *("source", "ref", "model", "gpu", "intra_bw", "inter_bw", "framework", "precision"),
    *("optimizer", "offload", "act_ckpt", "attention", "mem_kind", "outcome", "notes"),
)
NEEDED = ("gpu", "n_gpus", "seq_len")  # without these columns nothing can be predicted
MEASURED = (  # at least one of them
    *("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct", "peak_mem_gib"),
    "outcome",
)
FROM_ZERO = ("experts", "topk", "zero_stage")  # whole numbers that may be 0
MOST = {"layers": 10_000, "hidden": 1_000_000, "n_gpus": 1_000_000, "zero_stage": 3}
MOST_WHOLE = 1_000_000_000  # for the other whole numbers
MEMORY_KINDS = ("allocated", "reserved", "nvidia-smi")  # of peak_mem_gib
OUTCOMES = ("", "ok", "oom", "crashed_or_oom", "error")
