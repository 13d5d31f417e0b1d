"""Offload: what crosses the host link, what the CPU computes, what the drives stream."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Numeric

UPDATE_BYTES = 30.0  # a CPU Adam reads g, p, m, v, writes p, m, v (28) and the 16-bit copy
STREAM_SHARE = 0.7  # of DRAM peak a CPU Adam reaches (Grace: 0.078 s per 1e9 predicted, 0.082 -
# 0.098 measured in DeepSpeed's SuperOffload notes)
NVME_READ = 12.0  # master, momentum and variance, 4 bytes each
NVME_WRITE = 14.0  # the same and the 16-bit copy


def link_time(size: Numeric, bandwidth: float) -> Numeric:
    """Bytes of one GPU over its link to the host. [s]"""
    return np.asarray(size) / bandwidth


def cpu_step_seconds(
    measured: float, cores: float, reference_cores: float, dram: float = 0.0
) -> float:
    """Seconds a whole node's CPUs need to update 1e9 parameters.

    Scaled from a measured figure by cores; never below streaming the states from DRAM at
    ``dram`` bytes per second (0 where unknown).

    >>> cpu_step_seconds(0.5, 64, 64)
    0.5
    """
    bound = UPDATE_BYTES * 1e9 / (STREAM_SHARE * dram) if dram else 0.0
    return max(measured * reference_cores / max(cores, 1.0), bound)


def accumulation_bytes(parameters: Numeric, micro_batches: Numeric, gradient: float) -> Numeric:
    """Bytes each way of gradients accumulated on the host.

    Every micro-batch after the first copies the sum up, adds and copies it back (DeepSpeed,
    ``async_accumulate_grad_in_cpu_via_gpu``). [byte]
    """
    return (np.asarray(micro_batches) - 1.0) * gradient * parameters


def nvme_time(parameters: Numeric, read: float, write: float) -> Numeric:
    """Streaming optimizer states from a node's drives and back, at its read and write rate. [s]"""
    return np.asarray(parameters) * (NVME_READ / read + NVME_WRITE / write)
