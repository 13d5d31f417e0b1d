"""Lists of key names, and the nearest known name of a misspelt one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files


@cache
def names(which: str) -> frozenset[str]:
    """Names in ``planner/lint/keys/<which>.txt``; lines that begin with # give the source."""
    text = (files("planner.lint") / "keys" / f"{which}.txt").read_text(encoding="utf-8")
    return frozenset(
        word for line in text.splitlines() if not line.startswith("#") for word in line.split()
    )


def nearest(name: str, known: Iterable[str], cutoff: float = 0.8) -> str | None:
    """The known name a misspelt one most likely stands for; None if none is close.

    >>> nearest("persitance_threshold", ["persistence_threshold", "prefetch_bucket_size"])
    'persistence_threshold'
    """
    close = get_close_matches(name, sorted(known), n=1, cutoff=cutoff)
    return close[0] if close else None
