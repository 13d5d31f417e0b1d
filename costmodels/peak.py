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
    by class. ``allocated <= reserved <= device``; device is what must fit on the GPU.
    """

    phases: Mapping[str, Array]
    classes: Mapping[str, Array]
    allocated: Array
    reserved: Array
    device: Array


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
    return Peak(
        phases={n: np.broadcast_to(t, allocated.shape) for n, t in totals.items()},
        classes=classes,
        allocated=allocated,
        reserved=reserved,
        device=reserved + costs.fixed,
    )
