"""Tables nobody has seen: other orders, spellings and gaps change nothing, or are told."""

from __future__ import annotations

import csv
import io
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from planner.validate.columns import FLAGS, NUMBERS, TEXTS
from planner.validate.command import read_runs, validate
from planner.validate.kinds import load_kinds
from planner.validate.predict import predict_memory, predict_time
from planner.validate.usable import NothingScored
from planner.validate.written import BLANK, canonical

FULL = {
    "source": "somebody's cluster",
    "ref": "table 1",
    "model": "llama2-13b",
    "params_b": "13.02",
    "layers": "40",
    "hidden": "5120",
    "heads": "40",
    "kv_heads": "40",
    "ffn": "13824",
    "vocab": "32000",
    "gated_mlp": "true",
    "tied_embeddings": "false",
    "gpu": "A100-80GB",
    "gpu_mem_gb": "80",
    "n_gpus": "64",
    "gpus_per_node": "8",
    "framework": "Megatron-LM",
    "precision": "bf16",
    "optimizer": "AdamW",
    "seq_len": "4096",
    "micro_batch": "2",
    "global_batch_seqs": "512",
    "grad_accum": "32",
    "dp": "8",
    "tp": "4",
    "pp": "2",
    "cp": "1",
    "virtual_stages": "1",
    "sequence_parallel": "true",
    "zero_stage": "1",
    "offload": "none",
    "act_ckpt": "selective",
    "attention": "flash2",
    "step_time_s": "30",
    "peak_mem_gib": "60",
    "mem_kind": "reserved",
    "outcome": "ok",
    "notes": "",
}
FORGIVING = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(*rows: dict[str, str]):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(out.getvalue(), encoding="utf-8")
        return read_runs([path])


def predicted(row: dict[str, str]) -> tuple[float, float]:
    found = read(row)
    assert not found.skipped, found.skipped
    return float(predict_time(found.runs)[0][0]), float(predict_memory(found.runs)[0][0])


def without(*names: str, **cells: str) -> dict[str, str]:
    return {**FULL, **dict.fromkeys(names, ""), **cells}


@FORGIVING
@given(st.permutations(list(FULL)), st.sampled_from(["", *BLANK, "NaN"]), st.randoms())
def test_order_extra_columns_and_spellings_of_nothing_change_nothing(order, nothing, random):
    cells = {**FULL, "cp": nothing, "notes": "nan"}
    row = {(name.upper() if random.random() < 0.3 else name): cells[name] for name in order}
    row |= {"site": "here", "": "0"}
    assert predicted(row) == pytest.approx(predicted(FULL))


@pytest.mark.parametrize(
    "cells",
    [
        {"global_batch_seqs": "512.0", "seq_len": "4,096", "layers": "4e1"},
        {"params_b": "13.02B", "gpu_mem_gb": "80 GB", "step_time_s": "30 s"},
        {"gated_mlp": "True", "tied_embeddings": "0", "sequence_parallel": "yes"},
        {"zero_stage": "ZeRO-1", "precision": "bfloat16 mixed", "attention": "FlashAttention-2"},
        {"outcome": "OK", "mem_kind": "Reserved", "optimizer": "fused AdamW", "offload": "No"},
        {"gpu": "NVIDIA A100-SXM4-80GB"},
    ],
)
def test_other_spellings_mean_the_same(cells: dict[str, str]) -> None:
    assert predicted({**FULL, **cells}) == pytest.approx(predicted(FULL))


@pytest.mark.parametrize(
    ("column", "text", "meant"),
    [
        ("mfu_pct", "45.2%", "45.2"),
        ("tokens_per_s_per_gpu", "1 234.5 tokens/s", "1234.5"),
        ("n_gpus", "16,384", "16384"),
        ("n_gpus", "1,5", "1,5"),
        ("peak_mem_gib", "60 GB", "60 GB"),
        ("act_ckpt", "none", "none"),
        ("kv_heads", "none", ""),
        ("sequence_parallel", "N/A", ""),
        ("model", "null", "null"),
    ],
)
def test_cells_as_people_write_them(column: str, text: str, meant: str) -> None:
    assert canonical(column, text) == meant


