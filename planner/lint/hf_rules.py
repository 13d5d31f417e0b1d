"""Hugging Face Trainer: flags against the DeepSpeed file, and flags against each other."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.deepspeed_facts import AUTO, TRAINER_DEFAULTS, DeepSpeedFacts
from planner.lint.document import Path, Value, as_bool, as_int, as_number
from planner.lint.rule import Facts, Hit, Rule, remove_key, set_key

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


DEEPSPEED_RULES: tuple[Rule[DeepSpeedFacts], ...] = (
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

# --- flags alone ---

_EIGHT_BIT = ("bnb", "8bit", "4bit", "adafactor", "galore", "apollo", "lomo", "ademamix", "lion")


def _on(facts: Facts, name: str) -> bool:
    return bool(as_bool(facts.doc.get(name)))


def fsdp_and_deepspeed(facts: Facts) -> Iterator[Hit]:
    """Two engines at once."""
    if facts.doc.get("deepspeed") and facts.doc.get("fsdp"):
        yield Hit(("fsdp",), {}, (remove_key("fsdp"),))


def both_halves(facts: Facts) -> Iterator[Hit]:
    """--fp16 with --bf16."""
    if _on(facts, "fp16") and _on(facts, "bf16"):
        yield Hit(("fp16",), {}, (remove_key("fp16"),))


def unsupported(facts: Facts) -> Iterator[Hit]:
    """A precision the GPU does not have."""
    device = facts.ctx.device
    if device is None:
        return
    for flag in ("bf16", "fp16", "tf32", "fp8", "pure_bf16"):
        need = flag.removeprefix("pure_")
        if _on(facts, flag) and need not in device.supports:
            other = "fp16" if need == "bf16" else "nothing in its place"
            patch = [remove_key(flag)]
            if need == "bf16" and "fp16" in device.supports:
                patch.append(set_key("fp16", value=True))
            yield Hit((flag,), {"flag": need, "gpu": device.name, "other": other}, tuple(patch))


def attention_unsupported(facts: Facts) -> Iterator[Hit]:
    """FlashAttention 2 on a GPU it does not run on."""
    device = facts.ctx.device
    if device is None or device.flash:
        return
    for name in ("attn_implementation", "flash_attn"):
        value = facts.doc.get(name)
        asked = isinstance(value, str) and value in ("fa2", "fa3", "flash_attention_2")
        if asked or (isinstance(value, str) and value.startswith("flash_attention_3")):
            yield Hit((name,), {"gpu": device.name}, (set_key(name, value="sdpa"),))
    for name in ("flash_attention", "use_flash_attn_v2"):
        if _on(facts, name):
            yield Hit((name,), {"gpu": device.name}, (remove_key(name),))


ATTENTION_RULE: Rule[Facts] = Rule(
    "hf-attention-unsupported",
    "error",
    "FlashAttention 2 needs Ampere or later; {gpu} cannot run it",
    "use sdpa",
    "Dao-AILab/flash-attention, README (GPU support)",
    attention_unsupported,
)


def checkpointing_twice(facts: Facts) -> Iterator[Hit]:
    """Trainer checkpointing under FSDP's own."""
    yaml = facts.ctx.partner("accelerate")
    inner = facts.doc.section("fsdp_config")
    fsdp = {**(yaml.section("fsdp_config") if yaml else {}), **inner}
    own = as_bool(fsdp.get("fsdp_activation_checkpointing", fsdp.get("activation_checkpointing")))
    for flag in ("gradient_checkpointing", "activation_checkpointing"):
        if _on(facts, flag) and own:
            yield Hit((flag,), {"flag": flag}, (remove_key(flag),))


def optimizer_replaced(facts: Facts) -> Iterator[Hit]:
    """An optimizer that offload puts aside."""
    partner = facts.ctx.partner("deepspeed")
    yaml = facts.ctx.partner("accelerate")
    device = partner.get("zero_optimization", "offload_optimizer", "device") if partner else None
    if device is None and yaml is not None and yaml.get("distributed_type") == "DEEPSPEED":
        device = yaml.get("deepspeed_config", "offload_optimizer_device")
    forced = partner.get("zero_force_ds_cpu_optimizer", default=True) if partner else True
    name = facts.doc.get("optim")
    other = isinstance(name, str) and any(part in name for part in _EIGHT_BIT)
    if other and device in ("cpu", "nvme") and as_bool(forced):
        yield Hit(("optim",), {"name": name}, (set_key("optim", value="adamw_torch"),))


def accumulation_conflict(facts: Facts) -> Iterator[Hit]:
    """Accumulation in the Accelerate YAML and on the command line."""
    yaml = facts.ctx.partner("accelerate")
    if yaml is None or yaml.get("deepspeed_config", "deepspeed_config_file"):
        return
    path = ("deepspeed_config", "gradient_accumulation_steps")
    there = yaml.get(*path)
    here = facts.doc.get("gradient_accumulation_steps")
    if as_int(there) is not None and as_int(here) is not None and as_int(there) != as_int(here):
        values = {"there": there, "here": here, "file": yaml.name}
        patch = (set_key("gradient_accumulation_steps", value=as_int(there)),)
        yield Hit(("gradient_accumulation_steps",), values, patch)


