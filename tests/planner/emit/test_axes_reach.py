"""Every axis of a plan reaches the files of every stack: other text, or a refusal."""

from __future__ import annotations

from typing import Any

import pytest
from emit_plans import make_job, make_plan

from planner.axes import AXES
from planner.emit import emit, job_refusal, model_refusal
from planner.plan import Plan

BASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "deepspeed": ({}, {"zero_stage": 1}),
    "megatron-deepspeed": ({}, {"tp": 2, "zero_stage": 1}),
    "megatron": ({}, {"tp": 2, "zero_stage": 1}),
    "fsdp2": ({}, {"tp": 2, "zero_stage": 3}),
}
OTHER: dict[str, Any] = {
    "dp": 2,  # with fewer GPUs
    "tp": 4,
    "pp": 2,
    "cp": 2,
    "ep": 2,
    "micro_batch": 2,
    "grad_accum": 4,
    "virtual_stages": 2,
    "zero_stage": 2,
    "sequence_parallel": True,
    "precision": "fp16",
    "attention": "eager",
    "recompute": ({"full": 32},),
    "offload_optimizer": "cpu",
    "offload_parameters": "cpu",
}


def changed(stack: str, axis: str) -> tuple[Any, Plan]:
    fields, axes = BASES[stack]
    job = make_job(
        stack=stack, gpus="16xA100-80G" if axis == "virtual_stages" else "8xA100-80G", **fields
    )
    if axis == "recompute":
        return job, make_plan(job, stack, recompute=OTHER[axis], **axes)
    if axis == "virtual_stages":
        return job, make_plan(job, stack, **{**axes, "pp": 2, "virtual_stages": 2})
    if axis == "offload_parameters":
        axes = {**axes, "zero_stage": 3, "offload_optimizer": "cpu"}
    if axis == "dp":
        return job, make_plan(job, stack, **axes, gpus=4)
    return job, make_plan(job, stack, **{**axes, axis: OTHER[axis]})


@pytest.mark.parametrize("stack", BASES)
@pytest.mark.parametrize("axis", AXES)
def test_axis_is_written_or_refused(stack: str, axis: str) -> None:
    fields, axes = BASES[stack]
    job = make_job(stack=stack, **fields)
    base = emit(job, make_plan(job, stack, **axes))
    other, plan = changed(stack, axis)
    refusal, files = _emitted(other, plan)
    if refusal:
        assert "cannot express this plan" in refusal
        return
    assert any(
        _without_comments(text) != _without_comments(base.get(name, ""))
        for name, text in files.items()
    )


def _emitted(job: Any, plan: Plan) -> tuple[str, dict[str, str]]:
    try:
        return "", emit(job, plan)
    except ValueError as refusal:
        return str(refusal), {}


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


@pytest.mark.parametrize(
    ("stack", "fields", "word"),
    [
        ("megatron", {"model": "bloom-7b1"}, "alibi"),
        ("megatron", {"gpus": "8xV100-32G"}, "Ampere"),
        ("megatron", {"optimizer": "muon"}, "muon"),
        ("megatron-deepspeed", {"model": "qwen2.5-7b"}, "biases"),
        ("fsdp2", {"optimizer": "lion"}, "lion"),
        ("deepspeed", {"model": "bloom-7b1", "optimizer": "lion"}, ""),
        ("megatron", {}, ""),
        ("fsdp2", {"model": "qwen2.5-7b"}, ""),
    ],
)
def test_what_no_plan_can_make_up_for(stack: str, fields: dict[str, Any], word: str) -> None:
    refusal = job_refusal(make_job(**fields), stack)
    assert word in refusal
    assert bool(word) == bool(refusal)


def test_models_torchtitan_has_no_code_for_run_through_accelerate() -> None:
    job = make_job("qwen2.5-7b", stack="fsdp2")
    assert model_refusal(job)
    plan = make_plan(job, "fsdp2", zero_stage=3, recompute=({"full": 28},))
    assert plan.grad_accum > 1
    files = emit(job, plan)
    assert set(files) == {"launch.sh", "accelerate_fsdp2.yaml"}
    assert "exec accelerate launch" in files["launch.sh"]
    # whole gradients between micro-batches would not fit what was predicted
    assert "sync_each_batch=True" in files["launch.sh"]
    assert "Qwen2DecoderLayer" in files["accelerate_fsdp2.yaml"]
    assert not model_refusal(make_job("llama2-7b"))


@pytest.mark.parametrize(
    ("axes", "word"),
    [
        ({"pp": 2}, "no pipeline"),
        ({"tp": 2}, "tp and cp"),
        ({"recompute": ({"selective": 28},)}, "full checkpointing"),
        ({"zero_stage": 0}, "ZeRO-0"),
    ],
)
def test_accelerate_loses_nothing_silently(axes: dict[str, Any], word: str) -> None:
    job = make_job("qwen2.5-7b", stack="fsdp2")
    with pytest.raises(ValueError, match="cannot express this plan") as refusal:
        emit(job, make_plan(job, "fsdp2", **{"zero_stage": 3, **axes}))
    assert word in str(refusal.value)
