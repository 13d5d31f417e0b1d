"""The Hugging Face Trainer takes the emitted ``auto`` configuration and trains with it."""

import json
from pathlib import Path

import bundles
import pytest

from planner.emit import convert
from planner.job import resolve
from planner.spec import make_spec
from planner.verify_run import launch

SCRIPT = Path(__file__).with_name("hf_trainer.py")


@pytest.mark.parametrize("stage", [2, 3])
def test_trainer_fills_auto_and_trains(stage, tmp_path):
    job = resolve(make_spec(bundles.LLAMA))
    plan = bundles.make_plan(job, zero_stage=stage, recompute=[{"full": 16}])
    bundles.write(tmp_path, job, plan)
    for name, text in convert(job, plan, "hf").files.items():
        (tmp_path / name).write_text(text)
    assert '"auto"' in (tmp_path / "ds_config_hf.json").read_text()

    code, text = launch([str(SCRIPT), str(tmp_path), str(tmp_path / "report.json")], processes=1)
    assert code == 0, text[-3000:]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["engine"] == "DeepSpeedEngine"
    assert report["stage"] == stage
    assert report["micro_batch"] == plan.micro_batch
    assert report["grad_accum"] == plan.grad_accum
    assert report["dtype"] == "torch.bfloat16"
    assert report["checkpointed"] > 0
    assert report["losses"][-1] < report["losses"][0]
