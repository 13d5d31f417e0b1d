"""deepspeed_config.json for DeepSpeed 0.19, complete and without ``auto``."""

from __future__ import annotations

from typing import Any

from planner.emit.deepspeed_zero import aio_section, zero_section
from planner.emit.recipe import GRADIENT_CLIPPING, LOG_EVERY, RECIPES
from planner.emit.refusal import require
from planner.job import Job
from planner.plan import Plan

CONFIG = "deepspeed_config.json"
NATIVE = {"adam": "Adam", "adamw": "AdamW", "lion": "Lion", "muon": "Muon"}
TORCH = {"sgd": "SGD", "momentum": "SGD", "adafactor": "Adafactor"}  # classes of torch.optim


def deepspeed_config(job: Job, plan: Plan) -> dict[str, Any]:
    """The JSON of a plan on the plain engine or on Megatron-DeepSpeed.

    Raises
    ------
    ValueError
        If DeepSpeed cannot do what the plan says.
    """
    check_deepspeed(job, plan)
    config: dict[str, Any] = batch_section(plan)
    config |= {
        "steps_per_print": LOG_EVERY,
        "wall_clock_breakdown": False,
        "gradient_clipping": GRADIENT_CLIPPING,
    }
    config |= precision_sections(job, plan)
    if plan.stack == "deepspeed":  # Megatron-DeepSpeed builds its own optimizer
        config |= optimizer_section(job, plan)
    elif plan.zero_stage:
        config["zero_allow_untested_optimizer"] = True
    config["zero_optimization"] = zero_section(job, plan)
    aio = aio_section(plan)
    if aio:
        config["aio"] = aio
    if plan.tp > 1 and plan.stack == "deepspeed":
        config["tensor_parallel"] = {"autotp_size": plan.tp}
    if plan.pp > 1:
        config["pipeline"] = pipeline_section(plan)
    return config


def check_deepspeed(job: Job, plan: Plan) -> None:
    """Refuse what the engine refuses, or would ignore without a word.

    Sources: DeepSpeed 0.19.8 deepspeed/runtime/pipe/engine.py (stages above 1),
    deepspeed/runtime/zero/offload_config.py and stage_1_and_2.py (offload below its stage),
    deepspeed/runtime/engine.py (fp32 accumulation without ZeRO), deepspeed/__init__.py (AutoTP).
    """
    name = "DeepSpeed"
    require(plan.precision != "fp8", name, "it trains in fp32, tf32, fp16 or bf16, not fp8")
    require(plan.virtual_stages == 1, name, "its pipeline schedule is not interleaved")
    require(plan.ep == 1, name, f"ep {plan.ep}: expert parallelism is not written yet")
    require(
        plan.pp == 1 or plan.zero_stage <= 1,
        name,
        f"the pipeline engine refuses ZeRO-{plan.zero_stage} with pp {plan.pp}",
    )
    require(
        plan.offload_parameters == "none" or plan.zero_stage == 3,
        name,
        f"offload_param is ignored at ZeRO-{plan.zero_stage}",
    )
    require(
        plan.offload_optimizer == "none" or plan.zero_stage >= 1,
        name,
        "offload_optimizer needs ZeRO-1 or above",
    )
    require(
        plan.offload_optimizer != "nvme" or plan.zero_stage == 3,
        name,
        f"an NVMe optimizer stays in host RAM at ZeRO-{plan.zero_stage}",
    )
    away = sum(stage.offloaded_layers for stage in plan.stages)
    partly = 0 < away < job.architecture.layers
    require(
        not partly or (plan.zero_stage == 3 and plan.offload_optimizer == "cpu"),
        name,
        f"only ZeRO-3 offloads the optimizer of some layers ({away}) to the CPU",
    )
    require(
        not accumulates_in_fp32(job, plan) or plan.zero_stage >= 1,
        name,
        "fp32 gradient accumulation of a 16-bit model needs ZeRO-1 or above",
    )
    if plan.stack == "deepspeed":
        require(plan.cp == 1, name, f"cp {plan.cp}: sequence sharding is not written yet")
        require(
            plan.pp == 1 or plan.tp == 1,
            name,
            f"AutoTP (tp {plan.tp}) does not combine with the pipeline engine (pp {plan.pp})",
        )
        require(not plan.sequence_parallel, name, "AutoTP has no sequence parallelism")