def clipping_conflict(facts: Facts) -> Iterator[Hit]:
    """Clipping in the Accelerate YAML and on the command line."""
    yaml = facts.ctx.partner("accelerate")
    if yaml is None or yaml.get("deepspeed_config", "deepspeed_config_file"):
        return
    there = as_number(yaml.get("deepspeed_config", "gradient_clipping"))
    here = as_number(facts.doc.get("max_grad_norm"))
    if there is not None and here is not None and there != here:
        values = {"there": there, "here": here, "file": yaml.name}
        yield Hit(("max_grad_norm",), values, (set_key("max_grad_norm", value=there),))


def precision_conflict(facts: Facts) -> Iterator[Hit]:
    """mixed_precision in the Accelerate YAML against --bf16 and --fp16."""
    yaml = facts.ctx.partner("accelerate")
    mixed = yaml.get("mixed_precision") if yaml else None
    for flag, other in (("bf16", "fp16"), ("fp16", "bf16")):
        if yaml is not None and _on(facts, flag) and mixed == other:
            values = {"flag": flag, "there": mixed, "file": yaml.name}
            yield Hit((flag,), values, (remove_key(flag), set_key(other, value=True)))


def repeated(facts: Facts) -> Iterator[Hit]:
    """A flag given twice."""
    for flaw in facts.doc.flaws:
        if flaw.kind == "repeated":
            yield Hit(flaw.path, {"flag": flaw.detail})


# Flags that say where things are, not how training runs.
_NO_MATTER: tuple[str, ...] = (
    "path",
    "file",
    "dir",
    "folder",
    "name",
    "save",
    "load",
    "port",
    "addr",
    "token",
)
_NO_MATTER += ("project", "entity", "id", "data", "dataset", "tokenizer_model", "cache", "rank")


def unresolved(facts: Facts) -> Iterator[Hit]:
    """A value only a run would give."""
    for flaw in facts.doc.flaws:
        name = str(flaw.path[0]) if flaw.path else ""
        if flaw.kind == "unresolved" and not name.endswith(_NO_MATTER):
            yield Hit(flaw.path, {"flag": flaw.detail})


_ARGS = "transformers 5.24.0, src/transformers/training_args.py"

ARGUMENT_RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "args-repeated",
        "warning",
        "{flag} is given more than once; the last one counts",
        "take one out",
        "Python argparse: a later option overwrites an earlier one",
        repeated,
    ),
    Rule(
        "args-unresolved",
        "info",
        "the value of {flag} depends on the environment or a command; it is taken as unknown",
        "give the variable a value in the script, or pass the flag with --args",
        "POSIX shell, parameter expansion and command substitution",
        unresolved,
    ),
)

RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "hf-fsdp-and-deepspeed",
        "error",
        "fsdp and deepspeed exclude each other; the trainer stops",
        "take one out",
        f"{_ARGS} (__post_init__)",
        fsdp_and_deepspeed,
    ),
    Rule(
        "hf-fp16-and-bf16",
        "error",
        "fp16 and bf16 are both on; the trainer stops",
        "take one out",
        f"{_ARGS} (__post_init__)",
        both_halves,
    ),
    Rule(
        "hf-precision-unsupported",
        "error",
        "{flag} is on, but {gpu} has no {flag}",
        "use {other}",
        f"{_ARGS} (__post_init__); the GPU's datasheet",
        unsupported,
    ),
    Rule(
        "hf-checkpointing-twice",
        "error",
        "{flag} and FSDP's own activation checkpointing are both on; the trainer stops",
        "leave it to fsdp_activation_checkpointing",
        "transformers 5.24.0, src/transformers/trainer.py (fsdp_plugin)",
        checkpointing_twice,
    ),
    Rule(
        "hf-optimizer-replaced",
        "warning",
        "{name} is put aside: with optimizer offload Accelerate uses DeepSpeedCPUAdam with fp32"
        " states",
        "write adamw_torch, or set zero_force_ds_cpu_optimizer to false",
        "accelerate 1.15.0, src/accelerate/utils/deepspeed.py (map_pytorch_optim_to_deepspeed)",
        optimizer_replaced,
    ),
    Rule(
        "hf-accumulation-conflict",
        "error",
        "gradient_accumulation_steps is {here} here and {there} in {file}: the trainer stops, or"
        " the run uses one of them",
        "give it once",
        "transformers 5.24.0, src/transformers/integrations/deepspeed.py (fill_match)",
        accumulation_conflict,
    ),
    Rule(
        "hf-clipping-conflict",
        "error",
        "max_grad_norm is {here} here, gradient_clipping {there} in {file}: the trainer stops",
        "give it once",
        "transformers 5.24.0, src/transformers/integrations/deepspeed.py (fill_match)",
        clipping_conflict,
    ),
    Rule(
        "hf-precision-conflict",
        "error",
        "--{flag} here, mixed_precision {there} in {file}",
        "let both say the same",
        "accelerate 1.15.0, src/accelerate/utils/dataclasses.py (set_mixed_precision)",
        precision_conflict,
    ),
)
