"""Scans: On moved along a column or across the sky, with a p-value for the search in all positions."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from excess._utils.checks import FloatArray, as_int
from excess._utils.errors import ArgumentError, MismatchError
from excess._utils.files import check_outputs, prepare_folder, replacing, write_text
from excess._utils.rng import row_hashes
from excess._utils.threads import map_threaded, n_threads, progress_bar
from excess.config._model import AnalysisConfig, IntervalConfig, RegionConfig, parse_intervals, to_features
from excess.config._sources import find_source
from excess.dataset import _regions
from excess.dataset._intervals import check_dependence
from excess.dataset._settings import as_input, settle_config
from excess.estimators._random_forest import OnOffForestClassifier
from excess.io._reading import list_columns, read_events
from excess.report import _style as style
from excess.stats._likelihood import on_off_likelihood
from excess.stats._sideband import GlobalSignificance, fit_sidebands, global_significance

FILES = ("scan.csv", "scan.json")
_GAP, _SIDE = 1 / 6, 5 / 6  # gap between On and Off, and width of each Off interval, in widths of On
_MIN_TRAINED = 20  # minimum number of On and of Off events of a model; with fewer all ratios are 1
_MOST_POSITIONS = 1000


@dataclass(frozen=True, eq=False)
class Scan:
    """Local significances of all positions, and the global significance of the largest.

    Attributes
    ----------
    what : str
        Name of the column, or ``"sky"``.
    table : DataFrame
        Positions, with On and Off counts, exposure ratio and local significance.
    found : GlobalSignificance
        The largest local significance, corrected for the search in all positions.
    toys : ndarray of shape (n_toys, n_positions)
        Local significances of data sets without a signal.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from excess.analysis import scan
    >>> rng = np.random.default_rng(0)
    >>> mass = np.concatenate([rng.uniform(0, 10, 900), rng.normal(5, 0.2, 100)])
    >>> table = pd.DataFrame({"mass": mass, "width": np.append(rng.normal(size=900), rng.normal(2, 0.5, 100))})
    >>> found = scan(table, "mass 0:10", width=1, toys=10, seed=0)
    >>> bool(abs(found.best["center"] - 5) < 0.5), bool(found.found.significance > 5)
    (True, True)
    """

    what: str
    table: pd.DataFrame
    found: GlobalSignificance
    toys: FloatArray

    @property
    def best(self) -> pd.Series:
        """Position of the largest local significance."""
        return self.table.iloc[int(np.nanargmax(self.table["significance"]))]

    def __str__(self) -> str:
        """Return the verdict in a sentence."""
        best, own = self.best, self.found
        place, how = f"ra {best.iloc[0]:.3f}, dec {best.iloc[1]:.3f} deg", "effective trials"
        if "center" in best:
            place, how = f"{self.what} {best['low']:.6g} to {best['high']:.6g}", "upcrossings"
        toys = f"{len(self.toys)} toys: p {'=' if (self.toys >= own.local).any() else '<'} {own.toys:.2g}"
        return (
            f"Largest of {len(self.table)} positions: {place}, {own.local:.1f} sigma local, {own.significance:.1f} "
            f"sigma global (p = {own.p_value:.2g}, trials factor {own.trials:.3g}; {toys}, {how}: p = "
            f"{own.upcrossings:.2g}): "
            f"{'detected' if own.significance > 5 else 'no detection, for which 5 sigma global are required'}."
        )

    def summary(self) -> dict[str, Any]:
        """Return all values except the toys as JSON values."""
        own = {name: getattr(self.found, name) for name in ("local", "significance", "p_value", "trials", "toys")}
        known = {**own, "upcrossings": self.found.upcrossings, "n_toys": len(self.toys)}
        return {"what": self.what, "global": known, "best": self.best.to_dict(), "verdict": str(self)}

    def plot(self, path: str | PathLike[str] | None = None, *, ax: Any = None) -> Any:
        """Plot the local significance of each position, with the range of the toys; return the axes."""
        shown = self.table["significance"].to_numpy()
        with style.paper_axes(ax, path) as axes:
            if "center" in self.table:
                at = self.table["center"].to_numpy()
                low, high = np.nanquantile(self.toys, [0.16, 0.84], axis=0)
                axes.fill_between(at, low, high, color=style.GREY, alpha=0.3, linewidth=0, label="68 % of the toys")
                axes.plot(at, np.nanmax(self.toys, axis=0), ":", color=style.GREY, label="largest of the toys")
                axes.plot(at, shown, "o-", color=style.ON, markersize=3, linewidth=0.8, label="local significance")
                axes.set(xlabel=style.as_text(self.what), ylabel="significance / σ")
                axes.legend(loc="best")
            else:
                points = axes.scatter(self.table["ra"], self.table["dec"], c=shown, s=60, marker="s")
                axes.figure.colorbar(points, ax=axes, label="local significance / σ")
                axes.set(xlabel="right ascension / deg", ylabel="declination / deg")
                axes.invert_xaxis()
        return axes

    def write(self, folder: str | PathLike[str], *, overwrite: bool = False, plot: bool = True) -> list[Path]:
        """Write table, summary and figure into a folder, and return the files."""
        target = Path(folder)
        files = [target / name for name in (*FILES, *(["scan.png"] if plot else []))]
        check_outputs(files, overwrite=overwrite)
        prepare_folder(target)
        with replacing(files[0]) as temporary:
            self.table.to_csv(temporary, index=False)
        write_text(files[1], json.dumps(self.summary(), indent=1) + "\n")
        if plot:
            self.plot(files[2])
        return files


class _Position(NamedTuple):
    """Rows of the On and Off events of a position."""

    rows: Any
    on: Any
    alpha: Any


def scan(
    events: Any,
    along: str | None = None,
    *,
    width: float | None = None,
    step: float | None = None,
    source: str | tuple[float, float] | None = None,
    radius: float | None = None,
    config: Any = None,
    features: Sequence[str] = (),
    exclude: Sequence[str] = (),
    model: Any = None,
    toys: int = 100,
    folds: int = 2,
    seed: int = 0,
    n_jobs: int = -1,
    verbose: bool = False,
) -> Scan:
    """Search for a signal at many positions of a column or of the sky, as `excess scan` does.

    Each position has its own model for each fold, which weights events that it was not trained on. The p-value of the
    largest local significance is computed from toys that repeat the whole scan: values of the column are drawn from a
    smooth density fitted outside the best position, or events are rotated about their pointing by a random angle.

    Parameters
    ----------
    events : path, sequence of paths, or DataFrame
        Event files of one format, or a table of events.
    along : str or None, default=None
        Column and range, such as ``"mass 9:10.6"``; None for positions on the sky.
    width, step : float
        Width of the On interval, with a gap of a sixth and an Off interval of five sixths on both sides; and distance
        between positions, by default a quarter of the width, or the radius of a region.
    source, radius : str or tuple of float, and float
        Centre of the positions on the sky, and the maximum distance from it in deg.
    config, features, exclude
        As for `OnOffDataset.from_files`.
    model : classifier or None, default=None
        By default a forest of 60 trees with a fixed configuration, because it is fitted again for each toy.
    toys, folds : int, default=100 and 2
        Number of toys, and of parts of the events of a position; each part is weighted by a model of the others.
    seed, n_jobs, verbose
        As for `detect`.

    Returns
    -------
    Scan
        Local significances, and the global one.

    Examples
    --------
    See `Scan`.
    """
    toys, folds = as_int("toys", toys, minimum=10), as_int("folds", folds, minimum=2)
    search: Any = _AlongColumn if along is not None else _OnSky
    given = {"along": along, "width": width, "step": step, "source": source, "radius": radius}
    chosen = {"config": config, "features": features, "exclude": exclude}
    try:
        scanned = search(as_input(events), chosen, **given)
    except MismatchError as error:
        raise MismatchError("along" if error.argument == "on" else error.argument, error.problem) from error
    fixed: dict[str, Any] = {"splitter": "best", "min_samples_leaf": 40, "max_features": 0.5}
    fixed |= {"n_threshold_bootstrap": 0, "random_state": seed, "n_jobs": 1}
    estimator = OnOffForestClassifier(60, **fixed) if model is None else model
    hashes = np.empty(len(scanned.X), dtype=np.uint64)
    row_hashes(0, hashes)
    fold = ((hashes ^ np.uint64(seed)) % np.uint64(folds)).astype(np.int64)

    def significances(toy: Any) -> list[dict[str, float]]:
        return [_local(scanned.X, fold, folds, position, estimator) for position in scanned.positions(toy)]

    table = pd.concat([scanned.places, pd.DataFrame(significances(None))], axis=1)
    if table["significance"].isna().all():
        raise MismatchError("along", "has no position with On and Off events")
    draw: Callable[[np.random.Generator], Any] = scanned.draw(int(table["significance"].idxmax()))
    with progress_bar("Repeating the scan", toys, shown=verbose) as tick:
        found = []
        items = [np.random.default_rng([seed, number]) for number in range(toys)]
        for own in map_threaded(lambda rng: significances(draw(rng)), items, n_threads(n_jobs)):
            found.append([one["significance"] for one in own])
            tick(1)
    local, repeated = table["significance"].to_numpy(), np.array(found)
    return Scan(scanned.what, table, global_significance(local, repeated, ordered=along is not None), repeated)


def _local(X: FloatArray, fold: Any, folds: int, position: _Position, model: Any) -> dict[str, float]:
    """Return counts and local significance of a position, with ratios from models of other folds."""
    rows, on = position.rows, position.on
    mean = float(np.mean(position.alpha)) if len(rows) else np.nan
    counts = {"n_on": int(on.sum()), "n_off": int((~on).sum()), "alpha": mean}
    if not 0 < counts["n_on"] < len(rows):
        return {**counts, "significance": np.nan}
    ratio, own = np.ones(len(rows)), fold[rows]
    for k in range(folds):
        train, test = own != k, own == k
        if min(np.count_nonzero(on[train]), np.count_nonzero(~on[train])) >= _MIN_TRAINED and test.any():
            fitted = clone(model).set_params(alpha=mean).fit(X[rows[train]], on[train].astype(np.int64))
            ratio[test] = fitted.likelihood_ratio(X[rows[test]])
    if not (ratio > 0).any():
        return {**counts, "significance": 0.0}
    return {**counts, "significance": on_off_likelihood(on.astype(np.int64), ratio, position.alpha).significance}


class _AlongColumn:
    """Positions of an interval along a column."""

    def __init__(self, events: Any, chosen: Any, *, along: str, width: Any, step: Any, **other: Any) -> None:
        for name, value in other.items():
            if value is not None:
                raise ArgumentError(name, "requires positions on the sky instead of `along`")
        column, ranges = parse_intervals("along", along)
        if column is None or len(ranges) != 1 or not ranges[0][0] < ranges[0][1]:
            raise ArgumentError("along", f'must be a column and one range, such as "mass 9:10.6", got {along!r}')
        self.what, (self._low, self._high) = column, ranges[0]
        if width is None or not width > 0:
            raise ArgumentError("width", f"must be positive: the width of the On interval, got {width!r}")
        reach = width * (0.5 + _GAP + _SIDE)
        step = width / 4 if step is None else step
        if not step > 0 or 2 * reach > (self._high - self._low) * (1 + 1e-9):
            raise ArgumentError("width", f"{width:g} does not fit: On with both Off intervals takes {2 * reach:g}")
        n = 1 + int((self._high - self._low - 2 * reach) / step + 1e-9)
        if n > _MOST_POSITIONS:
            raise ArgumentError("step", f"{step:g} results in {n:,} positions, above the limit of {_MOST_POSITIONS:,}")
        center = self._low + reach + step * np.arange(n)
        self.places = pd.DataFrame({"center": center, "low": center - width / 2, "high": center + width / 2})
        self._width = width
        on, off = self._intervals(center[0])
        regions = {"intervals": IntervalConfig(column=column, on=on, off=off, alpha="fit")}
        settings = settle_config(events, **chosen, regions=regions)
        present = events.columns if isinstance(events, pd.DataFrame) else list_columns(events[0])
        name = _regions.find_column(regions["intervals"], map(str, present))
        table = _read(events, settings, [name])
        _regions.find_regions(table, settings.regions)  # raises an error for columns without numbers
        prepared, values = to_features(table, settings), table[name].to_numpy(dtype=np.float64)
        chosen = prepared.valid & (values >= self._low) & (values < self._high)
        self.X, self._values, self._config = np.ascontiguousarray(prepared.X[chosen]), values[chosen], settings

    def _intervals(self, center: float) -> tuple[Any, Any]:
        half, gap, side = self._width / 2, self._width * _GAP, self._width * _SIDE
        low, high = center - half, center + half
        return ((low, high),), ((low - gap - side, low - gap), (high + gap, high + gap + side))

    def positions(self, toy: FloatArray | None) -> list[_Position]:
        """Return On and Off of all positions, in the data or in a toy."""
        values = self._values if toy is None else toy
        return [self._position(values, center) for center in self.places["center"]]

    def _position(self, values: FloatArray, center: float) -> _Position:
        on, off = self._intervals(center)
        is_on = (values >= on[0][0]) & (values < on[0][1])
        used = is_on | np.any([(values >= low) & (values < high) for low, high in off], axis=0)
        rows = np.flatnonzero(used)
        try:
            # Off on both sides cancels a slope in the ratio; a curvature is also in the toys
            alpha = fit_sidebands(values[rows], on, off, max_degree=1, check=False).alpha
        except ValueError:  # an Off interval without events
            rows, alpha = rows[:0], 1.0
        return _Position(rows, is_on[rows], alpha)

    def draw(self, best: int) -> Callable[[np.random.Generator], FloatArray]:
        """Return a function that draws values without a signal, after a check of features outside the best position."""
        low, high = (float(self.places[name][best]) for name in ("low", "high"))
        outside = (self._values < low) | (self._values >= high)
        check_dependence(self.X[outside], self._values[outside], self._config.features, self.what)
        off = [ends for ends in ((self._low, low), (high, self._high)) if ends[1] - ends[0] > 1e-9 * self._width]
        fit = fit_sidebands(self._values, [(low, high)], off, check=False)
        return lambda rng: fit.sample(len(self._values), self._low, self._high, rng)


class _OnSky:
    """Positions of a source on the sky, with reflected Off regions."""

    what = "sky"

    def __init__(self, events: Any, chosen: Any, *, source: Any, radius: Any, step: Any, **other: Any) -> None:
        if other.get("width") is not None:
            raise ArgumentError("width", "requires `along`; the cut on theta^2 is that of the configuration")
        if source is None or radius is None or not radius > 0:
            raise ArgumentError("along", "must be given, or `source` and `radius` for positions on the sky")
        position = find_source(source)[1:] if isinstance(source, str) else source
        settings = settle_config(events, **chosen, source=position)
        self._regions: RegionConfig = settings.regions.model_copy(update={"method": "reflected", "n_regions": "auto"})
        step = self._regions.radius if step is None else step
        if not step > 0 or (2 * radius / step + 1) ** 2 > _MOST_POSITIONS:
            most = f"must be positive and result in at most {_MOST_POSITIONS:,} positions"
            raise ArgumentError("step", f"{most}, got {step!r}")
        axis = step * np.arange(-int(radius / step + 1e-9), int(radius / step + 1e-9) + 1)
        east, north = (one.ravel() for one in np.meshgrid(axis, axis))
        inside = np.hypot(east, north) <= radius * (1 + 1e-9)
        ra, dec = _regions.offset_position(*position, east=east[inside], north=north[inside])
        self.places = pd.DataFrame({"ra": ra, "dec": dec})
        table = _read(events, settings, list(_regions.SKY_COLUMNS))
        prepared = to_features(table, settings)
        self.X = np.ascontiguousarray(prepared.X[prepared.valid])
        self._table = table.loc[prepared.valid, list(_regions.SKY_COLUMNS)].astype(np.float64).reset_index(drop=True)

    def positions(self, toy: pd.DataFrame | None) -> list[_Position]:
        """Return On and Off of all positions, in the data or in a toy."""
        table, found = self._table if toy is None else toy, []
        for ra, dec in self.places.itertuples(index=False):
            own = self._regions.model_copy(update={"source_ra": ra, "source_dec": dec})
            regions = _regions.find_regions(table, own)
            rows = np.flatnonzero(regions.inside)
            alpha = regions.alpha if regions.event_alpha is None else regions.event_alpha[rows]
            found.append(_Position(rows, regions.on[rows], alpha))
        return found

    def draw(self, _: int) -> Callable[[np.random.Generator], pd.DataFrame]:
        """Return a function that rotates events about their pointing: without a source no direction is preferred."""
        ra, dec, pointing_ra, pointing_dec = (self._table[name].to_numpy() for name in _regions.SKY_COLUMNS)
        event, axis = _regions.unit_vectors(ra, dec), _regions.unit_vectors(pointing_ra, pointing_dec)

        def turn(rng: np.random.Generator) -> pd.DataFrame:
            x, y, z = _regions.turn_about(axis, event, rng.uniform(0, 2 * np.pi, len(event))).T
            own = {"ra": np.degrees(np.arctan2(y, x)) % 360, "dec": np.degrees(np.arcsin(np.clip(z, -1, 1)))}
            return self._table.assign(**own)

        return turn


def _read(events: Any, settings: AnalysisConfig, more: list[str]) -> pd.DataFrame:
    """Return a table, or the required columns of files."""
    if isinstance(events, pd.DataFrame):
        return events
    return read_events(events, list(dict.fromkeys([*settings.columns_needed(), *more])))
