"""The efficiency of a model: the fraction of simulated gammas that it selects, by energy and zenith distance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from excess._core.checks import FloatArray, as_choice, as_floats
from excess._core.errors import ArgumentError, EventFileError
from excess._core.files import prepare_folder, replacing
from excess.analysis.output_paths import check_outputs, made_folder
from excess.analysis.trained_model import TrainedModel
from excess.events.irf import multiply_effective_area, pointing_zenith, write_efficiency
from excess.report.efficiency_plot import plot_efficiency
from excess.stats.fractions import EventFraction, event_fraction
from excess.validation.detection_bins import bin_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Efficiency", "ModelBinCounts", "claim_efficiency_folder"]

_TABLE, _BIN_TABLE, _FITS = "efficiency.csv", "efficiency_by_bin.csv", "efficiency.fits"

OF = {"all": "efficiency", "quality": "cut_efficiency"}
"""What an efficiency is a fraction of, all events of the files or those that pass the quality cuts, and its name."""
KINDS = ("all", "quality", "selected")
"""Kinds of events that are counted; each is a part of the one before."""


class ModelBinCounts(NamedTuple):
    """Events in the bins of a model that has a threshold for each.

    Attributes
    ----------
    column : str
        What the bins are of, such as the estimated energy.
    edges : tuple of float
        Borders of the bins, from minus infinity to infinity.
    counts, squares : mapping of str to ndarray of shape (n_bins,)
        Sums of weights, and of their squares, of events that pass the ``"quality"`` cuts and of ``"selected"`` ones.
    """

    column: str
    edges: tuple[float, ...]
    counts: Mapping[str, FloatArray]
    squares: Mapping[str, FloatArray]

    @property
    def labels(self) -> tuple[str, ...]:
        """Texts of the bins."""
        return bin_labels(self.edges)


@dataclass(frozen=True, eq=False)
class Efficiency:
    """The fraction of simulated gammas that a model selects, in bins of zenith distance and true energy.

    Attributes
    ----------
    energy_edges : ndarray of shape (n_energies + 1,)
        In TeV.
    zenith_edges : ndarray of shape (n_zeniths + 1,)
        In deg.
    counts : mapping of str to ndarray of shape (n_zeniths, n_energies)
        Events, or sums of their weights: ``"all"`` in the files; those that pass the ``"quality"`` cuts and have all
        features; and those of them that are ``"selected"``.
    squares : mapping of str to ndarray of shape (n_zeniths, n_energies)
        Sums of squared weights of the same events; the counts again, where events have no weights.
    n_outside : int
        Events outside of all bins, or without a finite energy or zenith distance, which are counted nowhere else.
    confidence : float
        Probability of the intervals.
    expressions : mapping of str to str
        What ``"energy"``, ``"zenith"`` and ``"weights"`` were computed from, as far as they were.
    files : tuple of Path
        The simulated events.
    model : Path or None
        The file of the model.
    model_bins : ModelBinCounts or None
        Events in the bins of the model, where it has a threshold for each.

    See Also
    --------
    efficiency : Counts the events.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.analysis import Efficiency
    >>> counts = {"all": np.array([[200.0, 100.0]]), "quality": np.array([[160.0, 90.0]])}
    >>> counts["selected"] = np.array([[80.0, 60.0]])
    >>> energies, zeniths = np.array([0.1, 1.0, 10.0]), np.array([0.0, 30.0])
    >>> found = Efficiency(energies, zeniths, counts, counts, 0, 0.6827, {"energy": "mc_energy"})
    >>> found.fractions().value
    array([[0.4, 0.6]])
    >>> print(found.mean("quality"))
    0.560 (0.528 to 0.591)
    >>> found.at([0.03, 1.0]).round(2)  # TeV
    array([0.4, 0.5])
    """

    energy_edges: FloatArray
    zenith_edges: FloatArray
    counts: Mapping[str, FloatArray]
    squares: Mapping[str, FloatArray]
    n_outside: int
    confidence: float
    expressions: Mapping[str, str]
    files: tuple[Path, ...] = ()
    model: Path | None = None
    model_bins: ModelBinCounts | None = None

    def fractions(self, of: str = "all") -> EventFraction:
        """Return the efficiency in all bins, with arrays of shape (n_zeniths, n_energies).

        Parameters
        ----------
        of : {"all", "quality"}, default="all"
            What it is a fraction of: all events of the files, or those that pass the quality cuts.
        """
        return self._fraction(of, lambda values: values)

    def by_energy(self, of: str = "all") -> EventFraction:
        """Return the efficiency by energy, for all zenith distances together; arrays of shape (n_energies,)."""
        return self._fraction(of, lambda values: values.sum(axis=0))

    def by_zenith(self, of: str = "all") -> EventFraction:
        """Return the efficiency by zenith distance, for all energies together; arrays of shape (n_zeniths,)."""
        return self._fraction(of, lambda values: values.sum(axis=1))

    def mean(self, of: str = "all") -> EventFraction:
        """Return the efficiency of all events in the bins together, for the simulated spectrum and its weights."""
        return self._fraction(of, lambda values: values.sum())

    def by_model_bin(self) -> EventFraction:
        """Return the efficiency in each bin of the model, of events that pass the quality cuts; see ``model_bins``."""
        if self.model_bins is None:
            raise ValueError("the model has one threshold for all events, and so no bins")
        return self._fraction("quality", lambda values: values, self.model_bins)

    def _fraction(self, of: str, add: Any, counted: Any = None) -> EventFraction:
        as_choice("of", of, tuple(OF))
        own = self if counted is None else counted
        total, squares = add(own.counts[of]), add(own.squares[of])
        effective = np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0)
        # the sum of weights may exceed that of all events by rounding
        selected = np.minimum(add(own.counts["selected"]), total)
        return event_fraction(selected, total, n_effective=effective, confidence=self.confidence)

    @property
    def table(self) -> pd.DataFrame:
        """Bins as rows: edges in deg and TeV, counts, and both efficiencies with their intervals.

        ``efficiency`` is that of all events, ``cut_efficiency`` that of events which pass the quality cuts.
        """
        n_zeniths, n_energies = self.counts["all"].shape
        zeniths, energies = self.zenith_edges, self.energy_edges
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

    def at(self, energy: Any, zenith: float | None = None, of: str = "all") -> FloatArray:
        """Return the efficiency at energies, interpolated linearly in the logarithm of the energy.

        Parameters
        ----------
        energy : array-like of float
            In TeV. Beyond the centres of the first and the last bin with events, their values are taken.
        zenith : float or None, default=None
            In deg: the values of its bin, or of the nearest one that has events; None is the mean over all bins.
        of : {"all", "quality"}, default="all"
            As for `fractions`.

        Returns
        -------
        ndarray
            Of the shape of the energies.
        """
        if zenith is None:
            values = self.by_energy(of).value
        else:
            centres = (self.zenith_edges[1:] + self.zenith_edges[:-1]) / 2
            halves = (self.zenith_edges[1:] - self.zenith_edges[:-1]) / 2
            distance = np.maximum(abs(zenith - centres) - halves, 0)
            distance[self.counts[of].sum(axis=1) == 0] = np.inf
            values = self.fractions(of).value[int(np.argmin(distance))]
        known = ~np.isnan(values)
        centres = np.sqrt(self.energy_edges[1:] * self.energy_edges[:-1])
        return np.interp(np.log(as_floats("energy", energy)), np.log(centres[known]), values[known])

    def plot(self, *, of: str = "all", ax: Axes | None = None, path: str | PathLike[str] | None = None) -> Axes:
        """Plot the efficiency by energy, with points for each bin of zenith distances; see `plot_efficiency`."""
        found = self.fractions(of)
        names = [
            f"zenith {low:g} to {high:g} deg"
            for low, high in zip(self.zenith_edges[:-1], self.zenith_edges[1:], strict=True)
        ]
        if "zenith" not in self.expressions:
            names = ["all zenith distances"]
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
        overwrite: bool = False,
    ) -> list[Path]:
        """Write ``efficiency.csv``, ``efficiency.fits`` and the plot into a folder, and return the files.

        A model with bins has ``efficiency_by_bin.csv``, too.

        Parameters
        ----------
        folder : path
            Made if it is not there.
        of : {"all", "quality"}, default="all"
            As for `fractions`, for the plot; the tables have both.
        plots : tuple of {"png", "pdf", "svg"}, default=("png",)
            Formats of the plot.
        overwrite : bool, default=False
            Replace files that are there.
        """
        target = Path(folder)
        check_outputs(_files_in(target, self.model_bins is not None, plots), self._inputs, overwrite=overwrite)
        tables = {target / _TABLE: self.table}
        if self.model_bins is not None:
            tables[target / _BIN_TABLE] = self._model_bin_table()
        fits = target / _FITS
        drawn = [target / f"efficiency.{suffix}" for suffix in plots]
        prepare_folder(target)
        for path, table in tables.items():
            with replacing(path) as temporary:
                table.to_csv(temporary, index=False)
        columns = {f"N_{kind.upper()}": self.counts[kind] for kind in KINDS}
        for kind, name in (("all", "EFFICIENCY"), ("quality", "CUT_EFF")):
            own = self.fractions(kind)
            short = name.removesuffix("ICIENCY")
            columns |= {name: own.value, f"{short}_ERR": own.error, f"{short}_LOW": own.low, f"{short}_HIGH": own.high}
        write_efficiency(fits, self.energy_edges, self.zenith_edges, columns, self._remarks)
        for path in drawn:
            self.plot(of=of, path=path)
        return [*tables, fits, *drawn]

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

        The area in every bin, at every offset from the pointing, is multiplied by `at` the geometric centre of its
        energies. All other tables stay as they are. That is right where the area is that of the events which the model
        selects from: simulated, triggered and cut as the simulated gammas here, before any other separation of gammas
        and hadrons.

        Parameters
        ----------
        file : path
            FITS file of gamma-astro-data-formats with a table of effective areas.
        output : path
            File to write, or a folder.
        zenith : float or None, default=None
            Zenith distance in deg; by default that of the pointing in the file, or the mean over all where the file
            does not say.
        of : {"all", "quality"}, default="all"
            ``"quality"`` where the area is that of events that pass the quality cuts of the model.
        overwrite : bool, default=False
            Replace a file that is there.
        """
        source = Path(file)
        if not source.is_file():
            raise EventFileError(f"{source}: does not exist")
        target = Path(output) / source.name if Path(output).is_dir() else Path(output)
        check_outputs([target], [source, *self._inputs], overwrite=overwrite)
        prepare_folder(target.parent)
        angle = pointing_zenith(source) if zenith is None else zenith
        where = "all zenith distances" if angle is None else f"zenith distance {angle:.1f} deg"
        history = (f"EFFAREA times the efficiency of a cut, {OF[of]} at {where}.", *self._remarks)
        multiply_effective_area(source, target, lambda energy: self.at(energy, angle, of), of, history)
        return target

    def describe(self) -> dict[str, Any]:
        """Return all numbers for scripts: the bins as columns, the means, and what they were computed from."""
        return {
            "mean": {name: self.mean(of)._asdict() for of, name in OF.items()},
            "n_events": {kind: float(self.counts[kind].sum()) for kind in KINDS},
            "n_outside": self.n_outside,
            "confidence": self.confidence,
            "expressions": dict(self.expressions),
            "bins": self.table.to_dict("list"),
            "model_bins": None if self.model_bins is None else self._model_bin_table().to_dict("list"),
        }

    def _model_bin_table(self) -> pd.DataFrame:
        """Return the bins of the model as rows."""
        bins = self.model_bins
        assert bins is not None
        value, low, high = self.by_model_bin()
        found: dict[str, Any] = {bins.column: bins.labels}
        found |= {f"n_{kind}": bins.counts[kind] for kind in KINDS[1:]}
        return pd.DataFrame({**found, "cut_efficiency": value, "cut_efficiency_low": low, "cut_efficiency_high": high})

    @property
    def _inputs(self) -> list[Path]:
        return [*self.files, *([] if self.model is None else [self.model])]

    @property
    def _remarks(self) -> tuple[str, ...]:
        """What the numbers are, for headers."""
        computed = ", ".join(f"{name}: {expression}" for name, expression in self.expressions.items())
        return (
            "EFFICIENCY is the fraction of simulated gammas that the model selects, CUT_EFF that of those which pass "
            f"its quality cuts; intervals of Wilson with probability {self.confidence:g}; {computed}.",
            f"model: {'' if self.model is None else self.model.name}; gammas: {', '.join(p.name for p in self.files)}.",
        )


