"""What On/Off trees and forests share: their events, their trees, and how they score."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from excess._core.checks import BoolArray, FloatArray, as_binary_target, as_choice, as_int, binary_classes
from excess._core.threads import n_threads
from excess.estimators._forest import ensemble
from excess.estimators._forest.bags import WHOLE, Bag
from excess.estimators._forest.compiling import compile_kernels
from excess.estimators._forest.criterion import node_information
from excess.estimators._forest.layout import MAX_NARROW_BINS, N_OFF, N_ON
from excess.estimators._forest.predictor import FlatTrees, flatten, leaf_mask
from excess.estimators.base import BaseOnOffClassifier
from excess.estimators.event_weights import EventWeights, make_bag
from excess.estimators.model_state import StoredArrays, cut_array, require
from excess.stats.assignment import assign_cells

_MAX_EVENTS = 2**31 - 1


class BaseOnOffTrees(BaseOnOffClassifier):
    """Base of On/Off trees and forests."""

    _takes_missing = True
    _largest_weight = math.inf
    _trees: GrownTrees
    _oob_score: FloatArray | None
    max_bins: int | None

    @property
    def feature_importances_(self) -> FloatArray:
        """Information gain through each feature, summed over all splits and normalised to 1."""
        check_is_fitted(self)
        gain = self._trees.gain(self.n_features_in_)
        return gain / gain.sum() if gain.sum() > 0 else gain

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether trees have been grown."""
        return hasattr(self, "_trees")

    def _fit_weighted(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None, sample_weight: Any) -> Self:
        """Learn from events with groups and weights, which may be None."""
        plan = self._plan()
        events, labels = self._validate(X, as_binary_target(y), ensure_min_samples=2)
        off, on = binary_classes(labels)
        is_on = np.asarray(labels == on)
        weights = EventWeights.of(sample_weight, is_on, self._largest_weight)
        bag = make_bag(groups, weights, len(is_on))
        self._fit(plan, weights.take(events), weights.take(is_on), bag)
        score = self.__dict__.get("_oob_score")
        if score is not None:
            self._oob_score = weights.mean_of_copies(score, len(is_on))
        self.classes_ = np.array([off, on])
        return self

    @abstractmethod
    def _fit(self, plan: Any, X: NDArray[Any], on: BoolArray, bag: Bag = WHOLE) -> None:
        """Learn from events that have been checked."""

    def _bin_events(self, X: NDArray[Any], on: BoolArray, n_threads: int, bag: Bag = WHOLE) -> ensemble.BinnedEvents:
        """Return events as records of codes, once the kernels for them are compiled."""
        if len(X) > _MAX_EVENTS:
            raise ValueError(f"X has {len(X)} events; at most {_MAX_EVENTS} fit in memory at a time")
        compile_kernels(X, self.max_bins)
        return ensemble.bin_events(X, on, self.max_bins, n_threads, bag)

    def _score(self, X: ArrayLike) -> FloatArray:
        X, trees = self._check_new_events(X), self._trees
        return ensemble.mean_scores(X, trees.edges, trees.flat, trees.values, n_threads(getattr(self, "n_jobs", None)))


