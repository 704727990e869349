"""Pointing of telescopes in ctapipe's HDF5 files: monitoring tables, fixed directions, and observation blocks."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess.events._ctapipe_tables import find_tables, open_table
from excess.events._derived import Derivation
from excess.events._hdf5 import stored_node

__all__ = ["TelescopePointing", "array_pointing", "read_pointing", "telescope_pointings"]

MONITORING = "/dl0/monitoring/telescope/pointing"
FIXED = "/configuration/telescope/pointing"
ARRAY_MONITORING = "/dl1/monitoring/subarray/pointing"
OLD_MONITORING = "/dl1/monitoring/telescope/pointing"
BLOCKS = "/configuration/observation/observation_block"
ALTAZ, ICRS = 0, 1
"""Frames of the coordinates of an observation block."""


class TelescopePointing(NamedTuple):
    """Directions of a telescope, at times (modified Julian dates in TAI) or in observations, in the file's unit."""

    key: str
    at: NDArray[Any]
    altitude: FloatArray
    azimuth: FloatArray
    degrees: float

    def of(self, keys: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
        """Return altitude and azimuth at times, by interpolation, or of observations, NaN where these are unknown."""
        if self.key == "time":
            turned = np.unwrap(self.azimuth, period=360 / self.degrees)
            return np.interp(keys, self.at, self.altitude), np.interp(keys, self.at, turned)
        position = np.clip(np.searchsorted(self.at, keys), 0, len(self.at) - 1)
        known = self.at[position] == keys
        return tuple(np.where(known, angle[position], np.nan) for angle in (self.altitude, self.azimuth))  # type: ignore[return-value]


def telescope_pointings(file: Any) -> dict[int, str]:
    """Return the table with the pointing of each telescope; monitoring comes before fixed directions, as in ctapipe."""
    for group in (MONITORING, FIXED):
        found = _tables(file, group)
        if found:
            return found
    return {}


def array_pointing(file: Any) -> Derivation | None:
    """Return the pointing of the array as a column that is computed, None where the file does not tell it.

    An observation block that tracks a position on the sky says it best. Else it is the direction of the array or of its
    first telescope, in degrees.
    """
    blocks = _blocks(file)
    if blocks is not None and (blocks["frame"] == ICRS).all():
        return Derivation(("pointing_ra", "pointing_dec"), ("obs_id",), partial(_of_block, blocks=blocks))
    paths = [*find_tables(file, ARRAY_MONITORING), *telescope_pointings(file).values()]
    for path in (*paths, *_tables(file, OLD_MONITORING).values()):
        pointing = read_pointing(file, path)
        if pointing is not None:
            return Derivation(("pointing_alt", "pointing_az"), (pointing.key,), partial(_in_degrees, pointing=pointing))
    if blocks is not None and (blocks["frame"] == ALTAZ).all():
        return Derivation(("pointing_az", "pointing_alt"), ("obs_id",), partial(_of_block, blocks=blocks))
    return None


def read_pointing(file: Any, path: str) -> TelescopePointing | None:
    """Return the directions of a table, None if it lacks a column or is empty."""
    table = open_table(file, path)
    key = "obs_id" if path.startswith(FIXED) else "time"
    found = {}
    for wanted in (key, "altitude", "azimuth"):
        name = next((name for name in table.fields if name == wanted or name.endswith(f"_{wanted}")), None)
        if name is None or table.n_rows == 0:
            return None
        found[wanted] = table.fields[name]
    rows = table.read(file)
    at, altitude, azimuth = (field.of(rows) for field in found.values())
    order = np.argsort(at, kind="stable")
    return TelescopePointing(
        key, at[order], altitude[order].astype(np.float64), azimuth[order].astype(np.float64), found["altitude"].degrees
    )


def _in_degrees(table: pd.DataFrame, pointing: TelescopePointing) -> tuple[FloatArray, FloatArray]:
    altitude, azimuth = pointing.of(table[pointing.key].to_numpy())
    return altitude * pointing.degrees, azimuth * pointing.degrees


def _of_block(table: pd.DataFrame, blocks: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    known = blocks.reindex(table["obs_id"].to_numpy())
    return known["lon"].to_numpy(dtype=np.float64), known["lat"].to_numpy(dtype=np.float64)


def _blocks(file: Any) -> pd.DataFrame | None:
    """Return the coordinates of observation blocks in deg by obs_id; None if there are none."""
    if stored_node(file, BLOCKS) is None:
        return None
    table = open_table(file, BLOCKS)
    names = {"lon": "subarray_pointing_lon", "lat": "subarray_pointing_lat", "frame": "subarray_pointing_frame"}
    if not {"obs_id", *names.values()} <= set(table.fields) or table.n_rows == 0:
        return None
    rows = table.read(file)
    columns = {short: table.fields[name].of(rows) * table.fields[name].degrees for short, name in names.items()}
    blocks = pd.DataFrame(columns, index=table.fields["obs_id"].of(rows))
    blocks = blocks[~blocks.index.duplicated()]
    return blocks if np.isfinite(blocks[["lon", "lat"]]).all(axis=None) else None


def _tables(file: Any, group: str) -> dict[int, str]:
    """Return the tables of a group by the number of their telescope."""
    paths = {path.rpartition("_")[2]: path for path in find_tables(file, group)}
    return {int(number): path for number, path in paths.items() if number.isdigit()}
