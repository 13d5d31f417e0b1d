"""Patches change what they name and nothing else, and what they make is clean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import advise
from planner.advisor.arguments import find_launch
from planner.advisor.edit import apply_edits
from planner.advisor.readers import read_text
from planner.advisor.shell import read_script
from planner.advisor.source import Source
from planner.advisor.writing import write_patched
from planner.lint.document import Document
from planner.lint.finding import Edit
from planner.lint.rule import move_key, remove_key, set_key

YAML = """# my launcher
compute_environment: LOCAL_MACHINE  # one box
distributed_type: DEEPSPEED

deepspeed_config:
  # keep an eye on memory
  zero_stage: 2   # gradients too
  zero_stag: 3
  offload_optimizer_device: "none"
mixed_precision: 'bf16'
num_processes: 8
"""
SHELL = r"""#!/bin/bash
# --bf16 is set below
MICRO=4
ARGS=(
  --per_device_train_batch_size $MICRO   # per GPU
  --gradient_accumulation_steps 2
  --fp16
)
torchrun --nproc_per_node 8 train.py "${ARGS[@]}" \
  --output_dir "out dir" --bf16 True
"""


def document(name: str, text: str) -> Document:
    """A file's document."""
    return read_text(Source(name, text), follow=False).document


def test_yaml_keeps_comments_order_and_quotes() -> None:
    doc = document("a.yaml", YAML)
    new = apply_edits(
        doc,
        [
            set_key("deepspeed_config", "zero_stage", value=3),
            remove_key("deepspeed_config", "zero_stag"),
            set_key("deepspeed_config", "zero3_init_flag", value=True),
        ],
    )
    expected = YAML.replace("zero_stage: 2   #", "zero_stage: 3   #").replace(
        "  zero_stag: 3\n", ""
    )
    assert [line for line in new.splitlines() if "zero3_init_flag" not in line] == (
        expected.splitlines()
    )
    assert "  zero3_init_flag: true\n" in new


def test_yaml_rename_keeps_place_and_comment() -> None:
    text = "distributed_type: NO\nnum_proceses: 4  # cards\nmixed_precision: bf16\n"
    new = apply_edits(document("a.yaml", text), [move_key(("num_proceses",), ("num_processes",))])
    assert new.split() == text.replace("num_proceses", "num_processes").split()


def test_json_keeps_order_and_indent() -> None:
    text = json.dumps(
        {"train_batch_size": 8, "zero_optimization": {"stage": 2, "aio": {"block_size": 1}},
         "bf16": {"enabled": True}},
        indent=4,
    )  # fmt: skip
    new = apply_edits(document("d.json", text), [move_key(("zero_optimization", "aio"), ("aio",))])
    assert list(json.loads(new)) == ["train_batch_size", "zero_optimization", "bf16", "aio"]
    assert '\n    "train_batch_size": 8' in new


def flags_of(text: str) -> dict[str, Any]:
    launch = find_launch(read_script(text, "t.sh"), "t.sh", text)
    assert launch is not None
    return dict(launch.flags.data)


def test_shell_changes_only_the_flag() -> None:
    doc = document("t.sh", SHELL)
    new = apply_edits(doc, [set_key("per_device_train_batch_size", value=1), remove_key("fp16")])
    assert "--per_device_train_batch_size 1   # per GPU\n" in new
    assert "--fp16" not in new
    before = {k: v for k, v in flags_of(SHELL).items() if k != "fp16"}
    assert flags_of(new) == {**before, "per_device_train_batch_size": 1}
    assert "# --bf16 is set below" in new


def test_shell_adds_flags_in_the_style_of_the_file() -> None:
    doc = document("t.sh", SHELL)
    new = apply_edits(doc, [set_key("gradient_checkpointing", value=True)])
    assert flags_of(new) == {**flags_of(SHELL), "gradient_checkpointing": True}
    megatron = "torchrun p.py --num-layers 2 --micro-batch-size 1 --hidden-size 8"
    new = apply_edits(document("m.sh", megatron), [set_key("sequence_parallel", value=True)])
    assert "--sequence-parallel" in new


@given(
    st.sampled_from(["per_device_train_batch_size", "learning_rate", "warmup_steps"]),
    st.integers(1, 9999),
)
def test_setting_then_reading_gives_the_value(name: str, value: int) -> None:
    new = apply_edits(document("t.sh", SHELL), [set_key(name, value=value)])
    assert flags_of(new) == {**flags_of(SHELL), name: value}


@given(st.sampled_from(["gradient_accumulation_steps", "fp16", "output_dir", "bf16"]))
def test_removing_a_flag_leaves_the_others(name: str) -> None:
    new = apply_edits(document("t.sh", SHELL), [remove_key(name)])
    expected = {k: v for k, v in flags_of(SHELL).items() if k != name}
    assert flags_of(new) == expected


