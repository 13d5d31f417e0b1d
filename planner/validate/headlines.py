"""The accuracy table: chosen figures on chosen runs, beside what other tools reach."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict

from costmodels.numeric import Array
from planner.validate.evaluate import Scored, fit_score, memory_scores, time_score
from planner.validate.kinds import matches
from planner.validate.report import Headline, OracleScore
from planner.validate.run import Run

LEAST_JUDGED = 10  # rows
LEAST_GROUPS = 3  # for ranks and regret
VERDICTS = ("fit_accuracy", "false_fit", "ok_called_oom", "failed_called_oom")
RANKED = ("rho", "regret", "worst_regret", "blind_regret")

Metric = Literal[
    "time_mape",
    "time_worst",
    "within_25",
    "rho",
    "regret",
    "worst_regret",
    "blind_regret",
    "memory_mape",
    "memory_median",
    "memory_worst",
    "fit_accuracy",
    "false_fit",
    "ok_called_oom",
    "failed_called_oom",
]


class Strict(BaseModel):
    """Base of the entries."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Aim(Strict):
    """One figure and what it should be; at least or, without ``least``, at most."""

    metric: Metric
    target: float
    least: bool = False
    peer: str = ""


class Line(Strict):
    """Some runs and their figures."""

    name: str
    cells: dict[str, str]
    bounds: dict[str, tuple[int, int]] = {}
    memory_kind: str = ""
    metrics: tuple[Aim, ...]


class Lines(Strict):
    """The whole file."""

    lines: tuple[Line, ...]


@cache
def load_lines() -> tuple[Line, ...]:
    """The lines of the table."""
    text = (resources.files("planner.validate") / "headlines.yaml").read_text(encoding="utf-8")
    return Lines.model_validate(yaml.safe_load(text)).lines


def chosen(line: Line, run: Run) -> bool:
    """Whether a run belongs to a line."""
    inside = all(low <= int(getattr(run, n)) <= high for n, (low, high) in line.bounds.items())
    kind = not line.memory_kind or run.memory_kind == line.memory_kind
    return inside and kind and matches(run.row, line.cells)


def headlines(data: Scored) -> tuple[Headline, ...]:
    """Every line that has runs."""
    found: list[Headline] = []
    for line in load_lines():
        index = np.array([i for i, run in enumerate(data.runs) if chosen(line, run)], dtype=int)
        if len(index):
            found += [
                _headline(line, aim, *_value(aim.metric, data, index)) for aim in line.metrics
            ]
    return tuple(found)


def _headline(line: Line, aim: Aim, value: float | None, rows: int, enough: bool) -> Headline:
    met = None
    if value is not None and enough:
        met = value >= aim.target if aim.least else value <= aim.target
    return Headline(
        name=line.name,
        rows=rows,
        metric=aim.metric,
        value=value,
        target=aim.target,
        peer=aim.peer,
        met=met,
    )


def _value(metric: Metric, data: Scored, index: Array) -> tuple[float | None, int, bool]:
    """The figure, the rows behind it, and whether they are enough to judge it."""
    if metric.startswith("memory"):
        scores = memory_scores(data, index)
        rows = sum(s.count for s in scores)
        if not rows:
            return None, 0, False
        if metric == "memory_worst":
            return max(s.worst for s in scores), rows, rows >= LEAST_JUDGED
        name = {"memory_mape": "mape", "memory_median": "median"}[metric]
        mean = sum(getattr(s, name) * s.count for s in scores) / rows
        return float(mean), rows, rows >= LEAST_JUDGED
    if metric in VERDICTS:
        fit = fit_score(data, index)
        if fit is None:
            return None, 0, False
        rows = fit.failed if metric == "failed_called_oom" else fit.count
        value = fit.accuracy if metric == "fit_accuracy" else getattr(fit, metric)
        return value, rows, rows >= LEAST_JUDGED
    time = time_score(data, index)
    if time is None:
        return None, 0, False
    name = {"time_mape": "mape", "time_worst": "worst"}.get(metric, metric)
    enough = time.groups >= LEAST_GROUPS if metric in RANKED else time.count >= LEAST_JUDGED
    return getattr(time, name), time.count, enough


ACTIVATIONS = "bytes saved for backward, exact counts"
PEAKS = "step peaks, exact counts"


def oracle_headlines(
    activations: OracleScore | None, peaks: OracleScore | None
) -> tuple[Headline, ...]:
    """The lines about exact counts."""
    found = []
    for score, name, metric, target, least in (
        (activations, ACTIVATIONS, "within_half_percent", 0.97, True),
        (activations, ACTIVATIONS, "within_two_percent", 1.0, True),
        (peaks, PEAKS, "mape", 0.02, False),
        (peaks, PEAKS, "right_phase", 0.95, True),
    ):
        if score is None:
            continue
        value = getattr(score, metric)
        met = None if value is None else value >= target if least else value <= target
        found.append(
            Headline(
                name=name,
                rows=score.count,
                metric=metric,
                value=value,
                target=target,
                peer="",
                met=met,
            )
        )
    return tuple(found)
