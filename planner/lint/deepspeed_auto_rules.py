"""``auto`` where nobody fills it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.deepspeed_facts import AUTO, BATCH_KEYS, TRAINER_DEFAULTS, DeepSpeedFacts
from planner.lint.deepspeed_keys import (
    SECTIONS,
    canonical,
)
from planner.lint.deepspeed_sources import CONFIG, UTILS
from planner.lint.document import Path, Value
from planner.lint.finding import Edit
from planner.lint.rule import Hit, Rule, remove_key, set_key


def unfilled(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """``auto`` where nobody replaces it, in a section that then takes its default."""
    for filled in facts.autos:
        name = str(filled.path[-1])
        where = tuple(str(p) for p in filled.path[:-1])
        section = SECTIONS.get(where)
        if filled.by != "DeepSpeed's default" or filled.value == AUTO or section is None:
            continue
        known = canonical(where, name)
        if known is None or filled.path[:-1] == ("zero_optimization", "zenflow"):
            continue
        if known in ("prefetch_bucket_size", "param_persistence_threshold") and facts.stage < 3:
            continue
        harmful = name == "enabled" or name == "stage" or name == "device"
        yield Hit(
            filled.path,
            {"name": name, "value": filled.value},
            (set_key(*filled.path, value=filled.value),) if filled.value is not None else (),
            "warning" if harmful else "info",
        )


def auto_as_value(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """``auto`` that reaches DeepSpeed, or an optimizer, as the word itself."""
    for filled in facts.autos:
        if filled.by != "DeepSpeed's default" or filled.value != AUTO:
            continue
        name = str(filled.path[-1])
        if name in BATCH_KEYS and facts.ctx.framework == "accelerate":
            continue
        if filled.path[0] in ("expert_parallel", "pipeline", "data_types", "autotuning"):
            continue
        if len(filled.path) == 1 and canonical((), name) is None:
            continue
        yield Hit(filled.path, {"name": name}, _written_out(filled.path))


# What stands in for an auto that nobody fills: one sample, one step, the trainer's defaults.
_STAND_INS: Mapping[str, Value] = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": TRAINER_DEFAULTS["max_grad_norm"],
    "lr": TRAINER_DEFAULTS["learning_rate"],
    "betas": [TRAINER_DEFAULTS["adam_beta1"], TRAINER_DEFAULTS["adam_beta2"]],
    "eps": TRAINER_DEFAULTS["adam_epsilon"],
    "weight_decay": TRAINER_DEFAULTS["weight_decay"],
    "warmup_min_lr": 0,
    "warmup_max_lr": TRAINER_DEFAULTS["learning_rate"],
    "warmup_num_steps": 1,
}


def _written_out(path: Path) -> tuple[Edit, ...]:
    name = str(path[-1])
    if path == ("train_batch_size",):
        return (remove_key(*path),)
    return (set_key(*path, value=_STAND_INS[name]),) if name in _STAND_INS else ()


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-auto-default",
        "info",
        "auto is not filled by anyone here; DeepSpeed drops it and {name} becomes {value}",
        "write the value",
        f"{UTILS} (DeepSpeedConfigModel.__init__)",
        unfilled,
    ),
    Rule(
        "ds-auto-value",
        "error",
        "auto is not filled by anyone here; {name} stays the word itself and fails as a number",
        "write the value",
        f"{CONFIG}; transformers 5.24.0, integrations/deepspeed.py",
        auto_as_value,
    ),
)
