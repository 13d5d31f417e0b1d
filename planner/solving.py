"""Solve a job: candidates, proof, the ladder's choice, and what a reader wants to know of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from planner.alternatives import alternatives
from planner.article import compare
from planner.candidates import ACROSS, Candidates, candidates
from planner.choose import choose
from planner.estimating import assumptions
from planner.evaluate import evaluate
from planner.infeasible import explain
from planner.job import Job
from planner.optimum import Found, choice_of, found_in
from planner.plan import Alternative, Plan, Predicted, Proof, Result
from planner.report_rows import describe_plan, gib, seconds
from planner.rungs import ladder_trace
from planner.solver import search as proof
from planner.solver.cpsat import solve_shape

EPSILON_FLOOR = 0.01
TALK_AFTER = 1.0  # [s]
MANY = 16  # micro-batches whose 16-bit sum deserves a word
WIDER = 3  # plans looked at for one alternative shown
LEAST_GAIN = 5e-4  # below it two plans are equally fast for a reader
CONFIRM_LIMIT = 10.0  # [s]
ROUNDING = 1e-5  # relative; the program counts in whole nanoseconds a micro-batch


def solve_job(job: Job, progress: Callable[[str], None]) -> Result:
    """The best plan of a resolved job.

    Raises
    ------
    ValueError
        If no stack can train the model, or can launch on the hardware; one line.
    """
    _refuse(job)
    clock = _Clock(progress, job.spec.time_limit)
    space = candidates(job)
    found = proof.search(
        space.batches, time_limit=clock.left(), progress=clock.searching(space, job)
    )
    across = found.status == "infeasible" and ACROSS in space.rules
    if across:
        space = candidates(job, across_nodes=True)
        found = proof.search(
            space.batches, time_limit=clock.left(), progress=clock.searching(space, job)
        )
    if found.best is None:
        return _no_plan(job, space, found, clock)
    optimum = found_in(space, found.best)
    epsilon = _epsilon(job, optimum)
    clock.say("choosing the least intrusive plan near the optimum")
    choice = choose(job, space, optimum, epsilon, clock.left())
    chosen = choice.found
    plan, predicted = evaluate(job, choice_of(chosen))
    _check(chosen, predicted)
    clock.say("comparing alternatives")
    return Result(
        status="optimal" if found.status == "optimal" and choice.proven else "feasible",
        job=dict(job.echo),
        plan=plan,
        predicted=predicted,
        proof=_proof(
            space,
            found,
            optimum,
            epsilon if job.spec.priority == "balanced" else 0.0,
            _confirm(optimum, clock.left()) if found.status == "optimal" else None,
        ),
        ladder=ladder_trace(job, space, optimum),
        article=compare(job, space, plan, predicted),
        alternatives=_alternatives(job, space, optimum, chosen, clock),
        unrestricted=_unrestricted(job, plan, optimum, across, clock),
        assumptions=assumptions(job, plan),
        notes=(*job.notes, *_notes(job, plan, predicted), *_gain(plan, chosen, space, clock)),
    )


def _refuse(job: Job) -> None:
    arch, gpu = job.architecture, job.cluster.node.gpu
    if arch.kind != "decoder":
        raise ValueError(f"model {arch.name}: encoder-only models are not planned, only estimated")
    if arch.moe is not None:
        raise ValueError(
            f"model {arch.name}: the step time of mixture-of-experts models is not modelled, so no"
            " plan can be proven; `planner estimate` counts their memory"
        )
    if not gpu.launchable:
        raise ValueError(
            f"gpus {job.cluster.spec}: no supported stack launches on {gpu.name};"
            " `planner estimate` counts memory"
        )


def _epsilon(job: Job, optimum: Found) -> float:
    """How much slower than the optimum a less intrusive plan may be.

    A preference below a quarter of the model's own error would be noise.
    """
    return max(EPSILON_FLOOR, optimum.table.shapes.stack.time.error / 4)


def _check(chosen: Found, predicted: Predicted) -> None:
    """The floating-point evaluation must agree with the program's integers."""
    assert predicted.step_time_s is not None
    assert abs(predicted.step_time_s / chosen.seconds - 1) < ROUNDING, (
        predicted.step_time_s,
        chosen.seconds,
    )
    assert predicted.verdict != "does not fit"


def _confirm(optimum: Found, time_limit: float) -> bool | None:
    """Whether CP-SAT, asked for anything better in the optimum's shape, proves there is nothing.

    Most shapes are settled by an exact relaxation, so this is a second opinion.
    """
    outcome = solve_shape(
        optimum.table.batch.program(optimum.index),
        at_most=optimum.objective - 1,
        time_limit=min(time_limit, CONFIRM_LIMIT),
    )
    assert outcome.decision is None, "CP-SAT found a better plan than the proven optimum"
    return True if outcome.status == "infeasible" else None


