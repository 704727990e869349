"""Growth and evaluation of several trees on threads, the bags of trees, and compilation before first use.

Memory, for n events with d features: the binned events (one byte per value, rounded up to words) once, and about 1.3
times that per thread for the bags, with one byte per event for the weights; then a score and a count per event.

Numba compiles a kernel for the types of its first call and caches the result on disk, once per machine. Later processes
load it in a fraction of a second. Numba checks only one source file for changes, so a fingerprint of all of them is
stored next to the cache.
"""

from __future__ import annotations

import hashlib
import logging
import math
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._utils import rng
from excess._utils.checks import FloatArray
from excess._utils.compilation import Dispatcher, is_compiling
from excess._utils.rng import MAX_WEIGHT, WHOLE_BAG, choose_groups, derive_key
from excess._utils.threads import run_tasks
from excess.estimators._forest import binning, predictor
from excess.estimators._forest.grower import LEFT, LIMIT, grow_tree
from excess.estimators._forest.splitting import TABLE_SIZE, x_log_x_table
from excess.stats import _kernels

Tick = Callable[[int], None]
_ROWS_PER_TASK = 16_384
_SECONDS_BEFORE_WARNING = 2.0
_LARGEST_SUM = 2.0**30  # half of the range of histogram counts, because weights are rounded
_ready: set[tuple[Any, ...]] = set()  # types of events that kernels were compiled for
_lock = threading.Lock()
_logger = logging.getLogger("excess")


@dataclass(frozen=True)
class Bag:
    """Properties that, besides the key of a tree, determine the events of its bag; empty without groups and weights."""

    groups: NDArray[np.int32] | None = None  # number of each event's group, by the order of the groups' names
    n_groups: int = 0
    weights: FloatArray | None = None  # number of events represented by each event; None for one each
    counts: NDArray[np.uint32] | None = None  # the same without a bootstrap, in fixed point as in wide elements

    @classmethod
    def in_fixed_point(cls, weights: FloatArray) -> tuple[Bag, float]:
        """Return the bag of a tree without a bootstrap, with counts scaled from the weights, and the factor."""
        factor = 2.0 ** math.floor(math.log2(_LARGEST_SUM / weights.sum()))
        return cls(counts=binning.pack_weights(np.rint(weights * factor).astype(np.int64))), factor

    def __post_init__(self) -> None:
        """Make the arrays read-only, as in other processes: Numba compiles kernels for either type."""
        for name in ("groups", "weights", "counts"):
            array = getattr(self, name)
            if array is not None:
                view = array.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)

    def groups_of_trees(self, keys: NDArray[np.uint64]) -> NDArray[np.uint8] | None:
        """Return, for the tree of each key and all groups, 1 if the tree may use the group, otherwise 0."""
        if self.groups is None:
            return None
        in_bag = np.empty((len(keys), self.n_groups), dtype=np.uint8)
        choose_groups(keys, in_bag)
        return in_bag

    def part(self, rows: slice | NDArray[np.int64]) -> Bag:
        """Return the bag of some of the events of a forest."""
        groups = None if self.groups is None else self.groups[rows]
        return Bag(groups, self.n_groups, None if self.weights is None else self.weights[rows])


def join_bags(bags: list[Bag]) -> Bag:
    """Concatenate several bags; all or none have groups, and weights."""
    groups = [bag.groups for bag in bags if bag.groups is not None]
    weights = [bag.weights for bag in bags if bag.weights is not None]
    n_groups, joined = (bags[0].n_groups, np.concatenate(groups)) if groups else (0, None)
    return Bag(joined, n_groups, np.concatenate(weights) if weights else None)


WHOLE = Bag()  # events without groups and weights


@dataclass(frozen=True)
class BinnedEvents:
    """Events as records of codes, with their bin edges."""

    records: NDArray[np.uint64]  # of shape (n_events, n_words): codes, label and weight; see `binning`
    edges: list[FloatArray]  # inner edges of each feature's bins
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
        """Records as codes, which are wide if weights require it."""
        return binning.as_codes(self.records, edges_code_type(self.edges) if self.bag.counts is None else np.uint32)


class TreeSettings(NamedTuple):
    """Settings of one tree besides the events."""

    key: np.uint64  # determines all its random choices
    criterion: int
    splitter: int
    min_samples_leaf: int
    max_features: int


