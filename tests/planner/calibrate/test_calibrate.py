"""A profile changes what runs can tell, no more, and reads back what was written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costmodels.numeric import GIB
from costmodels.stack import load_stack
from planner.api import estimate
from planner.calibrate import apply_profile, load_profile, profile_note
from planner.calibrate import command as calibration
from planner.calibrate.command import calibrate
from planner.calibrate.profile import Error, Profile, StackProfile, profile_text
from planner.job import resolve
from planner.spec import JobSpec
from planner.validate.command import read_runs, validate
from planner.validate.predict import predict_time

A100 = "a100-sxm4-80g"
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
    assert error.after < error.before
    assert "cross-validated" in text
    before = validate([path])[0].sources[0].time.mape
    after = validate([path], profile=out)[0].sources[0].time.mape
    assert after < 0.8 * before


def test_runs_as_predicted_change_nothing(slow) -> None:
    profile, text = calibrate([slow(1.0, 6)])
    assert profile.stacks["deepspeed"].time == {}
    assert "shipped constants stay" in text


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0, 1.1, 2.0])
def test_one_run_which_nothing_checks_moves_nothing(slow, factor: float) -> None:
    profile, text = calibrate([slow(factor, 1)])
    own = profile.stacks["deepspeed"]
    assert own.time == {}
    assert own.time_error.after == own.time_error.before
    assert "not cross-validated" in text
    assert "shipped constants stay: no other run checks this one" in text


@pytest.mark.parametrize(("tokens", "gib"), [(2000, 40), (500, 75), (4000, 12)])
@pytest.mark.parametrize("framework", ["deepspeed", "HF + DeepSpeed"])
@pytest.mark.parametrize("kind", ["allocated", "reserved", "nvidia-smi"])
def test_intervals_hold_the_runs_of_a_profile(
    tmp_path: Path, tokens: int, gib: int, framework: str, kind: str
) -> None:
    path, out = tmp_path / "runs.csv", tmp_path / "profile.yaml"
    path.write_text(
        "model,gpu,n_gpus,framework,precision,optimizer,seq_len,micro_batch,dp,tp,pp,zero_stage,"
        "act_ckpt,attention,tokens_per_s_per_gpu,peak_mem_gib,mem_kind\n"
        f"llama2-7b,A100-80G,8,{framework},bf16,adamw,4096,2,8,1,1,3,full,flash2,{tokens},{gib},"
        f"{kind}\n",
        encoding="utf-8",
    )
    calibrate([path], out)
    (source,) = validate([path], profile=out)[0].sources
    assert source.time.coverage == 1.0
    assert [m.coverage for m in source.memory] == [1.0]
    spec = JobSpec(
        model="llama2-7b",
        gpus="8xA100-80G",
        stack="deepspeed",
        global_batch=16,
        fix=("tp=1", "zero_stage=3", "micro_batch=2", "recompute=full"),
    )
    shipped = estimate(spec).predicted
    predicted = estimate(spec.model_copy(update={"profile": out})).predicted
    time, memory = predicted.step_time_interval_s, predicted.peak_memory_interval_bytes
    assert time.low <= 2 * 4096 / tokens <= time.high
    assert time.low <= shipped.step_time_interval_s.low
    assert time.high >= shipped.step_time_interval_s.high
    if kind == "reserved" and framework == "deepspeed":  # the settings that plans have
        beside = predicted.peak_memory_bytes - predicted.peak_reserved_bytes
        assert memory.low <= gib * GIB + beside <= memory.high


@pytest.mark.parametrize("factors", [[0.5, 0.5, 0.6], [2.0, 3.0, 2.5, 2.0], [1.0, 4.0]])
def test_intervals_hold_few_runs_whatever_moved(slow, tmp_path: Path, factors) -> None:
    path, out = slow(1.0, len(factors)), tmp_path / "profile.yaml"
    times = [run.time * f for run, f in zip(read_runs([path]).runs, factors, strict=True)]
    calibrate([table(path, times)], out)
    assert validate([path], profile=out)[0].sources[0].time.coverage == 1.0


def test_a_profile_does_not_replace_its_runs(slow, tmp_path: Path) -> None:
    path = slow(1.2, 2)
    text = path.read_bytes()
    with pytest.raises(ValueError, match="is one of the inputs"):
        calibrate([path], tmp_path / "." / "runs.csv")
    link = tmp_path / "link.csv"
    link.symlink_to(path)
    with pytest.raises(ValueError, match="is one of the inputs"):
        calibrate([path], link)
    assert path.read_bytes() == text


def test_one_slip_does_not_move_the_others(slow, tmp_path: Path) -> None:
    path = slow(1.0, 6)
    times = [run.time for run in read_runs([path]).runs]
    profile, _ = calibrate([table(path, [times[0] * 5, *times[1:]])])
    assert profile.stacks["deepspeed"].time == {}


def test_what_cannot_be_is_not_used(slow, tmp_path: Path) -> None:
    path = slow(1.0, 3)
    times = [run.time for run in read_runs([path]).runs]
    fast = table(tmp_path / "fast.csv", [times[0] / 50, *times[1:]])
    profile, text = calibrate([fast])
    assert profile.stacks["deepspeed"].time_error.runs == 2
    assert "fast.csv line 2: " in text
    assert "above its peak of 312 in bf16" in text
    large = table(tmp_path / "large.csv", times, memory="95")
    with pytest.raises(
        ValueError, match=r"peak_mem_gib 95 is above the 79.15 GiB of a GPU"
    ) as caught:
        calibrate([large])
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="step_time_s is 0"):
        calibrate([table(tmp_path / "zero.csv", [0.0])])


def test_memory_is_learned_too(tmp_path: Path) -> None:
    path = table(tmp_path / "runs.csv", [10.0] * 6, memory="40.0")
    runs = read_runs([path]).runs
    predicted = calibration.predict_memory(runs)[0]
    more = [replace(run, memory=float(m) + 3e9) for run, m in zip(runs, predicted, strict=True)]
    found = calibration._fit_memory(more)
    assert found is not None
    assert found.after < 0.8 * found.before
    assert found.constants["unexplained"] > load_stack("deepspeed").memory.unexplained


def test_a_profile_reads_back(tmp_path: Path) -> None:
    own = StackProfile(gpus=("A100-80G",), time={"gemm_factor": 0.9}, memory={"unexplained": 1e9})
    profile = Profile(stacks={"deepspeed": own})
    path = tmp_path / "profile.yaml"
    path.write_text(profile_text(profile), encoding="utf-8")
    assert load_profile(path) == profile
    stack = apply_profile(load_stack("deepspeed"), profile, A100)
    assert stack.time.gemm_factor == 0.9
    assert stack.memory.unexplained == 1e9


def test_a_profile_is_for_its_own_gpus_and_stacks() -> None:
    error = Error(runs=6, before=0.7, after=0.65, cross_validated=True)
    own = StackProfile(gpus=("A100-80G",), time={"gemm_factor": 0.9}, time_error=error)
    profile = Profile(stacks={"deepspeed": own})
    shipped = load_stack("deepspeed")
    assert apply_profile(load_stack("fsdp2"), profile, A100) is load_stack("fsdp2")
    assert apply_profile(shipped, profile, "h100-sxm5-80g") is shipped
    assert profile_note("deepspeed", profile, "h100-sxm5-80g", "prof.yaml").startswith(
        "profile prof.yaml has nothing for h100-sxm5-80g on deepspeed"
    )
    used = apply_profile(shipped, profile, A100)
    assert used.time.interval_low == pytest.approx(0.65 / 1.65)  # predicted 65 % too long
    assert used.time.interval_high == pytest.approx(0.65 / 0.35)  # predicted 65 % too short
    assert used.memory == shipped.memory
    assert "gemm_factor (time 70.0 -> 65.0 %, 6 runs)" in profile_note(
        "deepspeed", profile, A100, "prof.yaml"
    )


def test_a_job_says_what_its_profile_does(tmp_path: Path) -> None:
    own = StackProfile(gpus=("A100-80G",), time={"gemm_factor": 0.5})
    path = tmp_path / "prof.yaml"
    path.write_text(profile_text(Profile(stacks={"deepspeed": own})), encoding="utf-8")
    for gpus, factor, told in (
        ("8xA100-80G", 0.5, "profile prof.yaml for a100-sxm4-80g on deepspeed: gemm_factor"),
        ("8xH100-80G", None, "profile prof.yaml has nothing for h100-sxm5-80g on deepspeed"),
    ):
        job = resolve(JobSpec(model="llama2-7b", gpus=gpus, stack="deepspeed", profile=path))
        shipped = load_stack("deepspeed").time.gemm_factor
        assert job.stacks[0].time.gemm_factor == (factor or shipped)
        assert any(note.startswith(told) for note in job.notes)


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
