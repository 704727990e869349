"""From files to what a model learns from: features, On and Off, exposure ratio and groups of an observation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray, as_scalar_alpha
from excess._core.errors import naming
from excess.events import AnalysisConfig, EventFileError, describe, iter_events, read_events, to_features
from excess.events.times import TIME_COLUMNS, seconds_of
from excess.observation.regions import (
    SKY_COLUMNS,
    Regions,
    angles_to_regions,
    assign_regions,
    regions_of_files,
    theta_columns,
)

if TYPE_CHECKING:
    import pandas as pd

    from excess.validation.detection import Detection

__all__ = ["Observation", "observe", "observe_on_off", "observe_table"]

_KEPT = ("event_num", "event_id", "tel_id", "night", "run_id", "obs_id", *TIME_COLUMNS)
"""Columns that say which event it is; kept beside the features where files have them."""
_KEYS = (("run_id", "event_num", "night"), ("obs_id", "event_id", "tel_id"))
"""Columns that no two events share; the third may be missing."""
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

    def check(self, where: str, config: AnalysisConfig) -> None:
        """Raise EventFileError unless there are On and Off events, in regions that do not overlap.

        ``where`` names the files, as the beginning of a message.
        """
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
                    f"({self.n_read - self.n_inside:,} outside all regions, {self.n_inside - n_used:,} cut away)"
                )
        if config.regions.overlap == "on_first" and self.n_overlapping > _MAX_OVERLAP * n_used:
            raise EventFileError(
                f"{where}the regions overlap: {self.n_overlapping:,} of {n_used:,} events lie in several, and giving "
                "them to On would look like a source; make theta_squared_cut smaller, or choose the overlap policy "
                "'drop'"
            )


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
class Observation:
    """Events of On and Off regions that pass the quality cuts, ready to learn from.

    Attributes
    ----------
    X : ndarray of shape (n_events, n_features)
        Features.
    names : tuple of str
        Names of the features.
    regions : Regions
        Which region an event comes from; all of them are inside one.
    groups : ndarray of shape (n_events,) or None
        What must not be split between training and hold-out.
    table : DataFrame
        Which events these are.
    theta : ndarray of shape (n_events, n_regions) or None
        Angle to the centre of each region in deg, On first; None where On and Off come from files of their own.
    theta_squared_cut : float
        Events lie in a region when ``theta**2`` is below it, in deg^2.
    nearby : NearbyEvents or None
        Events of no region that are near one, if they were asked for.
    n_read, n_outside, n_cut : int
        Events that were read, that lie in no region, and that lie in one and fail the quality cuts or miss a feature.
    """

    X: FloatArray
    names: tuple[str, ...]
    regions: Regions
    groups: NDArray[Any] | None
    table: pd.DataFrame
    theta: FloatArray | None
    theta_squared_cut: float
    nearby: NearbyEvents | None
    n_read: int
    n_outside: int
    n_cut: int

    @property
    def frame(self) -> pd.DataFrame:
        """The features by name, so that a model can tell whether they are its own."""
        return self.framed(self.X)

    def framed(self, X: FloatArray) -> pd.DataFrame:
        """Return features of events by name."""
        import pandas as pd

        return pd.DataFrame(X, columns=list(self.names), copy=False)

    def annotate(self, detection: Detection) -> Detection:
        """Return a detection of these events with their angles, times and features."""
        known = self.nearby is not None and detection.nearby is not None
        return detection.annotated(
            theta=self.theta,
            theta_squared_cut=None if self.theta is None else self.theta_squared_cut,
            nearby_theta=self.nearby.theta if known and self.nearby is not None else None,
            time=self.time,
            feature_names=self.names,
        )

    @property
    def on(self) -> NDArray[np.int64]:
        """Label of each event: 1 is On, 0 is Off."""
        return self.regions.on.astype(np.int64)

    @property
    def alpha(self) -> float:
        """Exposure ratio On/Off."""
        return self.regions.alpha

    @property
    def time(self) -> FloatArray | None:
        """When each event was recorded, in seconds; None where the files do not say."""
        return seconds_of(self.table)

    def __str__(self) -> str:
        """Say what was read and what is left."""
        return (
            f"{self.n_read:,} events read, {self.n_outside:,} outside all regions, {self.n_cut:,} cut away; "
            f"{self.regions.counts}"
        )


def observe(
    paths: Any,
    config: AnalysisConfig,
    *,
    join: Any = None,
    groups: str | None = None,
    nearby: bool = False,
    chunk_rows: int = 200_000,
) -> Observation:
    """Read the events of On and Off regions from files.

    Files are read in chunks, and only events that are used stay in memory.

    Parameters
    ----------
    paths : path or sequence of paths
        Event files of one format.
    config : AnalysisConfig
        Features, cuts, regions and groups.
    join : path, sequence of paths or None, default=None
        Files to be joined to them, event by event; see `read_events`. These are read as a whole.
    groups : str or None, default=None
        Column of the groups; by default that of the configuration. ``"none"`` is for no groups.
    nearby : bool, default=False
        Keep events around the regions as well, for a plot of theta^2 beyond the cut.
    chunk_rows : int, default=200_000
        Events that are read at a time.

    Returns
    -------
    Observation
        What a model learns from.
    """
    column = config.groups if groups is None else groups
    paths = _as_paths(paths)
    if join is not None:
        return observe_table(
            [read_events(paths, join=join)], config, groups=column, nearby=nearby, source=_named(paths)
        )
    columns = _columns_to_read(paths[0], config, column)
    return observe_table(
        iter_events(paths, columns, chunk_rows=chunk_rows), config, groups=column, nearby=nearby, source=_named(paths)
    )


def observe_on_off(
    on_paths: Any,
    off_paths: Any,
    config: AnalysisConfig,
    *,
    alpha: float,
    groups: str | None = None,
    chunk_rows: int = 200_000,
) -> Observation:
    """Read On and Off events from files of their own; see `observe`.

    Parameters
    ----------
    on_paths, off_paths : path or sequence of paths
        Event files.
    config : AnalysisConfig
        Features, cuts and groups; its regions play no part.
    alpha : float
        Exposure ratio On/Off, such as the ratio of observation times.
    groups, chunk_rows
        As for `observe`. Groups are nights that both On and Off files have, or the like.

    Returns
    -------
    Observation
        What a model learns from.
    """
    ratio = as_scalar_alpha(alpha)
    column = config.groups if groups is None else groups
    parts = []
    for side, paths in enumerate((_as_paths(on_paths), _as_paths(off_paths))):
        columns = _columns_to_read(paths[0], config, column, with_regions=False)
        parts.append(_collect(iter_events(paths, columns, chunk_rows=chunk_rows), config, column, side=side))
    return _observation(parts, config, ratio, _named(_as_paths(on_paths)))


def observe_table(
    tables: pd.DataFrame | Iterable[pd.DataFrame],
    config: AnalysisConfig,
    *,
    groups: str | None = None,
    nearby: bool = False,
    source: str = "",
) -> Observation:
    """Take events from tables in memory; see `observe`.

    Parameters
    ----------
    tables : DataFrame or iterable of DataFrame
        Events.
    config : AnalysisConfig
        Features, cuts, regions and groups.
    groups : str or None, default=None
        As for `observe`.
    nearby : bool, default=False
        As for `observe`.
    source : str, default=""
        Where they come from, for messages.

    Returns
    -------
    Observation
        What a model learns from.

    Examples
    --------
    >>> from excess.events import load_config
    >>> from excess.observation.pipeline import observe_table
    >>> from excess.observation.simulation import simulate_observation
    >>> observation = observe_table(simulate_observation(100_000, 200, random_state=0), load_config())
    >>> print(observation)
    100,000 events read, 97,112 outside all regions, 0 cut away; On 630, Off 2258, alpha 0.2: ...
    """
    import pandas as pd

    chunks = [tables] if isinstance(tables, pd.DataFrame) else tables
    column = config.groups if groups is None else groups
    with naming(source):
        part = _collect(chunks, config, column, side=None, nearby=nearby)
    return _observation([part], config, None, source)


@dataclass
class _Part:
    """Events collected from chunks."""

    X: list[FloatArray] = field(default_factory=list)
    region: list[NDArray[np.int64]] = field(default_factory=list)
    groups: list[NDArray[Any]] = field(default_factory=list)
    theta: list[FloatArray] = field(default_factory=list)
    tables: list[pd.DataFrame] = field(default_factory=list)
    nearby: list[NearbyEvents] = field(default_factory=list)
    names: tuple[str, ...] = ()
    n_regions: int = 2
    alpha: float = 1.0
    n_overlapping: int = 0
    n_read: int = 0
    n_outside: int = 0


def _collect(
    tables: Iterable[pd.DataFrame], config: AnalysisConfig, column: str, *, side: int | None, nearby: bool = False
) -> _Part:
    """Keep the events of all chunks that lie in a region and are valid; ``side`` is their region if it is known."""
    part = _Part()
    for table in tables:
        part.n_read += len(table)
        if side is None:
            theta = angles_to_regions(table, config.regions)
            cut = config.regions.theta_squared_cut
            found = assign_regions(theta, theta_squared_cut=cut, overlap=config.regions.overlap)
            part.n_regions, part.alpha = found.n_regions, found.alpha
            part.n_overlapping += found.n_overlapping
            if nearby:
                near = ~found.inside & (np.where(np.isnan(theta), np.inf, theta) ** 2 < _NEARBY * cut).any(axis=1)
                part.nearby.append(_nearby_events(table, theta, np.flatnonzero(near), config, column))
            rows = np.flatnonzero(found.inside)
            part.n_outside += len(table) - len(rows)
            region = found.region[rows]
            table, theta = table.iloc[rows], theta[rows]
        else:
            region = np.full(len(table), side)
        features = to_features(table, config)
        valid = features.valid
        part.names = features.names
        part.X.append(features.X[valid])
        part.region.append(region[valid])
        if side is None:
            part.theta.append(theta[valid])
        if column != "none":
            part.groups.append(_group_labels(table, column)[valid])
        part.tables.append(table.loc[valid, [name for name in _KEPT if name in table]])
    return part


def _nearby_events(
    table: pd.DataFrame, theta: FloatArray, rows: NDArray[np.intp], config: AnalysisConfig, column: str
) -> NearbyEvents:
    """Return the valid ones of some events."""
    if column != "none" and column in table:
        # an event that only adds to a plot is not worth an error about its group
        rows = rows[table[column].iloc[rows].notna().to_numpy()]
    table = table.iloc[rows]
    features = to_features(table, config)
    groups = None if column == "none" else _group_labels(table, column)[features.valid]
    return NearbyEvents(features.X[features.valid], groups, theta[rows][features.valid])


def _observation(parts: Sequence[_Part], config: AnalysisConfig, alpha: float | None, source: str) -> Observation:
    import pandas as pd

    where = f"{source}: " if source else ""
    n_read = sum(part.n_read for part in parts)
    region = np.concatenate([np.empty(0, dtype=np.int64), *(array for part in parts for array in part.region)])
    n_outside = sum(part.n_outside for part in parts)
    n_cut = n_read - n_outside - len(region)
    first = parts[0]
    n_overlapping = sum(part.n_overlapping for part in parts)
    n_on = int(np.count_nonzero(region == 0))
    Census(n_read, n_read - n_outside, n_on, len(region) - n_on, n_overlapping).check(where, config)
    table = pd.concat([table for part in parts for table in part.tables], ignore_index=True)
    for keys in _KEYS:
        known = [key for key in keys if key in table]
        if known[:2] == list(keys[:2]) and (twice := table.duplicated(known)).any():
            raise EventFileError(
                f"{where}{twice.sum():,} events are there twice, by {', '.join(known)}; give every file once"
            )
    if alpha is None:
        regions = Regions(region, first.n_regions, first.alpha, n_overlapping)
    else:
        found = regions_of_files(int((region == 0).sum()), int((region > 0).sum()), alpha)
        regions = Regions(region, found.n_regions, found.alpha)
    groups = [array for part in parts for array in part.groups]
    return Observation(
        X=np.concatenate([array for part in parts for array in part.X]),
        names=first.names,
        regions=regions,
        groups=np.concatenate(groups) if groups else None,
        table=table,
        theta=np.concatenate(first.theta) if first.theta else None,
        theta_squared_cut=config.regions.theta_squared_cut,
        nearby=_joined(first.nearby),
        n_read=n_read,
        n_outside=n_outside,
        n_cut=n_cut,
    )


def _joined(parts: list[NearbyEvents]) -> NearbyEvents | None:
    if not any(len(part.X) for part in parts):  # files may hold nothing but the regions
        return None
    groups = [part.groups for part in parts if part.groups is not None]
    return NearbyEvents(
        np.concatenate([part.X for part in parts]),
        np.concatenate(groups) if groups else None,
        np.concatenate([part.theta for part in parts]),
    )


def _columns_to_read(path: Path, config: AnalysisConfig, groups: str, *, with_regions: bool = True) -> list[str]:
    """Return the columns that are needed, and those that say which event it is."""
    present = describe(path).columns
    wanted = [*config.columns_needed()]
    if groups != "none":
        wanted.append(groups)
    missing = [name for name in wanted if name not in present]
    if len(missing) > 1:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        raise EventFileError(
            f"{path}: has no columns {', '.join(missing[:5])}{more}, which the features, quality cuts or groups of the "
            "configuration need; give one for these files, with features, quality_cuts and groups, or join the files "
            "that have them"
        )
    if with_regions:
        thetas = theta_columns(config.regions.n_regions)
        if all(name in present for name in thetas):
            wanted += thetas
        else:
            wanted += [name for name in (*thetas, *SKY_COLUMNS) if name in present]
    wanted += [name for name in _KEPT if name in present]
    return list(dict.fromkeys(wanted))


def _group_labels(table: pd.DataFrame, column: str) -> NDArray[Any]:
    if column not in table:
        raise ValueError(f"groups: there is no column {column!r}; choose one of the events' columns, or 'none'")
    labels = table[column]
    if labels.isna().any():
        raise ValueError(f"groups: column {column!r} has missing values")
    return labels.to_numpy()


def _as_paths(paths: Any) -> list[Path]:
    given = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not given:
        raise ValueError("paths must hold at least one file")
    return [Path(path) for path in given]


def _named(paths: Sequence[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
