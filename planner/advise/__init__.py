"""Judge and improve configurations people already have.

>>> from planner import advise
>>> report = advise("ds_config.json", gpus="8xA100-40G")  # doctest: +SKIP
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from planner.advise.core import advise
from planner.advise.report import Report

__all__ = ["Report", "advise"]


class _Callable(ModuleType):
    """``from planner import advise`` may give this package or its function: both can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Report:
        return advise(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
