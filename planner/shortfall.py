"""By how much a configuration exceeds what it may use, and how that is said.

The rule is that of ``estimate``: an interval above the limit does not fit, and lacks what the
point estimate lacks; an interval that holds the limit is tight, and may lack what its upper end
lacks.
"""

from __future__ import annotations

from planner.plan import Predicted, Verdict
from planner.report_rows import gib


def gpu_lacks(predicted: Predicted) -> int:
    """Bytes short on the worst GPU by the point estimate; 0 unless it does not fit."""
    if predicted.verdict != "does not fit":
        return 0
    return predicted.peak_memory_bytes - predicted.memory_limit_bytes


def gpu_may_lack(predicted: Predicted) -> int:
    """Bytes short on the worst GPU at the upper end of the interval; 0 unless it is tight."""
    if predicted.verdict != "tight":
        return 0
    return round(predicted.peak_memory_interval_bytes.high) - predicted.memory_limit_bytes


def host_lacks(predicted: Predicted) -> int:
    """Bytes short in the RAM of a node while loading or training; 0 if it fits."""
    used = [line for line in predicted.host if line.what != "saving"]
    return max([line.bytes - line.limit_bytes for line in used] + [0])


def whole_verdict(predicted: Predicted) -> Verdict:
    """The verdict of GPU and host RAM together."""
    return "does not fit" if host_lacks(predicted) else predicted.verdict


def what_is_short(predicted: Predicted) -> str:
    """What keeps it from fitting for certain, in a few words; empty if nothing does."""
    if gpu_lacks(predicted):
        return f"GPU short by {gib(gpu_lacks(predicted))}"
    if host_lacks(predicted):
        return f"host RAM short by {gib(host_lacks(predicted))}"
    if gpu_may_lack(predicted):
        return f"may not fit: up to {gib(predicted.peak_memory_interval_bytes.high)}"
    return ""
