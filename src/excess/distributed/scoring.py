"""Out-of-bag scores of parts of the events, and reductions of them: labels by score, cells of scores, resamples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess._core.exact_sums import exact_sum
from excess.distributed.executors import Executor
from excess.distributed.parts import EventRecords, ScoredPart, read_only
from excess.estimators._forest import ensemble, predictor
from excess.estimators._forest.ensemble import BaggedTrees
from excess.estimators.members import N_CELLS, label_units
from excess.stats.score_cells import (
    MAX_EXACT,
    CountUnit,
    ScoreCells,
    add_to_grid,
    count_cells,
    empty_grid,
    merge_cells,
    refuse_weights,
    resample,
)
from excess.stats.score_kernels import count_labels, count_labels_without


@dataclass(frozen=True)
class OutOfBag:
    """Scores of events by the trees of some forests that have not seen them.

    The score of an event adds up in the order of the trees, so that it has the same bits in every part.
    """

    forests: Sequence[BaggedTrees]

    def __call__(self, events: EventRecords) -> ScoredPart:
        """Return the events of a part with their scores by the first forest."""
        return ScoredPart(events.on, self.scores(events)[0], events.first_row, events.bag.weights)

    def scores(self, events: EventRecords) -> list[FloatArray]:
        """Return the scores of the events of a part by each forest."""
        forests = [_read_only_trees(forest) for forest in self.forests]
        return ensemble.score_out_of_bag(events.codes, events.first_row, forests, 1, events.bag)


@dataclass(frozen=True)
class LabelsByScore:
    """The reduction to the Off and On events in cells of their out-of-bag scores, for each of some forests.

    Where events have weights, these are counted in units, see `label_units`; so they are by `LabelsWithout`.
    """

    scores: OutOfBag

    def empty(self) -> NDArray[np.int64]:
        """Return zeros."""
        return np.zeros((len(self.scores.forests), 2, N_CELLS), dtype=np.int64)

    def add(self, total: NDArray[np.int64], events: EventRecords) -> NDArray[np.int64]:
        """Count the events of a part."""
        units = _label_units(events)
        for own, score in zip(total, self.scores.scores(events), strict=True):
            count_labels(read_only(events.on), score, units, own)
        return total

    def merge(self, total: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add two totals."""
        return total + other


@dataclass(frozen=True)
class LabelsWithout:
    """The reduction to the Off and On events in cells of their scores less what each of some features contributes."""

    forest: BaggedTrees
    features: NDArray[np.int64]

    def empty(self) -> NDArray[np.int64]:
        """Return zeros."""
        return np.zeros((len(self.features), 2, N_CELLS), dtype=np.int64)

    def add(self, total: NDArray[np.int64], events: EventRecords) -> NDArray[np.int64]:
        """Count the events of a part."""
        on, units = read_only(events.on), _label_units(events)

        def count(rows: slice, scores: FloatArray, contributions: FloatArray) -> None:
            own = None if units is None else units[rows]
            count_labels_without(on[rows], scores, own, contributions, read_only(self.features), total)

        ensemble.contributions_out_of_bag(
            events.codes, events.first_row, events.n_features, _read_only_trees(self.forest), count, 1, events.bag
        )
        return total

    def merge(self, total: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        """Add two totals."""
        return total + other


def _label_units(events: EventRecords) -> NDArray[np.int64] | None:
    units = label_units(events.bag.weights)
    return None if units is None else read_only(units)


def _read_only_trees(forest: BaggedTrees) -> BaggedTrees:
    """Return trees whose arrays are read-only, as they are in other processes: kernels are compiled for either kind."""
    nodes, roots, depths = forest.flat
    flat = predictor.FlatTrees(read_only(nodes), read_only(roots), read_only(depths))
    return BaggedTrees(flat, read_only(forest.values), read_only(forest.keys))


def _count_units(events: ScoredPart, unit: CountUnit | None) -> NDArray[np.int64] | None:
    """Return the weights of events in units; None where they have none."""
    return None if unit is None or events.weights is None else read_only(unit.count(events.weights))


@dataclass(frozen=True)
class _DistinctScores:
    """The reduction to cells with one distinct score each; the cells of all parts are merged at the end."""

    unit: CountUnit | None  # of the weights of events, if they have any

    def empty(self) -> list[ScoreCells]:
        return []

    def add(self, total: list[ScoreCells], events: ScoredPart) -> list[ScoreCells]:
        return [*total, count_cells(events.on, events.score, _count_units(events, self.unit), on_grid=False)]

    def merge(self, total: list[ScoreCells], other: list[ScoreCells]) -> list[ScoreCells]:
        return [*total, *other]

    def finish(self, total: list[ScoreCells]) -> ScoreCells:
        return merge_cells(total)


@dataclass(frozen=True)
class _Grid:
    """The reduction to the cells of a grid of scores."""

    unit: CountUnit | None  # of the weights of events, if they have any

    def empty(self) -> ScoreCells:
        return empty_grid()

    def add(self, total: ScoreCells, events: ScoredPart) -> ScoreCells:
        units = _count_units(events, self.unit)
        return add_to_grid(total, read_only(events.on), read_only(events.score), units)

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
    """The reduction to the weights of events at each cut, in bootstrap resamples.

    The weight of an event follows from its number among all events that have a score. ``firsts`` has this number for
    the first event of each part, by the number of that event among all events.
    """

    cuts: FloatArray
    keys: NDArray[np.uint64]
    firsts: dict[int, int]
    unit: CountUnit | None  # of the weights of events, if they have any

    def empty(self) -> NDArray[np.int64]:
        return np.zeros((len(self.keys), len(self.cuts), 2), dtype=np.int64)

    def add(self, total: NDArray[np.int64], events: ScoredPart) -> NDArray[np.int64]:
        on, score, cuts, keys = map(read_only, (events.on, events.score, self.cuts, self.keys))
        total += resample(on, score, _count_units(events, self.unit), self.firsts[events.first_row], cuts, keys)
        return total

    def merge(self, total: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        return total + other


class ScoredParts:
    """Scores of all events, in parts of `ScoredPart`, in order; has the methods that a threshold rule needs."""

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
        reduction = (_Grid if sum(self.n_scored) > MAX_EXACT else _DistinctScores)(self._unit)
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
        """Return whether each event is On, and its score, without events that have no score; not with weights."""
        if self._unit is not None:
            refuse_weights()
        on, score = self.collected()
        scored = ~np.isnan(score)
        return on[scored], score[scored]

    def collected(self) -> tuple[BoolArray, FloatArray]:
        """Return whether each event is On, and its score or NaN; the parts are released."""
        if self._collected is None:
            found = self._executor.collect(self._parts)
            self._parts = []
            n_events = sum(len(scored.score) for scored in found)
            on, score = np.empty(n_events, dtype=np.bool_), np.empty(n_events)
            end = n_events
            while found:  # each part is released when it is copied, so that the scores are not in memory twice
                scored = found.pop()
                start = end - len(scored.score)
                on[start:end], score[start:end] = scored.on, scored.score
                end = start
            self._collected = on, score
        return self._collected


class _Scored(NamedTuple):
    """Events of a part that have a score."""

    first_row: int
    n_on: int
    n_off: int
    weight: Fraction | None  # the sum of their weights, if they have any


def _count_scored(events: ScoredPart) -> _Scored:
    scored = ~np.isnan(events.score)
    n_on = int(np.count_nonzero(scored & events.on))
    weight = None if events.weights is None else exact_sum(events.weights[scored])
    return _Scored(events.first_row, n_on, int(np.count_nonzero(scored)) - n_on, weight)
