"""The members of a forest: kinds of trees that are averaged, weighted by how likely they make the labels out of bag.

A small forest of every member is grown first. Its out-of-bag likelihood says how many trees of the final forest the
member gets, and which features say nothing and are left out. All trees count the same, so that the whole is one forest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from excess.estimators._forest.criterion import CRITERIA
from excess.estimators._forest.ensemble import BaggedTrees, Tick, TreeSettings, tree_keys
from excess.estimators._forest.splitting import SPLITTERS
from excess.estimators.calibration import calibrated_log_likelihood
from excess.estimators.grown_trees import GrownTrees, resolve_max_features
from excess.estimators.model_state import StoredArrays, require

PILOT_TREES = 30
"""Trees of a member's first small forest."""
JUDGE_TREES = 60
"""Trees of each member that judges features: what a feature adds is small, and 30 trees are too few to tell."""
N_CELLS = 1 << 16
"""Cells of the scale of scores, from 0 to 1, in which events are counted to compute a likelihood."""
_STEPS = 1024
"""Steps of an event in which the weights of events are counted in these cells."""
_TEMPERATURE = 8.0
"""A member that makes the labels less likely by so many units of the log-likelihood has 1/e of the weight."""
_LEAST_GAIN, _GAIN_PER_FEATURE = 8.0, 0.25
"""What the log-likelihood has to gain when features are left out, and for each of them: they were chosen by it."""
_MAX_ROUNDS = 5
_FEW = 3
"""Of so few features that seem to say nothing, either all are left out or none."""

LabelCounts = NDArray[Any]
"""Off and On events in each cell of scores: the last two axes are (2, N_CELLS). Floats where events have weights."""


class Member(NamedTuple):
    """A kind of tree."""

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
)
"""What ``min_samples_leaf="auto"`` averages over."""


class TreeGrower(Protocol):
    """Grows trees on events and counts their scores, wherever the events are."""

    n_events: int
    n_features: int

    def grow(self, trees: Sequence[TreeSettings], used: NDArray[np.int64], tick: Tick | None) -> list[Any]:
        """Return the nodes of each tree, grown on the features that are used."""

    def assemble(self, tables: list[Any]) -> GrownTrees:
        """Return trees that score events by On fractions, from the nodes of each."""

    def count_scores(self, forests: Sequence[BaggedTrees]) -> LabelCounts:
        """Count events by their out-of-bag scores from each of some forests."""

    def count_without(self, forest: BaggedTrees, features: NDArray[np.int64]) -> LabelCounts:
        """Count events, for each of some features, by their out-of-bag scores less what the feature contributes."""


class MemberShare(NamedTuple):
    """A member and its part of a forest."""

    splitter: str
    min_samples_leaf: int
    max_features: int  # features that a node looks at
    log_likelihood: float  # of its first small forest; NaN where there is none
    n_trees: int


@dataclass(frozen=True)
class GrownForest:
    """All trees of a forest, and how they came about."""

    trees: GrownTrees
    keys: NDArray[np.uint64]  # of each tree
    members: tuple[MemberShare, ...]
    used: NDArray[np.int64]  # features that nodes could look at


