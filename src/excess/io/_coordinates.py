"""Times, telescopes and sky positions, and the columns computed from them while reading a file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from excess._utils.checks import FloatArray, check_same_length
from excess._utils.errors import require
from excess.io._files import read_catalogue


class Location(NamedTuple):
    """A place on Earth."""

    longitude: float
    latitude: float
    height: float

    @classmethod
    def from_geocentric(cls, x: float, y: float, z: float) -> Location:
        """Return a place from its coordinates relative to the centre of the Earth in m (ITRS)."""
        longitude, latitude, height = require("erfa", "locations").gc2gd(1, (x, y, z))  # 1: WGS 84
        return cls(float(np.degrees(longitude)), float(np.degrees(latitude)), float(height))


class Telescope(NamedTuple):
    """A telescope or array: its name, and its location if it is on the ground."""

    name: str
    location: Location | None


_ROWS = {row["name"]: row for row in read_catalogue("telescopes.csv")}
_PLACES = {name: [row[key] for key in Location._fields] for name, row in _ROWS.items()}
KNOWN_TELESCOPES = {  # telescopes by name
    name: Telescope(name, Location(*map(float, place)) if all(place) else None) for name, place in _PLACES.items()
}
_UNKNOWN = ("", "unknown", "none", "other", "undefined", "unspecified", "montecarloarray", "n/a", "simulation")


def find_telescope(name: str | None) -> Telescope | None:
    """Return a telescope by the name in a file, in any spelling."""
    given = " ".join((name or "").split())
    if given.lower() in _UNKNOWN:
        return None
    plain = given.lower().replace(".", "")
    for known, row in _ROWS.items():
        if re.fullmatch(row["pattern"], plain) or plain == known.lower().replace(".", ""):
            return KNOWN_TELESCOPES[known]
    return Telescope(given, None)


DAY = 86_400.0
UNIX_EPOCH = 40_587.0  # 1 January 1970 as a modified Julian date
MJD_RANGE, JD_RANGE = (20_000.0, 100_000.0), (2_400_000.0, 2_500_000.0)  # present dates, modified Julian and Julian
UNIX_RANGE = (3e8, 1e10)  # range of present times in seconds of Unix time
ABSOLUTE_COLUMNS = ("unix_time", "timestamp", "time")  # columns of times; the first one in a table is used
# seconds that a scale is ahead of TAI; UTC has leap seconds, and TDB differs from TT by less than 2 ms
TIME_SCALES = {"utc": None, "tai": 0.0, "tt": 32.184, "tdb": 32.184, "et": 32.184, "tcb": 32.184, "gps": -19.0}


def unix_from_seconds(seconds: ArrayLike, *, reference_mjd: float = UNIX_EPOCH, scale: str = "utc") -> FloatArray:
    """Return Unix times from seconds since a reference, as event lists count them."""
    start = (reference_mjd - UNIX_EPOCH) * DAY
    ahead = TIME_SCALES[scale.lower()]
    tai = start + float(_ahead_of_utc(start, _leap_seconds()[0])) if ahead is None else start - ahead
    return _utc_from_tai(np.asarray(seconds, dtype=np.float64) + tai)


def unix_from_mjd(mjd: ArrayLike, *, scale: str = "utc") -> FloatArray:
    """Return Unix times from modified Julian dates."""
    seconds = (np.asarray(mjd, dtype=np.float64) - UNIX_EPOCH) * DAY
    ahead = TIME_SCALES[scale.lower()]
    return seconds if ahead is None else _utc_from_tai(seconds - ahead)


def unix_of(values: pd.Series, name: str) -> FloatArray | None:
    """Return Unix times of a column of times; None if its origin is unknown."""
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
    """Return the night of each time: the local date of its evening, from noon to noon."""
    local = np.asarray(unix_time, dtype=np.float64) + DAY * ((longitude or 0.0) / 360 - 0.5)
    missing = ~np.isfinite(local)
    days = np.floor(np.where(missing, 0.0, local) / DAY).astype("datetime64[D]")
    month = days.astype("datetime64[M]")
    number = month.astype(np.int64)  # months since January 1970
    years, months = 1970 + number // 12, 1 + number % 12
    nights = 10_000 * years + 100 * months + (days - month).astype(np.int64) + 1
    return np.where(missing, np.nan, nights) if missing.any() else nights


def add_night(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the column ``night``, computed from absolute times if missing."""
    name = next((name for name in ABSOLUTE_COLUMNS if name in table), None)
    if "night" in table or name is None:
        return table
    unix = unix_of(table[name], name)
    return table if unix is None else table.assign(night=night_of(unix))


