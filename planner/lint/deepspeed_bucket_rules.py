"""Buckets, thresholds and what is gathered in a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from planner.lint.deepspeed_facts import AUTO, DeepSpeedFacts
from planner.lint.deepspeed_keys import SECTIONS
from planner.lint.deepspeed_sources import ENGINE, ZERO, ZERO_FOLDER
from planner.lint.document import as_bool, as_int
from planner.lint.rule import Hit, Rule, remove_key, set_key

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


HUGE_GROUP = 100_000_000_000  # elements; more than any model's share on one rank


SMALL_BUCKET = 4_000_000  # elements; below this, latency rules the collectives


MANY_LIVE = 10_000_000_000  # elements


def stage_3_keys(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Keys that only stage 3 reads."""
    if facts.stage == 3 or not isinstance(facts.doc.get(ZERO), Mapping):
        return
    for name in _STAGE_3_KEYS:
        path = facts.zero_path(name)
        if facts.doc.has(*path) and facts.doc.get(*path) not in (AUTO, None):
            values = {"name": path[-1], "stage": facts.stage}
            yield Hit(path, values, (remove_key(*path),))
    for name in _STAGE_3_SWITCHES:
        if as_bool(facts.zero(name)):
            path = (ZERO, name)
            values = {"name": name, "stage": facts.stage}
            yield Hit(path, values, (remove_key(*path),), "warning")
    size = facts.zero_count("zero_hpz_partition_size")
    if size is not None and size > 1:
        path = (ZERO, "zero_hpz_partition_size")
        values = {"name": path[-1], "stage": facts.stage}
        yield Hit(path, values, (remove_key(*path),), "warning")


def stage_0_keys(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Bucket keys without ZeRO."""
    if facts.stage == 0:
        for name in _STAGE_0_IDLE:
            if facts.doc.has(ZERO, name):
                yield Hit((ZERO, name), {"name": name}, (remove_key(ZERO, name),))


def large_buckets(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Buckets of gigabytes."""
    if facts.stage == 0:
        return
    doubled = facts.stage < 3 and as_bool(facts.zero("overlap_comm"))
    for name in ("reduce_bucket_size", "allgather_bucket_size"):
        size = facts.zero_count(name)
        if facts.doc.has(ZERO, name) and size is not None and size >= LARGE_BUCKET:
            times = 2 if doubled and name == "reduce_bucket_size" else 1
            values = {"name": name, "size": size, "gib": f"{size * 2 * times / 2**30:.1f}"}
            yield Hit((ZERO, name), values, (set_key(ZERO, name, value=500_000_000),))


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
            default = SECTIONS[(ZERO,)].keys[name].default
            yield Hit(path, values, (set_key(*path, value=default),))


def huge_group(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """One optimizer group for the whole model."""
    size = facts.zero_count("sub_group_size")
    if facts.stage == 3 and size is not None and size >= HUGE_GROUP:
        path = (ZERO, "sub_group_size")
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
        yield Hit(path if facts.doc.has(*path) else (ZERO,), {}, patch)


def clipping(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Clipping that Hugging Face believes to be on."""
    if facts.ctx.framework == "hf" and not facts.doc.has("gradient_clipping"):
        yield Hit((), {}, (set_key("gradient_clipping", value=AUTO),))


def overlap_buffers(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """overlap_comm at stages 1 and 2 takes a second bucket."""
    if facts.stage in (1, 2) and as_bool(facts.doc.get(ZERO, "overlap_comm")):
        size = facts.zero_count("reduce_bucket_size")
        if size is not None and facts.pp == 1 and size < LARGE_BUCKET:
            yield Hit((ZERO, "overlap_comm"), {"gib": f"{size * 2 / 2**30:.1f}"})


def frozen_buckets(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """Bucket sizes worked out for one hidden size."""
    if facts.stage != 3:
        return
    size = as_int(facts.doc.get(ZERO, "reduce_bucket_size"))
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
    patch = (set_key(ZERO, "reduce_bucket_size", value=value),)
    yield Hit((ZERO, "reduce_bucket_size"), values, patch, "warning" if stale else "info")


def odd_bucket(facts: DeepSpeedFacts) -> Iterator[Hit]:
    """allgather_bucket_size must be even."""
    path = (ZERO, "allgather_bucket_size")
    size = as_int(facts.doc.get(*path))
    if size is not None and size % 2 and facts.stage in (1, 2):
        yield Hit(path, {"size": size}, (set_key(*path, value=size + 1),))


RULES: tuple[Rule[DeepSpeedFacts], ...] = (
    Rule(
        "ds-stage-3-key",
        "info",
        "{name} is for stage 3; it has no effect at stage {stage}",
        "take it out",
        f"{ZERO_FOLDER}config.py",
        stage_3_keys,
    ),
    Rule(
        "ds-stage-0-key",
        "info",
        "stage 0 is plain data parallelism with every state on every GPU; {name} has no effect",
        "take it out, or use stage 1 or 2",
        f"{ZERO_FOLDER}config.py",
        stage_0_keys,
    ),
    Rule(
        "ds-bucket-large",
        "info",
        "{name} of {size} elements takes {gib} GiB of each GPU in 16 bit",
        "use the default, 5e8, or less on small cards",
        f"{ZERO_FOLDER}stage_1_and_2.py",
        large_buckets,
    ),
    Rule(
        "ds-bucket-small",
        "info",
        "{name} of {size} elements makes many small messages: latency decides the speed",
        "use the default",
        f"{ZERO_FOLDER}config.py",
        small_buckets,
    ),
    Rule(
        "ds-sub-group-huge",
        "warning",
        "sub_group_size {size} puts the whole model into one optimizer group: its fp32 copies are"
        " all worked on at once, and the peak rises",
        "use 1e9, the default",
        f"{ZERO_FOLDER}stage3.py (sub-groups of the optimizer step)",
        huge_group,
    ),
    Rule(
        "ds-live-parameters",
        "info",
        "{name} {size} lets whole layers stay gathered: memory comes close to no sharding at all",
        "use 1e9, the default, or less",
        f"{ZERO_FOLDER}partitioned_param_coordinator.py",
        many_live,
    ),
    Rule(
        "ds-gather-on-save",
        "info",
        "the 16-bit weights are not gathered at save: the saved model needs zero_to_fp32.py",
        "set stage3_gather_16bit_weights_on_model_save to true, or convert after training",
        f"{ENGINE} (save_16bit_model)",
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
        f"{ZERO_FOLDER}stage_1_and_2.py (double buffering)",
        overlap_buffers,
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
        "ds-bucket-odd",
        "error",
        "allgather_bucket_size {size} is odd; it must be even",
        "add one",
        f"{ZERO_FOLDER}stage_1_and_2.py",
        odd_bucket,
    ),
)
