"""Validity as data: what a stack or the hardware refuses, why, and where that is written.

The one list prunes the search, checks a given configuration, and explains an empty space. A rule
sees candidates as arrays and answers with a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
            head_dim=arch.head_dim,
            refusal=_refusal(job, shapes.stack.name),
        )


def _everywhere(shapes: Shapes, truth: bool) -> Array:
    return np.full(len(shapes), truth)


def _uses(tier: Array) -> Array:
    return np.asarray(tier > 0)


def _attention_runs(job: Job, c: Shapes) -> Array:
    gpu, kernels = job.cluster.node.gpu, c.stack.expresses.kernels_of(job.architecture.family)
    runs = {
        "flash": bool(gpu.flash)
        and c.precision in ("fp16", "bf16", "fp8")
        and job.architecture.head_dim <= 256,
        "efficient": gpu.memory_efficient_attention,
        "eager": True,
    }
    return _everywhere(c, runs[c.attention] and c.attention in kernels)


def _kv_heads(job: Job, c: Shapes) -> Array:
    kv = job.architecture.kv_heads
    return np.asarray((kv % c.tp == 0) | (c.tp % kv == 0))


def _kv_heads_divide(job: Job, c: Shapes) -> Array:
    return np.asarray(job.architecture.kv_heads % c.tp == 0)


def _even_stages(job: Job, c: Shapes) -> Array:
    free = c.stack.expresses.layers_per_stage != "uniform"
    return np.asarray((job.architecture.layers % (c.pp * c.virtual_stages) == 0) | free)


def _placement(job: Job, c: Shapes) -> Array:
    node = job.cluster.gpus_per_node
    return np.asarray((node % c.tp == 0) | (c.tp % node == 0))


def _interleaving(job: Job, c: Shapes) -> Array:
    whole = job.architecture.layers % (c.pp * c.virtual_stages) == 0
    return np.asarray((c.virtual_stages == 1) | ((c.pp > 1) & whole))


def _sharding_helps(job: Job, c: Shapes) -> Array:
    rest = 1 if _accumulates_in_fp32(job, c) and c.stack.name in DEEPSPEED else 0
    alone = c.dp * c.cp == 1
    return np.asarray(~alone | (c.zero_stage <= rest) | _uses(c.offload_optimizer))


def _nvme(job: Job, c: Shapes) -> Array:
    wants = (c.offload_optimizer == 2) | (c.offload_parameters == 2)
    return np.asarray(~wants | (job.cluster.node.nvme_count > 0))


def _cpu_optimizer(job: Job, c: Shapes) -> Array:
    return ~_uses(c.offload_optimizer) | (job.spec.optimizer in ("adam", "adamw", "lion"))


def _accumulates_in_fp32(job: Job, c: Shapes) -> bool:
    """Whether gradients of a 16-bit model are added up in 32 bits."""
    if c.precision not in ("fp16", "bf16"):
        return False
    own = c.stack.memory.gradients[c.precision] == 4
    return own if job.spec.grad_dtype == "auto" else job.spec.grad_dtype == "fp32"


def _fp32_accumulation(job: Job, c: Shapes) -> Array:
    return np.asarray(~((c.zero_stage == 0) & _accumulates_in_fp32(job, c)))


DEEPSPEED = ("deepspeed", "megatron-deepspeed")


def _accumulation_dtype(job: Job, c: Shapes) -> Array:
    grad = job.spec.grad_dtype
    fits = grad in ("auto", "fp32") or grad == c.precision
    return _everywhere(c, fits and not (c.precision in ("fp32", "tf32") and grad == "bf16"))


def _optimizer(job: Job, c: Shapes) -> Array:
    known = c.stack.expresses.optimizers
    return _everywhere(c, not known or job.spec.optimizer in known)


def _refusal(job: Job, stack: str) -> str:
    """Why a stack's emitter has nothing for this network, GPU, optimizer and loss; or empty."""
    from planner.emit import job_refusal  # brings the templates; only a job needs them

    return job_refusal(job, stack)


def _written(job: Job, c: Shapes) -> Array:
    return _everywhere(c, not _refusal(job, c.stack.name))


def _through_accelerate(job: Job, c: Shapes) -> bool:
    """Networks torchtitan has no code for run through Accelerate's FSDP2 alone."""
    from planner.emit import model_refusal

    return c.stack.name == "fsdp2" and bool(model_refusal(job))


