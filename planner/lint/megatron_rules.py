"""Megatron argument lists: counts that must divide."""

from __future__ import annotations

from collections.abc import Iterator

from planner.lint.document import Document, as_int
from planner.lint.megatron_flags import TC, VA, cp, deepspeed, is_open, number, on, pp, tp
from planner.lint.rule import Facts, Hit, Rule, remove_key, set_key

_OLD = {
    "model_parallel_size": "tensor_model_parallel_size",
    "batch_size": "micro_batch_size",
    "warmup": "lr_warmup_fraction",
    "checkpoint_activations": "recompute_activations",
    "checkpoint_num_layers": "recompute_num_layers",
}


def model_ranks(doc: Document) -> int | None:
    """Ranks one replica takes."""
    parts = (tp(doc), pp(doc), cp(doc))
    if any(part is None or part < 1 for part in parts):
        return None
    out = 1
    for part in parts:
        out *= part or 1
    return out


def data_ranks(facts: Facts) -> int | None:
    """Data-parallel ranks; None if the processes are unknown or do not divide."""
    world, part = facts.ctx.world, model_ranks(facts.doc)
    return world // part if world and part and world % part == 0 else None


def bad_numbers(facts: Facts) -> Iterator[Hit]:
    """Counts that are not counts."""
    for name in (
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "ds_sequence_parallel_size",
        "micro_batch_size",
        "global_batch_size",
        "num_layers",
        "hidden_size",
        "num_attention_heads",
        "seq_length",
    ):
        value = facts.doc.get(name)
        if facts.doc.has(name) and value is not None and (as_int(value) or 0) < 1:
            yield Hit((name,), {"value": value})
        elif facts.doc.has(name) and isinstance(value, bool):
            yield Hit((name,), {"value": "nothing"})


def old_names(facts: Facts) -> Iterator[Hit]:
    """Names that Megatron-LM no longer takes."""
    if deepspeed(facts.doc):
        return
    for old, new in _OLD.items():
        if facts.doc.has(old):
            values = {"new": new.replace("_", "-")}
            patch = (remove_key(old), set_key(new, value=facts.doc.get(old)))
            yield Hit((old,), values, patch)


def missing(facts: Facts) -> Iterator[Hit]:
    """Flags without which nothing starts."""
    trains = any(facts.doc.has(n) for n in ("global_batch_size", "train_iters", "train_samples"))
    given = facts.doc.has("micro_batch_size") or facts.doc.has("batch_size")
    if trains and not given and not is_open(facts.doc):
        yield Hit((), {"name": "micro-batch-size"}, (set_key("micro_batch_size", value=1),))


def world_divides(facts: Facts) -> Iterator[Hit]:
    """Processes against the model's ranks."""
    world, part = facts.ctx.world, model_ranks(facts.doc)
    if world and part and world % part:
        name = "tensor_model_parallel_size"
        for other in ("pipeline_model_parallel_size", "context_parallel_size"):
            name = name if facts.doc.has(name) else other
        yield Hit((name,), {"world": world, "part": part})


def batch_divides(facts: Facts) -> Iterator[Hit]:
    """Global batch against micro-batch and replicas."""
    dp = data_ranks(facts)
    batch, micro = number(facts.doc, "global_batch_size"), number(facts.doc, "micro_batch_size")
    if not batch or not micro or batch < 1 or micro < 1:
        return
    step = micro * (dp or 1)
    if batch % step:
        near = max(step, round(batch / step) * step)
        values = {"batch": batch, "micro": micro, "dp": dp or "any number of", "near": near}
        yield Hit(("global_batch_size",), values, (set_key("global_batch_size", value=near),))


def heads(facts: Facts) -> Iterator[Hit]:
    """Heads and groups against tensor parallelism."""
    n_heads, size = number(facts.doc, "num_attention_heads"), tp(facts.doc)
    if not n_heads or not size or n_heads < 1 or size < 1:
        return
    if n_heads % size:
        values = {"what": f"{n_heads} heads are not a multiple of tp {size}"}
        yield Hit(("num_attention_heads",), values)
    kv_name = "num_key_value_heads" if facts.doc.has("num_key_value_heads") else "num_query_groups"
    groups = number(facts.doc, kv_name)
    if kv_name == "num_query_groups" and not on(facts.doc, "group_query_attention"):
        return
    if groups and groups > 0 and groups % size and size % groups:
        values = {"what": f"{groups} key-value heads and tp {size} do not divide either way"}
        yield Hit((kv_name,), values)


