"""Rules on how parallel degrees divide the GPUs, the batch and the network."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Array
from planner.job import Job
from planner.rules.rule import DEEPSPEED, MEGATRON_ARGUMENTS, MEGATRON_DS_ARGUMENTS, Rule
from planner.space import Shapes


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


def _experts(job: Job, c: Shapes) -> Array:
    moe = job.architecture.moe
    if moe is None:
        return np.asarray(c.ep == 1)
    ranks = c.dp * c.cp * c.tp  # experts need not be split over the tensor-parallel ranks
    return np.asarray((moe.experts % c.ep == 0) & (ranks % c.ep == 0))


def _interleaving(job: Job, c: Shapes) -> Array:
    enough = job.architecture.layers // c.pp >= c.virtual_stages
    return np.asarray((c.virtual_stages == 1) | ((c.pp > 1) & enough))


DEGREES: tuple[Rule, ...] = (
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
        "experts",
        ("ep", "dp", "cp", "tp"),
        _experts,
        "ep {ep} must divide the experts of {model}, which has {experts}, and dp {dp} x cp {cp} x"
        " tp {tp}",
        "megatron-core TransformerConfig.__post_init__, parallel_state.py",
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
        "virtual_stages {virtual_stages} needs pp {pp} above 1 and a layer for every chunk",
        MEGATRON_ARGUMENTS,
    ),
    Rule(
        "interleaving-micro-batches",
        ("pp", "virtual_stages", "grad_accum"),
        lambda job, c: (c.virtual_stages == 1) | (c.grad_accum % c.pp == 0),
        "interleaving needs grad_accum {grad_accum} to be a multiple of pp {pp}",
        "megatron-core pipeline_parallel/schedules.py",
    ),
)
