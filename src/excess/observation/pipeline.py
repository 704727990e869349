"""The one way from tables of events to what a model learns from: features, regions, groups and exposure ratio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess._core.errors import EventFileError
from excess.events import AnalysisConfig, describe, iter_events, to_features
from excess.events.times import TIME_COLUMNS
from excess.observation.regions import SKY_COLUMNS, angles_to_regions, assign_regions, theta_columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Census", "NearbyEvents", "ObservedChunk", "Pipeline"]

NO_GROUPS = "none"
"""Name of the groups' column where there are no groups."""
IDENTIFIERS = ("event_num", "event_id", "tel_id", "night", "run_id", "obs_id", *TIME_COLUMNS)
"""Columns that say which event it is; kept beside the features where files have them."""
_MAX_OVERLAP = 0.01
"""Share of events in several regions from which On may not have them all."""
_NEARBY = 4.0
"""Events count as near a region up to so many times the cut in theta^2; far enough to see the background beyond it."""


@dataclass
class Census:
    """How many events were read, and what became of them.

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
        """Raise EventFileError unless there are On and Off events, in regions that do not overlap.

        ``source`` names the files; it may be empty.
        """
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
                f"{', '.join(config.quality_cuts)}, and that features are not missing"
            )
        for name, number in (("On", self.n_on), ("Off", self.n_off)):
            if number == 0:
                raise EventFileError(
                    f"{where}no {name} events are left of {self.n_read:,} events read "
                    f"({self.n_outside:,} outside all regions, {self.n_cut:,} cut away)"
                )
        if config.regions.overlap == "on_first" and self.n_overlapping > _MAX_OVERLAP * n_used:
            raise EventFileError(
                f"{where}the regions overlap: {self.n_overlapping:,} of {n_used:,} events lie in several, and giving "
                "them to On would look like a source; make theta_squared_cut smaller, or choose the overlap policy "
                "'drop'"
            )

    def __str__(self) -> str:
        """Say what was read and what was left out."""
        return f"{self.n_read:,} events read, {self.n_outside:,} outside all regions, {self.n_cut:,} cut away"


@dataclass(frozen=True, eq=False)
class NearbyEvents:
    """Events of no region that are near one, and pass the quality cuts.

    Attributes
    ----------
    X : ndarray of shape (n_nearby, n_features)
        Features.
    groups : ndarray of shape (n_nearby,) or None
        Their groups.
    theta : ndarray of shape (n_nearby, n_regions)
        Angle to the centre of each region in deg, On first.
    """

    X: FloatArray
    groups: NDArray[Any] | None
    theta: FloatArray


@dataclass(frozen=True, eq=False)
class ObservedChunk:
    """Events of one table that lie in a region and pass the quality cuts.

    Attributes
    ----------
    X : ndarray of shape (n_events, n_features)
        Features.
    region : ndarray of int64 of shape (n_events,)
        0 is On, higher numbers are Off.
    groups : ndarray of shape (n_events,) or None
        What must not be split between training and hold-out.
    theta : ndarray of shape (n_events, n_regions) or None
        Angle to the centre of each region in deg; None where the files say which region it is.
    identifiers : DataFrame
        Which events these are.
    nearby : NearbyEvents or None
        Events around the regions, if they were asked for.
    census : Census
        How many events the table had, and what became of them.
    """

    X: FloatArray
    region: NDArray[np.int64]
    groups: NDArray[Any] | None
    theta: FloatArray | None
    identifiers: pd.DataFrame
    nearby: NearbyEvents | None
    census: Census

    @property
    def on(self) -> NDArray[np.int64]:
        """Label of each event: 1 is On, 0 is Off."""
        return (self.region == 0).astype(np.int64)


@dataclass(frozen=True)
class Pipeline:
    """From tables of events to the events that are used.

    Attributes
    ----------
    config : AnalysisConfig
        Features, cuts and regions.
    groups : str
        Column of the groups; ``"none"`` for no groups.
    region : int or None
        The region of all events, where the files tell On from Off; None to find it from angles or sky positions.
    nearby : bool
        Keep events around the regions as well.
    identify : bool
        Read the columns that say which event it is, too.
    """

    config: AnalysisConfig
    groups: str = NO_GROUPS
    region: int | None = None
    nearby: bool = False
    identify: bool = True

    def read(self, paths: Sequence[Path], chunk_rows: int) -> Iterator[ObservedChunk]:
        """Yield the events of files, chunk by chunk."""
        for table in iter_events(paths, self.columns(paths[0]), chunk_rows=chunk_rows):
            yield self.observe(table)

    def columns(self, path: Path) -> list[str]:
        """Return the columns of a file that are needed; raise EventFileError where some are missing."""
        present = describe(path).columns
        wanted = [*self.config.columns_needed()]
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
        if self.identify:
            wanted += [name for name in IDENTIFIERS if name in present]
        return list(dict.fromkeys(wanted))

    def observe(self, table: pd.DataFrame) -> ObservedChunk:
        """Return the events of a table that are used."""
        theta = nearby = None
        census = Census(n_read=len(table), n_inside=len(table))
        if self.region is None:
            settings = self.config.regions
            theta = angles_to_regions(table, settings)
            found = assign_regions(theta, theta_squared_cut=settings.theta_squared_cut, overlap=settings.overlap)
            if self.nearby:
                near = (np.where(np.isnan(theta), np.inf, theta) ** 2 < _NEARBY * settings.theta_squared_cut).any(
                    axis=1
                )
                nearby = self._nearby(table, theta, np.flatnonzero(near & ~found.inside))
            rows = np.flatnonzero(found.inside)
            census.n_inside, census.n_overlapping = len(rows), found.n_overlapping
            table, theta, region = table.iloc[rows], theta[rows], found.region[rows]
        else:
            region = np.full(len(table), self.region)
        features = to_features(table, self.config)
        valid = features.valid
        region = region[valid]
        census.n_on = int(np.count_nonzero(region == 0))
        census.n_off = len(region) - census.n_on
        return ObservedChunk(
            X=features.X[valid],
            region=region,
            groups=self._labels(table, valid),
            theta=None if theta is None else theta[valid],
            identifiers=table.loc[valid, [name for name in IDENTIFIERS if name in table]],
            nearby=nearby,
            census=census,
        )

    def _nearby(self, table: pd.DataFrame, theta: FloatArray, rows: NDArray[np.intp]) -> NearbyEvents:
        """Return the valid ones of some events."""
        if self.groups in table:
            # an event that only adds to a plot is not worth an error about its group
            rows = rows[table[self.groups].iloc[rows].notna().to_numpy()]
        table = table.iloc[rows]
        features = to_features(table, self.config)
        valid = features.valid
        return NearbyEvents(features.X[valid], self._labels(table, valid), theta[rows][valid])

    def _labels(self, table: pd.DataFrame, valid: NDArray[np.bool_]) -> NDArray[Any] | None:
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
