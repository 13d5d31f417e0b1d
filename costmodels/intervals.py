"""How sure predictions are: ``intervals.yaml``, measured / predicted - 1 of nine runs in ten.

Written by ``python -m planner.validate RUNS.csv... --intervals costmodels/intervals.yaml`` from
held-out predictions; docs/accuracy.md says how, and how many runs the intervals hold.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

Quantity = Literal["time", "memory"]


class Bounds(BaseModel):
    """The interval of one quantity, relative, and the runs it comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: float = Field(ge=0, lt=1)  # below the prediction
    high: float = Field(ge=0)  # above
    runs: int = Field(ge=0)
    groups: int = Field(ge=0)  # a model on a cluster with one sequence length and global batch

    @property
    def source(self) -> str:
        """Where it comes from, in words."""
        if not self.runs:
            return "no run of this stack: the spread of other stacks' held-out runs, 90 %"
        what = f"{self.runs} held-out runs in {self.groups} groups"
        return f"{what}, 90 % (docs/accuracy.md, Intervals)"


class Intervals(BaseModel):
    """The file: of kinds of sources, of stacks, and of a stack that nobody measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: dict[str, dict[Quantity, Bounds]]
    stacks: dict[str, dict[Quantity, Bounds]]
    unmeasured: dict[Quantity, Bounds]

    def of_stack(self, name: str, quantity: Quantity) -> Bounds:
        """The interval of a plan's prediction on a stack."""
        return self.stacks.get(name, {}).get(quantity, self.unmeasured[quantity])


@cache
def shipped_intervals() -> Intervals:
    """The intervals the package ships."""
    text = (resources.files("costmodels") / "intervals.yaml").read_text(encoding="utf-8")
    return Intervals.model_validate(yaml.safe_load(text))


def with_intervals(name: str, data: dict[str, Any]) -> dict[str, Any]:
    """A stack's file with the intervals of its predictions, and their source, filled in."""
    filled = dict(data)
    for quantity in ("time", "memory"):
        bounds = shipped_intervals().of_stack(name, quantity)
        section = filled[quantity]
        filled[quantity] = {
            **section,
            "interval_low": bounds.low,
            "interval_high": bounds.high,
            "sources": {
                **section.get("sources", {}),
                "interval_low": bounds.source,
                "interval_high": bounds.source,
            },
        }
    return filled