@pytest.mark.parametrize(
    "gone",
    [
        ("dp",),
        ("n_gpus",),
        ("tp",),
        ("pp",),
        ("grad_accum",),
        ("micro_batch",),
        ("global_batch_seqs",),
        ("dp", "grad_accum", "cp", "virtual_stages"),
        ("kv_heads", "vocab", "ffn"),
        ("heads", "ffn", "gated_mlp", "tied_embeddings"),
        ("layers", "params_b", "hidden", "heads", "kv_heads", "ffn", "vocab", "gated_mlp"),
        ("ffn", "model"),
        ("layers", "model"),
        ("vocab", "model"),
        ("gated_mlp", "model"),
        ("precision", "optimizer", "attention", "offload", "gpus_per_node", "gpu_mem_gb"),
    ],
)
def test_what_follows_from_other_cells_may_be_empty(gone: tuple[str, ...]) -> None:
    found = read(without(*gone))
    assert not found.skipped
    assert predicted(without(*gone)) == pytest.approx(predicted(FULL), rel=0.01)


def test_a_rate_is_a_time_however_the_gpus_and_tokens_are_told() -> None:
    """512 sequences of 4096 tokens at 1000 tokens/s on each of 64 GPUs: 32.8 s."""
    rate = {"tokens_per_s_per_gpu": "1000"}
    for gone in ((), ("n_gpus",), ("dp",)):
        (run,) = read(without("step_time_s", *gone, **rate)).runs
        assert run.time == pytest.approx(512 * 4096 / 1000 / 64)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (without("model", "hidden"), "missing: hidden"),
        (without("model", "vocab", "params_b"), "missing: vocab"),
        (without("model", "vocab", params_b="20"), "missing: vocab"),
        (without("model", "vocab", "ffn"), "missing: vocab"),
        (without("model", "ffn", "params_b"), "missing: ffn"),
        (without("micro_batch", "grad_accum"), "missing: micro_batch"),
        (without("tp", "pp"), "missing: tp, pp"),
        (without("dp", "tp", "pp", "zero_stage"), "missing: dp, tp, pp"),
        (without("n_gpus", "dp"), "missing: n_gpus"),
        (without("seq_len"), "missing: seq_len"),
        (without(dp="4"), "inconsistent as printed"),
        (
            without(attention="our own kernel"),
            "attention is 'our own kernel': expected one of eager, flash, efficient",
        ),
        (without(precision="nvfp4"), "precision"),
        (without(precision="x"), "precision is 'x': expected one of fp8, bf16, fp16, tf32, fp32"),
        (without(offload="disk"), "offload is 'disk': expected one of none, nvme, cpu"),
        (without(optimizer="galore"), "peft"),
        (without(optimizer="paged AdamW"), "optimizer: paged AdamW"),
        (without(gpu="TPU v4"), "gpu is 'TPU v4': expected one of planner gpus"),
    ],
)
def test_what_is_open_is_said(row: dict[str, str], reason: str) -> None:
    assert list(read(row).skipped.values()) == [reason]


