"""Keys of zero_optimization and the sections in it (DeepSpeed 0.19.8, runtime/zero)."""

from __future__ import annotations

from planner.lint.deepspeed_schema import (
    DEVICES,
    Key,
    Section,
    count,
    share,
    switch,
    text,
)

ZERO = Section(
    keys={
        "stage": Key("int", 0, 0, 3),
        "contiguous_gradients": switch(True),
        "reduce_scatter": switch(True),
        "reduce_bucket_size": count(5e8, 1),
        "use_multi_rank_bucket_allreduce": switch(True, since="0.12.4"),
        "allgather_partitions": switch(True),
        "allgather_bucket_size": count(5e8),
        "overlap_comm": switch(None),  # true at stage 3, false below
        "compute_grad_norm": switch(True, since="0.19.6"),
        "load_from_fp32_weights": switch(True),
        "elastic_checkpoint": switch(),
        "offload_param": Key("map"),
        "offload_optimizer": Key("map"),
        "zenflow": Key("map", since="0.17.5"),
        "sub_group_size": count(1e9),
        "cpu_offload": Key("bool", replaced_by="offload_optimizer"),
        "cpu_offload_param": Key("bool", replaced_by="offload_param"),
        "cpu_offload_use_pin_memory": Key("bool", replaced_by="pin_memory of the offload section"),
        "prefetch_bucket_size": count(5e7, alias="stage3_prefetch_bucket_size"),
        "param_persistence_threshold": count(1e5, alias="stage3_param_persistence_threshold"),
        "model_persistence_threshold": count(
            9223372036854775807, alias="stage3_model_persistence_threshold"
        ),
        "max_live_parameters": count(1e9, alias="stage3_max_live_parameters"),
        "max_reuse_distance": count(1e9, alias="stage3_max_reuse_distance"),
        "gather_16bit_weights_on_model_save": switch(
            alias="stage3_gather_16bit_weights_on_model_save"
        ),
        "stage3_gather_fp16_weights_on_model_save": Key(
            "bool", False, replaced_by="stage3_gather_16bit_weights_on_model_save"
        ),
        "module_granularity_threshold": count(
            0, since="0.16.0", alias="stage3_module_granularity_threshold"
        ),
        "use_all_reduce_for_fetch_params": switch(
            since="0.14.3", alias="stage3_use_all_reduce_for_fetch_params"
        ),
        "allgather_sequential": switch(since="0.18.5", alias="stage3_allgather_sequential"),
        "ignore_unused_parameters": switch(True),
        "legacy_stage1": switch(),
        "round_robin_gradients": switch(),
        "parameter_alignment": switch(since="0.19.6"),
        "zero_hpz_partition_size": count(1, since="0.10.0"),
        "zero_quantized_weights": switch(since="0.10.0"),
        "zero_quantized_nontrainable_weights": switch(since="0.10.2"),
        "zero_quantized_gradients": switch(since="0.10.0"),
        "memory_efficient_linear": switch(True, since="0.9.0"),
        "pipeline_loading_checkpoint": switch(since="0.10.1"),
        "override_module_apply": switch(True, since="0.10.1"),
        "log_trace_cache_warnings": switch(since="0.16.4"),
        "enable_sanity_checks": switch(since="0.17.6"),
        "save_muon_momentum_buffer_in_memory": switch(since="0.18.9"),
        "leaf_module": Key("map", since="0.18.0"),
    },
)


OFFLOAD_PARAM = Section(
    keys={
        "device": text("none", DEVICES),
        "nvme_path": text(),
        "buffer_count": count(5),
        "buffer_size": count(1e8),
        "max_in_cpu": count(1e9),
        "pin_memory": switch(True),
    },
)


OFFLOAD_OPTIMIZER = Section(
    keys={
        "device": text("none", DEVICES),
        "nvme_path": text(),
        "buffer_count": count(4),
        "pin_memory": switch(True),
        "pipeline_read": switch(),
        "pipeline_write": switch(),
        "fast_init": switch(),
        "ratio": share(1.0, since="0.12.3"),
        "super_offload": switch(since="0.18.0"),
        "cpuadam_cores_perc": share(0.8, since="0.18.0"),
    },
)


ZENFLOW = Section(
    keys={
        "topk_ratio": share(0.1, since="0.17.5"),
        "select_strategy": text("auto", ("auto", "step", "epoch"), since="0.17.5"),
        "select_interval": Key("any", "auto", since="0.17.5"),
        "update_interval": Key("any", "auto", since="0.17.5"),
        "overlap_step": switch(since="0.17.5"),
        "offload": switch(since="0.17.5"),
        "auto_ratio": share(0.99, since="0.17.5"),
        "full_warm_up_rounds": Key("int", 0, since="0.17.5"),
        "pt_reserved_cores_perc": share(0.5, since="0.17.6"),
        "steps_per_epoch": Key("int", since="0.17.5"),
    },
)
