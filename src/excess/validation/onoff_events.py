"""On and Off events as all folds of a validation share them, checked once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import indexable
from sklearn.utils.validation import _num_samples

from excess._core.checks import (
    BoolArray,
    FloatArray,
    as_alpha,
    as_binary_target,
    as_column,
    as_labels,
    binary_classes,
    check_event_numbers,
    check_same_length,
)
from excess.estimators.folds import block_groups


class NearbyEvents(NamedTuple):
    """Events that are scored like hold-out events, but neither trained on nor counted."""

    X: Any
    groups: NDArray[Any] | None

    @property
    def n_events(self) -> int:
        """Number of events."""
        return _num_samples(self.X)


class OnOffEvents(NamedTuple):
    """Features and labels of On and Off events, their groups, and the events nearby."""

    X: Any
    labels: NDArray[Any]
    on_class: Any
    alpha: FloatArray | float  # of each event, or of all
    groups: NDArray[Any] | None
    nearby: NearbyEvents | None = None
    observations: NDArray[Any] | None = None
    time: FloatArray | None = None

    @property
    def on(self) -> BoolArray:
        """True for On events."""
        return np.asarray(self.labels == self.on_class)

    def mean_alpha(self, labels: NDArray[Any], rows: Any = slice(None)) -> float:
        """Return the exposure ratio On/Off of some events; where it differs, the mean over those labelled Off."""
        if not isinstance(self.alpha, np.ndarray):
            return self.alpha
        alpha, off = self.alpha[rows], labels[rows] != self.on_class
        return float(alpha[off].mean() if off.any() else alpha.max())

    def nearby_rows(self, held_out: NDArray[np.intp], number: int, n_shares: int) -> NDArray[np.intp]:
        """Return the nearby events that a fold scores: those of its groups, or its share where there are no groups."""
        if self.nearby is None:
            return np.empty(0, dtype=np.intp)
        if self.groups is None or self.nearby.groups is None:
            return np.arange(number, self.nearby.n_events, n_shares)
        return np.flatnonzero(np.isin(self.nearby.groups, np.unique(self.groups[held_out])))

    @property
    def blocks(self) -> NDArray[Any] | None:
        """What is not split between training and hold-out: groups, or blocks of them with On and Off events both."""
        return None if self.groups is None else block_groups(self.groups, self.on)

    def permute_labels(self, seed: int) -> NDArray[Any]:
        """Return labels that are permuted within groups, and among events of the same exposure ratio."""
        n = len(self.labels)
        group = np.zeros(n, dtype=np.intp)
        if (blocks := self.blocks) is not None:
            group = np.unique(blocks, return_inverse=True)[1]
        if isinstance(self.alpha, np.ndarray):
            values, number = np.unique(self.alpha, return_inverse=True)
            group = group * len(values) + number
        labels = np.empty_like(self.labels)
        random = np.random.default_rng(seed).random(n)
        labels[np.argsort(group, kind="stable")] = self.labels[np.lexsort((random, group))]
        return labels


def check_events(
    X: Any,
    y: ArrayLike,
    alpha: ArrayLike,
    groups: ArrayLike | None,
    nearby: Any = None,
    observations: ArrayLike | None = None,
) -> OnOffEvents:
    """Return the events of a cross-validation: two classes, and two groups at least where there are groups."""
    labels = as_binary_target(y)
    ratio = _check_alpha(alpha, labels)
    known = check_groups(X, groups, y=labels)
    if known is not None:
        distinct = np.unique(known)
        if len(distinct) < 2:
            raise ValueError(
                f"groups holds one group only ({distinct.tolist()[0]!r}), so nothing is left to train on when it is "
                "held out; give at least two, or no groups ('none' on the command line) to cross-validate inside it"
            )
    around = _check_nearby(nearby, groups is not None)
    names = _check_observations(observations, labels)
    return OnOffEvents(indexable(X)[0], labels, binary_classes(labels)[1], ratio, known, around, names)


def check_new_events(
    X: Any,
    y: ArrayLike,
    alpha: ArrayLike,
    groups: ArrayLike | None,
    nearby: Any,
    observations: ArrayLike | None,
    classes: NDArray[Any],
) -> OnOffEvents:
    """Return events for a model that was fitted on some classes; one class and one group are enough."""
    labels = as_labels(y)
    ratio = _check_alpha(alpha, labels)
    if not np.isin(labels, classes).all():
        raise ValueError(
            f"y must hold the classes that model was fitted on, {np.asarray(classes).tolist()}, got "
            f"{np.unique(labels)[:5].tolist()}"
        )
    known = check_groups(X, groups, y=labels)
    around, names = _check_nearby(nearby, groups is not None), _check_observations(observations, labels)
    return OnOffEvents(indexable(X)[0], labels, classes[1], ratio, known, around, names)


def _check_alpha(alpha: ArrayLike, labels: NDArray[Any]) -> FloatArray | float:
    """Return the exposure ratio of all events as a number, or that of each."""
    ratio = as_alpha(alpha)
    if ratio.ndim == 0:
        return float(ratio)
    column = as_column("alpha", ratio)
    check_same_length(y=labels, alpha=column)
    return float(column[0]) if (column == column[0]).all() else column


def _check_observations(observations: ArrayLike | None, labels: NDArray[Any]) -> NDArray[Any] | None:
    if observations is None:
        return None
    names = as_labels(observations, name="observations")
    check_same_length(y=labels, observations=names)
    return names


def check_groups(X: Any, groups: ArrayLike | None, **column: NDArray[Any]) -> NDArray[Any] | None:
    """Return groups of the length of a column, which is given by its name and has the length of X."""
    check_event_numbers(X, **column)
    if groups is None:
        return None
    known = as_labels(groups, name="groups")
    check_same_length(**column, groups=known)
    return known


def _check_nearby(nearby: Any, with_groups: bool) -> NearbyEvents | None:
    """Return nearby events; their groups are needed where there are groups."""
    if nearby is None:
        return None
    if not isinstance(nearby, tuple) or len(nearby) != 2:
        raise ValueError("nearby must be a tuple of events and their groups (None where there are no groups)")
    X, groups = nearby
    if _num_samples(X) == 0:
        return None
    if with_groups:
        if groups is None:
            raise ValueError("nearby must come with groups, as X does")
        groups = as_labels(groups, name="groups of nearby")
        check_event_numbers(X, **{"the groups of nearby": groups})
    return NearbyEvents(indexable(X)[0], groups if with_groups else None)
