"""K-means detection: clusters of events, assigned to signal or background by significance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import BoolArray, FloatArray, as_choice, as_int, as_random_state, as_scalar_alpha
from excess._core.progress import progress_bar
from excess._core.rng import bootstrap_weights, choose_features, derive_key
from excess._core.threads import map_threaded, n_threads
from excess.estimators.base import BaseOnOffClassifier
from excess.estimators.calibration import calibrate, calibrate_out_of_fold
from excess.estimators.cluster_cells import (
    ClusterCells,
    cells_from_arrays,
    cells_to_arrays,
    count_clusters,
    find_cells,
    use_one_thread,
)
from excess.estimators.grown_trees import resolve_max_features
from excess.estimators.model_state import State, StoredArrays, require, saveable
from excess.stats.curve import compute_cell_curve
from excess.stats.thresholds import OutOfBagRule, out_of_bag_rule

__all__ = ["OnOffKMeansClassifier", "OnOffKMeansEnsembleClassifier"]

MAX_LLOYD_EVENTS = 100_000
"""Events up to which ``algorithm="auto"`` lets every iteration see all of them."""


class _BaseOnOffKMeans(BaseOnOffClassifier):
    """Base of k-means classifiers: events in, scaled; scores and selection out."""

    _members: list[ClusterCells]
    alpha: float | None
    n_clusters: int
    algorithm: str
    random_state: Any

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return how far the score lies above the threshold.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events.

        Returns
        -------
        ndarray of shape (n_events,)
            Positive where an event is selected.
        """
        # scores lie in [0, 1]; a threshold of -inf or +inf selects all or nothing from there as well
        return self._score(X) - np.clip(self.threshold_, -1.0, 1.0)

    def _get_state(self) -> State:
        return {}, {"mean": self._mean, "scale": self._scale, **cells_to_arrays(self._members)}

    def _set_state(self, attributes: dict[str, Any], arrays: StoredArrays) -> None:
        self._mean, self._scale = (arrays.take(name, np.float64, self.n_features_in_) for name in ("mean", "scale"))
        self._members = cells_from_arrays(arrays, self.n_features_in_)

    def _set_scale(self, X: NDArray[Any]) -> FloatArray:
        """Find mean and scale of each feature; return scaled events."""
        if len(X) < self.n_clusters:
            raise ValueError(
                f"n_clusters must be at most the number of events, n_samples={len(X)}, got {self.n_clusters}"
            )
        spread = X.std(axis=0, dtype=np.float64)
        self._mean = X.mean(axis=0, dtype=np.float64)
        # a constant feature has a spread of a few last digits, which must not be blown up
        constant = spread <= 10 * np.finfo(X.dtype).eps * np.abs(self._mean)
        self._scale = np.where(constant | (spread == 0), 1.0, spread)
        return self._scaled(X)

    def _scaled(self, X: NDArray[Any]) -> FloatArray:
        return np.ascontiguousarray((X - self._mean) / self._scale)

    def _check_clustering(self) -> tuple[float, int]:
        """Check the parameters that all have; return exposure ratio and seed."""
        alpha = as_scalar_alpha(self.alpha)
        as_choice("algorithm", self.algorithm, ("auto", "lloyd", "mini_batch"))
        as_int("n_clusters", self.n_clusters, minimum=1)
        return alpha, as_random_state(self.random_state).randint(2**31 - 1)

    def _score(self, X: ArrayLike) -> FloatArray:
        scaled = self._scaled(self._check_new_events(X))
        threads = n_threads(getattr(self, "n_jobs", None))
        with use_one_thread("blas"):
            scores = map_threaded(lambda cells: cells.score(scaled), self._members, threads)
            return sum(scores, start=np.zeros(len(scaled))) / len(self._members)


