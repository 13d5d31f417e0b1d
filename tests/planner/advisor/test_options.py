"""Options of ``advise``: wrong ones stop it with one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from one_line import one_line
from typer.testing import CliRunner

from planner import advise
from planner.cli import app

DATA = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file without a fault."""
    path = tmp_path / "d.json"
    path.write_text(json.dumps(DATA))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ["--seq-len", "0"],
        ["--optimizer", "foo"],
        ["--host-memory", "512QB"],
        ["--inter-bandwidth", "fast"],
        ["--cross-entropy", "foo"],
        ["--plan", "0"],
        ["--global-batch", "-4"],
        ["--hardware", "nowhere.yaml"],
    ],
)
@pytest.mark.parametrize("gpus", [[], ["--gpus", "8xA100-80G", "--model", "llama3-8b"]])
def test_bad_values_end_with_one_line(file: Path, words: list[str], gpus: list[str]) -> None:
    result = CliRunner().invoke(app, ["advise", str(file), *words, *gpus])
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.output


def test_unknown_keywords_are_named(file: Path) -> None:
    with pytest.raises(TypeError, match="sequence_length") as caught:
        advise(file, sequence_length=4)
    one_line(caught.value)


def test_args_as_a_list_of_words(file: Path) -> None:
    words = ["--bf16", "--per_device_train_batch_size", "4"]
    assert advise(file, args=words) == advise(file, args=" ".join(words))


@pytest.mark.parametrize("args", [5, {"bf16": True}, ["--seed", 5]])
def test_args_of_another_kind_are_refused(file: Path, args: Any) -> None:
    with pytest.raises(ValueError, match="args") as caught:
        advise(file, args=args)
    one_line(caught.value)


def test_typed_flags_are_looked_at_too(file: Path) -> None:
    found = advise(file, args="--bf16 --per_device_train_batch_size two").files[0].findings
    assert [f.key for f in found if f.id == "hf-bad-number"] == ["--per_device_train_batch_size"]
