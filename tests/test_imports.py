"""Imports point one way: hardware_db <- costmodels <- planner."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "hardware_db": {"hardware_db"},
    "costmodels": {"hardware_db", "costmodels"},
    "planner": {"hardware_db", "costmodels", "planner"},
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_point_one_way(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        own = imported(path) & set(MAY_IMPORT)
        assert own <= MAY_IMPORT[package], f"{path.relative_to(ROOT)} imports {own}"


def test_no_framework_is_imported() -> None:
    """The planner needs no torch: neither it nor what it emits for is imported anywhere."""
    heavy = {"torch", "deepspeed", "transformers", "accelerate", "megatron"}
    for package in MAY_IMPORT:
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            top = {
                alias.name.split(".")[0]
                for node in tree.body
                if isinstance(node, ast.Import)
                for alias in node.names
            }
            assert not top & heavy, path


def test_the_command_line_imports_nothing_heavy() -> None:
    code = (
        "import sys, planner.cli;"
        "print([m for m in ('numpy', 'pydantic', 'ortools', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_interface_stays_what_it_is() -> None:
    """A module of the same name must not take a function's place once it is imported."""
    code = (
        "from planner import advise, estimate, solve;"
        "estimate(model='gpt3-125m', gpus='1xA100-80G');"
        "from planner import advise, estimate, solve;"
        "assert all(callable(f) for f in (advise, estimate, solve))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
