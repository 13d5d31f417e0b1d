"""Hardware facts: GPUs, nodes and links as YAML, every value with its unit, kind and source.

    parse_gpus(text, extra=None) -> Cluster      "4x8xH100-80G", "4xp5.48xlarge", "auto"
    detect() -> Cluster                          this machine, by nvidia-smi
    load_gpu(id) -> Gpu, load_node(id) -> Node   by id
    gpu_names(), node_names() -> ids             42 GPUs, 57 nodes
    find(name) -> ("gpu" | "node", id)           by any name
    parse_size("80GB"), parse_rate("400Gb/s")    what a user types, in byte and byte/s

A ``Cluster`` has a ``Node``, which has a ``Gpu``: frozen dataclasses in SI units, bandwidths per
direction and effective. ``cluster.assumed`` lists every value that has no source of its own;
``Assumption.topic`` says what it bears on.
"""

from hardware_db.cluster import Cluster, Node
from hardware_db.detect import detect
from hardware_db.devices import Assumption, AttentionRates, Curve, GemmRate, Gpu
from hardware_db.load import find, gpu_names, load_gpu, load_node, node_names
from hardware_db.parse import parse_gpus
from hardware_db.units import parse_rate, parse_size

__all__ = [
    "Assumption",
    "AttentionRates",
    "Cluster",
    "Curve",
    "GemmRate",
    "Gpu",
    "Node",
    "detect",
    "find",
    "gpu_names",
    "load_gpu",
    "load_node",
    "node_names",
    "parse_gpus",
    "parse_rate",
    "parse_size",
]
