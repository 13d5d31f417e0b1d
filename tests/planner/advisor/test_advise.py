"""The advisor as a whole: contexts, verdicts, advice, symptoms, exit codes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from planner import advise
from planner.advisor.readers import read_text
from planner.advisor.source import LARGEST, Source, Unreadable, decode
from planner.advisor.symptoms import SYMPTOMS, TABLE

AUTO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
}
FLAGS = "--per_device_train_batch_size 1 --gradient_accumulation_steps 4 --bf16"


def write(folder: Path, name: str, data: Any) -> Path:
    """A file with text, or JSON of anything else."""
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


# --- interface ---


def test_many_files_patterns_and_folders(tmp_path: Path) -> None:
    write(tmp_path, "a.json", AUTO)
    write(tmp_path, "b.json", AUTO)
    write(tmp_path, "notes.txt", "hello")
    assert len(advise(str(tmp_path / "*.json")).files) == 2
    assert len(advise(tmp_path).files) == 2
    assert len(advise([tmp_path / "a.json", str(tmp_path / "*.json")]).files) == 2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"context": "fsdp"}, "context 'fsdp'"),
        ({"symptom": "slowness"}, "expected one of oom"),
        ({"deepspeed_version": "new"}, "version 'new'"),
        ({"gpus": "8xNOPE"}, "unknown GPU"),
        ({"model": "no-such-model"}, "unknown model"),
    ],
)
def test_wrong_options_are_one_line(tmp_path: Path, options: dict[str, Any], what: str) -> None:
    path = write(tmp_path, "d.json", AUTO)
    with pytest.raises(ValueError, match=what) as caught:
        advise(path, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "raw", "what"),
    [
        ("d.json", b'{"train_batch_size": "\xff\xfe"}', "not UTF-8"),
        ("d.json", b'{"a": 1\x00}', "binary"),
        ("d.json", b"[1, 2]", "holds a list"),
        ("d.json", b"", "empty"),
        ("d.json", b'{"hidden_size": 1, "layers": 2}', "not a known kind"),
        ("a.yaml", b"just text", "holds a str"),
        ("t.sh", b"echo hello", "no training launch"),
        ("d.json", b" " * (LARGEST + 1), "at most"),
    ],
)
def test_unreadable_files_are_reported_not_raised(
    tmp_path: Path, name: str, raw: bytes, what: str
) -> None:
    path = tmp_path / name
    path.write_bytes(raw)
    report = advise(path)
    assert what in report.files[0].error
    assert report.files[0].level == "unreadable"
    assert report.exit_code("none") == 2


def test_missing_file_and_utf_16(tmp_path: Path) -> None:
    assert "no such file" in advise(tmp_path / "nope.json").files[0].error
    assert decode("a: 1\r\n".encode("utf-16"), "x") == "a: 1\n"
    with pytest.raises(Unreadable):
        decode(b"\xff", "x")


# --- context ---


@pytest.mark.parametrize(
    ("name", "data", "options", "context"),
    [
        ("d.json", AUTO, {}, "hf"),
        ("d.json", {"train_batch_size": 8}, {}, "plain"),
        ("d.json", {"train_batch_size": 8}, {"args": "--bf16"}, "hf"),
        ("d.json", {"train_batch_size": 8, "pipe_parallel_size": 2}, {}, "megatron"),
        ("d.json", AUTO, {"context": "plain"}, "plain"),
        ("a.yaml", "distributed_type: DEEPSPEED\nnum_processes: 2\n", {}, "accelerate"),
    ],
)
def test_context_is_inferred_and_echoed(
    tmp_path: Path, name: str, data: Any, options: dict[str, Any], context: str
) -> None:
    report = advise(write(tmp_path, name, data), **options).files[0]
    assert report.context == context
    assert report.context_inferred == ("context" not in options)


def test_partner_file_by_name_and_by_option(tmp_path: Path) -> None:
    write(tmp_path, "ds.json", {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  {}zero_stage: 3\nnum_processes: 2\n"
    named = write(tmp_path, "a.yaml", text.format("deepspeed_config_file: ds.json\n  "))
    found = advise(named).files[0].findings
    assert any(f.id == "acc-file-conflict" and "(2)" in f.effect for f in found)
    json_file = tmp_path / "ds.json"
    yaml_file = write(tmp_path, "b.yaml", text.format(""))
    assert advise(json_file, partners=[yaml_file]).files[0].context == "accelerate"


def test_missing_partner_is_said(tmp_path: Path) -> None:
    path = write(tmp_path, "t.sh", "torchrun t.py --bf16 --output_dir o --deepspeed gone.json\n")
    assert "gone.json is named but was not read" in advise(path).files[0].notes


def test_auto_values_are_shown(tmp_path: Path) -> None:
    report = advise(write(tmp_path, "d.json", AUTO), args=FLAGS, gpus="8xA100-80G", model="7b")
    filled = {f.key: f.value for f in report.files[0].filled}
    assert filled["train_micro_batch_size_per_gpu"] == 1
    assert filled["gradient_accumulation_steps"] == 4
    assert filled["bf16.enabled"] is True


# --- verdict and advice ---


def test_verdict_settings_and_what_was_assumed(tmp_path: Path) -> None:
    path = write(tmp_path, "d.json", AUTO)
    one = advise(path, args=FLAGS, model="llama2-7b", gpus="8xA100-80G", seq_len=4096).files[0]
    judged = one.judgement
    assert judged is not None
    assert judged.configuration["dp"] == 8
    assert judged.configuration["zero_stage"] == 3
    assert sum(judged.memory.values()) == judged.peak_memory_bytes
    assert {line.what for line in judged.host} == {"loading", "training", "saving"}
    assert one.settings["micro_batch"].how == "filled"
    assert any(text.startswith("recompute none") for text in one.assumed)


def test_verdict_is_what_estimate_says(tmp_path: Path) -> None:
    from planner.api import estimate

    path = write(tmp_path, "d.json", AUTO)
    judged = advise(path, args=FLAGS, model="llama2-7b", gpus="8xA100-80G").files[0].judgement
    fix = {"zero_stage": 3, "micro_batch": 1, "precision": "bf16"}
    same = estimate(
        model="llama2-7b", gpus="8xA100-80G", global_batch=32, stack="deepspeed", fix=fix
    )
    assert judged is not None
    assert same.predicted is not None
    assert judged.peak_memory_bytes == same.predicted.peak_memory_bytes
    assert judged.step_time_s == same.predicted.step_time_s


def test_advice_is_a_minimal_patch_of_the_users_own_file(tmp_path: Path) -> None:
    data = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 8,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 1},
    }
    path = write(tmp_path, "d.json", data)
    one = advise(path, model="llama2-13b", gpus="8xA100-40G", seq_len=2048).files[0]
    assert one.judgement is not None
    assert not one.judgement.fits
    assert one.advice
    for advice in one.advice:
        assert advice.verdict == "fits"
        assert advice.memory_saved_bytes > 0
        changed = {axis for axis in advice.changes if axis != "grad_accum"}
        assert 1 <= len(changed) <= 4
        assert advice.files or advice.flags
    edits = {e.path: e.value for a in one.advice for f in a.files for e in f.edits}
    assert edits[("zero_optimization", "stage")] in (2, 3)


def test_advice_rises_on_the_ladder(tmp_path: Path) -> None:
    from planner.advisor.advice import rung

    path = write(tmp_path, "d.json", AUTO)
    flags = FLAGS.replace("size 1", "size 8")
    one = advise(path, args=flags, model="llama3-8b", gpus="8xA100-40G").files[0]
    rungs = [max(rung(a, v) for a, v in x.changes.items() if a != "grad_accum") for x in one.advice]
    assert rungs == sorted(rungs)


def test_no_advice_beats_an_exhaustive_look(tmp_path: Path) -> None:
    """With all single changes tried by hand, none that fits is less intrusive."""
    from planner.advisor.advice import rung
    from planner.api import estimate

    data = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
    }
    path = write(tmp_path, "d.json", data)
    one = advise(path, model="llama2-7b", gpus="8xA100-40G", seq_len=4096).files[0]
    fits = []
    for axis, value in (
        ("micro_batch", 1),
        ("micro_batch", 2),
        ("recompute", "full"),
        ("offload_optimizer", "cpu"),
    ):
        fix = {"zero_stage": 3, "micro_batch": 4, "precision": "bf16", axis: value}
        got = estimate(
            **{"model": "llama2-7b", "gpus": "8xA100-40G", "seq_len": 4096, "global_batch": 64},
            stack="deepspeed",
            fix=fix,
        )
        if got.predicted is not None and got.predicted.verdict == "fits":
            fits.append(rung(axis, value))
    assert one.judgement is not None
    if not one.judgement.fits and fits:
        first = one.advice[0].changes
        lowest = max(rung(a, v) for a, v in first.items() if a != "grad_accum")
        assert lowest == min(fits)


def test_faster_plans_when_it_fits(tmp_path: Path) -> None:
    data = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 8,
        "bf16": {"enabled": True},
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "cpu"},
            "offload_param": {"device": "cpu"},
        },
    }
    path = write(tmp_path, "d.json", data)
    one = advise(path, model="llama2-7b", gpus="8xA100-80G", seq_len=2048).files[0]
    assert one.judgement is not None
    assert one.judgement.verdict == "fits"
    assert one.advice
    for advice in one.advice:
        assert advice.time_saved_s is not None
        assert advice.time_saved_s > 0
        assert advice.verdict == "fits"
    assert any(advice.changes.get("offload_optimizer") == "none" for advice in one.advice)


def test_host_memory_has_its_own_verdict(tmp_path: Path) -> None:
    """33B with everything offloaded: 600 GB of RAM kill it, a terabyte runs (DeepSpeed 3448)."""
    data = {
        **AUTO,
        "zero_optimization": {
            "stage": 3,
            "offload_optimizer": {"device": "cpu"},
            "offload_param": {"device": "cpu"},
        },
    }
    path = write(tmp_path, "d.json", data)
    options = {
        "args": FLAGS + " --gradient_checkpointing --model_max_length 2048",
        "model": "llama-30b",
        "gpus": "8xA100-40G",
        "advice": False,
    }
    judged = {
        ram: advise(path, host_memory=ram, **options).files[0].judgement
        for ram in ("400GB", "1200GB")
    }
    small, large = judged["400GB"], judged["1200GB"]
    assert small is not None
    assert large is not None
    assert small.host_verdict == "does not fit"
    assert large.host_verdict == "fits"
    assert small.verdict == large.verdict


def test_model_comes_from_the_file(tmp_path: Path) -> None:
    text = (
        "base_model: NousResearch/Meta-Llama-3.1-8B\nsequence_len: 2048\nmicro_batch_size: 1\n"
        "gradient_accumulation_steps: 4\nbf16: auto\ngradient_checkpointing: true\n"
    )
    one = advise(write(tmp_path, "x.yaml", text), gpus="8xA100-80G").files[0]
    assert one.judgement is not None
    assert any("llama3.1-8b" in note for note in one.notes)


def test_shape_comes_from_megatron_flags(tmp_path: Path) -> None:
    text = (
        "export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun --nproc_per_node 8 pretrain_gpt.py"
        " --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048"
        " --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 64 --bf16"
        " --tensor-model-parallel-size 4 --sequence-parallel --use-distributed-optimizer"
    )
    one = advise(write(tmp_path, "m.sh", text), gpus="8xA100-80G").files[0]
    assert one.judgement is not None
    assert one.judgement.configuration["tp"] == 4
    assert one.judgement.configuration["zero_stage"] == 1
    assert one.judgement.configuration["grad_accum"] == 32


def test_adapters_get_no_verdict(tmp_path: Path) -> None:
    text = (
        "base_model: llama3-8b\nadapter: lora\nsequence_len: 2048\nmicro_batch_size: 1\n"
        "gradient_accumulation_steps: 4\nbf16: auto\n"
    )
    one = advise(write(tmp_path, "x.yaml", text), gpus="8xA100-80G").files[0]
    assert one.judgement is None
    assert "no verdict: lora tuning is not predicted yet" in one.notes


def test_what_the_hardware_refuses_is_a_finding(tmp_path: Path) -> None:
    path = write(tmp_path, "d.json", {**AUTO, "bf16": {"enabled": True}})
    one = advise(path, args=FLAGS, model="7b", gpus="8xV100-32G").files[0]
    assert one.judgement is None
    assert {f.id for f in one.findings if f.severity == "error"} >= {"ds-half-unsupported"}


# --- symptoms ---


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_symptoms_rank_causes_with_checks(tmp_path: Path, symptom: str) -> None:
    path = write(tmp_path, "d.json", AUTO)
    causes = advise(path, args=FLAGS, symptom=symptom).files[0].causes
    assert causes
    assert [c.rank for c in causes] == list(range(1, len(causes) + 1))
    assert [c.likelihood for c in causes] == sorted((c.likelihood for c in causes), reverse=True)
    assert all(c.check and c.remedy and c.source for c in causes)


def test_every_symptom_has_a_table() -> None:
    assert set(TABLE) == set(SYMPTOMS)


def first_cause(path: Path, symptom: str, **options: Any) -> str:
    return advise(path, symptom=symptom, advice=False, **options).files[0].causes[0].cause


def test_symptoms_follow_the_configuration(tmp_path: Path) -> None:
    offloaded = {
        **AUTO,
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
    }
    half = {"train_batch_size": 8, "fp16": {"enabled": True}}
    slow = write(tmp_path, "o.json", offloaded)
    assert "offload" in first_cause(slow, "slow")
    assert "offloaded states" in first_cause(slow, "host-oom")
    assert "fp16 overflows" in first_cause(write(tmp_path, "h.json", half), "nan")
    across = first_cause(
        write(tmp_path, "z.json", AUTO), "slow", args=FLAGS, model="7b", gpus="2x4xA10"
    )
    assert "network" in across
    moe = write(
        tmp_path, "l.yaml",
        "model_name_or_path: mistralai/Mixtral-8x7B-v0.1\nstage: sft\ntemplate: a\n"
        "dataset: a\ndeepspeed: z.json\nbf16: true\nfinetuning_type: full\n",
    )  # fmt: skip
    assert "experts" in first_cause(moe, "hang")
    wrap = write(
        tmp_path, "f.yaml",
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\nnum_processes: 4\n",
    )  # fmt: skip
    assert "one FSDP unit" in first_cause(wrap, "oom")


# --- exit codes and the command ---


@pytest.mark.parametrize(
    ("data", "fail_on", "code"),
    [
        ({"train_batch_size": 8, "bf16": {"enabled": True}}, "info", 0),
        ({"train_batch_size": 8, "bf16": {"enabled": True}, "typo": 1}, "error", 0),
        ({"train_batch_size": 8, "bf16": {"enabled": True}, "typo": 1}, "warning", 1),
        ({"bf16": {"enabled": True}}, "error", 1),
        ({"bf16": {"enabled": True}}, "none", 0),
    ],
)
def test_exit_codes(tmp_path: Path, data: Any, fail_on: str, code: int) -> None:
    assert advise(write(tmp_path, "d.json", data)).exit_code(fail_on) == code


def test_does_not_fit_exits_1(tmp_path: Path) -> None:
    path = write(tmp_path, "d.json", AUTO)
    report = advise(path, args=FLAGS, model="llama2-70b", gpus="2xRTX4090", advice=False)
    assert report.files[0].level != "error"
    assert report.exit_code() == 1


def run(*arguments: str) -> Any:
    import typer

    from planner.advisor.command import advise as command

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    return CliRunner().invoke(app, list(arguments))


def test_command_prints_one_json_object(tmp_path: Path) -> None:
    path = write(tmp_path, "d.json", AUTO)
    result = run(str(path), "--json", "--args", FLAGS)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["files"][0]["context"] == "hf"


def test_command_errors_are_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, "d.json", AUTO)
    for arguments in (["--format", "xml"], ["--fail-on", "all"], ["--gpus", "8xNOPE"]):
        result = run(str(path), *arguments)
        assert result.exit_code == 2
        assert result.stderr.count("\n") == 1


def test_command_applies(tmp_path: Path) -> None:
    path = write(tmp_path, "d.json", {"bf16": {"enabled": True}})
    result = run(str(path), "--apply")
    assert result.exit_code == 1
    assert json.loads((tmp_path / "d.patched.json").read_text())["train_micro_batch_size_per_gpu"]


# --- speed ---


def test_two_hundred_files_with_verdicts(tmp_path: Path) -> None:
    for i in range(200):
        write(tmp_path, f"{i}.json", {**AUTO, "steps_per_print": i + 1})
    advise(tmp_path / "0.json", args=FLAGS, model="7b", gpus="8xA100-80G", advice=False)
    start = time.monotonic()
    report = advise(
        str(tmp_path / "*.json"), args=FLAGS, model="7b", gpus="8xA100-80G", advice=False
    )
    assert time.monotonic() - start < 20
    assert sum(one.judgement is not None for one in report.files) == 200


def test_lint_imports_no_numbers() -> None:
    """Linting must start fast: neither numpy nor the solver may be imported for it."""
    import subprocess
    import sys

    code = (
        "import sys; from planner import advise; from planner.lint import lint_deepspeed;"
        "lint_deepspeed({'train_batch_size': 8});"
        "print([m for m in ('numpy', 'ortools', 'ruamel') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_source_without_a_folder_follows_nothing() -> None:
    reading = read_text(Source("a.yaml", "deepspeed: x.json\nbase_model: m\nsequence_len: 8\n"))
    assert reading.missing == ("x.json",)


def test_checkpointing_and_micro_batch_are_traded_when_it_fits(tmp_path: Path) -> None:
    from planner.advisor.changes import speeding
    from planner.advisor.readers import read_file
    from planner.lint import Context

    reading = read_file(write(tmp_path, "d.json", AUTO))
    base = {"offload_optimizer": "none", "offload_parameters": "none", "zero_stage": 3}
    off = speeding(
        {**base, "recompute": "none", "micro_batch": 1, "grad_accum": 4}, Context(), reading
    )
    assert {"recompute": "full", "micro_batch": 4} in off
    on = speeding(
        {**base, "recompute": "full", "micro_batch": 4, "grad_accum": 1}, Context(), reading
    )
    assert {"recompute": "none", "micro_batch": 2} in on


def test_plans_that_fit_keep_the_best_of_both(tmp_path: Path) -> None:
    data = {
        "train_micro_batch_size_per_gpu": 8,
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": True},
        "pipeline": {"activation_checkpoint_interval": 1},
        "zero_optimization": {"stage": 3},
    }
    path = write(tmp_path, "d.json", data)
    report = advise(path, model="llama3-8b", gpus="8xA100-80G", seq_len=2048, context="plain")
    plans = report.files[0].advice
    assert any({"recompute", "micro_batch"} <= plan.changes.keys() for plan in plans)
