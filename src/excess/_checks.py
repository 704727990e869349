"""Checks of arguments: each returns the argument in one canonical form or says what is wrong with it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def as_result(array: ArrayLike) -> Any:
    """Return an array as it is, and a zero-dimensional one as a Python float."""
    array = np.asarray(array)
    return float(array) if array.ndim == 0 else array


def as_floats(name: str, value: ArrayLike) -> FloatArray:
    """Return ``value`` as a float64 array of any shape, finite throughout."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold numbers, got {_excerpt(value)}") from error
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {_first_where(array, ~np.isfinite(array))}")
    return array


def as_counts(name: str, value: ArrayLike) -> FloatArray:
    """Return counts as a float64 array: finite and not negative."""
    array = as_floats(name, value)
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative, got {_first_where(array, array < 0)}")
    return array


def as_alpha(value: ArrayLike) -> FloatArray:
    """Return exposure ratios as a float64 array: finite and positive."""
    array = as_floats("alpha", value)
    if (array <= 0).any():
        raise ValueError(f"alpha must be positive, got {_first_where(array, array <= 0)}")
    return array


def as_scalar_alpha(value: Any) -> float:
    """Return one exposure ratio as a float: finite and positive."""
    array = as_alpha(value)
    if array.ndim != 0:
        raise ValueError(f"alpha must be one number, got an array of shape {array.shape}")
    return float(array)


def as_probability(name: str, value: Any) -> float:
    """Return one probability in [0, 1] as a float."""
    array = as_floats(name, value)
    if array.ndim != 0 or not 0 <= array <= 1:
        raise ValueError(f"{name} must be one number in [0, 1], got {_excerpt(value)}")
    return float(array)


def as_noise_rate(name: str, value: ArrayLike) -> FloatArray:
    """Return noise rates as a float64 array inside the open interval (0, 1)."""
    array = as_floats(name, value)
    outside = (array <= 0) | (array >= 1)
    if outside.any():
        raise ValueError(f"{name} must lie between 0 and 1, got {_first_where(array, outside)}")
    return array


def as_int(name: str, value: Any, *, minimum: int) -> int:
    """Return a whole number that is at least ``minimum``."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, got {_excerpt(value)}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def as_column(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return a one-dimensional array; a single column is flattened."""
    array = np.asarray(value)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got an array of shape {array.shape}")
    return array


def as_scores(value: ArrayLike, *, name: str = "score") -> FloatArray:
    """Return scores as a one-dimensional float64 array, finite throughout."""
    return as_floats(name, as_column(name, value))


def binary_classes(y: NDArray[Any], *, name: str = "y") -> tuple[Any, Any]:
    """Return the two classes in ``y`` in sorted order: (Off, On)."""
    if y.size == 0:
        raise ValueError(f"{name} is empty: On and Off events are both needed")
    if y.dtype.kind == "f" and np.isnan(y).any():
        raise ValueError(f"{name} holds NaN; every event needs a label")
    if y.dtype.kind in "biuf":  # two linear passes instead of a sort
        off, on = y.min(), y.max()
        if off != on and bool(((y == off) | (y == on)).all()):
            return off, on
    try:
        classes = np.unique(y)
    except TypeError as error:
        raise ValueError(f"{name} mixes labels that cannot be ordered") from error
    if len(classes) == 1:
        raise ValueError(f"{name} holds one class only ({classes[0]!r}); On and Off events are both needed")
    if len(classes) > 2:
        shown = ", ".join(repr(c) for c in classes[:5].tolist())
        more = ", ..." if len(classes) > 5 else ""
        raise ValueError(f"{name} must hold two classes, Off and On, got {len(classes)}: {shown}{more}")
    return classes[0], classes[1]


def as_on_mask(y: ArrayLike, *, name: str = "y") -> BoolArray:
    """Return True where an event is On: the larger of the two classes in sorted order."""
    array = as_column(name, y)
    _, on = binary_classes(array, name=name)
    return np.asarray(array == on, dtype=np.bool_)


def check_same_length(**arrays: NDArray[Any]) -> None:
    """Raise ValueError unless all arrays, given by the names of the arguments, are equally long."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"len({name}) = {length}" for name, length in lengths.items())
        raise ValueError(f"{' and '.join(lengths)} must have the same length, got {said}")


def _first_where(array: FloatArray, bad: BoolArray) -> str:
    """Describe the first offending element: its value and, for arrays, its position."""
    value = array[bad].flat[0]
    if array.ndim == 0:
        return f"{value:g}"
    position = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{value:g} at position {position[0] if len(position) == 1 else position}"


def _excerpt(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
