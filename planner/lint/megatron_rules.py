"""Megatron-LM and Megatron-DeepSpeed argument lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from planner.lint.document import Document, Value, as_bool, as_int
from planner.lint.rule import Facts, Hit, Rule, remove_key, set_key

_OLD = {
    "model_parallel_size": "tensor_model_parallel_size",
    "batch_size": "micro_batch_size",
    "warmup": "lr_warmup_fraction",
    "checkpoint_activations": "recompute_activations",
    "checkpoint_num_layers": "recompute_num_layers",
}
_MODULES: tuple[str, ...] = (
    "core_attn",
    "moe_act",
    "layernorm",
    "mla_up_proj",
    "mlp",
    "moe",
    "shared_experts",
)
_MODULES += ("mhc",)


def number(doc: Document, name: str, default: int | None = None) -> int | None:
    """A flag's whole number; ``default`` when the flag is absent, None when it is unreadable."""
    return as_int(doc.get(name)) if doc.has(name) else default


def on(doc: Document, name: str) -> bool:
    """Whether a switch is given."""
    return bool(as_bool(doc.get(name)))


def deepspeed(doc: Document) -> bool:
    """Whether this is Megatron-DeepSpeed."""
    marks = ("deepspeed", "deepspeed_config", "zero_stage", "ds_sequence_parallel_size")
    return any(doc.has(name) for name in marks)


def _open(doc: Document) -> bool:
    """Whether part of the list is in a variable without a value."""
    return any(flaw.kind == "unresolved" and not flaw.path for flaw in doc.flaws)


def tp(doc: Document) -> int | None:
    """Tensor-parallel ranks."""
    return number(doc, "tensor_model_parallel_size", 1)


def pp(doc: Document) -> int | None:
    """Pipeline stages."""
    return number(doc, "pipeline_model_parallel_size", 1)


def cp(doc: Document) -> int | None:
    """Context-parallel ranks; DeepSpeed's sequence parallelism counts as such."""
    if doc.has("ds_sequence_parallel_size"):
        return number(doc, "ds_sequence_parallel_size", 1)
    return number(doc, "context_parallel_size", 1)


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
    if trains and not given and not _open(facts.doc):
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


def sequence_parallel(facts: Facts) -> Iterator[Hit]:
    """Sequence parallelism without tensor parallelism."""
    if on(facts.doc, "sequence_parallel") and tp(facts.doc) == 1:
        yield Hit(("sequence_parallel",), {}, (remove_key("sequence_parallel"),))


def overlap_needs_sp(facts: Facts) -> Iterator[Hit]:
    """Overlap of tensor-parallel communication."""
    if on(facts.doc, "tp_comm_overlap") and not on(facts.doc, "sequence_parallel"):
        yield Hit(("tp_comm_overlap",), {}, (set_key("sequence_parallel", value=True),))


def moe_needs_sp(facts: Facts) -> Iterator[Hit]:
    """Experts with tensor parallelism."""
    experts, size = number(facts.doc, "num_experts"), tp(facts.doc)
    if deepspeed(facts.doc):
        return
    if experts and size and size > 1 and not on(facts.doc, "sequence_parallel"):
        yield Hit(("num_experts",), {}, (set_key("sequence_parallel", value=True),))


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


def stage_layers(facts: Facts) -> Iterator[Hit]:
    """Layers against pipeline stages."""
    layers, stages = number(facts.doc, "num_layers"), pp(facts.doc)
    if not layers or not stages or stages <= 1:
        return
    uneven = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")
    free = (*uneven, "pipeline_model_parallel_layout", "hybrid_layer_pattern", "custom_partition")
    if deepspeed(facts.doc) or any(facts.doc.has(name) for name in free[2:]):
        return
    first, last = (number(facts.doc, name) for name in uneven)
    middle = layers - (first or 0) - (last or 0)
    rest = stages - (first is not None) - (last is not None)
    extra = int(on(facts.doc, "account_for_embedding_in_pipeline_split"))
    extra += on(facts.doc, "account_for_loss_in_pipeline_split")
    if rest > 0 and (middle + extra) % rest:
        yield Hit(("num_layers",), {"layers": middle + extra, "stages": rest})


