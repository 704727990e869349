"""Bags: which events a tree sees, and how often, by their groups and weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from excess._core.rng import choose_groups
from excess.estimators._forest.layout import pack_weights

_LARGEST_SUM = 2.0**30
"""Half of what the counts of a histogram hold, because weights are rounded."""


@dataclass(frozen=True)
class Bag:
    """What decides, besides the key of a tree, which events it sees; with neither groups nor weights, nothing."""

    groups: NDArray[np.int32] | None = None  # number of each event's group, by the order of the groups' names
    n_groups: int = 0
    weights: NDArray[np.float64] | None = None  # events that each event stands for; None for one each
    counts: NDArray[np.uint32] | None = None  # the same without a bootstrap, in fixed point as wide elements hold them

    @classmethod
    def in_fixed_point(cls, weights: NDArray[np.float64]) -> tuple[Bag, float]:
        """Return the bag of a tree without a bootstrap, whose counts are larger than the weights by a factor, and this.

        Criteria are homogeneous in the counts, so that the factor does not change the splits. It is a power of two, so
        that weights such as 0.5 are exact; others are rounded to 2^-30 of their sum, or finer.
        """
        factor = 2.0 ** math.floor(math.log2(_LARGEST_SUM / weights.sum()))
        return cls(counts=pack_weights(np.rint(weights * factor).astype(np.int64))), factor

    def __post_init__(self) -> None:
        """Make the arrays read-only, as they are in other processes: Numba compiles kernels for either kind."""
        for name in ("groups", "weights", "counts"):
            array = getattr(self, name)
            if array is not None:
                view = array.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)

    def groups_of_trees(self, keys: NDArray[np.uint64]) -> NDArray[np.uint8] | None:
        """Return, for the tree of each key and all groups, 1 if the tree may see the group, otherwise 0."""
        if self.groups is None:
            return None
        in_bag = np.empty((len(keys), self.n_groups), dtype=np.uint8)
        choose_groups(keys, in_bag)
        return in_bag

    def part(self, rows: slice) -> Bag:
        """Return the bag of some of the events of a forest."""
        groups = None if self.groups is None else self.groups[rows]
        return Bag(groups, self.n_groups, None if self.weights is None else self.weights[rows])


def join_bags(bags: list[Bag]) -> Bag:
    """Return the bag of the events of several bags, one after the other; all or none have groups, and weights."""
    groups = [bag.groups for bag in bags if bag.groups is not None]
    weights = [bag.weights for bag in bags if bag.weights is not None]
    return Bag(
        np.concatenate(groups) if groups else None,
        bags[0].n_groups if groups else 0,
        np.concatenate(weights) if weights else None,
    )


WHOLE = Bag()
"""Events without groups and weights."""
