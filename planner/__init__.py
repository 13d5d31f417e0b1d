"""planner: how to train a large model on the GPUs people have.

>>> from planner import solve, estimate, advise
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.advisor.core import advise
    from planner.api import estimate, solve

__all__ = ["advise", "estimate", "solve"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the interface on first use: the command line must start fast."""
    if name in ("solve", "estimate"):
        from planner import api

        return getattr(api, name)
    if name == "advise":
        from planner.advisor.core import advise

        return advise
    raise AttributeError(f"module 'planner' has no attribute {name!r}")
