"""Units: the only place where human units become SI (byte, second, FLOP, byte/s).

``to_si`` converts what the YAML files say; ``parse_size`` and ``parse_rate`` read what a user
types, such as ``80GB`` or ``400Gb/s``. A capital B is a byte, a small b is a bit.
"""

from __future__ import annotations

import math
import re

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
BYTES = {f"{p}B": f for p, f in (_PREFIXES | _BINARY).items()}
BITS = {f"{p}b": f / 8 for p, f in _PREFIXES.items() if p != ""}
FLOPS = {f"{p}FLOP/s": f for p, f in _PREFIXES.items()}
OTHER = {
    "-": 1.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "s/1e9 parameters": 1e-9,
    "USD/h": 1.0,
    "W": 1.0,
    "MHz": 1e6,
}
RATES = {f"{u}/s": f for u, f in (BYTES | BITS).items()}
UNITS = BYTES | BITS | RATES | FLOPS | OTHER

GB = BYTES["GB"]
GIB = BYTES["GiB"]

_PLAINLY_BASE = 1e6  # a larger bare number was meant in bytes: no GPU or link has 1e6 GB
_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(\S*)\s*$")
_SIZES = {u.lower(): f for u, f in BYTES.items()} | {
    p.lower(): f for p, f in (_PREFIXES | _BINARY).items() if p
}


def to_si(value: float, unit: str) -> float:
    """Value in SI units; counts, prices and fractions stay as they are.

    Raises
    ------
    ValueError
        If the unit is not one of ``UNITS``.

    Examples
    --------
    >>> to_si(400, "Gb/s")
    50000000000.0
    >>> to_si(80, "GiB") / 2**30
    80.0
    """
    if unit not in UNITS:
        raise ValueError(f"unknown unit {unit!r}: expected one of {', '.join(sorted(UNITS))}")
    return value * UNITS[unit]


def parse_size(text: str) -> float:
    """Bytes in a text such as ``80GB``, ``2TB``, ``512GiB``. [byte]

    Letter case does not matter, and ``80G`` means ``80GB`` (decimal). A bare number is refused.

    Raises
    ------
    ValueError
        If the text is not a finite positive number with a unit of size.

    Examples
    --------
    >>> parse_size("80GB")
    80000000000.0
    >>> parse_size("2 TiB") / 2**40
    2.0
    """
    number, unit = _split(text, "a size such as 80GB, 512GiB or 2TB")
    if unit == "":
        raise ValueError(_no_unit(text, number, "GiB", "B"))
    factor = _SIZES.get(unit.lower())
    if factor is None:
        raise ValueError(f"{text!r} is not a size: write it like 80GB, 512GiB or 2TB")
    return number * factor


def parse_rate(text: str) -> float:
    """Byte/s in a text such as ``300GB/s`` or ``400Gb/s``. [byte/s]

    ``400Gbps`` and ``400Gbit/s`` are bits. The case of the B matters: ``gb/s`` is refused, as is
    a bare number.

    Raises
    ------
    ValueError
        If the text is not a finite positive number with a unit of rate.

    Examples
    --------
    >>> parse_rate("400Gb/s"), parse_rate("300GB/s")
    (50000000000.0, 300000000000.0)
    """
    expected = "a rate such as 300GB/s (bytes) or 400Gb/s (bits)"
    number, unit = _split(text, expected)
    unit = re.sub(r"(?:bit/s|bits/s|bps)$", "b/s", unit)
    unit = re.sub(r"Bps$", "B/s", unit)
    if unit == "":
        raise ValueError(_no_unit(text, number, "GB/s", "B/s"))
    if unit not in RATES:
        raise ValueError(f"{text!r} is not a rate: write {expected}, with the case of the B")
    return number * RATES[unit]


def _no_unit(text: str, number: float, usual: str, base: str) -> str:
    """The message for a bare number: the likely unit of small ones, the base unit of large."""
    digits = text.strip()
    example = f"{digits}{usual if number < _PLAINLY_BASE else base}"
    return f"{digits!r} has no unit: write a unit, such as {example}"


def _split(text: str, expected: str) -> tuple[float, str]:
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not {expected}")
    number = float(match.group(1))
    if not 0 < number < math.inf:
        raise ValueError(f"{text!r} must be positive and finite: write {expected}")
    return number, match.group(2)
