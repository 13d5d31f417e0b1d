"""The nearest better plans: every small change the file can express, predicted, low cost first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from planner.advisor.changes import Values, saving, speeding
from planner.advisor.formats_text import duration
from planner.advisor.judge import Target, judge, make_job
from planner.advisor.judgement import Judgement
from planner.advisor.patch import patch_for
from planner.advisor.readers import Reading
from planner.advisor.report import Advice, FileEdits
from planner.lint.context import Context

# Rungs of the low-cost-first ladder; a smaller micro-batch costs less than any of them.
RUNG = {"precision": 1, "attention": 2, "micro_batch": 3, "recompute": 4, "sequence_parallel": 5}
_ACROSS = 12  # tensor parallel across nodes comes after pipeline stages
_STAGE_RUNG = {0: 0, 1: 6, 2: 7, 3: 9}
_LATER = {"tp": 8, "pp": 10, "cp": 11, "offload_optimizer": 13, "offload_parameters": 14}
NAMES = {
    "precision": "precision",
    "attention": "attention",
    "micro_batch": "micro-batch",
    "recompute": "activation checkpointing",
    "sequence_parallel": "sequence parallelism",
    "zero_stage": "ZeRO stage",
    "offload_optimizer": "optimizer offload",
    "offload_parameters": "parameter offload",
    "tp": "tensor parallel",
    "pp": "pipeline stages",
    "cp": "context parallel",
}
MOST = 4  # plans shown
GAIN = 0.03  # a faster plan must save this share of the step
DEEPEST = 4  # changes in one plan
SECONDS = 1.2  # spent on predictions


@dataclass(frozen=True, slots=True)
class _Tried:
    changes: dict[str, int | str]
    judged: Judgement
    per_node: int | None = None  # GPUs, where known

    @property
    def cost(self) -> tuple[int, int, float]:
        """Highest rung, number of changes, step time."""
        return (
            max(rung(axis, value, self.per_node) for axis, value in self.changes.items()),
            len(self.changes),
            self.judged.step_time_s or 0.0,
        )


def rung(axis: str, value: int | str, per_node: int | None = None) -> int:
    """Place of a change on the ladder; ``per_node`` GPUs hold tensor-parallel ranks cheaply.

    >>> rung("recompute", "full") < rung("zero_stage", 1) < rung("offload_optimizer", "cpu")
    True
    >>> rung("tp", 8, 8) < rung("pp", 2, 8) < rung("tp", 16, 8)
    True
    """
    if axis == "tp" and per_node is not None and int(value) > per_node:
        return _ACROSS
    if axis == "zero_stage":
        return _STAGE_RUNG[int(value)]
    return RUNG[axis] if axis in RUNG else _LATER[axis]


def advise_on(
    fields: Values, fix: Values, now: Judgement, target: Target, reading: Reading, ctx: Context
) -> tuple[Advice, ...]:
    """Better plans near a configuration.

    If it does not fit, the fewest and least intrusive changes under which it does; if it fits,
    changes that make the step faster and still fit. The other settings stay as they are, and the
    global batch does too.
    """
    needs = now.verdict != "fits" or not now.fits
    options = saving(fix, ctx, reading) if needs else speeding(fix, ctx, reading)
    per_node = ctx.device.gpus_per_node if ctx.device is not None else None
    tried = [
        replace(one, per_node=per_node)
        for one in _try(fields, fix, options, target, needs, now, per_node)
    ]
    tried = sorted(tried, key=lambda t: t.cost if needs else _speed_key(t))
    chosen: list[_Tried] = []
    for one in tried:
        smaller = [other for other in chosen if _within(other.changes, one.changes)]
        if not smaller or (not needs and all(_faster(one.judged, o.judged) for o in smaller)):
            chosen.append(one)
    return tuple(_advice(one, fix, now, reading, ctx) for one in chosen[:MOST])


def _speed_key(one: _Tried) -> tuple[float, ...]:
    return (len(one.changes), one.judged.step_time_s or 0.0)


def _faster(one: Judgement, other: Judgement) -> bool:
    """Whether a plan beats another by as much as it must beat the file."""
    if one.step_time_s is None or other.step_time_s is None:
        return False
    return one.step_time_s <= other.step_time_s * (1 - GAIN)


def _within(few: Values, many: Values) -> bool:
    return all(many.get(axis) == value for axis, value in few.items())


def _try(
    fields: Values,
    fix: Values,
    options: list[dict[str, int | str]],
    target: Target,
    needs: bool,
    now: Judgement,
    per_node: int | None = None,
) -> list[_Tried]:
    """Sets of changes, small sets first; stops at the first size that helps."""
    start = time.monotonic()
    good: list[_Tried] = []
    first = 0  # size at which something helped
    for size in range(1, DEEPEST + 1):
        for changes in _sets(options, size, per_node):
            if time.monotonic() - start > (SECONDS if good else 3 * SECONDS):
                return good
            if needs and any(_within(one.changes, changes) for one in good):
                continue
            judged = _judge(fields, fix, changes, target)
            if judged is not None and _helps(judged, needs, now):
                good.append(_Tried(dict(changes), judged))
        first = first or (size if good else 0)
        if (first and size > first) or len(good) >= MOST or (not needs and size == 2):
            return good
    return good


def _sets(
    options: list[dict[str, int | str]], size: int, per_node: int | None = None
) -> Iterator[dict[str, int | str]]:
    """Combinations of options on different axes, low rungs first."""
    ranked = sorted(
        combinations(options, size),
        key=lambda chosen: sorted(max(rung(a, v, per_node) for a, v in o.items()) for o in chosen)[
            ::-1
        ],
    )
    for chosen in ranked:
        merged: dict[str, int | str] = {}
        for option in chosen:
            if merged.keys() & option.keys():
                break
            merged |= option
        else:
            if merged.get("offload_parameters", "none") == "none" or merged.get("zero_stage") != 2:
                yield merged


def _helps(judged: Judgement, needs: bool, now: Judgement) -> bool:
    if needs:
        return judged.verdict == "fits" and judged.fits
    if judged.step_time_s is None or now.step_time_s is None:
        return False
    return judged.verdict == "fits" and judged.fits and _faster(judged, now)


def _judge(fields: Values, fix: Values, changes: Values, target: Target) -> Judgement | None:
    after = after_changes(fix, changes)
    try:
        return judge(make_job(fields, after, target))
    except ValueError:
        return None


def after_changes(fix: Values, changes: Values) -> dict[str, Any]:
    """All axes after some change; dp and accumulation follow, the global batch stays.

    >>> after_changes({"micro_batch": 4, "grad_accum": 2, "dp": 8}, {"micro_batch": 1})
    {'micro_batch': 1, 'grad_accum': 8, 'dp': 8}
    """
    after = {**fix, **changes}
    total = fix["micro_batch"] * fix["grad_accum"] * fix["dp"]
    before = fix.get("tp", 1) * fix.get("pp", 1) * fix.get("cp", 1)
    part = after.get("tp", 1) * after.get("pp", 1) * after.get("cp", 1)
    after["dp"] = max(1, fix["dp"] * before // part)
    after["grad_accum"] = max(1, total // (after["micro_batch"] * after["dp"]))
    return after


def _advice(one: _Tried, fix: Values, now: Judgement, reading: Reading, ctx: Context) -> Advice:
    after = after_changes(fix, one.changes)
    changed = {k: v for k, v in after.items() if v != fix.get(k) and k != "dp"}
    patch = patch_for(changed, after, reading, ctx)
    saved = now.peak_memory_bytes - one.judged.peak_memory_bytes
    gained = None
    if now.step_time_s is not None and one.judged.step_time_s is not None:
        gained = now.step_time_s - one.judged.step_time_s
    host = sum(line.bytes for line in one.judged.host if line.what == "training")
    before = sum(line.bytes for line in now.host if line.what == "training")
    return Advice(
        title=_title(changed, fix),
        changes=changed,
        files=tuple(FileEdits(file=f, edits=tuple(e)) for f, e in patch.files.items()),
        flags=tuple(patch.flags),
        dashed=reading.document.kind == "megatron",
        verdict=one.judged.verdict,
        peak_memory_bytes=one.judged.peak_memory_bytes,
        memory_saved_bytes=saved,
        step_time_s=one.judged.step_time_s,
        time_saved_s=gained,
        host_memory_bytes=host,
        buys=_trade(saved, gained, before - host),
        costs=_trade(-saved, None if gained is None else -gained, host - before),
    )


def _title(changes: Values, fix: Values) -> str:
    parts = []
    for axis in NAMES:
        if axis in changes:
            parts.append(f"{NAMES[axis]} {_word(fix.get(axis))} -> {_word(changes[axis])}")
    return ", ".join(parts)


def _word(value: object) -> str:
    return (
        {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    )


def _trade(memory: float, gained: float | None, host: float) -> str:
    """What a change brings (or takes), in words."""
    parts = []
    if memory > 2**26:
        parts.append(f"{memory / 2**30:.1f} GiB of each GPU")
    if gained is not None and gained > 1e-3:
        parts.append(f"{duration(gained)} a step")
    if host > 2**28:
        parts.append(f"{host / 2**30:.0f} GiB of host RAM a node")
    return ", ".join(parts) if parts else "nothing predicted"
