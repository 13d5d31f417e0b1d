"""Settings of DeepSpeed files, Accelerate YAML and plans."""

from __future__ import annotations

from collections.abc import Mapping

from planner.advisor.settings import AXES, OPTIMIZERS, Settings
from planner.lint.context import Context
from planner.lint.deepspeed_facts import AUTO, DeepSpeedFacts
from planner.lint.document import Document, Path, Value, as_bool, as_int
from planner.lint.plan_rules import plan_of


def deepspeed(out: Settings, doc: Document, ctx: Context) -> None:
    """Settings of a DeepSpeed JSON, as its engine will see them."""
    facts = DeepSpeedFacts(doc, ctx)
    megatron = ctx.framework == "megatron" and facts.pp > 1
    out.give("stack", "megatron-deepspeed" if megatron else "deepspeed", doc, how="default")
    out.give("zero_stage", facts.stage, doc, ("zero_optimization", "stage"))
    pairs = (("offload_optimizer", "offload_optimizer"), ("offload_param", "offload_parameters"))
    for section, name in pairs:
        device = facts.device(section) if facts.stage else "none"
        if section == "offload_param" and facts.stage < 3:
            device = "none"
        if section == "offload_optimizer" and device == "nvme" and facts.stage < 3:
            device = "cpu"
        out.give(name, device, doc, ("zero_optimization", section, "device"))
    _half(out, facts)
    _batch(out, facts)
    for name, value in (("pp", facts.pp), ("tp", facts.tp)):
        out.give(name, value, doc, how="file" if value > 1 else "default")
    sequence = as_int(doc.get("sequence_parallel_size"))
    out.give("cp", sequence or 1, doc, how="file" if sequence else "default")
    if facts.optimizer_type:
        name = facts.optimizer_type.lower()
        out.give("optimizer", OPTIMIZERS.get(name, name), doc, ("optimizer", "type"))
    dtype = doc.get("data_types", "grad_accum_dtype")
    if dtype in ("fp32", "bf16", "fp16"):
        out.give("grad_dtype", dtype, doc, ("data_types", "grad_accum_dtype"))
    interval = as_int(doc.get("pipeline", "activation_checkpoint_interval"))
    if interval:
        out.give("recompute", "full", doc, ("pipeline", "activation_checkpoint_interval"))


def _half(out: Settings, facts: DeepSpeedFacts) -> None:
    for name in ("bf16", "fp16"):
        if facts.enabled(name):
            how = "filled" if facts.doc.get(name, "enabled") == AUTO else "file"
            out.give("precision", name, facts.doc, (name, "enabled"), how)
            return
    flags = facts.ctx.trainer
    asked = flags is not None and any(as_bool(flags.get(n)) for n in ("bf16", "fp16", "pure_bf16"))
    if facts.half is False and not asked and facts.ctx.framework != "megatron":
        out.give("precision", "fp32", facts.doc, how="default")


