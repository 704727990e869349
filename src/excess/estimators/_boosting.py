"""Gradient-boosted trees of scikit-learn as arrays, stored in model files and evaluated by the forest kernels."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import ThreadpoolController

from excess._utils.checks import FloatArray, binary_classes
from excess.estimators._forest import ensemble
from excess.estimators._forest.predictor import flatten
from excess.estimators._model_file import ensure, saveable
from excess.estimators._tree import ScoringTrees


@dataclass(frozen=True)
class BoostedTrees(ScoringTrees):
    """Trees whose values sum to the log-odds of the second class."""

    baseline: float  # log-odds before the first tree

    def __repr__(self) -> str:
        return f"<{len(self.flat.depths)} trees>"

    @classmethod
    def of(cls, model: HistGradientBoostingClassifier) -> Self:
        """Return the trees of a fitted classifier; raise TypeError for several classes or categorical features."""
        check_is_fitted(model)
        nodes = [own.nodes for iteration in model._predictors for own in iteration]
        if model.n_trees_per_iteration_ != 1 or any(own["is_categorical"].any() for own in nodes):
            raise TypeError("boosted trees must have two classes and no categorical features")
        together = np.concatenate(nodes)
        cuts = together[(together["is_leaf"] == 0) & np.isfinite(together["num_threshold"])]
        feature, values = cuts["feature_idx"], cuts["num_threshold"]
        edges = [np.unique(values[feature == number]) for number in range(model.n_features_in_)]
        orders = [_breadth_first(own) for own in nodes]
        flat = flatten([_to_table(own, order, edges) for own, order in zip(nodes, orders, strict=True)])
        ordered = np.concatenate([own[order] for own, order in zip(nodes, orders, strict=True)])
        values = np.where(ordered["is_leaf"], ordered["value"], 0.0)
        return cls(flat, edges, values, float(model._baseline_prediction.item()))

    def check(self) -> None:
        """Also check that scores are numbers, and that events descend as in training."""
        super().check()
        ensure(np.isfinite(self.values).all() and np.isfinite(self.baseline), "a value of its trees is not finite")
        ascending = all(np.isfinite(own).all() and (np.diff(own) > 0).all() for own in self.edges)
        ensure(ascending, "thresholds of a feature are not finite, or do not ascend")


def _breadth_first(nodes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the node numbers level by level, the right child after the left one, as required by the kernels."""
    levels, level = [], np.zeros(1, dtype=np.int64)
    while len(level):
        levels.append(level)
        inner = nodes[level[nodes["is_leaf"][level] == 0]]
        level = np.column_stack([inner["left"], inner["right"]]).astype(np.int64).reshape(-1)
    return np.concatenate(levels)


def _to_table(nodes: NDArray[Any], order: NDArray[np.int64], edges: list[FloatArray]) -> NDArray[np.int64]:
    """Return feature, shift, limit and left child of the nodes of a tree in this order; see `grower`."""
    place = np.empty(len(nodes), dtype=np.int64)
    place[order] = np.arange(len(nodes))
    nodes = nodes[order]
    leaves = nodes["is_leaf"] != 0
    features = np.where(leaves, 0, nodes["feature_idx"])
    # an infinite threshold is above the last edge: all non-missing values go left
    below = [np.searchsorted(edges[own["feature_idx"]], own["num_threshold"]) for own in nodes[~leaves]]
    shift, limit = np.zeros(len(nodes), dtype=np.int64), np.zeros(len(nodes), dtype=np.int64)
    # codes start at 1, and 0 is missing: with a shift of 1 it becomes the largest code, which goes right
    shift[~leaves] = nodes["missing_go_to_left"][~leaves] == 0
    limit[~leaves] = np.array(below, dtype=np.int64) + 1 - shift[~leaves]
    limit[leaves] = np.iinfo(ensemble.edges_code_type(edges)).max  # no code is above it: a leaf leads to itself
    left = np.where(leaves, np.arange(len(nodes)), place[np.where(leaves, 0, nodes["left"])])
    return np.column_stack([features, shift, limit, left])


@saveable
class BoostedClassifier(ClassifierMixin, BaseEstimator):
    """A fitted `HistGradientBoostingClassifier` of two classes; ``fit`` and ``clone`` return the classifier itself."""

    _in_state = ("model", "feature_names", "classes")

    def __init__(self, model: Any, *, feature_names: Any = None, classes: Any = None) -> None:
        self.model, self.feature_names, self.classes = model, feature_names, classes
        self.trees_ = model if isinstance(model, BoostedTrees) else BoostedTrees.of(model)
        self.n_features_in_ = len(self.trees_.edges)
        self.classes_ = np.array(binary_classes(model.classes_ if classes is None else classes, name="classes"))
        names = getattr(model, "feature_names_in_", None) if feature_names is None else feature_names
        if names is not None:
            known = len(names) == self.n_features_in_ and all(isinstance(name, str) for name in names)
            ensure(known, f"feature_names are not {self.n_features_in_} strings")
            self.feature_names_in_ = np.array(names, dtype=object)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Return the classifier unchanged; arguments are ignored."""
        return self

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of ``classes_``, of shape (n_events, 2); NaN is a missing value."""
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
        trees = self.trees_
        mean = ensemble.mean_scores(X, trees.edges, trees.flat, trees.values, n_threads=1)
        score = expit(trees.baseline + len(trees.flat.depths) * mean)
        return np.column_stack([1 - score, score])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the more probable class of events; shape (n_events,)."""
        return self.classes_[(self.predict_proba(X)[:, 1] > 0.5).astype(np.intp)]

    def __sklearn_clone__(self) -> Self:
        """Return the classifier itself, as frozen estimators of scikit-learn do."""
        return self

    def _get_state(self) -> BoostedTrees:
        return self.trees_

    @classmethod
    def _from_state(cls, state: BoostedTrees, feature_names: list[str] | None, classes: NDArray[Any]) -> Self:
        return cls(state, feature_names=feature_names, classes=classes)


def train_boosting(X: ArrayLike, y: ArrayLike, **parameters: Any) -> BoostedClassifier:
    """Train boosted trees of two classes, reproducible to the bit on any number of cores."""
    # scikit-learn sums gradients in the order in which threads finish
    with ThreadpoolController().limit(limits=1, user_api="openmp"):
        return BoostedClassifier(HistGradientBoostingClassifier(**parameters).fit(X, y))
