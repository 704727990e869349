"""The cells of a partition that together have the largest significance."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from excess._core.checks import BoolArray, as_column, as_counts, as_scalar_alpha, check_same_length
from excess.stats.curve import compute_cell_curve

__all__ = ["assign_cells"]


def assign_cells(n_on: ArrayLike, n_off: ArrayLike, alpha: float) -> BoolArray:
    """Select the cells of a partition that together have the largest significance (Eq. 5 of the paper).

    The optimum over all ``2^k`` assignments is a prefix of the cells in descending order of their On fraction, so that
    sorting and one sweep find it exactly, in O(k log k). The proof is in ``docs/assignment.md``.

    Parameters
    ----------
    n_on, n_off : array-like of shape (n_cells,)
        Counts of On and Off events in each cell: clusters, or leaves of a tree.
    alpha : float
        Exposure ratio On/Off.

    Returns
    -------
    ndarray of bool of shape (n_cells,)
        True where a cell counts as signal. Empty cells never do; where no selection shows an excess, no cell does.

    Examples
    --------
    >>> from excess import assign_cells
    >>> assign_cells([5, 12, 0, 1], [50, 10, 0, 0], alpha=0.2)
    array([False,  True, False,  True])
    """
    on = as_counts("n_on", as_column("n_on", n_on))
    off = as_counts("n_off", as_column("n_off", n_off))
    check_same_length(n_on=on, n_off=off)
    ratio = as_scalar_alpha(alpha)
    n = on + off
    fraction = np.divide(on, n, out=np.zeros_like(n), where=n > 0)
    return (fraction > compute_cell_curve(fraction, on, off, ratio).best_threshold) & (n > 0)