@pytest.mark.parametrize(
    ("cells", "stack"),
    [
        ({"framework": "deepspeed"}, "deepspeed"),
        ({"framework": "Megatron-DeepSpeed"}, "megatron-deepspeed"),
        ({"framework": "GPT-NeoX"}, "megatron-deepspeed"),
        ({"framework": "Megatron-LM"}, "megatron"),
        ({"framework": "nemo"}, "nemo"),
        ({"framework": "PyTorch FSDP", "tp": "1", "pp": "1", "dp": "64"}, "fsdp2"),
        ({"framework": "HF + DeepSpeed", "tp": "1", "pp": "1", "dp": "64"}, "deepspeed"),
        ({"framework": "in-house"}, "megatron"),
        ({"framework": "in-house", "tp": "1", "dp": "32"}, "megatron"),
        ({"framework": "in-house", "tp": "1", "pp": "1", "dp": "64"}, "deepspeed"),
        ({"framework": "", "tp": "1", "pp": "1", "dp": "64", "zero_stage": "0"}, "hf"),
    ],
)
def test_an_unknown_source_is_told_which_stack_it_is_taken_for(tmp_path, cells, stack) -> None:
    (run,) = read({**FULL, **cells}).runs
    assert run.stack == stack
    path = tmp_path / "runs.csv"
    row = {**FULL, "step_time_s": "300", **cells}
    path.write_text(",".join(row) + "\n" + ",".join(row.values()) + "\n", encoding="utf-8")
    report, text = validate([path])
    assert report.sources[0].stack == stack
    assert f"stack {stack}" in text
    assert ("stack assumed: " in text) == ("stack" in run.assumed)


def test_a_card_is_the_one_with_the_printed_memory() -> None:
    for name, printed, memory in (("A100", "40", 40), ("A100", "80", 80), ("V100", "32", 32)):
        (run,) = read(without(gpu=name, gpu_mem_gb=printed)).runs
        assert run.cluster.memory_limit / 2**30 == pytest.approx(memory, rel=0.03)


def test_v100_runs_of_unsaid_precision_are_in_half() -> None:
    (run,) = read(without("precision", gpu="V100-32GB", gpu_mem_gb="32")).runs
    assert run.precision == "fp16"


@FORGIVING
@given(st.sets(st.sampled_from([n for n in FULL if n not in ("gpu", "seq_len")])))
def test_any_gaps_are_predicted_or_told(gone: set[str]) -> None:
    found = read(without(*gone))
    assert len(found.runs) + len(found.skipped) == 1
    if found.skipped:
        (reason,) = found.skipped.values()
        assert reason.startswith(("missing: ", "inconsistent as printed"))
        return
    time, memory = predict_time(found.runs), predict_memory(found.runs)
    assert np.isfinite(time[0]).all() or all(time[1])
    assert np.isfinite(memory[0]).all() or all(memory[2])


NONSENSE = st.one_of(
    st.sampled_from(["0", "1", "-1", "3.5", "1e30", "inf", "yes", "full", "8x", "a,b", "''"]),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8),
)


@settings(FORGIVING, max_examples=200)
@given(st.dictionaries(st.sampled_from([*NUMBERS, *FLAGS, *TEXTS]), NONSENSE, max_size=3))
@example({"optimizer": "0\r0"})
@example({"act_ckpt": "0\u20280", "gpu": "\x1b[31m\x0b", "mem_kind": "a\n\nb"})
def test_nonsense_is_a_skip_or_one_line(cells: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.csv"
        out = io.StringIO()
        writer = csv.DictWriter(out, [*FULL, *(set(cells) - set(FULL))])
        writer.writeheader()
        writer.writerow({**FULL, **cells})
        path.write_text(out.getvalue(), encoding="utf-8")
        problem = ""
        try:
            report, text = validate([path], residuals=["missed"])
        except ValueError as error:
            problem = str(error)
            empty = isinstance(error, NothingScored)
    if not problem:
        assert report.used == 1
        assert text
        return
    assert "\n" not in problem
    assert ("no row can be scored" if empty else "runs.csv line") in problem


@pytest.mark.parametrize("name", TEXTS)
def test_a_cell_is_one_line_of_what_can_be_printed(name: str) -> None:
    assert canonical(name, " a\r\n b\x1b\u2028c\t") == "a b c"


def test_guessed_kinds_are_no_source_of_constants() -> None:
    guessed = [kind for kind in load_kinds().kinds if kind.guessed]
    assert len(guessed) >= 5
    assert all(kind.informs is None for kind in guessed)