def batch_section(plan: Plan) -> dict[str, Any]:
    """The batch triple.

    Under AutoTP no total passes both checks of the engine: the first counts all ranks, the second
    only the data-parallel ones (DeepSpeed 0.19.8 deepspeed/runtime/config.py). It is left out and
    follows from the other two.
    """
    section = {
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.grad_accum,
    }
    if plan.stack == "deepspeed" and plan.tp > 1:
        return section
    return {"train_batch_size": plan.micro_batch * plan.grad_accum * plan.dp, **section}


def accumulates_in_fp32(job: Job, plan: Plan) -> bool:
    """Whether gradients of 16-bit weights are to be summed in fp32, asked for or by the stack.

    Without ZeRO the engine sums them in 16 bits or not at all, so a stack's habit yields there.
    """
    if plan.precision not in ("fp16", "bf16"):
        return False
    if job.spec.grad_dtype != "auto":
        return job.spec.grad_dtype == "fp32"
    if plan.zero_stage == 0:
        return False
    stack = next(s for s in job.stacks if s.name == plan.stack)
    return stack.memory.gradients[plan.precision] > 2


def precision_sections(job: Job, plan: Plan) -> dict[str, Any]:
    """``bf16`` or ``fp16`` with dynamic loss scaling, and the accumulation dtype."""
    sections: dict[str, Any] = {}
    if plan.precision == "bf16":
        sections["bf16"] = {"enabled": True}
    if plan.precision == "fp16":
        sections["fp16"] = {
            "enabled": True,
            "loss_scale": 0,  # dynamic
            "initial_scale_power": 16,
            "loss_scale_window": 1000,
            "hysteresis": 2,
            "min_loss_scale": 1,
        }
    if plan.precision in ("bf16", "fp16"):
        accumulate = "fp32" if accumulates_in_fp32(job, plan) else plan.precision
        sections["data_types"] = {"grad_accum_dtype": accumulate}
    return sections


def optimizer_section(job: Job, plan: Plan) -> dict[str, Any]:
    """``optimizer``, or what lets the training script bring its own.

    8-bit Adam (bitsandbytes) is no class of torch or DeepSpeed: train.py builds it.
    """
    name = job.spec.optimizer
    untested = {"zero_allow_untested_optimizer": True} if plan.zero_stage else {}
    if name not in NATIVE and name not in TORCH:
        return untested
    recipe = RECIPES[name]
    params: dict[str, Any] = {"lr": recipe.lr}
    if recipe.betas:
        params["betas"] = list(recipe.betas)
    if recipe.eps is not None:
        params["eps"] = recipe.eps
    params["weight_decay"] = recipe.weight_decay
    if recipe.momentum is not None:
        params["momentum"] = recipe.momentum
    if name == "adam":
        params["adam_w_mode"] = False  # "Adam" means AdamW unless told otherwise
    section = {"optimizer": {"type": NATIVE.get(name) or TORCH[name], "params": params}}
    return section if name in NATIVE else section | untested


def pipeline_section(plan: Plan) -> dict[str, Any]:
    """How the pipeline engine checkpoints and what it sends.

    The plain engine needs non-reentrant checkpoints: the reentrant ones fail on the embedding,
    whose input needs no gradient. Megatron's GPTModelPipe is the exception, it checkpoints only
    transformer layers, and only when reentrant (deepspeed/runtime/pipe/module.py,
    _is_checkpointable). Under sequence parallelism ranks hold different activations, which must
    not be cut again on the wire.
    """
    if plan.stack == "deepspeed":
        return {"use_reentrant": False, "activation_checkpoint_interval": 0}
    whole = {"pipe_partitioned": False, "grad_partitioned": False}
    return {"use_reentrant": True, **(whole if plan.sequence_parallel else {})}
