"""Simulation of a FACT-like wobble observation, and of labelled events, from embedded distributions.

Features are drawn from a Gaussian copula: marginal quantiles and correlations of normal scores of FACT's own simulation
of gammas and protons. Defaults correspond to the open Crab sample: 757,993 events in five nights, with about 4,332 in
the On region and 17,229 in five Off regions.
"""

import json
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from excess._utils.checks import FloatArray, as_count, as_int, as_random_state
from excess._utils.errors import ArgumentError
from excess.dataset._regions import offset_position, theta_columns

_BACKGROUND_WIDTH = 1.6  # standard deviation of background directions about the pointing, in deg and in each coordinate
_PSF_WIDTH = 0.1  # the same for signal directions about the source: 71 % are within theta^2 < 0.025 deg^2
_RUN_SECONDS = 300.0
_START_OF_NIGHT = 23 * 3600.0  # start of the first run of a night, in seconds of its day
_CHARGES = ("size", "photoncharge_shower_mean", "photoncharge_shower_max")
_LENGTHS = ("width", "length")
_WHOLE = ("num_islands", "num_pixel_in_shower")


def simulate_observation(
    n_events: int = 757_993,
    n_signal: int = 1_242,
    *,
    n_regions: int = 6,
    n_nights: int = 5,
    n_runs: int = 215,
    offset: float = 0.6,
    drift: float = 0.05,
    first_night: int = 20131101,
    source: tuple[float, float] | None = None,
    random_state: Any = None,
) -> pd.DataFrame:
    """Simulate a wobble observation: events with features, angles to all regions, nights, and the true class.

    Parameters
    ----------
    n_events : int, default=757_993
        Number of signal and background events.
    n_signal : int, default=1_242
        Number of gammas from the source; 71 % of them are in the On region.
    n_regions : int, default=6
        Number of regions of equal exposure on the ring about the pointing, including On.
    n_nights, n_runs : int, default=5 and 215
        Number of nights, and total number of runs of five minutes.
    offset : float, default=0.6
        Angle between source and pointing in deg.
    drift : float, default=0.05
        Standard deviation between nights of the logarithm of all light yields; a fifth of this for widths and lengths.
    first_night : int, default=20131101
        Date of the first night in the format of FACT; consecutive nights follow.
    source : tuple of float or None, default=None
        Source position in deg, for sky positions of events; runs then alternate between north and south of it.
    random_state : int, RandomState instance or None, default=None
        Seed.

    Returns
    -------
    DataFrame
        Ordered by time: ``night``, ``run_id``, ``event_num``, ``unix_time``, ``theta_deg``, ``theta_deg_off_1`` and
        so on, 22 image parameters, ``is_signal``, and with a source ``ra``, ``dec``, ``pointing_ra``, ``pointing_dec``.

    Examples
    --------
    >>> from excess.dataset._simulate import simulate_observation
    >>> events = simulate_observation(10_000, 500, random_state=0)
    >>> on = events["theta_deg"] ** 2 < 0.025
    >>> print(on.sum(), events.loc[on, "is_signal"].sum(), events["night"].nunique())
    397 352 5
    """
    n_events, n_signal = as_int("n_events", n_events, minimum=1), as_int("n_signal", n_signal, minimum=0)
    n_nights, n_runs = as_int("n_nights", n_nights, minimum=1), as_int("n_runs", n_runs, minimum=1)
    n_regions = as_int("n_regions", n_regions, minimum=2)
    offset, drift = as_count("offset", offset), as_count("drift", drift)
    try:
        first_day = datetime.strptime(str(first_night), "%Y%m%d").replace(tzinfo=UTC)
    except ValueError as error:
        raise ArgumentError("first_night", f"must be a date such as 20131101, got {first_night}") from error
    days = [first_day + timedelta(days=day) for day in range(n_nights)]
    if n_signal > n_events:
        raise ArgumentError("n_signal", f"must be at most `n_events`, {n_events}, got {n_signal}")
    if n_runs < n_nights:
        raise ValueError(f"n_runs must be at least n_nights, {n_nights}, got {n_runs}")
    rng = np.random.default_rng(as_random_state(random_state).randint(2**31 - 1))

    run = np.sort(rng.integers(0, n_runs, n_events))
    night_of_run = np.arange(n_runs) * n_nights // n_runs
    night = night_of_run[run]
    first_of_run = np.searchsorted(run, np.arange(n_runs))
    run_in_night = np.arange(n_runs) - np.searchsorted(night_of_run, night_of_run)
    seconds = run_in_night[run] * _RUN_SECONDS + rng.uniform(0, _RUN_SECONDS, n_events)
    seconds = seconds[np.lexsort((seconds, run))]
    starts = np.array([day.timestamp() + _START_OF_NIGHT for day in days])

    is_signal = np.zeros(n_events, dtype=np.bool_)
    is_signal[rng.choice(n_events, n_signal, replace=False)] = True
    features = np.empty((n_events, len(_statistics().features)))
    features[is_signal] = _draw_features("gamma", n_signal, rng)
    features[~is_signal] = _draw_features("proton", n_events - n_signal, rng)
    _apply_drift(features, night, drift * rng.standard_normal(n_nights), drift / 5 * rng.standard_normal(n_nights))

    where = rng.normal(scale=_BACKGROUND_WIDTH, size=(n_events, 2))
    where[is_signal] = rng.normal(loc=[offset, 0.0], scale=_PSF_WIDTH, size=(n_signal, 2))
    columns: dict[str, Any] = {
        "night": np.array([int(f"{day:%Y%m%d}") for day in days], dtype=np.int32)[night],
        "run_id": (100 + run_in_night[run]).astype(np.int32),
        "event_num": (np.arange(n_events) - first_of_run[run] + 1).astype(np.int32),
        "unix_time": starts[night] + seconds,
    }
    for region, name in enumerate(theta_columns(n_regions)):
        angle = 2 * np.pi * region / n_regions
        columns[name] = np.hypot(where[:, 0] - offset * np.cos(angle), where[:, 1] - offset * np.sin(angle))
    if source is not None:
        columns |= _sky_columns(where, run % 2 == 0, source, offset)
    return pd.DataFrame({**columns, **_feature_columns(features), "is_signal": is_signal})


