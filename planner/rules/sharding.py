"""Rules on ZeRO stages and offload."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Array
from planner.job import Job
from planner.rules.rule import (
    DEEPSPEED,
    ENGINE,
    MEGATRON_ARGUMENTS,
    PIPE_ENGINE,
    ZERO_CONFIG,
    Rule,
    uses,
)
from planner.space import Shapes


def _sharding_helps(job: Job, c: Shapes) -> Array:
    rest = 1 if _accumulates_in_fp32(job, c) and c.stack.name in DEEPSPEED else 0
    alone = c.dp * c.cp == 1
    return np.asarray(~alone | (c.zero_stage <= rest) | uses(c.offload_optimizer))


def _nvme(job: Job, c: Shapes) -> Array:
    wants = (c.offload_optimizer == 2) | (c.offload_parameters == 2)
    return np.asarray(~wants | (job.cluster.node.nvme_count > 0))


def _cpu_optimizer(job: Job, c: Shapes) -> Array:
    return ~uses(c.offload_optimizer) | (job.spec.optimizer in ("adam", "adamw", "lion"))


def _accumulates_in_fp32(job: Job, c: Shapes) -> bool:
    """Whether gradients of a 16-bit model are added up in 32 bits."""
    if c.precision not in ("fp16", "bf16"):
        return False
    own = c.stack.memory.gradients[c.precision] == 4
    return own if job.spec.grad_dtype == "auto" else job.spec.grad_dtype == "fp32"


def _fp32_accumulation(job: Job, c: Shapes) -> Array:
    return np.asarray(~((c.zero_stage == 0) & _accumulates_in_fp32(job, c)))


SHARDING: tuple[Rule, ...] = (
    Rule(
        "zero-stage",
        ("zero_stage",),
        lambda job, c: np.isin(c.zero_stage, c.stack.expresses.zero_stages),
        "{stack} has no ZeRO stage {zero_stage}",
        "the stack's own options",
    ),
    Rule(
        "zero-shards",
        ("zero_stage", "dp", "offload_optimizer"),
        _sharding_helps,
        "ZeRO-{zero_stage} shards nothing over dp {dp}",
        "ZeRO paper, section 5",
        ("deepspeed", "megatron-deepspeed", "megatron"),
    ),
    Rule(
        "fsdp-shards",
        ("zero_stage", "dp"),
        lambda job, c: (c.zero_stage == 0) | (c.dp * c.cp > 1),
        "ZeRO-{zero_stage} shards nothing over dp {dp}",
        "torchtitan parallelism.data_parallel_shard_degree",
        ("fsdp2",),
    ),
    Rule(
        "pipeline-zero",
        ("pp", "zero_stage"),
        lambda job, c: (c.pp == 1) | (c.zero_stage <= 1),
        "DeepSpeed's pipeline engine refuses ZeRO-{zero_stage} with pp {pp}",
        PIPE_ENGINE + ': "ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism"',
        DEEPSPEED,
    ),
    Rule(
        "autotp-pipeline",
        ("pp", "tp"),
        lambda job, c: (c.pp == 1) | (c.tp == 1),
        "AutoTP (tp {tp}) does not combine with the pipeline engine (pp {pp})",
        "DeepSpeed 0.19.8 deepspeed/__init__.py, tp_model_init",
        ("deepspeed",),
    ),
    Rule(
        "offload-stage",
        ("offload_optimizer", "zero_stage"),
        lambda job, c: ~uses(c.offload_optimizer) | (c.zero_stage >= 1),
        "offloading the optimizer needs ZeRO-1 or above, not {zero_stage}",
        ZERO_CONFIG,
        DEEPSPEED,
    ),
    Rule(
        "offload-distributed-optimizer",
        ("offload_optimizer", "zero_stage"),
        lambda job, c: ~uses(c.offload_optimizer) | (c.zero_stage == 1) | (c.dp == 1),
        "--optimizer-cpu-offload works on the distributed optimizer (zero_stage 1)",
        MEGATRON_ARGUMENTS,
        ("megatron",),
    ),
    Rule(
        "offload-nvme-stage",
        ("offload_optimizer", "zero_stage"),
        lambda job, c: (c.offload_optimizer != 2) | (c.zero_stage == 3),
        "below ZeRO-3 DeepSpeed silently keeps an NVMe optimizer in host RAM",
        ZERO_CONFIG + "; " + ENGINE,
        DEEPSPEED,
    ),
    Rule(
        "offload-parameters-stage",
        ("offload_parameters", "zero_stage"),
        lambda job, c: ~uses(c.offload_parameters) | (c.zero_stage == 3),
        "offload_parameters is silently ignored below ZeRO-3 (zero_stage {zero_stage})",
        ENGINE,
        DEEPSPEED,
    ),
    Rule(
        "offload-optimizer-first",
        ("offload_parameters", "offload_optimizer"),
        lambda job, c: (
            ~uses(c.offload_parameters)
            | (uses(c.offload_optimizer) & (c.offload_parameters <= c.offload_optimizer))
        ),
        "offload the optimizer before the parameters, and parameters no further down than it",
        "low cost first: optimizer states are touched once a step, parameters every micro-batch",
        DEEPSPEED,
    ),
    Rule(
        "offload-whole",
        ("offload_parameters", "offload_optimizer", "zero_stage"),
        lambda job, c: (
            (uses(c.offload_parameters) == uses(c.offload_optimizer))
            & (~uses(c.offload_parameters) | (c.zero_stage >= 2))
        ),
        "FSDP2's CPUOffloadPolicy moves parameters, gradients and optimizer together",
        "torch.distributed.fsdp CPUOffloadPolicy",
        ("fsdp2",),
    ),
    Rule(
        "nvme-present",
        ("offload_optimizer", "offload_parameters"),
        _nvme,
        "the node has no NVMe drive to offload to",
        "node description",
    ),
    Rule(
        "cpu-optimizer",
        ("offload_optimizer",),
        _cpu_optimizer,
        "{optimizer} has no CPU implementation to offload to",
        "DeepSpeed 0.19.8 deepspeed/runtime/zero/utils.py, ZERO_SUPPORTED_OPTIMIZERS",
    ),
    Rule(
        "fp32-accumulation",
        ("zero_stage", "precision"),
        _fp32_accumulation,
        "{precision} with fp32 gradient accumulation is not implemented at ZeRO-{zero_stage}",
        ENGINE + ", _do_optimizer_sanity_check",
        DEEPSPEED,
    ),
)
