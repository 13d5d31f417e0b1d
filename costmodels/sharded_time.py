"""Parameters that are gathered or fetched layer by layer: ZeRO-3, FSDP, parameter offload."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.collectives import call_latency, group_bandwidth, ring_share
from costmodels.configuration import OFFLOAD_TIERS, Configuration
from costmodels.costs import Affine
from costmodels.edge_time import Stages
from costmodels.held import Held, ends_held, summed_each, weights_sharded
from costmodels.numeric import Numeric
from costmodels.offload_time import ADDED_SHARE, link_time, round_trips
from costmodels.rates import Rates

# s, one gather or scatter of a layer besides its hops (llm-foundry A100 and H100 runs)
UNIT_LATENCY = 40e-6
HIDDEN_COST = 0.05  # of communication under computation, whose kernels share the GPU; assumed


@dataclass(frozen=True, slots=True)
class Streams:
    """What has to arrive while a layer computes. [s]

    ``gather``: its weights from the other ranks, once a pass. ``scatter``: its gradients to them,
    or summed over them. ``fetch``: its weights from the host, once a pass. ``settle``: its
    gradients to and from the host, under the backward; ``waited``: such that the CPU adds up,
    which nothing hides. ``root`` and ``root_last``: the gathers, and scatters, of what the first
    and the last stage hold besides layers, in one micro-batch; ``root_waited``: their gradients on
    the host.
    ``gathering``, ``regathering``, ``scattering``: shares of the micro-batches whose forward
    gathers a layer, whose backward does, and whose backward scatters its gradients. [-]
    """

    gather: Numeric
    scatter: Numeric
    fetch: Numeric
    settle: Numeric
    waited: Numeric
    root: Numeric
    root_last: Numeric
    root_waited: Numeric
    gathering: Numeric
    regathering: Numeric
    scattering: Numeric


def streams(stages: Stages, rates: Rates) -> Streams:
    """Times of one layer's transfers; 0 where the configuration has none."""
    cfg, layer = stages.cfg, stages.layer
    zero, profile = np.asarray(cfg.zero_stage), cfg.stack.memory
    each = np.asarray(cfg.stack.time.zero2_each_micro_batch) & (zero == 2)
    ends_settle, ends_waited = gradient_times(stages, rates, ends_held(cfg, 1, 1))
    settle, waited = gradient_times(stages, rates, layer)
    gathering, regathering, scattering = shares(cfg)
    parts, late = weights_sharded(cfg), profile.engine == "fsdp" and profile.whole_root
    # a sum over replicas is a scatter and a gather
    ways = np.where(parts | each, 1.0, np.where(summed_each(cfg), 2.0, 0.0))

    def root(first: int, last: int) -> Numeric:
        held = ends_held(cfg, first, last)
        time = (gathering + regathering) * moved(stages, rates, held, rates.weight_bytes)
        if late:  # one unit, reduced after everything else
            time = time + scattering * moved(stages, rates, held, rates.reduced_bytes)
        return np.where(parts, time, 0.0)

    return Streams(
        gather=np.where(parts, moved(stages, rates, layer, rates.weight_bytes), 0.0),
        scatter=moved(stages, rates, layer, rates.reduced_bytes) * ways,
        fetch=fetch_time(stages, rates),
        settle=settle,
        waited=waited,
        root=root(1, int(cfg.pp == 1)),
        root_last=root(0, 1) if cfg.pp > 1 else np.asarray(0.0),
        root_waited=ends_settle + ends_waited,
        gathering=gathering,
        regathering=regathering,
        scattering=scattering,
    )


def moved(stages: Stages, rates: Rates, part: Held, bytes_: float) -> Numeric:
    """One gather or scatter of ``part`` at so many bytes a parameter. [s]"""
    cfg, ranks = stages.cfg, stages.layer.shards
    latency = UNIT_LATENCY + call_latency(rates.links, 1.0, ranks, cfg.tp)
    bandwidth = group_bandwidth(rates.links, ranks, cfg.tp)
    time = ring_share(ranks) * part.total * bytes_ / bandwidth + latency
    return np.where(np.asarray(ranks) > 1, time, 0.0)


