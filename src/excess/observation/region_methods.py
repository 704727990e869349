"""The registry of methods that tell On from Off: columns of angles, or regions that are placed on the sky."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from excess.observation.placement import POINTING_COLUMNS, Placement
from excess.observation.reflected import place_reflected
from excess.observation.ring import place_ring
from excess.observation.same_declination import place_same_declination

if TYPE_CHECKING:
    import pandas as pd

    from excess.events import RegionConfig

__all__ = ["METHODS", "SKY_COLUMNS", "RegionMethod", "choose_method", "theta_columns"]

SKY_COLUMNS = ("ra", "dec", *POINTING_COLUMNS)
"""Columns from which angles to reflected regions are computed if a table has no angles."""


class RegionMethod(NamedTuple):
    """A way to tell On from Off.

    Attributes
    ----------
    place : callable
        Function of a table and the settings of the regions that returns a `Placement`.
    columns : tuple of str
        Columns that it needs; empty for columns of angles, whose number is in the settings.
    """

    place: Callable[[pd.DataFrame, RegionConfig], Placement]
    columns: tuple[str, ...] = ()


def theta_columns(n_regions: int) -> list[str]:
    """Return the names of the columns that hold an event's angle to each region, On first."""
    return ["theta_deg", *(f"theta_deg_off_{k}" for k in range(1, n_regions))]


def place_by_columns(table: pd.DataFrame, config: RegionConfig) -> Placement:
    """Return the angles that a table has."""
    return Placement(table[_columns_of_angles(table.columns, config)].to_numpy(dtype=np.float64))


METHODS = {
    "angles": RegionMethod(place_by_columns),
    "reflected": RegionMethod(place_reflected, SKY_COLUMNS),
    "ring": RegionMethod(place_ring, SKY_COLUMNS),
    "same_declination": RegionMethod(place_same_declination, SKY_COLUMNS[:2]),
}


def choose_method(columns: Iterable[str], config: RegionConfig) -> tuple[str, list[str]]:
    """Return the name of the method for a table, and the columns that it needs.

    Parameters
    ----------
    columns : iterable of str
        Columns of the table.
    config : RegionConfig
        Settings of the regions.

    Returns
    -------
    name : str
        A key of `METHODS`. With ``method: auto`` that is ``"angles"`` where the table has them, else ``"reflected"``;
        exclusions and distances from the source need positions.
    needed : list of str
        Columns.

    Raises
    ------
    ValueError
        If the table lacks columns.

    Examples
    --------
    >>> from excess.events import RegionConfig
    >>> from excess.observation.region_methods import choose_method
    >>> choose_method(["energy", "ra", "dec", "pointing_ra", "pointing_dec"], RegionConfig())
    ('reflected', ['ra', 'dec', 'pointing_ra', 'pointing_dec'])
    """
    present = list(columns)
    name = config.method
    if name == "auto":
        by_columns = not config.exclusion and config.min_distance is None
        name = "angles" if by_columns and _has_angles(present, config) else "reflected"
        if name == "reflected" and not set(SKY_COLUMNS) <= set(present):
            raise ValueError(_nothing_known(present, config))
    if name == "angles":
        if not _has_angles(present, config):
            raise ValueError(_nothing_known(present, config))
        return name, _columns_of_angles(present, config)
    needed = list(METHODS[name].columns)
    missing = [column for column in needed if column not in present]
    if missing:
        raise ValueError(
            f"the regions have the method {name}, which needs sky positions in the columns {', '.join(needed)}, and "
            f"there is no {' and no '.join(missing)}; choose another method, or join files that have them"
        )
    return name, needed


def _columns_of_angles(present: Iterable[str], config: RegionConfig) -> list[str]:
    """Return the columns of angles: as many as are asked for, or as there are."""
    if config.n_wanted is not None:
        return theta_columns(config.n_wanted)
    names = set(present)
    n_regions = 1
    while f"theta_deg_off_{n_regions}" in names:
        n_regions += 1
    return theta_columns(n_regions)


def _has_angles(present: list[str], config: RegionConfig) -> bool:
    wanted = _columns_of_angles(present, config)
    return len(wanted) > 1 and set(wanted) <= set(present)


def _nothing_known(present: list[str], config: RegionConfig) -> str:
    """Return the message where columns say nothing about regions."""
    if config.exclusion or config.min_distance is not None:
        key = "exclusion" if config.exclusion else "min_distance"
        return f"{key} needs sky positions in the columns {', '.join(SKY_COLUMNS)}, which these events do not have"
    n_regions = config.n_wanted or 6
    wanted = theta_columns(n_regions)
    missing = [name for name in wanted if name not in present]
    return (
        f"no way to tell On from Off: for {n_regions} regions the events need the columns theta_deg and "
        f"theta_deg_off_1 to theta_deg_off_{n_regions - 1} ({', '.join(missing)} missing), or "
        f"{', '.join(SKY_COLUMNS)}; or give Off events in files of their own"
    )
