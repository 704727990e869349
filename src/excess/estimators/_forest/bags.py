"""Bags: which events a tree sees, and how often, by their groups and weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from excess._core.rng import choose_groups, derive_key


@dataclass(frozen=True)
class Bag:
    """What decides, besides the key of a tree, which events it sees; with neither groups nor weights, nothing."""

    groups: NDArray[np.int32] | None = None  # number of each event's group, by the order of the groups' names
    n_groups: int = 0
    weights: NDArray[np.float64] | None = None  # events that each event stands for; None for one each

    def groups_of_trees(self, keys: NDArray[np.uint64]) -> NDArray[np.uint8] | None:
        """Return, for the tree of each key and all groups, 1 if the tree may see the group, otherwise 0."""
        if self.groups is None:
            return None
        in_bag = np.empty((len(keys), self.n_groups), dtype=np.uint8)
        for key, own in zip(keys, in_bag, strict=True):
            # the key of a tree has three parts: 0 for the weights of its bag, 1 for its root, 2 for its groups
            choose_groups(np.uint64(derive_key(key, 2)), own)
        return in_bag

    def part(self, rows: slice) -> Bag:
        """Return the bag of some of the events."""
        groups = None if self.groups is None else self.groups[rows]
        return Bag(groups, self.n_groups, None if self.weights is None else self.weights[rows])


WHOLE = Bag()
"""Events without groups and weights."""
