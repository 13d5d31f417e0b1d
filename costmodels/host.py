"""Host memory of one rank, and bytes on the node's drives.

Three lines: ``training`` (what an offloaded run holds all the time), ``loading`` (until the model
is on the GPUs) and ``saving`` (while a checkpoint is written). Pinned buffers have their exact
size: the bundle sets ``PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb`` or DeepSpeed's native
backend, otherwise PyTorch rounds each one up to a power of two, up to twice the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodels.configuration import Configuration
from costmodels.costs import Affine
from costmodels.kernels import Kernels
from costmodels.numeric import Numeric
from costmodels.params import total_parameters
from costmodels.sharing import kernels_of
from costmodels.states import (
    buckets_of,
    ends_held,
    gradient_bytes,
    layer_held,
    layer_moments,
    moments,
)

NVME_BUFFERS = 4  # of the largest sub-group (DeepSpeed 0.19, offload_config.py, buffer_count)
PARAMETER_BUFFERS = 5 * 100_000_000  # elements: buffer_count times buffer_size, same file


def host_costs(c: Configuration) -> Mapping[str, Affine]:
    """Host bytes of one rank: ``training``, ``loading``, ``saving``."""
    training = _training(c)
    model = float(total_parameters(c.architecture))
    element = kernels_of(c).element
    local = c.cluster.gpus_per_node
    own = c.architecture.layers * layer_held(c).over(1) + ends_held(c, 1, 1).over(1)
    sharded = np.asarray(c.zero_stage) >= 3
    # zero.Init and meta-device loading give each rank its shard; otherwise every rank reads a
    # whole copy of what it will hold
    whole = layer_held(c).total * c.architecture.layers / c.pp + ends_held(c, 1, 1).total
    copy = np.where(sharded, own / c.pp, whole) * element
    gathered = np.where(sharded, model * element / local, 0.0)  # rank 0 writes whole weights
    largest = 4.0 * own / c.pp  # torch.save copies one storage at a time
    return {
        "training": training,
        "loading": Affine(training.const + copy, training.per_layer, training.per_offloaded),
        "saving": Affine(
            training.const + gathered + largest, training.per_layer, training.per_offloaded
        ),
    }


def _training(c: Configuration) -> Affine:
    first, last = (c.stage == 0) * 1, (c.stage == c.pp - 1) * 1
    optimizer, parameters = np.asarray(c.offload_optimizer), np.asarray(c.offload_parameters)
    ends, layer = ends_held(c, first, last), layer_held(c)
    cpu = optimizer == 1
    per_end, per_layer = _offloaded(c, moments(c, "table")), _offloaded(c, layer_moments(c))
    const = c.stack.memory.host_process + cpu * per_end * ends.over(1)
    weights = (parameters == 1) * kernels_of(c).element
    const = const + weights * ends.over(1) + _nvme_buffers(c, optimizer, parameters)
    return Affine(
        const=const + 0.0 * last,
        per_layer=weights * layer.over(1),
        per_offloaded=cpu * per_layer * layer.over(1),
    )


def _offloaded(c: Configuration, moment: Numeric) -> Numeric:
    """Host bytes for an offloaded parameter of the rank's shard.

    fp32 master 4, fp32 gradient 4, moments 8, and 16-bit staging or gradient buffer 2; at stages
    1 and 2 accumulated 16-bit gradients 2 more. (DeepSpeed 0.19, runtime/zero)
    """
    if c.stack.memory.engine == "fsdp":
        return 4.0 + 4.0 + moment
    accumulated = (np.asarray(c.grad_accum) > 1) & (np.asarray(c.zero_stage) < 3)
    mixed = c.stack.memory.master[c.precision] > 0
    narrow = 2.0 if mixed else 0.0
    if c.stack.memory.engine == "megatron":
        return 4.0 + 4.0 + moment
    wide = gradient_bytes(c) - 2 if mixed else 0.0
    stage3 = np.where(np.asarray(c.zero_stage) >= 3, wide, 0.0)
    return 4.0 + 4.0 + moment + narrow + stage3 + np.where(accumulated, narrow, 0.0)


def _nvme_buffers(c: Configuration, optimizer: Numeric, parameters: Numeric) -> Numeric:
    """Pinned buffers through which states and weights pass to the drives. [byte]"""
    own = c.architecture.layers * layer_held(c).over(1) / c.pp
    group = np.minimum(buckets_of(c).sub_group, own)
    states = np.where(optimizer == 2, NVME_BUFFERS * 4 * group + 2 * own, 0.0)
    return states + np.where(parameters == 2, 2.0 * PARAMETER_BUFFERS, 0.0)


def nvme_costs(c: Configuration) -> Affine:
    """Bytes on drives: master, moments and gradient of offloaded states; 16-bit weights."""
    first, last = (c.stage == 0) * 1, (c.stage == c.pp - 1) * 1
    ends, layer = ends_held(c, first, last), layer_held(c)
    states = np.asarray(c.offload_optimizer) == 2
    weights = (np.asarray(c.offload_parameters) == 2) * kernels_of(c).element
    end, inner = 8.0 + moments(c, "table"), 8.0 + layer_moments(c)
    return Affine(
        const=(states * end + weights) * ends.over(1),
        per_layer=weights * layer.over(1),
        per_offloaded=states * inner * layer.over(1),
    )


def element(kernels: Kernels) -> int:
    """Bytes of a stored weight."""
    return kernels.element