def interleaving(facts: Facts) -> Iterator[Hit]:
    """Virtual stages."""
    names = ("num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank")
    given = [n for n in (*names, "pipeline_model_parallel_layout") if facts.doc.has(n)]
    if len(given) > 1:
        values = {"what": "only one of the flags for virtual stages may be given"}
        yield Hit((given[1],), values, (remove_key(given[1]),))
        return
    chosen = [n for n in names if n in given]
    if not chosen:
        return
    name, stages, layers = chosen[0], pp(facts.doc), number(facts.doc, "num_layers")
    needed = 2 if on(facts.doc, "no_overlap_p2p_communication") or deepspeed(facts.doc) else 1
    if stages is not None and stages <= needed:
        values = {"what": f"interleaving needs more than {needed} pipeline stages"}
        yield Hit((name,), values, (remove_key(name),))
        return
    per = number(facts.doc, name)
    whole = bool(stages and layers and layers % stages == 0)
    if name == names[0] and per and per > 0 and whole and stages and layers:
        held = layers // stages
        if held % per:
            what = f"{held} layers a stage are no multiple of {per} per virtual stage"
            yield Hit((name,), {"what": what})
    count = micro_batches(facts)
    if count is not None and stages and count % stages:
        group = number(facts.doc, "microbatch_group_size_per_virtual_pipeline_stage", stages)
        if group and not (stages <= group <= count and count % group >= stages):
            what = f"{count} micro-batches are no multiple of {stages} pipeline stages"
            yield Hit((name,), {"what": what})


def micro_batches(facts: Facts) -> int | None:
    """Micro-batches a step and replica."""
    dp = data_ranks(facts)
    batch, micro = number(facts.doc, "global_batch_size"), number(facts.doc, "micro_batch_size")
    if dp and batch and micro and micro > 0 and batch % (dp * micro) == 0:
        return batch // (dp * micro)
    return None


def bubble(facts: Facts) -> Iterator[Hit]:
    """Few micro-batches for the pipeline."""
    stages, count = pp(facts.doc), micro_batches(facts)
    if stages and stages > 1 and count is not None and count < 4 * stages:
        virtual = number(facts.doc, "num_virtual_stages_per_pipeline_rank", 1) or 1
        share = (stages - 1) / (count * virtual + stages - 1)
        severity = "warning" if count < stages else "info"
        path = ("global_batch_size",) if facts.doc.has("global_batch_size") else ()
        values = {"count": count, "stages": stages, "share": f"{share:.0%}"}
        yield Hit(path, values, (), severity)  # type: ignore[arg-type]


def recompute(facts: Facts) -> Iterator[Hit]:
    """Recompute flags that must come together."""
    mode = facts.doc.get("recompute_granularity")
    method, layers = facts.doc.has("recompute_method"), facts.doc.has("recompute_num_layers")
    if mode == "full" and not method:
        values = {"what": "full recompute needs --recompute-method uniform or block"}
        patch = [set_key("recompute_method", value="uniform")]
        if not layers:
            patch.append(set_key("recompute_num_layers", value=1))
        yield Hit(("recompute_granularity",), values, tuple(patch))
    elif mode == "full" and not layers:
        values = {"what": "full recompute needs --recompute-num-layers"}
        yield Hit(("recompute_granularity",), values, (set_key("recompute_num_layers", value=1),))
    elif mode == "selective" and method:
        values = {"what": "selective recompute takes no --recompute-method"}
        yield Hit(("recompute_method",), values, (remove_key("recompute_method"),))
    elif mode not in (None, "full", "selective"):
        values = {"what": f"granularity {mode}: expected full or selective"}
        yield Hit(("recompute_granularity",), values)
    if facts.doc.get("recompute_method") not in (None, "uniform", "block"):
        yield Hit(("recompute_method",), {"what": "method: expected uniform or block"})
    modules = facts.doc.get("recompute_modules")
    listed = modules if isinstance(modules, list) else [modules] if modules else []
    for module in listed:
        if isinstance(module, str) and not module.startswith("gd") and module not in _MODULES:
            values = {"what": f"module {module}: expected among {', '.join(_MODULES)}"}
            yield Hit(("recompute_modules",), values)
    if listed and mode != "selective":
        values = {"what": "--recompute-modules is for selective recompute"}
        yield Hit(("recompute_modules",), values, (remove_key("recompute_modules"),))


