"""What the files of one bundle must agree on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from planner.plan import Plan, Result

TORCHRUN_COUNT = r"--nproc[-_]per[-_]node[ =\"']+(\d+)"
TORCHRUN_NODES = r"--nnodes[ =\"']+(\d+)"
SBATCH_NODES = r"#SBATCH --nodes=(\d+)"
LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers")

Claim = tuple[str, object, object]  # what, in this file, in plan.json


def inconsistencies(
    result: Result, documents: Mapping[str, Any], texts: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Which comparisons were made, and those that came out unequal, in words."""
    plan = result.plan
    assert plan is not None
    compared, wrong = [], []
    for what, found, expected in claims(plan, result, documents, texts):
        compared.append(what)
        if found != expected:
            wrong.append(f"{what}: {found}, the plan says {expected}")
    return compared, wrong


def claims(
    plan: Plan, result: Result, documents: Mapping[str, Any], texts: Mapping[str, str]
) -> Iterator[Claim]:
    """All comparisons this bundle has the files for."""
    yield "plan world", plan.dp * plan.tp * plan.pp * plan.cp, plan.gpus
    batch = plan.dp * plan.micro_batch * plan.grad_accum
    yield "plan batch", batch, result.job.get("global_batch", batch)
    yield from stage_claims(plan)
    for name in ("deepspeed_config.json", "ds_config_hf.json"):
        if isinstance(documents.get(name), dict):
            yield from deepspeed_claims(name, documents[name], plan)
    if isinstance(documents.get("model_config.json"), dict):
        layers = [documents["model_config.json"].get(key) for key in LAYER_KEYS]
        found = next((n for n in layers if n is not None), None)
        yield "model_config.json layers", found, sum(s.layers for s in plan.stages)
    yield from launcher_claims(plan, texts)


def stage_claims(plan: Plan) -> Iterator[Claim]:
    """The stages are the partition they claim to be."""
    yield "stages", len(plan.stages), plan.pp
    first = 0
    for stage in plan.stages:
        yield f"stage {stage.stage} first layer", stage.first_layer, first
        yield f"stage {stage.stage} recompute", sum(stage.recompute.values()), stage.layers
        first += stage.layers


def section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A section of a configuration; an empty one where something else stands."""
    found = config.get(key)
    return found if isinstance(found, dict) else {}


def deepspeed_claims(name: str, config: Mapping[str, Any], plan: Plan) -> Iterator[Claim]:
    """Batch, stage, precision, offload and tensor parallelism of a DeepSpeed configuration."""
    numbers = {
        "train_batch_size": plan.dp * plan.micro_batch * plan.grad_accum,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.grad_accum,
    }
    for key, expected in numbers.items():
        if config.get(key, "auto") != "auto":
            yield f"{name} {key}", config[key], expected
    zero = section(config, "zero_optimization")
    yield f"{name} stage", zero.get("stage", 0), plan.zero_stage
    for key, tier in (
        ("offload_optimizer", plan.offload_optimizer),
        ("offload_param", plan.offload_parameters),
    ):
        yield f"{name} {key}", section(zero, key).get("device", "none"), tier
    for precision in ("bf16", "fp16"):
        enabled = section(config, precision).get("enabled", False)
        if enabled != "auto":
            yield f"{name} {precision}", enabled, plan.precision == precision
    if plan.stack == "deepspeed":
        size = section(config, "tensor_parallel").get("autotp_size", 1)
        yield f"{name} autotp_size", size, plan.tp


def launcher_claims(plan: Plan, texts: Mapping[str, str]) -> Iterator[Claim]:
    """launch.sh starts as many processes as there are GPUs, on as many nodes as job.sbatch asks."""
    script = texts.get("launch.sh", "")
    count = re.search(TORCHRUN_COUNT, script)
    if count is None:
        return
    given = re.search(TORCHRUN_NODES, script)
    nodes = int(given.group(1)) if given else 1
    yield "launch.sh processes", int(count.group(1)) * nodes, plan.gpus
    asked = re.search(SBATCH_NODES, texts.get("job.sbatch", ""))
    if asked is not None:
        yield "job.sbatch nodes", int(asked.group(1)), nodes
