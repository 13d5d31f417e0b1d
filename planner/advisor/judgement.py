"""What is predicted for a configuration: whether it fits, and how fast it is."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from planner.advisor.settings import AXES
from planner.plan import Assumption, HostLine, Interval, Predicted, Result, Verdict

PARTS_SHOWN = 4


class Part(BaseModel):
    """One part of the step's time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    time_s: float
    share: float


class Judgement(BaseModel):
    """The prediction for a configuration. Memory is per GPU, host RAM per node."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Verdict
    by_bytes: int  # to the limit: negative is short
    peak_memory_bytes: int
    peak_memory_interval_bytes: Interval
    memory_limit_bytes: int
    peak_phase: str
    memory: dict[str, int]
    host: tuple[HostLine, ...]
    host_verdict: Literal["fits", "does not fit"]
    nvme_bytes: int
    step_time_s: float | None
    step_time_interval_s: Interval | None
    tokens_per_s_per_gpu: float | None
    largest_parts: tuple[Part, ...]
    configuration: dict[str, int | str]
    assumptions: tuple[Assumption, ...]

    @property
    def fits(self) -> bool:
        """Whether GPU and host RAM hold it; a tight GPU counts as holding."""
        return self.verdict != "does not fit" and self.host_verdict == "fits"


def judgement(result: Result) -> Judgement:
    """A prediction as the advisor words it."""
    predicted, plan = result.predicted, result.plan
    assert predicted is not None
    assert plan is not None
    return Judgement(
        verdict=predicted.verdict,
        by_bytes=predicted.memory_limit_bytes - predicted.peak_memory_bytes,
        peak_memory_bytes=predicted.peak_memory_bytes,
        peak_memory_interval_bytes=predicted.peak_memory_interval_bytes,
        memory_limit_bytes=predicted.memory_limit_bytes,
        peak_phase=predicted.peak_phase,
        memory=dict(predicted.memory),
        host=predicted.host,
        host_verdict="fits" if all(line.fits for line in predicted.host) else "does not fit",
        nvme_bytes=predicted.nvme_bytes,
        step_time_s=predicted.step_time_s,
        step_time_interval_s=predicted.step_time_interval_s,
        tokens_per_s_per_gpu=predicted.tokens_per_s_per_gpu,
        largest_parts=_largest(predicted),
        configuration={
            axis: int(v) if isinstance(v := getattr(plan, axis), bool) else v
            for axis in (*AXES, "stack")
        },
        assumptions=result.assumptions,
    )


def _largest(predicted: Predicted) -> tuple[Part, ...]:
    total = predicted.step_time_s
    if not total:
        return ()
    ranked = sorted(predicted.time.items(), key=lambda item: -item[1])[:PARTS_SHOWN]
    return tuple(
        Part(name=name, time_s=time, share=time / total) for name, time in ranked if time > 0
    )
