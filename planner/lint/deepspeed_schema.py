"""What a key of a DeepSpeed file may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FIRST = "0.7.0"  # the oldest release looked at; keys without ``since`` are at least this old


@dataclass(frozen=True, slots=True)
class Key:
    """One key: what it may hold and since when.

    ``kind`` is int, number, bool, text, list, map or any. ``low`` and ``high`` are inclusive.
    ``alias`` is a second accepted name. ``replaced_by`` marks a name that is only kept for old
    files.
    """

    kind: str
    default: Any = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    since: str = FIRST
    alias: str = ""
    replaced_by: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One mapping of the file. ``strict`` sections refuse unknown keys, others ignore them."""

    keys: Mapping[str, Key]
    strict: bool = True
    strict_since: str = FIRST


def switch(default: bool | None = False, since: str = FIRST, alias: str = "") -> Key:
    return Key("bool", default, since=since, alias=alias)


def count(default: float | None, low: float = 0, since: str = FIRST, alias: str = "") -> Key:
    return Key("int", None if default is None else int(default), low, since=since, alias=alias)


def share(default: float, since: str = FIRST) -> Key:
    return Key("number", default, 0, 1, since=since)


def text(default: str | None = None, choices: tuple[str, ...] = (), since: str = FIRST) -> Key:
    return Key("text", default, choices=choices, since=since)


DEVICES = ("none", "cpu", "nvme")
DTYPES = ("fp16", "bf16", "fp32")


def version_tuple(text: str) -> tuple[int, ...]:
    """``"0.10.0"`` as ``(0, 10, 0)``, so that releases compare.

    >>> version_tuple("0.9.5") < version_tuple("0.10.0")
    True
    """
    digits = text.strip().lstrip("v").split("+")[0].split(".")[:3]
    if not digits or not all(part.isdigit() for part in digits):
        raise ValueError(f"version {text!r}: expected a release such as 0.19.8")
    return tuple(int(part) for part in digits)
