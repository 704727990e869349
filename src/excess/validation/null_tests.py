"""Searches for a source where there is none: what was found in the Off regions, and what it means."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from excess._core.checks import FloatArray
from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["NullTest"]


@dataclass(frozen=True, eq=False)
class NullTest:
    """Searches for a source where there is none: in every Off region in turn.

    Attributes
    ----------
    counts : dict of int to OnOffCounts
        Selected events of each Off region, as On, and of the others, as Off.
    detections : dict of int to Detection
        All there is about the search in each Off region; empty where only counts are known.

    See Also
    --------
    null_test : Makes such an object.
    """

    counts: dict[int, OnOffCounts]
    detections: dict[int, Detection] = field(default_factory=dict)

    @classmethod
    def of(cls, detections: dict[int, Detection]) -> NullTest:
        """Make a null test from what was found in each Off region."""
        return cls({region: found.counts for region, found in detections.items()}, detections)

    @property
    def alpha(self) -> float:
        """Exposure ratio of one Off region to the others."""
        return next(iter(self.counts.values())).alpha

    @property
    def significances(self) -> FloatArray:
        """Signed significance in each Off region, the lowest number first."""
        return np.array([counts.significance for counts in self.counts.values()])

    @property
    def mean(self) -> float:
        """Mean significance over the regions."""
        return float(self.significances.mean())

    @property
    def spread(self) -> float:
        """Standard deviation of the significance over the regions."""
        return float(self.significances.std(ddof=1))

    @property
    def p_value(self) -> float:
        """Probability of one of the regions, or more, being as far from zero as the farthest one, at most."""
        return float(min(1.0, len(self.counts) * 2 * ndtr(-np.abs(self.significances).max())))

    @property
    def suspicious(self) -> bool:
        """Whether a region shows an excess or a deficit that chance hardly explains (a p-value below 0.001)."""
        return self.p_value < 1e-3

    @property
    def verdict(self) -> str:
        """One sentence that says what the values mean."""
        values = self.significances
        if self.suspicious:
            worst = list(self.counts)[int(np.abs(values).argmax())]
            return (
                f"Off region {worst} shows {self.counts[worst].significance:.1f} sigma, where no source is: a feature "
                "tells where events come from, or the regions are not equally exposed. Do not trust the detection."
            )
        return f"Between {values.min():.1f} and {values.max():.1f} sigma: as expected where there is no source."

    @property
    def texts(self) -> list[str]:
        """The significance in each Off region in words; a dash where nothing was selected, which is no evidence."""
        return [f"{counts.significance:.1f}" if counts.n_on + counts.n_off else "-" for counts in self.counts.values()]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per region: selected events, excess with its error, significance."""
        import pandas as pd

        rows = {region: counts.summary() for region, counts in self.counts.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("region")

    def __str__(self) -> str:
        """Say the values and what they mean."""
        values = ", ".join(self.texts)
        return (
            f"{len(self.counts)} null regions: {values} sigma (mean {self.mean:.2f}, spread {self.spread:.2f})\n"
            f"{self.verdict}"
        )
