"""A LLaMA-Factory YAML."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.document import as_bool, as_int, as_number
from planner.lint.names import names, nearest
from planner.lint.rule import Facts, Hit, Rule, move_key, remove_key, set_key

_TYPES = ("lora", "oft", "freeze", "full")
_STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto")


def _on(facts: Facts, name: str) -> bool:
    return bool(as_bool(facts.doc.get(name)))


def _zero_stage(facts: Facts) -> int | None:
    partner = facts.ctx.partner("deepspeed")
    if partner is not None:
        return as_int(partner.get("zero_optimization", "stage", default=0))
    name = facts.doc.get("deepspeed")
    if isinstance(name, str):
        return next((n for n in (0, 1, 2, 3) if f"z{n}" in name or f"zero{n}" in name), None)
    return None


def unknown(facts: Facts) -> Iterator[Hit]:
    """Keys that no argument class has."""
    known = names("llamafactory") | names("trainer")
    for name in facts.doc.data:
        if name not in known:
            close = nearest(str(name), known)
            meant = f"write {close}" if close else "take it out"
            patch = move_key((str(name),), (close,)) if close else remove_key(str(name))
            yield Hit((str(name),), {"name": name, "meant": meant}, (patch,))


def choices(facts: Facts) -> Iterator[Hit]:
    """Words outside a list."""
    for name, known in (("finetuning_type", _TYPES), ("stage", _STAGES)):
        value = facts.doc.get(name)
        if value is not None and value not in known:
            close = nearest(str(value), known, 0.5)
            patch = (set_key(name, value=close),) if close else ()
            values = {"name": name, "value": value, "choices": ", ".join(known)}
            yield Hit((name,), values, patch)


def numbers(facts: Facts) -> Iterator[Hit]:
    """Counts that are not counts."""
    for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "cutoff_len"):
        value = facts.doc.get(name)
        if value is not None and ((as_int(value) or 0) < 1 or isinstance(value, str | bool)):
            yield Hit((name,), {"name": name, "value": value})


def zero_3(facts: Facts) -> Iterator[Hit]:
    """What ZeRO-3 excludes."""
    if _zero_stage(facts) != 3:
        return
    for name in ("pure_bf16", "use_unsloth", "predict_with_generate", "pissa_init", "use_kt"):
        if _on(facts, name):
            yield Hit((name,), {"name": name}, (remove_key(name),))


def deepspeed_excludes(facts: Facts) -> Iterator[Hit]:
    """What DeepSpeed excludes."""
    for name in ("use_galore", "use_apollo"):
        if facts.doc.get("deepspeed") and _on(facts, name):
            yield Hit((name,), {"name": name}, (remove_key(name),))


def quantized(facts: Facts) -> Iterator[Hit]:
    """Quantised weights are for adapters."""
    bits = facts.doc.get("quantization_bit")
    if bits is None:
        return
    if facts.doc.get("finetuning_type", default="lora") not in ("lora", "oft"):
        values = {"what": "is only for lora and oft"}
        yield Hit(("quantization_bit",), values, (set_key("finetuning_type", value="lora"),))
    if _on(facts, "fp8"):
        values = {"what": "excludes fp8"}
        yield Hit(("quantization_bit",), values, (remove_key("fp8"),))


def quantized_zero_3(facts: Facts) -> Iterator[Hit]:
    """ZeRO-3 does not shard bitsandbytes weights."""
    if facts.doc.get("quantization_bit") is not None and _zero_stage(facts) == 3:
        yield Hit(("quantization_bit",), {})


def no_half(facts: Facts) -> Iterator[Hit]:
    """Nothing in half precision."""
    marks = ("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs")
    trains = as_bool(facts.doc.get("do_train", default=True))
    trains = trains and any(facts.doc.has(name) for name in marks)
    halves = ("bf16", "fp16", "pure_bf16", "fp8")
    if trains and not any(_on(facts, name) for name in halves):
        given = next((name for name in halves if facts.doc.has(name)), None)
        path = (given,) if given else ()
        yield Hit(path, {}, (set_key("bf16", value=True),))


def adapter_only(facts: Facts) -> Iterator[Hit]:
    """Options of adapters with full tuning."""
    if facts.doc.get("finetuning_type", default="lora") == "lora":
        for name in ("use_galore", "use_apollo", "use_badam"):
            if _on(facts, name):
                yield Hit((name,), {"name": name, "what": "excludes lora"}, (remove_key(name),))
        return
    for name in ("use_rslora", "use_dora", "pissa_init"):
        if _on(facts, name):
            yield Hit((name,), {"name": name, "what": "is only for lora"}, (remove_key(name),))
    if as_number(facts.doc.get("loraplus_lr_ratio")) is not None:
        name = "loraplus_lr_ratio"
        yield Hit((name,), {"name": name, "what": "is only for lora"}, (remove_key(name),))


def checkpointing_off(facts: Facts) -> Iterator[Hit]:
    """LLaMA-Factory turns checkpointing on by itself."""
    if _on(facts, "disable_gradient_checkpointing"):
        path = ("disable_gradient_checkpointing",)
        yield Hit(path, {}, (remove_key(*path),))
    elif facts.doc.has("gradient_checkpointing"):
        yield Hit(("gradient_checkpointing",), {}, (remove_key("gradient_checkpointing"),))


_PARSER = "hiyouga/LlamaFactory (August 2026), src/llamafactory/hparams/parser.py"
_TUNING = "hiyouga/LlamaFactory (August 2026), src/llamafactory/hparams/finetuning_args.py"

RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "lf-unknown-key",
        "error",
        "{name} is no argument of LLaMA-Factory: it is refused",
        "{meant}",
        f"{_PARSER} (_parse_args)",
        unknown,
    ),
    Rule(
        "lf-bad-choice",
        "error",
        "{name} is {value!r}; accepted: {choices}",
        "write one of {choices}",
        _TUNING,
        choices,
    ),
    Rule(
        "lf-bad-number",
        "error",
        "{name} is {value!r}; expected a whole number, 1 or more",
        "write a whole number",
        "transformers 5.24.0, src/transformers/training_args.py",
        numbers,
    ),
    Rule(
        "lf-zero-3-excludes",
        "error",
        "{name} is refused with DeepSpeed ZeRO-3",
        "take it out, or use stage 2",
        f"{_PARSER} (get_train_args)",
        zero_3,
    ),
    Rule(
        "lf-deepspeed-excludes",
        "error",
        "{name} is refused with DeepSpeed",
        "take it out, or do without DeepSpeed",
        f"{_PARSER} (get_train_args)",
        deepspeed_excludes,
    ),
    Rule(
        "lf-quantized",
        "error",
        "quantization_bit {what}",
        "use lora, or train without quantisation",
        f"{_PARSER} (_verify_model_args, get_train_args)",
        quantized,
    ),
    Rule(
        "lf-quantized-zero-3",
        "warning",
        "ZeRO-3 does not shard weights quantised by bitsandbytes: every GPU holds them all",
        "use FSDP, or stage 2",
        "hiyouga/LlamaFactory issue 3880; InternLM/xtuner issue 88",
        quantized_zero_3,
    ),
    Rule(
        "lf-no-half-precision",
        "warning",
        "neither bf16 nor fp16 is on: training runs in fp32, twice the memory and traffic",
        "set bf16 to true, or fp16 on cards without it",
        f"{_PARSER} (get_train_args)",
        no_half,
    ),
    Rule(
        "lf-adapter-option",
        "error",
        "{name} {what}",
        "take it out",
        f"{_TUNING} (__post_init__)",
        adapter_only,
    ),
    Rule(
        "lf-checkpointing",
        "info",
        "activation checkpointing is on unless disable_gradient_checkpointing is set; the trainer's"
        " own switch is not what decides",
        "leave it to disable_gradient_checkpointing",
        "hiyouga/LlamaFactory (August 2026), src/llamafactory/model/model_utils/checkpointing.py",
        checkpointing_off,
    ),
)
