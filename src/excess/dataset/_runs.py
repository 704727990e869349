"""Runs: live times, and matching of On and Off runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from excess._utils.checks import BoolArray, FloatArray, as_alpha
from excess._utils.errors import ArgumentError, EventFileError, MismatchError
from excess.config._model import AnalysisConfig, RegionConfig
from excess.dataset._dataset import OnOffDataset
from excess.dataset._regions import SKY_COLUMNS, alpha_error_of, offset_of_source
from excess.io._reading import describe, iter_events

RUN_LABELS = ("obs_id", "night", "run_id")  # columns that identify runs
TIME_OF_RUN_COLUMNS = ("livetime", "ontime")  # of an event's run in seconds; the first known column is used
LIVE_SHARE_COLUMN = "deadc"  # live fraction of the observation time
ZENITH_COLUMNS = ("zenith", "zd_tracking", "pointing_position_zd", "pointing_zd")  # of the pointing in deg
ALTITUDE_COLUMN = "pointing_alt"
_NUMBERS = (*TIME_OF_RUN_COLUMNS, LIVE_SHARE_COLUMN, *ZENITH_COLUMNS, ALTITUDE_COLUMN)
RUN_COLUMNS = (*RUN_LABELS, *_NUMBERS)  # optional columns with properties of runs
_SAME_TIME = 1e-6  # relative difference up to which live times are equal


@dataclass(frozen=True)
class TelescopeRun:
    """One run."""

    name: Any
    n_events: int
    live_time: float = float("nan")
    zenith: float = float("nan")
    time: float = float("nan")
    dead_time_known: bool = True

    def add(self, other: TelescopeRun) -> TelescopeRun:
        """Merge with the events of another chunk of the same run."""
        n = self.n_events + other.n_events
        if abs(self.live_time - other.live_time) > _SAME_TIME * abs(self.live_time):
            raise _several_live_times(self.name, self.live_time, other.live_time)
        both = (self.zenith, other.zenith), (self.time, other.time)
        zenith, time = ((self.n_events * one + other.n_events * another) / n for one, another in both)
        return TelescopeRun(self.name, n, self.live_time, zenith, time, self.dead_time_known and other.dead_time_known)


def run_labels(table: pd.DataFrame) -> NDArray[Any]:
    """Return the run of each event: ``obs_id``, ``run_id`` with its night, or the name of the file."""
    if "obs_id" in table:
        return table["obs_id"].to_numpy()
    if "run_id" in table and "night" in table:
        return (table["night"].astype(str) + "/" + table["run_id"].astype(str)).to_numpy(dtype=object)
    if "run_id" in table:
        return table["run_id"].to_numpy()
    return np.full(len(table), str(table.attrs.get("file", "all events")), dtype=object)


def list_runs(table: pd.DataFrame, seconds: NDArray[Any] | None) -> list[TelescopeRun]:
    """Return the runs of a table; ``seconds`` are the times of its events."""
    labels = run_labels(table)
    columns = {name: table[name].to_numpy(dtype=np.float64) for name in _NUMBERS if name in table}
    frame = pd.DataFrame({"run": labels, **columns, "time": np.nan if seconds is None else seconds})
    found = []
    for name, own in frame.groupby("run", sort=True):
        live_time, dead_time_known = _live_time(name, own)
        found.append(TelescopeRun(name, len(own), live_time, _zenith(own), float(own["time"].mean()), dead_time_known))
    return found


def join_runs(runs: Iterable[TelescopeRun]) -> dict[Any, TelescopeRun]:
    """Merge the runs of several chunks by name."""
    found: dict[Any, TelescopeRun] = {}
    for run in runs:
        found[run.name] = found[run.name].add(run) if run.name in found else run
    return found


def _live_time(name: Any, own: pd.DataFrame) -> tuple[float, bool]:
    """Return the live time of a run in seconds, NaN if unknown, and whether dead time is subtracted."""
    if not {"livetime", "ontime"} & set(own):
        return float("nan"), True
    known = "livetime" in own or "deadc" in own
    values = own["livetime"] if "livetime" in own else own["ontime"] * (own["deadc"] if known else 1.0)
    low, high = float(values.min()), float(values.max())
    if high - low > _SAME_TIME * abs(high):
        raise _several_live_times(name, low, high)
    if not low > 0:
        raise EventFileError(f"run {name} has a live time of {low:g} s, which must be positive")
    return low, known


def _several_live_times(name: Any, low: float, high: float) -> EventFileError:
    remedy = "specify alpha, or add a column obs_id that identifies runs"
    return EventFileError(f"run {name} has different live times, {low:g} and {high:g} s; {remedy}")


def _zenith(own: pd.DataFrame) -> float:
    """Return the mean zenith distance in deg; NaN if unknown."""
    name = next((name for name in (*ZENITH_COLUMNS, ALTITUDE_COLUMN) if name in own), None)
    mean = float("nan") if name is None else float(own[name].mean())
    return 90.0 - mean if name == ALTITUDE_COLUMN else mean


@dataclass(frozen=True)
class Match:
    """On runs and the Off runs matched to them."""

    on: tuple[TelescopeRun, ...]
    off: tuple[TelescopeRun, ...]

    @property
    def alpha(self) -> float:
        """Exposure ratio: live time of the On runs over that of the Off runs."""
        return self.live_times[0] / self.live_times[1]

    @property
    def live_times(self) -> tuple[float, float]:
        """Live time of the On runs and of the Off runs in seconds."""
        on, off = (sum(run.live_time for run in runs) for runs in (self.on, self.off))
        return on, off

    @property
    def name(self) -> str:
        """The first runs of both sides."""
        return " / ".join(_few([str(run.name) for run in runs]) for runs in (self.on, self.off))


def match_runs(
    on: Mapping[Any, TelescopeRun], off: Mapping[Any, TelescopeRun], config: RegionConfig
) -> tuple[list[Match], list[TelescopeRun]]:
    """Match On and Off runs by live time alone, zenith distance, time, or a list of pairs."""
    if config.pairs:
        return _by_pairs(on, off, config)
    if config.match == "none":
        return [Match(tuple(on.values()), tuple(off.values()))], []
    return _by_nearest(list(on.values()), list(off.values()), config)


# quantities by which On and Off runs are matched: the name, and the value in deg or hours
MATCHINGS: dict[str, tuple[str, Callable[[TelescopeRun], float]]] = {
    "zenith": ("zenith distance", lambda run: run.zenith),
    "time": ("time", lambda run: run.time / 3600),
}


def _by_nearest(
    on: list[TelescopeRun], off: list[TelescopeRun], config: RegionConfig
) -> tuple[list[Match], list[TelescopeRun]]:
    """Match every run to the nearest one of the other side."""
    runs, (what, value_of), within = [*on, *off], MATCHINGS[config.match], config.match_within
    values = np.array([value_of(run) for run in runs])
    unknown = [str(run.name) for run, value in zip(runs, values, strict=True) if not np.isfinite(value)]
    if unknown:
        problem = f"runs cannot be matched by {what}, which is unknown for {_few(unknown)}"
        raise EventFileError(f"{problem}; choose another match, or list the pairs")
    distance = np.abs(np.subtract.outer(values[: len(on)], values[len(on) :]))
    if within is not None:
        distance[distance > within] = np.inf
    columns = ((row, column) for column, row in enumerate(distance.argmin(axis=0)))
    links = [*enumerate(distance.argmin(axis=1)), *columns]
    block = _connect(len(runs), [(one, len(on) + other) for one, other in links if np.isfinite(distance[one, other])])
    matches, unmatched = [], []
    for number in dict.fromkeys(block.tolist()):
        own = np.flatnonzero(block == number).tolist()
        of_on, of_off = (tuple(runs[k] for k in own if (k < len(on)) == is_on) for is_on in (True, False))
        if of_on and of_off:
            matches.append(Match(of_on, of_off))
        else:
            unmatched += [*of_on, *of_off]
    return matches, unmatched


def _by_pairs(
    on: Mapping[Any, TelescopeRun], off: Mapping[Any, TelescopeRun], config: RegionConfig
) -> tuple[list[Match], list[TelescopeRun]]:
    """Match runs as listed in the configuration."""
    names = {(side, str(name)): run for side, runs in (("on", on), ("off", off)) for name, run in runs.items()}
    used: set[tuple[str, str]] = set()
    matches = []
    for pair in config.pairs:
        sides = []
        for side, listed in (("on", pair.on), ("off", pair.off)):
            for name in listed:
                if (side, str(name)) not in names:
                    listed_as = f"regions.pairs lists the run {name} among the {side.capitalize()} runs"
                    known = _few([one for own, one in names if own == side])
                    raise EventFileError(f"{listed_as}, which are {known}")
                if (side, str(name)) in used:
                    raise EventFileError(f"regions.pairs lists the run {name} twice; list every run once")
                used.add((side, str(name)))
            sides.append(tuple(names[side, str(name)] for name in listed))
        matches.append(Match(*sides))
    return matches, [run for key, run in names.items() if key not in used]


def _connect(n: int, links: ArrayLike) -> NDArray[np.intp]:
    """Return the connected component of each of n nodes, numbered by their first nodes."""
    one, other = np.reshape(links, (-1, 2)).astype(np.intp).T
    return np.asarray(connected_components(coo_array((np.ones(len(one)), (one, other)), (n, n)), directed=False)[1])


def merge_labels(match: NDArray[Any], groups: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Return groups that split neither a match nor a group, and whether there are any."""
    matches, match_number = np.unique(match, return_inverse=True)
    names, group_number = np.unique(groups, return_inverse=True)
    pairs = np.unique(np.stack([match_number, len(matches) + group_number], axis=1), axis=0)
    own = _connect(len(matches) + len(names), pairs)[len(matches) :]
    if len(np.unique(own)) < 2:
        return match, False
    texts = {number: _few([str(name) for name in names[own == number].tolist()]) for number in np.unique(own).tolist()}
    return np.array([texts[number] for number in own.tolist()], dtype=object)[group_number], True


