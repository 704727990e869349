"""The pipeline from tables of events to the input of a model: features, regions, groups and angles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess._core.errors import EventFileError
from excess.events import LOCATION_COLUMNS, AnalysisConfig, add_night, describe, iter_events, to_features
from excess.events.times import ABSOLUTE_COLUMNS, DAY, JD_RANGE, MJD_RANGE
from excess.observation.census import Census
from excess.observation.observation_times import recorded_intervals
from excess.observation.placement import Placement, find_excluded, source_direction
from excess.observation.region_methods import SKY_COLUMNS, choose_method
from excess.observation.regions import off_exposure, place_events
from excess.observation.runs import RUN_COLUMNS, TIME_OF_RUN_COLUMNS, TelescopeRun, list_runs, run_labels
from excess.observation.sky import angles_between, place_in_field, unit_vectors
from excess.observation.sky_field import field_radius, has_sky, row_draws, sky_offsets

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
    """Events in no region that pass the quality cuts: those near a region, and those of the field around the source.

    Attributes
    ----------
    X : ndarray of shape (n_nearby, n_features)
        Features.
    groups : ndarray of shape (n_nearby,) or None
        Groups.
    theta : ndarray of shape (n_nearby, n_regions)
        Angles to the centres of the regions in deg.
    near : ndarray of bool of shape (n_nearby,)
        True for events near a region; the others are for the map of the sky only.
    sky : ndarray of shape (n_nearby, 5) or None
        As in `ObservedChunk`.
    share : float
        Share of the events that are not near a region which was drawn, where there were too many.
    """

    X: FloatArray
    groups: NDArray[Any] | None
    theta: FloatArray
    near: BoolArray
    sky: FloatArray | None = None
    share: float = 1.0

    def drawn(self, share: float) -> NearbyEvents:
        """Return all events near a region, and a share of the others, by the numbers that were drawn for them."""
        if self.sky is None or share == self.share:
            return self
        rows = np.flatnonzero(self.near | (self.sky[:, 4] < share))
        groups = None if self.groups is None else self.groups[rows]
        return NearbyEvents(self.X[rows], groups, self.theta[rows], self.near[rows], self.sky[rows], share)


@dataclass(frozen=True, eq=False)
class ObservedChunk:
    """Events of one table that lie in a region and pass the quality cuts; see `Observation` for the attributes.

    ``region`` is 0 for On and higher for Off, ``exposure`` is that of each Off region (see `Regions`), ``identifiers``
    are the columns that identify the events, ``file`` is the name of their file where there is one. ``sky`` has, where
    it is known, the positions of each event and of the pointing, both to the east and to the north of the source in
    deg, and a number between 0 and 1 by which a part of the events is drawn. ``intervals`` are those in which all
    events of the table were recorded. ``run`` is the run of each event, and ``runs`` are all runs of the table, if they
    were asked for.
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
    sky: FloatArray | None = None
    intervals: pd.DataFrame | None = None
    run: NDArray[Any] | None = None
    runs: tuple[TelescopeRun, ...] = ()

    @property
    def on(self) -> NDArray[np.int64]:
        """Label of each event: 1 is On, 0 is Off."""
        return (self.region == 0).astype(np.int64)

    @property
    def alpha(self) -> FloatArray:
        """Exposure ratio On/Off of each event, by its regions."""
        if self.exposure is not None:
            return 1 / off_exposure(self.exposure)
        return np.full(len(self.X), 1.0 if self.theta is None else 1 / (self.theta.shape[1] - 1))


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
    list_runs : bool
        Find the runs of the events, with live times and zenith distances.
    """

    config: AnalysisConfig
    groups: str = NO_GROUPS
    region: int | None = None
    offset: tuple[float, float] | None = None
    nearby: bool = False
    identify: bool = True
    list_runs: bool = False

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
                "the configuration need; 'excess init' writes a configuration for these files, or join the files that "
                "have them"
            )
        if self.region is None:
            wanted += choose_method(present, self.config.regions)[1]
        elif self.offset is not None:
            wanted += SKY_COLUMNS
        if self.identify:
            wanted += [name for name in (*IDENTIFIERS, *TIME_OF_RUN_COLUMNS) if name in present]
            if self._maps(present):
                wanted += SKY_COLUMNS
        if self.list_runs:
            wanted += [name for name in RUN_COLUMNS if name in present]
        return list(dict.fromkeys(wanted))

    def observe(self, table: pd.DataFrame) -> ObservedChunk:
        """Return the events of a table inside a region that pass the quality cuts."""
        theta = nearby = exposure = sky = None
        if self.groups == NIGHT:
            table = add_night(table)
        file, first_row = str(table.attrs.get("file", "")), int(table.attrs.get("first_row", 0))
        intervals = None
        if self.identify and self.region in (None, 0):
            intervals = recorded_intervals(table, seconds_of(table), self.groups, file)
        number = np.arange(first_row, first_row + len(table))
        runs = tuple(list_runs(table, seconds_of(table))) if self.list_runs else ()
        run = run_labels(table) if self.list_runs else None
        census = Census(n_read=len(table), n_inside=len(table))
        if self.region is None:
            placed, found = place_events(table, self.config.regions)
            if self._maps(table):
                sky = np.column_stack([sky_offsets(table, self.config.regions), row_draws(first_row, len(table))])
            if self.nearby:
                nearby = self._nearby(table, placed, sky, ~found.inside)
            rows = np.flatnonzero(found.inside)
            census.n_inside, census.n_overlapping = len(rows), found.n_overlapping
            census.n_without_off = found.n_without_off
            table, region, number = table.iloc[rows], found.region[rows], number[rows]
            theta = None if placed.theta is None else placed.theta[rows]
            exposure = None if found.exposure is None else found.exposure[rows]
            sky = None if sky is None else sky[rows]
        else:
            if self.offset is not None:
                rows = np.flatnonzero(self._in_field(table))
                table, number, run = table.iloc[rows], number[rows], None if run is None else run[rows]
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
            identifiers=self._identifiers(table.iloc[np.flatnonzero(valid)], number[valid], file),
            nearby=nearby,
            census=census,
            file=file,
            sky=None if sky is None else sky[valid],
            intervals=intervals,
            run=None if run is None else run[valid],
            runs=runs,
        )

    def _maps(self, columns: Any) -> bool:
        """Return whether positions on the sky are kept: where events around the regions are, and they are known."""
        return self.identify and self.nearby and self.region is None and has_sky(columns, self.config.regions)

    def _identifiers(self, table: pd.DataFrame, number: NDArray[np.int64], file: str) -> pd.DataFrame:
        """Return the columns that identify events, with the file and the row of each where files are known."""
        known = table[[name for name in IDENTIFIERS if name in table]]
        if not self.identify:
            return known
        located = all(name in table for name in LOCATION_COLUMNS)
        files, rows = (table[name].to_numpy() for name in LOCATION_COLUMNS) if located else (file, number)
        return known.assign(**({"file": files} if located or file else {}), row=rows)

    def _in_field(self, table: pd.DataFrame) -> NDArray[np.bool_]:
        """Return which events are near the source, or near its place in the field of view of an Off run."""
        ra, dec, *pointing = (table[name].to_numpy(dtype=np.float64) for name in SKY_COLUMNS)
        settings = self.config.regions
        event = unit_vectors(ra, dec)
        if self.region == 0:
            center = source_direction(settings)
        else:
            offset, direction = self.offset or (0.0, 0.0)
            center = place_in_field(*pointing, offset=offset, direction=direction)
            if settings.exclusion and (found := find_excluded(center, settings, settings.radius)).any():
                where = f"pointing ra {pointing[0][found][0]:g}, dec {pointing[1][found][0]:g}"
                raise EventFileError(
                    f"the place of the source in the field of view of an Off run ({where}) overlaps an exclusion; "
                    "leave that run out"
                )
        theta = np.degrees(angles_between(center, event))
        return np.where(np.isnan(theta), np.inf, theta) ** 2 < settings.theta_squared_cut

    def _nearby(
        self, table: pd.DataFrame, placed: Placement, sky: FloatArray | None, outside: BoolArray
    ) -> NearbyEvents | None:
        """Return the events in no region, but near one or in the mapped field, that pass the quality cuts."""
        cut = self.config.regions.theta_squared_cut
        if placed.theta is None and sky is None:
            return None
        theta = np.empty((len(table), 0)) if placed.theta is None else placed.theta
        near: BoolArray = np.asarray((np.where(np.isnan(theta), np.inf, theta) ** 2 < _NEARBY * cut).any(axis=1))
        if placed.excluded is not None:
            near &= ~placed.excluded
        wanted = near & outside
        if sky is not None:
            wanted |= outside & (np.hypot(sky[:, 0], sky[:, 1]) < field_radius(cut))
        rows = np.flatnonzero(wanted)
        if self.groups in table:
            # nearby events are only shown in a plot, so a missing group is not an error
            rows = rows[table[self.groups].iloc[rows].notna().to_numpy()]
        table = table.iloc[rows]
        features = to_features(table, self.config)
        valid = features.valid
        rows = rows[valid]
        return NearbyEvents(
            features.X[valid],
            self._groups_of(table, valid),
            theta[rows],
            near[rows],
            None if sky is None else sky[rows],
        )

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
