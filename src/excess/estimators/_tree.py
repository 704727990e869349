"""Decision tree on On and Off events, split by significance or information; common parts of trees and forests."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.utils.validation import check_is_fitted

from excess._utils.checks import BoolArray, FloatArray, as_choice, as_column, as_int, as_random_state, as_scalar_alpha
from excess._utils.errors import require
from excess._utils.threads import n_threads
from excess.estimators._base import BaseOnOffClassifier, EventWeights, calibrate_out_of_fold, make_bag, store_parameters
from excess.estimators._forest import ensemble
from excess.estimators._forest.binning import MAX_NARROW_BINS
from excess.estimators._forest.ensemble import WHOLE, Bag, compile_kernels
from excess.estimators._forest.grower import N_OFF, N_ON
from excess.estimators._forest.predictor import FlatTrees, flatten, leaf_mask
from excess.estimators._forest.splitting import CRITERIA, SPLITTERS
from excess.estimators._model_file import ensure, saveable
from excess.stats._significance import li_ma_significance
from excess.stats._thresholds import assign_cells, compute_cell_curve

_MAX_EVENTS = 2**31 - 1
_FREQUENT = 20  # minimum number of events to order a category by its On fraction


class BaseOnOffTrees(BaseOnOffClassifier):
    """Base of On/Off trees and forests."""

    _takes_missing = True
    _largest_weight = math.inf
    _trees: GrownTrees
    _oob_score: FloatArray | None
    _categories: dict[int, list[Any]] = {}  # noqa: RUF012 - by the number of their feature; set by fit, never changed
    max_bins: int | None

    @property
    def feature_importances_(self) -> FloatArray:
        """Information gain through each feature, summed over all splits and normalised to 1."""
        check_is_fitted(self)
        gain = self._trees.gain(self.n_features_in_)
        return gain / gain.sum() if gain.sum() > 0 else gain

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether trees have been grown."""
        return hasattr(self, "_trees")

    def _fit_weighted(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None, sample_weight: Any) -> Self:
        """Fit to events with groups and weights, which may be None."""
        plan = self._plan()
        events, on, classes = self._checked_events(X, y)
        weights = EventWeights.of(sample_weight, on, self._largest_weight)
        self._fit(plan, weights.take(events), weights.take(on), make_bag(groups, weights, len(on)))
        score = self.__dict__.get("_oob_score")
        if score is not None:
            self._oob_score = weights.mean_of_copies(score, len(on))
        self.classes_ = classes
        return self

    def _validate(self, X: Any, *y: Any, **options: Any) -> Any:
        """Return events as floats, with category codes, and y if given."""
        is_frame = hasattr(X, "iloc") and hasattr(X, "dtypes")
        if options.get("reset", True):
            self._categories = _find_categories(X, y[0], self.max_bins) if is_frame else {}
        if self._categories:
            if not is_frame or len(X.columns) <= max(self._categories):
                raise ValueError("X must be a data frame with the columns of fit, some of which are categories")
            X = X.copy(deep=False)
            for number, values in self._categories.items():
                codes = X.iloc[:, number].astype("category").cat.set_categories(values).cat.codes.to_numpy()
                X.isetitem(number, np.where(codes < 0, np.nan, codes))  # missing, or unknown in fit
        return super()._validate(X, *y, **options)

    def _bin_events(self, X: NDArray[Any], on: BoolArray, n_threads: int, bag: Bag = WHOLE) -> ensemble.BinnedEvents:
        """Return events as records of codes, after compiling the kernels for them."""
        if len(X) > _MAX_EVENTS:
            raise ValueError(f"X has {len(X)} events; at most {_MAX_EVENTS} are possible at a time")
        compile_kernels(X, self.max_bins)
        return ensemble.bin_events(X, on, self.max_bins, n_threads, bag)

    def contributions(self, X: ArrayLike) -> FloatArray:
        """Return the contribution of each feature to the score of events; shape (n_events, n_features + 1).

        The last column is the mean score at the roots of the trees; a row including it sums to the score of the event,
        ``predict_proba(X)[:, 1]``. A cut contributes the difference of the On fractions below and above it to its
        feature; this is not meaningful with ``output="assignment"``. For plots of shap, use
        ``shap.Explanation(found[:, :-1], found[:, -1], X)``.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            The events.

        Returns
        -------
        ndarray of shape (n_events, n_features + 1)
            Contributions of the features, and the mean score at the roots.

        Examples
        --------
        >>> import numpy as np
        >>> from excess import OnOffForestClassifier
        >>> X = np.random.default_rng(0).normal(size=(500, 3))
        >>> forest = OnOffForestClassifier(20, alpha=1.0, random_state=0).fit(X, X[:, 1] > 0.5)
        >>> found = forest.contributions(X)
        >>> bool(np.allclose(found.sum(axis=1), forest.predict_proba(X)[:, 1]))
        True
        >>> int(np.abs(found[:, :-1]).mean(axis=0).argmax())
        1
        """
        X, trees = self._check_new_events(X), self._trees
        threads = n_threads(getattr(self, "n_jobs", None))
        return ensemble.mean_contributions(X, trees.edges, trees.flat, trees.values, threads)

    def to_shap(self) -> dict[str, Any]:
        """Return the trees as the dictionary accepted by ``shap.TreeExplainer`` in place of a model.

        Its ``shap_values(X)`` are much slower than `contributions`. Raises TypeError for categorical features.

        Returns
        -------
        dict
            With ``"trees"``, a list of dictionaries of arrays, one for each tree.

        Examples
        --------
        >>> import numpy as np
        >>> from excess import OnOffForestClassifier
        >>> X = np.random.default_rng(0).normal(size=(500, 3))
        >>> forest = OnOffForestClassifier(20, alpha=1.0, random_state=0).fit(X, X[:, 1] > 0.5)
        >>> sorted(forest.to_shap()["trees"][0])[:3]
        ['children_default', 'children_left', 'children_right']
        """
        check_is_fitted(self)
        if self._categories:
            raise TypeError("shap does not support categorical features; encode them as numbers before the fit")
        trees, found = self._trees, []
        leaves, n_trees = trees.leaves, len(trees.flat.depths)
        padded = [np.concatenate([[-np.inf], edges, [np.inf]]) for edges in trees.edges]
        for first, last in pairwise(trees.flat.roots):
            feature, shift, limit, left = trees.flat.nodes[first:last].T.astype(np.int64)
            leaf, left = leaves[first:last], left - first
            cuts = [padded[j][n + s] for j, s, n in zip(feature, shift, np.where(leaf, 0, limit), strict=True)]
            columns = {"left": left, "right": left + 1, "default": left + shift}
            found.append({f"children_{name}": np.where(leaf, -1, column) for name, column in columns.items()})
            found[-1] |= {"features": np.where(leaf, -1, feature), "thresholds": np.where(leaf, -1.0, cuts)}
            found[-1] |= {"values": trees.values[first:last, None] / n_trees}
            found[-1] |= {"node_sample_weight": (trees.n_on + trees.n_off)[first:last].astype(np.float64)}
        return {"trees": found, "internal_dtype": np.float64, "input_dtype": np.float64}

    def _score(self, X: ArrayLike) -> FloatArray:
        X, trees = self._check_new_events(X), self._trees
        return ensemble.mean_scores(X, trees.edges, trees.flat, trees.values, n_threads(getattr(self, "n_jobs", None)))


