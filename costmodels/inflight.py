"""Micro-batches whose activations a pipeline stage holds at once."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Numeric


def in_flight(
    stage: Numeric, pp: int, micro_batches: Numeric, virtual_stages: Numeric = 1
) -> Numeric:
    r"""Micro-batches in flight on a stage, in units of the whole stage's activations.

    .. math:: \min\left(m, p - i\right), \qquad
              \min\left(m, \frac{2 (p - i - 1) + (v - 1) p + 1}{v}\right) \text{ interleaved}

    Parameters
    ----------
    stage : Numeric
        Index i of the stage, from 0. [-]
    pp : int
        Stages p. [-]
    micro_batches : Numeric
        Micro-batches of a step, m. [-]
    virtual_stages : Numeric
        Model chunks of a stage, v; 1 is 1F1B, more is interleaved 1F1B. [-]

    Returns
    -------
    Numeric
        Micro-batches, a fraction where chunks of several are held. [-]

    References
    ----------
    .. [1] Narayanan et al. 2021, arXiv 2104.04473, section 2.2.
    .. [2] Megatron-LM, megatron/core/pipeline_parallel/schedules.py, number of warm-up
       micro-batches of the interleaved schedule; one more is in flight in the steady state.

    Examples
    --------
    >>> [int(in_flight(i, 4, 8)) for i in range(4)]
    [4, 3, 2, 1]
    >>> float(in_flight(0, 4, 8, 2))
    5.5
    """
    v = np.asarray(virtual_stages)
    plain = pp - np.asarray(stage)
    chunks = 2 * (pp - np.asarray(stage) - 1) + (v - 1) * pp + 1
    held = np.where(v > 1, chunks / v, plain)
    return np.minimum(micro_batches, np.maximum(held, 1))
