"""Loading by id or name: only the files one cluster needs are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hardware_db.build import build_gpu, build_node
from hardware_db.cluster import Node
from hardware_db.devices import Gpu
from hardware_db.files import Raw, exists, read
from hardware_db.names import near, resolve

_NODE_FOLDERS = ("nodes", "reference_nodes")


@dataclass(frozen=True, slots=True)
class Catalog:
    """Names of everything known, and the user's own entries. Names are short name, id, others."""

    gpus: Mapping[str, tuple[str, ...]]
    nodes: Mapping[str, tuple[str, ...]]
    own_gpus: Mapping[str, Raw] = field(default_factory=dict)
    own_nodes: Mapping[str, Raw] = field(default_factory=dict)

    def find(self, name: str) -> tuple[str, str]:
        """(``gpu`` or ``node``, id) of that name.

        Raises
        ------
        ValueError
            If nothing or more than one entry fits; the message lists the candidates.
        """
        for kind, names in (("gpu", self.gpus), ("node", self.nodes)):
            identifier = resolve(name, names)
            if identifier is not None:
                return kind, identifier
        close = ", ".join(near(name, {**self.gpus, **self.nodes}))
        raise ValueError(f"unknown GPU or node {name!r}: the nearest names are {close}")

    def gpu(self, identifier: str) -> Gpu:
        """The GPU of that id."""
        raw = self.own_gpus.get(identifier)
        return load_gpu(identifier) if raw is None else build_gpu(raw)

    def node(self, identifier: str) -> Node:
        """The node of that id."""
        raw = self.own_nodes.get(identifier)
        if raw is not None:
            return build_node(raw, self.gpu(self.find(str(raw["gpu"]))[1]))
        node_raw = _node_entry(identifier)
        return build_node(node_raw, self.gpu(node_raw["gpu"]))

    def nodes_of(self, gpu: Gpu) -> tuple[Node, ...]:
        """Nodes a bare GPU name stands on, smallest first; the user's own count too.

        Raises
        ------
        ValueError
            If there is none.
        """
        own = (i for i, raw in self.own_nodes.items() if self.find(raw["gpu"]) == ("gpu", gpu.id))
        nodes = [self.node(i) for i in dict.fromkeys((*gpu.reference_nodes, *own))]
        if not nodes:
            raise ValueError(f"{gpu.short} has no node: define one in the hardware file")
        return tuple(sorted(nodes, key=lambda node: node.gpus))


@cache
def our_catalog() -> Catalog:
    """Everything in the database."""
    index = read("index.yaml")
    gpus, nodes = ({i: tuple(n) for i, n in index[kind].items()} for kind in ("gpus", "nodes"))
    return Catalog(gpus, nodes)


def catalog(extra: Path | None = None) -> Catalog:
    """Everything known; ``extra`` is a user's YAML with ``gpus`` and ``nodes``.

    Raises
    ------
    ValueError
        If the user's file does not fit the schema; the message names the file and the key.
    """
    ours = our_catalog()
    if extra is None:
        return ours
    from hardware_db.schema import read_hardware_file  # pydantic, only where it is needed

    own_gpus, own_nodes = read_hardware_file(extra)
    known = Catalog(
        {**ours.gpus, **{i: _names(raw) for i, raw in own_gpus.items()}},
        {**ours.nodes, **{i: _names(raw) for i, raw in own_nodes.items()}},
        own_gpus,
        own_nodes,
    )
    for identifier, raw in own_nodes.items():
        _check_gpu(known, f"{extra}: nodes {identifier}: gpu", raw["gpu"])
    for identifier, raw in own_gpus.items():
        for node in raw.get("reference_nodes", ()):
            if node not in own_nodes and not any(exists(f, f"{node}.yaml") for f in _NODE_FOLDERS):
                raise ValueError(f"{extra}: gpus {identifier}: no reference node {node!r}")
    return known


def gpu_names() -> tuple[str, ...]:
    """Ids of the GPUs in the database, sorted."""
    return tuple(sorted(our_catalog().gpus))


def node_names() -> tuple[str, ...]:
    """Ids of the nodes and cloud instances in the database, sorted."""
    return tuple(sorted(our_catalog().nodes))


def find(name: str) -> tuple[str, str]:
    """(``gpu`` or ``node``, id) of a name; see ``Catalog.find``."""
    return our_catalog().find(name)


@cache
def load_gpu(identifier: str) -> Gpu:
    """The GPU of that id in the database.

    Raises
    ------
    ValueError
        If there is none.
    """
    if identifier not in our_catalog().gpus:
        raise ValueError(f"no GPU {identifier!r} in the database: gpu_names() lists them")
    return build_gpu(read("gpus", f"{identifier}.yaml"))


@cache
def load_node(identifier: str) -> Node:
    """The node of that id in the database, reference nodes included.

    Raises
    ------
    ValueError
        If there is none.
    """
    return our_catalog().node(identifier)


def _node_entry(identifier: str) -> Raw:
    for folder in _NODE_FOLDERS:
        if exists(folder, f"{identifier}.yaml"):
            return read(folder, f"{identifier}.yaml")
    raise ValueError(f"no node {identifier!r} in the database: node_names() lists them")


def _check_gpu(known: Catalog, where: str, name: str) -> None:
    try:
        kind, _ = known.find(name)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if kind != "gpu":
        raise ValueError(f"{where}: {name!r} is a node, not a GPU")


def _names(raw: Raw) -> tuple[str, ...]:
    return (raw["short"], raw["id"], raw["name"], *raw.get("aliases", ()))
