"""The emitted files in the frameworks' own parsers, where these are installed.

They run in a process of their own, under PLANNER_E2E_PYTHON or this Python: the frameworks warn
on import, and one test's environment must not reach the next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from emit_spread import FSDP2, MEGATRON

from costmodels.params import total_parameters
from planner.emit import convert, targets
from planner.emit.megatron import plan_arguments
from planner.emit.megatron_model import model_arguments
from planner.emit.torchtitan import checkpoint
from planner.emit.torchtitan import plan_arguments as titan_arguments

CHECKS = Path(__file__).parent / "checks"
PYTHON = os.environ.get("PLANNER_E2E_PYTHON", sys.executable)


@cache
def has(*modules: str) -> bool:
    """Whether the Python that runs the checks has these packages."""
    names = ", ".join(repr(name) for name in modules)
    code = f"import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, [{names}])))"
    return subprocess.run([PYTHON, "-c", code], check=False).returncode == 0


def needs(*modules: str) -> None:
    if not has(*modules):
        pytest.skip(f"{', '.join(modules)} not installed (the e2e extra)")


def failures(check: str, cases: list[Any]) -> list[Any]:
    """What a check script did not accept."""
    done = subprocess.run(
        [PYTHON, str(CHECKS / check)],
        input=json.dumps(cases),
        env={**os.environ, "DS_ACCELERATOR": "cpu", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    result: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def world(plan: Any) -> int:
    """Ranks DeepSpeed multiplies the micro-batch with: all, unless an mpu tells it better."""
    with_mpu = plan.pp > 1 or plan.stack == "megatron-deepspeed"
    return int(plan.dp if with_mpu else plan.gpus)


def test_deepspeed_loads_every_json(bundles: dict[str, Any]) -> None:
    needs("deepspeed")
    cases = [
        [name, world(plan), json.loads(files["deepspeed_config.json"])]
        for name, (_, plan, files) in bundles.items()
        if "deepspeed_config.json" in files
    ]
    assert len(cases) > 30
    assert failures("deepspeed_parse.py", cases) == []


def test_the_check_can_fail() -> None:
    needs("deepspeed")
    bad = {"train_batch_size": 9, "train_micro_batch_size_per_gpu": 2}
    assert [name for name, _ in failures("deepspeed_parse.py", [["bad", 2, bad]])] == ["bad"]


def test_accelerate_loads_every_yaml(bundles: dict[str, Any], tmp_path: Path) -> None:
    needs("accelerate")
    cases = []
    for name, (job, plan, _) in bundles.items():
        if targets(job, plan)["accelerate"]:
            continue
        folder = tmp_path / name.replace("/", "-")
        folder.mkdir()
        for file, text in convert(job, plan, "accelerate").files.items():
            (folder / file).write_text(text, encoding="utf-8")
            if file.endswith(".yaml"):
                cases.append([name, str(folder / file)])
    assert len(cases) > 10
    assert failures("accelerate_parse.py", cases) == []


def test_the_trainer_fills_every_auto(bundles: dict[str, Any]) -> None:
    needs("transformers", "deepspeed", "accelerate")
    cases = []
    for name, (job, plan, _) in bundles.items():
        if not targets(job, plan)["hf"]:
            files = convert(job, plan, "hf").files
            arguments = json.loads(files["training_args.json"])
            cases.append([name, plan.gpus, arguments, json.loads(files["ds_config_hf.json"])])
    assert len(cases) > 10
    assert failures("trainer_parse.py", cases) == []


def test_megatron_core_accepts_the_arguments() -> None:
    needs("megatron.core")
    cases = []
    for name, case in MEGATRON.items():
        job, plan = case()
        arguments = [*model_arguments(job, plan), *plan_arguments(job, plan)]
        cases.append([name, {flag: values[0] if values else None for flag, *values in arguments}])
    assert len(cases) >= 20
    assert failures("megatron_core_parse.py", cases) == []


def test_torchtitan_parses_the_flags_and_builds_the_model(
    bundles: dict[str, Any], tmp_path: Path
) -> None:
    needs("torchtitan", "triton")
    cases = []
    for name, case in FSDP2.items():
        job, plan = case()
        if plan.precision == "fp8":
            continue  # needs a GPU to be built
        folder = tmp_path / name
        folder.mkdir()
        text = bundles[f"fsdp2/{name}"][2]["titan_model.py"]
        (folder / "titan_model.py").write_text(text, encoding="utf-8")
        words = [word for argument in titan_arguments(job, plan) for word in argument]
        words.append(f"activation-checkpoint:{checkpoint(plan)}")
        count = int(total_parameters(job.architecture))
        cases.append([name, str(folder), words, plan.gpus, count, job.architecture.norm_eps])
    assert failures("torchtitan_parse.py", cases) == []
