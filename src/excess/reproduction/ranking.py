"""Comparison of several methods on several data sets: average ranks, and which of them can be told apart.

After Demsar (2006), "Statistical comparisons of classifiers over multiple data sets", JMLR 7, with the pairwise tests
of the paper's critical difference diagram: Wilcoxon's signed ranks, corrected by Holm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import chi2, rankdata, wilcoxon

from excess._core.checks import FloatArray, as_floats, as_probability
from excess.stats.p_values import holm

__all__ = ["RankComparison", "compare_ranks", "wilcoxon_p_value"]

_MAX_EXACT = 60
"""Differences up to which the distribution of signed ranks is exact, and not approximated."""


@dataclass(frozen=True, eq=False)
class RankComparison:
    """Average ranks of methods, and which of them can be told apart.

    Attributes
    ----------
    names : tuple of str
        The methods.
    ranks : ndarray of shape (n_methods,)
        Average rank of each over the data sets; 1 is the best.
    friedman_p_value : float
        Probability of ranks as different as these where all methods are equal.
    p_values : ndarray of shape (n_methods, n_methods)
        Of each pair, by Wilcoxon's signed-rank test, Holm-corrected; 1 on the diagonal.
    groups : tuple of tuple of str
        Largest sets of neighbouring methods that no test tells apart, two or more of them, the best ranks first.
    confidence : float
        Level of the tests; a pair is told apart when its p-value is at most ``1 - confidence``.
    n_sets : int
        Number of data sets.

    See Also
    --------
    compare_ranks : Makes such an object.
    """

    names: tuple[str, ...]
    ranks: FloatArray
    friedman_p_value: float
    p_values: FloatArray
    groups: tuple[tuple[str, ...], ...]
    confidence: float
    n_sets: int

    @property
    def order(self) -> tuple[str, ...]:
        """The methods, the best rank first."""
        return tuple(self.names[i] for i in np.argsort(self.ranks, kind="stable"))

    def rank_of(self, name: str) -> float:
        """Return the average rank of a method."""
        return float(self.ranks[self.names.index(name)])

    def p_value_of(self, first: str, second: str) -> float:
        """Return the p-value of a pair."""
        return float(self.p_values[self.names.index(first), self.names.index(second)])

    def __str__(self) -> str:
        """Say ranks and groups in a few lines."""
        ranks = ", ".join(f"{name} {self.rank_of(name):.2f}" for name in self.order)
        groups = "; ".join(" - ".join(group) for group in self.groups) or "none"
        return (
            f"average ranks over {self.n_sets} data sets: {ranks}\n"
            f"Friedman p = {self.friedman_p_value:.3g}; not told apart at a confidence of {self.confidence:g}: {groups}"
        )


def compare_ranks(scores: ArrayLike, names: Sequence[str], confidence: float = 0.9) -> RankComparison:
    """Rank methods on every data set, and test which of them differ.

    Parameters
    ----------
    scores : array-like of shape (n_sets, n_methods)
        Larger is better. Ties share the average of their ranks.
    names : sequence of str
        Names of the methods.
    confidence : float, default=0.9
        Level at which a pair counts as told apart.

    Returns
    -------
    RankComparison
        Ranks, p-values and groups.

    See Also
    --------
    plot_critical_difference : Draws it; in ``excess.report.critical_difference``.

    Notes
    -----
    The test of a pair drops data sets on which both score the same, and counts out all signs of the others, so that
    p-values are exact with ties among the differences as well. Where a group is not contiguous in rank, which pairwise
    tests do not rule out, it counts as no group: a bar connects methods only if no pair under it is told apart.

    Examples
    --------
    >>> from excess.reproduction.ranking import compare_ranks
    >>> scores = [[0.9, 0.8, 0.1], [0.7, 0.6, 0.2], [0.8, 0.9, 0.3], [0.6, 0.5, 0.4], [0.9, 0.7, 0.1], [0.8, 0.7, 0.5]]
    >>> print(compare_ranks(scores, ["forest", "tree", "guess"], confidence=0.9))
    average ranks over 6 data sets: forest 1.17, tree 1.83, guess 3.00
    Friedman p = 0.0057; not told apart at a confidence of 0.9: forest - tree
    """
    table = as_floats("scores", np.asarray(scores))
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 2:
        raise ValueError(f"scores must be a table of two or more data sets and methods, got shape {table.shape}")
    labels = tuple(map(str, names))
    if len(labels) != table.shape[1] or len(set(labels)) < len(labels):
        raise ValueError(f"names must be {table.shape[1]} different names, got {list(labels)}")
    level = 1 - as_probability("confidence", confidence)
    # scores that differ by rounding alone are equal
    table = _rounded(table)
    ranks = rankdata(-table, axis=1)
    pairs = list(combinations(range(len(labels)), 2))
    corrected = holm([wilcoxon_p_value(table[:, i] - table[:, j]) for i, j in pairs])
    p_values = np.eye(len(labels))
    for (i, j), p in zip(pairs, corrected, strict=True):
        p_values[i, j] = p_values[j, i] = p
    mean_ranks = ranks.mean(axis=0)
    return RankComparison(
        labels,
        mean_ranks,
        _friedman_p_value(ranks),
        p_values,
        _groups(labels, mean_ranks, p_values, level),
        float(confidence),
        len(table),
    )


def wilcoxon_p_value(differences: ArrayLike) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test on differences of paired scores; 1 where all are zero.

    Exact for up to 60 differences, by the normal law for more. Zeros are dropped. Sizes that agree to a 1e-12th of the
    largest one are ties; with ties scipy is exact for up to 13 differences at most, so that these are counted here.

    Examples
    --------
    >>> from excess.reproduction.ranking import wilcoxon_p_value
    >>> wilcoxon_p_value([0.1, 0.2, 0.3, 0.4, 0.5])
    0.0625
    """
    values = _rounded(as_floats("differences", np.asarray(differences)))
    values = values[values != 0]
    n = len(values)
    if n == 0:
        return 1.0
    sizes = np.abs(values)
    if n > _MAX_EXACT:
        return float(wilcoxon(values).pvalue)
    if len(np.unique(sizes)) == n:
        return float(wilcoxon(values, method="exact").pvalue)
    doubled = np.rint(2 * rankdata(sizes)).astype(np.int64)  # ranks of ties are halves
    total, positive = int(doubled.sum()), int(doubled[values > 0].sum())
    # chance[s]: probability that random signs give a positive sum of s
    chance = np.zeros(total + 1)
    chance[0] = 1.0
    for rank in doubled:
        chance = (chance + np.concatenate([np.zeros(rank), chance[:-rank]])) / 2
    return float(min(1.0, 2 * chance[: min(positive, total - positive) + 1].sum()))


