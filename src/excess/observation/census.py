"""The census: numbers of events that were read, inside the regions, and used; and whether they can be analysed."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from excess._core.errors import EventFileError
from excess.events import AnalysisConfig

__all__ = ["Census"]

_MAX_OVERLAP = 0.01
"""Largest share of events in several regions for the overlap policy "on_first"."""
_MAX_OVERLAP_ERROR = 0.3
"""Largest excess that such events may fake, in units of the statistical error of the excess."""

logger = logging.getLogger("excess.observation")


@dataclass
class Census:
    """Numbers of events that were read, inside the regions, and used.

    Attributes
    ----------
    n_read : int
        Events that were read.
    n_inside : int
        Events in any region.
    n_on, n_off : int
        Events in the On region and in Off regions that pass the quality cuts.
    n_overlapping : int
        Events in several regions.
    n_without_off : int
        Events whose pointing leaves no room for an Off region; they are in no region.
    """

    n_read: int = 0
    n_inside: int = 0
    n_on: int = 0
    n_off: int = 0
    n_overlapping: int = 0
    n_without_off: int = 0

    @property
    def n_outside(self) -> int:
        """Events in no region."""
        return self.n_read - self.n_inside

    @property
    def n_cut(self) -> int:
        """Events in a region that fail the quality cuts or miss a feature."""
        return self.n_inside - self.n_on - self.n_off

    def add(self, other: Census) -> None:
        """Add the events of other files."""
        for name in ("n_read", "n_inside", "n_on", "n_off", "n_overlapping", "n_without_off"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def without(self, region: NDArray[np.int64]) -> Census:
        """Return the census without some used events, given by their regions."""
        n_on = int(np.count_nonzero(region == 0))
        n_off = len(region) - n_on
        return replace(self, n_inside=self.n_inside - n_on - n_off, n_on=self.n_on - n_on, n_off=self.n_off - n_off)

    def check(self, source: str, config: AnalysisConfig, alpha: float) -> None:
        """Raise EventFileError unless there are On and Off events; ``source`` names the files, and may be empty."""
        where = f"{source}: " if source else ""
        n_used = self.n_on + self.n_off
        if self.n_read == 0:
            raise EventFileError(f"{where}there are no events")
        if self.n_without_off:
            self._say_without_off(where)
        if self.n_inside == 0:
            raise EventFileError(
                f"{where}none of {self.n_read:,} events lies in a region (theta^2 < "
                f"{config.regions.theta_squared_cut:g} deg^2); check the units of the angles, or the position of the "
                "source"
            )
        if n_used == 0:
            raise EventFileError(
                f"{where}the quality cuts leave none of {self.n_inside:,} events in the regions; check "
                f"{', '.join(config.quality_cuts)}, and that {_no_value_missing(config)}"
            )
        for name, number in (("On", self.n_on), ("Off", self.n_off)):
            if number == 0:
                raise EventFileError(
                    f"{where}no {name} events are left of {self.n_read:,} events read "
                    f"({self.n_outside:,} outside all regions, {self.n_cut:,} cut away)"
                )
        if config.regions.overlap == "on_first":
            self._check_overlap(where, alpha)

    def _say_without_off(self, where: str) -> None:
        """Refuse pointings that have no Off region; where others have some, say that these are left out."""
        why = (
            "pointings whose fields of view have no room for an Off region: the source is too near to the pointing, or "
            "exclusions cover all places"
        )
        if self.n_without_off == self.n_read:
            raise EventFileError(
                f"{where}all {self.n_read:,} events were taken with {why}; give Off observations in files of their own "
                "(--off), or make theta_squared_cut, min_distance or the exclusions smaller"
            )
        logger.warning(
            "%s%s of %s events are left out, which were taken with %s",
            where,
            f"{self.n_without_off:,}",
            f"{self.n_read:,}",
            why,
        )

    def _check_overlap(self, where: str, alpha: float) -> None:
        """Refuse overlapping regions where the events that Off loses to On would look like a source."""
        n_used = self.n_on + self.n_off
        lost = alpha * self.n_overlapping * n_used / self.n_inside
        error = float(np.sqrt(self.n_on + alpha**2 * self.n_off))
        fakes = lost > _MAX_OVERLAP_ERROR * error
        if not fakes and self.n_overlapping <= _MAX_OVERLAP * n_used:
            return
        why = (
            f"giving them to On would look like a source, by {lost / error:.1f} sigma"
            if fakes
            else f"that is more than {100 * _MAX_OVERLAP:g} % of those that are used"
        )
        raise EventFileError(
            f"{where}the regions overlap: {self.n_overlapping:,} of {self.n_inside:,} events lie in several, and "
            f"{why}; make theta_squared_cut smaller, or leave these events out by 'overlap: drop', both under "
            "'regions' of the configuration"
        )

    def __str__(self) -> str:
        """Return the numbers of events that were read and left out."""
        return f"{self.n_read:,} events read, {self.n_outside:,} outside all regions, {self.n_cut:,} cut away"


def _no_value_missing(config: AnalysisConfig) -> str:
    """Return what has to be there in an event."""
    if not config.references:
        return "features are not missing"
    return f"neither features nor the references {', '.join(config.references)} are missing"
