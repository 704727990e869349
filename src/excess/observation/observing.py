"""Observing: from files or tables of events to an observation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from excess._core.checks import as_scalar_alpha
from excess._core.errors import ArgumentError, prefix_errors
from excess.events import (
    AnalysisConfig,
    BinConfig,
    check_one_telescope,
    read_events,
)
from excess.observation.census import Census
from excess.observation.feature_origin import check_origin
from excess.observation.given_regions import unusable_exclusion
from excess.observation.joining import check_independent, concatenate, join_regions, join_sky, thin_field
from excess.observation.observation import Observation
from excess.observation.observation_times import join_intervals
from excess.observation.off_files import MatchedEvents, alpha_of_groups, check_live_times, find_offset, match_events
from excess.observation.pipeline import ObservedChunk, Pipeline
from excess.observation.repeated_events import check_files_once, check_identifiers
from excess.observation.settings import settle_config

if TYPE_CHECKING:
    import pandas as pd


__all__ = ["check_input", "observe"]

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


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
    regions: Mapping[str, Any] | None = None,
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
    regions : mapping of str to object or None, default=None
        Settings of the regions by the keys of `RegionConfig` that take the place of those of the configuration, such as
        ``{"method": "ring"}``, ``{"exclusion": ["Crab 0.3"]}`` or, with ``off``, ``{"match": "zenith"}``.
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
        regions=regions,
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
        key = "regions.pairs" if regions.pairs else "`match`"
        raise ArgumentError("alpha", f"does not go with {key}: each match of runs has that of its live times")
    offset = find_offset(files, pipeline.config)
    if offset is None and regions.exclusion:
        raise unusable_exclusion()
    sides: list[list[ObservedChunk]] = []
    for region, paths in enumerate(files.values()):
        with prefix_errors(_describe_paths(paths)):
            own = replace(pipeline, region=region, offset=offset, list_runs=alpha is None)
            sides.append(list(own.read(paths, chunk_rows)))
        if region == 0 and all(chunk.census.n_outside == 0 for chunk in sides[0]):
            offset = None  # files of On events alone, so those of Off events are cut as well
            if regions.exclusion:
                raise unusable_exclusion()
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

    chunks = thin_field(chunks)
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
