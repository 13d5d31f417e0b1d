"""How the memory terms of a stage combine: phases, the peak, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costmodels.costs import MEMORY_CLASSES, MemoryCosts, Phase
from costmodels.numeric import Array, Numeric

Counts = Mapping[str, Numeric]  # layers at each granularity, shape (..., pp)


@dataclass(frozen=True, slots=True)
class Peak:
    """Peak bytes of every stage; arrays broadcast to the stages. [byte]

    ``phases``: allocated bytes by phase name. ``classes``: the allocated bytes of the peak phase
    by class. ``allocated <= reserved <= device``; device is what must fit on the GPU. ``pool``:
    what the caching allocator comes to hold, ``fixed`` apart, where the GPU has room for it; before
    it runs out it returns cached blocks, so that ``reserved`` is enough.
    """

    phases: Mapping[str, Array]
    classes: Mapping[str, Array]
    allocated: Array
    reserved: Array
    device: Array
    pool: Array


def phase_classes(
    phase: Phase, layers: Numeric, granularity: Counts, offloaded: Numeric
) -> dict[str, Array]:
    """Allocated bytes of one phase by memory class. [byte]"""
    out = {name: cost.at(layers, offloaded) for name, cost in phase.classes.items()}
    kept = [np.asarray(phase.kept.get(g, 0.0)) * count for g, count in granularity.items()]
    working = [
        np.where(np.asarray(count) > 0, phase.working.get(g, 0.0), 0.0)
        for g, count in granularity.items()
    ]
    activations = sum(kept, start=np.zeros(()))
    if working:
        activations = activations + np.max(np.stack(np.broadcast_arrays(*working)), axis=0)
    out["activations"] = out.get("activations", np.zeros(())) + activations
    return out


def peak(costs: MemoryCosts, layers: Numeric, granularity: Counts, offloaded: Numeric = 0) -> Peak:
    """Peak memory of every stage.

    Parameters
    ----------
    costs : MemoryCosts
        Of one configuration or an array of them.
    layers, offloaded : Numeric
        Layers of each stage, and those with optimizer state on the host. [-]
    granularity : Mapping[str, Numeric]
        Layers of each stage at each checkpoint granularity; they sum to ``layers``. [-]

    Returns
    -------
    Peak
    """
    tables = {p.name: phase_classes(p, layers, granularity, offloaded) for p in costs.phases}
    totals = {
        name: np.asarray(sum(classes.values(), start=np.zeros(())))
        for name, classes in tables.items()
    }
    stacked = np.stack(np.broadcast_arrays(*totals.values()))
    worst = np.argmax(stacked, axis=0)
    classes = {}
    for name in MEMORY_CLASSES:
        rows = [
            np.broadcast_to(table.get(name, np.zeros(())), stacked.shape[1:])
            for table in tables.values()
        ]
        classes[name] = np.take_along_axis(np.stack(rows), worst[None], axis=0)[0]
    allocated = np.max(stacked, axis=0)
    reserved = allocated * costs.allocator_factor
    pool = np.maximum(reserved, _with_cached(costs, totals))
    if costs.step_apart is not None or costs.varied_factor > 1:
        apart = costs.step_apart
        step = None if apart is None else apart.at(layers, offloaded)
        pool = np.maximum(pool, _pool(costs, tables, totals, step) * costs.allocator_factor)
    return Peak(
        phases={n: np.broadcast_to(t, allocated.shape) for n, t in totals.items()},
        classes=classes,
        allocated=allocated,
        reserved=reserved,
        device=reserved + costs.fixed,
        pool=pool,
    )


def _with_cached(costs: MemoryCosts, totals: Mapping[str, Array]) -> Array:
    """The largest phase with the blocks that are kept for others meanwhile. [byte]"""
    held = [totals[p.name] * costs.allocator_factor + np.asarray(p.cached) for p in costs.phases]
    return np.asarray(np.max(np.stack(np.broadcast_arrays(*held)), axis=0))


def _pool(
    costs: MemoryCosts,
    tables: Mapping[str, Mapping[str, Array]],
    totals: Mapping[str, Array],
    step: Array | None,
) -> Array:
    """Bytes of all blocks the caching allocator gets, returning none. [byte]

    A request takes a cached block that is large enough, or a new one (PyTorch,
    c10/cuda/CUDACachingAllocator.cpp). Flat tensors of an optimizer step (``step``: what it frees
    of its own) find none among the blocks of activations and buffers. Activations of a longer
    batch find none among those of shorter ones, whose blocks smaller tensors split
    (``varied_factor``).
    """
    zero = np.zeros(())
    activations = {n: np.asarray(t.get("activations", zero)) for n, t in tables.items()}
    before = [name for name in tables if name != "optimizer"]
    held = [totals[n] + (costs.varied_factor - 1) * activations[n] for n in before]
    if step is not None:
        moving = [activations[n] + tables[n].get("buffers", zero) for n in before]
        most = np.max(np.stack(np.broadcast_arrays(*moving)), axis=0)
        held.append(totals["optimizer"] + most + step)
    return np.asarray(np.max(np.stack(np.broadcast_arrays(*held)), axis=0))
