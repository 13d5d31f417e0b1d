"""A bundle as read from its folder, and what checks say of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from planner.job import Job
from planner.plan import Result

Status = Literal["ok", "failed", "skipped"]
Finding = tuple[Status, str]
# What a bundle is made of; logs, checkpoints and tables beside it are left alone.
SUFFIXES = (".json", ".yaml", ".yml", ".sh", ".sbatch", ".py", ".md")


@dataclass
class Bundle:
    """A bundle as read: texts by file name, parsed JSON, and its plan if readable."""

    folder: Path
    texts: dict[str, str]
    json: dict[str, Any] = field(default_factory=dict)
    result: Result | None = None
    job: Job | None = None  # what the plan was solved for


def read_bundle(folder: Path) -> Bundle:
    """The text files of a folder.

    Raises
    ------
    ValueError
        If it cannot be read or has no plan.json.
    """
    if not (folder / "plan.json").is_file():
        raise ValueError(f"{folder}: no plan.json; expected a folder that planner solve wrote")
    texts = {}
    try:
        for path in sorted(folder.iterdir()):
            if path.is_file() and path.suffix in SUFFIXES:
                texts[path.name] = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot read: {error}") from None
    return Bundle(folder, texts)


def named(bundle: Bundle, suffix: str) -> Iterator[str]:
    """Names of the bundle's files that end so."""
    return (name for name in bundle.texts if name.endswith(suffix))


def verdict(wrong: list[str], detail: str) -> Finding:
    """Failed with all that is wrong, else ok with the detail."""
    return ("failed", "; ".join(wrong)) if wrong else ("ok", detail)
