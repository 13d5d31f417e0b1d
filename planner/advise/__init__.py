"""Judge and improve configurations people already have.

>>> from planner import advise
>>> report = advise("ds_config.json", gpus="8xA100-40G")  # doctest: +SKIP

The parts are imported on first use, so that the command line can register its command at no cost.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.advise.core import advise
    from planner.advise.report import Report

__all__ = ["Report", "advise"]


def __getattr__(name: str) -> Any:
    """The interface, imported on first use."""
    if name == "advise":
        from planner.advise.core import advise

        return advise
    if name == "Report":
        from planner.advise.report import Report

        return Report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Callable(ModuleType):
    """``from planner import advise`` may give this package or its function: both can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Report:
        from planner.advise.core import advise

        return advise(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
