"""``planner calibrate``: fit a profile to a handful of a user's own runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path

import numpy as np

from costmodels.memory_profile import MemoryProfile
from costmodels.stack import Stack, stack_names
from costmodels.time_profile import TimeProfile
from planner.calibrate.profile import MOST_LOW, Error, Profile, StackProfile, profile_text
from planner.calibrate.shrink import Constant, Shrunk, shrink
from planner.validate.absurd import sound
from planner.validate.command import read_runs
from planner.validate.outputs import check_output
from planner.validate.predict import predict_memory, predict_time, stack_of
from planner.validate.run import Run
from planner.validate.score import grouped
from planner.validate.usable import reasons_of

# Nine in ten held-out runs of one source lie within this around their middle (docs/accuracy.md),
# but for nanotron's slow mode, V100 runs whose authors warn of 40 %, and fine-tunes on unpadded
# data. A wider interval says that clusters differ, which is what there is to learn.
SCATTER = 0.25
FACTOR_WIDTH = 0.05  # of the allocator factor in log: stacks lie between 1.00 and 1.10
DIGITS = 1e4  # of a bound
RATE = "gemm_factor"  # multiplies a rate; the others multiply times
SINGLE = (RATE, "memory_factor", "host_layer")
TENSOR = ("tp_factor", "host_tp")
# How far, in log, a constant lies from its shipped value between clusters and versions: two to
# three times what it moves between folds of the runs it was fitted to (docs/accuracy.md).
WIDTHS = {
    RATE: 0.05,
    "memory_factor": 0.15,
    "host_layer": 0.3,
    "tp_factor": 0.25,
    "host_tp": 0.4,
}


def calibrate(
    runs: Sequence[Path], output: Path | None = None, stack: str | None = None
) -> tuple[Profile, str]:
    """Fit constants of the stacks that ran to measured step times and peaks.

    Parameters
    ----------
    runs : Sequence[Path]
        CSV tables of measured runs.
    output : Path, optional
        Where to write the profile.
    stack : str, optional
        Stack that ran, where the tables do not say.

    Returns
    -------
    tuple[Profile, str]
        The profile, and what it changed with errors before and after.

    Raises
    ------
    ValueError
        In one line: unreadable table, no run that can be used, unwritable output.
    """
    if stack is not None and stack not in stack_names():
        raise ValueError(f"unknown stack {stack!r}: expected one of {', '.join(stack_names())}")
    check_output(output, runs)
    read = read_runs(runs, stack)
    used, absurd = sound(read.runs)
    profiles = {}
    for name, places in sorted(grouped([run.stack for run in used]).items(), key=str):
        own = _of_stack([used[int(i)] for i in places])
        if own is not None:
            profiles[str(name)] = own
    if not profiles:
        reasons = [*absurd[:1], *reasons_of(read.skipped)] or ["nothing measured"]
        raise ValueError(f"no run to calibrate with ({', '.join(reasons)})")
    profile = Profile(stacks=profiles)
    if output is not None:
        try:
            output.write_text(profile_text(profile), encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{output}: cannot write: {error.strerror or error}") from None
    skipped = [f"not used: {line}" for line in (*absurd, *reasons_of(read.skipped))]
    return profile, "\n".join([calibration_text(profile), *skipped])


def _of_stack(runs: Sequence[Run]) -> StackProfile | None:
    """Time and memory constants of one stack, None where its runs measured neither."""
    time = _fit_time(runs)
    memory = _fit_memory(runs)
    if time is None and memory is None:
        return None
    return StackProfile(
        gpus=tuple(sorted({run.cluster.gpu.id for run in runs})),
        time=_rounded(time),
        memory=_rounded(memory),
        time_error=_error(time),
        memory_error=_error(memory),
    )


def _rounded(fit: Shrunk | None) -> dict[str, float]:
    """Six digits are more than runs can tell."""
    return {} if fit is None else {k: float(f"{v:.6g}") for k, v in fit.constants.items()}


def _error(fit: Shrunk | None) -> Error | None:
    if fit is None:
        return None
    return Error(
        runs=fit.runs,
        before=fit.before,
        after=fit.after,
        cross_validated=fit.cross_validated,
        low=min(_up(fit.low), MOST_LOW),
        high=_up(fit.high),
    )


def _up(share: float) -> float:
    """A bound rounded up, so that rounded constants still hold their own runs."""
    return math.ceil(share * DIGITS + 1) / DIGITS if share > 0 else 0.0


def common_time(stack: Stack, runs: Sequence[Run]) -> Constant:
    """All rates and host times by one factor; those of tensor parallelism where a run has any."""
    fields = [*SINGLE, *(TENSOR if any(run.tp > 1 for run in runs) else ())]

    def value(x: float) -> dict[str, float]:
        moved = {f: float(getattr(stack.time, f) * np.exp(-x if f == RATE else x)) for f in fields}
        return {name: number for name, number in moved.items() if number > 0}

    return Constant(value)


def single_times(stack: Stack, runs: Sequence[Run]) -> Callable[[dict[str, float]], list[Constant]]:
    """The same one by one, around other values."""
    fields = [*SINGLE, *(TENSOR if any(run.tp > 1 for run in runs) else ())]

    def constants(values: dict[str, float]) -> list[Constant]:
        found = []
        for f in fields:
            start = values.get(f, float(getattr(stack.time, f)))
            if start > 0:
                found.append(_factor(f, start, WIDTHS[f]))
        return found

    return constants


def _factor(name: str, start: float, width: float, least: float = 0.0) -> Constant:
    return Constant(lambda x: {name: max(least, float(start * np.exp(x)))}, width)


def common_memory(stack: Stack, typical: float) -> Constant:
    """What the framework holds beside what is counted, in units of a typical peak."""
    start = stack.memory.unexplained
    return Constant(lambda x: {"unexplained": float(max(0.0, start + typical * x))})


def single_memory(
    stack: Stack, runs: Sequence[Run]
) -> Callable[[dict[str, float]], list[Constant]]:
    """The allocator's slack, where runs measured more than what tensors allocate."""
    slack = any(run.memory_kind != "allocated" for run in runs)
    start = stack.memory.allocator_factor
    return lambda _: [_factor("allocator_factor", start, FACTOR_WIDTH, 1.0)] if slack else []


