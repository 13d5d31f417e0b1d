"""Judge and improve configurations people already have.

>>> from planner import advise
>>> report = advise("ds_config.json", gpus="8xA100-40G")  # doctest: +SKIP
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.advise.core import advise
    from planner.advise.report import Report

__all__ = ["Report", "advise"]


class _Callable(ModuleType):
    """``from planner import advise`` may give this package or its function: both can be called.

    What it exports is imported on first use, so that the command line starts fast.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Report:
        from planner.advise.core import advise

        return advise(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "advise":
            from planner.advise.core import advise

            return advise
        if name == "Report":
            from planner.advise.report import Report

            return Report
        raise AttributeError(f"module 'planner.advise' has no attribute {name!r}")


sys.modules[__name__].__class__ = _Callable
