"""Tables of a result, and its numbers, as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.plan import Plan, Predicted, Rung

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
