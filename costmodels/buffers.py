"""Temporary and communication buffers of the data-parallel engines, and fixed overheads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from costmodels.backward_memory import weight_element
from costmodels.configuration import Configuration
from costmodels.flat_copies import bucket_bytes, flat_copies
from costmodels.head_memory import table_bytes
from costmodels.held import ends_held, held, layer_held, stage_held
from costmodels.numeric import Numeric
from costmodels.params import layer_parameters, mlp_parameters
from costmodels.sharing import batch_of, kernels_of
from costmodels.states import buckets_of, gradient_bytes


@dataclass(frozen=True, slots=True)
class Buffers:
    """Buffers of a stage by moment; one value a stage. [byte]

    ``forward`` at the end of the forward, ``loss`` while the loss is differentiated, ``backward``
    while a layer is, ``embedding`` while the embedding is, ``step`` during the optimizer step.
    ``layer``: for every layer, while the forward and backward run. ``reduction``: a layer's
    gradients on their way to other ranks, from the second layer of a backward on. ``prefetch``:
    of ``backward``, what the last layer of a backward does without. ``gathered_layer``: of
    ``layer``, what the last one still has. ``root_reduction``: when the ends' gradients leave.
    ``cached``: blocks of the end of a step that stay reserved while the layers run. ``reduced``:
    when all gradients are reduced after the last backward.
    """

    forward: Numeric
    loss: Numeric
    backward: Numeric
    embedding: Numeric
    step: Numeric
    layer: Numeric = 0.0
    reduction: Numeric = 0.0
    prefetch: Numeric = 0.0
    gathered_layer: Numeric = 0.0
    root_reduction: Numeric = 0.0
    cached: Numeric = 0.0
    reduced: Numeric = 0.0


def buffers(c: Configuration) -> Buffers:
    """The buffers of the stack's engine, and the one that inputs are gathered into."""
    first, last = (c.stage == 0) * 1, (c.stage == c.pp - 1) * 1
    engine = c.stack.memory.engine
    if engine == "deepspeed":
        found = _deepspeed(c, first, last)
    elif engine == "fsdp":
        found = _fsdp(c, first, last)
    else:
        found = _whole(c, first, last)
    return _raised(found, _gather_buffer(c)) if c.stack.memory.gather_buffer else found


def _gather_buffer(c: Configuration) -> Numeric:
    """The whole input of a sequence-parallel linear. [byte]"""
    parallel = (np.asarray(c.sequence_parallel) > 0) & (np.asarray(c.tp) > 1)
    size = batch_of(c).tokens * c.architecture.hidden * kernels_of(c).element
    return np.where(parallel, size, 0.0)


def _raised(found: Buffers, size: Numeric) -> Buffers:
    """Buffers with something more at every moment."""
    moments = ("forward", "loss", "backward", "embedding", "step", "root_reduction")
    return replace(found, **{name: getattr(found, name) + size for name in moments})


def _whole(c: Configuration, first: Numeric, last: Numeric) -> Buffers:
    """Gradients stay where they are made; at most placeholders of them, or a flat bucket."""
    dummies: Numeric = 0.0 * last
    own = stage_held(c, first, last).total
    if c.stack.memory.dummy_gradients:
        arch = c.architecture
        layer = held(c, layer_parameters(arch)).total
        if arch.moe is not None:  # all experts share their shapes
            layer = layer + held(c, layer_parameters(arch, True)).routed / arch.moe.experts
        dummies = dummies + weight_element(c) * layer
    bucket = dummies + np.minimum(c.stack.memory.flat_bucket, weight_element(c) * own)
    return Buffers(dummies, dummies, bucket, bucket, dummies)


def _deepspeed(c: Configuration, first: Numeric, last: Numeric) -> Buffers:
    """Reduction buckets; at stage 3 also gathered weights, at most ``max_live`` of them.

    A gradient larger than a bucket is reduced on its own, whole: the output table's when backward
    begins, the embedding's when it ends. (DeepSpeed 0.19, runtime/zero/stage_1_and_2.py, stage3.py)
    """
    zero, sizes = np.asarray(c.zero_stage), buckets_of(c)
    element = kernels_of(c).element
    if c.stack.memory.buckets == "step":
        return _at_step(c, sizes.reduce_bucket, first, last)
    wide = (gradient_bytes(c) == 4) & (zero == 1)
    part = stage_held(c, first, last)
    own = part.total
    copies = c.stack.memory.overlap_buckets if c.pp == 1 else 1
    bucket = sizes.reduce_bucket * np.where(wide, 4.0, element)
    bucket = bucket * np.where((zero == 1) | (zero == 2), copies, 1)
    replicated = np.asarray(c.dp) * c.cp == 1
    bucket = np.where(replicated & (zero < 3), 0.0, bucket)
    gathered = np.where(zero >= 3, element * np.minimum(sizes.max_live, own), 0.0)
    table = np.where(zero >= 2, table_bytes(c), 0.0)
    # stage 0 flattens its bucket after the backward; stage 3 copies a bucket to scatter it and
    # lets gradients of two more wait for their reduction (stage3.py, max_param_reduce_events)
    flat = np.where(zero >= 1, bucket, 0.0) * np.where(zero >= 3, 4, 1)
    always = np.where(zero >= 3, bucket, 0.0)
    cached: Numeric = 0.0 * last
    reduced: Numeric = 0.0 * last
    if c.stack.memory.flat_copies != "reused":
        flat = np.where(zero == 1, 0.0, flat)
        cached = cached + flat_copies(c, part)
        reduced = np.where(zero == 1, bucket_bytes(c, own), 0.0)
    return Buffers(
        forward=gathered + always + 0.0 * last,
        loss=gathered + always + 0.0 * last,
        backward=gathered + flat + table * last,
        embedding=gathered + flat + table * first,
        step=np.where(zero == 0, bucket, always) + 0.0 * last,
        cached=cached,
        reduced=reduced,
    )


