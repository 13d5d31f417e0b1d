"""Random small instances, and every feasible decision of one, enumerated.

The judge of the solver: written from the mathematics, it shares no code with what it judges.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from planner.solver.program import Batch, Decision

NAMES = ("none", "selective", "full", "every_2")
LEAST_SEGMENT = {"none": 1, "selective": 1, "full": 1, "every_2": 2}


def random_batch(rng: np.random.Generator, size: int = 1, **fixed: object) -> Batch:
    """A batch of random small shapes; keyword arguments replace what would be drawn."""
    stages = int(fixed.get("stages", rng.integers(1, 4)))
    layers = int(fixed.get("layers", rng.integers(stages, 9)))
    names = tuple(NAMES[: rng.integers(1, 4)])
    if rng.random() < 0.25:
        names = ("none", "full", "every_2") if rng.random() < 0.5 else ("none", "every_2")
    kinds, edges, rows = len(names), int(rng.integers(0, 3)), int(rng.integers(1, 3))

    def ints(low: int, high: int, *shape: int) -> np.ndarray:
        return rng.integers(low, high, size=(size, *shape))

    offload = rng.random() < 0.5
    frugal = np.sort(ints(0, 12, stages, rows, kinds), axis=3)[..., ::-1].copy()
    dearer = np.sort(ints(0, 30, stages, kinds), axis=2)
    dearer[..., 0] = 0
    memory_layer = ints(1, 10, stages, rows)
    off = -ints(0, 6, stages, rows)
    if rng.random() < 0.1:
        off = ints(-4, 3, stages, rows)
    typical = int((memory_layer.mean() + frugal.mean()) * layers / stages) + 15
    values: dict[str, object] = {
        "layers": layers,
        "stages": stages,
        "granularities": names,
        "segments": tuple(LEAST_SEGMENT[name] for name in names),
        "chunk": ints(1, 3) if rng.random() < 0.3 else np.ones(size, dtype=np.int64),
        "time_const": ints(0, 60, stages),
        "time_layer": ints(20, 60, stages)
        if rng.random() < 0.3
        else ints(20, 60, 1).repeat(stages, 1),
        "time_granularity": dearer,
        "edge_const": ints(0, 80, stages, edges),
        "edge_layer": ints(0, 20, stages, edges),
        "edge_offloaded": ints(-10, 40, stages, edges),
        "memory_const": ints(0, 20, stages, rows),
        "memory_layer": memory_layer,
        "memory_offloaded": off,
        "memory_granularity": frugal,
        "memory_working": ints(0, 10, stages, rows, kinds) * (rng.random() < 0.6),
        "capacity": ints(int(0.8 * typical), 2 * typical, stages),
        "host_const": ints(0, 5, stages),
        "host_layer": ints(0, 3, stages),
        "host_offloaded": ints(0, 6, stages),
        "host_stages_per_node": ints(1, 4),
        "host_ranks": ints(1, 3),
        "host_capacity": int(rng.integers(20, 80)) if rng.random() < 0.5 else 10**6,
        "weight_bottleneck": ints(0, 40),
        "weight_sum": ints(0, 4),
        "weight_edge": ints(0, 6),
        "fixed": ints(0, 1000),
        "granularity_allowed": rng.random((size, kinds)) < 0.92,
        "max_offloaded": np.full(size, layers if offload else 0),
        "rank": ints(0, 2, 2),
        "layers_rule": str(rng.choice(["free", "free", "edges", "uniform"])),
        "recompute_rule": str(rng.choice(["free", "free", "same", "block", "all"])),
        "offload_rule": str(rng.choice(["free", "free", "all"])),
    }
    if rng.random() < 0.2:
        values["granularity_min"] = ints(0, 2, kinds)
        values["granularity_max"] = ints(layers // 2, layers + 1, kinds)
    if offload and rng.random() < 0.3:
        values["min_offloaded"] = ints(0, 3)
    return Batch(**{**values, **{k: v for k, v in fixed.items() if k in Batch.__slots__}})


def _compositions(total: int, segments: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    ranges = (range(0, total + 1, segment) for segment in segments)
    return (k for k in itertools.product(*ranges) if sum(k) == total)


def _stage_choices(batch: Batch, s: int, i: int) -> Iterator[tuple[int, tuple[int, ...], int]]:
    """(n, k, o) of stage i that are allowed and fit its memory."""
    chunk = int(batch.chunk[s])
    for n in range(chunk, batch.layers + 1, chunk):
        for k in _compositions(n, batch.segments):
            if any(c and not ok for c, ok in zip(k, batch.granularity_allowed[s], strict=True)):
                continue
            for o in range(min(n, int(batch.max_offloaded[s])) + 1):
                if batch.offload_rule == "all" and o not in (0, n):
                    continue
                if all(
                    int(batch.memory_const[s, i, r])
                    + int(batch.memory_layer[s, i, r]) * n
                    + int(batch.memory_offloaded[s, i, r]) * o
                    + sum(
                        int(c) * w
                        for c, w in zip(batch.memory_granularity[s, i, r], k, strict=True)
                    )
                    + max(
                        int(w) for w, c in zip(batch.memory_working[s, i, r], k, strict=True) if c
                    )
                    <= batch.capacity[s, i]
                    for r in range(batch.memory_const.shape[2])
                ):
                    yield n, k, o


def _same(batch: Batch, s: int, picks: tuple[tuple[int, tuple[int, ...], int], ...]) -> bool:
    """The rules and sums that tie stages together, host memory aside."""
    layers = [n for n, _, _ in picks]
    if batch.layers_rule == "edges" and len(set(layers[1:-1])) > 1:
        return False
    uneven = max(layers) - min(layers) > batch.chunk[s] or layers != sorted(layers, reverse=True)
    if batch.layers_rule == "uniform" and uneven:
        return False
    if sum(o for _, _, o in picks) < (0 if batch.min_offloaded is None else batch.min_offloaded[s]):
        return False
    if batch.offload_rule == "all" and len({o > 0 for _, _, o in picks}) > 1:
        return False
    if not _recompute_rule(batch, picks):
        return False
    totals = [sum(k[g] for _, k, _ in picks) for g in range(len(batch.granularities))]
    low = batch.granularity_min[s] if batch.granularity_min is not None else [0] * len(totals)
    high = batch.granularity_max[s] if batch.granularity_max is not None else [10**9] * len(totals)
    return all(a <= t <= b for a, t, b in zip(low, totals, high, strict=True))


def _recompute_rule(batch: Batch, picks: tuple[tuple[int, tuple[int, ...], int], ...]) -> bool:
    counts = [dict(zip(batch.granularities, k, strict=True)) for _, k, _ in picks]
    used = {name for k in counts for name, count in k.items() if count}
    extra = used - {"none"}
    whole = len(used) == 1
    alike = len(extra) <= 1 and all(len({k[name] for k in counts}) == 1 for name in extra)
    return {
        "free": True,
        "all": whole,
        "same": alike,
        "block": whole or (alike and extra <= {"full"}),
    }[batch.recompute_rule]


def _host(batch: Batch, s: int, picks: tuple[tuple[int, tuple[int, ...], int], ...]) -> bool:
    step = int(batch.host_stages_per_node[s])
    for start in range(0, batch.stages, step):
        size = 0
        for i in range(start, min(start + step, batch.stages)):
            n, _, o = picks[i]
            size += int(batch.host_const[s, i]) + int(batch.host_layer[s, i]) * n
            size += int(batch.host_offloaded[s, i]) * o
        if size * int(batch.host_ranks[s]) > batch.host_capacity:
            return False
    return True


def objective(batch: Batch, s: int, picks: tuple[tuple[int, tuple[int, ...], int], ...]) -> int:
    """The objective, in Python integers."""
    times, edges = [], []
    for i, (n, k, o) in enumerate(picks):
        extra = sum(int(c) * w for c, w in zip(batch.time_granularity[s, i], k, strict=True))
        times.append(int(batch.time_const[s, i]) + int(batch.time_layer[s, i]) * n + extra)
        for a in range(batch.edge_const.shape[2]):
            edges.append(
                int(batch.edge_const[s, i, a])
                + int(batch.edge_layer[s, i, a]) * n
                + int(batch.edge_offloaded[s, i, a]) * o
            )
    return (
        int(batch.weight_bottleneck[s]) * max(times)
        + int(batch.weight_sum[s]) * sum(times)
        + int(batch.weight_edge[s]) * max(edges, default=0)
        + int(batch.fixed[s])
    )


def feasible_decisions(batch: Batch, s: int) -> list[tuple[int, Decision]]:
    """Every feasible decision of shape s with its objective."""
    by_layers: list[dict[int, list[tuple[int, tuple[int, ...], int]]]] = []
    for i in range(batch.stages):
        groups: dict[int, list[tuple[int, tuple[int, ...], int]]] = {}
        for choice in _stage_choices(batch, s, i):
            groups.setdefault(choice[0], []).append(choice)
        by_layers.append(groups)
    found = []
    for layers in itertools.product(*by_layers):
        if sum(layers) != batch.layers:
            continue
        for picks in itertools.product(*(g[n] for g, n in zip(by_layers, layers, strict=True))):
            if _same(batch, s, picks) and _host(batch, s, picks):
                n, k, o = zip(*picks, strict=True)
                found.append((objective(batch, s, picks), Decision(n, k, o)))
    return found
