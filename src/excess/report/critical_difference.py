"""The critical difference diagram: average ranks on a line, with bars over methods that no test tells apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excess.events._errors import require

if TYPE_CHECKING:
    from excess.ranking import RankComparison

__all__ = ["plot_critical_difference"]

_BAR = "#d55e00"
_TEXT = "black"
_LINE = "#666666"


def plot_critical_difference(comparison: RankComparison, ax: Any = None) -> Any:
    """Draw average ranks and the groups that cannot be told apart, the best rank on the right.

    Parameters
    ----------
    comparison : RankComparison
        From `compare_ranks`.
    ax : matplotlib axes or None, default=None
        Where to draw; by default in a new figure.

    Returns
    -------
    matplotlib axes
        The axes that were drawn on.

    Examples
    --------
    >>> from excess.ranking import compare_ranks
    >>> from excess.report.critical_difference import plot_critical_difference
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
    if ax is None:
        figure_module = require("matplotlib.figure", "drawing", extra="report")
        figure = figure_module.Figure(figsize=(7.5, 0.75 + 0.75 * depth), layout="constrained")
        ax = figure.subplots()
    margin = 0.25 * (n - 1)
    ax.set_xlim(n + margin, 1 - margin)  # reversed: the best on the right
    ax.set_ylim(depth, -0.55)
    ax.axis("off")
    ax.plot([1, n], [0, 0], color=_TEXT, lw=1.2)
    for tick in range(1, n + 1):
        ax.plot([tick, tick], [-0.08, 0], color=_TEXT, lw=1.2)
        ax.text(tick, -0.14, str(tick), ha="center", va="bottom", fontsize=9, color=_TEXT)
    ax.text(1 - 0.04 * n, -0.14, "average rank", ha="left", va="bottom", fontsize=9, color=_TEXT)
    for place, name in enumerate(order):
        rank = comparison.rank_of(name)
        is_right = place < n_right
        row = place if is_right else n - 1 - place
        y = first_label + 0.3 * row
        end = 1 - 0.35 * margin if is_right else n + 0.35 * margin
        ax.plot([rank, rank, end], [0, y, y], color=_LINE, lw=1.0, solid_joinstyle="round")
        ax.text(
            end,
            y,
            f"{name}  {rank:.2f}",
            ha="left" if is_right else "right",
            va="center",
            fontsize=9.5,
            color=_TEXT,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )
    for group, level in zip(comparison.groups, levels, strict=True):
        ends = [comparison.rank_of(name) for name in group]
        y = 0.3 + 0.22 * level
        ax.plot([min(ends) - 0.02 * n, max(ends) + 0.02 * n], [y, y], color=_BAR, lw=4, solid_capstyle="round")
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
