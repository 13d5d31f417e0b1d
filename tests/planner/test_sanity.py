"""What anyone in the field would check first."""

from __future__ import annotations

import numpy as np
import pytest

from costmodels.memory import memory_costs
from costmodels.params import total_parameters
from planner import estimate, solve
from planner.catalogue import load_model
from planner.estimating import estimate_job
from planner.evaluate import configuration_of
from planner.job import resolve
from planner.plan import Result
from planner.spec import make_spec

SMALL = {"global_batch": 64, "top": 0}


def fastest(**fields: object) -> float:
    """The proven optimum's step time. [s]"""
    result = solve(**fields)
    assert result.status == "optimal"
    assert result.proof is not None
    assert result.proof.fastest_step_time_s is not None
    return result.proof.fastest_step_time_s


def state_bytes(stack: str, zero_stage: int, dp: int) -> float:
    """Weights, gradients and optimizer states of Llama-2-7B, bytes a parameter."""
    from planner.estimating import _from_fix

    fields = {
        "model": "7b",
        "gpus": f"{dp}xA100-80G",
        "stack": stack,
        "optimizer": "adam",
        "precision": "bf16",
        "global_batch": dp,
        "fix": {"zero_stage": zero_stage, "dp": dp},
    }
    job = resolve(make_spec(fields))
    costs = memory_costs(configuration_of(job, _from_fix(job).shapes))
    layers = job.architecture.layers
    classes = next(p for p in costs.phases if p.name == "optimizer").classes
    held = sum(
        float(np.max(classes[c].const)) + float(np.max(classes[c].per_layer)) * layers
        for c in ("weights", "gradients", "optimizer")
    )
    return held / total_parameters(load_model("llama2-7b"))


@pytest.mark.parametrize("dp", [2, 4, 8])
def test_adam_states_a_parameter_follow_the_zero_paper(dp: int) -> None:
    assert state_bytes("deepspeed", 0, dp) == pytest.approx(16, rel=1e-6)
    assert state_bytes("deepspeed", 1, dp) == pytest.approx(4 + 12 / dp, rel=1e-6)
    assert state_bytes("deepspeed", 2, dp) == pytest.approx(2 + 14 / dp, rel=1e-6)
    assert state_bytes("deepspeed", 3, dp) == pytest.approx(16 / dp, rel=1e-6)


@pytest.mark.parametrize("dp", [2, 8])
def test_megatron_keeps_fp32_gradients(dp: int) -> None:
    """Vocabulary padding aside (32000 is a multiple of 128)."""
    assert state_bytes("megatron", 0, dp) == pytest.approx(18, rel=1e-6)
    assert state_bytes("megatron", 1, dp) == pytest.approx(6 + 12 / dp, rel=1e-6)


@pytest.mark.parametrize("model", ["gpt3-1.3b", "llama2-7b"])
def test_v100_never_trains_in_bf16(model: str) -> None:
    result = solve(model=model, gpus="8xV100-32G", **SMALL)
    assert result.plan is not None
    assert result.plan.precision == "fp16"
    assert result.plan.attention != "flash"


def test_zero_3_is_not_chosen_across_slow_ethernet_when_zero_2_fits() -> None:
    job = {"model": "7b", "gpus": "4x8xA100-80G", "inter_bandwidth": "10Gb/s", "top": 0}
    fits = solve(**job, stack="deepspeed", fix={"zero_stage": 2, "tp": 1, "pp": 1})
    assert fits.plan is not None
    for stack in ("auto", "deepspeed"):
        result = solve(**job, stack=stack)
        assert result.plan is not None
        assert result.plan.zero_stage < 3


def test_a_small_model_on_large_cards_gets_no_heavy_technique() -> None:
    result = solve(model="1.3b", gpus="8xA100-80G", top=0)
    assert result.plan is not None
    assert result.plan.offload_optimizer == result.plan.offload_parameters == "none"
    assert result.plan.zero_stage < 3
    assert result.plan.tp == result.plan.pp == 1


