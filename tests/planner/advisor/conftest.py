"""Helper modules of this folder, and the collected tables where they are at hand."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.fixture(scope="session")
def shared_cases() -> Path:
    """Folder of users' cases; the tests that need it skip without it."""
    root = Path(os.environ.get("PLANNER_SHARED", HERE.parents[3] / "shared"))
    folder = root / "data" / "cases"
    if not folder.is_dir():
        pytest.skip("needs the collected user cases (PLANNER_SHARED)")
    return folder