class GrowthSettings(NamedTuple):
    """Settings of all trees besides the events."""

    max_depth: int | None
    alpha: float
    used: NDArray[np.int64]  # features available to nodes, ascending
    bootstrap: bool = True
    limit: np.uint64 = WHOLE_BAG  # of the draws of events in a bag, see `bag_limit`

    @property
    def depth_limit(self) -> int:
        """Maximum depth for kernels; -1 for no limit."""
        return -1 if self.max_depth is None else self.max_depth


def edges_code_type(edges: list[FloatArray]) -> type:
    """Return the type of codes required by these edges."""
    return binning.code_type(max((len(e) for e in edges), default=0) + 1)


def bin_events(
    X: NDArray[Any], on: NDArray[np.bool_], max_bins: int | None, n_threads: int, bag: Bag = WHOLE
) -> BinnedEvents:
    """Compute bin edges and write events as records."""
    edges: list[Any] = [None] * X.shape[1]
    sampled = binning.sampled_rows(len(X))

    def find(feature: int, _: None) -> None:
        edges[feature] = binning.find_edges(X[:, feature], sampled, max_bins)

    run_tasks(range(X.shape[1]), find, lambda: None, n_threads)
    dtype = edges_code_type(edges) if bag.counts is None else np.uint32
    return BinnedEvents(encode_events(X, on, edges, n_threads, dtype), edges, bag)


def encode_events(
    X: NDArray[Any], on: NDArray[np.bool_], edges: list[FloatArray], n_threads: int, dtype: Any = None
) -> NDArray[np.uint64]:
    """Write events as records with given edges; codes have the minimum type unless another one is given."""
    dtype = edges_code_type(edges) if dtype is None else dtype
    records = binning.empty_records(len(X), X.shape[1], dtype)
    codes = binning.as_codes(records, dtype)
    padded, features = binning.pad_edges(edges), np.arange(X.shape[1])

    def write(start: int, _: None) -> None:
        end = min(start + _ROWS_PER_TASK, len(X))
        binning.encode(X, start, end, padded, features, codes[start:end])
        codes[start:end, X.shape[1]] = on[start:end].astype(codes.dtype) << binning.ON_BIT

    run_tasks(range(0, len(X), _ROWS_PER_TASK), write, lambda: None, n_threads)
    return records


def tree_keys(seed: int, n_trees: int, first: int = 0, step: int = 1) -> NDArray[np.uint64]:
    """Return the keys of trees numbered from ``first`` on; all random choices of a tree follow from its key."""
    numbers = range(first, first + step * n_trees, step)
    return np.array([derive_key(np.uint64(seed), np.uint64(number)) for number in numbers], dtype=np.uint64)


