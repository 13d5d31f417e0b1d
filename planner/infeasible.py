"""No plan: what is short, by how much, and the smallest changes that would work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.candidates import Candidates, candidates
from planner.evaluate import evaluate
from planner.job import Job, resolve
from planner.nearest import Nearest, nearest
from planner.optimum import Found, choice_of, fastest
from planner.plan import Infeasible, Relaxation
from planner.report import describe_plan, gib, seconds
from planner.spec import JobSpec

MIN_SEQ_LEN = 512
MORE_GPUS = (2, 4, 8, 16, 32, 64)
TIME_LIMIT = 10.0  # for one relaxation [s]

__all__ = ["explain"]


def explain(job: Job, space: Candidates, progress: Callable[[str], None]) -> Infeasible:
    """Why a job has no plan, with the relaxations that were solved and work."""
    close = nearest(space)
    reason = _reason(job, space, close)
    progress("no plan fits; trying relaxations")
    plan, short = None, None
    if close is not None:
        plan, predicted = evaluate(
            job, choice_of(Found(close.table, close.index, close.decision, 0))
        )
        short = max(round(close.short_by), round(close.host_short_by), 0)
        reason += f"; the nearest needs {gib(predicted.peak_memory_bytes)}"
    found = tuple(_relaxations(job))
    return Infeasible(reason=reason, short_by_bytes=short, nearest=plan, relaxations=found)


def _reason(job: Job, space: Candidates, close: Nearest | None) -> str:
    if close is None:
        if not space.enumerated:
            return (
                f"no dp, tp and pp use {job.cluster.gpus} GPUs and divide the global batch of"
                f" {job.global_batch} sequences and {job.architecture.heads} heads"
            )
        worst = sorted(space.rules.items(), key=lambda item: -item[1])[:4]
        listed = ", ".join(f"{name} removed {count}" for name, count in worst)
        return f"no candidate is valid: of {space.enumerated}, {listed}"
    if close.short_by > 0:
        return (
            f"every valid candidate exceeds the {gib(job.cluster.memory_limit)} of a GPU, or the"
            " host RAM it would need instead"
        )
    if close.host_short_by > 0:
        return (
            f"what does not fit on the GPUs exceeds the {gib(job.cluster.node.host_memory)} host"
            " RAM of a node"
        )
    return "no way to split the layers over the stages fits"


def _relaxations(job: Job) -> Iterator[Relaxation]:
    for change, relaxed in _changes(job):
        space = candidates(relaxed, across_nodes=True)
        found = fastest(relaxed, space, time_limit=TIME_LIMIT)
        if found is None:
            continue
        plan, predicted = evaluate(relaxed, choice_of(found))
        yield Relaxation(
            change=f"{change} ({describe_plan(plan)})",
            step_time_s=found.seconds,
            peak_memory_bytes=predicted.peak_memory_bytes,
        )


def _changes(job: Job) -> Iterator[tuple[str, Job]]:
    """One change each; where a change has sizes, the smallest that yields a plan."""
    spec = job.spec
    for text, fields in _dropped(spec):
        yield f"drop {text}", _changed(job, **fields)
    if not spec.accept_tight:
        yield "accept a tight plan (--accept-tight)", _changed(job, accept_tight=True)
    if spec.stack not in ("auto", "deepspeed"):
        yield "use --stack auto", _changed(job, stack="auto")
    if spec.optimizer in ("adam", "adamw"):
        yield "use --optimizer adam8bit", _changed(job, optimizer="adam8bit")
    shorter = _first(_shorter(job))
    if shorter is not None:
        yield shorter
    more = _first(_more_gpus(job))
    if more is not None:
        yield more


def _first(options: Iterator[tuple[str, Job]]) -> tuple[str, Job] | None:
    for text, relaxed in options:
        if (
            fastest(relaxed, candidates(relaxed, across_nodes=True), time_limit=TIME_LIMIT)
            is not None
        ):
            return text, relaxed
    return None


def _dropped(spec: JobSpec) -> Iterator[tuple[str, dict[str, object]]]:
    for field in ("fix", "min", "max", "forbid"):
        demands = getattr(spec, field)
        for axis in demands:
            rest = {k: v for k, v in demands.items() if k != axis}
            yield f"--{field} {axis}", {field: rest}


def _shorter(job: Job) -> Iterator[tuple[str, Job]]:
    seq_len = job.seq_len // 2
    while seq_len >= MIN_SEQ_LEN:
        spec = job.spec.model_copy(update={"seq_len": seq_len})
        yield f"sequences of {seq_len} tokens", replace(job, spec=spec, seq_len=seq_len)
        seq_len //= 2


def _more_gpus(job: Job) -> Iterator[tuple[str, Job]]:
    cluster = job.cluster
    for factor in MORE_GPUS:
        try:
            larger = cluster.with_gpus(cluster.gpus * factor)
        except ValueError:
            continue
        yield f"{larger.gpus} GPUs ({larger.spec})", replace(job, cluster=larger)


def _changed(job: Job, **fields: object) -> Job:
    spec = job.spec.model_copy(update=fields)
    if "stack" in fields or "fix" in fields or "forbid" in fields:
        return resolve(spec)
    return replace(job, spec=spec)


def unknown_reason(seconds_spent: float) -> str:
    """Text for a search that ran out of time without a plan."""
    return f"no plan found in {seconds(seconds_spent)}; raise --time-limit"
