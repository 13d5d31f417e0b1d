"""A job's folder is written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.bundle import write_bundle

OURS = {"plan.json": '{"schema_version": "1.0"}', "launch.sh": "#!/bin/sh\n"}


def test_files_are_written_and_scripts_are_executable(tmp_path: Path) -> None:
    folder = tmp_path / "outputs" / "job"
    written = write_bundle(folder, OURS)
    assert sorted(p.name for p in folder.iterdir()) == ["launch.sh", "manifest.json", "plan.json"]
    assert set(written) == {str(folder / n) for n in OURS}
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
    with pytest.raises(ValueError, match=r"did not write or you changed \(thesis.txt\)"):
        write_bundle(folder, OURS)
    assert [p.name for p in folder.iterdir()] == ["thesis.txt"]
    write_bundle(folder, OURS, force=True)
    assert not (folder / "thesis.txt").exists()


@pytest.mark.parametrize("change", ["edit", "add", "link"])
def test_what_a_user_changed_is_not_replaced(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "job"
    write_bundle(folder, OURS)
    touched = folder / ("launch.sh" if change == "edit" else "mine.csv")
    if change == "link":
        touched.symlink_to(tmp_path / "elsewhere")
    else:
        touched.write_text("my work")
    with pytest.raises(ValueError, match=touched.name):
        write_bundle(folder, OURS)
    assert touched.is_symlink() or touched.read_text() == "my work"
    write_bundle(folder, OURS, force=True)
    assert sorted(p.name for p in folder.iterdir()) == ["launch.sh", "manifest.json", "plan.json"]


def test_the_working_folder_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    for folder in (Path(), Path(".."), tmp_path):
        with pytest.raises(ValueError, match="the folder you are in"):
            write_bundle(folder, OURS, force=True)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


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
    assert sorted(p.name for p in folder.iterdir()) == ["launch.sh", "manifest.json", "plan.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["job"]
