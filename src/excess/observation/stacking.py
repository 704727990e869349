"""Stacks: several observations as one, for a model that learns from all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import FloatArray
from excess._core.errors import EventFileError, prefix_errors
from excess.events import AnalysisConfig, load_observation_list
from excess.observation.census import Census
from excess.observation.joining import concatenate, join_nearby, join_sky
from excess.observation.observation import Observation
from excess.observation.observing import observe
from excess.observation.pipeline import NearbyEvents
from excess.observation.regions import Regions
from excess.observation.repeated_events import check_rows
from excess.observation.settings import settle_configs
from excess.validation.exposure import Exposure

__all__ = ["observe_several", "stack"]

_SHARED = ("features", "derived_features", "quality_cuts", "references")
"""What the configurations of stacked observations must agree in."""


def stack(observations: Mapping[str, Observation]) -> Observation:
    """Stack observations, such as several sources, periods or telescopes with the same features.

    Parameters
    ----------
    observations : mapping of str to Observation
        By name; each from `observe`, with regions or exposure ratio of its own.

    Returns
    -------
    Observation
        All events, with the exposure ratio of each in ``event_alpha`` where it differs, and the name of its observation
        in ``observations``. Groups keep their labels, so that a night is one group in all observations, and is held out
        as a whole. Where the numbers of Off regions differ, Off is one region, and there are no null tests; where the
        cuts on theta differ as well, there are no angles.

    Raises
    ------
    ValueError
        If features, derived features or quality cuts differ, if some observations have groups and others have none, or
        if two of them have a file in common.

    See Also
    --------
    observe_several : The same from a list of files.
    search : Finds the significance of each observation, and the joint one.

    Examples
    --------
    >>> from excess.events import AnalysisConfig
    >>> from excess.observation import observe, simulate_observation, stack
    >>> crab = observe(simulate_observation(60_000, 200, random_state=0))
    >>> few_regions = AnalysisConfig(regions={"n_regions": 3})
    >>> other = observe(simulate_observation(60_000, 100, n_regions=3, random_state=1), few_regions)
    >>> both = stack({"crab": crab, "other": other})
    >>> len(both.X) == len(crab.X) + len(other.X), sorted(set(both.event_alpha.tolist()))
    (True, [0.2, 0.5])
    """
    import pandas as pd

    _check(observations)
    parts = _with_same_groups(observations)
    first = parts[0]
    census = Census()
    for part in parts:
        census.add(part.census)
    n_regions = {part.regions.n_regions for part in parts}
    region = np.concatenate([part.regions.region for part in parts])
    if len(n_regions) > 1:
        region = np.minimum(region, 1)
    event_alpha = np.concatenate([np.broadcast_to(part.exposure_ratio, len(part.X)) for part in parts])
    one_alpha = bool((event_alpha == event_alpha[0]).all())
    alpha = first.alpha if one_alpha else float(event_alpha[region > 0].mean())
    X = np.concatenate([part.X for part in parts])
    check_rows(
        X,
        np.repeat(np.arange(len(parts)), [len(part.X) for part in parts]),
        [f"observation {name!r}" for name in observations],
    )
    theta, nearby = _join_angles(parts, len(n_regions) == 1)
    return Observation(
        X=X,
        regions=Regions(
            region,
            n_regions.pop() if len(n_regions) == 1 else 2,
            alpha,
            census.n_overlapping,
            _join_region_exposure(parts),
            census.n_without_off,
        ),
        groups=concatenate([part.groups for part in parts]),
        table=pd.concat([part.table for part in parts], ignore_index=True),
        theta=theta,
        nearby=nearby,
        census=census,
        config=first.config,
        group_column=" or ".join(dict.fromkeys(part.group_column for part in parts)),
        files={f"{kind} of {name}": paths for name, part in observations.items() for kind, paths in part.files.items()},
        event_alpha=None if one_alpha else event_alpha,
        notes=tuple(f"{name}: {note}" for name, part in observations.items() for note in part.notes),
        observations=np.repeat(list(observations), [len(part.X) for part in parts]).astype(object),
        sky=None if theta is None else join_sky([part.sky for part in parts]),
        exposure=_join_times(parts),
    )


def observe_several(
    path: str | PathLike[str],
    config: AnalysisConfig | str | PathLike[str] | None = None,
    *,
    groups: str | None = None,
    references: Sequence[str] = (),
    features: Sequence[str] = (),
    exclude: Sequence[str] = (),
    nearby: bool = True,
    chunk_rows: int = 200_000,
) -> Observation:
    """Select the events of several observations, which a YAML file lists, and stack them.

    Parameters
    ----------
    path : path
        The list, which `load_observation_list` reads: by the name of each observation its files in ``events``; in
        ``off`` and ``alpha`` files of Off events and the exposure ratio (or that of each group), in ``join`` files to
        join, in ``regions`` what its regions have other than those of the configuration.
    config : AnalysisConfig, path or None, default=None
        Features, cuts, groups and regions, as for `observe`; by default features that all files have.
    groups, references, features, exclude, nearby, chunk_rows
        As for `observe`.

    Returns
    -------
    Observation
        As from `stack`.
    """
    entries = load_observation_list(path)
    settings = settle_configs(entries, config, features=features, exclude=exclude, references=references)
    found = {}
    for name, entry in entries.items():
        with prefix_errors(name):
            found[name] = observe(
                entry.events,
                settings[name],
                off=entry.off,
                alpha=entry.alpha,
                join=entry.join,
                groups=groups,
                nearby=nearby,
                chunk_rows=chunk_rows,
            )
    stacked = stack(found)
    return replace(stacked, files={"list of observations": (Path(path),), **stacked.files})


def _check(observations: Mapping[str, Observation]) -> None:
    """Refuse observations that have no meaning together."""
    if not observations:
        raise ValueError("observations must hold at least one observation, by its name")
    first, *others = observations
    seen: dict[Path, str] = {}
    for name, part in observations.items():
        if part.observations is not None:
            raise ValueError(f"observation {name!r} is a stack itself; stack all observations at once")
        for path in (path.resolve() for paths in part.files.values() for path in paths):
            if seen.setdefault(path, name) != name:
                raise EventFileError(
                    f"{path}: belongs to {seen[path]!r} and to {name!r}, so that its events would count twice; give "
                    "every file once"
                )
    for name in others:
        ours, theirs = observations[first].config, observations[name].config
        for what in _SHARED:
            if getattr(ours, what) != getattr(theirs, what):
                raise ValueError(
                    f"observations {first!r} and {name!r} have different {what.replace('_', ' ')}: "
                    f"{_difference(getattr(ours, what), getattr(theirs, what))}; one model needs the same"
                )
        if (observations[first].groups is None) != (observations[name].groups is None):
            raise ValueError(f"one of the observations {first!r} and {name!r} has groups, the other has none")


def _difference(ours: Any, theirs: Any) -> str:
    """Return what is in one of two collections only, or that their order differs."""
    of_ours, of_theirs = (list(one.items()) if isinstance(one, Mapping) else list(one) for one in (ours, theirs))
    texts = [
        f"only the {which} has {', '.join(map(str, only))}"
        for which, only in (
            ("first", [one for one in of_ours if one not in of_theirs]),
            ("second", [one for one in of_theirs if one not in of_ours]),
        )
        if only
    ]
    return ", ".join(texts) or "their order differs"


def _with_same_groups(observations: Mapping[str, Observation]) -> list[Observation]:
    """Return observations whose groups are all texts if some are texts and others are numbers."""
    parts = list(observations.values())
    if len({part.groups.dtype.kind in "biuf" for part in parts if part.groups is not None}) < 2:
        return parts
    return [
        replace(
            part,
            groups=_as_texts(part.groups),
            nearby=None if part.nearby is None else replace(part.nearby, groups=_as_texts(part.nearby.groups)),
        )
        for part in parts
    ]


def _join_times(parts: list[Observation]) -> Exposure | None:
    """Return the times of all observations; None where those of one are not known. Common groups add up."""
    known = [part.exposure for part in parts if part.exposure is not None]
    if len(known) < len(parts):
        return None
    sources = {one.source for one in known}
    group, night = (tuple(label for one in known for label in getattr(one, name)) for name in ("group", "night"))
    source = sources.pop() if len(sources) == 1 else "events"
    return Exposure(source, group, night, np.concatenate([one.hours for one in known]))


def _as_texts(groups: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if groups is None else groups.astype(str).astype(object)


def _join_region_exposure(parts: list[Observation]) -> FloatArray | None:
    """Return the exposure of Off regions, if some pointings lack some, and all observations have as many regions."""
    exposures = [part.regions.exposure for part in parts]
    n_off = {part.regions.n_regions - 1 for part in parts}
    if len(n_off) > 1 or all(exposure is None for exposure in exposures):
        return None
    [n] = n_off
    return np.concatenate(
        [
            np.ones((len(part.X), n)) if exposure is None else exposure
            for part, exposure in zip(parts, exposures, strict=True)
        ]
    )


def _join_angles(parts: list[Observation], same_regions: bool) -> tuple[FloatArray | None, NearbyEvents | None]:
    """Return angles to the regions, and the events around these, if all observations have the same kind of regions."""
    cuts = {part.config.regions.theta_squared_cut for part in parts}
    if not same_regions or len(cuts) > 1 or any(part.theta is None for part in parts):
        return None, None
    return concatenate([part.theta for part in parts]), join_nearby([part.nearby for part in parts if part.nearby])