@dataclass(frozen=True)
class GrownTrees:
    """Trees that are ready to score events."""

    flat: FlatTrees
    edges: list[FloatArray]  # inner edges of each feature's bins
    n_on: NDArray[Any]  # training events in each node, bootstrap weights included
    n_off: NDArray[Any]
    values: FloatArray  # what a node says about its events: its On fraction, or for leaves 0 and 1 by their assignment

    @classmethod
    def from_tables(
        cls, tables: list[NDArray[np.int64]], edges: list[FloatArray], output: str, alpha: float, prior: float
    ) -> GrownTrees:
        """Make trees from the nodes that the core has grown.

        ``prior`` stands in for the On fraction of a tree whose bag is empty, which happens with a handful of events.
        """
        flat = flatten(tables)
        n_on = np.concatenate([table[:, N_ON] for table in tables])
        n_off = np.concatenate([table[:, N_OFF] for table in tables])
        n = n_on + n_off
        trees = cls(flat, edges, n_on, n_off, np.divide(n_on, n, out=np.full(len(n), prior), where=n > 0))
        return trees.with_votes(alpha) if output == "assignment" else trees

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all trees as arrays of a model file, by name."""
        return {
            **self.flat._asdict(),
            "n_on": self.n_on,
            "n_off": self.n_off,
            "values": self.values,
            "n_edges": np.array([len(edges) for edges in self.edges], dtype=np.int64),
            "edges": np.concatenate(self.edges),
        }

    @classmethod
    def from_arrays(cls, arrays: StoredArrays, n_features: int) -> GrownTrees:
        """Make trees from the arrays of a model file; ValueError unless they are trees."""
        nodes = arrays.take("nodes", np.uint32, None, 4)
        depths = arrays.take("depths", np.int64, None)
        flat = FlatTrees(nodes, arrays.take("roots", np.int64, len(depths) + 1), depths)
        edges = cut_array(arrays.take("edges", np.float64, None), arrays.take("n_edges", np.int64, n_features))
        n_on, n_off = (arrays.take_counts(name, len(nodes)) for name in ("n_on", "n_off"))
        trees = cls(flat, edges, n_on, n_off, arrays.take("values", np.float64, len(nodes)))
        trees.check_nodes()
        return trees

    def check_nodes(self) -> None:
        """Check what the kernels rely on, because they read memory at these numbers without looking."""
        nodes, roots, depths = self.flat
        require(len(nodes) < 2**32 and len(depths) > 0, "it has no trees, or too many nodes")
        require(bool((roots >= 0).all() and (roots <= len(nodes)).all()), "a root is none of its nodes")
        sizes = np.diff(roots)
        spanned = roots[0] == 0 and roots[-1] == len(nodes) and bool((sizes > 0).all())
        require(spanned, "its roots do not span its nodes")
        require(bool((depths >= 0).all() and (depths < sizes).all()), "a tree is deeper than it is large")
        feature, shift, limit, left = nodes.T
        last = np.repeat((roots[1:] - 1).astype(np.uint32), sizes)
        goes_on = (left > np.arange(len(nodes), dtype=np.uint32)) & (left < last)
        largest_code = np.iinfo(ensemble.edges_code_type(self.edges)).max
        stays = self.leaves & (shift == 0) & (limit == largest_code)
        require(bool((goes_on | stays).all()), "a node has a child that is not of its tree")
        require(bool((feature < len(self.edges)).all()), "a node cuts on a feature that does not exist")

    @property
    def leaves(self) -> BoolArray:
        """True for the nodes that are leaves."""
        return leaf_mask(self.flat)

    def bagged(self, keys: NDArray[np.uint64]) -> ensemble.BaggedTrees:
        """Return the trees with their keys, to score events out of their bags."""
        return ensemble.BaggedTrees(self.flat, self.values, keys)

    def with_votes(self, alpha: float) -> GrownTrees:
        """Return the same trees with 0 and 1 by the assignment of their leaves in place of On fractions."""
        votes, leaves = np.zeros(len(self.n_on)), self.leaves
        for first, last in pairwise(self.flat.roots):
            own = first + np.flatnonzero(leaves[first:last])
            votes[own] = assign_cells(self.n_on[own], self.n_off[own], alpha)
        return replace(self, values=votes)

    def gain(self, n_features: int) -> FloatArray:
        """Return the information gained by the splits on each feature."""
        inner = np.flatnonzero(~self.leaves)
        information = node_information(self.n_on, self.n_off)
        left = self.flat.nodes[inner, 3].astype(np.int64)
        gain = information[left] + information[left + 1] - information[inner]
        return np.bincount(self.flat.nodes[inner, 0], weights=gain, minlength=n_features).astype(np.float64)


def check_growth(estimator: Any, criteria: tuple[str, ...]) -> None:
    """Check the parameters that trees and forests share, each by its name."""
    as_choice("criterion", estimator.criterion, criteria)
    as_choice("output", estimator.output, ("fraction", "assignment"))
    if estimator.max_depth is not None:
        as_int("max_depth", estimator.max_depth, minimum=1)
    if estimator.max_bins is not None and as_int("max_bins", estimator.max_bins, minimum=2) > MAX_NARROW_BINS:
        raise ValueError(
            f"max_bins must be at most {MAX_NARROW_BINS}, or None for every distinct value, got {estimator.max_bins}"
        )


def resolve_max_features(max_features: Any, n_features: int) -> int:
    """Return how many features a node looks at."""
    if max_features is None:
        return n_features
    if isinstance(max_features, str):
        as_choice("max_features", max_features, ("sqrt", "log2"))
        return max(1, int(math.sqrt(n_features) if max_features == "sqrt" else math.log2(n_features)))
    if isinstance(max_features, (float, np.floating)):
        if not 0 < max_features <= 1:
            raise ValueError(f"max_features as a fraction must lie in (0, 1], got {max_features:g}")
        return max(1, int(max_features * n_features))
    wanted = as_int("max_features", max_features, minimum=1)
    if wanted > n_features:
        raise ValueError(f"max_features must be at most the number of features, {n_features}, got {wanted}")
    return wanted
