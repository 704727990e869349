"""Cells of scores: counts of On and Off events by score, for as many events as there may be.

Up to a million events, a cell is a distinct score. Beyond that it is a span of 2^-20 of the scale from 0 to 1, which
also keeps its smallest and largest score. Counts at the borders of cells are exact, and a threshold between two cells
still lies midway between neighbouring scores; only the cuts within a cell are left out.

Weights of events are counted in whole units, a power of two of which is an event, so that sums do not depend on the
order of events.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess._core.exact_sums import exact_sum
from excess.stats.curve import ThresholdCurve, compute_range_curve, sort_scores
from excess.stats.score_kernels import count_on_grid, count_resamples

MAX_EXACT = 1 << 20
"""Events up to which every distinct score is a cell of its own."""
N_GRID = 1 << 20
"""Cells of the scale from 0 to 1 where there are more events."""
_UNIT_BITS = 52
"""Bits of the sum of all weights in units: a float64 holds it, and a sum of bootstrap resamples fits into 64 bits."""


@dataclass(frozen=True)
class CountUnit:
    """The unit in which weights of events are counted."""

    per_event: float  # units of an event of weight 1, a power of two

    @classmethod
    def of(cls, total: Fraction) -> CountUnit:
        """Return the unit for weights of this sum."""
        return cls(math.ldexp(1.0, _UNIT_BITS - math.frexp(float(total))[1]))

    def count(self, weights: FloatArray) -> NDArray[np.int64]:
        """Return weights in units; none is 0."""
        return np.maximum(np.rint(weights * self.per_event), 1.0).astype(np.int64)


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

    def in_events(self, unit: CountUnit) -> ScoreCells:
        """Return the cells of events with weights, which were counted in a unit."""
        return self._replace(n_on=self.n_on / unit.per_event, n_off=self.n_off / unit.per_event)


class ScoredEvents(Protocol):
    """Events with scores, wherever they are; what a threshold rule may ask of them."""

    def cells(self) -> ScoreCells:
        """Return their cells."""

    def resampled(self, cuts: FloatArray, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Return the weights of Off and On events at each cut (the last not above their score) in each resample."""

    def arrays(self) -> tuple[BoolArray, FloatArray]:
        """Return who is On and all scores."""


class EventsInMemory:
    """Scored events in arrays, of which the last may have the number of events that each one stands for.

    More than ``MAX_EXACT`` scores must lie from 0 to 1, unless ``exact`` makes every distinct score a cell.
    """

    def __init__(
        self, on: BoolArray, score: FloatArray, weights: FloatArray | None = None, *, exact: bool = False
    ) -> None:
        self._on, self._score = on, score
        self._unit = None if weights is None else CountUnit.of(exact_sum(weights))
        self._units = None if weights is None or self._unit is None else self._unit.count(weights)
        self._on_grid = not exact and len(score) > MAX_EXACT

    def cells(self) -> ScoreCells:
        """Return their cells."""
        cells = count_cells(self._on, self._score, self._units, on_grid=self._on_grid)
        return cells if self._unit is None else cells.in_events(self._unit)

    def resampled(self, cuts: FloatArray, keys: NDArray[np.uint64]) -> NDArray[Any]:
        """Return the weights of Off and On events at each cut in each resample."""
        counts = resample(self._on, self._score, self._units, 0, cuts, keys)
        return counts if self._unit is None else counts / self._unit.per_event

    def arrays(self) -> tuple[BoolArray, FloatArray]:
        """Return who is On and all scores; ValueError where events have weights."""
        if self._units is not None:
            refuse_weights()
        return self._on, self._score


def refuse_weights() -> NoReturn:
    """Raise ValueError: what sees events one by one does not see their weights."""
    raise ValueError(
        "sample_weight that is not a whole number goes with threshold='significance', 'f1' or a number only; other "
        "rules count events"
    )


def count_cells(
    on: BoolArray, score: FloatArray, units: NDArray[np.int64] | None = None, *, on_grid: bool
) -> ScoreCells:
    """Return the cells of some events; those without a score (NaN) are left out."""
    if on_grid:
        return add_to_grid(empty_grid(), on, score, units).without_empty()
    scored = ~np.isnan(score)
    if not scored.all():
        on, score = on[scored], score[scored]
        units = None if units is None else units[scored]
    amount = np.int64(1) if units is None else units
    return _join_cells(score, score, score, on * amount, ~on * amount)


def merge_cells(parts: Sequence[ScoreCells]) -> ScoreCells:
    """Return the cells of all events from those of parts of them, where a cell is a distinct score."""
    low, high, n_on, n_off = (np.concatenate(column) for column in zip(*parts, strict=True))
    return _join_cells(low, low, high, n_on, n_off)


def empty_grid() -> ScoreCells:
    """Return all cells of the grid, without events."""
    counts = np.zeros((2, N_GRID), dtype=np.int64)
    return ScoreCells(np.full(N_GRID, np.inf), np.full(N_GRID, -np.inf), counts[0], counts[1])


def add_to_grid(
    grid: ScoreCells, on: BoolArray, score: FloatArray, units: NDArray[np.int64] | None = None
) -> ScoreCells:
    """Count events in the cells of a grid, in place."""
    count_on_grid(on, score, units, N_GRID, *grid)
    return grid


def resample(
    on: BoolArray,
    score: FloatArray,
    units: NDArray[np.int64] | None,
    first: int,
    cuts: FloatArray,
    keys: NDArray[np.uint64],
) -> NDArray[np.int64]:
    """Return the weights of some Off and On events at each cut in each resample; ``first`` numbers the first event."""
    counts = np.zeros((len(keys), len(cuts), 2), dtype=np.int64)
    count_resamples(on, score, units, first, cuts, keys, counts)
    return counts


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
