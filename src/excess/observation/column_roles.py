"""Roles of columns: why a column is no feature, by its name and by a sample of its values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from excess._core.checks import BoolArray, FloatArray
from excess.events.origin import origin_of
from excess.observation.inspection import Inspection

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["energy_column", "is_classifier_output", "reason_by_name", "reasons_against", "truth_columns"]

_MAX_MISSING = 0.2
"""Share of events without a value from which a column is no feature: such events would be cut away."""
_MIN_EVENTS = 20
"""Events in a sample from which its values say something about a column."""
_MAX_COMPARED = 4_000
"""Events that are compared to find copies of columns."""
_COPY = 1 - 1e-6
"""Correlation of values and of ranks from which a column is a copy of another one."""

_RULES = tuple(
    (re.compile(pattern, re.IGNORECASE), reason)
    for pattern, reason in (
        (r"(.*_)?psi(_.*)?|delta", "it is the orientation of the image, which points to where the event came from"),
        (r"(.*_)?core_?[xy](_.*)?|(.*_)?tel_pos_.*|(.*_)?tilted_core_.*", "it is a position on the ground"),
        (r"(.*_)?disp_(dx|dy|angle|sign)(_.*)?", "it is a direction in the camera"),
        (r"(.*_)?(alt|az|ra|dec)_(uncert|uncertainty|err|error)", "it is the error of a direction"),
        (r"reco_type|(.*_)?particle_type", "it is the output of a classifier, which may know the position"),
        (r"(.*_)?(event_type|trigger_type|calibration_id|event_quality)", "it is a type, not a measurement"),
        (r"(.*_)?(is_valid|is_good_event|quality_flag)", "it is a flag, not a measurement"),
        (r"(.*_)?weights?", "it is a weight"),
    )
)
_TRUTH = re.compile(r"(true|mc|corsika|ceres)_.*", re.IGNORECASE)
_ENERGY = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"energy",
        r"reco_energy",
        r"gamma_energy_prediction",
        r"(est|estimated|rec|reconstructed)_?energy|energy_?(est|rec|reco|prediction)",
        r"(?!.*(uncert|err)).*_energy",
        r"log_?(reco_)?energy|log10_?energy",
    )
)


def is_classifier_output(name: str) -> bool:
    """Say whether a column is the score of another analysis, which may be a reference.

    Examples
    --------
    >>> from excess.observation.column_roles import is_classifier_output
    >>> is_classifier_output("gammaness"), is_classifier_output("width")
    (True, False)
    """
    return origin_of(name) is not None and origin_of(name, is_reference=True) is None


def truth_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that only simulated events have.

    Examples
    --------
    >>> from excess.observation.column_roles import truth_columns
    >>> truth_columns(("width", "true_energy"))
    ('true_energy',)
    """
    return tuple(name for name in columns if _TRUTH.fullmatch(name))


def energy_column(columns: tuple[str, ...]) -> str | None:
    """Return the column of the reconstructed energy, None if there is none.

    Examples
    --------
    >>> from excess.observation.column_roles import energy_column
    >>> energy_column(("width", "true_energy", "RandomForestRegressor_energy"))
    'RandomForestRegressor_energy'
    """
    known = [name for name in columns if not _TRUTH.fullmatch(name)]
    return next((name for pattern in _ENERGY for name in known if pattern.fullmatch(name)), None)


def reason_by_name(name: str) -> str | None:
    """Return why a column is no feature by its name, None if it may be one.

    Examples
    --------
    >>> from excess.observation.column_roles import reason_by_name
    >>> reason_by_name("hillas_psi")
    'it is the orientation of the image, which points to where the event came from'
    """
    return origin_of(name) or next((reason for pattern, reason in _RULES if pattern.fullmatch(name)), None)


class _Column(NamedTuple):
    """A column of a sample: its values among usable events, and the file of each."""

    values: pd.Series
    numbers: FloatArray | None
    files: NDArray[np.int64]


def _text(column: _Column) -> str | None:
    return "it is a text or a date, not a number" if column.numbers is None else None


def _missing(column: _Column) -> str | None:
    assert column.numbers is not None
    share = float(np.mean(~np.isfinite(column.numbers))) if len(column.numbers) else 0.0
    if share <= _MAX_MISSING:
        return None
    return "it has no values" if share == 1 else f"it is missing in {share:.0%} of the events, which would be cut away"


def _constant(column: _Column) -> str | None:
    assert column.numbers is not None
    known = np.isfinite(column.numbers)
    values, files = column.numbers[known], column.files[known]
    if len(values) < 2:
        return None
    if (values == values[0]).all():
        return f"it is {values[0]:g} in all events that were looked at"
    if len(values) > 2 * len(np.unique(files)) and all(np.ptp(values[files == one]) == 0 for one in np.unique(files)):
        return "it is the same in all events of a file, so it is a property of the run"
    return None


