"""Device and host memory of a configuration, as the solver reads it.

The phases of a step, in order: ``forward`` (its end), ``loss`` (its differentiation, on the last
stage), ``backward`` (of the first layer to run it, when most activations are alive), ``last layer``
(of the last one, when all gradients exist), ``embedding`` (of the first stage), ``optimizer``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodels.buffers import Buffers, buffers, casts, fixed_bytes, head_cast, recomputed_casts
from costmodels.configuration import Configuration
from costmodels.costs import Affine, MemoryCosts, Phase
from costmodels.head_memory import (
    first_stage_saved,
    last_stage_saved,
    loss_bytes,
    shared_tables,
    table_bytes,
    uncast_output,
)
from costmodels.host import host_costs, nvme_costs
from costmodels.inflight import in_flight
from costmodels.numeric import Numeric
from costmodels.recompute_memory import checkpoint, kept, working
from costmodels.states import States, states


def memory_costs(configuration: Configuration) -> MemoryCosts:
    """Bytes of every phase of the step on every stage, and on the host.

    Parameters
    ----------
    configuration : Configuration
        One configuration, or arrays of them of shape (n, 1).

    Returns
    -------
    MemoryCosts
        Affine in the decisions of a stage; arrays broadcast to (n, pp).

    Raises
    ------
    ValueError
        If the stack does not have the optimizer or cross-entropy asked for.
    """
    c = configuration
    return MemoryCosts(
        phases=phases(c),
        allocator_factor=c.stack.memory.allocator_factor,
        fixed=fixed_bytes(c),
        host=host_costs(c),
        nvme=nvme_costs(c),
    )


def phases(c: Configuration) -> tuple[Phase, ...]:
    """The phases of one step."""
    held, buffer, flight = states(c), buffers(c), flight_of(c)
    return (
        _forward(c, held, buffer, flight),
        _loss(c, held, buffer, flight),
        _backward(c, held, buffer, flight),
        _last_layer(c, held, buffer),
        _embedding(c, held, buffer),
        _optimizer(c, held, buffer),
    )


def flight_of(c: Configuration) -> Numeric:
    """Micro-batches in flight on every stage. [-]"""
    least = c.stack.memory.least_in_flight
    return in_flight(c.stage, c.pp, c.grad_accum, c.virtual_stages, least)


def ends_activations(c: Configuration, flight: Numeric, head: Numeric) -> Numeric:
    """Kept outside the layers on every stage, all micro-batches in flight together. [byte]

    ``head`` is 1 where the head's own tensors are still alive.
    """
    first, last = (c.stage == 0) * 1, (c.stage == c.pp - 1) * 1
    size = flight * first * first_stage_saved(c) + head * last_stage_saved(c) + shared_tables(c)
    if c.pp > 1:
        profile = c.stack.memory
        tensors = profile.stage_outputs * (1 - last) + profile.stage_inputs * (1 - first)
        size = size + tensors * flight * checkpoint(c)
    return size


def scaled(affine: Affine, factor: Numeric) -> Affine:
    """Every coefficient times ``factor``."""
    return Affine(affine.const * factor, affine.per_layer * factor, affine.per_offloaded * factor)


def _kept(c: Configuration, flight: Numeric, cast: Numeric) -> dict[str, Numeric]:
    return {g: size * flight + (cast if g == "none" else 0.0) for g, size in kept(c).items()}


def _classes(
    held: States, gradients: Affine, activations: Numeric, buffer: Affine, extra: float
) -> Mapping[str, Affine]:
    return {
        "weights": held.weights,
        "gradients": gradients,
        "optimizer": held.optimizer,
        "activations": Affine(activations),
        "buffers": Affine(buffer.const + extra, buffer.per_layer, buffer.per_offloaded),
    }


def _forward(c: Configuration, held: States, buffer: Buffers, flight: Numeric) -> Phase:
    """The end of the forward: activations of all layers, and the loss on the last stage."""
    last = (c.stage == c.pp - 1) * 1
    activations = ends_activations(c, flight, last) + last * loss_bytes(c, "forward")
    activations = activations + last * uncast_output(c)
    cast = casts(c)
    kept_layers = {g: size * flight + cast for g, size in kept(c).items()}
    side = Affine(buffer.forward + head_cast(c, last), buffer.layer)
    classes = _classes(
        held, scaled(held.gradients, held.alive), activations, side, c.stack.memory.unexplained
    )
    return Phase("forward", classes, kept_layers)


def _loss(c: Configuration, held: States, buffer: Buffers, flight: Numeric) -> Phase:
    """The loss is differentiated: logits, their copies and their gradients."""
    last = (c.stage == c.pp - 1) * 1
    activations = ends_activations(c, flight, last) + last * loss_bytes(c, "backward")
    side = Affine(buffer.loss + head_cast(c, last), buffer.layer)
    classes = _classes(
        held, scaled(held.gradients, held.alive), activations, side, c.stack.memory.unexplained
    )
    return Phase("loss", classes, _kept(c, flight, casts(c)))


def _backward(c: Configuration, held: States, buffer: Buffers, flight: Numeric) -> Phase:
    """The stage's last layer runs backward; of the gradients the head has its own."""
    last = (c.stage == c.pp - 1) * 1
    activations = ends_activations(c, flight, 0 * last) + last * loss_bytes(c, "rest")
    gradients = scaled(held.gradients, held.alive)
    young = np.where(held.alive > 0, 0.0, held.head_gradient)
    gradients = Affine(gradients.const + young, gradients.per_layer, gradients.per_offloaded)
    side = Affine(buffer.backward, buffer.layer)
    layers, cast = _kept(c, flight, casts(c)), recomputed_casts(c)
    sizes = {
        # the reduction of the layer before exists from the second layer on, when the first one's
        # tensors are gone
        g: size + np.maximum(0.0, buffer.reduction - layers[g]) + (cast if g != "none" else 0.0)
        for g, size in working(c, held.alive > 0).items()
    }
    return Phase(
        "backward",
        _classes(held, gradients, activations, side, c.stack.memory.unexplained),
        layers,
        sizes,
    )


