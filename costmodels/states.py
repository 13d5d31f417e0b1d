"""Weights, gradients and optimizer states of a pipeline stage, per optimizer, precision and stage.

Bytes for a parameter times the parameters of a rank. With DeepSpeed, 16-bit gradients and Adam:
16, 4 + 12/d, 2 + 14/d and 16/d at ZeRO 0 to 3; with fp32 main gradients (Megatron-LM) 18 and
6 + 12/d. d counts every replica of a parameter: data- and context-parallel ranks, and for routed
experts these divided by the expert-parallel degree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.buckets import DEFAULTS, ZeroBuckets, auto_buckets, zero_buckets
from costmodels.configuration import Configuration
from costmodels.costs import Affine
from costmodels.held import Held, ends_held, layer_held, leading_held, weights_sharded
from costmodels.numeric import Array, Numeric
from costmodels.optimizer_states import state_bytes
from costmodels.params import mean_layer_parameters, norm_parameters

TABLE_WEIGHT = 2.0  # bytes of an element of a token table where linear weights take fewer


@dataclass(frozen=True, slots=True)
class PerParameter:
    """Bytes a rank keeps for the parameters it holds, at full gradients."""

    weights: Numeric
    gradients: Numeric
    optimizer: Numeric
    step: Numeric  # more, while the optimizer steps


@dataclass(frozen=True, slots=True)
class States:
    """Model states of every stage, affine in its layers. [byte]

    ``gradients`` once all of them exist; ``alive`` the share that does so before a backward.
    ``layer_gradient``, ``head_gradient``, ``embedding_gradient``: those of one layer, of what
    follows the layers on the last stage, and of the rest of the first stage. ``stale``: of the
    step before, until the optimizer steps again.
    """

    weights: Affine
    gradients: Affine
    optimizer: Affine
    step: Affine
    alive: Numeric
    layer_gradient: Numeric
    head_gradient: Numeric
    embedding_gradient: Numeric
    stale: Affine


def gradient_bytes(c: Configuration) -> float:
    """Bytes of an accumulated gradient element."""
    given = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}
    return given.get(c.grad_dtype, c.stack.memory.gradients[c.precision])


def moments(c: Configuration, part: str) -> Numeric:
    """Optimizer state for a parameter of that part, without an fp32 copy. [byte]

    DeepSpeed's ZeRO hands the optimizer flat shards.
    """
    factor = c.stack.memory.moment_factor
    shaped = state_bytes(c.optimizer, part, c.architecture)
    if c.stack.memory.engine != "deepspeed":
        return factor * shaped
    flat = state_bytes(c.optimizer, part, c.architecture, flat=True)
    return factor * np.where(np.asarray(c.zero_stage) >= 1, flat, shaped)


def layer_moments(c: Configuration) -> Numeric:
    """Optimizer state for an average parameter of a layer. [byte]"""
    share = norm_parameters(c.architecture).total / mean_layer_parameters(c.architecture).total
    return moments(c, "layer") * (1 - share) + moments(c, "norm") * share


def per_parameter(
    c: Configuration, part: Held, moment: Numeric, table: bool = False
) -> PerParameter:
    """What a rank keeps for ``part``, nothing offloaded; a ``table`` takes 16 bits. [byte]"""
    profile, zero = c.stack.memory, np.asarray(c.zero_stage)
    master: Numeric = profile.master[c.precision]
    cache = profile.weight_cache.get(c.precision, 0.0)
    stored = max(profile.weights[c.precision], TABLE_WEIGHT if table else 0.0)
    weights = stored * part.over(weights_sharded(c)) + (0.0 if table else cache) * part.total
    states = part.over(zero >= 1)
    if profile.engine == "deepspeed" and master == 0:
        # stages 1 and 2 clone their shard of fp32 weights too (stage_1_and_2.py); 3 aliases it
        master = np.where((zero == 1) | (zero == 2), 4.0, 0.0)
    return PerParameter(
        weights=weights,
        gradients=_gradients(c, part),
        optimizer=(master + moment) * states,
        step=_step(c, part),
    )


def _gradients(c: Configuration, part: Held) -> Numeric:
    """All gradients of ``part`` as the engine keeps them at the end of backward. [byte]"""
    profile, zero, size = c.stack.memory, np.asarray(c.zero_stage), gradient_bytes(c)
    accumulating = np.asarray(c.grad_accum) > 1
    leftover = _leftover(c)
    if profile.engine == "megatron":
        return (size + leftover) * part.total
    if profile.engine == "deepspeed":
        # Stage 2 keeps the accumulated shard and the running micro-batch's, unless it accumulates
        # in fp32 in place. (DeepSpeed 0.19, deepspeed/runtime/zero/stage_1_and_2.py)
        twice = (zero == 2) & accumulating & (gradient_bytes(c) == 2)
        return (size + leftover) * part.over(zero >= 2) * np.where(twice, 2, 1)
    if profile.engine == "fsdp":
        # One GPU is not wrapped: gradients have the weights' own type
        alone = part.shards * np.asarray(c.tp) * c.pp * np.ones_like(zero) == 1
        whole = (zero < 2) | (accumulating & _late_sync(c))
        kept = np.where(alone, profile.weights[c.precision], size) * part.over(~whole)
        return kept + leftover * part.total
    # DistributedDataParallel's buckets are a second copy (gradient_as_bucket_view is off)
    return size * part.total * np.where(part.shards > 1, 2, 1)


def _leftover(c: Configuration) -> Numeric:
    """16-bit gradients that outlive their addition to wider ones; in FSDP, of pipeline stages.

    DeepSpeed's BF16_Optimizer, which keeps them, serves stages 0 and 1.
    """
    profile, zero = c.stack.memory, np.asarray(c.zero_stage)
    size = profile.gradient_leftover.get(c.precision, 0.0) if gradient_bytes(c) > 2 else 0.0
    if profile.engine == "deepspeed":
        return np.where(zero < 2, size, 0.0)
    has = profile.engine == "megatron" or (profile.engine == "fsdp" and c.pp > 1)
    return size if has else 0.0


def _step(c: Configuration, part: Held) -> Numeric:
    """Temporaries of the optimizer step that grow with ``part``. [byte]"""
    profile, zero = c.stack.memory, np.asarray(c.zero_stage)
    mixed = profile.master[c.precision] > 0
    if profile.engine in ("ddp", "fsdp"):
        # torch's foreach Adam takes the square root of all second moments at once
        size = 4 * profile.moment_factor if profile.step_foreach else 0.0
        return (size + profile.step_bytes) * part.over(zero >= 1)
    if not mixed:
        return 0.0 * part.total
    narrow = gradient_bytes(c) == 2
    if profile.engine == "megatron":
        copy = 4.0 if narrow else 0.0  # fp32 copy of the gradient shard
        reduced = np.where(part.shards > 1, profile.reduced_apart, 0.0) * part.total
        return (copy + profile.step_bytes) * part.over(zero >= 1) + reduced
    # DeepSpeed: the shard flattened in 16 bits, then cast to fp32; at stage 3 by sub-groups
    flat = np.where(zero >= 1, 2, 0) + 4 if narrow else np.where(zero >= 1, 4, 0)
    if not narrow and profile.flat_copies != "reused":
        flat = 0 * flat  # the first BF16_Optimizer steps on the gradients it accumulated
    return np.where(zero >= 3, 0, flat * part.over(zero >= 1))


def step_apart(c: Configuration) -> Affine | None:
    """Blocks that the optimizer step frees and that are too small for its later tensors. [byte]"""
    size, first, last = c.stack.memory.step_apart, (c.stage == 0) * 1, (c.stage == c.pp - 1) * 1
    if size is None:
        return None
    sharded = np.asarray(c.zero_stage) >= 1
    ends = ends_held(c, first, last).over(sharded) + leading_held(c, first).over(sharded)
    per_layer = size * layer_held(c).over(sharded)
    return Affine(size * ends, per_layer, -per_layer)


def buckets_of(c: Configuration) -> ZeroBuckets:
    """The sizes of DeepSpeed's buffers in this run."""
    which = c.stack.memory.buckets
    if which in ("default", "step"):
        return DEFAULTS
    return auto_buckets(c.architecture) if which == "auto" else zero_buckets(c.architecture)


