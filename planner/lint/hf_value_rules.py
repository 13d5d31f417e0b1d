"""Hugging Face Trainer flags that are misspelt, and values they cannot have."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.document import Document, as_number
from planner.lint.names import names, nearest
from planner.lint.rule import Facts, Hit, Rule, set_key

_ARGS = "transformers 5.24.0, src/transformers/training_args.py"
CLOSE = 0.85  # a script's own arguments are not known: only a near match is worth a word

# Lowest value of flags that are numbers; None where any number will do.
_NUMBERS: dict[str, float | None] = {
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "learning_rate": 0,
    "weight_decay": 0,
    "adam_beta1": 0,
    "adam_beta2": 0,
    "adam_epsilon": 0,
    "max_grad_norm": 0,
    "num_train_epochs": None,
    "max_steps": None,
    "warmup_steps": 0,
    "warmup_ratio": 0,
    "logging_steps": 0,
    "save_steps": 0,
    "dataloader_num_workers": 0,
    "seed": None,
}
_WHOLE = frozenset({"per_device_train_batch_size", "per_device_eval_batch_size"}) | frozenset(
    {"gradient_accumulation_steps", "max_steps", "dataloader_num_workers", "seed"}
)
# Scripts are free in their own flags; these are numbers for the trainer alone.
_SHARED = frozenset({"seed", "warmup_steps", "warmup_ratio", "weight_decay", "learning_rate"})

# transformers 5.24.0, src/transformers/trainer_utils.py (FSDPOption).
FSDP_WORDS = frozenset(
    [
        "full_shard",
        "shard_grad_op",
        "no_shard",
        "hybrid_shard",
        "hybrid_shard_zero2",
        "offload",
        "auto_wrap",
    ]
)
_CHOICES = (("optim", "hf_optimizers"), ("lr_scheduler_type", "hf_schedulers"))


def _trained(facts: Facts) -> bool:
    """Whether the list is the trainer's, not that of a script with flags of its own."""
    marks = names("trainer") - {"deepspeed", "local_rank", "seed", *_SHARED}
    return facts.doc.kind != "trainer" or bool(marks & facts.doc.data.keys())


def misspelt(facts: Facts) -> Iterator[Hit]:
    """Flags close to one of the trainer's, but not it."""
    if not _trained(facts):
        return
    known = names("trainer")
    for name in facts.doc.data:
        text = str(name).removeprefix("no_")
        if text in known or "." in text:
            continue
        close = nearest(text, known, CLOSE)
        if close is not None and close not in facts.doc.data:
            yield Hit((name,), {"name": name, "close": close})


def bad_number(facts: Facts) -> Iterator[Hit]:
    """Words where numbers belong, and counts below the least."""
    for name, low in _NUMBERS.items():
        value = facts.doc.get(name)
        if value is None or (name in _SHARED and not _trained(facts)):
            continue
        number = None if isinstance(value, bool) else as_number(value)
        if name == "max_steps" and number is None and value is True:
            continue  # a switch of the script's own
        whole = name in _WHOLE
        fits = number is not None and (low is None or number >= low)
        if fits and (not whole or number == int(number or 0)):
            continue
        kind = "whole number" if whole else "number"
        least = "" if low is None else f", {low:g} or more"
        yield Hit((name,), {"name": name, "value": value, "accepted": f"a {kind}{least}"})


def bad_choice(facts: Facts) -> Iterator[Hit]:
    """Optimizers and schedulers the trainer does not have."""
    if not _trained(facts):
        return
    for name, which in _CHOICES:
        known = names(which)
        value = facts.doc.get(name)
        if not isinstance(value, str):
            continue
        word = value.lower().rsplit(".", 1)[-1]
        if word not in known:
            close = nearest(word, known, 0.6)
            patch = (set_key(name, value=close),) if close else ()
            values = {"name": name, "value": value, "close": close or sorted(known)[0]}
            yield Hit((name,), values, patch)


def fsdp_words(facts: Facts) -> Iterator[Hit]:
    """Words of --fsdp that are none."""
    value = facts.doc.get("fsdp")
    if not isinstance(value, str | list) or not _trained(facts):
        return
    words = value if isinstance(value, list) else value.split()
    for word in words:
        text = str(word).strip().lower()
        if isinstance(word, bool) or text in ("true", "false", "") or text in FSDP_WORDS:
            continue
        values = {"word": word, "known": ", ".join(sorted(FSDP_WORDS))}
        yield Hit(("fsdp",), values)


def no_wrap(facts: Facts) -> Iterator[Hit]:
    """Without auto_wrap the whole model is one unit."""
    value = facts.doc.get("fsdp")
    words = " ".join(map(str, value)) if isinstance(value, list) else str(value or "")
    shards = any(word in words for word in ("full_shard", "shard_grad_op", "hybrid_shard"))
    section = facts.doc.section("fsdp_config")
    held = facts.doc.get("fsdp_config")
    if not shards or "auto_wrap" in words or isinstance(held, str):
        return
    named = ("transformer_layer_cls_to_wrap", "min_num_params", "auto_wrap_policy")
    flags = ("fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params")
    wrapped = any(section.get(n) or section.get(f"fsdp_{n}") for n in named)
    if not wrapped and not any(facts.doc.get(name) for name in flags):
        yield Hit(("fsdp",), {}, (set_key("fsdp", value=_with_wrap(facts.doc, words)),))


def _with_wrap(doc: Document, words: str) -> str:
    """The words with auto_wrap, in quotes where a shell would part them."""
    return f"'{words} auto_wrap'" if doc.format == "arguments" else f"{words} auto_wrap"


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "hf-misspelt-flag",
        "warning",
        "{name} is no argument of the trainer; {close} is meant, perhaps",
        "write {close}, or leave it if the script reads it",
        f"{_ARGS} (TrainingArguments)",
        misspelt,
    ),
    Rule(
        "hf-bad-number",
        "error",
        "{name} is {value}; expected {accepted}",
        "write {accepted}",
        f"{_ARGS} (TrainingArguments)",
        bad_number,
    ),
    Rule(
        "hf-bad-choice",
        "error",
        "{name} is {value}, which the trainer does not know",
        "write {close}, say",
        f"{_ARGS} (OptimizerNames); src/transformers/trainer_utils.py (SchedulerType)",
        bad_choice,
    ),
    Rule(
        "hf-no-wrap",
        "warning",
        "without auto_wrap the whole model is one FSDP unit, gathered at once",
        "add auto_wrap",
        f"{_ARGS} (fsdp); PyTorch, torch.distributed.fsdp",
        no_wrap,
    ),
    Rule(
        "hf-fsdp-word",
        "error",
        "fsdp does not take {word}; accepted: {known}",
        "write one of {known}",
        "transformers 5.24.0, src/transformers/trainer_utils.py (FSDPOption)",
        fsdp_words,
    ),
)
