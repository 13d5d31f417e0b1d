"""The grammar of ``--gpus``: ``[NODES x] [GPUS x] NAME``, nodes first.

``8xA100-80G``, ``4x8xH100-80G``, ``p4d.24xlarge``, ``4xp5.48xlarge``, ``2x4xp5.48xlarge`` (four of
the eight GPUs of each of two instances), ``auto``.
"""

from __future__ import annotations

import re
from pathlib import Path

from hardware_db.cluster import Cluster, Node
from hardware_db.load import Catalog, catalog

_COUNT = re.compile(r"^([-+]?[0-9.]*)\s*[x×*]\s*(.*)$", re.IGNORECASE | re.DOTALL)
_MOST_GPUS = 1_000_000
_EXAMPLES = "write it like 8xA100-80G, 4x8xH100-80G or 4xp5.48xlarge"


def parse_gpus(text: str, extra: Path | None = None) -> Cluster:
    """The cluster a text describes.

    Parameters
    ----------
    text : str
        A number of GPUs, or of nodes and GPUs a node, or of named nodes; ``auto`` asks nvidia-smi.
    extra : Path, optional
        A YAML file with further GPUs and nodes.

    Raises
    ------
    ValueError
        One line: what is wrong and what would be accepted.

    Examples
    --------
    >>> cluster = parse_gpus("4x8xH100-80G")
    >>> cluster.nodes, cluster.gpus, cluster.spec
    (4, 32, '4x8xH100-80G')
    """
    if text.strip().lower() == "auto":
        from hardware_db.detect import detect

        return detect(extra=extra)
    counts, name = _split(text)
    known = catalog(extra)
    kind, identifier = known.find(name)
    if kind == "node":
        return _named_node(known.node(identifier), counts, text)
    return _reference_node(known, identifier, counts, text)


def cluster_of(node: Node, nodes: int, gpus_per_node: int, reference: bool) -> Cluster:
    """A cluster with everything assumed about its node and GPU."""
    replaced = {a.what for a in node.assumed} | {"bus_bandwidth"}
    assumed = node.assumed + tuple(a for a in node.gpu.assumed if a.what not in replaced)
    return Cluster(node, nodes, gpus_per_node, node.gpu.memory, assumed, reference)


def _split(text: str) -> tuple[list[int], str]:
    counts: list[int] = []
    rest = text.strip()
    while len(counts) < 3 and (match := _COUNT.match(rest)):
        counts.append(_count(match.group(1), text))
        rest = match.group(2).strip()
    if len(counts) == 3:
        raise ValueError(f"--gpus {text!r} has three counts: {_EXAMPLES}")
    if not rest:
        raise ValueError(f"--gpus {text!r} names no GPU or node: {_EXAMPLES}")
    return counts, rest


def _count(digits: str, text: str) -> int:
    if not digits.isdigit() or not 1 <= int(digits[:9]) <= _MOST_GPUS or len(digits) > 9:
        raise ValueError(
            f"--gpus {text!r}: {digits or 'nothing'} is not a whole number from 1 to {_MOST_GPUS}"
        )
    return int(digits)


def _named_node(node: Node, counts: list[int], text: str) -> Cluster:
    nodes = counts[0] if counts else 1
    used = counts[1] * node.gpu.gcds if len(counts) == 2 else node.gpus
    if used > node.gpus:
        raise ValueError(f"--gpus {text!r}: a {node.short} has {_cards(node)}, not {counts[1]}")
    return _checked(cluster_of(node, nodes, used, reference=False), text)


def _reference_node(known: Catalog, identifier: str, counts: list[int], text: str) -> Cluster:
    gpu = known.gpu(identifier)
    candidates = [known.node(i) for i in gpu.reference_nodes]
    candidates += [
        known.node(i) for i, raw in known.own_nodes.items() if _holds(known, raw, gpu.id)
    ]
    if not candidates:
        raise ValueError(
            f"--gpus {text!r}: {gpu.short} has no node; define one in the --hardware file"
        )
    candidates.sort(key=lambda node: node.gpus)
    largest = candidates[-1]
    devices = gpu.gcds * (counts[-1] if counts else 1)
    nodes = counts[0] if len(counts) == 2 else 1
    if len(counts) == 2 and devices > largest.gpus:
        raise ValueError(
            f"--gpus {text!r}: a node of {gpu.short} has at most {_cards(largest)} "
            f"({largest.name}), not {counts[1]}"
        )
    if devices > largest.gpus:
        if devices % largest.gpus:
            raise ValueError(
                f"--gpus {text!r}: more than one node must be whole nodes of {_cards(largest)}; "
                f"write the nodes first, as in 2x{max(counts[0] // 2, 1)}x{gpu.short}"
                if counts[0] % 2 == 0 and devices // 2 <= largest.gpus
                else f"--gpus {text!r}: more than one node must be whole nodes of {_cards(largest)}"
            )
        nodes, devices = devices // largest.gpus, largest.gpus
    node = next(node for node in candidates if node.gpus >= devices)
    return _checked(cluster_of(node, nodes, devices, reference=True), text)


def _holds(known: Catalog, raw: object, gpu: str) -> bool:
    return isinstance(raw, dict) and known.find(str(raw["gpu"])) == ("gpu", gpu)


def _checked(cluster: Cluster, text: str) -> Cluster:
    if cluster.gpus > _MOST_GPUS:
        raise ValueError(f"--gpus {text!r} is {cluster.gpus} GPUs: at most {_MOST_GPUS}")
    return cluster


def _cards(node: Node) -> str:
    count = node.gpus // node.gpu.gcds
    return f"{count} GPU" + ("s" if count > 1 else "")