def _find_categories(X: Any, y: Any, max_bins: int | None) -> dict[int, list[Any]]:
    """Return the ordered categories of the categorical columns of a data frame, by the index of the column."""
    found, is_on = {}, np.asarray(y == np.unique(y)[-1:]) if len(y) == len(X) else np.zeros(len(X), dtype=np.bool_)
    for number, (name, dtype) in enumerate(X.dtypes.items()):
        if getattr(dtype, "name", "") == "category":
            found[number] = _order_categories(X.iloc[:, number], is_on)
            if max_bins is not None and len(found[number]) > max_bins:
                problem = f"X has {len(found[number])} categories in the column {name!r}, above max_bins, {max_bins}"
                raise ValueError(f"{problem}; merge some, encode them as numbers, or set max_bins=None")
    return found


def _order_categories(column: Any, on: BoolArray) -> list[Any]:
    """Order categories by On fraction if these differ significantly, else as given, since noise would be fitted."""
    values, codes = column.cat.categories.tolist(), column.cat.codes.to_numpy()
    n, n_on = (np.bincount(codes[own], minlength=len(values)) for own in (codes >= 0, (codes >= 0) & on))
    frequent, mean = n >= _FREQUENT, n_on.sum() / max(n.sum(), 1)
    n_free = np.count_nonzero(frequent) - 1
    if column.cat.ordered or not 0 < mean < 1 or n_free < 1:
        return values
    chi2 = ((n_on - n * mean)[frequent] ** 2 / n[frequent]).sum() / (mean * (1 - mean))
    if chi2 < n_free + 3 * math.sqrt(2 * n_free):
        return values
    order = np.argsort(np.where(frequent, n_on / np.maximum(n, 1), mean), kind="stable")
    return [values[k] for k in order]


