"""What the report says, word by word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner import advise
from planner.advisor.formats import render
from planner.advisor.formats_sarif import sarif
from planner.lint import Context, lint_deepspeed

FITS = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_accumulation_steps": 1,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True},
}


def write(folder: Path, name: str, data: Any) -> Path:
    """A JSON file."""
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_a_file_that_does_not_fit_is_not_clean(tmp_path: Path) -> None:
    small = write(tmp_path, "a.json", FITS)
    large = write(tmp_path, "b.json", {**FITS, "train_micro_batch_size_per_gpu": 512})
    report = advise(
        [small, large], model="llama3-8b", gpus="8xA100-80G", context="plain", advice=False
    )
    last = render(report, "text").splitlines()[-1]
    assert "1 does not fit" in last
    assert last.startswith("2 files: ")
    assert report.exit_code() == 1


def test_one_file_is_one_file(tmp_path: Path) -> None:
    report = advise(write(tmp_path, "a.json", FITS))
    assert "1 file: " in render(report, "markdown")


def test_null_is_called_null(tmp_path: Path) -> None:
    assert "holds null" in advise(write(tmp_path, "a.json", "null")).files[0].error


def test_an_old_release_is_said_once() -> None:
    found = lint_deepspeed(
        {**FITS, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}},
        Context(deepspeed_version="0.3.0"),
    )
    assert len([f for f in found if "0.3.0" in f.effect]) == 1
    assert not [f for f in found if f.id == "ds-key-too-new"]


def test_json_and_sarif_hold_whole_sentences(tmp_path: Path) -> None:
    word = "x" * 300
    path = write(tmp_path, "a.json", {**FITS, "communication_data_type": word, "dump_stat": word})
    report = advise(path)
    for fmt in ("json", "sarif"):
        assert "…" not in render(report, fmt)
    assert any(word in finding.effect for finding in report.files[0].findings)


def test_rules_in_sarif_have_no_placeholders(tmp_path: Path) -> None:
    data = {**FITS, "zero_optimization": {"stage": 7, "reduce_bucket": 5}, "dump_stat": 1}
    rules = sarif(advise(write(tmp_path, "a.json", data)))["runs"][0]["tool"]["driver"]["rules"]
    assert len(rules) > 1
    for rule in rules:
        assert "{" not in rule["shortDescription"]["text"]
        assert "{" not in rule.get("help", {}).get("text", "")


@pytest.mark.parametrize("fmt", ["text", "markdown"])
def test_long_steps_are_minutes(tmp_path: Path, fmt: str) -> None:
    path = write(tmp_path, "a.json", {**FITS, "gradient_accumulation_steps": 4096})
    report = advise(path, model="llama3-8b", gpus="8xA100-80G", context="plain", advice=False)
    assert " min" in render(report, fmt) or " h" in render(report, fmt)
