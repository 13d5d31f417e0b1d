"""The cluster a row ran on."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from costmodels.numeric import GIB
from hardware_db import Cluster, find, parse_gpus
from planner.validate.cells import Cells
from planner.validate.kinds import Kinds, spelled
from planner.validate.run import Machine, Skip

_RATE = re.compile(r"(?:(\d+)\s*x\s*)?(\d+(?:\.\d+)?)\s*Gb(?:ps|/s)\s*(per GPU)?", re.IGNORECASE)
WIRE = 0.9  # of a network's rate that collectives reach where nobody measured it


def machine_of(cells: Cells, kinds: Kinds, gpus: int) -> tuple[Machine, Cluster]:
    """The cluster of a row: its card, nodes and network, by name, cell or convention.

    Raises
    ------
    Skip
        If the database does not know the card.
    """
    name = cells.kind.gpu or cells.row.text("gpu")
    gpu = name if _known(name) else spelled(kinds.gpus, name) or name
    per_node = cells.row.whole("gpus_per_node") or cells.kind.gpus_per_node
    network = _network(cells, per_node or 8)
    printed = cells.row.number("gpu_mem_gb")
    try:
        cluster = _cluster(gpu, gpus, per_node, network)
        if cells.kind.pair is not None:
            cluster = _without_switch(cluster, cells.kind.pair.value * 1e9)
    except ValueError:
        raise Skip(
            f"gpu is {name!r}: expected one of planner gpus" if name else "gpu: not named"
        ) from None
    if printed and printed * GIB < 0.9 * cluster.gpu.memory:  # the smaller card of that name
        smaller = spelled(kinds.gpus, f"{name} {printed:g}GB")
        if smaller is not None:
            found = _cluster(smaller, gpus, per_node, network)
            if found.gpu.memory < cluster.gpu.memory:
                gpu, cluster = smaller, found
    limit = None
    if printed and printed * GIB > 1.1 * cluster.gpu.memory:
        limit = 0.99 * printed * GIB  # a larger variant of the card
        cluster = replace(cluster, memory_limit=limit)
    pair = cluster.node.p2p_bandwidth
    return Machine(gpu, cluster.nodes, cluster.gpus_per_node, network, pair, limit), cluster


@cache
def _known(name: str) -> bool:
    try:
        return find(name)[0] == "gpu"
    except ValueError:
        return False


@cache
def _cluster(gpu: str, gpus: int, per_node: int | None, network: float | None) -> Cluster:
    """Equal nodes, as large as the row and the card's largest reference node allow."""
    most = min(gpus, _most(gpu), per_node or gpus)
    share = next(n for n in range(most, 0, -1) if gpus % n == 0)
    cluster = parse_gpus(f"{gpus // share}x{share}x{gpu}")
    return cluster.with_overrides(inter_bandwidth=network) if network else cluster


def _without_switch(cluster: Cluster, pair: float) -> Cluster:
    """The cluster with so much bandwidth between any two GPUs of a node. [byte/s]"""
    return replace(cluster, node=replace(cluster.node, p2p_bandwidth=pair))


@cache
def _most(gpu: str) -> int:
    """GPUs of the largest reference node."""
    for count in (72, 16, 8, 4, 2):
        try:
            if parse_gpus(f"{count}x{gpu}").nodes == 1:
                return count
        except ValueError:
            continue
    return 1


def _network(cells: Cells, per_node: int) -> float | None:
    """Bandwidth of a node: by convention, as printed, or None for the reference node's. [byte/s]"""
    if cells.network is not None:
        return cells.network.value * 1e9
    found = _RATE.search(cells.row.text("inter_bw"))
    if found is None:
        return None
    count = int(found[1] or 1) * (per_node if found[3] else 1)
    return WIRE * count * float(found[2]) * 1e9 / 8
