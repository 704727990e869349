"""Observations: events of On and Off regions as input of a model, with their files and settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from excess._core.checks import BoolArray, FloatArray, as_alpha, as_scalar_alpha
from excess._core.errors import ArgumentError, EventFileError, prefix_errors
from excess.estimators.binned import number_bins
from excess.events import (
    AnalysisConfig,
    BinConfig,
    add_night,
    check_one_telescope,
    describe,
    iter_events,
    load_config,
    read_events,
)
from excess.observation.census import Census
from excess.observation.exposure import join_intervals
from excess.observation.feature_origin import check_origin
from excess.observation.joining import JoinedRegions, concatenate, join_regions, join_sky, thin_field
from excess.observation.pipeline import NO_GROUPS, NearbyEvents, ObservedChunk, Pipeline, seconds_of
from excess.observation.region_methods import SKY_COLUMNS, theta_columns
from excess.observation.regions import Regions
from excess.observation.repeated_events import check_files_once, check_identifiers, check_rows
from excess.observation.sky import offset_of_source
from excess.observation.sky_field import exclusion_offsets, field_radius, region_centers
from excess.validation.exposure import Exposure
from excess.validation.feature_histograms import FeatureBinning
from excess.validation.sky_map import SkyMap, map_sky

if TYPE_CHECKING:
    import pandas as pd

    from excess.stats.significance import OnOffCounts
    from excess.validation.detection import Detection

__all__ = ["Observation", "as_config", "observe"]

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]

_MAX_OFFSET_SPREAD = 0.1
"""Largest difference of the offsets of the source from the pointing, in deg, among On files beside Off files."""


@dataclass(frozen=True, eq=False)
class Observation:
    """Events of On and Off regions that pass the quality cuts, as `observe` returns them.

    Attributes
    ----------
    X : ndarray of shape (n_events, n_features)
        Features.
    regions : Regions
        The region of each event.
    groups : ndarray of shape (n_events,) or None
        Groups, such as nights, that are not split between training and hold-out.
    table : DataFrame
        Columns that identify the events.
    theta : ndarray of shape (n_events, n_regions) or None
        Angle to the centre of each region in deg, On first; None if On and Off come from separate files.
    nearby : NearbyEvents or None
        Events near a region, but in none, if they were asked for.
    census : Census
        Numbers of events that were read, outside all regions, and cut away.
    config : AnalysisConfig
        Features, cuts and regions.
    group_column : str
        Column of the groups; ``"none"`` if there are no groups.
    files : mapping of str to tuple of Path
        The files of the events, by kind.
    event_alpha : ndarray of shape (n_events,) or None
        Exposure ratio On/Off of each event, where it differs between groups or observations.
    observations : ndarray of str of shape (n_events,) or None
        The observation of each event, where several were stacked; see `stack`.
    sky : ndarray of shape (n_events, 5) or None
        Positions of each event and of the pointing to the east and to the north of the source in deg, where they are
        known, and a number between 0 and 1 by which events of a large map are drawn.
    exposure : Exposure or None
        How long each group and each night was observed, where that is known.

    Examples
    --------
    >>> from excess.observation import observe, simulate_observation
    >>> observation = observe(simulate_observation(100_000, 200, random_state=0))
    >>> observation.X.shape, observation.theta.shape, int(observation.on.sum())
    ((2888, 22), (2888, 6), 630)
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
    event_alpha: FloatArray | None = None
    observations: NDArray[Any] | None = None
    sky: FloatArray | None = None
    exposure: Exposure | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self.config.features

    @property
    def frame(self) -> pd.DataFrame:
        """The features with their names, which a model compares with those of its training."""
        return self.to_frame(self.X)

    def to_frame(self, X: FloatArray) -> pd.DataFrame:
        """Return an array of features as a table with their names."""
        import pandas as pd

        return pd.DataFrame(X, columns=list(self.names), copy=False)

    def without_references(self) -> Observation:
        """Return the same events without the columns that are scores of another analysis."""
        config = self.config.without_references()
        if config is self.config:
            return self
        kept = [number for number, name in enumerate(self.names) if name in config.features]
        nearby = None if self.nearby is None else replace(self.nearby, X=self.nearby.X[:, kept])
        return replace(self, X=self.X[:, kept], nearby=nearby, config=config)

    def annotate(self, detection: Detection) -> Detection:
        """Return a detection of these events with their angles, positions, times and features."""
        sky = nearby_theta = None
        if self.nearby is not None and detection.nearby is not None:
            judged = detection.nearby
            sky = self._map(detection, judged.selected)
            near = self.nearby.near
            nearby_theta = self.nearby.theta[near] if near.any() else None
            kept = judged._replace(score=judged.score[near], selected=judged.selected[near]) if near.any() else None
            detection = replace(detection, nearby=kept)
        found = detection.annotated(
            theta=self.theta,
            theta_squared_cut=None if self.theta is None else self.config.regions.theta_squared_cut,
            nearby_theta=nearby_theta,
            time=self.time,
            feature_names=self.config.without_references().features,
            features=self._binning,
            exposure=self.exposure,
            nights=self.table["night"].to_numpy() if "night" in self.table else None,
            sky=sky,
        )
        bins = self.config.bins
        return found if bins is None or self.bins is None else found.with_bins(bins.column, bins.edges, self.bins)

    @cached_property
    def _binning(self) -> FeatureBinning:
        """The bins of all features, for the histograms of all models."""
        return FeatureBinning(self.X, self.names)

    def _map(self, detection: Detection, nearby_selected: BoolArray) -> SkyMap | None:
        """Return the map of the sky, where positions are known."""
        if self.sky is None or self.nearby is None or self.nearby.sky is None:
            return None
        share = self.nearby.share
        sky = np.concatenate([self.sky, self.nearby.sky])
        drawn = sky[:, 4] < share
        selected = np.concatenate([detection.selected, nearby_selected])
        settings = self.config.regions
        return map_sky(
            sky[drawn, :2],
            sky[drawn, 2:4],
            selected[drawn],
            field_radius=field_radius(settings.theta_squared_cut),
            region_radius=settings.radius,
            off_centers=region_centers(self.sky, self.theta),
            exclusions=exclusion_offsets(settings),
            share=share,
        )

    @property
    def bins(self) -> NDArray[np.int64] | None:
        """The bin of each event, from 0; None if the configuration has no bins, or no edges of them yet."""
        bins = self.config.bins
        if bins is None or not bins.edges:
            return None
        return number_bins(self.X[:, self.names.index(bins.column)], np.array(bins.edges))

    @property
    def on(self) -> NDArray[np.int64]:
        """Label of each event: 1 is On, 0 is Off."""
        return self.regions.on.astype(np.int64)

    @property
    def alpha(self) -> float:
        """Exposure ratio On/Off; the mean over the Off events where it differs."""
        return self.regions.alpha

    @property
    def exposure_ratio(self) -> FloatArray | float:
        """Exposure ratio On/Off of each event where it differs, else of all."""
        return self.alpha if self.event_alpha is None else self.event_alpha

    @property
    def counts(self) -> OnOffCounts:
        """All On and Off events, without any cut; stacked where their exposure ratios differ."""
        if self.event_alpha is None:
            return self.regions.counts
        from excess.validation.outcome import count_events

        return count_events(self.regions.on, self.regions.inside, self.event_alpha)

    @property
    def time(self) -> FloatArray | None:
        """Time of each event in seconds; None if the files hold no times."""
        return seconds_of(self.table)

    def summary(self) -> dict[str, Any]:
        """Return how many events were read, cut away and kept, to be put into a file."""
        counts = self.counts
        return {
            "n_read": self.census.n_read,
            "n_outside": self.census.n_outside,
            "n_cut": self.census.n_cut,
            "n_overlapping": self.census.n_overlapping,
            "n_on": counts.n_on,
            "n_off": counts.n_off,
            "alpha": self.alpha,
            "n_off_regions": list(self.regions.n_off_regions),
            "n_without_off": self.census.n_without_off,
            "significance": counts.significance,
            "theta_squared_cut": self.config.regions.theta_squared_cut,
            "groups_are_text": self.groups is not None and self.groups.dtype.kind not in "biuf",
            "n_nearby": 0 if self.nearby is None else int(np.count_nonzero(self.nearby.near)),
            "features": list(self.config.without_references().features),
            "references": list(self.config.references),
            "exposure": None if self.exposure is None else self.exposure.to_dict(),
            "bins": None if self.config.bins is None else self.config.bins.model_dump(mode="json"),
        }

    def events_frame(self) -> pd.DataFrame:
        """Return one row per event: which event it is, its angles, region and group."""
        table = self.table.copy()
        if self.theta is not None:
            table[theta_columns(self.theta.shape[1])] = self.theta
        table["region"] = self.regions.region
        if self.groups is not None:
            table["group"] = self.groups
        if self.observations is not None:
            table["observation"] = self.observations
        if self.bins is not None:
            table["bin"] = self.bins
        return table

    @property
    def config_yaml(self) -> str:
        """The configuration as YAML."""
        return self.config.to_yaml()

    def __str__(self) -> str:
        """Return the numbers of events that were read and used."""
        few, most = self.regions.n_off_regions
        more = f"; {few} to {most} Off regions, by pointing" if few < most else ""
        return f"{self.census}; {self.counts}{more}"


