"""On and Off as intervals of a column: their events, exposure ratio, and features that depend on the column."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from excess._utils.checks import FloatArray
from excess._utils.errors import EventFileError, MismatchError
from excess._utils.threads import with_error
from excess.config._model import IntervalConfig
from excess.dataset._dataset import OnOffDataset
from excess.dataset._regions import expose_intervals, find_column, row_draws
from excess.io._fits import GZIP_MAGIC, open_fits
from excess.io._reading import FITS_MAGIC
from excess.stats._sideband import fit_sidebands

logger = logging.getLogger("excess.dataset")
_MAX_BEYOND = 10.0  # events that may be expected in the part of an interval that lies beyond the data
_MAX_EVENTS = 5_000  # Off events in which a dependence of features on the column is looked for
_N_FOLDS = 3
_DETERMINED = 0.5  # share of the variance of the column that features may predict
_Z_WARNING = 4.0
_MIN_EVENTS = 100


def complete(dataset: OnOffDataset, files: Mapping[str, tuple[Path, ...]]) -> OnOffDataset:
    """Return the events of intervals with their exposure ratio, after checks of intervals and features."""
    intervals = dataset.config.regions.intervals
    assert intervals is not None
    values = dataset.table[find_column(intervals, dataset.table.columns)].to_numpy(dtype=np.float64)
    _check_inside(intervals, values, dataset.regions.region)
    regions, settings, method = dataset.regions, dataset.config.regions, intervals.method
    note = f"alpha {regions.alpha:.4g} from the widths of the intervals"
    if isinstance(method, float):
        note = f"alpha {method:g} as given"
        shares = np.ones(regions.n_regions - 1) if regions.exposure is None else regions.exposure[0]
        regions = expose_intervals(regions, shares / shares.sum() / method)
    elif method == "livetime":
        found = _live_times(intervals, files)
        if found is not None:
            regions = expose_intervals(regions, found)
            note = f"alpha {regions.alpha:.4g} from good time intervals"
    elif method == "fit":
        if intervals.wraps_at is not None:
            raise MismatchError("alpha", f"cannot be fitted: {intervals.column} has a period, so take the width")
        fit = fit_sidebands(values, intervals.on, intervals.off)
        regions = expose_intervals(regions, fit.shares)
        note = f"alpha {with_error(fit.alpha, fit.alpha * fit.alpha_error, '.4f')} from a fit to the Off intervals"
        note += f" (degree {fit.degree}, p = {fit.goodness:.2g})"
        if settings.alpha_error is None:
            settings = settings.model_copy(update={"alpha_error": float(f"{fit.alpha_error:.4g}")})
    config = dataset.config.model_copy(update={"regions": settings})
    found_dataset = replace(dataset, regions=regions, event_alpha=None, config=config, notes=(*dataset.notes, note))
    off = regions.region > 0
    if not config.allow_origin_features:
        check_dependence(dataset.X[off], values[off], config.features, intervals.column)
    if intervals.is_time:  # On and Off would be in different blocks of time, so their order must not follow it
        found_dataset = found_dataset.take(np.argsort(row_draws(0, len(values)), kind="stable"))
    return found_dataset


def _check_inside(intervals: IntervalConfig, values: FloatArray, region: NDArray[np.int64]) -> None:
    """Reject intervals without events, and those that extend beyond the data."""
    for side in ("on", "off"):
        for low, high in getattr(intervals, side):
            k = 0 if side == "on" else 1 + intervals.off.index((low, high))
            own = values[region == k]
            if intervals.wraps_at is None:
                own = own[(own >= low) & (own < high)]
            if len(own) == 0:
                where = f"{intervals.column} between {low:g} and {high:g}"
                raise MismatchError(side, f"has no events of {where}; choose other intervals")
            if intervals.wraps_at is not None:
                continue
            first, last = float(values.min()), float(values.max())
            width = float(np.ptp(own)) or high - low
            beyond = max(high - last if last == own.max() else 0.0, first - low if first == own.min() else 0.0)
            if beyond * len(own) / width > _MAX_BEYOND:
                problem = f"has the interval {low:g}:{high:g}, which extends beyond the data"
                raise MismatchError(side, f"{problem}: {intervals.column} has values from {first:g} to {last:g}")


def _live_times(intervals: IntervalConfig, files: Mapping[str, tuple[Path, ...]]) -> FloatArray | None:
    """Return the good time in each Off interval in units of that in On; None where files have no such times."""
    good: list[FloatArray] = []
    for path in files.get("events", ()):
        with path.open("rb") as file:
            if not file.read(len(FITS_MAGIC)).startswith((FITS_MAGIC, GZIP_MAGIC)):
                return None
        with open_fits(path) as hdus:
            own = [hdu for hdu in hdus if "GTI" in (hdu.name, hdu.header.get("HDUCLAS1")) and hasattr(hdu, "columns")]
            if not own:
                return None
            good.append(np.column_stack([np.array(own[0].data[key], dtype=np.float64) for key in ("START", "STOP")]))
    if not good or intervals.column.lower() != "time":
        return None
    start, stop = np.concatenate(good).T

    def time_in(ends: Iterable[tuple[float, float]]) -> float:
        return sum(float(np.clip(np.minimum(stop, b) - np.maximum(start, a), 0, None).sum()) for a, b in ends)

    on, off = time_in(intervals.on), [time_in((one,)) for one in intervals.off]
    for side, total in (("on", on), ("off", min(off))):
        if total <= 0:
            raise MismatchError(side, "has an interval without any good time (GTI)")
    return np.array(off) / on


def check_dependence(X: FloatArray, values: FloatArray, names: Iterable[str], column: str) -> None:
    """Raise EventFileError where features determine the column of intervals, and warn where they depend on it."""
    if len(values) < _MIN_EVENTS:
        return
    from sklearn.ensemble import ExtraTreesRegressor

    step = -(-len(values) // _MAX_EVENTS)
    X, values = X[::step], values[::step]
    rank = np.argsort(np.argsort(values, kind="stable")) / len(values) - 0.5
    # products and ratios of features are sums of logarithms; a mass follows from momenta and angles in that way
    logarithms = np.log(np.abs(X) + 1e-12 * (np.abs(X).max(axis=0) + 1e-300))
    terms = np.column_stack([np.ones(len(X)), X, logarithms])
    fold = np.arange(len(X)) % _N_FOLDS
    found = np.zeros((2, len(X)))
    for k in range(_N_FOLDS):
        train, test = fold != k, fold == k
        found[0, test] = terms[test] @ np.linalg.lstsq(terms[train], rank[train], rcond=None)[0]
        model = ExtraTreesRegressor(20, min_samples_leaf=10, random_state=0)
        found[1, test] = model.fit(X[train], rank[train]).predict(X[test])
    correlation = max(float(np.corrcoef(own, rank)[0, 1]) if np.ptp(own) > 0 else 0.0 for own in found)
    alone = [abs(float(np.corrcoef(x, rank)[0, 1])) if np.ptp(x) > 0 else 0.0 for x in X.T]
    most = list(names)[int(np.argmax(alone))]
    if correlation**2 > _DETERMINED:
        share = f"they predict {100 * correlation**2:.0f} % of its variance in Off events"
        problem = f"the features determine {column}: {share}, {most!r} with the largest correlation, {max(alone):.2f}"
        raise EventFileError(
            f"{problem}, so a model would learn the intervals; remove it, or set allow_origin_features: true"
        )
    z = correlation * np.sqrt(len(values))
    if z > _Z_WARNING:
        size = f"correlation {correlation:.2f}, {z:.1f} sigma; most of all {most!r}"
        problem = f"the features depend on {column} among Off events ({size})"
        logger.warning(f"{problem}, so part of the significance may come from that")
