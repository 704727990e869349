"""Counting simulated gammas that a model selects, chunk by chunk, in bins of energy and zenith distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess._core.checks import BoolArray, FloatArray, as_floats, as_int, as_probability
from excess._core.errors import ArgumentError, EventFileError, prefix_errors
from excess._core.files import sha256_of
from excess._core.progress import progress_bar
from excess.analysis.event_scores import score_features, score_showers
from excess.analysis.gamma_efficiency import KINDS, Efficiency, ModelBinCounts
from excess.analysis.references import check_simulated_columns
from excess.analysis.trained_model import TrainedModel, load_model
from excess.estimators.binned import OnOffBinnedClassifier
from excess.estimators.model_file import ModelFileError
from excess.events import Features, describe, evaluate, iter_events, to_features
from excess.events.expressions import names_in
from excess.events.truth import checked_expression, energy_expression, zenith_expression
from excess.stats.fractions import ONE_SIGMA

__all__ = ["efficiency"]

_PER_DECADE = 5
_ZENITH_STEP = 10.0
_ALL_ZENITHS = np.array([0.0, 90.0])
_MAX_BINS = 10_000
_SHOWER_KEYS = ["obs_id", "event_id"]

Bins = int | Sequence[float] | FloatArray | None


def efficiency(
    model: TrainedModel | str | PathLike[str],
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    energy: str | None = None,
    zenith: str | None = None,
    weights: str | None = None,
    energy_bins: Bins = None,
    zenith_bins: Bins = None,
    confidence: float = ONE_SIGMA,
    chunk_rows: int = 200_000,
    n_jobs: int = -1,
    verbose: bool = False,
) -> Efficiency:
    """Count which simulated gammas a model selects, in bins of true energy and zenith distance.

    The files are read twice, for the ranges of the bins and for the events, in constant memory. There is no cut on the
    direction: all gammas of the files count, whether or not they would be in the On region. Where rows are telescope
    images, because the model takes parameters of these, showers are counted: one is selected if the mean score of its
    images exceeds the threshold.

    Parameters
    ----------
    model : TrainedModel or path
        From `train`, or its file.
    files : path or sequence of paths
        Simulated gammas, with the columns of the model's features and quality cuts.
    energy : str or None, default=None
        Column of true energies, or an expression of columns, in TeV; by default a column that is known, such as
        ``true_energy``, ``mc_energy`` or FACT's ``corsika_event_header_total_energy`` (which is in GeV).
    zenith : str or None, default=None
        The same for zenith distances in deg, such as ``"90 - true_alt"``. Where no column is known, there is one bin
        for all.
    weights : str or None, default=None
        Column or expression of weights of events, such as those of another spectrum.
    energy_bins : int, sequence of float or None, default=None
        Number of bins of equal width in the logarithm, or their edges in TeV; by default five per decade.
    zenith_bins : int, sequence of float or None, default=None
        Number of bins, or their edges in deg; by default bins of 10 deg.
    confidence : float, default=0.6827
        Probability of the intervals, by default that of one standard deviation.
    chunk_rows : int, default=200_000
        Events in memory at a time.
    n_jobs : int, default=-1
        Cores, for a model that is read from its file.
    verbose : bool, default=False
        Show a progress bar.

    Returns
    -------
    Efficiency
        With ``table``, ``plot``, ``write`` and ``correct_effective_area``.

    Raises
    ------
    ModelFileError
        If the model was trained on one of the files.
    EventFileError
        If a column is missing, or there are no events.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.analysis import efficiency, observe, train
    >>> from excess.events import write_events
    >>> from excess.observation import simulate_labelled, simulate_observation
    >>> trained = train(observe(simulate_observation(60_000, 400, random_state=0)), "li-ma-tree")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_events(simulate_labelled(5_000, 0, random_state=1), Path(folder, "gammas.csv"))
    ...     found = efficiency(trained, Path(folder, "gammas.csv"), energy="size / 100", energy_bins=[0.5, 1, 2, 4, 8])
    >>> print(found.mean())
    0.924 (0.920 to 0.928)
    """
    as_probability("confidence", confidence)
    trained = model if isinstance(model, TrainedModel) else load_model(model, n_jobs=n_jobs)
    paths = [Path(path) for path in ([files] if isinstance(files, (str, PathLike)) else files)]
    described = [describe(path) for path in paths]
    _refuse_seen(trained, paths)
    for path in paths:
        check_simulated_columns(path, trained.config.columns_needed())
    truth = _Truth.of(described[0].columns, energy, zenith, weights)
    needed = [*trained.config.columns_needed(), *truth.columns]
    # rows are images of showers where a column is needed that only images have
    keys = [] if set(needed) <= set(described[0].columns) else _SHOWER_KEYS
    total = sum(found.n_events for found in described)
    with progress_bar("Counting simulated gammas", 2 * total, shown=verbose) as tick:
        lowest, highest = _find_ranges(truth, paths, chunk_rows, tick)
        energies = _energy_edges(energy_bins, lowest[0], highest[0])
        zeniths = _ALL_ZENITHS if truth.zenith is None else _zenith_edges(zenith_bins, lowest[1], highest[1])
        tally = _Tally(energies, zeniths)
        in_bins = _BinTally.of(trained)
        for table in iter_events(paths, list(dict.fromkeys([*needed, *keys])), chunk_rows=chunk_rows):
            with prefix_errors(str(table.attrs.get("file", paths[0]))):
                features = to_features(table, trained.config)
                known, judged = truth.of_events(table), score_features(trained.model, features)
                valid, selected = features.valid, judged.selected
                if keys:
                    shower = table.groupby(keys, sort=False).ngroup().to_numpy()
                    first = np.unique(shower, return_index=True)[1]  # a chunk has all images of a shower
                    judged = score_showers(trained.model, judged, shower, len(first))
                    valid, selected = np.isfinite(judged.score), judged.selected[shower]
                if in_bins is not None:
                    in_bins.add(features, known[2], selected)
                if keys:
                    known, selected = tuple(values[first] for values in known), judged.selected
                tally.add(known, valid, selected)
            tick(len(table))
    if tally.counts[0].sum() == 0:
        raise EventFileError(
            f"{paths[0]}: none of {total:,} simulated events lies in the bins; energies are from {lowest[0]:.4g} to "
            f"{highest[0]:.4g} TeV: {truth.energy}"
        )
    return Efficiency(
        energies,
        zeniths,
        dict(zip(KINDS, tally.counts, strict=True)),
        dict(zip(KINDS, tally.squares, strict=True)),
        tally.n_outside,
        confidence,
        truth.expressions,
        tuple(paths),
        trained.path,
        None if in_bins is None else in_bins.counted(),
    )


@dataclass(frozen=True)
class _Truth:
    """Expressions of what is known about simulated events."""

    energy: str
    zenith: str | None
    weights: str | None

    @classmethod
    def of(cls, columns: tuple[str, ...], energy: str | None, zenith: str | None, weights: str | None) -> _Truth:
        """Find the expressions for files with these columns."""
        if weights is not None:
            weights = checked_expression("weights", columns, weights)
        return cls(energy_expression(columns, energy), zenith_expression(columns, zenith), weights)

    @property
    def expressions(self) -> dict[str, str]:
        """Expressions by name, as far as they are known."""
        given = {"energy": self.energy, "zenith": self.zenith, "weights": self.weights}
        return {name: expression for name, expression in given.items() if expression is not None}

    @property
    def columns(self) -> list[str]:
        """Columns that the expressions need."""
        return list(dict.fromkeys(name for text in self.expressions.values() for name in names_in(text)))

    def of_events(self, table: pd.DataFrame) -> tuple[FloatArray, ...]:
        """Return energies, zenith distances (45 deg where they are not known) and weights of events."""
        found = {name: evaluate(text, table).astype(np.float64) for name, text in self.expressions.items()}
        weights = found.get("weights", np.ones(len(table)))
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise EventFileError(f"weights {self.weights!r} must be finite and not negative for all simulated events")
        return found["energy"], found.get("zenith", np.full(len(table), 45.0)), weights


class _Tally:
    """Sums of weights, and of their squares, of each kind of events in bins."""

    def __init__(self, energy_edges: FloatArray, zenith_edges: FloatArray) -> None:
        self._energies, self._zeniths = energy_edges, zenith_edges
        shape = (len(KINDS), len(zenith_edges) - 1, len(energy_edges) - 1)
        self.counts, self.squares = np.zeros(shape), np.zeros(shape)
        self.n_outside = 0

    def add(self, truth: tuple[FloatArray, ...], valid: BoolArray, selected: BoolArray) -> None:
        """Add the events of a chunk."""
        energy, zenith, weights = truth
        column, row = _bin_numbers(energy, self._energies), _bin_numbers(zenith, self._zeniths)
        inside = (column >= 0) & (row >= 0)
        self.n_outside += int(np.count_nonzero(~inside))
        shape = self.counts.shape[1:]
        for number, own in enumerate((inside, inside & valid, inside & selected)):
            place = np.ravel_multi_index((row[own], column[own]), shape)
            for total, power in ((self.counts, 1), (self.squares, 2)):
                added = np.bincount(place, weights=weights[own] ** power, minlength=math.prod(shape))
                total[number] += added.reshape(shape)


class _BinTally:
    """Sums of weights, and of their squares, of events in the bins of a model with a threshold for each."""

    def __init__(self, model: OnOffBinnedClassifier, column: str) -> None:
        self._model, self._column = model, column
        self._sums = np.zeros((2, 2, len(model.edges) + 1))  # counts and squares, of valid and of selected events

    @classmethod
    def of(cls, trained: TrainedModel) -> _BinTally | None:
        """Return a tally for a model with bins; None for one without."""
        bins = trained.config.bins
        return None if bins is None else cls(trained.model, bins.column)

    def add(self, features: Features, weights: FloatArray, selected: BoolArray) -> None:
        """Add the events of a chunk that pass the quality cuts; images one by one, as their showers are selected."""
        events = pd.DataFrame(features.X[features.valid], columns=list(features.names))
        number = self._model.bin_numbers(events)
        chosen = selected[features.valid]
        for power, sums in zip((1, 2), self._sums, strict=True):
            own = weights[features.valid] ** power
            for total, rows in zip(sums, (np.ones(len(own), dtype=np.bool_), chosen), strict=True):
                total += np.bincount(number[rows], weights=own[rows], minlength=len(total))

    def counted(self) -> ModelBinCounts:
        """Return the sums."""
        counts, squares = (dict(zip(KINDS[1:], sums, strict=True)) for sums in self._sums)
        return ModelBinCounts(self._column, (-np.inf, *self._model.edges, np.inf), counts, squares)


def _bin_numbers(values: FloatArray, edges: FloatArray) -> Any:
    """Return the number of each value's bin, -1 for none; the last bin has its upper edge."""
    numbers = np.searchsorted(edges, values, side="right") - 1
    numbers[values == edges[-1]] = len(edges) - 2
    return np.where((numbers < len(edges) - 1) & ~np.isnan(values), numbers, -1)


