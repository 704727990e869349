"""Growth of all trees of a forest, level by level over parts of the events.

Large nodes are searched by histograms: every part counts its own events, and the sums are searched here. The events of
a node that is small enough are moved into one place, where the rest of the tree is grown as the fit in memory does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.rng import MAX_WEIGHT, derive_key
from excess._core.threads import run_tasks
from excess.distributed.executors import Executor
from excess.distributed.parts import Binned, frozen
from excess.estimators._forest.criterion import TABLE_SIZE, x_log_x_table
from excess.estimators._forest.ensemble import GrowthSettings, Tick
from excess.estimators._forest.grower import breadth_first, grow_bag
from excess.estimators._forest.layout import DEPTH, MAX_NARROW_BINS, N_COLUMNS_GROWING, N_OFF, N_ON, as_codes
from excess.estimators._forest.levels import (
    WIDTH,
    choose_for_nodes,
    fill_nodes,
    graft,
    routes_of,
    split_nodes,
    take_nodes,
)
from excess.estimators._forest.predictor import FlatTrees

__all__ = ["Budget", "grow_forest"]

_MASK = MAX_NARROW_BINS  # the largest code of a byte
MAX_SLOTS = 1 << 14
"""Nodes in one message of histograms, however much memory there is: 128 MiB with four features per node."""
MAX_MOVED = 1 << 16
"""The largest node that is moved where moving is costly: its histograms are about as large as its events."""
_MANY_TIMES = 4
_IN_BAG = 0.632
"""Share of events in a bag; the rows of a node are about so many of its events with bootstrap weights."""


@dataclass(frozen=True)
class Budget:
    """How much may be counted, and moved, at a time.

    Attributes
    ----------
    max_slots : int
        Nodes whose histograms are filled at a time.
    max_moved : int
        The largest node whose events are moved into one place, in events with bootstrap weights.
    max_job : int
        Events, with bootstrap weights, of a job that is moved.
    """

    max_slots: int
    max_moved: int
    max_job: int

    @classmethod
    def of(cls, memory: int, executor: Executor, n_chosen: int, n_words: int, n_events: int) -> Budget:
        """Divide a worker's memory (bytes).

        It has to hold the histograms of each thread and their sum; later, the events of a job, and those of the nodes
        that threads are working on once more. Every job reads all events, so that where these are many
        times the memory, large nodes are not moved.
        """
        threads = executor.n_sharing
        slots = memory // (8 * WIDTH * n_chosen * (threads + 1))
        job = memory / 2 / (8 * n_words) / _IN_BAG
        moved = job / threads
        if executor.max_moved is not None:
            moved = min(moved, executor.max_moved)
        elif 8 * n_words * n_events > _MANY_TIMES * memory:
            moved = min(moved, MAX_MOVED)
        return cls(max(1, min(slots, MAX_SLOTS)), int(moved), max(1, int(job)))


class _GrowingTree:
    """A tree whose nodes are numbered as they are found."""

    def __init__(self, key: np.uint64) -> None:
        self.nodes = np.zeros((64, N_COLUMNS_GROWING), dtype=np.int64)
        self.keys = np.zeros(64, dtype=np.uint64)
        self.keys[0] = derive_key(key, 1)
        self.n_nodes = 1

    def make_room(self, n_more: int) -> None:
        """See to it that so many nodes can be added."""
        needed = self.n_nodes + n_more
        if needed > len(self.nodes):
            capacity = max(needed, 2 * len(self.nodes))
            nodes, keys = self.nodes, self.keys
            self.nodes = np.zeros((capacity, N_COLUMNS_GROWING), dtype=np.int64)
            self.keys = np.zeros(capacity, dtype=np.uint64)
            self.nodes[: len(nodes)], self.keys[: len(keys)] = nodes, keys


@dataclass(frozen=True)
class _Routes:
    """Some trees as far as they have grown, and which of their nodes are wanted.

    Attributes
    ----------
    trees : FlatTrees
        Their nodes.
    keys : ndarray of uint64
        Their keys.
    slots : ndarray of int32 of shape (n_nodes,)
        Number of a node among the wanted ones; -1 for the others.
    first_slots : ndarray of int64 of shape (n_trees + 1,)
        First slot of each tree.
    """

    trees: FlatTrees
    keys: NDArray[np.uint64]
    slots: NDArray[np.int32]
    first_slots: NDArray[np.int64]

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return nodes, roots, depths, keys and slots as kernels take them."""
        given: tuple[NDArray[Any], ...] = (*self.trees, self.keys, self.slots)
        return tuple(frozen(array) for array in given)

    @classmethod
    def to(cls, grown: Sequence[_GrowingTree], keys: NDArray[np.uint64], wanted: Sequence[NDArray[Any]]) -> _Routes:
        """Make the routes to the wanted nodes of each tree."""
        roots = np.concatenate([[0], np.cumsum([tree.n_nodes for tree in grown])]).astype(np.int64)
        first = np.concatenate([[0], np.cumsum([len(nodes) for nodes in wanted])]).astype(np.int64)
        routes = np.empty((roots[-1], 4), dtype=np.uint32)
        slots = np.full(roots[-1], -1, dtype=np.int32)
        depths = np.zeros(len(grown), dtype=np.int64)
        for i, (tree, nodes) in enumerate(zip(grown, wanted, strict=True)):
            routes_of(tree.nodes, tree.n_nodes, _MASK, roots[i], routes)
            slots[roots[i] + nodes] = np.arange(first[i], first[i + 1])
            depths[i] = tree.nodes[nodes, DEPTH].max(initial=0)  # no wanted node is deeper
        return cls(FlatTrees(routes, roots, depths), keys, slots, first)


