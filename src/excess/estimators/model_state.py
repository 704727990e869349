"""The state of an estimator, as it goes into a model file and comes out of it, and the classes that have one."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Estimator = TypeVar("Estimator", bound=type)

State = tuple[dict[str, Any], dict[str, NDArray[Any]]]
"""Numbers and arrays, by name, that an estimator has learnt beyond what all On/Off classifiers share."""
SAVEABLE: dict[str, Any] = {}
"""Classes of estimators that a model file may hold, by name."""


def saveable(estimator: Estimator) -> Estimator:
    """Enter a class of estimators, with ``_get_state`` and ``_set_state``, among those that a file may hold."""
    SAVEABLE[estimator.__name__] = estimator
    return estimator


class StoredArrays:
    """The arrays of a file, handed out once each and as what they are expected to be."""

    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None:
        self._left = dict(arrays)

    def take(self, name: str, dtype: Any, *shape: int | None) -> NDArray[Any]:
        """Return an array of a dtype and a shape, in which None is any length."""
        require(name in self._left, f"{name} is missing")
        array = self._left.pop(name)
        fits = array.ndim == len(shape) and all(
            wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
        )
        require(fits and array.dtype == dtype, f"{name} is an array of {array.dtype} of shape {array.shape}")
        return array

    def take_counts(self, name: str, *shape: int | None) -> NDArray[Any]:
        """Return an array of counts: int64, or float64 where events have weights."""
        weighted = name in self._left and self._left[name].dtype == np.float64
        counts = self.take(name, np.float64 if weighted else np.int64, *shape)
        require(bool(((counts >= 0) & (counts < np.inf)).all()), f"{name} holds what is no count")
        return counts

    def check_all_taken(self) -> None:
        """Raise ValueError if an array is left."""
        require(not self._left, f"nothing is known of {', '.join(self._left):.200}")


def cut_array(array: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    """Cut an array into parts of these lengths, which must use it up."""
    require(bool((lengths >= 0).all() and (lengths <= len(array)).all()), "the parts of an array have no valid length")
    ends = np.cumsum(lengths, dtype=np.int64)
    require(int(ends[-1]) == len(array), "the parts of an array do not add up")
    return np.split(array, ends[:-1])


def require(holds: bool, otherwise: str) -> None:
    """Raise ValueError with a sentence unless a condition holds."""
    if not holds:
        raise ValueError(otherwise)