@cache
def _leap_seconds() -> tuple[FloatArray, FloatArray]:
    """Return the Unix times since 1972 from which on TAI minus UTC has another value, and these values in seconds."""
    # astropy.time would be a hundred times slower, and may download newer tables
    table = require("erfa", "times of events").leap_seconds.get()
    table = table[table["year"] >= 1972]
    dates = [f"{year}-{month:02}" for year, month in zip(table["year"], table["month"], strict=True)]
    return np.array(dates, dtype="datetime64[s]").astype(np.float64), table["tai_utc"].astype(np.float64)


def _ahead_of_utc(times: ArrayLike, starts: FloatArray) -> FloatArray:
    """Return TAI minus UTC at times; 10 s before 1972."""
    return np.asarray(_leap_seconds()[1][np.maximum(np.searchsorted(starts, times, side="right") - 1, 0)])


def _utc_from_tai(tai: FloatArray) -> FloatArray:
    """Return Unix times of seconds since 1970 in TAI."""
    # the date of a new leap second in TAI is that in UTC plus the offset valid from then on
    return np.asarray(tai - _ahead_of_utc(tai, np.add(*_leap_seconds())))


_GRID = 300.0  # seconds between computed rotations of the Earth; interpolation is better than a microarcsecond


def sky_positions(
    altitude: ArrayLike, azimuth: ArrayLike, unix_time: ArrayLike, location: Location
) -> tuple[FloatArray, FloatArray]:
    """Return right ascension and declination (ICRS) of directions relative to the horizon."""
    coordinates, units, times, astrometry = (
        require(f"astropy.{name}", "sky positions")
        for name in ("coordinates", "units", "time", "coordinates.erfa_astrom")
    )
    alt, az, time = (np.asarray(value, dtype=np.float64) for value in (altitude, azimuth, unix_time))
    check_same_length(altitude=alt, azimuth=az, unix_time=time)
    ra, dec = np.full(len(alt), np.nan), np.full(len(alt), np.nan)
    known = np.isfinite(alt) & np.isfinite(az) & np.isfinite(time) & (np.abs(alt) <= 90)
    if not known.any():
        return ra, dec
    with _offline():
        place = coordinates.EarthLocation.from_geodetic(location.longitude, location.latitude, location.height)
        frame = coordinates.AltAz(obstime=times.Time(time[known], format="unix", scale="utc"), location=place)
        horizon = coordinates.SkyCoord(az[known], alt[known], unit="deg", frame=frame)
        with astrometry.erfa_astrom.set(astrometry.ErfaAstromInterpolator(_GRID * units.s)):
            sky = horizon.icrs
    ra[known], dec[known] = sky.ra.deg, sky.dec.deg
    return ra, dec


@cache
def _earth_orientation() -> Any:
    iers = require("astropy.utils.iers", "sky positions")
    return iers.IERS_A.open(iers.IERS_A_FILE)


@contextmanager
def _offline() -> Iterator[None]:
    """Restrict astropy to its bundled tables; it uses mean values for dates beyond them."""
    iers = require("astropy.utils.iers", "sky positions")
    with (
        warnings.catch_warnings(),
        iers.conf.set_temp("auto_download", False),
        iers.conf.set_temp("iers_degraded_accuracy", "ignore"),
        iers.earth_orientation_table.set(_earth_orientation()),
    ):
        warnings.simplefilter("ignore")
        yield


NIGHT, UNIX_TIME = "night", "unix_time"


class Derivation(NamedTuple):
    """Computed columns: their names, the required columns, and the function that computes them."""

    names: tuple[str, ...]
    needs: tuple[str, ...]
    compute: Callable[[pd.DataFrame], tuple[NDArray[np.generic], ...]]


def first_column(table: pd.DataFrame) -> tuple[FloatArray]:
    """Return the first column of a table under another name."""
    return (table.iloc[:, 0].to_numpy(dtype=np.float64),)


class Direction(NamedTuple):
    """Columns of altitude and azimuth, and the factor that converts them to degrees."""

    altitude: str
    azimuth: str
    factor: float = 1.0


