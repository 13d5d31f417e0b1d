"""The rows of tables that can be scored, and why the others cannot."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planner.validate.absurd import why_impossible, why_nothing
from planner.validate.evaluate import scored
from planner.validate.predict import Predictions
from planner.validate.run import Run
from planner.validate.table import Table
from planner.validate.text import reason_text

Skipped = dict[tuple[str, int], str]


class NothingScored(ValueError):
    """No row of the tables can be scored; why, in one line."""


@dataclass(frozen=True, slots=True)
class Read:
    """Tables that were read, the runs in them, and why other rows are not used."""

    tables: tuple[Table, ...]
    runs: tuple[Run, ...]
    skipped: Skipped
    stack: str | None = None  # to predict every run with


def without_impossible(read: Read) -> Read:
    """Without the runs whose measurements cannot be true; they are skipped, with the reason."""
    reasons = [why_impossible(run) for run in read.runs]
    told = {
        (run.row.file, run.row.line): reason
        for run, reason in zip(read.runs, reasons, strict=True)
        if reason
    }
    kept = tuple(run for run, reason in zip(read.runs, reasons, strict=True) if not reason)
    return replace(read, runs=kept, skipped={**read.skipped, **told})


def without_idle(read: Read, found: Predictions) -> tuple[Read, Predictions]:
    """Without the runs of which nothing can be scored; they are skipped, with the reason."""
    used = scored(read.runs, found).used
    kept, skipped = np.flatnonzero(used), dict(read.skipped)
    for i in map(int, np.flatnonzero(~used)):
        run, reason = read.runs[i], ""
        if run.memory or run.outcome:
            reason = found.memory_problem[i]
        if run.time and not reason:
            reason = found.time_problem[i]
        skipped[run.row.file, run.row.line] = reason or why_nothing(run)
    runs = tuple(read.runs[int(i)] for i in kept)
    return replace(read, runs=runs, skipped=skipped), found.of(kept)


def check_used(read: Read) -> None:
    """Tables of runs alone, none of them usable, are a mistake to tell."""
    if read.runs or any(table.kind != "runs" for table in read.tables):
        return
    reasons = ", ".join(reasons_of(read.skipped)) or "no rows"
    names = ", ".join(str(table.path) for table in read.tables)
    raise NothingScored(f"{names}: no row can be scored ({reasons})")


def reasons_of(skipped: Skipped) -> list[str]:
    """How many rows are not used by reason, and the line of the first."""
    places: dict[str, list[str]] = {}
    for (_, line), reason in skipped.items():
        places.setdefault(reason, []).append(f"line {line}")
    return [reason_text(*pair) for pair in sorted(places.items())]