def _rounded(values: FloatArray) -> FloatArray:
    """Round to a 1e-12th of the largest value, which is scaled to 1: only ranks and signs matter here."""
    largest = np.abs(values).max(initial=0.0)
    return values if largest == 0 else np.round(values / largest, 12)


def _friedman_p_value(ranks: FloatArray) -> float:
    """Return the p-value of Friedman's test, corrected for ties."""
    n, k = ranks.shape
    spread = np.sum((ranks - (k + 1) / 2) ** 2)
    if spread == 0:  # all methods tie on all data sets
        return 1.0
    statistic = (k - 1) * np.sum((ranks.sum(axis=0) - n * (k + 1) / 2) ** 2) / spread
    return float(chi2.sf(statistic, k - 1))


def _groups(
    names: tuple[str, ...], ranks: FloatArray, p_values: FloatArray, level: float
) -> tuple[tuple[str, ...], ...]:
    """Return the longest runs of neighbours in rank without a pair that is told apart."""
    order = np.argsort(ranks, kind="stable")
    found: list[tuple[int, int]] = []
    for start in range(len(order)):
        end = start
        while end + 1 < len(order) and all(p_values[order[end + 1], order[i]] > level for i in range(start, end + 1)):
            end += 1
        if end > start and not (found and found[-1][1] >= end):
            found.append((start, end))
    return tuple(tuple(names[order[i]] for i in range(start, end + 1)) for start, end in found)