def _torchtitan(job: Job, c: Shapes) -> Array:
    if not _through_accelerate(job, c):
        return _everywhere(c, True)
    plain = (c.pp == 1) & (c.tp == 1) & (c.cp == 1) & (c.zero_stage >= 2)
    return np.asarray(plain & (c.precision != "fp8"))


def _family(job: Job, c: Shapes) -> Array:
    known = c.stack.expresses.families
    return _everywhere(c, not known or job.architecture.family in known)


RULES: tuple[Rule, ...] = (
    Rule(
        "world",
        ("dp", "tp", "pp", "cp"),
        lambda job, c: (c.dp * c.tp * c.pp * c.cp == c.gpus) & (c.gpus <= job.cluster.gpus),
        "dp {dp} x tp {tp} x pp {pp} x cp {cp} must be the number of GPUs",
        "definition of the parallel degrees",
    ),
    Rule(
        "batch",
        ("dp", "micro_batch", "grad_accum"),
        lambda job, c: c.dp * c.micro_batch * c.grad_accum == job.global_batch,
        "dp {dp} x micro_batch {micro_batch} x grad_accum {grad_accum} must be the global batch"
        " {global_batch}",
        "DeepSpeed 0.19.8 deepspeed/runtime/config.py, _batch_assertion",
    ),
    Rule(
        "precision-hardware",
        ("precision",),
        lambda job, c: _everywhere(c, c.precision in job.cluster.node.gpu.supports),
        "{gpu} does not support {precision}",
        "GPU datasheet",
    ),
    Rule(
        "precision-stack",
        ("precision",),
        lambda job, c: _everywhere(c, c.precision in c.stack.expresses.precisions),
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
        "heads",
        ("tp",),
        lambda job, c: (job.architecture.heads % c.tp == 0) & (job.architecture.hidden % c.tp == 0),
        "tp {tp} must divide {heads} heads and hidden size {hidden}",
        "megatron-core TransformerConfig.__post_init__",
    ),
    Rule(
        "kv-heads",
        ("tp",),
        _kv_heads,
        "tp {tp} and {kv_heads} key-value heads must divide one another",
        "megatron-core TransformerConfig.__post_init__",
    ),
    Rule(
        "kv-heads-split",
        ("tp",),
        _kv_heads_divide,
        "tp {tp} must divide {kv_heads} key-value heads, which {stack} does not replicate",
        "DeepSpeed deepspeed/module_inject/tp_shard.py; " + MEGATRON_DS_ARGUMENTS,
        DEEPSPEED,
    ),
    Rule(
        "ffn",
        ("tp",),
        lambda job, c: np.asarray(job.architecture.ffn % c.tp == 0),
        "tp {tp} must divide the feed-forward width {ffn}",
        "megatron-core tensor_parallel/layers.py, divide()",
    ),
    Rule(
        "tp-placement",
        ("tp",),
        _placement,
        "tp {tp} must fill or divide the {gpus_per_node} GPUs of a node",
        "rank order: tensor-parallel ranks are neighbours",
    ),
    Rule(
        "tensor-parallel",
        ("tp",),
        lambda job, c: (c.tp == 1) | c.stack.expresses.tensor_parallel,
        "{stack} has no tensor parallelism",
        "the stack's own options",
    ),
    Rule(
        "sequence-parallel",
        ("sequence_parallel", "tp"),
        lambda job, c: (c.sequence_parallel == 0) | ((c.tp > 1) & (job.seq_len % c.tp == 0)),
        "sequence parallelism needs tp {tp} above 1 that divides the sequence length {seq_len}",
        "megatron-core TransformerConfig.__post_init__; " + MEGATRON_ARGUMENTS,
    ),
    Rule(
        "stages",
        ("pp",),
        lambda job, c: (
            (c.pp <= job.architecture.layers) & ((c.pp == 1) | c.stack.expresses.pipeline)
        ),
        "pp {pp} needs at least one of the {layers} layers on each stage",
        MEGATRON_ARGUMENTS,
    ),
    Rule(
        "even-stages",
        ("pp", "virtual_stages"),
        _even_stages,
        "{stack} splits layers evenly: pp {pp} x virtual_stages {virtual_stages} must divide"
        " {layers} layers",
        "torchtitan 0.3.0 torchtitan/distributed/pipeline_parallel.py",
        ("fsdp2",),
    ),
    Rule(
        "interleaving",
        ("pp", "virtual_stages"),
        _interleaving,
        "virtual_stages {virtual_stages} needs pp {pp} above 1 and chunks of whole layers",
        MEGATRON_ARGUMENTS,
    ),
    Rule(
        "interleaving-micro-batches",
        ("pp", "virtual_stages", "grad_accum"),
        lambda job, c: (c.virtual_stages == 1) | (c.grad_accum % c.pp == 0),
        "interleaving needs grad_accum {grad_accum} to be a multiple of pp {pp}",
        "megatron-core pipeline_parallel/schedules.py",
    ),
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
        lambda job, c: ~_uses(c.offload_optimizer) | (c.zero_stage >= 1),
        "offloading the optimizer needs ZeRO-1 or above, not {zero_stage}",
        ZERO_CONFIG,
        DEEPSPEED,
    ),
    Rule(
        "offload-distributed-optimizer",
        ("offload_optimizer", "zero_stage"),
        lambda job, c: ~_uses(c.offload_optimizer) | (c.zero_stage == 1) | (c.dp == 1),
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
        lambda job, c: ~_uses(c.offload_parameters) | (c.zero_stage == 3),
        "offload_parameters is silently ignored below ZeRO-3 (zero_stage {zero_stage})",
        ENGINE,
        DEEPSPEED,
    ),
    Rule(
        "offload-optimizer-first",
        ("offload_parameters", "offload_optimizer"),
        lambda job, c: (
            ~_uses(c.offload_parameters)
            | (_uses(c.offload_optimizer) & (c.offload_parameters <= c.offload_optimizer))
        ),
        "offload the optimizer before the parameters, and parameters no further down than it",
        "low cost first: optimizer states are touched once a step, parameters every micro-batch",
        DEEPSPEED,
    ),
    Rule(
        "offload-whole",
        ("offload_parameters", "offload_optimizer", "zero_stage"),
        lambda job, c: (
            (_uses(c.offload_parameters) == _uses(c.offload_optimizer))
            & (~_uses(c.offload_parameters) | (c.zero_stage >= 2))
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
    Rule(
        "grad-dtype",
        ("precision",),
        _accumulation_dtype,
        "gradients of a {precision} run accumulate in {precision} or fp32, not {grad_dtype}",
        ENGINE + ", get_data_types",
    ),
)


def violations(job: Job, shapes: Shapes) -> list[tuple[Rule, Array]]:
    """Each rule that binds these candidates, with the mask of those it refuses."""
    return [
        (rule, ~np.asarray(rule.holds(job, shapes), dtype=bool))
        for rule in RULES
        if rule.applies(shapes.stack.name)
    ]


def prune(job: Job, shapes: Shapes, waived: tuple[str, ...] = ()) -> tuple[Shapes, dict[str, int]]:
    """The candidates no rule refuses, and how many each rule was the first to remove."""
    alive = np.ones(len(shapes), dtype=bool)
    removed: dict[str, int] = {}
    for rule, refused in violations(job, shapes):
        count = int(np.count_nonzero(alive & refused))
        if count and rule.name not in waived:
            removed[rule.name] = count
            alive &= ~refused
    for demand in job.spec.constraints:
        if demand.axis == "recompute":
            continue  # decided inside the program
        refused = ~demand.holds(shapes.axis(demand.axis))
        count = int(np.count_nonzero(alive & refused))
        if count:
            removed[str(demand)] = removed.get(str(demand), 0) + count
            alive &= ~refused
    return shapes.take(alive), removed


def granularities_allowed(job: Job, shapes: Shapes, names: Sequence[str]) -> Array:
    """Checkpoint granularities the user and the stack accept for shapes of one pp, (G,)."""
    allowed = job.spec.constraint("recompute").holds(np.asarray(names))
    pipelined = shapes.stack.expresses.recompute_pipelined
    if pipelined is not None and int(shapes.pp[0]) > 1:
        allowed &= np.isin(names, pipelined)
    if _through_accelerate(job, shapes):
        allowed &= np.isin(names, ("none", "full"))  # fsdp_activation_checkpointing: all or none
    return allowed


def first_violation(job: Job, shapes: Shapes) -> str | None:
    """The first rule a single candidate breaks, explained; None if it breaks none."""
    for rule, refused in violations(job, shapes):
        if bool(refused[0]):
            return f"{rule.explain(job, shapes, 0)} [{rule.name}; {rule.source}]"
    return None
