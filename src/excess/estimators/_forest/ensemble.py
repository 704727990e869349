"""Growth and scores of several trees on threads, each with a memory of its own.

Memory, for n events with d features: the binned events (one byte per value, rounded up to words) once, and about 1.3
times that per thread for the bags, with one byte per event for the weights; then a score and a count per event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from excess.estimators._forest.splitting import BEST

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


class GrowthSettings(NamedTuple):
    """What shapes a tree besides the events."""

    max_depth: int | None
    min_samples_leaf: int
    max_features: int
    alpha: float
    bootstrap: bool
    splitter: int = BEST

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


def tree_keys(seed: int, n_trees: int) -> NDArray[np.uint64]:
    """Return the key of each tree, from which all its random choices follow."""
    return np.array([derive_key(np.uint64(seed), np.uint64(t)) for t in range(n_trees)], dtype=np.uint64)


def _allocate_scratch(events: BinnedEvents, max_features: int) -> tuple[Any, ...]:
    """Return the memory of one thread, used again for every tree that it grows: the last arguments of ``grow_tree``."""
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
    return weights, bag, bag.view(dtype), moved, moved.view(dtype), chosen, histograms, touched, present


def grow_trees(
    events: BinnedEvents,
    keys: NDArray[np.uint64],
    criteria: Iterable[int],
    settings: GrowthSettings,
    n_threads: int,
    tick: Tick | None = None,
) -> list[NDArray[np.int64]]:
    """Grow one tree per key, each by its criterion, and return their nodes."""
    codes, n_codes, mask = events.codes, events.n_codes, code_mask(events.codes)
    bag, in_bag = events.bag, events.bag.groups_of_trees(keys)
    plain = bag.weights is None and bag.counts is None
    table = x_log_x_table(min(TABLE_SIZE, MAX_WEIGHT * len(events.records) + 1) if plain else TABLE_SIZE)
    # a leaf sends all codes to the left, also those of events that are scored with narrow codes
    largest_code = np.iinfo(edges_code_type(events.edges)).max
    trees: list[Any] = [None] * len(keys)
    criteria = list(criteria)

    def grow(tree: int, scratch: tuple[Any, ...]) -> None:
        trees[tree] = grow_tree(
            events.records, codes, events.n_features, n_codes, keys[tree], settings.bootstrap,
            bag.groups, in_bag, tree, bag.weights if settings.bootstrap else bag.counts,
            settings.depth_limit, settings.splitter, settings.min_samples_leaf, criteria[tree], settings.alpha,
            table, mask, *scratch,
        )  # fmt: skip
        if mask != largest_code:
            leaves = trees[tree][:, LEFT] == np.arange(len(trees[tree]))
            trees[tree][leaves, LIMIT] = largest_code
        if tick is not None:
            tick(1)

    run_tasks(range(len(keys)), grow, lambda: _allocate_scratch(events, settings.max_features), n_threads)
    return trees


def score_out_of_bag(
    codes: NDArray[Any],
    first_row: int,
    trees: predictor.FlatTrees,
    values: NDArray[np.float64],
    keys: NDArray[np.uint64],
    n_threads: int,
    bag: Bag = WHOLE,
) -> NDArray[np.float64]:
    """Return each event's mean value over the trees that have not seen it or, with groups, its group; NaN for none.

    ``first_row`` is the number of the first event among all.
    """
    in_bag = bag.groups_of_trees(keys)
    mask = code_mask(codes)
    scores = np.zeros(len(codes))
    n_trees = np.zeros(len(codes), dtype=np.int32)

    def score(start: int, _: None) -> None:
        end = min(start + _ROWS_PER_TASK, len(codes))
        for first in range(start, end, predictor.BLOCK):
            rows = slice(first, min(first + predictor.BLOCK, end))
            own = bag.part(rows)
            predictor.add_out_of_bag_scores(
                codes[rows], first_row + first, own.groups, in_bag,
                *trees, values, mask, keys, scores[rows], n_trees[rows],
            )  # fmt: skip

    run_tasks(range(0, len(codes), _ROWS_PER_TASK), score, lambda: None, n_threads)
    with np.errstate(invalid="ignore"):
        return scores / n_trees


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