def core_attention(facts: Facts) -> Iterator[Hit]:
    """Selective recompute of what flash attention does not keep."""
    flash = on(facts.doc, "use_flash_attn") or on(facts.doc, "use_flash_attn_v2")
    engine = facts.doc.get("transformer_impl", default="transformer_engine")
    flash = flash or (not deepspeed(facts.doc) and engine == "transformer_engine")
    chosen = facts.doc.get("recompute_granularity") == "selective"
    chosen = chosen or on(facts.doc, "recompute_activations")
    if chosen and flash and not facts.doc.has("recompute_modules"):
        name = (
            "recompute_granularity"
            if facts.doc.has("recompute_granularity")
            else "recompute_activations"
        )
        yield Hit((name,), {})


def distributed_activations(facts: Facts) -> Iterator[Hit]:
    """distribute_saved_activations."""
    name = "distribute_saved_activations"
    if not on(facts.doc, name):
        return
    if tp(facts.doc) == 1:
        yield Hit((name,), {"need": "tensor parallelism"}, (remove_key(name),))
    elif facts.doc.get("recompute_granularity") != "full":
        yield Hit((name,), {"need": "full recompute"}, (remove_key(name),))
    elif on(facts.doc, "sequence_parallel"):
        yield Hit((name,), {"need": "sequence parallelism off"}, (remove_key(name),))


def optimizer_overlap(facts: Facts) -> Iterator[Hit]:
    """Overlap of gathers, and what it needs."""
    sharded = on(facts.doc, "use_distributed_optimizer") or on(facts.doc, "use_megatron_fsdp")
    if on(facts.doc, "overlap_param_gather"):
        for need, given in (
            ("use_distributed_optimizer", sharded),
            ("overlap_grad_reduce", on(facts.doc, "overlap_grad_reduce")),
        ):
            if not given:
                patch = (set_key(need, value=True),)
                values = {"flag": "overlap-param-gather", "need": need.replace("_", "-")}
                yield Hit(("overlap_param_gather",), values, patch)
    pairs = (
        ("optimizer_cpu_offload", "use_precision_aware_optimizer"),
        ("exp_avg_dtype", "use_precision_aware_optimizer"),
        ("exp_avg_sq_dtype", "use_precision_aware_optimizer"),
        ("main_params_dtype", "use_precision_aware_optimizer"),
        ("fp8_param_gather", "use_distributed_optimizer"),
    )
    for name, need in pairs:
        value = facts.doc.get(name)
        used = on(facts.doc, name) or (isinstance(value, str) and value != "fp32")
        given = on(facts.doc, need) or (need == "use_distributed_optimizer" and sharded)
        if used and not given:
            values = {"flag": name.replace("_", "-"), "need": need.replace("_", "-")}
            yield Hit((name,), values, (set_key(need, value=True),))


def layer_offload(facts: Facts) -> Iterator[Hit]:
    """cpu-offloading-num-layers."""
    name = "cpu_offloading_num_layers"
    count, layers = number(facts.doc, name), number(facts.doc, "num_layers")
    if not count:
        return
    stages = pp(facts.doc)
    if stages is not None and stages > 1:
        yield Hit((name,), {"what": "excludes pipeline parallelism"}, (remove_key(name),))
    if facts.doc.has("recompute_granularity"):
        yield Hit((name,), {"what": "excludes recompute"}, (remove_key(name),))
    if layers and count >= layers:
        values = {"what": f"must be below the {layers} layers"}
        yield Hit((name,), values, (set_key(name, value=layers - 1),))


