"""Leaving groups out: constants come back from synthetic runs, and a fold has no say in itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from costmodels.stack import load_stack
from planner.validate.command import read_runs
from planner.validate.folds import MOST_FOLDS, folds
from planner.validate.logo import fit, fitted_fields, leave_out, neutral, shipped, solve
from planner.validate.memory_logo import leave_out_memory
from planner.validate.predict import predict, predict_memory, predict_time

TRUE = {"host_layer": 2.5e-3, "host_tp": 3.0e-4}
COLUMNS = (
    "source,model,layers,hidden,heads,ffn,vocab,gated_mlp,tied_embeddings,gpu,n_gpus,framework,"
    "precision,seq_len,micro_batch,global_batch_seqs,dp,tp,pp,zero_stage,act_ckpt,attention,outcome"
)


def table(tmp_path: Path, source: str, framework: str) -> Path:
    lines = [COLUMNS + ",step_time_s"]
    for hidden, tp, micro in product((1024, 2048, 4096), (1, 2, 4), (1, 2, 4)):
        lines.append(
            f"{source},m{hidden},16,{hidden},{hidden // 64},{4 * hidden},50000,false,true,"
            f"A100-80GB,16,{framework},fp16,2048,{micro},64,{16 // tp},{tp},1,0,full,eager,ok,1.0"
        )
    path = tmp_path / f"{source}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def runs(tmp_path: Path):
    """Runs whose times are predictions with constants other than the shipped ones."""
    plain = read_runs([table(tmp_path, "vtrain", "Megatron-DeepSpeed")]).runs
    times = predict_time(plain, TRUE)[0]
    return [replace(run, time=float(t)) for run, t in zip(plain, times, strict=True)]


def test_constants_come_back(runs) -> None:
    stack = load_stack("megatron-deepspeed")
    measured = np.array([run.time for run in runs])
    found = fit(runs, measured, tuple(TRUE), {}, shipped(stack.time, tuple(TRUE)))
    assert np.exp(found.at) == pytest.approx(list(TRUE.values()), rel=0.03)


def test_left_out_runs_are_predicted_by_the_others(runs) -> None:
    found = predict(runs)
    measured = np.array([run.time for run in runs])
    shipped = np.abs(found.time / measured - 1).mean()
    leave_out(runs, found)
    assert np.abs(found.time / measured - 1).mean() < min(0.06, shipped)


def test_a_fold_has_no_say_in_its_own_prediction(runs) -> None:
    first = predict(runs)
    leave_out(runs, first)
    out = folds(runs) == folds(runs)[0]
    changed = [
        replace(run, time=run.time * 3) if o else run for run, o in zip(runs, out, strict=True)
    ]
    second = predict(changed)
    leave_out(changed, second)
    assert second.time[out] == pytest.approx(first.time[out], rel=0.02)
    assert not np.allclose(second.time[~out], first.time[~out], rtol=0.02)


def test_groups_stay_together_in_few_folds(runs) -> None:
    found = folds(runs)
    assert found.max() < MOST_FOLDS
    for group in {run.group for run in runs}:
        assert len({int(f) for f, run in zip(found, runs, strict=True) if run.group == group}) == 1


def test_without_runs_constants_are_neutral() -> None:
    fields = ("gemm_factor", "memory_factor")
    away = np.array([0.1, -0.2])
    move = solve(np.zeros(0), np.zeros((0, 2)), away, fields, np.zeros(0))
    assert move == pytest.approx(-away)
    assert neutral(fields).tolist() == [0.0, 0.0]


def test_fitted_fields_are_those_whose_source_says_so() -> None:
    assert "gemm_factor" in fitted_fields(load_stack("oneflow"))
    assert "host_layer" not in fitted_fields(load_stack("oneflow"))


def test_memory_constants_are_chosen_by_the_other_folds(tmp_path: Path) -> None:
    path = table(tmp_path, "aleph", "AA-Scaling")
    plain = read_runs([path]).runs
    true = {"norm_element": 8.0, "allocator_factor": 1.1}
    device = predict_memory(plain, true)[1]
    runs = [
        replace(run, time=None, memory=float(d), memory_kind="nvidia-smi", outcome="ok")
        for run, d in zip(plain, device, strict=True)
    ]
    found = predict(runs)
    (chosen,) = leave_out_memory(runs, found)
    assert chosen.chosen["allocator_factor"] == true["allocator_factor"]
    assert found.device == pytest.approx(device, rel=1e-9)
