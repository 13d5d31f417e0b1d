"""A bundle of the planner's own is judged without being told its model and GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.advisor.core import advise
from planner.api import solve_to_files

JOB = {"model": "gpt2-xl", "gpus": "8xA100-80G", "host_memory": "900GiB", "top": 0}


@pytest.mark.parametrize("stack", ["deepspeed", "megatron-deepspeed", "megatron", "fsdp2"])
def test_a_bundle_is_judged_as_it_was_planned(tmp_path: Path, stack: str) -> None:
    folder = tmp_path / "job"
    result, _ = solve_to_files({**JOB, "stack": stack}, output=folder)
    assert result.predicted is not None
    scripts = [path for path in (folder / "launch.sh", folder / "plan.json") if path.is_file()]
    assert scripts[-1].name == "plan.json"
    for path in scripts:
        one = advise(path, advice=False).files[0]
        assert one.judgement is not None, one.notes
        assert one.judgement.verdict == result.predicted.verdict
        wanted = result.predicted.peak_memory_bytes
        assert one.judgement.peak_memory_bytes == pytest.approx(wanted, rel=0.02)
        assert any(note.startswith("GPUs 8xA100-80G, as ") for note in one.notes)
        assert {line.limit_bytes for line in one.judgement.host} == {
            line.limit_bytes for line in result.predicted.host
        }


def test_gpus_that_are_given_go_before_the_plan(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    solve_to_files(JOB, output=folder)
    one = advise(folder / "plan.json", gpus="8xH100", advice=False).files[0]
    assert one.judgement is not None
    assert not any(note.startswith("GPUs ") for note in one.notes)


def test_gpus_nobody_knows_leave_a_plan_without_a_verdict(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    solve_to_files(JOB, output=folder)
    path = folder / "plan.json"
    data = json.loads(path.read_text())
    data["job"]["gpus"] = "8xNONESUCH"
    path.write_text(json.dumps(data))
    one = advise(path, advice=False).files[0]
    assert one.judgement is None
    assert any(note.startswith("no verdict: ") for note in one.notes)
