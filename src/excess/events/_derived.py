"""Columns that are computed while a file is read: Unix times, nights and sky positions.

A format says what its files hold besides columns (`Origin`), and the rest is the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess.events.sky import sky_positions
from excess.events.telescopes import Location
from excess.events.times import ABSOLUTE_COLUMNS, night_of, unix_of

__all__ = ["Derivation", "Direction", "Origin", "Plan", "derivations", "night_from"]

NIGHT = "night"
UNIX_TIME = "unix_time"


class Derivation(NamedTuple):
    """Columns that follow from others: their names, the columns they need, and how they are computed from these."""

    names: tuple[str, ...]
    needs: tuple[str, ...]
    compute: Callable[[pd.DataFrame], tuple[NDArray[np.generic], ...]]


class Direction(NamedTuple):
    """Columns of altitude and azimuth, and what to multiply them by to get degrees."""

    altitude: str
    azimuth: str
    factor: float = 1.0


class Origin(NamedTuple):
    """What a file says about its events besides its columns.

    ``directions`` has the directions relative to the horizon by the prefix of the sky positions that follow from them:
    "" for those of events, "pointing_" for the pointing. ``derivations`` are further ones of the format.
    ``telescope_columns`` are all columns of telescope images, where a file has several images of one event.
    """

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
    """How to read columns of a file: those that are stored, and those that are computed, in order."""

    stored: tuple[str, ...]
    computed: tuple[Derivation, ...]

    @classmethod
    def of(cls, wanted: Iterable[str], stored: Iterable[str], derived: Iterable[Derivation]) -> Plan:
        """Return the plan for some columns; a name that is in the file is never computed."""
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
        """Return the columns asked for from a table of those that are stored."""
        if not self.computed:
            return table if tuple(table.columns) == names else table[list(names)]
        columns: dict[Any, Any] = {name: table[name] for name in table}
        for one in self.computed:
            values = one.compute(pd.DataFrame({name: columns[name] for name in one.needs}, copy=False))
            # a stored column wins over a computed one of the same name
            columns |= {name: value for name, value in zip(one.names, values, strict=True) if name not in table}
        return pd.DataFrame({name: columns[name] for name in names}, index=table.index, copy=False)


def derivations(
    stored: tuple[str, ...], origin: Origin, peek: Callable[[str], pd.Series]
) -> tuple[tuple[Derivation, ...], tuple[str, ...]]:
    """Return the columns that can be computed for a file, and their names; ``peek`` gives first values of a column."""
    found = list(origin.derivations)
    names = {*stored, *(name for one in found for name in one.names)}
    for plain in ("ra", "dec"):
        other = next((name for name in stored if name.lower() == plain and plain not in names), None)
        if other is not None:
            found.append(Derivation((plain,), (other,), lambda table: (table.iloc[:, 0].to_numpy(dtype=np.float64),)))
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
    """Return the night of each value of a column of times; NaN where it is not known."""
    unix = unix_of(time, str(time.name))
    return np.full(len(time), np.nan) if unix is None else night_of(unix, longitude)


def _absolute_time(names: set[str], peek: Callable[[str], pd.Series]) -> str | None:
    """Return the column that tells the time of events on an absolute scale, None if there is none."""
    for name in ABSOLUTE_COLUMNS:
        if name in names:
            try:
                values = peek(name)
            except KeyError:  # computed, and so in Unix time
                return name
            if unix_of(values, name) is not None:
                return name
    return None


def _to_sky(names: tuple[str, ...], direction: Direction, location: Location) -> Derivation:
    def compute(table: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        altitude, azimuth, time = (table[name].to_numpy(dtype=np.float64) for name in needs)
        return sky_positions(direction.factor * altitude, direction.factor * azimuth, time, location)

    needs = (direction.altitude, direction.azimuth, UNIX_TIME)
    return Derivation(names, needs, compute)
