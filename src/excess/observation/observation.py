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

from excess._core.checks import BoolArray, FloatArray, as_scalar_alpha
from excess._core.errors import ArgumentError, prefix_errors
from excess.estimators.binned import number_bins
from excess.events import (
    AnalysisConfig,
    BinConfig,
    check_one_telescope,
    read_events,
)
from excess.observation.census import Census
from excess.observation.exposure import join_intervals
from excess.observation.feature_origin import check_origin
from excess.observation.joining import check_independent, concatenate, join_regions, join_sky, thin_field
from excess.observation.off_files import MatchedEvents, alpha_of_groups, check_live_times, find_offset, match_events
from excess.observation.pipeline import NO_GROUPS, NearbyEvents, ObservedChunk, Pipeline, seconds_of
from excess.observation.region_methods import theta_columns
from excess.observation.regions import Regions
from excess.observation.repeated_events import check_files_once, check_identifiers
from excess.observation.settings import settle_config
from excess.observation.sky_field import exclusion_offsets, field_radius, region_centers
from excess.validation.exposure import Exposure
from excess.validation.feature_histograms import FeatureBinning
from excess.validation.sky_map import SkyMap, map_sky

if TYPE_CHECKING:
    import pandas as pd

    from excess.stats.significance import OnOffCounts
    from excess.validation.detection import Detection

__all__ = ["Observation", "check_input", "observe"]

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


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
    notes : tuple of str
        Where the exposure ratio comes from, if it is not given and does not follow from regions.

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
    notes: tuple[str, ...] = ()

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
            "notes": list(self.notes),
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
        parts = [str(self.census), str(self.counts)]
        few, most = self.regions.n_off_regions
        if self.theta is not None and few < most:
            parts.append(f"{few} to {most} Off regions, by pointing")
        elif self.regions.exposure is not None and self.event_alpha is not None:
            parts.append(f"alpha {self.event_alpha.min():.3g} to {self.event_alpha.max():.3g}, by offset and pointing")
        return "; ".join([*parts, *self.notes])


