"""Exact sums of floating-point numbers, which do not depend on the order in which they are added."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MANTISSA_BITS = 53
_LOW_BITS = 26
_LOW = (1 << _LOW_BITS) - 1


def exact_sum(values: NDArray[Any]) -> Fraction:
    """Return the sum of finite numbers without rounding: sums of parts add up to the sum of all, in any order."""
    if len(values) == 0:
        return Fraction(0)
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    whole = np.ldexp(mantissa, _MANTISSA_BITS).astype(np.int64)
    lowest = int(exponent.min())
    total = Fraction(0)
    # numbers of one exponent are multiples of the same unit; halves of their digits are summed, which 64 bits can hold
    for step in np.flatnonzero(np.bincount(exponent - lowest)).tolist():
        own = whole[exponent == lowest + step]
        units = (int((own >> _LOW_BITS).sum()) << _LOW_BITS) + int((own & _LOW).sum())
        total += units * Fraction(2) ** (lowest + step - _MANTISSA_BITS)
    return total
