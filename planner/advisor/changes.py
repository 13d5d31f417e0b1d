"""Single changes of a configuration that its file can express."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.advisor.readers import Reading
from planner.lint.context import Context
from planner.lint.megatron_flags import deepspeed as is_megatron_deepspeed

Values = Mapping[str, Any]


def saving(fix: Values, ctx: Context, reading: Reading) -> list[dict[str, int | str]]:
    """Single changes that save memory, as the file can express them."""
    out: list[dict[str, int | str]] = []
    doc, device, kind = reading.document, ctx.device, reading.document.kind
    megatron = kind == "megatron"
    if fix.get("precision") in ("fp32", "tf32") and device is not None:
        half = "bf16" if "bf16" in device.supports else "fp16"
        out.append({"precision": half})
    if fix.get("attention") == "eager":
        out.append({"attention": "flash"})
    micro = fix["micro_batch"]
    for smaller in [m for m in _divisors(micro) if m < micro][-1:]:
        out.append({"micro_batch": smaller})
    if micro > 2:
        out.append({"micro_batch": 1})
    if fix.get("recompute") not in ("full", "every_2", "every_4"):
        out.append({"recompute": "full"})
        if megatron and fix.get("recompute") == "none" and not is_megatron_deepspeed(doc):
            out.append({"recompute": "selective"})
    out += _sharding(fix, ctx, reading)
    if megatron and fix.get("tp", 1) > 1 and not fix.get("sequence_parallel"):
        out.append({"sequence_parallel": 1})
    if megatron or kind == "plan":
        for axis in ("tp", "pp"):
            if fix["dp"] % 2 == 0:
                out.append({axis: int(fix.get(axis, 1)) * 2})
    return out


def _sharding(fix: Values, ctx: Context, reading: Reading) -> list[dict[str, int | str]]:
    stage = int(fix.get("zero_stage", 0))
    out: list[dict[str, int | str]] = []
    fsdp = fix.get("stack") == "fsdp2" or _is_fsdp(ctx, reading)
    stages: tuple[int, ...] = (1, 2, 3)
    if reading.document.kind == "megatron":
        stages = (1,)
    elif fsdp:
        stages = (3,)
    elif fix.get("pp", 1) > 1:
        stages = (1,)
    if fix["dp"] > 1:
        for higher in stages:
            if higher > stage:
                out.append({"zero_stage": higher})
    cpu = fix.get("offload_optimizer", "none") == "none"
    if fsdp:
        if cpu:
            out.append({"offload_optimizer": "cpu", "offload_parameters": "cpu"})
        return out
    if cpu and (stage or fix["dp"] > 1):
        one: dict[str, int | str] = {"offload_optimizer": "cpu"}
        out.append(one if stage else {**one, "zero_stage": 2})
    if fix.get("offload_parameters", "none") == "none" and reading.document.kind != "megatron":
        both: dict[str, int | str] = {"offload_parameters": "cpu"}
        both |= {"offload_optimizer": "cpu"} if cpu else {}
        both |= {"zero_stage": 3} if stage < 3 else {}
        out.append(both)
    return out


def _is_fsdp(ctx: Context, reading: Reading) -> bool:
    yaml = reading.document if reading.document.kind == "accelerate" else ctx.partner("accelerate")
    if yaml is not None and yaml.get("distributed_type") == "FSDP":
        return True
    return bool(reading.document.get("fsdp") or reading.document.section("fsdp_config"))


def speeding(fix: Values, ctx: Context, reading: Reading) -> list[dict[str, int | str]]:
    """Single changes that may save time."""
    out: list[dict[str, int | str]] = []
    device = ctx.device
    if fix.get("precision") in ("fp32", "tf32") and device is not None:
        out.append({"precision": "bf16" if "bf16" in device.supports else "fp16"})
    if fix.get("attention") == "eager":
        out.append({"attention": "flash"})
    if fix.get("recompute") != "none":
        out.append({"recompute": "none"})
    fsdp = _is_fsdp(ctx, reading)
    if fix.get("offload_parameters") != "none" and fsdp:
        out.append({"offload_optimizer": "none", "offload_parameters": "none"})
    elif fix.get("offload_parameters") != "none":
        out.append({"offload_parameters": "none"})
    if fix.get("offload_optimizer") != "none" and not fsdp:
        none: dict[str, int | str] = {"offload_optimizer": "none"}
        none |= {"offload_parameters": "none"} if fix.get("offload_parameters") != "none" else {}
        out.append(none)
    lower = {3: (2,), 2: (1,)}.get(int(fix.get("zero_stage", 0)), ())
    offloads = fix.get("offload_parameters") != "none"
    if reading.document.kind != "megatron" and not offloads:
        for stage in lower:
            out.append({"zero_stage": stage})
    micro, accum = fix["micro_batch"], fix["grad_accum"]
    for times in (2, 4):
        if accum % times == 0:
            out.append({"micro_batch": micro * times})
    out += _traded(fix, micro, accum)
    return out


def _traded(fix: Values, micro: int, accum: int) -> list[dict[str, int | str]]:
    """Micro-batch and checkpointing changed together: one pays for the other's memory."""
    if fix.get("recompute") == "none":
        return [
            {"recompute": "full", "micro_batch": micro * times}
            for times in (2, 4, 8)
            if accum % times == 0
        ]
    return [
        {"recompute": "none", "micro_batch": smaller}
        for smaller in _divisors(micro)
        if smaller < micro
    ]


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
