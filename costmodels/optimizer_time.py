"""The optimizer's step on the GPU: it streams its states once."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Numeric

# Bytes a parameter's states are read and written with in one step, beyond gradient, master copy
# and weight: 2 x 4 for each 32-bit state. Adafactor keeps no full state but writes and reads an
# update; 8-bit Adam has two states of a byte.
STATE_TRAFFIC = {
    "sgd": 0.0,
    "momentum": 8.0,
    "adam": 16.0,
    "adamw": 16.0,
    "adafactor": 8.0,
    "adam8bit": 4.0,
    "lion": 8.0,
    "muon": 8.0,
}
NEWTON_SCHULZ_STEPS = 5  # Muon's reference implementation


def step_bytes(optimizer: str, gradient: float = 4.0, weight: float = 2.0) -> float:
    """Bytes one parameter's update moves in device memory.

    Read the gradient, once more for the global norm, and zero it; read and write the 32-bit
    master (the weight itself where weights are 32-bit) and the states; write the weight.

    Raises
    ------
    ValueError
        If the optimizer is unknown.

    Examples
    --------
    >>> step_bytes("adamw")
    38.0
    """
    if optimizer not in STATE_TRAFFIC:
        known = ", ".join(sorted(STATE_TRAFFIC))
        raise ValueError(f"unknown optimizer {optimizer!r}: expected one of {known}")
    copy = weight if weight < 4.0 else 0.0
    return 3.0 * gradient + 8.0 + STATE_TRAFFIC[optimizer] + copy


def newton_schulz_flops(rows: float) -> float:
    """FLOPs of Muon's orthogonalisation for one parameter of a matrix with ``rows`` rows.

    A step is X <- a X + (b A + c A A) X with A = X X^T: 2 r + 2 r + 2 r^2 / c for a matrix
    r x c, at most 6 r. [FLOP]

    >>> newton_schulz_flops(1024.0)
    30720.0
    """
    return NEWTON_SCHULZ_STEPS * 6.0 * rows


def stream_time(parameters: Numeric, bytes_: float, bandwidth: float) -> Numeric:
    """Time to step ``parameters`` at ``bytes_`` each. [s]"""
    return np.asarray(parameters) * bytes_ / bandwidth
