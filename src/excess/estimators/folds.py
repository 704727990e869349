"""Folds: training and hold-out events of cross-validation, each event held out once and no group on both sides."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold, check_cv

from excess._core.checks import binary_classes


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
