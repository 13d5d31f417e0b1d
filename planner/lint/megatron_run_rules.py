"""Megatron argument lists: switches that need or exclude each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from planner.lint.document import Value, as_int
from planner.lint.megatron_flags import TC, VA, cp, deepspeed, is_open, number, on, pp, tp
from planner.lint.rule import Facts, Hit, Rule, remove_key, set_key


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
    if device is not None and device.architecture.startswith("Blackwell"):
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
        if is_open(facts.doc) or not facts.doc.has("micro_batch_size"):
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


_MDS = "Megatron-DeepSpeed (July 2025), megatron/arguments.py"


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        "mg-sequence-parallel",
        "warning",
        "sequence parallelism needs tensor parallelism; it is switched off",
        "take it out, or use tp 2 or more",
        VA,
        sequence_parallel,
    ),
    Rule(
        "mg-overlap-needs-sp",
        "error",
        "--tp-comm-overlap needs --sequence-parallel",
        "add --sequence-parallel",
        VA,
        overlap_needs_sp,
    ),
    Rule(
        "mg-moe-needs-sp",
        "error",
        "experts with tensor parallelism need --sequence-parallel",
        "add --sequence-parallel",
        TC,
        moe_needs_sp,
    ),
    Rule("mg-needs", "error", "--{flag} needs --{need}", "add --{need}", VA, optimizer_overlap),
    Rule("mg-experts", "error", "expert parallelism: {what}", "change the degree", VA, experts),
    Rule(
        "mg-connections",
        "warning",
        "CUDA_DEVICE_MAX_CONNECTIONS: {what}",
        "export it accordingly in the script",
        VA,
        connections,
    ),
    Rule(
        "mg-precision",
        "error",
        "{what}",
        "use one of bf16 and fp16, as the GPU has it",
        VA,
        precision,
    ),
    Rule("mg-torch-fsdp2", "error", "--use-torch-fsdp2 needs {need}", "change it", VA, torch_fsdp),
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
