"""The files that launch a plan, for its own stack and for others.

``emit`` writes what the plan's stack needs. ``convert`` writes the same plan for another target,
refuses with the reason, or says what gets lost. The same input gives the same bytes.
"""

from __future__ import annotations

from planner.emit.convert import TARGETS, Conversion, convert, targets
from planner.emit.stacks import EMITTERS, emit, emit_notes, job_refusal
from planner.emit.torchtitan import model_refusal

__all__ = [
    "EMITTERS",
    "TARGETS",
    "Conversion",
    "convert",
    "emit",
    "emit_notes",
    "job_refusal",
    "model_refusal",
    "targets",
]
