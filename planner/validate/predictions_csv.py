"""``--predictions OUT.csv``: the input rows with what was predicted for them."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from planner.validate.predict import Predictions
from planner.validate.run import Run
from planner.validate.table import Row, Table

ADDED = (
    "predicted_step_time_s",
    "predicted_tokens_per_s_per_gpu",
    "predicted_peak_mem_gib",
    "predicted_outcome",
    "predicted_low_step_time_s",
    "predicted_high_step_time_s",
    "predicted_low_peak_mem_gib",
    "predicted_high_peak_mem_gib",
    "skipped",
)


def write_predictions(
    path: Path,
    tables: Sequence[Table],
    runs: Sequence[Run],
    predictions: Predictions,
    skipped: Mapping[tuple[str, int], str],
) -> None:
    """Write every row of every table of runs, in order; predictions they hold are replaced.

    Raises
    ------
    ValueError
        If the file cannot be written.
    """
    place = {(run.row.file, run.row.line): i for i, run in enumerate(runs)}
    tables = [table for table in tables if table.kind == "runs"]
    names = dict.fromkeys(name for table in tables for name in table.header)
    header = [name for name in names if name.strip().lower() not in ADDED]
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, [*header, *ADDED], restval="", lineterminator="\n")
    writer.writeheader()
    for table in tables:
        for row in table.rows:
            own = {name: text for name, text in row.printed.items() if name in header}
            writer.writerow({**own, **_added(row, place, runs, predictions, skipped)})
    try:
        path.write_text(out.getvalue(), encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot write: {error.strerror or error}") from None


def _added(
    row: Row,
    place: Mapping[tuple[str, int], int],
    runs: Sequence[Run],
    predictions: Predictions,
    skipped: Mapping[tuple[str, int], str],
) -> dict[str, str]:
    key = (row.file, row.line)
    if key not in place:
        return {"skipped": skipped.get(key, "")}
    i, p = place[key], predictions
    run, time, memory = runs[i], float(p.time[i]), float(p.memory[i])
    memory /= run.kind.memory_unit  # as its source prints it
    tokens = run.sequences * run.seq_len / (time * run.n_gpus)
    outcome = "" if math.isnan(p.device[i]) else "ok" if p.device[i] <= p.limit[i] else "oom"
    problems = p.time_problem[i], p.memory_problem[i], skipped.get(key, "")
    reasons = dict.fromkeys(filter(None, problems))
    return {
        "predicted_step_time_s": _text(time),
        "predicted_tokens_per_s_per_gpu": _text(tokens),
        "predicted_peak_mem_gib": _text(memory),
        "predicted_outcome": outcome,
        "predicted_low_step_time_s": _text(time * (1 - p.time_interval[i, 0])),
        "predicted_high_step_time_s": _text(time * (1 + p.time_interval[i, 1])),
        "predicted_low_peak_mem_gib": _text(memory * (1 - p.memory_interval[i, 0])),
        "predicted_high_peak_mem_gib": _text(memory * (1 + p.memory_interval[i, 1])),
        "skipped": "; ".join(reasons),
    }


def _text(value: float) -> str:
    """Six digits, empty where there is no prediction."""
    return "" if math.isnan(value) else f"{value:.6g}"
