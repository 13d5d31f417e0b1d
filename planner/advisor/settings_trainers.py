"""Settings of trainer flags, LLaMA-Factory and axolotl YAML."""

from __future__ import annotations

from planner.advisor.settings import OPTIMIZERS, Settings
from planner.advisor.settings_engines import fsdp
from planner.lint.context import Context
from planner.lint.document import Document, Path, Value, as_bool, as_int

_KNOWN = ("sgd", "momentum", "adam", "adamw", "adafactor", "adam8bit", "lion", "muon")


_LENGTHS: tuple[str, ...] = (
    "cutoff_len",
    "max_seq_length",
    "max_length",
    "model_max_length",
    "block_size",
)


_LENGTHS += ("sequence_len", "max_seq_len", "seq_length")


def _first(doc: Document, names: tuple[str, ...]) -> tuple[Value, Path]:
    return next(((doc.get(n), (n,)) for n in names if doc.get(n) is not None), (None, ()))


def trainer(out: Settings, doc: Document, ctx: Context) -> None:
    """Settings of Hugging Face trainer flags."""
    batch = ("per_device_train_batch_size", "per_gpu_train_batch_size")
    value, path = _first(doc, batch)
    out.give("micro_batch", as_int(value), doc, path)
    out.give(
        "grad_accum",
        as_int(doc.get("gradient_accumulation_steps")),
        doc,
        ("gradient_accumulation_steps",),
    )
    for name in ("bf16", "fp16"):
        if as_bool(doc.get(name)):
            out.give("precision", name, doc, (name,))
    if as_bool(doc.get("tf32")):
        out.give("precision", "tf32", doc, ("tf32",))
    _common_trainer(out, doc)
    if doc.has("parallelism.data_parallel_shard_degree"):
        _titan(out, doc)
    checkpoint, path = _first(doc, ("gradient_checkpointing", "activation_checkpointing"))
    if checkpoint is not None:
        out.give("recompute", "full" if as_bool(checkpoint) else "none", doc, path)
    if doc.get("fsdp"):
        section = doc.section("fsdp_config")
        text = doc.get("fsdp")
        words = " ".join(map(str, text)) if isinstance(text, list) else str(text)
        if "shard_grad_op" in words or "hybrid_shard_zero2" in words:
            out.give("zero_stage", 2, doc, ("fsdp",))
        if "offload" in words:
            out.give("offload_optimizer", "cpu", doc, ("fsdp",))
            out.give("offload_parameters", "cpu", doc, ("fsdp",))
        fsdp(out, doc, section, ("fsdp",))


def _common_trainer(out: Settings, doc: Document) -> None:
    length, path = _first(doc, _LENGTHS)
    out.give("seq_len", as_int(length), doc, path)
    optimizer, path = _first(doc, ("optim", "optimizer"))
    if isinstance(optimizer, str):
        name = optimizer.lower().replace("optimizernames.", "")
        name = OPTIMIZERS.get(name, name)
        out.give("optimizer", name if name in _KNOWN else None, doc, path)
    attention, path = _first(doc, ("attn_implementation", "flash_attn"))
    if isinstance(attention, str):
        kind = "flash" if "fa" in attention or "flash" in attention else None
        kind = "eager" if attention in ("eager", "disabled") else kind
        out.give("attention", kind, doc, path)
    for flag in ("use_liger_kernel", "enable_liger_kernel", "liger_fused_linear_cross_entropy"):
        if as_bool(doc.get(flag)):
            out.give("cross_entropy", "chunked", doc, (flag,))
    if as_bool(doc.get("use_peft")) or as_bool(doc.get("use_lora")) or as_int(doc.get("lora_r")):
        out.give("tuning", "lora", doc)


def _titan(out: Settings, doc: Document) -> None:
    """Flags of torchtitan 0.3."""
    pairs = (
        ("tp", "parallelism.tensor_parallel_degree"),
        ("pp", "parallelism.pipeline_parallel_degree"),
        ("cp", "parallelism.context_parallel_degree"),
        ("ep", "parallelism.expert_parallel_degree"),
        ("micro_batch", "training.local_batch_size"),
        ("global_batch", "training.global_batch_size"),
        ("seq_len", "training.seq_len"),
    )
    out.give("stack", "fsdp2", doc)
    for name, flag in pairs:
        out.give(name, as_int(doc.get(flag)), doc, (flag,))
    half = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    flag = "training.mixed_precision_param"
    out.give("precision", half.get(str(doc.get(flag))), doc, (flag,))
    flag = "parallelism.fsdp_reshard_after_forward"
    stage = {"always": 3, "default": 3, "never": 2}.get(str(doc.get(flag)))
    out.give("zero_stage", stage, doc, (flag,))
    offload = "cpu" if as_bool(doc.get("training.enable_cpu_offload")) else "none"
    out.give("offload_optimizer", offload, doc, ("training.enable_cpu_offload",))
    out.give("offload_parameters", offload, doc, ("training.enable_cpu_offload",))


def llamafactory(out: Settings, doc: Document, ctx: Context) -> None:
    """Settings of a LLaMA-Factory YAML, its own defaults included."""
    trainer(out, doc, ctx)
    off = as_bool(doc.get("disable_gradient_checkpointing"))
    recompute = "none" if off else "full"
    out.give("recompute", recompute, doc, ("disable_gradient_checkpointing",), "default")
    out.give("micro_batch", 8, doc, how="default")
    out.give("grad_accum", 1, doc, how="default")
    out.give("seq_len", 2048, doc, how="default")
    kind = doc.get("finetuning_type", default="lora")
    out.give("tuning", kind if isinstance(kind, str) else None, doc, ("finetuning_type",))


def axolotl(out: Settings, doc: Document, ctx: Context) -> None:
    """Settings of an axolotl YAML."""
    out.give("micro_batch", as_int(doc.get("micro_batch_size")), doc, ("micro_batch_size",))
    accum = as_int(doc.get("gradient_accumulation_steps"))
    out.give("grad_accum", accum, doc, ("gradient_accumulation_steps",))
    half = doc.get("bf16", default=doc.get("bfloat16"))
    device = ctx.device
    if half in ("auto", "full") or half is True:
        bf16 = device is None or "bf16" in device.supports or half is True
        out.give("precision", "bf16" if bf16 else "fp16", doc, ("bf16",))
    elif as_bool(doc.get("fp16")):
        out.give("precision", "fp16", doc, ("fp16",))
    _common_trainer(out, doc)
    if any(as_bool(doc.get(n)) for n in ("flash_attention", "xformers_attention", "sdp_attention")):
        out.give("attention", "flash", doc, ("flash_attention",))
    checkpoint, path = _first(doc, ("gradient_checkpointing", "activation_checkpointing"))
    section = doc.section("fsdp_config")
    if doc.get("fsdp") or section:
        fsdp(out, doc, section, ("fsdp_config",))
    out.give(
        "recompute", "full" if checkpoint else "none", doc, path, "file" if path else "default"
    )
    adapter = doc.get("adapter")
    out.give("tuning", adapter if isinstance(adapter, str) and adapter else "full", doc)
    for axis, key in (("tp", "tensor_parallel_size"), ("cp", "context_parallel_size")):
        out.give(axis, as_int(doc.get(key)), doc, (key,))
