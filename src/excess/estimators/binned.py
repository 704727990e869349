"""A classifier with a threshold and a calibration for each bin of a column, such as energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from excess._core.checks import (
    FloatArray,
    as_int,
    as_random_state,
    as_scalar_alpha,
)
from excess.estimators.calibration import SignalCalibration, calibrate
from excess.estimators.holdout import learn_and_score, score_events
from excess.estimators.model_file import from_bytes
from excess.estimators.model_state import State, StoredArrays, require, saveable
from excess.estimators.nested_classifier import BaseNestedClassifier
from excess.estimators.nested_models import nested_bytes, prepare_learner, with_threads
from excess.estimators.score_bins import (
    CUT,
    BinnedCalibration,
    TunedBin,
    as_edges,
    move_by_bin,
    number_bins,
    tuning_windows,
)
from excess.stats.curve import events_curve
from excess.stats.thresholds import out_of_bag_rule

__all__ = ["OnOffBinnedClassifier", "learner_of"]


@saveable
class OnOffBinnedClassifier(BaseNestedClassifier):
    """One On/Off classifier with a threshold and a calibration for each bin of a column, such as energy.

    One estimator learns from the events of all bins. Then each bin gets the threshold that is best for its own events,
    and its own calibration. A bin with too few events is tuned together with its neighbours.

    Parameters
    ----------
    estimator : classifier or None, default=None
        What learns; by default an `OnOffForestClassifier`. It is cloned. Its scores must lie between 0 and 1.
    column : int or str, default=0
        The column of X that the bins are of: its number, or its name in a DataFrame.
    edges : sequence of float, default=()
        Edges between the bins, ascending: two edges make three bins. An event at an edge belongs to the bin above it.
        Without edges there is one bin.
    alpha : float or None, default=None
        Exposure ratio On/Off. ``fit`` needs it; `cross_val_detect` and `null_test` set it.
    passthrough : bool, default=True
        Whether the estimator learns from the column, too.
    min_events : int, default=1000
        Events that a bin needs for a threshold and a calibration of its own. Where it has fewer, or fewer than 20 On or
        Off events, it is tuned with the events of its neighbours, and of theirs, until there are enough.
    cv : "auto", "oob", int, splitter or iterable, default="auto"
        Where the scores come from on which thresholds are tuned: out of the bag of the estimator where it has such
        scores, else out of five folds.
    threshold, threshold_tolerance, n_threshold_bootstrap
        As for `OnOffForestClassifier`, in each bin; the bins share the tolerance.
    n_jobs : int or None, default=None
        Folds that are fitted at the same time; threads of the default estimator, and of all On/Off classifiers when
        events are scored.
    random_state : int, RandomState instance or None, default=None
        Seed of everything random.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on all events.
    bins_ : tuple of TunedBin
        For each bin its threshold, and the bins whose events it was tuned on.
    threshold_ : float
        0.5: scores are moved so that the threshold of each bin is at 0.5, and keep their order inside of a bin.
    calibrations_ : tuple of SignalCalibration
        What the scores of the estimator say about signal, by bin.
    calibration_ : SignalCalibration
        The same for the moved scores of all bins; ``signal_ratio`` and ``predict_signal_proba`` use those of the bins.
    curve_, classes_, n_features_in_, feature_names_in_
        As for `OnOffForestClassifier`.

    See Also
    --------
    SignificanceThresholdClassifier : One threshold for all events.

    Notes
    -----
    The edges are part of the model, so choose them before labels are looked at. A column that knows where an event
    comes from, such as an angle to the source, must not be binned, as it must not be a feature.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffBinnedClassifier, OnOffForestClassifier, inject_label_noise
    >>> X, truth = make_classification(6000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(truth, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> energy = np.random.default_rng(0).lognormal(size=6000)
    >>> forest = OnOffForestClassifier(50, min_samples_leaf=20, random_state=0)
    >>> model = OnOffBinnedClassifier(forest, 0, edges=[1.0, 8.0], alpha=1 / 5, passthrough=False, random_state=0)
    >>> model = model.fit(np.column_stack([energy, X]), on)
    >>> [(tuned.first, tuned.last, tuned.n_events) for tuned in model.bins_]
    [(0, 0, 3060), (1, 1, 2828), (1, 2, 112)]
    """

    _in_state = ("estimator", "edges")

    def __init__(
        self,
        estimator: Any = None,
        column: int | str = 0,
        edges: Sequence[float] = (),
        alpha: float | None = None,
        *,
        passthrough: bool = True,
        min_events: int = 1000,
        cv: Any = "auto",
        threshold: str | Callable[..., float] | float = "significance",
        threshold_tolerance: float = 9.0,
        n_threshold_bootstrap: int = 25,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.column = column
        self.edges = edges
        self.alpha = alpha
        self.passthrough = passthrough
        self.min_events = min_events
        self.cv = cv
        self.threshold = threshold
        self.threshold_tolerance = threshold_tolerance
        self.n_threshold_bootstrap = n_threshold_bootstrap
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: Any, y: ArrayLike, *, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from the events of all bins, and tune each bin.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events; a DataFrame where ``column`` is a name.
        y : array-like of shape (n_events,)
            Noisy labels of two classes; the larger one in sorted order is On.
        groups : array-like of shape (n_events,) or None, default=None
            What must not be split between training and tuning, such as nights.
        sample_weight : array-like of shape (n_events,) or None, default=None
            The number of events that each event stands for, at least 0; see `OnOffHybridClassifier`.

        Returns
        -------
        self
        """
        alpha = as_scalar_alpha(self.alpha)
        rule = out_of_bag_rule(self)
        random = as_random_state(self.random_state)
        edges = as_edges(self.edges)
        enough = as_int("min_events", self.min_events, minimum=1)
        events = self._training_events(X, y, groups, sample_weight)
        features, number = self._split(events.X, edges)

        learner = prepare_learner(self.estimator, alpha, self.n_jobs, random)
        estimator, score = learn_and_score(
            learner, features, events.labels, events.groups, self.cv, events.fit_params(learner), self.n_jobs
        )
        on, known = events.on, events.known(score)
        if ((score[known] < 0) | (score[known] > 1)).any():
            raise ValueError("the scores of estimator must lie between 0 and 1; give a classifier with predict_proba")

        # squared significances of bins add up, so the bins share what may be lost
        rule = replace(rule, tolerance=rule.tolerance / (len(edges) + 1))
        seed = int(random.randint(2**31 - 1))
        score = np.where(known, score, np.nan)
        tuned, calibrations = [], []
        for first, last, own in tuning_windows(number, on & known, ~on & known, len(edges) + 1, enough):
            chosen = (number >= first) & (number <= last)
            threshold, curve = rule(on[chosen], score[chosen], alpha, seed, events.weights_of(chosen))
            tuned.append(TunedBin(threshold, first, last, own))
            calibrations.append(calibrate(curve))
        moved = move_by_bin(score, number, tuned)
        curve = events_curve(on[known], moved[known], alpha, events.weights_of(known))
        n_off = np.bincount(number[known & ~on], events.weights_of(known & ~on), len(tuned))

        # nothing is set before all has succeeded
        self.estimator_, self.bins_, self.calibrations_ = estimator, tuple(tuned), tuple(calibrations)
        self._strength = float(np.average([own.strength for own in calibrations], weights=np.maximum(n_off, 1e-9)))
        self.threshold_, self.curve_, self.calibration_ = CUT, curve, calibrate(curve)
        self.classes_ = events.classes
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return scores of Off and On, the *noisy* classes.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events, as for ``fit``.

        Returns
        -------
        ndarray of shape (n_events, 2)
            The second column is the score of the estimator, moved so that the threshold of each bin is at 0.5. It is no
            probability of On; ``predict_signal_proba`` is a probability.
        """
        check_is_fitted(self)
        features, number = self._split(self._validated(X, reset=False), as_edges(self.edges))
        raw = score_events(with_threads(self.estimator_, self.n_jobs), features)
        score = move_by_bin(raw, number, self.bins_)
        return np.column_stack([1 - score, score])

    def calibration_of(self, X: Any) -> BinnedCalibration:  # type: ignore[override]
        """Return what scores say about signal, each event by the calibration of its bin."""
        check_is_fitted(self)
        return BinnedCalibration(self.calibrations_, self._strength, self.bin_numbers(X), self.bins_)

    def bin_numbers(self, X: Any) -> NDArray[np.int64]:
        """Return the bin of each event, from 0.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events, as for ``fit``.

        Returns
        -------
        ndarray of int64 of shape (n_events,)
            Numbers from 0 to the number of edges.
        """
        values = np.asarray(_safe_indexing(X, self._column_number(X), axis=1), dtype=np.float64).reshape(-1)
        return number_bins(values, as_edges(self.edges))

    @property
    def feature_importances_(self) -> FloatArray:
        """Importance of each feature in the estimator inside; 0 for a column of bins that it does not see."""
        check_is_fitted(self)
        own = np.asarray(self.estimator_.feature_importances_, dtype=np.float64)
        return own if self.passthrough else np.insert(own, self._column_of_names(), 0.0)

    def _get_state(self) -> State:
        """Return what a model file holds: the estimator as a file inside it."""
        arrays: dict[str, NDArray[Any]] = {"learner": nested_bytes("what learns in all bins", self.estimator_)}
        arrays["edges"] = as_edges(self.edges)
        arrays["bin_thresholds"] = np.array([own.threshold for own in self.bins_])
        arrays["bin_windows"] = np.array([own[1:] for own in self.bins_], dtype=np.int64)
        for number, own in enumerate(self.calibrations_):
            arrays |= own.to_arrays(f"bin_{number}")
        return {"strength": self._strength, "has_estimator": self.estimator is not None}, arrays

    def _set_state(self, attributes: dict[str, Any], arrays: StoredArrays) -> None:
        self.estimator_ = from_bytes(arrays.take("learner", np.uint8, None))
        edges = as_edges(arrays.take("edges", np.float64, None))
        self.edges = tuple(edges.tolist())
        n_bins = len(edges) + 1
        thresholds = arrays.take("bin_thresholds", np.float64, n_bins)
        windows = arrays.take("bin_windows", np.int64, n_bins, 3)
        require(not np.isnan(thresholds).any(), "a bin has no threshold")
        first, last, n_events = windows.T
        own = np.arange(n_bins)
        inside = (first >= 0) & (first <= own) & (last >= own) & (last < n_bins) & (n_events >= 0)
        require(bool(inside.all()), "a bin was tuned on bins that do not exist")
        self.bins_ = tuple(
            TunedBin(threshold, *window)
            for threshold, window in zip(thresholds.tolist(), windows.tolist(), strict=True)
        )
        self.calibrations_ = tuple(
            SignalCalibration.from_arrays(arrays, self.curve_.alpha, f"bin_{number}") for number in range(n_bins)
        )
        self._strength = float(attributes["strength"])
        require(0 <= self._strength < np.inf, "its strength is not a number")
        if attributes["has_estimator"]:
            self.estimator = clone(self.estimator_)

    def _split(self, X: Any, edges: FloatArray) -> tuple[Any, NDArray[np.int64]]:
        """Return the features for the estimator, and the bin of each event."""
        column = self._column_number(X)
        values = np.asarray(_safe_indexing(X, column, axis=1), dtype=np.float64).reshape(-1)
        number = number_bins(values, edges)
        if self.passthrough:
            return X, number
        kept = [other for other in range(X.shape[1]) if other != column]
        if not kept:
            raise ValueError("X has no features besides the column of the bins; give features to learn from")
        return _safe_indexing(X, kept, axis=1), number

    def _column_number(self, X: Any) -> int:
        """Return the number of the column of the bins."""
        if isinstance(self.column, str):
            names = getattr(X, "columns", None)
            if names is None:
                raise ValueError(f"column is {self.column!r}, but X has no names; give a DataFrame, or a number")
            if self.column not in names:
                raise ValueError(f"column is {self.column!r}, which X does not have")
            return list(names).index(self.column)
        number = as_int("column", self.column, minimum=0)
        n_columns = np.shape(X)[1]
        if number >= n_columns:
            raise ValueError(f"column is {number}, but X has {n_columns} columns, which are numbered from 0")
        return number

    def _column_of_names(self) -> int:
        """Return the number of the column of the bins among the features of the training."""
        if isinstance(self.column, str):
            return list(self.feature_names_in_).index(self.column)
        return int(self.column)


def learner_of(model: Any) -> Any:
    """Return the fitted estimator that learns in all bins; a model without bins is its own."""
    return model.estimator_ if isinstance(model, OnOffBinnedClassifier) else model