def _batch(out: Settings, facts: DeepSpeedFacts) -> None:
    doc, ranks = facts.doc, facts.data_ranks
    keys = {
        "global_batch": "train_batch_size",
        "micro_batch": "train_micro_batch_size_per_gpu",
        "grad_accum": "gradient_accumulation_steps",
    }
    for name, key in keys.items():
        value = as_int(facts.value(key)) if facts.value(key) != AUTO else None
        how = "filled" if doc.get(key) == AUTO else "file"
        out.give(name, value if value and value > 0 else None, doc, (key,), how)
    train, micro, accum = (as_int(out.get(name)) for name in keys)
    if facts.ctx.hugging_face and not doc.has("gradient_accumulation_steps"):
        return
    if micro and not accum and not (train and ranks) and not doc.has(keys["grad_accum"]):
        out.give("grad_accum", 1, doc, how="default")
    elif train and ranks and not micro and not doc.has(keys["micro_batch"]):
        out.give("grad_accum", 1, doc, how="default")
        out.give("micro_batch", max(1, train // ranks // (accum or 1)), doc, how="default")


def accelerate(out: Settings, doc: Document, ctx: Context) -> None:
    """Settings of an Accelerate YAML, after those of the DeepSpeed file it names."""
    out.gpus = out.gpus or as_int(doc.get("num_processes"))
    kind = doc.get("distributed_type")
    mixed = doc.get("mixed_precision")
    partner = ctx.partner("deepspeed")
    if partner is not None and doc.get("deepspeed_config", "deepspeed_config_file"):
        deepspeed(out, partner, ctx)
    if mixed in ("bf16", "fp16", "fp8"):
        out.give("precision", mixed, doc, ("mixed_precision",))
    elif mixed is None or str(mixed).lower() in ("no", "false"):
        _single(out, doc, ctx)
    if kind == "DEEPSPEED":
        section = doc.section("deepspeed_config")
        where = ("deepspeed_config",)
        stage = as_int(section.get("zero_stage", 2))
        out.give("stack", "deepspeed", doc, ("distributed_type",))
        out.give("zero_stage", stage, doc, (*where, "zero_stage"))
        for key, name in (
            ("offload_optimizer_device", "offload_optimizer"),
            ("offload_param_device", "offload_parameters"),
        ):
            device = section.get(key, "none")
            device = device if device in ("cpu", "nvme") else "none"
            usable = (stage or 0) >= (3 if name == "offload_parameters" else 1)
            out.give(name, device if usable else "none", doc, (*where, key))
        accum = as_int(section.get("gradient_accumulation_steps"))
        out.give("grad_accum", accum, doc, (*where, "gradient_accumulation_steps"))
    elif kind == "FSDP":
        fsdp(out, doc, doc.section("fsdp_config"), ("fsdp_config",))
        degrees = doc.section("parallelism_config")
        for axis in ("tp", "cp"):
            key = f"parallelism_config_{axis}_size"
            out.give(axis, as_int(degrees.get(key)), doc, ("parallelism_config", key))
    elif kind in ("MULTI_GPU", "NO"):
        out.give("stack", "deepspeed", doc, ("distributed_type",), "default")
        out.give("zero_stage", 0, doc, ("distributed_type",))


def _single(out: Settings, doc: Document, ctx: Context) -> None:
    """No mixed precision: fp32, unless the trainer's flags ask for 16 bit."""
    trainer = ctx.trainer
    if trainer is None or not any(as_bool(trainer.get(name)) for name in ("bf16", "fp16", "tf32")):
        held = doc.has("mixed_precision")
        how = "file" if held else "default"
        out.give("precision", "fp32", doc, ("mixed_precision",) if held else (), how)


def fsdp(out: Settings, doc: Document, section: Mapping[str, Value], where: Path) -> None:
    """Settings of an FSDP section, with or without the ``fsdp_`` prefix."""

    def read(name: str) -> tuple[Value, Path]:
        for key in (f"fsdp_{name}", name):
            if key in section:
                return section[key], (*where, key)
        return None, where

    out.give("stack", "fsdp2", doc, where)
    strategy, path = read("sharding_strategy")
    reshard, reshard_path = read("reshard_after_forward")
    stage = {
        "SHARD_GRAD_OP": 2,
        "2": 2,
        "HYBRID_SHARD_ZERO2": 2,
        "5": 2,
        "NO_SHARD": 0,
        "3": 0,
    }.get(str(strategy).upper(), 3)
    if reshard is not None and as_bool(reshard) is False:
        stage, path = 2, reshard_path
    out.give("zero_stage", stage, doc, path)
    offload, path = read("offload_params")
    tier = "cpu" if as_bool(offload) else "none"
    out.give("offload_optimizer", tier, doc, path)
    out.give("offload_parameters", tier, doc, path)
    checkpoint, path = read("activation_checkpointing")
    if as_bool(checkpoint):
        out.give("recompute", "full", doc, path)


def plan(out: Settings, doc: Document, ctx: Context) -> None:
    """Settings of a plan.json."""
    given = plan_of(doc.data)
    nested = given is not doc.data
    for name in (*AXES, "stack"):
        value = given.get(name)
        if isinstance(value, bool):
            value = int(value)
        out.give(name, value, doc, ("plan", name) if nested else (name,))
    out.gpus = as_int(given.get("gpus"))
    job = doc.section("job")
    for name in ("seq_len", "global_batch", "optimizer", "grad_dtype", "cross_entropy"):
        if job.get(name) != "auto":
            out.give(name, job.get(name), doc, ("job", name))
