"""A random forest on On and Off events, with a threshold tuned on its out-of-bag scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import BoolArray, FloatArray, as_choice, as_int, as_random_state, as_scalar_alpha
from excess._core.exact_sums import exact_sum
from excess._core.progress import progress_bar
from excess._core.rng import LARGEST_FACTOR
from excess._core.threads import n_threads
from excess.estimators._forest import ensemble
from excess.estimators._forest.bags import WHOLE, Bag
from excess.estimators._forest.criterion import CRITERIA
from excess.estimators._forest.splitting import SPLITTERS
from excess.estimators.calibration import calibrate
from excess.estimators.grown_trees import BaseOnOffTrees, GrownTrees, check_growth
from excess.estimators.members import (
    N_CELLS,
    GrownForest,
    LabelCounts,
    MemberPlan,
    TreeGrower,
    choose_members,
    is_auto,
    label_units,
    members_from_arrays,
    members_to_arrays,
    tree_criteria,
    units_to_events,
)
from excess.estimators.model_state import State, StoredArrays, saveable
from excess.stats.curve import ThresholdCurve
from excess.stats.score_kernels import count_labels, count_labels_without
from excess.stats.thresholds import OutOfBagRule, out_of_bag_rule

__all__ = ["OnOffForestClassifier"]


@saveable
class OnOffForestClassifier(BaseOnOffTrees):
    """Random forest that is grown on noisy On/Off labels, with a threshold tuned on its out-of-bag scores.

    Parameters
    ----------
    n_estimators : int, default=300
        Number of trees.
    alpha : float or None, default=None
        Exposure ratio On/Off. ``fit`` needs it; `cross_val_detect` and `null_test` set it.
    criterion : {"mixed", "information", "li_ma"}, default="mixed"
        What a split maximises: information gain (Eq. 7 of the paper), the larger significance of the two sides
        (Eq. 6), or the one in every other tree and the other in the rest.
    max_depth : int or None, default=None
        Largest number of cuts on the way to a leaf.
    splitter : {"auto", "best", "random"}, default="auto"
        What a node tries on each of its features: all cuts, to find the best, or a single one that is drawn at random.
    min_samples_leaf : int or "auto", default="auto"
        Fewest events in a leaf, bootstrap weights included. ``"auto"`` averages over trees of several leaf sizes, and,
        where these are ``"auto"`` too, with both splitters and several numbers of features per node: the more likely
        they make the labels of events out of their bags, the more trees a kind gets. With a number, all trees are
        alike, and ``"auto"`` is ``"best"`` for the splitter and ``"sqrt"`` for the features.
    max_features : "auto", int, float, "sqrt", "log2" or None, default="auto"
        Features that a node looks at, drawn anew for each; None is all of them. ``"auto"``, with leaf sizes that are
        ``"auto"`` too, also leaves out features that say nothing.
    max_bins : int or None, default=255
        Bins of a feature, at most 255. A feature with no more distinct values than that is searched exactly; None
        searches every distinct value of all features.
    output : {"fraction", "assignment"}, default="fraction"
        What a tree says about an event: the On fraction of its leaf, or 0 and 1 by the leaf's assignment, as in the
        paper's ensembles.
    threshold : str, callable or float, default="significance"
        Rule for the threshold on the out-of-bag scores, ``"significance"``, ``"f1"``, ``"menon"``, ``"mithal"``,
        ``"yao"``, ``"default"`` or a function of ``(y, score, alpha)``, which gets True for On as ``y``; or the
        threshold itself.
    threshold_tolerance : float, default=9.0
        With ``threshold="significance"``, take the cut of largest F1 among those whose squared significance is within
        this of the best, three sigma by default; 0 is the best cut itself. See `significance_threshold`.
    n_threshold_bootstrap : int, default=25
        With ``threshold="significance"`` or ``"f1"``, take the median threshold over so many resamples; 0 for none.
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
        Out-of-bag probabilities of the noisy classes; NaN for an event that is in the bag of every tree, or has the
        weight 0. That of an event of a larger weight is the mean over its copies.
    oob_significance_ : float
        Significance of the training events by their out-of-bag scores, at ``threshold_``. The threshold was chosen on
        these events, so this is not a result to quote; cross-validate the whole for that.
    curve_ : ThresholdCurve
        The training events at every cut of their out-of-bag scores.
    calibration_ : SignalCalibration
        What a score says about signal, from these events; ``signal_ratio`` and ``predict_signal_proba`` use it.
    members_ : tuple of MemberShare
        The kinds of trees that were tried: ``splitter``, ``min_samples_leaf``, ``max_features``, the out-of-bag
        ``log_likelihood`` of a small forest of them (NaN where none was grown: one kind only, or leaves that are too
        small), and how many trees of the forest they are (``n_trees``).
    used_features_ : ndarray of bool of shape (n_features,)
        False for features that were left out because they say nothing.
    n_features_in_, feature_names_in_
        Number of features, and their names if X had any.
    feature_importances_ : ndarray of shape (n_features,)
        Information gain through each feature, summed over all trees and normalised to 1.

    See Also
    --------
    OnOffTreeClassifier : A single tree, to be read.
    SignificanceThresholdClassifier : Tunes the threshold of any other classifier.

    Notes
    -----
    Bootstrap weights are Poisson(1) draws keyed by seed, tree and row, the features of a node by seed, tree and path;
    bin edges come from rows chosen by a hash of their number. Counts are integers. So a seed gives the same forest, bit
    for bit, on any number of threads. How the defaults were chosen is in ``docs/forest.md``.

    ``predict`` follows ``threshold_``, not the larger of the two probabilities. With ``groups``, such as nights, a tree
    sees four fifths of them, at least one and not all, and out of bag means out of the group.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, count_selected, inject_label_noise
    >>> X, y = make_classification(8000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> forest = OnOffForestClassifier(alpha=1 / 5, random_state=0).fit(X[:4000], on[:4000])
    >>> print(count_selected(on[4000:], forest.predict(X[4000:]), alpha=1 / 5))
    On 357, Off 54, alpha 0.2: excess 346.2 +- 19.0, 31.3 sigma
    """

    _largest_weight = LARGEST_FACTOR
    _has_out_of_bag_scores = True

    def __init__(
        self,
        n_estimators: int = 300,
        alpha: float | None = None,
        *,
        criterion: str = "mixed",
        splitter: str = "auto",
        max_depth: int | None = None,
        min_samples_leaf: int | str = "auto",
        max_features: int | float | str | None = "auto",
        max_bins: int | None = 255,
        output: str = "fraction",
        threshold: str | Callable[..., float] | float = "significance",
        threshold_tolerance: float = 9.0,
        n_threshold_bootstrap: int = 25,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.alpha = alpha
        self.criterion = criterion
        self.splitter = splitter
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.max_bins = max_bins
        self.output = output
        self.threshold = threshold
        self.threshold_tolerance = threshold_tolerance
        self.n_threshold_bootstrap = n_threshold_bootstrap
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _weight_parameter(self) -> str | None:  # type: ignore[override]
        return "sample_weight" if out_of_bag_rule(self).counts_weights else None

    @property
    def oob_decision_function_(self) -> FloatArray:
        """Out-of-bag probabilities of the noisy classes; NaN for an event that is in the bag of every tree."""
        score = self.__dict__.get("_oob_score")
        if score is None:
            raise AttributeError("oob_decision_function_ is there after a fit; a model file does not keep it")
        return np.column_stack([1 - score, score])

    def fit(
        self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from On and Off events, and choose the threshold.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events; NaN is a missing value.
        y : array-like of shape (n_events,)
            Noisy labels of two classes; the larger one in sorted order is On.
        groups : array-like of shape (n_events,) or None, default=None
            What differs from training to use, such as nights. With two groups or more, an event is out of the bag of a
            tree when the tree has seen nothing of its group, so that kinds of trees, threshold and calibration are
            tuned for events of groups that the forest has not seen.
        sample_weight : array-like of shape (n_events,) or None, default=None
            The number of events that each event stands for, at least 0. Whole numbers are repeated events, bit for bit;
            as these do, the copies of an event fall into different bags, unless they have a group of their own. With
            other weights, at most 16, an event counts in a bag by its bootstrap weight times this, rounded up or down
            at random; the out-of-bag curve counts weights, and ``threshold`` must be ``"significance"``, ``"f1"`` or a
            number.

        Returns
        -------
        self
        """
        return self._fit_weighted(X, y, groups, sample_weight)

    def _plan(self) -> ForestPlan:
        """Check all parameters; return what they mean for the growth of this forest."""
        alpha = as_scalar_alpha(self.alpha)
        n_trees = as_int("n_estimators", self.n_estimators, minimum=1)
        check_growth(self, (*CRITERIA, "mixed"))
        as_choice("splitter", self.splitter, ("auto", *SPLITTERS))
        if isinstance(self.max_features, str):
            as_choice("max_features", self.max_features, ("auto", "sqrt", "log2"))
        size = self.min_samples_leaf
        if isinstance(size, str) and size != "auto":
            raise ValueError(f"min_samples_leaf must be a number or 'auto', got {size!r}")
        size = size if isinstance(size, str) else as_int("min_samples_leaf", size, minimum=1)
        rule = out_of_bag_rule(self)
        verbose = as_int("verbose", self.verbose, minimum=0) > 0
        seed = as_random_state(self.random_state).randint(2**31 - 1)
        members = choose_members(self.splitter, size, self.max_features)
        screens = is_auto(self.max_features)
        growth = MemberPlan(members, tree_criteria(self.criterion), n_trees, alpha, seed, screens)
        return ForestPlan(alpha, growth, self.max_depth, rule, seed, verbose)

    def _fit(self, plan: ForestPlan, X: NDArray[Any], on: BoolArray, bag: Bag = WHOLE) -> None:
        forest, score = self._grow(plan, X, on, bag)  # its copy of the events is gone when it returns
        self._finish(forest, *plan.rule(on, score, plan.alpha, plan.seed, bag.weights), score)

    def _grow(self, plan: ForestPlan, X: NDArray[Any], on: BoolArray, bag: Bag) -> tuple[GrownForest, FloatArray]:
        """Return the trees and their out-of-bag scores."""
        threads = n_threads(self.n_jobs)
        grower = _GrowerInMemory(self._bin_events(X, on, threads, bag), on, plan, threads)
        forest = plan.grow(grower)
        if self.output == "assignment":
            forest = replace(forest, trees=forest.trees.with_votes(plan.alpha))
        return forest, grower.score([forest.trees.bagged(forest.keys)])[0]

    def _finish(
        self, forest: GrownForest, threshold: float, curve: ThresholdCurve, oob_score: FloatArray | None
    ) -> None:
        """Set the attributes of a fitted forest, all at once."""
        self.threshold_ = threshold
        self.members_ = forest.members
        self.used_features_ = np.isin(np.arange(self.n_features_in_), forest.used)
        self.curve_ = curve
        self.calibration_ = calibrate(curve)
        self._oob_score = oob_score
        self.oob_significance_ = max(self.tuned_counts_.significance, 0.0)
        self._trees = forest.trees

    def _get_state(self) -> State:
        arrays = {**self._trees.to_arrays(), "used_features": self.used_features_, **members_to_arrays(self.members_)}
        return {"oob_significance": self.oob_significance_}, arrays

    def _set_state(self, attributes: dict[str, Any], arrays: StoredArrays) -> None:
        self._trees = GrownTrees.from_arrays(arrays, self.n_features_in_)
        self.used_features_ = arrays.take("used_features", np.bool_, self.n_features_in_)
        self.members_ = members_from_arrays(arrays, len(self._trees.flat.depths))
        self.oob_significance_ = float(attributes["oob_significance"])


@dataclass(frozen=True)
class ForestPlan:
    """What the parameters of a forest mean for its growth, wherever its events are."""

    alpha: float
    members: MemberPlan
    max_depth: int | None
    rule: OutOfBagRule  # how the threshold is tuned
    seed: int  # of everything random
    verbose: bool

    def grow(self, grower: TreeGrower) -> GrownForest:
        """Grow all trees, with a progress bar."""
        with progress_bar("Growing trees", self.members.n_expected, shown=self.verbose) as tick:
            return self.members.grow(grower, tick)

    def settings(self, n_events: int, used: NDArray[np.int64]) -> ensemble.GrowthSettings:
        """Return what shapes all trees besides the events."""
        max_depth = None if self.max_depth is None else min(self.max_depth, n_events)
        return ensemble.GrowthSettings(max_depth, self.alpha, used)


class _GrowerInMemory:
    """Grows trees on events in memory, and counts their scores."""

    def __init__(self, events: ensemble.BinnedEvents, on: BoolArray, plan: ForestPlan, n_threads: int) -> None:
        self.n_events, self.n_features = len(on), events.n_features
        self._events, self._on, self._plan, self._n_threads = events, on, plan, n_threads
        weights = events.bag.weights
        self._share = float(on.mean() if weights is None else exact_sum(weights[on]) / exact_sum(weights))
        self._units = label_units(weights)

    def grow(
        self, trees: Sequence[ensemble.TreeSettings], used: NDArray[np.int64], tick: ensemble.Tick | None
    ) -> list[NDArray[np.int64]]:
        """Return the nodes of each tree."""
        return ensemble.grow_trees(self._events, trees, self._plan.settings(self.n_events, used), self._n_threads, tick)

    def assemble(self, tables: list[NDArray[np.int64]]) -> GrownTrees:
        """Return trees that score events."""
        return GrownTrees.from_tables(tables, self._events.edges, "fraction", self._plan.alpha, prior=self._share)

    def score(self, forests: Sequence[ensemble.BaggedTrees]) -> list[FloatArray]:
        """Return out-of-bag scores from each of some forests."""
        return ensemble.score_out_of_bag(self._events.codes, 0, forests, self._n_threads, self._events.bag)

    def count_scores(self, forests: Sequence[ensemble.BaggedTrees]) -> LabelCounts:
        """Count events by their out-of-bag scores from each of some forests."""
        counts = np.zeros((len(forests), 2, N_CELLS), dtype=np.int64)
        for own, score in zip(counts, self.score(forests), strict=True):
            count_labels(self._on, score, self._units, own)
        return counts if self._units is None else units_to_events(counts)

    def count_without(self, forest: ensemble.BaggedTrees, features: NDArray[np.int64]) -> LabelCounts:
        """Count events by their out-of-bag scores less what each of some features contributes."""
        total = np.zeros((len(features), 2, N_CELLS), dtype=np.int64)
        lock = Lock()

        def count(rows: slice, scores: FloatArray, contributions: FloatArray) -> None:
            with lock:  # counting is quick beside the walk through the trees
                units = None if self._units is None else self._units[rows]
                count_labels_without(self._on[rows], scores, units, contributions, features, total)

        events = self._events
        ensemble.contributions_out_of_bag(events.codes, 0, self.n_features, forest, count, self._n_threads, events.bag)
        return total if self._units is None else units_to_events(total)
