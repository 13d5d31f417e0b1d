"""Results as text: the terminal summary and ``report.md``. Human units appear only here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.plan import Infeasible, Plan, Predicted, Proof, Result, Rung

GIB = float(1 << 30)
TECHNIQUE = {
    "none": "no offload",
    "cpu": "CPU",
    "nvme": "NVMe",
}


def gib(amount: float | None) -> str:
    """Bytes for people."""
    return "-" if amount is None else f"{amount / GIB:.1f} GiB"


def seconds(value: float | None) -> str:
    """A time for people."""
    if value is None:
        return "not modelled"
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms"


def describe_plan(plan: Plan) -> str:
    """The plan in one line."""
    parts = [f"dp {plan.dp}", f"tp {plan.tp}", f"pp {plan.pp}"]
    if plan.virtual_stages > 1:
        parts.append(f"{plan.virtual_stages} virtual stages")
    if plan.sequence_parallel:
        parts.append("sequence parallel")
    parts += [
        f"ZeRO-{plan.zero_stage}",
        f"micro-batch {plan.micro_batch} x {plan.grad_accum}",
        plan.precision,
        f"{plan.attention} attention",
        describe_recompute(plan),
    ]
    if plan.offload_optimizer != "none":
        parts.append(describe_offload(plan))
    return ", ".join(parts)


def describe_recompute(plan: Plan) -> str:
    """Which layers are checkpointed."""
    counts = plan.recompute_layers
    total = sum(counts.values())
    recomputed = {g: c for g, c in counts.items() if g != "none"}
    if not recomputed:
        return "no checkpointing"
    return ", ".join(f"{g} checkpointing of {c}/{total} layers" for g, c in recomputed.items())


def describe_offload(plan: Plan) -> str:
    """What is on the host or on NVMe."""
    layers = sum(s.offloaded_layers for s in plan.stages)
    total = sum(s.layers for s in plan.stages)
    share = "" if layers == total else f" of {layers}/{total} layers"
    text = f"optimizer{share} on {TECHNIQUE[plan.offload_optimizer]}"
    if plan.offload_parameters != "none":
        text += f", parameters on {TECHNIQUE[plan.offload_parameters]}"
    return text


def table(header: Sequence[str], rows: Iterable[Sequence[str]], markdown: bool = False) -> str:
    """Columns, aligned; a Markdown table if asked."""
    body = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in body) for i in range(len(header))]
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in body]
        lines.insert(1, "|" + "|".join("---" for _ in header) + "|")
        return "\n".join(lines)
    aligned = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in body
    ]
    return "\n".join(aligned)


def memory_rows(predicted: Predicted) -> list[tuple[str, str, str]]:
    """Memory classes of the worst GPU at its peak."""
    total = predicted.peak_memory_bytes
    return [
        (name, gib(value), f"{100 * value / total:.0f} %")
        for name, value in predicted.memory.items()
    ]


def time_rows(predicted: Predicted) -> list[tuple[str, str, str]]:
    """Parts of the step, largest first, those below 0.05 % left out."""
    total = predicted.step_time_s or 1.0
    parts = sorted(predicted.time.items(), key=lambda item: -item[1])
    return [
        (name, seconds(value), f"{100 * value / total:.1f} %")
        for name, value in parts
        if value > 5e-4 * total
    ]


def stage_rows(plan: Plan) -> list[tuple[str, ...]]:
    """One line a stage."""
    return [
        (
            str(s.stage),
            f"{s.first_layer}-{s.first_layer + s.layers - 1}",
            str(s.layers),
            ", ".join(f"{c} {g}" for g, c in s.recompute.items()),
            str(s.offloaded_layers),
            seconds(s.time_s),
            gib(s.peak_memory_bytes),
        )
        for s in plan.stages
    ]


STAGE_HEADER = ("stage", "layers", "count", "recompute", "offloaded", "micro-batch", "peak")


def rung_rows(ladder: Sequence[Rung]) -> list[tuple[str, ...]]:
    """One line a rung."""
    return [
        (r.rung, r.verdict, gib(r.peak_memory_bytes), seconds(r.step_time_s), r.bought)
        if r.step_time_s is not None
        else (r.rung, r.verdict, gib(r.peak_memory_bytes), "-", r.bought)
        for r in ladder
    ]


RUNG_HEADER = ("up to", "verdict", "peak per GPU", "step", "what it buys")


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
            f"{gib(amount)} {where}"
            for amount, where in (
                (infeasible.short_by_bytes, "on each GPU"),
                (infeasible.host_short_by_bytes, "host RAM on each node"),
            )
            if amount
        ]
        lines.append(f"  nearest: {describe_plan(infeasible.nearest)}, lacks {' and '.join(lacks)}")
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
    return f"With every stage free, whatever the stack, {seconds(other.step_time_s)}: {other.note}"


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
