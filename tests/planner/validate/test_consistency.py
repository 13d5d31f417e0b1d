"""Rows that cannot be true as printed lose their memory, whatever their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.validate.command import read_runs, validate
from planner.validate.consistency import REPEATED, TOO_LITTLE
from planner.validate.kinds import load_kinds
from planner.validate.predict import predict_memory
from planner.validate.resolve import resolve
from planner.validate.run import Run, Skip
from planner.validate.table import Row

MODEL = {
    "source": "somebody", "model": "llama2-7b", "layers": "32", "hidden": "4096", "heads": "32",
    "kv_heads": "32", "ffn": "11008", "vocab": "32000", "gated_mlp": "true",
    "tied_embeddings": "false", "gpu": "A100-80G", "framework": "plain", "seq_len": "512",
    "micro_batch": "1", "global_batch_seqs": "4", "outcome": "ok",
}  # fmt: skip
STATES = 8 * 6.738e9 / 2**30  # 16-bit weights, gradients and two moments [GiB]


def run_of(**cells: str) -> Run:
    return resolve(Row("t", 2, {**MODEL, **cells}), load_kinds())


@pytest.mark.parametrize(("printed", "sound"), [(0.9 * STATES, False), (1.2 * STATES, True)])
def test_one_gpu_holds_its_states(printed: float, sound: bool) -> None:
    value, _, problems = predict_memory([run_of(n_gpus="1", peak_mem_gib=f"{printed:.3f}")])
    assert problems == ["" if sound else TOO_LITTLE]
    assert bool(value[0] > 0) == sound


def test_several_gpus_may_share_their_states() -> None:
    run = run_of(n_gpus="4", dp="4", zero_stage="3", peak_mem_gib="20.000")
    assert predict_memory([run])[2] == [""]


def table(folder: Path, *rows: dict[str, str]) -> Path:
    full = [{**MODEL, **row} for row in rows]
    header = list(dict.fromkeys(name for row in full for name in row))
    lines = [",".join(header), *(",".join(row.get(name, "") for name in header) for row in full)]
    path = folder / "runs.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


ONE = {"n_gpus": "1", "dp": "1", "zero_stage": "0"}
FOUR = {"n_gpus": "4", "dp": "4", "zero_stage": "3"}


@pytest.mark.parametrize(
    ("one", "four", "repeated"),
    [("70.12", "70.12", True), ("70.12", "30.12", False), ("70", "70", False)],
)
def test_shards_do_not_print_the_figure_of_the_whole(
    tmp_path: Path, one: str, four: str, repeated: bool
) -> None:
    rows = {**ONE, "peak_mem_gib": one}, {**FOUR, "peak_mem_gib": four}
    runs = read_runs([table(tmp_path, *rows)]).runs
    assert [run.memory_skip for run in runs] == ["", REPEATED if repeated else ""]


def test_another_model_may_print_the_same(tmp_path: Path) -> None:
    other = {**FOUR, "peak_mem_gib": "70.12", "layers": "40"}
    runs = read_runs([table(tmp_path, {**ONE, "peak_mem_gib": "70.12"}, other)]).runs
    assert not any(run.memory_skip for run in runs)


def test_the_report_counts_what_is_left_out(tmp_path: Path) -> None:
    rows = {**ONE, "peak_mem_gib": "70.12"}, {**FOUR, "peak_mem_gib": "70.12"}
    report, text = validate([table(tmp_path, *rows)])
    assert sum(score.count for score in report.sources[0].memory) == 1
    assert REPEATED in text


def test_the_rank_that_is_printed_decides_the_stage() -> None:
    cells = {"n_gpus": "8", "dp": "2", "pp": "4", "framework": "megatron"}
    stages = [run_of(**cells, notes=f"rank{r}: 3 GiB").stage for r in range(8)]
    assert stages == [0, 0, 1, 1, 2, 2, 3, 3]
    assert run_of(**cells).stage is None
    with pytest.raises(Skip):
        run_of(**cells, notes="rank8: 3 GiB")
