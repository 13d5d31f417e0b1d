"""Offload: what crosses the host link and what the drives stream."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Numeric

# Master, momentum and variance, and the gradient: 4 bytes each. The step reads all four and writes
# the first three; the backward wrote the gradient, in parts of at least 1 MiB (DeepSpeed 0.19.8
# deepspeed/runtime/swap_tensor/optimizer_utils.py _swap_out_gradients; smaller ones stay where
# they are, which files of a tiny model then lack).
NVME_READ = 16.0
NVME_WRITE = 16.0
# Adding a 32-bit gradient on the CPU moves 12 bytes; DeepSpeed's step there 42: 28 of Adam, 8 of
# unscaling, 6 of the 16-bit copy (deepspeed/runtime/zero/stage_1_and_2.py, step).
ADDED_SHARE = 12.0 / 42.0


def link_time(size: Numeric, bandwidth: float) -> Numeric:
    """Bytes of one GPU over its link to the host. [s]"""
    return np.asarray(size) / bandwidth


def late_round_trips(zero_stage: Numeric, micro_batches: Numeric) -> Numeric:
    """Times a step's sum goes up and down at the accumulation boundary. [-]

    DeepSpeed's stage 1 reduces, and hence copies, in the last micro-batch only
    (``reduce_ready_partitions_and_remove_grads``, ``copy_grads_in_partition``).

    >>> [float(late_round_trips(stage, 8)) for stage in (1, 2, 3)]
    [1.0, 0.0, 0.0]
    """
    late = (np.asarray(zero_stage) < 2) & (np.asarray(micro_batches) > 1)
    return np.where(late, 1.0, 0.0)


def round_trips(zero_stage: Numeric, micro_batches: Numeric) -> tuple[Numeric, Numeric]:
    """Copies of the gradients down and up in the backward of a micro-batch, on average. [-]

    DeepSpeed fetches the sum, adds on the GPU and copies it back: stage 2 from the second
    micro-batch on, and the first one's down where more follow
    (``async_accumulate_grad_in_cpu_via_gpu``); stage 3 every time (``partition_grads``).

    >>> [tuple(map(float, round_trips(stage, 4))) for stage in (1, 2, 3)]
    [(0.0, 0.0), (1.0, 0.75), (1.0, 1.0)]
    """
    zero, m = np.asarray(zero_stage), np.asarray(micro_batches, dtype=float)
    down = np.where((zero >= 3) | ((zero == 2) & (m > 1)), 1.0, 0.0)
    return down, np.where(zero >= 3, 1.0, down * (m - 1.0) / m)


def update_time(down: Numeric, update: Numeric, up: Numeric, overlapped: bool) -> Numeric:
    """Gradients down, update, weights up: one after the other, or under each other. [s]

    >>> float(update_time(1.0, 4.0, 2.0, True)), float(update_time(1.0, 4.0, 2.0, False))
    (4.0, 7.0)
    """
    crossing = np.asarray(down) + up
    return np.maximum(crossing, update) if overlapped else crossing + update


def nvme_time(parameters: Numeric, weight: Numeric, read: float, write: float) -> Numeric:
    """Streaming optimizer states from a node's drives and back, at its read and write rate. [s]

    ``weight``: bytes of the updated copy of a parameter that goes to the drives as well, 0 where
    the weights are elsewhere.

    >>> float(nvme_time(1e9, 0.0, 8e9, 8e9)), float(nvme_time(1e9, 2.0, 8e9, 8e9))
    (4.0, 4.25)
    """
    return np.asarray(parameters) * (NVME_READ / read + (NVME_WRITE + weight) / write)
