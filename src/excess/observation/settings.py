"""Settings of an observation: a configuration that is given, or what the content of the events suggests."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from excess._core.errors import ArgumentError, EventFileError, prefix_errors
from excess.events import AnalysisConfig, BinConfig, add_night, find_source, list_columns, load_config
from excess.events.observation_list import ObservationEntry
from excess.observation.feature_choice import with_choice
from excess.observation.given_regions import change_regions, check_regions
from excess.observation.proposal import Proposal, propose_config

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_config", "config_of", "propose_for_list", "settle_config", "settle_configs"]

logger = logging.getLogger("excess.observation")

_PEEK_ROWS = 100
"""Rows of a table that tell whether its times have an absolute origin."""

Config = AnalysisConfig | str | PathLike[str] | None


def settle_config(
    events: pd.DataFrame | Sequence[Path],
    config: Config = None,
    *,
    off: Sequence[Path] | None = None,
    join: Sequence[Path] | None = None,
    source: str | tuple[float, float] | None = None,
    features: Sequence[str] = (),
    exclude: Sequence[str] = (),
    references: Sequence[str] = (),
    bins: BinConfig | str | None = None,
    groups: str | None = None,
    regions: Mapping[str, Any] | None = None,
) -> AnalysisConfig:
    """Return the configuration of an observation: the given one, or the one that the events suggest.

    Parameters
    ----------
    events, config, off, join, source, features, exclude, references, bins, groups, regions
        As for `observe`; files as sequences.

    Returns
    -------
    AnalysisConfig
        With the features and regions that are asked for, the references and the position of the source.

    Raises
    ------
    EventFileError
        If there is no configuration, and the events cannot have a detection; the message says why.
    """
    if config is None:
        proposal = propose_config(
            events, off=off, join=join, source=source, features=features, exclude=exclude, regions=regions
        )
        settings = config_of(proposal)
        if not proposal.usual:
            logger.info("no configuration is given; assumed: %s", proposal.describe())
    else:
        settings = config if isinstance(config, AnalysisConfig) else load_config(config)
        if features or exclude:
            settings = with_choice(settings, features, exclude, _columns(events, join))
        if groups is None:
            settings = _with_default_groups(settings, events, join)
    check_regions(regions or {}, separate=off is not None)
    return as_config(settings, source, references, bins, regions)


def settle_configs(
    entries: Mapping[str, ObservationEntry],
    config: Config = None,
    *,
    features: Sequence[str] = (),
    exclude: Sequence[str] = (),
    references: Sequence[str] = (),
) -> dict[str, AnalysisConfig]:
    """Return the configuration of each of several observations: with the same features and cuts, and own regions.

    Parameters
    ----------
    entries : mapping of str to ObservationEntry
        The files of each observation, by its name.
    config, features, exclude, references
        As for `observe`, for all of them.

    Returns
    -------
    dict of str to AnalysisConfig
        By the names of the observations.
    """
    if config is not None:
        events, _, join = _files_of(entries)
        shared = settle_config(events, config, join=join, features=features, exclude=exclude, references=references)
        return {name: entry.settings(shared) for name, entry in entries.items()}
    regions = {}
    for name, entry in entries.items():
        given = entry.regions.get("source")
        source = given if isinstance(given, str) else None
        with prefix_errors(name):
            regions[name] = propose_config(entry.events, off=entry.off, join=entry.join, source=source).regions
    proposal = propose_for_list(entries, features=features, exclude=exclude)
    if proposal.config is None:
        raise EventFileError(proposal.no_features())
    shared = as_config(proposal.config, references=references)
    return {
        name: entry.settings(shared.model_copy(update={"regions": regions[name]})) for name, entry in entries.items()
    }


def propose_for_list(
    entries: Mapping[str, ObservationEntry], *, features: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Proposal:
    """Propose features, cuts and groups for several observations together; each has regions of its own.

    Parameters
    ----------
    entries : mapping of str to ObservationEntry
        The files of each observation, by its name.
    features, exclude
        As for `propose_config`.

    Returns
    -------
    Proposal
        Its regions are of no meaning.
    """
    events, off, join = _files_of(entries)
    found = propose_config(events, off=off or None, join=join or None, features=features, exclude=exclude)
    return replace(found, on_off="by the regions of each observation", obstacle=None)


def _files_of(entries: Mapping[str, ObservationEntry]) -> list[list[Path]]:
    """Return the files of events, of Off events and to join, of all observations."""
    return [
        [Path(path) for entry in entries.values() for path in getattr(entry, kind) or ()]
        for kind in ("events", "off", "join")
    ]


def config_of(proposal: Proposal) -> AnalysisConfig:
    """Return the configuration of a proposal; EventFileError that says why, if there can be no detection."""
    if proposal.obstacle is not None:
        raise EventFileError(proposal.obstacle)
    if proposal.config is None:
        raise EventFileError(proposal.no_features())
    return proposal.config


def as_config(
    config: Config,
    source: str | tuple[float, float] | None = None,
    references: Sequence[str] = (),
    bins: BinConfig | str | None = None,
    regions: Mapping[str, Any] | None = None,
) -> AnalysisConfig:
    """Return a configuration, from a file if it is a path, with references, bins, regions and the source if given."""
    settings = config if isinstance(config, AnalysisConfig) else load_config(config)
    if regions:
        settings = settings.model_copy(update={"regions": change_regions(settings.regions, regions)})
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
    if source is None:
        return settings
    if isinstance(source, str):
        _, *position = find_source(source)
        return settings.with_source(*position)
    return settings.with_source(*source)


def _with_default_groups(
    config: AnalysisConfig, events: pd.DataFrame | Sequence[Path], join: Sequence[Path] | None
) -> AnalysisConfig:
    """Return a configuration that says nothing of groups with those that the events have: nights, else runs."""
    if "groups" in config.model_fields_set:
        return config
    present = _columns(events, join)
    found = next((name for name in (config.groups, "obs_id", "run_id") if name in present), config.groups)
    return config if found == config.groups else config.model_copy(update={"groups": found})


def _columns(events: pd.DataFrame | Sequence[Path], join: Sequence[Path] | None) -> list[str]:
    """Return the columns of a table, or of the first of files."""
    if not isinstance(events, Sequence):
        return list(map(str, add_night(events.head(_PEEK_ROWS)).columns))
    first = [list_columns(paths[0]) for paths in (events, join or ()) if paths]
    return list(dict.fromkeys(name for columns in first for name in columns))
