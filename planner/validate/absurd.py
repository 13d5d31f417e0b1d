"""Measurements that cannot be: a slip of the pen must not move a constant."""

from __future__ import annotations

from collections.abc import Sequence

from costmodels.flops import model_flops_per_step
from costmodels.numeric import GIB
from planner.validate.run import Run

WITHIN_GPU = ("allocated", "reserved", "nvidia-smi")  # kinds of peaks no GPU exceeds
TIMES = ("step_time_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct")
UNIT = 1e12
ROUNDED = 1.05  # a peak printed in whole or decimal units may exceed the GPU's memory by that


def why_absurd(run: Run) -> str:
    """Why a run's measurements cannot be true, empty where they can."""
    zero = next((name for name in (*TIMES, "peak_mem_gib") if run.row.number(name) == 0), None)
    if zero is not None:
        return f"{zero} is 0"
    memory = run.cluster.gpu.memory if run.machine.memory is None else run.machine.memory
    if run.memory is not None and run.memory_kind in WITHIN_GPU and run.memory > memory:
        return f"peak_mem_gib {run.memory / GIB:.4g} is above the {memory / GIB:.4g} GiB of a GPU"
    return _too_fast(run)


def why_impossible(run: Run) -> str:
    """Why no run can have measured this, however its figures are rounded; empty where one can.

    Zeros are no measurements there, but no reason to drop what else a row measured.
    """
    memory = run.cluster.gpu.memory if run.machine.memory is None else run.machine.memory
    if run.memory is not None and run.memory_kind in WITHIN_GPU and run.memory > ROUNDED * memory:
        return "impossible: peak_mem_gib is above the memory of a GPU"
    return "impossible: faster than the peak of a GPU" if _too_fast(run) else ""


def why_nothing(run: Run) -> str:
    """Why a run measured nothing: figures of 0, or none."""
    zero = next((name for name in (*TIMES, "peak_mem_gib") if run.row.number(name) == 0), None)
    return f"nothing measured: {zero} is 0" if zero else "nothing measured"


def _too_fast(run: Run) -> str:
    """Model FLOPs per second, attention's causal half, above the datasheet's peak."""
    peak = run.cluster.gpu.flops.get(run.precision)
    if run.time is None or not peak or run.architecture.moe is not None:
        return ""
    flops = float(model_flops_per_step(run.architecture, run.seq_len, run.sequences, True))
    rate = flops / run.time / run.n_gpus
    if rate <= peak:
        return ""
    return (
        f"{rate / UNIT:.0f} TFLOP/s of a GPU are above its peak of {peak / UNIT:.0f} in "
        f"{run.precision}"
    )


def sound(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Runs that can be true, and a line for every other one."""
    reasons = [why_absurd(run) for run in runs]
    kept = [run for run, reason in zip(runs, reasons, strict=True) if not reason]
    told = [
        f"{run.row.file} line {run.row.line}: {reason}"
        for run, reason in zip(runs, reasons, strict=True)
        if reason
    ]
    return kept, told