@dataclass(frozen=True)
class ScoringTrees:
    """Trees prepared to score events."""

    flat: Annotated[FlatTrees, ""]
    edges: Annotated[list[FloatArray], "features"]  # inner edges of each feature's bins
    values: Annotated[FloatArray, "nodes"]  # the score of a node

    def check(self) -> None:
        """Check assumptions of the kernels, which access memory at these indices without bounds checks."""
        nodes, roots, depths = self.flat
        ensure(len(nodes) < 2**32 and len(depths) > 0, "it has no trees, or too many nodes")
        ensure(((roots >= 0) & (roots <= len(nodes))).all(), "a root is none of its nodes")
        sizes = np.diff(roots)
        ensure(roots[0] == 0 and roots[-1] == len(nodes) and (sizes > 0).all(), "its roots do not span its nodes")
        ensure(((depths >= 0) & (depths < sizes)).all(), "a tree is deeper than it is large")
        feature, shift, limit, left = nodes.T
        last = np.repeat((roots[1:] - 1).astype(np.uint32), sizes)
        goes_on = (left > np.arange(len(nodes), dtype=np.uint32)) & (left < last)
        largest_code = np.iinfo(ensemble.edges_code_type(self.edges)).max
        stays = self.leaves & (shift == 0) & (limit == largest_code)
        ensure((goes_on | stays).all(), "a node has a child that is not of its tree")
        ensure((feature < len(self.edges)).all(), "a node cuts on a feature that does not exist")
        # packed into a word with the feature, which larger numbers would overwrite
        ensure(((shift <= 1) & (limit <= largest_code)).all(), "a node has a cut beyond the codes of its feature")

    @property
    def leaves(self) -> BoolArray:
        """True for leaves."""
        return leaf_mask(self.flat)