BROKEN: list[tuple[str, str, dict[str, Any]]] = [
    ("d.json", json.dumps({"train_batch_size": 8, "zero_optimization": {
        "stage": 3, "cpu_offload": True, "stage3_max_live_parameter": 1e9,
        "aio": {"block_size": 1048576}}, "fp16": {"enabled": True}, "bf16": {"enabled": True}}),
     {}),
    ("d.json", '{"train_micro_batch_size_per_gpu": "4", "zero_optimization": {"stage": 2,'
               ' "offload_param": {"device": "cpu"}}, "bf16": {"enabled": true}}', {}),
    ("d.json", json.dumps({"train_batch_size": 256, "train_micro_batch_size_per_gpu": 8,
                           "gradient_accumulation_steps": 1, "bf16": {"enabled": True}}),
     {"gpus": "8xA100-80G"}),
    ("d.json", json.dumps({"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": True},
                           "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}),
     {"context": "plain"}),
    ("a.yaml", YAML, {}),
    ("t.sh", SHELL, {}),
    ("x.yaml", "base_model: llama3-8b\nmicro_batch_size: 1\ngradient_accumulation_steps: 2\n"
               "sequence_len: 2048\nbf16: true\nfp16: true\nwarmup_steps: 1\nwarmup_ratio: 0.1\n"
               "gradient_checkpointing: true\n", {}),
    ("m.sh", "export CUDA_DEVICE_MAX_CONNECTIONS=1\ntorchrun --nproc_per_node 8 p.py"
             " --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096"
             " --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 60"
             " --bf16 --recompute-granularity full --sequence-parallel", {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "options"), BROKEN)
def test_applied_patches_are_clean(
    tmp_path: Path, name: str, text: str, options: dict[str, Any]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    report = advise(path, **options)
    assert report.files[0].level in ("error", "warning")
    (written,) = write_patched(report, **options)
    assert written == path.with_name(f"{path.stem}.patched{path.suffix}")
    assert path.read_text() == text  # the original stays
    again = advise(written, **options).files[0]
    assert [f for f in again.findings if f.severity != "info"] == []


def test_apply_takes_the_advice_when_it_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "l.yaml"
    path.write_text(
        "model_name_or_path: llama3-8b  # hub name\nstage: sft\ndo_train: true\n"
        "finetuning_type: full\ndataset: a\ntemplate: llama3\ncutoff_len: 4096\n"
        "per_device_train_batch_size: 8\ngradient_accumulation_steps: 2\nbf16: true\n"
        "deepspeed: z3.json\n"
    )
    (tmp_path / "z3.json").write_text(
        json.dumps({"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": "auto",
                    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
                    "zero_optimization": {"stage": 3}})
    )  # fmt: skip
    options: dict[str, Any] = {"gpus": "8xA100-40G"}
    report = advise(path, **options)
    judged = report.files[0].judgement
    assert judged is not None
    assert not judged.fits
    best = report.files[0].advice[0]
    assert best.verdict == "fits"
    written = write_patched(report, **options)
    patched = next(p for p in written if p.name == "l.patched.yaml")
    text = patched.read_text()
    assert "# hub name" in text
    again = advise(patched, **options).files[0]
    assert again.judgement is not None
    assert again.judgement.fits
    assert again.judgement.peak_memory_bytes == best.peak_memory_bytes


LAID_OUT = """{
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": 5e8, "sub_group_size": 1e9
    },
    "fp16": {"enabled": false},
    "steps_per_print": 10
}
"""


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (Edit(action="set", path=("zero_optimization", "stage"), value=2), '": 3', '": 2'),
        (
            Edit(action="set", path=("bf16", "enabled"), value=True),
            "10\n",
            '10,\n    "bf16": {\n        "enabled": true\n    }\n',
        ),
        (Edit(action="remove", path=("steps_per_print",)), ',\n    "steps_per_print": 10', ""),
        (Edit(action="remove", path=("fp16",)), '"fp16": {"enabled": false},\n    ', ""),
        (
            Edit(action="move", path=("fp16", "enabled"), move_to=("fp16", "on")),
            '"enabled"',
            '"on"',
        ),
    ],
)
def test_json_keeps_what_an_edit_does_not_touch(edit: Edit, old: str, new: str) -> None:
    doc = read_text(Source("d.json", LAID_OUT), follow=False).document
    assert apply_edits(doc, [edit]) == LAID_OUT.replace(old, new)


def test_json_with_comments_still_holds_the_edit() -> None:
    text = LAID_OUT.replace("{\n", "{ // note\n", 1)
    doc = read_text(Source("d.json", text), follow=False).document
    edited = apply_edits(doc, [Edit(action="set", path=("steps_per_print",), value=5)])
    assert json.loads(edited)["steps_per_print"] == 5
