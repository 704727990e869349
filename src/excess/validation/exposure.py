"""Exposure: how long each group and each night was observed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from excess._core.checks import FloatArray

__all__ = ["LONGEST_PAUSE", "Exposure"]

LONGEST_PAUSE = 900.0
"""Longest time in seconds between consecutive events that counts as observation time."""


@dataclass(frozen=True, eq=False)
class Exposure:
    """How long each group and each night was observed, part by part.

    Attributes
    ----------
    source : {"livetime", "ontime", "events"}
        Where the times come from: columns of the files, or the first and the last event of each run.
    group, night : tuple of str of length n_parts
        Group and night of each part; empty texts where there are none.
    hours : ndarray of shape (n_parts,)
        Time of each part in hours.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.validation import Exposure
    >>> exposure = Exposure("events", ("run_1", "run_2"), ("20131101", "20131101"), np.array([0.25, 0.5]))
    >>> exposure.by_night
    {'20131101': 0.75}
    """

    source: str
    group: tuple[str, ...]
    night: tuple[str, ...]
    hours: FloatArray

    @property
    def by_group(self) -> dict[str, float]:
        """Hours of each group; empty where there are no groups."""
        return self._sum(self.group)

    @property
    def by_night(self) -> dict[str, float]:
        """Hours of each night; empty where nights are not known."""
        return self._sum(self.night)

    @property
    def total(self) -> float:
        """Hours of all parts."""
        return float(self.hours.sum())

    def _sum(self, labels: tuple[str, ...]) -> dict[str, float]:
        found: dict[str, float] = {}
        for label, hours in zip(labels, self.hours.tolist(), strict=True):
            if label:
                found[label] = found.get(label, 0.0) + hours
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes, as JSON has it."""
        return {
            "source": self.source,
            "group": list(self.group),
            "night": list(self.night),
            "hours": self.hours.tolist(),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Exposure:
        """Return the exposure of which ``to_dict`` was written."""
        group, night = (tuple(map(str, given[name])) for name in ("group", "night"))
        hours = np.array(given["hours"], dtype=np.float64)
        if not len(group) == len(night) == len(hours):
            raise ValueError("the exposure has parts of different numbers")
        return cls(str(given["source"]), group, night, hours)
