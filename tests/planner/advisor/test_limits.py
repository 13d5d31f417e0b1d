"""What the planner cannot judge is a note, not an error of the user's file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner import advise
from planner.advisor.limits import REFUSED
from planner.advisor.report import FileReport
from planner.rules import RULES


def judged(folder: Path, name: str, data: Any, **options: Any) -> FileReport:
    """The report of one file."""
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    options = {"model": "llama3-8b", "gpus": "8xA100-80G", "advice": False, **options}
    return advise(path, **options).files[0]


FSDP = (
    "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: {}\nfsdp_config:\n"
    "  fsdp_version: 1\n  fsdp_sharding_strategy: FULL_SHARD\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
)


def no_error(report: FileReport) -> None:
    """Fail on an error, and where a missing verdict has no reason."""
    assert [f for f in report.findings if f.severity == "error"] == []
    assert report.judgement is not None or any(n.startswith("no verdict") for n in report.notes)


def test_rules_of_the_framework_exist() -> None:
    assert {rule.name for rule in RULES} >= REFUSED


def test_fsdp_fp16_on_v100_is_no_error(tmp_path: Path) -> None:
    no_error(judged(tmp_path, "a.yaml", FSDP.format("fp16"), gpus="8xV100-32G"))


def test_fsdp_fp16_is_judged_as_bf16_where_that_runs(tmp_path: Path) -> None:
    report = judged(tmp_path, "a.yaml", FSDP.format("fp16"))
    no_error(report)
    assert report.judgement is not None
    assert any("judged as bf16" in note for note in report.notes)
    assert report.settings["precision"].value == "fp16"


@pytest.mark.parametrize("optimizer", ["adam8bit", "adafactor", "lion", "sgd"])
def test_fsdp_with_other_optimizers_is_no_error(tmp_path: Path, optimizer: str) -> None:
    no_error(judged(tmp_path, "a.yaml", FSDP.format("bf16"), optimizer=optimizer))


def test_zero_3_on_one_gpu_is_judged(tmp_path: Path) -> None:
    data = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
    }
    report = judged(tmp_path, "d.json", data, gpus="1xA100-80G")
    no_error(report)
    assert report.judgement is not None
    assert any("shards nothing" in note for note in report.notes)


def test_accelerate_fp8_is_no_error(tmp_path: Path) -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: fp8\n"
        "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: 1\n"
    )
    report = judged(tmp_path, "a.yaml", text, gpus="8xH100-80G")
    no_error(report)
    assert report.judgement is not None


def test_what_the_hardware_refuses_stays_an_error_with_its_place(tmp_path: Path) -> None:
    data = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
    report = judged(tmp_path, "d.json", data, gpus="8xV100-32G")
    assert report.level == "error"
    assert all(f.effect for f in report.findings)


@pytest.mark.parametrize("mixed", ["no", "'no'"])
def test_no_mixed_precision_is_fp32(tmp_path: Path, mixed: str) -> None:
    text = (
        f"distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: {mixed}\n"
        "deepspeed_config:\n  zero_stage: 2\n"
    )
    report = judged(tmp_path, "a.yaml", text)
    assert report.settings["precision"].value == "fp32"
    assert report.judgement is not None
    assert report.judgement.configuration["precision"] == "fp32"


def test_flags_without_half_precision_are_assumed_fp32(tmp_path: Path) -> None:
    text = "torchrun --nproc_per_node 8 t.py --per_device_train_batch_size 1 --output_dir o\n"
    report = judged(tmp_path, "t.sh", text)
    assert report.settings["precision"].value == "fp32"
    assert any(text.startswith("precision fp32") for text in report.assumed)


def test_a_half_precision_of_the_engine_counts_before_the_assumption(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": true}}')
    text = "deepspeed t.py --per_device_train_batch_size 1 --output_dir o --deepspeed ds.json\n"
    report = judged(tmp_path, "t.sh", text)
    assert report.settings["precision"].value == "bf16"


def test_an_open_precision_is_listed_as_assumed(tmp_path: Path) -> None:
    report = judged(tmp_path, "t.sh", "torchrun t.py --deepspeed_config x.json\n")
    assert report.judgement is None
    data = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}
    report = judged(tmp_path, "d.json", data)
    assert any(text.startswith("precision") for text in report.assumed)


@pytest.mark.parametrize(
    "text",
    [
        "deepspeed t.py --bf16 --output_dir o --deepspeed gone.json\n",
        "accelerate launch --config_file gone.yaml t.py --bf16 --output_dir o\n",
        "deepspeed t.py --bf16 --output_dir o --deepspeed $SOMEWHERE\n",
    ],
)
def test_missing_companions_are_a_warning_without_verdict(tmp_path: Path, text: str) -> None:
    report = judged(tmp_path, "t.sh", text)
    found = [f for f in report.findings if f.id == "missing-file"]
    assert [f.severity for f in found] == ["warning"]
    assert report.judgement is None
    assert any(note.startswith("no verdict") for note in report.notes)


def test_a_companion_given_with_the_call_is_not_missing(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}')
    text = "deepspeed t.py --bf16 --output_dir o --deepspeed gone.json\n"
    report = judged(tmp_path, "t.sh", text, partners=[other])
    assert not [f for f in report.findings if f.id == "missing-file"]
    assert report.judgement is not None


@pytest.mark.parametrize("stage", [4, -2, [3]])
def test_a_stage_that_is_none_gives_no_verdict(tmp_path: Path, stage: Any) -> None:
    data = {"bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    report = judged(tmp_path, "d.json", data)
    assert report.level == "error"
    assert report.judgement is None


@pytest.mark.parametrize("micro", [-1, "two", "0", 0])
def test_a_micro_batch_that_is_none_gives_no_verdict(tmp_path: Path, micro: Any) -> None:
    data = {
        "bf16": {"enabled": True},
        "train_micro_batch_size_per_gpu": micro,
        "zero_optimization": {"stage": 2},
    }
    report = judged(tmp_path, "d.json", data)
    assert report.level == "error"
    assert report.judgement is None
    flags = f"torchrun t.py --bf16 --output_dir o --per_device_train_batch_size {micro}\n"
    report = judged(tmp_path, "t.sh", flags)
    assert report.level == "error"
    assert report.judgement is None


def test_other_launches_of_a_script_are_named(tmp_path: Path) -> None:
    text = "torchrun a.py --bf16 --output_dir o\n\ntorchrun b.py --fp16 --output_dir p\n"
    report = judged(tmp_path, "t.sh", text)
    assert any("b.py (line 3)" in note for note in report.notes)
    one = judged(tmp_path, "u.sh", text.split("\n")[0] + "\n")
    assert not any("first launch" in note for note in one.notes)


def test_hybrid_shards_are_of_one_node(tmp_path: Path) -> None:
    text = FSDP.format("bf16")
    whole = judged(tmp_path, "a.yaml", text, gpus="4x8xA100-80G")
    node = judged(tmp_path, "a.yaml", text, gpus="8xA100-80G")
    mixed = judged(tmp_path, "b.yaml", text.replace("FULL", "HYBRID"), gpus="4x8xA100-80G")
    assert whole.judgement is not None
    assert node.judgement is not None
    assert mixed.judgement is not None
    assert mixed.judgement.peak_memory_bytes == node.judgement.peak_memory_bytes
    assert mixed.judgement.peak_memory_bytes > whole.judgement.peak_memory_bytes
    assert any("hybrid" in note for note in mixed.notes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", FSDP.format("bf16").replace("TRANSFORMER_BASED_WRAP", "NO_WRAP")),
        ("t.sh", "torchrun t.py --bf16 --output_dir o --learning_rate 1e-5 --fsdp full_shard\n"),
    ],
)
def test_one_unit_for_the_whole_model_is_not_judged(tmp_path: Path, name: str, text: str) -> None:
    report = judged(tmp_path, name, text)
    assert any(f.id.endswith("no-wrap") for f in report.findings)
    assert report.judgement is None
    assert any("one FSDP unit" in note for note in report.notes)


@pytest.mark.parametrize("accumulation", [1, 8])
def test_gradients_kept_whole_are_said(tmp_path: Path, accumulation: int) -> None:
    flags = f"--bf16 --gradient_accumulation_steps {accumulation}"
    report = judged(tmp_path, "a.yaml", FSDP.format("bf16"), args=flags)
    assert any("whole gradients" in note for note in report.notes) == (accumulation > 1)