@dataclass(frozen=True)
class GrownTrees(ScoringTrees):
    """Trees of On and Off events; the value of a node is its On fraction, or for leaves 0 and 1 by assignment."""

    n_on: Annotated[NDArray[Any], "nodes"]  # training events in each node, including bootstrap weights
    n_off: Annotated[NDArray[Any], "nodes"]

    @classmethod
    def from_tables(
        cls, tables: list[NDArray[np.int64]], edges: list[FloatArray], output: str, alpha: float, prior: float
    ) -> GrownTrees:
        """Create trees from nodes; ``prior`` is the On fraction of a tree with an empty bag."""
        flat = flatten(tables)
        n_on = np.concatenate([table[:, N_ON] for table in tables])
        n_off = np.concatenate([table[:, N_OFF] for table in tables])
        n = n_on + n_off
        trees = cls(flat, edges, np.divide(n_on, n, out=np.full(len(n), prior), where=n > 0), n_on, n_off)
        return trees.with_votes(alpha) if output == "assignment" else trees

    def bagged(self, keys: NDArray[np.uint64]) -> ensemble.BaggedTrees:
        """Return the trees with their keys, to score out-of-bag events."""
        return ensemble.BaggedTrees(self.flat, self.values, keys)

    def with_votes(self, alpha: float) -> GrownTrees:
        """Return the same trees with leaf assignments 0 and 1 in place of On fractions."""
        votes, leaves = np.zeros(len(self.n_on)), self.leaves
        for first, last in pairwise(self.flat.roots):
            own = first + np.flatnonzero(leaves[first:last])
            votes[own] = assign_cells(self.n_on[own], self.n_off[own], alpha)
        return replace(self, values=votes)

    def gain(self, n_features: int) -> FloatArray:
        """Return the information gained by the splits on each feature."""
        inner = np.flatnonzero(~self.leaves)
        n = self.n_on + self.n_off
        information = xlogy(self.n_on, self.n_on) + xlogy(self.n_off, self.n_off) - xlogy(n, n)
        left = self.flat.nodes[inner, 3].astype(np.int64)
        gain = information[left] + information[left + 1] - information[inner]
        return np.bincount(self.flat.nodes[inner, 0], weights=gain, minlength=n_features).astype(np.float64)


def check_growth(estimator: Any, criteria: tuple[str, ...]) -> None:
    """Validate the parameters common to trees and forests."""
    as_choice("criterion", estimator.criterion, criteria)
    as_choice("output", estimator.output, ("fraction", "assignment"))
    if estimator.max_depth is not None:
        as_int("max_depth", estimator.max_depth, minimum=1)
    if estimator.max_bins is not None and as_int("max_bins", estimator.max_bins, minimum=2) > MAX_NARROW_BINS:
        most = f"at most {MAX_NARROW_BINS}, or None for every distinct value"
        raise ValueError(f"max_bins must be {most}, got {estimator.max_bins}")


def resolve_max_features(max_features: Any, n_features: int) -> int:
    """Return the number of features considered by a node."""
    if max_features is None:
        return n_features
    if isinstance(max_features, str):
        as_choice("max_features", max_features, ("sqrt", "log2"))
        return max(1, int(math.sqrt(n_features) if max_features == "sqrt" else math.log2(n_features)))
    if isinstance(max_features, (float, np.floating)):
        if not 0 < max_features <= 1:
            raise ValueError(f"max_features as a fraction must be in (0, 1], got {max_features:g}")
        return max(1, int(max_features * n_features))
    wanted = as_int("max_features", max_features, minimum=1)
    if wanted > n_features:
        raise ValueError(f"max_features must be at most the number of features, {n_features}, got {wanted}")
    return wanted


class _Shown(NamedTuple):
    """A displayed node."""

    node: int
    path: tuple[int, ...]  # sides of the cuts that lead to it: 0 for left, 1 for right
    cut: str
    remark: str  # its assignment, or a note that nodes below are hidden
    left: int | None  # its left child; the right one follows


