"""Flat copies that DeepSpeed's ZeRO stage 1 makes after the last backward, and who keeps them.

With DeepSpeed of 2021 and 2022 gradients are not contiguous at stage 1, so the end of a step makes
flat tensors: buckets of gradients for the reduction, the partition's gradients in 16 and then in
32 bits for the optimizer, and the gathered weights (torch's ``all_gather`` into a list receives
into one flat tensor and copies). None of them is alive while layers run, but each needs one
contiguous block. Blocks of activations do not grow together to that size, since gradients, which
stay, were put between them, so the caching allocator asks for new ones and keeps them. They are
reserved, not allocated, and released only where memory runs out.

(DeepSpeed 0.5.4, runtime/engine.py, _configure_zero_optimizer; runtime/zero/stage2.py,
allreduce_bucket, step; torch 1.9, c10d/ProcessGroupNCCL.cpp, newLikeFlat.)
"""

from __future__ import annotations

import numpy as np

from costmodels.backward_memory import weight_element
from costmodels.configuration import Configuration
from costmodels.held import Held
from costmodels.numeric import Numeric
from costmodels.states import buckets_of, gradient_bytes


def bucket_bytes(c: Configuration, own: Numeric) -> Numeric:
    """One flat bucket of gradients: as many as there are, at most a bucket's. [byte]"""
    return gradient_bytes(c) * np.minimum(buckets_of(c).reduce_bucket, own)


def own_share(c: Configuration) -> Numeric:
    """Share of the gradients that a rank still holds when its optimizer steps. [-]

    16-bit ones of the other partitions are freed after the reduction; 32-bit ones stay in place.
    """
    freed = (np.asarray(c.zero_stage) == 1) & (gradient_bytes(c) == 2)
    return np.where(freed, 1 / (np.asarray(c.dp) * c.cp), 1.0)


def gathered_bytes(c: Configuration, own: Numeric) -> Numeric:
    """The flat output of one gather of updated weights. [byte]

    The partition is gathered in so many whole pieces as buckets fit in the weights.
    """
    pieces = np.maximum(own // buckets_of(c).allgather_bucket, 1)
    return weight_element(c) * own / pieces


def partition_bytes(c: Configuration, part: Held) -> Numeric:
    """What the optimizer makes of its partition, first when it is set up. [byte]

    The 16-bit clone that becomes the fp32 copy; and fp32 gradients, unless they are accumulated
    in 32 bits in a buffer that stays. The step flattens and casts gradients into the same blocks.
    An offloaded optimizer makes them on the host.
    """
    size = 6.0 if gradient_bytes(c) == 2 else 2.0
    return np.where(np.asarray(c.offload_optimizer) == 0, size, 0.0) * part.over(1)


def flat_copies(c: Configuration, part: Held) -> Numeric:
    """Blocks that hold flat copies at the end of a step and nothing else before. [byte]

    Parameters
    ----------
    c : Configuration
        Of a stack whose ``flat_copies`` are not reused.
    part : Held
        All parameters of the stage.

    Notes
    -----
    A tensor a communication stream has used returns to the allocator when the GPU gets there, so a
    host that runs ahead makes all buckets before it has one back. A gather reuses a bucket's
    block where it fits into it.
    """
    own = part.total
    bucket, gathered = bucket_bytes(c, own), gathered_bytes(c, own)
    fits = gathered <= bucket
    if c.stack.memory.flat_copies == "queued":
        bucket, gathered = gradient_bytes(c) * own, weight_element(c) * own
    size = bucket + np.where(fits, 0.0, gathered) + partition_bytes(c, part)
    return np.where(np.asarray(c.zero_stage) == 1, size, 0.0)
