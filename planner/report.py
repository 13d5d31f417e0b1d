"""Results as text: the terminal summary and ``report.md``. Human units appear only here."""

from __future__ import annotations

from planner.job import AUTO_STACKS
from planner.plan import Infeasible, Plan, Predicted, Proof, Result
from planner.report_rows import (
    RUNG_HEADER,
    STAGE_HEADER,
    describe_plan,
    gib,
    memory_rows,
    rung_rows,
    seconds,
    stage_rows,
    table,
    time_rows,
)


def summary(result: Result) -> str:
    """What the terminal shows."""
    lines = [_headline(result)]
    if result.plan is not None and result.predicted is not None:
        lines += _plan_lines(result.plan, result.predicted)
    if result.infeasible is not None:
        lines += infeasible_lines(result.infeasible)
    if result.ladder:
        lines += ["", "Low-cost-first ladder (each rung may use all above it):"]
        lines += [_indent(table(RUNG_HEADER, rung_rows(result.ladder)))]
    if result.article:
        lines += ["", result.article]
    if result.alternatives:
        lines += ["", "Other plans:"]
        lines += [
            f"  {seconds(a.step_time_s):>9}  {gib(a.peak_memory_bytes):>9}"
            f"  {a.plan.stack}: {describe_plan(a.plan)}  ({a.note})"
            for a in result.alternatives
        ]
    if result.unrestricted is not None:
        lines += ["", _unrestricted(result)]
    if result.proof is not None:
        lines += ["", proof_line(result.proof)]
    lines += [f"note: {note}" for note in result.notes]
    if result.assumptions:
        lines += ["", "Assumed values this rests on:"]
        lines += [f"  {a.what}: {a.value} ({a.why})" for a in result.assumptions]
    if result.files:
        lines += ["", "Wrote " + ", ".join(result.files)]
    return "\n".join(lines)


def _headline(result: Result) -> str:
    job = result.job
    return (
        f"{job['model']} on {job['gpus']}: {job['global_batch']} sequences of {job['seq_len']}"
        f" tokens a step, {job['optimizer']}"
    )


def _plan_lines(plan: Plan, predicted: Predicted) -> list[str]:
    interval = predicted.peak_memory_interval_bytes
    lines = [
        f"Plan ({plan.stack}): {describe_plan(plan)}",
        "",
        f"Memory per GPU: {gib(predicted.peak_memory_bytes)} at the peak ({predicted.peak_phase}"
        f", stage {predicted.peak_stage}), 90 % interval {gib(interval.low)} to"
        f" {gib(interval.high)}, limit {gib(predicted.memory_limit_bytes)}:"
        f" {predicted.verdict}",
        _indent(table(("class", "bytes", "share"), memory_rows(predicted))),
    ]
    for line in predicted.host:
        word = "fits" if line.fits else "DOES NOT FIT"
        lines.append(
            f"Host RAM per node, {line.what}: {gib(line.bytes)} of {gib(line.limit_bytes)}: {word}"
        )
    if predicted.nvme_bytes:
        lines.append(f"NVMe per node: {gib(predicted.nvme_bytes)}")
    if predicted.step_time_s is not None and predicted.step_time_interval_s is not None:
        span = predicted.step_time_interval_s
        lines += [
            "",
            f"Step: {seconds(predicted.step_time_s)} (90 % interval {seconds(span.low)} to"
            f" {seconds(span.high)}), {predicted.tokens_per_s_per_gpu:.0f} tokens/s per GPU,"
            f" MFU {100 * (predicted.mfu or 0):.1f} %",
            _indent(table(("part", "time", "share"), time_rows(predicted))),
        ]
    elif predicted.step_time_s is None:
        lines += ["", "Step time: not modelled for mixture-of-experts networks"]
    if plan.pp > 1:
        lines += ["", _indent(table(STAGE_HEADER, stage_rows(plan)))]
    return lines


