"""Options of ``accelerate launch``: they say what the Accelerate YAML would."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.advisor.arguments import _LAUNCHER_SWITCHES
from planner.advisor.core import advise
from planner.advisor.launch_options import section_of
from planner.advisor.report import FileReport
from planner.advisor.writing import write_patched_saying
from planner.lint.accelerate_keys import DEEPSPEED_KEYS, FSDP_KEYS
from planner.lint.launch_rules import ENGINES
from planner.lint.names import names

FLAGS = "--per_device_train_batch_size 2 --learning_rate 1e-5 --output_dir o --bf16"
SAME = {
    "deepspeed": (
        "--use_deepspeed --zero_stage 3 --offload_optimizer_device cpu --mixed_precision bf16"
        " --num_processes 8 --gradient_accumulation_steps 4",
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\n"
        "deepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: cpu\n"
        "  gradient_accumulation_steps: 4\n",
    ),
    "deepspeed at rest": (
        "--use_deepspeed --num_processes 8",
        "distributed_type: DEEPSPEED\nnum_processes: 8\n",
    ),
    "fsdp": (
        "--use_fsdp --fsdp-version 2 --fsdp_reshard_after_forward false --num_processes=8"
        " --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --fsdp_activation_checkpointing true",
        "distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n"
        "  fsdp_reshard_after_forward: false\n  fsdp_activation_checkpointing: true\n"
        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
    ),
    "data parallel": (
        "--multi_gpu --num_processes 8",
        "distributed_type: MULTI_GPU\nnum_processes: 8\n",
    ),
}


def report(folder: Path, line: str, **files: str) -> FileReport:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    (folder / "run.sh").write_text(f"accelerate launch {line} train.py {FLAGS}\n")
    return advise(folder / "run.sh", advice=False).files[0]


def said(one: FileReport) -> dict[str, object]:
    return {name: setting.value for name, setting in one.settings.items()}


@pytest.mark.parametrize("case", SAME)
def test_the_line_says_what_the_file_says(tmp_path: Path, case: str) -> None:
    line, text = SAME[case]
    typed = report(tmp_path, line)
    held = report(tmp_path, "--config_file ac.yaml", ac=text)
    assert said(typed) == said(held)
    assert {f.id for f in typed.findings} == {f.id for f in held.findings}


def test_options_go_before_the_file(tmp_path: Path) -> None:
    text = SAME["deepspeed"][1]
    one = report(tmp_path, "--config_file ac.yaml --zero_stage 2 --mixed_precision fp16", ac=text)
    assert said(one)["zero_stage"] == 2
    assert said(one)["offload_optimizer"] == "cpu"
    assert any("go before" in note and "zero_stage, mixed_precision" in note for note in one.notes)
    assert {f.id for f in one.findings} >= {"hf-precision-conflict"}


def test_findings_stand_where_the_option_is_typed(tmp_path: Path) -> None:
    one = report(tmp_path, "--use_deepspeed \\\n  --zero_stage 7")
    found = next(f for f in one.findings if f.id == "acc-bad-choice")
    assert (found.key, found.line, found.column) == ("--zero_stage", 2, 3)


def test_a_line_without_an_engine_says_nothing(tmp_path: Path) -> None:
    one = report(tmp_path, "--mixed_precision bf16 --main_process_port 29501")
    assert not any(":launch" in f.file for f in one.findings)


@pytest.mark.parametrize(
    "line",
    ["--use_fsdp --use_deepspeed --zero_stage 2", "--multi_gpu --use-deepspeed"],
)
def test_two_engines_are_refused_and_not_judged(tmp_path: Path, line: str) -> None:
    for more, files in (("", {}), (" --config_file ac.yaml", {"ac": SAME["deepspeed"][1]})):
        (tmp_path / "run.sh").write_text(f"accelerate launch {line}{more} train.py {FLAGS}\n")
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        one = advise(tmp_path / "run.sh", model="7b", gpus="8xH100", advice=False).files[0]
        assert [f.id for f in one.findings if f.severity != "info"] == ["launch-engines"]
        assert one.judgement is None
        assert any(note.startswith("no verdict: ") for note in one.notes)


def test_a_misspelt_option_is_told_the_known_one(tmp_path: Path) -> None:
    one = report(tmp_path, "--use_deepspeed --zero_stag 2 --bogus_option 3 --num-processes 8")
    hits = {f.key: f.fix for f in one.findings if f.id == "launch-unknown-option"}
    assert hits == {
        "--zero_stag": "write --zero_stage",
        "--bogus_option": "take it out, or put it behind the script",
    }


@pytest.mark.parametrize(
    "line",
    [
        "torchrun --nproc-per-node 8 --rdzv-end localhost:1",  # argparse completes it
        "deepspeed --num_gpus 8 --master_port 29501",
        "accelerate launch --multi_gpu --main-process-port 29501 -m",
        "python -m torch.distributed.launch --use_env --nproc_per_node 8",
    ],
)
def test_known_options_are_no_findings(tmp_path: Path, line: str) -> None:
    (tmp_path / "run.sh").write_text(f"{line} train.py {FLAGS}\n")
    one = advise(tmp_path / "run.sh", advice=False).files[0]
    assert not [f for f in one.findings if f.id.startswith("launch-")]


def test_plain_replicas_are_not_taken_for_deepspeed_in_silence(tmp_path: Path) -> None:
    for line in ("accelerate launch --multi_gpu --num_processes 8", "torchrun --nproc_per_node 8"):
        (tmp_path / "run.sh").write_text(f"{line} train.py {FLAGS}\n")
        one = advise(tmp_path / "run.sh", model="7b", gpus="8xH100", advice=False).files[0]
        assert one.judgement is not None
        assert any("DistributedDataParallel" in note for note in one.notes)
    one = report(tmp_path, "--use_deepspeed --zero_stage 0")
    assert not any("DistributedDataParallel" in note for note in one.notes)


def test_every_engine_option_is_one_of_the_launcher() -> None:
    removed = {"fsdp_ignored_modules"}  # a key of the file only
    known = names("accelerate_launch")
    assert {*ENGINES, *DEEPSPEED_KEYS, *FSDP_KEYS} - removed <= known


def test_patches_leave_the_line_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    line = "--use_fsdp --fsdp_version 2 --fsdp_forward_prefetch true"
    path.write_text(f"accelerate launch {line} train.py {FLAGS}\n")
    whole = advise(path, advice=False)
    assert "acc-fsdp2-refused" in {f.id for f in whole.files[0].findings}
    written, notes = write_patched_saying(whole)
    assert any("left for you to change" in note for note in notes)
    assert all(":launch" not in str(target) for target in written)


def test_every_option_has_a_section() -> None:
    for option in DEEPSPEED_KEYS:
        assert section_of(option) == ("deepspeed_config", option)
    for option in FSDP_KEYS:
        assert section_of(option) == ("fsdp_config", option)
    assert section_of("parallelism_config_tp_size") == (
        "parallelism_config",
        "parallelism_config_tp_size",
    )
    assert section_of("main_process_ip") is None


@pytest.mark.parametrize("switch", sorted(_LAUNCHER_SWITCHES - {"m", "module", "q"}))
def test_switches_take_no_value(tmp_path: Path, switch: str) -> None:
    one = report(tmp_path, f"--{switch} --multi_gpu")
    assert said(one)["micro_batch"] == 2
