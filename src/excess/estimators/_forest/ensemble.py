"""Growth and scores of several trees on threads, each with a memory of its own.

Memory, for n events with d features: the binned events (one byte per value, rounded up to words) once, and about 1.3
times that per thread for the bags, with one byte per event for the weights; then a score and a count per event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.rng import MAX_WEIGHT, derive_key
from excess._core.threads import run_tasks
from excess.estimators._forest import predictor
from excess.estimators._forest.bags import WHOLE, Bag
from excess.estimators._forest.binning import encode, find_edges, pad_edges, sampled_rows
from excess.estimators._forest.criterion import TABLE_SIZE, x_log_x_table
from excess.estimators._forest.grower import grow_tree
from excess.estimators._forest.layout import LEFT, LIMIT, ON_BIT, as_codes, code_mask, code_type, empty_records

Tick = Callable[[int], None]
_ROWS_PER_TASK = 16_384


@dataclass(frozen=True)
class BinnedEvents:
    """Events as records of codes, with the edges that made them."""

    records: NDArray[np.uint64]  # of shape (n_events, n_words): codes, label and weight; see `layout`
    edges: list[NDArray[np.float64]]  # inner edges of each feature's bins
    bag: Bag = WHOLE

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.edges)

    @property
    def n_codes(self) -> NDArray[np.int64]:
        """Number of codes of each feature: its bins, and one for missing values."""
        return np.array([len(edges) + 2 for edges in self.edges])

    @property
    def codes(self) -> NDArray[Any]:
        """The records as codes, which are wide where weights need the room."""
        return as_codes(self.records, edges_code_type(self.edges) if self.bag.counts is None else np.uint32)


class TreeSettings(NamedTuple):
    """What shapes one tree besides the events."""

    key: np.uint64  # from which all its random choices follow
    criterion: int
    splitter: int
    min_samples_leaf: int
    max_features: int


class GrowthSettings(NamedTuple):
    """What shapes all trees besides the events."""

    max_depth: int | None
    alpha: float
    used: NDArray[np.int64]  # features that nodes may look at, ascending
    bootstrap: bool = True

    @property
    def depth_limit(self) -> int:
        """The largest depth for kernels, where -1 is for no limit."""
        return -1 if self.max_depth is None else self.max_depth


def edges_code_type(edges: list[NDArray[np.float64]]) -> type:
    """Return the type of codes that these edges need."""
    return code_type(max((len(e) for e in edges), default=0) + 1)


def bin_events(
    X: NDArray[Any], on: NDArray[np.bool_], max_bins: int | None, n_threads: int, bag: Bag = WHOLE
) -> BinnedEvents:
    """Find bin edges and write events as records."""
    edges: list[Any] = [None] * X.shape[1]
    sampled = sampled_rows(len(X))

    def find(feature: int, _: None) -> None:
        edges[feature] = find_edges(X[:, feature], sampled, max_bins)

    run_tasks(range(X.shape[1]), find, lambda: None, n_threads)
    dtype = edges_code_type(edges) if bag.counts is None else np.uint32
    return BinnedEvents(encode_events(X, on, edges, n_threads, dtype), edges, bag)


def encode_events(
    X: NDArray[Any], on: NDArray[np.bool_], edges: list[NDArray[np.float64]], n_threads: int, dtype: Any = None
) -> NDArray[np.uint64]:
    """Write events as records, by given edges; codes have the type that these need, unless another one is given."""
    dtype = edges_code_type(edges) if dtype is None else dtype
    records = empty_records(len(X), X.shape[1], dtype)
    codes = as_codes(records, dtype)
    padded, features = pad_edges(edges), np.arange(X.shape[1])

    def write(start: int, _: None) -> None:
        end = min(start + _ROWS_PER_TASK, len(X))
        encode(X, start, end, padded, features, codes[start:end])
        codes[start:end, X.shape[1]] = on[start:end].astype(codes.dtype) << ON_BIT

    run_tasks(range(0, len(X), _ROWS_PER_TASK), write, lambda: None, n_threads)
    return records


def tree_keys(seed: int, n_trees: int, first: int = 0, step: int = 1) -> NDArray[np.uint64]:
    """Return the keys of trees with numbers from ``first`` on; all random choices of a tree follow from its key."""
    numbers = range(first, first + step * n_trees, step)
    return np.array([derive_key(np.uint64(seed), np.uint64(number)) for number in numbers], dtype=np.uint64)


class _Scratch(NamedTuple):
    """The memory of one thread, used again for every tree that it grows: the last arguments of ``grow_tree``."""

    weights: NDArray[Any]
    bag: NDArray[np.uint64]
    bag_codes: NDArray[Any]
    moved: NDArray[np.uint64]
    moved_codes: NDArray[Any]
    chosen: NDArray[np.int64]
    histograms: NDArray[np.int64]
    touched: NDArray[np.uint8] | None
    present: NDArray[np.int64]

    @classmethod
    def allocate(cls, events: BinnedEvents, max_features: int) -> _Scratch:
        """Allocate memory for trees whose nodes look at so many features at most."""
        n_rows, dtype = len(events.records), events.codes.dtype
        width = max(256, 64 * -(-int(events.n_codes.max()) // 64))
        # one more record than events, because a record of weight 0 is written before it is dropped
        bag = np.empty((n_rows + 1, events.records.shape[1]), dtype=np.uint64)
        moved = np.empty_like(bag)
        weights = np.empty(n_rows, dtype=np.uint8 if events.bag.counts is None else np.uint32)
        chosen = np.empty(max_features, dtype=np.int64)
        histograms = np.zeros((max_features, width), dtype=np.int64)
        touched = None if dtype == np.uint8 else np.zeros((max_features, width // 64), dtype=np.uint8)
        present = np.empty(width + 1, dtype=np.int64)
        return cls(weights, bag, bag.view(dtype), moved, moved.view(dtype), chosen, histograms, touched, present)

    def for_features(self, n: int) -> _Scratch:
        """Return the memory of a tree whose nodes look at ``n`` features."""
        touched = None if self.touched is None else self.touched[:n]
        return self._replace(chosen=self.chosen[:n], histograms=self.histograms[:n], touched=touched)


def grow_trees(
    events: BinnedEvents,
    trees: Sequence[TreeSettings],
    settings: GrowthSettings,
    n_threads: int,
    tick: Tick | None = None,
) -> list[NDArray[np.int64]]:
    """Grow trees and return their nodes."""
    codes, n_codes, mask = events.codes, events.n_codes, code_mask(events.codes)
    bag, in_bag = events.bag, events.bag.groups_of_trees(np.array([tree.key for tree in trees], dtype=np.uint64))
    plain = bag.weights is None and bag.counts is None
    table = x_log_x_table(min(TABLE_SIZE, MAX_WEIGHT * len(events.records) + 1) if plain else TABLE_SIZE)
    # a leaf sends all codes to the left, also those of events that are scored with narrow codes
    largest_code = np.iinfo(edges_code_type(events.edges)).max
    grown: list[Any] = [None] * len(trees)

    def grow(number: int, scratch: _Scratch) -> None:
        tree = trees[number]
        grown[number] = grow_tree(
            events.records, codes, events.n_features, settings.used, n_codes, tree.key, settings.bootstrap,
            bag.groups, in_bag, number, bag.weights if settings.bootstrap else bag.counts,
            settings.depth_limit, tree.splitter, tree.min_samples_leaf, tree.criterion, settings.alpha, table, mask,
            *scratch.for_features(tree.max_features),
        )  # fmt: skip
        if mask != largest_code:
            leaves = grown[number][:, LEFT] == np.arange(len(grown[number]))
            grown[number][leaves, LIMIT] = largest_code
        if tick is not None:
            tick(1)

    most = max(tree.max_features for tree in trees)
    run_tasks(range(len(trees)), grow, lambda: _Scratch.allocate(events, most), n_threads)
    return grown


class BaggedTrees(NamedTuple):
    """Trees that score events, with the keys that tell which events are in their bags."""

    flat: predictor.FlatTrees
    values: NDArray[np.float64]  # of each node
    keys: NDArray[np.uint64]  # of each tree


def score_out_of_bag(
    codes: NDArray[Any], first_row: int, forests: Sequence[BaggedTrees], n_threads: int, bag: Bag = WHOLE
) -> list[NDArray[np.float64]]:
    """Return the scores of events by each of some forests: means over the trees that have not seen the event.

    With groups, these are the trees that have not seen its group. A score is NaN where there are none. ``first_row`` is
    the number of the first event among all.
    """
    mask = code_mask(codes)
    scores = np.zeros((len(forests), len(codes)))
    in_bags = [bag.groups_of_trees(forest.keys) for forest in forests]

    def score(rows: slice, _: None) -> None:
        groups = bag.part(rows).groups
        for own, forest, in_bag in zip(scores, forests, in_bags, strict=True):
            n_trees = np.zeros(rows.stop - rows.start, dtype=np.int32)
            predictor.add_out_of_bag_scores(
                codes[rows], first_row + rows.start, groups, in_bag,
                *forest.flat, forest.values, mask, forest.keys, own[rows], n_trees,
            )  # fmt: skip
            with np.errstate(invalid="ignore"):
                own[rows] /= n_trees

    _for_blocks_of_rows(score, len(codes), n_threads)
    return list(scores)


def contributions_out_of_bag(
    codes: NDArray[Any],
    first_row: int,
    n_features: int,
    forest: BaggedTrees,
    consume: Callable[[slice, NDArray[np.float64], NDArray[np.float64]], None],
    n_threads: int,
    bag: Bag = WHOLE,
) -> None:
    """Call ``consume(rows, scores, contributions)`` for blocks of events, on threads.

    Contributions have the shape (events, features): how much the cuts on a feature move an event's score, from the
    value of a root to that of a leaf. They and the scores are means over the trees that have not seen the event.
    """
    mask, in_bag = code_mask(codes), bag.groups_of_trees(forest.keys)

    def work(rows: slice, _: None) -> None:
        n = rows.stop - rows.start
        scores, moves, n_trees = np.zeros(n), np.zeros((n, n_features)), np.zeros(n, dtype=np.int32)
        predictor.add_out_of_bag_contributions(
            codes[rows], first_row + rows.start, bag.part(rows).groups, in_bag,
            *forest.flat, forest.values, mask, forest.keys, scores, moves, n_trees,
        )  # fmt: skip
        with np.errstate(invalid="ignore"):
            consume(rows, scores / n_trees, moves / n_trees[:, None])

    _for_blocks_of_rows(work, len(codes), n_threads)


def _for_blocks_of_rows(work: Callable[[slice, None], None], n_rows: int, n_threads: int) -> None:
    """Call a function with blocks of rows whose codes, beside a tree, fit into the cache."""
    blocks = [slice(first, min(first + predictor.BLOCK, n_rows)) for first in range(0, n_rows, predictor.BLOCK)]
    run_tasks(range(len(blocks)), lambda number, memory: work(blocks[number], memory), lambda: None, n_threads)


def mean_scores(
    X: NDArray[Any],
    edges: list[NDArray[np.float64]],
    trees: predictor.FlatTrees,
    values: NDArray[np.float64],
    n_threads: int,
) -> NDArray[np.float64]:
    """Return each event's mean value over all trees."""
    scores = np.zeros(len(X))
    _for_encoded_rows(predictor.score_rows, X, edges, trees, n_threads, values, scores)
    scores /= len(trees.depths)
    return scores


