"""The time of a training step, as costs that are affine in what a stage holds."""

from __future__ import annotations

import numpy as np

from costmodels import edge_time, layer_time
from costmodels.configuration import Configuration
from costmodels.costs import GRANULARITIES, SEGMENT, Parts, TimeCosts, total
from costmodels.edge_time import HOST_BACKWARD, Stages
from costmodels.module_time import recomputed_modules
from costmodels.numeric import Numeric
from costmodels.pipeline import hop_time, interleaved_fill
from costmodels.rates import Rates, rates_of
from costmodels.sharded_time import Streams, exposed, late_scatter, streams

# s, issuing the kernels of a plain softmax instead of one fused: vTrain's tp 8, one sequence
PLAIN_SOFTMAX_HOST = 2.7e-4


def time_costs(configuration: Configuration) -> TimeCosts:
    """What one step of a configuration costs in time.

    Parameters
    ----------
    configuration : Configuration
        One configuration, or an array of them that agree in the categorical fields.

    Returns
    -------
    TimeCosts
        Parts named after what they are: gemm, attention, memory_bound, launch (time the host
        needs beyond the GPU's work), tp, cp, ep, dp (exposed communication), pp, offload,
        optimizer. [s]

    Raises
    ------
    ValueError
        If the GPU lacks the precision, or no kernel exists for the attention asked for.
    """
    cfg = configuration
    rates = rates_of(cfg)
    stages = edge_time.stages_of(cfg)
    moves = streams(stages, rates)
    forward, backward = _layer(cfg, rates, stages)
    again = {g: _recomputed(cfg, rates, forward, g) for g in GRANULARITIES}
    plain = _with_streams(backward, moves, {})
    boundary = _boundary(cfg, rates)
    gradients, latency = edge_time.data_parallel(stages, rates)
    first, last = dict(edge_time.embedding(cfg, rates)), dict(edge_time.head(cfg, rates))
    first["dp"], last["dp"] = moves.root, moves.root_last
    first["offload"] = moves.root_waited
    return TimeCosts(
        forward=_with_streams(forward, moves, None),
        backward=plain,
        recompute={
            g: _difference(_with_streams(backward, moves, extra), plain)
            for g, extra in again.items()
        },
        embedding=first,
        head=last,
        boundary=boundary,
        edge={
            "dp": (gradients.plus(late_scatter(stages, rates)),),
            "optimizer": (edge_time.optimizer(stages, rates),),
            "offload": (edge_time.offload(stages, rates),),
        },
        fixed={
            "dp": latency,
            "pp": interleaved_fill(boundary, cfg.virtual_stages, cfg.pp),
            "bubble": np.asarray(_overlapped_delays(cfg)),
        },
    )


def _layer(cfg: Configuration, rates: Rates, stages: Stages) -> tuple[Parts, Parts]:
    """Forward and backward of a layer without parameter streams, host time included."""
    attention, products = layer_time.attention(cfg, rates), layer_time.gemm(cfg, rates)
    pairs = {
        "gemm": products,
        "attention": attention,
        "memory_bound": layer_time.memory_bound(cfg, rates, stages.layer.total),
        "tp": layer_time.tensor_parallel(cfg, rates, products[0]),
        "cp": layer_time.context_parallel(cfg, rates, attention),
        "ep": layer_time.expert_parallel(cfg, rates),
    }
    time = cfg.stack.time
    extra = _tensor_parallel_host(cfg)
    extra = extra + np.where(layer_time.plain_softmax(cfg), PLAIN_SOFTMAX_HOST, 0.0)
    extra = extra + np.where(np.asarray(cfg.zero_stage) >= 3, time.host_zero3, 0.0)
    floors = (time.host_layer + extra, HOST_BACKWARD * time.host_layer + extra)
    passes = []
    for i, floor in enumerate(floors):
        parts: dict[str, Numeric] = {name: pair[i] for name, pair in pairs.items()}
        parts["launch"] = np.maximum(floor - total(parts), 0.0)
        passes.append(parts)
    return passes[0], passes[1]


def _tensor_parallel_host(cfg: Configuration) -> Numeric:
    """What issuing a layer takes longer where tensor parallelism synchronises its ranks."""
    tp, time = np.asarray(cfg.tp, dtype=float), cfg.stack.time
    more_nodes = np.ceil(tp / cfg.cluster.gpus_per_node) - 1.0
    pipelined = cfg.pp > 1 and cfg.cluster.nodes > 1
    extra = time.host_tp * (tp - 1.0) + time.host_tp_node * more_nodes
    extra = extra + (time.host_tp_pipeline * tp if pipelined else 0.0)
    return np.where(tp > 1, extra, 0.0)


