"""The DeepSpeed section of an Accelerate YAML, and the DeepSpeed file it names."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.accelerate_sections import CLASSES, DS, fsdp_path, fsdp_section
from planner.lint.document import as_bool, as_int
from planner.lint.rule import Facts, Hit, Rule, remove_key, set_key

# What a DeepSpeed file takes over: refused beside deepspeed_config_file
# (accelerate 1.15.0, utils/dataclasses.py, _deepspeed_config_checks).
FILE_ONLY = {
    "gradient_accumulation_steps": ("gradient_accumulation_steps",),
    "gradient_clipping": ("gradient_clipping",),
    "zero_stage": ("zero_optimization", "stage"),
    "offload_optimizer_device": ("zero_optimization", "offload_optimizer", "device"),
    "offload_param_device": ("zero_optimization", "offload_param", "device"),
    "offload_param_nvme_path": ("zero_optimization", "offload_param", "nvme_path"),
    "offload_optimizer_nvme_path": ("zero_optimization", "offload_optimizer", "nvme_path"),
    "zero3_save_16bit_model": (
        "zero_optimization",
        "stage3_gather_16bit_weights_on_model_save",
    ),
}


def file_conflict(facts: Facts) -> Iterator[Hit]:
    """Settings that stand in the YAML beside a DeepSpeed file."""
    section = facts.doc.section(DS)
    name = section.get("deepspeed_config_file")
    if not name:
        return
    partner = facts.ctx.partner("deepspeed")
    for key, path in FILE_ONLY.items():
        if key in section:
            there = partner.get(*path) if partner is not None else None
            said = "nothing" if there is None else there
            said = "unread" if partner is None else said
            values = {"key": key, "here": section[key], "there": said, "file": name}
            yield Hit((DS, key), values, (remove_key(DS, key),))


def precision_conflict(facts: Facts) -> Iterator[Hit]:
    """mixed_precision against the DeepSpeed file's blocks."""
    partner = facts.ctx.partner("deepspeed")
    mixed = facts.doc.get("mixed_precision")
    other = {"fp16": "bf16", "bf16": "fp16", "fp8": "fp16"}.get(str(mixed))
    if partner is not None and other and as_bool(partner.get(other, "enabled")):
        values = {"mixed": mixed, "other": other}
        yield Hit(("mixed_precision",), values, (set_key("mixed_precision", value=other),))


def stage_3_only(facts: Facts) -> Iterator[Hit]:
    """Stage-3 settings below stage 3."""
    section = facts.doc.section(DS)
    partner = facts.ctx.partner("deepspeed")
    stage = as_int(section.get("zero_stage", 2))
    if section.get("deepspeed_config_file"):
        if partner is None:
            return
        stage = as_int(partner.get("zero_optimization", "stage", default=0))
    if stage is None or stage == 3:
        return
    for key in ("zero3_init_flag", "zero3_save_16bit_model"):
        if as_bool(section.get(key)):
            yield Hit((DS, key), {"key": key, "stage": stage}, (set_key(DS, key, value=False),))
    key = "offload_param_device"
    if section.get(key) in ("cpu", "nvme"):
        yield Hit((DS, key), {"key": key, "stage": stage}, (set_key(DS, key, value="none"),))
    if section.get("offload_optimizer_device") == "nvme":
        key = "offload_optimizer_device"
        values = {"key": f"{key} nvme", "stage": stage}
        yield Hit((DS, key), values, (set_key(DS, key, value="cpu"),))
    if section.get("offload_optimizer_device") == "cpu" and stage == 0:
        key = "offload_optimizer_device"
        yield Hit((DS, key), {"key": key, "stage": 0}, (set_key(DS, "zero_stage", value=2),))


def nvme_path(facts: Facts) -> Iterator[Hit]:
    """NVMe without a path."""
    section = facts.doc.section(DS)
    for which in ("optimizer", "param"):
        path = section.get(f"offload_{which}_nvme_path")
        if section.get(f"offload_{which}_device") == "nvme" and path in (None, "none"):
            yield Hit((DS, f"offload_{which}_device"), {"key": f"offload_{which}_nvme_path"})


def accumulation_fixed(facts: Facts) -> Iterator[Hit]:
    """Accumulation in the YAML."""
    section = facts.doc.section(DS)
    steps = as_int(section.get("gradient_accumulation_steps"))
    if steps is not None and not section.get("deepspeed_config_file"):
        path = (DS, "gradient_accumulation_steps")
        yield Hit(path, {"steps": steps}, (remove_key(*path),))


def offload_cost(facts: Facts) -> Iterator[Hit]:
    """What offload costs."""
    section = facts.doc.section(DS)
    if section.get("offload_optimizer_device") == "cpu" and section.get("zero_stage", 2) != 0:
        yield Hit((DS, "offload_optimizer_device"), {"bytes": "12 to 18"})
    if as_bool(fsdp_section(facts).get("fsdp_offload_params")):
        yield Hit(fsdp_path(facts, "fsdp_offload_params"), {"bytes": "12 to 18"})


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "acc-file-conflict",
        "error",
        "{key} is {here} here while {file} decides ({there}): Accelerate refuses settings in both",
        "take it out of the YAML",
        f"{CLASSES} (_deepspeed_config_checks)",
        file_conflict,
    ),
    Rule(
        "acc-precision-conflict",
        "error",
        "mixed_precision is {mixed}, but the DeepSpeed file turns {other} on; Accelerate stops",
        "let both say the same",
        f"{CLASSES} (set_mixed_precision)",
        precision_conflict,
    ),
    Rule(
        "acc-stage-3-only",
        "warning",
        "{key} is for stage 3; at stage {stage} it is put aside",
        "use stage 3, or take it out",
        f"{CLASSES} (DeepSpeedPlugin)",
        stage_3_only,
    ),
    Rule(
        "acc-nvme-path",
        "error",
        "offload to NVMe without {key}",
        "give {key}, a folder on the local drive",
        f"{CLASSES} (DeepSpeedPlugin)",
        nvme_path,
    ),
    Rule(
        "acc-accumulation-fixed",
        "info",
        "accumulation is fixed to {steps} here: a trainer's --gradient_accumulation_steps must say"
        " the same",
        "leave it to the trainer",
        f"{CLASSES} (DeepSpeedPlugin); transformers 5.24.0, integrations/deepspeed.py",
        accumulation_fixed,
    ),
    Rule(
        "acc-offload-cost",
        "info",
        "the offloaded step needs about {bytes} bytes of host RAM per parameter, shared by the"
        " node's ranks, and is slower than on the GPU",
        "offload only if the GPU cannot hold the states",
        f"{CLASSES}; DeepSpeed 0.19.8, runtime/zero/stage3.py",
        offload_cost,
    ),
)
