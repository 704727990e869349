"""The fit of a forest on chunks of events, in this process or on workers: the same forest as in memory, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from excess._core.checks import FloatArray, as_int
from excess._core.progress import progress_bar
from excess._core.threads import n_threads, read_ahead
from excess.distributed.dask_executor import Dask
from excess.distributed.executors import DistributedError, Executor, InProcess
from excess.distributed.growth import Budget, ForestGrower
from excess.distributed.parts import EventRecords, RecordStore, record_bytes
from excess.distributed.scoring import LabelsByScore, LabelsWithout, OutOfBag, ScoredParts
from excess.distributed.sources import Pairs, Partition, partitions_of
from excess.distributed.survey import (
    CheckedChunk,
    Survey,
    check_chunks,
    check_unchanged,
    count_rows,
    sample_cutoff,
    survey_partition,
)
from excess.estimators._forest.bags import Bag, join_bags
from excess.estimators._forest.compiling import compile_kernels
from excess.estimators._forest.ensemble import BaggedTrees, Tick, TreeSettings, encode_events
from excess.estimators._forest.layout import empty_records
from excess.estimators.forest import ForestPlan, OnOffForestClassifier
from excess.estimators.grown_trees import GrownTrees
from excess.estimators.members import LabelCounts, units_to_events
from excess.stats.thresholds import check_scored

__all__ = ["START_AGAIN", "fit_forest", "open_executor"]

MAX_EVENTS = 2_000_000_000
"""The counts of On and of Off events, with bootstrap weights, have 32 bits each in a histogram."""
START_AGAIN = "nothing was written, start the fit again"


def fit_forest(
    estimator: OnOffForestClassifier, chunks: Any, *, executor: Any = None, memory: int = 2**30, oob_scores: bool = True
) -> OnOffForestClassifier:
    """Fit a forest on chunks of events: bit for bit the forest of ``estimator.fit`` on all of them at once.

    Parameters
    ----------
    estimator : OnOffForestClassifier
        The forest to fit; it is not changed. ``max_bins=None``, which needs all distinct values, is refused.
    chunks : iterable of (X, y), (X, y, groups) or (X, y, groups, sample_weight), or a dataset
        The events, with the groups and weights of ``estimator.fit`` or without; groups may be None beside weights,
        such as those of `exposure_weights`. Weights must not be 0, nor all whole numbers: leave out or repeat such
        events. An iterable must give the same chunks each time it is iterated over, such as a list; a dataset, such as
        `EventFiles`, has partitions that workers read for themselves. The result depends on the order of events, but
        not on how they are divided into chunks.
    executor : None, dask.distributed.Client, str or Executor, default=None
        What runs the work: None for threads of this process (``estimator.n_jobs``); the client of a Dask cluster or the
        address of its scheduler; or an executor, such as ``Dask(client, max_moved=10_000)``.
    memory : int, default=2**30
        Bytes that a worker may use for histograms and for events that are moved, besides the events it keeps.
    oob_scores : bool, default=True
        Whether to keep ``oob_decision_function_``, which takes eight bytes per event here.

    Returns
    -------
    OnOffForestClassifier
        A fitted copy of ``estimator``.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import OnOffForestClassifier
    >>> from excess.distributed import fit_forest
    >>> X, y = np.arange(400.0).reshape(-1, 1) % 97, np.arange(400) % 97 > 60
    >>> forest = OnOffForestClassifier(20, alpha=1 / 5, random_state=0)
    >>> fitted = fit_forest(forest, [(X[:150], y[:150]), (X[150:], y[150:])])
    >>> bool((fitted.predict_proba(X) == forest.fit(X, y).predict_proba(X)).all())
    True
    """
    if not isinstance(estimator, OnOffForestClassifier):
        raise TypeError(f"estimator must be an OnOffForestClassifier, got {type(estimator).__name__}")
    if estimator.max_bins is None:
        raise ValueError("max_bins=None needs all distinct values at once; fit in memory, or give at most 255 bins")
    memory = as_int("memory", memory, minimum=2**16)
    forest = clone(estimator)
    plan = forest._plan()
    partitions = partitions_of(chunks)
    threads = n_threads(forest.n_jobs)
    with open_executor(executor, threads, START_AGAIN) as executor, ExitStack() as stack:
        survey, firsts = _survey(executor, partitions, estimator.max_bins, shown=plan.verbose)
        classes, edges = survey.classes(), survey.edges()
        n_events, n_features, n_on = survey.n_rows, survey.n_features, survey.n_on()
        groups, weights = survey.group_names(), survey.weight_sums()
        if not 2 <= n_events <= MAX_EVENTS:
            raise ValueError(f"chunks hold {n_events} events; at least 2 and at most {MAX_EVENTS} can be fitted")
        forest.n_features_in_ = n_features
        if survey.names is not None:
            forest.feature_names_in_ = np.array(survey.names, dtype=object)
        binning = _Binning(classes[1], edges, groups, weighted=weights is not None)
        if _reads_here(executor, partitions):
            store = RecordStore(n_events, n_features, memory, len(groups), has_weights=binning.weighted)
            stack.enter_context(store)
            _store_records(store, partitions, firsts, binning, threads, shown=plan.verbose)
            parts = executor.scatter(store.parts())
        else:
            arguments = [(partition, *rows, binning) for partition, rows in _rows_of(partitions, firsts)]
            with progress_bar("Binning files", len(partitions), shown=plan.verbose) as tick:
                parts = executor.create_parts(bin_partition, arguments, tick)

        on_share = n_on / n_events if weights is None else float(weights[0].total / (weights[0] + weights[1]).total)
        growth = plan, memory, threads, binning.weighted
        grower = _GrowerOnParts(executor, parts, n_events, on_share, edges, *growth)
        grown = plan.grow(grower)
        if forest.output == "assignment":
            grown = replace(grown, trees=grown.trees.with_votes(plan.alpha))
        scored = ScoredParts(executor, executor.map(OutOfBag([grown.trees.bagged(grown.keys)]), parts))
        check_scored(n_on, n_events - n_on, *scored.n_scored)
        threshold, curve = plan.rule.tune(scored, plan.alpha, plan.seed)
        score = scored.collected()[1] if oob_scores else None
    forest._finish(grown, threshold, curve, score)
    forest.classes_ = classes
    return forest


@dataclass(frozen=True)
class _GrowerOnParts:
    """Grows trees on parts of the events, and counts their scores."""

    executor: Executor
    parts: Sequence[Any]
    n_events: int
    on_share: float  # of On events among all, or of their weights
    edges: list[FloatArray]  # of each feature
    plan: ForestPlan
    memory: int  # bytes that a worker may use
    threads: int  # of this process
    has_weights: bool

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.edges)

    def grow(
        self, trees: Sequence[TreeSettings], used: NDArray[np.int64], tick: Tick | None
    ) -> list[NDArray[np.int64]]:
        """Return the nodes of each tree; those whose nodes look at equally many features grow together."""
        grown: list[Any] = [None] * len(trees)
        n_codes = np.array([len(own) + 2 for own in self.edges])
        settings = self.plan.settings(self.n_events, used)
        for n_chosen in sorted({tree.max_features for tree in trees}):
            numbers = [number for number, tree in enumerate(trees) if tree.max_features == n_chosen]
            own = [trees[number] for number in numbers]
            sizes = n_chosen, record_bytes(self.n_features), self.n_events
            budget = Budget.of(self.memory, self.executor, *sizes, has_weights=self.has_weights)
            grower = ForestGrower(
                self.executor, self.parts, self.n_events, n_codes, own, settings, budget, self.threads, self.has_weights
            )
            for number, nodes in zip(numbers, grower.grow(tick or (lambda n: None)), strict=True):
                grown[number] = nodes
        return grown

    def assemble(self, tables: list[NDArray[np.int64]]) -> GrownTrees:
        """Return trees that score events."""
        return GrownTrees.from_tables(tables, self.edges, "fraction", self.plan.alpha, prior=self.on_share)

    def count_scores(self, forests: Sequence[BaggedTrees]) -> LabelCounts:
        """Count events by their out-of-bag scores from each of some forests."""
        counts = self.executor.reduce(LabelsByScore(OutOfBag(forests)), self.parts)
        return units_to_events(counts) if self.has_weights else counts

    def count_without(self, forest: BaggedTrees, features: NDArray[np.int64]) -> LabelCounts:
        """Count events by their out-of-bag scores less what each of some features contributes."""
        counts = self.executor.reduce(LabelsWithout(forest, features), self.parts)
        return units_to_events(counts) if self.has_weights else counts


@dataclass(frozen=True)
class _Binning:
    """What makes records of events."""

    on: Any  # the class of On
    edges: list[FloatArray]  # inner edges of each feature's bins
    groups: list[Any]  # names of all groups, in order; none where events have no groups
    weighted: bool  # whether the weights of events count

    def records(self, chunk: CheckedChunk, threads: int) -> tuple[NDArray[np.uint64], Bag]:
        """Return the events of a chunk as records, with their groups and weights."""
        compile_kernels(chunk.X, 255)
        records = encode_events(chunk.X, np.asarray(chunk.labels == self.on), self.edges, threads)
        return records, chunk.bag(self.groups, weighted=self.weighted)


@contextmanager
def open_executor(executor: Any, threads: int, advice: str) -> Iterator[Executor]:
    """Open what was given as ``executor`` to `fit_forest`; add advice to the errors of lost workers."""
    if isinstance(executor, Executor):
        opened = executor
    else:
        opened = InProcess(threads) if executor is None else Dask(executor)
    try:
        yield opened
    except DistributedError as error:
        if advice in str(error):
            raise
        raise DistributedError(f"{error}; {advice}") from error
    finally:
        if opened is not executor:
            opened.close()


def _survey(
    executor: Executor, partitions: Sequence[Partition], limit: int, *, shown: bool
) -> tuple[Survey, list[int]]:
    """Return the survey of all events, and the number of each partition's first event, with that of the end."""
    total = Survey(limit)
    firsts = []
    if _reads_here(executor, partitions):
        with progress_bar("Looking at events", None, shown=shown) as tick:
            for partition in partitions:
                firsts.append(total.n_rows)
                for chunk in read_ahead(check_chunks(partition)):
                    total.add(chunk, total.n_rows)
                    tick(len(chunk.labels))
        return total, [*firsts, total.n_rows]
    with progress_bar("Looking at files", 2 * len(partitions), shown=shown) as tick:
        counts = executor.run(count_rows, [(partition,) for partition in partitions], tick)
        firsts = [0, *accumulate(counts)]
        cutoff = sample_cutoff(firsts[-1])
        arguments = [(partition, *rows, limit, cutoff) for partition, rows in _rows_of(partitions, firsts)]
        for survey in executor.run(survey_partition, arguments, tick):
            total.merge(survey)
    return total, firsts


