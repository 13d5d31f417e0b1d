"""axolotl YAML: full fine-tuning with DeepSpeed or FSDP2.

Fields: axolotl 0.18 src/axolotl/utils/schemas.
"""

from __future__ import annotations

from typing import Any

from planner.emit.families import decoder_layer
from planner.emit.hf import (
    ATTENTION,
    HF_CONFIG,
    TRAINER_OPTIMIZERS,
    all_or_none,
    auto_config,
    check_trainer,
)
from planner.emit.launch import describe
from planner.emit.layout import layout
from planner.emit.recipe import GRADIENT_CLIPPING, LOG_EVERY, RECIPES, TRAIN_STEPS, WARMUP_STEPS
from planner.emit.refusal import require, whole_offload
from planner.emit.text import dump_json, dump_yaml
from planner.job import Job
from planner.plan import Plan

NAME = "axolotl"


def axolotl_files(job: Job, plan: Plan) -> tuple[dict[str, str], list[str]]:
    """axolotl.yaml, with a DeepSpeed JSON unless the plan is FSDP2's; and what gets lost.

    Raises
    ------
    ValueError
        If axolotl cannot run the plan.
    """
    check_trainer(plan, NAME)
    require(job.spec.dropout == 0, NAME, "dropout is the model's own")
    optimizer = TRAINER_OPTIMIZERS.get(job.spec.optimizer)
    optimizer = "muon" if job.spec.optimizer == "muon" else optimizer
    require(optimizer is not None, NAME, f"it has no {job.spec.optimizer}")
    recipe = RECIPES[job.spec.optimizer]
    data: dict[str, Any] = {
        "base_model": f"path/to/{job.architecture.name}",
        "datasets": [{"path": "path/to/dataset", "type": "completion"}],
        "output_dir": "checkpoints",
        "sequence_len": job.seq_len,
        "sample_packing": plan.attention != "eager",
        "pad_to_sequence_len": True,
        "micro_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.grad_accum,
        "max_steps": TRAIN_STEPS,
        "optimizer": optimizer,
        "learning_rate": recipe.lr,
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": GRADIENT_CLIPPING,
        "lr_scheduler": "cosine",
        "warmup_steps": WARMUP_STEPS,
        "bf16": plan.precision == "bf16",
        "fp16": plan.precision == "fp16",
        "tf32": plan.precision == "tf32",
        "attn_implementation": ATTENTION[plan.attention],
        "logging_steps": LOG_EVERY,
    }
    if recipe.betas:
        data |= {"adam_beta1": recipe.betas[0], "adam_beta2": recipe.betas[1]}
    if recipe.eps is not None:
        data["adam_epsilon"] = recipe.eps
    checkpointing, notes = all_or_none(job, plan)
    if plan.stack == "fsdp2":
        data |= _fsdp(job, plan, checkpointing)
        files = {}
    else:
        data |= {"gradient_checkpointing": checkpointing, "deepspeed": HF_CONFIG}
        if checkpointing:
            data["gradient_checkpointing_kwargs"] = {"use_reentrant": False}
        files = {HF_CONFIG: dump_json(auto_config(job, plan))}
    header = [
        *describe(job, plan),
        "Set base_model and datasets; start it with: axolotl train axolotl.yaml --launcher"
        f" torchrun -- --nproc_per_node={layout(job, plan).gpus_per_node}",
    ]
    return {"axolotl.yaml": dump_yaml(data, "\n".join(header)), **files}, notes


def _fsdp(job: Job, plan: Plan, checkpointing: bool) -> dict[str, Any]:
    name = f"{NAME} FSDP2"
    require(plan.zero_stage >= 2, name, f"ZeRO-{plan.zero_stage}: it shards parameters or nothing")
    whole_offload(plan, name)
    require(
        plan.offload_optimizer == plan.offload_parameters != "nvme",
        name,
        "offload_params moves parameters and optimizer together, to host RAM",
    )
    return {
        "fsdp_version": 2,
        "fsdp_config": {
            "reshard_after_forward": plan.zero_stage == 3,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "transformer_layer_cls_to_wrap": decoder_layer(job.architecture),
            "state_dict_type": "SHARDED_STATE_DICT",
            "cpu_ram_efficient_loading": True,
            "activation_checkpointing": checkpointing,
            "offload_params": plan.offload_parameters == "cpu",
        },
    }
