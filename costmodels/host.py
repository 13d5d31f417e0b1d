"""Host memory of one rank, and bytes on the node's drives.

Three lines: ``training`` (what an offloaded run holds all the time), ``loading`` (until the model
is on the GPUs) and ``saving`` (while a checkpoint is written). Pinned buffers have their exact
size: the planner's bundles ask for DeepSpeed's own page-locked allocator, or for torch's without
rounding (``pinned_max_round_threshold_mb``); by default torch rounds each buffer up to a power of
two, so that a run without those settings may need up to twice the bytes (PyTorch 2.13,
aten/src/ATen/core/CachingHostAllocator.h).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from costmodels.configuration import Configuration
from costmodels.costs import Affine
from costmodels.head_memory import table_bytes
from costmodels.held import ends_held, layer_held, stage_held
from costmodels.numeric import Numeric
from costmodels.params import total_parameters
from costmodels.sharing import kernels_of
from costmodels.states import buckets_of, gradient_bytes, layer_moments, moments

STATE_BUFFERS = 4  # sub-groups in flight to the drives (offload_config.py, buffer_count)
PARAMETER_BUFFERS = 5  # parameters in flight to the drives (same file)
PARAMETER_BUFFER = 100_000_000  # elements of one, and of weights kept in RAM (same file)
FP32 = 4.0


def host_costs(c: Configuration) -> Mapping[str, Affine]:
    """Host bytes of one rank: ``training``, ``loading``, ``saving``. [byte]"""
    training = _training(c)
    return {
        "training": training,
        "loading": training.raised(_loading(c)),
        "saving": training.raised(_saving(c)),
    }


def offloaded_bytes(c: Configuration, moment: Numeric) -> Numeric:
    """Host bytes for an offloaded parameter of a rank's shard.

    fp32 master and gradient 8, and the moments. DeepSpeed besides: 16-bit staging copy or
    gradient buffer 2, at stages 1 and 2 another 2 where gradients accumulate, at stage 3 2 more
    where they accumulate in fp32. 18 and 20 bytes with Adam. (DeepSpeed 0.19, runtime/zero)
    """
    size = 2 * FP32 + moment
    if c.stack.memory.engine != "deepspeed" or c.stack.memory.master[c.precision] == 0:
        return size
    stage3 = np.asarray(c.zero_stage) >= 3
    accumulating = np.asarray(c.grad_accum) > 1
    wider = gradient_bytes(c) - 2
    return size + 2 + np.where(stage3, wider, np.where(accumulating, 2, 0))


def _training(c: Configuration) -> Affine:
    first, last = (c.stage == 0) * 1, (c.stage == c.pp - 1) * 1
    optimizer, parameters = np.asarray(c.offload_optimizer), np.asarray(c.offload_parameters)
    ends, layer, cpu = ends_held(c, first, last), layer_held(c), (optimizer == 1) * 1
    weights = (parameters == 1) * kernels_of(c).element
    const = cpu * offloaded_bytes(c, moments(c, "table")) * ends.over(1) + weights * ends.over(1)
    # stages 1 and 2 pass gradients through a page-locked buffer of the largest parameter
    staging = (optimizer > 0) & (np.asarray(c.zero_stage) < 3)
    const = const + np.where(staging, table_bytes(c), 0.0) + _drive_buffers(c)
    return Affine(
        const=const + c.stack.memory.host_process + 0.0 * last,
        per_layer=weights * layer.over(1),
        per_offloaded=cpu * offloaded_bytes(c, layer_moments(c)) * layer.over(1),
    )


def _own(c: Configuration) -> Numeric:
    """Parameters of a rank's shard on an even first stage, the whole model's without stages. [-]"""
    return stage_held(c, 1, int(c.pp == 1)).over(1)


def _drive_buffers(c: Configuration) -> Numeric:
    """Page-locked buffers through which states and weights pass to the drives. [byte]"""
    optimizer, parameters = np.asarray(c.offload_optimizer), np.asarray(c.offload_parameters)
    own, element = _own(c), kernels_of(c).element
    group = np.minimum(buckets_of(c).sub_group, own)
    states = STATE_BUFFERS * FP32 * group + element * own  # and the flat gradients
    largest = np.maximum(PARAMETER_BUFFER, table_bytes(c) / element / np.asarray(c.dp))
    weights = element * (PARAMETER_BUFFERS * largest + PARAMETER_BUFFER + group)
    return np.where(optimizer == 2, states, 0.0) + np.where(parameters == 2, weights, 0.0)


def _loading(c: Configuration) -> Numeric:
    """Weights on the host until they are on the GPUs. [byte]

    ``whole``: every rank reads all that its tensor-parallel group will hold, unless ZeRO-3
    shards the model while it is built (``zero.Init``); ``shard``: each rank only its own part;
    ``device``: nothing, weights are made on the GPU.
    """
    element = kernels_of(c).element
    kind = c.stack.memory.loading
    if kind == "device":
        return 0.0
    if kind == "shard":
        return element * _own(c)
    whole = float(total_parameters(c.architecture)) / c.pp
    sharded = np.asarray(c.zero_stage) >= 3
    return element * np.where(sharded, _own(c), whole)


def _saving(c: Configuration) -> Numeric:
    """Copies on the host while a checkpoint is written. [byte]

    Megatron-Core stages a rank's whole shard; elsewhere one storage at a time is copied, at most
    a flat fp32 shard. ZeRO-3 besides gathers 16-bit weights on the first rank of the job, given
    here as its node's share for each rank.
    """
    shard = FP32 * _own(c)
    if c.stack.memory.engine == "megatron":
        return shard + moments(c, "layer") * _own(c) + kernels_of(c).element * _own(c)
    gathers = (np.asarray(c.zero_stage) >= 3) & (c.stack.memory.engine == "deepspeed")
    model = float(total_parameters(c.architecture)) * kernels_of(c).element
    return shard + np.where(gathers, model / c.cluster.gpus_per_node, 0.0)


def nvme_costs(c: Configuration) -> Affine:
    """Bytes on drives: master, moments and gradient of offloaded states; 16-bit weights. [byte]

    A gradient's part of less than 1 MiB is not written (DeepSpeed 0.19.8
    deepspeed/runtime/swap_tensor/optimizer_utils.py, is_swappable_tensor), so that files may hold
    4 bytes a parameter less. Padding, at most 8 KiB a sub-group and tensor, is left out.
    """
    first, last = (c.stage == 0) * 1, (c.stage == c.pp - 1) * 1
    ends, layer = ends_held(c, first, last), layer_held(c)
    states = (np.asarray(c.offload_optimizer) == 2) * 1
    weights = (np.asarray(c.offload_parameters) == 2) * kernels_of(c).element
    end, inner = 2 * FP32 + moments(c, "table"), 2 * FP32 + layer_moments(c)
    return Affine(
        const=(states * end + weights) * ends.over(1),
        per_layer=weights * layer.over(1),
        per_offloaded=states * inner * layer.over(1),
    )
