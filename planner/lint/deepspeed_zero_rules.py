"""ZeRO, offload, pipeline and checkpointing settings of a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.deepspeed_facts import AUTO, DeepSpeedFacts
from planner.lint.deepspeed_keys import PIPELINE_DEGREE_KEYS, SECTIONS
from planner.lint.document import Path, as_bool, as_int, as_number
from planner.lint.rule import Hit, Rule, remove_key, set_key

_ZERO = "zero_optimization"
_STAGE_3_KEYS = (
    "prefetch_bucket_size",
    "param_persistence_threshold",
    "model_persistence_threshold",
    "max_live_parameters",
    "max_reuse_distance",
    "gather_16bit_weights_on_model_save",
    "module_granularity_threshold",
    "use_all_reduce_for_fetch_params",
    "allgather_sequential",
    "sub_group_size",
)
_STAGE_3_SWITCHES: tuple[str, ...] = (
    "zero_quantized_weights",
    "zero_quantized_nontrainable_weights",
)
_STAGE_3_SWITCHES += ("zero_quantized_gradients",)
_STAGE_0_IDLE = ("reduce_bucket_size", "allgather_bucket_size", "round_robin_gradients")

LARGE_BUCKET = 1_000_000_000  # elements; 2 GB in 16 bit, twice the default
LARGE_PREFETCH = 200_000_000  # elements; four times the default
HUGE_GROUP = 100_000_000_000  # elements; more than any model's share on one rank
SMALL_BUCKET = 4_000_000  # elements; below this, latency rules the collectives
MANY_LIVE = 10_000_000_000  # elements


def offload_param_stage(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Parameter offload below stage 3."""
    device = facts.device("offload_param")
    if device != "none" and facts.stage < 3:
        path = (_ZERO, "offload_param")
        yield Hit(path, {"device": device, "stage": facts.stage}, (remove_key(*path),))