def observe(
    events: pd.DataFrame | Paths,
    config: AnalysisConfig | str | PathLike[str] | None = None,
    *,
    off: Paths | None = None,
    alpha: float | Mapping[Any, float] | None = None,
    join: Paths | None = None,
    groups: str | None = None,
    references: Sequence[str] = (),
    source: str | tuple[float, float] | None = None,
    bins: BinConfig | str | None = None,
    features: Sequence[str] = (),
    exclude: Sequence[str] = (),
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
        Features, cuts, regions and groups, or the YAML file that holds them; by default what the content of the files
        suggests, which is FACT's open Crab analysis where they have its columns. See `propose_config`.
    off : path, sequence of paths or None, default=None
        Files of Off events, if ``events`` are files of On events only; regions are then not used. Where both hold sky
        positions of whole fields of view, as FITS event lists do, On events are those near the source, and Off events
        those near the same place in the field of view, by the cut on theta^2.
    alpha : float, mapping of group to float, or None, default=None
        Exposure ratio On/Off, with ``off``. A mapping has one for each group, such as a night. By default it is the
        ratio of live times, which files then need (columns ``livetime``, or ``ontime`` and ``deadc``), for all runs or
        for each match of runs (``regions.match`` and ``regions.pairs`` of the configuration). Without ``off``, it
        follows from the regions.
    join : path, sequence of paths or None, default=None
        Files to join event by event; see `read_events`. These are read at once, not in chunks.
    groups : str or None, default=None
        Column of the groups, such as nights; by default that of the configuration. Where that says nothing, it is the
        night, which is computed from times where it is no column, else the run. ``"none"`` means no groups.
    references : sequence of str, default=()
        Columns that are scores of another analysis, such as gammaness, besides those of the configuration. They are for
        the model `hybrid`; no other model sees them. An event without a finite score is cut away.
    source : str, tuple of float or None, default=None
        Name of the source, or its right ascension and declination in deg, for events with sky positions; by default
        that of the configuration. See `find_source`.
    bins : BinConfig, str or None, default=None
        Bins with a threshold and a calibration of their own, such as ``"energy:1,5"``, or ``"energy:4"`` for four bins
        of equally many events; by default those of the configuration.
    features, exclude : sequence of str, default=()
        Features to take in the place of those of the configuration, and columns to leave out: names, or patterns such
        as ``"hillas_*"``.
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

    off, join = (None if given is None else _as_paths(given) for given in (off, join))
    events = events if isinstance(events, pd.DataFrame) else _as_paths(events)
    files = check_input(events, off=off, alpha=alpha, join=join)
    settings = settle_config(
        events,
        config,
        off=off,
        join=join,
        source=source,
        features=features,
        exclude=exclude,
        references=references,
        bins=bins,
        groups=groups,
    )
    pipeline = Pipeline(settings, settings.groups if groups is None else groups, nearby=nearby)
    if isinstance(events, pd.DataFrame):
        return _join_chunks([pipeline.observe(events)], pipeline, {}, None)
    ratio = alpha if alpha is None or isinstance(alpha, Mapping) else as_scalar_alpha(alpha)
    if join is not None:
        with prefix_errors(_describe_paths(files["events"])):
            chunks = [pipeline.observe(read_events(files["events"], join=files["joined events"], locate=True))]
            return _join_chunks(chunks, pipeline, files, None)
    if off is None:
        chunks = []
        with prefix_errors(_describe_paths(files["events"])):
            for chunk in pipeline.read(files["events"], chunk_rows):
                chunks = thin_field([*chunks, chunk])
        return _join_chunks(chunks, pipeline, files, None)
    return _observe_off_files(files, pipeline, ratio, chunk_rows)


def _observe_off_files(
    files: Mapping[str, tuple[Path, ...]],
    pipeline: Pipeline,
    alpha: float | Mapping[Any, float] | None,
    chunk_rows: int,
) -> Observation:
    """Select the events of On files and of Off files; live times give the exposure ratio if ``alpha`` is None."""
    regions = pipeline.config.regions
    if alpha is None:
        check_live_times(files)
    elif regions.pairs or regions.match != "none":
        key = "pairs" if regions.pairs else "match"
        raise ArgumentError("alpha", f"does not go with regions.{key}: each match of runs has that of its live times")
    offset = find_offset(files, pipeline.config)
    sides: list[list[ObservedChunk]] = []
    for region, paths in enumerate(files.values()):
        with prefix_errors(_describe_paths(paths)):
            own = replace(pipeline, region=region, offset=offset, list_runs=alpha is None)
            sides.append(list(own.read(paths, chunk_rows)))
        if region == 0 and all(chunk.census.n_outside == 0 for chunk in sides[0]):
            offset = None  # files of On events alone, so those of Off events are cut as well
    with prefix_errors(_describe_paths(files["events"])):
        ratio = match_events(sides[0], sides[1], regions) if alpha is None else alpha
    return _join_chunks([*sides[0], *sides[1]], pipeline, files, ratio)


def check_input(
    events: pd.DataFrame | Paths,
    *,
    off: Paths | None = None,
    alpha: float | Mapping[Any, float] | None = None,
    join: Paths | None = None,
) -> dict[str, tuple[Path, ...]]:
    """Refuse events and options that do not go together, before anything is read.

    Parameters
    ----------
    events, off, alpha, join
        As for `observe`.

    Returns
    -------
    dict of str to tuple of Path
        The files by kind; none for a table.
    """
    import pandas as pd

    if off is None and alpha is not None:
        raise ArgumentError("alpha", "goes with `off`; with regions, their number decides")
    if off is not None and join is not None:
        raise ArgumentError("join", "does not go with `off`")
    if isinstance(events, pd.DataFrame):
        for argument, given in (("off", off), ("join", join)):
            if given is not None:
                raise ArgumentError(argument, "goes with files, not with a table")
        return {}
    kinds = {"events": events, "joined events": join, "Off events": off}
    files = {kind: _as_paths(paths) for kind, paths in kinds.items() if paths is not None}
    check_files_once(_kinds(files))
    if join is None:
        check_one_telescope([path for paths in files.values() for path in paths])
    return files


def _join_chunks(
    chunks: list[ObservedChunk],
    pipeline: Pipeline,
    files: Mapping[str, tuple[Path, ...]],
    alpha: float | Mapping[Any, float] | MatchedEvents | None,
) -> Observation:
    """Return chunks as one observation, after a check that they hold what an analysis needs.

    ``alpha`` is the exposure ratio where Off has files of its own: given, or from matched runs.
    """
    import pandas as pd

    census = Census()
    for chunk in chunks:
        census.add(chunk.census)
    source = _describe_paths(files["events"]) if files else ""
    joined = join_regions(chunks, 2)
    regions = joined.regions
    table = pd.concat([chunk.identifiers for chunk in chunks], ignore_index=True)
    X = np.concatenate([chunk.X for chunk in chunks])
    groups = concatenate([chunk.groups for chunk in chunks])
    event_alpha = regions.event_alpha
    notes: tuple[str, ...] = ()
    regrouped = False  # times of observation are by the groups of the files
    if isinstance(alpha, MatchedEvents):
        event_alpha, notes = alpha.alpha, tuple(alpha.notes)
        if regrouped := alpha.groups is not None:
            groups = alpha.groups
    elif isinstance(alpha, Mapping):
        event_alpha = alpha_of_groups(alpha, groups)
    elif alpha is not None:
        regions = replace(regions, alpha=alpha)
    census.check(source, pipeline.config, regions.alpha)
    check_identifiers(table, source)
    check_independent(X, chunks, source)
    if isinstance(alpha, MatchedEvents) and not alpha.kept.all():
        kept = np.flatnonzero(alpha.kept)
        X, regions, table, event_alpha = X[kept], regions.take(kept), table.iloc[kept], alpha.alpha[kept]
        groups = None if groups is None else groups[kept]
        census = census.without(joined.regions.region[~alpha.kept])
        census.check(source, pipeline.config, regions.alpha)
    if event_alpha is not None:
        regions = replace(regions, alpha=float(event_alpha[regions.region > 0].mean()))
        if (event_alpha == event_alpha[0]).all():
            regions, event_alpha = replace(regions, alpha=float(event_alpha[0])), None
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
        table=table.reset_index(drop=True),
        theta=joined.theta,
        nearby=joined.nearby,
        census=census,
        config=pipeline.config,
        group_column=pipeline.groups,
        files=files,
        event_alpha=event_alpha,
        sky=join_sky([chunk.sky for chunk in chunks if len(chunk.X)]),
        exposure=None if regrouped else join_intervals([one.intervals for one in chunks if one.intervals is not None]),
        notes=notes,
    )


def _kinds(files: Mapping[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
    """Return files by what messages call them: event files are those of On events where Off has its own."""
    return {"On events" if "Off events" in files and kind == "events" else kind: paths for kind, paths in files.items()}


def _as_paths(paths: Any) -> tuple[Path, ...]:
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    if not given:
        raise ValueError("events must hold at least one file")
    return tuple(Path(path) for path in given)


def _describe_paths(paths: tuple[Path, ...]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
