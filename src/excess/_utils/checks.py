"""Checks of arguments and input files; orderings and sums that do not depend on chunks."""

import re
import stat
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import _num_samples, column_or_1d

from excess._utils.errors import EventFileError, wrap_errors

BACKGROUND, SIGNAL, UNCLEAR = "background", "signal", "unclear"

_WORDS = {
    BACKGROUND: """off background backgrounds bkg bkgd bg hadron hadrons hadronic proton protons noise sideband
        sidebands control decoy decoys normal false no not non neg negative negatives""",
    SIGNAL: """on signal signals sig source gamma gammas photon photons target targets anomaly anomalies anomalous
        outlier outliers true yes pos positive positives""",
    UNCLEAR: """unlabelled unlabeled labelled labeled unknown unclassified unassigned undefined other others rest mixed
        mixture""",
}
_LABEL_WORDS_KINDS = {word: kind for kind, words in _WORDS.items() for word in words.split()}
_PRECEDENCE = (UNCLEAR, BACKGROUND, SIGNAL)  # "not signal" is background, "other background" is unclear


def kind_of(label: Any) -> str | None:
    """Return the class that a text denotes; None for unknown words and other types."""
    if isinstance(label, bytes):
        label = label.decode(errors="replace")
    if not isinstance(label, str):
        return None
    found = {_LABEL_WORDS_KINDS.get(word) for word in re.findall(r"[a-z]+", label.casefold())}
    return next((kind for kind in _PRECEDENCE if kind in found), None)


def why_unclear(off: Any, on: Any) -> str | None:
    """Return why ``on``, the larger label in sorted order, may not be On; None if the labels are consistent."""
    for label, wrong in ((on, BACKGROUND), (off, SIGNAL)):
        kind = kind_of(label)
        if kind in (UNCLEAR, wrong):
            return f"{label!r} may be either" if kind == UNCLEAR else f"{label!r} is a word for {kind}"
    with suppress(ValueError):
        if isinstance(off, (str, bytes)) and isinstance(on, (str, bytes)) and float(off) > float(on):
            return "these texts are not in the order of their numbers"
    return None


_MISSING_ALPHA = (
    "alpha is missing: pass the exposure ratio On/Off, which is 1 / m for m Off regions as large as On, or "
    "alpha_from_p_minus(p_minus) if the noise rate of the background is known"
)
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def as_result(array: ArrayLike) -> Any:
    """Return an array unchanged, and a zero-dimensional one as a Python float."""
    array = np.asarray(array)
    return float(array) if array.ndim == 0 else array


def as_array(name: str, value: Any) -> NDArray[Any]:
    """Convert to an array; masked elements and ragged lists are errors, units must cancel."""
    if np.ma.is_masked(value):
        raise ValueError(f"{name} has masked elements; remove them first")
    if hasattr(value, "unit") and hasattr(value, "to_value"):
        try:
            value = value.to_value("")
        except Exception as error:
            raise ValueError(f"{name} must have no unit, got {value.unit}") from error
    try:
        return np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be an array, got {_excerpt(value)}") from error


def as_floats(name: str, value: ArrayLike) -> FloatArray:
    """Return ``value`` as a float64 array of any shape; all elements must be finite."""
    given = as_array(name, value)
    numeric = given.dtype.kind in "biuf" or (
        given.dtype.kind == "O" and not any(element is None or isinstance(element, str) for element in given.flat)
    )
    try:
        if not numeric:
            raise TypeError
        array = given.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must contain numbers, got {_excerpt(value)}") from error
    return _reject(name, array, ~np.isfinite(array), "be finite")


def as_counts(name: str, value: ArrayLike) -> FloatArray:
    """Return counts as a float64 array: finite and non-negative."""
    array = as_floats(name, value)
    return _reject(name, array, array < 0, "not be negative")


def as_alpha(value: ArrayLike) -> FloatArray:
    """Return exposure ratios as a float64 array: finite and positive; raise an error for None."""
    if value is None:
        raise ValueError(_MISSING_ALPHA)
    array = as_floats("alpha", value)
    return _reject("alpha", array, array <= 0, "be positive")


def as_scalar(name: str, array: FloatArray) -> float:
    """Return a validated zero-dimensional array as a float."""
    if array.ndim != 0:
        raise ValueError(f"{name} must be one number, got an array of shape {array.shape}")
    return float(array)


def as_count(name: str, value: Any) -> float:
    """Return one finite, non-negative number."""
    return as_scalar(name, as_counts(name, value))