def _find_ranges(
    truth: _Truth, paths: list[Path], chunk_rows: int, tick: Any
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the lowest and the highest finite energy and zenith distance."""
    lowest, highest = np.full(2, np.inf), np.full(2, -np.inf)
    for table in iter_events(paths, truth.columns, chunk_rows=chunk_rows):
        energy, zenith, _ = truth.of_events(table)
        energy = energy[energy > 0]  # which takes NaN away as well
        for number, values in enumerate((energy, zenith)):
            known = values[np.isfinite(values)]
            if len(known):
                lowest[number] = min(lowest[number], known.min())
                highest[number] = max(highest[number], known.max())
        tick(len(table))
    for number, (name, text) in enumerate((("energy", truth.energy), ("zenith distance", truth.zenith))):
        if lowest[number] > highest[number]:
            raise EventFileError(f"{paths[0]}: no simulated event has a finite {name} above 0: {text}")
    if lowest[1] < -1e-6 or highest[1] > 180:
        raise EventFileError(
            f"{paths[0]}: zenith distances {truth.zenith!r} are from {lowest[1]:.4g} to {highest[1]:.4g}, which are no "
            "angles in deg; give an expression, such as '90 - true_alt'"
        )
    return (float(lowest[0]), float(lowest[1])), (float(highest[0]), float(highest[1]))


def _energy_edges(bins: Bins, lowest: float, highest: float) -> FloatArray:
    """Return edges of bins in TeV."""
    if bins is None:
        first, last = (_PER_DECADE * math.log10(value) for value in (lowest, highest))
        # at whole numbers of bins per decade, also where the ends are such numbers but for rounding
        numbers = np.arange(math.floor(first + 1e-9), max(math.ceil(last - 1e-9), math.floor(first + 1e-9) + 1) + 1)
        edges = 10.0 ** (numbers / _PER_DECADE)
        edges[0], edges[-1] = min(edges[0], lowest), max(edges[-1], highest)
        return edges
    if _is_number(bins):
        n_bins = as_int("energy_bins", bins, minimum=1)
        edges = np.geomspace(lowest, max(highest, lowest * 1.01), n_bins + 1).astype(np.float64)
        edges[0] = lowest
        edges[-1] = max(edges[-1], highest)
        return edges
    return _checked_edges("energy_bins", bins, above=0.0)


def _zenith_edges(bins: Bins, lowest: float, highest: float) -> FloatArray:
    """Return edges of bins in deg."""
    if bins is None:
        first = math.floor(lowest / _ZENITH_STEP)
        numbers = np.arange(first, max(math.ceil(highest / _ZENITH_STEP), first + 1) + 1, dtype=np.float64)
        return _ZENITH_STEP * numbers
    if _is_number(bins):
        n_bins = as_int("zenith_bins", bins, minimum=1)
        return np.linspace(lowest, max(highest, lowest + 1e-6), n_bins + 1).astype(np.float64)
    return _checked_edges("zenith_bins", bins, above=-1e-9)


def _is_number(bins: Any) -> bool:
    return isinstance(bins, (int, np.integer)) and not isinstance(bins, bool)


def _checked_edges(argument: str, bins: Any, above: float) -> FloatArray:
    edges = as_floats(argument, bins)
    if edges.ndim != 1 or not 2 <= len(edges) <= _MAX_BINS or (np.diff(edges) <= 0).any() or edges[0] <= above:
        raise ArgumentError(argument, "must be a number of bins, or ascending edges of which none is negative or 0")
    return edges


def _refuse_seen(trained: TrainedModel, paths: list[Path]) -> None:
    """Raise ModelFileError if the model was trained on one of the files: its efficiency there would be too high."""
    seen = trained.seen_checksums
    for path in paths:
        if seen and sha256_of(path) in seen:
            raise ModelFileError(
                f"{trained.path or 'the model'}: was trained on {path}, and selects more of what it has seen; give "
                "simulated gammas that it has not"
            )
