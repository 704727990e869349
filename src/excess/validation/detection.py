"""The result of a search for a source: what was found in events that models had not seen, and what it means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from excess._core.checks import BoolArray, FloatArray
from excess._core.ordering import number_groups
from excess.stats.counts import OnOffCounts
from excess.stats.curve import ThresholdCurve, compute_cell_curve
from excess.stats.likelihood import OnOffLikelihood
from excess.stats.p_values import permutation_p_value
from excess.validation.annotations import check_annotations
from excess.validation.detection_bins import DetectionBins, borrowing_notes
from excess.validation.detection_parts import Fold, Nearby, TrustRange, range_trust
from excess.validation.detection_tables import (
    tabulate_bins,
    tabulate_events,
    tabulate_folds,
    tabulate_groups,
    tabulate_observations,
)
from excess.validation.detection_text import detection_text
from excess.validation.exposure import Exposure
from excess.validation.feature_histograms import FeatureBinning, FeatureHistogram
from excess.validation.judged import alphas_of
from excess.validation.notebook_tables import detection_table
from excess.validation.outcome import Outcome, count_events, find_contrasts, find_likelihood
from excess.validation.sky_map import SkyMap
from excess.validation.verdict import Verdict, judge

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Detection", "Fold", "Nearby", "TrustRange"]


@dataclass(frozen=True, eq=False)
class Detection:
    """Hold-out events with what models that had not seen them say, and the significance of a source.

    There are two statistics: the likelihood of all events, each by its signal ratio, and the counts that are left by a
    cut. One of them was declared beforehand, and ``significance``, ``p_value`` and ``verdict`` follow it.

    Where a cross-validation was repeated, all but ``repeats`` is of the repetition with the median significance, the
    lower one of an even number.

    Attributes
    ----------
    on : ndarray of bool of shape (n_events,)
        True for On events.
    score : ndarray of shape (n_events,)
        Scores by models that had not seen the event; NaN for events that were only trained on.
    selected : ndarray of bool of shape (n_events,)
        Selected events; False for events that were only trained on.
    ratio : ndarray of shape (n_events,) or None
        Signal ratios, NaN for events that were only trained on; None if the model has none. Where exposure ratios
        differ, they are multiplied by the event's own in units of the mean: a longer On exposure has more signal.
    fold : ndarray of int64 of shape (n_events,)
        The model that held the event out; -1 for events that were only trained on.
    groups : ndarray of shape (n_events,) or None
        The groups that were given.
    folds : tuple of Fold
        What each model was tuned on and how it did on hold-out events.
    alpha : float
        Exposure ratio On/Off; the mean over the Off events where it differs.
    strategy : {"pooled", "forward", "applied"}
        How training and hold-out events were chosen; ``"applied"`` is a model that had been fitted on other events.
    statistic : {"likelihood", "cut"}
        The statistic that was declared beforehand.
    repeats : dict of str to ndarray of shape (n_repeats,)
        Signed significance of each repetition, by statistic.
    permutations : dict of str to ndarray of shape (n_permutations,)
        The ``contrasts`` after permutations of On and Off, by statistic.
    event_alpha : ndarray of shape (n_events,) or None
        Exposure ratio of each event, where it differs.
    required_significance : float
        Significance from which learning counts as feasible.
    theta : ndarray of shape (n_events, n_regions) or None
        Angle between each event and the centre of each region in deg, On first.
    theta_squared_cut : float or None
        Events lie in a region when ``theta**2`` is below it, in deg^2.
    nearby : Nearby or None
        Events of no region, predicted like the others, but never trained on and never counted.
    time : ndarray of shape (n_events,) or None
        When the events were recorded, in seconds.
    importances : ndarray of shape (n_features,) or None
        Importance of each feature, the mean over the models of all folds; None where the models have none.
    feature_names : tuple of str or None
        Names of the features.
    observations : ndarray of shape (n_events,) or None
        The observation of each event, such as a source or a telescope, where there are several.
    features : tuple of FeatureHistogram or None
        On against scaled Off in each feature, before and after the selection.
    exposure : Exposure or None
        How long each group and each night was observed.
    nights : ndarray of shape (n_events,) or None
        The night of each event.
    sky : SkyMap or None
        Map of the sky around the source.
    bins : DetectionBins or None
        What was found in bins of a column, such as energy.
    remarks : tuple of str
        What was done to the classifier before it was trained: whether a tuned threshold was added.

    See Also
    --------
    cross_val_detect : Makes such an object.
    """

    on: BoolArray
    score: FloatArray
    selected: BoolArray
    ratio: FloatArray | None
    fold: NDArray[np.int64]
    groups: NDArray[Any] | None
    folds: tuple[Fold, ...]
    alpha: float
    strategy: str
    statistic: str
    repeats: dict[str, FloatArray]
    permutations: dict[str, FloatArray]
    event_alpha: FloatArray | None = None
    required_significance: float = 5.0
    theta: FloatArray | None = None
    theta_squared_cut: float | None = None
    nearby: Nearby | None = None
    time: FloatArray | None = None
    importances: FloatArray | None = None
    feature_names: tuple[str, ...] | None = None
    observations: NDArray[Any] | None = None
    features: tuple[FeatureHistogram, ...] | None = None
    exposure: Exposure | None = None
    nights: NDArray[Any] | None = None
    sky: SkyMap | None = None
    bins: DetectionBins | None = None
    remarks: tuple[str, ...] = ()

    def annotated(
        self,
        *,
        theta: ArrayLike | None = None,
        theta_squared_cut: float | None = None,
        nearby_theta: ArrayLike | None = None,
        time: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        features: FeatureBinning | ArrayLike | None = None,
        exposure: Exposure | None = None,
        nights: ArrayLike | None = None,
        sky: SkyMap | None = None,
    ) -> Detection:
        """Return the same detection with what plots want to know beside it; what is not given stays as it is.

        Parameters
        ----------
        theta : array-like of shape (n_events, n_regions), default=None
            Angle between each event and the centre of each region in deg, On first.
        theta_squared_cut : float, default=None
            Events lie in a region when ``theta**2`` is below it, in deg^2.
        nearby_theta : array-like of shape (n_nearby, n_regions), default=None
            The same angles of the nearby events.
        time : array-like of shape (n_events,), default=None
            When the events were recorded, in seconds since any moment; NaN where that is not known.
        feature_names : sequence of str, default=None
            Names of the features.
        features : array-like of shape (n_events, n_features) or FeatureBinning, default=None
            Values of the features, of which histograms are kept.
        exposure : Exposure, default=None
            How long each group and each night was observed.
        nights : array-like of shape (n_events,), default=None
            The night of each event.
        sky : SkyMap, default=None
            Map of the sky around the source; see ``excess.validation.sky_map.map_sky``.

        Returns
        -------
        Detection
            A copy that shares its arrays.
        """
        found = check_annotations(
            self,
            theta=theta,
            theta_squared_cut=theta_squared_cut,
            nearby_theta=nearby_theta,
            time=time,
            feature_names=feature_names,
            features=features,
            nights=nights,
        )
        found |= {name: one for name, one in (("exposure", exposure), ("sky", sky)) if one is not None}
        return replace(self, **found)

    def with_bins(self, column: str, edges: Sequence[float], number: NDArray[np.int64]) -> Detection:
        """Return the same detection with both statistics of each bin of a column.

        Parameters
        ----------
        column : str
            What the column is called.
        edges : sequence of float
            Edges between the bins, of which the first and the last are open.
        number : ndarray of int64 of shape (n_events,)
            The bin of each event, from 0.

        Returns
        -------
        Detection
            A copy that shares its arrays; see ``bins``.
        """
        n_bins = len(edges) + 1
        outcomes = tuple(self._outcome_of(number == own) for own in range(n_bins))
        borders = (float("-inf"), *map(float, edges), float("inf"))
        return replace(self, bins=DetectionBins(column, borders, outcomes, borrowing_notes(self.folds, n_bins)))

    @cached_property
    def counts(self) -> OnOffCounts:
        """Selected events among all hold-out events."""
        return self._count(self.selected)

    @cached_property
    def likelihood(self) -> OnOffLikelihood | None:
        """All hold-out events, each by how signal-like it is; None if the model has no signal ratio."""
        return self._likelihood(self.held_out)

    @cached_property
    def outcome(self) -> Outcome:
        """Both statistics of the hold-out events."""
        return Outcome(self.counts, self.likelihood, self.statistic)

    @cached_property
    def uncut(self) -> OnOffCounts:
        """All hold-out events, selected or not: what there is without a cut."""
        return self._count(self.held_out)

    @property
    def held_out(self) -> BoolArray:
        """True for hold-out events; False for events that were only trained on."""
        return self.fold >= 0

    @cached_property
    def counts_by_group(self) -> dict[Any, OnOffCounts]:
        """Selected events of each group that was held out; empty where there are no groups."""
        return {name: self._count(self.selected & own) for name, own in self._held_out_parts(self.groups)}

    @cached_property
    def counts_by_night(self) -> dict[Any, OnOffCounts]:
        """Selected hold-out events of each night; empty where nights are not known."""
        return {name: self._count(self.selected & own) for name, own in self._held_out_parts(self.nights)}

    @cached_property
    def likelihood_by_group(self) -> dict[Any, OnOffLikelihood]:
        """Likelihood of the events of each group that was held out; empty without groups, or without signal ratios.

        Their strengths are a light curve: divide them by ``likelihood.strength`` for units of the mean.
        """
        found = {name: self._likelihood(self.held_out & own) for name, own in self._held_out_parts(self.groups)}
        return {name: likelihood for name, likelihood in found.items() if likelihood is not None}

    @cached_property
    def outcomes_by_observation(self) -> dict[Any, Outcome]:
        """Both statistics of each observation; empty where no observations were given.

        The counts add up to ``counts``; the joint significances are those of ``outcome``.
        """
        return {name: self._outcome_of(own) for name, own in self._held_out_parts(self.observations)}

    @property
    def thresholds(self) -> FloatArray:
        """Threshold of each fold; NaN for classifiers without a tuned threshold."""
        return np.array([fold.threshold for fold in self.folds])

    @property
    def trust(self) -> dict[str, TrustRange]:
        """How far each reference was trusted over the folds, by its name; empty for a model without references.

        See `OnOffHybridClassifier` for what trust is, and for the two names that are not those of references.
        """
        return range_trust(self.folds)

    @property
    def significance(self) -> float:
        """Signed significance of the hold-out events by the declared statistic; the median where it was repeated."""
        return self.outcome.significance

    @property
    def significances(self) -> FloatArray:
        """Signed significance of each repetition by the declared statistic."""
        return self.repeats[self.statistic]

    @property
    def n_permutations(self) -> int:
        """Number of permutations of On and Off."""
        return len(self.permutations[self.statistic])

    @property
    def spread(self) -> float:
        """Standard deviation of the significance over repetitions; NaN for a single one."""
        return float(self.significances.std(ddof=1)) if len(self.significances) > 1 else float("nan")

    @property
    def p_value(self) -> float:
        """Upper tail of the normal law at ``significance``. Trust it for ``strategy="forward"``; see the docs."""
        return float(ndtr(-self.significance))

    @cached_property
    def contrasts(self) -> dict[str, float]:
        """Significance, by each statistic, with which the features tell On from Off.

        It takes the ratio of On to Off events for ``alpha``, so that an excess which is the same for all events is
        none.
        """
        return find_contrasts(self.on, self.selected, self.ratio, self.held_out, alphas_of(self))

    @property
    def permutation_p_values(self) -> dict[str, float]:
        """Share of permutations, the identity among them, with no smaller contrast, by statistic; NaN without any.

        Permutations of On and Off leave their numbers as they are, so that this asks whether the features tell On from
        Off, and not whether there are more On events than expected.
        """
        return {name: permutation_p_value(self.contrasts[name], one) for name, one in self.permutations.items()}

    @property
    def permutation_p_value(self) -> float:
        """The one of ``permutation_p_values`` by the declared statistic."""
        return self.permutation_p_values[self.statistic]

    @cached_property
    def curve(self) -> ThresholdCurve:
        """Hold-out events at every cut of their score, the same for all folds: for exploration, not for a result.

        Where exposure ratios differ, it takes their mean; reports and plots take each event's own, as ``counts`` does.
        """
        known = self.held_out & np.isfinite(self.score)
        on = self.on[known]  # new events may be of one class
        return compute_cell_curve(self.score[known], on, ~on, self.alpha)

    @cached_property
    def judgement(self) -> Verdict:
        """The verdict on this detection alone; `judge` also takes forward values and null tests."""
        return judge(self)

    @property
    def feasible(self) -> bool:
        """Whether the significance reaches what is required, and nothing speaks against it."""
        return self.judgement.feasible

    @property
    def verdict(self) -> str:
        """What the significance means, after warnings of what no source explains."""
        return str(self.judgement)

    def summary(self) -> dict[str, Any]:
        """Return the numbers of the result by name, to be put into a table or a file."""
        return {
            "strategy": self.strategy,
            "statistic": self.statistic,
            "n_folds": len(self.folds),
            "alpha": self.alpha,
            **self.outcome.summary(),
            "spread": self.spread,
            "n_repeats": len(self.significances),
            "p_value": self.p_value,
            "permutation_p_value": self.permutation_p_value,
            **{f"{name}_permutation_p_value": value for name, value in self.permutation_p_values.items()},
            "n_permutations": self.n_permutations,
            "uncut_significance": self.uncut.significance,
            "n_held_out": int(np.count_nonzero(self.held_out)),
            "n_events": len(self.on),
            "feasible": self.feasible,
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one row per event.

        Its columns: ``on``, ``score``, ``selected``, ``fold``; ``ratio``, ``group`` and ``observation`` where known.
        """
        known = {"on": self.on, "score": self.score, "selected": self.selected, "fold": self.fold}
        return tabulate_events(**known, ratio=self.ratio, group=self.groups, observation=self.observations)

    def folds_frame(self) -> pd.DataFrame:
        """Return one row per fold, with tuned-on and hold-out values side by side.

        ``expected`` is the tuned-on significance as the hold-out events would have it if they were as significant,
        event for event. That ``significance`` stays below it is what tuning on the same events would have hidden.
        """
        return tabulate_folds(self.folds)

    def groups_frame(self) -> pd.DataFrame:
        """Return one row per group: both statistics, and the strength of the source in units of its mean.

        ``relative_strength`` is the light curve, with ``relative_strength_low`` and ``_high`` for its interval of one
        sigma; the error of the mean is not in it. It is NaN where the mean strength is not positive. Where times are
        known, ``hours`` and ``excess_per_hour`` with its error are there, too.
        """
        outcomes = {
            group: Outcome(counts, self.likelihood_by_group.get(group), self.statistic)
            for group, counts in self.counts_by_group.items()
        }
        return tabulate_groups(outcomes, self.likelihood, {} if self.exposure is None else self.exposure.by_group)

    def observations_frame(self) -> pd.DataFrame:
        """Return one row per observation: exposure ratio, both statistics, and the strength in units of the joint one.

        ``n_on``, ``n_off`` and ``excess`` add up to those of ``counts``.
        """
        return tabulate_observations(self.outcomes_by_observation, self.likelihood)

    def bins_frame(self) -> pd.DataFrame:
        """Return one row per bin: exposure ratio, both statistics, and what is to be said about it.

        ``n_on``, ``n_off`` and ``excess`` add up to those of ``counts``.
        """
        return tabulate_bins(self.bins)

    def __str__(self) -> str:
        """Say the result in a few lines."""
        return detection_text(self)

    def _repr_html_(self) -> str:
        """Return a table of both statistics with the verdict, which notebooks show."""
        return detection_table(self)

    def _outcome_of(self, own: BoolArray) -> Outcome:
        """Return both statistics of some hold-out events."""
        return Outcome(self._count(self.selected & own), self._likelihood(self.held_out & own), self.statistic)

    def _count(self, mask: BoolArray) -> OnOffCounts:
        return count_events(self.on, mask, alphas_of(self))

    def _likelihood(self, mask: BoolArray) -> OnOffLikelihood | None:
        return find_likelihood(self.on, self.ratio, mask, alphas_of(self))

    def _held_out_parts(self, labels: NDArray[Any] | None) -> list[tuple[Any, BoolArray]]:
        """Return the groups, or other labels, that were held out, each with its events."""
        if labels is None:
            return []
        of_time = labels is self.groups or labels is self.nights
        time = self.time[self.held_out] if self.time is not None and of_time else None
        found = number_groups(labels[self.held_out], time)[0]
        is_date = found.dtype.kind in "mM"  # which would become a number
        names = [label if is_date or not hasattr(label, "item") else label.item() for label in found]
        return [(name, labels == name) for name in names]
