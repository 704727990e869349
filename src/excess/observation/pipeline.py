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
from excess.observation.regions import (
    SKY_COLUMNS,
    angles_to_regions,
    assign_regions,
    theta_columns,
    theta_from_offset,
    theta_from_sky,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Census", "NearbyEvents", "ObservedChunk", "Pipeline", "seconds_of"]

NIGHT = "night"
NO_GROUPS = "none"
"""Name of the groups' column where there are no groups."""
IDENTIFIERS = ("event_num", "event_id", "tel_id", "night", "run_id", "obs_id", *ABSOLUTE_COLUMNS)
"""Columns that identify an event; kept with the features if the files have them."""
_MAX_OVERLAP = 0.01
"""Largest share of events in several regions for the overlap policy "on_first"."""
_MAX_OVERLAP_ERROR = 0.3
"""Largest excess that such events may fake, in units of the statistical error of the excess."""
_NEARBY = 4.0
"""Largest theta^2 of nearby events in units of the cut; far enough to see the background beyond the cut."""


@dataclass
class Census:
    """Numbers of events that were read, inside the regions, and used.

    Attributes
    ----------
    n_read : int
        Events that were read.
    n_inside : int
        Events in any region.
    n_on, n_off : int
        Events in the On region and in Off regions that pass the quality cuts.
    n_overlapping : int
        Events in several regions.
    """

    n_read: int = 0
    n_inside: int = 0
    n_on: int = 0
    n_off: int = 0
    n_overlapping: int = 0

    @property
    def n_outside(self) -> int:
        """Events in no region."""
        return self.n_read - self.n_inside

    @property
    def n_cut(self) -> int:
        """Events in a region that fail the quality cuts or miss a feature."""
        return self.n_inside - self.n_on - self.n_off

    def add(self, other: Census) -> None:
        """Add the events of other files."""
        for name in ("n_read", "n_inside", "n_on", "n_off", "n_overlapping"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def check(self, source: str, config: AnalysisConfig) -> None:
        """Raise EventFileError unless there are On and Off events; ``source`` names the files, and may be empty."""
        where = f"{source}: " if source else ""
        n_used = self.n_on + self.n_off
        if self.n_read == 0:
            raise EventFileError(f"{where}there are no events")
        if self.n_inside == 0:
            raise EventFileError(
                f"{where}none of {self.n_read:,} events lies in a region (theta^2 < "
                f"{config.regions.theta_squared_cut:g} deg^2); check the units of the angles, or the position of the "
                "source"
            )
        if n_used == 0:
            raise EventFileError(
                f"{where}the quality cuts leave none of {self.n_inside:,} events in the regions; check "
                f"{', '.join(config.quality_cuts)}, and that {_no_value_missing(config)}"
            )
        for name, number in (("On", self.n_on), ("Off", self.n_off)):
            if number == 0:
                raise EventFileError(
                    f"{where}no {name} events are left of {self.n_read:,} events read "
                    f"({self.n_outside:,} outside all regions, {self.n_cut:,} cut away)"
                )
        if config.regions.overlap == "on_first":
            self._check_overlap(where, config.regions.n_regions)

    def _check_overlap(self, where: str, n_regions: int) -> None:
        """Refuse overlapping regions where the events that Off loses to On would look like a source."""
        alpha = 1 / (n_regions - 1)
        n_used = self.n_on + self.n_off
        lost = alpha * self.n_overlapping * n_used / self.n_inside
        error = float(np.sqrt(self.n_on + alpha**2 * self.n_off))
        if self.n_overlapping > _MAX_OVERLAP * n_used or lost > _MAX_OVERLAP_ERROR * error:
            raise EventFileError(
                f"{where}the regions overlap: {self.n_overlapping:,} of {self.n_inside:,} events lie in several, and "
                f"giving them to On would look like a source, by {lost / error:.1f} sigma; make theta_squared_cut "
                "smaller, or choose the overlap policy 'drop'"
            )

    def __str__(self) -> str:
        """Return the numbers of events that were read and left out."""
        return f"{self.n_read:,} events read, {self.n_outside:,} outside all regions, {self.n_cut:,} cut away"


def _no_value_missing(config: AnalysisConfig) -> str:
    """Return what has to be there in an event."""
    if not config.references:
        return "features are not missing"
    return f"neither features nor the references {', '.join(config.references)} are missing"


@dataclass(frozen=True, eq=False)
class NearbyEvents:
    """Features, groups and angles of events near a region, but in none, that pass the quality cuts."""

    X: FloatArray
    groups: NDArray[Any] | None
    theta: FloatArray


@dataclass(frozen=True, eq=False)
class ObservedChunk:
    """Events of one table that lie in a region and pass the quality cuts; see `Observation` for the attributes.

    ``region`` is 0 for On and higher for Off, ``identifiers`` are the columns that identify the events, ``file`` is the
    name of their file where there is one.
    """

    X: FloatArray
    region: NDArray[np.int64]
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
            thetas = theta_columns(self.config.regions.n_regions)
            known = thetas if all(name in present for name in thetas) else (*thetas, *SKY_COLUMNS)
            wanted += [name for name in known if name in present]
        elif self.offset is not None:
            wanted += SKY_COLUMNS
        if self.identify:
            wanted += [name for name in IDENTIFIERS if name in present]
        return list(dict.fromkeys(wanted))

    def observe(self, table: pd.DataFrame) -> ObservedChunk:
        """Return the events of a table inside a region that pass the quality cuts."""
        theta = nearby = None
        if self.groups == NIGHT:
            table = add_night(table)
        file = str(table.attrs.get("file", ""))
        census = Census(n_read=len(table), n_inside=len(table))
        if self.region is None:
            settings = self.config.regions
            theta = angles_to_regions(table, settings)
            found = assign_regions(theta, theta_squared_cut=settings.theta_squared_cut, overlap=settings.overlap)
            if self.nearby:
                near = np.where(np.isnan(theta), np.inf, theta) ** 2 < _NEARBY * settings.theta_squared_cut
                nearby = self._nearby(table, theta, np.flatnonzero(near.any(axis=1) & ~found.inside))
            rows = np.flatnonzero(found.inside)
            census.n_inside, census.n_overlapping = len(rows), found.n_overlapping
            table, theta, region = table.iloc[rows], theta[rows], found.region[rows]
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
