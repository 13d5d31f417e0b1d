"""Batches with the magnitudes of large language models, for effort rather than truth.

Costs are simple closed forms (FLOPs over speed, bytes over bandwidth), times in nanoseconds and
memory in KiB, as the planner's own tables are.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from planner.solver.program import Batch

GRANULARITIES = ("none", "selective", "full", "every_2", "every_4")
SEGMENTS = (1, 1, 1, 2, 4)
KEPT = (1.0, 0.6, 0.06, 0.03, 0.015)  # share of a layer's activations
RECOMPUTED = (0.0, 0.04, 0.33, 0.335, 0.337)  # share of a layer's forward and backward


@dataclass(frozen=True)
class Setting:
    """A model of ``layers`` layers and a cluster of ``gpus``."""

    gpus: int
    layers: int
    hidden: int
    memory: float = 74e9  # [byte] usable
    host: float = 1.5e12  # [byte] per node of 8
    global_batch: int = 1024
    seq: int = 4096
    granularities: int = 3
    vocabulary: int = 128_000
    layers_rule: str = "free"
    recompute_rule: str = "free"
    offload_rule: str = "free"
    zero: tuple[int, ...] = (0, 1, 2, 3)
    offloads: tuple[int, ...] = (0, 1)
    cps: tuple[int, ...] = (1, 2, 4)


def batches(setting: Setting) -> list[Batch]:
    """One batch for each number of pipeline stages."""
    result = []
    pp = 1
    while pp <= min(setting.gpus, setting.layers, 64):
        axes = itertools.product(
            (1, 2, 4, 8),
            setting.cps,
            (1, 2, 4, 8),
            (1, 2, 4),
            setting.zero,
            setting.offloads,
            (0, 1),
        )
        rows = np.array([row for row in axes if _valid(setting, pp, *row)]).T
        if rows.size:
            result.append(_batch(setting, pp, *rows))
        pp *= 2
    return result


def _valid(
    s: Setting, pp: int, tp: int, cp: int, mb: int, v: int, zero: int, off: int, sp: int
) -> bool:
    dp, rest = divmod(s.gpus, tp * cp * pp)
    if rest or dp < 1 or s.global_batch % (dp * mb) or (pp == 1 and v > 1) or (sp and tp == 1):
        return False
    m = s.global_batch // (dp * mb)
    return (
        not (v > 1 and (m % pp or s.layers % v or v * pp > s.layers))
        and not (zero >= 2 and pp > 1)
        and not (zero and dp * cp == 1)
    )


def _batch(s: Setting, pp: int, *axes: np.ndarray) -> Batch:
    tp, cp, mb, v, zero, off, sp = (a[:, None].astype(float) for a in axes)
    n, stage = len(tp), np.arange(pp)[None, :]
    dp = s.gpus / (tp * cp * pp)
    m = s.global_batch / (dp * mb)
    tokens = mb * s.seq / cp
    width, kinds = s.hidden, s.granularities
    weights = 12.0 * width * width
    flops = 6 * weights * tokens / tp * (1 + s.seq / (6 * width))
    layer = flops / (
        400e12 * (1 - 0.03 * np.log2(tp)) * np.minimum(1, 0.6 + tokens * width / tp / 1e8)
    )
    layer += 8 * tokens * width * 2 * (tp - 1) / tp / 300e9 * (1 - 0.2 * sp)
    layer += (cp > 1) * 4 * tokens * width * 2 / 100e9
    layer += (zero == 3) * 3 * weights / tp * 2 / 40e9
    embedding = 6 * s.vocabulary * width * tokens / tp / 400e12
    const = (stage == pp - 1) * embedding + (stage == 0) * embedding * 0.05
    const = const + (pp > 1) * tokens * width * 2 * v / 40e9
    states = weights / tp
    shard = dp * cp
    weight = np.where(zero == 3, 2 / shard, 2.0) + np.where(zero >= 2, 4 / shard, 4.0)
    optimizer = np.where(zero >= 1, 12 / shard, 12.0)
    vocabulary = s.vocabulary * width / tp * ((stage == 0) | (stage == pp - 1))
    flight = np.minimum(m, pp - stage) if pp > 1 else np.ones((n, 1))
    flight = np.where(v > 1, np.minimum(m * v, (pp - stage - 1) * 2 + (v - 1) * pp + 1) / v, flight)
    kept = 34 * tokens * width / np.where(sp > 0, tp, np.minimum(tp, 1 / (0.3 + 0.7 / tp)))
    share, again = np.array(KEPT[:kinds]), np.array(RECOMPUTED[:kinds])
    working = kept[:, :, None] * np.array((0, 0.4, 1.0, 2.0, 4.0))[:kinds] * np.ones((1, pp, 1))
    logits = 8 * tokens * s.vocabulary / tp * (stage == pp - 1)

    def time(value: np.ndarray) -> np.ndarray:
        return np.rint(np.broadcast_to(value, (n, pp, *value.shape[2:])) * 1e9).astype(np.int64)

    def size(value: np.ndarray) -> np.ndarray:
        return np.ceil(np.broadcast_to(value, (n, pp, *value.shape[2:])) / 1024).astype(np.int64)

    two = np.ones((1, 1, 2))
    steady = np.array([1.0, 0.0])
    reduce = (dp * cp > 1) * 2 * 2 * states / 40e9
    edge_layer = np.stack([reduce + optimizer * states / 2e12, 0 * reduce], axis=2)
    edge_off = np.stack([-optimizer * states / 2e12, optimizer * states / 6e9], axis=2)
    column = {
        "bottleneck": m - 1 / v,
        "sum": np.ones_like(m) / v,
    }
    scale = v  # everything times v keeps the weights whole
    return Batch(
        layers=s.layers,
        stages=pp,
        granularities=GRANULARITIES[:kinds],
        segments=SEGMENTS[:kinds],
        chunk=v[:, 0].astype(np.int64),
        time_const=time(const),
        time_layer=time(layer),
        time_granularity=time(layer[:, :, None] * again),
        edge_const=np.zeros((n, pp, 2), dtype=np.int64),
        edge_layer=time(edge_layer * np.ones((1, pp, 1))),
        edge_offloaded=time(edge_off * np.ones((1, pp, 1))),
        memory_const=size(
            ((weight + optimizer) * vocabulary)[:, :, None] * two + logits[:, :, None] * steady
        ),
        memory_layer=size((weight + optimizer)[:, :, None] * states[:, :, None] * two),
        memory_offloaded=-size((optimizer * states)[:, :, None] * two) + 1,
        memory_granularity=size((flight * kept)[:, :, None, None] * steady[:, None] * share),
        memory_working=size(working[:, :, None, :] * steady[:, None]),
        capacity=np.full((n, pp), int(s.memory / 1024)),
        host_const=np.zeros((n, pp), dtype=np.int64),
        host_layer=np.zeros((n, pp), dtype=np.int64),
        host_offloaded=size(optimizer * states),
        host_stages_per_node=np.clip(8 // np.maximum(tp * dp * cp, 1), 1, pp)[:, 0].astype(
            np.int64
        ),
        host_ranks=np.clip(tp * dp * cp, 1, 8)[:, 0].astype(np.int64),
        host_capacity=int(s.host / 1024),
        weight_bottleneck=np.rint(column["bottleneck"] * scale)[:, 0].astype(np.int64),
        weight_sum=np.rint(column["sum"] * scale)[:, 0].astype(np.int64),
        weight_edge=scale[:, 0].astype(np.int64),
        fixed=np.zeros(n, dtype=np.int64),
        granularity_allowed=np.ones((n, kinds), dtype=bool),
        max_offloaded=np.where(off[:, 0] > 0, s.layers, 0).astype(np.int64),
        rank=np.stack([off[:, 0], cp[:, 0], np.full(n, pp), zero[:, 0], tp[:, 0]], axis=1).astype(
            np.int64
        ),
        layers_rule=s.layers_rule,
        recompute_rule=s.recompute_rule,
        offload_rule=s.offload_rule,
    )
