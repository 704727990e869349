"""Fit of a forest on chunks of events: growth of its trees, level by level over parts, and scores of the events.

Large nodes are searched by histograms: every part counts its own events, and the sums are searched here. The events of
small nodes are moved to one place, where the rest of the tree is grown like in the fit in memory.

The trees equal those of the fit in memory, to the bit, because

- the random choices of a node follow from its key, and that from the key of its tree and its path from the root;
- the bootstrap weight of an event follows from the key of the tree, and from the number and weight of the event;
- whether a tree may use a group follows from its key and the index of the group among all groups;
- histograms are integers, so their sum does not depend on the parts; nor does the search of a node on their order.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from excess._utils.checks import BoolArray, FloatArray, as_int, exact_sum
from excess._utils.rng import MAX_WEIGHT, WEIGHT_LIMIT, WHOLE_BAG, derive_key
from excess._utils.threads import n_threads, run_tasks
from excess.estimators._forest import ensemble, levels
from excess.estimators._forest.binning import MAX_NARROW_BINS, ON_BIT, as_codes
from excess.estimators._forest.ensemble import BaggedTrees, BinnedEvents, GrowthSettings, Tick, TreeSettings, join_bags
from excess.estimators._forest.grower import DEPTH, N_COLUMNS_GROWING, N_OFF, N_ON, breadth_first, grow_bag
from excess.estimators._forest.levels import WIDTH
from excess.estimators._forest.predictor import FlatTrees, pack_nodes
from excess.estimators._forest.splitting import TABLE_SIZE, x_log_x_table
from excess.estimators._random_forest import ForestPlan, GrowerInMemory, OnOffForestClassifier
from excess.estimators._tree import GrownTrees
from excess.out_of_core._events import Binning, EventRecords, RowSample, partitions_of, record_bytes, survey_events
from excess.out_of_core._executors import ArraySum, Executor, MapTasks, ignore_tick, open_executor, read_only
from excess.stats import _thresholds
from excess.stats._kernels import count_on_grid, count_resamples
from excess.stats._thresholds import CountUnit, ScoreCells

_MASK = MAX_NARROW_BINS  # the largest code of a byte
MAX_SLOTS = 1 << 14  # maximum number of nodes in one message of histograms: 128 MiB with four features each
MAX_MOVED = 1 << 16  # largest node that is moved if that is costly: its histograms are about as large as its events
_MANY_TIMES = 4
_IN_BAG = 0.632  # rows of a node per event with bootstrap weights; with weights of events, a row counts at least once


@dataclass(frozen=True)
class EventParts:
    """All events, in parts, and the resources for the growth of trees on them."""

    executor: Executor
    parts: Sequence[Any]
    n_events: int
    edges: list[FloatArray]  # inner edges of each feature's bins
    has_weights: bool  # whether events have weights other than 1
    memory: int  # bytes that a worker may use
    n_threads: int  # of this process, to search histograms


@dataclass(frozen=True)
class Budget:
    """Limits that keep a fit within its memory; events are counted with their bootstrap weights."""

    max_slots: int  # nodes whose histograms are filled at a time
    max_moved: int  # events of the largest node whose events are moved into one place
    max_job: int  # events of a job of a shuffle

    @classmethod
    def of(cls, events: EventParts, n_chosen: int) -> Budget:
        """Divide the memory of a worker for trees with ``n_chosen`` features per node."""
        threads, n_bytes = max(events.executor.threads), record_bytes(len(events.edges))
        slots = events.memory // (8 * WIDTH * n_chosen * (threads + 1))
        job = events.memory / 2 / n_bytes / (1.0 if events.has_weights else _IN_BAG)
        moved = job / threads
        if events.executor.max_moved is not None:
            moved = min(moved, events.executor.max_moved)
        elif n_bytes * events.n_events > _MANY_TIMES * events.memory:
            moved = min(moved, MAX_MOVED)
        return cls(max(1, min(slots, MAX_SLOTS)), int(moved), max(1, int(job)))


class _GrowingTree:
    """A tree with nodes numbered in the order of their creation."""

    def __init__(self, key: np.uint64) -> None:
        self.nodes = np.zeros((64, N_COLUMNS_GROWING), dtype=np.int64)
        self.keys = np.zeros(64, dtype=np.uint64)
        self.keys[0] = derive_key(key, 1)
        self.n_nodes = 1

    def reserve(self, n_more: int) -> None:
        """Allocate memory for more nodes."""
        n_missing = self.n_nodes + n_more - len(self.nodes)
        if n_missing > 0:
            n_new = max(n_missing, len(self.nodes))
            self.nodes, self.keys = np.pad(self.nodes, ((0, n_new), (0, 0))), np.pad(self.keys, (0, n_new))


@dataclass(frozen=True)
class _Routes:
    """The paths of events to certain nodes of some growing trees, the target nodes."""

    trees: FlatTrees  # all their nodes so far
    keys: NDArray[np.uint64]  # of each tree
    slots: NDArray[np.int32]  # of each node; -1 for others
    first_slots: NDArray[np.int64]  # of each tree, and the end

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return packed nodes, roots, depths, keys and slots for kernels."""
        packed = pack_nodes(self.trees.nodes, _MASK)
        arrays: tuple[NDArray[Any], ...] = (packed, *self.trees[1:], self.keys, self.slots)
        return tuple(read_only(array) for array in arrays)