def sub_group_step(c: Configuration) -> Numeric:
    """fp32 gradients of one optimizer sub-group at DeepSpeed stage 3. [byte]"""
    if c.stack.memory.engine != "deepspeed" or c.stack.memory.master[c.precision] == 0:
        return 0.0
    own = layer_held(c).over(1) * c.architecture.layers
    size = 4 * np.minimum(buckets_of(c).sub_group, own)
    return np.where(
        (np.asarray(c.zero_stage) >= 3) & (np.asarray(c.offload_optimizer) == 0), size, 0
    )


def states(c: Configuration) -> States:
    """Model states of all stages. [byte]"""
    first, last = (c.stage == 0) * 1, (c.stage == c.pp - 1) * 1
    layer = per_parameter(c, layer_held(c), layer_moments(c))
    ends = per_parameter(c, ends_held(c, first, last), moments(c, "table"), table=True)
    leading = per_parameter(c, leading_held(c, first), layer_moments(c))
    head = per_parameter(c, ends_held(c, 0 * last, last), 0.0, table=True)
    # a tied table's gradient exists from the head's backward on
    tied = c.architecture.tied_embeddings and c.pp == 1
    embedding = 0.0 if tied else ends.gradients - head.gradients
    on_gpu = np.asarray(c.offload_optimizer) == 0
    gradients_on_gpu = on_gpu | ~_gradients_leave(c)
    weights_on_gpu = np.where(_weights_leave(c), 0, 1)
    moved = np.where(_gradients_leave(c), layer.gradients, 0)
    return States(
        weights=Affine(
            (ends.weights + leading.weights) * weights_on_gpu, layer.weights * weights_on_gpu
        ),
        gradients=Affine(
            (ends.gradients + leading.gradients) * gradients_on_gpu, layer.gradients, -moved
        ),
        optimizer=Affine(
            (ends.optimizer + leading.optimizer) * on_gpu, layer.optimizer, -layer.optimizer
        ),
        step=Affine(
            (ends.step + leading.step) * on_gpu + sub_group_step(c), layer.step, -layer.step
        ),
        alive=_alive(c),
        layer_gradient=layer.gradients,
        head_gradient=head.gradients * gradients_on_gpu,
        embedding_gradient=embedding * gradients_on_gpu,
        stale=_stale(c, ends_held(c, first, last), leading_held(c, first)),
    )


