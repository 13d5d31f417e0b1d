"""An Accelerate YAML: its keys, DeepSpeed and FSDP sections, and the DeepSpeed file it names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from planner.lint.document import Path, Value, as_bool, as_int, as_number
from planner.lint.finding import Edit
from planner.lint.names import nearest
from planner.lint.rule import Facts, Hit, Rule, move_key, remove_key, set_key

# Fields of ClusterConfig (accelerate 1.15.0, commands/config/config_args.py) and the old names
# that process_config converts.
TOP_KEYS = frozenset(
    """compute_environment distributed_type mixed_precision use_cpu debug num_processes
    machine_rank num_machines gpu_ids main_process_ip main_process_port rdzv_backend same_network
    main_training_function enable_cpu_affinity fp8_config deepspeed_config fsdp_config
    parallelism_config megatron_lm_config mpirun_config downcast_bf16 tpu_name tpu_zone
    tpu_use_cluster tpu_use_sudo command_file commands tpu_vm tpu_env dynamo_config fp16
    dynamo_backend ipex_config""".split()  # noqa: SIM905
)
# Options of `accelerate launch` (accelerate 1.15.0, commands/launch.py) that a section may set.
DEEPSPEED_KEYS = frozenset(
    """deepspeed_config_file zero_stage offload_optimizer_device offload_param_device
    offload_optimizer_nvme_path offload_param_nvme_path gradient_accumulation_steps
    gradient_clipping zero3_init_flag zero3_save_16bit_model deepspeed_hostfile
    deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher
    deepspeed_moe_layer_cls_names""".split()  # noqa: SIM905
)
FSDP_KEYS = frozenset(
    """fsdp_version fsdp_offload_params fsdp_min_num_params fsdp_sharding_strategy
    fsdp_reshard_after_forward fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap
    fsdp_backward_prefetch fsdp_backward_prefetch_policy fsdp_state_dict_type
    fsdp_forward_prefetch fsdp_use_orig_params fsdp_cpu_ram_efficient_loading
    fsdp_sync_module_states fsdp_activation_checkpointing fsdp_activation_checkpointing_offload
    fsdp_ignored_modules""".split()  # noqa: SIM905
)
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
CHOICES = {
    "mixed_precision": ("no", "fp16", "bf16", "fp8"),
    "compute_environment": ("LOCAL_MACHINE", "AMAZON_SAGEMAKER"),
}
FSDP_CHOICES = {
    "fsdp_auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"),
    "fsdp_backward_prefetch": ("BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"),
    "fsdp_state_dict_type": ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT"),
    "fsdp_sharding_strategy": (
        *("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2"),
        *("1", "2", "3", "4", "5"),
    ),
}
_DS, _FSDP = "deepspeed_config", "fsdp_config"


def _fsdp(facts: Facts) -> dict[str, Value]:
    """The FSDP section with the prefix that Accelerate adds itself."""
    section = facts.doc.section(_FSDP)
    return {k if k.startswith("fsdp") else f"fsdp_{k}": v for k, v in section.items()}


def _fsdp_path(facts: Facts, name: str) -> Path:
    bare = name.removeprefix("fsdp_")
    return (_FSDP, bare if facts.doc.has(_FSDP, bare) else name)


def _version(facts: Facts) -> int:
    return as_int(_fsdp(facts).get("fsdp_version")) or 1


def unknown_top(facts: Facts) -> Iterator[Hit]:
    """Unknown keys at the top: refused."""
    if facts.doc.get("compute_environment") == "AMAZON_SAGEMAKER":
        return
    for name in facts.doc.data:
        if name not in TOP_KEYS:
            close = nearest(str(name), TOP_KEYS)
            inside = next(
                (s for s, keys in ((_DS, DEEPSPEED_KEYS), (_FSDP, FSDP_KEYS)) if name in keys), None
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
    for section, known in ((_DS, DEEPSPEED_KEYS), (_FSDP, FSDP_KEYS)):
        for name in facts.doc.section(section):
            full = name if section == _DS or name.startswith("fsdp") else f"fsdp_{name}"
            if full in known:
                continue
            close = nearest(full, known)
            ds_file = section == _DS and (name in names_of_deepspeed())
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
        value = "DEEPSPEED" if facts.doc.has(_DS) else "FSDP" if facts.doc.has(_FSDP) else None
        patch = (set_key("distributed_type", value=value),) if value else ()
        yield Hit((), {}, patch)


def idle_section(facts: Facts) -> Iterator[Hit]:
    """A section for an engine that is not chosen."""
    kind = facts.doc.get("distributed_type")
    for section, wanted in ((_DS, "DEEPSPEED"), (_FSDP, "FSDP")):
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
    fsdp = _fsdp(facts)
    for name, choices in FSDP_CHOICES.items():
        value = fsdp.get(name)
        if value is not None and str(value).upper() not in choices:
            if name == "fsdp_sharding_strategy" and _version(facts) == 2:
                continue
            yield _choice(_fsdp_path(facts, name), name, value, choices)
    deepspeed = facts.doc.section(_DS)
    for name in ("offload_optimizer_device", "offload_param_device"):
        value = deepspeed.get(name)
        if value is not None and value not in ("none", "cpu", "nvme"):
            yield _choice((_DS, name), name, value, ("none", "cpu", "nvme"))
    stage = deepspeed.get("zero_stage")
    if stage is not None and as_int(stage) not in (0, 1, 2, 3):
        yield _choice((_DS, "zero_stage"), "zero_stage", stage, ("0", "1", "2", "3"))


def _choice(path: Path, name: str, value: Value, choices: tuple[str, ...]) -> Hit:
    close = nearest(str(value).upper(), choices, 0.5) or nearest(str(value), choices, 0.5)
    patch = (set_key(*path, value=close),) if close else ()
    return Hit(path, {"name": name, "value": value, "choices": ", ".join(choices)}, patch)


def file_conflict(facts: Facts) -> Iterator[Hit]:
    """Settings that stand in the YAML beside a DeepSpeed file."""
    section = facts.doc.section(_DS)
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
            yield Hit((_DS, key), values, (remove_key(_DS, key),))


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
    section = facts.doc.section(_DS)
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
            yield Hit((_DS, key), {"key": key, "stage": stage}, (set_key(_DS, key, value=False),))
    key = "offload_param_device"
    if section.get(key) in ("cpu", "nvme"):
        yield Hit((_DS, key), {"key": key, "stage": stage}, (set_key(_DS, key, value="none"),))
    if section.get("offload_optimizer_device") == "nvme":
        key = "offload_optimizer_device"
        values = {"key": f"{key} nvme", "stage": stage}
        yield Hit((_DS, key), values, (set_key(_DS, key, value="cpu"),))
    if section.get("offload_optimizer_device") == "cpu" and stage == 0:
        key = "offload_optimizer_device"
        yield Hit((_DS, key), {"key": key, "stage": 0}, (set_key(_DS, "zero_stage", value=2),))


def nvme_path(facts: Facts) -> Iterator[Hit]:
    """NVMe without a path."""
    section = facts.doc.section(_DS)
    for which in ("optimizer", "param"):
        path = section.get(f"offload_{which}_nvme_path")
        if section.get(f"offload_{which}_device") == "nvme" and path in (None, "none"):
            yield Hit((_DS, f"offload_{which}_device"), {"key": f"offload_{which}_nvme_path"})


def accumulation_fixed(facts: Facts) -> Iterator[Hit]:
    """Accumulation in the YAML."""
    section = facts.doc.section(_DS)
    steps = as_int(section.get("gradient_accumulation_steps"))
    if steps is not None and not section.get("deepspeed_config_file"):
        path = (_DS, "gradient_accumulation_steps")
        yield Hit(path, {"steps": steps}, (remove_key(*path),))


def offload_cost(facts: Facts) -> Iterator[Hit]:
    """What offload costs."""
    section = facts.doc.section(_DS)
    if section.get("offload_optimizer_device") == "cpu" and section.get("zero_stage", 2) != 0:
        yield Hit((_DS, "offload_optimizer_device"), {"bytes": "12 to 18"})
    if as_bool(_fsdp(facts).get("fsdp_offload_params")):
        yield Hit(_fsdp_path(facts, "fsdp_offload_params"), {"bytes": "12 to 18"})


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


# --- FSDP ---


def fsdp2_refused(facts: Facts) -> Iterator[Hit]:
    """Settings FSDP2 stops at."""
    fsdp = _fsdp(facts)
    if not fsdp or _version(facts) != 2:
        return
    if as_bool(fsdp.get("fsdp_forward_prefetch")):
        path = _fsdp_path(facts, "fsdp_forward_prefetch")
        yield Hit(path, {"name": "forward prefetch"}, (remove_key(*path),))
    if str(fsdp.get("fsdp_state_dict_type")).upper() == "LOCAL_STATE_DICT":
        path = _fsdp_path(facts, "fsdp_state_dict_type")
        value = "SHARDED_STATE_DICT"
        yield Hit(path, {"name": "LOCAL_STATE_DICT"}, (set_key(*path, value=value),))
    reshard = fsdp.get("fsdp_reshard_after_forward")
    if reshard is not None and as_bool(reshard) is None:
        path = _fsdp_path(facts, "fsdp_reshard_after_forward")
        keep = str(reshard).upper() in ("FULL_SHARD", "HYBRID_SHARD")
        yield Hit(path, {"name": f"reshard {reshard}"}, (set_key(*path, value=keep),))


def fsdp2_dropped(facts: Facts) -> Iterator[Hit]:
    """Settings FSDP2 does not use."""
    fsdp = _fsdp(facts)
    if not fsdp or _version(facts) != 2:
        return
    for name in (
        "fsdp_backward_prefetch",
        "fsdp_use_orig_params",
        "fsdp_sync_module_states",
        "fsdp_sharding_strategy",
    ):
        if fsdp.get(name) is not None:
            path = _fsdp_path(facts, name)
            patch = [remove_key(*path)]
            if name == "fsdp_sharding_strategy" and "fsdp_reshard_after_forward" not in fsdp:
                keep = str(fsdp[name]).upper() in ("FULL_SHARD", "HYBRID_SHARD", "1", "4")
                patch.append(set_key(_FSDP, "fsdp_reshard_after_forward", value=keep))
            yield Hit(path, {"name": name}, tuple(patch))


def ram_efficient(facts: Facts) -> Iterator[Hit]:
    """RAM-efficient loading needs the states sent around."""
    fsdp = _fsdp(facts)
    loads = as_bool(fsdp.get("fsdp_cpu_ram_efficient_loading", bool(fsdp)))
    unsynced = as_bool(fsdp.get("fsdp_sync_module_states", True)) is False
    if fsdp and _version(facts) == 1 and loads and unsynced:
        path = _fsdp_path(facts, "fsdp_sync_module_states")
        yield Hit(path, {}, (set_key(*path, value=True),))


def wrapping(facts: Facts) -> Iterator[Hit]:
    """Without a wrap policy the whole model is one unit."""
    fsdp = _fsdp(facts)
    if not fsdp or facts.doc.get("distributed_type") not in ("FSDP", None):
        return
    policy = fsdp.get("fsdp_auto_wrap_policy")
    if policy is None or str(policy).upper() == "NO_WRAP":
        path = _fsdp_path(facts, "fsdp_auto_wrap_policy")
        where = path if facts.doc.has(*path) else (_FSDP,)
        yield Hit(where, {}, (set_key(*path, value="TRANSFORMER_BASED_WRAP"),))


def full_state(facts: Facts) -> Iterator[Hit]:
    """Saving a full state dict."""
    if str(_fsdp(facts).get("fsdp_state_dict_type")).upper() == "FULL_STATE_DICT":
        path = _fsdp_path(facts, "fsdp_state_dict_type")
        yield Hit(path, {}, (set_key(*path, value="SHARDED_STATE_DICT"),))


def forward_prefetch(facts: Facts) -> Iterator[Hit]:
    """One more layer held."""
    fsdp = _fsdp(facts)
    if as_bool(fsdp.get("fsdp_forward_prefetch")) and _version(facts) == 1:
        path = _fsdp_path(facts, "fsdp_forward_prefetch")
        yield Hit(path, {}, (set_key(*path, value=False),))


def checkpoint_offload(facts: Facts) -> Iterator[Hit]:
    """Offloaded checkpoints without checkpoints."""
    fsdp = _fsdp(facts)
    if as_bool(fsdp.get("fsdp_activation_checkpointing_offload")):
        path = _fsdp_path(facts, "fsdp_activation_checkpointing_offload")
        if not as_bool(fsdp.get("fsdp_activation_checkpointing")):
            patch: tuple[Edit, ...] = (set_key(_FSDP, "fsdp_activation_checkpointing", value=True),)
            yield Hit(path, {"need": "fsdp_activation_checkpointing"}, patch)
        elif _version(facts) != 2:
            yield Hit(path, {"need": "fsdp_version 2"}, (remove_key(*path),))


def parallelism(facts: Facts) -> Iterator[Hit]:
    """Degrees against the number of processes."""
    section = facts.doc.section("parallelism_config")
    if not section:
        return
    prefix = "parallelism_config_"
    sizes = {
        key.removeprefix(prefix): as_int(value) or 1
        for key, value in section.items()
        if key.endswith("_size")
    }
    where: Path = ("parallelism_config",)
    if facts.doc.get("distributed_type") != "FSDP" or _version(facts) != 2:
        yield Hit(where, {"what": "needs distributed_type FSDP with fsdp_version 2"})
    total = as_int(facts.doc.get("num_processes"))
    product = prod(
        sizes.get(f"{axis}_size", 1) for axis in ("dp_replicate", "dp_shard", "tp", "cp")
    )
    product *= sizes.get("sp_size", 1)
    if total and total > 0 and product > 1 and total != product and sizes.get("sp_size", 1) == 1:
        yield Hit(where, {"what": f"degrees multiply to {product}, num_processes is {total}"})
    if sizes.get("cp_size", 1) > 1 and sizes.get("sp_size", 1) > 1:
        yield Hit(where, {"what": "cp_size and sp_size exclude each other"})
    split = max(sizes.get("tp_size", 1), sizes.get("cp_size", 1)) > 1
    if split and sizes.get("dp_replicate_size", 1) > 1 and sizes.get("dp_shard_size", 1) == 1:
        yield Hit(where, {"what": "tp or cp beside dp_replicate needs dp_shard_size above 1"})


def bad_number(facts: Facts) -> Iterator[Hit]:
    """Counts that are not counts."""
    paths: list[Path] = [("num_processes",), ("num_machines",), ("machine_rank",)]
    paths.append((_DS, "gradient_accumulation_steps"))
    for path in paths:
        value = facts.doc.get(*path)
        low = 0 if path == ("machine_rank",) else 1
        if value is None or value == "auto" or (path == ("num_processes",) and value == -1):
            continue
        number = as_int(value)
        if number is None or number < low or isinstance(value, bool):
            yield Hit(path, {"name": path[-1], "value": value, "low": low})
    clip = facts.doc.get(_DS, "gradient_clipping")
    if clip is not None and clip != "auto" and as_number(clip) is None:
        path = (_DS, "gradient_clipping")
        yield Hit(path, {"name": path[-1], "value": clip, "low": 0})
    for name in (_DS, _FSDP, "parallelism_config"):
        value = facts.doc.get(name)
        if value is not None and not isinstance(value, Mapping):
            yield Hit((name,), {"name": name, "value": value, "low": "a mapping of settings,"})


_ACC = "accelerate 1.15.0, src/accelerate/"
_CLASSES = f"{_ACC}utils/dataclasses.py"
_LAUNCH = f"{_ACC}commands/launch.py"
_CONFIG = f"{_ACC}commands/config/config_args.py"
_UTILS = f"{_ACC}utils/launch.py"

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
        f"{_LAUNCH} (_validate_launch_command)",
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
        f"{_LAUNCH} (_validate_launch_command)",
        idle_section,
    ),
    Rule(
        "acc-bad-choice",
        "error",
        "{name} is {value!r}; accepted: {choices}",
        "write one of {choices}",
        f"{_CLASSES}; {_ACC}utils/constants.py",
        bad_choice,
    ),
    Rule(
        "acc-bad-number",
        "error",
        "{name} is {value!r}; expected {low} or more",
        "write a number",
        f"{_CONFIG}; {_LAUNCH}",
        bad_number,
    ),
    Rule(
        "acc-file-conflict",
        "error",
        "{key} is {here} here while {file} decides ({there}): Accelerate refuses settings in both",
        "take it out of the YAML",
        f"{_CLASSES} (_deepspeed_config_checks)",
        file_conflict,
    ),
    Rule(
        "acc-precision-conflict",
        "error",
        "mixed_precision is {mixed}, but the DeepSpeed file turns {other} on; Accelerate stops",
        "let both say the same",
        f"{_CLASSES} (set_mixed_precision)",
        precision_conflict,
    ),
    Rule(
        "acc-stage-3-only",
        "warning",
        "{key} is for stage 3; at stage {stage} it is put aside",
        "use stage 3, or take it out",
        f"{_CLASSES} (DeepSpeedPlugin)",
        stage_3_only,
    ),
    Rule(
        "acc-nvme-path",
        "error",
        "offload to NVMe without {key}",
        "give {key}, a folder on the local drive",
        f"{_CLASSES} (DeepSpeedPlugin)",
        nvme_path,
    ),
    Rule(
        "acc-accumulation-fixed",
        "info",
        "accumulation is fixed to {steps} here: a trainer's --gradient_accumulation_steps must say"
        " the same",
        "leave it to the trainer",
        f"{_CLASSES} (DeepSpeedPlugin); transformers 5.24.0, integrations/deepspeed.py",
        accumulation_fixed,
    ),
    Rule(
        "acc-offload-cost",
        "info",
        "the offloaded step needs about {bytes} bytes of host RAM per parameter, shared by the"
        " node's ranks, and is slower than on the GPU",
        "offload only if the GPU cannot hold the states",
        f"{_CLASSES}; DeepSpeed 0.19.8, runtime/zero/stage3.py",
        offload_cost,
    ),
    Rule(
        "acc-use-cpu",
        "warning",
        "use_cpu makes Accelerate skip {kind} without a word",
        "set use_cpu to false",
        f"{_ACC}state.py",
        on_cpu,
    ),
    Rule(
        "acc-processes",
        "error",
        "{total} processes cannot be shared evenly by {machines} machines",
        "make num_processes a multiple of num_machines",
        f"{_UTILS} (num_processes // num_machines)",
        processes,
    ),
    Rule(
        "acc-precision-unsupported",
        "error",
        "mixed_precision is {mixed}, but {gpu} has no {mixed}",
        "use {other}",
        f"{_LAUNCH}; the GPU's datasheet",
        precision_unsupported,
    ),
    Rule(
        "acc-no-half-precision",
        "info",
        "mixed_precision is no: unless the script says otherwise, everything is fp32",
        "use bf16 where the GPU has it",
        _CLASSES,
        no_precision,
    ),
    Rule(
        "acc-fsdp2-refused",
        "error",
        "FSDP2 refuses {name}",
        "take it out, or use fsdp_version 1",
        f"{_CLASSES} (FullyShardedDataParallelPlugin.__post_init__)",
        fsdp2_refused,
    ),
    Rule(
        "acc-fsdp2-dropped",
        "warning",
        "{name} is not used with fsdp_version 2",
        "take it out",
        f"{_CLASSES} (FullyShardedDataParallelPlugin.__post_init__)",
        fsdp2_dropped,
    ),
    Rule(
        "acc-ram-efficient",
        "error",
        "RAM-efficient loading needs fsdp_sync_module_states; without it the launch stops",
        "set fsdp_sync_module_states to true",
        _UTILS,
        ram_efficient,
    ),
    Rule(
        "acc-no-wrap",
        "warning",
        "without an auto-wrap policy the whole model is one FSDP unit, gathered at once",
        "use TRANSFORMER_BASED_WRAP",
        f"{_CLASSES}; PyTorch, torch.distributed.fsdp",
        wrapping,
    ),
    Rule(
        "acc-full-state-dict",
        "info",
        "a full state dict is gathered at every save: a peak of its own on rank 0's host",
        "use SHARDED_STATE_DICT while training",
        f"{_CLASSES}; PyTorch, torch.distributed.fsdp (StateDictType)",
        full_state,
    ),
    Rule(
        "acc-forward-prefetch",
        "info",
        "forward prefetch holds one more gathered layer",
        "turn it off if memory is short",
        "PyTorch, torch.distributed.fsdp (forward_prefetch)",
        forward_prefetch,
    ),
    Rule(
        "acc-checkpoint-offload",
        "error",
        "offloaded activation checkpoints need {need}",
        "add it, or take the switch out",
        f"{_CLASSES} (FullyShardedDataParallelPlugin)",
        checkpoint_offload,
    ),
    Rule(
        "acc-parallelism",
        "error",
        "parallelism_config: {what}",
        "correct the degrees",
        f"{_ACC}parallelism_config.py; {_LAUNCH}",
        parallelism,
    ),
)
