"""Hugging Face Trainer: a DeepSpeed file against the flags."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.deepspeed_facts import AUTO, TRAINER_DEFAULTS, DeepSpeedFacts
from planner.lint.document import Path, Value, as_bool, as_int, as_number
from planner.lint.rule import Hit, Rule, set_key

# DeepSpeed key -> trainer argument that must agree (transformers 5.24.0,
# src/transformers/integrations/deepspeed.py, trainer_config_process).
_PAIRS: tuple[tuple[Path, str], ...] = (
    (("train_micro_batch_size_per_gpu",), "per_device_train_batch_size"),
    (("gradient_accumulation_steps",), "gradient_accumulation_steps"),
    (("gradient_clipping",), "max_grad_norm"),
    (("optimizer", "params", "lr"), "learning_rate"),
    (("optimizer", "params", "eps"), "adam_epsilon"),
    (("optimizer", "params", "weight_decay"), "weight_decay"),
    (("scheduler", "params", "warmup_max_lr"), "learning_rate"),
    (("fp16", "enabled"), "fp16"),
    (("bf16", "enabled"), "bf16"),
)


def _expected(facts: DeepSpeedFacts) -> Iterator[tuple[Path, str, Value]]:
    """Keys with explicit values and what the trainer's arguments make of them."""
    for path, flag in _PAIRS:
        value = facts.trainer(flag)
        if flag in ("fp16", "bf16"):
            value = as_bool(value)
        if value is not None:
            yield path, f"--{flag}", value
    betas = [facts.trainer("adam_beta1"), facts.trainer("adam_beta2")]
    if None not in betas:
        yield ("optimizer", "params", "betas"), "--adam_beta1, --adam_beta2", betas
    micro = as_int(facts.trainer("per_device_train_batch_size"))
    accum = as_int(facts.trainer("gradient_accumulation_steps"))
    if micro and accum and facts.ctx.world:
        train = micro * accum * facts.ctx.world
        yield ("train_batch_size",), f"{facts.ctx.world} processes x {micro} x {accum}", train
    warmup = as_number(facts.trainer("warmup_steps"))
    ratio = facts.trainer("warmup_ratio")
    if warmup is not None and not ratio and (warmup == 0 or warmup >= 1):
        steps = max(1, int(warmup))
        yield ("scheduler", "params", "warmup_num_steps"), "--warmup_steps", steps


def mismatch(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Explicit values that differ from the trainer's."""
    if (
        facts.ctx.framework == "plain"
        or facts.ctx.trainer is None
        or facts.ctx.framework == "megatron"
    ):
        return
    for path, flag, value in _expected(facts):
        given = facts.doc.get(*path)
        if given is None or given == AUTO or _same(given, value):
            continue
        values = {"given": given, "flag": flag, "value": value}
        yield Hit(path, values, (set_key(*path, value=AUTO),))


def _same(given: Value, value: Value) -> bool:
    """Equality as Python sees it: "8" differs from 8, 1 equals 1.0."""
    if isinstance(given, bool) or isinstance(value, bool):
        return as_bool(given) == as_bool(value) and not isinstance(given, str)
    return bool(given == value)


def explicit(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Explicit values where the trainer's arguments are not known."""
    if facts.ctx.framework != "hf" or facts.ctx.trainer is not None:
        return
    pairs = [(path, flag) for path, flag in _PAIRS if flag not in ("fp16", "bf16")]
    pairs.append((("train_batch_size",), "per_device_train_batch_size"))
    for path, flag in pairs:
        given = facts.doc.get(*path)
        if as_number(given) is not None:
            values = {"given": given, "flag": flag, "default": TRAINER_DEFAULTS.get(flag)}
            yield Hit(path, values, (set_key(*path, value=AUTO),))


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "hf-mismatch",
        "error",
        "the file says {given}, {flag} makes it {value}: the trainer stops and lists the two",
        'write "auto"',
        "transformers 5.24.0, src/transformers/integrations/deepspeed.py (fill_match)",
        mismatch,
    ),
    Rule(
        "hf-explicit-value",
        "info",
        "{given} must equal what --{flag} (default {default}) makes of it, or the trainer stops",
        'write "auto"',
        "transformers 5.24.0, src/transformers/integrations/deepspeed.py (fill_match)",
        explicit,
    ),
)
