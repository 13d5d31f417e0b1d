"""Each rule refuses what it should, says why, and lets its neighbour pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from costmodels.configuration import OFFLOAD_TIERS
from costmodels.stack import load_stack
from planner.job import Job, resolve
from planner.rules import RULES
from planner.rules.rule import Rule
from planner.space import Shapes
from planner.spec import make_spec

AT_REST = {
    "dp": 1,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "ep": 1,
    "micro_batch": 1,
    "grad_accum": 1,
    "virtual_stages": 1,
    "zero_stage": 0,
    "sequence_parallel": 0,
    "offload_optimizer": "none",
    "offload_parameters": "none",
}


def job_of(**fields: Any) -> Job:
    return resolve(make_spec({"model": "7b", "gpus": "8xA100-80G", "global_batch": 64, **fields}))


def shapes_of(stack: str, precision: str = "bf16", attention: str = "flash", **axes: Any) -> Shapes:
    values = {**AT_REST, **axes}
    gpus = values.pop("gpus", values["dp"] * values["tp"] * values["pp"] * values["cp"])
    arrays = {
        k: np.array([OFFLOAD_TIERS.index(v) if isinstance(v, str) else v])
        for k, v in values.items()
    }
    return Shapes(load_stack(stack), precision, attention, gpus=np.array([gpus]), **arrays)


def rule(name: str) -> Rule:
    return next(r for r in RULES if r.name == name)


def case(stack: str, refused: dict[str, Any], accepted: dict[str, Any], **job: Any) -> Any:
    return stack, refused, accepted, job


OFF = {"offload_optimizer": "cpu"}
CASES = {
    "world": case("deepspeed", {"dp": 8, "gpus": 4}, {"dp": 8}),
    "batch": case(
        "deepspeed",
        {"dp": 8, "micro_batch": 3, "grad_accum": 3},
        {"dp": 8, "micro_batch": 4, "grad_accum": 2},
    ),
    "precision-hardware": case(
        "deepspeed", {"precision": "bf16"}, {"precision": "fp16"}, gpus="8xV100-32G"
    ),
    "precision-stack": case("deepspeed", {"precision": "fp8"}, {}, gpus="8xH100"),
    "attention-kernel": case(
        "deepspeed", {"attention": "flash"}, {"attention": "efficient"}, gpus="8xV100-32G"
    ),
    "heads": case("megatron", {"tp": 3}, {"tp": 4}),
    "kv-heads": case("megatron", {"tp": 12}, {"tp": 16}, model="llama3-70b", gpus="16x8xH100-80G"),
    "kv-heads-split": case("deepspeed", {"tp": 16}, {"tp": 8}, model="llama3-70b"),
    "ffn": case("megatron", {"tp": 3}, {"tp": 4}),
    "tp-placement": case("megatron", {"tp": 6}, {"tp": 8}, gpus="4x4xA100-80G"),
    "experts": case("megatron", {"ep": 2, "dp": 2}, {"dp": 2}),
    "sequence-parallel": case(
        "megatron", {"sequence_parallel": 1}, {"sequence_parallel": 1, "tp": 2}
    ),
    "stages": case("megatron", {"pp": 40}, {"pp": 32}),
    "even-stages": case("fsdp2", {"pp": 3}, {"pp": 4}),
    "interleaving": case(
        "megatron", {"virtual_stages": 2}, {"virtual_stages": 2, "pp": 4, "grad_accum": 4}
    ),
    "interleaving-micro-batches": case(
        "megatron",
        {"virtual_stages": 2, "pp": 4, "grad_accum": 6},
        {"virtual_stages": 2, "pp": 4, "grad_accum": 8},
    ),
    "zero-stage": case("megatron", {"zero_stage": 2, "dp": 8}, {"zero_stage": 1, "dp": 8}),
    "zero-shards": case("deepspeed", {"zero_stage": 2}, {"zero_stage": 2, **OFF}),
    "fsdp-shards": case("fsdp2", {"zero_stage": 3}, {"zero_stage": 3, "dp": 2}),
    "pipeline-zero": case(
        "deepspeed", {"pp": 2, "zero_stage": 2, "dp": 4}, {"pp": 2, "zero_stage": 1, "dp": 4}
    ),
    "autotp-pipeline": case("deepspeed", {"pp": 2, "tp": 2}, {"tp": 2}),
    "offload-stage": case("deepspeed", OFF, {**OFF, "zero_stage": 1}),
    "offload-distributed-optimizer": case(
        "megatron", {**OFF, "dp": 8}, {**OFF, "dp": 8, "zero_stage": 1}
    ),
    "offload-nvme-stage": case(
        "deepspeed",
        {"offload_optimizer": "nvme", "zero_stage": 2},
        {"offload_optimizer": "nvme", "zero_stage": 3},
    ),
    "offload-parameters-stage": case(
        "deepspeed",
        {**OFF, "offload_parameters": "cpu", "zero_stage": 2},
        {**OFF, "offload_parameters": "cpu", "zero_stage": 3},
    ),
    "offload-optimizer-first": case(
        "deepspeed",
        {"offload_parameters": "cpu", "zero_stage": 3},
        {**OFF, "offload_parameters": "cpu", "zero_stage": 3},
    ),
    "offload-whole": case(
        "fsdp2",
        {**OFF, "zero_stage": 3, "dp": 8},
        {**OFF, "offload_parameters": "cpu", "zero_stage": 3, "dp": 8},
    ),
    "nvme-present": case(
        "deepspeed",
        {"offload_optimizer": "nvme", "zero_stage": 3},
        {**OFF, "zero_stage": 3},
        nvme="0",
    ),
    "tensor-parallel": None,  # every stack here has it
    "optimizer-stack": None,  # depends on the job alone, below
    "model-family": None,
    "emitter": None,
    "cpu-optimizer": None,
    "grad-dtype": None,
    "accelerate-only": case("fsdp2", {"tp": 2}, {"zero_stage": 3, "dp": 8}, model="gpt2-xl"),
    "tied-pipeline": case("fsdp2", {"pp": 2}, {"dp": 2}, model="llama3.2-1b"),
    "context-expert": case("deepspeed", {"cp": 2}, {}),
    "fp32-accumulation": case(
        "deepspeed", {"dp": 8}, {"dp": 8, "zero_stage": 1}, grad_dtype="fp32"
    ),
}


def test_every_rule_is_covered_and_sourced() -> None:
    assert {r.name for r in RULES} == set(CASES)
    assert len({r.name for r in RULES}) == len(RULES)
    for r in RULES:
        assert r.source
        assert len(r.reason) > 10


@pytest.mark.parametrize("name", [name for name, c in CASES.items() if c is not None])
def test_a_rule_refuses_and_accepts(name: str) -> None:
    stack, refused, accepted, fields = CASES[name]
    job, r = job_of(**fields), rule(name)
    assert r.applies(stack)
    bad, good = shapes_of(stack, **refused), shapes_of(stack, **accepted)
    assert not bool(np.asarray(r.holds(job, bad))[0])
    assert bool(np.asarray(r.holds(job, good))[0])
    text = r.explain(job, bad, 0)
    assert "{" not in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("name", "stack", "refused", "accepted", "axes"),
    [
        ("optimizer-stack", "megatron", {"optimizer": "lion"}, {}, {}),
        ("model-family", "megatron-deepspeed", {"model": "qwen2.5-7b"}, {}, {}),
        ("emitter", "megatron-deepspeed", {"model": "mistral-7b-v0.1", "seq_len": 8192}, {}, {}),
        ("cpu-optimizer", "deepspeed", {"optimizer": "sgd"}, {}, {**OFF, "zero_stage": 2}),
        ("grad-dtype", "deepspeed", {"grad_dtype": "fp16"}, {"grad_dtype": "bf16"}, {}),
    ],
)
def test_a_rule_on_the_job(
    name: str, stack: str, refused: dict[str, Any], accepted: dict[str, Any], axes: dict[str, Any]
) -> None:
    r, shapes = rule(name), shapes_of(stack, **axes)
    assert not bool(np.asarray(r.holds(job_of(**refused), shapes))[0])
    assert bool(np.asarray(r.holds(job_of(**accepted), shapes))[0])
    assert r.explain(job_of(**refused), shapes, 0)


@pytest.mark.parametrize(
    ("ep", "axes", "holds"),
    [
        (8, {"dp": 8}, True),
        (8, {"dp": 4, "tp": 2}, True),
        (4, {"dp": 2}, False),
        (3, {"dp": 3}, False),
    ],
)
def test_experts_are_shared_evenly(ep: int, axes: dict[str, int], holds: bool) -> None:
    job = job_of(model="mixtral-8x7b")  # eight experts
    shapes = shapes_of("megatron", ep=ep, **axes)
    assert bool(np.asarray(rule("experts").holds(job, shapes))[0]) == holds


def test_rules_answer_alike_one_by_one_and_together() -> None:
    """A mask over many candidates is the masks of each."""
    from planner.space import enumerate_shapes

    job = job_of(model="13b", gpus="2x8xA100-80G")
    for shapes in enumerate_shapes(job):
        some = shapes.take(np.arange(0, len(shapes), 97))
        for r in RULES:
            if not r.applies(shapes.stack.name):
                continue
            together = np.asarray(r.holds(job, some))
            alone = [
                bool(np.asarray(r.holds(job, some.take(np.array([i]))))[0])
                for i in range(len(some))
            ]
            assert together.tolist() == alone
