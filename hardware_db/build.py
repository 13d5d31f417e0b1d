"""From YAML entries to frozen dataclasses in SI units.

Values an entry leaves out come from ``measured/defaults.yaml``; whatever is assumed is noted.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hardware_db.cluster import Node
from hardware_db.devices import Assumption, AttentionRates, Curve, GemmRate, Gpu
from hardware_db.files import Raw, default_entry, read
from hardware_db.measured import all_reduce_curve
from hardware_db.units import to_si

# Measured attention tables, and the kernel generation each is the first to have.
_FIRST_WITH = {"a100-sxm4-80g": None, "h100-sxm5-80g": "FA3", "gb200-186g": "FA4"}


@dataclass(slots=True)
class _Reader:
    """Reads values of one entry, falls back on the defaults, remembers what is assumed."""

    raw: Raw
    assumed: list[Assumption] = field(default_factory=list)

    def entry(self, name: str) -> Raw:
        found: Raw = self.raw.get(name) or default_entry(name)
        self.note(name, found)
        return found

    def note(self, name: str, found: Raw) -> None:
        if found["kind"] == "assumed":
            values = (found["value"], found["unit"], found["source"])
            self.assumed.append(Assumption(self.raw["short"], name, *values))

    def number(self, name: str) -> float:
        found = self.entry(name)
        return to_si(found["value"], found["unit"])

    def optional(self, name: str) -> float | None:
        return self.number(name) if self.raw.get(name) else None


def build_gpu(raw: Raw) -> Gpu:
    """A GPU from its YAML entry."""
    r = _Reader(raw)
    flops = _flops(r)
    gcds = int(r.number("gcds"))
    if gcds > 1:
        r.assumed.append(_dies(raw["short"], gcds))
    flash = tuple(r.entry("flash")["value"])
    return Gpu(
        id=raw["id"],
        short=raw["short"],
        name=raw["name"],
        vendor=raw["vendor"],
        arch=raw["arch"],
        form_factor=raw["form_factor"],
        compute_capability=_capability(raw.get("compute_capability")),
        memory=r.number("memory"),
        memory_bandwidth=r.number("memory_bandwidth"),
        memory_efficiency=r.number("memory_efficiency"),
        flops=flops,
        sms=int(r.number("sms")),
        l2=r.optional("l2") or 0.0,
        link_bandwidth=r.optional("link_bandwidth"),
        pcie_bandwidth=r.number("pcie_bandwidth"),
        bus_bandwidth=r.number("bus_bandwidth"),
        launch_latency=r.number("launch_latency"),
        supports=frozenset(r.entry("trains_in")["value"]) & set(flops) | {"fp32"},
        flash=flash,
        memory_efficient_attention=bool(r.entry("memory_efficient_attention")["value"]),
        launchable=bool(r.entry("launchable")["value"]),
        gcds=gcds,
        price_per_hour=r.optional("price_per_hour"),
        reference_nodes=tuple(raw.get("reference_nodes", ())),
        gemm=_gemm(r, "fp8" in flops),
        attention=AttentionRates(flash, _attention_tables(r)),
        all_reduce_curve=_all_reduce(raw),
        assumed=tuple(r.assumed),
    )


def build_node(raw: Raw, gpu: Gpu) -> Node:
    """A node from its YAML entry and its GPU, whose link figures become those of the node."""
    r = _Reader(raw)
    gpu = _placed(r, gpu)
    count = int(r.number("nvme_count"))
    cpu_memory_bandwidth = r.number("cpu_memory_bandwidth")
    return Node(
        id=raw["id"],
        short=raw["short"],
        name=raw["name"],
        provider=raw["provider"],
        gpus=int(r.number("gpus")),
        gpu=gpu,
        topology=raw["topology"],
        intra_bandwidth=gpu.bus_bandwidth,
        p2p_bandwidth=r.optional("p2p_bandwidth") or gpu.bus_bandwidth,
        inter_bandwidth=r.number("network_bandwidth") * r.number("network_efficiency"),
        fabric=raw["fabric"],
        host_memory=r.number("host_memory"),
        cpu_cores=int(r.number("cpu_cores")),
        cpu_memory_bandwidth=cpu_memory_bandwidth,
        cpu_adam_time=_cpu_adam_time(r, cpu_memory_bandwidth),
        pcie_bandwidth=gpu.pcie_bandwidth,
        nvme_count=count,
        nvme_capacity=count * r.number("nvme_drive_capacity") if count else 0.0,
        nvme_read=_drives_rate(r, count, "read"),
        nvme_write=_drives_rate(r, count, "write"),
        price_per_hour=r.optional("price_per_hour"),
        assumed=tuple(r.assumed),
    )


def _dies(short: str, gcds: int) -> Assumption:
    """What a reader of the counts has to know of a card with several dies."""
    why = f"8x{short} is {8 * gcds} devices; every figure per GPU is of one device"
    return Assumption(short, "gcds", f"{gcds} devices a card", "-", why)


def _placed(r: _Reader, gpu: Gpu) -> Gpu:
    """The GPU with the links this node gives it."""
    given = {
        "bus_bandwidth": r.optional("intra_bandwidth"),
        "pcie_bandwidth": r.optional("pcie_bandwidth"),
    }
    given_names = {name for name, value in given.items() if value is not None}
    curve = gpu.all_reduce_curve
    bus = given["bus_bandwidth"] or gpu.bus_bandwidth
    if "NVSwitch" not in r.raw["topology"]:
        curve = None
    elif curve is not None and bus != gpu.bus_bandwidth:
        curve = curve.scaled(bus / gpu.bus_bandwidth, "derived", f"scaled; {curve.source}")
    return replace(
        gpu,
        bus_bandwidth=bus,
        pcie_bandwidth=given["pcie_bandwidth"] or gpu.pcie_bandwidth,
        all_reduce_curve=curve,
        assumed=tuple(a for a in gpu.assumed if a.what not in given_names),
    )


def _cpu_adam_time(r: _Reader, bandwidth: float) -> float:
    """As stated; else the default, which holds at the default bandwidth, scaled to this one's."""
    if r.raw.get("cpu_adam_time"):
        return r.number("cpu_adam_time")
    usual, at = default_entry("cpu_adam_time"), default_entry("cpu_memory_bandwidth")
    value = usual["value"] * to_si(at["value"], at["unit"]) / bandwidth
    r.note("cpu_adam_time", {**usual, "value": float(f"{value:.3g}")})
    return to_si(value, usual["unit"])


