"""Settings of regions that are given beside a configuration, or beside what files suggest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from excess._core.errors import ArgumentError, MismatchError
from excess.events import RegionConfig
from excess.events.config import describe_error
from excess.observation.region_methods import SKY_COLUMNS

__all__ = ["change_regions", "check_regions", "unusable_exclusion"]

_WITHOUT_MATCH: dict[str, Any] = {"match_within": None, "pairs": ()}


def check_regions(given: Mapping[str, Any], *, separate: bool) -> None:
    """Refuse settings that have no use.

    Parameters
    ----------
    given : mapping of str to object
        Settings by the keys of `RegionConfig`.
    separate : bool
        Whether Off events are in files of their own.

    Raises
    ------
    ArgumentError
        If the source is among them, runs are to be matched without Off files, or regions are to be placed with them.
    """
    for key in ("source", "source_ra", "source_dec"):
        if key in given:
            raise ArgumentError("regions", f"has {key}; give the source as `source`")
    if separate and given.get("method", "auto") != "auto":
        raise ArgumentError("method", "does not go with `off`: Off events are those of its files")
    if not separate:
        for key in ("match", "match_within", "pairs"):
            if given.get(key) not in (None, (), [], "none"):
                raise ArgumentError(key, "goes with `off`: it says which Off runs are compared with which On runs")


def unusable_exclusion() -> MismatchError:
    """Return the error for an exclusion beside Off files in which the place of Off on the sky is not known."""
    return MismatchError(
        "exclusion",
        "cannot be applied to Off events in files of their own here: the place of Off on the sky is known where the "
        "files and those of `off` hold sky positions of whole fields of view, in the columns "
        f"{', '.join(SKY_COLUMNS)}, and `source` is given; or leave the exclusion out",
    )


def change_regions(regions: RegionConfig, given: Mapping[str, Any]) -> RegionConfig:
    """Return regions in which given settings take the place of others.

    With ``match: none``, what says how runs are matched otherwise is left out: ``match_within`` and ``pairs``.

    Parameters
    ----------
    regions : RegionConfig
        Regions of a configuration.
    given : mapping of str to object
        Settings by the keys of `RegionConfig`.

    Returns
    -------
    RegionConfig
        With what is given.

    Raises
    ------
    ArgumentError
        If a key is not known, or a value is wrong, or does not go with the others.

    Examples
    --------
    >>> from excess.events import RegionConfig
    >>> from excess.observation.given_regions import change_regions
    >>> change_regions(RegionConfig(), {"method": "ring"}).method
    'ring'
    >>> change_regions(RegionConfig(), {"methods": "ring"})
    Traceback (most recent call last):
        ...
    excess._core.errors.ArgumentError: regions cannot be changed: unknown key 'regions.methods'; did you mean 'method'?
    """
    if not given:
        return regions
    try:
        return regions.with_settings({**_WITHOUT_MATCH, **given} if given.get("match") == "none" else given)
    except ValidationError as error:
        problem = error.errors()[0]
        if not problem["loc"]:  # settings that do not go together
            message = describe_error(problem)
            key = next((word for word in re.findall(r"\w+", message) if word in given), "regions")
            own = message.removeprefix(f"{key} ")
            raise ArgumentError(key, own if own != message else f"is wrong: {message}") from error
        message = describe_error({**problem, "loc": ("regions", *problem["loc"])})
        raise ArgumentError("regions", f"cannot be changed: {message}") from error