def _growing(column: _Column) -> str | None:
    assert column.numbers is not None
    values, files = column.numbers, column.files
    if len(values) < _MIN_EVENTS:
        return None
    steps = np.diff(values)[np.diff(files) == 0]
    if len(steps) and (steps > 0).all():
        return "it grows from event to event, as a time or a counter does"
    return None


_CHECKS: tuple[Callable[[_Column], str | None], ...] = (_text, _missing, _constant, _growing)
"""What is asked of the values of a column, in this order; each returns why it is no feature, or None."""


def reasons_against(inspection: Inspection, preferred: tuple[str, ...] = ()) -> dict[str, str]:
    """Return why columns are no features, by name and by the values of a sample.

    Parameters
    ----------
    inspection : Inspection
        The files.
    preferred : tuple of str, default=()
        Columns that stay where another one is a copy of them.

    Returns
    -------
    dict of str to str
        The reasons by column; columns that may be features are not in it.
    """
    found = {name: reason for name in inspection.columns if (reason := reason_by_name(name))}
    sample, files = inspection.sample, inspection.file_numbers
    numbers = {name: as_floats for name in inspection.columns if (as_floats := _numbers(sample[name])) is not None}
    usable = _usable_events({name: values for name, values in numbers.items() if name not in found}, len(sample))
    for name in inspection.columns:
        if name not in found:
            own = numbers.get(name)
            column = _Column(sample[name][usable], None if own is None else own[usable], files[usable])
            reason = next((text for check in _CHECKS if (text := check(column))), None)
            if reason is not None:
                found[name] = reason
    found |= _copies({name: values[usable] for name, values in numbers.items()}, found, preferred)
    found |= dict.fromkeys(inspection.only_in_some, "some of the files lack it")
    return found


def _numbers(column: pd.Series) -> FloatArray | None:
    """Return a column as floats, None if it holds texts or dates."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column.dtype):
        return None
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _usable_events(columns: Mapping[str, FloatArray], n_events: int) -> BoolArray:
    """Return the events that have values in most columns; all, if there are none.

    Events without an image, or without a reconstruction, miss all of them, which says nothing about a column.
    """
    known = {name: np.isfinite(values) for name, values in columns.items()}
    known = {name: finite for name, finite in known.items() if finite.any()}
    if not known:
        return np.ones(n_events, dtype=np.bool_)
    usable = np.mean(list(known.values()), axis=0) >= 0.5
    return usable if usable.any() else np.ones(n_events, dtype=np.bool_)


def _copies(
    numbers: Mapping[str, FloatArray], reasons: Mapping[str, str], preferred: tuple[str, ...]
) -> dict[str, str]:
    """Return the columns that are copies of features, in any unit, or that order events as a refused column does."""
    varying = {name: values[:_MAX_COMPARED] for name, values in numbers.items()}
    varying = {name: values for name, values in varying.items() if len(np.unique(values[np.isfinite(values)])) > 2}
    if not varying or len(next(iter(varying.values()))) < _MIN_EVENTS:
        return {}
    order = sorted(varying, key=lambda name: (name not in reasons, name not in preferred))
    ranks = _correlate([_ranks(varying[name]) for name in order])
    values = _correlate([np.nan_to_num(varying[name], nan=0.0, posinf=0.0, neginf=0.0) for name in order])
    found: dict[str, str] = {}
    for number, name in enumerate(order):
        if name in reasons:
            continue
        for before, other in enumerate(order[:number]):
            if other in found or ranks[number, before] < _COPY:
                continue
            if other in reasons:
                if origin_of(other) is None:  # a copy of a column without values, say, is no more than that
                    continue
                found[name] = f"it orders the events as {other} does: {reasons[other]}"
                break
            if values[number, before] > _COPY:
                found[name] = f"it is a copy of {other}"
                break
    return found


def _ranks(values: FloatArray) -> FloatArray:
    """Return the rank of each value, equal ones alike, missing ones first."""
    _, inverse = np.unique(np.where(np.isfinite(values), values, -np.inf), return_inverse=True)
    return inverse.astype(np.float64)


def _correlate(columns: list[FloatArray]) -> FloatArray:
    """Return the absolute correlation coefficients of columns; 0 for those without any spread."""
    table: Any = np.array(columns)
    with np.errstate(invalid="ignore", over="ignore"):
        table = table - table.mean(axis=1, keepdims=True)
        spread = np.sqrt(np.sum(table**2, axis=1, keepdims=True))
        table = np.divide(table, spread, out=np.zeros_like(table), where=(spread > 0) & np.isfinite(spread))
    return np.asarray(np.abs(table @ table.T))
