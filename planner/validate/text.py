"""The report of ``planner validate`` for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.validate.assumed import STACK, assumed_text
from planner.validate.kinds import load_kinds
from planner.validate.labels import LABELS, figure
from planner.validate.report import (
    ConstantScore,
    Headline,
    IntervalScore,
    OracleScore,
    Report,
    SourceScore,
)
from planner.validate.split_text import split_lines


def report_text(report: Report) -> str:
    """The whole report."""
    how = "constants refitted without the rows scored" if report.held_out else "shipped constants"
    lines = [f"{report.used} of {report.rows} rows used ({how})"]
    lines += _reasons(report.skipped)
    for name, score in (
        ("bytes saved for backward", report.oracle_activations),
        ("step peaks", report.oracle_peaks),
    ):
        if score is not None:
            lines += ["", *_oracle(name, score)]
    for source in report.sources:
        lines += ["", *source_lines(source)]
    if report.intervals:
        lines += ["", *interval_lines(report.intervals)]
    if report.constants:
        lines += ["", *constant_lines(report.constants)]
    if report.headlines:
        lines += ["", *headline_lines(report.headlines)]
    if report.residuals:
        lines += split_lines(report.residuals)
    if report.notes:
        lines += ["", *report.notes]
    return "\n".join(lines)


def _reasons(skipped: Mapping[str, int]) -> list[str]:
    if not skipped:
        return []
    return ["  skipped: " + ", ".join(f"{n} {reason}" for reason, n in skipped.items())]


def reason_text(reason: str, places: Sequence[str]) -> str:
    """Why rows are not used: how many, and where the first is.

    >>> reason_text("missing: vocab", ["line 2", "line 9"])
    '2 missing: vocab (line 2 and others)'
    """
    others = " and others" if len(places) > 1 else ""
    return f"{len(places)} {reason} ({places[0]}{others})"


def _oracle(name: str, score: OracleScore) -> list[str]:
    phase = "" if score.right_phase is None else f", right phase {100 * score.right_phase:.1f} %"
    lines = [
        f"{name}: {score.count} rows, {100 * score.within_half_percent:.1f} % within 0.5 %, "
        f"{100 * score.within_two_percent:.1f} % of those modelled within 2 %, "
        f"mean error {100 * score.mape:.3f} %, worst {100 * score.worst:.2f} %{phase}"
    ]
    shares = ", ".join(f"{n} {100 * share:.1f} %" for n, share in score.by_category.items())
    return [*lines, f"  within 0.5 % by category: {shares}"] if shares else lines


def source_lines(source: SourceScore) -> list[str]:
    """One source: how it was read, then time, memory, verdict and its groups."""
    title = f"{source.source} ({source.kind}, stack {source.stack or '-'})"
    lines = [f"{title}: {source.used} of {source.rows} rows"]
    if source.skipped_rows:
        told = ", ".join(reason_text(*pair) for pair in source.skipped_rows.items())
        lines.append(f"  skipped: {told}")
    if STACK in source.assumed:
        about = next(kind.about for kind in load_kinds().kinds if kind.name == source.kind)
        lines.append(f"  stack assumed: {source.stack} ({about}); --stack NAME says otherwise")
    if source.assumed:
        values = {n: rows for n, rows in source.assumed_values.items() if n != STACK}
        lines += [f"  assumed where empty: {assumed_text(values)}"] if values else []
    if t := source.time:
        lines.append(
            f"  step time  {t.count:5d} rows  mean error {figure('', t.mape)}  "
            f"bias {100 * t.bias:+.1f} %  p90 {figure('', t.p90)}  "
            f"within 25 % {figure('', t.within_25)}  in interval {figure('', t.coverage)}"
        )
        if t.groups:
            lines.append(
                f"  choice     {t.groups:5d} groups  rho {figure('rho', t.rho)}  "
                f"regret {figure('', t.regret)}, worst {figure('', t.worst_regret)}, "
                f"blind {figure('', t.blind_regret)}; "
                f"first pick ran {figure('', t.blind_first_ran)}"
            )
    for m in source.memory:
        lines.append(
            f"  memory     {m.count:5d} rows  {m.kind}: mean error {figure('', m.mape)}  "
            f"bias {100 * m.bias:+.1f} %  median {figure('', m.median)}  "
            f"worst {figure('', m.worst)}  in interval {figure('', m.coverage)}"
        )
    if f := source.fit:
        lines.append(
            f"  fits       {f.count:5d} rows  right {figure('', f.accuracy)}  "
            f"false fit {figure('', f.false_fit)}  false no fit {figure('', f.false_no_fit)}"
            + (
                f"; of {f.failed} failed runs {figure('', f.failed_called_oom)} called oom"
                if f.failed
                else ""
            )
        )
    for group in source.groups:
        if group.regret is not None:
            lines.append(
                f"    {group.model}, {group.n_gpus} {group.gpu}, seq {group.seq_len}, "
                f"batch {group.global_batch}: {group.count} rows, "
                f"error {figure('', group.time_mape)}, rho {figure('rho', group.rho)}, "
                f"regret {figure('', group.regret)}, blind {figure('', group.blind_regret)}"
            )
    return lines


def headline_lines(headlines: tuple[Headline, ...]) -> list[str]:
    """The accuracy table."""
    verdict = {True: "met", False: "missed", None: "reported"}
    return [
        f"{h.name:58s} {LABELS[h.metric]:28s} {h.rows:5d} rows  "
        f"{figure(h.metric, h.value):>8s}  aim {figure(h.metric, h.target):>7s}  {verdict[h.met]}"
        for h in headlines
    ]


def interval_lines(intervals: tuple[IntervalScore, ...]) -> list[str]:
    """What nine in ten runs ask for, beside what predictions carry."""
    return [
        f"interval {i.kind:26s} {i.quantity:6s} {i.count:5d} rows  "
        f"-{100 * i.low:.0f} +{100 * i.high:.0f} % hold {figure('', i.held)} of new groups;  "
        f"carried -{100 * i.shipped_low:.0f} +{100 * i.shipped_high:.0f} % "
        f"hold {figure('', i.shipped_held)}"
        for i in intervals
    ]


def constant_lines(constants: tuple[ConstantScore, ...]) -> list[str]:
    """Fitted constants and what each is worth."""
    return [
        f"constant {c.stack:18s} {c.name:14s} {c.runs:5d} rows  shipped {c.shipped:.4g}  "
        f"fitted {c.fitted:.4g} ({c.lowest:.4g} - {c.highest:.4g})  "
        f"error {figure('', c.error)}, without it {figure('', c.error_without)}"
        for c in constants
    ]
