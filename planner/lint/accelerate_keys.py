"""Keys and words an Accelerate YAML may have."""

from __future__ import annotations

# Fields of ClusterConfig (accelerate 1.15.0, commands/config/config_args.py) and the old names
# that process_config converts.
TOP_KEYS = frozenset(
    """compute_environment distributed_type mixed_precision use_cpu debug num_processes
    machine_rank num_machines gpu_ids main_process_ip main_process_port rdzv_backend same_network
    main_training_function enable_cpu_affinity fp8_config deepspeed_config fsdp_config
    parallelism_config megatron_lm_config mpirun_config downcast_bf16 tpu_name tpu_zone
    tpu_use_cluster tpu_use_sudo command_file commands tpu_vm tpu_env dynamo_config fp16
    dynamo_backend""".split()  # noqa: SIM905
)

# Options of `accelerate launch` (accelerate 1.15.0, commands/launch.py) that a section may set;
# fsdp_ignored_modules is none, but utils/launch.py passes it on.
DEEPSPEED_KEYS = frozenset(
    """deepspeed_config_file zero_stage offload_optimizer_device offload_param_device
    offload_optimizer_nvme_path offload_param_nvme_path gradient_accumulation_steps
    gradient_clipping zero3_init_flag zero3_save_16bit_model deepspeed_hostfile
    deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher
    deepspeed_moe_layer_cls_names""".split()  # noqa: SIM905
)

FSDP_KEYS = frozenset(
    """fsdp_version fsdp_offload_params fsdp_min_num_params fsdp_sharding_strategy
    fsdp_reshard_after_forward fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap
    fsdp_backward_prefetch fsdp_state_dict_type
    fsdp_forward_prefetch fsdp_use_orig_params fsdp_cpu_ram_efficient_loading
    fsdp_sync_module_states fsdp_activation_checkpointing fsdp_activation_checkpointing_offload
    fsdp_ignored_modules""".split()  # noqa: SIM905
)

CHOICES = {
    "mixed_precision": ("no", "fp16", "bf16", "fp8"),
    "compute_environment": ("LOCAL_MACHINE", "AMAZON_SAGEMAKER"),
}

FSDP_CHOICES = {
    "fsdp_auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
    "fsdp_backward_prefetch": ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
    "fsdp_state_dict_type": ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"),
    "fsdp_sharding_strategy": (
        *("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"),
        *("1", "2", "3", "4", "5"),
    ),
}
