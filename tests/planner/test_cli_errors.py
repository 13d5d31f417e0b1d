"""Bad input: one clear line, the documented exit code, nothing half-written, no traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli import app

OK = ["--model", "gpt3-125m", "--gpus", "8xA100-80G"]
MODEL = ["--model", "gpt3-125m", "--gpus"]
GPUS = ["--gpus", "8xA100-80G", "--model"]


def run(args: list[str]) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


CASES = [
    # models
    (["solve", *GPUS, "llama-2-14b"], "near: "),
    (["solve", *GPUS, "no-such-model"], "unknown model"),
    (["solve", *GPUS, ""], "model"),
    (["solve", *GPUS, "17b"], "17b"),
    (["solve", *GPUS, "/nowhere/config.json"], "/nowhere/config.json"),
    (["solve", *GPUS, "mixtral-8x7b"], "mixture-of-experts"),
    (["solve", *GPUS, "bert-base"], "encoder-only"),
    (["solve", "--gpus", "8xA100-80G"], "--model is missing"),
    # hardware
    (["solve", *MODEL, "8xA100-81G"], "near"),
    (["solve", *MODEL, "8xFoo"], "Foo"),
    (["solve", *MODEL, "0xA100-80G"], "0"),
    (["solve", *MODEL, "-8xA100-80G"], "-8xA100-80G"),
    (["solve", *MODEL, "0x8xH100"], "0"),
    (["solve", *MODEL, "12xA100-80G"], "12"),
    (["solve", *MODEL, "8"], "8"),
    (["solve", *MODEL, ""], "gpus"),
    (["solve", *MODEL, "8xGaudi2"], "no supported stack"),
    (["solve", "--model", "13b"], "--gpus is missing"),
    (["solve", *OK, "--memory-limit", "90GiB"], "memory_limit"),
    (["solve", *OK, "--memory-limit", "many"], "memory_limit"),
    (["solve", *OK, "--inter-bandwidth", "fast"], "inter_bandwidth"),
    (["solve", *OK, "--intra-bandwidth", "0GB/s"], "intra_bandwidth"),
    (["solve", *OK, "--host-memory", "-1GB"], "host_memory"),
    (["solve", *OK, "--hardware", "/nowhere/my.yaml"], "/nowhere/my.yaml"),
    # the job
    (["solve", *OK, "--seq-len", "0"], "seq_len"),
    (["solve", *OK, "--seq-len", "-4"], "seq_len"),
    (["solve", *OK, "--seq-len", "4096"], "learned positions"),
    (["solve", *OK, "--global-batch", "0"], "global_batch"),
    (["solve", *OK, "--intra-bandwidth", "1B/s"], "too slow"),
    (["solve", *OK, "--global-tokens", "1000"], "multiple of the sequence length"),
    (["solve", *OK, "--global-tokens", "4096", "--global-batch", "2"], "not both"),
    (["solve", *OK, "--optimizer", "adan"], "optimizer"),
    (["solve", *OK, "--precision", "int3"], "precision"),
    (["solve", "--model", "gpt3-125m", "--gpus", "8xV100-32G", "--precision", "bf16"], "bf16"),
    (["solve", *OK, "--precision", "fp8"], "does not support"),
    (["solve", *OK, "--stack", "horovod"], "stack"),
    (["solve", *OK, "--dropout", "1.5"], "dropout"),
    (["solve", *OK, "--top", "-1"], "top"),
    (["solve", *OK, "--time-limit", "0"], "time_limit"),
    (["solve", *OK, "--priority", "best"], "priority"),
    # constraints
    (["solve", *OK, "--fix", "tq=4"], "unknown axis"),
    (["solve", *OK, "--fix", "tp=0"], "1 or more"),
    (["solve", *OK, "--fix", "tp"], "expected tp=VALUE"),
    (["solve", *OK, "--fix", "tp=4", "--fix", "tp=2"], "twice"),
    (["solve", *OK, "--fix", "tp=4", "--max", "tp=2"], "contradicts"),
    (["solve", *OK, "--min", "pp=4", "--max", "pp=2"], "above max"),
    (["solve", *OK, "--fix", "zero_stage=3", "--forbid", "zero_stage=3"], "both fixed"),
    (["solve", *OK, "--max", "precision=bf16"], "no order"),
    (["solve", *OK, "--forbid", "everything"], "unknown axis"),
    (["solve", *OK, "--fail-on", "always", "--no-files"], "fail-on"),
    # estimate
    (["estimate", *OK, "--fix", "dp=3"], "must be the 8 GPUs"),
    (["estimate", *OK, "--fix", "tp=1,2"], "one value"),
    (["estimate", *OK, "--global-batch", "6"], "global batch"),
    (["estimate", *OK, "--fix", "offload_parameters=cpu"], "ZeRO-3"),
    (["models", "no-such-model"], "unknown model"),
    (["gpus", "A200"], "near"),
]


@pytest.mark.parametrize(("args", "says"), CASES, ids=[" ".join(c[0])[:70] for c in CASES])
def test_a_mistake_is_one_line(
    args: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(args)
    assert code == 2, (out, err)
    assert says in err, err
    assert err.startswith("planner: ")
    assert len(err.splitlines()) == 1, err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


JOBS = [
    ("model: [1, 2", "not valid YAML"),
    ("- 8xA100-80G", "expected a mapping"),
    ("model: gpt3-125m\ngpus: 8xA100-80G\nzero: 3\n", "unknown field"),
    ("model: gpt3-125m\ngpus: 8xA100-80G\nseq_len: long\n", "seq_len"),
    ("model: gpt3-125m\ngpus: 8\n", "gpus"),
    ("model: gpt3-125m\ngpus: 8xA100-80G\nfix: {tp: 0}\n", "tp"),
    ("model: gpt3-125m\ngpus: 8xA100-80G\nfix: 3\n", "fix"),
    ("model: gpt3-125m\ngpus: 8xA100-80G\nfix: &a {tp: *a}\n", "tp"),
    ("\x00", "not valid YAML"),
    ("", "expected a mapping"),
]


@pytest.mark.parametrize(("text", "says"), JOBS)
def test_a_bad_job_file_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(text)
    code, out, err = run(["solve", str(job)])
    assert code == 2, (out, err)
    assert says in err, err
    assert len(err.splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["job.yaml"]


def test_a_job_file_that_is_not_text(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    job.write_bytes(b"\xff\xfe\x00model")
    code, _, err = run(["solve", str(job)])
    assert code == 2
    assert "not UTF-8" in err
    code, _, err = run(["solve", str(tmp_path / "absent.yaml")])
    assert code == 2
    assert "cannot read" in err


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("{", "JSON"),
        ("[]", "config.json"),
        ('{"model_type": "whisper"}', "whisper"),
        ('{"model_type": "llama"}', "is missing"),
        ('{"model_type": "gpt2", "n_embd": "wide"}', "n_embd"),
    ],
)
def test_a_bad_model_config_is_one_line(config: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(config)
    code, _, err = run(["solve", "--gpus", "8xA100-80G", "--model", str(path)])
    assert code == 2
    assert says in err
    assert len(err.splitlines()) == 1


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    code, _, err = run(["solve", *OK, "--output", str(blocker)])
    assert code == 2
    assert "not a folder" in err
    code, _, err = run(["solve", *OK, "--output", str(blocker / "job")])
    assert code == 2
    assert "cannot write" in err
    foreign = tmp_path / "mine"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("precious")
    code, _, err = run(["solve", *OK, "--output", str(foreign)])
    assert code == 2
    assert "--force" in err
    assert [p.name for p in foreign.iterdir()] == ["notes.txt"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "mine"]


def test_no_plan_exits_3_and_writes_nothing(tmp_path: Path) -> None:
    args = ["--model", "70b", "--gpus", "1xRTX4090", "--forbid", "offload_optimizer"]
    code, out, _ = run(["solve", *args, "--output", str(tmp_path / "job"), "--json"])
    assert code == 3
    result = json.loads(out)
    assert result["status"] == "infeasible"
    assert result["plan"] is None
    assert result["infeasible"]["short_by_bytes"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_batch_no_layout_divides_is_explained() -> None:
    args = ["--model", "gpt3-125m", "--gpus", "8xA100-80G", "--global-batch", "3"]
    code, out, _ = run(["solve", *args, "--fix", "dp=8"])
    assert code == 3
    assert "no layout has fix dp=8" in out
    assert "must divide 3 sequences" in out


def test_gpus_no_batch_divides_over_are_left_idle_or_given_another_batch() -> None:
    args = ["--model", "7b", "--gpus", "5000xH100"]
    code, out, _ = run(["solve", *args, "--json"])
    assert code == 3
    changes = [r["change"] for r in json.loads(out)["infeasible"]["relaxations"]]
    assert any("--allow-idle" in change for change in changes)
    batch = next(change for change in changes if change.startswith("--global-batch "))
    code, _, _ = run(["solve", *args, "--no-files", "--top", "0", *batch.split()[:2]])
    assert code == 0


@pytest.mark.parametrize("stack", ["megatron", "fsdp2", "deepspeed", "megatron-deepspeed"])
def test_a_dense_model_has_no_experts_to_shard(stack: str) -> None:
    args = ["--model", "8b", "--gpus", "8xH100", "--stack", stack, "--fix", "ep=2"]
    code, _, err = run(["estimate", *args])
    assert code == 2
    assert "llama3.1-8b, which has none" in err


def test_degrees_that_are_not_the_gpus_are_told_what_would_do() -> None:
    args = ["estimate", "--model", "8b", "--gpus", "8xH100", "--fix"]
    code, _, err = run([*args, "tp=3"])
    assert code == 2
    assert "dp x tp x pp x cp must be the 8 GPUs" in err
    assert "tp 1, 2, 4 or 8 would do" in err
    for tp in (1, 2, 4, 8):
        assert run([*args, f"tp={tp}"])[0] in (0, 1)
    assert "dp 2, or tp 2 would do" in run([*args, "dp=4", "--fix", "tp=4"])[2]


def test_a_time_limit_without_a_plan_exits_4(tmp_path: Path) -> None:
    args = ["--model", "70b", "--gpus", "8x8xA100-80G", "--time-limit", "0.000001"]
    code, out, _ = run(["solve", *args, "--output", str(tmp_path / "job"), "--json"])
    assert code == 4
    result = json.loads(out)
    assert result["status"] == "unknown"
    assert result["plan"] is None
    assert result["proof"]["status"] == "unknown"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["solve", "estimate", "advise", "verify", "validate"])
def test_no_switch_offers_a_double_negative(command: str) -> None:
    code, out, _ = run([command, "--help"])
    assert code == 0
    assert "--no-no-" not in out
