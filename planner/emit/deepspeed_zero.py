"""The ``zero_optimization`` section: stage, buffers, offload."""

from __future__ import annotations

import math
from typing import Any

from costmodels.architecture import Architecture
from costmodels.buckets import zero_buckets
from costmodels.params import (
    attention_parameters,
    embedding_parameters,
    final_norm_parameters,
    head_parameters,
    mean_layer_parameters,
    total_parameters,
)
from planner.emit.layout import NVME_PATH, uses_nvme
from planner.job import Job
from planner.plan import Plan

# Tensors of one sub-group that are swapped together: parameter, gradient and two moments
# (DeepSpeed 0.19.8 deepspeed/runtime/zero/offload_config.py, buffer_count). Reading ahead while
# writing back holds two sub-groups.
SWAPPED_TENSORS = 4
PARAMETER_BUFFERS = 5  # DeepSpeed's default for offload_param.buffer_count
LEAST_PARAMETER_BUFFER = 100_000_000  # elements; DeepSpeed's default for buffer_size
GROUPS_PER_LAYER = 4  # sub-groups of a layer where only some layers are offloaded
# Writing whole weights on save gathers them on one rank of the first node; above this share of
# its RAM the sharded checkpoint is the only safe one.
GATHER_SHARE = 0.25


def zero_section(job: Job, plan: Plan) -> dict[str, Any]:
    """Everything under ``zero_optimization``, for the plan's stage."""
    section: dict[str, Any] = {"stage": plan.zero_stage}
    if plan.zero_stage == 0:
        return section
    arch = job.architecture
    sizes = zero_buckets(arch)
    section |= {
        "contiguous_gradients": True,
        "overlap_comm": _overlap(job, plan),
        "reduce_scatter": job.spec.optimizer != "muon" or plan.zero_stage < 3,
        "reduce_bucket_size": sizes.reduce_bucket,
        "allgather_partitions": True,
        "allgather_bucket_size": sizes.allgather_bucket + sizes.allgather_bucket % 2,
    }
    if plan.zero_stage == 3:
        section |= {
            "sub_group_size": sub_group_size(arch, plan, sizes.sub_group),
            "stage3_prefetch_bucket_size": sizes.prefetch_bucket,
            "stage3_param_persistence_threshold": sizes.persistence_threshold,
            "stage3_max_live_parameters": sizes.max_live,
            "stage3_max_reuse_distance": sizes.max_reuse_distance,
            "stage3_gather_16bit_weights_on_model_save": _gathers_on_save(job),
        }
    if plan.offload_optimizer != "none":
        section["offload_optimizer"] = _offload_optimizer(job, plan)
    if plan.offload_parameters != "none":
        section["offload_param"] = _offload_parameters(arch, plan)
    return section


def _overlap(job: Job, plan: Plan) -> bool:
    """Stages 1 and 2 pay for overlap with a second bucket; the memory model counts as many."""
    if plan.pp > 1:  # forced off by the engine (deepspeed/runtime/pipe/engine.py)
        return False
    buckets = next(s for s in job.stacks if s.name == plan.stack).memory.overlap_buckets
    return plan.zero_stage == 3 or buckets > 1


def _gathers_on_save(job: Job) -> bool:
    sixteen_bit = 2 * float(total_parameters(job.architecture))
    return sixteen_bit <= GATHER_SHARE * job.cluster.node.host_memory


def _offload_optimizer(job: Job, plan: Plan) -> dict[str, Any]:
    section: dict[str, Any] = {"device": plan.offload_optimizer, "pin_memory": True}
    if plan.offload_optimizer == "nvme":
        return section | {
            "nvme_path": NVME_PATH,
            "buffer_count": SWAPPED_TENSORS,
            "pipeline_read": False,
            "pipeline_write": False,
            "fast_init": True,
        }
    if plan.zero_stage == 3:
        section["ratio"] = offload_ratio(job.architecture, plan)
    return section


