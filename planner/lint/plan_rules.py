"""A plan.json of the planner's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.document import Value, as_int
from planner.lint.rule import Facts, Hit, Rule

COUNTS = ("dp", "tp", "pp", "cp", "ep", "micro_batch", "grad_accum", "virtual_stages")


def plan_of(data: Mapping[str, Value]) -> Mapping[str, Value]:
    """The plan in a result, or the mapping itself if it is a plan."""
    inner = data.get("plan")
    return inner if isinstance(inner, Mapping) else data


def _path(facts: Facts, name: str) -> tuple[str, ...]:
    return ("plan", name) if isinstance(facts.doc.get("plan"), Mapping) else (name,)


def counts(facts: Facts) -> Iterator[Hit]:
    """Degrees that are not degrees."""
    plan = plan_of(facts.doc.data)
    for name in COUNTS:
        value = plan.get(name)
        if value is None:
            yield Hit(_path(facts, name), {"name": name, "what": "is missing"})
        elif (as_int(value) or 0) < 1 or isinstance(value, str | bool):
            yield Hit(_path(facts, name), {"name": name, "what": f"is {value!r}"})


def product(facts: Facts) -> Iterator[Hit]:
    """Degrees against the GPUs."""
    plan = plan_of(facts.doc.data)
    sizes = [as_int(plan.get(name)) for name in ("dp", "tp", "pp", "cp")]
    gpus = as_int(plan.get("gpus"))
    total = 1
    for size in sizes:
        if not size:
            return
        total *= size
    if gpus and gpus != total:
        yield Hit(_path(facts, "gpus"), {"gpus": gpus, "total": total})


def processes(facts: Facts) -> Iterator[Hit]:
    """The plan's GPUs against those given."""
    gpus = as_int(plan_of(facts.doc.data).get("gpus"))
    if gpus and facts.ctx.world and gpus != facts.ctx.world:
        yield Hit(_path(facts, "gpus"), {"gpus": gpus, "world": facts.ctx.world})


def pipeline(facts: Facts) -> Iterator[Hit]:
    """DeepSpeed's pipeline engine and ZeRO."""
    plan = plan_of(facts.doc.data)
    stage, stages = as_int(plan.get("zero_stage")), as_int(plan.get("pp"))
    deepspeed = str(plan.get("stack", "")).endswith("deepspeed")
    if deepspeed and stage and stages and stages > 1 and stage >= 2:
        yield Hit(_path(facts, "zero_stage"), {"stage": stage, "pp": stages})


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "plan-count",
        "error",
        "{name} {what}; expected a whole number, 1 or more",
        "solve the job again",
        "the planner's plan schema",
        counts,
    ),
    Rule(
        "plan-product",
        "error",
        "dp x tp x pp x cp is {total}, the plan says {gpus} GPUs",
        "solve the job again",
        "the planner's plan schema",
        product,
    ),
    Rule(
        "plan-gpus",
        "warning",
        "the plan is for {gpus} GPUs, {world} are given",
        "solve the job for these GPUs",
        "the planner's plan schema",
        processes,
    ),
    Rule(
        "plan-pipeline-stage",
        "error",
        "the pipeline engine refuses ZeRO stage {stage} with {pp} stages",
        "use stage 1",
        "DeepSpeed 0.19.8, deepspeed/runtime/pipe/engine.py",
        pipeline,
    ),
)
