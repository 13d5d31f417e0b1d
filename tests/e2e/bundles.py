"""Bundles as the emitters write them, and what the memory model says of them scaled down."""

import importlib.util
import json
from pathlib import Path

from costmodels.configuration import OFFLOAD_TIERS, Configuration
from costmodels.host import host_costs
from costmodels.states import states
from planner.emit import emit
from planner.emit.model_parts import PARTS
from planner.emit.train import tiny
from planner.job import resolve
from planner.plan import Plan, Result, Stage
from planner.spec import make_spec

LLAMA = {"model": "llama3.2-1b", "gpus": "2xA100-80G", "seq_len": 2048, "global_batch": 8}
PLAN = {
    "stack": "deepspeed",
    "gpus": 2,
    "dp": 2,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "ep": 1,
    "micro_batch": 2,
    "grad_accum": 2,
    "virtual_stages": 1,
    "zero_stage": 0,
    "precision": "bf16",
    "attention": "flash",
    "recompute": "mixed",
    "sequence_parallel": False,
    "offload_optimizer": "none",
    "offload_parameters": "none",
}
TINY_SEQ = 64


def make_plan(job, recompute=None, away=None, **fields):
    """A plan. ``recompute``: each stage's layers by granularity; ``away``: layers offloaded."""
    fields = {**PLAN, **fields}
    recompute = recompute or [{"none": job.architecture.layers}]
    stages, first = [], 0
    for index, counts in enumerate(recompute):
        layers = sum(counts.values())
        offloads = fields["offload_optimizer"] != "none"
        stage = Stage(
            stage=index,
            first_layer=first,
            layers=layers,
            recompute=counts,
            offloaded_layers=away if away is not None else layers * offloads,
            embedding=index == 0,
            head=index == len(recompute) - 1,
            time_s=1.0,
            peak_memory_bytes=1,
        )
        stages.append(stage)
        first += layers
    return Plan(stages=tuple(stages), **fields)


def write(folder: Path, job, plan):
    """The job's folder, as ``planner solve`` writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in emit(job, plan).items():
        (folder / name).write_text(text)
    result = Result(status="optimal", job=dict(job.echo), plan=plan, predicted=None, proof=None)
    (folder / "plan.json").write_text(result.model_dump_json(indent=2))
    return folder


def bundle(folder: Path, spec=None, **fields):
    """Write a bundle; its job and plan."""
    job = resolve(make_spec({**LLAMA, **(spec or {})}))
    plan = make_plan(job, **fields)
    write(folder, job, plan)
    return job, plan


def shrunk(folder: Path, world=2):
    """Plan and DeepSpeed configuration as ``train.py --tiny`` makes them."""
    spec = importlib.util.spec_from_file_location("train_tiny", folder / "train_tiny.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plan = json.loads((folder / "plan.json").read_text())["plan"]
    config = json.loads((folder / "deepspeed_config.json").read_text())
    module.shrink(plan, config, world)
    module.for_cpu(plan, config)
    return plan, config


def configuration(job, plan, small, **changes):
    """The memory model's view of a scaled-down plan."""
    keys = ("precision", "attention", "pp", "dp", "tp", "cp", "ep", "micro_batch", "grad_accum")
    values = {key: small[key] for key in (*keys, "zero_stage", "virtual_stages")}
    stack = next(s for s in job.stacks if s.name == plan.stack)
    values |= {
        "offload_optimizer": OFFLOAD_TIERS.index(plan.offload_optimizer),
        "offload_parameters": OFFLOAD_TIERS.index(plan.offload_parameters),
        "grad_dtype": job.spec.grad_dtype,
        "optimizer": job.spec.optimizer,
        "seq_len": TINY_SEQ,
    }
    values |= changes
    return Configuration(
        architecture=tiny(job.architecture, plan), cluster=job.cluster, stack=stack, **values
    )


def persistent_bytes(job, plan, small, config, stage):
    """What one rank of a stage holds between two steps, on the device and on the host. [byte]

    Weights, optimizer states, the gradients that are allocated for good, stage 3's reduction
    bucket (its size is in the configuration), and the host's share. One micro-batch a step makes
    ``alive`` say which gradients those are.
    """
    layers = small["stages"][stage]["layers"]
    away = layers if plan.offload_optimizer != "none" else 0
    model = states(configuration(job, plan, small, grad_accum=1))

    def at(affine):
        parts = (affine.const, affine.per_layer, affine.per_offloaded)
        const, layer, off = (pick(part, stage) for part in parts)
        return const + layer * layers + off * away

    total = at(model.weights) + at(model.optimizer)
    total += at(model.gradients) * pick(model.alive, stage)
    if plan.zero_stage == 3:
        total += 2 * config["zero_optimization"]["reduce_bucket_size"]
    host = host_costs(configuration(job, plan, small))["training"]
    process = next(s for s in job.stacks if s.name == plan.stack).memory.host_process
    return total + at(host) - process


def pick(value, stage):
    """A stage's value of an array over stages, or a scalar."""
    flat = getattr(value, "ravel", lambda: [value])()
    return float(flat[stage] if len(flat) > 1 else flat[0])


def layers_of(family):
    """Where transformers keeps the layers of a family's base model."""
    return PARTS[family].layers