def _rows_of(partitions: Sequence[Partition], firsts: Sequence[int]) -> Iterator[tuple[Partition, tuple[int, int]]]:
    """Yield each partition with the number of its first event and the number of its events."""
    for partition, (first, end) in zip(partitions, pairwise(firsts), strict=True):
        yield partition, (first, end - first)


def _store_records(
    store: RecordStore,
    partitions: Sequence[Partition],
    firsts: Sequence[int],
    binning: _Binning,
    threads: int,
    *,
    shown: bool,
) -> None:
    """Append the records of all events to a store."""
    with progress_bar("Binning events", firsts[-1], shown=shown) as tick:
        for partition, (_, n_rows) in _rows_of(partitions, firsts):
            n_found = 0
            for chunk in read_ahead(check_chunks(partition)):
                store.append(*binning.records(chunk, threads))
                n_found += len(chunk.labels)
                tick(len(chunk.labels))
            check_unchanged(partition, n_rows, n_found)


def bin_partition(partition: Partition, first_row: int, n_rows: int, binning: _Binning) -> EventRecords:
    """Return the events of a partition, which must still have ``n_rows`` events, as records."""
    found = [binning.records(chunk, 1) for chunk in check_chunks(partition)]
    check_unchanged(partition, n_rows, sum(len(records) for records, _ in found))
    n_features = len(binning.edges)
    joined = np.concatenate([empty_records(0, n_features, np.uint8), *(records for records, _ in found)])
    return EventRecords(joined, first_row, n_features, join_bags([bag for _, bag in found]))


def _reads_here(executor: Executor, partitions: Sequence[Partition]) -> bool:
    """Return whether this process reads the events: always, except for files with a remote executor."""
    return not executor.remote or any(isinstance(partition, Pairs) for partition in partitions)
