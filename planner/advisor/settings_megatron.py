"""Settings of Megatron argument lists."""

from __future__ import annotations

from planner.advisor.settings import Settings
from planner.lint.context import Context
from planner.lint.document import Document, as_int
from planner.lint.megatron_flags import deepspeed as is_megatron_deepspeed
from planner.lint.megatron_flags import number, on


def megatron(out: Settings, doc: Document, ctx: Context) -> None:
    """Settings of a Megatron argument list."""
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