def experts(facts: Facts) -> Iterator[Hit]:
    """Expert parallelism."""
    ep = number(facts.doc, "expert_model_parallel_size", 1)
    count, world = number(facts.doc, "num_experts"), facts.ctx.world
    if not ep or ep == 1:
        return
    path = ("expert_model_parallel_size",)
    if not facts.doc.has("num_experts"):
        yield Hit(path, {"what": "needs --num-experts"}, (remove_key(*path),))
    elif count and count % ep:
        yield Hit(path, {"what": f"{count} experts are not a multiple of ep {ep}"})
    etp = number(facts.doc, "expert_tensor_parallel_size", tp(facts.doc))
    stages = pp(facts.doc)
    if world and etp and stages and world % (etp * ep * stages):
        what = f"{world} processes are not a multiple of ep x expert tp x pp = {etp * ep * stages}"
        yield Hit(path, {"what": what})


def connections(facts: Facts) -> Iterator[Hit]:
    """CUDA_DEVICE_MAX_CONNECTIONS."""
    env, size, context = facts.ctx.environment, tp(facts.doc), cp(facts.doc)
    if env is None or deepspeed(facts.doc):
        return
    device = facts.ctx.device
    if device is not None and device.name.startswith(("B1", "B2", "B3", "GB")):
        return
    fsdp = on(facts.doc, "use_torch_fsdp2") or on(facts.doc, "use_megatron_fsdp")
    value = env.get("CUDA_DEVICE_MAX_CONNECTIONS")
    if fsdp and value == "1":
        values = {"what": "FSDP requires it unset or above 1"}
        yield Hit((), values, (), "error")
    elif not fsdp and ((size or 1) > 1 or (context or 1) > 1) and value != "1":
        name = "tensor_model_parallel_size" if (size or 1) > 1 else "context_parallel_size"
        values = {"what": "tensor and context parallelism require 1 before Blackwell"}
        yield Hit((name,), values, (), "error" if value is not None else "warning")


def precision(facts: Facts) -> Iterator[Hit]:
    """fp16 and bf16."""
    if on(facts.doc, "fp16") and on(facts.doc, "bf16"):
        yield Hit(("fp16",), {"what": "fp16 and bf16 are both on"}, (remove_key("fp16"),), "error")
    device = facts.ctx.device
    for name in ("bf16", "fp16"):
        if device is not None and on(facts.doc, name) and name not in device.supports:
            other = "fp16" if name == "bf16" else "bf16"
            values = {"what": f"{device.name} has no {name}"}
            patch = (remove_key(name), set_key(other, value=True))
            yield Hit((name,), values, patch, "error")
    if facts.doc.has("fp8_format") and facts.doc.has("fp4_format"):
        yield Hit(("fp4_format",), {"what": "fp8 and fp4 exclude each other"}, (), "error")
    if device is not None and facts.doc.has("fp8_format") and "fp8" not in device.supports:
        yield Hit(("fp8_format",), {"what": f"{device.name} has no fp8"}, (), "error")
    if not on(facts.doc, "fp16") and not on(facts.doc, "bf16"):
        values = {"what": "neither --bf16 nor --fp16 is given: training runs in fp32"}
        if _open(facts.doc) or not facts.doc.has("micro_batch_size"):
            return
        yield Hit((), values, (set_key("bf16", value=True),), "warning")


def torch_fsdp(facts: Facts) -> Iterator[Hit]:
    """What torch FSDP2 excludes."""
    if not on(facts.doc, "use_torch_fsdp2"):
        return
    checks: tuple[tuple[str, Callable[[], Value], str], ...] = (
        ("pipeline_model_parallel_size", lambda: (pp(facts.doc) or 1) > 1, "pp 1"),
        (
            "expert_model_parallel_size",
            lambda: (number(facts.doc, "expert_model_parallel_size", 1) or 1) > 1,
            "ep 1",
        ),
        (
            "use_distributed_optimizer",
            lambda: on(facts.doc, "use_distributed_optimizer"),
            "no distributed optimizer",
        ),
        ("fp16", lambda: on(facts.doc, "fp16"), "no fp16"),
    )
    for name, broken, need in checks:
        if broken():
            yield Hit((name,), {"need": need}, (remove_key(name),))
    if not on(facts.doc, "untie_embeddings_and_output_weights"):
        patch = (set_key("untie_embeddings_and_output_weights", value=True),)
        yield Hit(("use_torch_fsdp2",), {"need": "untied embeddings"}, patch)
    if not on(facts.doc, "no_gradient_accumulation_fusion"):
        patch = (set_key("no_gradient_accumulation_fusion", value=True),)
        yield Hit(("use_torch_fsdp2",), {"need": "--no-gradient-accumulation-fusion"}, patch)