def shares(cfg: Configuration) -> tuple[Numeric, Numeric, Numeric]:
    """Shares of micro-batches that gather forward, gather backward, and scatter. [-]

    Where FSDP keeps layers gathered after their forward, at stage 2, backwards find them there and
    free them (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, reshard, post_backward).
    In a pipeline (torch/distributed/pipelining/stage.py) backwards leave weights gathered and
    reduce nothing; the step ends with one scatter, layer after layer. Weights are gathered once a
    step, or where each forward frees them in every backward, and in the forwards before the first
    of those.
    """
    one, none = np.asarray(1.0), np.asarray(0.0)
    if cfg.stack.memory.engine != "fsdp":
        return one, one, one
    m = np.asarray(cfg.grad_accum, dtype=float)
    if cfg.pp == 1:
        again = np.where(np.asarray(cfg.zero_stage) >= 3, 1.0, 0.0)
        return one, again, one if cfg.stack.memory.sync_each_micro_batch else one / m
    if cfg.stack.time.stage_reshards:
        return np.minimum(cfg.pp - cfg.stage, m) / m, one, none
    return one / m, none, none


def late_scatter(stages: Stages, rates: Rates) -> Affine:
    """Gradients of an FSDP pipeline, scattered after its last backward; nothing hides them. [s]"""
    cfg = stages.cfg
    if cfg.stack.memory.engine != "fsdp" or cfg.pp == 1:
        return Affine()
    parts, bytes_ = weights_sharded(cfg), rates.reduced_bytes
    rest: Numeric = np.asarray(0.0)
    for part in stages.rest:
        rest = rest + np.where(np.asarray(part.total) > 0, moved(stages, rates, part, bytes_), 0.0)
    layer = moved(stages, rates, stages.layer, bytes_)
    return Affine(np.where(parts, rest, 0.0), np.where(parts, layer, 0.0))


def gradient_times(stages: Stages, rates: Rates, part: Held) -> tuple[Numeric, Numeric]:
    """Gradients between GPU and host in a micro-batch's backward: copies, and sums of the CPU. [s]

    FSDP2 waits for a copy only where the CPU then adds it, from the second micro-batch on
    (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce).
    """
    cfg, host, g = stages.cfg, rates.host, rates.gradient_bytes
    kind, used = cfg.stack.time.host_gradients, np.asarray(cfg.offload_optimizer) > 0
    owned, none = part.over(1), np.asarray(0.0)
    if kind == "gpu_sum":
        down, up = round_trips(cfg.zero_stage, cfg.grad_accum)
        copied = link_time(down * g * owned, host.to_host)
        return np.where(used, copied + link_time(up * g * owned, host.to_device), 0.0), none
    if kind == "cpu_sum" and cfg.pp == 1:  # pipeline stages reduce in the last backward only
        m = np.asarray(cfg.grad_accum, dtype=float)
        added = owned * rates.links.gpus_per_node * host.update_seconds * ADDED_SHARE
        each = link_time(g * owned, host.to_host) + added
        return none, np.where(used, (m - 1.0) / m * each, 0.0)
    return none, none


def fetch_time(stages: Stages, rates: Rates) -> Numeric:
    """A layer's weights from host memory, or from the drives, each rank its share. [s]"""
    tier = np.asarray(stages.cfg.offload_parameters)
    share = stages.cfg.stack.memory.weights[stages.cfg.precision] * stages.layer.over(1)
    over_link = link_time(share, rates.host.to_device)
    node = share * rates.links.gpus_per_node
    from_drives = np.maximum(over_link, node / rates.host.nvme_read)
    nvme = tier == OFFLOAD_TIERS.index("nvme")
    return np.where(tier > 0, np.where(nvme, from_drives, over_link), 0.0)


def exposed(work: Numeric, moved: Numeric, fetch: Numeric) -> tuple[Numeric, Numeric]:
    """What gathering, and what fetching, adds to ``work``.

    The next layer's weights arrive while one computes: the longest of the three counts, and
    hidden communication slows the work by ``HIDDEN_COST`` of itself.

    >>> [round(float(t), 3) for t in exposed(1.0, 1.5, 2.0)]
    [0.55, 0.5]
    """
    beyond = np.maximum(np.asarray(moved) - work, 0.0)
    contention = HIDDEN_COST * np.minimum(moved, work)
    beyond_fetch = np.maximum(np.asarray(fetch) - np.maximum(moved, work), 0.0)
    return beyond + contention, beyond_fetch
