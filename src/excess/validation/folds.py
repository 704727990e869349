"""Folds of a validation: which groups are left out, or which come later, and with which seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import LeaveOneGroupOut, StratifiedGroupKFold, StratifiedKFold

from excess._core.checks import as_int
from excess.estimators.folds import check_folds, is_fold_number, make_folds


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