def _few(names: Sequence[str]) -> str:
    """Return a shortened list of names."""
    return " + ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"


_MAX_OFFSET_SPREAD = 0.1  # maximum difference of the source offsets from the pointing in On files, in deg
logger = logging.getLogger("excess.dataset")


def find_offset(files: Mapping[str, tuple[Path, ...]], config: AnalysisConfig) -> tuple[float, float] | None:
    """Return the source position in the field of view of On files, as offset and direction in deg."""
    described = [describe(paths[0]) for paths in files.values()]
    if not all(name in info.columns for info in described for name in SKY_COLUMNS):
        return None
    source_ra, source_dec = config.regions.source_ra, config.regions.source_dec
    if source_ra is None or source_dec is None:
        if not described[0].format.startswith("FITS"):
            return None
        problem = "the position of the source is needed for the cut on theta^2 in whole fields of view"
        remedy = 'specify source, such as Crab or "83.6333 22.0133" (--source)'
        raise EventFileError(f"{described[0].path}: {problem}: {remedy}")
    pointing = [table.drop_duplicates() for table in iter_events(files["events"], SKY_COLUMNS[2:])]
    angles = ((one[name].to_numpy(float) for name in SKY_COLUMNS[2:]) for one in pointing)
    found = [offset_of_source(*one, source_ra=source_ra, source_dec=source_dec) for one in angles]
    offset, direction = (np.concatenate(values) for values in zip(*found, strict=True))
    if len(offset) == 0:
        return None
    if np.ptp(offset) > _MAX_OFFSET_SPREAD:
        problem = f"the source is {offset.min():.2f} to {offset.max():.2f} deg from the pointing"
        remedy = "define one observation per offset in a list of observations"
        raise EventFileError(f"{files['events'][0]}: {problem}, so its position in Off runs is ambiguous; {remedy}")
    return float(np.median(offset)), float(direction[0])