def observe(
    events: pd.DataFrame | Paths,
    config: AnalysisConfig | str | PathLike[str] | None = None,
    *,
    off: Paths | None = None,
    alpha: float | Mapping[Any, float] | None = None,
    join: Paths | None = None,
    groups: str | None = None,
    references: Sequence[str] = (),
    source: tuple[float, float] | None = None,
    bins: BinConfig | str | None = None,
    nearby: bool = True,
    chunk_rows: int = 200_000,
) -> Observation:
    """Select the events of On and Off regions from files, or from a table.

    Files are read in chunks, and only events that are used stay in memory.

    Parameters
    ----------
    events : path, sequence of paths, or DataFrame
        Event files of one format, or the events themselves.
    config : AnalysisConfig, path or None, default=None
        Features, cuts, regions and groups, or the YAML file that holds them; by default those of FACT's open Crab
        analysis.
    off : path, sequence of paths or None, default=None
        Files of Off events, if ``events`` are files of On events only; regions are then not used. Where both hold sky
        positions of whole fields of view, as FITS event lists do, On events are those near the source, and Off events
        those near the same place in the field of view, by the cut on theta^2.
    alpha : float, mapping of group to float, or None, default=None
        Exposure ratio On/Off, such as the ratio of observation times; needed with ``off``. A mapping has one for each
        group, such as a night. Otherwise it follows from the number of regions.
    join : path, sequence of paths or None, default=None
        Files to join event by event; see `read_events`. These are read at once, not in chunks.
    groups : str or None, default=None
        Column of the groups, such as nights; by default that of the configuration. Where that says nothing, it is the
        night, which is computed from times where it is no column, else the run. ``"none"`` means no groups.
    references : sequence of str, default=()
        Columns that are scores of another analysis, such as gammaness, besides those of the configuration. They are for
        the model `hybrid`; no other model sees them. An event without a finite score is cut away.
    source : tuple of float or None, default=None
        Right ascension and declination of the source in deg, for events with sky positions; by default those of the
        configuration.
    bins : BinConfig, str or None, default=None
        Bins with a threshold and a calibration of their own, such as ``"energy:1,5"``, or ``"energy:4"`` for four bins
        of equally many events; by default those of the configuration.
    nearby : bool, default=True
        Keep events around the regions as well, for a plot of theta^2 beyond the cut.
    chunk_rows : int, default=200_000
        Events that are read at a time.

    Returns
    -------
    Observation
        The events, as input of a model.

    Examples
    --------
    >>> from excess.observation import observe, simulate_observation
    >>> print(observe(simulate_observation(100_000, 200, random_state=0)))
    100,000 events read, 97,112 outside all regions, 0 cut away; On 630, Off 2258, alpha 0.2: ...
    """
    import pandas as pd

    settings = as_config(config, source, references, bins)
    if off is None and alpha is not None:
        raise ArgumentError("alpha", "goes with `off`; with regions, their number decides")
    if off is not None and alpha is None:
        raise ArgumentError("alpha", "is needed with `off`: the exposure ratio On/Off")
    if off is not None and join is not None:
        raise ArgumentError("join", "does not go with `off`")
    if groups is None:
        settings = with_default_groups(settings, events, join)
    pipeline = Pipeline(settings, settings.groups if groups is None else groups, nearby=nearby)
    if isinstance(events, pd.DataFrame):
        for argument, given in (("off", off), ("join", join)):
            if given is not None:
                raise ArgumentError(argument, "goes with files, not with a table")
        return _join_chunks([pipeline.observe(events)], pipeline, {}, None)
    files = {"events": _as_paths(events)}
    ratio = alpha if alpha is None or isinstance(alpha, Mapping) else as_scalar_alpha(alpha)
    if join is not None:
        files["joined events"] = _as_paths(join)
        check_files_once(_kinds(files))
        with prefix_errors(_describe_paths(files["events"])):
            chunks = [pipeline.observe(read_events(files["events"], join=files["joined events"], locate=True))]
            return _join_chunks(chunks, pipeline, files, None)
    chunks = []
    if off is not None:
        files["Off events"] = _as_paths(off)
    check_files_once(_kinds(files))
    check_one_telescope([path for paths in files.values() for path in paths])
    offset = None if off is None else _offset_in_field(files, settings)
    for region, paths in enumerate(files.values()):
        with prefix_errors(_describe_paths(paths)):
            own = replace(pipeline, region=None if off is None else region, offset=offset)
            for chunk in own.read(paths, chunk_rows):
                chunks.append(chunk)
                chunks = thin_field(chunks)
        if region == 0 and all(chunk.census.n_outside == 0 for chunk in chunks):
            offset = None  # files of On events alone, so those of Off events are cut as well
    return _join_chunks(chunks, pipeline, files, ratio)


