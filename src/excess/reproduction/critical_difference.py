"""The critical difference diagram: average ranks on a line, with bars over methods that no test tells apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from excess.report.style import GREY, ON, paper_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from excess.reproduction.ranking import RankComparison

__all__ = ["plot_critical_difference"]


def plot_critical_difference(
    comparison: RankComparison, *, ax: Axes | None = None, path: str | Path | None = None
) -> Axes:
    """Draw average ranks and the groups that cannot be told apart, the best rank on the right.

    Parameters
    ----------
    comparison : RankComparison
        From `compare_ranks`.
    ax, path
        As for `plot_theta_squared`; a new figure is as wide as two columns of a paper.

    Returns
    -------
    Axes
        What was drawn on.

    Examples
    --------
    >>> from excess.reproduction.ranking import compare_ranks
    >>> from excess.reproduction.critical_difference import plot_critical_difference
    >>> comparison = compare_ranks([[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.8, 0.9, 0.3]], ["forest", "tree", "guess"])
    >>> axes = plot_critical_difference(comparison)
    >>> sorted(text.get_text() for text in axes.texts)
    ['1', '2', '3', 'average rank', 'forest  1.33', 'guess  3.00', 'tree  1.67']
    """
    order = comparison.order
    n = len(order)
    n_right = (n + 1) // 2
    levels = _bar_levels(comparison)
    n_levels = max(levels, default=-1) + 1
    first_label = 0.35 + 0.22 * n_levels + 0.2
    depth = first_label + 0.3 * (max(n_right, n - n_right) - 1) + 0.25
    with paper_axes(ax, path, size=(7.0, 0.75 + 0.75 * depth)) as ax:
        margin = 0.25 * (n - 1)
        ax.set_xlim(n + margin, 1 - margin)  # reversed: the best on the right
        ax.set_ylim(depth, -0.55)
        ax.axis("off")
        ax.plot([1, n], [0, 0], color="black", lw=1.2)
        for tick in range(1, n + 1):
            ax.plot([tick, tick], [-0.08, 0], color="black", lw=1.2)
            ax.text(tick, -0.14, str(tick), ha="center", va="bottom", fontsize=9, color="black")
        ax.text(1 - 0.04 * n, -0.14, "average rank", ha="left", va="bottom", fontsize=9, color="black")
        for place, name in enumerate(order):
            rank = comparison.rank_of(name)
            is_right = place < n_right
            row = place if is_right else n - 1 - place
            y = first_label + 0.3 * row
            end = 1 - 0.35 * margin if is_right else n + 0.35 * margin
            ax.plot([rank, rank, end], [0, y, y], color=GREY, lw=1.0, solid_joinstyle="round")
            box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
            side = "left" if is_right else "right"
            ax.text(end, y, f"{name}  {rank:.2f}", ha=side, va="center", fontsize=9.5, color="black", bbox=box)
        for group, level in zip(comparison.groups, levels, strict=True):
            ends = [comparison.rank_of(name) for name in group]
            y = 0.3 + 0.22 * level
            ax.plot([min(ends), max(ends)], [y, y], color=ON, lw=4, solid_capstyle="butt")
    return ax


def _bar_levels(comparison: RankComparison) -> list[int]:
    """Return the height of each bar, so that no two that overlap lie on each other."""
    ends: list[float] = []
    levels = []
    for group in comparison.groups:
        ranks = np.array([comparison.rank_of(name) for name in group])
        free = [level for level, end in enumerate(ends) if end < ranks.min() - 0.06 * len(comparison.names)]
        level = free[0] if free else len(ends)
        if level == len(ends):
            ends.append(0.0)
        ends[level] = ranks.max()
        levels.append(level)
    return levels
