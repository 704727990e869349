"""Folds: training and hold-out events of cross-validation, each event held out once and no group on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import pdtrc
from sklearn.model_selection import LeaveOneGroupOut, StratifiedGroupKFold, StratifiedKFold, check_cv

from excess._core.checks import BoolArray, FloatArray, as_int, binary_classes
from excess._core.errors import MismatchError
from excess._core.ordering import number_groups

_N_FOLDS = 5
_MIN_CHANCE = 1e-6
"""Probability that a group has no On or no Off events by chance, below which they were observed separately."""


def make_folds(cv: Any, X: Any, labels: NDArray[Any], split_params: dict[str, Any]) -> list[Any]:
    """Return pairs of training and hold-out indices that test every event once, on other events.

    A number of folds with groups becomes stratified group folds, no more than there are groups. Where On and Off are in
    different groups, blocks of groups take their place.
    """
    groups = split_params.get("groups")
    if is_fold_number(cv) and groups is not None:
        groups = block_groups(groups, labels == binary_classes(labels)[1], 5 if cv is None else cv)
        split_params = {**split_params, "groups": groups}
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


def block_groups(groups: NDArray[Any], on: BoolArray, n_blocks: int | None = None) -> NDArray[Any]:
    """Return groups that hold On and Off events both: those given, or blocks of them.

    Where On and Off were observed in different nights or runs, each group has one class. A model that is trained on the
    others has seen less of that class than the exposure ratio says, and its hold-out events have no counterpart. So
    groups are put together to blocks with equal shares of the On events and of the Off events, as far as possible.

    Parameters
    ----------
    groups : ndarray of shape (n_events,)
        Groups.
    on : ndarray of bool of shape (n_events,)
        True for On events.
    n_blocks : int or None, default=None
        Largest number of blocks; by default five.

    Returns
    -------
    ndarray of shape (n_events,)
        The groups, if none of them is without On or without Off events by more than chance; else numbers of blocks.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.estimators.folds import block_groups
    >>> night = np.repeat([1, 2, 3, 4], 100)
    >>> on = night % 2 == 1
    >>> block_groups(night, on)[::100].tolist()
    [0, 0, 1, 1]
    """
    names, number = np.unique(groups, return_inverse=True)
    n_on = np.bincount(number[on], minlength=len(names))
    n_off = np.bincount(number[~on], minlength=len(names))
    if not groups_are_apart(groups, on):
        return groups
    most = min(int(np.count_nonzero(n_on)), int(np.count_nonzero(n_off)))
    for n in range(min(most, n_blocks or _N_FOLDS), 1, -1):
        block = _share_groups(n_on / n_on.sum(), n_off / n_off.sum(), n)
        if all(counts[block == one].any() for counts in (n_on, n_off) for one in range(n)):
            return block[number]
    which = "On" if np.count_nonzero(n_on) < np.count_nonzero(n_off) else "Off"
    only = names[n_on > 0] if which == "On" else names[n_off > 0]
    raise ValueError(
        f"On and Off events are in different groups, and all {which} events in one ({only.tolist()[0]!r}), so that "
        "no fold can hold both; give more groups, or no groups ('none' on the command line) to cross-validate inside "
        "them"
    )


def groups_are_apart(groups: NDArray[Any], on: BoolArray) -> bool:
    """Say whether On and Off events are in different groups, such as runs of On and of Off observations.

    Examples
    --------
    >>> import numpy as np
    >>> from excess.estimators.folds import groups_are_apart
    >>> night = np.repeat([1, 2, 3, 4], 100)
    >>> groups_are_apart(night, night % 2 == 1), groups_are_apart(night, np.arange(400) % 2 == 1)
    (True, False)
    """
    names, number = np.unique(groups, return_inverse=True)
    counts = (np.bincount(number[side], minlength=len(names)) for side in (on, ~on))
    return _are_apart(*counts)


def _are_apart(n_on: NDArray[np.intp], n_off: NDArray[np.intp]) -> bool:
    """Say whether a group has no On or no Off events by more than chance, or too many small groups together."""
    n = n_on + n_off
    share = n_on.sum() / n.sum()
    # half the mean share: a source may be weaker in some groups than in others
    chance = (1 - share / 2) ** n + ((1 + share) / 2) ** n
    single = (n > 0) & ((n_on == 0) | (n_off == 0))
    n_single, expected = np.count_nonzero(single), float(chance[n > 0].sum())
    too_many = n_single > 0 and pdtrc(n_single - 1, expected) < _MIN_CHANCE
    return bool(too_many or (chance[single] < _MIN_CHANCE).any())


def _share_groups(on: FloatArray, off: FloatArray, n_blocks: int) -> NDArray[np.intp]:
    """Return a block for each group, so that blocks have equal shares of the On and of the Off events.

    The largest group goes first, each into the block that has least of its class.
    """
    block = np.zeros(len(on), dtype=np.intp)
    filled = np.zeros((n_blocks, 2))
    for group in np.argsort(-(on + off), kind="stable"):
        own = np.array([on[group], off[group]])
        block[group] = np.argmin(np.sum((filled + own - 1 / n_blocks).clip(min=0) ** 2, axis=1) + filled @ own)
        filled[block[group]] += own
    # numbered by their first groups
    order = np.unique(block, return_index=True)
    return np.argsort(np.argsort(order[1]))[np.searchsorted(order[0], block)]


def _short_parts(on: BoolArray) -> NDArray[np.intp]:
    """Return the number of a consecutive part for each event, just long enough to hold On and Off events both."""
    rarer = max(min(on.mean(), 1 - on.mean()), 0.001)
    return np.arange(len(on)) // int(np.ceil(1.5 * np.log(_MIN_CHANCE) / np.log(1 - rarer / 2)))


def is_fold_number(cv: Any) -> bool:
    """Say whether ``cv`` is a number of folds, or None for the usual one."""
    return cv is None or (isinstance(cv, (int, np.integer)) and not isinstance(cv, bool))


def _as_indices(part: Any) -> NDArray[np.intp]:
    """Return one side of a fold as indices; masks are welcome."""
    part = np.asarray(part)
    return np.flatnonzero(part) if part.dtype == np.bool_ else part.astype(np.intp)


def fold_maker(
    cv: Any,
    strategy: str,
    X: Any,
    labels: NDArray[Any],
    on_class: Any,
    groups: NDArray[Any] | None,
    time: FloatArray | None = None,
) -> Callable[[NDArray[Any], int], list[Any]]:
    """Return a function of labels and a seed that makes folds; forward, times give the order of groups."""
    if is_fold_number(cv) and cv is not None:
        as_int("cv", cv, minimum=2)
        n_units, unit = (len(labels), "events") if groups is None else (len(np.unique(groups)), "groups")
        if cv > n_units:
            raise MismatchError("cv", f"must be at most the number of {unit}, {n_units}, got {cv}")
    if is_fold_number(cv) and groups is None and strategy == "pooled":
        n_folds = 5 if cv is None else cv
        n_on = int(np.count_nonzero(labels == on_class))
        if min(n_on, len(labels) - n_on) < n_folds:
            raise ValueError(
                f"too few events for {n_folds} folds: {n_on} On and {len(labels) - n_on} Off, and each fold "
                "needs one of each"
            )
    if strategy == "forward":
        if not is_fold_number(cv):
            raise ValueError(f"cv must be a number of blocks or None with strategy='forward', got {cv!r}")
        folds = _forward_folds(labels, labels == on_class, groups, cv, time)
        return lambda given, seed: folds
    if not is_fold_number(cv):
        splitter = cv if hasattr(cv, "split") else list(cv)  # an iterator would be used up by the first run
    elif groups is not None:
        groups = block_groups(groups, labels == on_class, cv)
        n_blocks = len(np.unique(groups))
        if cv is not None and cv > n_blocks:
            raise MismatchError(
                "cv",
                f"must be at most {n_blocks}, got {cv}: On and Off events are in different groups, and each fold "
                "needs some of either",
            )
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


def _forward_folds(
    labels: NDArray[Any], on: BoolArray, groups: NDArray[Any] | None, n_blocks: int | None, time: FloatArray | None
) -> list[Any]:
    """Return folds that train on all earlier blocks; the first block is not held out by any."""
    if groups is None:
        unit, n_units = np.arange(len(labels)), len(labels)
        n_blocks = 5 if n_blocks is None else n_blocks
    else:
        names, unit = number_groups(groups, time)
        n_units = len(names)
        n_blocks = n_units if n_blocks is None else n_blocks
    sizes = [len(part) for part in np.array_split(np.arange(n_units), n_blocks)]
    block = np.repeat(np.arange(n_blocks), sizes)[unit]
    parts = block if groups is not None else _short_parts(on)
    n_parts = int(parts.max()) + 1
    if _are_apart(np.bincount(parts[on], minlength=n_parts), np.bincount(parts[~on], minlength=n_parts)):
        raise ValueError(
            "On and Off events were observed at different times, so that the exposure ratio of the events before a "
            "moment is not that of all, and only all events together can be compared"
        )
    folds = [(np.flatnonzero(block < later), np.flatnonzero(block == later)) for later in range(1, n_blocks)]
    check_folds(folds, labels, groups, what="strategy='forward'")
    return folds
