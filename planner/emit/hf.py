"""Hugging Face Trainer: TrainingArguments and a DeepSpeed JSON with ``auto``.

transformers 5.24: training_args.py, integrations/deepspeed.py. ``auto`` is only read there; the
plain engine would take it for the field's default.
"""

from __future__ import annotations

from typing import Any

from planner.emit.deepspeed import deepspeed_config
from planner.emit.recipe import GRADIENT_CLIPPING, LOG_EVERY, RECIPES, TRAIN_STEPS, WARMUP_STEPS
from planner.emit.refusal import require
from planner.emit.text import dump_json
from planner.job import Job
from planner.plan import Plan

HF_CONFIG = "ds_config_hf.json"
ATTENTION = {"flash": "flash_attention_2", "efficient": "sdpa", "eager": "eager"}
TRAINER_OPTIMIZERS = {
    "adam": "adamw_torch_fused",
    "adamw": "adamw_torch_fused",
    "adam8bit": "adamw_bnb_8bit",
    "adafactor": "adafactor",
    "lion": "lion_32bit",
    "sgd": "sgd",
}


def hf_files(job: Job, plan: Plan) -> tuple[dict[str, str], list[str]]:
    """ds_config_hf.json, training_args.json, model_args.json; and what gets lost.

    Raises
    ------
    ValueError
        If the Trainer cannot run the plan.
    """
    check_trainer(plan, "the Hugging Face Trainer")
    arguments, notes = training_arguments(job, plan)
    files = {
        HF_CONFIG: dump_json(auto_config(job, plan)),
        "training_args.json": dump_json(arguments),
        "model_args.json": dump_json(
            {"attn_implementation": ATTENTION[plan.attention], "use_cache": False}
        ),
    }
    if job.spec.dropout:
        notes.append(f"dropout {job.spec.dropout} must be set in the model's configuration")
    return files, notes


def check_trainer(plan: Plan, name: str) -> None:
    """Refuse what neither the Trainer nor what is built on it can launch."""
    require(plan.pp == 1, name, f"pp {plan.pp}: it does not run a PipelineModule")
    require(
        plan.tp == 1,
        name,
        f"tp {plan.tp}: it counts every rank as data parallel, so the batch would be tp times"
        " what the plan says",
    )
    require(plan.cp == 1 and plan.ep == 1, name, "context and expert parallelism are not written")


def auto_config(job: Job, plan: Plan) -> dict[str, Any]:
    """The DeepSpeed JSON in which the Trainer fills what TrainingArguments also say.

    Bucket sizes stay explicit: ``auto`` would make them h^2, which the plan did not count.
    """
    config = deepspeed_config(job, plan)
    for key in (
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "gradient_clipping",
    ):
        config[key] = "auto"
    for key in ("bf16", "fp16"):
        if key in config:
            config[key]["enabled"] = "auto"
    params = config.get("optimizer", {}).get("params", {})
    for key in ("lr", "betas", "eps", "weight_decay"):
        if key in params:
            params[key] = "auto"
    config.pop("zero_allow_untested_optimizer", None)
    if "optimizer" not in config or config["optimizer"]["type"] not in ("Adam", "AdamW", "Lion"):
        config["zero_allow_untested_optimizer"] = True
    return config


def training_arguments(job: Job, plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """TrainingArguments as HfArgumentParser.parse_json_file reads them, and what gets lost."""
    recipe = RECIPES[job.spec.optimizer]
    arguments: dict[str, Any] = {
        "output_dir": "checkpoints",
        "deepspeed": HF_CONFIG,
        "per_device_train_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.grad_accum,
        "max_steps": TRAIN_STEPS,
        "learning_rate": recipe.lr,
        "weight_decay": recipe.weight_decay,
        "max_grad_norm": GRADIENT_CLIPPING,
        "lr_scheduler_type": "cosine",
        "warmup_steps": WARMUP_STEPS,
        "bf16": plan.precision == "bf16",
        "fp16": plan.precision == "fp16",
        "tf32": plan.precision == "tf32",
        "logging_steps": LOG_EVERY,
        "report_to": "none",
    }
    if recipe.betas:
        arguments |= {"adam_beta1": recipe.betas[0], "adam_beta2": recipe.betas[1]}
    if recipe.eps is not None:
        arguments["adam_epsilon"] = recipe.eps
    if job.spec.optimizer in TRAINER_OPTIMIZERS:
        arguments["optim"] = TRAINER_OPTIMIZERS[job.spec.optimizer]
    checkpointing, notes = trainer_checkpointing(job, plan)
    arguments |= checkpointing
    if uses_liger(job, plan):
        arguments["use_liger_kernel"] = True
    return arguments, notes


def uses_liger(job: Job, plan: Plan) -> bool:
    """Whether the loss is to be Liger's fused linear cross-entropy, which is chunked."""
    kind = job.spec.cross_entropy
    if kind == "auto":
        stack = next((s for s in job.stacks if s.name == plan.stack), None)
        kind = stack.memory.cross_entropy if stack else "eager"
    return kind in ("fused", "chunked")


def trainer_checkpointing(job: Job, plan: Plan) -> tuple[dict[str, Any], list[str]]:
    """Activation checkpointing in the Trainer's words.

    It checkpoints every k-th layer from the first, each on its own
    (transformers/modeling_utils.py, _set_gradient_checkpointing). Other counts become all layers.
    """
    layers = job.architecture.layers
    counts = {name: count for name, count in plan.recompute_layers.items() if count}
    if set(counts) <= {"none"}:
        return {"activation_checkpointing": False}, []
    kwargs: dict[str, Any] = {"use_reentrant": False}
    notes = []
    every = next((k for k in range(1, layers + 1) if -(-layers // k) == counts.get("full")), 0)
    if set(counts) <= {"none", "full"} and every:
        if every > 1:
            kwargs["every_n_layers"] = every
    else:
        notes.append(coarser(counts, layers))
    return {"activation_checkpointing": True, "activation_checkpointing_kwargs": kwargs}, notes


def all_or_none(job: Job, plan: Plan) -> tuple[bool, list[str]]:
    """Whether layers are checkpointed, where it is all of them or none; what that changes."""
    layers = job.architecture.layers
    counts = {name: count for name, count in plan.recompute_layers.items() if count}
    if set(counts) <= {"none"}:
        return False, []
    return True, [] if counts == {"full": layers} else [coarser(counts, layers)]


def coarser(counts: dict[str, int], layers: int) -> str:
    """What checkpointing every layer instead changes."""
    text = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    cost = "more recomputation than planned"
    if any(name.startswith("every_") for name in counts):
        cost = (
            "one input kept for each layer rather than for each segment, more memory than planned"
        )
    return f"recomputation ({text}) becomes full checkpointing of all {layers} layers: {cost}"
