"""Files that commands write: never over one they read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def check_output(output: Path | None, inputs: Sequence[Path | None]) -> None:
    """An output is none of the inputs, whatever name or link leads to it.

    Raises
    ------
    ValueError
        If it is one.
    """
    for path in inputs:
        if output is not None and path is not None and _same(output, path):
            raise ValueError(f"{output}: is one of the inputs; expected another file to write")


def _same(a: Path, b: Path) -> bool:
    try:
        return a.resolve() == b.resolve() or a.samefile(b)
    except (OSError, RuntimeError):  # one of them does not exist, or its links go in circles
        return False