def offload_optimizer_stage(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Optimizer offload without ZeRO."""
    if facts.device("offload_optimizer") != "none" and facts.stage == 0:
        path = (_ZERO, "offload_optimizer")
        yield Hit(path, {}, (set_key(_ZERO, "stage", value=2),))


def nvme_stage(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """NVMe below stage 3 is CPU memory."""
    if facts.device("offload_optimizer") == "nvme" and facts.stage in (1, 2):
        path = (_ZERO, "offload_optimizer", "device")
        yield Hit(path, {"stage": facts.stage}, (set_key(*path, value="cpu"),))


def nvme_path(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """NVMe without a path."""
    for which in ("offload_optimizer", "offload_param"):
        if facts.device(which) != "nvme" or facts.stage < 3:
            continue
        if not facts.doc.get(_ZERO, which, "nvme_path"):
            yield Hit((_ZERO, which, "device"), {"which": which})


def nvme_aio(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """NVMe needs libaio and gains from an aio section."""
    for which in ("offload_optimizer", "offload_param"):
        if facts.device(which) == "nvme" and facts.stage == 3 and not facts.doc.has("aio"):
            yield Hit((_ZERO, which, "device"), {})
            return


def offload_idle(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """An offload section that offloads nothing."""
    for which in ("offload_optimizer", "offload_param"):
        section = facts.doc.get(_ZERO, which)
        if not isinstance(section, Mapping) or facts.device(which) != "none" or not section:
            continue
        if "device" not in section:
            patch = (set_key(_ZERO, which, "device", value="cpu"),)
            yield Hit((_ZERO, which), {"which": which}, patch, "warning")
        elif section["device"] == "none" and len(section) > 1:
            yield Hit((_ZERO, which, "device"), {"which": which}, (remove_key(_ZERO, which),))


def partial_offload(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """ratio, super_offload: stage 3 only."""
    where = (_ZERO, "offload_optimizer")
    ratio = as_number(facts.doc.get(*where, "ratio"))
    if facts.stage < 3 and ratio is not None and ratio < 1:
        path: Path = (*where, "ratio")
        yield Hit(path, {"name": "ratio below 1", "what": "stops"}, (remove_key(*path),), "error")
    if facts.stage < 3 and as_bool(facts.doc.get(*where, "super_offload")):
        path = (*where, "super_offload")
        values = {"name": "super_offload", "what": "does not use it"}
        yield Hit(path, values, (remove_key(*path),))


def ratio_granularity(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """A ratio is rounded to whole sub-groups."""
    where = (_ZERO, "offload_optimizer")
    ratio = as_number(facts.doc.get(*where, "ratio"))
    group = facts.zero_count("sub_group_size")
    partial = facts.stage == 3 and ratio is not None and ratio < 1
    if partial and group is not None and group >= 1_000_000_000:
        yield Hit((*where, "ratio"), {"ratio": ratio, "group": group})


def host_memory(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """What offload costs in host RAM and time."""
    if facts.stage and facts.device("offload_optimizer") == "cpu":
        both = facts.stage == 3 and facts.device("offload_param") == "cpu"
        values = {"bytes": "16 to 18" if both else "12 to 16"}
        yield Hit((_ZERO, "offload_optimizer"), values)


def stage_3_keys(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Keys that only stage 3 reads."""
    if facts.stage == 3 or not isinstance(facts.doc.get(_ZERO), Mapping):
        return
    for name in _STAGE_3_KEYS:
        path = facts.zero_path(name)
        if facts.doc.has(*path) and facts.doc.get(*path) not in (AUTO, None):
            values = {"name": path[-1], "stage": facts.stage}
            yield Hit(path, values, (remove_key(*path),))
    for name in _STAGE_3_SWITCHES:
        if as_bool(facts.zero(name)):
            path = (_ZERO, name)
            values = {"name": name, "stage": facts.stage}
            yield Hit(path, values, (remove_key(*path),), "warning")
    size = facts.zero_count("zero_hpz_partition_size")
    if size is not None and size > 1:
        path = (_ZERO, "zero_hpz_partition_size")
        values = {"name": path[-1], "stage": facts.stage}
        yield Hit(path, values, (remove_key(*path),), "warning")


def stage_0_keys(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Bucket keys without ZeRO."""
    if facts.stage == 0:
        for name in _STAGE_0_IDLE:
            if facts.doc.has(_ZERO, name):
                yield Hit((_ZERO, name), {"name": name}, (remove_key(_ZERO, name),))


def large_buckets(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Buckets of gigabytes."""
    if facts.stage == 0:
        return
    doubled = facts.stage < 3 and as_bool(facts.zero("overlap_comm"))
    for name in ("reduce_bucket_size", "allgather_bucket_size"):
        size = facts.zero_count(name)
        if facts.doc.has(_ZERO, name) and size is not None and size >= LARGE_BUCKET:
            times = 2 if doubled and name == "reduce_bucket_size" else 1
            values = {"name": name, "size": size, "gib": f"{size * 2 * times / 2**30:.1f}"}
            yield Hit((_ZERO, name), values, (set_key(_ZERO, name, value=500_000_000),))


def small_buckets(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Buckets and limits so small that latency rules."""
    if facts.ctx.hugging_face and facts.ctx.hidden_size is None:
        return
    names = ["reduce_bucket_size"]
    if facts.stage == 3:
        names += ["prefetch_bucket_size", "sub_group_size"]
    limit = SMALL_BUCKET
    if facts.ctx.hidden_size:
        limit = min(limit, facts.ctx.hidden_size**2 // 2)
    for name in names:
        path, size = facts.zero_path(name), facts.zero_count(name)
        if facts.stage and facts.zero_given(name) and size is not None and 0 < size < limit:
            values = {"name": path[-1], "size": size}
            default = SECTIONS[(_ZERO,)].keys[name].default
            yield Hit(path, values, (set_key(*path, value=default),))


def prefetch_offload(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Large prefetch beside offload."""
    path, size = facts.zero_path("prefetch_bucket_size"), facts.zero_count("prefetch_bucket_size")
    offloaded = facts.device("offload_param") != "none"
    if facts.stage == 3 and offloaded and size is not None and size > LARGE_PREFETCH:
        values = {"size": size, "gib": f"{size * 2 / 2**30:.1f}"}
        patch = set_key(*path, value=AUTO if facts.ctx.hugging_face else 50_000_000)
        yield Hit(path, values, (patch,))


def huge_group(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """One optimizer group for the whole model."""
    size = facts.zero_count("sub_group_size")
    if facts.stage == 3 and size is not None and size >= HUGE_GROUP:
        path = (_ZERO, "sub_group_size")
        yield Hit(path, {"size": size}, (set_key(*path, value=1_000_000_000),))


def many_live(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """So many live parameters that nothing is freed."""
    for name in ("max_live_parameters", "max_reuse_distance"):
        path, size = facts.zero_path(name), facts.zero_count(name)
        if facts.stage == 3 and size is not None and size >= MANY_LIVE:
            patch = (set_key(*path, value=1_000_000_000),)
            offloaded = facts.device("offload_param") != "none"
            severity = "warning" if offloaded else "info"
            yield Hit(path, {"name": path[-1], "size": size}, patch, severity)  # type: ignore[arg-type]


def gather_on_save(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Saving at stage 3."""
    path = facts.zero_path("gather_16bit_weights_on_model_save")
    gathers = as_bool(facts.zero("gather_16bit_weights_on_model_save"))
    if facts.stage == 3 and not gathers and (facts.doc.has(*path) or facts.ctx.hugging_face):
        if facts.doc.get(*path) == AUTO:
            return
        patch = (set_key(*path, value=True),)
        yield Hit(path if facts.doc.has(*path) else (_ZERO,), {}, patch)


def clipping(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Clipping that Hugging Face believes to be on."""
    if facts.ctx.framework == "hf" and not facts.doc.has("gradient_clipping"):
        yield Hit((), {}, (set_key("gradient_clipping", value=AUTO),))


def overlap_buffers(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """overlap_comm at stages 1 and 2 takes a second bucket."""
    if facts.stage in (1, 2) and as_bool(facts.doc.get(_ZERO, "overlap_comm")):
        size = facts.zero_count("reduce_bucket_size")
        if size is not None and facts.pp == 1 and size < LARGE_BUCKET:
            yield Hit((_ZERO, "overlap_comm"), {"gib": f"{size * 2 / 2**30:.1f}"})


def pin_memory(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Offload through pageable memory."""
    for which in ("offload_optimizer", "offload_param"):
        section = facts.doc.section(_ZERO, which)
        pinned = as_bool(section.get("pin_memory", facts.version >= (0, 19, 5)))
        if facts.device(which) != "none" and pinned is False:
            path = (_ZERO, which, "pin_memory")
            yield Hit(path, {"which": which}, (set_key(*path, value=True),))


def frozen_buckets(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Bucket sizes worked out for one hidden size."""
    if facts.stage != 3:
        return
    size = as_int(facts.doc.get(_ZERO, "reduce_bucket_size"))
    hidden = round(size**0.5) if size and size > 0 else 0
    if not size or hidden * hidden != size or hidden % 64:
        return
    prefetch = as_int(facts.doc.get(*facts.zero_path("prefetch_bucket_size")))
    persist = as_int(facts.doc.get(*facts.zero_path("param_persistence_threshold")))
    if prefetch != int(0.9 * size) and persist != 10 * hidden:
        return
    stale = facts.ctx.hidden_size is not None and facts.ctx.hidden_size != hidden
    values = {"hidden": hidden, "yours": facts.ctx.hidden_size or "other models'"}
    value = AUTO if facts.ctx.hugging_face else 500_000_000
    patch = (set_key(_ZERO, "reduce_bucket_size", value=value),)
    yield Hit((_ZERO, "reduce_bucket_size"), values, patch, "warning" if stale else "info")


def pipeline_stage(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Pipeline parallelism with gradients or weights sharded."""
    if facts.pp > 1 and facts.stage >= 2:
        patch = (set_key(_ZERO, "stage", value=1),)
        yield Hit((_ZERO, "stage"), {"stage": facts.stage, "pp": facts.pp}, patch)


def pipeline_reentrant(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Activation checkpointing in DeepSpeed's pipeline."""
    interval = as_int(facts.doc.get("pipeline", "activation_checkpoint_interval"))
    if interval and as_bool(facts.doc.get("pipeline", "use_reentrant")) is not False:
        path = ("pipeline", "activation_checkpoint_interval")
        yield Hit(path, {}, (set_key("pipeline", "use_reentrant", value=False),))


def pipeline_seeds(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """seed_layers on current Pythons."""
    path = ("pipeline", "seed_layers")
    if as_bool(facts.doc.get(*path)):
        yield Hit(path, {}, (set_key(*path, value=False),))


def hpz(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """The secondary shard of ZeRO++."""
    size = facts.zero_count("zero_hpz_partition_size")
    path = (_ZERO, "zero_hpz_partition_size")
    if facts.stage != 3 or size is None or size <= 1:
        return
    world, device = facts.ctx.world, facts.ctx.device
    if world is not None and world % int(size):
        values = {"what": f"{world} processes are not a multiple of it", "size": int(size)}
        yield Hit(path, values, (), "error")
    elif device is not None and size != device.gpus_per_node:
        node = device.gpus_per_node
        values = {"what": f"a node has {node} GPUs, so its groups do not match", "size": int(size)}
        yield Hit(path, values, (set_key(*path, value=node),), "warning")
    else:
        what = "each node keeps one more 16-bit copy of the weights, and no gather leaves the node"
        yield Hit(path, {"what": what, "size": int(size)}, (), "info")


def quantized_gradients(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """zero_quantized_gradients needs reduce_scatter."""
    quantized = facts.stage == 3 and as_bool(facts.zero("zero_quantized_gradients"))
    if quantized and as_bool(facts.zero("reduce_scatter")) is False:
        path = (_ZERO, "reduce_scatter")
        yield Hit(path, {}, (set_key(*path, value=True),))


def old_stage_1(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """legacy_stage1."""
    path = (_ZERO, "legacy_stage1")
    if as_bool(facts.doc.get(*path)):
        yield Hit(path, {}, (remove_key(*path),))


def elastic_checkpoint(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """elastic_checkpoint at stage 3."""
    path = (_ZERO, "elastic_checkpoint")
    if facts.stage == 3 and as_bool(facts.doc.get(*path)):
        yield Hit(path, {}, (remove_key(*path),))


def grad_norm(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """compute_grad_norm off, and what it excludes."""
    path = (_ZERO, "compute_grad_norm")
    if as_bool(facts.doc.get(*path)) is not False:
        return
    reasons = {
        "ZeRO stage 1 or 2": facts.stage not in (1, 2),
        "gradient_clipping 0": bool(as_number(facts.doc.get("gradient_clipping"))),
        "no ZenFlow": facts.doc.has(_ZERO, "zenflow"),
        "no optimizer offload": facts.device("offload_optimizer") != "none",
    }
    for need, broken in reasons.items():
        if broken:
            yield Hit(path, {"need": need}, (remove_key(*path),))
            return


def odd_bucket(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """allgather_bucket_size must be even."""
    path = (_ZERO, "allgather_bucket_size")
    size = as_int(facts.doc.get(*path))
    if size is not None and size % 2 and facts.stage in (1, 2):
        yield Hit(path, {"size": size}, (set_key(*path, value=size + 1),))


def predivide(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Gradient scaling that reduce-scatter does not support."""
    if facts.stage < 2 or as_bool(facts.zero("reduce_scatter")) is False:
        return
    factor = as_number(facts.doc.get("gradient_predivide_factor"))
    if factor is not None and factor != 1:
        path = ("gradient_predivide_factor",)
        yield Hit(path, {"name": path[0]}, (remove_key(*path),))
    if as_bool(facts.doc.get("prescale_gradients")):
        path = ("prescale_gradients",)
        yield Hit(path, {"name": path[0]}, (remove_key(*path),))


def summed_gradients(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """gradient_allreduce_op sum."""
    op = facts.doc.get("gradient_allreduce_op")
    deep = as_bool(facts.doc.get("compile", "deepcompile"))
    blocked = facts.stage == 3 or facts.doc.has(_ZERO, "zenflow") or deep
    if isinstance(op, str) and op.lower() == "sum" and blocked:
        path = ("gradient_allreduce_op",)
        yield Hit(path, {}, (remove_key(*path),))


def zenflow(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """ZenFlow's own rules."""
    where = (_ZERO, "zenflow")
    section = facts.doc.get(*where)
    if not isinstance(section, Mapping):
        return
    if facts.device("offload_optimizer") == "none":
        values = {"what": "does nothing without optimizer offload to the CPU"}
        patch = (set_key(_ZERO, "offload_optimizer", "device", value="cpu"),)
        yield Hit(where, values, patch, "warning")
    strategy, select = section.get("select_strategy", AUTO), section.get("select_interval", AUTO)
    update = section.get("update_interval", AUTO)
    path = (*where, "select_interval")
    if strategy == AUTO and select != AUTO:
        values = {"what": "takes no select_interval with the automatic strategy"}
        yield Hit(path, values, (remove_key(*path),))
    elif strategy in ("step", "epoch"):
        if select == AUTO:
            yield Hit(where, {"what": f"needs a select_interval with strategy {strategy}"})
        elif (
            strategy == "step"
            and isinstance(update, int)
            and isinstance(select, int)
            and select < update
        ):
            values = {"what": "needs select_interval of at least update_interval"}
            yield Hit(path, values, (set_key(*path, value=update),))
    ratio = as_number(section.get("topk_ratio"))
    if ratio is not None and ratio in (0, 1):
        values = {"what": "needs a topk_ratio between 0 and 1"}
        yield Hit((*where, "topk_ratio"), values)


def activation_checkpointing(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """The section configures a function; it does not turn anything on."""
    section = facts.doc.section("activation_checkpointing")
    if not section:
        return
    on = [key for key, value in section.items() if value not in (False, None)]
    inert = facts.ctx.hugging_face and bool(on)
    path = ("activation_checkpointing",)
    patch = (remove_key(*path),) if facts.ctx.hugging_face else ()
    yield Hit(path, {}, patch, "warning" if inert else "info")


def partitioned_activations(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """partition_activations without tensor parallelism."""
    path = ("activation_checkpointing", "partition_activations")
    known = any(facts.doc.has(key) for key in PIPELINE_DEGREE_KEYS) or facts.autotp
    if as_bool(facts.doc.get(*path)) and facts.tp == 1 and known:
        yield Hit(path, {}, (set_key(*path, value=False),))


def degrees(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Parallel degrees that the processes cannot be divided into."""
    world = facts.ctx.world
    split = facts.pp * facts.tp * (as_int(facts.doc.get("sequence_parallel_size")) or 1)
    if world is not None and split > 1 and world % split:
        keys = (*PIPELINE_DEGREE_KEYS, "tensor_parallel", "sequence_parallel_size")
        path = next(((key,) for key in keys if facts.doc.has(key)), ())
        yield Hit(path, {"world": world, "split": split})


_Z = "DeepSpeed 0.19.8, deepspeed/runtime/zero/"
_ENGINE = "DeepSpeed 0.19.8, deepspeed/runtime/engine.py"
_OFFLOAD = f"{_Z}offload_config.py"

RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-offload-param-stage",
        "warning",
        "parameter offload to {device} works at stage 3 only; at stage {stage} the parameters stay"
        " on the GPU",
        "use stage 3, or take the section out",
        f"{_Z}config.py (offload_param: valid only with stage 3); deepspeed/runtime/engine.py",
        offload_param_stage,
    ),
    Rule(
        "ds-offload-stage-0",
        "warning",
        "optimizer offload needs ZeRO; at stage 0 nothing is offloaded",
        "use stage 1, 2 or 3",
        f"{_Z}config.py (offload_optimizer: valid for stage 1, 2, 3)",
        offload_optimizer_stage,
    ),
    Rule(
        "ds-nvme-stage",
        "warning",
        "at stage {stage} the optimizer goes to CPU memory; NVMe is used at stage 3 only",
        "write cpu, or use stage 3",
        f"{_Z}stage_1_and_2.py (cpu_offload covers both devices)",
        nvme_stage,
    ),
    Rule(
        "ds-nvme-path",
        "error",
        "{which} goes to NVMe but no nvme_path is given",
        "give nvme_path, a folder on the local drive",
        f"{_Z}partition_parameters.py; {_Z}stage3.py",
        nvme_path,
    ),
    Rule(
        "ds-nvme-aio",
        "info",
        "NVMe offload needs libaio, and the default aio section (1 MiB blocks, depth 8) is seldom"
        " the drive's best",
        "measure the drive with ds_io and add an aio section",
        "DeepSpeed 0.19.8, deepspeed/runtime/swap_tensor/constants.py",
        nvme_aio,
    ),
    Rule(
        "ds-offload-idle",
        "info",
        "{which} has device none: nothing is offloaded and its other keys are idle",
        "give device cpu, or take the section out",
        f"{_OFFLOAD} (device defaults to none)",
        offload_idle,
    ),
    Rule(
        "ds-partial-offload-stage",
        "warning",
        "{name} is for stage 3; DeepSpeed {what} below",
        "use stage 3, or take it out",
        f"{_Z}config.py (offload_ratio_check); {_OFFLOAD}",
        partial_offload,
    ),
    Rule(
        "ds-ratio-granularity",
        "info",
        "ratio {ratio} is rounded to whole groups of {group} elements; with few groups everything"
        " stays on the CPU",
        "lower sub_group_size, to 1e8 say",
        f"{_Z}stage3.py (int((1 - ratio) * number of sub-groups))",
        ratio_granularity,
    ),
    Rule(
        "ds-offload-cost",
        "info",
        "the offloaded step needs about {bytes} bytes of host RAM per parameter, over all ranks of"
        " the node's share, and is slower than on the GPU",
        "offload only if the GPU cannot hold the states",
        f"{_Z}stage_1_and_2.py, {_Z}stage3.py (fp32 master, two states, gradients on the host)",
        host_memory,
    ),
    Rule(
        "ds-stage-3-key",
        "info",
        "{name} is for stage 3; it has no effect at stage {stage}",
        "take it out",
        f"{_Z}config.py",
        stage_3_keys,
    ),
    Rule(
        "ds-stage-0-key",
        "info",
        "stage 0 is plain data parallelism with every state on every GPU; {name} has no effect",
        "take it out, or use stage 1 or 2",
        f"{_Z}config.py",
        stage_0_keys,
    ),
    Rule(
        "ds-bucket-large",
        "info",
        "{name} of {size} elements takes {gib} GiB of each GPU in 16 bit",
        "use the default, 5e8, or less on small cards",
        f"{_Z}stage_1_and_2.py",
        large_buckets,
    ),
    Rule(
        "ds-bucket-small",
        "info",
        "{name} of {size} elements makes many small messages: latency decides the speed",
        "use the default",
        f"{_Z}config.py",
        small_buckets,
    ),
    Rule(
        "ds-prefetch-offload",
        "warning",
        "a prefetch of {size} elements keeps {gib} GiB of parameters on the GPU ahead of use, which"
        " defeats the offload on small cards",
        "use 5e7, or auto under Hugging Face",
        f"{_Z}config.py (stage3_prefetch_bucket_size)",
        prefetch_offload,
    ),
    Rule(
        "ds-sub-group-huge",
        "warning",
        "sub_group_size {size} puts the whole model into one optimizer group: its fp32 copies are"
        " all worked on at once, and the peak rises",
        "use 1e9, the default",
        f"{_Z}stage3.py (sub-groups of the optimizer step)",
        huge_group,
    ),
    Rule(
        "ds-live-parameters",
        "info",
        "{name} {size} lets whole layers stay gathered: memory comes close to no sharding at all",
        "use 1e9, the default, or less",
        f"{_Z}partitioned_param_coordinator.py",
        many_live,
    ),
    Rule(
        "ds-gather-on-save",
        "info",
        "the 16-bit weights are not gathered at save: the saved model needs zero_to_fp32.py",
        "set stage3_gather_16bit_weights_on_model_save to true, or convert after training",
        f"{_ENGINE} (save_16bit_model)",
        gather_on_save,
    ),
    Rule(
        "ds-clipping-missing",
        "info",
        "gradient_clipping is absent: DeepSpeed clips nothing, whatever --max_grad_norm says",
        'add "gradient_clipping": "auto"',
        "DeepSpeed 0.19.8, deepspeed/runtime/constants.py (default 0); transformers 5.24.0,"
        " integrations/deepspeed.py",
        clipping,
    ),
    Rule(
        "ds-overlap-buffer",
        "info",
        "overlap_comm takes a second reduce bucket below stage 3, {gib} GiB at this size",
        "lower reduce_bucket_size if memory is short",
        f"{_Z}stage_1_and_2.py (double buffering)",
        overlap_buffers,
    ),
    Rule(
        "ds-pin-memory",
        "info",
        "{which} without pinned memory: copies run at a fraction of the PCIe rate and do not"
        " overlap",
        "set pin_memory to true unless host RAM is short",
        f"{_OFFLOAD} (pin_memory)",
        pin_memory,
    ),
    Rule(
        "ds-frozen-buckets",
        "info",
        "the buckets are those of hidden size {hidden}; for {yours} they are stale",
        "write auto under Hugging Face, else work them out again",
        "transformers 5.24.0, src/transformers/integrations/deepspeed.py (trainer_config_finalize)",
        frozen_buckets,
    ),
    Rule(
        "ds-pipeline-stage",
        "error",
        "the pipeline engine refuses ZeRO stage {stage}: {pp} pipeline stages work with 0 or 1"
        " only",
        "use stage 1",
        "DeepSpeed 0.19.8, deepspeed/runtime/pipe/engine.py",
        pipeline_stage,
    ),
    Rule(
        "ds-pipeline-reentrant",
        "warning",
        "reentrant checkpointing fails on a stage whose input needs no gradient (the embedding)",
        "set pipeline.use_reentrant to false",
        "DeepSpeed 0.19.8, deepspeed/runtime/pipe/module.py",
        pipeline_reentrant,
    ),
    Rule(
        "ds-pipeline-seeds",
        "warning",
        "seed_layers crashes on Python 3.11 and later (random.seed is given a type it refuses)",
        "set it to false",
        "DeepSpeed 0.19.8, deepspeed/runtime/pipe/module.py",
        pipeline_seeds,
    ),
    Rule(
        "ds-hpz",
        "error",
        "zero_hpz_partition_size {size}: {what}",
        "use the number of GPUs of one node",
        f"{_Z}config.py (zero_hpz_partition_size); deepspeed/utils/groups.py",
        hpz,
    ),
    Rule(
        "ds-quantized-gradients",
        "error",
        "zero_quantized_gradients needs reduce_scatter",
        "set reduce_scatter to true",
        f"{_Z}stage3.py",
        quantized_gradients,
    ),
    Rule(
        "ds-legacy-stage-1",
        "error",
        "legacy_stage1 is not supported any more; DeepSpeed stops",
        "take it out",
        _ENGINE,
        old_stage_1,
    ),
    Rule(
        "ds-elastic-checkpoint",
        "warning",
        "elastic_checkpoint does nothing at stage 3",
        "use universal checkpointing",
        f"{_Z}config.py (elastic_checkpoint_deprecated)",
        elastic_checkpoint,
    ),
    Rule(
        "ds-grad-norm",
        "error",
        "compute_grad_norm false needs {need}",
        "take it out",
        f"{_Z}config.py (compute_grad_norm_valid); {_ENGINE}",
        grad_norm,
    ),
    Rule(
        "ds-bucket-odd",
        "error",
        "allgather_bucket_size {size} is odd; it must be even",
        "add one",
        f"{_Z}stage_1_and_2.py",
        odd_bucket,
    ),
    Rule(
        "ds-predivide",
        "error",
        "{name} is not supported with reduce_scatter at stages 2 and 3",
        "take it out, or set reduce_scatter to false",
        f"{_Z}stage_1_and_2.py, {_Z}stage3.py",
        predivide,
    ),
    Rule(
        "ds-summed-gradients",
        "error",
        "gradient_allreduce_op sum is refused with stage 3, ZenFlow and DeepCompile",
        "take it out",
        "DeepSpeed 0.19.8, deepspeed/runtime/config.py (_do_error_check)",
        summed_gradients,
    ),
    Rule(
        "ds-zenflow",
        "error",
        "ZenFlow {what}",
        "correct the section",
        "DeepSpeed 0.19.8, deepspeed/runtime/zenflow/zenflow_config.py (validate_fields)",
        zenflow,
    ),
    Rule(
        "ds-activation-checkpointing",
        "info",
        "the section only configures deepspeed.checkpointing; a model that does not call it, as"
        " Hugging Face models do not, keeps all activations",
        "turn checkpointing on in the model: --gradient_checkpointing under Hugging Face",
        "DeepSpeed 0.19.8, deepspeed/runtime/activation_checkpointing/checkpointing.py",
        activation_checkpointing,
    ),
    Rule(
        "ds-partitioned-activations",
        "warning",
        "partition_activations saves nothing without tensor parallelism",
        "set it to false",
        "DeepSpeed 0.19.8, deepspeed/runtime/activation_checkpointing/checkpointing.py",
        partitioned_activations,
    ),
    Rule(
        "ds-degrees",
        "error",
        "{world} processes cannot be divided into model parts of {split}",
        "make the product of the degrees divide the number of processes",
        "DeepSpeed 0.19.8, deepspeed/runtime/pipe/topology.py; deepspeed/utils/groups.py",
        degrees,
    ),
)
