"""Joining of chunks: events of several tables as one, also where their regions differ in number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from excess._core.checks import FloatArray
from excess.observation.pipeline import NearbyEvents, ObservedChunk
from excess.observation.regions import Regions, mean_alpha
from excess.observation.repeated_events import check_rows
from excess.observation.sky_field import MAX_FIELD_EVENTS

__all__ = [
    "JoinedRegions",
    "check_independent",
    "concatenate",
    "concatenate_columns",
    "join_nearby",
    "join_regions",
    "join_sky",
    "thin_field",
]


class JoinedRegions(NamedTuple):
    """Regions of all events, their angles to these, and the events nearby; None where they are not known."""

    regions: Regions
    theta: FloatArray | None
    nearby: NearbyEvents | None


def join_regions(chunks: Sequence[ObservedChunk], n_regions: int) -> JoinedRegions:
    """Return the regions of all events of chunks.

    ``n_regions`` is for chunks that do not tell: those without angles and without exposure. An Off region that no event
    has room for has no number.
    """
    region = np.concatenate([chunk.region for chunk in chunks])
    theta = concatenate_columns([chunk.theta for chunk in chunks], np.nan)
    nearby = join_nearby([chunk.nearby for chunk in chunks if chunk.nearby is not None])
    n_known = [chunk.exposure.shape[1] + 1 for chunk in chunks if chunk.exposure is not None]
    if theta is not None:
        n_known.append(theta.shape[1])
    n_regions = max(n_known, default=n_regions)
    exposure = np.concatenate([_exposure_of(chunk, n_regions - 1) for chunk in chunks])
    if len(exposure) and not exposure.all():
        there = exposure.any(axis=0)
        region, exposure = np.concatenate([[0], np.cumsum(there)])[region], exposure[:, there]
        columns = np.concatenate([[True], there])
        theta = None if theta is None else theta[:, columns]
        if nearby is not None and nearby.theta.shape[1]:
            nearby = replace(nearby, theta=nearby.theta[:, columns])
        n_regions = 1 + exposure.shape[1]
    found = Regions(
        region,
        n_regions,
        1 / (n_regions - 1),
        sum(chunk.census.n_overlapping for chunk in chunks),
        None if (exposure == 1).all() else exposure,
        sum(chunk.census.n_without_off for chunk in chunks),
    )
    return JoinedRegions(replace(found, alpha=mean_alpha(found)), theta, nearby)


def _exposure_of(chunk: ObservedChunk, n_off: int) -> FloatArray:
    """Return the exposure of each Off region, 0 for those that a chunk does not have."""
    if chunk.exposure is not None:
        own = chunk.exposure
    else:
        own = np.ones((len(chunk.X), n_off if chunk.theta is None else chunk.theta.shape[1] - 1))
    return np.pad(own, ((0, 0), (0, n_off - own.shape[1])))


def concatenate_columns(arrays: Sequence[FloatArray | None], fill: float) -> FloatArray | None:
    """Return arrays of rows as one, with as many columns as the widest has; None if there are none."""
    known = [array for array in arrays if array is not None]
    if not known:
        return None
    widest = max(array.shape[1] for array in known)
    return np.concatenate(
        [np.pad(array, ((0, 0), (0, widest - array.shape[1])), constant_values=fill) for array in known]
    )


def join_nearby(parts: list[NearbyEvents]) -> NearbyEvents | None:
    """Return nearby events of several chunks or observations together; None if there are none."""
    if not any(len(part.X) for part in parts):  # files may hold no events outside of the regions
        return None
    theta = concatenate_columns([part.theta for part in parts], np.nan)
    X, groups, near = (concatenate([getattr(part, name) for part in parts]) for name in ("X", "groups", "near"))
    sky = join_sky([part.sky for part in parts if len(part.X)])
    share = min(part.share for part in parts)
    return NearbyEvents(X, groups, theta if theta is not None else np.empty((0, 0)), near, sky, share)


def join_sky(parts: list[FloatArray | None]) -> FloatArray | None:
    """Return positions of several chunks or observations as one array; None unless all of them have positions."""
    return None if any(part is None for part in parts) else concatenate(parts)


def thin_field(chunks: list[ObservedChunk], limit: int = MAX_FIELD_EVENTS) -> list[ObservedChunk]:
    """Return chunks with at most ``limit`` events of the field in all of them together; regions keep all events.

    Of too many events a half is drawn, or a quarter, and so on, by numbers that belong to the rows of the files: the
    draw does not depend on chunks.
    """
    parts = [chunk.nearby for chunk in chunks if chunk.nearby is not None]
    draws = [part.sky[~part.near, 4] for part in parts if part.sky is not None]
    share = min((part.share for part in parts), default=1.0)
    if share == 1.0 and sum(map(len, draws)) <= limit:
        return chunks
    drawn = np.sort(np.concatenate(draws))
    while np.searchsorted(drawn, share) > limit:
        share /= 2
    return [chunk if chunk.nearby is None else replace(chunk, nearby=chunk.nearby.drawn(share)) for chunk in chunks]


def concatenate(arrays: list[Any]) -> Any:
    """Return arrays as one, None if there are none."""
    known = [array for array in arrays if array is not None]
    return np.concatenate(known) if known else None


def check_independent(X: FloatArray, chunks: Sequence[ObservedChunk], source: str) -> None:
    """Refuse equal rows of features; the message names files where there are several, else groups."""
    names = list(dict.fromkeys(chunk.file for chunk in chunks))
    origin = np.repeat([names.index(chunk.file) for chunk in chunks], [len(chunk.X) for chunk in chunks])
    groups = concatenate([chunk.groups for chunk in chunks])
    if len(names) == 1 and groups is not None:
        labels, origin = np.unique(groups, return_inverse=True)
        names = [f"group {label}" for label in labels.tolist()]
    check_rows(X, origin, names if any(names) else ["these events"], f"{source}: " if source else "")
