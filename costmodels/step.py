"""How the terms of a step combine: stages, pipeline, what follows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costmodels.configuration import Configuration
from costmodels.costs import Parts, TimeCosts
from costmodels.numeric import Array, Numeric
from costmodels.pipeline import pipeline_time


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of a step, in all and by part. [s]

    ``parts`` add up to ``total``. Those of a micro-batch (gemm, attention, memory_bound, launch,
    tp, cp, ep, dp, offload, pp) are those of the slowest stage, all its micro-batches together;
    ``bubble`` is what its idle time adds; those of the edge are those of the stage that ends
    last. ``stages``: forward and backward of one micro-batch on each stage, hops left out.
    """

    total: Numeric
    parts: Mapping[str, Numeric]
    stages: Array


def even_layers(layers: int, pp: int) -> Array:
    """Layers of each stage, the remainder on the first ones, shape (pp,).

    >>> even_layers(10, 4).tolist()
    [3, 3, 2, 2]
    """
    stage = np.arange(pp)
    return layers // pp + (stage < layers % pp)


def stage_parts(
    costs: TimeCosts, cfg: Configuration, layers: Numeric, granularity: Mapping[str, Numeric]
) -> dict[str, Numeric]:
    """Forward and backward of one micro-batch on each stage, by part, (pp,) or (n, pp). [s]"""
    first, last = cfg.stage == 0, cfg.stage == cfg.pp - 1
    parts: dict[str, Numeric] = {}

    def add(more: Parts, times: Numeric) -> None:
        for name, value in more.items():
            parts[name] = parts.get(name, 0.0) + np.asarray(value) * times

    add(costs.forward, layers)
    add(costs.backward, layers)
    for name, count in granularity.items():
        add(costs.recompute[name], count)
    add(costs.embedding, first)
    add(costs.head, last)
    return parts


def step_time(
    costs: TimeCosts,
    configuration: Configuration,
    layers: Numeric,
    granularity: Mapping[str, Numeric],
    offloaded: Numeric = 0,
) -> StepTime:
    r"""Time of one training step.

    .. math:: m (t_{max} + 2x) + \frac{\sum_i t_i - t_{max}}{v} + 2 (p - 1) x
              + \max_i \mathrm{edge}_i + \mathrm{fixed}

    Parameters
    ----------
    costs : TimeCosts
        Of the configuration.
    configuration : Configuration
        One, or an array of n.
    layers : Numeric
        Layers of each stage, (pp,) or (n, pp). [-]
    granularity : Mapping[str, Numeric]
        Layers of each stage by checkpoint granularity; those of ``none`` may be left out. [-]
    offloaded : Numeric
        Layers of each stage whose optimizer state is on the host. [-]

    Returns
    -------
    StepTime
        Scalars for one configuration, (n,) for an array of them.

    Raises
    ------
    ValueError
        If the shape of ``layers`` does not end in the number of stages.
    """
    cfg = configuration
    layers = np.asarray(layers)
    if layers.ndim == 0 or layers.shape[-1] != cfg.pp:
        raise ValueError(f"layers must be given for each of the {cfg.pp} stages")
    parts = stage_parts(costs, cfg, layers, granularity)
    edges = {
        name: _largest([a.at(layers, offloaded) for a in alternatives])
        for name, alternatives in costs.edge.items()
    }
    shape = np.broadcast_shapes(
        *(np.shape(v) for v in (*parts.values(), *edges.values(), layers)),
        np.shape(cfg.grad_accum),
        np.shape(costs.boundary),
    )
    stages, edge = _sum(parts, shape), _sum(edges, shape)
    m, v = (_column(x, shape) for x in (cfg.grad_accum, cfg.virtual_stages))
    x = _column(costs.boundary, shape)
    slowest, all_stages = stages.max(axis=-1), stages.sum(axis=-1)
    fixed = {name: _column(value, shape) for name, value in costs.fixed.items()}
    in_stages = pipeline_time(slowest, all_stages, m, v, x, cfg.pp)
    total = in_stages + edge.max(axis=-1) + sum(fixed.values()) - fixed.get("pp", 0.0)
    worst = stages.argmax(axis=-1)
    result = {name: m * _at(value, worst, shape) for name, value in parts.items()}
    result["pp"] = 2.0 * m * x
    result["bubble"] = in_stages - m * (slowest + 2.0 * x)
    ends = edge.argmax(axis=-1)
    for name, value in edges.items():
        result[name] = result.get(name, 0.0) + _at(value, ends, shape)
    for name, value in fixed.items():
        if name != "pp":  # in the bubble already
            result[name] = result.get(name, 0.0) + value
    return StepTime(total, result, stages)


def _largest(values: list[Numeric]) -> Numeric:
    result = values[0]
    for value in values[1:]:
        result = np.maximum(result, value)
    return result


def _sum(parts: Mapping[str, Numeric], shape: tuple[int, ...]) -> Array:
    result = np.zeros(shape)
    for value in parts.values():
        result = result + value
    return result


def _column(value: Numeric, shape: tuple[int, ...]) -> Array:
    """A value that does not depend on the stage, without the stage axis."""
    return np.broadcast_to(value, (*shape[:-1], 1))[..., 0]


def _at(value: Numeric, index: Array, shape: tuple[int, ...]) -> Array:
    """The value at one stage of each configuration."""
    full = np.broadcast_to(value, shape)
    return np.take_along_axis(full, np.asarray(index)[..., None], axis=-1)[..., 0]
