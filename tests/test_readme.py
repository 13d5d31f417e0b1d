"""The README prints what the program prints, and the committed sample is what it writes.

Regenerate both with ``python -m tests.test_readme``.
"""

from __future__ import annotations

import re
from pathlib import Path

from planner.api import solve_to_files

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
SAMPLE = Path("outputs") / "llama2-13b-8xa100-sxm4-80g"
JOB = {"model": "13b", "gpus": "8xA100-80G"}
BLOCK = re.compile(
    r"(<!-- output of the main command -->\n```text\n)(.*?)(```\n<!-- end of output -->)", re.S
)


def test_the_printed_output_is_real(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, text = solve_to_files(JOB)
    found = BLOCK.search(README.read_text(encoding="utf-8"))
    assert found is not None
    assert found.group(2).rstrip("\n") == text
    written = {p.name: p.read_text(encoding="utf-8") for p in (tmp_path / SAMPLE).iterdir()}
    sample = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / SAMPLE).iterdir()}
    assert written == sample


def test_the_readme_has_the_two_commands() -> None:
    text = README.read_text(encoding="utf-8")
    for mark in ("main command", "test command"):
        assert len(re.findall(rf"<!-- {mark} -->\n```sh\n.+\n```", text)) == 1


if __name__ == "__main__":
    _, output = solve_to_files(JOB)
    README.write_text(BLOCK.sub(lambda m: m[1] + output + "\n" + m[3], README.read_text()))
