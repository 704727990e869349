"""K-means detection: clusters of events, assigned to signal or background by significance."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.metrics import pairwise_distances_argmin
from threadpoolctl import ThreadpoolController

from excess._utils.checks import BoolArray, FloatArray, as_choice, as_int, as_random_state, as_scalar_alpha
from excess._utils.rng import bootstrap_weights, choose_features, derive_key
from excess._utils.threads import map_threaded, n_threads, progress_bar
from excess.estimators._base import BaseOnOffClassifier, calibrate, calibrate_out_of_fold, store_parameters
from excess.estimators._model_file import cut_array, ensure, saveable
from excess.estimators._tree import resolve_max_features
from excess.stats._thresholds import OutOfBagRule, compute_cell_curve, out_of_bag_rule

MAX_LLOYD_EVENTS = 100_000  # maximum number of events for which ``algorithm="auto"`` uses all events in every iteration
_BATCH = 8192
_FEW = 256
_JOINED = ("centers", "n_on", "n_off", "fraction", "values")
_PROCESS = os.getpid()  # to detect forked processes
_find_thread_pools = cache(ThreadpoolController)  # slower than scoring a few events


@dataclass(frozen=True)
class ClusterCells:
    """Clusters in some features, in scaled units, with the counts of their training events."""

    features: NDArray[np.int64]  # used by the clusters
    centers: FloatArray  # of shape (n_clusters, n_used)
    n_on: NDArray[np.int64]  # training events in each cluster, including bootstrap weights
    n_off: NDArray[np.int64]
    fraction: FloatArray  # of On; that of all events for an empty cluster
    values: FloatArray  # score of a cluster: the On fraction, or 0 and 1

    def numbers(self, X: FloatArray) -> NDArray[np.int64]:
        """Return the index of the nearest centre of each event."""
        if len(X) == 0:
            return np.zeros(0, dtype=np.int64)
        # starting threads takes longer than comparing a few events; and in a forked process OpenMP waits forever for
        # threads lost in the fork, where scikit-learn uses it at all: with a single feature
        one = len(X) <= _FEW or os.getpid() != _PROCESS
        with use_one_thread("openmp") if one else nullcontext():
            return pairwise_distances_argmin(X[:, self.features], self.centers).astype(np.int64)

    def score(self, X: FloatArray) -> FloatArray:
        """Return the value of the nearest cluster of each event."""
        return self.values[self.numbers(X)]

    def with_votes(self, alpha: float) -> ClusterCells:
        """Return the same clusters with assignments 0 and 1 in place of On fractions."""
        threshold = compute_cell_curve(self.fraction, self.n_on, self.n_off, alpha).best_threshold
        return replace(self, values=(self.fraction > threshold).astype(np.float64))


def use_one_thread(user_api: str) -> AbstractContextManager[Any]:
    """Limit OpenMP or BLAS to one thread, so sums are reproducible to the bit on every machine."""
    return _find_thread_pools().limit(limits=1, user_api=user_api)


def find_cells(
    X: FloatArray, on: BoolArray, features: Any, weights: NDArray[np.uint8], n_clusters: int, algorithm: str, seed: int
) -> ClusterCells:
    """Cluster weighted events in some features, and count On and Off in each cluster."""
    if algorithm == "auto":
        algorithm = "lloyd" if len(X) <= MAX_LLOYD_EVENTS else "mini_batch"
    in_bag = np.flatnonzero(weights)
    events = np.ascontiguousarray(X[np.ix_(in_bag, features)])
    weight = weights[in_bag].astype(np.float64)
    shared: dict[str, Any] = {"n_clusters": min(n_clusters, len(events)), "n_init": 1, "random_state": seed}
    kmeans = KMeans(**shared) if algorithm == "lloyd" else MiniBatchKMeans(batch_size=_BATCH, **shared)
    with use_one_thread("openmp"):
        number = kmeans.fit(events, sample_weight=weight).labels_
    n_on, n_off, fraction = count_clusters(number, on[in_bag], len(kmeans.cluster_centers_), weight)
    return ClusterCells(features, kmeans.cluster_centers_, n_on, n_off, fraction, fraction)


def count_clusters(
    number: NDArray[Any], on: BoolArray, n_clusters: int, weight: FloatArray | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    """Return On and Off counts, or weights, of each cluster, and On fractions, for empty clusters that of all."""
    weight = np.ones(len(number)) if weight is None else weight
    n_on = np.bincount(number, weights=weight * on, minlength=n_clusters).astype(np.int64)
    n = np.bincount(number, weights=weight, minlength=n_clusters).astype(np.int64)
    return n_on, n - n_on, np.divide(n_on, n, out=np.full(n_clusters, n_on.sum() / n.sum()), where=n > 0)


@dataclass(frozen=True)
class _ClusterState:
    """Fitted state of k-means: the clusters of all clusterings concatenated."""

    mean: Annotated[FloatArray, "features"]
    scale: Annotated[FloatArray, "features"]
    features: Annotated[NDArray[np.int64], "clusterings", "used"]
    n_clusters: Annotated[NDArray[np.int64], "clusterings"]
    centers: Annotated[FloatArray, "clusters", "used"]
    n_on: Annotated[NDArray[np.int64], "clusters"]
    n_off: Annotated[NDArray[np.int64], "clusters"]
    fraction: Annotated[FloatArray, "clusters"]
    values: Annotated[FloatArray, "clusters"]

    def check(self) -> None:
        """Raise ValueError unless these are clusterings of existing, distinct features."""
        features, n_features = self.features, len(self.mean)
        ensure(((features >= 0) & (features < n_features)).all(), "it clusters a feature that does not exist")
        # distinct: events are copied with the features of a clustering
        ensure((np.diff(np.sort(features, axis=1), axis=1) > 0).all(), "it clusters a feature more than once")
        ensure(len(self.n_clusters) > 0 and (self.n_clusters > 0).all(), "it has no clusters")


class _EnsembleState(NamedTuple):
    """Fitted state of an ensemble of clusterings."""

    clusters: Annotated[_ClusterState, ""]
    oob_significance: float


class _BaseOnOffKMeans(BaseOnOffClassifier):
    """Base of k-means classifiers: scaling, scores and selection."""

    _members: list[ClusterCells]

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return the score minus the threshold, positive for selected events; shape (n_events,)."""
        # scores are in [0, 1]; a threshold of -inf or +inf selects all or none from there as well
        return self._score(X) - np.clip(self.threshold_, -1.0, 1.0)

    def _get_state(self) -> _ClusterState:
        cells = self._members
        joined = {name: np.concatenate([getattr(own, name) for own in cells]) for name in _JOINED}
        features = np.stack([own.features for own in cells])
        n_clusters = np.array([len(own.centers) for own in cells], dtype=np.int64)
        return _ClusterState(self._mean, self._scale, features, n_clusters, **joined)

    def _set_state(self, state: _ClusterState) -> None:
        self._mean, self._scale = state.mean, state.scale
        parts = (cut_array(getattr(state, name), state.n_clusters) for name in _JOINED)
        members = zip(state.features, *parts, strict=True)
        # copies with the same memory layout as before, for linear algebra
        self._members = [ClusterCells(*(own.copy() for own in cells)) for cells in members]

    def _set_scale(self, X: NDArray[Any]) -> FloatArray:
        """Compute mean and scale of each feature; return scaled events."""
        if len(X) < self.n_clusters:
            given = f"n_samples={len(X)}, got {self.n_clusters}"
            raise ValueError(f"n_clusters must be at most the number of events, {given}")
        spread = X.std(axis=0, dtype=np.float64)
        self._mean = X.mean(axis=0, dtype=np.float64)
        # the spread of a constant feature is rounding, which must not be amplified
        constant = spread <= 10 * np.finfo(X.dtype).eps * np.abs(self._mean)
        self._scale = np.where(constant | (spread == 0), 1.0, spread)
        return self._scaled(X)

    def _scaled(self, X: NDArray[Any]) -> FloatArray:
        return np.ascontiguousarray((X - self._mean) / self._scale)

    def _plan(self) -> Any:
        """Validate the common parameters; return exposure ratio and seed."""
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
    """K-means clusters, assigned to signal or background to maximise the significance.

    Labels do not enter the clustering. The assignment (Eq. 5 of the paper) is the exact optimum; see `assign_cells`.

    Parameters
    ----------
    n_clusters : int, default=48
        Number of clusters.
    alpha : float or None, default=None
        Exposure ratio On/Off. Required by ``fit``; `cross_val_detect` and `null_test` set it.
    algorithm : {"auto", "lloyd", "mini_batch"}, default="auto"
        ``KMeans`` or ``MiniBatchKMeans`` of scikit-learn; ``"auto"`` uses mini-batches above 100,000 events.
    random_state : int, RandomState instance or None, default=None
        Seed of the initial centres.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centres, in the units of the features.
    n_on_, n_off_ : ndarray of int64 of shape (n_clusters,)
        Training events in each cluster.
    assignment_ : ndarray of bool of shape (n_clusters,)
        True for clusters assigned to signal.
    threshold_ : float
        A cluster is assigned to signal if its On fraction exceeds the threshold.
    curve_ : ThresholdCurve
        Training events at every cut on their cluster's On fraction.
    calibration_ : SignalCalibration
        Signal probability as a function of the score, from On fractions without the event itself (five folds).
    classes_, n_features_in_, feature_names_in_
        As for `OnOffForestClassifier`.

    Notes
    -----
    Features are scaled to unit variance. The score of an event is the On fraction of its cluster.

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
        store_parameters(self, locals())

    def _fit(self, plan: tuple[float, int], X: NDArray[Any], on: BoolArray) -> None:
        alpha, seed = plan
        X = self._set_scale(X)
        features, weights = np.arange(X.shape[1]), np.ones(len(X), dtype=np.uint8)
        cells = find_cells(X, on, features, weights, self.n_clusters, self.algorithm, seed)
        number = cells.numbers(X)

        def score(train: BoolArray, held_out: BoolArray) -> FloatArray:
            return count_clusters(number[train], on[train], len(cells.centers))[2][number[held_out]]

        # clusters do not depend on labels, so only their On fractions must be those of other events
        self.calibration_ = calibrate_out_of_fold(on, alpha, score)
        self.curve_ = compute_cell_curve(cells.fraction, cells.n_on, cells.n_off, alpha)
        self.threshold_ = self.curve_.best_threshold
        self._members = [cells]
        self._describe_clusters()

    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the number of the cluster of each event, that of the nearest centre; shape (n_events,)."""
        return self._members[0].numbers(self._scaled(self._check_new_events(X)))

    def _describe_clusters(self) -> None:
        """Set the public attributes of the clusters."""
        (cells,) = self._members
        self.n_on_, self.n_off_ = cells.n_on, cells.n_off
        self.assignment_ = cells.fraction > self.threshold_
        self.cluster_centers_ = cells.centers * self._scale + self._mean

    def _set_state(self, state: _ClusterState) -> None:
        super()._set_state(state)
        ensure(len(self._members) == 1, "it has several clusterings")
        self._describe_clusters()


