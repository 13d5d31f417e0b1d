"""Where errors lie: residuals split by every axis, verdicts likewise, and groups that lose.

For every figure of the accuracy table that is missed, and for any source one asks about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from costmodels.numeric import Array
from planner.validate.evaluate import Scored, large_groups
from planner.validate.headlines import RANKED, VERDICTS, chosen, load_lines
from planner.validate.report import (
    AxisErrors,
    AxisVerdicts,
    Headline,
    LostGroup,
    OracleScore,
    Split,
)
from planner.validate.run import Run
from planner.validate.score import grouped

MISSED = "missed"  # asks for every figure of the table that is missed
NEAR = 1e-9  # relative, within which predictions tie


def kernel_of(run: Run) -> str:
    """Attention kernel and whether norms are fused, as the row says or its kind means.

    A row that says nothing about norms is told by its attention alone.
    """
    attention = run.row.text("attention").lower() or run.attention
    norm = {"true": ", fused norm", "false": ", plain norm"}
    return attention + norm.get(run.row.text("fused_norm").lower(), "")


def recompute_of(run: Run) -> str:
    """Recompute granularity, ``mixed`` where layers differ."""
    return "mixed" if run.mix else run.recompute


AXES: tuple[tuple[str, Callable[[Run], int | str]], ...] = (
    ("tp", lambda run: run.tp),
    ("pp", lambda run: run.pp),
    ("micro-batch", lambda run: run.micro_batch),
    ("kernel", kernel_of),
    ("sequence length", lambda run: run.seq_len),
    ("GPUs", lambda run: run.n_gpus),
    ("recompute", recompute_of),
)


def missed_splits(
    data: Scored, headlines: Sequence[Headline], counted: Mapping[str, OracleScore | None]
) -> tuple[Split, ...]:
    """A split for every figure that misses its target; ``counted`` are exact counts by line."""
    lines = {line.name: line for line in load_lines()}
    found = []
    for h in headlines:
        if h.met is not False:
            continue
        if h.name not in lines:
            score = counted[h.name]
            shares = score.by_category if score is not None else {}
            found.append(Split(name=h.name, metric=h.metric, shares=shares))
        else:
            line = lines[h.name]
            index = np.array([i for i, run in enumerate(data.runs) if chosen(line, run)], dtype=int)
            found.append(split_of(data, index, h.name, h.metric))
    return tuple(found)


def source_splits(data: Scored, names: Sequence[str]) -> tuple[Split, ...]:
    """Splits of the sources whose names contain some text: times, peaks and verdicts.

    Raises
    ------
    ValueError
        If no source's name contains it.
    """
    sources = grouped([run.source for run in data.runs])
    found = []
    for name in names:
        named = [s for s in sources if name.lower() in str(s).lower()]
        if not named:
            raise ValueError(
                f"--residuals {name!r}: expected {MISSED!r} or part of a source's name: "
                + ", ".join(map(str, sources))
            )
        for source in named:
            index = sources[source]
            for metric, some in (
                ("time_mape", data.timed[index].any()),
                ("memory_mape", data.weighed[index].any()),
                ("false_fit", (data.oom | data.failed)[index].any()),
                ("regret", bool(large_groups(data, index))),
            ):
                if some:
                    found.append(split_of(data, index, str(source), metric))
    return tuple(found)


def split_of(data: Scored, index: Array, name: str, metric: str) -> Split:
    """The split that explains one figure on some runs."""
    if metric in VERDICTS:
        return Split(name=name, metric=metric, verdicts=verdicts_by_axis(data, index))
    if metric in RANKED:
        groups = large_groups(data, index)
        lost = [x for group in groups if (x := lost_by(data, group)) is not None]
        lost.sort(key=lambda one: -one.regret)
        return Split(name=name, metric=metric, groups=len(groups), lost=tuple(lost))
    quantity = "memory" if metric.startswith("memory") else "time"
    return Split(name=name, metric=metric, errors=errors_by_axis(data, index, quantity))


def _by_axis(data: Scored, index: Array) -> list[tuple[str, str, Array]]:
    """Runs by the values of every axis that has several, all together first."""
    found = [("all", "", index)]
    for axis, value in AXES:
        values = [value(data.runs[int(i)]) for i in index]
        places = grouped(values)
        if len(places) > 1:
            order = sorted(places, key=lambda v: (isinstance(v, str), v))
            found += [(axis, str(v), index[places[v]]) for v in order]
    return found


def errors_by_axis(data: Scored, index: Array, quantity: str) -> tuple[AxisErrors, ...]:
    """Signed median and mean absolute error of every value of every axis."""
    known, measured, predicted = (
        (data.weighed, data.memory, data.predictions.memory)
        if quantity == "memory"
        else (data.timed, data.time, data.predictions.time)
    )
    found = []
    for axis, value, some in _by_axis(data, index[known[index]]):
        error = predicted[some] / measured[some] - 1
        found.append(
            AxisErrors(
                axis=axis,
                value=value,
                count=len(some),
                median=float(np.median(error)),
                mape=float(np.abs(error).mean()),
                worst=float(error[np.abs(error).argmax()]),
            )
        )
    return tuple(found)


def verdicts_by_axis(data: Scored, index: Array) -> tuple[AxisVerdicts, ...]:
    """Right and wrong verdicts of every value of every axis."""
    index = index[data.judged[index]]
    index = index[(data.ok | data.oom | data.failed)[index]]
    found = []
    for axis, value, some in _by_axis(data, index):
        fits, ok, failed = data.fits[some], data.ok[some], data.failed[some]
        oom = data.oom[some]
        found.append(
            AxisVerdicts(
                axis=axis,
                value=value,
                count=len(some),
                ran_fits=int((ok & fits).sum()),
                ran_not=int((ok & ~fits).sum()),
                oom_fits=int((oom & fits).sum()),
                oom_not=int((oom & ~fits).sum()),
                failed_fits=int((failed & fits).sum()),
                failed_not=int((failed & ~fits).sum()),
            )
        )
    return tuple(found)


def lost_by(data: Scored, group: Array) -> LostGroup | None:
    """What a group's choice costs: the run predicted fastest against the best; None for nothing."""
    timed = group[data.timed[group]]
    measured, predicted = data.time[timed], data.predictions.time[timed]
    best = int(measured.argmin())
    first = np.flatnonzero(predicted <= predicted.min() * (1 + NEAR))
    regret = float(measured[first].mean() / measured[best] - 1)
    if regret <= NEAR:
        return None
    pick = int(first[measured[first].argmax()])
    runs = [data.runs[int(timed[i])] for i in (pick, best)]
    source, model, gpu, n_gpus, seq_len, batch = runs[0].group
    return LostGroup(
        source=source,
        group=f"{model}, {n_gpus} {gpu}, seq {seq_len}, batch {batch}",
        count=len(timed),
        chosen=layout_text(*runs),
        best=layout_text(*runs[::-1]),
        differs=tuple(_differences(*runs)),
        chosen_s=float(measured[pick]),
        best_s=float(measured[best]),
        predicted_gain=float(predicted[best] / predicted[pick] - 1),
        regret=regret,
    )


def _differences(a: Run, b: Run) -> list[str]:
    """Axes in which two runs differ."""
    others = (("virtual stages", "virtual_stages"), ("cp", "cp"), ("zero", "zero_stage"))
    named = [axis for axis, value in AXES if value(a) != value(b)]
    named += [name for name, field in others if getattr(a, field) != getattr(b, field)]
    if a.sequence_parallel != b.sequence_parallel:
        named.append("sequence parallel")
    return named or ["repeat of one configuration"]


def layout_text(run: Run, beside: Run) -> str:
    """The layout of a run in a few words: its degrees, and what sets it apart from another."""
    degrees = (("dp", run.dp), ("tp", run.tp), ("pp", run.pp), ("cp", run.cp))
    parts = [f"{name} {n}" for name, n in degrees if n > 1 or name == "dp"]
    parts.append(f"micro-batch {run.micro_batch}")
    for text, value in (
        ("chunks {}", lambda one: one.virtual_stages),
        ("sp {}", lambda one: one.sequence_parallel),
        ("ZeRO-{}", lambda one: one.zero_stage),
        ("recompute {}", recompute_of),
        ("{}", kernel_of),
    ):
        if value(run) != value(beside):
            parts.append(text.format(value(run)))
    return " ".join(parts)
