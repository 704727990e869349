"""Efficiency of a model: the fraction of simulated gammas that it selects, by energy and zenith distance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.checks import BoolArray, FloatArray, as_choice, as_floats, as_int, as_probability
from excess._utils.errors import ArgumentError, EventFileError, prefix_errors
from excess._utils.files import check_outputs, locked, made_folder, prepare_folder, replacing_together, undo_unfinished
from excess._utils.threads import progress_bar
from excess.analysis import _apply
from excess.analysis._apply import FoldModels, TrainedModel, load_models
from excess.analysis._detect import check_simulated_columns
from excess.config._columns import checked_expression, energy_expression, evaluate, names_in, zenith_expression
from excess.config._model import Features, to_features
from excess.detection._result import bin_labels
from excess.estimators._model_file import ModelFileError
from excess.io._fits import multiply_effective_area, pointing_zenith, read_event_columns, write_efficiency
from excess.io._reading import describe, iter_events
from excess.report._figures import plot_efficiency
from excess.stats._significance import ONE_SIGMA, EventFraction, event_fraction

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_PER_DECADE = 10
_ZENITH_STEP = 10.0
_MAX_BINS = 10_000
_SHOWER_KEYS = ["obs_id", "event_id"]
_TABLE, _BIN_TABLE, _FITS = "efficiency.csv", "efficiency_by_bin.csv", "efficiency.fits"
_FOLD_TABLE = "efficiency_by_fold.csv"

OF = {"all": "efficiency", "quality": "cut_efficiency"}  # denominators, and the names of the fractions
KINDS = ("all", "quality", "selected")  # nested event samples, from largest to smallest

Bins = int | Sequence[float] | FloatArray | None


@dataclass(frozen=True, eq=False)
class BinCounts:
    """Sums of weights and of squared weights of each sample in bins of one or two variables."""

    edges: tuple[FloatArray, ...]
    counts: Mapping[str, FloatArray]
    squares: Mapping[str, FloatArray]

    @classmethod
    def mean(cls, parts: Sequence[BinCounts]) -> BinCounts:
        """Return the mean of counts of the same events by several models."""
        sums = (
            {kind: np.mean([getattr(one, name)[kind] for one in parts], axis=0) for kind in KINDS}
            for name in ("counts", "squares")
        )
        return cls(parts[0].edges, *sums)

    @classmethod
    def zeros(cls, *edges: FloatArray, kinds: Sequence[str] = KINDS) -> BinCounts:
        """Return empty bins."""
        shape = tuple(len(own) - 1 for own in edges)
        return cls(edges, *({kind: np.zeros(shape) for kind in kinds} for _ in range(2)))

    def add(self, values: Sequence[FloatArray], weights: FloatArray, passed: Mapping[str, BoolArray]) -> None:
        """Add events to the sums in place, given the values to bin, their weights, and a mask for each sample."""
        points = np.column_stack(values)
        for kind, mask in passed.items():
            for total, power in ((self.counts, 1), (self.squares, 2)):
                total[kind][...] += np.histogramdd(points[mask], self.edges, weights=weights[mask] ** power)[0]

    def fraction(self, of: str, confidence: float, axis: int | tuple[int, ...] | None = ()) -> EventFraction:
        """Return the fraction of selected events, summed over the given axes of the bins (None for all axes)."""
        as_choice("of", of, tuple(OF))
        total, squares, selected = (
            np.sum(own, axis=axis) for own in (self.counts[of], self.squares[of], self.counts["selected"])
        )
        effective = np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0)
        # the sum of weights may exceed that of all events by rounding
        return event_fraction(np.minimum(selected, total), total, n_effective=effective, confidence=confidence)


@dataclass(frozen=True, eq=False)
class Efficiency:
    """Fraction of simulated gammas selected by a model, in bins of zenith distance and true energy.

    For the models of a cross-validation it is the mean over ``folds``. With event types, ``types`` contains the
    efficiency of each, the most signal-like first; ``type_edges`` are the signal probabilities between them, in
    ascending order.
    """

    bins: BinCounts
    n_outside: int
    confidence: float
    expressions: Mapping[str, str]
    files: tuple[Path, ...] = ()
    model: Path | None = None
    model_bins: BinCounts | None = None
    model_bin_column: str = ""
    folds: tuple[Efficiency, ...] = ()
    types: tuple[Efficiency, ...] = ()
    type_edges: tuple[float, ...] = ()

    @property
    def counts(self) -> Mapping[str, FloatArray]:
        """Events, or sums of their weights, by sample: arrays of shape (n_zeniths, n_energies)."""
        return self.bins.counts

    @property
    def zenith_edges(self) -> FloatArray:
        """Edges of the bins of zenith distance in deg."""
        return self.bins.edges[0]

    @property
    def energy_edges(self) -> FloatArray:
        """Edges of the bins of energy in TeV."""
        return self.bins.edges[1]

    @property
    def model_bin_labels(self) -> tuple[str, ...]:
        """Labels of the bins of the model; empty for a model without bins."""
        return () if self.model_bins is None else bin_labels(self.model_bins.edges[0].tolist())

    def fractions(self, of: str = "all") -> EventFraction:
        """Return the efficiency in all bins, relative to all events or to those that pass the quality cuts."""
        return self.bins.fraction(of, self.confidence)

    def by_energy(self, of: str = "all") -> EventFraction:
        """Return the efficiency by energy, for all zenith distances together."""
        return self.bins.fraction(of, self.confidence, axis=0)

    def by_zenith(self, of: str = "all") -> EventFraction:
        """Return the efficiency by zenith distance, for all energies together."""
        return self.bins.fraction(of, self.confidence, axis=1)

    def mean(self, of: str = "all") -> EventFraction:
        """Return the efficiency of all events in the bins together, for the simulated spectrum and its weights."""
        return self.bins.fraction(of, self.confidence, axis=None)

    def by_model_bin(self) -> EventFraction:
        """Return the efficiency in each bin of the model, relative to events that pass the quality cuts."""
        if self.model_bins is None:
            raise ValueError("the model has no bins, but one threshold for all events")
        return self.model_bins.fraction("quality", self.confidence)

    @property
    def table(self) -> pd.DataFrame:
        """Bins as rows: edges in deg and TeV, counts, and both efficiencies with their intervals."""
        n_zeniths, n_energies = self.counts["all"].shape
        zeniths, energies = self.bins.edges
        found: dict[str, Any] = {
            "zenith_low": np.repeat(zeniths[:-1], n_energies),
            "zenith_high": np.repeat(zeniths[1:], n_energies),
            "energy_low": np.tile(energies[:-1], n_zeniths),
            "energy_high": np.tile(energies[1:], n_zeniths),
            **{f"n_{kind}": self.counts[kind].reshape(-1) for kind in KINDS},
        }
        for of, name in OF.items():
            value, low, high = (array.reshape(-1) for array in self.fractions(of))
            found |= {name: value, f"{name}_low": low, f"{name}_high": high}
        return pd.DataFrame(found)

    @property
    def part_table(self) -> pd.DataFrame | None:
        """The rows of ``table`` for each fold and event type; None if there are neither."""
        parts = []
        for fold, own in enumerate(self.folds or (self,)):
            for number, one in enumerate(own.types or (own,), start=1):
                names = ({"fold": fold} if self.folds else {}) | ({"event_type": number} if own.types else {})
                parts.append(one.table.assign(**names)[[*names, *one.table.columns]])
        return pd.concat(parts, ignore_index=True) if self.folds or self.types else None

    @property
    def model_bin_table(self) -> pd.DataFrame | None:
        """The bins of the model as rows; None for a model without bins."""
        if self.model_bins is None:
            return None
        value, low, high = self.by_model_bin()
        found: dict[str, Any] = {self.model_bin_column: self.model_bin_labels}
        found |= {f"n_{kind}": self.model_bins.counts[kind] for kind in KINDS[1:]}
        return pd.DataFrame({**found, "cut_efficiency": value, "cut_efficiency_low": low, "cut_efficiency_high": high})

    def at(self, energy: Any, zenith: float | None = None, of: str = "all") -> FloatArray:
        """Return the efficiency at energies in TeV, interpolated linearly in the logarithm of the energy."""
        if zenith is None:
            values = self.by_energy(of).value
        else:
            low, high = self.zenith_edges[:-1], self.zenith_edges[1:]
            distance = np.maximum(np.maximum(low - zenith, zenith - high), 0.0)
            distance[self.counts[of].sum(axis=1) == 0] = np.inf
            values = self.fractions(of).value[int(np.argmin(distance))]
        known = ~np.isnan(values)
        centres = np.sqrt(self.energy_edges[1:] * self.energy_edges[:-1])
        return np.interp(np.log(as_floats("energy", energy)), np.log(centres[known]), values[known])

    def plot(self, *, of: str = "all", ax: Axes | None = None, path: str | PathLike[str] | None = None) -> Axes:
        """Plot the efficiency by energy, with points for each bin of zenith distances; see `plot_efficiency`."""
        found, edges = self.fractions(of), self.zenith_edges
        names = [f"zenith {low:g} to {high:g} deg" for low, high in pairwise(edges)]
        names = names if "zenith" in self.expressions else ["all zenith distances"]
        filled = [number for number in range(len(names)) if self.counts[of][number].any()]
        lines = {names[number]: EventFraction(*(array[number] for array in found)) for number in filled}
        label = "efficiency of all cuts" if of == "all" else "efficiency after quality cuts"
        return plot_efficiency(self.energy_edges, lines, self.mean(of), label=label, ax=ax, path=path)

    def write(
        self,
        folder: str | PathLike[str],
        *,
        of: str = "all",
        plots: tuple[str, ...] = ("png",),
        areas: Sequence[str | PathLike[str]] = (),
        overwrite: bool = False,
    ) -> list[Path]:
        """Write tables as CSV and FITS, plots, and files of effective areas times the efficiency; all or nothing."""
        target, parts = prepare_folder(Path(folder)), self.part_table
        copies = area_copies(areas, len((self.folds or (self,))[0].types))
        outputs = _files_in(target, self.model_bins is not None, parts is not None, plots, copies)
        columns = {f"N_{kind.upper()}": self.counts[kind] for kind in KINDS}
        for kind, name, short in (("all", "EFFICIENCY", "EFF"), ("quality", "CUT_EFF", "CUT_EFF")):
            own = self.fractions(kind)
            columns |= {name: own.value, f"{short}_ERR": own.error, f"{short}_LOW": own.low, f"{short}_HIGH": own.high}
        with locked(target, ".writing.lock", patience=60.0):
            undo_unfinished(target, names := [str(path.relative_to(target)) for path in outputs])
            check_outputs(outputs, [*self._inputs, *areas], overwrite=overwrite)
            with replacing_together(target, names) as temporary:
                for name, table in ((_TABLE, self.table), (_BIN_TABLE, self.model_bin_table), (_FOLD_TABLE, parts)):
                    if table is not None:
                        table.to_csv(temporary / name, index=False)
                write_efficiency(temporary / _FITS, self.energy_edges, self.zenith_edges, columns, self._remarks)
                for suffix in plots:
                    self.plot(of=of, path=temporary / f"efficiency.{suffix}")
                for area in areas:
                    self.correct_effective_area(area, temporary, of=of)
        return outputs

    def correct_effective_area(
        self,
        file: str | PathLike[str],
        output: str | PathLike[str],
        *,
        zenith: float | None = None,
        of: str = "all",
        overwrite: bool = False,
    ) -> Path:
        """Write a copy of a FITS file whose effective area is multiplied by the efficiency, and return its path.

        If the events of the file are scored, as by `apply`, the copy contains the selected events only, consistent with
        the area. The models of a cross-validation require scored events with known folds. With event types, events and
        area of each type are written to ``type_1``, ``type_2`` and so on, and the path of the first is returned.
        """
        source = Path(file)
        if not source.is_file():
            raise EventFileError(f"{source}: does not exist")
        target = Path(output) / source.name if Path(output).is_dir() else Path(output)
        targets = [target.parent / copy for copy in area_copies([target], len((self.folds or (self,))[0].types))]
        check_outputs(targets, [source, *self._inputs], overwrite=overwrite)
        angle = pointing_zenith(source) if zenith is None else zenith
        where = "all zenith distances" if angle is None else f"zenith distance {angle:.1f} deg"
        parts, columns = self.folds or (self,), _apply.OutputColumns.of(_apply.PREFIX)
        scored = read_event_columns(source, (columns.signal_probability, columns.selected, columns.fold))
        fold = scored.get(columns.fold) if self.folds else np.zeros(len(next(iter(scored.values()), ())), dtype=np.intp)
        if fold is None or (len(targets) > 1 and columns.signal_probability not in scored):
            needed = "use the files of 'excess detect --write-events'"
            raise EventFileError(f"{source}: its events have no scores and folds; {needed}")
        if len(fold) and not 0 <= fold.min() <= fold.max() < len(parts):
            raise EventFileError(f"{source}: was not scored by these models, which have {len(parts)} folds")
        share = np.bincount(fold, minlength=len(parts)) + 1e-12  # equal without events
        share /= share.sum()
        kind = np.zeros(len(fold), dtype=np.int16)  # 0 where there is no score
        for number, one in enumerate(parts if len(targets) > 1 else ()):
            own = (fold == number) & np.isfinite(scored[columns.signal_probability])
            kind[own] = one.type_of(scored[columns.signal_probability][own])
        for number, path in enumerate(targets):
            prepare_folder(path.parent)
            used = [one.types[number] if one.types else one for one in parts]
            what = f"event type {number + 1} of {len(targets)}" if len(targets) > 1 else "a cut"
            history = (f"EFFAREA times the efficiency of {what}, {OF[of]} at {where}.", *self._remarks)

            def factor(energy: FloatArray, used: list[Efficiency] = used) -> FloatArray:
                return np.sum([w * one.at(energy, angle, of) for w, one in zip(share, used, strict=True)], axis=0)

            several = len(targets) > 1
            rows = kind == number + 1 if several else scored.get(columns.selected)
            multiply_effective_area(source, path, factor, of, history, rows, {"EVENT_TYPE": kind} if several else {})
        return targets[0]

    def type_of(self, probability: FloatArray) -> NDArray[np.integer]:
        """Return the event types of signal probabilities, 1 for the most signal-like."""
        return len(self.type_edges) + 1 - np.searchsorted(self.type_edges, probability, side="right")

    def describe(self) -> dict[str, Any]:
        """Return all numbers for scripts: the bins as columns, the means, and their provenance."""
        by_bin = self.model_bin_table
        return {
            "mean": {name: self.mean(of)._asdict() for of, name in OF.items()},
            "n_events": {kind: float(self.counts[kind].sum()) for kind in KINDS},
            "n_outside": self.n_outside,
            "confidence": self.confidence,
            "expressions": dict(self.expressions),
            "bins": self.table.to_dict("list"),
            "model_bins": None if by_bin is None else by_bin.to_dict("list"),
        }

    @property
    def _inputs(self) -> list[Path]:
        return [*self.files, *([] if self.model is None else [self.model])]

    @property
    def _remarks(self) -> tuple[str, ...]:
        """Description of the columns for file headers."""
        computed = ", ".join(f"{name}: {expression}" for name, expression in self.expressions.items())
        return (
            "EFFICIENCY is the fraction of simulated gammas that the model selects, CUT_EFF that of those which pass "
            f"its quality cuts; intervals of Wilson with probability {self.confidence:g}; {computed}.",
            f"model: {'' if self.model is None else self.model.name}; gammas: {', '.join(p.name for p in self.files)}.",
        )


def efficiency(
    model: TrainedModel | FoldModels | str | PathLike[str],
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    event_types: int = 0,
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
    """Compute the fraction of simulated gammas selected by a model, in bins of true energy and zenith distance.

    The files are read twice, for the ranges of the bins and for the events, in constant memory. There is no cut on the
    direction: all gammas of the files count, inside or outside the On region. If rows are telescope images, because the
    model uses image parameters, showers are counted: a shower is selected if the mean score of its images exceeds the
    threshold.

    Parameters
    ----------
    model : TrainedModel, FoldModels or path
        From `train`, or its file; or the folder of a run with ``write_events``, which has one model per fold.
    files : path or sequence of paths
        Simulated gammas, with the columns of the model's features and quality cuts.
    event_types : int, default=0
        Number of event types: quantiles of the signal probability of the gammas, each with its own efficiency.
    energy : str or None, default=None
        Column of true energies, or an expression of columns, in TeV; by default a known column, such as
        ``true_energy``, ``mc_energy`` or FACT's ``corsika_event_header_total_energy`` (which is in GeV).
    zenith : str or None, default=None
        The same for zenith distances in deg, such as ``"90 - true_alt"``; a single bin if no column is known.
    weights : str or None, default=None
        Column or expression of event weights, such as those of another spectrum.
    energy_bins, zenith_bins : int, sequence of float or None, default=None
        Number of bins, with energy bins of equal width in the logarithm, or their edges in TeV and in deg; by default
        ten per decade, and bins of 10 deg.
    confidence : float, default=0.6827
        Coverage probability of the intervals, by default that of one standard deviation.
    chunk_rows, n_jobs, verbose
        As for `apply`.

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
    >>> from excess.analysis import OnOffDataset, efficiency, train
    >>> from excess.io import write_events
    >>> from excess.dataset import simulate_labelled, simulate_observation
    >>> trained = train(OnOffDataset.from_files(simulate_observation(60_000, 400, random_state=0)), "li-ma-tree")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_events(simulate_labelled(5_000, 0, random_state=1), Path(folder, "gammas.csv"))
    ...     found = efficiency(trained, Path(folder, "gammas.csv"), energy="size / 100", energy_bins=[0.5, 1, 2, 4, 8])
    >>> print(found.mean())
    0.924 (0.920 to 0.928)
    """
    as_probability("confidence", confidence)
    as_int("event_types", event_types, minimum=0)
    trained = load_models(model, n_jobs=n_jobs)
    models = trained.models if isinstance(trained, FoldModels) else (trained,)
    paths = [Path(path) for path in ([files] if isinstance(files, (str, PathLike)) else files)]
    described = [describe(path) for path in paths]
    for path in paths:
        if models[0].has_seen(path):  # the efficiency would be overestimated
            given = f"was trained on {path}; use other simulated gammas"
            raise ModelFileError(f"{models[0].path or 'the model'}: {given}")
        check_simulated_columns(path, trained.config.columns_needed())
    truth = _Truth.of(described[0].columns, energy, zenith, weights)
    needed = [*trained.config.columns_needed(), *truth.columns]
    # rows are images of showers if a required column exists for images only
    keys = [] if set(needed) <= set(described[0].columns) else _SHOWER_KEYS
    total, bins = sum(found.n_events for found in described), trained.config.bins
    n_outside = 0
    with progress_bar("Counting simulated gammas", 2 * total, shown=verbose) as tick:
        lowest, highest = _find_ranges(truth, paths, chunk_rows, tick)
        energies = _energy_edges(energy_bins, lowest[0], highest[0])
        zeniths = np.array([0.0, 90.0])
        if truth.zenith is not None:
            zeniths = _zenith_edges(zenith_bins, lowest[1], highest[1])
        tallies = []
        for one in models:
            edges = None if bins is None else np.array([-np.inf, *one.model.edges, np.inf])
            by_bin = None if edges is None else BinCounts.zeros(edges, kinds=KINDS[1:])
            tallies.append(_Tally(one, BinCounts.zeros(zeniths, energies), event_types, by_bin))
        for table in iter_events(paths, list(dict.fromkeys([*needed, *keys])), chunk_rows=chunk_rows):
            with prefix_errors(str(table.attrs.get("file", paths[0]))):
                features, known = to_features(table, trained.config), truth.of_events(table)
                shower = table.groupby(keys, sort=False).ngroup().to_numpy() if keys else None
                beyond = [one.add(features, known, shower) for one in tallies]  # the same for all
                n_outside += beyond[0]
            tick(len(table))
    counted = BinCounts.mean([one.counted for one in tallies])
    if counted.counts["all"].sum() == 0:
        energies_text = f"energies are from {lowest[0]:.4g} to {highest[0]:.4g} TeV: {truth.energy}"
        raise EventFileError(f"{paths[0]}: none of {total:,} simulated events is in the bins; {energies_text}")
    about = (n_outside, confidence, truth.expressions, tuple(paths), trained.path)
    found = [one.result(about, "" if bins is None else bins.column) for one in tallies]
    if not isinstance(trained, FoldModels):
        return found[0]
    types = tuple(
        replace(own[0], bins=BinCounts.mean([one.bins for one in own]))
        for own in zip(*(one.types for one in found), strict=True)
    )
    return Efficiency(counted, *about, folds=tuple(found), types=types)


@dataclass(eq=False)
class _Tally:
    """Counts of the gammas selected by one model, and with event types the signal probabilities of all."""

    trained: TrainedModel
    counted: BinCounts
    n_types: int
    by_bin: BinCounts | None
    kept: list[tuple[FloatArray, ...]] = field(default_factory=list)

    def add(self, features: Features, known: tuple[FloatArray, ...], shower: NDArray[np.integer] | None) -> int:
        """Count events, or showers of images if given; return the number of events outside all bins."""
        scores = _apply.score_features(self.trained.model, features)
        bins, valid, selected = self.trained.config.bins, features.valid, scores.selected
        if shower is not None:
            first = np.unique(shower, return_index=True)[1]  # a chunk contains all images of a shower
            scores = _apply.score_showers(self.trained.model, scores, shower, len(first))
            valid, selected = np.isfinite(scores.score), scores.selected[shower]
        if bins is not None and self.by_bin is not None:
            # images are counted one by one, as their showers are selected
            own = features.valid
            passed = {"quality": np.ones(np.count_nonzero(own), bool), "selected": selected[own]}
            self.by_bin.add([features.X[own, features.names.index(bins.column)]], known[2][own], passed)
        if shower is not None:
            known, selected = tuple(values[first] for values in known), scores.selected
        energy, zenith, weight = known
        inside = _within(energy, self.counted.edges[1]) & _within(zenith, self.counted.edges[0])
        passed = {"all": inside, "quality": inside & valid, "selected": inside & selected}
        self.counted.add([zenith, energy], weight, passed)
        if self.n_types:
            used = passed["quality"]
            self.kept.append(tuple(own[used] for own in (zenith, energy, weight, scores.signal_probability)))
        return int(np.count_nonzero(~inside))

    def result(self, about: tuple[Any, ...], bin_column: str) -> Efficiency:
        """Return the efficiency, with that of each event type."""
        found = replace(Efficiency(self.counted, *about), model_bins=self.by_bin, model_bin_column=bin_column)
        if not self.n_types:
            return found
        zenith, energy, weight, probability = (np.concatenate(own) for own in zip(*self.kept, strict=True))
        order = np.argsort(probability, kind="stable")
        share = np.cumsum(weight[order]) / weight.sum()
        levels = np.arange(1, self.n_types) / self.n_types
        edges = probability[order][np.minimum(np.searchsorted(share, levels), len(order) - 1)]
        if len(np.unique(edges)) < len(edges) or (len(edges) and edges[0] <= probability.min()):
            raise ArgumentError("event_types", "is too large: too many gammas have the same signal probability")
        found = replace(found, type_edges=tuple(edges.tolist()))
        kind, types = found.type_of(probability), []
        for number in range(1, self.n_types + 1):
            own = BinCounts.zeros(*self.counted.edges)
            own.add([zenith, energy], weight, {"selected": kind == number})
            for name in ("counts", "squares"):
                getattr(own, name).update({key: getattr(self.counted, name)[key] for key in ("all", "quality")})
            types.append(Efficiency(own, *about))
        return replace(found, types=tuple(types))


def _within(values: FloatArray, edges: FloatArray) -> BoolArray:
    """Return whether values are in any bin; False for NaN."""
    return np.asarray((values >= edges[0]) & (values <= edges[-1]))


@dataclass(frozen=True)
class _Truth:
    """Expressions of true quantities of simulated events."""

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
        """Known expressions by name."""
        given = {"energy": self.energy, "zenith": self.zenith, "weights": self.weights}
        return {name: expression for name, expression in given.items() if expression is not None}

    @property
    def columns(self) -> list[str]:
        """Columns required by the expressions."""
        return list(dict.fromkeys(name for text in self.expressions.values() for name in names_in(text)))

    def of_events(self, table: pd.DataFrame) -> tuple[FloatArray, ...]:
        """Return energies, zenith distances (45 deg if unknown) and weights of events."""
        found = {name: evaluate(text, table).astype(np.float64) for name, text in self.expressions.items()}
        weights = found.get("weights", np.ones(len(table)))
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise EventFileError(f"weights {self.weights!r} must be finite and non-negative for all simulated events")
        return found["energy"], found.get("zenith", np.full(len(table), 45.0)), weights


def _find_ranges(truth: _Truth, paths: list[Path], chunk_rows: int, tick: Any) -> tuple[list[float], list[float]]:
    """Return the minimum and maximum finite energy and zenith distance."""
    lowest, highest = np.full(2, np.inf), np.full(2, -np.inf)
    for table in iter_events(paths, truth.columns, chunk_rows=chunk_rows):
        energy, zenith, _ = truth.of_events(table)
        energy = energy[energy > 0]  # also removes NaN
        for number, values in enumerate((energy, zenith)):
            known = values[np.isfinite(values)]
            lowest[number] = known.min(initial=lowest[number])
            highest[number] = known.max(initial=highest[number])
        tick(len(table))
    for number, (name, text) in enumerate((("energy", truth.energy), ("zenith distance", truth.zenith))):
        if lowest[number] > highest[number]:
            raise EventFileError(f"{paths[0]}: no simulated event has a finite {name} above 0: {text}")
    if lowest[1] < -1e-6 or highest[1] > 180:
        wrong = f"are from {lowest[1]:.4g} to {highest[1]:.4g}, which are not angles in deg"
        raise EventFileError(f"{paths[0]}: zenith distances {truth.zenith!r} {wrong}; use e.g. '90 - true_alt'")
    return lowest.tolist(), highest.tolist()


def _energy_edges(bins: Bins, lowest: float, highest: float) -> FloatArray:
    """Return edges of bins in TeV."""
    if bins is None:
        first, last = (_PER_DECADE * math.log10(value) for value in (lowest, highest))
        # at whole numbers of bins per decade, allowing for rounding at the ends
        numbers = np.arange(math.floor(first + 1e-9), max(math.ceil(last - 1e-9), math.floor(first + 1e-9) + 1) + 1)
        edges = 10.0 ** (numbers / _PER_DECADE)
        edges[0], edges[-1] = min(edges[0], lowest), max(edges[-1], highest)
        return edges
    if _is_number(bins):
        n_bins = as_int("energy_bins", bins, minimum=1)
        edges = np.geomspace(lowest, max(highest, lowest * 1.01), n_bins + 1).astype(np.float64)
        edges[0], edges[-1] = lowest, max(edges[-1], highest)
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
        raise ArgumentError(argument, "must be a number of bins, or ascending positive edges")
    return edges


def area_copies(areas: Iterable[str | PathLike[str]], n_types: int) -> list[Path]:
    """Return paths for copies of files with effective areas: in one folder per event type."""
    names = [Path(Path(path).name) for path in areas]
    return [Path(f"type_{number}") / name for name in names for number in range(1, n_types + 1)] or names


def _files_in(
    folder: Path, has_bins: bool, has_parts: bool, plots: Sequence[str], copies: Iterable[Path]
) -> list[Path]:
    """Return the output files of an efficiency."""
    tables = [_TABLE, *([_BIN_TABLE] if has_bins else []), *([_FOLD_TABLE] if has_parts else [])]
    return [
        folder / name for name in (*tables, _FITS, *(f"efficiency.{suffix}" for suffix in plots), *map(str, copies))
    ]


@contextmanager
def claim_efficiency_folder(
    folder: str | PathLike[str],
    model: TrainedModel | FoldModels,
    files: Iterable[str | PathLike[str]],
    *,
    areas: Iterable[str | PathLike[str]] = (),
    event_types: int = 0,
    plots: Sequence[str] = ("png",),
    overwrite: bool = False,
) -> Iterator[Path]:
    """Create the folder of an efficiency, and raise an error for invalid outputs before events are read."""
    target, given = Path(folder), [Path(path) for path in areas]
    for path in given:
        if not path.is_file():
            raise EventFileError(f"{path}: does not exist")
    inputs = [*files, *given, *([] if model.path is None else [model.path])]
    by_fold = isinstance(model, FoldModels)
    has_bins = model.config.bins is not None and not by_fold
    copies = area_copies(given, event_types)
    outputs = _files_in(target, has_bins, by_fold or event_types > 0, plots, copies)
    for path in given:
        if outputs.count(target / path.name) > 1:
            raise ArgumentError("areas", f"has {path}, which has the name of an output file; rename it")
    with made_folder(target), locked(target):
        undo_unfinished(target, [str(path.relative_to(target)) for path in outputs])
        check_outputs(outputs, inputs, overwrite=overwrite)
        yield target