def _join_chunks(
    chunks: list[ObservedChunk],
    pipeline: Pipeline,
    files: Mapping[str, tuple[Path, ...]],
    alpha: float | Mapping[Any, float] | None,
) -> Observation:
    """Return chunks as one observation, after a check that they hold what an analysis needs."""
    import pandas as pd

    census = Census()
    for chunk in chunks:
        census.add(chunk.census)
    source = _describe_paths(files["events"]) if files else ""
    joined = _join_regions(chunks, alpha)
    regions = joined.regions
    census.check(source, pipeline.config, regions.alpha)
    table = pd.concat([chunk.identifiers for chunk in chunks], ignore_index=True)
    check_identifiers(table, source)
    X = np.concatenate([chunk.X for chunk in chunks])
    _check_independent(X, chunks, source)
    groups = concatenate([chunk.groups for chunk in chunks])
    event_alpha = regions.event_alpha
    if isinstance(alpha, Mapping):
        event_alpha = _alpha_of_groups(alpha, groups)
        regions = replace(regions, alpha=float(event_alpha[regions.region > 0].mean()))
    if not pipeline.config.allow_origin_features:
        check_origin(
            X,
            regions.region,
            regions.alpha if event_alpha is None else event_alpha,
            regions.n_regions,
            pipeline.config.features,
            f"{source}: " if source else "",
            regions.exposure,
        )
    return Observation(
        X=X,
        regions=regions,
        groups=groups,
        table=table,
        theta=joined.theta,
        nearby=joined.nearby,
        census=census,
        config=pipeline.config,
        group_column=pipeline.groups,
        files=files,
        event_alpha=event_alpha,
        sky=join_sky([chunk.sky for chunk in chunks if len(chunk.X)]),
        exposure=join_intervals([chunk.intervals for chunk in chunks if chunk.intervals is not None]),
    )


