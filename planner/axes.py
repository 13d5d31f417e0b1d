"""The axes of a plan: their names, their values, and what a user may demand of them.

The names here are the only spelling, from the command line to ``plan.json``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costmodels.numeric import Array

INTEGER_AXES = (
    "dp",
    "tp",
    "pp",
    "cp",
    "ep",
    "micro_batch",
    "grad_accum",
    "virtual_stages",
    "zero_stage",
)
SWITCH_AXES = ("sequence_parallel",)
CHOICE_AXES: Mapping[str, tuple[str, ...]] = {
    "precision": ("fp32", "tf32", "fp16", "bf16", "fp8"),
    "attention": ("flash", "efficient", "eager"),
    "recompute": ("none", "selective", "full", "every_2", "every_4"),
    "offload_optimizer": ("none", "cpu", "nvme"),
    "offload_parameters": ("none", "cpu", "nvme"),
}
TIER_AXES = ("offload_optimizer", "offload_parameters")
AXES = INTEGER_AXES + SWITCH_AXES + tuple(CHOICE_AXES)
LIMITS = {"zero_stage": (0, 3)}  # others: 1 and up

# "forbid AXIS" without a value: forbids everything but the axis at rest.
AT_REST: Mapping[str, int | str] = {
    **dict.fromkeys(INTEGER_AXES, 1),
    "zero_stage": 0,
    "sequence_parallel": 0,
    "recompute": "none",
    "offload_optimizer": "none",
    "offload_parameters": "none",
    "precision": "fp32",
    "attention": "eager",
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A user's demand on one axis."""

    axis: str
    allowed: tuple[int | str, ...] | None = None
    low: int | None = None
    high: int | None = None
    forbidden: tuple[int | str, ...] = ()

    @property
    def binds(self) -> bool:
        """Whether it excludes anything."""
        return bool(self.allowed or self.forbidden or self.low is not None or self.high is not None)

    def holds(self, values: Array) -> Array:
        """Mask of the values (integers, or strings of a choice axis) it accepts."""
        ok = np.ones(np.shape(values), dtype=bool)
        if self.allowed is not None:
            ok &= np.isin(values, np.asarray(self.allowed))
        if self.forbidden:
            ok &= ~np.isin(values, np.asarray(self.forbidden))
        if self.low is not None:
            ok &= np.asarray(values) >= self.low
        if self.high is not None:
            ok &= np.asarray(values) <= self.high
        return ok

    def accepts(self, value: int | str) -> bool:
        """``holds`` for one value."""
        return bool(self.holds(np.asarray(value)))

    def __str__(self) -> str:
        parts = []
        if self.allowed is not None:
            parts.append(f"fix {self.axis}={','.join(map(str, self.allowed))}")
        if self.low is not None:
            parts.append(f"min {self.axis}={self.low}")
        if self.high is not None:
            parts.append(f"max {self.axis}={self.high}")
        if self.forbidden:
            parts.append(f"forbid {self.axis}={','.join(map(str, self.forbidden))}")
        return "; ".join(parts)


def _axis(name: object) -> str:
    text = str(name).strip().lower().replace("-", "_")
    if text not in AXES:
        raise ValueError(f"unknown axis {name!r}; expected one of {', '.join(AXES)}")
    return text


def _value(axis: str, value: object) -> int | str:
    """One value of an axis, from YAML or from text."""
    if axis in CHOICE_AXES:
        name = str(value).strip().lower()
        if name in ("false", "off", "no"):
            name = "none"
        if name not in CHOICE_AXES[axis]:
            expected = ", ".join(CHOICE_AXES[axis])
            raise ValueError(f"{axis}={value!r}: expected one of {expected}")
        return name
    if axis in SWITCH_AXES:
        word = str(value).strip().lower()
        if word in ("1", "true", "yes", "on"):
            return 1
        if word in ("0", "false", "no", "off"):
            return 0
        raise ValueError(f"{axis}={value!r}: expected on or off")
    low, high = LIMITS.get(axis, (1, 1 << 24))
    try:
        number = int(str(value).strip())
    except ValueError:
        raise ValueError(f"{axis}={value!r}: expected an integer") from None
    if isinstance(value, bool) or not low <= number <= high:
        what = f"{low} to {high}" if axis in LIMITS else "1 or more"
        raise ValueError(f"{axis}={value!r}: expected an integer, {what}")
    return number


def _pairs(data: Any, what: str) -> Iterable[tuple[str, object]]:
    """``{axis: value}``, ``["axis=value", ...]`` or ``"axis=value"`` as pairs."""
    if isinstance(data, Mapping):
        return list(data.items())
    items = [data] if isinstance(data, str) else data
    if not isinstance(items, Iterable):
        raise ValueError(f"expected {what}, got {data!r}")
    pairs: list[tuple[str, object]] = []
    for item in items:
        name, sign, value = str(item).partition("=")
        pairs.append((name, value if sign else None))
    return pairs


def _values(axis: str, raw: object) -> tuple[int | str, ...]:
    items = raw if isinstance(raw, list | tuple) else str(raw).split(",")
    return tuple(dict.fromkeys(_value(axis, item) for item in items))


def parse_fix(data: Any) -> dict[str, tuple[int | str, ...]]:
    """``tp=4`` or ``micro_batch=1,2,4``, several of them, or a mapping.

    >>> parse_fix(["tp=4", "micro-batch=1,2"])
    {'tp': (4,), 'micro_batch': (1, 2)}
    """
    out: dict[str, tuple[int | str, ...]] = {}
    for name, raw in _pairs(data, "AXIS=VALUE"):
        axis = _axis(name)
        if raw is None or raw == "":
            raise ValueError(f"{axis}: expected {axis}=VALUE")
        values = _values(axis, raw)
        if axis in out and not set(out[axis]) & set(values):
            raise ValueError(f"{axis} is fixed twice, to different values")
        out[axis] = tuple(v for v in values if v in out.get(axis, values))
    return out


def parse_bound(data: Any) -> dict[str, int]:
    """``zero_stage=2``: a bound on an integer axis."""
    out: dict[str, int] = {}
    for name, raw in _pairs(data, "AXIS=NUMBER"):
        axis = _axis(name)
        if axis not in INTEGER_AXES:
            raise ValueError(f"{axis} has no order; bound one of {', '.join(INTEGER_AXES)}")
        if raw is None or raw == "":
            raise ValueError(f"{axis}: expected {axis}=NUMBER")
        value = _value(axis, raw)
        assert isinstance(value, int)
        out[axis] = value
    return out


def parse_forbid(data: Any) -> dict[str, tuple[int | str, ...]]:
    """``offload_optimizer`` (any use of it) or ``zero_stage=3`` (that value).

    >>> parse_forbid("offload_optimizer")
    {'offload_optimizer': ('cpu', 'nvme')}
    """
    out: dict[str, tuple[int | str, ...]] = {}
    for name, raw in _pairs(data, "AXIS or AXIS=VALUE"):
        axis = _axis(name)
        if raw is not None and raw != "":
            values = _values(axis, raw)
        elif axis in CHOICE_AXES:
            values = tuple(v for v in CHOICE_AXES[axis] if v != AT_REST[axis])
        elif axis in SWITCH_AXES:
            values = (1,)
        elif axis == "zero_stage":
            values = (1, 2, 3)
        else:
            raise ValueError(f"forbid {axis}: say which value, or use fix {axis}=1")
        out[axis] = (*out.get(axis, ()), *values)
    return out
