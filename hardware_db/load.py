"""Loading: from YAML to frozen dataclasses in SI units, only the files one cluster needs.

Values a file leaves out come from ``measured/defaults.yaml`` and are listed as assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from hardware_db.cluster import Node
from hardware_db.devices import Assumption, AttentionRates, Curve, GemmRate, Gpu
from hardware_db.names import near, resolve
from hardware_db.units import to_si

Raw = Mapping[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ROOT = resources.files("hardware_db")


@cache
def read(*parts: str) -> Any:
    """One of our own YAML files, parsed; the same object every time, not to be changed."""
    text = _ROOT.joinpath(*parts).read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)  # noqa: S506  (the loader is a safe one)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Names of everything known, and the user's own entries."""

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
        gpu = resolve(name, self.gpus)
        if gpu is not None:
            return "gpu", gpu
        node = resolve(name, self.nodes, "node")
        if node is not None:
            return "node", node
        close = near(name, {**self.gpus, **self.nodes})
        hint = f"did you mean {', '.join(close)}?" if close else "see the lists of GPUs and nodes"
        raise ValueError(f"unknown GPU or node {name!r}: {hint}")

    def gpu(self, identifier: str) -> Gpu:
        """The GPU of that id."""
        raw = self.own_gpus.get(identifier)
        return load_gpu(identifier) if raw is None else build_gpu(raw)

    def node(self, identifier: str) -> Node:
        """The node of that id."""
        raw = self.own_nodes.get(identifier)
        if raw is None:
            return load_node(identifier)
        return build_node(raw, self.gpu(self.find(str(raw["gpu"]))[1]))


@cache
def catalog(extra: Path | None = None) -> Catalog:
    """Everything known; ``extra`` is a user's YAML with ``gpus`` and ``nodes``.

    Raises
    ------
    ValueError
        If the user's file does not fit the schema; the message names the file and the key.
    """
    index = read("index.yaml")
    gpus = {i: tuple(names) for i, names in index["gpus"].items()}
    nodes = {i: tuple(names) for i, names in index["nodes"].items()}
    if extra is None:
        return Catalog(gpus, nodes)
    from hardware_db.schema import read_hardware_file

    own_gpus, own_nodes = read_hardware_file(extra)
    gpus |= {i: _names_of(raw) for i, raw in own_gpus.items()}
    nodes |= {i: _names_of(raw) for i, raw in own_nodes.items()}
    return Catalog(gpus, nodes, own_gpus, own_nodes)


def gpu_names() -> tuple[str, ...]:
    """Ids of the GPUs in the database, sorted."""
    return tuple(sorted(catalog().gpus))


def node_names() -> tuple[str, ...]:
    """Ids of the nodes and cloud instances in the database, sorted."""
    return tuple(sorted(catalog().nodes))


def find(name: str) -> tuple[str, str]:
    """(``gpu`` or ``node``, id) of a name; see ``Catalog.find``."""
    return catalog().find(name)


@cache
def load_gpu(identifier: str) -> Gpu:
    """The GPU of that id in the database.

    Raises
    ------
    ValueError
        If there is none.
    """
    if identifier not in catalog().gpus:
        raise ValueError(f"no GPU {identifier!r} in the database: see gpu_names()")
    return build_gpu(read("gpus", f"{identifier}.yaml"))


@cache
def load_node(identifier: str) -> Node:
    """The node of that id in the database, reference nodes included.

    Raises
    ------
    ValueError
        If there is none.
    """
    for folder in ("nodes", "reference_nodes"):
        if _ROOT.joinpath(folder, f"{identifier}.yaml").is_file():
            raw = read(folder, f"{identifier}.yaml")
            return build_node(raw, load_gpu(raw["gpu"]))
    raise ValueError(f"no node {identifier!r} in the database: see node_names()")


def default(name: str) -> float:
    """A default of ``measured/defaults.yaml``. [SI]"""
    raw = read("measured", "defaults.yaml")[name]
    return to_si(raw["value"], raw["unit"])


@dataclass(slots=True)
class _Reader:
    """Reads values of one entry, falls back on the defaults, remembers what is assumed."""

    raw: Raw
    where: str
    assumed: list[Assumption] = field(default_factory=list)

    def entry(self, name: str) -> Raw:
        found = self.raw.get(name) or read("measured", "defaults.yaml")[name]
        self.note(name, found)
        return found  # type: ignore[no-any-return]

    def note(self, name: str, found: Raw) -> None:
        if found["kind"] == "assumed":
            values = (found["value"], found["unit"], found["source"])
            self.assumed.append(Assumption(self.where, name, *values))

    def number(self, name: str) -> float:
        found = self.entry(name)
        return to_si(found["value"], found["unit"])

    def optional(self, name: str) -> float | None:
        return self.number(name) if name in self.raw else None


