"""Splits: rows add up, medians are those of the rows, groups that lose are found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.validate.command import read_runs, validate
from planner.validate.evaluate import scored
from planner.validate.predict import predict
from planner.validate.residuals import (
    AXES,
    errors_by_axis,
    lost_by,
    missed_splits,
    split_of,
    verdicts_by_axis,
)

HEADER = (
    "source,model,layers,hidden,heads,ffn,vocab,gated_mlp,gpu,n_gpus,framework,precision,seq_len,"
    "micro_batch,global_batch_seqs,tp,pp,zero_stage,act_ckpt,attention,fused_norm,step_time_s,"
    "peak_mem_gib,outcome\n"
)
PUBLISHED = Path(__file__).parent / "data" / "published.csv"


def line(micro: int, tp: int, seconds: float, outcome: str = "ok", recompute: str = "full") -> str:
    return (
        f"aleph,13b,40,5120,40,13824,50000,true,A100-80G,64,AA-Scaling,bf16,2048,{micro},2048,{tp},"
        f"1,1,{recompute},flash2,true,{seconds},40,{outcome}\n"
    )


@pytest.fixture
def data(tmp_path: Path):
    path = tmp_path / "runs.csv"
    lines = [line(micro, tp, 60 + micro + tp) for micro in (1, 2, 4, 8) for tp in (1, 2, 4)]
    lines.append(line(8, 1, 1.0, "oom", "none"))
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    runs = read_runs([path]).runs
    return scored(runs, predict(runs))


def test_every_axis_with_several_values_adds_up_to_all_rows(data) -> None:
    index = np.arange(len(data.runs))
    errors = errors_by_axis(data, index, "time")
    every = predicted = data.predictions.time[data.timed] / data.time[data.timed] - 1
    assert errors[0].axis == "all"
    assert errors[0].count == len(every) == 12
    assert errors[0].median == pytest.approx(np.median(predicted))
    assert errors[0].mape == pytest.approx(np.abs(predicted).mean())
    for axis in ("tp", "micro-batch"):
        own = [e for e in errors if e.axis == axis]
        assert sum(e.count for e in own) == 12
        assert sum(e.mape * e.count for e in own) / 12 == pytest.approx(errors[0].mape)
    assert not [e for e in errors if e.axis == "pp"]


def test_verdicts_are_counted_once(data) -> None:
    for v in verdicts_by_axis(data, np.arange(len(data.runs))):
        parts = (v.ran_fits, v.ran_not, v.oom_fits, v.oom_not, v.failed_fits, v.failed_not)
        assert sum(parts) == v.count
    whole = verdicts_by_axis(data, np.arange(len(data.runs)))[0]
    assert (whole.count, whole.oom_fits + whole.oom_not) == (13, 1)


def test_a_group_loses_what_its_choice_costs(data) -> None:
    group = np.flatnonzero(data.timed)
    measured, predicted = data.time[group], data.predictions.time[group]
    lost = lost_by(data, group)
    assert lost is not None
    assert lost.chosen_s == measured[predicted.argmin()]
    assert lost.best_s == measured.min()
    assert lost.regret == pytest.approx(lost.chosen_s / lost.best_s - 1)
    assert set(lost.differs) <= {axis for axis, _ in AXES}
    data.predictions.time[group] = measured
    assert lost_by(data, group) is None
    assert split_of(data, group, "x", "regret").lost == ()


def test_only_what_is_missed_is_split(data) -> None:
    report, _ = validate([PUBLISHED], residuals=["missed"])
    wrong = [h for h in report.headlines if h.met is False]
    assert [(s.name, s.metric) for s in report.residuals] == [(h.name, h.metric) for h in wrong]
    missed = [h.model_copy(update={"met": False}) for h in report.headlines]
    runs = read_runs([PUBLISHED]).runs
    splits = missed_splits(scored(runs, predict(runs)), missed, {})
    assert len(splits) == len(missed)


def test_a_source_is_split_on_request() -> None:
    report, text = validate([PUBLISHED], residuals=["KORTHI"])
    (times,) = report.residuals
    assert times.name == "korthikanti2022_table5"
    assert {e.axis for e in times.errors} >= {"all", "pp", "recompute", "GPUs"}
    assert "residuals  korthikanti2022_table5: step time, mean error" in text
    with pytest.raises(ValueError, match="korthikanti2022_table5"):
        validate([PUBLISHED], residuals=["nobody"])
