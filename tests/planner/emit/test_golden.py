"""A few emitted texts, word for word.

To accept a change: PLANNER_WRITE_GOLDEN=1 pytest tests/planner/emit/test_golden.py, and read the
difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"
FILES = [
    ("deepspeed/zero2", "deepspeed_config.json"),
    ("deepspeed/zero3-nvme", "deepspeed_config.json"),
    ("deepspeed/zero2", "launch.sh"),
    ("megatron/uneven", "launch.sh"),
    ("megatron/3d", "job.sbatch"),
    ("fsdp2/tp", "launch.sh"),
]


@pytest.mark.parametrize(("name", "file"), FILES)
def test_text(name: str, file: str, bundles: dict[str, Any]) -> None:
    path = GOLDEN / f"{name.replace('/', '-')}-{file}"
    text = bundles[name][2][file]
    if os.environ.get("PLANNER_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