class Origin(NamedTuple):
    """Metadata of a file besides its columns."""

    telescope: str | None = None
    location: Location | None = None
    data_level: str | None = None
    is_simulated: bool = False
    n_array_events: int | None = None
    directions: Mapping[str, Direction] = {}
    derivations: tuple[Derivation, ...] = ()
    telescope_columns: tuple[str, ...] = ()
    n_images: int | None = None


class Plan(NamedTuple):
    """Plan to read columns of a file: stored columns, and computed ones in order."""

    stored: tuple[str, ...]
    computed: tuple[Derivation, ...]

    @classmethod
    def of(cls, wanted: Iterable[str], stored: Iterable[str], derived: Iterable[Derivation]) -> Plan:
        """Return the plan for some columns; stored columns are never computed."""
        known = set(stored)
        by_name = {name: one for one in derived for name in one.names if name not in known}
        needed: dict[str, None] = {}
        computed: dict[str, Derivation] = {}

        def require(name: str) -> None:
            one = by_name.get(name)
            if one is None:
                needed.setdefault(name)
                return
            for other in one.needs:
                require(other)
            for own in one.names:
                computed.setdefault(own, one)

        for name in wanted:
            require(name)
        return cls(tuple(needed), tuple(dict.fromkeys(computed.values())))

    def complete(self, table: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
        """Return the requested columns from a table of stored ones."""
        if not self.computed:
            return table if tuple(table.columns) == names else table[list(names)]
        columns: dict[Any, Any] = {name: table[name] for name in table}
        for one in self.computed:
            values = one.compute(pd.DataFrame({name: columns[name] for name in one.needs}, copy=False))
            # a stored column takes precedence over a computed one of the same name
            columns |= {name: value for name, value in zip(one.names, values, strict=True) if name not in table}
        return pd.DataFrame({name: columns[name] for name in names}, index=table.index, copy=False)


def derivations(
    stored: tuple[str, ...], origin: Origin, peek: Callable[[str], pd.Series]
) -> tuple[tuple[Derivation, ...], tuple[str, ...]]:
    """Return the computable columns of a file, and their names; ``peek`` returns first values of a column."""
    found = list(origin.derivations)
    names = {*stored, *(name for one in found for name in one.names)}
    for plain in ("ra", "dec"):
        other = next((name for name in stored if name.lower() == plain and plain not in names), None)
        if other is not None:
            found.append(Derivation((plain,), (other,), first_column))
            names.add(plain)
    time = None if NIGHT in names or origin.is_simulated else _absolute_time(names, peek)
    if time is not None:
        longitude = None if origin.location is None else origin.location.longitude
        found.append(Derivation((NIGHT,), (time,), lambda table: (night_from(table[time], longitude),)))
    if UNIX_TIME in names and origin.location is not None and not origin.is_simulated:
        for prefix, direction in origin.directions.items():
            both = (f"{prefix}ra", f"{prefix}dec")
            if not set(both) & names and {direction.altitude, direction.azimuth} <= names:
                found.append(_to_sky(both, direction, origin.location))
    new = tuple(name for one in found for name in one.names if name not in stored)
    return tuple(found), tuple(dict.fromkeys(new))


def night_from(time: pd.Series, longitude: float | None = None) -> NDArray[np.generic]:
    """Return the night of each value of a column of times; NaN if unknown."""
    unix = unix_of(time, str(time.name))
    return np.full(len(time), np.nan) if unix is None else night_of(unix, longitude)


def _absolute_time(names: set[str], peek: Callable[[str], pd.Series]) -> str | None:
    """Return the column with absolute times of events, None if there is none."""
    for name in (name for name in ABSOLUTE_COLUMNS if name in names):
        try:
            if unix_of(peek(name), name) is not None:
                return name
        except KeyError:  # computed, thus in Unix time
            return name
    return None


def _to_sky(names: tuple[str, ...], direction: Direction, location: Location) -> Derivation:
    def compute(table: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        altitude, azimuth, time = (table[name].to_numpy(dtype=np.float64) for name in needs)
        return sky_positions(direction.factor * altitude, direction.factor * azimuth, time, location)

    needs = (direction.altitude, direction.azimuth, UNIX_TIME)
    return Derivation(names, needs, compute)
