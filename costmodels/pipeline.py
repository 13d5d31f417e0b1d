"""Pipeline parallelism: the schedule's length and the hop between stages."""

from __future__ import annotations

import numpy as np

from costmodels.collectives import Links
from costmodels.numeric import Numeric

HOP_LATENCY = 20e-6  # s, launch and handshake of one send and receive


def pipeline_time(
    slowest: Numeric,
    total: Numeric,
    micro_batches: Numeric,
    virtual_stages: Numeric,
    boundary: Numeric,
    pp: Numeric,
) -> Numeric:
    r"""Length of a synchronous (interleaved) 1F1B schedule.

    .. math:: m (t_{max} + 2x) + \frac{\sum_i t_i - t_{max}}{v} + 2 (p - 1) x

    Parameters
    ----------
    slowest, total : Numeric
        Forward and backward of one micro-batch: of the slowest stage, and summed over stages,
        without the hops. [s]
    micro_batches, virtual_stages, pp : Numeric
        m, v and p. [-]
    boundary : Numeric
        One crossing of a stage boundary by one micro-batch in one direction, x. [s]

    Returns
    -------
    Numeric
        Time. [s]

    References
    ----------
    .. [1] Narayanan et al. 2021, arXiv 2104.04473: bubble (p - 1) / v m of the ideal.
    .. [2] Fan et al. 2021, DAPPLE: the slowest stage sets the steady state.

    Examples
    --------
    >>> float(pipeline_time(2.0, 8.0, 8, 1, 0.0, 4))
    22.0
    """
    x = np.where(np.asarray(pp) > 1, boundary, 0.0)
    steady = np.asarray(micro_batches) * (slowest + 2.0 * x)
    ramp = (np.asarray(total) - slowest) / virtual_stages
    return steady + ramp + 2.0 * (np.asarray(pp) - 1.0) * x


def interleaved_fill(boundary: Numeric, virtual_stages: Numeric, pp: Numeric) -> Numeric:
    """What the ramp of ``pipeline_time`` exceeds one with the hops inside the stage times.

    With t_i + 2x for every stage time the sum is m (t_max + 2x) + (sum - t_max) / v +
    2 (p - 1) x / v; the rest of the 2 (p - 1) x is constant. [s]
    """
    hops = 2.0 * (np.asarray(pp) - 1.0) * boundary
    return hops * (1.0 - 1.0 / np.asarray(virtual_stages, dtype=float))


def hop_time(
    links: Links, size: Numeric, gpus_per_stage: Numeric, virtual_stages: Numeric
) -> Numeric:
    """One micro-batch across one stage boundary, all its model chunks.

    A stage that fills whole nodes sends over the network, each GPU over its share of it.

    Parameters
    ----------
    size : Numeric
        Bytes one rank sends. [byte]
    gpus_per_stage : Numeric
        Ranks of a stage, tp * cp * dp: the distance between neighbours. [-]

    Returns
    -------
    Numeric
        Time. [s]
    """
    rail = np.minimum(links.node / links.gpus_per_node, links.pair)
    bandwidth = np.where(np.asarray(gpus_per_stage) >= links.gpus_per_node, rail, links.pair)
    return np.asarray(virtual_stages) * (size / bandwidth + HOP_LATENCY)
