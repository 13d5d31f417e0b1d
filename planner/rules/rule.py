"""A rule: what a stack or the hardware refuses, why, and where that is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodels.numeric import Array
from planner.job import Job
from planner.space import Shapes

Holds = Callable[[Job, Shapes], Array]

MEGATRON_ARGUMENTS = "Megatron-LM megatron/training/arguments.py, validate_args"
MEGATRON_DS_ARGUMENTS = "Megatron-DeepSpeed megatron/arguments.py, validate_args"
PIPE_ENGINE = "DeepSpeed 0.19.8 deepspeed/runtime/pipe/engine.py"
ZERO_CONFIG = "DeepSpeed 0.19.8 deepspeed/runtime/zero/config.py"
ENGINE = "DeepSpeed 0.19.8 deepspeed/runtime/engine.py"
DEEPSPEED = ("deepspeed", "megatron-deepspeed")


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition every candidate must meet.

    ``stacks``: the stacks it binds, () for all. ``axes``: the axes it reads, which are also the
    names its ``reason`` may show.
    """

    name: str
    axes: tuple[str, ...]
    holds: Holds
    reason: str
    source: str
    stacks: tuple[str, ...] = ()

    def applies(self, stack: str) -> bool:
        """Whether it binds a stack."""
        return not self.stacks or stack in self.stacks

    def explain(self, job: Job, shapes: Shapes, index: int) -> str:
        """The reason for one candidate, its values filled in."""
        arch = job.architecture
        values = {axis: shapes.value(axis, index) for axis in self.axes}
        return self.reason.format(
            **values,
            stack=shapes.stack.name,
            gpu=job.cluster.node.gpu.name,
            model=arch.name,
            heads=arch.heads,
            kv_heads=arch.kv_heads,
            layers=arch.layers,
            hidden=arch.hidden,
            ffn=arch.ffn,
            seq_len=job.seq_len,
            global_batch=job.global_batch,
            gpus_per_node=job.cluster.gpus_per_node,
            optimizer=job.spec.optimizer,
            grad_dtype=job.spec.grad_dtype,
            family=arch.family,
            experts=arch.moe.experts if arch.moe is not None else "none",
            head_dim=arch.head_dim,
            refusal=refusal(job, shapes.stack.name),
        )


def everywhere(shapes: Shapes, truth: bool) -> Array:
    return np.full(len(shapes), truth)


def uses(tier: Array) -> Array:
    return np.asarray(tier > 0)


def refusal(job: Job, stack: str) -> str:
    """Why a stack's emitter has nothing for this network, GPU, optimizer and loss; or empty."""
    from planner.emit import job_refusal  # brings the templates; only a job needs them

    return job_refusal(job, stack)