class _Scratch(NamedTuple):
    """Memory of one thread, reused for every tree that it grows: the last arguments of ``grow_tree``."""

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
        """Allocate memory for trees whose nodes consider at most this many features."""
        n_rows, dtype = len(events.records), events.codes.dtype
        width = max(256, 64 * -(-int(events.n_codes.max()) // 64))
        # one more record than events, because a record of weight 0 is written before it is dropped
        bag = np.empty((n_rows + 1, events.records.shape[1]), dtype=np.uint64)
        moved = np.empty_like(bag)
        weights = np.empty(n_rows, dtype=np.uint8 if events.bag.counts is None else np.uint32)
        chosen = np.empty(max_features, dtype=np.int64)
        histograms = np.zeros((max_features, width), dtype=np.int64)
        touched = None if dtype == np.uint8 else np.zeros((max_features, width // 64), dtype=np.uint8)
        present = np.empty((2, width + 1), dtype=np.int64)
        return cls(weights, bag, bag.view(dtype), moved, moved.view(dtype), chosen, histograms, touched, present)

    def for_features(self, n: int) -> _Scratch:
        """Return the memory of a tree whose nodes consider ``n`` features."""
        touched = None if self.touched is None else self.touched[:n]
        return self._replace(chosen=self.chosen[:n], histograms=self.histograms[:n], touched=touched)


def grow_trees(
    events: BinnedEvents, trees: Sequence[TreeSettings], settings: GrowthSettings, n_threads: int, tick: Tick | None
) -> list[NDArray[np.int64]]:
    """Grow trees and return their nodes."""
    codes, n_codes, mask = events.codes, events.n_codes, binning.code_mask(events.codes)
    bag, in_bag = events.bag, events.bag.groups_of_trees(np.array([tree.key for tree in trees], dtype=np.uint64))
    plain = bag.weights is None and bag.counts is None
    table = x_log_x_table(min(TABLE_SIZE, MAX_WEIGHT * len(events.records) + 1) if plain else TABLE_SIZE)
    # a leaf sends all codes to the left, including those of events scored with narrow codes
    largest_code = np.iinfo(edges_code_type(events.edges)).max
    grown: list[Any] = [None] * len(trees)

    def grow(number: int, scratch: _Scratch) -> None:
        tree = trees[number]
        grown[number] = grow_tree(
            events.records, codes, events.n_features, settings.used, n_codes, tree.key, settings.bootstrap,
            bag.groups, in_bag, number, bag.weights if settings.bootstrap else bag.counts, settings.limit,
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
    """Trees that score events, with the keys of their bags."""

    flat: predictor.FlatTrees
    values: FloatArray  # of each node
    keys: NDArray[np.uint64]  # of each tree


def score_out_of_bag(
    codes: NDArray[Any], first_row: int, forests: Sequence[BaggedTrees], n_threads: int, bag: Bag = WHOLE
) -> list[FloatArray]:
    """Return the scores of events by each of some forests: means over the trees for which the event is out of bag."""
    mask = binning.code_mask(codes)
    scores = np.zeros((len(forests), len(codes)))
    in_bags = [bag.groups_of_trees(forest.keys) for forest in forests]
    packed = [predictor.pack_nodes(forest.flat.nodes, mask) for forest in forests]

    def score(rows: slice, _: None) -> None:
        groups = bag.part(rows).groups
        for own, forest, nodes, in_bag in zip(scores, forests, packed, in_bags, strict=True):
            n_trees = np.zeros(rows.stop - rows.start, dtype=np.int32)
            predictor.add_out_of_bag_scores(
                codes[rows], first_row + rows.start, groups, in_bag,
                nodes, *forest.flat[1:], forest.values, mask, forest.keys, own[rows], n_trees,
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
    consume: Callable[[slice, FloatArray, FloatArray], None],
    n_threads: int,
    bag: Bag = WHOLE,
) -> None:
    """Call ``consume(rows, scores, contributions)`` for blocks of events, on threads."""
    mask, in_bag = binning.code_mask(codes), bag.groups_of_trees(forest.keys)
    nodes = predictor.pack_nodes(forest.flat.nodes, mask), forest.flat.nodes

    def work(rows: slice, _: None) -> None:
        n = rows.stop - rows.start
        scores, moves, n_trees = np.zeros(n), np.zeros((n, n_features)), np.zeros(n, dtype=np.int32)
        predictor.add_out_of_bag_contributions(
            codes[rows], first_row + rows.start, bag.part(rows).groups, in_bag,
            *nodes, *forest.flat[1:], forest.values, mask, forest.keys, scores, moves, n_trees,
        )  # fmt: skip
        with np.errstate(invalid="ignore"):
            consume(rows, scores / n_trees, moves / n_trees[:, None])

    _for_blocks_of_rows(work, len(codes), n_threads, predictor.LARGE_BLOCK)


def _for_blocks_of_rows(
    work: Callable[[slice, None], None], n_rows: int, n_threads: int, size: int = predictor.BLOCK
) -> None:
    """Call a function with blocks of rows whose codes, together with a tree, fit into the cache."""
    blocks = [slice(first, min(first + size, n_rows)) for first in range(0, n_rows, size)]
    run_tasks(range(len(blocks)), lambda number, memory: work(blocks[number], memory), lambda: None, n_threads)


def mean_scores(
    X: NDArray[Any], edges: list[FloatArray], trees: predictor.FlatTrees, values: FloatArray, n_threads: int
) -> FloatArray:
    """Return each event's mean value over all trees."""
    scores = np.zeros(len(X))
    _for_encoded_rows(predictor.score_rows, X, edges, trees, n_threads, values, scores)
    return scores / len(trees.depths)


def mean_contributions(
    X: NDArray[Any], edges: list[FloatArray], trees: predictor.FlatTrees, values: FloatArray, n_threads: int
) -> FloatArray:
    """Return the contribution of each feature to the mean value over all trees, and the mean at the roots."""
    found = np.zeros((len(X), len(edges)))
    _for_encoded_rows(
        predictor.contribute_rows, X, edges, trees, n_threads, trees.nodes, values, found, size=predictor.LARGE_BLOCK
    )
    start = np.full((len(X), 1), values[trees.roots[:-1]].mean())
    return np.hstack([found / len(trees.depths), start])


def leaf_numbers(
    X: NDArray[Any], edges: list[FloatArray], trees: predictor.FlatTrees, n_threads: int
) -> NDArray[np.int64]:
    """Return the number of the leaf that each event reaches in each tree."""
    leaves = np.empty((len(X), len(trees.depths)), dtype=np.int64)
    _for_encoded_rows(predictor.number_rows, X, edges, trees, n_threads, leaves)
    return leaves


def _for_encoded_rows(
    kernel: Callable[..., None],
    X: NDArray[Any],
    edges: list[FloatArray],
    trees: predictor.FlatTrees,
    n_threads: int,
    *results: NDArray[Any],
    size: int = predictor.BLOCK,
) -> None:
    """Run a kernel that encodes the features used by the trees and traverses them, many rows at a time."""
    padded, dtype = binning.pad_edges(edges), edges_code_type(edges)
    packed = predictor.pack_nodes(trees.nodes, int(np.iinfo(dtype).max))
    features = np.unique(trees.nodes[~predictor.leaf_mask(trees), 0]).astype(np.int64)

    # few and equal tasks: between two of them a thread may have to wait for others that read or write files
    share = -(-len(X) // (2 * n_threads * size)) * size
    rows_per_task = min(max(share, _ROWS_PER_TASK // 4), 4 * _ROWS_PER_TASK)

    def work(start: int, codes: NDArray[Any]) -> None:
        end = min(start + rows_per_task, len(X))
        kernel(X, start, end, padded, features, codes, packed, *trees[1:], binning.code_mask(codes), *results)

    def block() -> NDArray[Any]:
        return np.zeros((size, len(edges)), dtype=dtype)

    run_tasks(range(0, len(X), rows_per_task), work, block, n_threads)


def compile_kernels(X: NDArray[Any], max_bins: int | None) -> None:
    """Run all kernels once on a few rows of the type of X, unless done before in this process."""
    wide = max_bins is None and len(X) > binning.MAX_NARROW_BINS
    kind = (X.dtype, X.flags.c_contiguous, X.flags.f_contiguous, X.flags.writeable, wide)
    if not is_compiling():
        return
    with _lock:
        if kind in _ready:
            return
        for kernel in (grow_tree, _kernels.count_resamples):
            if kernel.stats.cache_path is not None:  # otherwise nothing is cached
                drop_stale_kernels(Path(str(kernel.stats.cache_path)))
        n_rows = binning.MAX_NARROW_BINS + 45 if wide else 45
        few = np.zeros((n_rows, X.shape[1]), dtype=X.dtype, order="F" if X.flags.f_contiguous else "C")
        few += np.arange(n_rows, dtype=X.dtype)[:, None]
        if not (X.flags.c_contiguous or X.flags.f_contiguous):
            few = np.repeat(few, 2, axis=1)[:, ::2]
        few.flags.writeable = X.flags.writeable
        timer = threading.Timer(_SECONDS_BEFORE_WARNING, _warn_if_compiling)
        timer.daemon = True
        timer.start()
        try:
            events = bin_events(few, np.arange(n_rows) % 3 == 0, max_bins, n_threads=1)
            keys = tree_keys(0, 1)
            settings = GrowthSettings(2, 1.0, np.arange(X.shape[1]))
            tree = TreeSettings(keys[0], 0, 0, 1, X.shape[1])
            trees = predictor.flatten(grow_trees(events, [tree], settings, 1, None))
            values = np.zeros(len(trees.nodes))
            score_out_of_bag(events.codes, 0, [BaggedTrees(trees, values, keys)], n_threads=1)
            mean_scores(few, events.edges, trees, values, n_threads=1)
            leaf_numbers(few, events.edges, trees, n_threads=1)
        finally:
            timer.cancel()
        _ready.add(kind)


def drop_stale_kernels(cache: Path) -> None:
    """Remove compiled kernels of other sources from a cache folder."""
    digest = hashlib.sha256()
    for source in [*sorted(Path(__file__).parent.glob("*.py")), Path(rng.__file__), Path(_kernels.__file__)]:
        text = source.read_bytes()
        digest.update(text if b"\n@njit" in text else b"")
    stamp = cache / "excess-kernels.sha256"
    with suppress(OSError):  # a read-only folder contains no stale files
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return
        cache.mkdir(parents=True, exist_ok=True)
        for compiled in [*cache.glob("*.nbi"), *cache.glob("*.nbc")]:
            compiled.unlink(missing_ok=True)
        stamp.write_text(digest.hexdigest())


def _warn_if_compiling() -> None:
    """Log the compilation of kernels, unless they are loaded, which may take a while on a busy machine."""
    modules = [module for name, module in sys.modules.items() if name.startswith("excess.estimators._forest.")]
    kernels = [value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)]
    if any(sum(kernel.stats.cache_misses.values()) for kernel in kernels):
        _logger.warning("Compiling the forest for this machine; this takes some seconds, once.")
