"""Results of cross-validated searches for a source: what was found, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from excess._checks import BoolArray, FloatArray
from excess.curve import ThresholdCurve, significance_curve
from excess.significance import OnOffCounts

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Detection", "Fold", "NullTest"]


class Fold(NamedTuple):
    """One model of a cross-validation: what it was tuned on, and how it did on events that it had not seen.

    Attributes
    ----------
    n_train : int
        Events that the model was trained and tuned on.
    n_held_out : int
        Events that it judged.
    threshold : float
        An event is selected when its score exceeds it; NaN for a classifier without a tuned threshold.
    tuned : OnOffCounts or None
        Selected events among those that the threshold was tuned on. Not a result to quote.
    held_out : OnOffCounts
        Selected hold-out events.
    """

    n_train: int
    n_held_out: int
    threshold: float
    tuned: OnOffCounts | None
    held_out: OnOffCounts


@dataclass(frozen=True, eq=False)
class Detection:
    """Hold-out selection of events, and the significance of its excess.

    Where a cross-validation was repeated, all but ``significances`` is of the repetition with the median significance,
    the lower one of an even number.

    Attributes
    ----------
    on : ndarray of bool of shape (n_events,)
        True for On events.
    score : ndarray of shape (n_events,)
        Scores by models that had not seen the event; NaN for events that were only trained on.
    selected : ndarray of bool of shape (n_events,)
        Selected events; False for events that were only trained on.
    fold : ndarray of int64 of shape (n_events,)
        The model that judged the event; -1 for events that were only trained on.
    groups : ndarray of shape (n_events,) or None
        The groups that were given.
    folds : tuple of Fold
        What each model was tuned on and how it did on hold-out events.
    alpha : float
        Exposure ratio On/Off.
    strategy : {"pooled", "forward", "applied"}
        How training and hold-out events were chosen; ``"applied"`` is a model that had been fitted on other events.
    significances : ndarray of shape (n_repeats,)
        Signed significance of each repetition.
    permuted_contrasts : ndarray of shape (n_permutations,)
        The ``contrast`` after permutations of On and Off.
    required : float
        Significance from which learning counts as feasible.

    See Also
    --------
    cross_val_detect : Makes such an object.
    """

    on: BoolArray
    score: FloatArray
    selected: BoolArray
    fold: NDArray[np.int64]
    groups: NDArray[Any] | None
    folds: tuple[Fold, ...]
    alpha: float
    strategy: str
    significances: FloatArray
    permuted_contrasts: FloatArray
    required: float = 5.0

    @cached_property
    def counts(self) -> OnOffCounts:
        """Selected events among all that were judged."""
        return self._count(self.selected)

    @cached_property
    def uncut(self) -> OnOffCounts:
        """All events that were judged, selected or not: what there is without a cut."""
        return self._count(self.judged)

    @property
    def judged(self) -> BoolArray:
        """True for events that have a hold-out score."""
        return self.fold >= 0

    @cached_property
    def counts_by_group(self) -> dict[Any, OnOffCounts]:
        """Selected events of each group that was judged; empty where there are no groups."""
        if self.groups is None:
            return {}
        return {
            group if self.groups.dtype.kind in "mM" else group.item() if hasattr(group, "item") else group: self._count(
                self.selected & (self.groups == group)
            )
            for group in np.unique(self.groups[self.judged])
        }

    @property
    def thresholds(self) -> FloatArray:
        """Threshold of each fold; NaN for classifiers without a tuned threshold."""
        return np.array([fold.threshold for fold in self.folds])

    @property
    def significance(self) -> float:
        """Signed Li & Ma significance of the hold-out events; the median where it was repeated."""
        return self.counts.significance

    @property
    def spread(self) -> float:
        """Standard deviation of the significance over repetitions; NaN for a single one."""
        return float(self.significances.std(ddof=1)) if len(self.significances) > 1 else float("nan")

    @property
    def p_value(self) -> float:
        """Upper tail of the normal law at ``significance``. Trust it for ``strategy="forward"``; see the docs."""
        return float(ndtr(-self.significance))

    @property
    def contrast(self) -> float:
        """Significance by which the On fraction of selected events exceeds that of all judged events.

        It takes their ratio of On to Off for ``alpha``, so that an excess which is the same for all events is none.
        """
        return contrast(self.counts, self.uncut)

    @property
    def permutation_p_value(self) -> float:
        """Share of permutations, the identity among them, with no smaller ``contrast``; NaN without permutations.

        Permutations of On and Off leave their numbers as they are, so that this asks whether the features tell On from
        Off, and not whether there are more On events than expected.
        """
        n = len(self.permuted_contrasts)
        if n == 0:
            return float("nan")
        return (1 + int(np.count_nonzero(self.permuted_contrasts >= self.contrast))) / (1 + n)

    @cached_property
    def curve(self) -> ThresholdCurve:
        """Judged events at every cut of their score, the same for all folds: for exploration, not for a result."""
        return significance_curve(self.on[self.judged], self.score[self.judged], self.alpha)

    @property
    def feasible(self) -> bool:
        """Whether the significance reaches what is required: the labels could be learned from."""
        return self.significance >= self.required

    @property
    def verdict(self) -> str:
        """One sentence that says what the significance means."""
        found = f"{self.significance:.1f} sigma on hold-out events, {self.required:g} required"
        if self.feasible:
            if self.strategy == "applied":
                return f"{found}: On has more signal than Off."
            if self.significance > self.uncut.significance:
                return f"{found}: On has more signal than Off, and it could be learned from these labels."
            return (
                f"{found}: On has more signal than Off, but no cut at all is as significant "
                f"({self.uncut.significance:.1f} sigma): the features did not help to find it."
            )
        what = "nothing was selected" if self.counts.n_on + self.counts.n_off == 0 else "no detection"
        return (
            f"{found}: {what}. Learning from these labels is not shown to be feasible: On may have no more signal than "
            "Off, or too few events."
        )

    def summary(self) -> dict[str, Any]:
        """Return the numbers of the result by name, to be put into a table or a file."""
        return {
            "strategy": self.strategy,
            "n_folds": len(self.folds),
            "n_on": self.counts.n_on,
            "n_off": self.counts.n_off,
            "alpha": self.alpha,
            "excess": self.counts.excess,
            "excess_error": self.counts.excess_error,
            "significance": self.significance,
            "spread": self.spread,
            "n_repeats": len(self.significances),
            "p_value": self.p_value,
            "permutation_p_value": self.permutation_p_value,
            "n_permutations": len(self.permuted_contrasts),
            "uncut_significance": self.uncut.significance,
            "n_judged": int(np.count_nonzero(self.judged)),
            "n_events": len(self.on),
            "feasible": self.feasible,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row per event: ``on``, ``score``, ``selected``, ``fold``, and ``group`` where there are groups."""
        import pandas as pd

        columns = {"on": self.on, "score": self.score, "selected": self.selected, "fold": self.fold}
        return pd.DataFrame(columns if self.groups is None else {**columns, "group": self.groups})

    def folds_frame(self) -> pd.DataFrame:
        """Return one row per fold, with tuned-on and hold-out values side by side.

        ``expected`` is the tuned-on significance as the hold-out events would have it if they were as significant,
        event for event. That ``significance`` stays below it is what tuning on the same events would have hidden.
        """
        import pandas as pd

        rows = []
        for fold in self.folds:
            tuned = fold.tuned
            rows.append(
                {
                    "n_train": fold.n_train,
                    "n_held_out": fold.n_held_out,
                    "threshold": fold.threshold,
                    "tuned_n_on": np.nan if tuned is None else tuned.n_on,
                    "tuned_n_off": np.nan if tuned is None else tuned.n_off,
                    "tuned_significance": np.nan if tuned is None else tuned.significance,
                    "expected": np.nan if tuned is None else _expected(fold, tuned),
                    "n_on": fold.held_out.n_on,
                    "n_off": fold.held_out.n_off,
                    "significance": fold.held_out.significance,
                }
            )
        return pd.DataFrame(rows).rename_axis("fold")

    def groups_frame(self) -> pd.DataFrame:
        """Return one row per group: selected events, excess with its error, significance."""
        import pandas as pd

        rows = {
            group: {
                "n_on": counts.n_on,
                "n_off": counts.n_off,
                "excess": counts.excess,
                "excess_error": counts.excess_error,
                "significance": counts.significance,
            }
            for group, counts in self.counts_by_group.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("group")

    def __str__(self) -> str:
        """Say the result in a few lines."""
        n_folds = "" if self.strategy == "applied" else f", {len(self.folds)} folds"
        lines = [f"{self.strategy}{n_folds}: {self.counts}"]
        if len(self.significances) > 1:
            lines.append(f"{len(self.significances)} repetitions scatter by {self.spread:.2f} sigma")
        lines.append(f"without a cut: {self.uncut.significance:.1f} sigma")
        n_unjudged = len(self.on) - int(np.count_nonzero(self.judged))
        if n_unjudged:
            lines.append(f"{n_unjudged} of {len(self.on)} events were only trained on")
        if len(self.permuted_contrasts):
            lines.append(
                f"permutation p-value {self.permutation_p_value:.3g} ({len(self.permuted_contrasts)} permutations)"
            )
        lines.append(self.verdict)
        return "\n".join(lines)

    def _count(self, mask: BoolArray) -> OnOffCounts:
        n_on = int(np.count_nonzero(self.on & mask))
        return OnOffCounts(n_on, int(np.count_nonzero(mask)) - n_on, self.alpha)


def contrast(selected: OnOffCounts, everything: OnOffCounts) -> float:
    """Significance by which the On fraction of selected events exceeds that of all."""
    if everything.n_on == 0 or everything.n_off == 0:
        return 0.0
    return OnOffCounts(selected.n_on, selected.n_off, everything.n_on / everything.n_off).significance


def _expected(fold: Fold, tuned: OnOffCounts) -> float:
    """Scale a tuned-on significance to the number of hold-out events: it grows with the root of the exposure."""
    if fold.n_train == 0:  # a model that was fitted elsewhere does not say on how many events
        return float("nan")
    return tuned.significance * float(np.sqrt(fold.n_held_out / fold.n_train))


@dataclass(frozen=True, eq=False)
class NullTest:
    """Searches for a source where there is none: in every Off region in turn.

    Attributes
    ----------
    detections : dict of int to Detection
        What was found in each Off region.

    See Also
    --------
    null_test : Makes such an object.
    """

    detections: dict[int, Detection]

    @property
    def alpha(self) -> float:
        """Exposure ratio of one Off region to the others."""
        return next(iter(self.detections.values())).alpha

    @property
    def significances(self) -> FloatArray:
        """Signed significance in each Off region, the lowest number first."""
        return np.array([detection.significance for detection in self.detections.values()])

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
        """Probability of one of the regions, or more, being as significant as the most significant one, at most."""
        return float(min(1.0, len(self.detections) * ndtr(-self.significances.max())))

    @property
    def suspicious(self) -> bool:
        """Whether a region shows a detection that chance hardly explains (a p-value below 0.001)."""
        return self.p_value < 1e-3

    @property
    def verdict(self) -> str:
        """One sentence that says what the values mean."""
        worst = max(self.detections, key=lambda region: self.detections[region].significance)
        largest = self.detections[worst].significance
        if self.suspicious:
            return (
                f"Off region {worst} shows {largest:.1f} sigma, where no source is: a feature tells where events come "
                "from, or the regions are not equally exposed. Do not trust the detection."
            )
        return f"At most {largest:.1f} sigma, in region {worst}: as expected where there is no source."

    def to_frame(self) -> pd.DataFrame:
        """Return one row per region with the numbers of its `Detection`."""
        import pandas as pd

        rows = {region: detection.summary() for region, detection in self.detections.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("region")

    def __str__(self) -> str:
        """Say the values and what they mean."""
        values = ", ".join(f"{value:.1f}" for value in self.significances)
        return (
            f"{len(self.detections)} null regions: {values} sigma (mean {self.mean:.2f}, spread {self.spread:.2f})\n"
            f"{self.verdict}"
        )
