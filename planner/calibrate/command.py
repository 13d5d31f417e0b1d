"""``planner calibrate``: fit a profile to a handful of a user's own runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costmodels.calibration import SPREAD
from costmodels.numeric import Array
from costmodels.stack import Stack, stack_names
from planner.calibrate.profile import Error, Profile, StackProfile, profile_text
from planner.calibrate.shrink import Constant, Shrunk, linear, logarithmic, shrink
from planner.validate.command import read_runs
from planner.validate.predict import predict_memory, predict_time, stack_of
from planner.validate.run import Run
from planner.validate.score import grouped

FACTOR_WIDTH = 0.05  # of the allocator factor in log: stacks lie between 1.00 and 1.10
UNEXPLAINED_WIDTH = 1e9  # what frameworks hold beside what is counted, 0 to 2.7 GB [byte]
HALF = 0.5  # a mean error is about half of what nine runs in ten stay within
LEAST_HOST = 1e-5  # a host constant shipped as zero may grow from here [s]


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
    read = read_runs(runs, stack)
    profiles = {}
    for name, places in sorted(grouped([run.stack for run in read.runs]).items(), key=str):
        own = _of_stack([read.runs[int(i)] for i in places])
        if own is not None:
            profiles[str(name)] = own
    if not profiles:
        reasons = ", ".join(sorted(set(read.skipped.values()))) or "nothing measured"
        raise ValueError(f"no run to calibrate with ({reasons})")
    profile = Profile(stacks=profiles)
    if output is not None:
        try:
            output.write_text(profile_text(profile), encoding="utf-8")
        except OSError as error:
            raise ValueError(f"{output}: cannot write: {error.strerror or error}") from None
    return profile, calibration_text(profile)


def _of_stack(runs: Sequence[Run]) -> StackProfile | None:
    """Time and memory constants of one stack, None where its runs measured neither."""
    time = _fit_time(runs)
    memory = _fit_memory(runs)
    if time is None and memory is None:
        return None
    return StackProfile(
        gpus=tuple(sorted({run.machine.gpu for run in runs})),
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
        runs=fit.runs, before=fit.before, after=fit.after, cross_validated=fit.cross_validated
    )


def time_constants(stack: Stack, runs: Sequence[Run]) -> tuple[Constant, ...]:
    """Constants that runs of this kind can tell, each with its usual distance."""
    fields = ["gemm_factor", "memory_factor", "host_layer"]
    if any(run.tp > 1 for run in runs):
        fields += ["tp_factor", "host_tp"]
    return tuple(
        logarithmic(f, max(float(getattr(stack.time, f)), LEAST_HOST), SPREAD[f]) for f in fields
    )


def memory_constants(stack: Stack, runs: Sequence[Run]) -> tuple[Constant, ...]:
    """What the framework holds beside what is counted, and the allocator's slack."""
    constants = [linear("unexplained", stack.memory.unexplained, UNEXPLAINED_WIDTH)]
    if any(run.memory_kind != "allocated" for run in runs):
        slack = logarithmic("allocator_factor", stack.memory.allocator_factor, FACTOR_WIDTH)
        constants.append(Constant(slack.name, slack.width, lambda x: max(1.0, slack.value(x))))
    return tuple(constants)


def _fit_time(runs: Sequence[Run]) -> Shrunk | None:
    times, problems = predict_time(runs)
    some = [
        run
        for run, time, problem in zip(runs, times, problems, strict=True)
        if run.time and run.outcome in ("", "ok") and not problem and np.isfinite(time)
    ]
    if not some:
        return None

    def predict(values: dict[str, float]) -> Array:
        return predict_time(some, values)[0]

    measured = np.array([run.time for run in some], dtype=float)
    stack = stack_of(some[0].stack, ())
    return shrink(time_constants(stack, some), predict, measured, stack.time.error)


def _fit_memory(runs: Sequence[Run]) -> Shrunk | None:
    peaks, _, problems = predict_memory(runs)
    some = [
        run
        for run, value, problem in zip(runs, peaks, problems, strict=True)
        if run.memory and run.outcome in ("", "ok") and not problem and np.isfinite(value)
    ]
    if not some:
        return None

    def predict(values: dict[str, float]) -> Array:
        return predict_memory(some, values)[0]

    measured = np.array([run.memory for run in some], dtype=float)
    stack = stack_of(some[0].stack, ())
    expected = HALF * max(stack.memory.interval_low, stack.memory.interval_high)
    return shrink(memory_constants(stack, some), predict, measured, expected)


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
                lines.append("    shipped constants stay: none predicts left-out runs better")
    return "\n".join(lines)
