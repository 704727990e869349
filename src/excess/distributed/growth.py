"""Growth of all trees of a forest, level by level over parts of the events.

Large nodes are searched by histograms: every part counts its own events, and the sums are searched here. The events of
a node that is small enough are moved into one place, where the rest of the tree is grown as the fit in memory does.

The trees are those of the fit in memory, to the bit, because

- the random choices of a node follow from its key, and that from the key of its tree and its path from the root, not
  from the order in which nodes are searched;
- the bootstrap weight of an event follows from the key of the tree and the number of the event among all events, and
  from the weight of the event itself, if it has one;
- whether a tree may see a group follows from its key and the number of the group among all groups;
- histograms are integers, so that their sum does not depend on how events are divided into parts;
- the search of a node depends on the counts of its events only, not on their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.rng import MAX_WEIGHT, WEIGHT_LIMIT, derive_key
from excess._core.threads import run_tasks
from excess.distributed.executors import Executor
from excess.distributed.parts import EventRecords, read_only
from excess.estimators._forest import levels
from excess.estimators._forest.criterion import TABLE_SIZE, x_log_x_table
from excess.estimators._forest.ensemble import GrowthSettings, Tick, TreeSettings
from excess.estimators._forest.grower import breadth_first, grow_bag
from excess.estimators._forest.layout import DEPTH, MAX_NARROW_BINS, N_COLUMNS_GROWING, N_OFF, N_ON, as_codes
from excess.estimators._forest.levels import WIDTH
from excess.estimators._forest.predictor import FlatTrees

_MASK = MAX_NARROW_BINS  # the largest code of a byte
MAX_SLOTS = 1 << 14
"""Nodes in one message of histograms, however much memory there is: 128 MiB with four features per node."""
MAX_MOVED = 1 << 16
"""The largest node that is moved where moving is costly: its histograms are about as large as its events."""
_MANY_TIMES = 4
_IN_BAG = 0.632
"""Share of events in a bag; the rows of a node are about this share of its events with bootstrap weights."""


def _rows_per_event(has_weights: bool) -> float:
    """Return the largest usual number of rows of a node for one of its events with bootstrap weights."""
    # a row counts at least once, so that its node has no more rows than events; with small weights, nearly as many
    return 1.0 if has_weights else _IN_BAG


@dataclass(frozen=True)
class Budget:
    """Limits that keep a fit within its memory; events are counted with their bootstrap weights."""

    max_slots: int  # nodes whose histograms are filled at a time
    max_moved: int  # events of the largest node whose events are moved into one place
    max_job: int  # events of a job of a shuffle

    @classmethod
    def of(
        cls, memory: int, executor: Executor, n_chosen: int, n_bytes: int, n_events: int, *, has_weights: bool = False
    ) -> Budget:
        """Divide a worker's memory (bytes) for events with records of ``n_bytes`` and ``n_chosen`` features per node.

        It has to hold the histograms of each thread and their sum; later, the events of a job, and a second copy of
        those of the nodes that threads are working on. Every job reads all events, so that large nodes are not moved
        where the events are many times the memory.
        """
        threads = executor.threads_per_worker
        slots = memory // (8 * WIDTH * n_chosen * (threads + 1))
        job = memory / 2 / n_bytes / _rows_per_event(has_weights)
        moved = job / threads
        if executor.max_moved is not None:
            moved = min(moved, executor.max_moved)
        elif n_bytes * n_events > _MANY_TIMES * memory:
            moved = min(moved, MAX_MOVED)
        return cls(max(1, min(slots, MAX_SLOTS)), int(moved), max(1, int(job)))


class _GrowingTree:
    """A tree whose nodes are numbered in the order in which they are found."""

    def __init__(self, key: np.uint64) -> None:
        self.nodes = np.zeros((64, N_COLUMNS_GROWING), dtype=np.int64)
        self.keys = np.zeros(64, dtype=np.uint64)
        self.keys[0] = derive_key(key, 1)
        self.n_nodes = 1

    def reserve(self, n_more: int) -> None:
        """Allocate memory for more nodes."""
        needed = self.n_nodes + n_more
        if needed > len(self.nodes):
            capacity = max(needed, 2 * len(self.nodes))
            nodes, keys = self.nodes, self.keys
            self.nodes = np.zeros((capacity, N_COLUMNS_GROWING), dtype=np.int64)
            self.keys = np.zeros(capacity, dtype=np.uint64)
            self.nodes[: len(nodes)], self.keys[: len(keys)] = nodes, keys


@dataclass(frozen=True)
class _Routes:
    """The routes of events to certain nodes of some growing trees, the target nodes.

    A row of ``trees.nodes`` is four uint32: feature, shift, limit, and the left child. A node without children sends
    all events to itself. Target nodes of all trees are numbered consecutively, tree by tree: this is their slot.
    """

    trees: FlatTrees  # all their nodes so far
    keys: NDArray[np.uint64]  # of each tree
    slots: NDArray[np.int32]  # of each node; -1 for nodes that are no targets
    first_slots: NDArray[np.int64]  # of each tree, and the end

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return nodes, roots, depths, keys and slots for kernels."""
        arrays: tuple[NDArray[Any], ...] = (*self.trees, self.keys, self.slots)
        return tuple(read_only(array) for array in arrays)

    @classmethod
    def to(cls, trees: Sequence[_GrowingTree], keys: NDArray[np.uint64], targets: Sequence[NDArray[Any]]) -> _Routes:
        """Return the routes to the target nodes of each tree."""
        roots = np.concatenate([[0], np.cumsum([tree.n_nodes for tree in trees])]).astype(np.int64)
        first = np.concatenate([[0], np.cumsum([len(nodes) for nodes in targets])]).astype(np.int64)
        routes = np.empty((roots[-1], 4), dtype=np.uint32)
        slots = np.full(roots[-1], -1, dtype=np.int32)
        depths = np.zeros(len(trees), dtype=np.int64)
        for i, (tree, nodes) in enumerate(zip(trees, targets, strict=True)):
            levels.routes_of(tree.nodes, tree.n_nodes, _MASK, roots[i], routes)
            slots[roots[i] + nodes] = np.arange(first[i], first[i + 1])
            # events need not descend below the deepest target node
            depths[i] = tree.nodes[nodes, DEPTH].max(initial=0)
        return cls(FlatTrees(routes, roots, depths), keys, slots, first)


