"""docs/accuracy.md: the published table, written from two validations.

python -m planner.validate RUNS.csv... -o docs/accuracy.md
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel

from costmodels.stack import load_stack, stack_names
from planner.validate.accuracy_text import HEADER, NOT_MODELLED
from planner.validate.interval_text import interval_section
from planner.validate.kinds import Kind, When, load_kinds
from planner.validate.labels import LABELS, figure
from planner.validate.report import Headline, MemoryScore, OracleScore, Report, SourceScore
from planner.validate.split_text import split_markdown
from planner.validate.tabular import table

FITTED = re.compile(r"(?<!not )fitted")


def accuracy_page(shipped: Report, held_out: Report) -> str:
    """The page, in Markdown.

    Parameters
    ----------
    shipped, held_out : Report
        Of the same tables, without and with refitted constants.
    """
    parts = [
        HEADER,
        "## Against targets and other tools\n",
        _headlines(shipped.headlines, held_out.headlines),
        "## Residuals of what is missed\n",
        _residuals(held_out),
        "## Source by source\n",
        "Step times (held out) of every source with any.\n",
        _times(held_out.sources),
        "Peak memory, by what the source prints: allocated by tensors, reserved by PyTorch, or "
        "shown by nvidia-smi.\n",
        _memory(held_out.sources),
        "Whether a run fits: sources that list runs that did not, and those whose runs ran though "
        "called not fitting (*false no fit*, a share of all rows; beside it the share of the runs "
        "that ran).\n",
        _fits(held_out.sources),
        "## Exact counts\n",
        _oracle(shipped),
        "## Intervals\n",
        interval_section(held_out),
        "## Fitted constants\n",
        "Everything else is read from datasheets, kernel benchmarks, and the stacks' source code. "
        "*Without* is the error on the same runs with that constant at its neutral value and the "
        "others fitted.\n",
        _constants(held_out),
        "Memory constants, chosen among a few values; the number of folds that chose each.\n",
        _choices(held_out),
        "Other constants that runs decided, which are not refitted here.\n",
        _others(held_out),
        "Constants of one kind of source alone, decided by its own runs; no plan uses them.\n",
        _of_kinds(),
        "## Not modelled\n",
        "\n".join(f"- {text}" for text in NOT_MODELLED) + "\n",
        "## Rows left out\n",
        _skipped(shipped),
        "## Sources\n",
        _sources(shipped.sources),
    ]
    return "\n".join(parts)


def _headlines(shipped: Sequence[Headline], held_out: Sequence[Headline]) -> str:
    others = {(h.name, h.metric): h for h in held_out}
    verdict = {True: "yes", False: "no", None: "-"}
    rows = []
    for h in shipped:
        other = others[h.name, h.metric]
        rows.append(
            (
                h.name,
                LABELS[h.metric],
                str(h.rows),
                figure(h.metric, h.value),
                figure(h.metric, other.value),
                figure(h.metric, h.target),
                verdict[other.met],
                h.peer or "-",
            )
        )
    header = ("runs", "figure", "rows", "shipped", "held out", "target", "met", "best other tool")
    return table(header, rows)


def _times(sources: Sequence[SourceScore]) -> str:
    rows = [
        (
            s.source,
            s.stack,
            str(t.count),
            figure("", t.mape),
            f"{100 * t.bias:+.1f} %",
            figure("", t.within_25),
            str(t.groups),
            figure("rho", t.rho),
            figure("", t.regret),
            figure("", t.worst_regret),
            figure("", t.blind_regret),
        )
        for s in sources
        if (t := s.time)
    ]
    header = (
        *("source", "stack", "rows", "mean error", "bias", "within 25 %", "groups"),
        *("rank correlation", "regret", "worst", "blind"),
    )
    return table(header, rows)


def _memory(sources: Sequence[SourceScore]) -> str:
    def row(source: SourceScore, m: MemoryScore) -> tuple[str, ...]:
        errors = figure("", m.mape), f"{100 * m.bias:+.1f} %", figure("", m.median)
        return (source.source, source.stack, m.kind, str(m.count), *errors, figure("", m.worst))

    header = ("source", "stack", "kind", "rows", "mean error", "bias", "median", "worst")
    return table(header, [row(s, m) for s in sources for m in s.memory])


def _fits(sources: Sequence[SourceScore]) -> str:
    rows = [
        (
            s.source,
            str(f.count),
            figure("", f.accuracy),
            figure("", f.false_fit),
            figure("", f.false_no_fit),
            f"{figure('', f.ok_called_oom)} of {f.ok}",
            f"{figure('', f.failed_called_oom)} of {f.failed}" if f.failed else "-",
        )
        for s in sources
        if (f := s.fit) and (f.ok < f.count or f.failed or f.false_no_fit)
    ]
    header = (
        *("source", "rows", "right", "false fit", "false no fit"),
        *("ran, called not fitting", "failed, called not fitting"),
    )
    return table(header, rows)


def _oracle(report: Report) -> str:
    def row(name: str, score: OracleScore) -> tuple[str, ...]:
        return (
            name,
            str(score.count),
            figure("", score.within_half_percent),
            figure("", score.within_two_percent),
            f"{100 * score.mape:.2f} %",
            f"{100 * score.worst:.2f} %",
            figure("", score.right_phase),
        )

    found = [
        row(name, score)
        for name, score in (
            ("bytes kept for backward", report.oracle_activations),
            ("peak of a step", report.oracle_peaks),
        )
        if score is not None
    ]
    if not found:
        return "Not part of this run.\n"
    text = (
        "Bytes that PyTorch keeps, counted tensor by tensor on fake tensors of `transformers` "
        "models, and the peak of a step with its phase.\n\n"
    )
    header = ("what", "rows", "within 0.5 %", "within 2 %", "mean error", "worst", "right phase")
    return text + table(header, found)


def _residuals(report: Report) -> str:
    if not report.residuals:
        return "No figure with a target is missed.\n"
    text = (
        "Held-out residuals of every figure above that misses its target, split by each axis with "
        "several values. `planner validate RUNS.csv... --residuals SOURCE` does the same for any "
        "source.\n"
    )
    return text + "\n" + split_markdown(report.residuals)


def _constants(report: Report) -> str:
    rows = [
        (
            c.stack,
            c.name,
            str(c.runs),
            f"{c.shipped:.3g}",
            f"{c.fitted:.3g} ({c.lowest:.3g} to {c.highest:.3g})",
            figure("", c.error),
            figure("", c.error_without),
        )
        for c in report.constants
    ]
    return table(
        ("stack", "constant", "rows", "shipped", "refitted (folds)", "error", "without"), rows
    )


def _choices(report: Report) -> str:
    rows = []
    for choice in report.memory_constants:
        for name, value in choice.chosen.items():
            votes = Counter(plain(fold[name]) for fold in choice.folds)
            folds = ", ".join(f"{v} ({n})" for v, n in votes.most_common())
            rows.append((choice.stack, name, str(choice.runs), plain(value), folds))
    return table(("stack", "constant", "rows", "on all runs", "left-out folds"), rows)


def plain(value: object) -> str:
    """A constant in a table cell.

    >>> plain({"eager": {"backward": 7.5}}), plain(2.1e9)
    ('eager: backward 7.5', '2.1e+09')
    """
    if isinstance(value, BaseModel):
        return plain(value.model_dump(exclude_defaults=True))
    if isinstance(value, dict):
        inner = {k: plain(v) for k, v in value.items()}
        nested = any(isinstance(v, dict | BaseModel) for v in value.values())
        return ", ".join(f"{k}: {v}" if nested else f"{k} {v}" for k, v in inner.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _others(report: Report) -> str:
    known = {(c.stack, c.name) for c in report.constants}
    known |= {(c.stack, name) for c in report.memory_constants for name in c.chosen}
    rows = []
    for name in stack_names():
        stack = load_stack(name)
        for profile in (stack.time, stack.memory):
            for field, source in sorted(profile.sources.items()):
                if FITTED.search(source) and (name, field) not in known:
                    rows.append((name, field, plain(getattr(profile, field)), source))
    return table(("stack", "constant", "value", "where it comes from"), rows)


def _of_kinds() -> str:
    rows = []
    for kind in load_kinds().kinds:
        entries: tuple[Kind | When, ...] = (kind, *kind.when)
        for entry in entries:
            for field, how in entry.fitted.items():
                values = {"network": entry.network and entry.network.value}
                value = {**entry.time, **entry.memory, **values}[field]
                rows.append((kind.name, field, plain(value), how))
    return table(("kind of source", "constant", "value", "decided by"), rows)


def _skipped(report: Report) -> str:
    text = f"{report.used} of {report.rows} rows are used. The others:\n\n"
    return text + table(("reason", "rows"), [(r, str(n)) for r, n in report.skipped.items()])


def _sources(sources: Sequence[SourceScore]) -> str:
    kinds = {kind.name: kind for kind in load_kinds().kinds}
    names: dict[str, list[str]] = {}
    for source in sources:
        names.setdefault(source.kind, []).append(source.source)
    return "".join(
        f"- {', '.join(dict.fromkeys(names[kind]))}: {kinds[kind].cite}; {kinds[kind].about}.\n"
        for kind in names
    )