@saveable
class OnOffKMeansEnsembleClassifier(_BaseOnOffKMeans):
    """Ensemble of k-means clusterings of bootstrapped events and random features, with an out-of-bag threshold.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of clusterings.
    n_clusters : int, default=256
        Number of clusters of each clustering, limited by the number of events in its bag.
    alpha : float or None, default=None
        Exposure ratio On/Off. Required by ``fit``; `cross_val_detect` and `null_test` set it.
    max_features : int, float, "sqrt", "log2" or None, default=1/3
        Number of features of a clustering, drawn for each; None uses all.
    output : {"fraction", "assignment"}, default="fraction"
        Output of a clustering: the On fraction of a cluster, or 0 and 1 by its assignment, as in the paper.
    algorithm : {"auto", "lloyd", "mini_batch"}, default="auto"
        As for `OnOffKMeansClassifier`.
    threshold, threshold_tolerance, n_threshold_bootstrap, n_jobs, random_state, verbose
        As for `OnOffForestClassifier`.

    Attributes
    ----------
    classes_, threshold_, curve_, calibration_, oob_decision_function_, oob_significance_, n_features_in_
        As for `OnOffForestClassifier`.

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
        store_parameters(self, locals())

    def _plan(self) -> tuple[float, int, OutOfBagRule, int]:
        as_int("n_estimators", self.n_estimators, minimum=1)
        as_choice("output", self.output, ("fraction", "assignment"))
        as_int("verbose", self.verbose, minimum=0)
        rule, threads = out_of_bag_rule(self), n_threads(self.n_jobs)
        return *super()._plan(), rule, threads

    def _fit(self, plan: tuple[float, int, OutOfBagRule, int], X: NDArray[Any], on: BoolArray) -> None:
        alpha, seed, rule, threads = plan
        X = self._set_scale(X)
        n_features = resolve_max_features(self.max_features, X.shape[1])

        def member(number: int) -> tuple[ClusterCells, BoolArray, FloatArray]:
            key = np.uint64(derive_key(seed, number))
            features = np.empty(n_features, dtype=np.int64)
            choose_features(np.uint64(derive_key(key, 1)), np.arange(X.shape[1]), features)
            weights = np.empty(len(X), dtype=np.uint8)
            bootstrap_weights(key, 0, weights)
            start = int(derive_key(key, 2)) % (2**31 - 1)
            cells = find_cells(X, on, features, weights, self.n_clusters, self.algorithm, start)
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

    def _get_state(self) -> _EnsembleState:  # type: ignore[override]
        return _EnsembleState(super()._get_state(), float(self.oob_significance_))

    def _set_state(self, state: _EnsembleState) -> None:  # type: ignore[override]
        super()._set_state(state.clusters)
        self.oob_significance_ = state.oob_significance
