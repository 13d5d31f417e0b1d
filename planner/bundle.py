"""Write a job's folder, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

MANIFEST = "manifest.json"  # what planner wrote, by SHA-256; a folder with one may be replaced


def manifest(files: Mapping[str, str]) -> str:
    """The text of the manifest of some files."""
    digests = {name: _digest(text.encode("utf-8")) for name, text in sorted(files.items())}
    return json.dumps({"schema_version": "1.0", "sha256": digests}, indent=2) + "\n"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def foreign_files(folder: Path) -> list[str]:
    """Files of a folder that planner did not write as they stand, sorted.

    All of them where there is no manifest that can be read.
    """
    try:
        known = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["sha256"]
        known = dict(known)
    except (OSError, ValueError, KeyError, TypeError):
        known = {}
    present = [p for p in sorted(folder.rglob("*")) if not p.is_dir()]
    names = {str(p.relative_to(folder)): p for p in present}
    if known:
        names.pop(MANIFEST, None)
    return [
        name
        for name, path in names.items()
        if path.is_symlink() or known.get(name) != _digest(path.read_bytes())
    ]


def check_target(folder: Path, force: bool) -> None:
    """Refuse a folder that would destroy somebody's files, before any work is done.

    Raises
    ------
    ValueError
        If the path is a file, the working directory or above it, or a folder with files that
        planner did not write, or that were changed since, and ``force`` is off.
    """
    whole = folder.resolve()
    if whole in (Path.cwd(), *Path.cwd().parents, Path.home()):
        raise ValueError(f"{folder}: would replace the folder you are in; choose another --output")
    if folder.is_dir():
        theirs = [] if force else foreign_files(folder)
        if theirs:
            more = f" and {len(theirs) - 3} more" if len(theirs) > 3 else ""
            raise ValueError(
                f"{folder}: holds files planner did not write or you changed"
                f" ({', '.join(theirs[:3])}{more}); choose another --output, or --force to replace"
                " the whole folder"
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
        for name, text in {**files, MANIFEST: manifest(files)}.items():
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
