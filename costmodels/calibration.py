"""Fitting the few free constants of a time profile to measured steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from costmodels.numeric import Array
from costmodels.time_profile import FITTED, TimeProfile

SOFT = 0.05  # log error from which a run counts linearly, so that an outlier does not decide
# How far, in log, a constant usually lies from its shipped value: sustained GEMM rates of one
# GPU differ by 10 % between clusters, the rest between stacks.
SPREAD = {
    "gemm_factor": 0.1,
    "memory_factor": 0.3,
    "tp_factor": 0.5,
    "host_layer": 0.7,
    "host_tp": 1.0,
}
STEP = 1e-3  # of a log constant, for the derivative
ITERATIONS = 12
SLOW_HOST = 2.5  # a second start for the host's time


def fit_profile(
    profile: TimeProfile,
    fields: Sequence[str],
    predict: Callable[[TimeProfile], Array],
    measured: Array,
    weight: float = 1.0,
) -> TimeProfile:
    r"""The profile with ``fields`` adjusted to measured times.

    Minimises :math:`\sum_i \rho(\ln (T_i / \hat T_i)) + w \sum_f (\Delta \ln f / \sigma_f)^2`
    with a soft-L1 :math:`\rho`, by Levenberg-Marquardt in the logarithms of the constants: a
    field no run depends on stays where it was.

    Parameters
    ----------
    profile : TimeProfile
        Where to start, and what the fit is drawn to.
    fields : Sequence[str]
        Which constants, of ``FITTED``.
    predict : Callable
        Times of all runs under a profile, shape (n,). [s]
    measured : Array
        Times of all runs, shape (n,). [s]
    weight : float
        How strongly to hold on to ``profile``: the runs one prior is worth. [-]

    Returns
    -------
    TimeProfile
        A copy with the fields replaced.

    Raises
    ------
    ValueError
        If a field cannot be fitted, or there are no runs.
    """
    unknown = sorted(set(fields) - set(FITTED))
    if unknown:
        raise ValueError(f"cannot fit {', '.join(unknown)}: expected some of {', '.join(FITTED)}")
    if np.size(measured) == 0:
        raise ValueError("no measured run to fit to")
    start = np.log([max(float(getattr(profile, f)), 1e-6) for f in fields])
    spread = np.array([SPREAD[f] for f in fields])
    target = np.log(np.asarray(measured, dtype=float))

    def profile_at(x: Array) -> TimeProfile:
        return profile.model_copy(update=dict(zip(fields, np.exp(x).tolist(), strict=True)))

    def residuals(x: Array) -> Array:
        error = _soft(np.log(predict(profile_at(x))) - target)
        pull = np.sqrt(weight) * SOFT * (x - start) / spread
        return np.concatenate([error, pull])

    found = [_levenberg_marquardt(residuals, x) for x in _starts(start, fields)]
    return profile_at(min(found, key=lambda x: float(np.sum(residuals(x) ** 2))))


def _starts(start: Array, fields: Sequence[str]) -> list[Array]:
    """The start, and one with a slower host: a floor below every run has no slope to follow."""
    if "host_layer" not in fields:
        return [start]
    slow = start.copy()
    slow[list(fields).index("host_layer")] += np.log(SLOW_HOST)
    return [start, slow]


def _soft(error: Array) -> Array:
    """Signed root of the soft-L1 loss: the error where small, its root where large."""
    loss = 2.0 * SOFT**2 * (np.sqrt(1.0 + (error / SOFT) ** 2) - 1.0)
    result: Array = np.sign(error) * np.sqrt(loss)
    return result


def _levenberg_marquardt(residuals: Callable[[Array], Array], start: Array) -> Array:
    """Minimise the sum of squared residuals with a numeric derivative."""
    x, r, damping = start.copy(), residuals(start), 1e-2
    for _ in range(ITERATIONS):
        steps = np.eye(x.size) * STEP
        jacobian = np.stack([(residuals(x + s) - r) / STEP for s in steps], axis=1)
        normal, gradient = jacobian.T @ jacobian, jacobian.T @ r
        for _ in range(6):
            scaled = normal + damping * np.diag(np.diag(normal) + 1e-12)
            trial = x - np.linalg.solve(scaled, gradient)
            new = residuals(trial)
            if new @ new < r @ r:
                break
            damping *= 4.0
        else:
            break
        gain = r @ r - new @ new
        x, r, damping = trial, new, damping / 4.0
        if gain < 1e-7 * (r @ r):
            break
    return x
