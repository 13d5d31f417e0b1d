"""The keys DeepSpeed reads from its JSON: names, types, bounds, defaults, versions.

Read from DeepSpeed 0.19.8 (``deepspeed/runtime/config.py``, ``runtime/zero/config.py``,
``runtime/zero/offload_config.py``, ``runtime/zenflow/zenflow_config.py``,
``runtime/precision_config.py``, ``runtime/config_utils.py``, ``compile/config.py``,
``monitor/config.py``, ``comm/config.py``, ``profiling/config.py``,
``runtime/tensor_parallel/config.py``, ``runtime/swap_tensor/constants.py``). The release in which
a key appeared comes from the same files at the tags v0.7.0 to v0.19.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSION = "0.19.8"  # the release these tables describe
FIRST = "0.7.0"  # the oldest release looked at; keys without ``since`` are at least this old


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what it may hold and since when.

    ``kind`` is int, number, bool, text, list, map or any. ``low`` and ``high`` are inclusive.
    ``alias`` is a second accepted name. ``replaced_by`` marks a name that is only kept for old
    files.
    """

    kind: str
    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    since: str = FIRST
    alias: str = ""
    replaced_by: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One mapping of the file. ``strict`` sections refuse unknown keys, others ignore them."""

    keys: Mapping[str, Key]
    strict: bool = True
    strict_since: str = FIRST


def _bool(default: bool | None = False, since: str = FIRST, alias: str = "") -> Key:
    return Key("bool", default, since=since, alias=alias)


def _count(default: float | None, low: float = 0, since: str = FIRST, alias: str = "") -> Key:
    return Key("int", None if default is None else int(default), low, since=since, alias=alias)


def _share(default: float, since: str = FIRST) -> Key:
    return Key("number", default, 0, 1, since=since)


def _text(default: str | None = None, choices: tuple[str, ...] = (), since: str = FIRST) -> Key:
    return Key("text", default, choices=choices, since=since)


DEVICES = ("none", "cpu", "nvme")
DTYPES = ("fp16", "bf16", "fp32")

TOP = Section(
    strict=False,
    keys={
        "train_batch_size": _count(None, 1),
        "train_micro_batch_size_per_gpu": _count(None, 1),
        "gradient_accumulation_steps": _count(None, 1),
        "managed_gradient_accumulation": _bool(True, since="0.19.4"),
        "steps_per_print": Key("number", 10),
        "wall_clock_breakdown": _bool(),
        "memory_breakdown": _bool(),
        "dump_state": _bool(),
        "disable_python_gc": _bool(),
        "optimizer": Key("map"),
        "scheduler": Key("map"),
        "fp16": Key("map"),
        "bf16": Key("map"),
        "bfloat16": Key("map", replaced_by="bf16"),
        "torch_autocast": Key("map", since="0.17.2"),
        "data_types": Key("map", since="0.7.6"),
        "communication_data_type": _text(None, DTYPES),
        "seq_parallel_communication_data_type": _text("fp32", DTYPES, since="0.11.2"),
        "prescale_gradients": _bool(),
        "gradient_predivide_factor": Key("number", 1.0),
        "gradient_allreduce_op": _text("mean", ("mean", "sum")),
        "gradient_clipping": Key("number", 0.0, 0),
        "zero_optimization": Key("map"),
        "zero_allow_untested_optimizer": _bool(),
        "zero_force_ds_cpu_optimizer": _bool(True, since="0.8.3"),
        "activation_checkpointing": Key("map"),
        "aio": Key("map"),
        "pipeline": Key("map"),
        "tensor_parallel": Key("map", since="0.16.4"),
        "expert_parallel": Key("map", since="0.19.2"),
        "sequence_parallel_size": _count(None, 1, since="0.17.0"),
        "data_parallel_size": _count(None, 1, since="0.17.0"),
        "compile": Key("map", since="0.16.6"),
        "flops_profiler": Key("map"),
        "comms_logger": Key("map"),
        "tensorboard": Key("map"),
        "wandb": Key("map"),
        "csv_monitor": Key("map"),
        "comet": Key("map", since="0.14.3"),
        "checkpoint": Key("map"),
        "dataloader_drop_last": _bool(),
        "disable_allgather": _bool(),
        "data_efficiency": Key("map", since="0.8.0"),
        "hybrid_engine": Key("map", since="0.9.0"),
        "weight_quantization": Key("map"),
        "autotuning": Key("map"),
        "timers": Key("map", since="0.14.3"),
        "vocabulary_size": _count(None, 1),
        "use_data_before_expert_parallelism": _bool(since="0.12.4"),
        "datastates": Key("any"),
        "log_level": _text(since="0.19.3"),
        "model_info": Key("map"),  # read by the autotuner
        "inference": Key("map"),  # read by Hugging Face for tensor-parallel loading
        "msamp": Key("map"),  # written by Accelerate
    },
)

ZERO = Section(
    keys={
        "stage": Key("int", 0, 0, 3),
        "contiguous_gradients": _bool(True),
        "reduce_scatter": _bool(True),
        "reduce_bucket_size": _count(5e8, 1),
        "use_multi_rank_bucket_allreduce": _bool(True, since="0.12.4"),
        "allgather_partitions": _bool(True),
        "allgather_bucket_size": _count(5e8),
        "overlap_comm": _bool(None),  # true at stage 3, false below
        "compute_grad_norm": _bool(True, since="0.19.6"),
        "load_from_fp32_weights": _bool(True),
        "elastic_checkpoint": _bool(),
        "offload_param": Key("map"),
        "offload_optimizer": Key("map"),
        "zenflow": Key("map", since="0.17.5"),
        "sub_group_size": _count(1e9),
        "cpu_offload": Key("bool", replaced_by="offload_optimizer"),
        "cpu_offload_param": Key("bool", replaced_by="offload_param"),
        "cpu_offload_use_pin_memory": Key("bool", replaced_by="pin_memory of the offload section"),
        "prefetch_bucket_size": _count(5e7, alias="stage3_prefetch_bucket_size"),
        "param_persistence_threshold": _count(1e5, alias="stage3_param_persistence_threshold"),
        "model_persistence_threshold": _count(
            9223372036854775807, alias="stage3_model_persistence_threshold"
        ),
        "max_live_parameters": _count(1e9, alias="stage3_max_live_parameters"),
        "max_reuse_distance": _count(1e9, alias="stage3_max_reuse_distance"),
        "gather_16bit_weights_on_model_save": _bool(
            alias="stage3_gather_16bit_weights_on_model_save"
        ),
        "stage3_gather_fp16_weights_on_model_save": Key(
            "bool", False, replaced_by="stage3_gather_16bit_weights_on_model_save"
        ),
        "module_granularity_threshold": _count(
            0, since="0.16.0", alias="stage3_module_granularity_threshold"
        ),
        "use_all_reduce_for_fetch_params": _bool(
            since="0.14.3", alias="stage3_use_all_reduce_for_fetch_params"
        ),
        "allgather_sequential": _bool(since="0.18.5", alias="stage3_allgather_sequential"),
        "ignore_unused_parameters": _bool(True),
        "legacy_stage1": _bool(),
        "round_robin_gradients": _bool(),
        "parameter_alignment": _bool(since="0.19.6"),
        "zero_hpz_partition_size": _count(1, since="0.10.0"),
        "zero_quantized_weights": _bool(since="0.10.0"),
        "zero_quantized_nontrainable_weights": _bool(since="0.10.2"),
        "zero_quantized_gradients": _bool(since="0.10.0"),
        "memory_efficient_linear": _bool(True, since="0.9.0"),
        "pipeline_loading_checkpoint": _bool(since="0.10.1"),
        "override_module_apply": _bool(True, since="0.10.1"),
        "log_trace_cache_warnings": _bool(since="0.16.4"),
        "enable_sanity_checks": _bool(since="0.17.6"),
        "save_muon_momentum_buffer_in_memory": _bool(since="0.18.9"),
        "leaf_module": Key("map", since="0.18.0"),
    },
)

OFFLOAD_PARAM = Section(
    keys={
        "device": _text("none", DEVICES),
        "nvme_path": _text(),
        "buffer_count": _count(5),
        "buffer_size": _count(1e8),
        "max_in_cpu": _count(1e9),
        "pin_memory": _bool(True),
    },
)

OFFLOAD_OPTIMIZER = Section(
    keys={
        "device": _text("none", DEVICES),
        "nvme_path": _text(),
        "buffer_count": _count(4),
        "pin_memory": _bool(True),
        "pipeline_read": _bool(),
        "pipeline_write": _bool(),
        "fast_init": _bool(),
        "ratio": _share(1.0, since="0.12.3"),
        "super_offload": _bool(since="0.18.0"),
        "cpuadam_cores_perc": _share(0.8, since="0.18.0"),
    },
)

ZENFLOW = Section(
    keys={
        "topk_ratio": _share(0.1, since="0.17.5"),
        "select_strategy": _text("auto", ("auto", "step", "epoch"), since="0.17.5"),
        "select_interval": Key("any", "auto", since="0.17.5"),
        "update_interval": Key("any", "auto", since="0.17.5"),
        "overlap_step": _bool(since="0.17.5"),
        "offload": _bool(since="0.17.5"),
        "auto_ratio": _share(0.99, since="0.17.5"),
        "full_warm_up_rounds": Key("int", 0, since="0.17.5"),
        "pt_reserved_cores_perc": _share(0.5, since="0.17.6"),
        "steps_per_epoch": Key("int", since="0.17.5"),
    },
)

FP16 = Section(
    strict_since="0.17.1",
    keys={
        "enabled": _bool(),
        "auto_cast": _bool(),
        "loss_scale": Key("number", 0, 0),
        "initial_scale_power": Key("int", 16),
        "loss_scale_window": Key("int", 1000),
        "hysteresis": Key("int", 2),
        "consecutive_hysteresis": _bool(),
        "min_loss_scale": Key("int", 1),
        "fp16_master_weights_and_grads": _bool(),
    },
)

BF16 = Section(
    strict_since="0.17.1",
    keys={
        "enabled": _bool(),
        "immediate_grad_update": _bool(),
        "check_grad_overflow": _bool(True, since="0.17.1"),
        "bf16_master_weights_and_grads": _bool(since="0.18.3"),
        "bf16_optimizer_states": _bool(since="0.18.3"),
    },
)

_MONITOR = {"enabled": _bool(), "output_path": _text(""), "job_name": _text("DeepSpeedJobName")}

COMPILE = Section(
    keys={
        "deepcompile": _bool(),
        "autoep_non_moe": _bool(),
        "free_activation": _bool(),
        "free_activation_threshold": _count(10 * 1024 * 1024),
        "offload_activation": _bool(),
        "offload_activation_pin_memory": _bool(True),
        "offload_opt_states": _bool(),
        "double_buffer": _bool(True),
        "symmetric_memory": _bool(),
        "debug_log": _bool(),
        "offload_parameters": _bool(),
        "sync_before_reduce": _bool(),
        "sync_after_reduce": _bool(),
        "sync_before_allgather": _bool(),
        "sync_after_allgather": _bool(),
        "keep_int_input_tensors": _bool(True),
        "keep_all_input_tensors": _bool(),
        "passes": Key("list"),
    },
)

TENSOR_PARALLEL = Section(
    keys={
        "dtype": Key("any"),
        "autotp_size": _count(0),
        "tp_overlap_comm": _bool(),
        "vocab_parallel_lm_head": _bool(None),
        "vocab_parallel_ce_backend": _text("torch", ("torch", "liger")),
        "tensor_parallel": Key("map", alias="tp"),
        "injection_policy_tuple": Key("any"),
        "partition_config": Key("map"),
        "preset_model": _text(),
        "keep_module_on_host": _bool(),
        "replace_with_kernel_inject": _bool(alias="kernel_inject"),
    },
)

# Path of a section in the file -> what it may hold.
SECTIONS: Mapping[tuple[str, ...], Section] = {
    (): TOP,
    ("zero_optimization",): ZERO,
    ("zero_optimization", "offload_param"): OFFLOAD_PARAM,
    ("zero_optimization", "offload_optimizer"): OFFLOAD_OPTIMIZER,
    ("zero_optimization", "zenflow"): ZENFLOW,
    ("zero_optimization", "leaf_module"): Section(
        keys={name: Key("any", since="0.18.0") for name in ("classes", "names", "name_suffixes")}
    ),
    ("fp16",): FP16,
    ("bf16",): BF16,
    ("bfloat16",): BF16,
    ("torch_autocast",): Section(
        strict=False,
        keys={
            "enabled": _bool(),
            "dtype": Key("text"),
            "lower_precision_safe_modules": Key("list"),
        },
    ),
    ("data_types",): Section(
        strict=False,
        keys={
            "grad_accum_dtype": _text(None, (*DTYPES, "int8")),
            "param_dtype": _text(None, DTYPES),
            "buffer_dtype": _text(None, DTYPES),
            "keep_in_fp32_modules": Key("any"),
        },
    ),
    ("optimizer",): Section(
        strict=False,
        keys={"type": _text(), "params": Key("map"), "legacy_fusion": _bool()},
    ),
    ("scheduler",): Section(strict=False, keys={"type": _text(), "params": Key("map")}),
    ("activation_checkpointing",): Section(
        strict=False,
        keys={
            "partition_activations": _bool(),
            "cpu_checkpointing": _bool(),
            "contiguous_memory_optimization": _bool(),
            "number_checkpoints": _count(None),
            "synchronize_checkpoint_boundary": _bool(),
            "profile": _bool(),
        },
    ),
    ("aio",): Section(
        strict=False,
        keys={
            "block_size": _count(1048576, 1),
            "queue_depth": _count(8, 1),
            "intra_op_parallelism": _count(1, 1),
            "thread_count": Key("int", 1, replaced_by="intra_op_parallelism"),
            "single_submit": _bool(),
            "overlap_events": _bool(True),
            "use_gds": _bool(),
        },
    ),
    ("pipeline",): Section(
        strict=False,
        keys={
            "stages": Key("any", "auto"),
            "partition": _text("best"),
            "seed_layers": _bool(),
            "activation_checkpoint_interval": _count(0),
            "pipe_partitioned": _bool(True),
            "grad_partitioned": _bool(True),
            "use_reentrant": _bool(True),
        },
    ),
    ("tensor_parallel",): TENSOR_PARALLEL,
    ("compile",): COMPILE,
    ("flops_profiler",): Section(
        strict=False,
        keys={
            "enabled": _bool(),
            "recompute_fwd_factor": Key("number", 0.0),
            "profile_step": _count(1),
            "module_depth": Key("int", -1),
            "top_modules": _count(1),
            "detailed": _bool(True),
            "output_file": _text(),
        },
    ),
    ("comms_logger",): Section(
        keys={
            "enabled": _bool(),
            "prof_all": _bool(True),
            "prof_ops": Key("list"),
            "verbose": _bool(),
            "debug": _bool(),
        },
    ),
    ("tensorboard",): Section(keys=_MONITOR),
    ("csv_monitor",): Section(keys=_MONITOR),
    ("wandb",): Section(
        keys={
            "enabled": _bool(),
            "group": _text(),
            "team": _text(),
            "project": _text("deepspeed"),
        },
    ),
    ("hybrid_engine",): Section(
        keys={
            "enabled": _bool(),
            "max_out_tokens": _count(512, 1),
            "inference_tp_size": _count(1),
            "release_inference_cache": _bool(),
            "pin_parameters": _bool(True),
            "tp_gather_partition_size": _count(8),
            "enable_cuda_graph": _bool(),
        },
    ),
}

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


def version_tuple(text: str) -> tuple[int, ...]:
    """``"0.10.0"`` as ``(0, 10, 0)``, so that releases compare.

    >>> version_tuple("0.9.5") < version_tuple("0.10.0")
    True
    """
    digits = text.strip().lstrip("v").split("+")[0].split(".")[:3]
    if not digits or not all(part.isdigit() for part in digits):
        raise ValueError(f"version {text!r}: expected a release such as 0.19.8")
    return tuple(int(part) for part in digits)


def canonical(section: tuple[str, ...], name: str) -> str | None:
    """The table's name of a key, whichever of its two names is used; None if unknown.

    >>> canonical(("zero_optimization",), "stage3_max_live_parameters")
    'max_live_parameters'
    """
    table = SECTIONS.get(section)
    if table is None:
        return name
    if name in table.keys:
        return name
    for known, key in table.keys.items():
        if key.alias == name:
            return known
    return None
