"""A spread of plans: each entry shows one thing its stack's emitter must say."""

from __future__ import annotations

from collections.abc import Callable

from emit_plans import make_job, make_plan

from planner.job import Job
from planner.plan import Plan

Case = Callable[[], tuple[Job, Plan]]


def _deepspeed(model: str = "llama2-7b", gpus: str = "8xA100-80G", /, **axes: object) -> Case:
    fields = {
        name: axes.pop(name)
        for name in ("optimizer", "grad_dtype", "cross_entropy", "seq_len")
        if name in axes
    }

    def build() -> tuple[Job, Plan]:
        job = make_job(model, gpus, **fields)
        return job, make_plan(job, "deepspeed", **axes)

    return build


def _other(stack: str, model: str, gpus: str, fields: dict[str, object], **axes: object) -> Case:
    def build() -> tuple[Job, Plan]:
        job = make_job(model, gpus, stack=stack, **fields)
        return job, make_plan(job, stack, **axes)

    return build


def _full(*layers: int) -> tuple[dict[str, int], ...]:
    return tuple({"full": n} for n in layers)


CPU = {"offload_optimizer": "cpu"}
ALL_CPU = {"offload_optimizer": "cpu", "offload_parameters": "cpu"}
NVME = {"offload_optimizer": "nvme", "offload_parameters": "nvme"}

DEEPSPEED: dict[str, Case] = {
    "zero0": _deepspeed(zero_stage=0),
    "zero0-fp32": _deepspeed(zero_stage=0, precision="fp32", attention="efficient"),
    "zero1": _deepspeed(),
    "zero1-fp32-grads": _deepspeed(grad_dtype="fp32"),
    "zero2": _deepspeed(zero_stage=2),
    "zero2-fp16": _deepspeed(
        "llama2-7b", "8xV100-32G", zero_stage=2, precision="fp16", attention="efficient"
    ),
    "zero2-tf32": _deepspeed(zero_stage=2, precision="tf32", attention="efficient"),
    "zero3": _deepspeed(zero_stage=3),
    "zero3-fp32-grads": _deepspeed(zero_stage=3, grad_dtype="fp32"),
    "zero3-64-gpus": _deepspeed("llama2-70b", "8x8xH100-80G", zero_stage=3),
    "zero1-cpu": _deepspeed(**CPU),
    "zero2-cpu": _deepspeed(zero_stage=2, **CPU),
    "zero3-cpu": _deepspeed(zero_stage=3, **ALL_CPU),
    "zero3-cpu-some": _deepspeed(zero_stage=3, offloaded=12, **CPU),
    "zero3-nvme": _deepspeed("llama2-70b", "8xA100-80G", zero_stage=3, **NVME),
    "zero3-nvme-optimizer": _deepspeed(zero_stage=3, offload_optimizer="nvme"),
    "autotp": _deepspeed(tp=2, zero_stage=1),
    "autotp-zero3": _deepspeed(tp=4, zero_stage=3),
    "pipeline": _deepspeed(pp=2),
    "pipeline-uneven": _deepspeed(
        pp=4, layers=(7, 8, 9, 8), recompute=_full(7, 8, 9, 8), zero_stage=0
    ),
    "pipeline-fp32-grads": _deepspeed(pp=2, grad_dtype="fp32"),
    "recompute-some": _deepspeed(recompute=({"none": 12, "full": 20},)),
    "adam": _deepspeed(optimizer="adam"),
    "sgd": _deepspeed(optimizer="sgd"),
    "momentum": _deepspeed(optimizer="momentum"),
    "adafactor": _deepspeed(optimizer="adafactor", zero_stage=2),
    "adam8bit": _deepspeed(optimizer="adam8bit", zero_stage=2),
    "lion": _deepspeed(optimizer="lion"),
    "lion-cpu": _deepspeed(optimizer="lion", zero_stage=2, **CPU),
    "muon": _deepspeed(optimizer="muon", zero_stage=2),
    "muon-zero3": _deepspeed(optimizer="muon", zero_stage=3),
    "gpt2": _deepspeed("gpt2-xl", "4xRTX4090", zero_stage=2, seq_len=1024),
}

MEGATRON_DEEPSPEED: dict[str, Case] = {
    "tp-sp": _other(
        "megatron-deepspeed", "llama2-13b", "8xA100-80G", {}, tp=2, sequence_parallel=True
    ),
    "3d": _other(
        "megatron-deepspeed",
        "llama2-70b",
        "4x8xA100-80G",
        {},
        tp=4,
        pp=4,
        zero_stage=1,
        sequence_parallel=True,
        recompute=_full(20, 20, 20, 20),
    ),
    "zero0": _other("megatron-deepspeed", "llama2-7b", "8xA100-80G", {}, tp=8, zero_stage=0),
    "zero3": _other("megatron-deepspeed", "llama2-13b", "8xA100-80G", {}, zero_stage=3),
    "cpu": _other("megatron-deepspeed", "llama2-13b", "8xA100-80G", {}, zero_stage=2, **CPU),
    "every-2": _other(
        "megatron-deepspeed", "llama2-7b", "8xA100-80G", {}, tp=2, recompute=({"every_2": 32},)
    ),
    "selective-eager": _other(
        "megatron-deepspeed",
        "gpt2-xl",
        "8xV100-32G",
        {"seq_len": 1024},
        tp=1,
        zero_stage=1,
        precision="fp16",
        attention="eager",
        recompute=({"selective": 48},),
    ),
    "sgd": _other("megatron-deepspeed", "llama2-7b", "8xA100-80G", {"optimizer": "sgd"}, tp=2),
}

