"""The intervals that predictions of measured runs carry."""

from __future__ import annotations

import json

from costmodels.intervals import Quantity, shipped_intervals
from costmodels.stack import Stack
from planner.validate.run import Run


def interval_of(run: Run, stack: Stack, quantity: Quantity) -> tuple[float, float]:
    """The interval of a run's prediction: of its kind where that has runs, or of its stack.

    Another stack than the one that ran has its own. Bounds that a profile brings are the least.
    """
    kinds = shipped_intervals().kinds
    own = kinds.get(run.spread(quantity), kinds.get(run.kind.name, {})).get(quantity)
    if own is not None and run.stack == run.kind.stack and run.comparable:
        least = {field: json.loads(v) for section, field, v in run.changes if section == quantity}
        low, high = least.get("interval_low", 0.0), least.get("interval_high", 0.0)
        return max(own.low, low), max(own.high, high)
    profile = stack.time if quantity == "time" else stack.memory
    return profile.interval_low, profile.interval_high
