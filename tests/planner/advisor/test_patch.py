"""Patches as shown and as applied: they read back as what was predicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner import advise
from planner.advisor.formats import render
from planner.advisor.formats_text import patch_lines
from planner.advisor.writing import write_patched, write_patched_saying

GPUS = {"model": "llama3-8b", "gpus": "8xA100-80G", "seq_len": 4096}
DS = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 5e8},
}
LAUNCH = (
    "deepspeed --num_gpus 8 train.py --per_device_train_batch_size 64 --bf16"
    " --gradient_accumulation_steps 1 --output_dir o --deepspeed ds.json\n"
)
MEGATRON = (
    "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096"
    " --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096"
    " --micro-batch-size 4 --global-batch-size 64 --bf16\n"
)


def write(folder: Path, name: str, data: Any) -> Path:
    """A file with text, or JSON of anything else."""
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_megatron_changes_are_flags(tmp_path: Path) -> None:
    report = advise(write(tmp_path, "m.sh", MEGATRON), gpus="8xA100-80G").files[0]
    lines = [line for a in report.advice for line in patch_lines(a, report.file)]
    assert lines
    assert all(line.startswith(("--", "remove --", "add --")) for line in lines)
    assert not [line for line in lines if "_" in line]


def test_what_no_file_holds_is_one_sentence(tmp_path: Path) -> None:
    text = LAUNCH.replace(" --deepspeed ds.json", "")
    report = advise(write(tmp_path, "t.sh", text), **GPUS).files[0]
    shown = render(advise(write(tmp_path, "t.sh", text), **GPUS), "text")
    assert report.advice
    assert "add give" not in shown
    assert "to none in that file" not in shown
    assert "in that file" not in shown


def test_advice_reads_back_as_predicted(tmp_path: Path) -> None:
    write(tmp_path, "ds.json", DS)
    path = write(tmp_path, "t.sh", LAUNCH)
    report = advise(path, **GPUS)
    one = report.files[0]
    assert one.advice
    written = write_patched(report, **GPUS)
    script = next(p for p in written if p.suffix == ".sh")
    again = advise(script, **GPUS).files[0]
    assert again.judgement is not None
    for axis, value in one.advice[0].changes.items():
        assert again.judgement.configuration[axis] == value


def test_auto_accumulation_stays_auto(tmp_path: Path) -> None:
    write(tmp_path, "ds.json", DS)
    path = write(tmp_path, "t.sh", LAUNCH)
    report = advise(path, **GPUS)
    assert "grad_accum" in report.files[0].advice[0].changes
    write_patched(report, **GPUS)
    patched = tmp_path / "ds.patched.json"
    held = json.loads(patched.read_text()) if patched.exists() else DS
    assert held["gradient_accumulation_steps"] == "auto"
    wanted = report.files[0].advice[0].changes["grad_accum"]
    assert f"--gradient_accumulation_steps {wanted}" in (tmp_path / "t.patched.sh").read_text()


def test_accelerate_auto_accumulation_stays_auto(tmp_path: Path) -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\n"
        "deepspeed_config:\n  zero_stage: 2\n  gradient_accumulation_steps: auto\n"
    )
    path = write(tmp_path, "a.yaml", text)
    args = "--per_device_train_batch_size 64 --gradient_accumulation_steps 1 --bf16"
    report = advise(path, args=args, **GPUS)
    lines = [line for a in report.files[0].advice for line in patch_lines(a, str(path))]
    assert not [line for line in lines if line.startswith("deepspeed_config.gradient_acc")]
    assert any(line.startswith("add --gradient_accumulation_steps") for line in lines)


@pytest.mark.parametrize("kind", ["selective", "none"])
def test_megatron_deepspeed_is_not_offered_selective(tmp_path: Path, kind: str) -> None:
    text = MEGATRON.rstrip() + " --zero-stage 1 --deepspeed --no-pipeline-parallel\n"
    report = advise(write(tmp_path, "m.sh", text), gpus="8xA100-80G").files[0]
    assert not [a for a in report.advice if a.changes.get("recompute") == kind == "selective"]


def test_patched_files_name_the_patched_partner(tmp_path: Path) -> None:
    write(tmp_path, "ds.json", {**DS, "zero_optimization": {"stage": 2, "reduce_buket_size": 5e8}})
    path = write(tmp_path, "t.sh", LAUNCH)
    report = advise(path, **GPUS)
    written = write_patched(report, **GPUS)
    assert {p.name for p in written} == {"ds.patched.json", "t.patched.sh"}
    assert "--deepspeed ds.patched.json" in (tmp_path / "t.patched.sh").read_text()
    assert (
        "5e8" in (tmp_path / "ds.patched.json").read_text()
        or "500000000.0" in (tmp_path / "ds.patched.json").read_text()
    )


def test_a_yaml_names_the_patched_file_too(tmp_path: Path) -> None:
    write(tmp_path, "ds.json", {**DS, "zero_optimization": {"stage": 2, "reduce_buket_size": 5}})
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    report = advise(write(tmp_path, "a.yaml", text))
    names = {p.name for p in write_patched(report)}
    assert names == {"a.patched.yaml", "ds.patched.json"}
    assert "deepspeed_config_file: ds.patched.json" in (tmp_path / "a.patched.yaml").read_text()


def test_nothing_written_says_why(tmp_path: Path) -> None:
    small = {**DS, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    small |= {"bf16": {"enabled": True}, "gradient_clipping": 1.0}
    path = write(tmp_path, "d.json", small)
    options = {**GPUS, "context": "plain"}
    written, said = write_patched_saying(advise(path, **options), **options)
    assert written == ()
    assert len(said) == 1
    assert "nothing written" in said[0]


def test_a_plan_that_is_not_there_is_said(tmp_path: Path) -> None:
    write(tmp_path, "ds.json", DS)
    path = write(tmp_path, "t.sh", LAUNCH)
    _, said = write_patched_saying(advise(path, **GPUS), 9, **GPUS)
    assert any("no plan 9" in line for line in said)


def test_a_new_layout_is_said(tmp_path: Path) -> None:
    text = json.dumps({**DS, "bf16": {"enabled": True}, "reduce_buket_size": 1})
    path = write(tmp_path, "d.json", text.replace("{", "{ // mine\n", 1))
    data = advise(path, context="plain")
    written, said = write_patched_saying(data, context="plain")
    assert bool(written) == any("laid out anew" in line for line in said)
