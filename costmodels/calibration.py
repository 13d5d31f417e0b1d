"""Fitting constants to measurements: how far a few runs move them from where they stand."""

from __future__ import annotations

import numpy as np

from costmodels.numeric import Array, Numeric

SOFT = 0.05  # log error from which a run counts linearly, so that an outlier does not decide
# How far, in log, a constant usually lies from its shipped value: sustained GEMM rates of one
# GPU differ by 10 % between clusters, the rest between stacks.
SPREAD = {
    "gemm_factor": 0.1,
    "memory_factor": 0.3,
    "tp_factor": 0.5,
    "tp_latency": 1.0,
    "host_layer": 0.7,
    "host_tp": 1.0,
}
REWEIGHTED = 30  # rounds; ten suffice


def soft_ridge(
    error: Array,
    slope: Array,
    pull: Array,
    soft: float,
    away: Numeric = 0.0,
    weight: Numeric = 1.0,
) -> Array:
    r"""The move of constants that soft errors and a prior ask for.

    Minimises :math:`\sum_i w_i \rho(e_i + s_i \cdot x) + \sum_f p_f^2 (a_f + x_f)^2` with the
    soft-L1 :math:`\rho(e) = 2 c^2 (\sqrt{1 + (e / c)^2} - 1)`, by iterated reweighting.

    Parameters
    ----------
    error : Array
        ln predicted - ln measured of every run, e, shape (n,). [-]
    slope : Array
        How the predictions move with each constant, s, shape (n, k).
    pull : Array
        How strongly each constant is held, p, shape (k,): ``soft`` over its spread. [-]
    soft : float
        Error from which a run counts linearly, c. [-]
    away : Numeric
        Distance of each constant from its prior before the move, a, shape (k,).
    weight : Numeric
        Of the runs, w, shape (n,). [-]

    Returns
    -------
    Array
        The move x, shape (k,); without runs it leads back to the prior.

    Examples
    --------
    Four runs that are 10 % too slow, one of them wrong by far:

    >>> error, slope = np.log([1.1, 1.1, 1.1, 3.0]), np.ones((4, 1))
    >>> round(float(soft_ridge(error, slope, np.array([0.1]), 0.05)[0]), 2)
    -0.11
    """
    move: Array = np.zeros(slope.shape[1])
    for _ in range(REWEIGHTED):
        now = error + slope @ move
        own = weight / np.sqrt(1.0 + (now / soft) ** 2)
        normal = slope.T @ (own[:, None] * slope) + np.diag(pull**2)
        gradient = slope.T @ (own * now) + pull**2 * (away + move)
        move = move - np.linalg.solve(normal, gradient)
    return move
