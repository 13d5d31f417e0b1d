"""Reading tables: what is accepted, and the one line that says what is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from planner.cli import app
from planner.validate.command import read_runs, validate
from planner.validate.table import read_table

HEADER = "model,layers,hidden,heads,vocab,gpu,n_gpus,seq_len,micro_batch,dp,tp,pp,step_time_s\n"
ROW = "m,24,2048,16,50000,A100-80GB,8,2048,1,8,1,1,1.0\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_is_known_by_its_columns(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, HEADER + ROW)).kind == "runs"
    counted = "family,saved_activations,layer_activations,nonlayer_activations\n"
    assert read_table(write(tmp_path, counted)).kind == "activations"
    peaks = "family,peak_total,peak_phase,opt,world\n"
    assert read_table(write(tmp_path, peaks)).kind == "peaks"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        ("model,layers\n", "no column gpu, n_gpus, seq_len"),
        ("gpu,n_gpus,seq_len\n", "nothing measured"),
        ("gpu,gpu,n_gpus,seq_len,outcome\n", "appears twice"),
        (HEADER + ROW.replace("1.0", "soon"), "step_time_s is 'soon': expected a number"),
        (HEADER + ROW.replace("1.0", "inf"), "step_time_s is 'inf'"),
        (HEADER + ROW.replace("1.0", "-1"), "step_time_s is '-1'"),
        (HEADER + ROW.replace("24,", "24.5,", 1), "layers is '24.5': expected a whole number"),
        (HEADER + ROW.replace("24,", "0,", 1), "layers is '0': expected a whole number from 1"),
        (HEADER + ROW.replace("24,", "1e9,", 1), "from 1 to 10000"),
        (HEADER.strip() + ",zero_stage\n" + ROW.strip() + ",4\n", "zero_stage is '4'"),
        (HEADER + "m,24\n", "2 cells under 13 columns"),
        (HEADER.strip() + ",outcome\n" + ROW.strip() + ",fine\n", "outcome is 'fine'"),
        (HEADER.strip() + ",mem_kind\n" + ROW.strip() + ",weird\n", "line 2: mem_kind is 'weird'"),
        (HEADER + "\0", "NUL"),
    ],
)
def test_nonsense_is_one_line_that_names_the_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=r"runs\.csv") as caught:
        validate([write(tmp_path, text)])
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        read_runs([tmp_path / "none.csv"])
    with pytest.raises(ValueError, match="cannot read"):
        read_runs([tmp_path])
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match="not text"):
        read_runs([binary])
    with pytest.raises(ValueError, match="no table"):
        read_runs([])


def test_missing_cells_are_filled_or_say_what_is_missing(tmp_path: Path) -> None:
    read = read_runs([write(tmp_path, HEADER + ROW.replace(",8,1,1,1.0", ",,1,1,1.0"))])
    (run,) = read.runs
    assert run.dp == 8
    assert "dp" in run.assumed
    read = read_runs([write(tmp_path, HEADER + ROW.replace("50000", ""))])
    assert list(read.skipped.values()) == ["missing: vocab"]
    read = read_runs([write(tmp_path, HEADER + ROW.replace(",8,1,1,1.0", ",4,1,1,1.0"))])
    assert list(read.skipped.values()) == ["inconsistent as printed"]


def test_an_unknown_stack_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown stack 'nope'"):
        validate([write(tmp_path, HEADER + ROW)], stack="nope")


PLAIN = "gpu,n_gpus,seq_len,step_time_s,framework,model,zero_stage\n"


@pytest.mark.parametrize("framework", ["deepspeed", "fsdp1", "fsdp2", "hf"])
def test_sharded_runs_need_no_layout(tmp_path: Path, framework: str) -> None:
    row = f"A100-80G,8,2048,9.0,{framework},llama2-7b,3\n"
    (run,) = read_runs([write(tmp_path, PLAIN + row)]).runs
    assert (run.dp, run.tp, run.pp) == (8, 1, 1)
    assert {"dp", "tp", "pp"} <= set(run.assumed)


def test_no_row_to_score_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN + "A100-80G,8,2048,9.0,megatron,llama2-7b,1\n")
    with pytest.raises(
        ValueError, match=r"no row can be scored \(1 missing: dp, tp, pp \(line 2\)\)"
    ):
        validate([path])
    found = CliRunner().invoke(app, ["validate", str(path)])
    assert found.exit_code == 2
    assert "no row can be scored" in found.stderr


def test_predictions_replace_older_ones_and_no_input(tmp_path: Path) -> None:
    path, first, second = write(tmp_path, HEADER + ROW), tmp_path / "a.csv", tmp_path / "b.csv"
    validate([path], predictions=first)
    validate([first], predictions=second)
    assert second.read_bytes() == first.read_bytes()
    for output in (path, tmp_path / "." / "runs.csv"):
        with pytest.raises(ValueError, match="is one of the inputs"):
            validate([path], predictions=output)
        done = CliRunner().invoke(app, ["validate", str(path), "--predictions", str(output)])
        assert done.exit_code == 2
    assert path.read_text(encoding="utf-8") == HEADER + ROW


def test_counted_bytes_have_no_predictions_to_write(tmp_path: Path) -> None:
    counted = write(tmp_path, "family,saved_activations,layer_activations,nonlayer_activations\n")
    with pytest.raises(ValueError, match="no table of measured runs"):
        validate([counted], predictions=tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()


LLAMA = "model,gpu,n_gpus,framework,seq_len,micro_batch,grad_accum,zero_stage,act_ckpt,precision"
MEASURED = "step_time_s,mfu_pct,peak_mem_gib,mem_kind"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("llama2-7b,A100-80G,8,deepspeed,4096,1,1,3,full,bf16,0,,,", "nothing measured"),
        ("llama2-7b,A100-80G,8,deepspeed,4096,1,1,3,full,bf16,nan,,,", "nothing measured"),
        ("mixtral-8x7b,A100-80G,64,deepspeed,4096,1,1,3,full,bf16,9,,,", "moe-time"),
        ("llama2-7b,A100-80G,8,deepspeed,4096,1,1,3,full,fp8,9,,,", "not modelled: "),
        ("llama2-7b,A100-80G,8,deepspeed,4096,1,1,3,full,bf16,1e-5,,,", "impossible: faster"),
        ("llama2-7b,A100-80G,8,deepspeed,4096,1,1,3,full,bf16,,450,,", "impossible: faster"),
        ("llama2-7b,A100-80G,8,deepspeed,4096,1,1,3,full,bf16,,,450,reserved", "impossible: peak"),
    ],
)
def test_rows_with_nothing_to_score_are_skipped(tmp_path: Path, row: str, reason: str) -> None:
    good = "llama2-7b,A100-80G,8,deepspeed,4096,1,1,3,full,bf16,3,,40,reserved"
    path = write(tmp_path, f"{LLAMA},{MEASURED}\n{row}\n")
    with pytest.raises(ValueError, match=r"no row can be scored \(1 .*\(line 2\)\)") as caught:
        validate([path])
    assert reason in str(caught.value)
    out = tmp_path / "out.csv"
    report, text = validate(
        [write(tmp_path, f"{LLAMA},{MEASURED}\n{good}\n{row}\n")], predictions=out
    )
    assert (report.rows, report.used, sum(report.skipped.values())) == (2, 1, 1)
    assert "runs.csv line 3" in text
    assert reason in out.read_text(encoding="utf-8").splitlines()[2]


def test_what_was_assumed_is_told_with_its_value(tmp_path: Path) -> None:
    rows = [f"llama2-7b,A100-80G,8,fsdp2,4096,{b},1,,,bf16,9,,," for b in (1, 2)]
    report, text = validate([write(tmp_path, "\n".join((f"{LLAMA},{MEASURED}", *rows)) + "\n")])
    (source,) = report.sources
    assert source.assumed_values["zero_stage"] == {"3": 2}
    assert source.assumed_values["act_ckpt"] == {"none": 2}
    assert source.assumed_values["dp"] == {"8": 2}
    assert {name: sum(v.values()) for name, v in source.assumed_values.items()} == source.assumed
    assert "zero_stage=3 (2 rows)" in text
    assert "act_ckpt=none (2 rows)" in text


@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_no_usable_row_is_unusable_input(tmp_path: Path, command: str) -> None:
    path = write(tmp_path, f"{LLAMA},{MEASURED}\nmany,A100-80G,8,x,4096,1,1,3,full,bf16,3,,,\n")
    found = CliRunner().invoke(app, [command, str(path)])
    assert found.exit_code == 2
    assert len(found.stderr.splitlines()) == 1
