"""Predict one configuration somebody gives in full."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from costmodels.configuration import OFFLOAD_TIERS
from costmodels.stack import Stack, load_stack
from costmodels.step import even_layers
from planner.axes import AT_REST, AXES, INTEGER_AXES, SWITCH_AXES, TIER_AXES
from planner.evaluate import Choice, evaluate
from planner.job import Job
from planner.plan import Assumption, Plan, Result
from planner.rules import first_violation
from planner.space import Shapes

DEGREES = ("dp", "tp", "pp", "cp")


def estimate_job(job: Job, plan: Plan | None = None) -> Result:
    """Predict the configuration the job's ``fix`` gives, or a plan as it stands.

    Axes that are not fixed are at rest, except that dp and grad_accum follow from the GPUs and
    the global batch, precision and attention are the best the hardware has, and sequence
    parallelism is off.

    Raises
    ------
    ValueError
        If an axis has several values, or the configuration breaks a rule of the stack; one line
        that says which and why.
    """
    choice = _from_plan(job, plan) if plan is not None else _from_fix(job)
    reason = first_violation(job, choice.shapes)
    if reason:
        raise ValueError(f"not a valid configuration: {reason}")
    decided, predicted = evaluate(job, choice)
    fits = predicted.verdict != "does not fit" and all(line.fits for line in predicted.host)
    return Result(
        status="feasible" if fits else "infeasible",
        job=dict(job.echo),
        plan=decided,
        predicted=predicted,
        proof=None,
        assumptions=assumptions(job, decided),
        notes=job.notes,
    )


def assumptions(job: Job, plan: Plan | None = None) -> tuple[Assumption, ...]:
    """The values without a source of their own that a prediction rests on.

    Without a plan, all those of the hardware; with one, those of what it uses.
    """
    gpu, node = job.cluster.node.gpu, job.cluster.node
    seen = {(a.where, a.what): a for a in (*gpu.assumed, *node.assumed, *job.cluster.assumed)}
    unused = _unused_topics(job, plan) if plan is not None else set()
    return tuple(
        Assumption(
            what=f"{a.where} {a.what}",
            value=f"{a.value:g} {a.unit}" if isinstance(a.value, float | int) else str(a.value),
            why=a.why,
        )
        for a in seen.values()
        if a.topic not in unused
    )


def _unused_topics(job: Job, plan: Plan) -> set[str]:
    """What of the hardware a plan does not touch."""
    tiers = {plan.offload_optimizer, plan.offload_parameters}
    touched = {
        "network": job.cluster.nodes > 1,
        "nvme": "nvme" in tiers,
        "host": tiers != {"none"},
        "fp8": plan.precision == "fp8",
    }
    return {topic for topic, used in touched.items() if not used}


def _from_fix(job: Job) -> Choice:
    axes = {axis: _one(job, axis) for axis in AXES}
    others = int(axes["tp"]) * int(axes["pp"]) * int(axes["cp"])
    gpus = job.cluster.gpus
    dp = axes["dp"] if "dp" in job.spec.fix else max(1, gpus // others)
    share = int(dp) * int(axes["micro_batch"])
    accumulated = "grad_accum" in job.spec.fix
    accum = axes["grad_accum"] if accumulated else max(1, job.global_batch // share)
    axes |= {"dp": dp, "grad_accum": accum}
    used = int(dp) * others
    if used != gpus and not (job.spec.allow_idle and used < gpus):
        raise ValueError(_not_all(job, axes, used))
    if int(axes["pp"]) > job.architecture.layers:
        raise ValueError(f"pp={axes['pp']}: the model has {job.architecture.layers} layers")
    stack = _stack(job, axes)
    shapes = _shapes(job, stack, axes, used)
    layers = tuple(int(n) for n in even_layers(job.architecture.layers, int(axes["pp"])))
    granularity = tuple({str(axes["recompute"]): n} for n in layers)
    offloaded = layers if axes["offload_optimizer"] != "none" else (0,) * len(layers)
    return Choice(shapes, layers, granularity, offloaded)


def _not_all(job: Job, axes: dict[str, int | str], used: int) -> str:
    """That the degrees do not make the number of GPUs, and which values of one of them would."""
    gpus = job.cluster.gpus
    degrees = {axis: int(axes[axis]) for axis in DEGREES}
    fixed = [axis for axis in DEGREES if axis in job.spec.fix and degrees[axis] > 1]
    would = [
        f"{axis} {_any_of(values)}" for axis in fixed if (values := _fitting(job, degrees, axis))
    ]
    sizes = " x ".join(str(degrees[axis]) for axis in DEGREES)
    text = f"dp x tp x pp x cp must be the {gpus} GPUs of the cluster, {sizes} is {used}"
    return f"{text}; with the rest as it is, {', or '.join(would)} would do" if would else text


def _any_of(values: list[int]) -> str:
    *most, last = map(str, values)
    return f"{', '.join(most)} or {last}" if most else last


def _fitting(job: Job, degrees: dict[str, int], axis: str) -> list[int]:
    """Values of one degree with which the degrees make the number of GPUs."""
    others = math.prod(size for name, size in degrees.items() if name not in (axis, "dp"))
    rest, over = divmod(job.cluster.gpus, others)
    arch = job.architecture
    whole = {"tp": arch.heads, "pp": rest, "cp": job.seq_len, "dp": job.global_batch}[axis]
    most = arch.layers if axis == "pp" else rest
    values = [n for n in range(1, most + 1) if rest % n == 0 and whole % n == 0]
    if axis == "dp" or "dp" in job.spec.fix:
        exact = rest if axis == "dp" else rest // degrees["dp"]
        over = over or (0 if axis == "dp" else rest % degrees["dp"])
        values = [n for n in values if n == exact]
    return [] if over else values


def _one(job: Job, axis: str) -> int | str:
    values = job.spec.fix.get(axis)
    if values is None:
        return _default(job, axis)
    if len(values) > 1:
        raise ValueError(f"estimate needs one value of {axis}, got {','.join(map(str, values))}")
    return values[0]


def _default(job: Job, axis: str) -> int | str:
    if axis == "precision":
        return job.precisions[0]
    if axis == "attention":
        gpu = job.cluster.node.gpu
        sixteen = str(_one(job, "precision")) in ("fp16", "bf16", "fp8")
        if gpu.flash and sixteen:
            return "flash"
        return "efficient" if gpu.memory_efficient_attention else "eager"
    return AT_REST[axis]


def _stack(job: Job, axes: dict[str, int | str]) -> Stack:
    """The first of the job's stacks that accepts the configuration; else the first."""
    if len(job.stacks) > 1:
        for stack in job.stacks:
            shapes = _shapes(job, stack, axes, job.cluster.gpus)
            if first_violation(job, shapes) is None:
                return stack
    return job.stacks[0]


