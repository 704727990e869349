"""Cells of scores: counts of On and Off events by score, for as many events as there may be.

Up to a million events, a cell is a distinct score. Beyond that it is a span of 2^-20 of the scale from 0 to 1, which
also keeps its smallest and largest score. Counts at the borders of cells are exact, and a threshold between two cells
still lies midway between neighbouring scores; only the cuts within a cell are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess._core.rng import bootstrap_weights
from excess.stats.curve import ThresholdCurve, compute_range_curve, sort_scores
from excess.stats.score_kernels import count_on_grid, count_resamples

MAX_EXACT = 1 << 20
"""Events up to which every distinct score is a cell of its own."""
N_GRID = 1 << 20
"""Cells of the scale from 0 to 1 where there are more events."""


class ScoreCells(NamedTuple):
    """Cells in ascending order of their scores."""

    low: FloatArray  # smallest score in each cell
    high: FloatArray  # largest score in each cell
    n_on: NDArray[Any]  # int64, or float64 where events have weights
    n_off: NDArray[Any]

    def without_empty(self) -> ScoreCells:
        """Return the cells that hold events."""
        kept = np.flatnonzero(self.n_on + self.n_off)
        return ScoreCells(self.low[kept], self.high[kept], self.n_on[kept], self.n_off[kept])

    def curve(self, alpha: float) -> ThresholdCurve:
        """Return the curve over the cuts between cells."""
        return compute_range_curve(*self, alpha)


class ScoredEvents(Protocol):
    """Events with scores, wherever they are; what a threshold rule may ask of them."""

    def cells(self) -> ScoreCells:
        """Return their cells."""

    def resampled(self, cuts: FloatArray, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Return the weights of Off and On events at each cut (the last not above their score) in each resample."""

    def arrays(self) -> tuple[BoolArray, FloatArray]:
        """Return who is On and all scores."""


class EventsInMemory:
    """Scored events in two arrays.

    More than ``MAX_EXACT`` scores must lie from 0 to 1, unless ``exact`` makes every distinct score a cell.
    """

    def __init__(self, on: BoolArray, score: FloatArray, *, exact: bool = False) -> None:
        self._on, self._score = on, score
        self._on_grid = not exact and len(score) > MAX_EXACT

    def cells(self) -> ScoreCells:
        """Return their cells."""
        return count_cells(self._on, self._score, on_grid=self._on_grid)

    def resampled(self, cuts: FloatArray, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the weights of Off and On events at each cut in each resample."""
        return resample(self._on, self._score, 0, cuts, keys)

    def arrays(self) -> tuple[BoolArray, FloatArray]:
        """Return who is On and all scores."""
        return self._on, self._score


def count_cells(on: BoolArray, score: FloatArray, *, on_grid: bool) -> ScoreCells:
    """Return the cells of some events; those without a score (NaN) are left out."""
    if on_grid:
        return add_to_grid(empty_grid(), on, score).without_empty()
    scored = ~np.isnan(score)
    if not scored.all():
        on, score = on[scored], score[scored]
    return _join_cells(score, score, score, on.astype(np.int64), (~on).astype(np.int64))


def merge_cells(parts: Sequence[ScoreCells]) -> ScoreCells:
    """Return the cells of all events from those of parts of them, where a cell is a distinct score."""
    low, high, n_on, n_off = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _join_cells(low, low, high, n_on, n_off)


def empty_grid() -> ScoreCells:
    """Return all cells of the grid, without events."""
    counts = np.zeros((2, N_GRID), dtype=np.int64)
    return ScoreCells(np.full(N_GRID, np.inf), np.full(N_GRID, -np.inf), counts[0], counts[1])


def add_to_grid(grid: ScoreCells, on: BoolArray, score: FloatArray) -> ScoreCells:
    """Count events in the cells of a grid, in place."""
    count_on_grid(on, score, N_GRID, *grid)
    return grid


def resample(
    on: BoolArray, score: FloatArray, first: int, cuts: FloatArray, keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    """Return the weights of some Off and On events at each cut in each resample; ``first`` numbers the first event."""
    counts = np.zeros((len(keys), len(cuts), 2), dtype=np.int64)
    count_resamples(on, score, first, cuts, keys, counts)
    return counts


class WeightedEvents:
    """Scored events in three arrays, the last of which has the number of events that each one stands for."""

    def __init__(self, on: BoolArray, score: FloatArray, weights: FloatArray) -> None:
        self._on, self._score, self._weights = on, score, weights

    def cells(self) -> ScoreCells:
        """Return their cells, one for each distinct score."""
        score, weights = self._score, self._weights
        return _join_cells(score, score, score, np.where(self._on, weights, 0.0), np.where(self._on, 0.0, weights))

    def resampled(self, cuts: FloatArray, keys: NDArray[np.uint64]) -> FloatArray:
        """Return the weights of Off and On events at each cut in each resample."""
        places = 2 * (np.searchsorted(cuts, self._score, side="right") - 1) + self._on
        counts = np.empty((len(keys), len(cuts), 2))
        drawn = np.empty(len(places), dtype=np.uint8)
        for key, own in zip(keys, counts, strict=True):
            bootstrap_weights(key, 0, drawn)
            own[:] = np.bincount(places, drawn * self._weights, minlength=own.size).reshape(own.shape)
        return counts

    def arrays(self) -> tuple[BoolArray, FloatArray]:
        """Raise ValueError: what sees events one by one does not see their weights."""
        raise ValueError(
            "sample_weight that is not a whole number goes with threshold='significance', 'f1' or a number only; other "
            "rules count events"
        )


def _join_cells(key: Any, low: FloatArray, high: FloatArray, n_on: Any, n_off: Any) -> ScoreCells:
    """Join what has the same key."""
    order, values, starts = sort_scores(key)
    if len(values) == 0:
        return ScoreCells(low, high, n_on, n_off)
    return ScoreCells(
        np.minimum.reduceat(low[order], starts),
        np.maximum.reduceat(high[order], starts),
        np.add.reduceat(n_on[order], starts),
        np.add.reduceat(n_off[order], starts),
    )
