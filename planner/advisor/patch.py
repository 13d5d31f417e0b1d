"""A change of a plan's axis as edits of the user's own files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.advisor.readers import Reading
from planner.lint.context import Context
from planner.lint.deepspeed_facts import AUTO
from planner.lint.document import Document, Value
from planner.lint.finding import Edit
from planner.lint.megatron_flags import deepspeed as is_megatron_deepspeed
from planner.lint.rule import remove_key, set_key

Changes = Mapping[str, int | str]
_ZERO = "zero_optimization"


@dataclass(slots=True)
class Patch:
    """Edits by file, and flags or steps that no file at hand can hold."""

    files: dict[str, list[Edit]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)  # of a DeepSpeed file that is not there

    def edit(self, doc: Document, *edits: Edit) -> None:
        """Add edits of one file."""
        self.files.setdefault(doc.name, []).extend(edits)


def patch_for(
    changes: Changes, values: Mapping[str, Value], reading: Reading, ctx: Context
) -> Patch:
    """What to change so that the axes take new values.

    Parameters
    ----------
    changes : mapping
        Axis and new value.
    values : mapping
        All axes after the change.
    """
    out = Patch()
    doc = reading.document
    if doc.kind == "plan":
        nested = isinstance(doc.get("plan"), Mapping)
        for axis, value in changes.items():
            out.edit(doc, set_key(*(("plan", axis) if nested else (axis,)), value=value))
        return out
    if doc.kind == "megatron":
        _megatron(out, changes, values, doc, ctx)
        return out
    engine = _engine(doc, ctx)
    trainer = doc if doc.kind in ("trainer", "llamafactory", "axolotl") else None
    trainer = trainer or (ctx.trainer if ctx.trainer and ctx.trainer.name != "--args" else None)
    for axis in changes:
        if axis in ("zero_stage", "offload_optimizer", "offload_parameters"):
            _sharding(out, axis, values, engine, trainer)
        elif axis in ("micro_batch", "grad_accum"):
            _batch(out, axis, values[axis], engine, trainer)
        elif axis == "precision":
            _precision(out, str(values[axis]), engine, trainer)
        elif axis == "recompute":
            _recompute(out, str(values[axis]), engine, trainer)
        elif axis == "attention":
            _attention(out, str(values[axis]), trainer)
    if out.wanted:
        out.flags.append(f"use a DeepSpeed file with {' and '.join(out.wanted)}")
    return out


def _engine(doc: Document, ctx: Context) -> Document | None:
    """The file that decides sharding."""
    if doc.kind == "deepspeed":
        return doc
    partner = ctx.partner("deepspeed")
    yaml = doc if doc.kind == "accelerate" else ctx.partner("accelerate")
    if yaml is not None and not yaml.get("deepspeed_config", "deepspeed_config_file"):
        return yaml
    return partner or yaml


def _sharding(
    out: Patch,
    axis: str,
    values: Mapping[str, Value],
    engine: Document | None,
    trainer: Document | None,
) -> None:
    value = values[axis]
    if engine is None or (engine.kind == "accelerate" and engine.section("fsdp_config")):
        fsdp = engine or trainer
        if fsdp is not None and fsdp.section("fsdp_config"):
            _fsdp(out, axis, value, fsdp)
        elif trainer is not None and trainer.kind == "axolotl" and axis == "zero_stage":
            name = f"deepspeed_configs/zero{value}.json"
            out.edit(trainer, set_key("deepspeed", value=name))
        elif axis == "zero_stage":
            out.wanted.insert(0, f"zero_optimization.stage {value}")
        elif value != "none":
            section = "offload_optimizer" if axis == "offload_optimizer" else "offload_param"
            out.wanted.append(f"zero_optimization.{section}.device {value}")
        return
    if engine.kind == "accelerate":
        key = {
            "zero_stage": "zero_stage",
            "offload_optimizer": "offload_optimizer_device",
            "offload_parameters": "offload_param_device",
        }[axis]
        out.edit(engine, set_key("deepspeed_config", key, value=value))
        if axis == "zero_stage" and value == 3:
            out.edit(engine, set_key("deepspeed_config", "zero3_init_flag", value=True))
            out.edit(engine, set_key("deepspeed_config", "zero3_save_16bit_model", value=True))
        elif axis == "zero_stage" and engine.get("deepspeed_config", "zero3_init_flag"):
            out.edit(engine, set_key("deepspeed_config", "zero3_init_flag", value=False))
        return
    if axis == "zero_stage":
        out.edit(engine, set_key(_ZERO, "stage", value=value))
        if value != 3 and engine.has(_ZERO, "offload_param"):
            out.edit(engine, remove_key(_ZERO, "offload_param"))
        return
    section = "offload_optimizer" if axis == "offload_optimizer" else "offload_param"
    if value == "none":
        out.edit(engine, remove_key(_ZERO, section))
    elif isinstance(engine.get(_ZERO, section), Mapping):
        out.edit(engine, set_key(_ZERO, section, "device", value=value))
    else:
        out.edit(engine, set_key(_ZERO, section, value={"device": value, "pin_memory": True}))


def _fsdp(out: Patch, axis: str, value: Value, doc: Document) -> None:
    section = doc.section("fsdp_config")
    prefix = "fsdp_" if any(str(key).startswith("fsdp_") for key in section) else ""
    if axis == "zero_stage":
        second = str(section.get("fsdp_version", doc.get("fsdp_version"))) == "2"
        if second or f"{prefix}reshard_after_forward" in section:
            name = f"{prefix}reshard_after_forward"
            out.edit(doc, set_key("fsdp_config", name, value=value == 3))
        else:
            word = "FULL_SHARD" if value == 3 else "SHARD_GRAD_OP"
            out.edit(doc, set_key("fsdp_config", f"{prefix}sharding_strategy", value=word))
    else:
        out.edit(doc, set_key("fsdp_config", f"{prefix}offload_params", value=value != "none"))


_BATCH = {
    "micro_batch": ("train_micro_batch_size_per_gpu", "per_device_train_batch_size"),
    "grad_accum": ("gradient_accumulation_steps", "gradient_accumulation_steps"),
}


def _batch(
    out: Patch, axis: str, value: Value, engine: Document | None, trainer: Document | None
) -> None:
    key, flag = _BATCH[axis]
    held = False
    if engine is not None and engine.kind == "deepspeed":
        given = engine.get(key)
        if given is not None and given != AUTO:
            out.edit(engine, set_key(key, value=value))
            held = True
        elif given is None and trainer is None:
            held = True
            follows = engine.has("train_batch_size") and axis == "grad_accum"
            if not follows:
                out.edit(engine, set_key(key, value=value))
    if engine is not None and engine.kind == "accelerate" and axis == "grad_accum":
        path = ("deepspeed_config", key)
        if engine.has(*path) and engine.get(*path) != AUTO:
            out.edit(engine, set_key(*path, value=value))
            held = trainer is None or not trainer.has(flag)
    if trainer is not None:
        name = "micro_batch_size" if trainer.kind == "axolotl" and axis == "micro_batch" else flag
        out.edit(trainer, set_key(name, value=value))
    elif not held:
        out.flags.append(f"--{flag} {value}")


def _precision(out: Patch, value: str, engine: Document | None, trainer: Document | None) -> None:
    other = "fp16" if value == "bf16" else "bf16"
    if engine is not None and engine.kind == "deepspeed":
        given = engine.get(value, "enabled")
        if given != AUTO:
            out.edit(engine, set_key(value, "enabled", value=True))
        if engine.get(other, "enabled") is True:
            out.edit(engine, set_key(other, "enabled", value=False))
    elif engine is not None:
        out.edit(engine, set_key("mixed_precision", value=value))
    if trainer is not None:
        out.edit(trainer, set_key(value, value=True))
        if trainer.has(other):
            edit = remove_key(other) if trainer.format == "arguments" else None
            out.edit(trainer, edit or set_key(other, value=False))
    elif engine is None or engine.get(value, "enabled") == AUTO:
        out.flags.append(f"--{value}")


def _recompute(out: Patch, value: str, engine: Document | None, trainer: Document | None) -> None:
    on = value != "none"
    holder = engine if engine is not None and engine.section("fsdp_config") else None
    if trainer is not None and trainer.has("gradient_checkpointing"):
        holder = None  # the trainer's switch decides where it is given
    elif holder is None and trainer is not None and trainer.section("fsdp_config"):
        holder = trainer
    if holder is not None:
        section = holder.section("fsdp_config")
        prefix = "fsdp_" if any(str(key).startswith("fsdp_") for key in section) else ""
        name = f"{prefix}activation_checkpointing"
        out.edit(holder, set_key("fsdp_config", name, value=on))
    elif trainer is not None and trainer.kind == "llamafactory":
        out.edit(trainer, set_key("disable_gradient_checkpointing", value=not on))
    elif trainer is not None:
        argument = trainer.format == "arguments"
        key = "gradient_checkpointing"
        edit = remove_key(key) if argument and not on else set_key(key, value=on)
        out.edit(trainer, edit)
    elif on:
        out.flags.append("--gradient_checkpointing (or model.gradient_checkpointing_enable())")
    else:
        out.flags.append("remove --gradient_checkpointing")


def _attention(out: Patch, value: str, trainer: Document | None) -> None:
    if trainer is not None and trainer.kind == "llamafactory":
        out.edit(trainer, set_key("flash_attn", value="fa2"))
    elif trainer is not None and trainer.kind == "axolotl":
        out.edit(trainer, set_key("attn_implementation", value="flash_attention_2"))
    else:
        name = "flash_attention_2" if value == "flash" else value
        out.flags.append(f"load the model with attn_implementation='{name}'")


def _megatron(
    out: Patch, changes: Changes, values: Mapping[str, Value], doc: Document, ctx: Context
) -> None:
    deepspeed = is_megatron_deepspeed(doc)
    sizes = {
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "ds_sequence_parallel_size" if deepspeed else "context_parallel_size",
        "micro_batch": "micro_batch_size",
    }
    for axis, flag in sizes.items():
        if axis in changes:
            out.edit(doc, set_key(flag, value=changes[axis]))
    if "sequence_parallel" in changes:
        name = "sequence_parallel"
        out.edit(doc, set_key(name, value=True) if changes[name] else remove_key(name))
    if "precision" in changes:
        other = "fp16" if changes["precision"] == "bf16" else "bf16"
        out.edit(doc, set_key(str(changes["precision"]), value=True))
        if doc.has(other):
            out.edit(doc, remove_key(other))
    if "recompute" in changes:
        _megatron_recompute(out, str(changes["recompute"]), doc, deepspeed)
    if "zero_stage" in changes:
        stage = changes["zero_stage"]
        if deepspeed:
            out.edit(doc, set_key("zero_stage", value=stage))
            partner = ctx.partner("deepspeed")
            if partner is not None:
                out.edit(partner, set_key(_ZERO, "stage", value=stage))
        elif stage:
            out.edit(doc, set_key("use_distributed_optimizer", value=True))
    if "offload_optimizer" in changes:
        name = "cpu_optimizer" if deepspeed else "optimizer_cpu_offload"
        out.edit(doc, set_key(name, value=True))
        if not deepspeed:
            out.edit(doc, set_key("use_precision_aware_optimizer", value=True))
    if "attention" in changes and deepspeed:
        out.edit(doc, set_key("use_flash_attn_v2", value=True))


def _megatron_recompute(out: Patch, value: str, doc: Document, deepspeed: bool) -> None:
    flags = ("recompute_granularity", "recompute_method", "recompute_num_layers")
    if deepspeed:
        names = ("checkpoint_activations", "deepspeed_activation_checkpointing")
        for name in names:
            if value == "none" and doc.has(name):
                out.edit(doc, remove_key(name))
            elif value != "none":
                out.edit(doc, set_key(name, value=True))
        return
    for name in (*flags, "recompute_activations", "recompute_modules"):
        if doc.has(name) and (name != "recompute_granularity" or value == "none"):
            out.edit(doc, remove_key(name))
    if value != "none":
        out.edit(doc, set_key("recompute_granularity", value=value))
    if value == "full":
        out.edit(doc, set_key("recompute_method", value="uniform"))
        out.edit(doc, set_key("recompute_num_layers", value=1))
