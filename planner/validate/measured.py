"""What a row measured, in SI units: step time from whatever it prints, memory in bytes."""

from __future__ import annotations

from costmodels.architecture import Architecture
from costmodels.flops import hardware_flops_per_step, model_flops_per_step
from costmodels.numeric import GIB
from costmodels.params import total_parameters
from hardware_db import Cluster
from planner.validate.kinds import Flops
from planner.validate.table import Row

HARDWARE_PASSES = 8  # FLOP per parameter and token with full recompute: 2 forward twice, 4 backward


def step_flops(
    convention: Flops, architecture: Architecture, seq_len: int, sequences: int, recompute: str
) -> float:
    """FLOPs of a step as a source counts them. [FLOP]

    ``megatron_hardware``: 96 B s L h^2 (1 + s / 6h + V / 16 L h) with full recompute (Narayanan
    et al. 2021, equation 3; the head is not recomputed). ``megatron_model``: the same with 72
    and nothing repeated. ``parameters_hardware``: 8 P for every token. ``model_*``: 6 N and the
    attention of the whole square or of its causal half.
    """
    if convention == "parameters_hardware":
        return float(HARDWARE_PASSES * total_parameters(architecture) * seq_len * sequences)
    if convention == "megatron_hardware":
        return float(hardware_flops_per_step(architecture, seq_len, sequences, recompute))
    causal = convention == "model_causal_attention"
    return float(model_flops_per_step(architecture, seq_len, sequences, causal))


def step_time(
    row: Row,
    convention: Flops,
    architecture: Architecture,
    cluster: Cluster,
    precision: str,
    seq_len: int,
    sequences: int,
    recompute: str,
) -> float | None:
    """Measured time of a step: printed, or from tokens per second, TFLOP/s or MFU. [s]"""
    seconds = row.number("step_time_s")
    if seconds:
        return seconds
    rate = row.number("tokens_per_s_per_gpu")
    if rate:
        return sequences * seq_len / (rate * cluster.gpus)
    teraflops, mfu = row.number("tflops_per_gpu"), row.number("mfu_pct")
    peak = cluster.gpu.flops.get(precision)
    achieved = teraflops * 1e12 if teraflops else mfu / 100 * peak if mfu and peak else None
    if not achieved:
        return None
    flops = step_flops(convention, architecture, seq_len, sequences, recompute)
    return flops / (achieved * cluster.gpus)


def memory(row: Row, unit: float = GIB) -> float | None:
    """Measured peak of one GPU. [byte]

    ``unit``: bytes in what the source calls a GiB.
    """
    gib = row.number("peak_mem_gib")
    return gib * unit if gib else None
