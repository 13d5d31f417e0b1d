"""A configuration file as rules see it: values, and the place each key stands at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Path = tuple[str | int, ...]
Format = str  # json | yaml | arguments
Value = Any  # what a file may hold: text, numbers, switches, null, mappings, lists


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key stands, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something a reader got over, but a framework may not."""

    kind: str  # duplicate-key | comment | trailing-comma | cycle | unresolved | encoding | repeated
    path: Path
    place: Place | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """One file, or one launch line of a script.

    ``kind`` is deepspeed, accelerate, trainer, llamafactory, axolotl, megatron or plan.
    ``spelling`` gives the flag as typed for each key of an argument list.
    """

    kind: str
    name: str
    data: Mapping[str, Any]
    places: Mapping[Path, Place] = field(default_factory=lambda: MappingProxyType({}))
    flaws: tuple[Flaw, ...] = ()
    format: Format = "json"
    text: str = ""
    spelling: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def get(self, *path: str | int, default: Value = None) -> Value:
        """Value at a path, or ``default`` when any part of it is absent."""
        return lookup(self.data, path, default)

    def has(self, *path: str | int) -> bool:
        """Whether the key is in the file."""
        missing = object()
        return lookup(self.data, path, missing) is not missing

    def where(self, path: Path) -> Place | None:
        """Place of a key, or of the nearest section around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.places:
                return self.places[path[:end]]
        return None

    def section(self, *path: str | int) -> Mapping[str, Any]:
        """The mapping at a path; empty when it is absent or something else."""
        value = self.get(*path)
        return value if isinstance(value, Mapping) else {}


def lookup(data: Value, path: Path, default: Value = None) -> Value:
    """Value at a path of nested mappings and lists.

    >>> lookup({"a": [{"b": 1}]}, ("a", 0, "b"))
    1
    """
    for part in path:
        if isinstance(data, Mapping):
            if part not in data:
                return default
            data = data[part]
        elif isinstance(data, list) and isinstance(part, int) and -len(data) <= part < len(data):
            data = data[part]
        else:
            return default
    return data


def walk(data: Value, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value of a tree with its path, parents first."""
    stack = [(path, data)]
    while stack:
        here, value = stack.pop()
        yield here, value
        if isinstance(value, Mapping):
            stack.extend(((*here, str(k)), v) for k, v in reversed(list(value.items())))
        elif isinstance(value, list):
            stack.extend(((*here, i), v) for i, v in reversed(list(enumerate(value))))


def dotted(path: Path) -> str:
    """A path as people write it.

    >>> dotted(("zero_optimization", "offload_param", "device"))
    'zero_optimization.offload_param.device'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def from_mapping(data: Mapping[str, Any], kind: str = "deepspeed", name: str = "") -> Document:
    """A document made in memory, without places."""
    return Document(kind=kind, name=name or f"<{kind}>", data=data)


def as_number(value: Value) -> float | None:
    """A number from a number or numeric text; None for anything else, booleans included.

    >>> as_number("5e8"), as_number(True), as_number("auto")
    (500000000.0, None, None)
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float | str):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if number == number and abs(number) != float("inf") else None
    return None


def as_int(value: Value) -> int | None:
    """A whole number from a number or numeric text; None for anything else.

    >>> as_int(5e8), as_int("8"), as_int(1.5)
    (500000000, 8, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = as_number(value)
    return int(number) if number is not None and number == int(number) else None


def as_bool(value: Value) -> bool | None:
    """A switch in any of the spellings frameworks take; None for anything else.

    >>> as_bool("True"), as_bool("no"), as_bool("auto")
    (True, False, None)
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("true", "yes", "on", "1", "y", "t"):
            return True
        if word in ("false", "no", "off", "0", "n", "f"):
            return False
    return None
