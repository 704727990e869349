"""An observation: the events of On and Off regions, ready to learn from, and where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray, as_scalar_alpha
from excess._core.errors import ArgumentError, EventFileError, prefix_errors
from excess.events import AnalysisConfig, load_config, read_events
from excess.events.times import seconds_of
from excess.observation.pipeline import NO_GROUPS, Census, NearbyEvents, ObservedChunk, Pipeline
from excess.observation.regions import Regions

if TYPE_CHECKING:
    import pandas as pd

    from excess.validation.detection import Detection

__all__ = ["Observation", "as_config", "observe"]

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]

_KEYS = (("run_id", "event_num", "night"), ("obs_id", "event_id", "tel_id"))
"""Columns that no two events share; the third may be missing."""


@dataclass(frozen=True, eq=False)
class Observation:
    """Events of On and Off regions that pass the quality cuts, ready to learn from.

    Attributes
    ----------
    X : ndarray of shape (n_events, n_features)
        Features.
    regions : Regions
        Which region an event comes from; all of them are inside one.
    groups : ndarray of shape (n_events,) or None
        What must not be split between training and hold-out.
    table : DataFrame
        Which events these are.
    theta : ndarray of shape (n_events, n_regions) or None
        Angle to the centre of each region in deg, On first; None where On and Off come from files of their own.
    nearby : NearbyEvents or None
        Events of no region that are near one, if they were asked for.
    census : Census
        How many events were read, lie outside all regions, and were cut away.
    config : AnalysisConfig
        Features, cuts and regions.
    group_column : str
        Column of the groups; ``"none"`` where there are no groups.
    files : mapping of str to tuple of Path
        Where the events come from, by kind.
    """

    X: FloatArray
    regions: Regions
    groups: NDArray[Any] | None
    table: pd.DataFrame
    theta: FloatArray | None
    nearby: NearbyEvents | None
    census: Census
    config: AnalysisConfig
    group_column: str = NO_GROUPS
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.config.features

    @property
    def frame(self) -> pd.DataFrame:
        """The features by name, so that a model can tell whether they are its own."""
        return self.to_frame(self.X)

    def to_frame(self, X: FloatArray) -> pd.DataFrame:
        """Return features of events by name."""
        import pandas as pd

        return pd.DataFrame(X, columns=list(self.names), copy=False)

    def annotate(self, detection: Detection) -> Detection:
        """Return a detection of these events with their angles, times and features."""
        known = self.nearby is not None and detection.nearby is not None
        return detection.annotated(
            theta=self.theta,
            theta_squared_cut=None if self.theta is None else self.config.regions.theta_squared_cut,
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
        return f"{self.census}; {self.regions.counts}"


def observe(
    events: pd.DataFrame | Paths,
    config: AnalysisConfig | str | PathLike[str] | None = None,
    *,
    off: Paths | None = None,
    alpha: float | None = None,
    join: Paths | None = None,
    groups: str | None = None,
    nearby: bool = True,
    chunk_rows: int = 200_000,
) -> Observation:
    """Take the events of On and Off regions from files, or from a table.

    Files are read in chunks, and only events that are used stay in memory.

    Parameters
    ----------
    events : path, sequence of paths, or DataFrame
        Event files of one format, or the events themselves.
    config : AnalysisConfig, path or None, default=None
        Features, cuts, regions and groups, or the YAML file that holds them; by default those of FACT's open Crab
        analysis.
    off : path, sequence of paths or None, default=None
        Files of Off events, where ``events`` are files of On events alone; regions then play no part.
    alpha : float or None, default=None
        Exposure ratio On/Off, such as the ratio of observation times; goes with ``off``. Otherwise the number of
        regions decides.
    join : path, sequence of paths or None, default=None
        Files to be joined to them, event by event; see `read_events`. These are read as a whole.
    groups : str or None, default=None
        Column of the groups, such as nights; by default that of the configuration. ``"none"`` is for no groups.
    nearby : bool, default=True
        Keep events around the regions as well, for a plot of theta^2 beyond the cut.
    chunk_rows : int, default=200_000
        Events that are read at a time.

    Returns
    -------
    Observation
        What a model learns from.

    Examples
    --------
    >>> from excess.observation import observe, simulate_observation
    >>> print(observe(simulate_observation(100_000, 200, random_state=0)))
    100,000 events read, 97,112 outside all regions, 0 cut away; On 630, Off 2258, alpha 0.2: ...
    """
    import pandas as pd

    settings = as_config(config)
    pipeline = Pipeline(settings, settings.groups if groups is None else groups, nearby=nearby)
    if off is None and alpha is not None:
        raise ArgumentError("alpha", "goes with `off`; with regions, their number decides")
    if off is not None and alpha is None:
        raise ArgumentError("alpha", "is needed with `off`: the exposure ratio On/Off")
    if off is not None and join is not None:
        raise ArgumentError("join", "does not go with `off`")
    if isinstance(events, pd.DataFrame):
        return _joined([pipeline.observe(events)], pipeline, {})
    files = {"events": _as_paths(events)}
    if off is not None and alpha is not None:
        files["Off events"] = _as_paths(off)
        ratio = as_scalar_alpha(alpha)
        chunks = [
            chunk
            for region, paths in enumerate(files.values())
            for chunk in _read(replace(pipeline, region=region), paths, chunk_rows)
        ]
        return _joined(chunks, pipeline, files, ratio)
    if join is not None:
        files["joined events"] = _as_paths(join)
        with prefix_errors(_named(files["events"])):
            return _joined(
                [pipeline.observe(read_events(files["events"], join=files["joined events"]))], pipeline, files
            )
    return _joined(_read(pipeline, files["events"], chunk_rows), pipeline, files)


def _read(pipeline: Pipeline, paths: tuple[Path, ...], chunk_rows: int) -> list[ObservedChunk]:
    with prefix_errors(_named(paths)):
        return list(pipeline.read(paths, chunk_rows))


def _joined(
    chunks: list[ObservedChunk],
    pipeline: Pipeline,
    files: Mapping[str, tuple[Path, ...]],
    alpha: float | None = None,
) -> Observation:
    """Put chunks together, after a check that they hold what an analysis needs."""
    import pandas as pd

    census = Census()
    for chunk in chunks:
        census.add(chunk.census)
    source = _named(files["events"]) if files else ""
    census.check(source, pipeline.config)
    table = pd.concat([chunk.identifiers for chunk in chunks], ignore_index=True)
    for keys in _KEYS:
        known = [key for key in keys if key in table]
        if known[:2] == list(keys[:2]) and (twice := table.duplicated(known)).any():
            raise EventFileError(
                f"{source}{': ' if source else ''}{twice.sum():,} events are there twice, by {', '.join(known)}; give "
                "every file once"
            )
    n_regions = 2 if alpha is not None else pipeline.config.regions.n_regions
    ratio = 1 / (n_regions - 1) if alpha is None else alpha
    region = np.concatenate([chunk.region for chunk in chunks])
    return Observation(
        X=np.concatenate([chunk.X for chunk in chunks]),
        regions=Regions(region, n_regions, ratio, census.n_overlapping),
        groups=_concatenated([chunk.groups for chunk in chunks]),
        table=table,
        theta=_concatenated([chunk.theta for chunk in chunks]),
        nearby=_joined_nearby([chunk.nearby for chunk in chunks if chunk.nearby is not None]),
        census=census,
        config=pipeline.config,
        group_column=pipeline.groups,
        files=files,
    )


def _joined_nearby(parts: list[NearbyEvents]) -> NearbyEvents | None:
    if not any(len(part.X) for part in parts):  # files may hold nothing but the regions
        return None
    theta = _concatenated([part.theta for part in parts])
    assert theta is not None
    return NearbyEvents(np.concatenate([part.X for part in parts]), _concatenated([p.groups for p in parts]), theta)


def _concatenated(arrays: list[Any]) -> NDArray[Any] | None:
    """Return arrays as one, None where there are none."""
    known = [array for array in arrays if array is not None]
    return np.concatenate(known) if known else None


def as_config(config: AnalysisConfig | str | PathLike[str] | None) -> AnalysisConfig:
    """Return a configuration, from a file if it is a path."""
    return config if isinstance(config, AnalysisConfig) else load_config(config)


def _as_paths(paths: Any) -> tuple[Path, ...]:
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given:
        raise ValueError("events must hold at least one file")
    return tuple(Path(path) for path in given)


def _named(paths: tuple[Path, ...]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
