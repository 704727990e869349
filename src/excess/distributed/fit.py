"""The fit of a forest on chunks of events, in this process or on workers: the same bits as in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from excess._core.checks import FloatArray, as_int
from excess._core.progress import progress_bar
from excess.distributed.executors import DistributedError, Executor, InProcess
from excess.distributed.growth import Budget, grow_forest
from excess.distributed.parts import Binned, RecordFile
from excess.distributed.scoring import Likelihood, OutOfBag, ScoredParts
from excess.distributed.sources import Pairs, Partition, partitions_of
from excess.distributed.survey import (
    CheckedChunk,
    Survey,
    check_unchanged,
    checked_chunks,
    count_rows,
    sample_cutoff,
    survey_partition,
)
from excess.estimators._forest.compiling import compile_kernels
from excess.estimators._forest.ensemble import Tick, encode_events
from excess.estimators.base import n_threads
from excess.estimators.forest import OnOffForestClassifier
from excess.estimators.grown_trees import GrownTrees, resolve_max_features
from excess.estimators.oob_threshold import check_scored

__all__ = ["START_AGAIN", "fit_forest", "working"]

MAX_EVENTS = 2_000_000_000
"""Counts of On and of Off events, with bootstrap weights, share 64 bits."""
START_AGAIN = "nothing was written, start the fit again"


def fit_forest(
    estimator: OnOffForestClassifier,
    chunks: Any,
    *,
    client: Any = None,
    memory: int = 2**30,
    oob_scores: bool = True,
) -> OnOffForestClassifier:
    """Fit a forest on chunks of events: bit for bit the forest of ``estimator.fit`` on all of them at once.

    Parameters
    ----------
    estimator : OnOffForestClassifier
        What to fit; it stays as it is. ``max_bins=None``, which needs all distinct values, is refused.
    chunks : iterable of (X, y) pairs, or a dataset
        The events. An iterable must give the same pairs each time it is iterated over, such as a list; a dataset, such
        as `EventFiles`, has partitions that workers read for themselves. How events are cut into chunks makes no
        difference, only their order.
    client : None, dask.distributed.Client, str or Executor, default=None
        Who works: threads of this process (``estimator.n_jobs``), the workers of a Dask cluster, given by its client or
        the address of its scheduler, or another executor such as ``Joblib(4)``.
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
    >>> forest = OnOffForestClassifier(20, random_state=0)
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
    with working(client, threads, START_AGAIN) as executor:
        survey, firsts = _survey(executor, partitions, forest.max_bins, shown=plan.verbose)
        classes, edges = survey.classes(), survey.edges()
        if not 2 <= survey.n_rows <= MAX_EVENTS:
            raise ValueError(f"chunks hold {survey.n_rows} events; at least 2 and at most {MAX_EVENTS} can be fitted")
        forest.n_features_in_ = survey.n_features
        if survey.names is not None:
            forest.feature_names_in_ = np.array(survey.names, dtype=object)
        parts = _bin(executor, partitions, firsts, survey, classes[1], edges, threads, memory, shown=plan.verbose)

        max_features = resolve_max_features(forest.max_features, survey.n_features)
        n_codes = np.array([len(own) + 2 for own in edges])
        n_words = -(-(survey.n_features + 1) // 8)
        budget = Budget.of(memory, executor, max_features, n_words, survey.n_rows)
        n_on = survey.n_on()

        def grow(leaf_size: int, tick: Tick) -> GrownTrees:
            settings = plan.settings(survey.n_rows, leaf_size, max_features)
            tables = grow_forest(
                executor, parts, plan.keys, plan.criteria, settings, n_codes, survey.n_rows, budget, threads, tick
            )
            return GrownTrees.from_tables(tables, edges, "fraction", plan.alpha, prior=n_on / survey.n_rows)

        def out_of_bag(trees: GrownTrees) -> OutOfBag:
            return OutOfBag(trees.flat, trees.values, plan.keys)

        leaf_size, trees = plan.grow(
            survey.n_rows, grow, lambda trees: executor.fold(Likelihood(out_of_bag(trees)), parts)
        )
        if forest.output == "assignment":
            trees = trees.with_votes(plan.alpha)
        scored = ScoredParts(executor, executor.derive(out_of_bag(trees), parts))
        check_scored(n_on, survey.n_rows - n_on, *scored.n_scored)
        threshold, curve = plan.rule.tune(scored, plan.alpha, plan.seed)
        score = scored.collected()[1] if oob_scores else None
    return forest._finish(trees, leaf_size, classes, threshold, curve, score)


@contextmanager
def working(client: Any, threads: int, advice: str) -> Iterator[Executor]:
    """Give who works, by what was given as ``client`` to `fit_forest`; add advice to the errors of lost workers."""
    if isinstance(client, Executor):
        executor = client
    elif client is None:
        executor = InProcess(threads)
    else:
        from excess.distributed.dask_executor import Dask

        executor = Dask(client)
    try:
        yield executor
    except DistributedError as error:
        if advice in str(error):
            raise
        raise DistributedError(f"{error}; {advice}") from error
    finally:
        executor.tidy()
        if executor is not client:
            executor.close()


def _survey(
    executor: Executor, partitions: Sequence[Partition], limit: int | None, *, shown: bool
) -> tuple[Survey, list[int]]:
    """Return the survey of all events, and the number of each partition's first, with that of the end."""
    assert limit is not None
    total = Survey(limit)
    firsts = []
    if _read_here(executor, partitions):
        with progress_bar("Looking at events", None, shown=shown) as tick:
            for partition in partitions:
                firsts.append(total.n_rows)
                for chunk in _ahead(checked_chunks(partition)):
                    total.add(chunk, total.n_rows)
                    tick(len(chunk.labels))
        return total, [*firsts, total.n_rows]
    with progress_bar("Looking at files", 2 * len(partitions), shown=shown) as tick:
        counts = executor.run(count_rows, [(partition,) for partition in partitions], tick)
        n_rows = np.array(counts, dtype=np.int64)
        firsts = (np.cumsum(n_rows) - n_rows).tolist()
        cutoff = sample_cutoff(int(n_rows.sum()))
        arguments = [(*own, limit, cutoff) for own in zip(partitions, firsts, counts, strict=True)]
        for survey in executor.run(survey_partition, arguments, tick):
            total.merge(survey)
    return total, [*firsts, total.n_rows]


def _bin(
    executor: Executor,
    partitions: Sequence[Partition],
    firsts: Sequence[int],
    survey: Survey,
    on: Any,
    edges: list[FloatArray],
    threads: int,
    memory: int,
    *,
    shown: bool,
) -> list[Any]:
    """Return all events as parts of binned records, where they are worked on."""
    if not _read_here(executor, partitions):
        arguments = [(*own, on, edges) for own in zip(partitions, firsts, np.diff(firsts).tolist(), strict=False)]
        with progress_bar("Binning files", len(partitions), shown=shown) as tick:
            return executor.make(bin_partition, arguments, tick)
    n_bytes = 8 * -(-(survey.n_features + 1) // 8) * survey.n_rows
    file = RecordFile(executor.record_path(n_bytes, memory), survey.n_features)
    try:
        with progress_bar("Binning events", survey.n_rows, shown=shown) as tick:
            for partition, (first, last) in zip(partitions, pairwise(firsts), strict=True):
                n_rows = 0
                for chunk in _ahead(checked_chunks(partition)):
                    file.append(_records(chunk, on, edges, threads))
                    n_rows += len(chunk.labels)
                    tick(len(chunk.labels))
                check_unchanged(partition, last - first, n_rows)
        return executor.place(file.parts())
    finally:
        file.close()


def bin_partition(partition: Partition, first_row: int, n_rows: int, on: Any, edges: list[FloatArray]) -> Binned:
    """Return the events of a partition, as many as there were, as records."""
    records = [_records(chunk, on, edges, 1) for chunk in checked_chunks(partition)]
    check_unchanged(partition, n_rows, sum(map(len, records)))
    n_words = -(-(len(edges) + 1) // 8)
    return Binned(np.concatenate([np.empty((0, n_words), dtype=np.uint64), *records]), first_row, len(edges))


def _records(chunk: CheckedChunk, on: Any, edges: list[FloatArray], threads: int) -> NDArray[np.uint64]:
    compile_kernels(chunk.X, 255)
    return encode_events(chunk.X, np.asarray(chunk.labels == on), edges, threads)


def _read_here(executor: Executor, partitions: Sequence[Partition]) -> bool:
    """Say whether the caller reads the events: pairs are only here, and threads are no better elsewhere."""
    return not executor.in_place or any(isinstance(partition, Pairs) for partition in partitions)


def _ahead(chunks: Iterator[CheckedChunk]) -> Iterator[CheckedChunk]:
    """Read the next chunk while the present one is worked on."""
    with ThreadPoolExecutor(1) as reading:
        coming = reading.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reading.submit(next, chunks, None)
            yield chunk