def _files_in(folder: Path, has_bins: bool, plots: Sequence[str]) -> list[Path]:
    """Return what an efficiency is written to."""
    tables = [_TABLE, _BIN_TABLE] if has_bins else [_TABLE]
    return [folder / name for name in (*tables, _FITS, *(f"efficiency.{suffix}" for suffix in plots))]


@contextmanager
def claim_efficiency_folder(
    folder: str | PathLike[str],
    model: TrainedModel,
    files: Iterable[str | PathLike[str]],
    *,
    areas: Iterable[str | PathLike[str]] = (),
    plots: Sequence[str] = ("png",),
    overwrite: bool = False,
) -> Iterator[Path]:
    """Make the folder of an efficiency, and refuse what could not be written, before any event is read.

    Parameters
    ----------
    folder : path
        Made if it is not there, and removed again if the work ends by an error before anything is in it.
    model : TrainedModel
        The model whose efficiency is to be counted.
    files : iterable of path
        Simulated gammas; these and the model are never replaced.
    areas : iterable of path
        FITS files with effective areas, of which corrected copies go into the folder.
    plots, overwrite
        As for `Efficiency.write`.

    Yields
    ------
    Path
        The folder.

    Raises
    ------
    EventFileError
        If a file is there already, would replace an input, or if the folder cannot be used.
    ArgumentError
        If the copy of an effective area would have the name of a file of the efficiency.
    """
    target, given = Path(folder), [Path(path) for path in areas]
    for path in given:
        if not path.is_file():
            raise EventFileError(f"{path}: does not exist")
    inputs = [*files, *given, *([] if model.path is None else [model.path])]
    outputs = _files_in(target, model.config.bins is not None, plots)
    for path in given:
        if target / path.name in outputs:
            raise ArgumentError(
                "areas", f"has {path}, whose copy would replace {path.name} of the efficiency itself; rename the file"
            )
    check_outputs([*outputs, *(target / path.name for path in given)], inputs, overwrite=overwrite)
    with made_folder(target):
        yield target
