"""Tests against the real frameworks; skipped, with the reason, where they are not installed."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

NEEDED = ("torch", "deepspeed", "transformers", "accelerate")
HERE = Path(__file__).parent
collect_ignore = ["census.py", "fsdp_memory.py", "hf_trainer.py"]  # scripts tests start

# The frameworks decide at import which device they drive.
os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
sys.path.insert(0, str(HERE))


def pytest_configure(config):
    config.addinivalue_line("markers", "e2e: needs torch, DeepSpeed, transformers, Accelerate")
    config.addinivalue_line("markers", "slow: of e2e, more than a minute")


def pytest_collection_modifyitems(items):
    missing = [name for name in NEEDED if find_spec(name) is None]
    for item in items:
        if HERE not in Path(item.fspath).parents:
            continue
        item.add_marker(pytest.mark.e2e)
        item.add_marker(pytest.mark.filterwarnings("ignore"))  # the frameworks', not ours
        if missing:
            reason = f"not installed: {', '.join(missing)} (the e2e extra)"
            item.add_marker(pytest.mark.skip(reason=reason))
        elif "slow" in item.keywords and os.environ.get("E2E_SLOW") != "1":
            item.add_marker(pytest.mark.skip(reason="slow tier: set E2E_SLOW=1"))