def zero_pipeline(facts: Facts) -> Iterator[Hit]:
    """Megatron-DeepSpeed: stages 2 and 3 with the pipeline engine."""
    stage = number(facts.doc, "zero_stage")
    partner = facts.ctx.partner("deepspeed")
    if stage is None and partner is not None:
        stage = as_int(partner.get("zero_optimization", "stage"))
    if not deepspeed(facts.doc) or stage is None or stage < 2:
        return
    where = ("zero_stage",) if facts.doc.has("zero_stage") else ("deepspeed_config",)
    if (pp(facts.doc) or 1) > 1:
        values = {"what": f"refuses ZeRO stage {stage} with pipeline stages"}
        yield Hit(where, values, (set_key("zero_stage", value=1),))
    elif not on(facts.doc, "no_pipeline_parallel"):
        values = {"what": f"needs --no-pipeline-parallel for ZeRO stage {stage}"}
        yield Hit(where, values, (set_key("no_pipeline_parallel", value=True),))


def zero_disagrees(facts: Facts) -> Iterator[Hit]:
    """--zero-stage and batch flags against the DeepSpeed file."""
    partner = facts.ctx.partner("deepspeed")
    if partner is None or not deepspeed(facts.doc):
        return
    pairs = (
        ("zero_stage", ("zero_optimization", "stage")),
        ("micro_batch_size", ("train_micro_batch_size_per_gpu",)),
        ("global_batch_size", ("train_batch_size",)),
    )
    for flag, path in pairs:
        here, there = number(facts.doc, flag), as_int(partner.get(*path))
        if here is not None and there is not None and here != there:
            values = {"here": here, "there": there, "file": partner.name}
            yield Hit((flag,), values, (set_key(flag, value=there),))


def no_pipeline(facts: Facts) -> Iterator[Hit]:
    """--no-pipeline-parallel with stages."""
    if on(facts.doc, "no_pipeline_parallel") and (pp(facts.doc) or 1) > 1:
        yield Hit(("no_pipeline_parallel",), {}, (remove_key("no_pipeline_parallel"),))


_VA = "Megatron-LM (August 2026), megatron/training/arguments.py (validate_args)"
_TC = "megatron-core 0.16.1, megatron/core/transformer/transformer_config.py (__post_init__)"
_MDS = "Megatron-DeepSpeed (July 2025), megatron/arguments.py"

RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "mg-bad-number",
        "error",
        "expected a whole number, 1 or more; got {value}",
        "write a whole number",
        _VA,
        bad_numbers,
    ),
    Rule(
        "mg-old-name",
        "error",
        "Megatron-LM no longer takes this flag",
        "write --{new}",
        _VA,
        old_names,
    ),
    Rule("mg-missing", "error", "--{name} is required", "add it", _VA, missing),
    Rule(
        "mg-world",
        "error",
        "{world} processes are not a multiple of tp x pp x cp = {part}",
        "change the degrees or the number of processes",
        _VA,
        world_divides,
    ),
    Rule(
        "mg-batch",
        "error",
        "global batch {batch} is not a multiple of micro-batch {micro} x {dp} replicas",
        "use {near}",
        _VA,
        batch_divides,
    ),
    Rule("mg-heads", "error", "{what}", "choose a tp that divides both", _TC, heads),
    Rule(
        "mg-groups-idle",
        "warning",
        "num-query-groups is not used without --group-query-attention",
        "add --group-query-attention",
        _VA,
        groups_idle,
    ),
    Rule(
        "mg-head-size",
        "error",
        "hidden size {hidden} is not a multiple of {heads} heads",
        "give --kv-channels, or change one of the two",
        _VA,
        head_size,
    ),
    Rule(
        "mg-sequence-parallel",
        "warning",
        "sequence parallelism needs tensor parallelism; it is switched off",
        "take it out, or use tp 2 or more",
        _VA,
        sequence_parallel,
    ),
    Rule(
        "mg-overlap-needs-sp",
        "error",
        "--tp-comm-overlap needs --sequence-parallel",
        "add --sequence-parallel",
        _VA,
        overlap_needs_sp,
    ),
    Rule(
        "mg-moe-needs-sp",
        "error",
        "experts with tensor parallelism need --sequence-parallel",
        "add --sequence-parallel",
        _TC,
        moe_needs_sp,
    ),
    Rule(
        "mg-sequence",
        "error",
        "sequence length {length} is not a multiple of {by} = {step}",
        "round it up to one",
        _VA,
        sequence_divides,
    ),
    Rule(
        "mg-positions",
        "error",
        "max-position-embeddings {most} is below the sequence length {length}",
        "raise it",
        _VA,
        positions,
    ),
    Rule(
        "mg-stage-layers",
        "error",
        "{layers} layers cannot be shared evenly by {stages} stages",
        "give --decoder-first/-last-pipeline-num-layers or --pipeline-model-parallel-layout",
        _VA,
        stage_layers,
    ),
    Rule(
        "mg-interleaving",
        "error",
        "{what}",
        "correct the virtual stages",
        f"{_VA}; megatron/core/pipeline_parallel/schedules.py",
        interleaving,
    ),
    Rule(
        "mg-bubble",
        "info",
        "{count} micro-batches over {stages} pipeline stages: about {share} of the step is bubble",
        "raise the global batch, lower the micro-batch, or use fewer stages",
        "Narayanan et al. 2021, Efficient Large-Scale Language Model Training, section 2.2",
        bubble,
    ),
    Rule(
        "mg-recompute", "error", "{what}", "correct the recompute flags", f"{_VA}; {_TC}", recompute
    ),
    Rule(
        "mg-core-attention",
        "info",
        "selective recompute drops the attention matrices, which fused attention never keeps: it"
        " saves next to nothing",
        "name other modules with --recompute-modules, or use full recompute",
        _TC,
        core_attention,
    ),
    Rule(
        "mg-distributed-activations",
        "error",
        "distribute-saved-activations needs {need}",
        "take it out",
        _VA,
        distributed_activations,
    ),
    Rule("mg-needs", "error", "--{flag} needs --{need}", "add --{need}", _VA, optimizer_overlap),
    Rule(
        "mg-layer-offload",
        "error",
        "cpu-offloading-num-layers {what}",
        "change or drop it",
        _TC,
        layer_offload,
    ),
    Rule("mg-experts", "error", "expert parallelism: {what}", "change the degree", _VA, experts),
    Rule(
        "mg-connections",
        "warning",
        "CUDA_DEVICE_MAX_CONNECTIONS: {what}",
        "export it accordingly in the script",
        _VA,
        connections,
    ),
    Rule(
        "mg-precision",
        "error",
        "{what}",
        "use one of bf16 and fp16, as the GPU has it",
        _VA,
        precision,
    ),
    Rule("mg-torch-fsdp2", "error", "--use-torch-fsdp2 needs {need}", "change it", _VA, torch_fsdp),
    Rule(
        "mg-zero-pipeline",
        "error",
        "Megatron-DeepSpeed {what}",
        "use stage 1, or no pipeline",
        f"{_MDS}; DeepSpeed runtime/pipe/engine.py",
        zero_pipeline,
    ),
    Rule(
        "mg-zero-disagrees",
        "error",
        "{here} here, {there} in {file}",
        "let both say the same",
        _MDS,
        zero_disagrees,
    ),
    Rule(
        "mg-no-pipeline",
        "error",
        "--no-pipeline-parallel excludes pipeline stages",
        "take it out, or use pp 1",
        _MDS,
        no_pipeline,
    ),
)
