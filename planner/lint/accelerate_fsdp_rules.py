"""The FSDP and parallelism sections of an Accelerate YAML."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from planner.lint.accelerate_sections import (
    ACC,
    CLASSES,
    FSDP,
    LAUNCH,
    LAUNCH_UTILS,
    fsdp_path,
    fsdp_section,
    fsdp_version,
)
from planner.lint.document import Path, as_bool, as_int
from planner.lint.finding import Edit
from planner.lint.rule import Facts, Hit, Rule, remove_key, set_key


def fsdp2_refused(facts: Facts) -> Iterator[Hit]:
    """Settings FSDP2 stops at."""
    fsdp = fsdp_section(facts)
    if not fsdp or fsdp_version(facts) != 2:
        return
    if as_bool(fsdp.get("fsdp_forward_prefetch")):
        path = fsdp_path(facts, "fsdp_forward_prefetch")
        yield Hit(path, {"name": "forward prefetch"}, (remove_key(*path),))
    if str(fsdp.get("fsdp_state_dict_type")).upper() == "LOCAL_STATE_DICT":
        path = fsdp_path(facts, "fsdp_state_dict_type")
        value = "SHARDED_STATE_DICT"
        yield Hit(path, {"name": "LOCAL_STATE_DICT"}, (set_key(*path, value=value),))
    reshard = fsdp.get("fsdp_reshard_after_forward")
    if reshard is not None and as_bool(reshard) is None:
        path = fsdp_path(facts, "fsdp_reshard_after_forward")
        keep = str(reshard).upper() in ("FULL_SHARD", "HYBRID_SHARD")
        yield Hit(path, {"name": f"reshard {reshard}"}, (set_key(*path, value=keep),))


def fsdp2_dropped(facts: Facts) -> Iterator[Hit]:
    """Settings FSDP2 does not use."""
    fsdp = fsdp_section(facts)
    if not fsdp or fsdp_version(facts) != 2:
        return
    for name in (
        "fsdp_backward_prefetch",
        "fsdp_use_orig_params",
        "fsdp_sync_module_states",
        "fsdp_sharding_strategy",
    ):
        if fsdp.get(name) is not None:
            path = fsdp_path(facts, name)
            patch = [remove_key(*path)]
            if name == "fsdp_sharding_strategy" and "fsdp_reshard_after_forward" not in fsdp:
                keep = str(fsdp[name]).upper() in ("FULL_SHARD", "HYBRID_SHARD", "1", "4")
                patch.append(set_key(FSDP, "fsdp_reshard_after_forward", value=keep))
            yield Hit(path, {"name": name}, tuple(patch))


def ram_efficient(facts: Facts) -> Iterator[Hit]:
    """RAM-efficient loading needs the states sent around."""
    fsdp = fsdp_section(facts)
    loads = as_bool(fsdp.get("fsdp_cpu_ram_efficient_loading", bool(fsdp)))
    unsynced = as_bool(fsdp.get("fsdp_sync_module_states", True)) is False
    if fsdp and fsdp_version(facts) == 1 and loads and unsynced:
        path = fsdp_path(facts, "fsdp_sync_module_states")
        yield Hit(path, {}, (set_key(*path, value=True),))


def wrapping(facts: Facts) -> Iterator[Hit]:
    """Without a wrap policy the whole model is one unit."""
    fsdp = fsdp_section(facts)
    if not fsdp or facts.doc.get("distributed_type") not in ("FSDP", None):
        return
    policy = fsdp.get("fsdp_auto_wrap_policy")
    if policy is None or str(policy).upper() == "NO_WRAP":
        path = fsdp_path(facts, "fsdp_auto_wrap_policy")
        where = path if facts.doc.has(*path) else (FSDP,)
        yield Hit(where, {}, (set_key(*path, value="TRANSFORMER_BASED_WRAP"),))


def layer_class(facts: Facts) -> Iterator[Hit]:
    """A layer class the model does not have."""
    given = fsdp_section(facts).get("fsdp_transformer_layer_cls_to_wrap")
    known = facts.ctx.layer_class
    if isinstance(given, str) and given.strip() and known is not None:
        names = [name.strip() for name in given.split(",")]
        if known not in names:
            path = fsdp_path(facts, "fsdp_transformer_layer_cls_to_wrap")
            values = {"given": given, "known": known}
            yield Hit(path, values, (set_key(*path, value=known),))


def full_state(facts: Facts) -> Iterator[Hit]:
    """Saving a full state dict."""
    if str(fsdp_section(facts).get("fsdp_state_dict_type")).upper() == "FULL_STATE_DICT":
        path = fsdp_path(facts, "fsdp_state_dict_type")
        yield Hit(path, {}, (set_key(*path, value="SHARDED_STATE_DICT"),))


def forward_prefetch(facts: Facts) -> Iterator[Hit]:
    """One more layer held."""
    fsdp = fsdp_section(facts)
    if as_bool(fsdp.get("fsdp_forward_prefetch")) and fsdp_version(facts) == 1:
        path = fsdp_path(facts, "fsdp_forward_prefetch")
        yield Hit(path, {}, (set_key(*path, value=False),))


def checkpoint_offload(facts: Facts) -> Iterator[Hit]:
    """Offloaded checkpoints without checkpoints."""
    fsdp = fsdp_section(facts)
    if as_bool(fsdp.get("fsdp_activation_checkpointing_offload")):
        path = fsdp_path(facts, "fsdp_activation_checkpointing_offload")
        if not as_bool(fsdp.get("fsdp_activation_checkpointing")):
            patch: tuple[Edit, ...] = (set_key(FSDP, "fsdp_activation_checkpointing", value=True),)
            yield Hit(path, {"need": "fsdp_activation_checkpointing"}, patch)
        elif fsdp_version(facts) != 2:
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
    if facts.doc.get("distributed_type") != "FSDP" or fsdp_version(facts) != 2:
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


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "acc-fsdp2-refused",
        "error",
        "FSDP2 refuses {name}",
        "take it out, or use fsdp_version 1",
        f"{CLASSES} (FullyShardedDataParallelPlugin.__post_init__)",
        fsdp2_refused,
    ),
    Rule(
        "acc-fsdp2-dropped",
        "warning",
        "{name} is not used with fsdp_version 2",
        "take it out",
        f"{CLASSES} (FullyShardedDataParallelPlugin.__post_init__)",
        fsdp2_dropped,
    ),
    Rule(
        "acc-ram-efficient",
        "error",
        "RAM-efficient loading needs fsdp_sync_module_states; without it the launch stops",
        "set fsdp_sync_module_states to true",
        LAUNCH_UTILS,
        ram_efficient,
    ),
    Rule(
        "acc-no-wrap",
        "warning",
        "without an auto-wrap policy the whole model is one FSDP unit, gathered at once",
        "use TRANSFORMER_BASED_WRAP",
        f"{CLASSES}; PyTorch, torch.distributed.fsdp",
        wrapping,
    ),
    Rule(
        "acc-layer-class",
        "error",
        "the model has no layer {given}; its decoder layer is {known}",
        "write {known}",
        f"{CLASSES} (set_auto_wrap_policy)",
        layer_class,
    ),
    Rule(
        "acc-full-state-dict",
        "info",
        "a full state dict is gathered at every save: a peak of its own on rank 0's host",
        "use SHARDED_STATE_DICT while training",
        f"{CLASSES}; PyTorch, torch.distributed.fsdp (StateDictType)",
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
        f"{CLASSES} (FullyShardedDataParallelPlugin)",
        checkpoint_offload,
    ),
    Rule(
        "acc-parallelism",
        "error",
        "parallelism_config: {what}",
        "correct the degrees",
        f"{ACC}parallelism_config.py; {LAUNCH}",
        parallelism,
    ),
)
