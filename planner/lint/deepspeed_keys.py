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

from planner.lint.deepspeed_schema import (
    DTYPES,
    Key,
    Section,
    count,
    switch,
    text,
)
from planner.lint.deepspeed_zero_keys import OFFLOAD_OPTIMIZER, OFFLOAD_PARAM, ZENFLOW, ZERO

VERSION = "0.19.8"  # the release these tables describe

TOP = Section(
    strict=False,
    keys={
        "train_batch_size": count(None, 1),
        "train_micro_batch_size_per_gpu": count(None, 1),
        "gradient_accumulation_steps": count(None, 1),
        "managed_gradient_accumulation": switch(True, since="0.19.4"),
        "steps_per_print": Key("number", 10),
        "wall_clock_breakdown": switch(),
        "memory_breakdown": switch(),
        "dump_state": switch(),
        "disable_python_gc": switch(),
        "optimizer": Key("map"),
        "scheduler": Key("map"),
        "fp16": Key("map"),
        "bf16": Key("map"),
        "bfloat16": Key("map", replaced_by="bf16"),
        "torch_autocast": Key("map", since="0.17.2"),
        "data_types": Key("map", since="0.7.6"),
        "communication_data_type": text(None, DTYPES),
        "seq_parallel_communication_data_type": text("fp32", DTYPES, since="0.11.2"),
        "prescale_gradients": switch(),
        "gradient_predivide_factor": Key("number", 1.0),
        "gradient_allreduce_op": text("mean", ("mean", "sum")),
        "gradient_clipping": Key("number", 0.0, 0),
        "zero_optimization": Key("map"),
        "zero_allow_untested_optimizer": switch(),
        "zero_force_ds_cpu_optimizer": switch(True, since="0.8.3"),
        "activation_checkpointing": Key("map"),
        "aio": Key("map"),
        "pipeline": Key("map"),
        "tensor_parallel": Key("map", since="0.16.4"),
        "expert_parallel": Key("map", since="0.19.2"),
        "sequence_parallel_size": count(None, 1, since="0.17.0"),
        "data_parallel_size": count(None, 1, since="0.17.0"),
        "compile": Key("map", since="0.16.6"),
        "flops_profiler": Key("map"),
        "comms_logger": Key("map"),
        "tensorboard": Key("map"),
        "wandb": Key("map"),
        "csv_monitor": Key("map"),
        "comet": Key("map", since="0.14.3"),
        "checkpoint": Key("map"),
        "dataloader_drop_last": switch(),
        "disable_allgather": switch(),
        "data_efficiency": Key("map", since="0.8.0"),
        "hybrid_engine": Key("map", since="0.9.0"),
        "weight_quantization": Key("map"),
        "autotuning": Key("map"),
        "timers": Key("map", since="0.14.3"),
        "vocabulary_size": count(None, 1),
        "use_data_before_expert_parallelism": switch(since="0.12.4"),
        "datastates": Key("any"),
        "log_level": text(since="0.19.3"),
        "model_info": Key("map"),  # read by the autotuner
        "inference": Key("map"),  # read by Hugging Face for tensor-parallel loading
        "msamp": Key("map"),  # written by Accelerate
    },
)

FP16 = Section(
    strict_since="0.17.1",
    keys={
        "enabled": switch(),
        "auto_cast": switch(),
        "loss_scale": Key("number", 0, 0),
        "initial_scale_power": Key("int", 16),
        "loss_scale_window": Key("int", 1000),
        "hysteresis": Key("int", 2),
        "consecutive_hysteresis": switch(),
        "min_loss_scale": Key("int", 1),
        "fp16_master_weights_and_grads": switch(),
    },
)

BF16 = Section(
    strict_since="0.17.1",
    keys={
        "enabled": switch(),
        "immediate_grad_update": switch(),
        "check_grad_overflow": switch(True, since="0.17.1"),
        "bf16_master_weights_and_grads": switch(since="0.18.3"),
        "bf16_optimizer_states": switch(since="0.18.3"),
    },
)

_MONITOR = {"enabled": switch(), "output_path": text(""), "job_name": text("DeepSpeedJobName")}

