"""What a stage holds besides layers, and what happens once per step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costmodels.collectives import (
    all_gather_time,
    all_reduce_time,
    call_latency,
    gradient_latency,
    group_bandwidth,
    ring_share,
)
from costmodels.configuration import OFFLOAD_TIERS, Configuration
from costmodels.costs import Affine, Parts, total
from costmodels.gemm import linear_backward_time, linear_forward_time
from costmodels.held import Held, ends_held, layer_held, leading_held, summed_each, weights_sharded
from costmodels.memory_bound import embedding_bytes, loss_bytes
from costmodels.numeric import Array, Numeric
from costmodels.offload_time import late_round_trips, link_time, nvme_time, update_time
from costmodels.optimizer_time import newton_schulz_flops, step_bytes, stream_time
from costmodels.params import token_table
from costmodels.rates import Rates

HOST_BACKWARD = 1.2  # issuing a layer's backward / its forward (vTrain's runs of one sequence)
EMBEDDING_BYTES = 24.0  # gather, add and scatter of a hidden element, both passes
NVME = OFFLOAD_TIERS.index("nvme")
# Bytes moved for one logit, both passes: 32-bit copy, log-softmax and gradient in eager mode;
# in place where fused.
LOGIT_BYTES = {"eager": 24.0, "fused": 12.0, "chunked": 12.0}


def embedding(cfg: Configuration, rates: Rates) -> Parts:
    """Look-up and its gradient, with the tensor-parallel sum of the vocabulary's shards."""
    moved = embedding_bytes(EMBEDDING_BYTES, cfg.tokens, cfg.architecture.hidden)
    size = cfg.tokens * cfg.architecture.hidden * rates.element
    sp = np.asarray(cfg.sequence_parallel) > 0
    gathers = 2.0 * all_gather_time(rates.links, size, cfg.tp)
    summed = np.where(sp, gathers, all_reduce_time(rates.links, size, cfg.tp))
    return {
        "memory_bound": moved * (rates.element / 2.0) / rates.bandwidth,
        "tp": cfg.stack.time.tp_factor * summed,
    }


def head(cfg: Configuration, rates: Rates) -> Parts:
    """Logits and loss, forward and backward. A chunked loss forms its logits twice.

    Issuing them takes the host about as long as a layer's two passes (vTrain's runs with one
    sequence: 2.0 to 3.6 ms, a layer 3.0 to 5.0 ms).
    """
    arch, time, tp = cfg.architecture, cfg.stack.time, np.asarray(cfg.tp)
    if not time.head_split:
        tp = np.ones_like(tp)
    columns = np.ceil(arch.vocab / tp / 64.0) * 64.0  # stacks pad the vocabulary
    product = rates.product
    forward = linear_forward_time(product, cfg.tokens, columns, arch.hidden)
    backward = linear_backward_time(
        product, cfg.tokens, columns, arch.hidden, 1, rates.gradient_bytes
    )
    passes = 2.0 if cfg.cross_entropy == "chunked" else 1.0
    ways = 1 if time.logits_gathered else tp
    moved = loss_bytes(
        LOGIT_BYTES.get(cfg.cross_entropy, time.logit_bytes), cfg.tokens, arch.vocab, ways
    )
    size = cfg.tokens * arch.hidden * rates.element
    sp = np.asarray(cfg.sequence_parallel) > 0
    summed = np.where(
        sp,
        3.0 * all_gather_time(rates.links, size, tp),
        all_reduce_time(rates.links, size, tp),
    )
    if time.logits_gathered:
        logits = cfg.tokens * float(arch.vocab) * rates.element
        summed = summed + all_gather_time(rates.links, logits, tp)
    parts = {
        "gemm": (passes * forward + backward) / time.head_factor,
        "memory_bound": moved / rates.bandwidth,
        "tp": time.tp_factor * summed,
    }
    floor = time.host_layer * (1.0 + HOST_BACKWARD)
    return {**parts, "launch": np.maximum(floor - total(parts), 0.0)}


@dataclass(frozen=True, slots=True)
class Stages:
    """Parameters a rank of each stage holds: of a layer, and of everything else, (pp,)."""

    cfg: Configuration
    layer: Held
    rest: tuple[Held, ...]

    def owned(self, part: Held) -> Numeric:
        """Parameters whose optimizer state is this rank's. [-]"""
        return part.over(np.asarray(self.cfg.zero_stage) >= 1)


def stages_of(cfg: Configuration) -> Stages:
    """What the stages of a configuration hold."""
    first, last = cfg.stage == 0, cfg.stage == cfg.pp - 1
    ends = ends_held(cfg, first.astype(int), last.astype(int))
    return Stages(cfg, layer_held(cfg), (ends, leading_held(cfg, first.astype(int))))


def over_all(parts: tuple[Held, ...], time_of: Callable[[Held], Numeric]) -> Numeric:
    """A time summed over parts. [s]"""
    total: Numeric = np.asarray(0.0)
    for part in parts:
        total = total + time_of(part)
    return total


