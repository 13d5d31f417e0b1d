"""Files to look at: patterns and folders written out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from planner.advisor.readers import read_file
from planner.advisor.source import Unreadable


def expand(files: str | Path | Iterable[str | Path]) -> list[Path]:
    """Paths with patterns written out; a pattern without a match stays as it is."""
    given = [files] if isinstance(files, str | Path) else list(files)
    out: list[Path] = []
    for item in given:
        text = str(item)
        found = _matches(Path(text)) if set(text) & set("*?[") else []
        if Path(text).is_dir():
            found = _in_folder(Path(text))
        out += found or [Path(text)]
    return list(dict.fromkeys(out))


_SUFFIXES = frozenset({".json", ".yaml", ".yml", ".sh", ".bash", ".sbatch", ".slurm"})


def _in_folder(folder: Path) -> list[Path]:
    """The files of a folder that the advisor can read."""
    out = []
    for path in sorted(folder.iterdir()):
        if path.suffix in _SUFFIXES and path.is_file():
            try:
                read_file(path, follow=False)
            except Unreadable:
                continue
            out.append(path)
    return out


def _matches(pattern: Path) -> list[Path]:
    root = Path(pattern.anchor) if pattern.anchor else Path()
    try:
        found = root.glob(str(pattern.relative_to(pattern.anchor)))
        return sorted(path for path in found if path.is_file())
    except (ValueError, OSError):
        return []  # not a pattern after all
