"""A profile changes what runs can tell, no more, and reads back what was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costmodels.stack import load_stack
from planner.calibrate import apply_profile, load_profile
from planner.calibrate import command as calibration
from planner.calibrate.command import calibrate
from planner.calibrate.profile import Profile, StackProfile, profile_text
from planner.calibrate.shrink import beyond, logarithmic, shrink
from planner.validate.command import read_runs, validate
from planner.validate.predict import predict_time

COLUMNS = (
    "model,layers,hidden,heads,kv_heads,ffn,vocab,gated_mlp,tied_embeddings,gpu,n_gpus,framework,"
    "precision,optimizer,seq_len,micro_batch,global_batch_seqs,dp,tp,pp,zero_stage,act_ckpt,"
    "attention,step_time_s,peak_mem_gib,mem_kind,outcome"
)
SHAPE = "llama2-7b,32,4096,32,32,11008,32000,true,false"


def table(path: Path, times: list[float], memory: str = "") -> Path:
    lines = [COLUMNS]
    for i, time in enumerate(times):
        micro = (1, 2, 4)[i % 3]
        lines.append(
            f"{SHAPE},A100-80GB,8,deepspeed,bf16,adamw,2048,{micro},{64 * (1 + i // 3)},8,1,1,3,"
            f"full,flash,{time!r},{memory},{'reserved' if memory else ''},ok"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def slow(tmp_path: Path):
    """A table of runs whose measured times are the predictions times a factor."""

    def write(factor: float, count: int) -> Path:
        path = table(tmp_path / "runs.csv", [1.0] * count)
        times = predict_time(read_runs([path]).runs)[0] * factor
        return table(path, times.tolist())

    return write


def test_a_slow_cluster_is_learned_and_used(slow, tmp_path: Path) -> None:
    path, out = slow(1.5, 6), tmp_path / "profile.yaml"
    profile, text = calibrate([path], out)
    error = profile.stacks["deepspeed"].time_error
    assert error.before == pytest.approx(1 / 3, abs=0.01)
    assert error.after < 0.5 * error.before
    assert "cross-validated" in text
    before = validate([path])[0].sources[0].time.mape
    after = validate([path], profile=out)[0].sources[0].time.mape
    assert after < 0.5 * before


def test_runs_as_predicted_change_nothing(slow) -> None:
    profile, text = calibrate([slow(1.0, 6)])
    assert profile.stacks["deepspeed"].time == {}
    assert "shipped constants stay" in text


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.1, 2.0])
def test_one_run_moves_toward_it_and_not_beyond(slow, factor: float) -> None:
    path = slow(factor, 1)
    profile, text = calibrate([path])
    fields = profile.stacks["deepspeed"].time
    run = read_runs([path]).runs
    before = np.log(predict_time(run)[0] / run[0].time)
    after = np.log(predict_time(run, fields)[0] / run[0].time)
    assert abs(after[0]) <= abs(before[0]) + 1e-6
    assert after[0] * before[0] >= -1e-9
    assert "not cross-validated" in text


def test_one_run_within_the_stated_error_moves_nothing(slow) -> None:
    expected = load_stack("deepspeed").time.error
    profile, _ = calibrate([slow(1 + 0.8 * expected, 1)])
    for name, value in profile.stacks["deepspeed"].time.items():
        shipped = max(getattr(load_stack("deepspeed").time, name), calibration.LEAST_HOST)
        assert value == pytest.approx(shipped, rel=1e-3)


@settings(max_examples=50)
@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=12), st.floats(0.01, 0.2))
def test_no_fit_is_kept_that_predicts_left_out_runs_worse(errors: list[float], own: float) -> None:
    measured = np.exp(-np.array(errors))

    def predict(values: dict[str, float]) -> np.ndarray:
        return np.ones(len(errors)) * values.get("level", 1.0)

    found = shrink([logarithmic("level", 1.0, 0.3)], predict, measured, own)
    assert found.after <= found.before + 1e-12


def test_the_expected_offset_is_no_reason_to_move() -> None:
    assert beyond(np.array([0.05, -0.01]), 0.1) == pytest.approx([0.03, -0.03])
    assert beyond(np.array([0.3]), 0.1) == pytest.approx([0.2])


def test_memory_is_learned_too(tmp_path: Path) -> None:
    path = table(tmp_path / "runs.csv", [10.0] * 6, memory="40.0")
    runs = read_runs([path]).runs
    predicted = calibration.predict_memory(runs)[0]
    more = [replace(run, memory=float(m) + 3e9) for run, m in zip(runs, predicted, strict=True)]
    found = calibration._fit_memory(more)
    assert found is not None
    assert found.after < 0.5 * found.before
    assert found.constants["unexplained"] > load_stack("deepspeed").memory.unexplained


def test_a_profile_reads_back(tmp_path: Path) -> None:
    own = StackProfile(gpus=("A100-80G",), time={"gemm_factor": 0.9}, memory={"unexplained": 1e9})
    profile = Profile(stacks={"deepspeed": own})
    path = tmp_path / "profile.yaml"
    path.write_text(profile_text(profile), encoding="utf-8")
    assert load_profile(path) == profile
    stack = apply_profile(load_stack("deepspeed"), profile)
    assert stack.time.gemm_factor == 0.9
    assert stack.memory.unexplained == 1e9
    assert apply_profile(load_stack("fsdp2"), profile) is load_stack("fsdp2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not YAML"),
        ("[1]", "not a profile"),
        ("stacks: {nope: {}}", "unknown stack 'nope'"),
        ("stacks: {deepspeed: {time: {speed: 2}}}", "no constant 'speed'"),
        ("stacks: {deepspeed: {time: {gemm_factor: -1}}}", "greater than 0"),
        ("stacks: {deepspeed: {time: {gemm_factor: fast}}}", "valid number"),
        ("stacks: {deepspeed: {memory: {allocator_factor: 0.5}}}", "greater than or equal to 1"),
        ("stacks: {}\nschema_version: '9'", "schema_version"),
        ("stacks: {}\nmore: 1", "not a profile"),
    ],
)
def test_a_bad_profile_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"profile\.yaml") as caught:
        load_profile(path)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_input(tmp_path: Path, slow) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        load_profile(tmp_path / "none.yaml")
    with pytest.raises(ValueError, match="cannot write"):
        calibrate([slow(1.2, 2)], tmp_path / "none" / "profile.yaml")
    empty = table(tmp_path / "empty.csv", [])
    with pytest.raises(ValueError, match="no run to calibrate with"):
        calibrate([empty])
    with pytest.raises(ValueError, match="unknown stack"):
        calibrate([empty], stack="nope")
