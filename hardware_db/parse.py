"""The grammar of ``--gpus``: ``[NODES x] [GPUS x] NAME``, nodes first.

``8xA100-80G``, ``4x8xH100-80G``, ``p4d.24xlarge``, ``4xp5.48xlarge``, ``2x4xp5.48xlarge`` (four of
the eight GPUs of each of two instances), ``auto``.
"""

from __future__ import annotations

from pathlib import Path

from hardware_db.cluster import Cluster, Node
from hardware_db.devices import Gpu
from hardware_db.load import Catalog, catalog
from hardware_db.names import COUNT, MIXED

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
        cluster = _on_named_node(known.node(identifier), counts)
    else:
        cluster = _on_reference_node(known, known.gpu(identifier), counts)
    if cluster.gpus > _MOST_GPUS:
        raise ValueError(f"{text!r} is {cluster.gpus} GPUs: at most {_MOST_GPUS} are accepted")
    return cluster


def cluster_of(node: Node, nodes: int, gpus_per_node: int, reference: bool) -> Cluster:
    """A cluster with everything assumed about its node and GPU."""
    assumed = node.assumed + node.gpu.assumed
    return Cluster(node, nodes, gpus_per_node, node.gpu.memory, assumed, reference)


def _split(text: str) -> tuple[list[int], str]:
    counts: list[int] = []
    rest = text.strip()
    while match := COUNT.fullmatch(rest):
        counts.append(_count(match.group(1), text))
        rest = match.group(2).strip()
    if MIXED.search(rest):
        raise ValueError(
            f"{text!r} reads as more than one kind of node, and a cluster is of equal nodes with "
            f"equal GPUs: plan for one kind at a time, {_EXAMPLES}"
        )
    if len(counts) > 2:
        raise ValueError(f"{text!r} has more than two counts: {_EXAMPLES}")
    if not rest:
        raise ValueError(f"{text!r} names no GPU or node: {_EXAMPLES}")
    return counts, rest


def _count(digits: str, text: str) -> int:
    if not digits.isdecimal() or len(digits) > 9 or not 1 <= int(digits) <= _MOST_GPUS:
        raise ValueError(
            f"{text!r}: {digits or 'an empty count'} is not a whole number from 1 to {_MOST_GPUS}"
        )
    return int(digits)


def _on_named_node(node: Node, counts: list[int]) -> Cluster:
    nodes = counts[0] if counts else 1
    used = counts[1] * node.gpu.gcds if len(counts) == 2 else node.gpus
    if used > node.gpus:
        raise ValueError(f"a {node.short} has {_cards(node)}, not {counts[1]}")
    return cluster_of(node, nodes, used, reference=False)


def _on_reference_node(known: Catalog, gpu: Gpu, counts: list[int]) -> Cluster:
    candidates = known.nodes_of(gpu)
    largest = max(candidates, key=lambda node: node.gpus)
    cards = counts[-1] if counts else 1
    used = cards * gpu.gcds
    nodes = counts[0] if len(counts) == 2 else 1
    if used > largest.gpus:
        if len(counts) == 2:
            raise ValueError(f"a node of {gpu.short} has at most {_cards(largest)}, not {cards}")
        if used % largest.gpus:
            raise ValueError(
                f"{cards}x{gpu.short} are not whole nodes of {_cards(largest)}: write the nodes "
                f"first, as in {_as_nodes(cards, largest.gpus // gpu.gcds)}x{gpu.short}"
            )
        nodes, used = used // largest.gpus, largest.gpus
    node = next(node for node in candidates if node.gpus >= used)
    return cluster_of(node, nodes, used, reference=True)


def _as_nodes(cards: int, most: int) -> str:
    """Fewest equal nodes that hold the cards, "2x6" for 12 with at most 8 a node."""
    per_node = next(n for n in range(most, 0, -1) if cards % n == 0)
    return f"{cards // per_node}x{per_node}"


def _cards(node: Node) -> str:
    count = node.gpus // node.gpu.gcds
    return f"{count} GPU" + ("s" if count > 1 else "")
