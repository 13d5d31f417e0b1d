"""An Accelerate YAML: its keys, words and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.accelerate_keys import CHOICES, DEEPSPEED_KEYS, FSDP_CHOICES, FSDP_KEYS, TOP_KEYS
from planner.lint.accelerate_sections import (
    ACC,
    CLASSES,
    DS,
    FSDP,
    LAUNCH,
    LAUNCH_UTILS,
    fsdp_path,
    fsdp_section,
    fsdp_version,
)
from planner.lint.document import Path, Value, as_bool, as_int, as_number
from planner.lint.names import nearest
from planner.lint.rule import Facts, Hit, Rule, move_key, remove_key, set_key


def unknown_top(facts: Facts) -> Iterator[Hit]:
    """Unknown keys at the top: refused."""
    if facts.doc.get("compute_environment") == "AMAZON_SAGEMAKER":
        return
    for name in facts.doc.data:
        if name not in TOP_KEYS:
            close = nearest(str(name), TOP_KEYS)
            inside = next(
                (s for s, keys in ((DS, DEEPSPEED_KEYS), (FSDP, FSDP_KEYS)) if name in keys), None
            )
            if inside is not None:
                yield Hit(
                    (str(name),),
                    {"name": name, "meant": f"move it into {inside}"},
                    (move_key((str(name),), (inside, str(name))),),
                )
                continue
            meant = f"write {close}" if close else "take it out"
            patch = move_key((str(name),), (close,)) if close else remove_key(str(name))
            yield Hit((str(name),), {"name": name, "meant": meant}, (patch,))


def unknown_inner(facts: Facts) -> Iterator[Hit]:
    """Unknown keys in the sections: ignored."""
    for section, known in ((DS, DEEPSPEED_KEYS), (FSDP, FSDP_KEYS)):
        for name in facts.doc.section(section):
            full = name if section == DS or name.startswith("fsdp") else f"fsdp_{name}"
            if full in known:
                continue
            close = nearest(full, known)
            ds_file = section == DS and (name in names_of_deepspeed())
            meant = "put it into a DeepSpeed file" if ds_file else "take it out"
            meant = f"write {close}" if close else meant
            path = (section, str(name))
            patch = move_key(path, (section, close)) if close else remove_key(*path)
            yield Hit(path, {"name": name, "section": section, "meant": meant}, (patch,))


def names_of_deepspeed() -> frozenset[str]:
    """Names that would mean something in a DeepSpeed file."""
    from planner.lint.deepspeed_keys import SECTIONS

    return frozenset(name for section in SECTIONS.values() for name in section.keys)


def no_type(facts: Facts) -> Iterator[Hit]:
    """distributed_type is required."""
    if not facts.doc.has("distributed_type"):
        value = "DEEPSPEED" if facts.doc.has(DS) else "FSDP" if facts.doc.has(FSDP) else None
        patch = (set_key("distributed_type", value=value),) if value else ()
        yield Hit((), {}, patch)


def idle_section(facts: Facts) -> Iterator[Hit]:
    """A section for an engine that is not chosen."""
    kind = facts.doc.get("distributed_type")
    for section, wanted in ((DS, "DEEPSPEED"), (FSDP, "FSDP")):
        if isinstance(kind, str) and kind != wanted and facts.doc.section(section):
            values = {"section": section, "kind": kind, "wanted": wanted}
            yield Hit((section,), values, (set_key("distributed_type", value=wanted),))


def bad_choice(facts: Facts) -> Iterator[Hit]:
    """Words outside a list."""
    for name, choices in CHOICES.items():
        value = facts.doc.get(name)
        if value is None or value is False:
            continue
        if not isinstance(value, str) or value.lower() not in {c.lower() for c in choices}:
            yield _choice((name,), name, value, choices)
    fsdp = fsdp_section(facts)
    for name, choices in FSDP_CHOICES.items():
        value = fsdp.get(name)
        if value is not None and str(value).upper() not in choices:
            if name == "fsdp_sharding_strategy" and fsdp_version(facts) == 2:
                continue
            yield _choice(fsdp_path(facts, name), name, value, choices)
    deepspeed = facts.doc.section(DS)
    for name in ("offload_optimizer_device", "offload_param_device"):
        value = deepspeed.get(name)
        if value is not None and value not in ("none", "cpu", "nvme"):
            yield _choice((DS, name), name, value, ("none", "cpu", "nvme"))
    stage = deepspeed.get("zero_stage")
    if stage is not None and as_int(stage) not in (0, 1, 2, 3):
        yield _choice((DS, "zero_stage"), "zero_stage", stage, ("0", "1", "2", "3"))


def _choice(path: Path, name: str, value: Value, choices: tuple[str, ...]) -> Hit:
    close = nearest(str(value).upper(), choices, 0.5) or nearest(str(value), choices, 0.5)
    patch = (set_key(*path, value=close),) if close else ()
    return Hit(path, {"name": name, "value": value, "choices": ", ".join(choices)}, patch)


def on_cpu(facts: Facts) -> Iterator[Hit]:
    """use_cpu puts the engine aside."""
    if as_bool(facts.doc.get("use_cpu")) and facts.doc.get("distributed_type") in (
        "DEEPSPEED",
        "FSDP",
    ):
        values = {"kind": facts.doc.get("distributed_type")}
        yield Hit(("use_cpu",), values, (set_key("use_cpu", value=False),))


def processes(facts: Facts) -> Iterator[Hit]:
    """Processes that machines cannot share evenly."""
    total, machines = as_int(facts.doc.get("num_processes")), as_int(facts.doc.get("num_machines"))
    if total and machines and total > 0 and machines > 1 and total % machines:
        yield Hit(("num_processes",), {"total": total, "machines": machines})


def precision_unsupported(facts: Facts) -> Iterator[Hit]:
    """A precision the GPU does not have."""
    device, mixed = facts.ctx.device, facts.doc.get("mixed_precision")
    if device is not None and mixed in ("bf16", "fp16", "fp8") and mixed not in device.supports:
        other = "fp16" if mixed == "bf16" else "bf16"
        other = other if other in device.supports else "no"
        values = {"mixed": mixed, "gpu": device.name, "other": other}
        yield Hit(("mixed_precision",), values, (set_key("mixed_precision", value=other),))


def no_precision(facts: Facts) -> Iterator[Hit]:
    """Nothing in half precision."""
    mixed = facts.doc.get("mixed_precision")
    chosen = facts.ctx.trainer is not None and any(
        as_bool(facts.ctx.trainer.get(flag)) for flag in ("bf16", "fp16")
    )
    in_file = facts.ctx.partner("deepspeed") is not None
    if mixed in ("no", False) and not chosen and not in_file:
        yield Hit(("mixed_precision",), {}, (set_key("mixed_precision", value="bf16"),))


def bad_number(facts: Facts) -> Iterator[Hit]:
    """Counts that are not counts."""
    paths: list[Path] = [("num_processes",), ("num_machines",), ("machine_rank",)]
    paths.append((DS, "gradient_accumulation_steps"))
    for path in paths:
        value = facts.doc.get(*path)
        low = 0 if path == ("machine_rank",) else 1
        if value is None or value == "auto" or (path == ("num_processes",) and value == -1):
            continue
        number = as_int(value)
        if number is None or number < low or isinstance(value, bool):
            yield Hit(path, {"name": path[-1], "value": value, "low": low})
    clip = facts.doc.get(DS, "gradient_clipping")
    if clip is not None and clip != "auto" and as_number(clip) is None:
        path = (DS, "gradient_clipping")
        yield Hit(path, {"name": path[-1], "value": clip, "low": 0})
    for name in (DS, FSDP, "parallelism_config"):
        value = facts.doc.get(name)
        if value is not None and not isinstance(value, Mapping):
            yield Hit((name,), {"name": name, "value": value, "low": "a mapping of settings,"})


_CONFIG = f"{ACC}commands/config/config_args.py"


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "acc-unknown-key",
        "error",
        "{name} is no key of an Accelerate file: it is refused",
        "{meant}",
        f"{_CONFIG} (from_yaml_file)",
        unknown_top,
    ),
    Rule(
        "acc-ignored-key",
        "warning",
        "{name} is no key of {section}: Accelerate ignores it without a word",
        "{meant}",
        f"{LAUNCH} (_validate_launch_command)",
        unknown_inner,
    ),
    Rule(
        "acc-no-type",
        "error",
        "distributed_type is missing; Accelerate stops",
        "give DEEPSPEED, FSDP, MULTI_GPU or NO",
        f"{_CONFIG} (process_config)",
        no_type,
    ),
    Rule(
        "acc-idle-section",
        "warning",
        "{section} is given but distributed_type is {kind}: the section is not used",
        "write distributed_type {wanted}, or take the section out",
        f"{LAUNCH} (_validate_launch_command)",
        idle_section,
    ),
    Rule(
        "acc-bad-choice",
        "error",
        "{name} is {value!r}; accepted: {choices}",
        "write one of {choices}",
        f"{CLASSES}; {ACC}utils/constants.py",
        bad_choice,
    ),
    Rule(
        "acc-bad-number",
        "error",
        "{name} is {value!r}; expected {low} or more",
        "write a number",
        f"{_CONFIG}; {LAUNCH}",
        bad_number,
    ),
    Rule(
        "acc-use-cpu",
        "warning",
        "use_cpu makes Accelerate skip {kind} without a word",
        "set use_cpu to false",
        f"{ACC}state.py",
        on_cpu,
    ),
    Rule(
        "acc-processes",
        "error",
        "{total} processes cannot be shared evenly by {machines} machines",
        "make num_processes a multiple of num_machines",
        f"{LAUNCH_UTILS} (num_processes // num_machines)",
        processes,
    ),
    Rule(
        "acc-precision-unsupported",
        "error",
        "mixed_precision is {mixed}, but {gpu} has no {mixed}",
        "use {other}",
        f"{LAUNCH}; the GPU's datasheet",
        precision_unsupported,
    ),
    Rule(
        "acc-no-half-precision",
        "info",
        "mixed_precision is no: unless the script says otherwise, everything is fp32",
        "use bf16 where the GPU has it",
        CLASSES,
        no_precision,
    ),
)
