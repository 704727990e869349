"""The cost model of a fit on Dask workers: bytes that are sent over the network.

Run with ``python -m doctest benchmarks/costs.py`` to check its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from excess.estimators._forest.levels import WIDTH


@dataclass(frozen=True)
class LevelCost:
    """Bytes of one batch of histograms.

    Attributes
    ----------
    n_slots : int
        Nodes whose histograms are filled.
    n_nodes : int
        Nodes of the trees they belong to, as far as these have grown.
    n_chosen : int
        Features per node.
    n_workers : int
        Workers, with one thread each.

    Examples
    --------
    >>> from costs import LevelCost
    >>> LevelCost(n_slots=12_800, n_nodes=25_500, n_chosen=4, n_workers=2).total
    316717200
    """

    n_slots: int
    n_nodes: int
    n_chosen: int
    n_workers: int

    @property
    def histograms(self) -> int:
        """Size of one set of histograms: eight bytes per code, feature and node."""
        return 8 * WIDTH * self.n_chosen * self.n_slots

    @property
    def routes(self) -> int:
        """Size of the routes to nodes: 20 bytes per node of the trees, 4 per feature of a node with histograms."""
        return 20 * self.n_nodes + 4 * self.n_chosen * self.n_slots

    @property
    def total(self) -> int:
        """All bytes sent: routes to the scheduler and each worker; sums among workers, to scheduler and caller."""
        return self.routes * (1 + self.n_workers) + self.histograms * (self.n_workers - 1 + 2)


def moved_bytes(n_events: float, n_features: int, n_trees: int, n_workers: int) -> float:
    """Return the bytes of all bags that are moved to the workers that finish their trees.

    Parameters
    ----------
    n_events, n_features, n_trees, n_workers
        Sizes of the fit.

    Returns
    -------
    float
        A record per event in the bag of a tree, of which one in ``n_workers`` already exists.

    Examples
    --------
    >>> from costs import moved_bytes
    >>> round(moved_bytes(1e6, 22, 100, 2) / 1e6)
    758
    """
    return 0.632 * n_events * n_trees * 8 * -(-(n_features + 1) // 8) * (1 - 1 / n_workers)
