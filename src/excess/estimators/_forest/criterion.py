"""The two criteria of a split, on integer counts.

With ``f(x) = x ln x``, ``I(on, off) = f(on) + f(off) - f(on + off)`` is minus the entropy of a node times its number
of events, and Li & Ma's ``S^2 / 2 = I(on, off) - on ln q - off ln(1 - q)``. Of ``S_left^2 + S_right^2`` only the ``I``
depend on the split, whatever alpha is, so that it ranks splits as information gain does.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from excess._core.compilation import njit

INFORMATION, LI_MA = 0, 1
CRITERIA = {"information": INFORMATION, "li_ma": LI_MA}

TABLE_SIZE = 1 << 16
"""Counts below this look ``x ln x`` up; larger ones are rare enough to compute it."""


@njit(cache=True, nogil=True)
def x_log_x_table(size):
    """Return ``x ln x`` for x = 0, 1, ..., size - 1."""
    # 0 ln 0 and 1 ln 1 are 0
    table = np.zeros(size)
    for x in range(2, size):
        table[x] = x * math.log(x)
    return table


@njit(cache=True, nogil=True)
def x_log_x(x, table):
    """Return ``x ln x`` of an integer."""
    # the same expression as in the table
    return table[x] if x < len(table) else x * math.log(x)


@njit(cache=True, nogil=True)
def information(on, off, table):
    """Return minus the entropy of a node times its number of events."""
    return x_log_x(on, table) + x_log_x(off, table) - x_log_x(on + off, table)


@njit(cache=True, nogil=True)
def li_ma(on, off, alpha, log_alpha, log_1p_alpha, table):
    """Return ``S^2 / 2``, one-sided: 0 for a deficit. The logarithms are those of alpha and of 1 + alpha."""
    # with q = alpha / (1 + alpha): -on ln q - off ln(1 - q) = -on ln alpha + (on + off) ln(1 + alpha), so that the two
    # logarithms are taken once per node and the table serves for the rest
    if on <= alpha * off:
        return 0.0
    return information(on, off, table) - on * log_alpha + (on + off) * log_1p_alpha


def node_information(n_on: NDArray[np.int64], n_off: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the information of many nodes at once."""
    n = n_on + n_off
    return xlogy(n_on, n_on) + xlogy(n_off, n_off) - xlogy(n, n)