def _shapes(job: Job, stack: Stack, axes: dict[str, int | str], gpus: int) -> Shapes:
    kernel = str(axes["attention"])
    runs = stack.expresses.kernels_of(job.architecture.family)
    if "attention" not in job.spec.fix and kernel not in runs:
        kernel = runs[-1]
    numbers = {name: np.array([int(axes[name])]) for name in (*INTEGER_AXES, *SWITCH_AXES)}
    tiers = {name: np.array([OFFLOAD_TIERS.index(str(axes[name]))]) for name in TIER_AXES}
    return Shapes(
        stack=stack,
        precision=str(axes["precision"]),
        attention=kernel,
        gpus=np.array([gpus]),
        **numbers,
        **tiers,
    )


def choice_of(job: Job, plan: Plan) -> Choice:
    """A plan as a choice the cost models evaluate."""
    axes: dict[str, int | str] = {axis: getattr(plan, axis) for axis in AXES}
    axes["sequence_parallel"] = int(plan.sequence_parallel)
    own = (stack for stack in job.stacks if stack.name == plan.stack)  # with the job's profile
    stack = next(own, None) or load_stack(plan.stack)
    shapes = replace(_shapes(job, stack, axes, plan.gpus), attention=plan.attention)
    return Choice(
        shapes,
        tuple(s.layers for s in plan.stages),
        tuple(dict(s.recompute) for s in plan.stages),
        tuple(s.offloaded_layers for s in plan.stages),
    )


def _from_plan(job: Job, plan: Plan) -> Choice:
    total = sum(s.layers for s in plan.stages)
    if total != job.architecture.layers:
        raise ValueError(
            f"the plan has {total} layers, {job.architecture.name} has {job.architecture.layers}"
        )
    return choice_of(job, plan)


def read_plan(path: Path) -> Result:
    """A ``plan.json`` as written by ``solve``.

    Raises
    ------
    ValueError
        If it cannot be read or is not one.
    """
    try:
        return Result.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ValueError(f"{path}: cannot read: {error.strerror or error}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{path}: not a plan.json: {place}: {problem['msg']}") from None
    except (ValueError, RecursionError):
        raise ValueError(f"{path}: not valid JSON; expected a plan.json of planner") from None
