"""Matching of On and Off runs: which runs are compared with each other, and the exposure ratio of each match."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess._core.errors import EventFileError
from excess.observation.runs import TelescopeRun

if TYPE_CHECKING:
    from excess.events import RegionConfig

__all__ = ["MATCHINGS", "Match", "match_runs", "merge_labels"]

_HOUR = 3600.0


@dataclass(frozen=True)
class Match:
    """On runs and the Off runs that they are compared with.

    Attributes
    ----------
    on, off : tuple of TelescopeRun
        Runs of either side, at least one.
    """

    on: tuple[TelescopeRun, ...]
    off: tuple[TelescopeRun, ...]

    @property
    def alpha(self) -> float:
        """Exposure ratio: live time of the On runs over that of the Off runs."""
        on, off = self.live_times
        return on / off

    @property
    def live_times(self) -> tuple[float, float]:
        """Live time of the On runs and of the Off runs in seconds."""
        on, off = (sum(run.live_time for run in runs) for runs in (self.on, self.off))
        return on, off

    @property
    def name(self) -> str:
        """The first runs of both sides."""
        sides = (_few([str(run.name) for run in runs]) for runs in (self.on, self.off))
        return " / ".join(sides)


def match_runs(
    on: Mapping[Any, TelescopeRun], off: Mapping[Any, TelescopeRun], config: RegionConfig
) -> tuple[list[Match], list[TelescopeRun]]:
    """Match On and Off runs by live time alone, by zenith distance, by time, or as a list of pairs says.

    Parameters
    ----------
    on, off : mapping of object to TelescopeRun
        Runs by name.
    config : RegionConfig
        ``match`` and ``match_within``, or ``pairs``.

    Returns
    -------
    matches : list of Match
        All runs together with ``match: none``. By zenith distance or time, every run is matched with the nearest one of
        the other side, and runs that have one in common belong to one match.
    unmatched : list of TelescopeRun
        Runs without a partner.

    Examples
    --------
    >>> from excess.events import RegionConfig
    >>> from excess.observation.matching import match_runs
    >>> from excess.observation.runs import TelescopeRun
    >>> on = {name: TelescopeRun(name, 10, 1200.0, zenith) for name, zenith in (("a", 10.0), ("b", 40.0))}
    >>> off = {name: TelescopeRun(name, 10, 2400.0, zenith) for name, zenith in (("c", 12.0), ("d", 38.0), ("e", 39.0))}
    >>> matches, _ = match_runs(on, off, RegionConfig(match="zenith"))
    >>> [(match.name, match.alpha) for match in matches]
    [('a / c', 0.5), ('b / d + e', 0.25)]
    """
    if config.pairs:
        return _by_pairs(on, off, config)
    return MATCHINGS[config.match](list(on.values()), list(off.values()), config.match_within)


def _all_together(
    on: list[TelescopeRun], off: list[TelescopeRun], within: float | None
) -> tuple[list[Match], list[TelescopeRun]]:
    del within
    return [Match(tuple(on), tuple(off))], []


def _by_zenith(
    on: list[TelescopeRun], off: list[TelescopeRun], within: float | None
) -> tuple[list[Match], list[TelescopeRun]]:
    """Match runs of similar zenith distance; ``within`` is in deg."""
    return _by_nearest(on, off, lambda run: run.zenith, "zenith distance", within)


def _by_time(
    on: list[TelescopeRun], off: list[TelescopeRun], within: float | None
) -> tuple[list[Match], list[TelescopeRun]]:
    """Match runs that were taken one after the other; ``within`` is in hours."""
    return _by_nearest(on, off, lambda run: run.time / _HOUR, "time", within)


MATCHINGS: dict[
    str, Callable[[list[TelescopeRun], list[TelescopeRun], float | None], tuple[list[Match], list[TelescopeRun]]]
] = {
    "none": _all_together,
    "zenith": _by_zenith,
    "time": _by_time,
}
"""Ways to match On and Off runs: functions of both and of the largest difference."""


def _by_nearest(
    on: list[TelescopeRun],
    off: list[TelescopeRun],
    value_of: Callable[[TelescopeRun], float],
    what: str,
    within: float | None,
) -> tuple[list[Match], list[TelescopeRun]]:
    """Match every run with the nearest one of the other side."""
    runs = [*on, *off]
    values = np.array([value_of(run) for run in runs])
    unknown = [str(run.name) for run, value in zip(runs, values, strict=True) if not np.isfinite(value)]
    if unknown:
        raise EventFileError(
            f"runs cannot be matched by {what}, which is not known for {_few(unknown)}; choose another match, or list "
            "the pairs"
        )
    distance = np.abs(np.subtract.outer(values[: len(on)], values[len(on) :]))
    if within is not None:
        distance[distance > within] = np.inf
    links = [(row, len(on) + int(column)) for row, column in enumerate(distance.argmin(axis=1))]
    links += [(int(row), len(on) + column) for column, row in enumerate(distance.argmin(axis=0))]
    links = [(one, other) for one, other in links if np.isfinite(distance[one, other - len(on)])]
    block = _connect(len(runs), links)
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
    """Match runs as the configuration lists them."""
    names = {(side, str(name)): run for side, runs in (("on", on), ("off", off)) for name, run in runs.items()}
    used: set[tuple[str, str]] = set()
    matches = []
    for pair in config.pairs:
        sides = []
        for side, listed in (("on", pair.on), ("off", pair.off)):
            for name in listed:
                if (side, str(name)) not in names:
                    raise EventFileError(
                        f"regions.pairs lists the run {name} among the {side.capitalize()} runs, and these are "
                        f"{_few([str(one) for one in (on if side == 'on' else off)])}"
                    )
                if (side, str(name)) in used:
                    raise EventFileError(f"regions.pairs lists the run {name} twice; give every run once")
                used.add((side, str(name)))
            sides.append(tuple(names[side, str(name)] for name in listed))
        matches.append(Match(*sides))
    return matches, [run for key, run in names.items() if key not in used]


def _connect(n: int, links: Sequence[tuple[int, int]]) -> NDArray[np.intp]:
    """Return for each of n things the smallest number of those that it is linked with, through others as well."""
    first = np.arange(n)
    for _ in range(n):
        before = first.copy()
        for one, other in links:
            first[one] = first[other] = min(first[one], first[other])
        if (first == before).all():
            break
    return first


def merge_labels(match: NDArray[Any], groups: NDArray[Any]) -> tuple[NDArray[Any], bool]:
    """Return groups that split neither a match nor a group, and whether there are any.

    Parameters
    ----------
    match, groups : ndarray of shape (n_events,)
        Match and group of each event.

    Returns
    -------
    merged : ndarray of shape (n_events,)
        Names of all groups that belong together. Where all of them do, the matches.
    kept : bool
        Whether groups are kept together.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.observation.matching import merge_labels
    >>> merge_labels(np.array(["p", "p", "q", "q"]), np.array([1, 2, 3, 4]))[0].tolist()
    ['1 + 2', '1 + 2', '3 + 4', '3 + 4']
    """
    matches, match_number = np.unique(match, return_inverse=True)
    names, group_number = np.unique(groups, return_inverse=True)
    pairs = np.unique(np.stack([match_number, len(matches) + group_number], axis=1), axis=0)
    block = _connect(len(matches) + len(names), [(int(one), int(other)) for one, other in pairs])
    own = block[len(matches) :]
    if len(np.unique(own)) < 2:
        return match, False
    texts = {number: _few([str(name) for name in names[own == number].tolist()]) for number in np.unique(own).tolist()}
    return np.array([texts[number] for number in own.tolist()], dtype=object)[group_number], True


def _few(names: Sequence[str]) -> str:
    """Return names, not too many of them."""
    return " + ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"