def infeasible_lines(infeasible: Infeasible) -> list[str]:
    """Why there is no plan, and what would help."""
    lines = [f"No plan: {infeasible.reason}"]
    if infeasible.nearest is not None:
        lacks = [
            f"{verb} {gib(amount)} {where}"
            for verb, amount, where in (
                ("lacks", infeasible.short_by_bytes, "on each GPU"),
                ("may lack", infeasible.may_lack_bytes, "on each GPU (tight)"),
                ("lacks", infeasible.host_short_by_bytes, "host RAM on each node"),
            )
            if amount
        ]
        lines.append(f"  nearest: {describe_plan(infeasible.nearest)}, {' and '.join(lacks)}")
    if infeasible.relaxations:
        lines.append("  smallest changes that work:")
        lines += [
            f"    {r.change}: {seconds(r.step_time_s)} a step, {gib(r.peak_memory_bytes)} per GPU"
            for r in infeasible.relaxations
        ]
    else:
        lines.append("  no single change that was tried makes it fit")
    return lines


def _unrestricted(result: Result) -> str:
    other = result.unrestricted
    assert other is not None
    asked = str(result.job["stack"])
    names = " and ".join(AUTO_STACKS) if asked == "auto" else asked
    return f"{names}, free in every stage: {seconds(other.step_time_s)}; {other.note}"


def proof_line(proof: Proof) -> str:
    """The certificate in one line."""
    removed = f"{proof.pruned_by_rule} by rule, {proof.pruned_by_memory} by memory"
    text = (
        f"Proof: {proof.status}; {proof.shapes} shapes: {removed}, {proof.pruned_by_bound} by"
        f" bound, {proof.solved} solved"
    )
    if proof.confirmed:
        text += "; confirmed by CP-SAT"
    if proof.fastest_step_time_s is not None:
        text += (
            f"; fastest possible {seconds(proof.fastest_step_time_s)}, gap"
            f" {100 * (proof.gap or 0):.2g} %, plan within {100 * proof.epsilon:.2g} % of it"
        )
    return text


def _indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())


def markdown(result: Result) -> str:
    """The text of ``report.md``."""
    plan, predicted = result.plan, result.predicted
    assert plan is not None
    assert predicted is not None
    parts = [
        f"# {result.job['model']} on {result.job['gpus']}",
        f"{_headline(result)}.",
        f"**Plan ({plan.stack}):** {describe_plan(plan)}.",
        "## Memory, per GPU",
        f"Peak {gib(predicted.peak_memory_bytes)} (device bytes, phase {predicted.peak_phase},"
        f" stage {predicted.peak_stage}); limit {gib(predicted.memory_limit_bytes)}; verdict:"
        f" **{predicted.verdict}**. Allocated {gib(predicted.peak_allocated_bytes)}, reserved"
        f" {gib(predicted.peak_reserved_bytes)}.",
        table(("class", "bytes", "share"), memory_rows(predicted), markdown=True),
        "Phases: "
        + ", ".join(f"{name} {gib(value)}" for name, value in predicted.phases.items())
        + ".",
        "## Host RAM, per node",
        table(
            ("what", "bytes", "limit", "fits"),
            [
                (h.what, gib(h.bytes), gib(h.limit_bytes), "yes" if h.fits else "no")
                for h in predicted.host
            ],
            markdown=True,
        ),
        "## Step time",
        f"{seconds(predicted.step_time_s)}; {predicted.tokens_per_s_per_gpu or 0:.0f} tokens/s"
        f" per GPU; MFU {100 * (predicted.mfu or 0):.1f} %.",
        table(("part", "time", "share"), time_rows(predicted), markdown=True),
    ]
    if plan.pp > 1:
        parts += ["## Stages", table(STAGE_HEADER, stage_rows(plan), markdown=True)]
    if result.ladder:
        parts += ["## Low-cost-first ladder", table(RUNG_HEADER, rung_rows(result.ladder), True)]
    if result.article:
        parts.append(result.article)
    if result.alternatives:
        rows = [
            (seconds(a.step_time_s), gib(a.peak_memory_bytes), a.plan.stack, describe_plan(a.plan))
            for a in result.alternatives
        ]
        parts += ["## Other plans", table(("step", "peak", "stack", "plan"), rows, True)]
    if result.unrestricted is not None:
        parts.append(_unrestricted(result))
    if result.proof is not None:
        parts += ["## Proof", proof_line(result.proof) + "."]
        if result.proof.rules:
            removed = [(rule, str(count)) for rule, count in result.proof.rules.items()]
            parts.append(table(("rule", "candidates removed"), removed, True))
    if result.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in result.notes)]
    if result.assumptions:
        assumed = [(a.what, a.value, a.why) for a in result.assumptions]
        parts += ["## Assumed values", table(("what", "value", "why"), assumed, True)]
    return "\n\n".join(parts) + "\n"
