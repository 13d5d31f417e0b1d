"""What a batch of integer programs must satisfy before anything is computed from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from planner.solver.program import Batch

EXACT = 2.0**53  # integers below it are exact in floating point
LARGEST = 2.0**62  # what an objective must stay below: half of int64's range, for the sums
LAYERS_RULES = ("free", "edges", "uniform")
RECOMPUTE_RULES = ("free", "same", "block", "all")
OFFLOAD_RULES = ("free", "all")
AXES = {
    **dict.fromkeys(("time_const", "time_layer", "capacity"), "np"),
    **dict.fromkeys(("host_const", "host_layer", "host_offloaded"), "np"),
    "time_granularity": "npG",
    **dict.fromkeys(("edge_const", "edge_layer", "edge_offloaded"), "npA"),
    **dict.fromkeys(("memory_const", "memory_layer", "memory_offloaded"), "npR"),
    **dict.fromkeys(("memory_granularity", "memory_working"), "npRG"),
    **dict.fromkeys(("host_stages_per_node", "host_ranks", "chunk"), "n"),
    **dict.fromkeys(("max_offloaded", "min_offloaded"), "n"),
    **dict.fromkeys(("weight_bottleneck", "weight_sum", "weight_edge", "fixed"), "n"),
    **dict.fromkeys(("granularity_allowed", "granularity_min", "granularity_max"), "nG"),
    "rank": "nK",
}


def check_shapes(batch: Batch) -> None:
    """Raise ValueError if an array has the wrong shape or kind."""
    sizes = {
        "n": len(batch.chunk),
        "p": batch.stages,
        "G": len(batch.granularities),
        "A": batch.edge_const.shape[-1],
        "R": batch.memory_const.shape[-1],
        "K": batch.rank.shape[-1],
    }
    if len(batch.segments) != sizes["G"]:
        raise ValueError(f"segments has {len(batch.segments)} entries, granularities {sizes['G']}")
    for name, axes in AXES.items():
        value = getattr(batch, name)
        if value is None:
            continue
        expected = tuple(sizes[axis] for axis in axes)
        kind = np.bool_ if name == "granularity_allowed" else np.int64
        if value.shape != expected or value.dtype != kind:
            wanted = f"{np.dtype(kind)}{expected}"
            raise ValueError(f"{name} is {value.dtype}{value.shape}: expected {wanted}")


def check_values(batch: Batch) -> None:
    """Raise ValueError if a rule is unknown, a value has the wrong sign or sums could overflow."""
    for name, known in (
        ("layers_rule", LAYERS_RULES),
        ("recompute_rule", RECOMPUTE_RULES),
        ("offload_rule", OFFLOAD_RULES),
    ):
        if getattr(batch, name) not in known:
            raise ValueError(f"{name} is {getattr(batch, name)!r}: expected one of {known}")
    if "none" not in batch.granularities:
        raise ValueError(f"granularities are {batch.granularities}: 'none' must be one of them")
    weights = (batch.weight_bottleneck, batch.weight_sum, batch.weight_edge)
    if any((weight < 0).any() for weight in weights):
        raise ValueError("weights of the objective must not be negative")
    if (batch.memory_working < 0).any():
        raise ValueError("memory_working must not be negative")
    for name in ("time", "memory"):
        if len(batch) and float(_largest(batch, name)) >= EXACT:
            raise ValueError(f"a stage's {name} could reach 2^53: use a coarser unit")
    if len(batch) and float(_largest_objective(batch).max()) >= LARGEST:
        raise ValueError("an objective could reach 2^62: use a coarser unit of time")


def _largest(batch: Batch, name: str) -> float:
    """An upper bound of |stage time| or |stage memory|, in floating point."""
    per_granularity = np.abs(getattr(batch, f"{name}_granularity").astype(float))
    per_layer = np.abs(getattr(batch, f"{name}_layer").astype(float))
    largest = np.abs(getattr(batch, f"{name}_const").astype(float)).max(initial=0.0)
    largest += batch.layers * per_layer.max(initial=0.0)
    largest += batch.layers * per_granularity.max(initial=0.0)
    if name == "memory":
        largest += batch.layers * float(np.abs(batch.memory_offloaded).max(initial=0))
        largest += float(np.abs(batch.memory_working).max(initial=0))
        largest = max(largest, float(np.abs(batch.capacity).max(initial=0)))
    return float(largest)


def _largest_objective(batch: Batch) -> NDArray[np.float64]:
    """An upper bound of |objective|, shape (n,), in floating point."""
    count = float(batch.layers)
    stage = np.abs(batch.time_const.astype(float)) + count * (
        np.abs(batch.time_layer.astype(float))
        + np.abs(batch.time_granularity.astype(float)).max(axis=-1)
    )
    edge = np.abs(batch.edge_const.astype(float)) + count * (
        np.abs(batch.edge_layer.astype(float)) + np.abs(batch.edge_offloaded.astype(float))
    )
    total: NDArray[np.float64] = (
        batch.weight_bottleneck * stage.max(axis=1)
        + batch.weight_sum * stage.sum(axis=1)
        + batch.weight_edge * edge.max(axis=(1, 2), initial=0.0)
        + np.abs(batch.fixed.astype(float))
    )
    return total
