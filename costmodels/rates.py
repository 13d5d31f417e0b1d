"""Hardware and stack bound together: the rates the time formulas need for one configuration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costmodels.attention import AttentionRates
from costmodels.collectives import Links
from costmodels.configuration import Configuration
from costmodels.gemm import GemmRates
from hardware_db import Cluster, Gpu

ELEMENT = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 2.0}  # activations [byte]
GRADIENT = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0}  # Configuration.grad_dtype [byte]


@dataclass(frozen=True, slots=True)
class Host:
    """A node's other half: link of one GPU both ways, CPU update of one parameter, drives.

    ``update_seconds`` is for all cores of the node; drive rates are the node's, infinite wait
    (rate 0) where it has none. [byte/s, byte/s, s, byte/s, byte/s]
    """

    to_host: float
    to_device: float
    update_seconds: float
    nvme_read: float
    nvme_write: float


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of one configuration's GPU, links and host.

    ``gemm``: products with weights, ``product``: those kept in 16 bit when training in fp8
    (scores, logits). ``attention`` is None where scores are stored. Bytes of an element of the
    activations, of an accumulated and a reduced gradient, and of a weight.
    """

    gemm: GemmRates
    product: GemmRates
    attention: AttentionRates | None
    links: Links
    host: Host
    bandwidth: float
    element: float
    gradient_bytes: float
    reduced_bytes: float
    weight_bytes: float


def rates_of(cfg: Configuration) -> Rates:
    """The rates of a configuration.

    Raises
    ------
    ValueError
        If the GPU cannot compute in the precision or has no kernel for the attention.
    """
    gpu, element = cfg.cluster.gpu, ELEMENT[cfg.precision]
    gradient = cfg.stack.time.gradient_bytes[cfg.precision]
    if cfg.grad_dtype != "auto":
        gradient = GRADIENT[cfg.grad_dtype]
    product = _gemm(cfg, gpu, "bf16" if cfg.precision == "fp8" else cfg.precision)
    return Rates(
        gemm=_gemm(cfg, gpu, cfg.precision),
        product=product,
        attention=_attention(cfg, gpu),
        links=links_of(cfg.cluster),
        host=_host(cfg.cluster),
        bandwidth=product.bandwidth,
        element=element,
        gradient_bytes=gradient,
        reduced_bytes=cfg.stack.time.wire_bytes.get(cfg.precision, gradient),
        weight_bytes=element,
    )


def links_of(cluster: Cluster) -> Links:
    """The cluster's links."""
    node, curve = cluster.node, cluster.gpu.all_reduce_curve
    sizes, bandwidths = curve.arrays() if curve is not None else (np.empty(0), np.empty(0))
    return Links(
        gpus_per_node=cluster.gpus_per_node,
        intra=node.intra_bandwidth,
        pair=node.p2p_bandwidth,
        node=node.inter_bandwidth,
        sizes=sizes,
        bandwidths=bandwidths,
    )


def _host(cluster: Cluster) -> Host:
    node = cluster.node
    return Host(
        to_host=node.pcie_bandwidth,
        to_device=node.pcie_bandwidth,
        update_seconds=node.cpu_adam_time,
        nvme_read=node.nvme_read or np.inf,
        nvme_write=node.nvme_write or np.inf,
    )


def _gemm(cfg: Configuration, gpu: Gpu, precision: str) -> GemmRates:
    if precision not in gpu.flops:
        known = ", ".join(gpu.flops)
        raise ValueError(f"{gpu.short} has no {precision} rate: expected one of {known}")
    fp8, time = precision == "fp8", cfg.stack.time
    family = time.gemm_by_arch.get(gpu.arch.split()[0], 1.0)
    efficiency = gpu.gemm.epsilon_fp8 * time.gemm_fp8 if fp8 else gpu.gemm.epsilon * family
    return GemmRates(
        peak=gpu.flops[precision] * time.clock,
        units=gpu.sms,
        bandwidth=gpu.memory_bandwidth * gpu.memory_efficiency * time.bandwidth,
        efficiency=efficiency * time.gemm_factor,
        tile_exponent=gpu.gemm.gamma,
        wave_rounding=gpu.gemm.beta,
        ramp=gpu.gemm.k0 * (2.0 if fp8 else 1.0),
        element=1.0 if fp8 else ELEMENT[precision],
    )


def _attention(cfg: Configuration, gpu: Gpu) -> AttentionRates | None:
    if cfg.attention == "eager":
        return None
    kernels = cfg.stack.time.flash if cfg.attention == "flash" else (cfg.attention,)
    width = cfg.architecture.head_dim
    if cfg.architecture.mla is not None:
        width = cfg.architecture.mla.qk_nope_head_dim + cfg.architecture.mla.qk_rope_head_dim
    for kernel in kernels:
        forward = gpu.attention.curve(kernel, "fwd", width, True)
        backward = gpu.attention.curve(kernel, "bwd", width, True)
        if forward is None or backward is None:
            continue
        seq, rate = forward.arrays()
        time = cfg.stack.time
        scale = time.flash_factor * time.clock * _slower(gpu, cfg.precision)
        return AttentionRates(seq, rate * scale, backward.at(seq) * scale, gpu.sms)
    raise ValueError(
        f"{cfg.attention} attention has no kernel on {gpu.short} with {cfg.stack.name}: "
        "use efficient or eager"
    )


def _slower(gpu: Gpu, precision: str) -> float:
    """The precision's rate over the 16-bit one the kernels were measured in. [-]"""
    half = gpu.flops.get("bf16", gpu.flops.get("fp16", gpu.flops["fp32"]))
    return gpu.flops["fp32"] / half if precision in ("fp32", "tf32") else 1.0