def _drives_rate(r: _Reader, count: int, way: str) -> float:
    if count == 0:
        return 0.0
    total = r.optional(f"nvme_{way}")
    return count * r.number(f"nvme_drive_{way}") if total is None else total


def _flops(r: _Reader) -> dict[str, float]:
    for precision, entry in r.raw["flops"].items():
        r.note(f"flops {precision}", entry)
    return {p: to_si(entry["value"], entry["unit"]) for p, entry in r.raw["flops"].items()}


def _capability(entry: Raw | None) -> tuple[int, int] | None:
    """(8, 0) of "8.0"; None for what CUDA does not number, such as gfx942."""
    major, _, minor = str(entry["value"] if entry else "").partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None


def _gemm(r: _Reader, fp8: bool) -> GemmRate:
    epsilon = r.entry("gemm_epsilon")
    return GemmRate(
        epsilon=epsilon["value"],
        beta=r.number("gemm_beta"),
        gamma=r.number("gemm_gamma"),
        k0=r.number("gemm_k0"),
        epsilon_fp8=r.number("gemm_epsilon_fp8") if fp8 else 0.0,
        kind=epsilon["kind"],
        source=epsilon["source"],
    )


def _attention_tables(r: _Reader) -> tuple[tuple[str, float, str, str], ...]:
    tables = []
    stated = r.raw.get("attention")
    for reference in _usual_tables(r) if stated is None else stated:
        scale = reference["scale"]
        r.note(f"attention rates, scale to {reference['table']}", scale)
        tables.append((reference["table"], scale["value"], scale["kind"], scale["source"]))
    return tuple(tables)


def _usual_tables(r: _Reader) -> list[Raw]:
    """What stands in where no attention rates are stated: others', by sustained matmul rate."""
    flash = r.raw["flash"]["value"] if r.raw.get("flash") else ()
    names = [table for table, kernel in _FIRST_WITH.items() if kernel is None or kernel in flash]
    return [{"table": table, "scale": _by_matmul_rate(r.raw, table)} for table in names]


def _by_matmul_rate(raw: Raw, table: str) -> Raw:
    """Sustained 16-bit rate over that of the GPU a table was measured on."""
    ratio = _sustained(raw) / _sustained(read("gpus", f"{table}.yaml"))
    source = f"not stated: by sustained matmul rate against {table}"
    return {"value": round(ratio, 4), "unit": "-", "kind": "assumed", "source": source}


def _sustained(raw: Raw) -> float:
    """Peak times the share large products reach. [FLOP/s]"""
    flops = raw["flops"]
    peak = flops.get("bf16") or flops.get("fp16") or next(iter(flops.values()))
    epsilon = raw.get("gemm_epsilon") or default_entry("gemm_epsilon")
    return float(to_si(peak["value"], peak["unit"]) * epsilon["value"])


def _all_reduce(raw: Raw) -> Curve | None:
    table = raw.get("all_reduce_table")
    return None if table is None else all_reduce_curve(table)
