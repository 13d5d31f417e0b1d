"""The type of every formula's inputs and outputs: a number, or an array of them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Numeric: TypeAlias = float | int | Array

GIB = float(1 << 30)


def ceil_div(a: Numeric, b: Numeric) -> Numeric:
    """Smallest integer not below a / b, for scalars and arrays.

    >>> int(ceil_div(7, 2))
    4
    """
    return np.asarray(-np.floor_divide(-np.asarray(a), b))