def _join_regions(chunks: list[ObservedChunk], alpha: float | Mapping[Any, float] | None) -> JoinedRegions:
    """Return the regions of all chunks; where Off has files of its own, the exposure ratio is given."""
    joined = join_regions(chunks, 2)
    if alpha is None or isinstance(alpha, Mapping):
        return joined
    return joined._replace(regions=replace(joined.regions, alpha=alpha))


def _offset_in_field(files: Mapping[str, tuple[Path, ...]], config: AnalysisConfig) -> tuple[float, float] | None:
    """Return where in the field of view of On files the source is, as offset and direction in deg.

    None if the files have no sky positions, so that nothing but On and Off events can be in them.
    """
    described = [describe(paths[0]) for paths in files.values()]
    if not all(name in info.columns for info in described for name in SKY_COLUMNS):
        return None
    source_ra, source_dec = config.regions.source_ra, config.regions.source_dec
    if source_ra is None or source_dec is None:
        if not described[0].format.startswith("FITS"):
            return None
        raise EventFileError(
            f"{described[0].path}: is a list of all events in the field of view, so the position of the source is "
            "needed for the cut on theta^2: give source_ra and source_dec (--source-ra and --source-dec)"
        )
    pointing = [table.drop_duplicates() for table in iter_events(files["events"], SKY_COLUMNS[2:])]
    found = [
        offset_of_source(
            *(one[name].to_numpy(float) for name in SKY_COLUMNS[2:]), source_ra=source_ra, source_dec=source_dec
        )
        for one in pointing
    ]
    offset, direction = (np.concatenate(values) for values in zip(*found, strict=True))
    if len(offset) == 0:
        return None
    if np.ptp(offset) > _MAX_OFFSET_SPREAD:
        raise EventFileError(
            f"{_describe_paths(files['events'])}: the source is from {offset.min():.2f} to {offset.max():.2f} deg away "
            "from the pointing, so that it is not known where in the Off runs to count; give runs of each offset as an "
            "observation of their own, in a list of observations"
        )
    return float(np.median(offset)), float(direction[0])


