"""Arguments of Megatron-DeepSpeed's pretrain_gpt.py.

Names and checks from Megatron-DeepSpeed 4efb479 (July 2025): megatron/arguments.py,
megatron/model/gpt_model.py, megatron/model/transformer.py.
"""

from __future__ import annotations

from costmodels.architecture import Architecture
from planner.emit.deepspeed import CONFIG, deepspeed_config
from planner.emit.launch import Argument, Launch, Script, launch_script
from planner.emit.layout import single_connection
from planner.emit.megatron_model import SCHEDULE_ARGUMENTS, recipe_arguments, size_arguments
from planner.emit.norm import norm_argument
from planner.emit.recipe import LOG_EVERY, TRAIN_STEPS
from planner.emit.refusal import one_recompute, require, whole_offload
from planner.emit.rope import base_arguments
from planner.emit.text import dump_json
from planner.job import Job
from planner.plan import Plan

NAME = "Megatron-DeepSpeed"


def emit_megatron_deepspeed(job: Job, plan: Plan) -> dict[str, str]:
    """deepspeed_config.json and launch.sh.

    Raises
    ------
    ValueError
        If the scripts or the engine cannot do what the plan says.
    """
    check(job, plan)
    launch = Launch(
        script=Script(
            missing="set TRAIN_SCRIPT to pretrain_gpt.py of a Megatron-DeepSpeed checkout, for"
            " example: TRAIN_SCRIPT=~/Megatron-DeepSpeed/pretrain_gpt.py bash launch.sh"
        ),
        plan_args=plan_arguments(job, plan),
        train_args=data_arguments(job),
        fixed={"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if single_connection(job, plan) else {},
        required=[
            (
                "DATA_PATH",
                "set DATA_PATH to the prefix of a data set that tools/preprocess_data.py made"
                " (without .bin), or edit TRAIN_ARGS",
            )
        ],
    )
    return {
        CONFIG: dump_json(deepspeed_config(job, plan)),
        "launch.sh": launch_script(job, plan, launch),
    }


def check_job(job: Job) -> None:
    """Refuse a network or an optimizer that no plan can make up for."""
    arch = job.architecture
    require(arch.kind == "decoder", NAME, f"{arch.name} is no decoder")
    require(arch.moe is None and arch.mla is None, NAME, f"{arch.name} is not a dense GPT or Llama")
    require(arch.positional in ("rope", "learned"), NAME, f"it has no {arch.positional} positions")
    require(not arch.qk_norm, NAME, "it has no norm on queries and keys")
    require(not arch.parallel_residual, NAME, "attention and feed-forward follow one another")
    require(arch.norms_per_layer == 2, NAME, f"a layer has 2 norms, not {arch.norms_per_layer}")
    require(not arch.embedding_norm, NAME, "it has no norm on the embeddings")
    require(arch.final_norm and not arch.head_bias, NAME, "it ends with a norm and a plain head")
    require(
        arch.embedding_width in (0, arch.hidden), NAME, "its embeddings are as wide as its layers"
    )
    require(
        arch.bias in ("none", "all"), NAME, f"biases are on all linears or none, not {arch.bias}"
    )
    require(arch.norm != "layernorm" or arch.norm_bias, NAME, "its LayerNorm has a bias")
    require(
        not 0 < arch.sliding_window < job.seq_len,
        NAME,
        f"it has no sliding window ({arch.sliding_window} tokens)",
    )
    activation(arch)
    rotary(arch)
    require(
        job.spec.optimizer in ("adam", "adamw", "sgd", "momentum"),
        NAME,
        f"it has no {job.spec.optimizer}",
    )
    require(job.spec.cross_entropy != "chunked", NAME, "its loss is not chunked")


def check(job: Job, plan: Plan) -> None:
    """Refuse what the scripts cannot say."""
    check_job(job)
    arch = job.architecture
    layers = [stage.layers for stage in plan.stages]
    require(
        layers == balanced(arch.layers, plan.pp),
        NAME,
        f"type:transformer gives stages of {balanced(arch.layers, plan.pp)} layers, not {layers}",
    )
    require(
        arch.kv_heads % plan.tp == 0,
        NAME,
        f"tp {plan.tp} must divide the {arch.kv_heads} key-value heads",
    )
    require(plan.attention != "efficient", NAME, "its attention kernels are flash and eager")
    require(
        plan.offload_optimizer == "none" or job.spec.optimizer in ("adam", "adamw"),
        NAME,
        "--cpu-optimizer is Adam",
    )
    require(
        plan.offload_optimizer != "nvme" and plan.offload_parameters == "none",
        NAME,
        "--cpu-optimizer keeps the optimizer in host RAM; parameters stay on the GPU",
    )
    whole_offload(plan, NAME)
    require(plan.cp == 1, NAME, f"cp {plan.cp}: Ulysses is not written yet")
    check_segments(plan, segment(one_recompute(plan, NAME)))


def balanced(layers: int, stages: int) -> list[int]:
    """Layers of each stage under ``partition_method="type:transformer"``.

    DeepSpeed 0.19.8 deepspeed/runtime/utils.py, partition_balanced: the earlier stages take one
    more.

    >>> balanced(60, 8)
    [8, 8, 8, 8, 7, 7, 7, 7]
    """
    return [layers // stages + (i < layers % stages) for i in range(stages)]


def check_segments(plan: Plan, length: int) -> None:
    """Refuse checkpoints of several layers that would leave some layers out.

    The plain model cuts its layers into segments and has none to spare. The pipeline engine counts
    from each stage's first function: on the first stage two come before the layers, on the last
    three follow; a segment that holds any of these is not checkpointed
    (megatron/model/gpt_model.py; deepspeed/runtime/pipe/module.py, _is_checkpointable).
    """
    counts = [stage.layers for stage in plan.stages]
    fits = counts[-1] % length == 0 if plan.pp == 1 else length == 1
    fits = fits or (plan.pp > 1 and length == 2 and counts[-1] % 2 == 0)
    require(fits, NAME, f"checkpoints of {length} layers do not cover stages of {counts} layers")


def activation(arch: Architecture) -> Argument | None:
    """The flag of the feed-forward's activation, None for its default, GELU.

    Raises
    ------
    ValueError
        If the model code has no such feed-forward.
    """
    if arch.gated_mlp:
        require(
            arch.activation == "silu",
            NAME,
            f"its gated feed-forward is SwiGLU, not {arch.activation}",
        )
        return ("--swiglu",)
    known = {"gelu": None, "gelu_new": ("--openai-gelu",), "gelu_fast": ("--openai-gelu",)}
    require(arch.activation in known, NAME, f"it has no {arch.activation} activation")
    return known[arch.activation]


def segment(granularity: str) -> int:
    """Layers of one checkpoint."""
    return {"every_2": 2, "every_4": 4}.get(granularity, 1)


def model_arguments(job: Job) -> list[Argument]:
    """The network."""
    arch = job.architecture
    arguments: list[Argument] = [
        *size_arguments(arch),
        ("--num-key-value-heads", str(arch.kv_heads)),
        ("--seq-length", str(job.seq_len)),
        ("--max-position-embeddings", str(max(job.seq_len, positions(arch, job.seq_len)))),
        ("--normalization", arch.norm),
        norm_argument(arch, "--layernorm-epsilon"),
    ]
    arguments += rotary(arch)
    shape = activation(arch)
    if shape:
        arguments.append(shape)
    if arch.bias == "none":
        arguments.append(("--disable-bias-linear",))
    if not arch.tied_embeddings:
        arguments.append(("--untie-embeddings-and-output-weights",))
    dropout = str(job.spec.dropout)
    arguments += [
        ("--attention-dropout", dropout),
        ("--hidden-dropout", dropout),
        ("--no-query-key-layer-scaling",),
    ]
    return arguments


def rotary(arch: Architecture) -> list[Argument]:
    """Rotary positions; it scales none (megatron/model/rotary_pos_embedding.py)."""
    if arch.positional != "rope":
        return []
    base = base_arguments(arch, "--rotary-position-embeddings-theta", NAME)
    return [("--use-rotary-position-embeddings",), *base]


def positions(arch: Architecture, seq_len: int) -> int:
    """Rows of a learned position table; with rotary positions the sequence is enough."""
    if arch.positional != "learned":
        return seq_len
    return arch.position_rows or arch.max_seq_len


def plan_arguments(job: Job, plan: Plan) -> list[Argument]:
    """Everything the plan decides, then the recipe."""
    arguments = model_arguments(job)
    arguments += [
        ("--tensor-model-parallel-size", str(plan.tp)),
        ("--pipeline-model-parallel-size", str(plan.pp)),
        ("--micro-batch-size", str(plan.micro_batch)),
        ("--global-batch-size", str(plan.micro_batch * plan.grad_accum * plan.dp)),
        ("--deepspeed",),
        ("--deepspeed_config", f"$HERE/{CONFIG}"),
        ("--zero-stage", str(plan.zero_stage)),
        ("--distributed-backend", "nccl"),
        ("--no-gradient-accumulation-fusion",),
    ]
    if plan.pp == 1:
        arguments.append(("--no-pipeline-parallel",))
    if plan.sequence_parallel:
        arguments.append(("--sequence-parallel",))
    if plan.precision in ("bf16", "fp16"):
        arguments.append((f"--{plan.precision}",))
    if plan.attention == "flash":
        arguments.append(("--use-flash-attn-v2",))
    arguments += recompute_arguments(plan) + optimizer_arguments(job, plan)
    return arguments


def recompute_arguments(plan: Plan) -> list[Argument]:
    """Activation checkpointing.

    With DeepSpeed's checkpoint function the length of a segment is --checkpoint-num-layers, for
    the pipelined model as for the plain one.
    """
    granularity = one_recompute(plan, NAME)
    if granularity == "none":
        return []
    if granularity == "selective":
        return [("--recompute-granularity", "selective")]
    return [
        ("--deepspeed-activation-checkpointing",),
        ("--checkpoint-activations",),
        ("--checkpoint-num-layers", str(segment(granularity))),
    ]


def optimizer_arguments(job: Job, plan: Plan) -> list[Argument]:
    """Optimizer and schedule. Its Adam is AdamW; without decay they are the same."""
    arguments = recipe_arguments(job.spec.optimizer)
    if job.spec.optimizer in ("adam", "adamw"):
        on_gpu = plan.offload_optimizer == "none"
        arguments.append(("--ds_fused_adam" if on_gpu else "--cpu-optimizer",))
    return [*arguments, *SCHEDULE_ARGUMENTS]


def data_arguments(job: Job) -> list[Argument]:
    """What a user replaces: data, tokenizer, length of the run.

    NullTokenizer adds one token, its end of document, to --vocab-size.
    """
    return [
        ("--data-path", "$DATA_PATH"),
        ("--tokenizer-type", "NullTokenizer"),
        ("--vocab-size", str(job.architecture.vocab - 1)),
        ("--train-iters", str(TRAIN_STEPS)),
        ("--split", "949,50,1"),
        ("--log-interval", str(LOG_EVERY)),
    ]
