"""What a fit on Dask workers sends over the network, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

from excess.estimators._forest.levels import WIDTH

__all__ = ["LevelCost", "moved_bytes"]


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
    >>> from excess.distributed.costs import LevelCost
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
        """Size of what workers need to know: 20 bytes per node of the trees, 4 per feature of a wanted node."""
        return 20 * self.n_nodes + 4 * self.n_chosen * self.n_slots

    @property
    def total(self) -> int:
        """All bytes sent: routes to the scheduler and each worker; sums between workers, to the scheduler, and here."""
        return self.routes * (1 + self.n_workers) + self.histograms * (self.n_workers - 1 + 2)


def moved_bytes(n_events: float, n_features: int, n_trees: int, n_workers: int) -> float:
    """Return the bytes of all bags that are moved to where their trees are finished.

    Parameters
    ----------
    n_events, n_features, n_trees, n_workers
        Sizes of the fit.

    Returns
    -------
    float
        A record per event in the bag of a tree, of which one in ``n_workers`` is there already.

    Examples
    --------
    >>> from excess.distributed.costs import moved_bytes
    >>> round(moved_bytes(1e6, 22, 100, 2) / 1e6)
    758
    """
    return 0.632 * n_events * n_trees * 8 * -(-(n_features + 1) // 8) * (1 - 1 / n_workers)