MEGATRON: dict[str, Case] = {
    "dp": _other("megatron", "llama2-7b", "8xA100-80G", {}),
    "zero0": _other("megatron", "llama2-7b", "8xA100-80G", {}, zero_stage=0, tp=8),
    "3d": _other("megatron", "llama2-70b", "4x8xH100-80G", {}, tp=4, pp=4, sequence_parallel=True),
    "interleaved": _other(
        "megatron",
        "llama2-70b",
        "4x8xH100-80G",
        {},
        tp=4,
        pp=4,
        virtual_stages=5,
        sequence_parallel=True,
    ),
    "uneven": _other("megatron", "llama2-7b", "8xA100-80G", {}, tp=2, pp=4, layers=(7, 9, 9, 7)),
    "uneven-interleaved": _other(
        "megatron", "llama2-7b", "8xA100-80G", {}, pp=4, virtual_stages=2, layers=(7, 9, 9, 7)
    ),
    "block": _other(
        "megatron",
        "llama2-7b",
        "8xA100-80G",
        {},
        pp=4,
        layers=(7, 9, 9, 7),
        recompute=tuple({"full": 3, "none": n - 3} for n in (7, 9, 9, 7)),
    ),
    "block-all-of-a-short-stage": _other(
        "megatron",
        "llama2-7b",
        "8xA100-80G",
        {},
        pp=4,
        layers=(5, 10, 10, 7),
        recompute=(
            {"full": 5},
            {"full": 6, "none": 4},
            {"full": 6, "none": 4},
            {"full": 6, "none": 1},
        ),
    ),
    "full": _other("megatron", "llama2-13b", "8xA100-80G", {}, tp=2, pp=2, recompute=_full(20, 20)),
    "every-4": _other(
        "megatron", "llama2-13b", "8xA100-80G", {}, tp=2, recompute=({"every_4": 40},)
    ),
    "selective": _other(
        "megatron", "llama2-13b", "8xA100-80G", {}, tp=2, recompute=({"selective": 40},)
    ),
    "offload": _other("megatron", "llama2-13b", "8xA100-80G", {}, tp=2, **CPU),
    "bf16-grads": _other("megatron", "llama2-7b", "8xA100-80G", {"grad_dtype": "bf16"}),
    "fp16": _other("megatron", "llama2-7b", "8xA100-80G", {"grad_dtype": "fp32"}, precision="fp16"),
    "fp32": _other(
        "megatron", "llama2-7b", "8xA100-80G", {}, precision="fp32", attention="eager", tp=8
    ),
    "fp8": _other("megatron", "llama2-7b", "8xH100-80G", {}, precision="fp8"),
    "fp8-blackwell": _other("megatron", "llama2-7b", "8xB200", {}, precision="fp8"),
    "context": _other("megatron", "llama3-8b", "8xH100-80G", {"seq_len": 8192}, cp=2, tp=2),
    "qkv-bias": _other("megatron", "qwen2.5-7b", "8xH100-80G", {}, tp=4),
    "qk-norm": _other("megatron", "qwen3-8b", "8xH100-80G", {}, tp=4),
    "gpt": _other("megatron", "gpt3-175b", "16x8xA100-80G", {}, tp=8, pp=16),
    "experts": _other("megatron", "mixtral-8x7b", "8xH100-80G", {}, ep=8),
    "latent": _other("megatron", "deepseek-v3", "16x8xH100-80G", {"global_batch": 256}, ep=32),
    "sgd": _other("megatron", "llama2-7b", "8xA100-80G", {"optimizer": "momentum"}, tp=2),
    "fused-loss": _other("megatron", "llama2-7b", "8xA100-80G", {"cross_entropy": "fused"}, tp=2),
}

FSDP2: dict[str, Case] = {
    "zero3": _other("fsdp2", "llama3-8b", "8xH100-80G", {}, zero_stage=3),
    "zero2": _other("fsdp2", "llama2-7b", "8xA100-80G", {}, zero_stage=2),
    "replicated": _other("fsdp2", "tinyllama-1.1b", "8xA100-80G", {}, zero_stage=0),
    "tp": _other(
        "fsdp2",
        "llama3-70b",
        "4x8xH100-80G",
        {},
        tp=8,
        zero_stage=3,
        sequence_parallel=True,
        recompute=({"full": 80},),
    ),
    "pipeline": _other(
        "fsdp2",
        "llama3-70b",
        "4x8xH100-80G",
        {},
        tp=4,
        pp=4,
        zero_stage=2,
        recompute=({"selective": 20},) * 4,
    ),
    "interleaved": _other(
        "fsdp2", "llama2-7b", "8xA100-80G", {}, pp=4, virtual_stages=2, zero_stage=3
    ),
    "offload": _other("fsdp2", "llama2-13b", "8xRTX4090", {}, zero_stage=3, **ALL_CPU),
    "fp8": _other("fsdp2", "llama3-8b", "8xH100-80G", {}, zero_stage=3, precision="fp8"),
    "context": _other(
        "fsdp2",
        "llama3-8b",
        "8xH100-80G",
        {"seq_len": 8192},
        cp=2,
        zero_stage=3,
        attention="efficient",
    ),
    "qwen3": _other("fsdp2", "qwen3-8b", "8xH100-80G", {}, zero_stage=3),
    "chunked": _other(
        "fsdp2",
        "llama3-8b",
        "8xH100-80G",
        {"cross_entropy": "chunked", "optimizer": "adam"},
        zero_stage=3,
        precision="fp32",
        attention="efficient",
    ),
}

STACKS = {
    "deepspeed": DEEPSPEED,
    "megatron-deepspeed": MEGATRON_DEEPSPEED,
    "megatron": MEGATRON,
    "fsdp2": FSDP2,
}
ALL = {f"{stack}/{name}": case for stack, cases in STACKS.items() for name, case in cases.items()}
