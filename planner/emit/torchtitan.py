"""Flags of torchtitan 0.3.0, and the model file that gives it the network.

Names from torchtitan 0.3.0: torchtitan/config/configs.py, torchtitan/trainer.py,
torchtitan/distributed/activation_checkpoint.py. Later releases rename the batch fields.
"""

from __future__ import annotations

from costmodels.architecture import Architecture
from planner.emit.launch import Argument, Launch, Script, launch_script
from planner.emit.recipe import GRADIENT_CLIPPING, LOG_EVERY, RECIPES, TRAIN_STEPS, WARMUP_STEPS
from planner.emit.refusal import one_recompute, require, whole_offload
from planner.emit.rope import one_base, titan_scaling, unscaled_note
from planner.emit.text import render
from planner.job import Job
from planner.plan import Plan

NAME = "torchtitan 0.3.0"
MODEL = "titan_model"  # module beside launch.sh


def emit_torchtitan(job: Job, plan: Plan) -> dict[str, str]:
    """launch.sh and titan_model.py.

    Raises
    ------
    ValueError
        If torchtitan cannot do what the plan says.
    """
    check(job, plan)
    launch = Launch(
        script=Script(module="torchtitan.train", last=f"activation-checkpoint:{checkpoint(plan)}"),
        plan_args=plan_arguments(job, plan),
        train_args=[
            ("--hf_assets_path", "$HF_ASSETS_PATH"),
            ("--training.steps", str(TRAIN_STEPS)),
            ("--metrics.log_freq", str(LOG_EVERY)),
        ],
        import_here=True,
        required=[
            (
                "HF_ASSETS_PATH",
                "set HF_ASSETS_PATH to a folder with the model's tokenizer (tokenizer.json), for"
                " example one that scripts/download_hf_assets.py of torchtitan made",
            )
        ],
    )
    return {
        "launch.sh": launch_script(job, plan, launch),
        f"{MODEL}.py": model_file(job, plan),
    }


def check_job(job: Job) -> None:
    """Refuse an optimizer, dropout or gradient dtype that no plan can make up for."""
    require(
        job.spec.optimizer in ("adam", "adamw"), NAME, f"it has no {job.spec.optimizer} optimizer"
    )
    require(job.spec.dropout == 0, NAME, "its models have no dropout")
    require(job.spec.grad_dtype in ("auto", "fp32"), NAME, "mixed_precision_reduce is fp32")


def check(job: Job, plan: Plan) -> None:
    """Refuse what the flags and the model code cannot say."""
    check_model(job.architecture, job.seq_len)
    check_job(job)
    require(plan.zero_stage != 1, NAME, "FSDP2 shards gradients with the optimizer: ZeRO-0, 2 or 3")
    require(plan.precision != "fp16", NAME, "it trains in fp32, tf32, bf16 or fp8, not fp16")
    require(plan.attention != "eager", NAME, "its attention is flash (varlen) or fused (flex)")
    require(
        plan.attention != "flash" or plan.cp == 1,
        NAME,
        "context parallelism runs with flex attention, not with flash (varlen)",
    )
    require(
        "nvme" not in (plan.offload_optimizer, plan.offload_parameters), NAME, "no NVMe offload"
    )
    require(
        plan.offload_optimizer == plan.offload_parameters,
        NAME,
        "enable_cpu_offload moves parameters and optimizer together",
    )
    require(
        plan.offload_optimizer == "none" or plan.zero_stage >= 2,
        NAME,
        "offload is a policy of sharded parameters (ZeRO-2 or 3)",
    )
    require(plan.ep == 1, NAME, f"ep {plan.ep}: models with experts are not written yet")
    require(
        plan.pp == 1 or not job.architecture.tied_embeddings,
        NAME,
        "a pipeline cannot share the embedding with the head",
    )
    whole_offload(plan, NAME)
    checkpoint(plan)


def check_model(arch: Architecture, seq_len: int) -> None:
    """Refuse a network that neither its Llama nor its Qwen3 code builds."""
    plain = (
        arch.kind == "decoder"
        and arch.moe is None
        and arch.mla is None
        and arch.gated_mlp
        and arch.activation == "silu"
        and arch.norm == "rmsnorm"
        and arch.norms_per_layer == 2
        and arch.positional == "rope"
        and arch.bias == "none"
        and not arch.parallel_residual
        and not arch.attention_sinks
        and not arch.qk_norm_wide
    )
    require(plain, NAME, f"{arch.name} is no dense Llama- or Qwen3-type network")
    require(
        not 0 < arch.sliding_window < seq_len,
        NAME,
        f"its Llama has no sliding window ({arch.sliding_window} tokens)",
    )
    require(
        arch.qk_norm or arch.head_dim * arch.heads == arch.hidden,
        NAME,
        f"its Llama has heads of hidden / heads, not {arch.head_dim}",
    )
    require(
        arch.rope_fraction == 1, NAME, f"it turns whole heads, not {arch.rope_fraction:g} of each"
    )
    one_base(arch, NAME)


def rope_note(arch: Architecture) -> str:
    """What of the rotary positions gets lost; empty if nothing."""
    return "" if titan_scaling(arch) else unscaled_note(arch, NAME)


