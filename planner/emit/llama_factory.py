"""LLaMA-Factory YAML: full-parameter pre-training on the Trainer's DeepSpeed JSON.

Fields: LLaMA-Factory src/llamafactory/hparams (August 2026), transformers TrainingArguments.
"""

from __future__ import annotations

from typing import Any

from planner.emit.hf import (
    HF_CONFIG,
    auto_config,
    check_trainer,
    trainer_checkpointing,
    training_arguments,
    uses_liger,
)
from planner.emit.launch import describe
from planner.emit.refusal import require
from planner.emit.text import dump_json, dump_yaml
from planner.job import Job
from planner.plan import Plan

NAME = "LLaMA-Factory"
ATTENTION = {"flash": "fa2", "efficient": "sdpa", "eager": "disabled"}
COPIED = (  # TrainingArguments it takes under the same name
    "output_dir",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "max_steps",
    "learning_rate",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "lr_scheduler_type",
    "warmup_steps",
    "bf16",
    "fp16",
    "tf32",
    "optim",
    "logging_steps",
    "report_to",
)


def llama_factory_files(job: Job, plan: Plan) -> tuple[dict[str, str], list[str]]:
    """llama_factory.yaml with its DeepSpeed JSON, and what gets lost.

    Raises
    ------
    ValueError
        If LLaMA-Factory cannot run the plan.
    """
    check_trainer(plan, NAME)
    require(job.spec.dropout == 0, NAME, "dropout is the model's own")
    arguments, notes = training_arguments(job, plan)
    checkpointing, _ = trainer_checkpointing(job, plan)
    kwargs = checkpointing.get("activation_checkpointing_kwargs", {})
    on = bool(checkpointing["activation_checkpointing"])
    if kwargs.get("every_n_layers", 1) > 1:
        notes.append(
            f"checkpointing every {kwargs['every_n_layers']} layers becomes all layers: more"
            " recomputation than planned"
        )
    data: dict[str, Any] = {
        "model_name_or_path": f"path/to/{job.architecture.name}",
        "stage": "pt",
        "do_train": True,
        "finetuning_type": "full",
        "dataset": "c4_demo",
        "cutoff_len": job.seq_len,
        "packing": True,
        "flash_attn": ATTENTION[plan.attention],
        "disable_gradient_checkpointing": not on,
        "use_reentrant_gc": False,
        "enable_liger_kernel": uses_liger(job, plan),
        "deepspeed": HF_CONFIG,
        **{key: arguments[key] for key in COPIED if key in arguments},
    }
    if job.spec.optimizer == "muon":
        data["use_muon"] = True
    header = [
        *describe(job, plan),
        "Set model_name_or_path and dataset; start it with FORCE_TORCHRUN=1 NNODES=...",
        "NODE_RANK=... MASTER_ADDR=... llamafactory-cli train llama_factory.yaml",
    ]
    files = {
        "llama_factory.yaml": dump_yaml(data, "\n".join(header)),
        HF_CONFIG: dump_json(auto_config(job, plan)),
    }
    return files, notes
