"""The order of groups: by their times, or by the numbers in their names."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["number_groups"]


def number_groups(
    groups: NDArray[Any], time: NDArray[np.float64] | None = None
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the distinct groups in order, and the number of each event's group.

    Where times are known, groups are in the order of their median times. Without times numbers are in their order, and
    texts in the order of the numbers in them. Times that start again in every group, such as those since the begin of a
    run, say nothing about the order, and are not used.

    Examples
    --------
    >>> import numpy as np
    >>> from excess._core.ordering import number_groups
    >>> number_groups(np.array(["run_10", "run_2", "run_1"]))[0].tolist()
    ['run_1', 'run_2', 'run_10']
    >>> number_groups(np.array(["b", "a"]), np.array([1.0, 2.0]))[0].tolist()
    ['b', 'a']
    """
    names, number = np.unique(groups, return_inverse=True)
    order = _order_by_time(number, len(names), time)
    if order is None:
        if names.dtype.kind not in "OUS":
            return names, number
        order = np.array(sorted(range(len(names)), key=lambda place: _natural(names[place])), dtype=np.intp)
    place = np.empty(len(names), dtype=np.intp)
    place[order] = np.arange(len(names))
    return names[order], place[number]


def _order_by_time(
    number: NDArray[np.intp], n_groups: int, time: NDArray[np.float64] | None
) -> NDArray[np.intp] | None:
    """Return the groups in the order of their median times; None where that is not known."""
    if time is None or not np.isfinite(time).all() or n_groups < 2:
        return None
    rows = np.lexsort((time, number))
    ends = np.cumsum(np.bincount(number, minlength=n_groups))
    starts = np.append(0, ends[:-1])
    first, middle, last = (time[rows[place]] for place in (starts, (starts + ends - 1) // 2, ends - 1))
    order = np.argsort(middle, kind="stable")
    overlaps = first[order][1:] < last[order][:-1]
    return None if np.count_nonzero(overlaps) > len(overlaps) / 2 else order


def _natural(name: Any) -> tuple[Any, ...]:
    """Return a key that sorts texts by the numbers in them."""
    if not isinstance(name, (str, bytes)):
        return (0, name)
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    parts = re.split(r"(\d+)", text)
    return (1, [(int(part), part) if place % 2 else (0, part) for place, part in enumerate(parts)])
