"""Times of events: Unix time from the scales and origins that files use, and the night that a time belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ABSOLUTE_COLUMNS", "TIME_SCALES", "add_night", "night_of", "unix_from_mjd", "unix_from_seconds", "unix_of"]

DAY = 86_400.0
UNIX_EPOCH = 40_587.0
"""1 January 1970 as a modified Julian date."""
MJD_RANGE = (20_000.0, 100_000.0)
JD_RANGE = (2_400_000.0, 2_500_000.0)
"""Ranges of present dates as modified Julian dates, which ctapipe writes, and as Julian dates."""
UNIX_RANGE = (3e8, 1e10)
"""Range of present times in seconds of Unix time."""
ABSOLUTE_COLUMNS = ("unix_time", "timestamp", "time")
"""Columns that hold times; the first that a table has is used."""

_LEAP_DATES = (
    "1972-01 1972-07 1973-01 1974-01 1975-01 1976-01 1977-01 1978-01 1979-01 1980-01 1981-07 1982-07 1983-07 1985-07 "
    "1988-01 1990-01 1991-01 1992-07 1993-07 1994-07 1996-01 1997-07 1999-01 2006-01 2009-01 2012-07 2015-07 2017-01"
)
_LEAP_UTC = np.array(_LEAP_DATES.split(), dtype="datetime64[s]").astype(np.float64)
_LEAP_OFFSET = 10.0 + np.arange(len(_LEAP_UTC))
"""TAI minus UTC in seconds from each date on, by the bulletins of the Earth rotation service."""

TIME_SCALES = {"utc": None, "tai": 0.0, "tt": 32.184, "tdb": 32.184, "et": 32.184, "tcb": 32.184, "gps": -19.0}
"""Seconds that a scale is ahead of TAI; UTC has leap seconds. TDB differs from TT by less than 2 ms."""


def unix_from_seconds(seconds: ArrayLike, *, reference_mjd: float = UNIX_EPOCH, scale: str = "utc") -> FloatArray:
    """Return Unix times from seconds since a reference, as event lists count them.

    Parameters
    ----------
    seconds : array-like of float
        Elapsed seconds, leap seconds included.
    reference_mjd : float, default=40587
        Modified Julian date of the reference; by default 1 January 1970.
    scale : str, default="utc"
        Time scale of the reference, a key of `TIME_SCALES`.

    Returns
    -------
    ndarray of float
        Seconds of Unix time.

    Examples
    --------
    >>> from excess.events.times import unix_from_seconds
    >>> float(unix_from_seconds(66103155.0, reference_mjd=55835, scale="utc"))  # a leap second was in 2012
    1383530354.0
    """
    start = (reference_mjd - UNIX_EPOCH) * DAY
    ahead = TIME_SCALES[scale.lower()]
    tai = start + float(_leap_seconds(start)) if ahead is None else start - ahead
    return _utc_from_tai(np.asarray(seconds, dtype=np.float64) + tai)


def unix_from_mjd(mjd: ArrayLike, *, scale: str = "utc") -> FloatArray:
    """Return Unix times from modified Julian dates.

    Examples
    --------
    >>> from excess.events.times import unix_from_mjd
    >>> float(unix_from_mjd(56600.0))
    1383523200.0
    >>> float(unix_from_mjd(56600.0, scale="tai"))
    1383523165.0
    """
    seconds = (np.asarray(mjd, dtype=np.float64) - UNIX_EPOCH) * DAY
    ahead = TIME_SCALES[scale.lower()]
    return seconds if ahead is None else _utc_from_tai(seconds - ahead)


def unix_of(values: pd.Series, name: str) -> FloatArray | None:
    """Return Unix times of a column of times; None where its origin is not known.

    Parameters
    ----------
    values : Series
        Texts, dates, or numbers: Unix time, Julian dates or modified ones, by their range.
    name : str
        Name of the column. Numbers of ``time`` are taken for Julian dates only: event lists count seconds from an
        origin of their own.

    Returns
    -------
    ndarray of float64 or None
        Seconds of Unix time, NaN where a time is missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from excess.events.times import unix_of
    >>> unix_of(pd.Series(["2013-11-04 01:59:14"]), "timestamp")
    array([1.38353035e+09])
    >>> unix_of(pd.Series([66103155.0]), "time") is None
    True
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        known = numbers[np.isfinite(numbers)]
        middle = float(np.median(known)) if len(known) else np.nan
        if MJD_RANGE[0] < middle < MJD_RANGE[1]:
            return unix_from_mjd(numbers)
        if JD_RANGE[0] < middle < JD_RANGE[1]:
            return unix_from_mjd(numbers - 2_400_000.5)
        return numbers if name != "time" and UNIX_RANGE[0] < middle < UNIX_RANGE[1] else None
    moments = pd.to_datetime(values, errors="coerce", format="mixed", utc=True)
    seconds = (moments - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)
    return np.asarray(seconds, dtype=np.float64) if np.isfinite(seconds).any() else None


