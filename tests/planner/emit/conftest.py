"""Emitted bundles of the spread of plans, made once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from emit_spread import ALL

from planner.emit import emit
from planner.job import Job
from planner.plan import Plan

collect_ignore = ["checks"]  # scripts that run where the frameworks are installed

Bundle = tuple[Job, Plan, dict[str, str]]


@pytest.fixture(scope="session")
def bundles() -> dict[str, Bundle]:
    """``stack/case`` to the job, the plan and the files."""
    made = {}
    for name, case in ALL.items():
        job, plan = case()
        made[name] = (job, plan, emit(job, plan))
    return made
