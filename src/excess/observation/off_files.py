"""Off observations in files of their own: where in their fields of view Off is, and their exposure ratio to On."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray, as_alpha
from excess._core.errors import ArgumentError, EventFileError, MismatchError
from excess.events import AnalysisConfig, RegionConfig, describe, iter_events
from excess.observation.joining import concatenate
from excess.observation.matching import Match, match_runs, merge_labels
from excess.observation.pipeline import ObservedChunk
from excess.observation.region_methods import SKY_COLUMNS
from excess.observation.runs import TIME_OF_RUN_COLUMNS, TelescopeRun, join_runs
from excess.observation.sky import offset_of_source

__all__ = ["MatchedEvents", "alpha_of_groups", "check_live_times", "find_offset", "match_events"]

_MAX_OFFSET_SPREAD = 0.1
"""Largest difference of the offsets of the source from the pointing, in deg, among On files beside Off files."""

logger = logging.getLogger("excess.observation")


def find_offset(files: Mapping[str, tuple[Path, ...]], config: AnalysisConfig) -> tuple[float, float] | None:
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
            'needed for the cut on theta^2: give source, such as Crab or "83.6333 22.0133" (--source)'
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
            f"{files['events'][0]}: the source is from {offset.min():.2f} to {offset.max():.2f} deg away "
            "from the pointing, so that it is not known where in the Off runs to count; give runs of each offset as an "
            "observation of their own, in a list of observations"
        )
    return float(np.median(offset)), float(direction[0])


def alpha_of_groups(alpha: Mapping[Any, float], groups: NDArray[Any] | None) -> FloatArray:
    """Return the exposure ratio of each event from those of the groups."""
    if groups is None:
        raise ArgumentError("alpha", "of each group needs `groups`")
    names, inverse = np.unique(groups, return_inverse=True)
    for name in names.tolist():
        if name not in alpha:
            raise MismatchError("alpha", f"must hold every group, and has none for {name!r}")
    return as_alpha([alpha[name] for name in names.tolist()])[inverse]


def check_live_times(files: Mapping[str, tuple[Path, ...]]) -> None:
    """Raise MismatchError where live times are needed for the exposure ratio, and files have none."""
    for paths in files.values():
        present = describe(paths[0]).columns
        if not set(TIME_OF_RUN_COLUMNS) & set(present):
            raise MismatchError(
                "alpha",
                f"is needed with `off`: the exposure ratio On/Off, which does not follow from live times, because "
                f"{paths[0]} has no column livetime, nor ontime",
            )


class MatchedEvents(NamedTuple):
    """What live times and matched runs say about events.

    Attributes
    ----------
    kept : ndarray of bool of shape (n_events,)
        False for events of runs without a partner.
    alpha : ndarray of shape (n_events,)
        Exposure ratio of the match of each event; NaN for those that are not kept.
    groups : ndarray of shape (n_events,) or None
        Groups that split no match; None where those of the chunks do not.
    notes : list of str
        What was done, in sentences.
    """

    kept: BoolArray
    alpha: FloatArray
    groups: NDArray[Any] | None
    notes: list[str]


def match_events(on: Sequence[ObservedChunk], off: Sequence[ObservedChunk], config: RegionConfig) -> MatchedEvents:
    """Find the exposure ratio of events of On and Off files from the live times of their runs.

    Parameters
    ----------
    on, off : sequence of ObservedChunk
        With their runs.
    config : RegionConfig
        How runs are matched.

    Returns
    -------
    MatchedEvents
        For all events of the chunks, those of On first.

    Raises
    ------
    EventFileError
        If a live time, or what runs are matched by, is not known; or if no runs match.
    """
    import pandas as pd

    chunks = [*on, *off]
    sides = [join_runs(run for chunk in side for run in chunk.runs) for side in (on, off)]
    for runs in sides:
        for run in runs.values():
            if not np.isfinite(run.live_time):
                raise EventFileError(f"run {run.name} has no live time; give alpha")
    matches, unmatched = match_runs(sides[0], sides[1], config)
    if not matches:
        raise EventFileError("no On run has an Off run to be compared with; make match_within larger")
    if unmatched:
        names = ", ".join(str(run.name) for run in unmatched[:5])
        more = f" and {len(unmatched) - 5} more" if len(unmatched) > 5 else ""
        logger.warning("runs without a partner are left out: %s%s", names, more)
    known = {
        (region, run.name): match
        for match in matches
        for region, runs in enumerate((match.on, match.off))
        for run in runs
    }
    region = np.concatenate([chunk.region for chunk in chunks])
    labels = concatenate([_as_objects(chunk.run) for chunk in chunks])
    # runs of either side by number, so that each is looked up once
    number, names = pd.factorize(labels, use_na_sentinel=False)
    key, of_event = np.unique(2 * number + region, return_inverse=True)
    own = [known.get((one % 2, names[one // 2])) for one in key.tolist()]
    kept = np.array([match is not None for match in own], dtype=np.bool_)[of_event]
    alpha = np.array([np.nan if match is None else match.alpha for match in own])[of_event]
    groups = None
    given = concatenate([chunk.groups for chunk in chunks])
    notes = [_describe_matches(matches, unmatched, all(run.dead_time_known for runs in sides for run in runs.values()))]
    if len(matches) > 1 and given is not None:
        names_of = np.array(["" if match is None else match.name for match in own], dtype=object)[of_event]
        groups = given.astype(object)
        groups[kept], together = merge_labels(names_of[kept], given[kept])
        if not together:
            notes.append("groups are the matched runs, which split what the configuration has for groups")
    return MatchedEvents(kept, alpha, groups, notes)


def _describe_matches(matches: Sequence[Match], unmatched: Sequence[TelescopeRun], dead_time_known: bool) -> str:
    """Return where the exposure ratio comes from, in words."""
    on, off = (sum(match.live_times[side] for match in matches) / 3600 for side in (0, 1))
    kind = "live times" if dead_time_known else "observation times, of which dead time is not known"
    text = f"alpha from {kind}, On {on:.2f} h and Off {off:.2f} h"
    if len(matches) > 1:
        ratios = [match.alpha for match in matches]
        text += f", {min(ratios):.3g} to {max(ratios):.3g} in {len(matches)} matches of runs"
    return text + (f"; {len(unmatched)} runs without a partner left out" if unmatched else "")


def _as_objects(labels: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if labels is None else labels.astype(object)