def night_of(unix_time: ArrayLike, longitude: float | None = None) -> NDArray[Any]:
    """Return the night of each time: the local date of its evening, from noon to noon.

    Parameters
    ----------
    unix_time : array-like of float
        Seconds of Unix time.
    longitude : float or None, default=None
        Of the telescope in deg, positive to the east; the local noon is that of the mean sun. None takes noon in UTC.

    Returns
    -------
    ndarray of int64
        YYYYMMDD; of float64 with NaN where a time is missing.

    Examples
    --------
    >>> from excess.events import night_of
    >>> night_of([1383530354.0], longitude=-17.89)  # 4 November 2013, 01:59 UTC
    array([20131103])
    >>> night_of([1383530354.0], longitude=160.0)  # already past noon there
    array([20131104])
    """
    local = np.asarray(unix_time, dtype=np.float64) + DAY * ((longitude or 0.0) / 360 - 0.5)
    missing = ~np.isfinite(local)
    days = np.floor(np.where(missing, 0.0, local) / DAY).astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    number = month.astype(np.int64)  # months since January 1970
    years, months = 1970 + number // 12, 1 + number % 12
    nights = 10_000 * years + 100 * months + (days - month).astype(np.int64) + 1
    return np.where(missing, np.nan, nights) if missing.any() else nights


def add_night(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the column ``night``, from its times where it has none; without, where these do not tell.

    Parameters
    ----------
    table : DataFrame
        Events with absolute times in ``unix_time``, ``timestamp`` or ``time``. Where the telescope stands is not known
        here, so nights are from noon to noon in UTC.

    Returns
    -------
    DataFrame
        The same events.

    Examples
    --------
    >>> import pandas as pd
    >>> from excess.events import add_night
    >>> add_night(pd.DataFrame({"timestamp": ["2013-11-04 01:59:14"]}))["night"].tolist()
    [20131103]
    """
    name = next((name for name in ABSOLUTE_COLUMNS if name in table), None)
    if "night" in table or name is None:
        return table
    unix = unix_of(table[name], name)
    return table if unix is None else table.assign(night=night_of(unix))


def _leap_seconds(utc: ArrayLike) -> FloatArray:
    """Return TAI minus UTC at Unix times; 10 s before 1972."""
    return np.asarray(_LEAP_OFFSET[np.maximum(np.searchsorted(_LEAP_UTC, utc, side="right") - 1, 0)], dtype=np.float64)


def _utc_from_tai(tai: FloatArray) -> FloatArray:
    """Return Unix times of seconds since 1970 in TAI."""
    # a date of a new leap second in TAI is that in UTC plus the sum that holds from then on
    position = np.searchsorted(_LEAP_UTC + _LEAP_OFFSET, tai, side="right") - 1
    return np.asarray(tai - _LEAP_OFFSET[np.maximum(position, 0)], dtype=np.float64)
