"""The intervals that predictions of known kinds of sources carry, from ``intervals.yaml``."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from costmodels.stack import Stack
from planner.validate.run import Run

LEAST_RUNS = 8  # fewer say too little about a tenth


class Bounds(BaseModel):
    """The interval of one quantity, and the runs it comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float = Field(ge=0, lt=1)
    high: float = Field(ge=0)
    runs: int = Field(ge=LEAST_RUNS)


class Shipped(BaseModel):
    """``intervals.yaml``: by kind of source, then quantity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: dict[str, dict[Literal["time", "memory"], Bounds]]


@cache
def shipped_intervals() -> Shipped:
    """Intervals the package ships for kinds of sources it knows."""
    text = (resources.files("planner.validate") / "intervals.yaml").read_text(encoding="utf-8")
    return Shipped.model_validate(yaml.safe_load(text))


def interval_of(run: Run, stack: Stack, quantity: Literal["time", "memory"]) -> tuple[float, float]:
    """The interval of a run's prediction: of its kind where enough runs are known, or its stack.

    Another stack than the one that ran has its own.
    """
    own = shipped_intervals().kinds.get(run.kind.name, {}).get(quantity)
    if own is not None and run.stack == run.kind.stack and run.comparable:
        return own.low, own.high
    profile = stack.time if quantity == "time" else stack.memory
    return profile.interval_low, profile.interval_high
