"""The catalogues on the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from planner.cli import app


def output(*args: str) -> str:
    result = CliRunner().invoke(app, list(args))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_all_models_and_devices_are_listed() -> None:
    models = json.loads(output("models", "--json"))
    assert len(models) == 131
    llama = next(m for m in models if m["name"] == "llama2-13b")
    assert llama["bare_size"] == "13b"
    assert llama["parameters"] == 13_015_864_320
    devices = json.loads(output("gpus", "--json"))
    assert len(devices["gpus"]) == 42
    assert len(devices["nodes"]) == 57
    assert output("models").count("\n") == 132
    assert "A100-80G" in output("gpus")


def test_a_model_and_a_device_in_detail() -> None:
    facts = json.loads(output("models", "meta-llama/Llama-2-13b-hf", "--json"))
    assert facts["name"] == "llama2-13b"
    assert facts["source"]
    gpu = json.loads(output("gpus", "H100", "--json"))
    assert gpu["memory"]["unit"] == "GiB"
    assert gpu["memory"]["source"]
    assert "datasheet" in output("gpus", "H100")
    assert "host_memory" in output("gpus", "p4d.24xlarge")


@pytest.mark.parametrize("name", ["13b", "mixtral-8x7b", "deepseek-v3"])
def test_details_of_any_kind_of_network(name: str) -> None:
    assert "parameters" in output("models", name)
