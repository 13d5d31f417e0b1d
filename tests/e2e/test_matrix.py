"""Every job of the planner's matrix: what is emitted for its plan loads in DeepSpeed."""

import importlib.util
import json
from pathlib import Path

import pytest

from planner.api import solve
from planner.emit import emit
from planner.job import resolve
from planner.spec import make_spec
from planner.verify_run import parse_with_deepspeed

MATRIX = Path(__file__).parents[1] / "planner" / "matrix.py"


def jobs():
    spec = importlib.util.spec_from_file_location("matrix", MATRIX)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.JOBS


@pytest.mark.slow
def test_every_configuration_loads_at_its_plans_world_size():
    configurations = {}
    for fields in jobs():
        plan = solve(fields).plan
        assert plan is not None, fields
        text = emit(resolve(make_spec(fields)), plan).get("deepspeed_config.json")
        if text is not None:
            grid = plan.pp > 1 or plan.stack != "deepspeed"
            world = plan.dp if grid else plan.gpus
            configurations.setdefault(world, []).append((fields, json.loads(text)))
    refused = []
    for world, found in configurations.items():
        answers = parse_with_deepspeed([config for _, config in found], world)
        refused += [(job, said) for (job, _), said in zip(found, answers, strict=True) if said]
    total = sum(map(len, configurations.values()))
    print(f"{total} of {len(jobs())} jobs have a DeepSpeed configuration; {len(refused)} refused")
    assert total > 0
    assert refused == []
