"""The pipeline from tables of events to the input of a model: features, regions, groups and angles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess._core.errors import EventFileError
from excess.events import AnalysisConfig, add_night, describe, iter_events, to_features
from excess.events.times import ABSOLUTE_COLUMNS, DAY, JD_RANGE, MJD_RANGE
from excess.observation.census import Census
from excess.observation.region_methods import SKY_COLUMNS, choose_method
from excess.observation.regions import place_events
from excess.observation.sky import theta_from_offset, theta_from_sky

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NearbyEvents", "ObservedChunk", "Pipeline", "seconds_of"]

NIGHT = "night"
NO_GROUPS = "none"
"""Name of the groups' column where there are no groups."""
IDENTIFIERS = ("event_num", "event_id", "tel_id", "night", "run_id", "obs_id", *ABSOLUTE_COLUMNS)
"""Columns that identify an event; kept with the features if the files have them."""
_NEARBY = 4.0
"""Largest theta^2 of nearby events in units of the cut; far enough to see the background beyond the cut."""


@dataclass(frozen=True, eq=False)
class NearbyEvents:
    """Features, groups and angles of events near a region, but in none, that pass the quality cuts."""

    X: FloatArray
    groups: NDArray[Any] | None
    theta: FloatArray


@dataclass(frozen=True, eq=False)
class ObservedChunk:
    """Events of one table that lie in a region and pass the quality cuts; see `Observation` for the attributes.

    ``region`` is 0 for On and higher for Off, ``exposure`` is that of each Off region (see `Regions`), ``identifiers``
    are the columns that identify the events, ``file`` is the name of their file where there is one.
    """

    X: FloatArray
    region: NDArray[np.int64]
    exposure: FloatArray | None
    groups: NDArray[Any] | None
    theta: FloatArray | None
    identifiers: pd.DataFrame
    nearby: NearbyEvents | None
    census: Census
    file: str = ""

    @property
    def on(self) -> NDArray[np.int64]:
        """Label of each event: 1 is On, 0 is Off."""
        return (self.region == 0).astype(np.int64)

    @property
    def alphas(self) -> set[float]:
        """Exposure ratios On/Off that the events have, by their regions."""
        if len(self.X) == 0:
            return set()
        if self.exposure is not None:
            return set(np.unique(1 / self.exposure.sum(axis=1)).tolist())
        return {1.0 if self.theta is None else 1 / (self.theta.shape[1] - 1)}


