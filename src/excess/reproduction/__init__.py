"""The paper's tables and figures, one module each, on one shared loop of trials; and comparisons of ranks."""

from excess.reproduction.critical_difference import plot_critical_difference
from excess.reproduction.ranking import RankComparison, compare_ranks

__all__ = ["RankComparison", "compare_ranks", "plot_critical_difference"]
