"""A file's settings in the planner's words, with what stayed open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from planner.advise.readers import Reading
from planner.lint.context import Context
from planner.lint.deepspeed_facts import AUTO, DeepSpeedFacts
from planner.lint.document import Document, Path, Value, as_bool, as_int, dotted
from planner.lint.megatron_rules import deepspeed as is_megatron_deepspeed
from planner.lint.megatron_rules import number, on
from planner.lint.plan_rules import plan_of

AXES: tuple[str, ...] = (
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "micro_batch",
    "grad_accum",
    "virtual_stages",
    "zero_stage",
)
AXES += ("precision", "attention", "recompute", "sequence_parallel", "offload_optimizer")
AXES += ("offload_parameters",)
OTHERS = ("stack", "optimizer", "seq_len", "global_batch", "grad_dtype", "cross_entropy", "tuning")
NAMES = (*AXES, *OTHERS)


class Setting(BaseModel):
    """One value: ``how`` is file, filled (an ``auto``), default (the framework's) or assumed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: int | float | str | bool
    how: str
    file: str = ""
    key: str = ""


@dataclass(slots=True)
class Settings:
    """Settings found so far; the first source of a value wins."""

    values: dict[str, Setting] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    gpus: int | None = None  # processes the files speak of

    def give(
        self, name: str, value: Value, doc: Document | None, path: Path = (), how: str = "file"
    ) -> None:
        """Record a value unless it is unknown or already there."""
        if value is None or name in self.values or isinstance(value, list | Mapping):
            return
        key = dotted(path)
        if doc is not None and doc.format == "arguments" and path:
            key = doc.spelling.get(str(path[0]), f"--{path[0]}")
        self.values[name] = Setting(
            value=value, how=how, file=doc.name if doc is not None else "", key=key
        )

    def get(self, name: str) -> Value:
        """A value, None if unknown."""
        return self.values[name].value if name in self.values else None

    def assume(self, name: str, value: Value, why: str) -> None:
        """Fill a gap, and say so."""
        if name not in self.values:
            self.values[name] = Setting(value=value, how="assumed")
            self.assumed.append(f"{name} {value}: {why}")

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names without a value."""
        return tuple(name for name in NAMES if name not in self.values)


def settings_of(reading: Reading, ctx: Context) -> Settings:
    """Everything the file and its partners say."""
    out = Settings()
    doc = reading.document
    _READERS[doc.kind](out, doc, ctx)
    for partner in ctx.partners:
        if partner.kind in ("plan", "deepspeed", "accelerate") and partner.name != doc.name:
            _READERS[partner.kind](out, partner, ctx)
    if ctx.trainer is not None and ctx.trainer is not doc:
        _READERS["trainer"](out, ctx.trainer, ctx)
    if doc.kind in ("trainer", "llamafactory", "axolotl"):
        out.give("zero_stage", 0, doc, how="default")
        out.give("stack", "deepspeed", doc, how="default")
    return out


# --- DeepSpeed ---


def _deepspeed(out: Settings, doc: Document, ctx: Context) -> None:
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
        out.give("optimizer", _OPTIMIZERS.get(name, name), doc, ("optimizer", "type"))
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
    if facts.half is False and not facts.ctx.hugging_face:
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


# --- Accelerate ---


def _accelerate(out: Settings, doc: Document, ctx: Context) -> None:
    out.gpus = out.gpus or as_int(doc.get("num_processes"))
    kind = doc.get("distributed_type")
    mixed = doc.get("mixed_precision")
    partner = ctx.partner("deepspeed")
    if partner is not None and doc.get("deepspeed_config", "deepspeed_config_file"):
        _deepspeed(out, partner, ctx)
    if mixed in ("bf16", "fp16", "fp8"):
        out.give("precision", mixed, doc, ("mixed_precision",))
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
        _fsdp(out, doc, doc.section("fsdp_config"), ("fsdp_config",))
        degrees = doc.section("parallelism_config")
        for axis in ("tp", "cp"):
            key = f"parallelism_config_{axis}_size"
            out.give(axis, as_int(degrees.get(key)), doc, ("parallelism_config", key))
    elif kind in ("MULTI_GPU", "NO"):
        out.give("stack", "deepspeed", doc, ("distributed_type",), "default")
        out.give("zero_stage", 0, doc, ("distributed_type",))


def _fsdp(out: Settings, doc: Document, section: Mapping[str, Value], where: Path) -> None:
    def read(name: str) -> tuple[Value, Path]:
        for key in (f"fsdp_{name}", name):
            if key in section:
                return section[key], (*where, key)
        return None, where

    out.give("stack", "fsdp2", doc, where)
    strategy, path = read("sharding_strategy")
    reshard, reshard_path = read("reshard_after_forward")
    stage = {"SHARD_GRAD_OP": 2, "2": 2, "NO_SHARD": 0, "3": 0}.get(str(strategy).upper(), 3)
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


# --- trainers ---

_OPTIMIZERS = {
    "adamw_torch": "adamw",
    "adamw_torch_fused": "adamw",
    "adamw_hf": "adamw",
    "adamw_apex_fused": "adamw",
    "fusedadam": "adamw",
    "deepspeedcpuadam": "adamw",
    "adamw_bnb_8bit": "adam8bit",
    "adamw_8bit": "adam8bit",
    "paged_adamw_8bit": "adam8bit",
    "adamw_torch_8bit": "adam8bit",
    "paged_adamw_32bit": "adamw",
    "paged_adamw": "adamw",
    "lion_32bit": "lion",
    "lion_8bit": "lion",
    "paged_lion_8bit": "lion",
    "rmsprop": "momentum",
    "adagrad": "momentum",
}
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


def _trainer(out: Settings, doc: Document, ctx: Context) -> None:
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
        if "shard_grad_op" in words:
            out.give("zero_stage", 2, doc, ("fsdp",))
        if "offload" in words:
            out.give("offload_optimizer", "cpu", doc, ("fsdp",))
            out.give("offload_parameters", "cpu", doc, ("fsdp",))
        _fsdp(out, doc, section, ("fsdp",))


def _common_trainer(out: Settings, doc: Document) -> None:
    length, path = _first(doc, _LENGTHS)
    out.give("seq_len", as_int(length), doc, path)
    optimizer, path = _first(doc, ("optim", "optimizer"))
    if isinstance(optimizer, str):
        name = optimizer.lower().replace("optimizernames.", "")
        name = _OPTIMIZERS.get(name, name)
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
    stage = {"always": 3, "never": 2}.get(str(doc.get(flag)))
    out.give("zero_stage", stage, doc, (flag,))
    offload = "cpu" if as_bool(doc.get("training.enable_cpu_offload")) else "none"
    out.give("offload_optimizer", offload, doc, ("training.enable_cpu_offload",))
    out.give("offload_parameters", offload, doc, ("training.enable_cpu_offload",))


def _llamafactory(out: Settings, doc: Document, ctx: Context) -> None:
    _trainer(out, doc, ctx)
    off = as_bool(doc.get("disable_gradient_checkpointing"))
    recompute = "none" if off else "full"
    out.give("recompute", recompute, doc, ("disable_gradient_checkpointing",), "default")
    out.give("micro_batch", 8, doc, how="default")
    out.give("grad_accum", 1, doc, how="default")
    out.give("seq_len", 2048, doc, how="default")
    kind = doc.get("finetuning_type", default="lora")
    out.give("tuning", kind if isinstance(kind, str) else None, doc, ("finetuning_type",))


def _axolotl(out: Settings, doc: Document, ctx: Context) -> None:
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
        _fsdp(out, doc, section, ("fsdp_config",))
    out.give(
        "recompute", "full" if checkpoint else "none", doc, path, "file" if path else "default"
    )
    adapter = doc.get("adapter")
    out.give("tuning", adapter if isinstance(adapter, str) and adapter else "full", doc)
    for axis, key in (("tp", "tensor_parallel_size"), ("cp", "context_parallel_size")):
        out.give(axis, as_int(doc.get(key)), doc, (key,))


# --- Megatron ---


def _megatron(out: Settings, doc: Document, ctx: Context) -> None:
    deepspeed = is_megatron_deepspeed(doc)
    out.give("stack", "megatron-deepspeed" if deepspeed else "megatron", doc)
    context = "ds_sequence_parallel_size" if deepspeed else "context_parallel_size"
    degrees = (
        ("tp", "tensor_model_parallel_size", 1),
        ("pp", "pipeline_model_parallel_size", 1),
        ("cp", context, 1),
        ("ep", "expert_model_parallel_size", 1),
        ("micro_batch", "micro_batch_size", None),
        ("global_batch", "global_batch_size", None),
        ("seq_len", "seq_length", None),
    )
    for name, flag, default in degrees:
        how = "file" if doc.has(flag) else "default"
        out.give(name, number(doc, flag, default), doc, (flag,) if doc.has(flag) else (), how)
    _virtual(out, doc)
    precision = "bf16" if on(doc, "bf16") else "fp16" if on(doc, "fp16") else "fp32"
    out.give("precision", "fp8" if doc.has("fp8_format") else precision, doc, (precision,))
    _megatron_recompute(out, doc, deepspeed)
    out.give("sequence_parallel", int(on(doc, "sequence_parallel")), doc, ("sequence_parallel",))
    stage = number(doc, "zero_stage")
    partner = ctx.partner("deepspeed")
    if stage is None and partner is not None:
        stage = as_int(partner.get("zero_optimization", "stage", default=0))
    sharded = on(doc, "use_distributed_optimizer")
    fsdp = on(doc, "use_megatron_fsdp") or on(doc, "use_torch_fsdp2")
    flag = "zero_stage" if deepspeed else "use_distributed_optimizer"
    found = stage if deepspeed else 3 if fsdp else int(sharded)
    out.give("zero_stage", found if found is not None else 0, doc, (flag,))
    offload = on(doc, "optimizer_cpu_offload") or on(doc, "cpu_optimizer")
    out.give("offload_optimizer", "cpu" if offload else "none", doc, ("optimizer_cpu_offload",))
    out.give("offload_parameters", "none", doc, how="default")
    optimizer = doc.get("optimizer", default="adam")
    out.give("optimizer", {"adam": "adamw", "sgd": "momentum"}.get(str(optimizer)), doc)
    flash = not deepspeed or on(doc, "use_flash_attn") or on(doc, "use_flash_attn_v2")
    local = doc.get("transformer_impl") == "local" and not on(doc, "use_flash_attn")
    flash = flash and not local and doc.get("attention_backend") not in ("unfused", "local")
    out.give("attention", "flash" if flash else "eager", doc, how="default")
    if on(doc, "cross_entropy_loss_fusion"):
        out.give("cross_entropy", "fused", doc, ("cross_entropy_loss_fusion",))
    if on(doc, "grad_reduce_in_bf16"):
        out.give("grad_dtype", "bf16", doc, ("grad_reduce_in_bf16",))


def _virtual(out: Settings, doc: Document) -> None:
    per_rank = number(doc, "num_virtual_stages_per_pipeline_rank")
    per_stage = number(doc, "num_layers_per_virtual_pipeline_stage")
    layers, stages = number(doc, "num_layers"), as_int(out.get("pp"))
    if per_rank:
        out.give("virtual_stages", per_rank, doc, ("num_virtual_stages_per_pipeline_rank",))
    elif per_stage and layers and stages and per_stage > 0:
        held = max(1, layers // stages // per_stage)
        out.give("virtual_stages", held, doc, ("num_layers_per_virtual_pipeline_stage",))
    out.give("virtual_stages", 1, doc, how="default")


def _megatron_recompute(out: Settings, doc: Document, deepspeed: bool) -> None:
    mode = doc.get("recompute_granularity")
    if mode in ("full", "selective"):
        out.give("recompute", mode, doc, ("recompute_granularity",))
    elif on(doc, "recompute_activations"):
        out.give("recompute", "selective", doc, ("recompute_activations",))
    elif on(doc, "checkpoint_activations") or on(doc, "deepspeed_activation_checkpointing"):
        out.give("recompute", "full", doc, ("checkpoint_activations",))
    out.give("recompute", "none", doc, how="default")


# --- plan.json ---


def _plan(out: Settings, doc: Document, ctx: Context) -> None:
    plan = plan_of(doc.data)
    nested = plan is not doc.data
    for name in (*AXES, "stack"):
        value = plan.get(name)
        if isinstance(value, bool):
            value = int(value)
        out.give(name, value, doc, ("plan", name) if nested else (name,))
    out.gpus = as_int(plan.get("gpus"))
    job = doc.section("job")
    for name in ("seq_len", "global_batch", "optimizer", "grad_dtype", "cross_entropy"):
        if job.get(name) != "auto":
            out.give(name, job.get(name), doc, ("job", name))


_READERS: Mapping[str, Callable[[Settings, Document, Context], None]] = {
    "deepspeed": _deepspeed,
    "accelerate": _accelerate,
    "trainer": _trainer,
    "llamafactory": _llamafactory,
    "axolotl": _axolotl,
    "megatron": _megatron,
    "plan": _plan,
}