def _at_step(c: Configuration, least: float, first: Numeric, last: Numeric) -> Buffers:
    """Gradients are reduced after the last backward: flattened until a bucket is full, then fp32.

    A bucket ends with the tensor that fills it, a token table where a stage has one.
    """
    own = stage_held(c, first, last).total
    tables = np.maximum(first, last) * table_bytes(c) / weight_element(c)
    bucket = np.minimum(np.maximum(least, tables), own)
    none = 0.0 * own
    reduced = np.where(np.asarray(c.dp) * c.cp == 1, 0.0, (weight_element(c) + 4) * bucket)
    return Buffers(none, none, none, none, reduced)


def _fsdp(c: Configuration, first: Numeric, last: Numeric) -> Buffers:
    """Unsharded weights and gradients of the units that run.

    The root unit (embedding, final norm, head) stays gathered for the whole forward and backward
    and keeps its gradients whole until the end; the next layer's gather is in flight; a layer's
    gradients pass through a buffer of ``reduce_bytes``. A stage of one layer has no next one and
    no other's gradients. (PyTorch 2.13, torch/distributed/fsdp, and its memory tracker on Llama
    shapes)
    """
    profile, element = c.stack.memory, weight_element(c)
    active = np.where(np.asarray(c.dp) * c.cp > 1, 1.0, 0.0)
    ends, own = ends_held(c, first, last).total, layer_held(c).total
    head = element * ends_held(c, 0 * first, last).total
    if profile.tables_whole:
        ends, head = ends * np.asarray(c.tp), head * np.asarray(c.tp)
    root = element * ends if profile.whole_root else head
    # apart, the embedding is gathered for its own forward and backward alone
    unit = element * ends if profile.whole_root else element * ends - head
    zero = np.asarray(c.zero_stage)
    reshard = profile.reshard and (c.pp == 1 or profile.separate_units)
    stays = ~(zero >= 3) if reshard else zero >= 0
    layer = active * element * own
    gathered = np.where(stays, 0.0, layer)
    several = np.where(c.architecture.layers > c.pp, 1.0, 0.0)
    found = Buffers(
        forward=active * root + gathered,
        loss=active * root + gathered,
        backward=active * (root + head) + (1 + several) * gathered,
        embedding=active * 2 * unit,
        step=0.0 * root,
        layer=np.where(stays, layer, 0.0),
        reduction=several * active * profile.reduce_bytes * own,
        prefetch=several * gathered,
        gathered_layer=np.where(stays, layer, 0.0),
        root_reduction=active * (unit + profile.reduce_bytes / element * unit),
    )
    if not profile.separate_units:
        return found
    # every unit is freed when it has run, and none is gathered ahead
    whole = np.where(np.asarray(c.tp) > 1, 1.0, active) if profile.tables_whole else active
    return replace(
        found,
        forward=whole * head,
        loss=whole * head,
        backward=gathered,
        embedding=whole * 2 * unit,
        prefetch=0.0,
    )


def casts(c: Configuration) -> Numeric:
    """16-bit copies of a layer's weights that autocast makes. [byte]"""
    return 2.0 * layer_held(c).total if kernels_of(c).compute == "amp" else 0.0


def recomputed_casts(c: Configuration) -> Numeric:
    """Casts beside a layer that runs again, that of its last linear being used up. [byte]"""
    second = mlp_parameters(c.architecture, c.architecture.moe is not None)
    share = 1 / (3 if c.architecture.gated_mlp else 2)
    used = 2.0 * share * held(c, second).total
    return np.maximum(casts(c) - used, 0.0)


def head_cast(c: Configuration, last: Numeric) -> Numeric:
    """The 16-bit copy of the output table under autocast. [byte]"""
    amp = kernels_of(c).compute == "amp"
    return last * table_bytes(c) / 2 if amp else 0.0 * last


def fixed_bytes(c: Configuration) -> Numeric:
    """What only the driver sees: context, workspaces, one buffer set a communicator. [byte]"""
    profile = c.stack.memory
    axes = [np.asarray(x) > 1 for x in (c.dp, c.tp, c.cp, c.ep)]
    groups = sum(axis * 1 for axis in axes) + (1 if c.pp > 1 else 0)
    return profile.context + profile.communicator * groups
