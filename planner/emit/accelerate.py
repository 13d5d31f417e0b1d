"""Accelerate configuration files, DeepSpeed or FSDP2, for version 1.15.

Keys: accelerate/commands/config/config_args.py, commands/launch.py (fsdp_*),
parallelism_config.py.
"""

from __future__ import annotations

from typing import Any

from planner.emit.families import decoder_layer
from planner.emit.hf import all_or_none
from planner.emit.launch import Launch, Script, describe, launch_script
from planner.emit.layout import MASTER_PORT, layout
from planner.emit.refusal import require, whole_offload
from planner.emit.text import dump_yaml
from planner.job import Job
from planner.plan import Plan

NAME = "Accelerate"
FSDP2_CONFIG = "accelerate_fsdp2.yaml"
MULTINODE = "Of several nodes: set machine_rank on each, and main_process_ip to node 0."


def accelerate_deepspeed(job: Job, plan: Plan, config: str) -> str:
    """YAML that runs a script with the DeepSpeed JSON ``config``.

    Precision, accumulation and clipping stay in the JSON: named in both, Accelerate refuses.
    """
    require(plan.pp == 1, NAME, f"pp {plan.pp}: it does not run a PipelineModule")
    require(plan.tp == 1, NAME, f"tp {plan.tp}: it has no AutoTP training")
    data = _common(job, plan, "DEEPSPEED") | {
        "deepspeed_config": {
            "deepspeed_config_file": config,
            "deepspeed_multinode_launcher": "standard",
            "zero3_init_flag": plan.zero_stage == 3,
        }
    }
    return dump_yaml(data, _header(job, plan))


def accelerate_fsdp2(job: Job, plan: Plan) -> tuple[str, list[str]]:
    """YAML for FSDP2, and what gets lost.

    Raises
    ------
    ValueError
        If FSDP2 under Accelerate cannot do what the plan says.
    """
    name = f"{NAME} FSDP2"
    require(plan.pp == 1, name, f"pp {plan.pp}: it has no pipeline")
    require(plan.ep == 1, name, f"ep {plan.ep}: it has no expert parallelism")
    require(plan.zero_stage >= 2, name, f"ZeRO-{plan.zero_stage}: it shards parameters or nothing")
    require(plan.dp > 1 or plan.cp > 1, name, "there is nothing to shard over")
    require(plan.precision != "fp8", name, "fp8 needs a recipe of its own")
    whole_offload(plan, name)
    require(
        plan.offload_optimizer == plan.offload_parameters != "nvme",
        name,
        "fsdp_offload_params moves parameters and optimizer together, to host RAM",
    )
    require(
        plan.cp == 1 or job.seq_len % (2 * plan.cp) == 0,
        name,
        f"the sequence {job.seq_len} must be a multiple of 2 x cp {plan.cp}",
    )
    checkpointing, notes = all_or_none(job, plan)
    data = _common(job, plan, "FSDP")
    data["mixed_precision"] = plan.precision if plan.precision in ("bf16", "fp16") else "no"
    data["fsdp_config"] = {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": plan.zero_stage == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_transformer_layer_cls_to_wrap": decoder_layer(job.architecture),
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_activation_checkpointing": checkpointing,
        "fsdp_offload_params": plan.offload_parameters == "cpu",
    }
    if plan.tp > 1 or plan.cp > 1:
        data["parallelism_config"] = {
            "parallelism_config_dp_replicate_size": 1,
            "parallelism_config_dp_shard_size": plan.dp,
            "parallelism_config_tp_size": plan.tp,
            "parallelism_config_cp_size": plan.cp,
            "parallelism_config_cp_comm_strategy": "allgather",
        }
    if plan.sequence_parallel:
        notes.append(
            "sequence parallelism: the model's tensor-parallel plan decides it, not a flag"
        )
    return dump_yaml(data, _header(job, plan)), notes


def emit_accelerate_fsdp2(job: Job, plan: Plan) -> dict[str, str]:
    """launch.sh and its configuration, for models torchtitan has no code for.

    Raises
    ------
    ValueError
        If anything of the plan would get lost.
    """
    text, lost = accelerate_fsdp2(job, plan)
    require(not lost, f"{NAME} FSDP2", "; ".join(lost))
    require(plan.tp == 1 and plan.cp == 1, f"{NAME} FSDP2", "tp and cp need the model's own plan")
    # accumulate() reduces gradients in the last micro-batch only, unless told otherwise; until then
    # FSDP keeps all of them whole (accelerate 1.15, accelerator.py, accumulate)
    each = ", GradientAccumulationPlugin(sync_each_batch=True)" if plan.grad_accum > 1 else ""
    launch = Launch(
        script=Script(
            missing="set TRAIN_SCRIPT to a training script that uses Accelerate"
            f" (per-device batch {plan.micro_batch}, accumulation {plan.grad_accum}{each})"
        ),
        plan_args=[],
        accelerate=FSDP2_CONFIG,
    )
    return {"launch.sh": launch_script(job, plan, launch), FSDP2_CONFIG: text}


def _header(job: Job, plan: Plan) -> str:
    lines = describe(job, plan)
    if layout(job, plan).nodes > 1:
        lines.append(MULTINODE)
    return "\n".join(lines)


def _common(job: Job, plan: Plan, kind: str) -> dict[str, Any]:
    where = layout(job, plan)
    data: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "num_machines": where.nodes,
        "machine_rank": 0,
        "num_processes": plan.gpus,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
    }
    if where.nodes > 1:
        data |= {"main_process_ip": "node0", "main_process_port": MASTER_PORT}
    return data
