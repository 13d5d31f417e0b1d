"""Loading by id or name: only the files one cluster needs are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hardware_db.borrow import borrow_node
from hardware_db.build import build_gpu, build_node
from hardware_db.cluster import Node
from hardware_db.devices import Gpu
from hardware_db.files import Raw, exists, read, stems
from hardware_db.names import near, resolve
from hardware_db.own import check_names

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
        raw = self._node_entry(identifier)
        return build_node(raw, self._gpu_in(raw))

    def node_called(self, name: str) -> str:
        """Id of the node of that name, reference nodes included.

        Raises
        ------
        ValueError
            If there is none; the message lists the nearest names.
        """
        if name in self.own_nodes or _folder(name):
            return name
        identifier = resolve(name, self.nodes)
        if identifier is None:
            close = ", ".join(near(name, self.nodes))
            raise ValueError(f"no reference node {name!r}: the nearest names are {close}")
        return identifier

    def nodes_of(self, gpu: Gpu) -> tuple[Node, ...]:
        """Nodes a bare GPU name stands on: the user's own, then reference nodes, smallest first.

        Raises
        ------
        ValueError
            If there is none.
        """
        own = (i for i, raw in self.own_nodes.items() if self._gpu_in(raw).id == gpu.id)
        named = map(self.node_called, gpu.reference_nodes)
        nodes = [self._with(i, gpu) for i in dict.fromkeys((*own, *named))]
        if not nodes:
            raise ValueError(
                f"{gpu.short} has no node: define one in the hardware file, or name one it would "
                "fit into, as in reference_nodes: [dgx-h100]"
            )
        return tuple(sorted(nodes, key=lambda node: (node.id not in self.own_nodes, node.gpus)))

    def _with(self, identifier: str, gpu: Gpu) -> Node:
        """The node with ``gpu`` in it, whichever it has of its own."""
        raw = self._node_entry(identifier)
        theirs = self._gpu_in(raw)
        if theirs.id == gpu.id:
            return build_node(raw, gpu)
        return borrow_node(raw, theirs, gpu, self._gpu_entry(gpu.id))

    def _gpu_in(self, node: Raw) -> Gpu:
        return self.gpu(self.find(str(node["gpu"]))[1])

    def _gpu_entry(self, identifier: str) -> Raw:
        return self.own_gpus.get(identifier) or read("gpus", f"{identifier}.yaml")

    def _node_entry(self, identifier: str) -> Raw:
        return self.own_nodes.get(identifier) or _node_entry(identifier)


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
    check_names(extra, (*own_gpus, *own_nodes), (ours.gpus, ours.nodes, _reference_names()))
    known = Catalog(
        {**ours.gpus, **{raw["id"]: _names(raw) for raw in own_gpus}},
        {**ours.nodes, **{raw["id"]: _names(raw) for raw in own_nodes}},
        {raw["id"]: raw for raw in own_gpus},
        {raw["id"]: raw for raw in own_nodes},
    )
    for raw in own_nodes:
        _check_gpu(known, f"{extra}: nodes {raw['id']}", raw)
    for raw in own_gpus:
        _check_attention(f"{extra}: gpus {raw['id']}", known.gpu(raw["id"]))
        for node in raw.get("reference_nodes", ()):
            _check_reference(known, f"{extra}: gpus {raw['id']}: reference_nodes", node)
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
    folder = _folder(identifier)
    if folder is None:
        raise ValueError(f"no node {identifier!r} in the database: node_names() lists them")
    return read(folder, f"{identifier}.yaml")


def _folder(identifier: str) -> str | None:
    return next((f for f in _NODE_FOLDERS if exists(f, f"{identifier}.yaml")), None)


def _reference_names() -> dict[str, tuple[str, ...]]:
    """Reference nodes have one name, their id."""
    return {i: (i,) for i in stems("reference_nodes")}


def _check_gpu(known: Catalog, where: str, node: Raw) -> None:
    name = str(node["gpu"])
    try:
        kind, identifier = known.find(name)
    except ValueError as error:
        raise ValueError(f"{where}: gpu: {error}") from None
    if kind != "gpu":
        raise ValueError(f"{where}: gpu: {name!r} is a node, not a GPU")
    gpu = known.gpu(identifier)
    devices = node["gpus"]["value"]
    if devices % gpu.gcds:
        raise ValueError(
            f"{where}: gpus: {devices} is not whole cards: one {gpu.short} is {gpu.gcds} devices, "
            "and gpus counts devices"
        )


def _check_attention(where: str, gpu: Gpu) -> None:
    for generation in gpu.flash:
        if gpu.attention.curve(generation, "fwd", 128, True) is None:
            raise ValueError(
                f"{where}: attention: no table stated has rates of {generation}, which flash "
                "lists or has by default: add one, leave attention out, or correct flash"
            )


def _check_reference(known: Catalog, where: str, name: str) -> None:
    try:
        known.node_called(name)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _names(raw: Raw) -> tuple[str, ...]:
    return (raw["short"], raw["id"], raw["name"], *raw.get("aliases", ()))