class TreeView(NamedTuple):
    """The nodes of one tree, for text and drawings."""

    nodes: NDArray[np.uint32]
    edges: list[FloatArray]
    n_on: NDArray[np.int64]
    n_off: NDArray[np.int64]
    selected: BoolArray
    alpha: float
    names: list[str]
    has_missing: BoolArray
    categories: dict[int, list[Any]]

    def rows(self, max_depth: int | None) -> list[_Shown]:
        """Return the nodes to display, depth first."""
        deepest = -1 if max_depth is None else as_int("max_depth", max_depth, minimum=0)
        rows: list[_Shown] = []
        waiting: list[Any] = [(0, (), "all events")]  # a stack, because a tree may exceed the recursion limit
        while waiting:
            node, path, cut = waiting.pop()
            left = int(self.nodes[node, 3])
            if left == node:
                rows.append(_Shown(node, path, cut, "signal" if self.selected[node] else "background", None))
            elif len(path) == deepest:
                rows.append(_Shown(node, path, cut, "...", None))
            else:
                rows.append(_Shown(node, path, cut, "", left))
                cuts = self.cuts(node)
                waiting += [(left + side, (*path, side), cuts[side]) for side in (1, 0)]
        return rows

    def cuts(self, node: int) -> tuple[str, str]:
        """Return the conditions of the left and the right branch."""
        feature, shift, limit, _ = (int(number) for number in self.nodes[node])
        name = self.names[feature]
        n_bins_left = limit if shift == 0 else limit + 1
        edges = self.edges[feature]
        if n_bins_left == 0:
            return f"{name} missing", f"{name} present"
        if n_bins_left > len(edges):
            return f"{name} present", f"{name} missing"
        missing = [" or missing" if self.has_missing[feature] and side == shift else "" for side in (0, 1)]
        if (values := self.categories.get(feature)) is not None:
            n = math.floor(edges[n_bins_left - 1]) + 1
            left, right = (", ".join(map(str, own)) for own in (values[:n], values[n:]))
            return f"{name} in {left}{missing[0]}", f"{name} in {right}{missing[1]}"
        value = _format_edge(edges, n_bins_left - 1)
        return f"{name} <= {value}{missing[0]}", f"{name} > {value}{missing[1]}"

    def significance(self) -> FloatArray:
        """Return the signed significance of every node."""
        return li_ma_significance(self.n_on, self.n_off, self.alpha, signed=True)

    def text(self, max_depth: int | None) -> str:
        """Return one line per node: cut, counts, significance and, for a leaf, assignment."""
        rows, significance = self.rows(max_depth), self.significance()
        branches = [
            "".join("    " if side else "|   " for side in row.path[:-1])
            + "".join("`-- " if side else "|-- " for side in row.path[-1:])
            + row.cut
            for row in rows
        ]
        width = max(map(len, branches))
        on_width, off_width = (len(_format_count(counts[0])) for counts in (self.n_on, self.n_off))
        return "\n".join(
            f"{branch:{width}}  On {_format_count(self.n_on[row.node]):>{on_width}}"
            f"  Off {_format_count(self.n_off[row.node]):>{off_width}}"
            f"  {significance[row.node]:6.1f} sigma  {row.remark}".rstrip()
            for branch, row in zip(branches, rows, strict=True)
        )

    def draw(self, max_depth: int | None, ax: Any) -> Any:
        """Draw the tree with matplotlib and return the axes."""
        plt = require("matplotlib.pyplot", "plot_tree")
        from matplotlib.colors import TwoSlopeNorm

        rows, significance = self.rows(max_depth), self.significance()
        # ends of branches are next to each other, other nodes above the middle of their children
        across = {row.node: float(x) for x, row in enumerate(row for row in rows if row.left is None)}
        n_ends, depth = len(across), max(len(row.path) for row in rows)
        for row in reversed(rows):  # children come after their parents
            if row.left is not None:
                across[row.node] = (across[row.left] + across[row.left + 1]) / 2
        if ax is None:
            _, ax = plt.subplots(figsize=(max(4.0, 1.7 * n_ends), 1.3 * (depth + 1)), layout="constrained")
        reach = max(float(np.abs(significance).max()), 1e-9)
        norm, colours = TwoSlopeNorm(0.0, -reach, reach), plt.get_cmap("PuOr_r")
        centred = {"ha": "center", "va": "center", "fontsize": 7}
        for node, path, _, remark, left in rows:
            x, y = across[node], -len(path)
            if left is not None:
                # the two cuts are at different heights, so long names do not overlap
                for child, cut, way in zip((left, left + 1), self.cuts(node), (0.42, 0.62), strict=True):
                    ax.plot([x, across[child]], [y, y - 1], color="0.6", lw=1, zorder=1)
                    box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
                    ax.text(x + way * (across[child] - x), y - way, cut, zorder=2, bbox=box, **centred)
            counts = f"On {_format_count(self.n_on[node])}, Off {_format_count(self.n_off[node])}"
            said = f"{counts}\n{significance[node]:.1f} sigma" + (f"\n{remark}" if remark else "")
            shade = colours(norm(significance[node]))
            colour = "white" if np.dot(shade[:3], (0.299, 0.587, 0.114)) < 0.5 else "black"
            box = {"facecolor": shade, "edgecolor": "0.3", "boxstyle": "round,pad=0.4"}
            ax.text(x, y, said, zorder=3, color=colour, bbox=box, **centred)
        ax.set(xlim=(-0.7, n_ends - 0.3), ylim=(-depth - 0.5, 0.5))
        ax.axis("off")
        return ax