def _offload_parameters(arch: Architecture, plan: Plan) -> dict[str, Any]:
    section: dict[str, Any] = {"device": plan.offload_parameters, "pin_memory": True}
    if plan.offload_parameters != "nvme":
        return section
    # every partition of a parameter must fit one buffer (deepspeed/runtime/swap_tensor)
    largest = max(int(embedding_parameters(arch).total), arch.hidden * arch.ffn)
    partition = math.ceil(largest / (plan.dp * plan.tp))
    return section | {
        "nvme_path": NVME_PATH,
        "buffer_count": PARAMETER_BUFFERS,
        "buffer_size": max(LEAST_PARAMETER_BUFFER, partition),
        "max_in_cpu": LEAST_PARAMETER_BUFFER,
    }


def offloaded_layers(plan: Plan) -> int:
    """Layers whose optimizer state is on the host."""
    return sum(stage.offloaded_layers for stage in plan.stages)


def _partly(arch: Architecture, plan: Plan) -> bool:
    return plan.offload_optimizer == "cpu" and 0 < offloaded_layers(plan) < arch.layers


def sub_group_size(arch: Architecture, plan: Plan, usual: int) -> int:
    """Elements of the optimizer's tile: part of a layer's shard where some layers are offloaded.

    Whole sub-groups move to the host, so the tile is what makes the ratio representable
    (DeepSpeed 0.19.8 deepspeed/runtime/zero/stage3.py, subgroup_to_device).
    """
    if not _partly(arch, plan):
        return usual
    shard = float(mean_layer_parameters(arch).total) / (plan.dp * plan.tp)
    return math.ceil(shard / GROUPS_PER_LAYER)


def offload_ratio(arch: Architecture, plan: Plan) -> float:
    """``offload_optimizer.ratio``: the GPU keeps at most the layers the plan leaves there.

    DeepSpeed keeps the first ``int((1 - ratio) * n)`` of n sub-groups on the GPU, in the order of
    the model: the embedding, then the layers. The ratio aims between two whole sub-groups, so
    that rounding does not tip it.
    """
    if not _partly(arch, plan):
        return 1.0
    ways = plan.dp * plan.tp
    layer = float(mean_layer_parameters(arch).total) / ways
    room = (arch.layers - offloaded_layers(plan)) * layer
    groups = sub_groups(tensors(arch), ways, sub_group_size(arch, plan, 0))
    kept, held = 0, 0
    for group in groups:
        held += group
        if held > room:
            break
        kept += 1
    return 1.0 if kept == 0 else round(1 - (kept + 0.5) / len(groups), 5)


def sub_groups(sizes: list[int], ways: int, tile: int) -> list[int]:
    """Elements of each sub-group: shards of whole tensors until ``tile`` is reached.

    DeepSpeed 0.19.8 deepspeed/runtime/zero/stage3.py, _create_fp16_sub_groups.

    >>> sub_groups([10, 4, 4, 4], 1, 6)
    [10, 8, 4]
    """
    groups, running = [], 0
    for size in sizes:
        running += math.ceil(size / ways)
        if running >= tile:
            groups.append(running)
            running = 0
    return [*groups, running] if running else groups


def tensors(arch: Architecture) -> list[int]:
    """Elements of the model's tensors in their order: table, layers, final norm, head.

    A layer is its attention, a third each of its gated feed-forward (experts are stacked alike),
    or half each of a plain one.
    """
    layer = int(mean_layer_parameters(arch).total)
    attention = int(attention_parameters(arch).total)
    parts = 3 if arch.gated_mlp else 2
    inner = [(layer - attention) // parts] * parts
    kv = arch.kv_heads / (2 * arch.heads + 2 * arch.kv_heads)
    outer = [int(attention * share) for share in (0.5 - kv, kv, kv)]
    one = [*outer, attention - sum(outer), *inner, layer - attention - sum(inner)]
    ends = [int(final_norm_parameters(arch).total), int(head_parameters(arch).total)]
    sizes = [int(embedding_parameters(arch).total), *(one * arch.layers), *ends]
    return [size for size in sizes if size]


def aio_section(plan: Plan) -> dict[str, Any] | None:
    """``aio``, needed only where something is on NVMe.

    The most parallel setting of DeepSpeed's own sweep that keeps its smallest blocks and queue
    (deepspeed/nvme/perf_run_sweep.py); ``ds_nvme_tune`` finds the best for a drive.
    """
    if not uses_nvme(plan):
        return None
    return {
        "block_size": 1_048_576,
        "queue_depth": 32,
        "intra_op_parallelism": 8,
        "single_submit": False,
        "overlap_events": True,
        "use_gds": False,
    }