def build_gpu(raw: Raw) -> Gpu:
    """A GPU from its YAML entry."""
    r = _Reader(raw, raw["id"])
    flops = {}
    for precision, entry in raw["flops"].items():
        r.note(f"flops {precision}", entry)
        flops[precision] = to_si(entry["value"], entry["unit"])
    capability = raw.get("compute_capability")
    flash = tuple(r.entry("flash")["value"])
    cores = int(r.number("sms"))
    return Gpu(
        id=raw["id"],
        short=raw["short"],
        name=raw["name"],
        vendor=raw["vendor"],
        arch=raw["arch"],
        form_factor=raw["form_factor"],
        compute_capability=_capability(capability["value"]) if capability else None,
        memory=r.number("memory"),
        memory_bandwidth=r.number("memory_bandwidth"),
        memory_efficiency=r.number("memory_efficiency"),
        flops=flops,
        sms=cores,
        l2=r.optional("l2") or 0.0,
        link_bandwidth=r.optional("link_bandwidth"),
        pcie_bandwidth=r.number("pcie_bandwidth"),
        bus_bandwidth=r.number("bus_bandwidth"),
        launch_latency=r.number("launch_latency"),
        supports=frozenset(r.entry("trains_in")["value"]) & (set(flops) | {"fp32"}),
        flash=flash,
        memory_efficient_attention=bool(r.entry("memory_efficient_attention")["value"]),
        launchable=bool(r.entry("launchable")["value"]),
        gcds=int(r.number("gcds")),
        price_per_hour=r.optional("price_per_hour"),
        reference_nodes=tuple(raw.get("reference_nodes", ())),
        gemm=_gemm(r),
        attention=AttentionRates(flash, _attention_tables(r)),
        all_reduce_curve=_all_reduce(r),
        assumed=tuple(r.assumed),
    )


def build_node(raw: Raw, gpu: Gpu) -> Node:
    """A node from its YAML entry and its GPU, whose link figures become those of the node."""
    r = _Reader(raw, raw["id"])
    drives = int(r.number("nvme_count"))
    intra = r.number("intra_bandwidth") if "intra_bandwidth" in raw else gpu.bus_bandwidth
    curve = gpu.all_reduce_curve if "NVSwitch" in raw["topology"] else None
    line_rate, efficiency = r.number("network_bandwidth"), r.number("network_efficiency")
    pcie = r.number("pcie_bandwidth") if "pcie_bandwidth" in raw else gpu.pcie_bandwidth
    rates = [
        r.number(f"nvme_{way}")
        if f"nvme_{way}" in raw
        else (drives * r.number(f"nvme_drive_{way}") if drives else 0.0)
        for way in ("read", "write")
    ]
    return Node(
        id=raw["id"],
        short=raw["short"],
        name=raw["name"],
        provider=raw["provider"],
        gpus=int(r.number("gpus")),
        gpu=replace(gpu, bus_bandwidth=intra, pcie_bandwidth=pcie, all_reduce_curve=curve),
        topology=raw["topology"],
        intra_bandwidth=intra,
        p2p_bandwidth=r.number("p2p_bandwidth") if "p2p_bandwidth" in raw else intra,
        inter_bandwidth=line_rate * efficiency,
        fabric=raw["fabric"],
        host_memory=r.number("host_memory"),
        cpu_cores=int(r.number("cpu_cores")),
        cpu_memory_bandwidth=r.number("cpu_memory_bandwidth"),
        cpu_adam_time=r.number("cpu_adam_time"),
        pcie_bandwidth=pcie,
        nvme_count=drives,
        nvme_capacity=drives * r.number("nvme_drive_capacity") if drives else 0.0,
        nvme_read=rates[0],
        nvme_write=rates[1],
        price_per_hour=r.optional("price_per_hour"),
        assumed=tuple(r.assumed),
    )


@cache
def attention_curve(
    table: str, generation: str, direction: str, head_dim: int, causal: bool
) -> Curve | None:
    """A curve of one table, derived from another direction where this one was not measured."""
    rows = [
        row
        for row in read("measured", "attention", f"{table}.yaml")["curves"]
        if row["generation"] == generation and row["causal"] == causal
    ]
    factors = read("measured", "attention", "directions.yaml")
    for other, factor in ((direction, None), *factors.get(direction, {}).items()):
        near_rows = [row for row in rows if row["direction"] == other]
        if not near_rows or (factor is not None and generation not in factor):
            continue
        row = min(near_rows, key=lambda row: _ratio(row["head_dim"], head_dim))
        points = sorted(row["points"].items())
        curve = Curve(
            tuple(float(s) for s, _ in points),
            tuple(to_si(v, row["unit"]) for _, v in points),
            row["kind"],
            row["source"],
        )
        if factor is None:
            return curve
        f = factor[generation]
        return curve.scaled(f["value"], "derived", f"{f['value']} x {other} ({f['source']})")
    return None


def _ratio(a: float, b: float) -> float:
    return max(a / b, b / a)


def _capability(text: str) -> tuple[int, int] | None:
    major, _, minor = str(text).partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _gemm(r: _Reader) -> GemmRate:
    names = ("epsilon", "beta", "gamma", "k0", "epsilon_fp8")
    entries = {name: r.entry(f"gemm_{name}") for name in names}
    values = {name: to_si(e["value"], e["unit"]) for name, e in entries.items()}
    return GemmRate(**values, kind=entries["epsilon"]["kind"], source=entries["epsilon"]["source"])


def _attention_tables(r: _Reader) -> tuple[tuple[str, float, str, str], ...]:
    tables = []
    for reference in r.raw.get("attention", ()):
        scale = reference["scale"]
        r.note(f"attention scale to {reference['table']}", scale)
        tables.append((reference["table"], scale["value"], scale["kind"], scale["source"]))
    return tuple(tables)


def _all_reduce(r: _Reader) -> Curve | None:
    name = r.raw.get("all_reduce_table")
    if name is None:
        return None
    raw = read("measured", "all_reduce", f"{name}.yaml")
    points = sorted(raw["points"].items())
    return Curve(
        tuple(float(size) for size, _ in points),
        tuple(to_si(v, raw["unit"]) for _, v in points),
        raw["kind"],
        raw["source"],
    )


def _names_of(raw: Raw) -> tuple[str, ...]:
    return (raw["id"], raw["short"], raw["name"], *raw.get("aliases", ()))
