"""Emitted bundles train on two CPU processes, and hold the bytes the memory model says."""

import json
import math
import os
from pathlib import Path

import bundles
import pytest

from planner.verify import verify
from planner.verify_run import LOSS, launch, read_rows

CENSUS = Path(__file__).with_name("census.py")
STEPS = 4
TOLERANCE = 0.02  # of the memory model's bytes
MIXED = [{"none": 4, "selective": 4, "full": 4, "every_2": 4}]
FULL = [{"full": 16}]
UNEVEN = [{"full": 5, "none": 2}, {"none": 3, "every_2": 4, "selective": 2}]  # 7 and 9 layers

# name: job fields, plan fields
CASES = {
    "zero-0": ({}, {"zero_stage": 0, "recompute": MIXED}),
    "zero-1": ({}, {"zero_stage": 1, "recompute": MIXED}),
    "zero-2": ({}, {"zero_stage": 2, "recompute": MIXED}),
    "zero-3": ({}, {"zero_stage": 3, "recompute": MIXED}),
    "zero-1 fp32 gradients": ({"grad_dtype": "fp32"}, {"zero_stage": 1, "recompute": MIXED}),
    "zero-3 CPU optimizer and parameters": (
        {},
        {
            "zero_stage": 3,
            "offload_optimizer": "cpu",
            "offload_parameters": "cpu",
            "recompute": MIXED,
        },
    ),
    "zero-3 NVMe optimizer": (
        {"nvme": "4TB"},
        {"zero_stage": 3, "offload_optimizer": "nvme", "recompute": MIXED},
    ),
    "pipeline": (
        {},
        {"zero_stage": 1, "dp": 1, "pp": 2, "grad_accum": 4, "recompute": UNEVEN},
    ),
    "tensor parallel": ({}, {"zero_stage": 1, "dp": 1, "tp": 2, "grad_accum": 4}),
}
SLOW_CASES = {
    "zero-3 fp32 gradients": ({"grad_dtype": "fp32"}, {"zero_stage": 3, "recompute": MIXED}),
    "zero-2 fp32 gradients": ({"grad_dtype": "fp32"}, {"zero_stage": 2, "recompute": MIXED}),
    "zero-2 CPU optimizer": (
        {},
        {"zero_stage": 2, "offload_optimizer": "cpu", "recompute": MIXED},
    ),
    "tensor parallel, head apart from the table": (
        {"model": "llama2-7b"},
        {"zero_stage": 1, "dp": 1, "tp": 2, "grad_accum": 4},
    ),
    "GPT-2 pipeline without ZeRO": (
        {"model": "gpt2-xl", "seq_len": 1024},
        {"dp": 1, "pp": 2, "grad_accum": 4, "recompute": [{"full": 23}, {"none": 25}]},
    ),
    "fp32": ({}, {"precision": "fp32", "attention": "efficient", "recompute": MIXED}),
    "Adafactor": ({"optimizer": "adafactor"}, {"zero_stage": 1, "recompute": MIXED}),
}
MORE = {
    "pipeline, tied, chunked loss": (
        {"cross_entropy": "chunked"},
        {"dp": 1, "pp": 2, "grad_accum": 4, "recompute": UNEVEN},
    ),
    "GPT-2, fused loss": (
        {"model": "gpt2-xl", "seq_len": 1024, "cross_entropy": "fused"},
        {"zero_stage": 2, "recompute": [{"full": 20, "every_4": 28}]},
    ),
    "chunked loss, zero-3": (
        {"cross_entropy": "chunked"},
        {"zero_stage": 3, "recompute": FULL},
    ),
    "Muon": ({"optimizer": "muon"}, {"zero_stage": 1, "recompute": FULL}),
    "tensor parallel, zero-3": ({}, {"zero_stage": 3, "dp": 1, "tp": 2, "grad_accum": 4}),
    "part of the optimizer on the CPU": (
        {},
        {"zero_stage": 3, "offload_optimizer": "cpu", "away": 8, "recompute": MIXED},
    ),
    "mixture of experts": (
        {"model": "mixtral-8x7b"},
        {"zero_stage": 3, "recompute": [{"full": 32}]},
    ),
}


def train_and_count(folder, tmp_path):
    """Losses, the measured rows, and each rank's census."""
    os.environ["CENSUS_OUT"] = str(tmp_path / "census")
    output = tmp_path / "measured.csv"
    arguments = ["--tiny", "--steps", str(STEPS), "--warmup", "0", "--output", str(output)]
    code, text = launch([str(CENSUS), str(folder), *arguments])
    assert code == 0, text[-3000:]
    counts = [json.loads((tmp_path / f"census.{rank}").read_text()) for rank in (0, 1)]
    return [float(loss) for loss in LOSS.findall(text)], read_rows(output), counts


@pytest.mark.parametrize(
    "name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_CASES)]
)
def test_trains_and_holds_the_predicted_bytes(name, tmp_path):
    spec, fields = {**CASES, **SLOW_CASES}[name]
    job, plan = bundles.bundle(tmp_path / "bundle", spec, **fields)
    losses, rows, counts = train_and_count(tmp_path / "bundle", tmp_path)

    assert len(losses) == STEPS
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0]
    assert len(rows) == 1
    assert float(rows[0]["step_time_s"]) > 0

    if plan.pp > 1 and job.architecture.tied_embeddings:  # both copies took the same steps
        assert counts[0]["tied"] == counts[1]["tied"] != []
    small, config = bundles.shrunk(tmp_path / "bundle")
    for rank, count in enumerate(counts):
        stage = rank if plan.pp > 1 else 0
        predicted = bundles.persistent_bytes(job, plan, small, config, stage)
        measured = sum(count["bytes"].values())
        per_parameter = measured / count["parameters"], predicted / count["parameters"]
        print(
            f"{name} rank {rank}: {per_parameter[0]:.3f} measured, {per_parameter[1]:.3f} predicted"
        )
        assert measured == pytest.approx(predicted, rel=TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_more_bundles_train(name, tmp_path):
    spec, fields = MORE[name]
    bundles.bundle(tmp_path, spec, **fields)
    report = verify(tmp_path, run=True)
    assert {check.name: check.detail for check in report.checks if check.status == "failed"} == {}
    assert report.checks[-1].status == "ok", report.checks[-1].detail
