"""What the planner emits, the advisor reads back: the same plan, and nothing to complain about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import advise
from planner.api import estimate
from planner.emit import emit
from planner.job import resolve
from planner.plan import Result
from planner.spec import make_spec

JOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "zero0": ({"model": "gpt2", "seq_len": 1024}, {"zero_stage": 0}),
    "zero1": ({"model": "gpt2-xl", "seq_len": 1024}, {"zero_stage": 1, "recompute": "full"}),
    "zero2": ({"model": "llama2-7b"}, {"zero_stage": 2, "micro_batch": 2, "recompute": "full"}),
    "zero3": ({"model": "llama2-13b"}, {"zero_stage": 3, "recompute": "full"}),
    "zero2-offload": (
        {"model": "llama2-7b"},
        {"zero_stage": 2, "offload_optimizer": "cpu", "recompute": "full"},
    ),
    "zero3-offload": (
        {"model": "llama2-13b"},
        {
            **{"zero_stage": 3, "offload_optimizer": "cpu", "offload_parameters": "cpu"},
            "recompute": "full",
        },
    ),
    "fp16": ({"model": "gpt2-xl", "seq_len": 1024, "gpus": "8xV100-32G"}, {"zero_stage": 2}),
    "fp32": ({"model": "gpt2", "seq_len": 1024}, {"zero_stage": 1, "precision": "fp32"}),
    "pipeline": ({"model": "llama2-7b"}, {"pp": 2, "zero_stage": 1, "recompute": "full"}),
    "megatron-deepspeed": (
        {"model": "llama2-7b", "stack": "megatron-deepspeed"},
        {"tp": 2, "zero_stage": 1, "recompute": "full"},
    ),
    "megatron": (
        {"model": "llama2-13b", "stack": "megatron", "gpus": "2x8xA100-80G"},
        {"tp": 2, "pp": 2, "zero_stage": 1, "sequence_parallel": 1},
    ),
    "fsdp2": ({"model": "llama3-8b", "stack": "fsdp2"}, {"zero_stage": 3, "recompute": "full"}),
}
TEXT = (".json", ".yaml", ".sh", ".sbatch")
SAME: tuple[str, ...] = (
    "dp",
    "tp",
    "pp",
    "cp",
    "micro_batch",
    "grad_accum",
    "zero_stage",
    "precision",
)
SAME += ("recompute", "offload_optimizer", "offload_parameters", "sequence_parallel")


def bundle(folder: Path, name: str) -> tuple[Result, list[Path]]:
    """The files of a plan, written out."""
    fields, fix = JOBS[name]
    fields = {"gpus": "8xA100-80G", "stack": "deepspeed", "global_batch": 64, **fields}
    result = estimate(fix=fix, **fields)
    assert result.plan is not None
    files = dict(emit(resolve(make_spec({**fields, "fix": fix})), result.plan))
    files["plan.json"] = result.model_dump_json(indent=2)
    out = []
    for file, text in files.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.suffix in TEXT and not file.startswith("model_config"):
            out.append(path)
    return result, out


@pytest.mark.parametrize("name", JOBS)
def test_emitted_files_get_no_error_and_no_warning(tmp_path: Path, name: str) -> None:
    _, files = bundle(tmp_path, name)
    assert files
    for path in files:
        report = advise(path).files[0]
        assert report.error == "", path.name
        loud = [(f.id, f.key) for f in report.findings if f.severity != "info"]
        assert loud == [], path.name


@pytest.mark.parametrize("name", JOBS)
def test_emitted_files_say_what_the_plan_says(tmp_path: Path, name: str) -> None:
    """Each file to the fields its format holds."""
    result, files = bundle(tmp_path, name)
    for path in files:
        report = advise(path).files[0]
        for axis in SAME:
            setting = report.settings.get(axis)
            if setting is not None and setting.how == "file":
                assert setting.value == getattr(result.plan, axis), (path.name, axis)


@pytest.mark.parametrize("name", JOBS)
def test_plan_is_read_back_whole(tmp_path: Path, name: str) -> None:
    result, _ = bundle(tmp_path, name)
    plan = result.plan
    assert plan is not None
    fields, _ = JOBS[name]
    report = advise(
        tmp_path / "plan.json",
        model=fields["model"],
        gpus=fields.get("gpus", "8xA100-80G"),
        advice=False,
    ).files[0]
    for axis in SAME:
        assert report.settings[axis].value == getattr(plan, axis)
    assert report.judgement is not None
    assert result.predicted is not None
    assert report.judgement.peak_memory_bytes == result.predicted.peak_memory_bytes


def test_a_folder_is_read_as_a_bundle(tmp_path: Path) -> None:
    bundle(tmp_path, "zero3")
    kinds = {Path(one.file).name: one.kind for one in advise(tmp_path).files}
    assert kinds["plan.json"] == "plan"
    assert kinds["deepspeed_config.json"] == "deepspeed"
    assert "launch.sh" in kinds
