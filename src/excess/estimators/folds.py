"""Folds: training and hold-out events of cross-validation, each event held out once and no group on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import LeaveOneGroupOut, StratifiedGroupKFold, StratifiedKFold, check_cv

from excess._core.checks import as_int, binary_classes


def make_folds(cv: Any, X: Any, labels: NDArray[Any], split_params: dict[str, Any]) -> list[Any]:
    """Return pairs of training and hold-out indices that test every event once, on other events.

    A number of folds with groups becomes stratified group folds, no more than there are groups.
    """
    groups = split_params.get("groups")
    try:
        if is_fold_number(cv) and groups is not None:
            splitter = StratifiedGroupKFold(n_splits=min(5 if cv is None else cv, len(np.unique(groups))))
        else:
            splitter = check_cv(cv, labels, classifier=True)
        folds = [tuple(map(_as_indices, fold)) for fold in splitter.split(X, labels, **split_params)]
    except (TypeError, ValueError) as error:
        if groups is None and "groups" in str(error):
            raise ValueError(f"groups must be given: cv={cv!r} needs them") from error
        raise ValueError(f"cv={cv!r} cannot split these events: {error}") from error
    check_folds(folds, labels, groups, what=f"cv={cv!r}")
    times_held_out = np.zeros(len(labels), dtype=np.int64)
    for _, held_out in folds:
        times_held_out[held_out] += 1
    if (times_held_out != 1).any():
        raise ValueError(f"cv must test every event exactly once, which {cv!r} does not")
    return folds


def check_folds(folds: list[Any], labels: NDArray[Any], groups: NDArray[Any] | None, *, what: str) -> None:
    """Raise ValueError where a fold trains on what it tests, splits a group, or has one class only to train on."""
    for train, held_out in folds:
        is_trained_on = np.zeros(len(labels), dtype=np.bool_)
        is_trained_on[train] = True
        if is_trained_on[held_out].any():
            raise ValueError(f"training and hold-out events must be kept apart, which {what} does not")
        binary_classes(labels[train], name=f"y in a training part of {what}")
    if groups is None:
        return
    names, numbers = np.unique(groups, return_inverse=True)
    for train, held_out in folds:
        shared = np.intersect1d(numbers[train], numbers[held_out])
        if len(shared) > 0:
            raise ValueError(
                f"{what} puts events of group {names[shared].tolist()[0]!r} on both sides of a fold; use a splitter "
                "that keeps groups apart, or leave groups out"
            )


def is_fold_number(cv: Any) -> bool:
    """Say whether ``cv`` is a number of folds, or None for the usual one."""
    return cv is None or (isinstance(cv, (int, np.integer)) and not isinstance(cv, bool))


def _as_indices(part: Any) -> NDArray[np.intp]:
    """Return one side of a fold as indices; masks are welcome."""
    part = np.asarray(part)
    return np.flatnonzero(part) if part.dtype == np.bool_ else part.astype(np.intp)


def fold_maker(
    cv: Any, strategy: str, X: Any, labels: NDArray[Any], on_class: Any, groups: NDArray[Any] | None
) -> Callable[[NDArray[Any], int], list[Any]]:
    """Return a function of labels and a seed that makes folds."""
    if is_fold_number(cv) and cv is not None:
        as_int("cv", cv, minimum=2)
        n_units, unit = (len(labels), "events") if groups is None else (len(np.unique(groups)), "groups")
        if cv > n_units:
            raise ValueError(f"cv must be at most the number of {unit}, {n_units}, got {cv}")
    if is_fold_number(cv) and groups is None and strategy == "pooled":
        n_folds = 5 if cv is None else cv
        n_on = int(np.count_nonzero(labels == on_class))
        if min(n_on, len(labels) - n_on) < n_folds:
            raise ValueError(
                f"too few events for {n_folds} folds: {n_on} On and {len(labels) - n_on} Off, and each fold "
                "needs one of either"
            )
    if strategy == "forward":
        if not is_fold_number(cv):
            raise ValueError(f"cv must be a number of blocks or None with strategy='forward', got {cv!r}")
        folds = _forward_folds(labels, groups, cv)
        return lambda given, seed: folds
    if not is_fold_number(cv):
        splitter = cv if hasattr(cv, "split") else list(cv)  # an iterator would be used up by the first run
    split_params = {} if groups is None else {"groups": groups}

    def folds_of(given: NDArray[Any], seed: int) -> list[Any]:
        if not is_fold_number(cv):
            return make_folds(splitter, X, given, split_params)
        if groups is None:
            drawn = StratifiedKFold(5 if cv is None else cv, shuffle=True, random_state=seed)
        elif cv is None:
            drawn = LeaveOneGroupOut()
        else:
            drawn = StratifiedGroupKFold(cv, shuffle=True, random_state=seed)
        return make_folds(drawn, X, given, split_params)

    return folds_of


def _forward_folds(labels: NDArray[Any], groups: NDArray[Any] | None, n_blocks: int | None) -> list[Any]:
    """Return folds that train on all earlier blocks; the first block is not held out by any."""
    if groups is None:
        unit, n_units = np.arange(len(labels)), len(labels)
        n_blocks = 5 if n_blocks is None else n_blocks
    else:
        names, unit = np.unique(groups, return_inverse=True)
        n_units = len(names)
        n_blocks = n_units if n_blocks is None else n_blocks
    sizes = [len(part) for part in np.array_split(np.arange(n_units), n_blocks)]
    block = np.repeat(np.arange(n_blocks), sizes)[unit]
    folds = [(np.flatnonzero(block < later), np.flatnonzero(block == later)) for later in range(1, n_blocks)]
    check_folds(folds, labels, groups, what="strategy='forward'")
    return folds