def as_scalar_alpha(value: Any) -> float:
    """Return one exposure ratio as a float: finite and positive."""
    return as_scalar("alpha", as_alpha(value))


def as_probability(name: str, value: Any) -> float:
    """Return one probability in [0, 1] as a float."""
    array = np.asarray(as_scalar(name, as_floats(name, value)))
    return float(_reject(name, array, (array < 0) | (array > 1), "be in [0, 1]"))


def as_noise_rate(name: str, value: ArrayLike) -> FloatArray:
    """Return noise rates as a float64 array inside the open interval (0, 1)."""
    array = as_floats(name, value)
    return _reject(name, array, (array <= 0) | (array >= 1), "be between 0 and 1")


def as_threshold(name: str, value: Any) -> float:
    """Return a threshold as a float: any number, including infinities."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {_excerpt(value)}")
    if np.isnan(value):
        raise ValueError(f"{name} must not be NaN")
    return float(value)


def as_int(name: str, value: Any, *, minimum: int) -> int:
    """Return an integer that is at least ``minimum``."""
    if isinstance(value, (bool, np.bool_, np.timedelta64)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be an integer, got {_excerpt(value)}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def as_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return one of several words."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {_excerpt(value)}")
    return value


def as_random_state(value: Any) -> np.random.RandomState:
    """Return a RandomState for a seed, a RandomState or None."""
    try:
        return check_random_state(value)
    except ValueError as error:
        known = "an integer, a RandomState or None"
        raise ValueError(f"random_state must be {known}, got {_excerpt(value)}") from error


def as_column(name: str, value: ArrayLike) -> NDArray[Any]:
    """Return a one-dimensional array; a single column is flattened."""
    array = as_array(name, value)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        what = f"an array of shape {array.shape}" if array.ndim else _excerpt(value)
        raise ValueError(f"{name} must be one-dimensional, got {what}")
    return array


def as_labels(value: ArrayLike, *, name: str = "y") -> NDArray[Any]:
    """Return labels as a one-dimensional array without missing values."""
    array = as_column(name, value)
    if array.size == 0:
        raise ValueError(f"{name} is empty: both On and Off events are required")
    missing = array.dtype.kind == "O" and any(label is None or label != label for label in array)
    if missing or (array.dtype.kind == "f" and not np.isfinite(array).all()):
        raise ValueError(f"{name} contains NaN or infinity; every event requires a label")
    return array


def binary_classes(labels: NDArray[Any], *, name: str = "y") -> tuple[Any, Any]:
    """Return the two classes among labels in sorted order: (Off, On)."""
    if labels.dtype.kind in "biuf":  # two linear passes instead of a sort
        off, on = labels.min(), labels.max()
        if off != on and bool(((labels == off) | (labels == on)).all()):
            return off, on
    try:
        classes = np.unique(labels)
    except TypeError as error:
        raise ValueError(f"{name} mixes labels that cannot be ordered") from error
    if len(classes) == 1:
        raise ValueError(f"{name} contains one class only ({classes.tolist()[0]!r}); both On and Off are required")
    if len(classes) > 2:
        shown = ", ".join(map(repr, classes[:5].tolist())) + (", ..." if len(classes) > 5 else "")
        raise ValueError(f"{name} must contain two classes, Off and On, got {len(classes)}: {shown}")
    off, on = classes.tolist()
    if (reason := why_unclear(off, on)) is not None:
        problem = f"On is the larger of two labels, which would be {on!r} and not {off!r} in {name}, but {reason}"
        remedy = f"use 1 for On and 0 for Off: (labels == {off!r}).astype(int), if {off!r} is On"
        raise ValueError(f"{problem}; {remedy}")
    return classes[0], classes[1]


def as_binary_target(y: Any) -> NDArray[Any]:
    """Return the ``y`` of an estimator as labels of two classes, with the error messages that scikit-learn expects."""
    labels = as_labels(column_or_1d(y, warn=True))
    try:
        kind = type_of_target(labels, input_name="y")
    except TypeError as error:
        raise ValueError("y mixes labels that cannot be ordered") from error
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"Unknown label type: {kind}. y must contain two classes, Off and On.")
    if kind != "binary":
        raise ValueError(f"Only binary classification is supported. The type of the target y is {kind}.")
    binary_classes(labels)
    return labels


def as_scored_events(y: ArrayLike, score: ArrayLike) -> tuple[BoolArray, FloatArray]:
    """Return labels as an On mask and scores as finite float64, of equal length."""
    labels = as_labels(y)
    on = np.asarray(labels == binary_classes(labels)[1], dtype=np.bool_)
    scores = as_floats("score", as_column("score", score))
    check_same_length(y=on, score=scores)
    return on, scores


def check_same_length(**arrays: Any) -> None:
    """Raise ValueError unless all arrays, given by argument name, have the same length."""
    lengths = {name: _num_samples(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"len({name}) = {length}" for name, length in lengths.items())
        raise ValueError(f"{' and '.join(lengths)} must have the same length, got {said}")


def check_broadcast(**arrays: NDArray[Any]) -> None:
    """Raise ValueError unless the shapes of the arrays, given by name, broadcast."""
    try:
        np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError as error:
        said = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"the shapes do not broadcast: {said}") from error


def _reject(name: str, array: FloatArray, bad: NDArray[Any], rule: str) -> FloatArray:
    """Return an array without bad elements; the error names the first one and, for arrays, its position."""
    if not bad.any():
        return array
    position = tuple(map(int, np.argwhere(bad)[0]))
    where = f" at position {position[0] if array.ndim == 1 else position}" if array.ndim else ""
    raise ValueError(f"{name} must {rule}, got {array[position]:g}{where}")


def _excerpt(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


_INPUTS_KINDS = {
    stat.S_IFDIR: "a folder; pass the files in it",
    stat.S_IFIFO: "a pipe, but files are read more than once; save its content to a file",
    stat.S_IFSOCK: "a socket; use a file",
    **dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device; use a file"),
}


def kind_of_file(path: Path) -> str | None:
    """Return the type of a path and a remedy, None for a regular file or a link to one."""
    kind = stat.S_IFMT(path.stat().st_mode)
    return _INPUTS_KINDS.get(kind, None if path.is_file() else "not a regular file; use a file")


def check_regular_file(path: Path) -> None:
    """Raise EventFileError unless a path is a regular file, or a link to one."""
    with wrap_errors(path, "opening"):
        try:
            kind = kind_of_file(path)
        except FileNotFoundError as error:
            problem = "no file matches this pattern" if set("*?[") & set(path.name) else "does not exist"
            raise EventFileError(f"{path}: {problem}") from error
    if kind is not None:
        raise EventFileError(f"{path}: is {kind}")


def read_input_text(path: Path, largest: int, doing: str) -> str:
    """Return the text of a file of at most ``largest`` bytes; raise EventFileError if it is missing or larger."""
    check_regular_file(path)
    with wrap_errors(path, doing):
        with path.open("rb") as file:
            content = file.read(largest + 1)
        if len(content) > largest:
            raise EventFileError(f"{path}: has more than {largest:,} bytes, the maximum for such a text file")
        return content.decode("utf-8")


_MANTISSA_BITS, _LOW_BITS = 53, 26


def exact_sum(values: NDArray[Any]) -> Fraction:
    """Return the exact sum of finite numbers: sums of parts add up to the sum of all, in any order."""
    if len(values) == 0:
        return Fraction(0)
    mantissa, exponent = np.frexp(np.asarray(values, dtype=np.float64))
    whole = np.ldexp(mantissa, _MANTISSA_BITS).astype(np.int64)
    lowest = int(exponent.min())
    total = Fraction(0)
    # numbers of one exponent are multiples of the same unit; halves of their digits are summed in 64 bits
    for step in np.flatnonzero(np.bincount(exponent - lowest)).tolist():
        own = whole[exponent == lowest + step]
        units = (int((own >> _LOW_BITS).sum()) << _LOW_BITS) + int((own & ((1 << _LOW_BITS) - 1)).sum())
        total += units * Fraction(2) ** (lowest + step - _MANTISSA_BITS)
    return total


def number_groups(groups: NDArray[Any], time: FloatArray | None = None) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Return the distinct groups in order, and the index of each event's group."""
    names, number = np.unique(groups, return_inverse=True)
    order = _order_by_time(number, len(names), time)
    if order is None:
        if names.dtype.kind not in "OUS":
            return names, number
        order = np.array(sorted(range(len(names)), key=lambda place: _natural(names[place])), dtype=np.intp)
    return names[order], np.argsort(order)[number]


def _order_by_time(number: NDArray[np.intp], n_groups: int, time: FloatArray | None) -> NDArray[np.intp] | None:
    """Return the groups ordered by their median times; None if unknown."""
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
    """Return a key that sorts text by the numbers it contains."""
    if not isinstance(name, (str, bytes)):
        return (0, name)
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    parts = re.split(r"(\d+)", text)
    return (1, [(int(part), part) if place % 2 else (0, part) for place, part in enumerate(parts)])
