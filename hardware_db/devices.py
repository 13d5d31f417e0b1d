"""What the rest of the planner knows of an accelerator. SI units throughout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TOPICS = (
    ("network", "network"),
    ("nvme", "nvme"),
    ("host", "host"),
    ("cpu", "host"),
    ("pcie", "host"),
    ("fp8", "fp8"),
    ("attention", "attention"),
    ("intra", "intra"),
    ("bus", "intra"),
    ("p2p", "intra"),
)


@dataclass(frozen=True, slots=True)
class Assumption:
    """A value without a source of its own, as a report lists it."""

    where: str  # short name of the GPU or node
    what: str  # field of its file
    value: float | str  # in ``unit``
    unit: str
    why: str

    @property
    def topic(self) -> str:
        """What it bears on: network, nvme, host, fp8, attention, intra or compute.

        A report leaves out the topics its plan does not touch.
        """
        return next((topic for word, topic in _TOPICS if word in self.what), "compute")


@dataclass(frozen=True, slots=True)
class Curve:
    """Measured points of a rate against a size, ``x`` ascending.

    For attention ``x`` is the sequence length [token] and ``y`` FLOP/s; for collectives ``x`` is
    the message [byte] and ``y`` the bus bandwidth [byte/s].
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    kind: str  # measured | derived | assumed
    source: str

    def at(self, x: float | NDArray[Any]) -> NDArray[Any]:
        """``y`` at ``x``: linear in ln x between the points, constant beyond them.

        >>> float(Curve((1.0, 100.0), (2.0, 4.0), "measured", "example").at(10.0))
        3.0
        """
        logs: NDArray[Any] = np.log(np.asarray(x, dtype=float))
        return np.asarray(np.interp(logs, np.log(self.x), self.y))

    def arrays(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The points as two arrays, x and y, each of shape (n,)."""
        return np.asarray(self.x), np.asarray(self.y)

    def scaled(self, factor: float, kind: str, source: str) -> Curve:
        """The same shape with ``y`` times ``factor``."""
        return Curve(self.x, tuple(v * factor for v in self.y), kind, source)


@dataclass(frozen=True, slots=True)
class GemmRate:
    """Constants of the tile-and-wave model of a matrix product.

    ``epsilon``: share of the dense peak large products sustain in training. ``beta``: how far
    partial waves round up to whole ones. ``gamma``: exponent of the loss of tiles below 128x256.
    ``k0``: elements of K that the prologue of a tile costs. ``epsilon_fp8`` is the share of the
    fp8 peak. All dimensionless.
    """

    epsilon: float
    beta: float
    gamma: float
    k0: float
    epsilon_fp8: float
    kind: str
    source: str


@dataclass(frozen=True, slots=True)
class AttentionRates:
    """Rates of attention kernels, FlashAttention's FLOP convention.

    Forward 4 b a s^2 d_h, halved if causal; backward 2.5 times that.
    """

    flash: tuple[str, ...]
    tables: tuple[tuple[str, float, str, str], ...]  # (table, scale, kind, why), first match wins

    def curve(self, generation: str, direction: str, head_dim: int, causal: bool) -> Curve | None:
        """Rate against sequence length; None if the GPU cannot run it or nothing is known.

        Parameters
        ----------
        generation : str
            FA1, FA2, FA3, FA4, or ``efficient`` (memory-efficient, xformers) or ``eager``.
        direction : str
            ``fwd``, ``bwd`` or ``fwd+bwd``. One that was not measured is derived from another by
            the factors in ``measured/attention/directions.yaml``.
        head_dim : int
            The nearest measured head dimension, in ratio, stands for it.
        """
        from hardware_db.measured import attention_curve

        if generation.startswith("FA") and generation not in self.flash:
            return None
        for table, scale, kind, why in self.tables:
            curve = attention_curve(table, generation, direction, head_dim, causal)
            if curve is not None and kind == "measured" and scale == 1.0:
                return curve
            if curve is not None:
                return curve.scaled(scale, kind, f"{scale} x ({why}); {curve.source}")
        return None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as a training process sees it: for an MI250X one of its two dies."""

    id: str
    short: str  # as in a specification: A100-80G
    name: str
    vendor: str
    arch: str
    form_factor: str
    compute_capability: tuple[int, int] | None
    memory: float  # bytes visible to the process
    memory_bandwidth: float  # peak [byte/s]
    memory_efficiency: float  # share of it that streaming kernels reach
    flops: Mapping[str, float] = field(hash=False)  # dense, fp32 accumulation [FLOP/s]
    sms: int = 0
    l2: float = 0.0  # [byte], 0 if unknown
    link_bandwidth: float | None = None  # nominal, per direction; None if PCIe only [byte/s]
    pcie_bandwidth: float = 0.0  # effective, per direction [byte/s]
    bus_bandwidth: float = 0.0  # large-message all-reduce inside a node [byte/s]
    launch_latency: float = 0.0  # between tiny kernels of one stream [s]
    supports: frozenset[str] = frozenset()  # precisions one can train in
    flash: tuple[str, ...] = ()  # FlashAttention generations with a backward pass
    memory_efficient_attention: bool = True
    launchable: bool = True  # some stack here can launch on it
    gcds: int = 1  # devices on one card
    price_per_hour: float | None = None  # lowest listed, one device [USD/h]
    reference_nodes: tuple[str, ...] = ()
    gemm: GemmRate = GemmRate(0.8, 0.6, 0.5, 180.0, 0.74, "assumed", "default")
    attention: AttentionRates = AttentionRates((), ())
    all_reduce_curve: Curve | None = None  # 8 GPUs of one node
    assumed: tuple[Assumption, ...] = field(default=(), compare=False)