@saveable
class OnOffKMeansClassifier(_BaseOnOffKMeans):
    """K-means clusters that are assigned to signal or background so that the significance is largest.

    Labels take no part in the clustering. The assignment of clusters (Eq. 5 of the paper) is the exact optimum over all
    ``2^k``; see `assign_cells`.

    Parameters
    ----------
    n_clusters : int, default=48
        Number of clusters.
    alpha : float or None, default=None
        Exposure ratio On/Off. ``fit`` needs it; `cross_val_detect` and `null_test` set it.
    algorithm : {"auto", "lloyd", "mini_batch"}, default="auto"
        Scikit-learn's ``KMeans`` or ``MiniBatchKMeans``, either with k-means++; ``"auto"`` takes mini-batches above
        100,000 events.
    random_state : int, RandomState instance or None, default=None
        Seed of the first centres.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Off and On.
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centres, in the units of the features.
    n_on_, n_off_ : ndarray of int64 of shape (n_clusters,)
        Training events in each cluster.
    assignment_ : ndarray of bool of shape (n_clusters,)
        True for the clusters that are assigned to signal.
    threshold_ : float
        A cluster is assigned to signal when its On fraction exceeds it.
    curve_ : ThresholdCurve
        The training events at every cut of their cluster's On fraction.
    calibration_ : SignalCalibration
        What a score says about signal, from On fractions of the clusters in which the event itself was left out (five
        folds); ``signal_ratio`` and ``predict_signal_proba`` use it.
    n_features_in_, feature_names_in_
        Number of features, and their names if X had any.

    See Also
    --------
    OnOffKMeansEnsembleClassifier : Many clusterings, which detect more.
    assign_cells : How clusters are assigned.

    Notes
    -----
    Features are scaled to unit variance. The score of an event is the On fraction of its cluster. A cluster without any
    training event, as there may be where many events are identical, scores the On fraction of all events;
    scikit-learn warns of it.

    Scikit-learn's k-means sums in an order that depends on the number of threads; here a single clustering runs on one
    thread, so that a seed gives the same bits everywhere.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffKMeansClassifier, count_selected, inject_label_noise
    >>> X, y = make_classification(8000, n_features=4, weights=[0.9], class_sep=2.0, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> model = OnOffKMeansClassifier(8, alpha=1 / 5, random_state=0).fit(X[:4000], on[:4000])
    >>> print(model.n_on_[model.assignment_], model.n_off_[model.assignment_])
    [173 196] [10  5]
    >>> print(count_selected(on[4000:], model.predict(X[4000:]), alpha=1 / 5))
    On 362, Off 20, alpha 0.2: excess 358.0 +- 19.0, 33.9 sigma
    """

    def __init__(
        self, n_clusters: int = 48, alpha: float | None = None, *, algorithm: str = "auto", random_state: Any = None
    ) -> None:
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.algorithm = algorithm
        self.random_state = random_state

    def _plan(self) -> tuple[float, int]:
        return self._check_clustering()

    def _fit(self, plan: tuple[float, int], X: NDArray[Any], on: BoolArray) -> None:
        alpha, seed = plan
        X = self._set_scale(X)
        features, weights = np.arange(X.shape[1]), np.ones(len(X), dtype=np.uint8)
        cells = find_cells(X, on, features, weights, self.n_clusters, _algorithm(self.algorithm, len(X)), seed)
        number = cells.numbers(X)

        def score(train: BoolArray, held_out: BoolArray) -> FloatArray:
            return count_clusters(number[train], on[train], len(cells.centers)).fraction[number[held_out]]

        # the clusters know no labels, so that only their On fractions are to be those of other events
        self.calibration_ = calibrate_out_of_fold(on, alpha, score)
        self.curve_ = compute_cell_curve(cells.fraction, cells.n_on, cells.n_off, alpha)
        self.threshold_ = self.curve_.best_threshold
        self._members = [cells]
        self._describe_clusters()

    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the number of the cluster that each event falls into.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events.

        Returns
        -------
        ndarray of int64 of shape (n_events,)
            The nearest centre.
        """
        scaled = self._scaled(self._check_new_events(X))
        return self._members[0].numbers(scaled)

    def _describe_clusters(self) -> None:
        """Set the public attributes of the clusters."""
        (cells,) = self._members
        self.n_on_, self.n_off_ = cells.n_on, cells.n_off
        self.assignment_ = cells.fraction > self.threshold_
        self.cluster_centers_ = cells.centers * self._scale + self._mean

    def _set_state(self, attributes: dict[str, Any], arrays: StoredArrays) -> None:
        super()._set_state(attributes, arrays)
        require(len(self._members) == 1, "it has several clusterings")
        self._describe_clusters()


@saveable
class OnOffKMeansEnsembleClassifier(_BaseOnOffKMeans):
    """Many k-means clusterings of bootstrapped events and random features, with an out-of-bag threshold.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of clusterings.
    n_clusters : int, default=256
        Number of clusters of each. A bag with fewer events than that makes each of them a cluster.
    alpha : float or None, default=None
        Exposure ratio On/Off. ``fit`` needs it; `cross_val_detect` and `null_test` set it.
    max_features : int, float, "sqrt", "log2" or None, default=1/3
        Features of a clustering, drawn anew for each; None is all of them.
    output : {"fraction", "assignment"}, default="fraction"
        What a clustering says about an event: the On fraction of its cluster, or 0 and 1 by the cluster's assignment,
        as in the paper's ensembles.
    threshold : str, callable or float, default="significance"
        Rule for the threshold on the out-of-bag scores, as for `OnOffForestClassifier`.
    threshold_tolerance : float, default=9.0
        With ``threshold="significance"``, take the cut of largest F1 among those whose squared significance is within
        this of the best.
    n_threshold_bootstrap : int, default=25
        With ``threshold="significance"``, take the median threshold over so many resamples; 0 for none.
    algorithm : {"auto", "lloyd", "mini_batch"}, default="auto"
        As for `OnOffKMeansClassifier`.
    n_jobs : int or None, default=None
        Threads; -1 is all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of everything random.
    verbose : int, default=0
        With 1, show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Off and On.
    threshold_ : float
        An event is selected when its score exceeds it.
    oob_decision_function_ : ndarray of shape (n_events, 2)
        Out-of-bag probabilities of the noisy classes; NaN for an event that is in every bag.
    oob_significance_ : float
        Significance of the training events by their out-of-bag scores, at ``threshold_``. The threshold was chosen on
        these events, so this is not a result to quote; see `cross_val_detect`.
    curve_ : ThresholdCurve
        The training events at every cut of their out-of-bag scores.
    calibration_ : SignalCalibration
        What a score says about signal, from these events; ``signal_ratio`` and ``predict_signal_proba`` use it.
    n_features_in_, feature_names_in_
        Number of features, and their names if X had any.

    See Also
    --------
    OnOffKMeansClassifier : A single clustering.
    OnOffForestClassifier : Trees in place of clusterings, which use the labels to find their cells.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffKMeansEnsembleClassifier, count_selected, inject_label_noise
    >>> X, y = make_classification(8000, n_features=4, weights=[0.9], class_sep=2.0, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> model = OnOffKMeansEnsembleClassifier(20, 32, alpha=1 / 5, random_state=0).fit(X[:4000], on[:4000])
    >>> print(count_selected(on[4000:], model.predict(X[4000:]), alpha=1 / 5))
    On 364, Off 24, alpha 0.2: excess 359.2 +- 19.1, 33.7 sigma
    """

    _has_out_of_bag_scores = True

    def __init__(
        self,
        n_estimators: int = 100,
        n_clusters: int = 256,
        alpha: float | None = None,
        *,
        max_features: int | float | str | None = 1 / 3,
        output: str = "fraction",
        threshold: Any = "significance",
        threshold_tolerance: float = 9.0,
        n_threshold_bootstrap: int = 25,
        algorithm: str = "auto",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.max_features = max_features
        self.output = output
        self.threshold = threshold
        self.threshold_tolerance = threshold_tolerance
        self.n_threshold_bootstrap = n_threshold_bootstrap
        self.algorithm = algorithm
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _plan(self) -> tuple[float, int, OutOfBagRule, int]:
        as_int("n_estimators", self.n_estimators, minimum=1)
        as_choice("output", self.output, ("fraction", "assignment"))
        as_int("verbose", self.verbose, minimum=0)
        rule, threads = out_of_bag_rule(self), n_threads(self.n_jobs)
        return *self._check_clustering(), rule, threads

    def _fit(self, plan: tuple[float, int, OutOfBagRule, int], X: NDArray[Any], on: BoolArray) -> None:
        alpha, seed, rule, threads = plan
        X = self._set_scale(X)
        n_features = resolve_max_features(self.max_features, X.shape[1])
        algorithm = _algorithm(self.algorithm, len(X))

        def member(number: int) -> tuple[ClusterCells, BoolArray, FloatArray]:
            key = np.uint64(derive_key(seed, number))
            features = np.empty(n_features, dtype=np.int64)
            choose_features(np.uint64(derive_key(key, 1)), np.arange(X.shape[1]), features)
            weights = np.empty(len(X), dtype=np.uint8)
            bootstrap_weights(key, 0, weights)
            start = int(derive_key(key, 2)) % (2**31 - 1)
            cells = find_cells(X, on, features, weights, self.n_clusters, algorithm, start)
            if self.output == "assignment":
                cells = cells.with_votes(alpha)
            out_of_bag = weights == 0
            return cells, out_of_bag, cells.score(X[out_of_bag])

        members, total, n_scores = [], np.zeros(len(X)), np.zeros(len(X), dtype=np.int64)
        with progress_bar("Clustering", self.n_estimators, shown=self.verbose > 0) as tick:
            for cells, out_of_bag, score in map_threaded(member, range(self.n_estimators), threads, limit_blas=True):
                members.append(cells)
                total[out_of_bag] += score
                n_scores[out_of_bag] += 1
                tick(1)
        score = np.divide(total, n_scores, out=np.full(len(X), np.nan), where=n_scores > 0)
        self.threshold_, self.curve_ = rule(on, score, alpha, seed)
        self.calibration_ = calibrate(self.curve_)
        self.oob_decision_function_ = np.column_stack([1 - score, score])
        self.oob_significance_ = max(self.tuned_counts_.significance, 0.0)
        self._members = members

    def _get_state(self) -> State:
        return {"oob_significance": self.oob_significance_}, super()._get_state()[1]

    def _set_state(self, attributes: dict[str, Any], arrays: StoredArrays) -> None:
        super()._set_state(attributes, arrays)
        self.oob_significance_ = float(attributes["oob_significance"])


def _algorithm(name: str, n_events: int) -> str:
    if name != "auto":
        return name
    return "lloyd" if n_events <= MAX_LLOYD_EVENTS else "mini_batch"
