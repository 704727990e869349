"""Settings of the On region and the Off regions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from excess._core.errors import ArgumentError
from excess.events.known_sources import find_source

__all__ = ["AUTO", "Exclusion", "Pair", "RegionConfig", "Settings"]

AUTO = "auto"
"""As many regions as fit; or the method that the columns of a file allow."""


MOST_REGIONS = 360
"""Regions on a circle around the pointing: no more than one for each degree of it."""
MOST_EXCLUSIONS = 1000
_LARGEST_RADIUS = 90
_EXAMPLES = 'such as "84.411 21.143 0.3" or "Crab 0.3"'


class Settings(BaseModel):
    """Base of settings: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Exclusion(Settings):
    """A part of the sky where there may be gamma rays, or too much light: events in it are in no region.

    Examples
    --------
    >>> from excess.events import Exclusion
    >>> print(Exclusion(name="zeta Tau", ra=84.41, dec=21.14, radius=0.3))
    zeta Tau (ra 84.41, dec 21.14, radius 0.3 deg)
    """

    name: str = Field(default="", description="What is there, for messages.")
    ra: float = Field(ge=0, le=360, description="Right ascension of its centre, in degrees.")
    dec: float = Field(ge=-90, le=90, description="Declination of its centre, in degrees.")
    radius: float = Field(gt=0, lt=_LARGEST_RADIUS, description="Its radius, in degrees.")

    @classmethod
    def parse(cls, text: str) -> Exclusion:
        """Return an exclusion from a text: a known source or a position, and the radius in deg.

        Examples
        --------
        >>> from excess.events import Exclusion
        >>> print(Exclusion.parse("84.411 21.143 0.3"))
        ra 84.411, dec 21.143, radius 0.3 deg
        >>> print(Exclusion.parse("Crab 0.3"))
        Crab (ra 83.6333, dec 22.0133, radius 0.3 deg)
        """
        where, _, last = " ".join(text.replace(",", " ").split()).rpartition(" ")
        if _is_place(text) or not where:
            raise ArgumentError("exclusion", f"{text!r} has no radius; give one in deg behind the place, {_EXAMPLES}")
        try:
            radius = float(last)
        except ValueError as error:
            raise ArgumentError("exclusion", f"{text!r} must end with a radius in deg, {_EXAMPLES}") from error
        if not 0 < radius < _LARGEST_RADIUS:
            raise ArgumentError(
                "exclusion", f"{text!r} has the radius {last}, which must be above 0 and below {_LARGEST_RADIUS} deg"
            )
        try:
            name, ra, dec = find_source(where)
        except ArgumentError as error:
            raise ArgumentError("exclusion", f"{text!r}: {error.problem}") from error
        return cls(name=name, ra=ra, dec=dec, radius=radius)

    def __str__(self) -> str:
        """Return name, place and radius."""
        place = f"ra {self.ra:g}, dec {self.dec:g}, radius {self.radius:g} deg"
        return f"{self.name} ({place})" if self.name else place


def _is_place(text: str) -> bool:
    """Say whether a text is a source or a position alone."""
    try:
        find_source(text)
    except ArgumentError:
        return False
    return True


class Pair(Settings):
    """On runs, and the Off runs that they are compared with, by the column ``obs_id`` or ``run_id``, or by file.

    Examples
    --------
    >>> from excess.events.region_config import Pair
    >>> Pair(on=[101], off=[201, 202]).off
    (201, 202)
    """

    on: tuple[int | str, ...] = Field(min_length=1, description="On runs.")
    off: tuple[int | str, ...] = Field(min_length=1, description="Off runs.")


def _parse_exclusion(given: Any) -> Any:
    """Return an exclusion from a text; anything else as it is."""
    try:
        return Exclusion.parse(given) if isinstance(given, str) else given
    except ArgumentError as error:  # its argument is the key, which is named with the place in the list
        raise ValueError(error.problem) from error


def _check_number(given: Any) -> Any:
    """Return a number of regions, or "auto"."""
    if given == AUTO:
        return given
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError(f"input should be a valid integer, or auto; got {given!r:.60}")  # noqa: TRY004, for pydantic
    if given < 2:
        raise ValueError("input should be greater than or equal to 2: the On region, and at least one Off region")
    if given > MOST_REGIONS:
        raise ValueError(
            f"input should be less than or equal to {MOST_REGIONS}: one region for each degree of a circle"
        )
    return given


