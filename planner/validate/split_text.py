"""Splits of errors, verdicts and lost groups as headings and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from planner.validate.labels import LABELS, figure
from planner.validate.report import AxisErrors, AxisVerdicts, LostGroup, Split
from planner.validate.tabular import columns, table

MOST_LOST = 12  # groups shown, the worst ones

Rows = list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Shown:
    """One table of a split, with a sentence before it."""

    text: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def shown(split: Split) -> list[Shown]:
    """The tables of a split."""
    if split.errors:
        return [_errors(split.errors)]
    if split.verdicts:
        return [_verdicts(split.verdicts)]
    if split.shares:
        rows = [(name, figure("", share)) for name, share in sorted(split.shares.items())]
        return [Shown("Rows within 0.5 %, by what is counted.", ("what", "rows"), rows)]
    return _lost(split)


def title(split: Split) -> str:
    """What a split is about."""
    return f"{split.name}: {LABELS[split.metric]}"


def split_markdown(splits: Sequence[Split]) -> str:
    """All splits for a page."""
    parts = []
    for split in splits:
        parts.append(f"### {title(split)}\n")
        for one in shown(split):
            parts += [one.text + "\n", table(one.header, one.rows)]
    return "\n".join(parts)


def split_lines(splits: Sequence[Split]) -> list[str]:
    """All splits for a terminal."""
    lines = []
    for split in splits:
        lines += ["", f"residuals  {title(split)}"]
        for one in shown(split):
            lines += ["  " + one.text, *columns(one.header, one.rows)]
    return lines


def _named_once(rows: Iterable[tuple[str, ...]]) -> Rows:
    """The name of an axis on the first of its rows only."""
    found = []
    for _, some in groupby(rows, key=lambda row: row[0]):
        for i, row in enumerate(some):
            found.append(row if not i else ("", *row[1:]))
    return found


def _errors(errors: Sequence[AxisErrors]) -> Shown:
    rows = [
        (
            e.axis,
            e.value,
            str(e.count),
            f"{100 * e.median:+.1f} %",
            figure("", e.mape),
            f"{100 * e.worst:+.1f} %",
        )
        for e in errors
    ]
    header = ("axis", "value", "rows", "median error", "mean absolute error", "worst")
    return Shown("Predicted / measured - 1.", header, _named_once(rows))


def _verdicts(verdicts: Sequence[AxisVerdicts]) -> Shown:
    mixed = any(v.failed_fits + v.failed_not for v in verdicts)
    rows = []
    for v in verdicts:
        sure = v.ran_fits + v.ran_not + v.oom_fits + v.oom_not
        wrong = (v.oom_fits / sure, v.ran_not / sure) if sure else (None, None)
        counts = [v.ran_fits, v.ran_not, v.oom_not, v.oom_fits]
        counts += [v.failed_fits, v.failed_not] if mixed else []
        shares = (figure("", share) for share in wrong)
        rows.append((v.axis, v.value, str(v.count), *map(str, counts), *shares))
    header = (
        *("axis", "value", "rows", "ran, called fitting", "ran, called not fitting"),
        *("out of memory, called not fitting", "out of memory, called fitting"),
        *(("failed, called fitting", "failed, called not fitting") if mixed else ()),
        *("false fit", "false no fit"),
    )
    return Shown("Runs by what happened and what was predicted.", header, _named_once(rows))


def _lost(split: Split) -> list[Shown]:
    lost = split.lost
    share = f"{len(lost)} of {split.groups} groups lose anything"
    if not lost:
        return [Shown(share + ".", ("group",), [])]
    rows: dict[tuple[str, ...], list[LostGroup]] = {}
    for one in lost:
        rows.setdefault(one.differs, []).append(one)
    by_axis = [
        (
            ", ".join(axes),
            str(len(groups)),
            figure("", float(np.mean([g.regret for g in groups]))),
            figure("", max(g.regret for g in groups)),
            figure("", sum(g.regret for g in groups) / split.groups),
            figure("", float(np.median([g.predicted_gain for g in groups]))),
        )
        for axes, groups in rows.items()
    ]
    by_axis.sort(key=lambda row: -float(row[4].split()[0]))
    head = ("chosen and best differ in", "groups", "mean loss", "worst", "of the mean regret")
    first = Shown(
        f"{share}. What the layout chosen and the best one differ in, and by how much the model "
        "held the chosen one faster.",
        (*head, "predicted apart (median)"),
        by_axis,
    )
    text = "The groups that lose most." if len(lost) > MOST_LOST else "The groups."
    detail = [
        (
            g.group,
            str(g.count),
            g.chosen,
            g.best,
            f"{g.chosen_s:.3g} s",
            f"{g.best_s:.3g} s",
            figure("", g.predicted_gain),
            figure("", g.regret),
        )
        for g in lost[:MOST_LOST]
    ]
    header = (
        *("group", "runs", "chosen", "best", "chosen, measured", "best, measured"),
        *("predicted apart", "loss"),
    )
    return [first, Shown(text, header, detail)]