@dataclass(frozen=True)
class Histograms:
    """The reduction that counts events in the histograms of nodes.

    A total is an array of int64 of length ``n_slots * n_chosen * WIDTH``. Each element has the On events of a code in
    its upper 32 bits and the Off events in the lower 32 bits, with bootstrap weights. One addition of integers adds
    both, without overflow from one into the other, as long as there are less than 2^31 of each.
    """

    routes: _Routes
    chosen: NDArray[np.uint32]

    def empty(self) -> NDArray[np.int64]:
        """Return histograms without events."""
        return np.zeros(self.chosen.size * WIDTH, dtype=np.int64)

    def add(self, total: NDArray[np.int64], events: EventRecords) -> NDArray[np.int64]:
        """Count the events of a part."""
        nodes, roots, depths, keys, slots = self.routes.arrays()
        levels.fill_nodes(
            events.codes, events.first_row, events.bag.groups, events.bag.groups_of_trees(keys), events.bag.weights,
            events.n_features, nodes, roots, depths, _MASK, keys, slots, read_only(self.chosen), total,
        )  # fmt: skip
        return total

    def merge(self, total: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add two sets of histograms."""
        return total + other


class _Branch(NamedTuple):
    """The rest of a tree below a node, which is to be grown."""

    tree: int  # number of its tree within the job
    slot: int  # number of its node among the target nodes of this tree
    key: int
    depth: int
    settings: TreeSettings  # of its tree
    size: int  # events of its node, with bootstrap weights


@dataclass(frozen=True)
class BranchGrowth:
    """The shuffle that moves the events of small nodes into one place and grows the branches below them."""

    routes: list[_Routes]  # of each job, to the nodes of its branches
    branches: list[list[_Branch]]  # of each job; a branch is a task
    settings: GrowthSettings
    n_codes: NDArray[np.int64]
    max_weight: int  # of an event in a bag
    has_weights: bool

    @property
    def n_jobs(self) -> int:
        """Number of jobs."""
        return len(self.branches)

    def n_tasks(self, job: int) -> int:
        """Return the number of branches of a job."""
        return len(self.branches[job])

    def select_rows(self, job: int, events: EventRecords) -> list[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Return, for each tree of a job, the records in its nodes, sorted by slot, and where each slot begins."""
        nodes, roots, depths, keys, slots = self.routes[job].arrays()
        piece = []
        in_bag = events.bag.groups_of_trees(keys)
        for tree, (first, last) in enumerate(pairwise(self.routes[job].first_slots)):
            records, counts = levels.take_nodes(
                events.records, events.codes, events.first_row,
                events.bag.groups, in_bag, tree, events.bag.weights, events.n_features,
                nodes, roots[tree], depths[tree], _MASK, keys[tree], slots, first, last - first,
            )  # fmt: skip
            piece.append((records, np.concatenate([[0], np.cumsum(counts)])))
        return piece

    def rows_of_task(self, job: int, task: int, piece: Any) -> NDArray[np.uint64]:
        """Return the records of a piece that are in the node of a branch."""
        branch = self.branches[job][task]
        records, starts = piece[branch.tree]
        return records if len(starts) == 2 else records[starts[branch.slot] : starts[branch.slot + 1]]

    def expected_rows(self, job: int, task: int) -> int:
        """Return the approximate number of records in the node of a branch."""
        return int(_rows_per_event(self.has_weights) * self.branches[job][task].size * 1.01) + 1000

    def run_task(self, job: int, task: int, rows: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Grow a branch; return its nodes in breadth-first order."""
        branch, settings = self.branches[job][task], self.settings
        scratch, tree = np.empty_like(rows), branch.settings
        return grow_bag(
            len(rows), len(self.n_codes), settings.used, read_only(self.n_codes), np.uint64(branch.key), branch.depth,
            settings.depth_limit, tree.splitter, tree.min_samples_leaf, tree.criterion, settings.alpha,
            x_log_x_table(min(TABLE_SIZE, self.max_weight * len(rows) + 1)), _MASK,
            rows, as_codes(rows, np.uint8), scratch, as_codes(scratch, np.uint8),
            np.empty(tree.max_features, dtype=np.int64),
            np.zeros((tree.max_features, WIDTH), dtype=np.int64), None, np.empty(WIDTH + 1, dtype=np.int64),
        )  # fmt: skip


@dataclass
class ForestGrower:
    """Grows trees whose nodes look at equally many features on all parts, as ``ensemble.grow_trees`` in memory."""

    executor: Executor
    parts: Sequence[Any]
    n_events: int
    n_codes: NDArray[np.int64]  # of each feature
    trees: Sequence[TreeSettings]
    settings: GrowthSettings
    budget: Budget
    n_threads: int  # of this process, to search histograms
    has_weights: bool = False  # whether events stand for more or less than one

    def __post_init__(self) -> None:
        """Start all trees with their roots."""
        self._max_weight = WEIGHT_LIMIT if self.has_weights else MAX_WEIGHT
        self._table = x_log_x_table(min(TABLE_SIZE, self._max_weight * self.n_events + 1))
        self._keys = np.array([tree.key for tree in self.trees], dtype=np.uint64)
        self._trees = [_GrowingTree(key) for key in self._keys]
        self._small: list[tuple[int, int]] = []  # nodes to be moved: number of the tree, number of the node in it

    def grow(self, tick: Tick) -> list[NDArray[np.int64]]:
        """Return the nodes of each tree; tick for each tree."""
        n_trees = len(self._trees)
        if self.n_events <= self.budget.max_moved:
            self._small = [(t, 0) for t in range(n_trees)]
        else:
            level = {t: np.zeros(1, dtype=np.int64) for t in range(n_trees)}
            while level:
                level = self._split_level(level)
        tick(n_trees - len({t for t, _ in self._small}))
        if self._small:
            self._grow_branches(tick)
        finished = []
        self._trees.reverse()
        while self._trees:  # the memory of each is released when its table is made
            tree = self._trees.pop()
            finished.append(breadth_first(tree.nodes, tree.n_nodes, _MASK))
        return finished

    def _split_level(self, level: dict[int, NDArray[np.int64]]) -> dict[int, NDArray[np.int64]]:
        """Split the nodes of each tree by their histograms; return the children for which this is to be repeated."""
        children: dict[int, NDArray[np.int64]] = {}
        for batch in _batches(level, self.budget.max_slots):
            self._split_batch(batch, children)
        return children

    def _split_batch(self, batch: dict[int, NDArray[np.int64]], children: dict[int, NDArray[np.int64]]) -> None:
        settings, numbers = self.settings, sorted(batch)
        routes = self._routes_to(batch)
        chosen = np.empty((routes.first_slots[-1], self.trees[0].max_features), dtype=np.uint32)
        for t, (first, last) in zip(numbers, pairwise(routes.first_slots), strict=True):
            levels.choose_for_nodes(self._trees[t].keys, batch[t], settings.used, chosen[first:last])
        histograms = self.executor.reduce(Histograms(routes, chosen), self.parts).reshape(*chosen.shape, WIDTH)

        def split(i: int, _: None) -> None:
            t = numbers[i]
            tree, nodes, own_settings = self._trees[t], batch[t], self.trees[t]
            tree.reserve(2 * len(nodes))
            own = slice(routes.first_slots[i], routes.first_slots[i + 1])
            searched, small = np.empty((2, 2 * len(nodes)), dtype=np.int64)
            tree.n_nodes, n_searched, n_small = levels.split_nodes(
                tree.nodes, tree.keys, tree.n_nodes, nodes, self.n_codes, chosen[own], histograms[own],
                settings.depth_limit, own_settings.splitter, own_settings.min_samples_leaf, own_settings.criterion,
                settings.alpha, self._table, searched, self.budget.max_moved, small,
            )  # fmt: skip
            if n_searched:
                # the nodes of a tree may be in several batches, which are searched one after the other
                children[t] = np.concatenate([children.get(t, searched[:0]), searched[:n_searched]])
            self._small.extend((t, int(node)) for node in small[:n_small])

        run_tasks(range(len(numbers)), split, lambda: None, self.n_threads)

    def _routes_to(self, targets: dict[int, NDArray[np.int64]]) -> _Routes:
        numbers = sorted(targets)
        return _Routes.to([self._trees[t] for t in numbers], self._keys[numbers], [targets[t] for t in numbers])

    def _grow_branches(self, tick: Tick) -> None:
        """Grow the branches below small nodes, and graft them onto their trees; tick for each finished tree."""
        # threads have added nodes in any order; jobs and tasks follow the order of trees and nodes
        sizes = {(t, node): self._size_of(t, node) for t, node in sorted(self._small)}
        max_job = self.budget.max_job
        if self.executor.remote:  # several jobs per thread, so that all threads are busy until the end
            max_job = min(max_job, sum(sizes.values()) // (4 * self.executor.n_threads) + 1)
        jobs = _jobs(sizes, max_job)
        routes, branches = [], []
        for job in jobs:
            nodes_of: dict[int, list[int]] = {}
            for t, node in job:
                nodes_of.setdefault(t, []).append(node)
            routes.append(self._routes_to({t: np.array(nodes) for t, nodes in nodes_of.items()}))
            branches.append(
                [
                    _Branch(i, slot, int(tree.keys[n]), int(tree.nodes[n, DEPTH]), self.trees[t], sizes[t, n])
                    for i, (t, nodes) in enumerate(nodes_of.items())
                    for tree in [self._trees[t]]
                    for slot, n in enumerate(nodes)
                ]
            )
        shuffle = BranchGrowth(routes, branches, self.settings, self.n_codes, self._max_weight, self.has_weights)
        n_left = Counter(t for t, _ in self._small)
        for job, tables in zip(jobs, self.executor.shuffle(shuffle, self.parts), strict=True):
            for (t, node), table in zip(job, tables, strict=True):
                tree = self._trees[t]
                tree.reserve(len(table))
                tree.n_nodes = levels.graft(tree.nodes, tree.n_nodes, node, table)
                n_left[t] -= 1
                tick(int(n_left[t] == 0))

    def _size_of(self, t: int, node: int) -> int:
        """Return the events of a node, with bootstrap weights; those of a root are not counted before it is split."""
        return int(self._trees[t].nodes[node, [N_ON, N_OFF]].sum()) if node > 0 else self.n_events


def _batches(level: dict[int, NDArray[np.int64]], max_slots: int) -> list[dict[int, NDArray[np.int64]]]:
    """Divide the nodes of a level into batches of limited size; trees stay together where that is possible."""
    batches: list[dict[int, NDArray[np.int64]]] = [{}]
    room = max_slots
    for tree, nodes in level.items():
        for start in range(0, len(nodes), max_slots):
            part = nodes[start : start + max_slots]
            if len(part) > room:
                batches.append({})
                room = max_slots
            batches[-1][tree] = part
            room -= len(part)
    return batches


def _jobs(sizes: dict[tuple[int, int], int], max_job: int) -> list[list[tuple[int, int]]]:
    """Divide nodes into jobs of limited size, in their order; a larger node is a job of its own."""
    jobs: list[list[tuple[int, int]]] = []
    room = 0
    for node, size in sizes.items():
        if not jobs or size > room:
            jobs.append([])
            room = max_job
        jobs[-1].append(node)
        room -= size
    return jobs