def test_70b_on_eight_small_cards_is_offloaded_or_refused() -> None:
    result = solve(model="70b", gpus="8xRTX4090", top=0)
    if result.plan is None:
        assert result.status == "infeasible"
    else:
        assert result.plan.offload_optimizer != "none"
    bare = solve(model="70b", gpus="8xRTX4090", forbid="offload_optimizer", top=0)
    assert bare.status == "infeasible"
    assert bare.infeasible is not None
    assert any("offload" in r.change for r in bare.infeasible.relaxations) == (
        result.plan is not None
    )


@pytest.mark.parametrize(
    ("model", "gpus", "stack"),
    [
        ("13b", "2x8xA100-40G", "auto"),
        ("70b", "8x8xA100-80G", "auto"),
        ("7b", "4x4xV100-32G", "auto"),
        ("405b", "256x8xH100-80G", "megatron"),
    ],
)
def test_tensor_parallelism_stays_inside_the_node(model: str, gpus: str, stack: str) -> None:
    result = solve(model=model, gpus=gpus, stack=stack, top=0)
    assert result.plan is not None
    assert result.plan.tp <= int(gpus.split("x")[1])


def test_tensor_parallelism_crosses_nodes_when_asked_or_needed() -> None:
    asked = solve(model="13b", gpus="2x4xA100-80G", stack="megatron", fix={"tp": 8}, top=0)
    assert asked.plan is not None
    assert asked.plan.tp == 8
    job = {"model": "70b", "gpus": "2x4xH200", "stack": "megatron", "global_batch": 8}
    needed = solve(**job, fix={"pp": 1, "zero_stage": 0}, forbid="offload_optimizer", top=0)
    if needed.plan is not None:
        assert needed.plan.tp == 8


def test_more_gpus_never_slow_the_optimum_when_some_may_idle() -> None:
    times = [
        fastest(model="1.3b", gpus=gpus, allow_idle=True, priority="fastest", **SMALL)
        for gpus in ("1xA100-80G", "3xA100-80G", "8xA100-80G", "2x8xA100-80G", "3x8xA100-80G")
    ]
    assert times == sorted(times, reverse=True)


def test_more_memory_never_slows_the_optimum() -> None:
    times = [
        fastest(model="7b", gpus="8xA100-80G", memory_limit=limit, priority="fastest", **SMALL)
        for limit in ("24GiB", "32GiB", "48GiB", "64GiB", "79GiB")
    ]
    assert times == sorted(times, reverse=True)


def check_again(result: Result, **fields: object) -> None:
    """A plan given back to ``estimate`` is predicted the same."""
    assert result.plan is not None
    assert result.predicted is not None
    again = estimate_job(resolve(make_spec(dict(fields))), result.plan)
    assert again.predicted is not None
    assert again.plan == result.plan
    assert again.predicted == result.predicted


def test_estimate_agrees_with_solve() -> None:
    fields = {"model": "13b", "gpus": "8xA100-40G"}
    check_again(solve(**fields, top=0), **fields)


def test_estimate_counts_the_memory_of_experts() -> None:
    result = estimate(model="mixtral-8x7b", gpus="8xH100-80G", fix={"zero_stage": 3})
    assert result.predicted is not None
    assert result.predicted.step_time_s is None
    states = sum(result.predicted.memory[c] for c in ("weights", "gradients", "optimizer"))
    assert states == pytest.approx(16 * 46_702_792_704 / 8, rel=0.02)


def test_classes_and_parts_add_up() -> None:
    result = solve(model="13b", gpus="2x8xA100-40G", top=0)
    predicted = result.predicted
    assert predicted is not None
    assert sum(predicted.memory.values()) == predicted.peak_memory_bytes
    assert sum(predicted.time.values()) == pytest.approx(predicted.step_time_s, rel=1e-9)
    assert predicted.peak_memory_interval_bytes.high <= predicted.memory_limit_bytes


def test_the_same_job_twice_is_the_same_answer() -> None:
    fields = {"model": "13b", "gpus": "8xA100-80G"}
    assert solve(**fields).model_dump_json() == solve(**fields).model_dump_json()
