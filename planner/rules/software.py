"""Rules on what the hardware, the stack and its code can run at all."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Array
from planner.job import Job
from planner.rules.rule import DEEPSPEED, ENGINE, Rule, everywhere, refusal
from planner.space import Shapes


def _attention_runs(job: Job, c: Shapes) -> Array:
    gpu, kernels = job.cluster.node.gpu, c.stack.expresses.kernels_of(job.architecture.family)
    runs = {
        "flash": bool(gpu.flash)
        and c.precision in ("fp16", "bf16", "fp8")
        and job.architecture.head_dim <= 256,
        "efficient": gpu.memory_efficient_attention,
        "eager": True,
    }
    return everywhere(c, runs[c.attention] and c.attention in kernels)


def _optimizer(job: Job, c: Shapes) -> Array:
    known = c.stack.expresses.optimizers
    return everywhere(c, not known or job.spec.optimizer in known)


def _family(job: Job, c: Shapes) -> Array:
    known = c.stack.expresses.families
    return everywhere(c, not known or job.architecture.family in known)


def _written(job: Job, c: Shapes) -> Array:
    return everywhere(c, not refusal(job, c.stack.name))


def through_accelerate(job: Job, c: Shapes) -> bool:
    """Networks torchtitan has no code for run through Accelerate's FSDP2 alone."""
    from planner.emit import model_refusal

    return c.stack.name == "fsdp2" and bool(model_refusal(job))


def _torchtitan(job: Job, c: Shapes) -> Array:
    if not through_accelerate(job, c):
        return everywhere(c, True)
    plain = (c.pp == 1) & (c.tp == 1) & (c.cp == 1) & (c.zero_stage >= 2)
    return np.asarray(plain & (c.precision != "fp8"))


def _accumulation_dtype(job: Job, c: Shapes) -> Array:
    grad = job.spec.grad_dtype
    fits = grad in ("auto", "fp32") or grad == c.precision
    return everywhere(c, fits and not (c.precision in ("fp32", "tf32") and grad == "bf16"))


SOFTWARE: tuple[Rule, ...] = (
    Rule(
        "precision-hardware",
        ("precision",),
        lambda job, c: everywhere(c, c.precision in job.cluster.node.gpu.supports),
        "{gpu} does not support {precision}",
        "GPU datasheet",
    ),
    Rule(
        "precision-stack",
        ("precision",),
        lambda job, c: everywhere(c, c.precision in c.stack.expresses.precisions),
        "{stack} cannot train in {precision}",
        "the stack's own options",
    ),
    Rule(
        "attention-kernel",
        ("attention", "precision"),
        _attention_runs,
        "{attention} attention does not run on {gpu} in {precision} with head size {head_dim}"
        " for {family}",
        "FlashAttention README: Ampere or newer, 16 bit, head size up to 256",
    ),
    Rule(
        "optimizer-stack",
        (),
        _optimizer,
        "{stack} has no {optimizer} optimizer",
        "the stack's own options",
    ),
    Rule(
        "model-family",
        (),
        _family,
        "{stack} has no implementation of {family} models",
        "the stack's model code",
    ),
    Rule(
        "emitter",
        (),
        _written,
        "{stack} cannot launch this job: {refusal}",
        "the stack's model code and options",
    ),
    Rule(
        "accelerate-only",
        ("tp", "pp", "zero_stage"),
        _torchtitan,
        "torchtitan has no code for {model}, and Accelerate's FSDP2 has no tp {tp}, pp {pp} or"
        " ZeRO-{zero_stage} below 2",
        "torchtitan 0.3.0 torchtitan/models; Accelerate 1.15 FullyShardedDataParallelPlugin",
        ("fsdp2",),
    ),
    Rule(
        "tied-pipeline",
        ("pp",),
        lambda job, c: (c.pp == 1) | (not job.architecture.tied_embeddings),
        "a pipeline (pp {pp}) cannot share the embedding of {model} with its head",
        "torchtitan 0.3.0 torchtitan/distributed/pipeline_parallel.py",
        ("fsdp2",),
    ),
    Rule(
        "context-expert",
        ("cp", "ep"),
        lambda job, c: (c.cp == 1) & (c.ep == 1),
        "{stack} plans have no cp {cp} or ep {ep} yet",
        "the stack's emitter",
        DEEPSPEED,
    ),
    Rule(
        "grad-dtype",
        ("precision",),
        _accumulation_dtype,
        "gradients of a {precision} run accumulate in {precision} or fp32, not {grad_dtype}",
        ENGINE + ", get_data_types",
    ),
)