def _format_count(count: Any) -> str:
    """Format a count, which may be fractional if events have weights."""
    return str(count) if isinstance(count, np.integer) else f"{count:.1f}"


def _format_edge(edges: FloatArray, number: int) -> str:
    """Format an edge with as few digits, but at least four, as distinguish it from its neighbours."""
    edge = float(edges[number])
    gaps = np.abs(np.diff(edges[max(0, number - 1) : number + 2]))
    allowed = 0.01 * float(gaps.min()) if len(gaps) else 1e-3 * abs(edge)
    for digits in range(4, 18):
        text = f"{edge:.{digits}g}"
        if abs(float(text) - edge) <= allowed:
            break
    return text


_ROUNDED = 1e-6  # tolerance of the weight of a leaf, because weights are rounded


class _TreeState(NamedTuple):
    """Fitted state of a tree."""

    trees: Annotated[GrownTrees, ""]
    has_missing: Annotated[BoolArray, "features"]


@saveable
class OnOffTreeClassifier(BaseOnOffTrees):
    """Decision tree trained on noisy On/Off labels.

    Parameters
    ----------
    alpha : float or None, default=None
        Exposure ratio On/Off. Required by ``fit``; `cross_val_detect` and `null_test` set it.
    criterion : {"information", "li_ma"}, default="information"
        Split criterion: ``S_left^2 + S_right^2``, equivalent to information gain for any alpha (Eq. 7 of the paper), or
        ``max(S_left, S_right)``, one-sided (Eq. 6). A node is not split unless it increases.
    splitter : {"best", "random"}, default="best"
        Split search on each feature of a node: the best of all cuts, or one random cut.
    max_depth, max_bins
        As for `OnOffForestClassifier`.
    min_samples_leaf : int, default=1
        Minimum number of events in a leaf.
    max_features : int, float, "sqrt", "log2" or None, default=None
        Number of features drawn at each node; None uses all.
    output : {"fraction", "assignment"}, default="fraction"
        Output of ``predict_proba``: the On fraction of the leaf, or 0 and 1 by its assignment.
    random_state : int, RandomState instance or None, default=None
        Seed of the features drawn at nodes, and of random cuts.

    Attributes
    ----------
    threshold_ : float
        A leaf is assigned to signal if its score exceeds the threshold.
    curve_ : ThresholdCurve
        Training events at every cut on the score of their leaf.
    calibration_ : SignalCalibration
        Signal probability as a function of the score, by five-fold cross-validation.
    classes_, n_features_in_, feature_names_in_, feature_importances_
        As for `OnOffForestClassifier`.

    Notes
    -----
    ``predict`` selects the leaves with the largest joint significance on the training events; see `assign_cells`.
    Labels are noisy, so an unlimited tree fits the noise; set a depth or a leaf size.

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
        store_parameters(self, locals())

    def _plan(self) -> tuple[float, int, int]:
        """Validate all parameters; return exposure ratio, leaf size and seed."""
        alpha = as_scalar_alpha(self.alpha)
        check_growth(self, tuple(CRITERIA))
        as_choice("splitter", self.splitter, tuple(SPLITTERS))
        min_samples_leaf = as_int("min_samples_leaf", self.min_samples_leaf, minimum=1)
        return alpha, min_samples_leaf, as_random_state(self.random_state).randint(2**31 - 1)

    def fit(self, X: ArrayLike, y: ArrayLike, *, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to events and their noisy labels of two classes; the larger one in sorted order is On.

        NaN in X is a missing value, and columns of a data frame with the dtype ``category`` are categorical.
        ``sample_weight`` is the number of events represented by each event, at least 0. Integers are equivalent to
        repeated events, bit for bit; others are rounded to about 10^-9 of their sum, and bin edges do not depend on
        them.
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

        # scores jump between leaves, which a smooth curve does not describe
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
        kind = CRITERIA[self.criterion], SPLITTERS[self.splitter]
        sizes = leaf_size, resolve_max_features(self.max_features, X.shape[1])
        tree = ensemble.TreeSettings(ensemble.tree_keys(seed, 1)[0], *kind, *sizes)
        settings = ensemble.GrowthSettings(max_depth, alpha, np.arange(X.shape[1]), bootstrap=False)
        events = self._bin_events(X, on, 1, bag)
        tables = ensemble.grow_trees(events, [tree], settings, 1, None)
        trees = GrownTrees.from_tables(tables, events.edges, self.output, alpha, prior=on.mean())
        return trees if weights is None else replace(trees, n_on=trees.n_on / factor, n_off=trees.n_off / factor)

    def apply(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the index of the leaf of each event, numbered level by level from the root, 0; shape (n_events,)."""
        X = self._check_new_events(X)
        return ensemble.leaf_numbers(X, self._trees.edges, self._trees.flat, n_threads=1)[:, 0]

    def get_depth(self) -> int:
        """Return the depth of the tree."""
        check_is_fitted(self)
        return int(self._trees.flat.depths[0])

    def get_n_leaves(self) -> int:
        """Return the number of leaves."""
        check_is_fitted(self)
        return int(np.count_nonzero(self._trees.leaves))

    def export_text(self, feature_names: ArrayLike | None = None, *, max_depth: int | None = None) -> str:
        """Return the tree as text: one line per node, with its cut, counts and significance.

        ``feature_names`` are those of ``fit`` by default, else ``x0``, ``x1``, and so on; ``max_depth`` limits levels.
        """
        return self._view(feature_names).text(max_depth)

    def plot_tree(self, feature_names: ArrayLike | None = None, *, max_depth: int | None = 4, ax: Any = None) -> Any:
        """Draw the tree with cut and counts of each node, coloured by significance, and return the axes.

        Arguments are as for `export_text`; ``ax`` is a new figure by default.
        """
        return self._view(feature_names).draw(max_depth, ax)

    def _get_state(self) -> _TreeState:
        return _TreeState(self._trees, self._has_missing)

    def _set_state(self, state: _TreeState) -> None:
        self._trees, self._has_missing = state
        ensure(len(self._trees.flat.depths) == 1, "it has several trees")

    def _view(self, feature_names: ArrayLike | None) -> TreeView:
        check_is_fitted(self)
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        names = [str(name) for name in as_column("feature_names", feature_names)]
        if len(names) != self.n_features_in_:
            raise ValueError(f"feature_names must be {self.n_features_in_} names, got {len(names)}")
        trees = self._trees
        shown = trees.flat.nodes, trees.edges, trees.n_on, trees.n_off, trees.values > self.threshold_
        return TreeView(*shown, self.curve_.alpha, names, self._has_missing, self._categories)