class RegionConfig(Settings):
    """Settings of the On region and the Off regions; ``docs/regions.md`` says what each method does.

    The source may be given by ``source`` in the place of ``source_ra`` and ``source_dec``; see `find_source`.

    Examples
    --------
    >>> from excess.events import RegionConfig
    >>> RegionConfig(n_regions=4).theta_squared_cut
    0.025
    >>> RegionConfig(method="reflected", n_regions="auto", source_ra=83.63, source_dec=22.01).method
    'reflected'
    >>> RegionConfig(source="Mrk 501").source_dec
    39.7602
    """

    theta_squared_cut: float = Field(
        default=0.025, gt=0, strict=True, description="Largest squared distance to the centre of a region, in deg^2."
    )
    method: Literal["auto", "angles", "reflected", "ring", "same_declination"] = Field(
        default="auto",
        description="Where Off is: angles takes the columns of angles in the files; reflected, ring and "
        "same_declination compute it from sky positions; auto takes the columns where there are some, else reflected.",
    )
    n_regions: Annotated[int | Literal["auto"], BeforeValidator(_check_number)] = Field(
        default=6, description="The On region and the Off regions, together; auto for as many as fit."
    )
    overlap: Literal["on_first", "drop", "error"] = Field(
        default="on_first",
        description="What happens to an event inside On and Off: it is On, it is dropped, or it is an error.",
    )
    source_ra: float | None = Field(
        default=None, ge=0, le=360, strict=True, description="Right ascension of the source, in degrees."
    )
    source_dec: float | None = Field(
        default=None, ge=-90, le=90, strict=True, description="Declination of the source, in degrees."
    )
    min_distance: float | None = Field(
        default=None,
        gt=0,
        lt=180,
        description="Smallest distance between the source and the centre of an Off region, in degrees. By default, "
        "regions do not overlap, and with n_regions: auto half a radius is free between On and the nearest Off region.",
    )
    exclusion: tuple[Annotated[Exclusion, BeforeValidator(_parse_exclusion)], ...] = Field(
        default=(),
        max_length=MOST_EXCLUSIONS,
        description="Parts of the sky without Off regions: other sources, bright stars.",
    )

    match: Literal["none", "zenith", "time"] = Field(
        default="none",
        description="How runs of Off files are matched with On runs: all with all, or those of the nearest zenith "
        "distance, or of the nearest time.",
    )
    match_within: float | None = Field(
        default=None, gt=0, description="Largest difference of matched runs, in degrees of zenith distance or in hours."
    )
    pairs: tuple[Pair, ...] = Field(default=(), description="On runs and the Off runs that belong to them.")

    @model_validator(mode="before")
    @classmethod
    def _position_of_source(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("source"), str):
            return given
        if any(given.get(key) is not None for key in ("source_ra", "source_dec")):
            raise ValueError("source is given, and source_ra or source_dec as well; give one of both")
        position = find_source(given["source"])
        others = {key: value for key, value in given.items() if key != "source"}
        return {**others, "source_ra": position.ra, "source_dec": position.dec}

    @model_validator(mode="after")
    def _one_way_to_match(self) -> Self:
        if self.pairs and self.match != "none":
            raise ValueError("pairs and match exclude each other; give one of them")
        if self.match_within is not None and self.match == "none":
            raise ValueError("match_within goes with match: zenith or time")
        return self

    @model_validator(mode="after")
    def _both_coordinates(self) -> Self:
        if (self.source_ra is None) != (self.source_dec is None):
            raise ValueError("source_ra and source_dec belong together; give both or none")
        return self

    @model_validator(mode="after")
    def _exclusion_needs_positions(self) -> Self:
        if self.method == "angles" and (self.exclusion or self.min_distance is not None):
            key = "exclusion" if self.exclusion else "min_distance"
            raise ValueError(
                f"{key} does not go with method: angles, whose regions are in the files; choose reflected, ring or "
                "same_declination, for files with sky positions"
            )
        return self

    def with_settings(self, given: Mapping[str, Any]) -> RegionConfig:
        """Return regions in which given settings take the place of these.

        Examples
        --------
        >>> from excess.events import RegionConfig
        >>> RegionConfig(n_regions=4).with_settings({"method": "ring", "exclusion": ["Crab 0.3"]}).n_regions
        4
        """
        own = self.model_dump()
        if "source" in given:
            del own["source_ra"], own["source_dec"]
        return RegionConfig.model_validate({**own, **given})

    @property
    def radius(self) -> float:
        """Radius of a region in deg.

        Examples
        --------
        >>> from excess.events import RegionConfig
        >>> RegionConfig(theta_squared_cut=0.04).radius
        0.2
        """
        return math.sqrt(self.theta_squared_cut)

    @property
    def n_wanted(self) -> int | None:
        """Number of regions, On included; None for as many as fit.

        Examples
        --------
        >>> from excess.events import RegionConfig
        >>> RegionConfig().n_wanted, RegionConfig(n_regions="auto").n_wanted
        (6, None)
        """
        return None if isinstance(self.n_regions, str) else self.n_regions
