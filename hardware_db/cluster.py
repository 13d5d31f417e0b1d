"""Nodes, and clusters of equal nodes. SI units; bandwidths are effective, per direction."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hardware_db.devices import Assumption, Gpu
from hardware_db.files import default_entry
from hardware_db.units import GB, GIB, to_si


@dataclass(frozen=True, slots=True)
class Node:
    """A server. Figures are for the whole node unless they say per GPU."""

    id: str
    short: str
    name: str
    provider: str
    gpus: int
    gpu: Gpu
    topology: str
    intra_bandwidth: float  # bus bandwidth of large collectives, per GPU [byte/s]
    p2p_bandwidth: float  # one pair of GPUs [byte/s]
    inter_bandwidth: float  # all network cards together [byte/s]
    fabric: str
    host_memory: float  # [byte]
    cpu_cores: int
    cpu_memory_bandwidth: float  # theoretical [byte/s]
    cpu_adam_time: float  # optimizer step on all cores [s/parameter]
    pcie_bandwidth: float  # host link of one GPU [byte/s]
    nvme_count: int
    nvme_capacity: float  # all drives [byte]
    nvme_read: float  # all drives [byte/s]
    nvme_write: float  # all drives [byte/s]
    price_per_hour: float | None = None  # on demand [USD/h]
    assumed: tuple[Assumption, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Cluster:
    """``nodes`` equal nodes of which ``gpus_per_node`` GPUs each are used."""

    node: Node
    nodes: int
    gpus_per_node: int
    memory_limit: float  # bytes per GPU to plan for
    assumed: tuple[Assumption, ...] = field(default=(), compare=False)
    reference: bool = True  # the node was chosen for the GPU, not named

    @property
    def gpu(self) -> Gpu:
        """The GPU."""
        return self.node.gpu

    @property
    def gpus(self) -> int:
        """All GPUs used. [-]"""
        return self.nodes * self.gpus_per_node

    @property
    def spec(self) -> str:
        """The text ``parse_gpus`` reads back, nodes first."""
        if self.reference:
            cards = f"{self.gpus_per_node // self.gpu.gcds}x{self.gpu.short}"
            return cards if self.nodes == 1 else f"{self.nodes}x{cards}"
        if self.gpus_per_node == self.node.gpus:
            return self.node.short if self.nodes == 1 else f"{self.nodes}x{self.node.short}"
        return f"{self.nodes}x{self.gpus_per_node // self.gpu.gcds}x{self.node.short}"

    def describe(self) -> str:
        """One line for people."""
        node, gpu = self.node, self.gpu
        device = gpu.name if gpu.gcds == 1 else f"die of {gpu.name}"
        cards = f", {self.gpus // gpu.gcds} cards of {gpu.gcds} dies," if gpu.gcds > 1 else ""
        nodes = f"{self.nodes} node" + ("s" if self.nodes > 1 else "")
        return (
            f"{self.gpus} x {device}{cards} on {nodes} ({node.name}): "
            f"{self.memory_limit / GIB:.1f} GiB per GPU, "
            f"{node.intra_bandwidth / GB:.4g} GB/s between GPUs, "
            f"{node.inter_bandwidth / GB:.4g} GB/s between nodes, "
            f"{node.host_memory / GIB:.0f} GiB host memory per node"
        )

    def with_overrides(
        self,
        intra_bandwidth: float | None = None,
        inter_bandwidth: float | None = None,
        host_memory: float | None = None,
        nvme: float | None = None,
        memory_limit: float | None = None,
        nvme_read: float | None = None,
        nvme_write: float | None = None,
    ) -> Cluster:
        """The cluster with the user's own figures, which are then no longer assumed.

        Parameters
        ----------
        intra_bandwidth : float
            Bus bandwidth between the GPUs of a node; scales the measured curve too. [byte/s]
        inter_bandwidth : float
            Effective bandwidth of a node's network, per direction. [byte/s]
        host_memory, nvme : float
            Of one node; ``nvme`` is the capacity of all drives, 0 for none. [byte]
        memory_limit : float
            Per GPU; not more than its memory. [byte]
        nvme_read, nvme_write : float
            All drives of a node. [byte/s]

        Raises
        ------
        ValueError
            If a value is not positive, or the limit exceeds the memory.
        """
        given: dict[str, float | None] = {
            "intra_bandwidth": intra_bandwidth,
            "inter_bandwidth": inter_bandwidth,
            "host_memory": host_memory,
            "nvme": nvme,
            "memory_limit": memory_limit,
            "nvme_read": nvme_read,
            "nvme_write": nvme_write,
        }
        for name, value in given.items():
            _check(name, value, zero=name == "nvme")
        limit = self.memory_limit if memory_limit is None else memory_limit
        if limit > self.gpu.memory:
            raise ValueError(
                f"memory_limit {limit / GIB:.2f} GiB is more than the "
                f"{self.gpu.memory / GIB:.2f} GiB of one {self.gpu.short}"
            )
        node = self.node
        guessed: tuple[Assumption, ...] = ()
        if nvme is not None:
            node, guessed = _with_nvme(node, nvme)
        if intra_bandwidth is not None:
            node = _with_intra_bandwidth(node, intra_bandwidth)
        told = {f for name, value in given.items() if value is not None for f in _TOLD[name]}
        node = replace(
            node,
            gpu=replace(node.gpu, assumed=_untold(node.gpu.assumed, told)),
            assumed=_untold(node.assumed, told),
            inter_bandwidth=inter_bandwidth or node.inter_bandwidth,
            host_memory=host_memory or node.host_memory,
            nvme_read=nvme_read or node.nvme_read,
            nvme_write=nvme_write or node.nvme_write,
        )
        assumed = _untold((*self.assumed, *guessed), told)
        return replace(self, node=node, memory_limit=limit, assumed=assumed)

    def with_gpus(self, gpus: int) -> Cluster:
        """A cluster of the same kind with that many GPUs.

        A smaller one lies within this one, on as few nodes as divide it evenly; a larger one
        fills nodes first.

        Raises
        ------
        ValueError
            If no equal split over nodes gives that number.
        """
        if gpus < 1:
            raise ValueError(f"a cluster needs at least one GPU, got {gpus}")
        size = self.gpus_per_node if gpus <= self.gpus else self.node.gpus
        for per_node in range(min(size, gpus), 0, -1):
            if gpus % per_node == 0:
                nodes = gpus // per_node
                break
        if (gpus <= self.gpus and nodes > self.nodes) or (
            gpus > self.gpus and nodes > 1 and per_node < self.gpus_per_node
        ):
            raise ValueError(
                f"{gpus} GPUs cannot be spread evenly over nodes like those of {self.spec} "
                f"({self.gpus_per_node} GPUs each)"
            )
        return replace(self, nodes=nodes, gpus_per_node=per_node)


# Fields of the files that an override makes known.
_TOLD = {
    "intra_bandwidth": ("intra_bandwidth", "bus_bandwidth"),
    "inter_bandwidth": ("network_bandwidth", "network_efficiency"),
    "host_memory": ("host_memory",),
    "nvme": ("nvme_count", "nvme_drive_capacity"),
    "nvme_read": ("nvme_read", "nvme_drive_read"),
    "nvme_write": ("nvme_write", "nvme_drive_write"),
    "memory_limit": (),
}


def _untold(assumed: tuple[Assumption, ...], told: set[str]) -> tuple[Assumption, ...]:
    return tuple(a for a in assumed if a.what not in told)


def _check(name: str, value: float | None, zero: bool) -> None:
    """Overrides are finite and positive; capacities of drives may be zero."""
    if value is None or (zero and value == 0):
        return
    if not 0 < value < float("inf"):
        raise ValueError(f"{name} must be positive and finite, got {value:g}")


def _with_intra_bandwidth(node: Node, bandwidth: float) -> Node:
    gpu = node.gpu
    curve = gpu.all_reduce_curve
    if curve is not None:
        ratio = bandwidth / node.intra_bandwidth
        curve = curve.scaled(ratio, "derived", f"scaled to the given bandwidth; {curve.source}")
    gpu = replace(gpu, bus_bandwidth=bandwidth, all_reduce_curve=curve)
    p2p = min(node.p2p_bandwidth, bandwidth)
    return replace(node, gpu=gpu, intra_bandwidth=bandwidth, p2p_bandwidth=p2p)


def _with_nvme(node: Node, capacity: float) -> tuple[Node, tuple[Assumption, ...]]:
    """The node with drives of that capacity; rates are assumed where it had none."""
    if capacity == 0:
        return replace(node, nvme_count=0, nvme_capacity=0.0, nvme_read=0.0, nvme_write=0.0), ()
    if node.nvme_count > 0:
        return replace(node, nvme_capacity=capacity), ()
    names = ("nvme_drive_read", "nvme_drive_write")
    entries = {name: default_entry(name) for name in names}
    guessed = tuple(
        Assumption(node.short, name, e["value"], e["unit"], e["source"])
        for name, e in entries.items()
    )
    read, write = (to_si(e["value"], e["unit"]) for e in entries.values())
    drives = replace(node, nvme_count=1, nvme_capacity=capacity, nvme_read=read, nvme_write=write)
    return drives, guessed
