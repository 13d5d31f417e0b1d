"""Offload: what crosses the host link and what the drives stream."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Numeric

NVME_READ = 12.0  # master, momentum and variance, 4 bytes each
NVME_WRITE = 14.0  # the same and the 16-bit copy


def link_time(size: Numeric, bandwidth: float) -> Numeric:
    """Bytes of one GPU over its link to the host. [s]"""
    return np.asarray(size) / bandwidth


def accumulation_bytes(parameters: Numeric, micro_batches: Numeric, gradient: float) -> Numeric:
    """Bytes each way of gradients accumulated on the host.

    Every micro-batch after the first copies the sum up, adds and copies it back (DeepSpeed,
    ``async_accumulate_grad_in_cpu_via_gpu``). [byte]
    """
    return (np.asarray(micro_batches) - 1.0) * gradient * parameters


def nvme_time(parameters: Numeric, read: float, write: float) -> Numeric:
    """Streaming optimizer states from a node's drives and back, at its read and write rate. [s]"""
    return np.asarray(parameters) * (NVME_READ / read + NVME_WRITE / write)