def _last_layer(c: Configuration, held: States, buffer: Buffers) -> Phase:
    """The stage's first layer runs backward: activations are gone, all other gradients made.

    Or the one before it, with one layer's gradients less, but its input and a gather more.
    """
    own, first = kept(c), (c.stage == 0) * 1
    fixed = buffer.reduction + recomputed_casts(c) + buffer.gathered_layer
    sizes = {
        g: size + own[g] + fixed + np.maximum(0.0, buffer.prefetch + own[g] - held.layer_gradient)
        for g, size in working(c, held.alive > 0).items()
    }
    activations = shared_tables(c) + first * first_stage_saved(c)
    missing = np.where(held.alive > 0, 0.0, held.layer_gradient + held.embedding_gradient)
    gradients = Affine(
        held.gradients.const - missing, held.gradients.per_layer, held.gradients.per_offloaded
    )
    side = Affine(buffer.backward - buffer.prefetch)
    return Phase(
        "last layer",
        _classes(held, gradients, activations, side, c.stack.memory.unexplained),
        {},
        sizes,
    )


def _embedding(c: Configuration, held: States, buffer: Buffers) -> Phase:
    """The embedding's dense gradient on the first stage.

    A tied table on one stage has three of them at once: the head's, which waited, the
    embedding's, and their sum. An accumulated gradient stands beside the new one.
    """
    first = c.stage == 0
    tied = c.architecture.tied_embeddings and c.pp == 1
    more = np.where(held.alive > 0, 1, 0) + (2 if tied else 0)
    activations = shared_tables(c) + first * first_stage_saved(c)
    side = Affine(
        np.maximum(buffer.embedding + first * more * table_bytes(c), buffer.root_reduction)
    )
    return Phase(
        "embedding", _classes(held, held.gradients, activations, side, c.stack.memory.unexplained)
    )


def _optimizer(c: Configuration, held: States, buffer: Buffers) -> Phase:
    """The optimizer steps: all states and gradients, no activations."""
    step = held.step
    side = Affine(buffer.step + step.const, step.per_layer, step.per_offloaded)
    return Phase("optimizer", _classes(held, held.gradients, 0.0, side, c.stack.memory.unexplained))
