"""Out-of-bag scores of parts of the events, and what is counted of them: likelihood, cells, resamples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.distributed.executors import Executor
from excess.distributed.parts import Binned, Scored, frozen
from excess.estimators._forest import ensemble, predictor
from excess.stats.score_cells import MAX_EXACT, ScoreCells, add_to_grid, count_cells, empty_grid, merge_cells, resample
from excess.stats.score_kernels import sum_log_likelihood

__all__ = ["Likelihood", "OutOfBag", "ScoredParts"]


@dataclass(frozen=True)
class OutOfBag:
    """Scores of a part by the trees that have not seen its events."""

    trees: predictor.FlatTrees
    values: FloatArray
    keys: NDArray[np.uint64]

    def __call__(self, events: Binned) -> Scored:
        """Return the events of a part with their scores."""
        nodes, roots, depths = self.trees
        trees = predictor.FlatTrees(frozen(nodes), frozen(roots), frozen(depths))
        scores = ensemble.score_out_of_bag(
            events.codes, events.first_row, trees, frozen(self.values), frozen(self.keys), n_threads=1
        )
        return Scored(events.on, scores, events.first_row)


@dataclass(frozen=True)
class Likelihood:
    """The fold of the out-of-bag log-likelihood, in whole units, and of the events that have a score."""

    scores: OutOfBag

    def start(self) -> tuple[int, int]:
        """Return nothing."""
        return 0, 0

    def add(self, total: tuple[int, int], events: Binned) -> tuple[int, int]:
        """Add the events of a part."""
        scored = self.scores(events)
        return self.merge(total, sum_log_likelihood(scored.on, scored.score))

    def merge(self, total: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        """Add two sums."""
        return int(total[0]) + int(other[0]), int(total[1]) + int(other[1])


class _DistinctScores:
    """The fold of cells where each distinct score is one: those of all parts, to be merged at the end."""

    def start(self) -> list[ScoreCells]:
        return []

    def add(self, total: list[ScoreCells], events: Scored) -> list[ScoreCells]:
        return [*total, count_cells(events.on, events.score, on_grid=False)]

    def merge(self, total: list[ScoreCells], other: list[ScoreCells]) -> list[ScoreCells]:
        return [*total, *other]

    def finish(self, total: list[ScoreCells]) -> ScoreCells:
        return merge_cells(total)


class _Grid:
    """The fold of cells of a grid of scores."""

    def start(self) -> ScoreCells:
        return empty_grid()

    def add(self, total: ScoreCells, events: Scored) -> ScoreCells:
        return add_to_grid(total, frozen(events.on), frozen(events.score))

    def merge(self, total: ScoreCells, other: ScoreCells) -> ScoreCells:
        return ScoreCells(
            np.minimum(total.low, other.low),
            np.maximum(total.high, other.high),
            total.n_on + other.n_on,
            total.n_off + other.n_off,
        )

    def finish(self, total: ScoreCells) -> ScoreCells:
        return total.without_empty()


@dataclass(frozen=True)
class _Resamples:
    """The fold of the weights of events at each cut, in bootstrap resamples.

    ``firsts`` is the number of a part's first event among all with a score, by its number among all.
    """

    cuts: FloatArray
    keys: NDArray[np.uint64]
    firsts: dict[int, int]

    def start(self) -> NDArray[np.int64]:
        return np.zeros((len(self.keys), len(self.cuts), 2), dtype=np.int64)

    def add(self, total: NDArray[np.int64], events: Scored) -> NDArray[np.int64]:
        on, score, cuts, keys = map(frozen, (events.on, events.score, self.cuts, self.keys))
        total += resample(on, score, self.firsts[events.first_row], cuts, keys)
        return total

    def merge(self, total: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        return total + other


class ScoredParts:
    """Events with scores in parts, as a threshold rule asks for them.

    Parameters
    ----------
    executor : Executor
        Who works on them.
    parts : sequence
        Parts of scored events, in order.
    """

    def __init__(self, executor: Executor, parts: Sequence[Any]) -> None:
        self._executor, self._parts = executor, list(parts)
        self._counts = executor.collect(executor.derive(_count_scored, parts))
        self._collected: tuple[BoolArray, FloatArray] | None = None

    @property
    def n_scored(self) -> tuple[int, int]:
        """On and Off events with a score."""
        return sum(on for _, on, _ in self._counts), sum(off for *_, off in self._counts)

    def cells(self) -> ScoreCells:
        """Return their cells."""
        fold = _Grid() if sum(self.n_scored) > MAX_EXACT else _DistinctScores()
        return fold.finish(self._executor.fold(fold, self._parts))

    def resampled(self, cuts: FloatArray, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the weights of Off and On events at each cut in each resample."""
        firsts, n_before = {}, 0
        for first_row, n_on, n_off in self._counts:
            firsts[first_row] = n_before
            n_before += n_on + n_off
        return self._executor.fold(_Resamples(cuts, keys, firsts), self._parts)

    def arrays(self) -> tuple[BoolArray, FloatArray]:
        """Return who is On and all scores, without events that have none."""
        on, score = self.collected()
        scored = ~np.isnan(score)
        return on[scored], score[scored]

    def collected(self) -> tuple[BoolArray, FloatArray]:
        """Return who is On and the scores of all events, NaN for none; the parts are given up for that."""
        if self._collected is None:
            found = self._executor.collect(self._parts)
            self._parts = []
            n_events = sum(len(scored.score) for scored in found)
            on, score = np.empty(n_events, dtype=np.bool_), np.empty(n_events)
            end = n_events
            while found:  # each part is let go when it is copied, so that the scores are not in memory twice
                scored = found.pop()
                start = end - len(scored.score)
                on[start:end], score[start:end] = scored.on, scored.score
                end = start
            self._collected = on, score
        return self._collected


def _count_scored(events: Scored) -> tuple[int, int, int]:
    scored = ~np.isnan(events.score)
    n_on = int(np.count_nonzero(scored & events.on))
    return events.first_row, n_on, int(np.count_nonzero(scored)) - n_on
