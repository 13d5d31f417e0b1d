"""Which releases the files are for, and what is said of others."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError

import pytest

from planner.emit import TARGETS, versions
from planner.emit.versions import DEEPSPEED, TORCH, TORCHTITAN, Target, accepts, version_notes


def installed(monkeypatch: pytest.MonkeyPatch, **packages: str) -> None:
    """Pretend that only these packages are installed."""

    def version(package: str) -> str:
        if package.replace("-", "_") in packages:
            return packages[package.replace("-", "_")]
        raise PackageNotFoundError(package)

    monkeypatch.setattr(versions, "version", version)


@pytest.mark.parametrize(
    ("target", "release", "fits"),
    [
        (DEEPSPEED, "0.19.8", True),
        (DEEPSPEED, "0.19.0", True),
        (DEEPSPEED, "0.18.9", False),
        (DEEPSPEED, "0.20.0", False),
        (TORCH, "2.13.0+cpu", True),
        (TORCH, "2.8.1", False),
        (TORCHTITAN, "0.3.0", True),
        (TORCHTITAN, "0.3.1", False),
        (DEEPSPEED, "0.19.8.dev3", True),
    ],
)
def test_ranges(target: Target, release: str, fits: bool) -> None:
    assert accepts(target, release) is fits


def test_an_absent_framework_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch)
    assert all(version_notes(name) == [] for name in versions.TARGETS)


def test_a_fitting_one_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, deepspeed="0.19.8", torch="2.13.0")
    assert version_notes("deepspeed") == []


def test_another_release_is_named_with_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, deepspeed="0.16.2")
    (note,) = version_notes("deepspeed")
    assert "0.16.2 is installed" in note
    assert "MiCS" in note
    assert "pin_memory" in note


def test_every_target_has_its_versions() -> None:
    assert set(TARGETS) <= set(versions.TARGETS)


def test_a_version_without_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="expected numbers"):
        accepts(DEEPSPEED, "unknown")