def _proof(
    space: Candidates,
    found: proof.SearchResult,
    optimum: Found | None,
    epsilon: float,
    confirmed: bool | None = None,
) -> Proof:
    counts = found.counts
    scale = space.tables[0] if space.tables else None
    return Proof(
        status=found.status,  # type: ignore[arg-type]
        bound_s=None if found.bound is None or scale is None else scale.seconds(found.bound),
        gap=found.gap,
        shapes=space.enumerated,
        pruned_by_rule=space.pruned_by_rule,
        pruned_by_bound=counts.bound,
        pruned_by_memory=counts.memory,
        solved=counts.shapes - counts.bound - counts.memory - counts.unsettled,
        confirmed=confirmed,
        fastest_step_time_s=None if optimum is None else optimum.seconds,
        epsilon=epsilon,
        rules=space.rules,
    )


def _no_plan(job: Job, space: Candidates, found: proof.SearchResult, clock: _Clock) -> Result:
    unknown = found.status == "unknown"
    return Result(
        status="unknown" if unknown else "infeasible",
        job=dict(job.echo),
        plan=None,
        predicted=None,
        proof=_proof(space, found, None, 0.0),
        infeasible=None if unknown else explain(job, space, clock.say),
        assumptions=assumptions(job),
        notes=(
            *job.notes,
            *((f"no plan found in {job.spec.time_limit:g} s; raise --time-limit",) * unknown),
        ),
    )


def _alternatives(
    job: Job, space: Candidates, optimum: Found, chosen: Found, clock: _Clock
) -> tuple[Alternative, ...]:
    if not job.spec.top:
        return ()
    best = proof.top(space.batches, WIDER * (job.spec.top + 1), time_limit=clock.left())
    return alternatives(job, chosen, optimum, [found_in(space, p) for p in best.plans])


def _unrestricted(
    job: Job, plan: Plan, optimum: Found, across: bool, clock: _Clock
) -> Alternative | None:
    """What the stacks searched would reach free in every stage, where the plan's is not."""
    expresses = optimum.table.shapes.stack.expresses
    limited = expresses.layers_per_stage != "free" or expresses.recompute_layers != "free"
    if not limited or clock.left() <= 0:
        return None
    clock.say("solving once more without the stack's limits")
    free = candidates(job, limited=False, waived=("even-stages",), across_nodes=across)
    result = proof.search(free.batches, time_limit=clock.left())
    if result.best is None:
        return None
    found = found_in(free, result.best)
    other, predicted = evaluate(job, choice_of(found))
    gain = optimum.seconds / found.seconds - 1
    return Alternative(
        plan=other,
        step_time_s=found.seconds,
        peak_memory_bytes=predicted.peak_memory_bytes,
        note=f"{100 * gain:.2g} % faster than the optimum: {describe_plan(other)}"
        if gain >= LEAST_GAIN
        else "what they can express costs nothing here",
    )


def _notes(job: Job, plan: Plan, predicted: Predicted) -> list[str]:
    notes = []
    for line in predicted.host:
        if not line.fits:
            need = f"{gib(line.bytes)} host RAM of {gib(line.limit_bytes)}"
            notes.append(
                f"a checkpoint gathered on one rank would need {need}: save it sharded"
                if line.what == "saving"
                else f"{line.what} needs {need}"
            )
    if plan.grad_accum >= MANY and job.spec.grad_dtype in ("auto", "bf16", "fp16"):
        width = _gradient_bytes(job, plan)
        if width < 4:
            notes.append(
                f"gradients of {plan.grad_accum} micro-batches add up in {plan.precision};"
                " --grad-dtype fp32 is safer and needs more memory"
            )
    return notes


def _gradient_bytes(job: Job, plan: Plan) -> float:
    """Bytes gradients accumulate in."""
    if job.spec.grad_dtype != "auto":
        return 2
    stack = next(s for s in job.stacks if s.name == plan.stack)
    return stack.memory.gradients[plan.precision]


def _gain(plan: Plan, chosen: Found, space: Candidates, clock: _Clock) -> list[str]:
    """What stages that differ from one another buy over the best plan without."""
    if plan.pp == 1 or plan.even:
        return []
    result = proof.search(space.even().batches, time_limit=clock.left())
    if result.best is None:
        return ["no plan with all stages alike fits"] if result.status == "infeasible" else []
    alike = found_in(space, result.best).seconds
    if alike <= chosen.seconds:
        return []
    return [
        f"stages differ: the best plan with all stages alike takes {seconds(alike)},"
        f" {100 * (alike / chosen.seconds - 1):.1f} % more"
    ]


class _Clock:
    """Time left, and progress once a second after the first."""

    def __init__(self, say: Callable[[str], None], limit: float) -> None:
        self._say, self._limit = say, limit
        self._start = self._said = time.monotonic()

    def left(self) -> float:
        return self._limit - (time.monotonic() - self._start)

    def say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._start > TALK_AFTER and now - self._said > TALK_AFTER:
            self._said = now
            self._say(text)

    def searching(self, space: Candidates, job: Job) -> proof.Progress:
        def report(counts: proof.Counts, incumbent: int | None, bound: int | None) -> None:
            table = space.tables[0]
            best = "no plan yet" if incumbent is None else seconds(table.seconds(incumbent))
            least = "-" if bound is None else seconds(table.seconds(bound))
            self.say(f"searching: best {best}, bound {least}, {counts.shapes} shapes")

        return report
