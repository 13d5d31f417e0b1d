"""The section of the accuracy page about intervals."""

from __future__ import annotations

from planner.validate.intervals import FEW, up
from planner.validate.labels import figure
from planner.validate.report import CoverageScore, Report, StackInterval, VerdictScore
from planner.validate.spread import ENOUGH
from planner.validate.tabular import table

ABOUT = f"""Every prediction carries an interval that is to hold nine runs in ten: of its kind of
source here, of its stack in a plan. It comes from residuals ln(measured / predicted) of held-out
predictions. Runs of one group resemble one another, so a group counts as fewer runs than it has, by
the correlation inside groups. Bounds are conformal quantiles, with the (n + 1) correction for
finite samples. A kind whose runs are worth fewer than {ENOUGH}, the least for which such quantiles
exist, borrows what is missing from all other kinds: their residuals over their own scale, times
this kind's scale, with both signs, every kind counting alike. A kind's scale, its mean absolute
residual, is itself drawn to that of the others by empirical Bayes, the more the fewer runs it has.
*Held* is the share of runs inside an interval made without their group. Of a handful of runs that
share says little, so kinds with fewer than {FEW} are judged together.
"""


def interval_section(report: Report) -> str:
    """Kinds with their intervals and coverage, coverage together, stacks, verdicts."""
    return "\n".join(
        (
            ABOUT,
            _together(report.coverage),
            "Kind by kind:\n",
            _kinds(report),
            "What plans carry, by stack; a stack nobody measured takes the spread of the others:\n",
            _stacks(report.stack_intervals),
            "Verdicts with these intervals, where runs that did not fit are listed: *fits* with "
            "the whole interval below the limit, *does not fit* with the whole of it above.\n",
            _verdicts(report.verdicts),
        )
    )


def _together(coverage: tuple[CoverageScore, ...]) -> str:
    def row(c: CoverageScore) -> tuple[str, ...]:
        size = f"fewer than {FEW} runs" if c.few else f"{FEW} runs or more"
        shares = figure("", c.held), figure("", c.held_by_group)
        return (c.quantity, size, str(c.kinds), str(c.count), shares[0], str(c.groups), shares[1])

    header = ("of", "kinds with", "kinds", "runs", "held", "groups", "held, groups alike")
    return table(header, [row(c) for c in coverage])


def _kinds(report: Report) -> str:
    rows = [
        (
            i.kind,
            i.stack,
            i.quantity,
            str(i.count),
            str(i.groups),
            figure("", i.error),
            _span(i.low, i.high),
            figure("", i.held),
        )
        for i in report.intervals
    ]
    head = ("kind of source", "stack", "of", "runs", "groups", "mean error", "interval", "held")
    return table(head, rows)


def _span(low: float, high: float) -> str:
    return f"-{100 * up(low):.0f} / +{100 * up(high):.0f} %"


def _stacks(stacks: tuple[StackInterval, ...]) -> str:
    rows = [
        (
            s.stack or "(not measured)",
            s.quantity,
            _span(s.low, s.high),
            str(s.count),
            str(s.groups),
            ", ".join(s.kinds) or "-",
        )
        for s in sorted(stacks, key=lambda s: (not s.stack, s.stack, s.quantity))
    ]
    return table(("stack", "of", "interval", "runs", "groups", "from"), rows)


def _verdicts(verdicts: tuple[VerdictScore, ...]) -> str:
    rows = [
        (
            v.source,
            str(v.fits),
            figure("", v.fits_ran),
            str(v.tight),
            figure("", v.tight_ran),
            str(v.unfit),
            figure("", v.unfit_ran),
        )
        for v in verdicts
    ]
    header = (
        *("source", "called fits", "of them ran", "called tight", "of them ran"),
        *("called not fitting", "of them ran"),
    )
    return table(header, rows)