def alpha_of_groups(alpha: Mapping[Any, float], groups: NDArray[Any] | None) -> FloatArray:
    """Return the exposure ratio of each event from those of the groups."""
    if groups is None:
        raise ArgumentError("alpha", "by group requires `groups`")
    names, inverse = np.unique(groups, return_inverse=True)
    for name in names.tolist():
        if name not in alpha:
            raise MismatchError("alpha", f"must contain every group, but {name!r} is missing")
    return as_alpha([alpha[name] for name in names.tolist()])[inverse]


def check_live_times(files: Mapping[str, tuple[Path, ...]]) -> None:
    """Raise MismatchError if the exposure ratio requires live times that the files lack."""
    for paths in files.values():
        if not set(TIME_OF_RUN_COLUMNS) & set(describe(paths[0]).columns):
            problem = f"{paths[0]} has no column livetime or ontime for the exposure ratio On/Off"
            raise MismatchError("alpha", f"is required with `off`: {problem}")


class MatchedEvents(NamedTuple):
    """Properties of events that follow from live times and matched runs."""

    kept: BoolArray
    alpha: FloatArray
    groups: NDArray[Any] | None
    notes: list[str]


def match_events(on: Sequence[OnOffDataset], off: Sequence[OnOffDataset], config: RegionConfig) -> MatchedEvents:
    """Compute the exposure ratio of events of On and Off files from the live times of their runs."""
    chunks = [*on, *off]
    sides = [join_runs(run for chunk in side for run in chunk.runs) for side in (on, off)]
    for run in (run for runs in sides for run in runs.values()):
        if not np.isfinite(run.live_time):
            raise EventFileError(f"run {run.name} has no live time; specify alpha")
    matches, unmatched = match_runs(sides[0], sides[1], config)
    if not matches:
        raise EventFileError("no On run has a matching Off run; increase match_within")
    if unmatched:
        names = ", ".join(str(run.name) for run in unmatched[:5])
        more = f" and {len(unmatched) - 5} more" if len(unmatched) > 5 else ""
        logger.warning("unmatched runs are excluded: %s%s", names, more)
    sides_of = [(match, enumerate((match.on, match.off))) for match in matches]
    known = {(number, run.name): match for match, both in sides_of for number, runs in both for run in runs}
    region = np.concatenate([chunk.regions.region for chunk in chunks])
    labels = np.concatenate([np.asarray(chunk.run, dtype=object) for chunk in chunks])
    # runs of either side by number, so each is looked up once
    number, of_runs = pd.factorize(labels, use_na_sentinel=False)
    key, of_event = np.unique(2 * number + region, return_inverse=True)
    own = [known.get((one % 2, of_runs[one // 2])) for one in key.tolist()]
    kept = np.array([match is not None for match in own], dtype=np.bool_)[of_event]
    alpha = np.array([np.nan if match is None else match.alpha for match in own])[of_event]
    groups = None
    chunk_groups = [chunk.groups for chunk in chunks if chunk.groups is not None]
    given = np.concatenate(chunk_groups) if chunk_groups else None
    notes = [_describe_matches(matches, unmatched, all(run.dead_time_known for runs in sides for run in runs.values()))]
    in_off = pd.Series(labels[region == 1]).value_counts().to_dict()
    counts, times = np.zeros((2, len(matches), max(len(match.off) for match in matches)))
    for row, match in enumerate(matches):
        counts[row, : len(match.off)] = [in_off.get(run.name, 0) for run in match.off]
        times[row, : len(match.off)] = [run.live_time for run in match.off]
    if (scatter := alpha_error_of(counts, times)) > 0:
        notes.append(
            f"Off runs differ by more than chance; an error of alpha of {scatter:.2g} covers it for one On run"
        )
    if len(matches) > 1 and given is not None:
        names_of = np.array(["" if match is None else match.name for match in own], dtype=object)[of_event]
        groups = given.astype(object)
        groups[kept], together = merge_labels(names_of[kept], given[kept])
        if not together:
            notes.append("groups are the matched runs, which split the configured groups")
    return MatchedEvents(kept, alpha, groups, notes)


def _describe_matches(matches: Sequence[Match], unmatched: Sequence[TelescopeRun], dead_time_known: bool) -> str:
    """Describe the origin of the exposure ratio."""
    on, off = (sum(match.live_times[side] for match in matches) / 3600 for side in (0, 1))
    kind = "live times" if dead_time_known else "observation times without dead-time correction"
    text = f"alpha from {kind}, On {on:.2f} h and Off {off:.2f} h"
    if len(matches) > 1:
        ratios = [match.alpha for match in matches]
        text += f", {min(ratios):.3g} to {max(ratios):.3g} in {len(matches)} matches of runs"
    return text + (f"; {len(unmatched)} unmatched runs excluded" if unmatched else "")
