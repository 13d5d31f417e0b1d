"""Words of a DeepSpeed file: keys that were removed, other programs' keys, names of classes."""

from __future__ import annotations

from collections.abc import Mapping

# Keys that stop current releases: path -> (last release that read it, what to use instead).
# The tables of removed names in deepspeed/runtime/config.py (_REMOVED_*) list them.
REMOVED: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("nebula",): ("0.19.5", "torch.save, the default"),
    ("compression_training",): ("0.19.5", "a compression library of its own"),
    ("amp",): ("0.19.5", "fp16, bf16 or torch_autocast"),
    ("quantize_training",): ("0.19.5", "a quantisation library of its own"),
    ("sparse_gradients",): ("0.19.5", "embeddings built with sparse=True"),
    ("eigenvalue",): ("0.19.5", "nothing"),
    ("sparse_attention",): ("0.19.5", "an attention kernel of the model"),
    ("elasticity",): ("0.19.5", "the batch keys"),
    ("graph_harvesting",): ("0.19.5", "the compile section"),
    ("curriculum_learning",): ("0.19.5", "data_efficiency.data_sampling.curriculum_learning"),
    ("progressive_layer_drop",): ("0.19.5", "nothing"),
    ("zero_optimization", "mics_shard_size"): ("0.19.5", "zero_hpz_partition_size"),
    ("zero_optimization", "mics_hierarchical_params_gather"): (
        "0.19.5",
        "zero_hpz_partition_size",
    ),
    ("zero_optimization", "zeropp_loco_param"): ("0.19.5", "zero_quantized_gradients"),
}

# Read by other programs that pass the file on to DeepSpeed (EleutherAI/gpt-neox
# megatron/neox_arguments; microsoft/Megatron-DeepSpeed scripts), not by DeepSpeed itself.
PIPELINE_DEGREE_KEYS = ("pipe_parallel_size", "pipe-parallel-size")
TENSOR_DEGREE_KEYS = ("model_parallel_size", "model-parallel-size")
OPTIMIZERS = ("adam", "adamw", "adagrad", "lamb", "lion", "muon", "muadam", "muadamw", "musgd")
SCHEDULERS = ("LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
