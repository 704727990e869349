"""On and Off as intervals of a column: events, exposure ratio, and features that depend on the column."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from excess._utils.checks import FloatArray
from excess._utils.errors import EventFileError, MismatchError, with_error
from excess.config._model import IntervalConfig
from excess.dataset._dataset import OnOffDataset
from excess.dataset._regions import expose_intervals, find_column, row_draws
from excess.io._fits import good_time
from excess.io._reading import recognise
from excess.stats._sideband import fit_sidebands

logger = logging.getLogger("excess.dataset")
_MAX_BEYOND = 10.0  # maximum number of expected events in the part of an interval outside the data
_MAX_EVENTS = 5_000  # maximum number of Off events used to search for a dependence of features on the column
_N_FOLDS = 3
_DETERMINED = 0.5  # maximum fraction of the variance of the column that features may predict
_Z_WARNING, _MIN_PHASES = 4.0, 400
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
            raise MismatchError("alpha", f"cannot be fitted: {intervals.column} is periodic; use the width")
        fit = fit_sidebands(values, intervals.on, intervals.off)
        regions = expose_intervals(regions, fit.shares)
        note = f"alpha {with_error(fit.alpha, fit.alpha * fit.alpha_error, '.4f')} from a fit to the Off intervals"
        note += f" (degree {fit.degree}, p = {fit.goodness:.2g})"
        if settings.alpha_error is None:
            settings = settings.model_copy(update={"alpha_error": float(f"{fit.alpha_error:.4g}")})
    elif intervals.wraps_at is not None and settings.alpha_error is None and dataset.time is not None:
        turns = np.exp(2j * np.pi / intervals.wraps_at * values[np.argsort(dataset.time, kind="stable")])
        turns -= turns.mean()
        correlation = float(np.vdot(turns[1:], turns[:-1]).real / np.vdot(turns, turns).real)
        # consecutive events with independent phases: a period is so short that all phases have the same exposure
        if len(turns) >= _MIN_PHASES and abs(correlation) < _Z_WARNING / len(turns) ** 0.5:
            settings, note = settings.model_copy(update={"alpha_error": 0.0}), f"{note}, exact for a short period"
    config = dataset.config.model_copy(update={"regions": settings})
    found_dataset = replace(dataset, regions=regions, event_alpha=None, config=config, notes=(*dataset.notes, note))
    off = regions.region > 0
    if not config.allow_origin_features:
        check_dependence(dataset.X[off], values[off], config.features, intervals.column)
    if intervals.is_time:  # On and Off would be in different blocks of time, so the order must not follow it
        found_dataset = found_dataset.take(np.argsort(row_draws(0, len(values)), kind="stable"))
    return found_dataset


def _check_inside(intervals: IntervalConfig, values: FloatArray, region: NDArray[np.int64]) -> None:
    """Raise an error for intervals without events or that extend beyond the data."""
    for side in ("on", "off"):
        for low, high in getattr(intervals, side):
            k = 0 if side == "on" else 1 + intervals.off.index((low, high))
            own = values[region == k]
            if intervals.wraps_at is None:
                own = own[(own >= low) & (own < high)]
            if len(own) == 0:
                raise MismatchError(side, f"has no events with {intervals.column} between {low:g} and {high:g}")
            if intervals.wraps_at is not None:
                continue
            first, last, width = values.min(), values.max(), np.ptp(own) or high - low
            after, before = high - last if last == own.max() else 0.0, first - low if first == own.min() else 0.0
            if max(after, before) * len(own) / width > _MAX_BEYOND:
                where = f"{intervals.column} {f'end at {last:g}' if after > before else f'begin at {first:g}'}"
                problem = f"has the interval {low:g}:{high:g}, which extends beyond the data"
                raise MismatchError(side, f"{problem}: values of {where}")


def _live_times(intervals: IntervalConfig, files: Mapping[str, tuple[Path, ...]]) -> FloatArray | None:
    """Return the good time in each Off interval relative to On; None if files have no good time intervals."""
    if intervals.column.lower() != "time" or not files.get("events"):
        return None
    total = np.zeros(len(intervals.on) + len(intervals.off))
    for path in files["events"]:
        own = good_time(path, (*intervals.on, *intervals.off)) if recognise(path) == "FITS event list" else None
        if own is None:
            return None
        total += own
    on, off = np.split(total, [len(intervals.on)])
    for side, time in (("on", on.sum()), ("off", off.min())):
        if time <= 0:
            raise MismatchError(side, "has an interval without any good time (GTI)")
    return np.asarray(off / on.sum())


def check_dependence(X: FloatArray, values: FloatArray, names: Iterable[str], column: str) -> None:
    """Raise EventFileError if features determine the column of intervals, and warn if they depend on it."""
    if len(values) < _MIN_EVENTS:
        return
    from sklearn.ensemble import ExtraTreesRegressor

    step = -(-len(values) // _MAX_EVENTS)
    X, values = X[::step], values[::step]
    rank = np.argsort(np.argsort(values, kind="stable")) / len(values) - 0.5
    # products and ratios of features are sums of logarithms, as for a mass computed from momenta and angles
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
        remedy = "so a model would learn the intervals; remove it, or set allow_origin_features: true"
        raise EventFileError(f"{problem}, {remedy}")
    z = correlation * np.sqrt(len(values))
    if z > _Z_WARNING:
        size = f"correlation {correlation:.2f}, {z:.1f} sigma; largest for {most!r}"
        problem = f"the features depend on {column} among Off events ({size})"
        logger.warning(f"{problem}, which may contribute to the significance")
