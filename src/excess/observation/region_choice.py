"""The choice of On and Off regions from what event files hold: angles, sky positions, or files of their own."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from excess._core.checks import FloatArray
from excess.events import RegionConfig, SourcePosition, find_source
from excess.events.known_sources import source_of_object
from excess.events.region_config import AUTO
from excess.observation.column_roles import truth_columns
from excess.observation.given_regions import change_regions, check_regions, unusable_exclusion
from excess.observation.inspection import Inspection
from excess.observation.presets import Preset
from excess.observation.region_methods import METHODS, SKY_COLUMNS, choose_method, theta_columns
from excess.observation.sky import offset_of_source

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RegionChoice", "choose_regions"]

_MAX_OBJECT_DISTANCE = 0.5
"""Largest distance in deg between a known source and the position that a header gives for it."""
_MAX_OFFSET = 10.0
"""Distance of a source from the pointing in deg from which it was not observed."""
_MAX_NAMED = 6


class RegionChoice(NamedTuple):
    """Regions, how On and Off are told apart in words, and why they cannot be, if it is so."""

    regions: RegionConfig
    on_off: str
    obstacle: str | None = None


def choose_regions(
    found: Inspection,
    preset: Preset,
    source: str | tuple[float, float] | None = None,
    *,
    separate: bool = False,
    given: Mapping[str, Any] | None = None,
) -> RegionChoice:
    """Choose On and Off regions.

    Parameters
    ----------
    found : Inspection
        The files.
    preset : Preset
        What is usual for such files.
    source : str, tuple of float or None, default=None
        Name of the source, or its position in deg; by default what the files name as observed object.
    separate : bool, default=False
        Whether Off events are in files of their own.
    given : mapping of str to object or None, default=None
        Settings of the regions that are known already, such as their method; the others are chosen.

    Returns
    -------
    RegionChoice
        The regions.
    """
    known = {} if given is None else dict(given)
    check_regions(known, separate=separate)
    wanted = change_regions(RegionConfig(), known)
    # what is given is as good as usual; a number of regions that is not known yet follows from the pointing
    own: dict[str, Any] = {key: getattr(wanted, key) for key in ("theta_squared_cut", "method") if key in known}
    if wanted.method == AUTO and (wanted.exclusion or wanted.min_distance is not None):
        own["method"] = preset.method if preset.method in METHODS else "reflected"
    if wanted.n_wanted is not None and "n_regions" in known:
        own["n_regions"] = wanted.n_wanted
    if "method" in own and not separate:
        method = preset.method if wanted.method == AUTO else wanted.method
        number = wanted.n_regions if "n_regions" in known else AUTO
        try:
            choose_method(found.columns, wanted.model_copy(update={"method": method, "n_regions": number}))
        except ValueError as error:  # columns are missing
            return RegionChoice(wanted, "cannot be told apart", f"{found.name}: {error}")
    chosen, on_off, obstacle = _choose(found, replace(preset, **own), source, separate)
    located = chosen.source_ra is not None and all(name in found.columns for name in SKY_COLUMNS)
    if separate and wanted.exclusion and obstacle is None and not located:
        raise unusable_exclusion()
    if "n_regions" in known:
        number_of = "as many regions as fit" if wanted.n_wanted is None else f"{wanted.n_wanted} regions"
        on_off = re.sub(r"^\d+ regions", number_of, on_off)
    if wanted.match != "none":
        on_off += f", runs matched by {wanted.match}"
    if wanted.exclusion:
        on_off += f", {len(wanted.exclusion)} exclusion{'s' if len(wanted.exclusion) > 1 else ''}"
    return RegionChoice(change_regions(chosen, known), on_off, obstacle)


def _choose(
    found: Inspection, preset: Preset, source: str | tuple[float, float] | None, separate: bool
) -> RegionChoice:
    """Choose regions as is usual for files."""
    cut: dict[str, Any] = {"theta_squared_cut": preset.theta_squared_cut}
    needed = METHODS[preset.method].columns if preset.method in METHODS else SKY_COLUMNS
    within = f"theta^2 < {preset.theta_squared_cut:g}"
    position = None
    if source is not None:
        position = find_source(source) if isinstance(source, str) else SourcePosition("", *source)
        cut |= {"source_ra": position.ra, "source_dec": position.dec}
    if separate and not found.format.startswith("FITS"):
        return RegionChoice(RegionConfig(**cut), "by their files")
    n_angles = _count_angles(found.columns)
    if n_angles > 1 and not separate and preset.method in (AUTO, "angles"):
        n_regions = min(n_angles, preset.n_regions) if preset.fixed else n_angles
        first, *_, last = theta_columns(n_regions)
        names = f"{first} {'and' if n_regions == 2 else 'to'} {last}"
        return RegionChoice(RegionConfig(n_regions=n_regions, **cut), f"{n_regions} regions by {names}, {within}")
    if not all(name in found.columns for name in needed):
        return RegionChoice(RegionConfig(**cut), "cannot be told apart", _no_regions(found))
    said = ""
    if position is None:
        position, said = _observed_object(found)
        if position is None:
            return RegionChoice(
                RegionConfig(**cut),
                "around a source that is not known yet",
                f"{found.name}: the position of the source is needed to find regions from sky positions{said}: give "
                'source, such as Crab or "83.6333 22.0133" (--source on the command line)',
            )
        cut |= {"source_ra": position.ra, "source_dec": position.dec}
    if separate:
        return RegionChoice(RegionConfig(**cut), f"by their files, around {position}{said}, {within}")
    if preset.method == "same_declination":
        cut |= {"method": preset.method, "n_regions": preset.n_regions}
        regions = RegionConfig(**cut)
        return RegionChoice(
            regions, f"{preset.n_regions} regions of same declination around {position}{said}, {within}"
        )
    offsets = _offsets_of(found, position)
    if len(offsets) and offsets.min() > _MAX_OFFSET:
        return RegionChoice(
            RegionConfig(**cut),
            f"around {position}",
            f"{found.name}: the source {position} is {offsets.min():.0f} deg away from the pointing; give the one that "
            "was observed",
        )
    # where the source is nearer to the pointing than elsewhere, there are fewer regions
    n_regions = _count_reflected(offsets, preset)
    if n_regions < 2:
        return RegionChoice(
            RegionConfig(**cut),
            f"around {position}",
            f"{found.name}: the source {position} is so near to the pointing that regions around it overlap ({within} "
            "deg^2); give Off events in files of their own (--off), or a configuration with a smaller cut",
        )
    if preset.method == "ring":
        regions = RegionConfig(method="ring", n_regions=preset.n_regions, **cut)
        return RegionChoice(regions, f"ring at the offset of {position}{said}, {within}")
    return RegionChoice(
        RegionConfig(n_regions=n_regions, **cut), f"{n_regions} regions around {position}{said}, {within}"
    )


def _count_angles(columns: tuple[str, ...]) -> int:
    """Return the number of regions to which a table has angles; 0 if it has none to the source."""
    number = 0
    while theta_columns(number + 1)[-1] in columns:
        number += 1
    return number


def _no_regions(found: Inspection) -> str:
    """Say why On and Off cannot be told apart."""
    missing = [name for name in SKY_COLUMNS if name not in found.columns]
    partly = f" ({', '.join(missing)} missing)" if len(missing) < len(SKY_COLUMNS) else ""
    needed = (
        f"theta_deg and theta_deg_off_1 to theta_deg_off_5, or {', '.join(SKY_COLUMNS)}{partly}; or give Off events in "
        "files of their own (--off)"
    )
    truth = truth_columns(found.columns)
    if truth or found.is_simulated:
        known = f" ({truth[0]} is the truth)" if truth else ""
        return (
            f"{found.name}: holds simulated events{known} and no way to tell On from Off, so that "
            "there can be no detection; simulated gammas and protons may help a model as --simulated GAMMAS PROTONS. "
            f"Events to be searched need the columns {needed}"
        )
    return f"{found.name}: no way to tell On from Off: the events need the columns {needed}"


def _observed_object(found: Inspection) -> tuple[SourcePosition | None, str]:
    """Return what the files name as the observed object, and where that is said; or why there is no such object."""
    sample = found.sample
    if "object" not in sample:
        return None, ""
    names = sorted({str(name).strip() for name in sample["object"].dropna().unique()})
    known = {source_of_object(name) for name in names}
    if len(known) > 1:
        return None, f" (the files name several objects: {', '.join(names[:_MAX_NAMED])})"
    position = next(iter(known), None)
    given = _position_of_object(sample, names)
    if given is not None and (position is None or _distance(position, given) > _MAX_OBJECT_DISTANCE):
        return given, ", named in the files"
    if position is None:
        return None, f" (the files name {', '.join(names)}, which is not a known source)" if any(names) else ""
    return position, ", named in the files"


def _position_of_object(sample: pd.DataFrame, names: list[str]) -> SourcePosition | None:
    """Return the position of the observed object, if all files give the same one."""
    columns = ("object_ra", "object_dec")
    if not all(name in sample for name in columns):
        return None
    ra, dec = (sample[name].to_numpy(dtype=np.float64) for name in columns)
    if (
        not len(ra)
        or not np.isfinite(ra).all()
        or not np.isfinite(dec).all()
        or np.ptp(ra) > 0.01
        or np.ptp(dec) > 0.01
    ):
        return None
    return SourcePosition(names[0] if names else "", float(ra[0]), float(dec[0]))


def _distance(one: SourcePosition, other: SourcePosition) -> float:
    """Return the distance of two positions in deg."""
    offset, _ = offset_of_source([one.ra], [one.dec], source_ra=other.ra, source_dec=other.dec)
    return float(offset[0])


def _offsets_of(found: Inspection, source: SourcePosition) -> FloatArray:
    """Return the distances of the source from the pointings in deg; none where these are not known."""
    pointing = found.sample[list(SKY_COLUMNS[2:])].drop_duplicates().dropna().to_numpy(dtype=np.float64)
    return offset_of_source(pointing[:, 0], pointing[:, 1], source_ra=source.ra, source_dec=source.dec)[0]


def _count_reflected(offsets: FloatArray, preset: Preset) -> int:
    """Return how many regions fit around a pointing without an overlap, at most those of the preset."""
    if not len(offsets):
        return preset.n_regions
    ratio = math.sqrt(preset.theta_squared_cut) / max(float(offsets.max()), 1e-9)
    return 0 if ratio >= 1 else min(preset.n_regions, int(math.pi / math.asin(ratio)))
