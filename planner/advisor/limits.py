"""Where the planner stops before the framework does: judged with the nearest, or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from planner.advisor.judge import Target, judge, make_job
from planner.advisor.judgement import Judgement
from planner.job import Job
from planner.lint.context import Context
from planner.rules import RULES

# Rules that repeat a check of the framework, or what the hardware cannot do. Every other rule is
# a limit of the planner's plans or models: the user's run may well work.
REFUSED = frozenset(
    {
        "world",
        "batch",
        "heads",
        "kv-heads",
        "kv-heads-split",
        "ffn",
        "experts",
        "interleaving",
        "interleaving-micro-batches",
        "precision-hardware",
        "pipeline-zero",
        "autotp-pipeline",
        "offload-distributed-optimizer",
        "fp32-accumulation",
    }
)
_RULE = re.compile(r" \[([a-z0-9-]+); [^\]]*\]$")  # how a broken rule signs its reason
MOST_SWAPS = 4


@dataclass(slots=True)
class Tried:
    """The prediction, or why there is none; ``refused`` is a fault of the configuration."""

    fields: dict[str, Any]
    fix: dict[str, Any]
    judged: Judgement | None = None
    job: Job | None = None
    refused: str = ""
    axes: tuple[str, ...] = ()  # that the broken rule reads
    notes: list[str] = field(default_factory=list)


def judge_nearest(
    fields: Mapping[str, Any], fix: Mapping[str, Any], target: Target, ctx: Context
) -> Tried:
    """Predict a configuration, or the nearest one the models know, and say so.

    Examples
    --------
    >>> rule_of("fsdp2 has no lion optimizer [optimizer-stack; the stack's own options]")
    'optimizer-stack'
    """
    out = Tried(dict(fields), dict(fix))
    for _ in range(MOST_SWAPS):
        try:
            out.job = make_job(out.fields, out.fix, target)
        except ValueError as error:
            out.notes.append(f"no verdict: {_line(error)}")
            return out
        try:
            out.judged = judge(out.job)
            return out
        except ValueError as error:
            text, name = _line(error), rule_of(_line(error))
        if name is None or name in REFUSED:
            out.refused = text
            out.axes = next((rule.axes for rule in RULES if rule.name == name), ())
            return out
        swap = _nearest(name, out, ctx)
        if swap is None:
            reason = _RULE.sub("", text).removeprefix("not a valid configuration: ")
            out.notes.append(f"no verdict: this is not modelled: {reason}")
            return out
        out.notes.append(swap)
    out.notes.append("no verdict: this combination is not modelled")
    return out


def rule_of(reason: str) -> str | None:
    """The name of the rule that a refusal gives; None if it gives none."""
    match = _RULE.search(reason)
    return match.group(1) if match else None


def _line(error: Exception) -> str:
    return " ".join(str(error).split()).removeprefix("advise: ")


def _nearest(name: str, out: Tried, ctx: Context) -> str | None:
    """Change the job to the nearest one the models know; the note that says so."""
    fix, fields = out.fix, out.fields
    stage, precision = int(fix.get("zero_stage", 0)), fix.get("precision")
    if name in ("zero-shards", "fsdp-shards") and stage:
        alike = 1 if stage > 1 and name == "zero-shards" else 0
        fix["zero_stage"] = alike
        return f"ZeRO-{stage} over one rank shards nothing; judged as stage {alike}"
    bf16 = ctx.device is None or "bf16" in ctx.device.supports
    if name in ("precision-stack", "accelerate-only") and precision in ("fp16", "fp8") and bf16:
        fix["precision"] = "bf16"
        other = "; fp8 would change the step time" if precision == "fp8" else ""
        return f"{precision} is not modelled for this stack; judged as bf16{other}"
    if name == "cpu-optimizer" and ctx.hugging_face and fix.get("stack") != "fsdp2":
        given = fields.get("optimizer")
        if fields.get("stack") == "fsdp2" or given == "adamw":
            return None
        fields["optimizer"] = "adamw"
        return f"{given} offloaded is not modelled; judged as adamw, which Accelerate puts in place"
    if name == "sequence-parallel" and int(fix.get("tp", 1)) == 1:
        fix["sequence_parallel"] = 0
        return "sequence parallelism over one tensor-parallel rank does nothing; judged without"
    return None
