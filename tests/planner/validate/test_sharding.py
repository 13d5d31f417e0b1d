"""A framework's name says its ZeRO stage where a table has no cell for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.validate.command import read_runs, validate
from planner.validate.run import Run
from planner.validate.sharding import stage_said

SPELLINGS = (
    *("FSDP", "fsdp1", "fsdp2", "FSDP2", "PyTorch FSDP", "hf-fsdp2", "HF-FSDP2", "Composer FSDP"),
    *("HF Trainer FSDP", "Accelerate (FSDP2)", "LitGPT FSDP", "Fully Sharded Data Parallel"),
    *("torch fully_sharded", "llm-foundry", "torchtitan", "in-house FSDP"),
)


def runs(tmp_path: Path, *frameworks: str, stack: str | None = None, **cells: str) -> list[Run]:
    path = tmp_path / "runs.csv"
    header = "model,gpu,n_gpus,seq_len,micro_batch,grad_accum,act_ckpt,peak_mem_gib,framework"
    lines = [
        ",".join((f"llama2-7b,A100-80G,8,4096,1,1,full,40,{name}", *cells.values()))
        for name in frameworks
    ]
    path.write_text("\n".join([",".join((header, *cells)), *lines]) + "\n", encoding="utf-8")
    read = read_runs([path], stack)
    assert not read.skipped
    return list(read.runs)


def test_fsdp_in_any_spelling_shards_everything(tmp_path: Path) -> None:
    for run in runs(tmp_path, *SPELLINGS):
        assert (run.zero_stage, run.dp, run.tp, run.pp) == (3, 8, 1, 1), run.row.text("framework")
        assert "zero_stage" in run.assumed


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_stage_in_the_name_is_used_and_a_cell_goes_before_it(tmp_path: Path, stage: int) -> None:
    names = (
        *(
            f"DeepSpeed ZeRO-{stage}",
            f"HF + DeepSpeed (zero{stage})",
            f"in-house ZeRO stage {stage}",
        ),
        *(f"FSDP ZeRO-{stage}", f"_HYBRID_SHARD_ZERO{stage} of FSDP", f"DeepSpeed, stage {stage}"),
    )
    for run in runs(tmp_path, *(name.replace(",", ";") for name in names)):
        assert run.zero_stage == stage, run.row.text("framework")
        assert "zero_stage" in run.assumed
    for run in runs(tmp_path, "FSDP2", "DeepSpeed ZeRO-3", zero_stage=str(stage)):
        assert run.zero_stage == stage
        assert "zero_stage" not in run.assumed


@pytest.mark.parametrize(
    ("framework", "stage"),
    [
        ("FSDP SHARD_GRAD_OP", "2"),
        ("FSDP NO_SHARD", "0"),
        ("FSDP FULL_SHARD", "3"),
        ("ZeRO-Infinity", "3"),
        ("DeepSpeed ZeRO++", "3"),
        ("DeepSpeed ZeRO-2/3", ""),
        ("ZeRO-1 and ZeRO-3", ""),
        ("deepspeed 0.19.3", ""),
        ("Megatron-LM", ""),
        ("", ""),
    ],
)
def test_what_a_name_says(framework: str, stage: str) -> None:
    assert stage_said(framework) == stage


def test_notes_may_name_the_strategy() -> None:
    assert stage_said("PyTorch FSDP", "sharding_strategy=SHARD_GRAD_OP") == "2"
    assert stage_said("DeepSpeed", "sharding_strategy=SHARD_GRAD_OP") == ""


@given(st.text(max_size=20))
def test_any_name_gives_a_stage_or_nothing(text: str) -> None:
    assert stage_said(text) in ("", "0", "1", "2", "3")


def test_deepspeed_without_a_layout_is_data_parallel(tmp_path: Path) -> None:
    for run in runs(tmp_path, "deepspeed", "DeepSpeed", "DeepSpeed ZeRO-1", "HF + DeepSpeed"):
        assert (run.stack, run.dp, run.tp, run.pp) == ("deepspeed", 8, 1, 1)


def test_a_stack_of_fsdp_that_is_asked_for_shards_everything(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, "in-house", stack="fsdp2")
    assert (run.stack, run.zero_stage) == ("fsdp2", 3)
    (run,) = runs(tmp_path, "in-house", stack="fsdp2", zero_stage="0")
    assert run.zero_stage == 0


def test_conventions_of_a_source_are_no_one_elses(tmp_path: Path) -> None:
    names = ("Hugging Face Trainer", "HF Trainer", "transformers Trainer", "ms-swift")
    for run in runs(tmp_path, *names):
        assert (run.stack, run.zero_stage) == ("hf", 0)
        assert not any(field == "varied_factor" for _, field, _ in run.changes)
        assert "stack" in run.assumed
    (run,) = runs(tmp_path, "HF Trainer (+DeepSpeed)")
    assert run.kind.memory_unit == 2**30
    (run,) = runs(tmp_path, "ms-swift (HF Trainer)", source="ms_swift_benchmark")
    assert any(field == "varied_factor" for _, field, _ in run.changes)


def test_every_heading_names_the_stack_of_its_rows(tmp_path: Path) -> None:
    runs(tmp_path, "deepspeed", "fsdp2", "fsdp2")
    report, text = validate([tmp_path / "runs.csv"])
    assert {(s.kind, s.stack, s.used) for s in report.sources} == {
        ("named stack", "deepspeed", 1),
        ("named stack", "fsdp2", 2),
    }
    assert "(named stack, stack fsdp2): 2 of 2 rows" in text
