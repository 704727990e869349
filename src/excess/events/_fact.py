"""FACT's HDF5 layout: a group ``events`` that holds one dataset per column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from excess._core.errors import EventFileError, require
from excess.events._arrays import INDEX_COLUMNS, as_native, slices
from excess.events._derived import Origin
from excess.events._hdf5 import check_sizes, open_hdf5, read_texts, stored_names, stored_node
from excess.events.telescopes import KNOWN_TELESCOPES

__all__ = ["canonical_name", "chunks", "columns", "count", "origin"]

GROUP = "events"

FOCAL_LENGTH_MM = 4889.0
DEGREES_PER_MM = math.degrees(1 / FOCAL_LENGTH_MM)
"""Older files hold theta in mm in the camera plane; this is the small-angle conversion."""

# COGx, COGy and Delta keep their names: the camera's axes were another, by 90 degrees.
_EXACT = {
    "NIGHT": "night",
    "RUNID": "run_id",
    "EventNum": "event_num",
    "TriggerType": "trigger_type",
    "NPIX": "num_pixel",
    "NROI": "roi",
    "Size": "size",
    "Width": "width",
    "Length": "length",
    "Leakage": "leakage1",
    "Leakage2": "leakage2",
    "ConcCore": "concentration_core",
    "concCOG": "concentration_cog",
    "Concentration_onePixel": "concentration_one_pixel",
    "Concentration_twoPixel": "concentration_two_pixel",
    # These were divided by powers of length and width, unlike the current m3_long, ....
    "M3Long": "skewness_long",
    "M3Trans": "skewness_trans",
    "M4Long": "kurtosis_long",
    "M4Trans": "kurtosis_trans",
    "numIslands": "num_islands",
    "numPixelInShower": "num_pixel_in_shower",
    "numPixelInPedestal": "num_pixel_in_pedestal",
    "Timespread": "timespread",
    "Timespread_weighted": "timespread_weighted",
    "Slope_long": "slope_long",
    "Slope_trans": "slope_trans",
    "Slope_spread": "slope_spread",
    "Slope_spread_weighted": "slope_spread_weighted",
    "pedestalSize": "pedestal_size",
    "pedestalTimespread": "pedestal_timespread",
    "arrivalTimeMean": "arrival_time_mean",
    "photonchargeMean": "photoncharge_mean",
    "AzPointing": "pointing_position_az",
    "ZdPointing": "pointing_position_zd",
    "AzSourceCalc": "source_position_az",
    "ZdSourceCalc": "source_position_zd",
    "signal_prediction": "gamma_prediction",
    "energy_prediction": "gamma_energy_prediction",
    "energy_prediction_std": "gamma_energy_prediction_std",
}

_PATTERNS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"Theta(?:_Off_(\d+))?", "theta_deg"),
        (r"Alpha(?:_Off_(\d+))?", "alpha"),
        (r"Distance(?:_Off_(\d+))?", "distance"),
        (r"CosDeltaAlpha(?:_Off_(\d+))?", "cos_delta_alpha"),
        (r"background_prediction_(\d+)", "gamma_prediction"),
    )
)

_PREFIXES = {
    "phChargeShower_": "photoncharge_shower_",
    "phChargePedestal_": "photoncharge_pedestal_",
    "arrTimeShower_": "arrival_time_shower_",
    "arrTimePedestal_": "arrival_time_pedestal_",
    "maxSlopesShower_": "max_slopes_shower_",
    "maxSlopesPedestal_": "max_slopes_pedestal_",
}


Datasets = dict[str, tuple[Any, float | None]]
"""Dataset of each column, and what to multiply its values by (None: nothing)."""


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    with open_hdf5(path) as file:
        return tuple(_datasets(file, path))


def count(path: Path) -> int:
    """Return the number of events."""
    with open_hdf5(path) as file:
        return _n_events(_datasets(file, path), path)


def origin(path: Path) -> Origin:
    """Return what a file says about its events; tables of others in this layout have no telescope."""
    names = set(columns(path))
    of_fact = {"night", "event_num"} <= names or "num_pixel_in_shower" in names
    return Origin(
        telescope="FACT" if of_fact else None,
        location=KNOWN_TELESCOPES["FACT"].location if of_fact else None,
        data_level=("DL2" if "width" in names else "DL3") if of_fact else None,
        is_simulated=any(name.startswith(("corsika_", "ceres_")) for name in names),
    )


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    h5py = require("h5py", "reading HDF5")
    with open_hdf5(path) as file:
        datasets = _datasets(file, path)
        for part in slices(_n_events(datasets, path), chunk_rows):
            table = {}
            for name in names:
                dataset, factor = datasets[name]
                if h5py.check_string_dtype(dataset.dtype):
                    values = read_texts(dataset, part, path)
                else:
                    values = as_native(dataset[part])
                table[name] = values if factor is None else values * factor
            yield pd.DataFrame(table, copy=False)


def _datasets(file: Any, path: Path) -> Datasets:
    """Return dataset and factor of each column by its current name; the current spelling wins over an older one."""
    h5py = require("h5py", "reading HDF5")
    found: Datasets = {}
    older: Datasets = {}
    for given in stored_names(file[GROUP]):
        dataset = stored_node(file, f"{GROUP}/{given}")
        if not isinstance(dataset, h5py.Dataset) or dataset.ndim != 1 or given in INDEX_COLUMNS:
            continue
        if dataset.dtype.kind in "biufS" or h5py.check_string_dtype(dataset.dtype):
            name, factor = canonical_name(given)
            (found if name == given else older)[name] = (dataset, factor)
    merged = older | found
    if not merged:
        raise EventFileError(f"{path}: the group '{GROUP}' holds no columns")
    check_sizes(path, [dataset for dataset, _ in merged.values()])
    return merged


def _n_events(datasets: Datasets, path: Path) -> int:
    lengths = {name: len(dataset) for name, (dataset, _) in datasets.items()}
    first = next(iter(lengths))
    for name, length in lengths.items():
        if length != lengths[first]:
            raise EventFileError(
                f"{path}: column {name!r} has {length} rows and column {first!r} has {lengths[first]}; "
                "write the file again"
            )
    return lengths[first]


def canonical_name(name: str) -> tuple[str, float | None]:
    """Return the current name of a column, and what to multiply its values by (None: nothing)."""
    if name in _EXACT:
        return _EXACT[name], None
    for pattern, replacement in _PATTERNS:
        if match := pattern.fullmatch(name):
            off = f"_off_{match[1]}" if match[1] else ""
            return replacement + off, DEGREES_PER_MM if replacement == "theta_deg" else None
    for prefix, replacement in _PREFIXES.items():
        if name.startswith(prefix):
            return replacement + name.removeprefix(prefix), None
    return name, None