@dataclass(frozen=True)
class MemberPlan:
    """What the parameters of a forest say about its members."""

    members: tuple[Member, ...]
    criteria: Sequence[int]  # of the trees of a member, in turn
    n_trees: int
    alpha: float
    seed: int
    screens: bool  # whether features that say nothing are left out

    @property
    def n_expected(self) -> int:
        """Trees that are grown, but for those of forests on fewer features."""
        if len(self.members) == 1:
            return self.n_trees
        n_judging = len(self._judges) * (self._n_judge - self._n_pilot) if self.screens else 0
        return self.n_trees + len(self.members) * self._n_pilot + n_judging

    @property
    def _n_pilot(self) -> int:
        return min(PILOT_TREES, self.n_trees)

    @property
    def _n_judge(self) -> int:
        return min(JUDGE_TREES, self.n_trees)

    @property
    def _judges(self) -> list[int]:
        """Numbers of the members that judge features.

        Of each splitter it is the one of the largest leaves that looks at the most features.
        """
        return list({member.splitter: number for number, member in enumerate(self.members)}.values())

    def grow(self, grower: TreeGrower, tick: Tick) -> GrownForest:
        """Grow the forest; tick for each tree, but for those of forests on fewer features."""
        used = np.arange(grower.n_features)
        numbers = range(len(self.members))
        if len(numbers) == 1:
            return self._finish(grower, used, [[]], [np.nan], [self.n_trees], tick)
        judges: dict[int, list[Any]] = {}
        if self.screens:
            used, judges = self._screen(grower, tick)
        pilots, likelihood = self._try_all(grower, used, judges, tick)
        tried = np.array([likelihood.get(number, -np.inf) for number in numbers])
        counts = share_trees(np.exp((tried - tried.max()) / _TEMPERATURE), self.n_trees)
        known = [likelihood.get(number, np.nan) for number in numbers]
        return self._finish(grower, used, [pilots.get(number, []) for number in numbers], known, counts, tick)

    def _try_all(
        self, grower: TreeGrower, used: NDArray[np.int64], pilots: dict[int, list[Any]], tick: Tick
    ) -> tuple[dict[int, list[Any]], dict[int, float]]:
        """Return trees of members, of which some may be there, and the likelihoods of small forests of them.

        A third leaf size of members that are else alike is tried only if the second is not worse than the first, which
        is the largest: where the likelihood falls, it goes on falling, and small leaves take longest.
        """
        alike: dict[Any, list[int]] = {}
        for number in sorted(range(len(self.members)), key=lambda number: -self.members[number].min_samples_leaf):
            member = self.members[number]
            alike.setdefault((member.splitter, member.max_features), []).append(number)
        families = list(alike.values())
        likelihood: dict[int, float] = {}

        def try_members(numbers: list[int]) -> None:
            new = [number for number in numbers if number not in pilots]
            n = self._n_pilot  # forests that are compared have the same size
            grown = iter(grower.grow(self._first(n, new, grower, used), used, tick) if new else [])
            pilots.update({number: [next(grown) for _ in range(n)] for number in new})
            values = self._log_likelihoods(grower, [([number], pilots[number][:n]) for number in numbers], used)
            likelihood.update(zip(numbers, values.tolist(), strict=True))

        try_members([number for family in families for number in family[:2]])
        smaller = [
            number for family in families for number in family[2:] if likelihood[family[1]] > likelihood[family[0]]
        ]
        if smaller:
            try_members(smaller)
        tick(self._n_pilot * (len(self.members) - len(pilots)))
        return pilots, likelihood

    def _screen(self, grower: TreeGrower, tick: Tick) -> tuple[NDArray[np.int64], dict[int, list[Any]]]:
        """Return the features that say something, and trees on them of the members that judged it.

        A feature says nothing if scores without its contribution make the labels no less likely. A forest without
        such features, or without the worse half of them, has to be better than the one with them. That is repeated
        until it is not. In the end, the labels must be clearly more likely than with all features.
        """
        judges, n = self._judges, self._n_judge
        used = np.arange(grower.n_features)
        tables = grower.grow(self._first(n, judges, grower, used), used, tick)
        (likelihood,) = self._log_likelihoods(grower, [(judges, tables)], used)
        at_first = used, tables, likelihood
        for _ in range(_MAX_ROUNDS):
            counts = grower.count_without(self._with_keys(judges, tables, grower, used), used)
            loss = likelihood - self._log_likelihoods_of(counts)
            n_idle = np.count_nonzero(loss <= 0)
            for n_dropped in (n_idle, n_idle // 2)[: 2 if n_idle > _FEW else 1]:
                fewer = np.sort(used[np.argsort(loss, kind="stable")[n_dropped:]])
                if not 0 < len(fewer) < len(used):
                    continue
                new_tables = grower.grow(self._first(n, judges, grower, fewer), fewer, None)
                (new_likelihood,) = self._log_likelihoods(grower, [(judges, new_tables)], fewer)
                if new_likelihood > likelihood:
                    used, tables, likelihood = fewer, new_tables, new_likelihood
                    break
            else:
                break
        if likelihood - at_first[2] < _LEAST_GAIN + _GAIN_PER_FEATURE * (grower.n_features - len(used)):
            used, tables, _ = at_first
        return used, {number: tables[i * n : (i + 1) * n] for i, number in enumerate(judges)}

    def _finish(
        self,
        grower: TreeGrower,
        used: NDArray[np.int64],
        pilots: list[list[Any]],
        likelihood: list[float],
        counts: list[int],
        tick: Tick,
    ) -> GrownForest:
        """Grow the trees that the small forests do not have, all of them together, and put the forest together."""
        wanted = [self._trees(number, n, grower, used) for number, n in enumerate(counts)]
        more = [trees[len(tables) :] for trees, tables in zip(wanted, pilots, strict=True)]
        tick(self.n_trees - sum(map(len, more)))
        grown = iter(grower.grow([tree for trees in more for tree in trees], used, tick) if any(more) else [])
        tables = []
        for trees, first in zip(wanted, pilots, strict=True):
            tables += [first[i] if i < len(first) else next(grown) for i in range(len(trees))]
        shares = tuple(
            MemberShare(member.splitter, *self._sizes(member, grower, used), float(value), n)
            for member, value, n in zip(self.members, likelihood, counts, strict=True)
        )
        return GrownForest(grower.assemble(tables), _keys([tree for trees in wanted for tree in trees]), shares, used)

    def _first(self, n: int, numbers: Sequence[int], grower: TreeGrower, used: NDArray[np.int64]) -> list[TreeSettings]:
        """Return what shapes the first ``n`` trees of each of some members, one after the other."""
        return [tree for number in numbers for tree in self._trees(number, n, grower, used)]

    def _with_keys(
        self, numbers: Sequence[int], tables: list[Any], grower: TreeGrower, used: NDArray[np.int64]
    ) -> BaggedTrees:
        """Put the first trees of some members together, as many of each."""
        n = len(tables) // len(numbers)
        return grower.assemble(tables).bagged(_keys(self._first(n, numbers, grower, used)))

    def _log_likelihoods(
        self, grower: TreeGrower, forests: list[tuple[Sequence[int], list[Any]]], used: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the out-of-bag log-likelihood of the calibrated scores of small forests, each of some members."""
        counts = grower.count_scores([self._with_keys(numbers, tables, grower, used) for numbers, tables in forests])
        return self._log_likelihoods_of(counts)

    def _log_likelihoods_of(self, counts: LabelCounts) -> NDArray[np.float64]:
        return np.array([calibrated_log_likelihood(own, self.alpha) for own in counts])

    def _trees(self, number: int, n: int, grower: TreeGrower, used: NDArray[np.int64]) -> list[TreeSettings]:
        """Return what shapes the first ``n`` trees of a member."""
        member = self.members[number]
        sizes = self._sizes(member, grower, used)
        # trees are numbered in turn, so that no two members have a key in common, and a single one counts from 0
        keys = tree_keys(self.seed, n, first=number, step=len(self.members))
        return [
            TreeSettings(key, self.criteria[i % len(self.criteria)], SPLITTERS[member.splitter], *sizes)
            for i, key in enumerate(keys)
        ]

    @staticmethod
    def _sizes(member: Member, grower: TreeGrower, used: NDArray[np.int64]) -> tuple[int, int]:
        """Return the leaf size of a member, and how many features its nodes look at."""
        return min(member.min_samples_leaf, grower.n_events), resolve_max_features(member.max_features, len(used))


def choose_members(splitter: str, min_samples_leaf: int | str, max_features: Any) -> tuple[Member, ...]:
    """Return the members that the parameters of a forest leave open."""
    if not isinstance(min_samples_leaf, str):
        chosen = "sqrt" if is_auto(max_features) else max_features
        return (Member("best" if is_auto(splitter) else splitter, min_samples_leaf, chosen),)
    found = [member for member in MEMBERS if splitter in ("auto", member.splitter)]
    if not is_auto(max_features):
        found = [member._replace(max_features=max_features) for member in found]
    return tuple(dict.fromkeys(found))


def is_auto(parameter: Any) -> bool:
    """Say whether a parameter is left to the forest."""
    return isinstance(parameter, str) and parameter == "auto"


def label_units(weights: NDArray[np.float64] | None) -> NDArray[np.int64] | None:
    """Return weights of events in whole steps, so that sums do not depend on their order; None without weights."""
    return None if weights is None else np.rint(weights * _STEPS).astype(np.int64)


def units_to_events(counts: NDArray[np.int64]) -> LabelCounts:
    """Return counts of events from sums of their `label_units`."""
    return counts / _STEPS


def members_to_arrays(members: Sequence[MemberShare]) -> dict[str, NDArray[Any]]:
    """Return members as arrays of a model file, by name."""
    sizes = [(SPLITTERS[own.splitter], own.min_samples_leaf, own.max_features, own.n_trees) for own in members]
    return {
        "member_sizes": np.array(sizes, dtype=np.int64),
        "member_likelihoods": np.array([own.log_likelihood for own in members]),
    }


def members_from_arrays(arrays: StoredArrays, n_trees: int) -> tuple[MemberShare, ...]:
    """Return the members of a forest of so many trees from the arrays of a model file."""
    likelihoods = arrays.take("member_likelihoods", np.float64, None)
    sizes = arrays.take("member_sizes", np.int64, len(likelihoods), 4)
    known = bool(np.isin(sizes[:, 0], list(SPLITTERS.values())).all() and (sizes >= 0).all())
    require(known and int(sizes[:, 3].sum()) == n_trees, "its members do not add up to its trees")
    names = {number: name for name, number in SPLITTERS.items()}
    return tuple(
        MemberShare(names[splitter], leaf, features, float(likelihood), n)
        for (splitter, leaf, features, n), likelihood in zip(sizes.tolist(), likelihoods, strict=True)
    )


def share_trees(weights: NDArray[np.float64], n_trees: int) -> list[int]:
    """Divide trees in proportion to weights, by largest remainders."""
    exact = weights / weights.sum() * n_trees
    counts = np.floor(exact).astype(np.int64)
    order = np.argsort(counts - exact, kind="stable")
    counts[order[: n_trees - counts.sum()]] += 1
    return counts.tolist()


def tree_criteria(criterion: str) -> tuple[int, ...]:
    """Return the criteria that the trees of a member have in turn."""
    return tuple(CRITERIA.values()) if criterion == "mixed" else (CRITERIA[criterion],)


def _keys(trees: Sequence[TreeSettings]) -> NDArray[np.uint64]:
    return np.array([tree.key for tree in trees], dtype=np.uint64)
