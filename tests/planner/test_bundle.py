"""A job's folder is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.bundle import write_bundle

OURS = {"plan.json": '{"schema_version": "1.0"}', "launch.sh": "#!/bin/sh\n"}


def test_files_are_written_and_scripts_are_executable(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "job"
    written = write_bundle(folder, OURS)
    assert sorted(p.name for p in folder.iterdir()) == ["launch.sh", "plan.json"]
    assert written == tuple(sorted(str(folder / n) for n in OURS))
    assert (folder / "launch.sh").stat().st_mode & 0o111


def test_our_own_folder_is_replaced_entirely(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    write_bundle(folder, {**OURS, "extra.txt": "old"})
    write_bundle(folder, OURS)
    assert not (folder / "extra.txt").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["job"]


def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="not written by planner"):
        write_bundle(folder, OURS)
    assert [p.name for p in folder.iterdir()] == ["thesis.txt"]
    write_bundle(folder, OURS, force=True)
    assert not (folder / "thesis.txt").exists()


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "job"
    target.write_text("a file")
    with pytest.raises(ValueError, match="not a folder"):
        write_bundle(target, OURS)
    with pytest.raises(ValueError, match="cannot write"):
        write_bundle(target / "below", OURS)


def test_a_failed_write_leaves_the_old_folder(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    write_bundle(folder, OURS)
    with pytest.raises(ValueError, match="cannot write"):
        write_bundle(folder, {**OURS, "x" * 300: "name too long for any file system"})
    assert sorted(p.name for p in folder.iterdir()) == ["launch.sh", "plan.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["job"]