def model_refusal(job: Job) -> str:
    """Why torchtitan cannot build the job's network; empty if it can."""
    try:
        check_model(job.architecture, job.seq_len)
    except ValueError as refusal:
        return str(refusal)
    return ""


def checkpoint(plan: Plan) -> str:
    """The subcommand that turns activation checkpointing on."""
    granularity = one_recompute(plan, NAME)
    require(
        granularity in ("none", "selective", "full"),
        NAME,
        f"activation checkpointing is none, selective or full, not {granularity}",
    )
    return granularity


def plan_arguments(job: Job, plan: Plan) -> list[Argument]:
    """Everything the plan decides that is a flag; stages are in the model file.

    Without a pipeline ``local_batch_size`` is the micro-batch and accumulation follows from
    ``global_batch_size``. With one, it is all that a replica computes in a step, cut into
    micro-batches of ``pipeline_parallel_microbatch_size``.
    """
    pipelined = plan.pp > 1
    local = plan.micro_batch * (plan.grad_accum if pipelined else 1)
    sharded = plan.zero_stage >= 2
    # tf32 is fp32 with a faster matrix unit, switched on by the environment
    param = "float32" if plan.precision in ("fp32", "tf32") else "bfloat16"
    arguments: list[Argument] = [
        ("--module", MODEL),
        ("--config", "plan"),
        ("--training.seq_len", str(job.seq_len)),
        ("--training.local_batch_size", str(local)),
        ("--training.global_batch_size", str(plan.micro_batch * plan.grad_accum * plan.dp)),
        ("--training.max_norm", str(GRADIENT_CLIPPING)),
        ("--training.dtype", "float32"),
        ("--training.mixed_precision_param", param),
        ("--training.mixed_precision_reduce", "float32"),
        ("--parallelism.data_parallel_replicate_degree", str(1 if sharded else plan.dp)),
        ("--parallelism.data_parallel_shard_degree", str(plan.dp if sharded else 1)),
        ("--parallelism.fsdp_reshard_after_forward", _resharding(plan)),
        ("--parallelism.tensor_parallel_degree", str(plan.tp)),
        ("--parallelism.context_parallel_degree", str(plan.cp)),
        ("--parallelism.pipeline_parallel_degree", str(plan.pp)),
    ]
    if plan.tp > 1:
        switch = "" if plan.sequence_parallel else "no_"
        arguments.append((f"--parallelism.{switch}enable_sequence_parallel",))
    if pipelined:
        schedule = "Interleaved1F1B" if plan.virtual_stages > 1 else "1F1B"
        arguments += [
            ("--parallelism.pipeline_parallel_schedule", schedule),
            ("--parallelism.pipeline_parallel_microbatch_size", str(plan.micro_batch)),
        ]
    arguments.append(("--training.disable_cuda_graphs",))
    if plan.offload_parameters == "cpu":
        arguments.append(("--training.enable_cpu_offload",))
    return arguments


def _resharding(plan: Plan) -> str:
    """When layers are freed between their forward and their backward.

    In a pipeline never, as torchtitan's default has it (torchtitan/distributed/fsdp.py,
    get_fsdp_reshard_after_forward_policy): every forward would gather them again, and the
    backwards that reduce nothing leave them gathered all the same.
    """
    if plan.zero_stage < 3:
        return "never"
    return "always" if plan.pp == 1 else "default"


def stage_modules(arch: Architecture, plan: Plan) -> list[list[str]]:
    """Module names of every pipeline stage, in the order a micro-batch passes them."""
    from planner.emit.megatron_layout import chunk_layers

    stages: list[list[str]] = []
    layer = 0
    for count in (count for chunk in chunk_layers(plan) for count in chunk):
        stages.append([f"layers.{index}" for index in range(layer, layer + count)])
        layer += count
    stages[0].insert(0, "tok_embeddings")
    stages[-1] += ["norm", "lm_head"]
    return stages


def model_file(job: Job, plan: Plan) -> str:
    """titan_model.py: the network, its optimizer and its loss as a torchtitan configuration."""
    arch = job.architecture
    recipe = RECIPES[job.spec.optimizer]
    return render(
        "titan_model.py.j2",
        arch=arch,
        rope_scaling=titan_scaling(arch),
        comment=f"{arch.name} for torchtitan 0.3.0",
        attention="varlen" if plan.attention == "flash" else "flex",
        optimizer="AdamW" if job.spec.optimizer == "adamw" else "Adam",
        recipe=recipe,
        warmup=WARMUP_STEPS,
        chunked=loss_kind(job, plan) == "chunked",
        fused=loss_kind(job, plan) == "fused",
        fp8=plan.precision == "fp8",
        stages=stage_modules(arch, plan) if plan.pp > 1 else None,
        max_seq_len=job.seq_len,
    )


def loss_kind(job: Job, plan: Plan) -> str:
    """The loss: asked for, or what the memory model of the stack counts."""
    if job.spec.cross_entropy != "auto":
        return job.spec.cross_entropy
    stack = next((s for s in job.stacks if s.name == plan.stack), None)
    return stack.memory.cross_entropy if stack else "eager"
