"""The low-cost-first ladder as a trace: what each rung fits, and what the next one buys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from costmodels.numeric import Array
from planner.candidates import Candidates, candidates
from planner.evaluate import evaluate
from planner.job import Job
from planner.nearest import nearest
from planner.optimum import Found, choice_of, fastest
from planner.plan import Predicted, Rung, Verdict
from planner.shortfall import what_is_short, whole_verdict
from planner.space import Shapes

Mask = Callable[[Job, Shapes], Array]


@dataclass(frozen=True, slots=True)
class Step:
    """One rung: what it adds, and which shapes use nothing heavier."""

    name: str
    keeps: Mask


def _nothing(job: Job, c: Shapes) -> Array:
    return np.asarray(_single(job, c) & (c.zero_stage == 0))


def _single(job: Job, c: Shapes) -> Array:
    return np.asarray((c.tp == 1) & (c.pp == 1) & (c.offload_optimizer == 0))


def _sharded(job: Job, c: Shapes) -> Array:
    return np.asarray(_single(job, c) & (c.zero_stage <= 2))


def _tensor(job: Job, c: Shapes) -> Array:
    inside = c.tp <= job.cluster.gpus_per_node
    return np.asarray(inside & (c.pp == 1) & (c.zero_stage <= 2) & (c.offload_optimizer == 0))


def _fully_sharded(job: Job, c: Shapes) -> Array:
    inside = c.tp <= job.cluster.gpus_per_node
    return np.asarray(inside & (c.pp == 1) & (c.offload_optimizer == 0))


def _pipelined(job: Job, c: Shapes) -> Array:
    inside = c.tp <= job.cluster.gpus_per_node
    return np.asarray(inside & (c.offload_optimizer == 0))


def _across(job: Job, c: Shapes) -> Array:
    return np.asarray(c.offload_optimizer == 0)


def _cpu(job: Job, c: Shapes) -> Array:
    return np.asarray((c.offload_optimizer <= 1) & (c.offload_parameters <= 1))


def _anything(job: Job, c: Shapes) -> Array:
    return np.full(len(c), True)


# The order of intrusiveness, as in planner.ranking.rank.
STEPS = (
    Step("gradient checkpointing", _nothing),
    Step("ZeRO-1/2", _sharded),
    Step("tensor parallelism in a node", _tensor),
    Step("ZeRO-3", _fully_sharded),
    Step("pipeline parallelism", _pipelined),
    Step("tensor parallelism across nodes", _across),
    Step("CPU offload", _cpu),
    Step("NVMe offload", _anything),
)


def ladder_trace(job: Job, space: Candidates, optimum: Found | None) -> tuple[Rung, ...]:
    """Each rung with the best plan that uses nothing heavier.

    A rung that adds no candidate is left out, and so are those after the proven optimum, which
    can buy nothing.
    """
    rungs: list[Rung] = []
    before: Predicted | None = None
    for name, found, searched in _climb(job, space):
        predicted = _predict(job, found, searched)
        if predicted is None:
            continue
        fits = found is not None
        verdict = predicted.verdict if fits else _unplanned(predicted)
        rungs.append(
            Rung(
                rung=name,
                verdict=verdict,
                peak_memory_bytes=predicted.peak_memory_bytes,
                step_time_s=predicted.step_time_s if fits else None,
                bought=_bought(before, predicted, fits),
            )
        )
        before = predicted if fits else None
        if found is not None and optimum is not None and found.seconds <= optimum.seconds:
            break
    return tuple(rungs)


def _climb(job: Job, space: Candidates) -> Iterator[tuple[str, Found | None, Candidates]]:
    """Each rung's name, its fastest plan, and the candidates it was sought in."""
    demands = job.spec.constraint("recompute")
    plain = ("none",) if demands.accepts("none") else ()
    for name, precisions, attention in _kernels(job):
        base = _variant(job, precisions, attention) if attention else space
        base = base.where(lambda c: _nothing(job, c)).recomputing(plain)
        if base.tables:
            yield name, fastest(job, base), base
    last = -1
    for step in STEPS:
        part = space.where(lambda c, s=step: s.keeps(job, c))  # type: ignore[misc]
        size = sum(len(t.shapes) for t in part.tables)
        if size and (size != last or step is STEPS[0]):
            yield step.name, fastest(job, part), part
        last = size


def _kernels(job: Job) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """The rungs below checkpointing: precision, then the attention kernel."""
    free_precision = job.spec.precision == "auto" and "precision" not in job.spec.fix
    free_attention = "attention" not in job.spec.fix
    if free_precision and free_attention:
        yield "32-bit, eager attention", ("fp32",), "eager"
    if free_attention:
        yield "mixed precision", job.precisions, "eager"
    yield "FlashAttention" if free_attention else "as given", job.precisions, ""


def _variant(job: Job, precisions: tuple[str, ...], attention: str) -> Candidates:
    """Plain data parallelism in another precision and attention kernel."""
    fix = {
        **job.spec.fix,
        "attention": (attention,),
        "tp": (1,),
        "pp": (1,),
        "zero_stage": (0,),
        "offload_optimizer": ("none",),
        "offload_parameters": ("none",),
        "sequence_parallel": (0,),
        "virtual_stages": (1,),
    }
    fix.pop("precision", None)
    spec = job.spec.model_copy(update={"fix": fix})
    return candidates(replace(job, spec=spec, precisions=precisions))


def _predict(job: Job, found: Found | None, searched: Candidates) -> Predicted | None:
    if found is not None:
        return evaluate(job, choice_of(found))[1]
    close = nearest(searched)
    if close is None:
        return None
    return evaluate(job, choice_of(close.found))[1]


def _unplanned(nearest: Predicted) -> Verdict:
    """The verdict of a rung without a plan: that of its nearest one, of which none fits safely."""
    verdict = whole_verdict(nearest)
    return "does not fit" if verdict == "fits" else verdict


def _bought(before: Predicted | None, now: Predicted, fits: bool) -> str:
    if not fits:
        return what_is_short(now) or "no split over the stages fits"
    if before is None:
        return "makes it fit"
    assert before.step_time_s is not None
    assert now.step_time_s is not None
    gain = before.step_time_s / now.step_time_s - 1
    if gain < 5e-4:
        return "nothing"
    return f"{100 * gain:.1f} % faster" if gain < 1 else f"{1 + gain:.1f} times as fast"