def _kinds(files: Mapping[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
    """Return files by what messages call them: event files are those of On events where Off has its own."""
    return {"On events" if "Off events" in files and kind == "events" else kind: paths for kind, paths in files.items()}


def _check_independent(X: FloatArray, chunks: list[ObservedChunk], source: str) -> None:
    """Refuse equal rows of features; the message names files where there are several, else groups."""
    names = list(dict.fromkeys(chunk.file for chunk in chunks))
    origin = np.repeat([names.index(chunk.file) for chunk in chunks], [len(chunk.X) for chunk in chunks])
    groups = concatenate([chunk.groups for chunk in chunks])
    if len(names) == 1 and groups is not None:
        labels, origin = np.unique(groups, return_inverse=True)
        names = [f"group {label}" for label in labels.tolist()]
    check_rows(X, origin, names if any(names) else ["these events"], f"{source}: " if source else "")


def _alpha_of_groups(alpha: Mapping[Any, float], groups: NDArray[Any] | None) -> FloatArray:
    """Return the exposure ratio of each event from those of the groups."""
    if groups is None:
        raise ArgumentError("alpha", "of each group needs `groups`")
    names, inverse = np.unique(groups, return_inverse=True)
    for name in names.tolist():
        if name not in alpha:
            raise ArgumentError("alpha", f"must hold every group, and has none for {name!r}")
    return as_alpha([alpha[name] for name in names.tolist()])[inverse]


def as_config(
    config: AnalysisConfig | str | PathLike[str] | None,
    source: tuple[float, float] | None = None,
    references: Sequence[str] = (),
    bins: BinConfig | str | None = None,
) -> AnalysisConfig:
    """Return a configuration, from a file if it is a path, with references, bins and the source if given."""
    settings = config if isinstance(config, AnalysisConfig) else load_config(config)
    try:
        settings = settings.with_references(references)
    except ValidationError as error:  # pydantic's own words span several lines
        problem = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ArgumentError("references", f"cannot be {', '.join(references)}: {problem}") from error
    try:
        settings = settings.with_bins(BinConfig.parse(bins) if isinstance(bins, str) else bins)
    except ValidationError as error:
        raise ArgumentError("bins", error.errors()[0]["msg"].removeprefix("Value error, ")) from error
    except ValueError as error:
        raise ArgumentError("bins", str(error)) from error
    return settings if source is None else settings.with_source(*source)


def with_default_groups(config: AnalysisConfig, events: Any, join: Any = None) -> AnalysisConfig:
    """Return a configuration that says nothing of groups with those that the events have: nights, else runs."""
    import pandas as pd

    if "groups" in config.model_fields_set:
        return config
    if isinstance(events, pd.DataFrame):
        present = tuple(map(str, add_night(events.head(100)).columns))
    else:
        files = [_as_paths(given)[0] for given in (events, join) if given is not None]
        present = tuple(name for file in files for name in describe(file).columns)
    found = next((name for name in (config.groups, "obs_id", "run_id") if name in present), config.groups)
    return config if found == config.groups else config.model_copy(update={"groups": found})


def _as_paths(paths: Any) -> tuple[Path, ...]:
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given:
        raise ValueError("events must hold at least one file")
    return tuple(Path(path) for path in given)


def _describe_paths(paths: tuple[Path, ...]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