def _sky_columns(
    where: FloatArray, to_north: NDArray[np.bool_], source: tuple[float, float], offset: float
) -> dict[str, FloatArray]:
    """Return sky positions of events from positions about the pointing, with the source at (offset, 0)."""
    sign = np.where(to_north, 1.0, -1.0)
    # the telescope points north of the source: the first coordinate points south, the second east
    pointing = offset_position(*source, east=np.zeros(len(where)), north=sign * offset)
    event = offset_position(*pointing, east=sign * where[:, 1], north=-sign * where[:, 0])
    return dict(zip(("ra", "dec", "pointing_ra", "pointing_dec"), (*event, *pointing), strict=True))


def simulate_labelled(n_gamma: int = 10_000, n_proton: int = 10_000, *, random_state: Any = None) -> pd.DataFrame:
    """Simulate labelled events to train a supervised classifier: gammas first, then protons, without drift.

    Parameters
    ----------
    n_gamma, n_proton : int, default=10_000
        Number of events of each class.
    random_state : int, RandomState instance or None, default=None
        Seed.

    Returns
    -------
    DataFrame
        18 image parameters and four derived ones, and the true label ``is_signal``.

    Examples
    --------
    >>> from excess.dataset._simulate import simulate_labelled
    >>> simulate_labelled(1000, 2000, random_state=0).groupby("is_signal")["width"].median().round(1)
    is_signal
    False    8.4
    True     7.2
    Name: width, dtype: float64
    """
    n_gamma, n_proton = as_int("n_gamma", n_gamma, minimum=0), as_int("n_proton", n_proton, minimum=0)
    rng = np.random.default_rng(as_random_state(random_state).randint(2**31 - 1))
    features = np.concatenate([_draw_features("gamma", n_gamma, rng), _draw_features("proton", n_proton, rng)])
    return pd.DataFrame({**_feature_columns(features), "is_signal": np.arange(n_gamma + n_proton) < n_gamma})


class _Statistics(NamedTuple):
    """Embedded distributions: quantiles and a factor of the correlation of normal scores, for each class."""

    features: list[str]
    levels: FloatArray
    quantiles: dict[str, FloatArray]
    factors: dict[str, FloatArray]


@cache
def _statistics() -> _Statistics:
    figures = json.loads(files("excess.dataset").joinpath("data/fact_statistics.json").read_text(encoding="utf-8"))
    quantiles = {name: np.array(own["quantiles"]) for name, own in figures["classes"].items()}
    factors = {}
    for name, own in figures["classes"].items():
        values, vectors = np.linalg.eigh(np.array(own["normal_score_correlation"]))
        factors[name] = vectors * np.sqrt(np.maximum(values, 0.0))  # rounding may leave tiny negative eigenvalues
    return _Statistics(figures["features"], np.array(figures["quantile_levels"]), quantiles, factors)


def _draw_features(kind: str, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw image parameters of gammas or protons."""
    figures = _statistics()
    features = rng.standard_normal((n, len(figures.features))) @ figures.factors[kind].T
    for j, quantiles in enumerate(figures.quantiles[kind]):
        features[:, j] = np.interp(ndtr(features[:, j]), figures.levels, quantiles)
    return features


def _apply_drift(features: FloatArray, night: NDArray[Any], charge: FloatArray, length: FloatArray) -> None:
    """Scale charges, their variance, and lengths by the exponential of a number per night, in place."""
    names = _statistics().features
    scales = dict.fromkeys(_CHARGES, charge) | {"photoncharge_shower_variance": 2 * charge}
    scales |= dict.fromkeys(_LENGTHS, length)
    for name, scale in scales.items():
        features[:, names.index(name)] *= np.exp(scale)[night]


def _feature_columns(features: FloatArray) -> dict[str, NDArray[Any]]:
    """Return the image parameters and the derived features by name."""
    columns: dict[str, NDArray[Any]] = {name: features[:, j] for j, name in enumerate(_statistics().features)}
    for name in _WHOLE:
        columns[name] = np.rint(columns[name]).astype(np.int32)
    area, log_size = np.pi * columns["width"] * columns["length"], np.log(columns["size"])
    derived = {"area": area, "log_size": log_size, "size_area": columns["size"] / area}
    return {**columns, **derived, "area_size_cut_var": area / log_size**2}