@dataclass(frozen=True)
class Histograms:
    """The fold that counts events in the histograms of nodes."""

    routes: _Routes
    chosen: NDArray[np.uint32]

    def start(self) -> NDArray[np.int64]:
        """Return empty histograms."""
        return np.zeros(self.chosen.size * WIDTH, dtype=np.int64)

    def add(self, total: NDArray[np.int64], events: Binned) -> NDArray[np.int64]:
        """Count the events of a part."""
        nodes, roots, depths, keys, slots = self.routes.arrays()
        fill_nodes(
            events.codes,
            events.first_row,
            events.n_features,
            nodes,
            roots,
            depths,
            _MASK,
            keys,
            slots,
            frozen(self.chosen),
            total,
        )
        return total

    def merge(self, total: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add two sets of histograms."""
        return total + other


@dataclass(frozen=True)
class Branches:
    """The move that grows, below nodes whose events are moved into one place, the rest of their trees.

    Attributes
    ----------
    routes : list of _Routes
        Of each job: the trees and their nodes.
    tasks : list of list of tuple
        Of each job and task: the tree within the job, the node's slot within the tree, its key, depth and criterion,
        and its events with bootstrap weights.
    """

    routes: list[_Routes]
    tasks: list[list[tuple[int, int, int, int, int, int]]]
    settings: GrowthSettings
    n_codes: NDArray[np.int64]
    n_events: int

    def only(self, job: int) -> Branches:
        """Return what a job needs to know, with that job as its only one."""
        return replace(self, routes=[self.routes[job]], tasks=[self.tasks[job]])

    def n_tasks(self, job: int) -> int:
        """Return the number of nodes of a job."""
        return len(self.tasks[job])

    def split(self, job: int, events: Binned) -> list[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Return, for each tree of the job, the records in its nodes and where those of each node begin."""
        nodes, roots, depths, keys, slots = self.routes[job].arrays()
        pieces = []
        for tree, key in enumerate(keys):
            first, last = self.routes[job].first_slots[tree : tree + 2]
            taken, counts = take_nodes(
                events.records,
                events.codes,
                events.first_row,
                events.n_features,
                nodes,
                roots[tree],
                depths[tree],
                _MASK,
                key,
                slots,
                first,
                last - first,
            )
            pieces.append((taken, np.concatenate([[0], np.cumsum(counts)])))
        return pieces

    def expected(self, job: int, task: int) -> int:
        """Return about how many records a task's node has."""
        return int(_IN_BAG * self.tasks[job][task][5] * 1.01) + 1000

    def own(self, job: int, task: int, piece: Any) -> NDArray[np.uint64]:
        """Return the records of a task's node in a piece."""
        tree, slot = self.tasks[job][task][:2]
        records, starts = piece[tree]
        return records if len(starts) == 2 else records[starts[slot] : starts[slot + 1]]

    def join(self, job: int, task: int, rows: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Grow the rest of the tree below a node; return its nodes in breadth-first order."""
        _, _, key, depth, criterion, _ = self.tasks[job][task]
        bag, moved = rows, np.empty_like(rows)
        settings = self.settings
        return grow_bag(
            len(bag),
            len(self.n_codes),
            frozen(self.n_codes),
            np.uint64(key),
            depth,
            -1 if settings.max_depth is None else settings.max_depth,
            settings.min_samples_leaf,
            criterion,
            settings.alpha,
            x_log_x_table(min(TABLE_SIZE, MAX_WEIGHT * len(bag) + 1)),
            _MASK,
            bag,
            as_codes(bag, np.uint8),
            moved,
            as_codes(moved, np.uint8),
            np.empty(settings.max_features, dtype=np.int64),
            np.zeros((settings.max_features, WIDTH), dtype=np.int64),
            None,
            np.empty(WIDTH + 1, dtype=np.int64),
        )


def grow_forest(
    executor: Executor,
    parts: Sequence[Any],
    keys: NDArray[np.uint64],
    criteria: Sequence[int],
    settings: GrowthSettings,
    n_codes: NDArray[np.int64],
    n_events: int,
    budget: Budget,
    n_threads: int,
    tick: Tick,
) -> list[NDArray[np.int64]]:
    """Grow one tree per key on all parts, and return their nodes, as ``ensemble.grow_trees`` does in memory."""
    trees = [_GrowingTree(key) for key in keys]
    waiting: list[tuple[int, int]] = []
    if n_events <= budget.max_moved:
        active: dict[int, NDArray[np.int64]] = {}
        waiting = [(tree, 0) for tree in range(len(trees))]
    else:
        active = {tree: np.zeros(1, dtype=np.int64) for tree in range(len(trees))}
    table = x_log_x_table(min(TABLE_SIZE, MAX_WEIGHT * n_events + 1))
    while active:
        following: dict[int, NDArray[np.int64]] = {}
        for batch in _batches(active, budget.max_slots):
            members = sorted(batch)
            routes = _Routes.to([trees[t] for t in members], keys[members], [batch[t] for t in members])
            chosen = np.empty((routes.first_slots[-1], settings.max_features), dtype=np.uint32)
            for t, first, last in zip(members, routes.first_slots, routes.first_slots[1:], strict=False):
                choose_for_nodes(trees[t].keys, batch[t], len(n_codes), chosen[first:last])
            counts = executor.fold(Histograms(routes, chosen), parts).reshape(*chosen.shape, WIDTH)

            def split(i: int, _: None, members: Any = members, batch: Any = batch, routes: Any = routes,
                      chosen: Any = chosen, counts: Any = counts, following: Any = following) -> None:  # fmt: skip
                t = members[i]
                tree, nodes = trees[t], batch[t]
                tree.make_room(2 * len(nodes))
                own = slice(routes.first_slots[i], routes.first_slots[i + 1])
                searched, small = np.empty((2, 2 * len(nodes)), dtype=np.int64)
                tree.n_nodes, n_searched, n_small = split_nodes(
                    tree.nodes,
                    tree.keys,
                    tree.n_nodes,
                    nodes,
                    n_codes,
                    chosen[own],
                    counts[own],
                    -1 if settings.max_depth is None else settings.max_depth,
                    settings.min_samples_leaf,
                    criteria[t],
                    settings.alpha,
                    table,
                    searched,
                    budget.max_moved,
                    small,
                )
                if n_searched:
                    # a tree whose nodes are in several batches has been here before
                    following[t] = np.concatenate([following.get(t, searched[:0]), searched[:n_searched]])
                waiting.extend((t, int(node)) for node in small[:n_small])

            run_tasks(range(len(members)), split, lambda: None, n_threads)
        active = following
    tick(len(trees) - len({t for t, _ in waiting}))
    _grow_branches(executor, parts, trees, sorted(waiting), keys, criteria, settings, n_codes, n_events, budget, tick)
    finished = []
    trees.reverse()
    while trees:  # each is let go when its table is made
        tree = trees.pop()
        finished.append(breadth_first(tree.nodes, tree.n_nodes, _MASK))
    return finished


def _batches(active: dict[int, NDArray[np.int64]], max_slots: int) -> list[dict[int, NDArray[np.int64]]]:
    """Divide nodes into batches of at most so many, trees together where that is possible."""
    batches: list[dict[int, NDArray[np.int64]]] = [{}]
    room = max_slots
    for tree, nodes in active.items():
        for start in range(0, len(nodes), max_slots):
            part = nodes[start : start + max_slots]
            if len(part) > room:
                batches.append({})
                room = max_slots
            batches[-1][tree] = part
            room -= len(part)
    return batches


def _grow_branches(
    executor: Executor,
    parts: Sequence[Any],
    trees: list[_GrowingTree],
    waiting: list[tuple[int, int]],
    keys: NDArray[np.uint64],
    criteria: Sequence[int],
    settings: GrowthSettings,
    n_codes: NDArray[np.int64],
    n_events: int,
    budget: Budget,
    tick: Tick,
) -> None:
    """Grow what hangs below the waiting nodes, and hang it there; tick for each tree that is finished."""
    jobs: list[list[tuple[int, int]]] = []
    room = 0
    sizes = [
        int(trees[t].nodes[node, N_ON] + trees[t].nodes[node, N_OFF]) if node > 0 else n_events for t, node in waiting
    ]
    max_job = budget.max_job
    if executor.shares_jobs:
        max_job = min(max_job, sum(sizes) // (4 * executor.n_workers) + 1)
    size_of = dict(zip(waiting, sizes, strict=True))
    for (t, node), size in size_of.items():
        if not jobs or size > room:
            jobs.append([])
            room = max_job
        jobs[-1].append((t, node))
        room -= size
    if not jobs:
        return
    routes, tasks = [], []
    for job in jobs:
        members = sorted({t for t, _ in job})
        wanted = [np.array([node for t, node in job if t == member]) for member in members]
        routes.append(_Routes.to([trees[t] for t in members], keys[members], wanted))
        own = []
        for i, (t, nodes) in enumerate(zip(members, wanted, strict=True)):
            own += [
                (i, slot, int(trees[t].keys[n]), int(trees[t].nodes[n, DEPTH]), criteria[t], size_of[t, int(n)])
                for slot, n in enumerate(nodes)
            ]
        tasks.append(own)
    grown = executor.move(Branches(routes, tasks, settings, n_codes, n_events), parts, len(jobs))
    n_left = Counter(t for t, _ in waiting)
    for number, branches in grown:
        for (t, node), branch in zip(jobs[number], branches, strict=True):
            tree = trees[t]
            tree.make_room(len(branch))
            tree.n_nodes = graft(tree.nodes, tree.n_nodes, node, branch)
            n_left[t] -= 1
            tick(int(n_left[t] == 0))
