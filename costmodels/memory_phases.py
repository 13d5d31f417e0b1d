"""The phases of a training step: what is alive at each of its moments that can be the peak.

In order: ``forward`` (its end), ``loss`` (its differentiation, on the last stage), ``backward`` (of
the first layer to run it, when most activations are alive), ``last layer`` (of the last one, when
almost all gradients exist), ``embedding`` (of the first stage), ``optimizer``. Of stacks that
compute metrics from the logits once the backward is over, ``metrics`` too; of those that plan
memory ahead ``apart``, what phases without common memory take together; of those that reduce
gradients at the end ``reduction``.

Initialisation is no phase: where a second copy of the weights does not fit, DeepSpeed flattens
them on the host (DeepSpeed 0.19, deepspeed/runtime/zero/stage_1_and_2.py), and the other stacks
make none. Layers of different granularity on one stage count as if the largest working set met
all kept activations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.buffers import Buffers, buffers, casts, head_cast, recomputed_casts
from costmodels.configuration import Configuration
from costmodels.costs import Affine, Phase
from costmodels.flat_copies import own_share
from costmodels.head_memory import (
    first_stage_saved,
    last_stage_saved,
    logits_of,
    loss_bytes,
    shared_tables,
    table_bytes,
    uncast_output,
)
from costmodels.inflight import in_flight
from costmodels.numeric import Array, Numeric
from costmodels.recompute_memory import checkpoint, kept, working
from costmodels.states import States, states

PHASES = ("forward", "loss", "backward", "last layer", "embedding", "optimizer")


@dataclass(frozen=True, slots=True)
class Step:
    """A configuration with what several phases need of it."""

    c: Configuration
    states: States
    buffers: Buffers
    flight: Numeric  # micro-batches in flight on every stage
    first: Array  # 1 on the first stage
    last: Array  # 1 on the last stage


def phases(c: Configuration) -> tuple[Phase, ...]:
    """The phases of one step."""
    step = Step(
        c=c,
        states=states(c),
        buffers=buffers(c),
        flight=_flight(c, in_flight(c.stage, c.pp, c.grad_accum, c.virtual_stages)),
        first=(c.stage == 0) * 1,
        last=(c.stage == c.pp - 1) * 1,
    )
    metrics = (_metrics(step),) if logits_of(c).metrics else ()
    if c.stack.memory.phases_apart:
        metrics = (*metrics, _apart(step))
    if c.stack.memory.flat_copies != "reused":
        metrics = (*metrics, _reduction(step))
    return (
        _forward(step),
        _loss(step),
        _backward(step),
        _last_layer(step),
        _embedding(step),
        *metrics,
        _optimizer(step),
    )


def _flight(c: Configuration, held: Numeric) -> Numeric:
    """Micro-batches whose activations have memory: those in flight, or a static plan's buffers."""
    size = c.stack.memory.stage_buffers * c.pp
    static = (c.stage < c.pp - 1) & (np.asarray(c.grad_accum) > 1) & (size > 0)
    return np.where(static, size, held)


def _classes(s: Step, gradients: Affine, activations: Numeric, side: Affine) -> dict[str, Affine]:
    return {
        "weights": s.states.weights,
        "gradients": gradients,
        "optimizer": s.states.optimizer,
        "activations": Affine(activations),
        "buffers": side.raised(s.c.stack.memory.unexplained),
    }


def _before_backward(s: Step) -> Affine:
    """Gradients that exist before a backward begins."""
    return s.states.gradients.scaled(s.states.alive).plus(s.states.stale)


def _outside(s: Step, head: Numeric) -> Numeric:
    """Kept outside the layers, all micro-batches in flight together. [byte]

    ``head`` is 1 where the head's own tensors are still alive.
    """
    c, profile = s.c, s.c.stack.memory
    size = s.flight * s.first * first_stage_saved(c) + head * last_stage_saved(c)
    if c.pp > 1:
        outputs = profile.stage_outputs / (np.asarray(c.tp) if profile.outputs_split else 1)
        tensors = outputs * (1 - s.last) + profile.stage_inputs * (1 - s.first)
        size = size + tensors * s.flight * checkpoint(c)
    return np.asarray(size + shared_tables(c))


def _layers(s: Step) -> dict[str, Numeric]:
    """Kept by a layer for all micro-batches in flight, with casts that backward reads."""
    cast = casts(s.c)
    return {g: size * s.flight + (cast if g == "none" else 0.0) for g, size in kept(s.c).items()}


def _forward(s: Step) -> Phase:
    """The end of the forward; under autocast all casts still exist."""
    c = s.c
    activations = _outside(s, s.last) + s.last * (loss_bytes(c, "forward") + uncast_output(c))
    side = Affine(s.buffers.forward + head_cast(c, s.last), s.buffers.layer + casts(c))
    layers = {g: size * s.flight for g, size in kept(c).items()}
    classes = _classes(s, _before_backward(s), activations, side)
    return Phase("forward", classes, layers, cached=s.buffers.cached)


