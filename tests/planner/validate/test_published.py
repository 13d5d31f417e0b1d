"""Bounds on published paper tables, and what a validation reports about them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from planner.validate.accuracy import accuracy_page
from planner.validate.command import read_runs, validate
from planner.validate.predict import predict_memory, predict_time

PUBLISHED = Path(__file__).parent / "data" / "published.csv"


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


@pytest.fixture(scope="module")
def sources():
    report, _ = validate([PUBLISHED])
    return {source.source: source for source in report.sources}


def test_korthikanti_2022_table_5(sources) -> None:
    """Iteration seconds of 22B to 1T, full recompute and selective with sequence parallelism."""
    time = sources["korthikanti2022_table5"].time
    assert time.count == 8
    assert time.mape <= 0.04
    assert time.worst <= 0.09


def test_narayanan_2021_table_1(sources) -> None:
    """TFLOP/s a GPU of 1.7B to 310B on 32 to 1920 A100."""
    time = sources["megatron_sc21_table1"].time
    assert time.count == 5
    assert time.mape <= 0.06
    assert time.worst <= 0.10


def test_published_runs_fitted_on_their_gpus(sources) -> None:
    assert all(s.fit.accuracy == 1.0 for s in sources.values())


def test_running_together_changes_no_prediction() -> None:
    runs = read_runs([PUBLISHED]).runs
    together_time, together_memory = predict_time(runs)[0], predict_memory(runs)[0]
    for i, run in enumerate(runs):
        assert predict_time([run])[0][0] == pytest.approx(together_time[i], rel=1e-12)
        assert predict_memory([run])[0][0] == pytest.approx(together_memory[i], rel=1e-12)


def test_predictions_file_is_the_input_with_columns_added(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    report, _ = validate([PUBLISHED], predictions=out)
    before = rows_of(PUBLISHED)
    after = rows_of(out)
    assert len(after) == len(before) == report.rows
    for old, new in zip(before, after, strict=True):
        assert {k: new[k] for k in old} == old
        time = float(new["predicted_step_time_s"])
        low, high = (float(new[f"predicted_{side}_step_time_s"]) for side in ("low", "high"))
        assert low <= time <= high
        tokens = float(old["global_batch_seqs"]) * 2048 / time / float(old["n_gpus"])
        assert float(new["predicted_tokens_per_s_per_gpu"]) == pytest.approx(tokens, rel=1e-4)
        assert new["predicted_outcome"] == "ok"
        assert float(new["predicted_low_peak_mem_gib"]) <= float(new["predicted_peak_mem_gib"])
        assert new["skipped"] == ""


def test_report_is_json_and_finite() -> None:
    report, text = validate([PUBLISHED])
    assert "NaN" not in report.model_dump_json()
    assert json.loads(report.model_dump_json())["rows"] == 13
    assert "korthikanti2022_table5" in text


def test_same_input_same_page() -> None:
    report, _ = validate([PUBLISHED])
    page = accuracy_page(report, report)
    assert page == accuracy_page(report, report)
    assert "arXiv 2205.05198" in page
    assert page.count("\n## ") == 9


def test_another_stack_predicts_otherwise() -> None:
    own = predict_time(read_runs([PUBLISHED]).runs)[0]
    other = predict_time(read_runs([PUBLISHED], "megatron-deepspeed").runs)[0]
    assert not np.allclose(own, other, rtol=0.01)
