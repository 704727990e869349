"""A random forest on On and Off events, with a threshold tuned on its out-of-bag scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import BoolArray, FloatArray, as_int, as_random_state, as_scalar_alpha
from excess._core.progress import progress_bar
from excess._core.rng import LARGEST_FACTOR
from excess._core.threads import n_threads
from excess.estimators._forest import ensemble
from excess.estimators._forest.bags import WHOLE, Bag
from excess.estimators._forest.criterion import CRITERIA
from excess.estimators.calibration import calibrate
from excess.estimators.grown_trees import BaseOnOffTrees, GrownTrees, check_growth, resolve_max_features
from excess.estimators.model_state import State, StoredArrays, saveable
from excess.stats.curve import ThresholdCurve
from excess.stats.score_kernels import LOG_LIKELIHOOD_SCALE, sum_weighted_log_likelihood
from excess.stats.thresholds import OutOfBagRule, out_of_bag_rule

__all__ = ["OnOffForestClassifier"]

LEAF_SIZES = (160, 40, 10)
"""What ``min_samples_leaf="auto"`` chooses from, in this order; the largest is the fastest to grow."""


@saveable
class OnOffForestClassifier(BaseOnOffTrees):
    """Random forest that is grown on noisy On/Off labels, with a threshold tuned on its out-of-bag scores.

    Parameters
    ----------
    n_estimators : int, default=200
        Number of trees.
    alpha : float, default=1.0
        Exposure ratio On/Off.
    criterion : {"mixed", "information", "li_ma"}, default="mixed"
        What a split maximises: information gain (Eq. 7 of the paper), the larger significance of the two sides
        (Eq. 6), or the one in every other tree and the other in the rest.
    max_depth : int or None, default=None
        Largest number of cuts on the way to a leaf.
    min_samples_leaf : int or "auto", default="auto"
        Fewest events in a leaf, bootstrap weights included. ``"auto"`` grows a forest with 160, then with 40,
        then with 10, as long as the out-of-bag likelihood increases, and keeps the best.
    max_features : int, float, "sqrt", "log2" or None, default="sqrt"
        Features that a node looks at, drawn anew for each; None is all of them.
    max_bins : int or None, default=255
        Bins of a feature, at most 255. A feature with no more distinct values than that is searched exactly; None
        searches every distinct value of all features.
    output : {"fraction", "assignment"}, default="fraction"
        What a tree says about an event: the On fraction of its leaf, or 0 and 1 by the leaf's assignment, as in the
        paper's ensembles.
    threshold : str, callable or float, default="significance"
        Rule for the threshold on the out-of-bag scores, ``"significance"``, ``"menon"``, ``"mithal"``, ``"yao"``,
        ``"default"`` or a function of ``(y, score, alpha)``, which gets True for On as ``y``; or the threshold itself.
    threshold_tolerance : float, default=4.0
        With ``threshold="significance"``, take the strictest cut whose squared significance is within this of the best,
        two sigma by default; 0 is the best cut itself. See `significance_threshold`.
    n_threshold_bootstrap : int, default=25
        With ``threshold="significance"``, take the median threshold over so many resamples; 0 for none.
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
    min_samples_leaf_ : int
        The leaf size in use.
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
    On 351, Off 49, alpha 0.2: excess 341.2 +- 18.8, 31.3 sigma
    """

    _largest_weight = LARGEST_FACTOR

    def __init__(
        self,
        n_estimators: int = 200,
        alpha: float = 1.0,
        *,
        criterion: str = "mixed",
        max_depth: int | None = None,
        min_samples_leaf: int | str = "auto",
        max_features: int | float | str | None = "sqrt",
        max_bins: int | None = 255,
        output: str = "fraction",
        threshold: str | Callable[..., float] | float = "significance",
        threshold_tolerance: float = 4.0,
        n_threshold_bootstrap: int = 25,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.alpha = alpha
        self.criterion = criterion
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
            tree when the tree has seen nothing of its group, so that leaf size, threshold and calibration are tuned for
            events of groups that the forest has not seen.
        sample_weight : array-like of shape (n_events,) or None, default=None
            The number of events that each event stands for, at least 0. Whole numbers are repeated events, bit for bit;
            as these do, the copies of an event fall into different bags, unless they have a group of their own. With
            other weights, at most 16, an event counts in a bag by its bootstrap weight times this, rounded up or down
            at random; the out-of-bag curve counts weights, and ``threshold`` must be ``"significance"`` or a number.

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
        size = self.min_samples_leaf
        if isinstance(size, str) and size != "auto":
            raise ValueError(f"min_samples_leaf must be a number or 'auto', got {size!r}")
        sizes = LEAF_SIZES if isinstance(size, str) else (as_int("min_samples_leaf", size, minimum=1),)
        rule = out_of_bag_rule(self)
        verbose = as_int("verbose", self.verbose, minimum=0) > 0
        seed = as_random_state(self.random_state).randint(2**31 - 1)
        if self.criterion == "mixed":
            criteria = [tuple(CRITERIA.values())[tree % 2] for tree in range(n_trees)]
        else:
            criteria = [CRITERIA[self.criterion]] * n_trees
        keys = ensemble.tree_keys(seed, n_trees)
        return ForestPlan(alpha, keys, criteria, self.max_depth, sizes, rule, seed, verbose)

    def _fit(self, plan: ForestPlan, X: NDArray[Any], on: BoolArray, bag: Bag = WHOLE) -> None:
        leaf_size, trees, score = self._grow(plan, X, on, bag)  # its copy of the events is gone when it returns
        self._finish(trees, leaf_size, *plan.rule(on, score, plan.alpha, plan.seed, bag.weights), score)

    def _grow(self, plan: ForestPlan, X: NDArray[Any], on: BoolArray, bag: Bag) -> tuple[int, GrownTrees, FloatArray]:
        """Return leaf size, trees and out-of-bag scores."""
        threads = n_threads(self.n_jobs)
        events = self._bin_events(X, on, threads, bag)
        max_features = resolve_max_features(self.max_features, X.shape[1])

        def grow(leaf_size: int, tick: ensemble.Tick) -> GrownTrees:
            settings = plan.settings(len(X), leaf_size, max_features)
            tables = ensemble.grow_trees(events, plan.keys, plan.criteria, settings, threads, tick)
            return GrownTrees.from_tables(
                tables, events.edges, "fraction", plan.alpha, prior=np.average(on, weights=bag.weights)
            )

        def out_of_bag(trees: GrownTrees) -> FloatArray:
            return ensemble.score_out_of_bag(events.codes, 0, trees.flat, trees.values, plan.keys, threads, bag)

        def log_likelihood(trees: GrownTrees) -> tuple[int, float]:
            return sum_weighted_log_likelihood(on, out_of_bag(trees), bag.weights)

        leaf_size, trees = plan.grow(len(X), grow, log_likelihood)
        if self.output == "assignment":
            trees = trees.with_votes(plan.alpha)
        return leaf_size, trees, out_of_bag(trees)

    def _finish(
        self,
        trees: GrownTrees,
        leaf_size: int,
        threshold: float,
        curve: ThresholdCurve,
        oob_score: FloatArray | None,
    ) -> None:
        """Set the attributes of a fitted forest, all at once."""
        self.threshold_ = threshold
        self.min_samples_leaf_ = leaf_size
        self.curve_ = curve
        self.calibration_ = calibrate(curve)
        self._oob_score = oob_score
        self.oob_significance_ = max(self.tuned_counts_.significance, 0.0)
        self._trees = trees

    def _get_state(self) -> State:
        attributes = {"min_samples_leaf": self.min_samples_leaf_, "oob_significance": self.oob_significance_}
        return attributes, self._trees.to_arrays()

    def _set_state(self, attributes: dict[str, Any], arrays: StoredArrays) -> None:
        self._trees = GrownTrees.from_arrays(arrays, self.n_features_in_)
        self.min_samples_leaf_ = int(attributes["min_samples_leaf"])
        self.oob_significance_ = float(attributes["oob_significance"])


@dataclass(frozen=True)
class ForestPlan:
    """What the parameters of a forest mean for its growth, wherever its events are."""

    alpha: float
    keys: NDArray[np.uint64]  # from which the random choices of each tree follow
    criteria: list[int]  # of each tree
    max_depth: int | None
    wanted_leaf_sizes: tuple[int, ...]  # to choose from
    rule: OutOfBagRule  # how the threshold is tuned
    seed: int  # of everything random
    verbose: bool

    def grow(
        self,
        n_events: int,
        grow: Callable[[int, ensemble.Tick], GrownTrees],
        log_likelihood: Callable[[GrownTrees], tuple[int, float]],
    ) -> tuple[int, GrownTrees]:
        """Grow a forest of each leaf size as long as they get better; return the leaf size of the best, and its trees.

        ``grow`` grows all trees of a leaf size, and ticks for each. ``log_likelihood`` returns the out-of-bag
        log-likelihood of the labels under some trees, summed in whole units, and the number of events in the sum.
        """
        first, *smaller = (min(size, n_events) for size in self.wanted_leaf_sizes)
        n_trees = len(self.keys)
        with progress_bar("Growing trees", n_trees * (1 + len(smaller)), shown=self.verbose) as tick:
            best = first, grow(first, tick)
            if smaller:
                likelihood = mean_log_likelihood(*log_likelihood(best[1]))
            for number, size in enumerate(smaller, start=1):
                trees = grow(size, tick)
                before, likelihood = likelihood, mean_log_likelihood(*log_likelihood(trees))
                if likelihood <= before:
                    tick(n_trees * (len(smaller) - number))
                    break
                best = size, trees
        return best

    def settings(self, n_events: int, leaf_size: int, max_features: int) -> ensemble.GrowthSettings:
        """Return what shapes each tree besides the events."""
        max_depth = None if self.max_depth is None else min(self.max_depth, n_events)
        return ensemble.GrowthSettings(max_depth, leaf_size, max_features, self.alpha, bootstrap=True)


def mean_log_likelihood(total: int, n: float) -> float:
    """Return the mean log-likelihood of labels under their out-of-bag On fractions, from its sum in whole units."""
    return total / LOG_LIKELIHOOD_SCALE / n if n > 0 else -np.inf
