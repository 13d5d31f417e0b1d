"""A node with another GPU in it: where a GPU of the user's stands on a known node."""

from __future__ import annotations

from dataclasses import replace

from hardware_db.build import build_node
from hardware_db.cluster import Node
from hardware_db.devices import Assumption, Gpu
from hardware_db.files import Raw

# Links that belong to the GPU rather than to the node, and the field of a GPU that states them.
_LINKS = {
    "intra_bandwidth": "bus_bandwidth",
    "p2p_bandwidth": "bus_bandwidth",
    "pcie_bandwidth": "pcie_bandwidth",
}


def borrow_node(node: Raw, theirs: Gpu, gpu: Gpu, stated: Raw) -> Node:
    """The node of an entry with ``gpu`` in the place of the GPU it has.

    Host, network and drives are the node's. Links between GPUs and to the host are those the GPU
    states; where it states none they are the node's and count as assumed. The price is not kept.

    Parameters
    ----------
    node : mapping
        The node's entry.
    theirs : Gpu
        The GPU the node has.
    gpu : Gpu
        The GPU that takes its place, as many cards.
    stated : mapping
        That GPU's entry.
    """
    cards = node["gpus"]["value"] // theirs.gcds
    entry = {
        **{k: v for k, v in node.items() if k not in _LINKS and k != "price_per_hour"},
        **{k: _as_assumed(node, theirs, v) for k, v in _links(node, stated).items()},
        "gpus": {**node["gpus"], "value": cards * gpu.gcds},
        "name": f"{node['name']} with {gpu.short}",
    }
    built = build_node(entry, gpu)
    why = f"the node has {theirs.short}; its host, network and drives stand for one of {gpu.short}"
    note = Assumption(node["short"], "gpu", gpu.short, "-", why)
    return replace(built, assumed=(note, *built.assumed))


def _links(node: Raw, stated: Raw) -> Raw:
    """The node's links that the GPU leaves open."""
    return {k: node[k] for k, of_gpu in _LINKS.items() if node.get(k) and not stated.get(of_gpu)}


def _as_assumed(node: Raw, theirs: Gpu, value: Raw) -> Raw:
    source = f"as {theirs.short} in {node['short']}: {value['source']}"
    return {**value, "kind": "assumed", "source": source}