@dataclass(frozen=True)
class Pipeline:
    """Selects the events of tables that an analysis uses.

    Attributes
    ----------
    config : AnalysisConfig
        Features, cuts and regions.
    groups : str
        Column of the groups; ``"none"`` for no groups.
    region : int or None
        The region of all events, if On and Off come from separate files; None to find it from angles or sky positions.
    offset : tuple of float or None
        With ``region``: the offset of the source from the pointing and its direction, both in deg, where files hold
        whole fields of view. Events farther from that place than the cut on theta^2 are in no region.
    nearby : bool
        Keep events around the regions as well.
    identify : bool
        Read the columns that identify events as well.
    """

    config: AnalysisConfig
    groups: str = NO_GROUPS
    region: int | None = None
    offset: tuple[float, float] | None = None
    nearby: bool = False
    identify: bool = True

    def read(self, paths: Sequence[Path], chunk_rows: int) -> Iterator[ObservedChunk]:
        """Yield the events of files, chunk by chunk."""
        for table in iter_events(paths, self.columns(paths[0]), chunk_rows=chunk_rows):
            yield self.observe(table)

    def columns(self, path: Path) -> list[str]:
        """Return the columns of a file that are needed; raise EventFileError where some are missing."""
        info = describe(path)
        wanted = [*self.config.columns_needed()]
        present = info.columns
        if any(name not in present and name in info.telescope_columns for name in wanted):
            present = (*info.telescope_columns, *info.derived)  # rows are telescope images then
        if self.groups != NO_GROUPS:
            wanted.append(self.groups)
        missing = [name for name in wanted if name not in present]
        if len(missing) > 1:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise EventFileError(
                f"{path}: has no columns {', '.join(missing[:5])}{more}, which the features, quality cuts or groups of "
                "the configuration need; give one for these files, with features, quality_cuts and groups, or join the "
                "files that have them"
            )
        if self.region is None:
            wanted += choose_method(present, self.config.regions)[1]
        elif self.offset is not None:
            wanted += SKY_COLUMNS
        if self.identify:
            wanted += [name for name in IDENTIFIERS if name in present]
        return list(dict.fromkeys(wanted))

    def observe(self, table: pd.DataFrame) -> ObservedChunk:
        """Return the events of a table inside a region that pass the quality cuts."""
        theta = nearby = exposure = None
        if self.groups == NIGHT:
            table = add_night(table)
        file = str(table.attrs.get("file", ""))
        census = Census(n_read=len(table), n_inside=len(table))
        if self.region is None:
            placed, found = place_events(table, self.config.regions)
            if self.nearby and placed.theta is not None:
                near = np.where(np.isnan(placed.theta), np.inf, placed.theta) ** 2
                around = (near < _NEARBY * self.config.regions.theta_squared_cut).any(axis=1) & ~found.inside
                if placed.excluded is not None:
                    around &= ~placed.excluded
                nearby = self._nearby(table, placed.theta, np.flatnonzero(around))
            rows = np.flatnonzero(found.inside)
            census.n_inside, census.n_overlapping = len(rows), found.n_overlapping
            census.n_without_off = found.n_without_off
            table, region = table.iloc[rows], found.region[rows]
            theta = None if placed.theta is None else placed.theta[rows]
            exposure = None if found.exposure is None else found.exposure[rows]
        else:
            if self.offset is not None:
                table = table.iloc[np.flatnonzero(self._in_field(table))]
                census.n_inside = len(table)
            region = np.full(len(table), self.region)
        features = to_features(table, self.config)
        valid = features.valid
        region = region[valid]
        census.n_on = int(np.count_nonzero(region == 0))
        census.n_off = len(region) - census.n_on
        return ObservedChunk(
            X=features.X[valid],
            region=region,
            exposure=None if exposure is None else exposure[valid],
            groups=self._groups_of(table, valid),
            theta=None if theta is None else theta[valid],
            identifiers=table.loc[valid, [name for name in IDENTIFIERS if name in table]],
            nearby=nearby,
            census=census,
            file=file,
        )

    def _in_field(self, table: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which events are near the source, or near its place in the field of view of an Off run."""
        ra, dec, *pointing = (table[name].to_numpy(dtype=np.float64) for name in SKY_COLUMNS)
        settings = self.config.regions
        if self.region == 0 and settings.source_ra is not None and settings.source_dec is not None:
            place = {"source_ra": settings.source_ra, "source_dec": settings.source_dec}
            theta = theta_from_sky(ra, dec, *pointing, **place, n_regions=2)[:, 0]
        else:
            offset, direction = self.offset or (0.0, 0.0)
            theta = theta_from_offset(ra, dec, *pointing, offset=offset, direction=direction)
        return np.where(np.isnan(theta), np.inf, theta) ** 2 < settings.theta_squared_cut

    def _nearby(self, table: pd.DataFrame, theta: FloatArray, rows: NDArray[np.intp]) -> NearbyEvents:
        """Return the events of some rows that pass the quality cuts."""
        if self.groups in table:
            # nearby events are only shown in a plot, so a missing group is not an error
            rows = rows[table[self.groups].iloc[rows].notna().to_numpy()]
        table = table.iloc[rows]
        features = to_features(table, self.config)
        valid = features.valid
        return NearbyEvents(features.X[valid], self._groups_of(table, valid), theta[rows][valid])

    def _groups_of(self, table: pd.DataFrame, valid: NDArray[np.bool_]) -> NDArray[Any] | None:
        if self.groups == NO_GROUPS:
            return None
        if self.groups not in table:
            raise ValueError(
                f"groups: there is no column {self.groups!r}; choose one of the events' columns, or 'none'"
            )
        labels = table[self.groups]
        if labels.isna().any():
            raise ValueError(f"groups: column {self.groups!r} has missing values")
        return labels.to_numpy()[valid]


def seconds_of(table: pd.DataFrame) -> FloatArray | None:
    """Return times in seconds from an arbitrary origin, NaN where one is missing; None if the table has no times.

    Texts and dates become seconds of Unix time. Numbers are seconds, unless their median is a plausible Julian date.
    """
    import pandas as pd

    column = next((name for name in ABSOLUTE_COLUMNS if name in table), None)
    if column is None:
        return None
    values = table[column]
    if pd.api.types.is_numeric_dtype(values):
        seconds = values.to_numpy(dtype=np.float64, na_value=np.nan)
        known = seconds[np.isfinite(seconds)]
        if len(known) and any(low < np.median(known) < high for low, high in (MJD_RANGE, JD_RANGE)):
            seconds = DAY * seconds
    else:
        moments = pd.to_datetime(values, errors="coerce", format="mixed", utc=True)
        seconds = (moments - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)
    return seconds if np.isfinite(seconds).any() else None