def data_parallel(stages: Stages, rates: Rates) -> tuple[Affine, Numeric]:
    """Gradients summed over the replicas, updated weights gathered; and its latency.

    ZeRO-0 all-reduces; ZeRO-1 and 2 scatter (or all-reduce) and gather 16-bit weights. ZeRO-2
    that reduces every micro-batch has only the gather left here; ZeRO-3, and FSDP that stores
    shards, have nothing; nor have layers whose gradients are summed as their backward makes them.
    """
    cfg, time = stages.cfg, stages.cfg.stack.time
    zero, g = np.asarray(cfg.zero_stage), rates.reduced_bytes
    sharded = weights_sharded(cfg)
    streamed = sharded | summed_each(cfg)
    scattered = g if time.reduce == "reduce_scatter" else 2.0 * g
    at_edge = np.where((zero == 2) & np.asarray(time.zero2_each_micro_batch), 0.0, scattered)
    per_parameter = np.where(zero == 0, 2.0 * g, at_edge + rates.weight_bytes)
    per_parameter = np.where(sharded, 0.0, per_parameter) * time.dp_exposed

    def wire(part: Held) -> Numeric:
        total: Numeric = 0.0
        for parameters, ranks, stride in (
            (part.dense, part.shards, np.asarray(cfg.tp)),
            (part.routed, part.routed_shards, np.asarray(cfg.tp) * cfg.ep),
        ):
            bandwidth = group_bandwidth(rates.links, ranks, stride)
            total = total + ring_share(ranks) * parameters * per_parameter / bandwidth
        return total

    ranks = stages.layer.shards
    rounds = time.reduce_calls * 2.0 + np.where(zero > 0, time.gather_calls, 0.0)
    calls = np.where(streamed, 0.0, call_latency(rates.links, rounds, ranks, cfg.tp))
    latency = gradient_latency(rates.links, ranks, cfg.tp)
    const = over_all(stages.rest, wire) + tied_table(cfg, rates)
    layer = np.where(streamed, 0.0, wire(stages.layer)) + calls
    return Affine(const, layer), np.where(streamed, 0.0, latency)


def tied_table(cfg: Configuration, rates: Rates) -> Numeric:
    """Summing the two copies of a tied token table, which the end stages of a pipeline hold."""
    arch = cfg.architecture
    if cfg.pp == 1 or not arch.tied_embeddings:
        return np.asarray(0.0)
    ends = (cfg.stage == 0) | (cfg.stage == cfg.pp - 1)
    apart = np.asarray(cfg.tp) * cfg.cp * cfg.dp * (cfg.pp - 1)
    size = token_table(arch) / np.asarray(cfg.tp, dtype=float) * rates.reduced_bytes
    time: Array = ends * size / group_bandwidth(rates.links, 2, apart)
    return time


def optimizer(stages: Stages, rates: Rates) -> Affine:
    """The step on the GPU of every parameter whose state is there."""
    cfg = stages.cfg
    bytes_ = step_bytes(cfg.optimizer, rates.gradient_bytes, rates.weight_bytes)
    if cfg.precision == "fp16":
        bytes_ += rates.gradient_bytes  # unscale and look for overflow

    def step(part: Held) -> Numeric:
        owned = stages.owned(part)
        time = stream_time(owned, bytes_, rates.bandwidth)
        if cfg.optimizer == "muon":
            work = newton_schulz_flops(float(cfg.architecture.hidden))
            time = time + owned * work / (rates.product.peak * rates.product.efficiency)
        return time

    on_host, layer = np.asarray(cfg.offload_optimizer) > 0, step(stages.layer)
    rest = np.where(on_host, 0.0, over_all(stages.rest, step))
    return Affine(rest, layer, np.where(on_host, -layer, 0.0))


def offload(stages: Stages, rates: Rates) -> Affine:
    """Gradients down, update on the CPU, weights up; states through NVMe at that tier.

    What accumulating gradients moves before that is part of the backward, except the one round
    trip of stages that reduce only at the end.
    """
    cfg, host, time = stages.cfg, rates.host, stages.cfg.stack.time
    tier = np.asarray(cfg.offload_optimizer)
    down = max(rates.gradient_bytes, 4.0)
    # FSDP fetches its weights from the host when it gathers them
    up = 0.0 if cfg.stack.memory.engine == "fsdp" else rates.weight_bytes
    late = late_round_trips(cfg.zero_stage, cfg.grad_accum) * rates.gradient_bytes
    late = late if time.host_gradients == "gpu_sum" else np.asarray(0.0)
    weight = np.where(np.asarray(cfg.offload_parameters) == NVME, rates.weight_bytes, 0.0)

    def step(part: Held) -> Numeric:
        owned = stages.owned(part)
        node = owned * rates.links.gpus_per_node
        drives = nvme_time(node, weight, host.nvme_read, host.nvme_write)
        return update_time(
            link_time((down + late) * owned, host.to_host),
            node * host.update_seconds * time.host_update,
            link_time((up + late) * owned, host.to_device),
            time.host_overlap,
        ) + np.where(tier == NVME, drives, 0.0)

    used = tier > 0
    rest = np.where(used, over_all(stages.rest, step), 0.0)
    return Affine(rest, 0.0, np.where(used, step(stages.layer), 0.0))
