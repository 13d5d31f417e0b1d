"""Write a job's folder, whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

MARK = "plan.json"  # a folder the planner wrote holds one with a schema_version


def written_by_planner(folder: Path) -> bool:
    """Whether a folder is one of ours, so that it may be replaced."""
    try:
        data = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and "schema_version" in data


def check_target(folder: Path, force: bool) -> None:
    """Refuse a folder that would destroy somebody's files, before any work is done.

    Raises
    ------
    ValueError
        If the path is a file, or a folder the planner did not write and ``force`` is off.
    """
    if folder.is_dir():
        if any(folder.iterdir()) and not force and not written_by_planner(folder):
            raise ValueError(
                f"{folder}: exists and was not written by planner; choose another --output or"
                " give --force"
            )
    elif folder.exists() or folder.is_symlink():
        raise ValueError(f"{folder}: is not a folder; choose another --output")


def write_bundle(folder: Path, files: Mapping[str, str], force: bool = False) -> tuple[str, ...]:
    """Write all files of a job into its folder, replacing what was there.

    The files go to a new folder beside it, which then takes its name: a crash leaves the old
    folder or the new one, never a mixture.

    Returns
    -------
    tuple[str, ...]
        The paths written, sorted.

    Raises
    ------
    ValueError
        If the folder may not be replaced or cannot be written.
    """
    check_target(folder, force)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ValueError(f"{folder}: cannot write: {error.strerror or error}") from None
    try:
        fresh.chmod(0o755)
        for name, text in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if name.endswith(".sh"):
                path.chmod(0o755)
        _swap(fresh, folder)
    except OSError as error:
        raise ValueError(f"{folder}: cannot write: {error.strerror or error}") from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return tuple(sorted(str(folder / name) for name in files))


def _swap(fresh: Path, folder: Path) -> None:
    if not folder.exists():
        fresh.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old / "was")
    try:
        fresh.rename(folder)
    except OSError:
        (old / "was").rename(folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def write_file(path: Path, text: str) -> None:
    """Write one file, whole or not at all.

    Raises
    ------
    ValueError
        If it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot write: {error.strerror or error}") from None
