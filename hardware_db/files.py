"""Our own YAML files, parsed once each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import yaml

Raw = Mapping[str, Any]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ROOT = resources.files("hardware_db")


@cache
def read(*parts: str) -> Raw:
    """A file of this package, parsed; the same object every time, not to be changed."""
    text = _ROOT.joinpath(*parts).read_text(encoding="utf-8")
    return yaml.load(text, Loader=_LOADER)  # type: ignore[no-any-return]


def exists(*parts: str) -> bool:
    """Whether this package has that file."""
    return _ROOT.joinpath(*parts).is_file()


def stems(folder: str) -> tuple[str, ...]:
    """Names of the YAML files of a folder, without their ending, sorted."""
    names = (file.name for file in _ROOT.joinpath(folder).iterdir())
    return tuple(sorted(n.removesuffix(".yaml") for n in names if n.endswith(".yaml")))


def default_entry(name: str) -> Raw:
    """A default of ``measured/defaults.yaml``: value, unit, kind and source."""
    return read("measured", "defaults.yaml")[name]  # type: ignore[no-any-return]
