"""A decision tree on On and Off events, split by significance or by information."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from excess._core.checks import BoolArray, FloatArray, as_choice, as_column, as_int, as_random_state, as_scalar_alpha
from excess.estimators._forest import ensemble
from excess.estimators._forest.bags import WHOLE, Bag
from excess.estimators._forest.criterion import CRITERIA
from excess.estimators._forest.splitting import SPLITTERS
from excess.estimators.calibration import calibrate_out_of_fold
from excess.estimators.grown_trees import BaseOnOffTrees, GrownTrees, check_growth, resolve_max_features
from excess.estimators.model_state import State, StoredArrays, require, saveable
from excess.estimators.tree_drawing import TreeView, draw_tree, tree_text
from excess.stats.curve import compute_cell_curve

__all__ = ["OnOffTreeClassifier"]

_ROUNDED = 1e-6
"""What a leaf may lack of the weight it needs, because weights are rounded."""


@saveable
class OnOffTreeClassifier(BaseOnOffTrees):
    """Decision tree that is grown on noisy On/Off labels.

    Parameters
    ----------
    alpha : float or None, default=None
        Exposure ratio On/Off. ``fit`` needs it; `cross_val_detect` and `null_test` set it.
    criterion : {"information", "li_ma"}, default="information"
        What a split maximises: ``S_left^2 + S_right^2``, which is information gain whatever alpha is (Eq. 7 of the
        paper), or ``max(S_left, S_right)``, one-sided (Eq. 6). A node is not split when that does not increase.
    splitter : {"best", "random"}, default="best"
        What a node tries on each of its features: all cuts, to find the best, or a single one that is drawn at random.
    max_depth : int or None, default=None
        Largest number of cuts on the way to a leaf.
    min_samples_leaf : int, default=1
        Fewest events in a leaf.
    max_features : int, float, "sqrt", "log2" or None, default=None
        Features that a node looks at, drawn anew for each; None is all of them.
    max_bins : int or None, default=255
        Bins of a feature, at most 255. A feature with no more distinct values than that is searched exactly; None
        searches every distinct value of all features, as the paper says.
    output : {"fraction", "assignment"}, default="fraction"
        What ``predict_proba`` gives: the On fraction of the leaf, or 0 and 1 by the leaf's assignment.
    random_state : int, RandomState instance or None, default=None
        Seed of the features that nodes look at, and of random cuts.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Off and On.
    threshold_ : float
        A leaf is assigned to signal when its score exceeds it.
    curve_ : ThresholdCurve
        The training events at every cut of their leaf's score.
    calibration_ : SignalCalibration
        What a score says about signal, by five trees that were each grown on four fifths of the events and scored the
        rest; ``signal_ratio`` and ``predict_signal_proba`` use it.
    n_features_in_, feature_names_in_
        Number of features, and their names if X had any.
    feature_importances_ : ndarray of shape (n_features,)
        Information gain through each feature, normalised to 1.

    See Also
    --------
    OnOffForestClassifier : Many such trees, with an out-of-bag threshold.
    assign_cells : How leaves are assigned.

    Notes
    -----
    ``predict`` selects the leaves that together have the largest significance on the training events: the exact
    assignment, for either output. Labels are noisy, so a tree without limits fits the noise; give it a depth or a
    leaf size.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffTreeClassifier, inject_label_noise
    >>> X, y = make_classification(5000, n_features=4, weights=[0.9], class_sep=2.0, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> tree = OnOffTreeClassifier(alpha=1 / 5, max_depth=2, min_samples_leaf=50).fit(X, on)
    >>> print(tree.export_text(["size", "width", "length", "area"]))
    all events               On 1234  Off 3766    14.4 sigma
    |-- length <= -0.3423    On  465  Off   35    37.8 sigma
    |   |-- area <= 1.979    On  345  Off   21    32.9 sigma  signal
    |   `-- area > 1.979     On  120  Off   14    18.6 sigma  signal
    `-- length > -0.3423     On  769  Off 3731     0.8 sigma
        |-- size <= -3.2895  On    7  Off   93    -2.9 sigma  background
        `-- size > -3.2895   On  762  Off 3638     1.2 sigma  background
    """

    _weight_parameter = "sample_weight"

    def __init__(
        self,
        alpha: float | None = None,
        *,
        criterion: str = "information",
        splitter: str = "best",
        max_depth: int | None = None,
        min_samples_leaf: int = 1,
        max_features: int | float | str | None = None,
        max_bins: int | None = 255,
        output: str = "fraction",
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.criterion = criterion
        self.splitter = splitter
        self.max_depth = max_depth
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.max_bins = max_bins
        self.output = output
        self.random_state = random_state

    def _plan(self) -> tuple[float, int, int]:
        """Check all parameters; return exposure ratio, leaf size and seed."""
        alpha = as_scalar_alpha(self.alpha)
        check_growth(self, tuple(CRITERIA))
        as_choice("splitter", self.splitter, tuple(SPLITTERS))
        min_samples_leaf = as_int("min_samples_leaf", self.min_samples_leaf, minimum=1)
        return alpha, min_samples_leaf, as_random_state(self.random_state).randint(2**31 - 1)

    def fit(self, X: ArrayLike, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from On and Off events, and choose the threshold.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events; NaN is a missing value.
        y : array-like of shape (n_events,)
            Noisy labels of two classes; the larger one in sorted order is On.
        sample_weight : array-like of shape (n_events,) or None, default=None
            The number of events that each event stands for, at least 0. Whole numbers are repeated events, bit for bit.
            Others are rounded to a multiple of about 10^-9 of their sum. Counts and ``min_samples_leaf`` are sums of
            weights; bins are cut by events that are not weighted, unless all weights are whole numbers.

        Returns
        -------
        self
        """
        return self._fit_weighted(X, y, None, sample_weight)

    def _fit(self, plan: tuple[float, int, int], X: NDArray[Any], on: BoolArray, bag: Bag = WHOLE) -> None:
        alpha, weights = plan[0], bag.weights
        trees = self._grow(plan, X, on, weights)
        leaves = trees.leaves
        curve = compute_cell_curve(trees.values[leaves], trees.n_on[leaves], trees.n_off[leaves], alpha)

        def score(train: BoolArray, held_out: BoolArray) -> FloatArray:
            other = self._grow(plan, X[train], on[train], None if weights is None else weights[train])
            return ensemble.mean_scores(X[held_out], other.edges, other.flat, other.values, n_threads=1)

        # scores jump from leaf to leaf, which a smooth curve does not follow
        self.calibration_ = calibrate_out_of_fold(on, alpha, score, weights=weights, smooth=False)
        self.curve_, self.threshold_ = curve, curve.best_threshold
        self._trees, self._has_missing = trees, np.isnan(X).any(axis=0)

    def _grow(
        self, plan: tuple[float, int, int], X: NDArray[Any], on: BoolArray, weights: FloatArray | None
    ) -> GrownTrees:
        """Grow a tree on some events."""
        alpha, min_samples_leaf, seed = plan
        max_depth = None if self.max_depth is None else min(self.max_depth, len(X))
        bag, factor = (WHOLE, 1.0) if weights is None else Bag.in_fixed_point(weights)
        leaf_size = min(min_samples_leaf, len(X))
        if weights is not None:
            leaf_size = math.ceil(min(min_samples_leaf, weights.sum()) * factor * (1 - _ROUNDED))
        tree = ensemble.TreeSettings(
            ensemble.tree_keys(seed, 1)[0],
            CRITERIA[self.criterion],
            SPLITTERS[self.splitter],
            leaf_size,
            resolve_max_features(self.max_features, X.shape[1]),
        )
        settings = ensemble.GrowthSettings(max_depth, alpha, np.arange(X.shape[1]), bootstrap=False)
        events = self._bin_events(X, on, 1, bag)
        tables = ensemble.grow_trees(events, [tree], settings, n_threads=1)
        trees = GrownTrees.from_tables(tables, events.edges, self.output, alpha, prior=on.mean())
        return trees if weights is None else replace(trees, n_on=trees.n_on / factor, n_off=trees.n_off / factor)

    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the number of the leaf that each event reaches.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events; NaN is a missing value.

        Returns
        -------
        ndarray of int64 of shape (n_events,)
            Nodes are numbered level by level, from the root, which is 0.
        """
        X = self._check_new_events(X)
        return ensemble.leaf_numbers(X, self._trees.edges, self._trees.flat, n_threads=1)[:, 0]

    def get_depth(self) -> int:
        """Return the number of cuts on the way to the deepest leaf."""
        check_is_fitted(self)
        return int(self._trees.flat.depths[0])

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        check_is_fitted(self)
        return int(np.count_nonzero(self._trees.leaves))

    def export_text(self, feature_names: ArrayLike | None = None, *, max_depth: int | None = None) -> str:
        """Return the tree as text: one line per node, with its cut, counts and significance.

        Parameters
        ----------
        feature_names : array-like of str or None, default=None
            Names of the features; by default those that ``fit`` saw, else ``x0``, ``x1``, and so on.
        max_depth : int or None, default=None
            Deepest level to show.

        Returns
        -------
        str
            Lines without a trailing newline. A leaf says whether it is assigned to signal or background.
        """
        return tree_text(self._view(feature_names), max_depth)

    def plot_tree(self, feature_names: ArrayLike | None = None, *, max_depth: int | None = 4, ax: Any = None) -> Any:
        """Draw the tree, each node with its cut and counts, coloured by its significance.

        Parameters
        ----------
        feature_names : array-like of str or None, default=None
            As for `export_text`.
        max_depth : int or None, default=4
            Deepest level to draw; None for all, which is too many to read in a tree that was grown without limits.
        ax : matplotlib axes or None, default=None
            Where to draw; by default in a new figure.

        Returns
        -------
        matplotlib axes
            The axes that were drawn on.
        """
        return draw_tree(self._view(feature_names), max_depth, ax)

    def _get_state(self) -> State:
        return {}, {**self._trees.to_arrays(), "has_missing": self._has_missing}

    def _set_state(self, attributes: dict[str, Any], arrays: StoredArrays) -> None:
        self._trees = GrownTrees.from_arrays(arrays, self.n_features_in_)
        require(len(self._trees.flat.depths) == 1, "it has several trees")
        self._has_missing = arrays.take("has_missing", np.bool_, self.n_features_in_)

    def _view(self, feature_names: ArrayLike | None) -> TreeView:
        check_is_fitted(self)
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        names = [str(name) for name in as_column("feature_names", feature_names)]
        if len(names) != self.n_features_in_:
            raise ValueError(f"feature_names must be {self.n_features_in_} names, got {len(names)}")
        trees = self._trees
        shown = trees.flat.nodes, trees.edges, trees.n_on, trees.n_off, trees.values > self.threshold_
        return TreeView(*shown, self.curve_.alpha, names, self._has_missing)
