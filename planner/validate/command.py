"""``planner validate``: read tables, predict, score, report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costmodels.stack import load_stack, stack_names
from planner.validate.accuracy import accuracy_page
from planner.validate.consistency import without_repeats
from planner.validate.evaluate import Scored, scored, source_score, verdict_score
from planner.validate.headlines import ACTIVATIONS, PEAKS, headlines, oracle_headlines
from planner.validate.intervals import find_intervals, interval_text
from planner.validate.kinds import kind_of, load_kinds
from planner.validate.logo import leave_out
from planner.validate.memory_logo import leave_out_memory
from planner.validate.oracle import score_oracle
from planner.validate.outputs import check_output
from planner.validate.predict import predict
from planner.validate.predictions_csv import write_predictions
from planner.validate.report import (
    ChoiceScore,
    ConstantScore,
    Report,
    SourceScore,
    Split,
    VerdictScore,
)
from planner.validate.residuals import MISSED, missed_splits, source_splits
from planner.validate.resolve import Calibrated, resolve, stack_name
from planner.validate.run import Changes, Run, Skip
from planner.validate.score import grouped
from planner.validate.table import Row, read_table
from planner.validate.text import report_text
from planner.validate.usable import Read, Skipped, check_used, without_idle, without_impossible


def validate(
    runs: Sequence[Path],
    logo: bool = False,
    stack: str | None = None,
    predictions: Path | None = None,
    profile: Path | None = None,
    residuals: Sequence[str] = (),
) -> tuple[Report, str]:
    """Score the cost models on tables of measured runs.

    Parameters
    ----------
    runs : Sequence[Path]
        CSV tables: measured runs, or exactly counted bytes.
    logo : bool
        Refit every fitted constant without the runs it is scored on.
    stack : str, optional
        Predict every run with this stack.
    predictions : Path, optional
        Where to write the rows with their predictions.
    profile : Path, optional
        A profile made by ``planner calibrate``.
    residuals : Sequence[str]
        What to split by axis: parts of names of sources, and ``missed`` for every figure of the
        accuracy table that misses its target.

    Returns
    -------
    tuple[Report, str]
        The report, and its text.

    Raises
    ------
    ValueError
        In one line: unreadable table, missing columns, nonsense cells, unknown stack or source, no
        row that can be scored.
    """
    if stack is not None and stack not in stack_names():
        raise ValueError(f"unknown stack {stack!r}: expected one of {', '.join(stack_names())}")
    check_output(predictions, (*runs, profile))
    read = read_runs(runs, stack, profile)
    if predictions is not None and all(table.kind != "runs" for table in read.tables):
        raise ValueError(f"{predictions}: no table of measured runs whose predictions to write")
    read = without_impossible(read)
    check_used(read)
    found = predict(read.runs)
    idle = without_idle(read, found)
    if predictions is not None:
        write_predictions(predictions, read.tables, read.runs, found, idle[0].skipped)
    read, found = idle
    check_used(read)
    constants = leave_out(read.runs, found) if logo else ()
    choices = leave_out_memory(read.runs, found) if logo else ()
    data = scored(read.runs, found)
    report = make_report(read, data, logo, constants, choices, _uncovered(read.runs, profile))
    report = report.model_copy(update={"residuals": _splits(report, data, residuals)})
    return report, report_text(report)


def _splits(report: Report, data: Scored, asked: Sequence[str]) -> tuple[Split, ...]:
    """What is behind missed figures, and behind the sources asked for."""
    counted = {ACTIVATIONS: report.oracle_activations, PEAKS: report.oracle_peaks}
    missed = missed_splits(data, report.headlines, counted) if MISSED in asked else ()
    return (*missed, *source_splits(data, [name for name in asked if name != MISSED]))


def publish(
    runs: Sequence[Path], page: Path | None = None, intervals: Path | None = None
) -> tuple[Report, Report]:
    """Write the accuracy page and the intervals that tables of runs ask for.

    Parameters
    ----------
    runs : Sequence[Path]
        CSV tables: measured runs, or exactly counted bytes.
    page : Path, optional
        Markdown, as docs/accuracy.md.
    intervals : Path, optional
        YAML, as costmodels/intervals.yaml.

    Returns
    -------
    tuple[Report, Report]
        Without and with refitted constants.

    Raises
    ------
    ValueError
        As ``validate``; if a file cannot be written; if runs are too few for intervals.
    """
    check_output(page, (*runs, intervals))
    check_output(intervals, runs)
    shipped, held_out = validate(runs)[0], validate(runs, logo=True, residuals=(MISSED,))[0]
    if intervals is not None:
        _write(intervals, interval_text(held_out.intervals, held_out.stack_intervals))
    if page is not None:
        _write(page, accuracy_page(shipped, held_out))
    return shipped, held_out


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path}: cannot write: {error.strerror or error}") from None


def read_runs(paths: Sequence[Path], stack: str | None = None, profile: Path | None = None) -> Read:
    """Read tables and apply the conventions of their sources.

    Raises
    ------
    ValueError
        If a table cannot be read, or makes no sense.
    """
    if not paths:
        raise ValueError("no table: expected at least one CSV file")
    kinds, tables = load_kinds(), tuple(read_table(path) for path in paths)
    calibrated = _calibrated(profile)
    runs: list[Run] = []
    skipped: Skipped = {}
    for table in tables:
        for row in table.rows if table.kind == "runs" else ():
            try:
                runs.append(resolve(row, kinds, stack, calibrated))
            except Skip as reason:
                skipped[row.file, row.line] = str(reason)
    return Read(tables, without_repeats(runs), skipped, stack)


def _calibrated(profile: Path | None) -> Calibrated | None:
    if profile is None:
        return None
    from planner.calibrate.profile import changes_of, covering, load_profile  # it reads tables too

    loaded = load_profile(profile)

    def changes(stack: str, gpu: str) -> Changes:
        own = covering(stack, loaded, gpu)
        return () if own is None else changes_of(own, load_stack(stack))

    return changes


def _uncovered(runs: Sequence[Run], profile: Path | None) -> tuple[str, ...]:
    """Rows whose stack or GPU a profile says nothing about."""
    if profile is None:
        return ()
    from planner.calibrate.profile import covering, load_profile

    loaded = load_profile(profile)
    counts = Counter(
        f"{run.cluster.gpu.id} on {run.stack}"
        for run in runs
        if covering(run.stack, loaded, run.cluster.gpu.id) is None
    )
    return tuple(
        f"{count} rows: {profile.name} has nothing for {what}, constants as shipped"
        for what, count in sorted(counts.items())
    )


def make_report(
    read: Read,
    data: Scored,
    logo: bool,
    constants: tuple[ConstantScore, ...] = (),
    choices: tuple[ChoiceScore, ...] = (),
    notes: tuple[str, ...] = (),
) -> Report:
    """All scores."""
    activations = peaks = None
    for table in read.tables:
        if table.kind == "activations":
            activations = score_oracle(table)
        elif table.kind == "peaks":
            peaks = score_oracle(table)
    rows = [row for table in read.tables if table.kind == "runs" for row in table.rows]
    sources = _sources(read, data, rows)
    intervals = find_intervals(data)
    return Report(
        tables=tuple(table.path.name for table in read.tables),
        held_out=logo,
        rows=len(rows),
        used=len(read.runs),
        skipped=dict(sorted(Counter(read.skipped.values()).items())),
        sources=sources,
        oracle_activations=activations,
        oracle_peaks=peaks,
        intervals=intervals.kinds,
        coverage=intervals.coverage,
        verdicts=_verdicts(data),
        stack_intervals=intervals.stacks,
        constants=constants,
        memory_constants=choices,
        headlines=(*oracle_headlines(activations, peaks), *headlines(data)),
        notes=(*notes, *_notes(data)),
    )


def _sources(read: Read, data: Scored, rows: Sequence[Row]) -> tuple[SourceScore, ...]:
    kinds = load_kinds()
    places = grouped([(run.source, run.kind.name, run.stack) for run in read.runs])
    reasons: dict[tuple[str, str, str], dict[str, list[str]]] = {}
    for row in rows:
        kind = kind_of(row, kinds)
        key = row.text("source") or kind.name, kind.name, stack_name(row, kind, read.stack)
        places_of = reasons.setdefault(key, {})
        if (row.file, row.line) in read.skipped:
            reason = read.skipped[row.file, row.line]
            places_of.setdefault(reason, []).append(f"{Path(row.file).name} line {row.line}")
    empty = np.array([], dtype=int)
    return tuple(
        source_score(data, places.get(key, empty), *key[:2], skipped)
        for key, skipped in reasons.items()
    )


def _verdicts(data: Scored) -> tuple[VerdictScore, ...]:
    places = grouped([run.source for run in data.runs])
    scores = [verdict_score(data, index, str(name)) for name, index in places.items()]
    return tuple(score for score in scores if score is not None)


def _notes(data: Scored) -> tuple[str, ...]:
    reasons = Counter(
        reason
        for reason in (*data.predictions.time_problem, *data.predictions.memory_problem)
        if reason
    )
    return tuple(f"{count} rows: {reason}" for reason, count in sorted(reasons.items()))