def leaf_numbers(
    X: NDArray[Any], edges: list[NDArray[np.float64]], trees: predictor.FlatTrees, n_threads: int
) -> NDArray[np.int64]:
    """Return the number of the leaf that each event reaches in each tree."""
    leaves = np.empty((len(X), len(trees.depths)), dtype=np.int64)
    _for_encoded_rows(predictor.number_rows, X, edges, trees, n_threads, leaves)
    return leaves


def _for_encoded_rows(
    kernel: Callable[..., None],
    X: NDArray[Any],
    edges: list[NDArray[np.float64]],
    trees: predictor.FlatTrees,
    n_threads: int,
    *results: NDArray[Any],
) -> None:
    """Let a kernel encode the features that the trees use and send rows through them, many rows at a time."""
    padded = pad_edges(edges)
    features = np.unique(trees.nodes[~predictor.leaf_mask(trees), 0]).astype(np.int64)

    # few and equal tasks: between two of them a thread may have to wait for others that read or write files
    share = -(-len(X) // (2 * n_threads * predictor.BLOCK)) * predictor.BLOCK
    rows_per_task = min(max(share, _ROWS_PER_TASK // 4), 4 * _ROWS_PER_TASK)

    def work(start: int, codes: NDArray[Any]) -> None:
        end = min(start + rows_per_task, len(X))
        kernel(X, start, end, padded, features, codes, *trees, code_mask(codes), *results)

    def block() -> NDArray[Any]:
        return np.zeros((predictor.BLOCK, len(edges)), dtype=edges_code_type(edges))

    run_tasks(range(0, len(X), rows_per_task), work, block, n_threads)