def _explained(section: TimeProfile | MemoryProfile) -> tuple[float, float]:
    """The interval of a stack as far as it is the scatter of runs, not how clusters differ."""
    return min(section.interval_low, SCATTER), min(section.interval_high, SCATTER)


def shape_of(run: Run) -> Hashable:
    """What tells a run from another one that would hardly say anything new."""
    return (run.architecture, run.n_gpus, run.seq_len, run.tp, run.pp)


def _fit_time(runs: Sequence[Run]) -> Shrunk | None:
    times, problems = predict_time(runs)
    some = [
        run
        for run, time, problem in zip(runs, times, problems, strict=True)
        if run.time and run.outcome in ("", "ok") and not problem and np.isfinite(time)
    ]
    if not some:
        return None
    measured = np.array([run.time for run in some], dtype=float)
    stack = stack_of(some[0].stack, ())
    return shrink(
        common_time(stack, some),
        single_times(stack, some),
        lambda values: predict_time(some, values)[0],
        measured,
        _explained(stack.time),
        [shape_of(run) for run in some],
    )


def _fit_memory(runs: Sequence[Run]) -> Shrunk | None:
    peaks, _, problems = predict_memory(runs)
    some = [
        run
        for run, value, problem in zip(runs, peaks, problems, strict=True)
        if run.memory and run.outcome in ("", "ok") and not problem and np.isfinite(value)
    ]
    if not some:
        return None
    measured = np.array([run.memory for run in some], dtype=float)
    stack = stack_of(some[0].stack, ())
    return shrink(
        common_memory(stack, float(np.median(measured))),
        single_memory(stack, some),
        lambda values: predict_memory(some, values)[0],
        measured,
        _explained(stack.memory),
        [shape_of(run) for run in some],
    )


def calibration_text(profile: Profile) -> str:
    """What was fitted, and errors before and after."""
    lines = []
    for name, own in profile.stacks.items():
        lines.append(f"{name} ({', '.join(own.gpus)})")
        for what, fields, error in (
            ("step time", own.time, own.time_error),
            ("peak memory", own.memory, own.memory_error),
        ):
            if error is None:
                continue
            how = "cross-validated" if error.cross_validated else "one run, not cross-validated"
            lines.append(
                f"  {what}: {error.runs} runs, mean error {100 * error.before:.1f} % -> "
                f"{100 * error.after:.1f} % ({how})"
            )
            if fields:
                lines += [f"    {field} = {value:.6g}" for field, value in fields.items()]
            else:
                why = (
                    "errors are within their interval, or runs left out are not predicted clearly"
                    " better"
                    if error.cross_validated
                    else "no other run checks this one"
                )
                lines.append(f"    shipped constants stay: {why}")
    return "\n".join(lines)
