"""Collectives: bytes on the wire, who shares which link, and the time that takes.

Ranks are placed tp fastest, then cp, then dp, then pp. A group is its size and its stride.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.numeric import Array, Numeric

GATHER_SHARE = 0.9  # of the all-reduce bus bandwidth an all-gather or reduce-scatter reaches
GATHER_LATENCY = 22e-6  # s, fixed cost of a collective inside a node (SimuMax, B200: 22 - 26 us)
RING_LATENCY = 34e-6  # s, the same for an all-reduce where no size curve is known
NETWORK_LATENCY = 5e-6  # s for each further rank of a ring that leaves the node
TREE_LATENCY = 0.3e-3  # s for each doubling of a gradient collective that leaves the node
MEASURED_RANKS = 8  # ranks of the measured size curves


@dataclass(frozen=True, slots=True)
class Links:
    """What connects the GPUs.

    Parameters
    ----------
    gpus_per_node : int
        GPUs that reach each other without the network. [-]
    intra : float
        All-reduce bus bandwidth of a rank inside the node. [byte/s]
    pair : float
        Between two GPUs of the node. [byte/s]
    node : float
        Network bandwidth of a whole node, one way. [byte/s]
    sizes, bandwidths : Array
        Measured all-reduce bus bandwidth over the buffer size, 8 ranks in one node; empty where
        no curve is known. [byte, byte/s]
    """

    gpus_per_node: int
    intra: float
    pair: float
    node: float
    sizes: Array
    bandwidths: Array


def ring_share(ranks: Numeric) -> Numeric:
    """(n - 1) / n: the share of a buffer that crosses each link. [-]

    >>> float(ring_share(4))
    0.75
    """
    n: Array = np.asarray(ranks, dtype=float)
    share: Array = (n - 1.0) / n
    return share


def members_in_node(ranks: Numeric, stride: Numeric, gpus_per_node: int) -> Numeric:
    """Ranks of one group that sit in one node.

    >>> int(members_in_node(16, 1, 8)), int(members_in_node(4, 4, 8)), int(members_in_node(4, 8, 8))
    (8, 2, 1)
    """
    members: Array = np.clip(gpus_per_node // np.asarray(stride), 1, np.asarray(ranks))
    return members


def leaves_node(ranks: Numeric, stride: Numeric, gpus_per_node: int) -> Numeric:
    """Whether a group needs the network."""
    n = np.asarray(ranks)
    away: Array = (n * np.asarray(stride) > gpus_per_node) & (n > 1)
    return away


def inside_bandwidth(links: Links, ranks: Numeric) -> Numeric:
    """Bus bandwidth of ``ranks`` GPUs of one node.

    Without a switch a GPU reaches the others over one link each: two of the V100s of a cube mesh
    get 20 of its 122 GB/s, two of the MI300X of a mesh 48 of 313. [byte/s]
    """
    others = np.maximum(np.asarray(ranks, dtype=float) - 1.0, 1.0)
    bandwidth: Array = np.minimum(links.intra, links.pair * others)
    return bandwidth


def group_bandwidth(links: Links, ranks: Numeric, stride: Numeric) -> Numeric:
    """Bus bandwidth of a group: the node's links in its share of the node.

    All groups of an axis communicate at once, so a group that owns m of a node's N GPUs gets
    m / N of the node's network, at most what the GPUs reach inside the node.

    Notes
    -----
    On the 4-node V100 runs of DLPerf a full network for every group predicts twice the speed;
    one rail a group makes tp = 16 on A100 four times too slow. [byte/s]
    """
    members = members_in_node(ranks, stride, links.gpus_per_node)
    network = np.minimum(links.node * members / links.gpus_per_node, links.intra)
    inside = inside_bandwidth(links, ranks)
    return np.where(leaves_node(ranks, stride, links.gpus_per_node), network, inside)


def all_reduce_time(links: Links, size: Numeric, ranks: Numeric, stride: Numeric = 1) -> Numeric:
    """All-reduce of ``size`` bytes held by every rank; 0 for one rank.

    Inside a node the measured size curve where there is one, else a ring; across nodes a ring
    at the group's share of the network. [s]
    """
    share = ring_share(ranks)
    if links.sizes.size:
        at = np.log(np.maximum(size, 1.0))
        bus = np.interp(at, np.log(links.sizes), links.bandwidths)
        floor = links.sizes[0] / links.bandwidths[0]
        measured = np.maximum(size / bus, floor) * 2.0 * ring_share(MEASURED_RANKS)
        slower = links.intra / inside_bandwidth(links, ranks)
        inside = measured * share / ring_share(MEASURED_RANKS) * slower
    else:
        bandwidth = GATHER_SHARE * inside_bandwidth(links, ranks)
        inside = 2.0 * share * size / bandwidth + RING_LATENCY
    return _inside_or_across(links, inside, 2.0 * share * size, 2.0, ranks, stride)


def all_gather_time(links: Links, size: Numeric, ranks: Numeric, stride: Numeric = 1) -> Numeric:
    """All-gather to, or reduce-scatter from, ``size`` bytes on every rank; 0 for one rank. [s]"""
    share = ring_share(ranks)
    inside = share * size / (GATHER_SHARE * inside_bandwidth(links, ranks)) + GATHER_LATENCY
    return _inside_or_across(links, inside, share * size, 1.0, ranks, stride)


def _inside_or_across(
    links: Links, inside: Numeric, wire: Numeric, passes: float, ranks: Numeric, stride: Numeric
) -> Numeric:
    """Choose by where the group lies; ``wire`` bytes leave each rank in ``passes`` rounds."""
    n = np.asarray(ranks, dtype=float)
    across = wire / group_bandwidth(links, ranks, stride) + NETWORK_LATENCY * passes * (n - 1.0)
    time = np.where(leaves_node(ranks, stride, links.gpus_per_node), across, inside)
    return np.where(n > 1, time, 0.0)


def all_to_all_time(links: Links, size: Numeric, ranks: Numeric, stride: Numeric = 1) -> Numeric:
    """All-to-all in which every rank sends ``size`` bytes in all, its own part included.

    Only the part for other nodes crosses the network. [s]
    """
    n = np.asarray(ranks, dtype=float)
    members = members_in_node(ranks, stride, links.gpus_per_node)
    inside = size * ring_share(ranks) / inside_bandwidth(links, ranks) + GATHER_LATENCY
    rail = links.node / links.gpus_per_node
    across = size * (n - members) / n / np.minimum(rail, links.intra)
    across = np.maximum(across, inside) + NETWORK_LATENCY * (n - 1.0)
    time = np.where(leaves_node(ranks, stride, links.gpus_per_node), across, inside)
    return np.where(n > 1, time, 0.0)


def gradient_latency(links: Links, ranks: Numeric, stride: Numeric) -> Numeric:
    """Latency of the gradient collectives of a step that leave the node. [s]"""
    doublings = np.log2(np.maximum(np.asarray(ranks, dtype=float), 1.0))
    return np.where(leaves_node(ranks, stride, links.gpus_per_node), TREE_LATENCY * doublings, 0.0)


def call_latency(links: Links, passes: Numeric, ranks: Numeric, stride: Numeric) -> Numeric:
    """Latency of small rings that leave the node, ``passes`` rounds of them. [s]"""
    away = leaves_node(ranks, stride, links.gpus_per_node)
    return np.where(away, passes * NETWORK_LATENCY * (np.asarray(ranks, dtype=float) - 1.0), 0.0)
