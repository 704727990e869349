"""A random forest on On and Off events, with a threshold tuned on its out-of-bag scores.

It averages over configurations of trees, its members. A small forest of every member is grown first, on a sample of the
events. Its out-of-bag likelihood determines the number of trees of the member, and the uninformative features to
exclude: these are eliminated step by step, by their contribution to the likelihood, and the best set of features on
that path is used. ``configuration_`` is this choice as text, with which other forests are grown directly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Annotated, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy
from sklearn.utils.validation import check_is_fitted

from excess._utils.checks import BoolArray, FloatArray, as_choice, as_int, as_random_state, as_scalar_alpha, exact_sum
from excess._utils.rng import LARGEST_FACTOR, bag_limit, bottom_rows
from excess._utils.threads import n_threads, progress_bar
from excess.estimators._base import calibrate, calibrated_log_likelihood, store_parameters
from excess.estimators._forest import ensemble
from excess.estimators._forest.ensemble import WHOLE, Bag, BaggedTrees, GrowthSettings, Tick, TreeSettings, tree_keys
from excess.estimators._forest.splitting import CRITERIA, SPLITTERS, TABLE_SIZE, scan_pairs, x_log_x_table
from excess.estimators._model_file import ensure, saveable
from excess.estimators._tree import BaseOnOffTrees, GrownTrees, check_growth, resolve_max_features
from excess.stats._kernels import count_labels, count_labels_without
from excess.stats._thresholds import OutOfBagRule, ThresholdCurve, out_of_bag_rule

PILOT_TREES, MOST_PILOT_TREES = 30, 100  # of a member's first small forest: more, where events are few
ASSESSING_TREES, FEWER_TREES = 60, 40  # of each member that assesses features; fewer on a sample of the events
N_CELLS = 1 << 16  # cells of the scale of scores, from 0 to 1, in which events are counted to compute a likelihood
_STEPS = 1024  # steps of an event in which the weights of events are counted in these cells
_TEMPERATURE = 8.0  # a member whose log-likelihood of the labels is smaller by so much has 1/e of the weight
_LEAST_GAIN, _GAIN_PER_FEATURE = 8.0, 0.25  # in log-likelihood, to try small leaves or omit features; per omitted one
CHOICE_EVENTS, WEAK_CHOICE_EVENTS = 25_000, 120_000  # events on which is chosen, also where the signal is weak
BAG_EVENTS = 25_000  # a tree sees the geometric mean of this number and that of all events, if that is more
MAX_LEAVES = 2048  # of a tree of a chosen member
_WEAK_GAIN = 20.0  # in log-likelihood
_FEW_TREES = 100  # unless fewer are wanted, on any number of events
_SHARE_DROPPED = 0.3  # of the features that are left, in each step of their elimination
N_SCANNED, _N_CELLS = 8, 16  # features that are left by a scan of pairs, where the signal is weak, and cells of each
_MOST_SCANNED = 64  # features whose pairs are scanned
_LARGEST_LOSS, _PATIENCE = 20.0, 2  # in log-likelihood, and steps without a gain, after which the elimination ends

_Trees = dict[int, list[Any]]  # the first trees of members
LabelCounts = NDArray[Any]  # Off and On in each cell of scores: (..., 2, N_CELLS); floats if events have weights


class Member(NamedTuple):
    """A configuration of trees."""

    splitter: str
    min_samples_leaf: int
    max_features: Any


MEMBERS = (
    Member("best", 40, "sqrt"),
    Member("best", 160, "sqrt"),
    Member("best", 40, 0.5),
    Member("best", 160, 0.5),
    Member("random", 20, None),
    Member("random", 60, None),
    Member("random", 160, None),
    # tried where the next larger leaves are clearly better than those of two to four times their size
    Member("best", 10, "sqrt"),
    Member("best", 3, "sqrt"),
    Member("best", 10, 0.5),
    Member("random", 5, None),
)
"""Configurations averaged by ``min_samples_leaf="auto"``; the largest leaves of a splitter and of features first."""


class TreeGrower(Protocol):
    """Grower of trees, for events in any location."""

    n_events: int
    n_features: int

    def sample(self, n_events: int) -> GrowerInMemory:
        """Return a grower on at most this many events, selected by hashes of their row numbers."""

    def grow(self, trees: Sequence[TreeSettings], settings: GrowthSettings, tick: Tick | None) -> list[Any]:
        """Return the nodes of each tree."""

    def assemble(self, tables: list[Any]) -> GrownTrees:
        """Return trees that score events by On fractions, from the nodes of each."""


class MemberShare(NamedTuple):
    """A member and its part of a forest."""

    splitter: str
    min_samples_leaf: int
    max_features: int  # features considered by a node
    log_likelihood: float  # of its first small forest, extrapolated to all trees; NaN if there is none
    n_trees: int


@dataclass(frozen=True)
class GrownForest:
    """All trees of a forest, and their configuration."""

    trees: GrownTrees
    keys: NDArray[np.uint64]  # of each tree
    members: tuple[MemberShare, ...]
    used: NDArray[np.int64]  # features available to nodes


class Configuration(NamedTuple):
    """Members with their numbers of trees, and their features."""

    members: tuple[Member, ...]
    n_trees: tuple[int, ...]
    features: tuple[int, ...]

    @classmethod
    def of_text(cls, text: Any) -> Configuration:
        """Parse the text of a ``configuration_``; ValueError names the parameter."""
        try:
            found = json.loads(text)
            members = tuple(
                Member(
                    as_choice("splitter", own[0], tuple(SPLITTERS)), *(as_int("size", n, minimum=1) for n in own[1:3])
                )
                for own in found["trees"]
            )
            n_trees = tuple(as_int("trees", own[3], minimum=1) for own in found["trees"])
            features = tuple(as_int("feature", number, minimum=0) for number in found["features"])
            if not members or not features or list(features) != sorted(set(features)):
                raise ValueError("no trees, or features that are not ascending")
        except (TypeError, ValueError, LookupError) as error:
            wanted = "the configuration_ of a fitted forest"
            raise ValueError(f"configuration must be {wanted}, got {text!r:.80} ({error})") from error
        return cls(members, n_trees, features)

    def text(self) -> str:
        """Return the text parsed by `of_text`."""
        trees = [[*member, n] for member, n in zip(self.members, self.n_trees, strict=True)]
        return json.dumps({"trees": trees, "features": self.features})

    def used(self, n_features: int) -> NDArray[np.int64]:
        """Return the feature mask for this number of features."""
        if self.features[-1] >= n_features or max(own.max_features for own in self.members) > len(self.features):
            raise ValueError(f"configuration is for more features than the {n_features} of X")
        return np.array(self.features)


class _Assessed(NamedTuple):
    """A set of features, and the results of the trees of some members on it."""

    used: NDArray[np.int64]
    forest: BaggedTrees
    log_likelihood: float
    gain: float  # in log-likelihood, relative to a constant probability
    n_trees: int  # of each member
    grown: _Trees


class _Choice(NamedTuple):
    """Features, number of trees of each member, log-likelihoods of the members tried, and trees to keep."""

    used: NDArray[np.int64]
    n_trees: list[int]
    likelihood: dict[int, float]
    grown: _Trees


@dataclass(frozen=True)
class ForestPlan:
    """Growth settings of a forest from its parameters, for events in any location."""

    alpha: float
    members: tuple[Member, ...]
    criteria: Sequence[int]  # of the trees of a member, alternating
    n_trees: int
    max_depth: int | None
    screens: bool  # whether uninformative features are excluded
    rule: OutOfBagRule  # how the threshold is tuned
    seed: int  # random seed
    verbose: bool
    given: Configuration | None = None  # a previous choice

    def grow(self, grower: TreeGrower) -> GrownForest:
        """Grow the forest; the progress bar counts trees, except those of forests on fewer features."""
        chooses, n = len(self.members) > 1 and self.given is None, self._n_pilot(grower.n_events)
        n_tried = len(self.members) * n + len(self._assessors) * max(self._n_assess(grower) - n, 0) * self.screens
        with progress_bar("Growing trees", self.n_trees + chooses * n_tried, shown=self.verbose) as tick:
            choice = _Choice(np.arange(grower.n_features), [self.n_trees], {}, {})
            if self.given is not None:
                n_trees = min(sum(self.given.n_trees), self.n_trees)
                shares = share_trees(np.array(self.given.n_trees), n_trees)
                choice = _Choice(self.given.used(grower.n_features), shares, {}, {})
            elif chooses:
                choice = self._choose(grower, tick)
            used, counts, likelihood, grown = choice
            # grow all trees that were not grown for the choice together
            wanted = [self._trees(number, n, grower, used) for number, n in enumerate(counts)]
            more = [tree for number, trees in enumerate(wanted) for tree in trees[len(grown.get(number, [])) :]]
            tick(self.n_trees - len(more))
            rest = iter(grower.grow(more, self._settings(grower, used), tick) if more else [])
        tables = []
        for number, trees in enumerate(wanted):
            first = grown.get(number, [])[: len(trees)]
            tables += [*first, *(next(rest) for _ in trees[len(first) :])]
        members = tuple(
            MemberShare(member.splitter, *self._sizes(member, grower, used), likelihood.get(number, np.nan), n)
            for number, (member, n) in enumerate(zip(self.members, counts, strict=True))
        )
        return GrownForest(grower.assemble(tables), _keys([tree for trees in wanted for tree in trees]), members, used)

    def _bag_size(self, n_events: int) -> float:
        """Return the number of events in the bag of a tree, by their bootstrap weights."""
        thins = self.given is not None or len(self.members) > 1
        return math.sqrt(BAG_EVENTS * n_events) if thins and n_events > BAG_EVENTS else n_events

    def _settings(self, grower: TreeGrower, used: NDArray[np.int64], thins: bool = True) -> GrowthSettings:
        """Return the settings of all trees on these events; ``thins`` bags of many events."""
        max_depth = None if self.max_depth is None else min(self.max_depth, 2**31 - 1)
        share = self._bag_size(grower.n_events) / grower.n_events if thins else 1.0
        return GrowthSettings(max_depth, self.alpha, used, limit=bag_limit(share))

    def _n_pilot(self, n_events: int) -> int:
        return min(max(PILOT_TREES, min(PILOT_TREES * CHOICE_EVENTS // n_events, MOST_PILOT_TREES)), self.n_trees)

    def _n_assess(self, grower: TreeGrower) -> int:
        return min(FEWER_TREES if grower.n_events > CHOICE_EVENTS else ASSESSING_TREES, self.n_trees)

    @property
    def _assessors(self) -> list[int]:
        """Members that assess features: for each splitter that with the largest leaves and most features per node."""
        found: dict[str, int] = {}
        for number, member in enumerate(self.members):
            if member.min_samples_leaf == max(own.min_samples_leaf for own in self.members):
                found[member.splitter] = number
        return list(found.values())

    def _choose(self, grower: TreeGrower, tick: Tick) -> _Choice:
        """Choose features, members and the number of trees on a sample of the events."""
        used, grown, reduction = np.arange(grower.n_features), _Trees(), 0.75
        if self.screens:
            sample, assessed = self._screen(grower, tick)
            used, grown = assessed.used, assessed.grown
            if sample.n_events > CHOICE_EVENTS and assessed.gain < _WEAK_GAIN:  # the scatter of trees hides the signal
                reduction = 0.0
        else:
            sample = grower.sample(CHOICE_EVENTS)
        sizes = [self._sizes(member, grower, used)[0] for member in self.members]
        enough = math.ceil(self.n_trees * (CHOICE_EVENTS / grower.n_events) ** reduction)
        enough = min(max(enough, _FEW_TREES), self.n_trees)  # trees on large bags have a smaller variance
        likelihood = self._try_members(sample, used, sizes, grown, enough, tick)
        tried = np.array([likelihood.get(number, -np.inf) for number in range(len(self.members))])
        weights = np.exp((tried - tried.max()) / _TEMPERATURE)
        whole = sample.n_events == grower.n_events  # these trees are then part of the forest
        return _Choice(used, share_trees(weights, enough), likelihood, grown if whole else {})

    def _try_members(
        self, sample: GrowerInMemory, used: NDArray[np.int64], sizes: list[int], grown: _Trees, enough: int, tick: Tick
    ) -> dict[int, float]:
        """Add the first trees of members, and return likelihoods, extrapolated from these trees to ``enough``."""
        alike: dict[Any, list[int]] = {}
        for number in sorted(range(len(self.members)), key=lambda number: -self.members[number].min_samples_leaf):
            member = self.members[number]
            alike.setdefault((member.splitter, member.max_features), []).append(number)
        likelihood: dict[int, float] = {}
        n = self._n_pilot(sample.n_events)  # forests that are compared have the same size
        parts = slice(0, n), slice(0, (n + 1) // 2), slice(n // 2, n)

        def try_some(numbers: list[int]) -> None:
            wanted = {number: self._trees(number, n, sample, used) for number in numbers}
            trees = [tree for number in numbers for tree in wanted[number][len(grown.get(number, [])) :]]
            tables, forests = iter(sample.grow(trees, self._settings(sample, used), tick) if trees else []), []
            for number in numbers:
                first, keys = grown.get(number, []), _keys(wanted[number])
                own = grown[number] = [*first, *(next(tables) for _ in range(n - len(first)))]
                forests += [sample.assemble(own[part]).bagged(keys[part]) for part in parts]
            # few trees lose likelihood in inverse proportion to their number, those with small leaves most
            found = np.array(self._log_likelihoods(sample.count_scores(forests))).reshape(-1, 3)
            whole, halves = found[:, 0], found[:, 1:].mean(axis=1)
            likelihood.update(zip(numbers, (whole + (1 - n / enough) * (whole - halves)).tolist(), strict=True))

        try_some([number for family in alike.values() for number in family[:2]])
        tried = list(alike.values())
        for place in range(2, max(map(len, tried))):  # smaller leaves while the gain exceeds the least one
            tried = [own for own in tried if len(own) > place and 1.5 * sizes[own[place]] <= sizes[own[place - 1]]]
            tried = [own for own in tried if likelihood[own[place - 1]] > likelihood[own[place - 2]] + _LEAST_GAIN]
            if tried:
                try_some([own[place] for own in tried])
        tick(n * (len(self.members) - len(grown)))
        return likelihood

    def _screen(self, grower: TreeGrower, tick: Tick) -> tuple[GrowerInMemory, _Assessed]:
        """Return the sample for the choice, and the best set of features found on it."""
        sample, n, patience = grower.sample(CHOICE_EVENTS), self._n_assess(grower), _PATIENCE
        quick = sample, (first := self._assess(sample, np.arange(grower.n_features), n))
        tick(n * len(self._assessors))
        if first.gain < _WEAK_GAIN and grower.n_events > CHOICE_EVENTS:  # a weak signal requires more events
            enough = math.ceil(CHOICE_EVENTS * _WEAK_GAIN / max(first.gain, 1.0))  # the gain increases with them
            sample = grower.sample(min(enough, WEAK_CHOICE_EVENTS))
            first = self._assess(sample, first.used, n)
        best, thins = first, True
        if first.gain < _WEAK_GAIN and len(first.used) > N_SCANNED:
            pairs = sample.scan_pairs(self._rank(sample, first)[-_MOST_SCANNED:])
            # small differences need more trees, and weak signals all events
            more, thins, patience = min(ASSESSING_TREES, self.n_trees), False, 2 * _PATIENCE
            few = self._assess(sample, pairs, 2 * more, thins)
            if sample.n_events > CHOICE_EVENTS:
                if max(first.gain, few.gain) < _LEAST_GAIN:
                    return quick  # no signal is visible, and further steps would be slow
                first = self._assess(sample, first.used, more, thins)
            best = few if few.gain > first.gain else first
        last, n_worse = best, 0
        while len(last.used) > 1 and n_worse < patience and last.gain > best.gain - _LARGEST_LOSS:
            n_dropped = max(1, int(_SHARE_DROPPED * len(last.used)))
            last = self._assess(sample, np.sort(self._rank(sample, last)[n_dropped:]), last.n_trees, thins)
            best, n_worse = (last, 0) if last.gain > best.gain else (best, n_worse + 1)
        if best.gain - first.gain < _LEAST_GAIN + _GAIN_PER_FEATURE * (len(first.used) - len(best.used)):
            best = first
        if not thins and sample.n_events > BAG_EVENTS:  # the forest has smaller bags than these trees
            tick(-self._n_pilot(sample.n_events) * len(self._assessors))  # they will be grown again
            best = best._replace(grown={})
        return sample, best

    def _rank(self, sample: GrowerInMemory, found: _Assessed) -> NDArray[np.int64]:
        """Sort features by the loss of likelihood without them, the least useful one first."""
        likelihood = np.array(self._log_likelihoods(sample.count_without(found.forest, found.used)))
        return found.used[np.argsort(-likelihood, kind="stable")]

    def _assess(self, sample: GrowerInMemory, used: NDArray[np.int64], n: int, thins: bool = True) -> _Assessed:
        """Grow trees on some features, and compute the out-of-bag likelihood of the labels."""
        numbers = self._assessors
        trees = [tree for number in numbers for tree in self._trees(number, n, sample, used)]
        tables = sample.grow(trees, self._settings(sample, used, thins), None)
        forest = sample.assemble(tables).bagged(_keys(trees))
        counts = sample.count_scores([forest])
        likelihood = self._log_likelihoods(counts)[0]
        first = {number: tables[i * n : (i + 1) * n][:ASSESSING_TREES] for i, number in enumerate(numbers)}
        return _Assessed(used, forest, likelihood, likelihood - _constant_likelihood(counts[0]), n, first)

    def _log_likelihoods(self, counts: LabelCounts) -> list[float]:
        """Return the log-likelihoods of labels given calibrated scores, counted for each of some forests."""
        return [calibrated_log_likelihood(own, self.alpha) for own in counts]

    def _trees(self, number: int, n: int, grower: TreeGrower, used: NDArray[np.int64]) -> list[TreeSettings]:
        """Return the settings of the first ``n`` trees of a member."""
        member = self.members[number]
        fixed = SPLITTERS[member.splitter], *self._sizes(member, grower, used)
        # members take turns in the numbering of trees, so their keys are distinct, and a single one counts from 0
        keys = tree_keys(self.seed, n, first=number, step=len(self.members))
        return [TreeSettings(key, self.criteria[i % len(self.criteria)], *fixed) for i, key in enumerate(keys)]

    def _sizes(self, member: Member, grower: TreeGrower, used: NDArray[np.int64]) -> tuple[int, int]:
        """Return the leaf size of a member, and the number of features considered by its nodes."""
        size = min(member.min_samples_leaf, grower.n_events)
        if len(self.members) > 1 or self.given is not None:
            size = max(size, math.ceil(self._bag_size(grower.n_events) / MAX_LEAVES))
        return size, resolve_max_features(member.max_features, len(used))


def choose_members(splitter: str, min_samples_leaf: int | str, max_features: Any) -> tuple[Member, ...]:
    """Return the members allowed by the parameters of a forest."""
    if not isinstance(min_samples_leaf, str):
        chosen = "sqrt" if is_auto(max_features) else max_features
        return (Member("best" if is_auto(splitter) else splitter, min_samples_leaf, chosen),)
    found = [member for member in MEMBERS if splitter in ("auto", member.splitter)]
    if not is_auto(max_features):
        found = [member._replace(max_features=max_features) for member in found]
    return tuple(dict.fromkeys(found))


def is_auto(parameter: Any) -> bool:
    """Return whether a parameter is ``"auto"``."""
    return isinstance(parameter, str) and parameter == "auto"


def label_units(weights: NDArray[np.float64] | None) -> NDArray[np.int64] | None:
    """Return weights of events in integer steps, so sums do not depend on their order; None without weights."""
    return None if weights is None else np.rint(weights * _STEPS).astype(np.int64)


def units_to_events(counts: NDArray[np.int64]) -> LabelCounts:
    """Return counts of events from sums of their `label_units`."""
    return counts / _STEPS


def share_trees(weights: NDArray[np.float64], n_trees: int) -> list[int]:
    """Divide trees in proportion to weights, by largest remainders."""
    exact = weights / weights.sum() * n_trees
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: n_trees - counts.sum()]] += 1
    return counts.tolist()


def _constant_likelihood(counts: LabelCounts) -> float:
    """Return the log-likelihood of counted labels with a constant probability of On."""
    n_off, n_on = counts.sum(axis=1)
    return float(xlogy(n_on, n_on) + xlogy(n_off, n_off) - xlogy(n_on + n_off, n_on + n_off))


def _keys(trees: Sequence[TreeSettings]) -> NDArray[np.uint64]:
    return np.array([tree.key for tree in trees], dtype=np.uint64)


class _ForestState(NamedTuple):
    """Fitted state of a forest."""

    trees: Annotated[GrownTrees, ""]
    used_features: Annotated[BoolArray, "features"]
    member_sizes: Annotated[NDArray[np.int64], "members", 4]  # splitter, leaf size, features per node, trees
    member_likelihoods: Annotated[FloatArray, "members"]
    oob_significance: float


@saveable
class OnOffForestClassifier(BaseOnOffTrees):
    """Random forest trained on noisy On/Off labels, with a threshold tuned on its out-of-bag scores.

    Parameters
    ----------
    n_estimators : int, default=300
        Number of trees. With ``min_samples_leaf="auto"``, it is multiplied by ``(25_000 / n_events) ** 0.75`` above
        25,000 events, down to 100, or to this parameter if it is smaller, unless the signal is weak.
    alpha : float or None, default=None
        Exposure ratio On/Off. Required by ``fit``; `cross_val_detect` and `null_test` set it.
    criterion : {"mixed", "information", "li_ma"}, default="mixed"
        Split criterion: information gain (Eq. 7 of the paper), the larger significance of the two sides (Eq. 6), or
        both in alternating trees.
    max_depth : int or None, default=None
        Maximum depth of the trees.
    splitter : {"auto", "best", "random"}, default="auto"
        Split search on each feature of a node: the best of all cuts, or one random cut.
    min_samples_leaf : int or "auto", default="auto"
        Minimum number of events in a leaf, including bootstrap weights. ``"auto"`` averages over several leaf sizes,
        and over splitters and numbers of features that are ``"auto"``: configurations with a larger out-of-bag
        likelihood of the labels get more trees. With a number, ``"auto"`` is ``"best"`` for splitters and ``"sqrt"``
        for features.
    max_features : "auto", int, float, "sqrt", "log2" or None, default="auto"
        Number of features drawn at each node; None uses all. ``"auto"``, if leaf sizes are ``"auto"`` as well, also
        excludes uninformative features.
    max_bins : int or None, default=255
        Number of bins of a feature, at most 255; with fewer distinct values, or None, every distinct value is searched.
    output : {"fraction", "assignment"}, default="fraction"
        Score of a tree: the On fraction of a leaf, or 0 and 1 by its assignment, as in the paper.
    threshold : str, callable or float, default="significance"
        Threshold, or its rule for out-of-bag scores: ``"significance"``, ``"f1"``, ``"menon"``, ``"mithal"``,
        ``"yao"``, ``"default"`` or a function of ``(y, score, alpha)``, where ``y`` is True for On.
    threshold_tolerance : float, default=9.0
        With ``threshold="significance"``, select the cut of maximum F1 among those with a squared significance within
        this tolerance of the best, three sigma by default; 0 selects the best cut. See `significance_threshold`.
    n_threshold_bootstrap : int, default=25
        With ``threshold="significance"`` or ``"f1"``, use the median threshold of this many resamples; 0 for none.
    n_jobs : int or None, default=None
        Number of threads; -1 uses all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Random seed.
    verbose : int, default=0
        If 1, show a progress bar.
    configuration : str or None, default=None
        The ``configuration_`` of a forest on similar events with the same features, which replaces ``splitter``,
        ``min_samples_leaf`` and ``max_features`` and makes this fit much faster.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        Off and On.
    threshold_ : float
        An event is selected if its score exceeds the threshold.
    oob_decision_function_ : ndarray of shape (n_events, 2)
        Out-of-bag probabilities of the noisy classes; NaN for events in the bag of every tree, or of weight 0.
    oob_significance_ : float
        Significance of the training events by out-of-bag scores; not to be quoted, as ``threshold_`` maximises it.
    curve_ : ThresholdCurve
        Training events at every cut on their out-of-bag scores.
    calibration_ : SignalCalibration
        Signal probability as a function of the score, from these events.
    members_ : tuple of MemberShare
        Configurations of trees that were tried: ``splitter``, ``min_samples_leaf``, ``max_features``, the out-of-bag
        ``log_likelihood`` of a small forest, extrapolated to all trees (NaN if none was grown: a single
        configuration, or smaller leaves that were not tried), and the number of trees in the forest (``n_trees``).
    used_features_ : ndarray of bool of shape (n_features,)
        False for uninformative features, which were excluded.
    configuration_ : str
        This choice of configurations and features, for the parameter ``configuration`` of other forests.
    n_features_in_, feature_names_in_
        Number of features, and their names if X had names.
    feature_importances_ : ndarray of shape (n_features,)
        Information gain through each feature, summed over all trees and normalised to 1.

    Notes
    -----
    Bootstrap weights are Poisson(1) draws keyed by seed, tree and row, the features of a node by seed, tree and path;
    bin edges are computed from rows selected by a hash of their index. Counts are integers. A seed therefore results in
    the same forest, bit for bit, on any number of threads.

    If leaf sizes are ``"auto"``, features and configurations are chosen on a keyed sample of 25,000 events, or of up to
    120,000 if these show no clear signal. Above 25,000 events, the bag of a tree is thinned to the geometric mean of
    25,000 and the number of events, and a tree has at most 2,048 leaves, so the cost per tree increases with the square
    root of the number of events.

    ``predict`` uses ``threshold_``, not the larger of the two probabilities. With ``groups``, such as nights, a tree
    uses four fifths of them, at least one and not all, and out of bag means out of the group.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, count_selected, inject_label_noise
    >>> X, y = make_classification(8000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> forest = OnOffForestClassifier(alpha=1 / 5, random_state=0).fit(X[:4000], on[:4000])
    >>> print(count_selected(on[4000:], forest.predict(X[4000:]), alpha=1 / 5))
    On 356, Off 50, alpha 0.2: excess 346.0 +- 18.9, 31.5 sigma
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
        configuration: str | None = None,
    ) -> None:
        store_parameters(self, locals())

    @property
    def _weight_parameter(self) -> str | None:  # type: ignore[override]
        return "sample_weight" if out_of_bag_rule(self).counts_weights else None

    @property
    def oob_decision_function_(self) -> FloatArray:
        """Out-of-bag probabilities of the noisy classes; NaN for events in the bag of every tree."""
        score = self.__dict__.get("_oob_score")
        if score is None:
            raise AttributeError("oob_decision_function_ is only available after fit; model files do not store it")
        return np.column_stack([1 - score, score])

    @property
    def configuration_(self) -> str:
        """Choice of configurations and features, for the parameter ``configuration`` of other forests."""
        check_is_fitted(self)
        grown = [own for own in self.members_ if own.n_trees > 0]
        members = tuple(Member(*own[:3]) for own in grown)
        features = tuple(np.flatnonzero(self.used_features_).tolist())
        return Configuration(members, tuple(own.n_trees for own in grown), features).text()

    def fit(
        self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit to events and their noisy labels of two classes; the larger one in sorted order is On.

        NaN in X is a missing value, and columns of a data frame with the dtype ``category`` are categorical.

        ``groups``, such as nights, are left out of bags as a whole, so configurations, threshold and calibration are
        tuned for events of groups that are new to the forest.

        ``sample_weight`` is the number of events represented by each event, at least 0. Integers are equivalent to
        repeated events, bit for bit; the copies of an event are in different bags, unless they have their own group.
        With other weights, at most 16, an event counts in a bag by its bootstrap weight times this weight, with
        stochastic rounding; ``threshold`` must then be ``"significance"``, ``"f1"`` or a number.
        """
        return self._fit_weighted(X, y, groups, sample_weight)

    def _plan(self) -> ForestPlan:
        """Validate all parameters; return the growth settings of this forest."""
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
        members, screens = choose_members(self.splitter, size, self.max_features), is_auto(self.max_features)
        criteria = tuple(CRITERIA.values()) if self.criterion == "mixed" else (CRITERIA[self.criterion],)
        given = None if self.configuration is None else Configuration.of_text(self.configuration)
        if given is not None:
            members = given.members
        return ForestPlan(alpha, members, criteria, n_trees, self.max_depth, screens, rule, seed, verbose, given)

    def _fit(self, plan: ForestPlan, X: NDArray[Any], on: BoolArray, bag: Bag = WHOLE) -> None:
        forest, score = self._grow(plan, X, on, bag)  # its copy of the events is freed when it returns
        self._finish(forest, *plan.rule(on, score, plan.alpha, plan.seed, bag.weights), score)

    def _grow(self, plan: ForestPlan, X: NDArray[Any], on: BoolArray, bag: Bag) -> tuple[GrownForest, FloatArray]:
        """Return the trees and their out-of-bag scores."""
        threads = n_threads(self.n_jobs)
        grower = GrowerInMemory(self._bin_events(X, on, threads, bag), on, plan, threads)
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

    def retune(self, on: BoolArray, rows: NDArray[np.intp], alpha: float, weights: FloatArray | None = None) -> Self:
        """Tune threshold and calibration again, on some of the training events and with their exposure ratio."""
        plan, score = self._plan(), self.oob_decision_function_[rows, 1]
        threshold, curve = plan.rule(on[rows], score, alpha, plan.seed, weights)
        self.alpha = alpha
        self.threshold_, self.curve_, self.calibration_ = threshold, curve, calibrate(curve)
        self.oob_significance_ = max(self.tuned_counts_.significance, 0.0)
        return self

    def _get_state(self) -> _ForestState:
        rows = [(SPLITTERS[own.splitter], *own[1:3], own.n_trees) for own in self.members_]
        sizes, likelihoods = np.array(rows, dtype=np.int64), np.array([own.log_likelihood for own in self.members_])
        return _ForestState(self._trees, self.used_features_, sizes, likelihoods, float(self.oob_significance_))

    def _set_state(self, state: _ForestState) -> None:
        self._trees, self.used_features_, sizes, likelihoods, self.oob_significance_ = state
        known = np.isin(sizes[:, 0], list(SPLITTERS.values())).all() and (sizes >= 0).all()
        n_trees = len(self._trees.flat.depths)
        ensure(known and int(sizes[:, 3].sum()) == n_trees, "the trees of its members do not sum to its trees")
        names = {number: name for name, number in SPLITTERS.items()}
        self.members_ = tuple(
            MemberShare(names[splitter], leaf, features, likelihood, n)
            for (splitter, leaf, features, n), likelihood in zip(sizes.tolist(), likelihoods.tolist(), strict=True)
        )


class GrowerInMemory:
    """Grower of trees on events in memory; counts their scores."""

    def __init__(self, events: ensemble.BinnedEvents, on: BoolArray, plan: ForestPlan, n_threads: int) -> None:
        self.n_events, self.n_features = len(on), events.n_features
        self._events, self._on, self._plan, self._n_threads = events, on, plan, n_threads
        weights = events.bag.weights
        self._share = float(on.mean() if weights is None else exact_sum(weights[on]) / exact_sum(weights))
        self._units = label_units(weights)

    def sample(self, n_events: int) -> GrowerInMemory:
        """Return a grower on at most this many events."""
        if n_events >= self.n_events:
            return self
        rows, events = bottom_rows(self.n_events, n_events), self._events
        chosen = ensemble.BinnedEvents(events.records[rows], events.edges, events.bag.part(rows))
        return GrowerInMemory(chosen, self._on[rows], self._plan, self._n_threads)

    def scan_pairs(self, features: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the features with the most significant rectangles in planes of two of them, ascending."""
        codes, n = self._events.codes, self.n_events
        cells = np.empty((len(features), n), dtype=np.uint8)
        for row, feature in zip(cells, features, strict=True):
            counts = np.bincount(codes[:, feature])
            row[:] = ((np.cumsum(counts) - counts) * _N_CELLS // n)[codes[:, feature]]
        found, odds = np.zeros(len(features)), self._share / (1 - self._share)
        scan_pairs(cells, _N_CELLS, self._on, self._units, odds, x_log_x_table(TABLE_SIZE), found)
        return np.sort(features[np.argsort(-found, kind="stable")[:N_SCANNED]])

    def grow(
        self, trees: Sequence[TreeSettings], settings: GrowthSettings, tick: Tick | None
    ) -> list[NDArray[np.int64]]:
        """Return the nodes of each tree."""
        return ensemble.grow_trees(self._events, trees, settings, self._n_threads, tick)

    def assemble(self, tables: list[NDArray[np.int64]]) -> GrownTrees:
        """Return trees that score events."""
        return GrownTrees.from_tables(tables, self._events.edges, "fraction", self._plan.alpha, prior=self._share)

    def score(self, forests: Sequence[BaggedTrees]) -> list[FloatArray]:
        """Return out-of-bag scores from each of some forests."""
        return ensemble.score_out_of_bag(self._events.codes, 0, forests, self._n_threads, self._events.bag)

    def count_scores(self, forests: Sequence[BaggedTrees]) -> LabelCounts:
        """Count events by their out-of-bag scores from each of some forests."""
        counts = np.zeros((len(forests), 2, N_CELLS), dtype=np.int64)
        for own, score in zip(counts, self.score(forests), strict=True):
            count_labels(self._on, score, self._units, own)
        return counts if self._units is None else units_to_events(counts)

    def count_without(self, forest: BaggedTrees, features: NDArray[np.int64]) -> LabelCounts:
        """Count events by their out-of-bag scores minus the contribution of each of some features."""
        total = np.zeros((len(features), 2, N_CELLS), dtype=np.int64)
        lock = Lock()

        def count(rows: slice, scores: FloatArray, contributions: FloatArray) -> None:
            with lock:  # counting is fast compared with the tree traversal
                units = None if self._units is None else self._units[rows]
                count_labels_without(self._on[rows], scores, units, contributions, features, total)

        events = self._events
        ensemble.contributions_out_of_bag(events.codes, 0, self.n_features, forest, count, self._n_threads, events.bag)
        return total if self._units is None else units_to_events(total)
