"""plan.json against the planner itself: its job, the rules, and the cost it is predicted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from costmodels.costs import GRANULARITIES
from planner.axes import AXES, parse_fix
from planner.estimating import estimate_job
from planner.job import Job, echoed_fields, resolve
from planner.plan import SCHEMA_VERSION, Plan, Result
from planner.spec import make_spec

SAME = 1e-6  # relative; the same formulas on another machine
SHOWN = 10  # differences of one prediction
OR_OLDER = "plan.json was edited, or written by another version of planner"
OUTSIDE = ("model_file", "hardware", "profile")  # files a job may rest on


def schema_problem(document: Any) -> str:
    """What is wrong with the schema version of a plan.json; empty if it is ours."""
    if not isinstance(document, dict):
        return "not a JSON object"
    version = document.get("schema_version")
    if version == SCHEMA_VERSION:
        return ""
    said = "missing" if version is None else f"{version!r} is not supported"
    return f"schema_version: {said}; expected {SCHEMA_VERSION!r}"


def absent_inputs(result: Result) -> list[str]:
    """Files the job rests on that are not where plan.json says."""
    named = [(key, str(result.job[key])) for key in OUTSIDE if key in result.job]
    return [f"{key} {path}" for key, path in named if not Path(path).expanduser().exists()]


def rebuild(result: Result) -> Job:
    """The job a plan.json was solved for.

    Raises
    ------
    ValueError
        If what it says of its job is not one.
    """
    return resolve(make_spec(echoed_fields(result.job), "job"))


def malformed(plan: Plan) -> list[str]:
    """Values no plan can have; one that has any is neither evaluated nor emitted."""
    return [*_off_axes(plan), *_off_stages(plan)]


def plan_problems(job: Job, result: Result) -> list[str]:
    """What of a plan.json does not follow from its job, in words."""
    plan = result.plan
    assert plan is not None
    wrong = [*_job_problems(job, result), *_unasked(job, plan)]
    if by_hand(result):
        return wrong
    try:
        again = estimate_job(job, plan)
    except ValueError as error:
        return [*wrong, str(error)]
    if result.status not in ("optimal", "feasible") and result.proof is not None:
        wrong.append(f"status: {result.status}, but there is a plan")
    if result.predicted is None:
        return [*wrong, "predicted: missing"]
    return wrong + _unpredicted(result, again)


def by_hand(result: Result) -> bool:
    """Whether a plan.json has nothing that solve adds to a plan: no cost, no proof, no files."""
    return result.predicted is None and result.proof is None and not result.files


def _unpredicted(result: Result, again: Result) -> list[str]:
    """What is not as the planner computes it again; single stages last, and a few stand for all."""
    found, expected = result.model_dump(), again.model_dump()
    lines = [
        line
        for part in ("plan", "predicted")
        for line in differences(part, found[part], expected[part])
    ]
    lines.sort(key=lambda line: line.startswith("plan.stages"))
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"and {len(lines) - SHOWN} more"]
    return [*lines, *([f"({OR_OLDER})"] * bool(lines))]


def _off_axes(plan: Plan) -> Iterator[str]:
    """Values no plan can have."""
    for axis in AXES:
        if axis == "recompute":  # "mixed" sums up the stages, which are compared
            continue
        try:
            parse_fix({axis: getattr(plan, axis)})
        except ValueError as error:
            yield f"plan.{error}"


def _off_stages(plan: Plan) -> Iterator[str]:
    """Stages that are no stages."""
    if len(plan.stages) != plan.pp:
        yield f"plan.stages: {len(plan.stages)}, pp says {plan.pp}"
    for stage in plan.stages:
        where = f"plan.stages.{stage.stage}"
        counts = stage.recompute
        if stage.layers < 1:
            yield f"{where}.layers: {stage.layers}"
        if set(counts) - set(GRANULARITIES) or min(counts.values(), default=0) < 0:
            yield f"{where}.recompute: {counts}, expected layers at {', '.join(GRANULARITIES)}"
        elif sum(counts.values()) != stage.layers:
            yield f"{where}.recompute: {sum(counts.values())} layers of {stage.layers}"
        most = 0 if plan.offload_optimizer == "none" else stage.layers
        if not 0 <= stage.offloaded_layers <= most:
            yield f"{where}.offloaded_layers: {stage.offloaded_layers}, at most {most}"


def _job_problems(job: Job, result: Result) -> list[str]:
    """Entries of the job that contradict one another."""
    return [
        f"job.{key}: {result.job.get(key, 'missing')}, the rest of the job means {value}"
        for key, value in job.echo.items()
        if result.job.get(key) != value
    ]


def _unasked(job: Job, plan: Plan) -> Iterator[str]:
    """Choices of the plan that its own job rules out."""
    if plan.stack not in {stack.name for stack in job.stacks}:
        yield f"plan.stack: {plan.stack}, the job asks for {job.spec.stack}"
    if plan.gpus != job.cluster.gpus and not (job.spec.allow_idle and plan.gpus < job.cluster.gpus):
        yield f"plan.gpus: {plan.gpus}, the job has {job.cluster.gpus}"
    if plan.precision not in job.precisions:
        yield f"plan.precision: {plan.precision}, the job asks for {' or '.join(job.precisions)}"
    for demand in job.spec.constraints:
        axis = demand.axis
        recompute = [name for name, count in plan.recompute_layers.items() if count]
        values = recompute if axis == "recompute" else [getattr(plan, axis)]
        values = [int(v) if isinstance(v, bool) else v for v in values]
        yield from (
            f"plan.{axis}: {v}, the job asks for {demand}" for v in values if not demand.accepts(v)
        )


def differences(place: str, found: Any, expected: Any) -> list[str]:
    """Where two JSON values differ, floats to rounding.

    >>> differences("plan", {"tp": 4, "pp": 1}, {"tp": 2, "pp": 1})
    ['plan.tp: 4, the planner computes 2']
    """
    if isinstance(found, dict) and isinstance(expected, dict):
        return [
            line
            for key in dict.fromkeys((*expected, *found))
            for line in differences(f"{place}.{key}", found.get(key), expected.get(key))
        ]
    if isinstance(found, list | tuple) and isinstance(expected, list | tuple):
        if len(found) == len(expected):
            pairs = enumerate(zip(found, expected, strict=True))
            return [line for i, (f, e) in pairs for line in differences(f"{place}.{i}", f, e)]
    elif _same(found, expected):
        return []
    return [f"{place}: {found}, the planner computes {expected}"]


def _same(found: Any, expected: Any) -> bool:
    switches = isinstance(found, bool) or isinstance(expected, bool)
    if isinstance(found, int | float) and isinstance(expected, int | float) and not switches:
        return math.isclose(found, expected, rel_tol=SAME, abs_tol=1e-12)
    return type(found) is type(expected) and bool(found == expected)