def _loss(s: Step) -> Phase:
    """The loss is differentiated: logits, their copies and their gradients."""
    activations = _outside(s, s.last) + s.last * loss_bytes(s.c, "backward")
    side = Affine(s.buffers.loss + head_cast(s.c, s.last), s.buffers.layer)
    classes = _classes(s, _before_backward(s), activations, side)
    return Phase("loss", classes, _layers(s), cached=s.buffers.cached)


def _backward(s: Step) -> Phase:
    """The stage's last layer runs backward; of new gradients the head has its own.

    The reduction of another layer's gradients exists from the second layer on, when the first
    one's tensors are gone.
    """
    c, young = s.c, np.where(s.states.alive > 0, 0.0, s.states.head_gradient)
    activations = _outside(s, 0 * s.last) + s.last * loss_bytes(c, "rest")
    gradients = _before_backward(s).raised(young)
    layers, cast = _layers(s), recomputed_casts(c)
    sizes = {
        g: size + np.maximum(0.0, s.buffers.reduction - layers[g]) + (cast if g != "none" else 0.0)
        for g, size in working(c, s.states.alive > 0).items()
    }
    side = Affine(s.buffers.backward, s.buffers.layer)
    classes = _classes(s, gradients, activations, side)
    return Phase("backward", classes, layers, sizes, s.buffers.cached)


def _last_layer(s: Step) -> Phase:
    """The stage's first layer runs backward: activations are gone, all other gradients made.

    Or the one before it, with one layer's gradients less, but its input and a gather more.
    """
    c, own = s.c, kept(s.c)
    several = s.c.architecture.layers > s.c.pp  # a stage of one layer has no layer before it
    fixed = s.buffers.reduction + recomputed_casts(c) + s.buffers.gathered_layer
    sizes = {
        g: size
        + own[g]
        + fixed
        + several * np.maximum(0.0, s.buffers.prefetch + own[g] - s.states.layer_gradient)
        for g, size in working(c, s.states.alive > 0).items()
    }
    activations = shared_tables(c) + s.first * first_stage_saved(c)
    missing = s.states.layer_gradient + s.states.embedding_gradient
    gradients = s.states.gradients.raised(-np.where(s.states.alive > 0, 0.0, missing))
    gradients = gradients.plus(s.states.stale)
    side = Affine(s.buffers.backward - s.buffers.prefetch)
    classes = _classes(s, gradients, activations, side)
    return Phase("last layer", classes, {}, sizes, s.buffers.cached)


def _embedding(s: Step) -> Phase:
    """The embedding's dense gradient on the first stage.

    A tied table on one stage has three of them at once: the head's, which waited, the
    embedding's, and their sum. An accumulated gradient stands beside the new one.
    """
    c = s.c
    tied = c.architecture.tied_embeddings and c.pp == 1
    more = np.where(s.states.alive > 0, 1, 0) + (2 if tied else 0)
    activations = shared_tables(c) + s.first * first_stage_saved(c)
    tables = s.buffers.embedding + s.first * more * table_bytes(c)
    side = Affine(np.maximum(tables, s.buffers.root_reduction))
    gradients = s.states.gradients.plus(s.states.stale)
    return Phase("embedding", _classes(s, gradients, activations, side), cached=s.buffers.cached)


def _metrics(s: Step) -> Phase:
    """Metrics are computed from the logits that the loop keeps; no activations are left."""
    activations = s.last * loss_bytes(s.c, "metrics")
    return Phase("metrics", _classes(s, s.states.gradients, activations, Affine(s.buffers.step)))


def _reduction(s: Step) -> Phase:
    """All gradients and one flat bucket of them, after the last backward."""
    return Phase("reduction", _classes(s, s.states.gradients, 0.0, Affine(s.buffers.reduced)))


def _apart(s: Step) -> Phase:
    """Loss, backward and step together, each with memory of its own; only while accumulating."""
    c, more = s.c, np.where(np.asarray(s.c.grad_accum) > 1, 1.0, 0.0)
    activations = _outside(s, s.last) + s.last * loss_bytes(c, "backward")
    side = s.states.step.raised(s.buffers.step + s.buffers.backward)
    classes = _classes(s, s.states.gradients, activations, side)
    return Phase(
        "apart",
        {name: cost.scaled(more) for name, cost in classes.items()},
        {g: more * size for g, size in _layers(s).items()},
        {g: more * size for g, size in working(c, s.states.alive > 0).items()},
    )


def _optimizer(s: Step) -> Phase:
    """The optimizer steps: all states and gradients, no activations."""
    side = s.states.step.raised(s.buffers.step)
    gradients = s.states.gradients
    if s.c.stack.memory.flat_copies != "reused":  # those of other ranks are freed
        gradients = gradients.scaled(own_share(s.c))
    return Phase("optimizer", _classes(s, gradients, 0.0, side))