@dataclass(frozen=True)
class Histograms(ArraySum):
    """The reduction that counts events, with bootstrap weights, in the histograms of nodes."""

    routes: _Routes
    chosen: NDArray[np.uint32]
    limit: np.uint64  # of the draws of events in a bag

    def empty(self) -> NDArray[np.int64]:
        return np.zeros(self.chosen.size * WIDTH, dtype=np.int64)

    def add(self, total: NDArray[np.int64], events: EventRecords) -> NDArray[np.int64]:
        nodes, roots, depths, keys, slots = self.routes.arrays()
        levels.fill_nodes(
            events.codes, events.first_row, events.bag.groups, events.bag.groups_of_trees(keys), events.bag.weights,
            self.limit, events.n_features, nodes, roots, depths, _MASK, keys, slots, read_only(self.chosen), total,
        )  # fmt: skip
        return total


class _Branch(NamedTuple):
    """A branch of a tree below a node, to be grown."""

    key: int
    depth: int
    size: int  # events of its node, with bootstrap weights
    settings: TreeSettings  # of its tree


class _TreeRows:
    """The records of the branches of a tree, to which several threads append those of parts."""

    def __init__(self, n_expected: int) -> None:
        self._n_expected, self._n_rows = n_expected, 0
        self._rows: NDArray[np.uint64] | None = None
        self._starts: list[NDArray[np.int64]] = []  # of each branch within each part
        self._lock = threading.Lock()

    def append(self, records: NDArray[np.uint64], starts: NDArray[np.int64]) -> None:
        """Append records sorted by branch."""
        with self._lock:
            end = self._n_rows + len(records)
            if self._rows is None:
                self._rows = np.empty((max(self._n_expected, end), records.shape[1]), dtype=np.uint64)
            elif end > len(self._rows):
                self._rows = np.pad(self._rows, ((0, end + end // 8 - len(self._rows)), (0, 0)))
            self._rows[self._n_rows : end] = records
            self._starts.append(self._n_rows + starts)
            self._n_rows = end

    def divide(self) -> list[NDArray[np.uint64]]:
        """Return the records of each branch; they are in memory twice until then, unless there is one branch."""
        rows, starts = self._rows, np.array(self._starts)
        self._rows = None
        assert rows is not None
        if starts.shape[1] == 2:
            return [rows[: self._n_rows]]
        ends = np.diff(starts, axis=1).sum(axis=0).cumsum()
        pieces = [rows[a:b] for branch in pairwise(starts.T.tolist()) for a, b in zip(*branch, strict=True)]
        return np.split(np.concatenate(pieces), ends[:-1])


@dataclass(frozen=True)
class BranchGrowth:
    """Shuffle that moves the events of small nodes to one place and grows the branches below them."""

    routes: list[_Routes]  # of each job, to the nodes of its branches
    branches: list[list[_Branch]]  # of each job, in the order of their slots
    settings: GrowthSettings
    n_codes: NDArray[np.int64]
    max_weight: int  # of an event in a bag
    has_weights: bool

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.branches)

    def select_rows(self, job: int, events: EventRecords) -> list[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Return, for each tree of a job, the records in its nodes, sorted by slot, and the start of each slot."""
        nodes, roots, depths, keys, slots = self.routes[job].arrays()
        piece = []
        in_bag = events.bag.groups_of_trees(keys)
        for tree, (first, last) in enumerate(pairwise(self.routes[job].first_slots)):
            records, counts = levels.take_nodes(
                events.records, events.codes, events.first_row,
                events.bag.groups, in_bag, tree, events.bag.weights, self.settings.limit, events.n_features,
                nodes, roots[tree], depths[tree], _MASK, keys[tree], slots, first, last - first,
            )  # fmt: skip
            piece.append((records, np.concatenate([[0], np.cumsum(counts)])))
        return piece

    def run_job(
        self, job: int, n_parts: int, piece_of: Callable[[int], Any], map_tasks: MapTasks
    ) -> list[NDArray[np.int64]]:
        """Grow the branches of a job from the pieces of all parts; return the nodes of each in breadth-first order."""
        share, trees = 1.0 if self.has_weights else _IN_BAG, []
        for first, last in pairwise(self.routes[job].first_slots):
            n_events = sum(branch.size for branch in self.branches[job][first:last])
            trees.append(_TreeRows(int(1.01 * share * n_events) + 1000))

        def append(number: int) -> None:
            for tree, own in zip(trees, piece_of(number), strict=True):
                tree.append(*own)

        map_tasks(n_parts, append)
        rows = [own for divided in map_tasks(len(trees), lambda number: trees[number].divide()) for own in divided]

        def grow(task: int) -> NDArray[np.int64]:
            own, rows[task] = rows[task], rows[task][:0].copy()  # releases its memory after growth
            return self._grow(self.branches[job][task], own)

        return map_tasks(len(rows), grow)

    def _grow(self, branch: _Branch, rows: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Grow a branch; its rows are overwritten."""
        settings, tree, scratch = self.settings, branch.settings, np.empty_like(rows)
        return grow_bag(
            len(rows), len(self.n_codes), settings.used, read_only(self.n_codes), np.uint64(branch.key), branch.depth,
            settings.depth_limit, tree.splitter, tree.min_samples_leaf, tree.criterion, settings.alpha,
            x_log_x_table(min(TABLE_SIZE, self.max_weight * len(rows) + 1)), _MASK,
            rows, as_codes(rows, np.uint8), scratch, as_codes(scratch, np.uint8),
            np.empty(tree.max_features, dtype=np.int64),
            np.zeros((tree.max_features, WIDTH), dtype=np.int64), None, np.empty((2, WIDTH + 1), dtype=np.int64),
        )  # fmt: skip


class ForestGrower:
    """Growth of trees with equal numbers of features per node on all parts, like ``ensemble.grow_trees`` in memory."""

    def __init__(self, events: EventParts, trees: Sequence[TreeSettings], settings: GrowthSettings) -> None:
        self._events, self._settings, self._tree_settings = events, settings, trees
        self._n_chosen = trees[0].max_features
        self._budget = Budget.of(events, self._n_chosen)
        self._n_codes = np.array([len(own) + 2 for own in events.edges])
        self._max_weight = WEIGHT_LIMIT if events.has_weights else MAX_WEIGHT
        self._table = x_log_x_table(min(TABLE_SIZE, self._max_weight * events.n_events + 1))
        self._keys = np.array([tree.key for tree in trees], dtype=np.uint64)
        self._trees = [_GrowingTree(key) for key in self._keys]
        # indices of trees and of their nodes: to be searched by histograms, and to be moved
        self._large: list[tuple[int, int]] = []
        self._small: list[tuple[int, int]] = []

    def grow(self, tick: Tick) -> list[NDArray[np.int64]]:
        """Return the nodes of each tree; tick for each tree."""
        n_trees = len(self._trees)
        roots = [(t, 0) for t in range(n_trees)]
        self._large, self._small = (roots, []) if self._events.n_events > self._budget.max_moved else ([], roots)
        while self._large:  # one level after the other
            level, self._large = self._large, []
            for batch in _pack(dict.fromkeys(sorted(level), 1), self._budget.max_slots):
                self._split_batch(_by_tree(batch))
        tick(n_trees - len({t for t, _ in self._small}))
        if self._small:
            self._grow_branches(tick)
        finished = []
        while self._trees:  # the memory of each is released when its table is created
            tree = self._trees.pop(0)
            finished.append(breadth_first(tree.nodes, tree.n_nodes, _MASK))
        return finished

    def _split_batch(self, batch: dict[int, NDArray[np.int64]]) -> None:
        """Split nodes of each tree by their histograms, and add their children to the large or the small nodes."""
        settings, numbers = self._settings, sorted(batch)
        routes = self._routes_to(batch)
        chosen = np.empty((routes.first_slots[-1], self._n_chosen), dtype=np.uint32)
        for t, (first, last) in zip(numbers, pairwise(routes.first_slots), strict=True):
            levels.choose_for_nodes(self._trees[t].keys, batch[t], settings.used, chosen[first:last])
        histograms = self._events.executor.reduce(Histograms(routes, chosen, settings.limit), self._events.parts)
        histograms = histograms.reshape(*chosen.shape, WIDTH)

        def split(i: int, _: None) -> None:
            t = numbers[i]
            tree, nodes, own_settings = self._trees[t], batch[t], self._tree_settings[t]
            tree.reserve(2 * len(nodes))
            own = slice(routes.first_slots[i], routes.first_slots[i + 1])
            large, small = np.empty((2, 2 * len(nodes)), dtype=np.int64)
            tree.n_nodes, n_large, n_small = levels.split_nodes(
                tree.nodes, tree.keys, tree.n_nodes, nodes, self._n_codes, chosen[own], histograms[own],
                settings.depth_limit, own_settings.splitter, own_settings.min_samples_leaf, own_settings.criterion,
                settings.alpha, self._table, large, self._budget.max_moved, small,
            )  # fmt: skip
            self._large.extend((t, node) for node in large[:n_large].tolist())
            self._small.extend((t, node) for node in small[:n_small].tolist())

        run_tasks(range(len(numbers)), split, lambda: None, self._events.n_threads)

    def _routes_to(self, targets: dict[int, NDArray[np.int64]]) -> _Routes:
        """Return the routes to the target nodes of some trees."""
        numbers = sorted(targets)
        roots, first = (
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            for sizes in ([self._trees[t].n_nodes for t in numbers], [len(targets[t]) for t in numbers])
        )
        routes = np.empty((roots[-1], 4), dtype=np.uint32)
        slots = np.full(roots[-1], -1, dtype=np.int32)
        depths = np.zeros(len(numbers), dtype=np.int64)
        for i, t in enumerate(numbers):
            tree, nodes = self._trees[t], targets[t]
            levels.routes_of(tree.nodes, tree.n_nodes, _MASK, roots[i], routes)
            slots[roots[i] + nodes] = np.arange(first[i], first[i + 1])
            depths[i] = tree.nodes[nodes, DEPTH].max(initial=0)  # events need not descend below the deepest target
        return _Routes(FlatTrees(routes, roots, depths), self._keys[numbers], slots, first)

    def _grow_branches(self, tick: Tick) -> None:
        """Grow the branches below small nodes, and graft them onto their trees; tick for each finished tree."""
        # threads have added nodes in any order; jobs and tasks follow the order of trees and nodes
        executor, n_events, sizes = self._events.executor, self._events.n_events, {}
        n_rooted = int(n_events * (float(self._settings.limit) / float(WHOLE_BAG)))
        for t, node in sorted(self._small):  # the events of a root are not counted before it is split
            sizes[t, node] = int(self._trees[t].nodes[node, [N_ON, N_OFF]].sum()) if node > 0 else n_rooted
        max_job = self._budget.max_job
        if executor.remote:  # several jobs per thread keep all threads busy until the end
            max_job = min(max_job, sum(sizes.values()) // (4 * sum(executor.threads)) + 1)
        jobs = _pack(sizes, max_job)

        def branch(t: int, n: int) -> _Branch:
            tree = self._trees[t]
            return _Branch(int(tree.keys[n]), int(tree.nodes[n, DEPTH]), sizes[t, n], self._tree_settings[t])

        routes = [self._routes_to(_by_tree(job)) for job in jobs]
        branches = [[branch(*node) for node in job] for job in jobs]
        how = self._settings, self._n_codes, self._max_weight, self._events.has_weights
        shuffle = BranchGrowth(routes, branches, *how)
        n_left = Counter(t for t, _ in self._small)
        for job, tables in zip(jobs, executor.shuffle(shuffle, self._events.parts), strict=True):
            for (t, node), table in zip(job, tables, strict=True):
                tree = self._trees[t]
                tree.reserve(len(table))
                tree.n_nodes = levels.graft(tree.nodes, tree.n_nodes, node, table)
                n_left[t] -= 1
                tick(int(n_left[t] == 0))


def _pack(sizes: dict[tuple[int, int], int], limit: int) -> list[list[tuple[int, int]]]:
    """Divide nodes into groups of limited size, in their order; a larger node is a separate group."""
    groups: list[list[tuple[int, int]]] = []
    room = 0
    for node, size in sizes.items():
        if not groups or size > room:
            groups.append([])
            room = limit
        groups[-1].append(node)
        room -= size
    return groups


def _by_tree(nodes: Sequence[tuple[int, int]]) -> dict[int, NDArray[np.int64]]:
    """Return the nodes of each tree."""
    return {t: np.array([n for _, n in own]) for t, own in groupby(nodes, key=itemgetter(0))}


@dataclass(frozen=True)
class ScoredPart:
    """Events with their out-of-bag scores."""

    on: BoolArray  # whether each event is On
    score: FloatArray  # NaN for events in the bags of all trees
    first_row: int  # index of the first event among all events
    weights: FloatArray | None = None  # event weights; None for 1


@dataclass(frozen=True)
class OutOfBag:
    """Out-of-bag scores of a forest, summed in the order of the trees: reproducible to the bit in every part."""

    forest: BaggedTrees

    def __call__(self, events: EventRecords) -> ScoredPart:
        """Return the events of a part with their scores."""
        # read-only, like arrays in other processes: kernels are compiled for either type
        flat, values, keys = FlatTrees(*map(read_only, self.forest.flat)), self.forest.values, self.forest.keys
        forests = [BaggedTrees(flat, read_only(values), read_only(keys))]
        score = ensemble.score_out_of_bag(events.codes, events.first_row, forests, 1, events.bag)[0]
        return ScoredPart(events.on, score, events.first_row, events.bag.weights)


def _count_units(events: ScoredPart, unit: CountUnit | None) -> NDArray[np.int64] | None:
    """Return the weights of events in units; None without weights."""
    return read_only(None if unit is None or events.weights is None else unit.count(events.weights))


@dataclass(frozen=True)
class _DistinctScores:
    """Reduction to cells with one distinct score each; the cells of all parts are merged at the end."""

    unit: CountUnit | None  # of the weights of events, if any

    def empty(self) -> list[ScoreCells]:
        return []

    def add(self, total: list[ScoreCells], events: ScoredPart) -> list[ScoreCells]:
        units = _count_units(events, self.unit)
        return [*total, _thresholds.count_cells(events.on, events.score, units, on_grid=False)]

    def merge(self, total: list[ScoreCells], other: list[ScoreCells]) -> list[ScoreCells]:
        return [*total, *other]

    def finish(self, total: list[ScoreCells]) -> ScoreCells:
        return _thresholds.merge_cells(total)


@dataclass(frozen=True)
class _Grid:
    """The reduction to the cells of a grid of scores."""

    unit: CountUnit | None  # of the weights of events, if any

    def empty(self) -> ScoreCells:
        return _thresholds.empty_grid()

    def add(self, total: ScoreCells, events: ScoredPart) -> ScoreCells:
        on, score, units = read_only(events.on), read_only(events.score), _count_units(events, self.unit)
        count_on_grid(on, score, units, _thresholds.N_GRID, *total)
        return total

    def merge(self, total: ScoreCells, other: ScoreCells) -> ScoreCells:
        low, high = np.minimum(total.low, other.low), np.maximum(total.high, other.high)
        return ScoreCells(low, high, total.n_on + other.n_on, total.n_off + other.n_off)

    def finish(self, total: ScoreCells) -> ScoreCells:
        return total.without_empty()


@dataclass(frozen=True)
class _Resamples(ArraySum):
    """The reduction to the weights of events at each cut, in bootstrap resamples."""

    cuts: FloatArray
    keys: NDArray[np.uint64]
    firsts: dict[int, int]
    unit: CountUnit | None  # of the weights of events, if any

    def empty(self) -> NDArray[np.int64]:
        return np.zeros((len(self.keys), len(self.cuts), 2), dtype=np.int64)

    def add(self, total: NDArray[np.int64], events: ScoredPart) -> NDArray[np.int64]:
        on, score, cuts, keys = map(read_only, (events.on, events.score, self.cuts, self.keys))
        count_resamples(on, score, _count_units(events, self.unit), self.firsts[events.first_row], cuts, keys, total)
        return total


class ScoredParts:
    """Scores of all events, in parts of `ScoredPart`, in order, with the methods required by threshold rules."""

    def __init__(self, executor: Executor, parts: Sequence[Any]) -> None:
        self._executor, self._parts = executor, list(parts)
        self._counts = executor.collect(executor.map(_count_scored, parts))
        weights = [own.weight for own in self._counts if own.weight is not None]
        self._unit = CountUnit.of(sum(weights, Fraction(0))) if weights else None
        self._collected: tuple[BoolArray, FloatArray] | None = None

    @property
    def n_scored(self) -> tuple[int, int]:
        """On and Off events with a score."""
        return sum(own.n_on for own in self._counts), sum(own.n_off for own in self._counts)

    def cells(self) -> ScoreCells:
        """Return the counts of On and Off events in cells of scores."""
        reduction = (_Grid if sum(self.n_scored) > _thresholds.MAX_EXACT else _DistinctScores)(self._unit)
        cells = reduction.finish(self._executor.reduce(reduction, self._parts))
        return cells if self._unit is None else cells.in_events(self._unit)

    def resampled(self, cuts: FloatArray, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Return the weights of Off and On events at each cut in each resample."""
        firsts, n_before = {}, 0
        for own in self._counts:
            firsts[own.first_row] = n_before
            n_before += own.n_on + own.n_off
        counts = self._executor.reduce(_Resamples(cuts, keys, firsts, self._unit), self._parts)
        return counts if self._unit is None else counts / self._unit.per_event

    def arrays(self) -> tuple[BoolArray, FloatArray]:
        """Return the On mask and the scores of events with a score; not supported with weights."""
        if self._unit is not None:
            _thresholds.reject_weights()
        on, score = self.collected()
        scored = ~np.isnan(score)
        return on[scored], score[scored]

    def collected(self) -> tuple[BoolArray, FloatArray]:
        """Return the On mask and the scores, which may be NaN; the parts are released."""
        if self._collected is None:
            found = self._executor.collect(self._parts)
            self._parts = []
            ends = np.cumsum([len(own.score) for own in found])
            on, score = np.empty(ends[-1], dtype=np.bool_), np.empty(ends[-1])
            for end in ends[::-1]:  # each part is released after copying, so scores are not in memory twice
                own = found.pop()
                rows = slice(end - len(own.score), end)
                on[rows], score[rows] = own.on, own.score
            self._collected = on, score
        return self._collected


class _Scored(NamedTuple):
    """Number of events of a part with a score."""

    first_row: int
    n_on: int
    n_off: int
    weight: Fraction | None  # the sum of their weights, if any


def _count_scored(events: ScoredPart) -> _Scored:
    scored = ~np.isnan(events.score)
    n_on = int(np.count_nonzero(scored & events.on))
    weight = None if events.weights is None else exact_sum(events.weights[scored])
    return _Scored(events.first_row, n_on, int(np.count_nonzero(scored)) - n_on, weight)


MAX_EVENTS = 2_000_000_000  # counts of On and of Off, with bootstrap weights, have 32 bits each in a histogram


def fit_forest(
    estimator: OnOffForestClassifier, chunks: Any, *, executor: Any = None, memory: int = 2**30, oob_scores: bool = True
) -> OnOffForestClassifier:
    """Fit a forest on chunks of events, identical to ``estimator.fit`` on all events at once, bit for bit.

    Parameters
    ----------
    estimator : OnOffForestClassifier
        Forest to fit; it is not changed. ``max_bins=None``, which requires all distinct values, is an error.
    chunks : iterable of (X, y), (X, y, groups) or (X, y, groups, sample_weight), or a dataset
        Events, with groups (or None) and weights as for ``estimator.fit``, or without. Weights must not be 0, or all
        integers: remove or repeat such events. An iterable, such as a list, must yield the same chunks each time; a
        dataset, such as `EventFiles`, has partitions read by workers. The order of events matters, chunks do not.
    executor : None, dask.distributed.Client, str or Executor, default=None
        By default threads of this process (``estimator.n_jobs``); the client or address of a Dask cluster; an executor.
    memory : int, default=2**30
        Bytes that a worker may use for histograms and moved events, in addition to its own events.
    oob_scores : bool, default=True
        Whether to store ``oob_decision_function_``, which takes eight bytes per event here.

    Returns
    -------
    OnOffForestClassifier
        A fitted copy of ``estimator``.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import OnOffForestClassifier
    >>> from excess.out_of_core import fit_forest
    >>> X, y = np.arange(400.0).reshape(-1, 1) % 97, np.arange(400) % 97 > 60
    >>> forest = OnOffForestClassifier(20, alpha=1 / 5, random_state=0)
    >>> fitted = fit_forest(forest, [(X[:150], y[:150]), (X[150:], y[150:])])
    >>> bool((fitted.predict_proba(X) == forest.fit(X, y).predict_proba(X)).all())
    True
    """
    if not isinstance(estimator, OnOffForestClassifier):
        raise TypeError(f"estimator must be an OnOffForestClassifier, got {type(estimator).__name__}")
    if estimator.max_bins is None:
        raise ValueError("max_bins=None requires all distinct values at once; fit in memory, or use at most 255 bins")
    memory = as_int("memory", memory, minimum=2**16)
    forest = clone(estimator)
    plan = forest._plan()
    partitions = partitions_of(chunks)
    threads = n_threads(forest.n_jobs)
    with open_executor(executor, threads) as executor:
        survey, rows = survey_events(executor, partitions, estimator.max_bins, shown=plan.verbose)
        classes, edges, groups, weights = survey.classes(), survey.edges(), survey.group_names(), survey.weight_sums()
        forest.training_sketch_ = survey.sketch()
        n_events, n_on = survey.n_rows, survey.labels[classes[1].item()]
        if not 2 <= n_events <= MAX_EVENTS:
            raise ValueError(f"chunks contain {n_events} events; at least 2 and at most {MAX_EVENTS} can be fitted")
        forest.n_features_in_ = len(edges)
        if survey.names is not None:
            forest.feature_names_in_ = np.array(survey.names, dtype=object)
        has_weights = weights is not None
        on_share = n_on / n_events if weights is None else float(weights[0].total / (weights[0] + weights[1]).total)
        binning = Binning(classes[1], edges, groups, has_weights)
        with binning.open_parts(executor, rows, memory, threads, shown=plan.verbose) as parts:
            events = executor, parts, n_events, edges, has_weights, memory, threads
            grown = plan.grow(_GrowerOnParts(*events, on_share, plan))
            if forest.output == "assignment":
                grown = replace(grown, trees=grown.trees.with_votes(plan.alpha))
            scored = ScoredParts(executor, executor.map(OutOfBag(grown.trees.bagged(grown.keys)), parts))
        _thresholds.check_scored(n_on, n_events - n_on, *scored.n_scored)
        threshold, curve = plan.rule.tune(scored, plan.alpha, plan.seed)
        score = scored.collected()[1] if oob_scores else None
    forest._finish(grown, threshold, curve, score)
    forest.classes_ = classes
    return forest


@dataclass(frozen=True)
class _GrowerOnParts(EventParts):
    """Grower of trees on parts of the events."""

    on_share: float  # of On events among all, by number or by weight
    plan: ForestPlan

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.edges)

    def sample(self, n_events: int) -> GrowerInMemory:
        """Return a grower in this process on at most this many events."""
        found = self.executor.collect(self.executor.map(RowSample(self.n_events, n_events), self.parts))
        hashes = np.concatenate([own.hashes for own in found])
        kept = np.sort(np.argsort(hashes)[:n_events])  # of slightly more rows than required, in their order
        records = np.concatenate([own.records for own in found])[kept]
        events = BinnedEvents(records, self.edges, join_bags([own.bag for own in found]).part(kept))
        on = (events.codes[:, self.n_features] >> ON_BIT).astype(np.bool_)
        return GrowerInMemory(events, on, self.plan, self.n_threads)

    def grow(self, trees: Sequence[TreeSettings], settings: GrowthSettings, tick: Tick | None) -> list[Any]:
        """Return the nodes of each tree; trees with equal numbers of features per node grow together."""
        grown: dict[int, NDArray[np.int64]] = {}
        for n_chosen in sorted({tree.max_features for tree in trees}):
            own = {number: tree for number, tree in enumerate(trees) if tree.max_features == n_chosen}
            grower = ForestGrower(self, list(own.values()), settings)
            grown |= zip(own, grower.grow(tick or ignore_tick), strict=True)
        return [grown[number] for number in range(len(trees))]

    def assemble(self, tables: list[NDArray[np.int64]]) -> GrownTrees:
        """Return trees that score events."""
        return GrownTrees.from_tables(tables, self.edges, "fraction", self.plan.alpha, prior=self.on_share)
