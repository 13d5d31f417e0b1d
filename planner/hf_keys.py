"""Typed access to the keys of a config.json; every failure names the file and the key."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_COUNT = 1_000_000_000
MAX_NUMBER = 1e12


@dataclass
class Keys:
    """The keys of one configuration. ``notes`` collects what was left out or assumed."""

    file: str
    data: Mapping[str, Any]
    prefix: str = ""
    notes: list[str] = field(default_factory=list)

    def count(self, *names: str, default: int | None = None) -> int:
        """A whole number of at least 1 under the first of ``names`` that is present.

        Absent and null mean ``default``; without one the key is required.
        """
        name, value = self._first(names)
        if value is None:
            if default is None:
                raise ValueError(f"{self.file}: key {self._spelled(names[0])} is missing")
            return default
        return self._whole(name, value, 1)

    def count_or_zero(self, *names: str, default: int = 0) -> int:
        """Like ``count``, but an explicit null is 0, and 0 may be written out."""
        for name in names:
            if name in self.data:
                value = self.data[name]
                return 0 if value is None else self._whole(name, value, 0)
        return default

    def number(self, name: str, default: float) -> float:
        """A number above 0; absent and null mean ``default``."""
        value = self.data.get(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not 0 < value <= MAX_NUMBER:
            raise self.wrong(name, f"must be a number above 0, at most {MAX_NUMBER:g}")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """A true or false; absent and null mean ``default``."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "must be true or false")
        return value

    def text(self, name: str, default: str) -> str:
        """A string; absent and null mean ``default``."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "must be a string")
        return value

    def items(self, name: str, kind: type) -> list[Any] | None:
        """A list of ``kind``, or None if absent or null."""
        value = self.data.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(item) is kind for item in value):
            raise self.wrong(name, f"must be a list of {kind.__name__}")
        return value

    def nested(self, name: str) -> Keys:
        """The keys of an object; absent and null mean an empty one."""
        value = self.data.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.wrong(name, "must be an object")
        return Keys(self.file, value, f"{self.prefix}{name}.", self.notes)

    def wrong(self, name: str, problem: str) -> ValueError:
        """The error for a key with a value that cannot be used."""
        got = reprlib.repr(self.data.get(name))
        return ValueError(f"{self.file}: key {self._spelled(name)} {problem}, got {got}")

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if self.data.get(name) is not None:
                return name, self.data[name]
        return names[0], None

    def _whole(self, name: str, value: Any, least: int) -> int:
        if type(value) is not int or not least <= value <= MAX_COUNT:
            raise self.wrong(name, f"must be a whole number from {least} to {MAX_COUNT}")
        return value

    def _spelled(self, name: str) -> str:
        return repr(self.prefix + name)
