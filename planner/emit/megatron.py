"""Arguments of Megatron-LM's pretrain_gpt.py, core release 0.16.1.

Names and checks from megatron/training/arguments.py (validate_args) and
megatron/core/transformer/transformer_config.py of that release.
"""

from __future__ import annotations

from planner.emit.launch import Argument, Launch, Script, launch_script
from planner.emit.layout import single_connection
from planner.emit.megatron_layout import chunk_layers, needs_layout, pipeline_layout
from planner.emit.megatron_model import (
    NAME,
    SCHEDULE_ARGUMENTS,
    check_model,
    model_arguments,
    recipe_arguments,
)
from planner.emit.recipe import LOG_EVERY, TRAIN_STEPS
from planner.emit.refusal import require, whole_offload
from planner.job import Job
from planner.plan import Plan


def emit_megatron(job: Job, plan: Plan) -> dict[str, str]:
    """launch.sh.

    Raises
    ------
    ValueError
        If Megatron-LM cannot do what the plan says.
    """
    check(job, plan)
    launch = Launch(
        script=Script(
            missing="set TRAIN_SCRIPT to pretrain_gpt.py of a Megatron-LM checkout (tag"
            " core_v0.16.1), for example: TRAIN_SCRIPT=~/Megatron-LM/pretrain_gpt.py bash"
            " launch.sh"
        ),
        plan_args=[*model_arguments(job, plan), *plan_arguments(job, plan)],
        train_args=data_arguments(job),
        fixed={"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if single_connection(job, plan) else {},
    )
    return {"launch.sh": launch_script(job, plan, launch)}


def check_job(job: Job) -> None:
    """Refuse a network, GPU, optimizer or loss that no plan can make up for."""
    check_model(job.architecture)
    gpu = job.cluster.node.gpu
    require(
        gpu.compute_capability is None or gpu.compute_capability >= (8, 0),
        NAME,
        f"Transformer Engine needs Ampere or newer, not {gpu.name}",
    )
    require(
        job.spec.optimizer in ("adam", "adamw", "sgd", "momentum"),
        NAME,
        f"{job.spec.optimizer} is not among its optimizers that share state over ranks",
    )
    require(job.spec.cross_entropy != "chunked", NAME, "its loss is eager or fused, not chunked")


def check(job: Job, plan: Plan) -> None:
    """Refuse what the arguments cannot say."""
    check_job(job)
    require(
        plan.zero_stage <= 1, NAME, f"ZeRO-{plan.zero_stage}: its distributed optimizer is ZeRO-1"
    )
    require(plan.precision != "tf32", NAME, "it has no switch for tf32")
    require(plan.offload_parameters == "none", NAME, "it keeps parameters on the GPU")
    require(plan.offload_optimizer != "nvme", NAME, "it offloads the optimizer to host RAM only")
    require(
        plan.offload_optimizer == "none" or job.spec.optimizer in ("adam", "adamw"),
        NAME,
        f"it offloads Adam, not {job.spec.optimizer}",
    )
    whole_offload(plan, NAME)
    require(
        plan.virtual_stages == 1 or plan.grad_accum % plan.pp == 0,
        NAME,
        f"interleaving needs grad_accum {plan.grad_accum} to be a multiple of pp {plan.pp}",
    )
    require(
        plan.ep == 1 or job.architecture.moe is not None,
        NAME,
        f"ep {plan.ep} needs a model with experts",
    )
    recompute_arguments(plan)


def plan_arguments(job: Job, plan: Plan) -> list[Argument]:
    """Everything the plan decides, then the recipe."""
    arguments: list[Argument] = [
        ("--tensor-model-parallel-size", str(plan.tp)),
        ("--pipeline-model-parallel-size", str(plan.pp)),
        *stage_arguments(job, plan),
        ("--micro-batch-size", str(plan.micro_batch)),
        ("--global-batch-size", str(plan.micro_batch * plan.grad_accum * plan.dp)),
    ]
    if plan.sequence_parallel:
        arguments.append(("--sequence-parallel",))
    if plan.cp > 1:
        arguments += [("--context-parallel-size", str(plan.cp)), ("--cp-comm-type", "p2p")]
    if plan.ep > 1:
        arguments.append(("--expert-model-parallel-size", str(plan.ep)))
    arguments += precision_arguments(job, plan)
    backend = {"flash": "flash", "efficient": "fused", "eager": "unfused"}[plan.attention]
    arguments.append(("--attention-backend", backend))
    arguments += cross_entropy(job, plan)
    arguments += recompute_arguments(plan)
    arguments += sharding_arguments(plan)
    return [*arguments, *optimizer_arguments(job)]


def stage_arguments(job: Job, plan: Plan) -> list[Argument]:
    """Layers per stage and chunk, where they are not simply layers / pp."""
    if needs_layout(plan):
        return [("--pipeline-model-parallel-layout", pipeline_layout(plan))]
    if plan.virtual_stages > 1:
        chunk = job.architecture.layers // (plan.pp * plan.virtual_stages)
        return [("--num-layers-per-virtual-pipeline-stage", str(chunk))]
    return []


def precision_arguments(job: Job, plan: Plan) -> list[Argument]:
    """Weights, fp8 recipe, and the dtype gradients are accumulated and reduced in.

    Blackwell has block-scaled formats in hardware; Hopper scales whole tensors by their history
    (NVIDIA Transformer Engine user guide, "FP8 recipes").
    """
    if plan.precision == "fp32":
        return []
    stack = next((s for s in job.stacks if s.name == plan.stack), None)
    wide = job.spec.grad_dtype == "fp32" or (
        job.spec.grad_dtype == "auto"
        and (stack is None or stack.memory.gradients[plan.precision] > 2)
    )
    if plan.precision == "fp16":
        return [("--fp16",), *([("--accumulate-allreduce-grads-in-fp32",)] if wide else [])]
    arguments: list[Argument] = [("--bf16",)]
    if not wide:
        arguments.append(("--grad-reduce-in-bf16",))
    if plan.precision == "fp8":
        capability = job.cluster.node.gpu.compute_capability
        if capability is not None and capability >= (10, 0):
            return [*arguments, ("--fp8-format", "e4m3"), ("--fp8-recipe", "mxfp8")]
        arguments += [
            ("--fp8-format", "hybrid"),
            ("--fp8-recipe", "delayed"),
            ("--fp8-amax-history-len", "1024"),
            ("--fp8-amax-compute-algo", "max"),
        ]
    return arguments


def cross_entropy(job: Job, plan: Plan) -> list[Argument]:
    """The loss kernel: asked for, or what the memory model of the stack counts."""
    kind = job.spec.cross_entropy
    if kind == "auto":
        stack = next((s for s in job.stacks if s.name == plan.stack), None)
        kind = stack.memory.cross_entropy if stack else "eager"
    return [("--cross-entropy-loss-fusion",)] if kind == "fused" else []


def recompute_arguments(plan: Plan) -> list[Argument]:
    """Activation recomputation: selective, uniform over all layers, or a block on each chunk.

    Raises
    ------
    ValueError
        If the stages' counts have no such form.
    """
    used = {name for name, count in plan.recompute_layers.items() if count}
    if used <= {"none"}:
        return []
    if used == {"selective"}:
        return [("--recompute-granularity", "selective")]
    uniform = {"full": 1, "every_2": 2, "every_4": 4}
    if len(used) == 1:
        length = uniform[used.pop()]
        counts = {count for chunk in chunk_layers(plan) for count in chunk}
        require(
            all(count % length == 0 for count in counts),
            NAME,
            f"checkpoints of {length} layers must divide the layers of every chunk",
        )
        return _full("uniform", length)
    require(
        used == {"none", "full"},
        NAME,
        f"it mixes no recomputation with full only, not {', '.join(sorted(used))}",
    )
    return _full("block", block_layers(plan))


def block_layers(plan: Plan) -> int:
    """Layers recomputed on every chunk: each chunk recomputes its first ones, all if it has fewer.

    Raises
    ------
    ValueError
        If no one number gives every stage its count.
    """
    chunks = chunk_layers(plan)
    wanted = [stage.recompute.get("full", 0) for stage in plan.stages]
    for number in range(1, max(max(chunk) for chunk in chunks) + 1):
        given = [sum(min(number, chunk[i]) for chunk in chunks) for i in range(plan.pp)]
        if given == wanted:
            return number
    require(False, NAME, f"one number of layers is recomputed on every chunk, not {wanted}")
    raise AssertionError


def _full(method: str, layers: int) -> list[Argument]:
    return [
        ("--recompute-granularity", "full"),
        ("--recompute-method", method),
        ("--recompute-num-layers", str(layers)),
    ]


def sharding_arguments(plan: Plan) -> list[Argument]:
    """ZeRO-1, its overlap, and the offloaded optimizer, which builds on it."""
    offloaded = plan.offload_optimizer == "cpu"
    arguments: list[Argument] = []
    if plan.zero_stage == 1 or offloaded:
        arguments.append(("--use-distributed-optimizer",))
    if plan.dp * plan.cp > 1:
        arguments.append(("--overlap-grad-reduce",))
        if plan.zero_stage == 1 or offloaded:
            arguments.append(("--overlap-param-gather",))
    if offloaded:
        arguments += [
            ("--optimizer-cpu-offload",),
            ("--optimizer-offload-fraction", "1.0"),
            ("--use-precision-aware-optimizer",),
            ("--overlap-cpu-optimizer-d2h-h2d",),
        ]
    return arguments


def optimizer_arguments(job: Job) -> list[Argument]:
    """Optimizer and schedule. Its Adam decays weights as AdamW does."""
    return [*recipe_arguments(job.spec.optimizer), *SCHEDULE_ARGUMENTS]


def data_arguments(job: Job) -> list[Argument]:
    """What a user replaces: made-up data, tokenizer, length of the run.

    NullTokenizer adds one token, its end of document, to --vocab-size.
    """
    return [
        ("--mock-data",),
        ("--tokenizer-type", "NullTokenizer"),
        ("--vocab-size", str(job.architecture.vocab - 1)),
        ("--train-iters", str(TRAIN_STEPS)),
        ("--log-interval", str(LOG_EVERY)),
        ("--log-throughput",),
    ]
