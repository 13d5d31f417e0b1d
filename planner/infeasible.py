"""No plan: what is short, by how much, and the smallest changes that would work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from planner.candidates import UNSTARTABLE, Candidates, candidates
from planner.evaluate import evaluate
from planner.job import Job, resolve
from planner.nearest import Nearest, nearest
from planner.optimum import Found, choice_of, fastest
from planner.plan import Infeasible, Predicted, Relaxation
from planner.refusals import why_none_is_valid
from planner.report_rows import GIB, describe_plan, gib
from planner.shortfall import gpu_lacks, gpu_may_lack
from planner.spec import JobSpec

MIN_SEQ_LEN = 512
SEQ_STEP = 256
MORE_GPUS = (2, 3, 4, 6, 8, 12, 16, 32, 64)
MORE_HOST_MEMORY = (1.5, 2, 3, 4, 8)
STACKS = ("auto", "megatron", "fsdp2")
DEMANDS = ("fix", "min", "max", "forbid")
BATCHES_TRIED = 12
TIME_LIMIT = 10.0  # for one relaxation [s]


def explain(job: Job, space: Candidates, progress: Callable[[str], None]) -> Infeasible:
    """Why a job has no plan, with the relaxations that were solved and work."""
    close = nearest(space)
    plan, predicted, host_short = None, None, None
    if close is not None:
        plan, predicted = evaluate(job, choice_of(close.found))
        host_short = max(round(close.host_short_by), 0)
    progress("no plan fits; trying relaxations")
    return Infeasible(
        reason=_reason(job, space, close, predicted),
        short_by_bytes=None if predicted is None else gpu_lacks(predicted),
        may_lack_bytes=None if predicted is None else gpu_may_lack(predicted),
        host_short_by_bytes=host_short,
        nearest=plan,
        relaxations=tuple(_relaxations(job)),
    )


def _reason(job: Job, space: Candidates, close: Nearest | None, predicted: Predicted | None) -> str:
    limit = gib(job.cluster.memory_limit)
    tight = predicted is not None and predicted.verdict == "tight"
    exceeds = "exceeds, or may exceed," if tight else "exceeds"
    if close is None and UNSTARTABLE in space.rules:
        return (
            f"no valid candidate can load its model in the {gib(job.cluster.node.host_memory)}"
            " host RAM of a node, or hold its offloaded state on the drives"
        )
    if close is None:
        return why_none_is_valid(job)
    if close.short_by > 0 and close.host_short_by > 0:
        return f"every valid candidate {exceeds} the {limit} of a GPU or the host RAM of a node"
    if close.short_by > 0:
        more = "; with offload, the host RAM or drives of a node" * (UNSTARTABLE in space.rules)
        return f"every valid candidate {exceeds} the {limit} of a GPU{more}"
    if close.host_short_by > 0:
        return (
            "what does not fit on the GPUs exceeds the"
            f" {gib(job.cluster.node.host_memory)} host RAM of a node"
        )
    return "no way to split the layers over the stages fits"


def _relaxations(job: Job) -> Iterator[Relaxation]:
    for change, relaxed in _changes(job):
        space = candidates(relaxed, across_nodes=True)
        found = _fastest(relaxed, space)
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
    dropped = list(_dropped(spec))
    for text, fields in dropped:
        yield f"drop {text}", _changed(job, **fields)
    if len(dropped) > 1:
        free: dict[str, object] = {field: {} for field in DEMANDS}
        yield "drop all demands on axes", _changed(job, **free)
    if not spec.accept_tight:
        yield "accept a tight plan (--accept-tight)", _changed(job, accept_tight=True)
    for stack in STACKS:
        if stack != spec.stack:
            yield f"use --stack {stack}", _changed(job, stack=stack)
    if spec.optimizer in ("adam", "adamw"):
        yield "use --optimizer adam8bit", _changed(job, optimizer="adam8bit")
    if spec.cross_entropy == "auto":
        yield "use --cross-entropy chunked", _changed(job, cross_entropy="chunked")
    if not spec.allow_idle and job.cluster.gpus > 1:
        yield "leave GPUs idle (--allow-idle)", _changed(job, allow_idle=True)
    for options in (
        _other_batches(job),
        _shorter(job),
        _more_host_memory(job),
        _more_gpus(job),
    ):
        found = _first(options)
        if found is not None:
            yield found


def _first(options: Iterator[tuple[str, Job]]) -> tuple[str, Job] | None:
    for text, relaxed in options:
        if _fastest(relaxed, candidates(relaxed, across_nodes=True)) is not None:
            return text, relaxed
    return None


def _fastest(job: Job, space: Candidates) -> Found | None:
    """The fastest plan under a change; None if there is none, or none was found in time."""
    try:
        return fastest(job, space, time_limit=TIME_LIMIT)
    except TimeoutError:
        return None


def _dropped(spec: JobSpec) -> Iterator[tuple[str, dict[str, object]]]:
    for field in DEMANDS:
        demands = getattr(spec, field)
        for axis in demands:
            rest = {k: v for k, v in demands.items() if k != axis}
            yield f"--{field} {axis}", {field: rest}


def _other_batches(job: Job) -> Iterator[tuple[str, Job]]:
    """The nearest global batches that data-parallel degrees of this cluster divide."""
    gpus, batch = job.cluster.gpus, job.global_batch
    inside = (n for n in range(1, job.cluster.gpus_per_node + 1) if gpus % n == 0)
    degrees = sorted(
        {
            gpus // (n * pp)
            for n in inside
            for pp in range(1, job.architecture.layers + 1)
            if gpus % (n * pp) == 0
        }
    )
    nearest_to = {max(1, round(batch / dp)) * dp for dp in degrees} - {batch}
    for size in sorted(nearest_to, key=lambda n: (abs(n - batch), n))[:BATCHES_TRIED]:
        spec = job.spec.model_copy(update={"global_batch": size, "global_tokens": None})
        yield f"--global-batch {size}", replace(job, spec=spec, global_batch=size)


def _shorter(job: Job) -> Iterator[tuple[str, Job]]:
    """Sequences of 7/8, 3/4, 5/8, 1/2 of the length, then of half of that, and so on."""
    whole = job.seq_len
    while whole > MIN_SEQ_LEN:
        for eighths in (7, 6, 5, 4):
            seq_len = whole * eighths // 8 // SEQ_STEP * SEQ_STEP
            if MIN_SEQ_LEN <= seq_len < job.seq_len:
                spec = job.spec.model_copy(update={"seq_len": seq_len})
                yield f"--seq-len {seq_len}", replace(job, spec=spec, seq_len=seq_len)
        whole //= 2


def _more_host_memory(job: Job) -> Iterator[tuple[str, Job]]:
    for factor in MORE_HOST_MEMORY:
        memory = job.cluster.node.host_memory * factor
        larger = job.cluster.with_overrides(host_memory=memory)
        yield f"--host-memory {memory / GIB:.0f}GiB", replace(job, cluster=larger)


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
