"""What the formulas hand to the solver: costs that are affine in the decisions of a stage.

A stage i of a configuration holds ``n`` layers, of which ``k[g]`` are checkpointed at granularity
g (their sum is n) and ``o`` have their optimizer state on the host. Every time and every byte
count here is ``const + per_layer * n + sum_g per_granularity[g] * k[g] + per_offloaded * o``.
Arrays are scalars, (n_configurations, 1) or (n_configurations, pp).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from costmodels.numeric import Array, Numeric

# Checkpoint granularities, least intrusive first. ``every_k`` checkpoints segments of k layers.
GRANULARITIES = ("none", "selective", "full", "every_2", "every_4")
SEGMENT = {"none": 1, "selective": 1, "full": 1, "every_2": 2, "every_4": 4}
MEMORY_CLASSES = ("weights", "gradients", "optimizer", "activations", "buffers", "framework")


@dataclass(frozen=True, slots=True)
class Affine:
    """const + per_layer * n + per_offloaded * o."""

    const: Numeric = 0.0
    per_layer: Numeric = 0.0
    per_offloaded: Numeric = 0.0

    def at(self, layers: Numeric, offloaded: Numeric) -> Array:
        """The cost of stages with so many layers, of which so many offloaded.

        >>> float(Affine(1.0, 2.0, -1.0).at(3, 2))
        5.0
        """
        return np.asarray(
            self.const
            + np.asarray(self.per_layer) * layers
            + np.asarray(self.per_offloaded) * offloaded
        )

    def scaled(self, factor: Numeric) -> Affine:
        """The cost times a factor."""
        return Affine(self.const * factor, self.per_layer * factor, self.per_offloaded * factor)

    def plus(self, other: Affine) -> Affine:
        """Both costs together."""
        return Affine(
            self.const + other.const,
            self.per_layer + other.per_layer,
            self.per_offloaded + other.per_offloaded,
        )

    def raised(self, const: Numeric) -> Affine:
        """The cost and something more, whatever the stage holds."""
        return Affine(self.const + const, self.per_layer, self.per_offloaded)


Parts = Mapping[str, Numeric]  # a time split into named parts [s]


def total(parts: Parts) -> Numeric:
    """Sum of the parts. [s]"""
    result: Numeric = np.asarray(0.0)
    for value in parts.values():
        result = result + value
    return result


@dataclass(frozen=True, slots=True)
class TimeCosts:
    """Times of one configuration (or an array of them). [s]

    ``forward``, ``backward``: one layer, one micro-batch, nothing recomputed. ``recompute[g]``:
    what granularity g adds per layer and micro-batch. ``embedding``, ``head``: forward and
    backward together of what the first and last stage hold besides layers, per micro-batch.
    ``boundary``: one stage boundary, one micro-batch, one direction, not overlapped (x in
    ``pipeline_time``). ``edge``: once per step, after the pipeline; each part is the largest of
    its alternatives, the parts of a stage add up, the slowest stage counts. ``fixed``: once per
    step, whatever the stages hold.
    """

    forward: Parts
    backward: Parts
    recompute: Mapping[str, Parts]
    embedding: Parts
    head: Parts
    boundary: Numeric
    edge: Mapping[str, tuple[Affine, ...]]
    fixed: Parts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Phase:
    """Live bytes of one phase of the step, on one rank of each stage. [byte]

    ``classes``: the memory classes apart from per-granularity activations. ``kept[g]``: bytes
    each layer at granularity g keeps alive, all in-flight micro-batches together. ``working[g]``:
    held once while a layer at granularity g runs (the largest g present on the stage counts).
    ``cached``: dead blocks the caching allocator keeps for other phases and can release.
    """

    name: str
    classes: Mapping[str, Affine]
    kept: Mapping[str, Numeric] = field(default_factory=dict)
    working: Mapping[str, Numeric] = field(default_factory=dict)
    cached: Numeric = 0.0


@dataclass(frozen=True, slots=True)
class MemoryCosts:
    """Bytes on one GPU and on its share of the host.

    The peak of a stage is the largest phase total. Allocated = that peak. Reserved = allocated *
    ``allocator_factor``. Device (what nvidia-smi shows, what must fit) = reserved + ``fixed``.
    ``host[line]``: host bytes of one rank, for line in training, loading, saving.
    ``nvme``: bytes on the node's drives for one rank. ``step_apart``: where no tensor of the
    optimizer step fits into a block that was freed before it, what the step itself frees and
    cannot use again. ``varied_factor``: activations of batches of
    many lengths take this times the longest one's (both, and a phase's cached blocks, widen what
    the allocator holds where the GPU has room, not what must fit).
    """

    phases: tuple[Phase, ...]
    allocator_factor: float
    fixed: Numeric
    host: Mapping[str, Affine]
    nvme: Affine = field(default_factory=Affine)
    step_apart: Affine | None = None
    varied_factor: float = 1.0
