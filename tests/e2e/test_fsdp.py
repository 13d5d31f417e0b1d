"""The peak our model predicts for FSDP2 against torch's own tracker on fake tensors."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from costmodels.configuration import Configuration
from costmodels.memory import memory_costs
from costmodels.peak import peak
from costmodels.stack import load_stack
from hardware_db import parse_gpus
from planner.catalogue import load_model
from planner.emit.model_config import model_config
from planner.verify_run import cpu_environment

SCRIPT = Path(__file__).with_name("fsdp_memory.py")
MODEL, SEQ_LEN = "llama2-7b", 2048
TOLERANCE = 0.03


def predicted(world, granularity, stage):
    """Allocated bytes at the peak of forward and backward; the tracker sees no optimizer step."""
    arch = load_model(MODEL)
    configuration = Configuration(
        architecture=arch,
        cluster=parse_gpus("8xA100-80G" if world == 8 else f"{world // 8}x8xA100-80G"),
        stack=load_stack("hf-fsdp2"),
        precision="bf16",
        attention="efficient",
        optimizer="adamw",
        seq_len=SEQ_LEN,
        pp=1,
        dp=world,
        zero_stage=stage,
    )
    layers = {granularity: np.asarray([arch.layers])}
    phases = peak(memory_costs(configuration), arch.layers, layers).phases
    return max(float(np.max(size)) for name, size in phases.items() if name != "optimizer")


@pytest.mark.slow
@pytest.mark.parametrize("granularity", ["none", "full"])
@pytest.mark.parametrize(("world", "stage"), [(8, 3), (64, 3), (8, 2)])
def test_peak_agrees_with_the_tracker(world, stage, granularity, tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(model_config(load_model(MODEL))))
    answer = subprocess.run(
        [sys.executable, str(SCRIPT), str(path), str(world), str(SEQ_LEN), granularity, str(stage)],
        capture_output=True,
        text=True,
        env=cpu_environment(),
        check=False,
    )
    lines = [line for line in answer.stdout.splitlines() if line.startswith("PEAK")]
    assert lines, answer.stderr[-2000:]
    measured = json.loads(lines[0].removeprefix("PEAK"))["Total"]
    ours = predicted(world, granularity, stage)
    case = f"world {world} stage {stage} {granularity}"
    print(f"{case}: {measured / 2**20:.0f} MiB tracked, {ours / 2**20:.0f}")
    assert ours == pytest.approx(measured, rel=TOLERANCE)
