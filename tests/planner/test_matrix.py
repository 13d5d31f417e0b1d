"""Every bundle of a broad matrix of jobs keeps to the rules its own framework sets."""

from __future__ import annotations

import json

import pytest

from planner.candidates import candidates
from planner.choose import choose
from planner.emit import emit
from planner.evaluate import evaluate
from planner.job import resolve
from planner.lint import Context, lint_deepspeed
from planner.optimum import choice_of, found_in
from planner.solver import search as proof
from planner.spec import make_spec

from .matrix import JOBS


def name_of(job: dict[str, object]) -> str:
    extra = [f"{k}={v}" for k, v in job.items() if k not in ("model", "gpus")]
    return " ".join([str(job["model"]), str(job["gpus"]), *extra])


@pytest.mark.parametrize("fields", JOBS, ids=name_of)
def test_the_plan_fits_and_its_json_keeps_to_the_rules(fields: dict[str, object]) -> None:
    job = resolve(make_spec(fields))
    space = candidates(job)
    found = proof.search(space.batches)
    assert found.status == "optimal"
    assert found.gap == 0
    assert found.best is not None
    optimum = found_in(space, found.best)
    chosen = choose(job, space, optimum, 0.02, 60.0)
    assert chosen.found.seconds <= optimum.seconds * 1.02
    plan, predicted = evaluate(job, choice_of(chosen.found))
    assert predicted.verdict == "fits"
    assert predicted.step_time_s == pytest.approx(chosen.found.seconds, rel=1e-5)
    files = emit(job, plan)
    config = json.loads(files["deepspeed_config.json"])
    context = Context(framework="plain" if plan.stack == "deepspeed" else "megatron")
    serious = [f for f in lint_deepspeed(config, context) if f.severity != "info"]
    assert serious == []
    assert '"auto"' not in files["deepspeed_config.json"]
    triple = (
        config["train_micro_batch_size_per_gpu"],
        config["gradient_accumulation_steps"],
    )
    assert triple == (plan.micro_batch, plan.grad_accum)
    if "train_batch_size" in config:
        assert config["train_batch_size"] == job.global_batch
    else:
        assert plan.stack == "deepspeed"
        assert plan.tp > 1
