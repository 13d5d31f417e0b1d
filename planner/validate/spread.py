"""How far measurements lie from predictions: intervals from few runs, with those of neighbours.

Residuals are ``ln(measured / predicted)`` of held-out predictions. Runs of one group (a model on a
cluster with one sequence length and global batch) resemble one another, so a group of n runs counts
as ``n / (1 + (n - 1) rho)`` of them, rho being the correlation inside groups over all kinds. An
interval takes the conformal quantiles of a kind's own residuals. Where they are worth fewer than
``ENOUGH`` runs, residuals of other kinds stand in for those that are missing: divided by their own
kind's scale, multiplied by this kind's, and taken with both signs. The scale of a kind is its mean
absolute residual, drawn to that of the other kinds by empirical Bayes: the less, the more runs it
has and the more kinds differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from costmodels.numeric import Array

HELD = 0.90  # share of new runs that an interval is to hold
TAIL = (1 - HELD) / 2
ENOUGH = 19  # runs: (n + 1) TAIL = 1, the fewest whose extremes are conformal bounds
SCALE_VARIANCE = np.pi / 2 - 1  # of |x| / mean |x| of a normal variable
LEAST_SCALE = 1e-4  # a kind predicted exactly is not known better than that
LEAST_KINDS = 2  # that can lend: of one alone nobody knows how much kinds differ
CLIP = 3.0  # scales, beyond which a residual says nothing about its group
LEAST_VARIANCE = 0.05  # of logarithms of scales between kinds


@dataclass(frozen=True, slots=True)
class Residuals:
    """Residuals of comparable runs and their groups, arrays (n,)."""

    value: Array  # ln(measured / predicted) [-]
    group: Array  # a whole number, the same inside a group

    def of(self, chosen: Array) -> Residuals:
        """Some of them."""
        return Residuals(self.value[chosen], self.group[chosen])

    @property
    def groups(self) -> Array:
        """Every group once."""
        return np.unique(self.group)


def group_correlation(samples: Mapping[str, Residuals]) -> float:
    """Correlation of two runs of one group, over all kinds; every kind counts alike.

    The intraclass correlation by mean products of pairs, residuals cut at ``CLIP`` scales.
    """
    pairs = total = 0.0
    for sample in samples.values():
        scale = max(float(np.abs(sample.value).mean()), LEAST_SCALE)
        z = np.clip(sample.value / scale, -CLIP, CLIP)
        z = z - z.mean()
        found = []
        for group in sample.groups:
            own = z[sample.group == group]
            if len(own) > 1:
                found.append((own.sum() ** 2 - (own**2).sum()) / (len(own) * (len(own) - 1)))
        if found:
            pairs += float(np.mean(found))
            total += float((z**2).mean())
    return float(np.clip(pairs / total, 0.0, 1.0)) if total else 0.0


def weights(group: Array, rho: float) -> Array:
    """How much each run counts, its group's size n taken into account: 1 / (1 + (n - 1) rho).

    >>> weights(np.array([1, 1, 2]), 1.0).tolist()
    [0.5, 0.5, 1.0]
    """
    _, place, count = np.unique(group, return_inverse=True, return_counts=True)
    result: Array = 1 / (1 + (count[place] - 1) * rho)
    return result


def conformal(value: Array, weight: Array) -> tuple[float, float]:
    """Bounds that hold a new value with probability ``HELD``, from weighted values.

    With equal weights the order statistics of split conformal prediction: below the lower one
    lies at most ``TAIL`` of n + 1 values, the new one included.

    >>> conformal(np.arange(1.0, 20.0), np.ones(19))
    (1.0, 19.0)
    """
    order = np.argsort(value, kind="stable")
    x, w = value[order], weight[order]
    allowed = TAIL * (w.sum() + 1) * (1 + 1e-9)
    low = max(0, int(np.searchsorted(np.cumsum(w), allowed, side="right")) - 1)
    high = max(0, int(np.searchsorted(np.cumsum(w[::-1]), allowed, side="right")) - 1)
    return float(x[low]), float(x[len(x) - 1 - high])


class Pool:
    """Kinds whose residuals lend one another their spread.

    Parameters
    ----------
    samples : Mapping[str, Residuals]
        None of them empty. Of fewer than ``LEAST_KINDS`` other kinds nothing is lent.
    """

    def __init__(self, samples: Mapping[str, Residuals]) -> None:
        self.samples = dict(samples)
        self.rho = group_correlation(samples)
        self._log_scale = {name: self._own_scale(s) for name, s in samples.items()}
        self._standard = {name: self._standardised(name) for name in samples if self.lends((name,))}

    def worth(self, sample: Residuals) -> float:
        """Independent runs that a sample counts as."""
        return float(weights(sample.group, self.rho).sum())

    def interval(self, own: Residuals, but: Collection[str] = ()) -> tuple[float, float]:
        """Bounds of ``ln(measured / predicted)`` for runs like some; zero lies between them.

        Parameters
        ----------
        own : Residuals
            Of comparable runs, possibly none.
        but : Collection[str]
            Kinds of the pool those come from: no neighbours of theirs.
        """
        value, weight = own.value, weights(own.group, self.rho)
        missing = ENOUGH - float(weight.sum())
        if missing > 0 and self.lends(but):
            z, share = self._neighbours(but)
            value = np.concatenate([value, z * self.scale(own, but)])
            weight = np.concatenate([weight, share * missing])
        low, high = conformal(value, weight) if len(value) else (0.0, 0.0)
        return min(0.0, low), max(0.0, high)

    def lends(self, but: Collection[str] = ()) -> bool:
        """Whether there are enough neighbours to lend their spread to anyone."""
        others = set(self.samples) - set(but)
        return len(others) >= LEAST_KINDS and len(self.samples) > LEAST_KINDS

    def inside(self, sample: Residuals, but: Collection[str] = ()) -> Array:
        """Whether each of some runs lies in the interval made without its group."""
        result = np.zeros(len(sample.value), dtype=bool)
        for group in sample.groups:
            out = sample.group == group
            low, high = self.interval(sample.of(~out), but)
            result[out] = (low <= sample.value[out]) & (sample.value[out] <= high)
        return result

    def scale(self, own: Residuals, but: Collection[str] = ()) -> float:
        """Mean absolute residual of some runs, drawn to that of their neighbours."""
        others = [both for name, both in self._log_scale.items() if name not in but]
        logs, worths = np.array(others).T
        mean, noise = float(logs.mean()), float((SCALE_VARIANCE / worths).mean())
        if not len(own.value):
            return float(np.exp(mean))
        pull = SCALE_VARIANCE / max(LEAST_VARIANCE, float(logs.var()) - noise)
        log, worth = self._own_scale(own)
        return float(np.exp((worth * log + pull * mean) / (worth + pull)))

    def _own_scale(self, sample: Residuals) -> tuple[float, float]:
        """Logarithm of a sample's weighted mean absolute residual, and the runs it counts as."""
        w = weights(sample.group, self.rho)
        mean = float((w * np.abs(sample.value)).sum() / w.sum())
        return float(np.log(max(mean, LEAST_SCALE))), float(w.sum())

    def _standardised(self, name: str) -> tuple[Array, Array]:
        """Residuals over the scale of their kind without their group, and weights; sum 1."""
        sample = self.samples[name]
        z = np.zeros(len(sample.value))
        for group in sample.groups:
            out = sample.group == group
            z[out] = sample.value[out] / self.scale(sample.of(~out), (name,))
        w = weights(sample.group, self.rho)
        return z, w / w.sum()

    def _neighbours(self, but: Collection[str]) -> tuple[Array, Array]:
        """Standardised residuals with both signs, every kind counting alike; weights sum to 1."""
        others = [both for name, both in self._standard.items() if name not in but]
        z = np.concatenate([z for z, _ in others])
        w = np.concatenate([w for _, w in others]) / (2 * len(others))
        return np.concatenate([z, -z]), np.concatenate([w, w])