def _stale(c: Configuration, ends: Held, leading: Held) -> Affine:
    """Gradients of the step before that nothing frees before the next ones replace them.

    Megatron-LM of 2021 sets ``main_grad`` to a parameter's gradient and clears only ``grad``, so
    the old 16-bit tensor lives on, as does the fp32 copy made for the optimizer. (Megatron-LM
    v2.4, megatron/model/distributed.py, allreduce_gradients; megatron/optimizer/optimizer.py)
    """
    stays = np.where(np.asarray(c.zero_stage) == 0, 1.0, 0.0)
    size = c.stack.memory.stale_gradients.get(c.precision, 0.0) * stays
    return Affine(size * (ends.total + leading.total), size * layer_held(c).total)


def _weights_leave(c: Configuration) -> Numeric:
    """Whether the weights live off the GPU."""
    away = np.asarray(c.offload_parameters) > 0
    if c.stack.memory.engine == "fsdp":  # CPUOffloadPolicy moves everything
        away = away | (np.asarray(c.offload_optimizer) > 0)
    return away


def _gradients_leave(c: Configuration) -> Array:
    """Whether gradients of offloaded layers go to the host as soon as they are made and reduced.

    FSDP moves reduced ones only (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py,
    foreach_reduce): those that wait for the last micro-batch are whole on the GPU.
    """
    away = np.asarray(c.offload_optimizer) > 0
    if c.stack.memory.engine == "deepspeed":
        return np.asarray(away & (np.asarray(c.zero_stage) >= 2))
    return np.asarray(away & (c.stack.memory.engine == "fsdp" and not _late_sync(c)))


def _late_sync(c: Configuration) -> bool:
    """Whether FSDP reduces gradients in the last micro-batch's backward only.

    As in pipeline stages (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync).
    """
    return not c.stack.memory.sync_each_micro_batch or c.pp > 1


def _bf16_optimizer(c: Configuration) -> Array:
    """Whether DeepSpeed wraps the optimizer in BF16_Optimizer, whose gradients stay allocated.

    At stage 1 with fp32 accumulation and nothing offloaded, and in a pipeline without ZeRO.
    (DeepSpeed 0.19, deepspeed/runtime/engine.py, _do_optimizer_sanity_check)
    """
    zero, wide = np.asarray(c.zero_stage), gradient_bytes(c) == 4
    on_gpu = np.asarray(c.offload_optimizer) == 0
    served = ((zero == 1) & wide & on_gpu) | ((zero == 0) & (c.pp > 1))
    return np.asarray(served & (c.precision == "bf16"))


def _alive(c: Configuration) -> Numeric:
    """Share of the gradients that exists before a backward: accumulated, or allocated for good."""
    profile, zero = c.stack.memory, np.asarray(c.zero_stage)
    kept = np.asarray(profile.gradients_stay)
    if profile.engine == "deepspeed":  # stage 3's flat buffer, and BF16_Optimizer's
        kept = kept | (zero >= 3) | _bf16_optimizer(c)
    size = gradient_bytes(c)
    allocated = size / np.maximum(size + _leftover(c), 1e-9)
    return np.where(np.asarray(c.grad_accum) > 1, 1.0, np.where(kept, allocated, 0.0))