def _recomputed(cfg: Configuration, rates: Rates, forward: Parts, granularity: str) -> Parts:
    """What a granularity runs again in the backward."""
    if granularity == "none":
        return {}
    if granularity != "selective":
        whole = cfg.stack.time.repeats_output
        return forward if whole else _without_output(cfg, rates, forward, SEGMENT[granularity])
    kind = cfg.stack.memory.selective
    if kind == "attention":
        return {"attention": forward["attention"]}
    if kind == "activations":
        return {"memory_bound": forward["memory_bound"]}
    if kind == "modules":
        return recomputed_modules(cfg, forward)
    return {"gemm": 0.5 * forward["gemm"], "memory_bound": forward["memory_bound"]}


def _without_output(cfg: Configuration, rates: Rates, forward: Parts, layers: int) -> Parts:
    """A forward that stops before the last product of ``layers`` layers, and its reduction.

    Non-reentrant checkpoints end when the last saved tensor is back (torch/utils/checkpoint.py,
    early_stop), compiled ones drop what nothing reads.
    """
    product = layer_time.last_product(cfg, rates) / layers
    reduced = layer_time.last_reduction(cfg) / layers * forward["tp"]
    parts = dict(forward)
    parts["gemm"], parts["tp"] = parts["gemm"] - product, parts["tp"] - reduced
    idle = np.where(np.asarray(parts["launch"]) > 0, product + reduced, 0.0)
    parts["launch"] = parts["launch"] + idle
    return parts


def _with_streams(work: Parts, moves: Streams, recomputed: Parts | None) -> Parts:
    """A pass with its transfers; ``recomputed`` is None in the forward."""
    parts = dict(work)
    for name, value in (recomputed or {}).items():
        parts[name] = parts[name] + value
    work_time = total(parts)
    often = moves.gathering
    settle: Numeric = np.asarray(0.0)
    waited: Numeric = np.asarray(0.0)
    scattering: Numeric = np.asarray(0.0)
    scatter: Numeric = np.asarray(0.0)
    if recomputed is not None:
        often, scattering, scatter = moves.regathering, moves.scattering, moves.scatter
        settle, waited = moves.settle, moves.waited
    gathers: Numeric = np.asarray(0.0)
    fetches: Numeric = np.asarray(0.0)
    for share, moved, fetched in (
        (often * scattering, moves.gather + scatter, moves.fetch),
        (often * (1.0 - scattering), moves.gather, moves.fetch),
        ((1.0 - often) * scattering, scatter, 0.0),
        ((1.0 - often) * (1.0 - scattering), 0.0, 0.0),
    ):
        more, beyond = exposed(work_time, moved, fetched + settle)
        gathers, fetches = gathers + share * more, fetches + share * beyond
    parts["dp"], parts["offload"] = gathers, fetches + waited
    return parts


def _difference(more: Parts, less: Parts) -> Parts:
    """Part by part; a part may be negative where recomputation hides communication."""
    return {name: more[name] - less[name] for name in more}


def _boundary(cfg: Configuration, rates: Rates) -> Numeric:
    """One stage boundary, 0 in a pipeline of one stage."""
    tp = np.asarray(cfg.tp)
    split = np.where(cfg.stack.time.hop_split | (np.asarray(cfg.sequence_parallel) > 0), tp, 1)
    size = cfg.tokens * cfg.architecture.hidden * rates.element / split
    per_stage = tp * cfg.cp * cfg.dp
    x = cfg.stack.time.hop_exposed * hop_time(rates.links, size, per_stage, cfg.virtual_stages)
    # a stage sends and receives in both directions, at both of its ends unless it is an end
    x = x + _hop_delay(cfg) * (2.0 if cfg.pp > 2 else 1.0)
    return x if cfg.pp > 1 else np.zeros_like(x)


def _hop_delay(cfg: Configuration) -> float:
    time = cfg.stack.time
    return time.hop_delay if cfg.cluster.nodes >= time.hop_delay_nodes else 0.0


def _overlapped_delays(cfg: Configuration) -> float:
    """What ``pipeline_time`` counts too much while the pipeline fills: 1.5 delays a stage."""
    counted = 4.0 if cfg.pp > 2 else 2.0
    return (1.5 - counted) * (cfg.pp - 1) * _hop_delay(cfg)
