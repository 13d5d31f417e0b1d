"""Hugging Face Trainer: flags against each other."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.document import as_bool, as_int, as_number
from planner.lint.rule import Facts, Hit, Rule, remove_key, set_key

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


_ARGS = "transformers 5.24.0, src/transformers/training_args.py"


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