COMPILE = Section(
    keys={
        "deepcompile": switch(),
        "autoep_non_moe": switch(),
        "free_activation": switch(),
        "free_activation_threshold": count(10 * 1024 * 1024),
        "offload_activation": switch(),
        "offload_activation_pin_memory": switch(True),
        "offload_opt_states": switch(),
        "double_buffer": switch(True),
        "symmetric_memory": switch(),
        "debug_log": switch(),
        "offload_parameters": switch(),
        "sync_before_reduce": switch(),
        "sync_after_reduce": switch(),
        "sync_before_allgather": switch(),
        "sync_after_allgather": switch(),
        "keep_int_input_tensors": switch(True),
        "keep_all_input_tensors": switch(),
        "passes": Key("list"),
    },
)

TENSOR_PARALLEL = Section(
    keys={
        "dtype": Key("any"),
        "autotp_size": count(0),
        "tp_overlap_comm": switch(),
        "vocab_parallel_lm_head": switch(None),
        "vocab_parallel_ce_backend": text("torch", ("torch", "liger")),
        "tensor_parallel": Key("map", alias="tp"),
        "injection_policy_tuple": Key("any"),
        "partition_config": Key("map"),
        "preset_model": text(),
        "keep_module_on_host": switch(),
        "replace_with_kernel_inject": switch(alias="kernel_inject"),
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
            "enabled": switch(),
            "dtype": Key("text"),
            "lower_precision_safe_modules": Key("list"),
        },
    ),
    ("data_types",): Section(
        strict=False,
        keys={
            "grad_accum_dtype": text(None, (*DTYPES, "int8")),
            "param_dtype": text(None, DTYPES),
            "buffer_dtype": text(None, DTYPES),
            "keep_in_fp32_modules": Key("any"),
        },
    ),
    ("optimizer",): Section(
        strict=False,
        keys={"type": text(), "params": Key("map"), "legacy_fusion": switch()},
    ),
    ("scheduler",): Section(strict=False, keys={"type": text(), "params": Key("map")}),
    ("activation_checkpointing",): Section(
        strict=False,
        keys={
            "partition_activations": switch(),
            "cpu_checkpointing": switch(),
            "contiguous_memory_optimization": switch(),
            "number_checkpoints": count(None),
            "synchronize_checkpoint_boundary": switch(),
            "profile": switch(),
        },
    ),
    ("aio",): Section(
        strict=False,
        keys={
            "block_size": count(1048576, 1),
            "queue_depth": count(8, 1),
            "intra_op_parallelism": count(1, 1),
            "thread_count": Key("int", 1, replaced_by="intra_op_parallelism"),
            "single_submit": switch(),
            "overlap_events": switch(True),
            "use_gds": switch(),
        },
    ),
    ("pipeline",): Section(
        strict=False,
        keys={
            "stages": Key("any", "auto"),
            "partition": text("best"),
            "seed_layers": switch(),
            "activation_checkpoint_interval": count(0),
            "pipe_partitioned": switch(True),
            "grad_partitioned": switch(True),
            "use_reentrant": switch(True),
        },
    ),
    ("tensor_parallel",): TENSOR_PARALLEL,
    ("compile",): COMPILE,
    ("flops_profiler",): Section(
        strict=False,
        keys={
            "enabled": switch(),
            "recompute_fwd_factor": Key("number", 0.0),
            "profile_step": count(1),
            "module_depth": Key("int", -1),
            "top_modules": count(1),
            "detailed": switch(True),
            "output_file": text(),
        },
    ),
    ("comms_logger",): Section(
        keys={
            "enabled": switch(),
            "prof_all": switch(True),
            "prof_ops": Key("list"),
            "verbose": switch(),
            "debug": switch(),
        },
    ),
    ("tensorboard",): Section(keys=_MONITOR),
    ("csv_monitor",): Section(keys=_MONITOR),
    ("wandb",): Section(
        keys={
            "enabled": switch(),
            "group": text(),
            "team": text(),
            "project": text("deepspeed"),
        },
    ),
    ("hybrid_engine",): Section(
        keys={
            "enabled": switch(),
            "max_out_tokens": count(512, 1),
            "inference_tp_size": count(1),
            "release_inference_cache": switch(),
            "pin_parameters": switch(True),
            "tp_gather_partition_size": count(8),
            "enable_cuda_graph": switch(),
        },
    ),
}


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
