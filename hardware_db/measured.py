"""Measured curves: attention kernels by sequence length, all-reduce by message size."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from hardware_db.devices import Curve
from hardware_db.files import Raw, read
from hardware_db.units import to_si


@cache
def attention_curve(
    table: str, generation: str, direction: str, head_dim: int, causal: bool
) -> Curve | None:
    """A curve of one table, derived from another direction where this one was not measured.

    The nearest head dimension, in ratio, stands for one that was not measured.
    """
    rows = [
        row
        for row in read("measured", "attention", f"{table}.yaml")["curves"]
        if row["generation"] == generation and row["causal"] == causal
    ]
    measured = _nearest(rows, direction, head_dim)
    if measured is not None:
        return measured
    factors: Mapping[str, Raw] = read("measured", "attention", "directions.yaml")[direction]
    for other, factor_of in factors.items():
        curve = _nearest(rows, other, head_dim)
        if curve is not None and generation in factor_of:
            factor = factor_of[generation]
            why = f"{factor['value']} x {other} ({factor['source']})"
            return curve.scaled(factor["value"], factor["kind"], f"{why}; {curve.source}")
    return None


@cache
def all_reduce_curve(table: str) -> Curve:
    """Bus bandwidth of an all-reduce on the 8 GPUs of one node."""
    return _curve(read("measured", "all_reduce", f"{table}.yaml"))


def _nearest(rows: list[Raw], direction: str, head_dim: int) -> Curve | None:
    fits = [row for row in rows if row["direction"] == direction]
    if not fits:
        return None
    return _curve(min(fits, key=lambda row: _ratio(row["head_dim"], head_dim)))


def _curve(row: Raw) -> Curve:
    points = sorted(row["points"].items())
    return Curve(
        tuple(float(x) for x, _ in points),
        tuple(to_si(y, row["unit"]) for _, y in points),
        row["kind"],
        row["source"],
    )


def _ratio(a: float, b: float) -> float:
    return max(a / b, b / a)
