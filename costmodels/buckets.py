"""Sizes of DeepSpeed's ZeRO buffers: what the emitter writes is what the memory model counts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from costmodels.architecture import Architecture
from costmodels.params import embedding_parameters, mean_layer_parameters, total_parameters

# Elements. DeepSpeed's defaults (5e8, 1e9) hold 2 GB of live weights and, with overlap, 2 GB of
# buckets on any model. 5e7 elements (100 MB in 16 bits) already saturate the links of a node:
# NCCL's bus bandwidth is flat above some 64 MB (nccl-tests).
LEAST_BUCKET = 50_000_000
MOST_BUCKET = 500_000_000  # DeepSpeed 0.19, deepspeed/runtime/zero/config.py, reduce_bucket_size
SUB_GROUP = 100_000_000  # stage 3 optimizer sub-group; fp32 gradients of one exist at a time
PERSISTENT_HIDDEN = 10  # x h: smaller parameters stay gathered (transformers' "auto" value)


@dataclass(frozen=True, slots=True)
class ZeroBuckets:
    """DeepSpeed's ``zero_optimization`` sizes. [element]"""

    reduce_bucket: int
    allgather_bucket: int
    prefetch_bucket: int
    max_live: int
    max_reuse_distance: int
    persistence_threshold: int
    sub_group: int


# The library's own sizes (DeepSpeed 0.19, deepspeed/runtime/zero/config.py)
DEFAULTS = ZeroBuckets(
    reduce_bucket=500_000_000,
    allgather_bucket=500_000_000,
    prefetch_bucket=50_000_000,
    max_live=1_000_000_000,
    max_reuse_distance=1_000_000_000,
    persistence_threshold=100_000,
    sub_group=1_000_000_000,
)


def auto_buckets(arch: Architecture) -> ZeroBuckets:
    """The sizes that ``auto`` stands for in a Trainer's DeepSpeed configuration, the rest default.

    (transformers 5.24, integrations/deepspeed.py, trainer_config_finalize)

    >>> llama = Architecture("llama2-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 4096, True,
    ...                      "silu", "rmsnorm", 2, False)
    >>> auto_buckets(llama).reduce_bucket
    16777216
    """
    square = arch.hidden**2
    return replace(
        DEFAULTS,
        reduce_bucket=square,
        prefetch_bucket=square * 9 // 10,
        persistence_threshold=PERSISTENT_HIDDEN * arch.hidden,
    )


def zero_buckets(arch: Architecture) -> ZeroBuckets:
    """The sizes for a model.

    Notes
    -----
    A bucket holds at least ``h^2`` elements, so that most matrices of a layer fill one bucket
    (transformers' ``auto`` rule), within [5e7, 5e8]. Gathered weights may reach two layers, one
    that computes and one prefetched, or the largest table, which is gathered whole.

    Examples
    --------
    >>> llama = Architecture("llama2-7b", "llama", 32, 4096, 32, 32, 128, 11008, 32000, 4096, True,
    ...                      "silu", "rmsnorm", 2, False)
    >>> zero_buckets(llama).reduce_bucket, zero_buckets(llama).max_live
    (50000000, 404766720)
    """
    bucket = min(max(LEAST_BUCKET, arch.hidden**2), MOST_BUCKET)
    layer = int(mean_layer_parameters(arch).total)
    table = int(embedding_parameters(arch).total)
    live = min(max(2 * layer, table, bucket), total_parameters(arch))
    return ZeroBuckets(
        reduce_bucket=bucket,
        allgather_bucket=bucket,
        prefetch_bucket=LEAST_BUCKET,
        max_live=live,
        max_reuse_distance=live,
        persistence_threshold=PERSISTENT_HIDDEN * arch.hidden,
        sub_group=SUB_GROUP,
    )