def groups_idle(facts: Facts) -> Iterator[Hit]:
    """num_query_groups without its switch."""
    if facts.doc.has("num_query_groups") and not on(facts.doc, "group_query_attention"):
        heads_ = number(facts.doc, "num_attention_heads")
        if number(facts.doc, "num_query_groups") not in (None, heads_):
            path = ("num_query_groups",)
            yield Hit(path, {}, (set_key("group_query_attention", value=True),))


def head_size(facts: Facts) -> Iterator[Hit]:
    """Hidden size against heads."""
    hidden, n_heads = number(facts.doc, "hidden_size"), number(facts.doc, "num_attention_heads")
    free = facts.doc.has("kv_channels")
    if hidden and n_heads and n_heads > 0 and hidden % n_heads and not free:
        yield Hit(("hidden_size",), {"hidden": hidden, "heads": n_heads})


def sequence_divides(facts: Facts) -> Iterator[Hit]:
    """Sequence length against the ranks that share it."""
    length = number(facts.doc, "seq_length")
    size, context = tp(facts.doc), cp(facts.doc)
    if not length or length < 1 or not size or not context:
        return
    if facts.doc.has("context_parallel_size") and context > 1 and length % (2 * context):
        yield Hit(("seq_length",), {"length": length, "step": 2 * context, "by": "2 x cp"})
    if facts.doc.has("ds_sequence_parallel_size") and context > 1 and length % context:
        yield Hit(("seq_length",), {"length": length, "step": context, "by": "sequence ranks"})
    if on(facts.doc, "sequence_parallel") and size > 1 and length % size:
        yield Hit(("seq_length",), {"length": length, "step": size, "by": "tp"})


def positions(facts: Facts) -> Iterator[Hit]:
    """Positions shorter than the sequence."""
    length = number(facts.doc, "seq_length")
    most = number(facts.doc, "max_position_embeddings")
    if length and most and most < length:
        path = ("max_position_embeddings",)
        yield Hit(path, {"length": length, "most": most}, (set_key(*path, value=length),))


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "mg-bad-number",
        "error",
        "expected a whole number, 1 or more; got {value}",
        "write a whole number",
        VA,
        bad_numbers,
    ),
    Rule(
        "mg-old-name",
        "error",
        "Megatron-LM no longer takes this flag",
        "write --{new}",
        VA,
        old_names,
    ),
    Rule("mg-missing", "error", "--{name} is required", "add it", VA, missing),
    Rule(
        "mg-world",
        "error",
        "{world} processes are not a multiple of tp x pp x cp = {part}",
        "change the degrees or the number of processes",
        VA,
        world_divides,
    ),
    Rule(
        "mg-batch",
        "error",
        "global batch {batch} is not a multiple of micro-batch {micro} x {dp} replicas",
        "use {near}",
        VA,
        batch_divides,
    ),
    Rule("mg-heads", "error", "{what}", "choose a tp that divides both", TC, heads),
    Rule(
        "mg-groups-idle",
        "warning",
        "num-query-groups is not used without --group-query-attention",
        "add --group-query-attention",
        VA,
        groups_idle,
    ),
    Rule(
        "mg-head-size",
        "error",
        "hidden size {hidden} is not a multiple of {heads} heads",
        "give --kv-channels, or change one of the two",
        VA,
        head_size,
    ),
    Rule(
        "mg-sequence",
        "error",
        "sequence length {length} is not a multiple of {by} = {step}",
        "round it up to one",
        VA,
        sequence_divides,
    ),
    Rule(
        "mg-positions",
        "error",
        "max-position-embeddings {most} is below the sequence length {length}",
        "raise it",
        VA,
        positions,
    ),
)
