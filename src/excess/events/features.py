"""Features: from a table of events to an array of numbers and a mask of usable events."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from excess._core.checks import BoolArray, FloatArray
from excess._core.errors import missing_column
from excess.events.config import AnalysisConfig
from excess.events.expressions import as_numbers, compute, names_in

__all__ = ["Features", "to_features"]


class Features(NamedTuple):
    """Features of all events of a table, and which events are usable.

    Attributes
    ----------
    X : ndarray of float64 of shape (n_events, n_features)
        The features, one row per row of the table, in column-major order.
    valid : ndarray of bool of shape (n_events,)
        True where the event passes the quality cuts and all its features are finite.
    names : tuple of str of length n_features
        The names of the features.

    Examples
    --------
    >>> import pandas as pd
    >>> from excess.events import AnalysisConfig, to_features
    >>> config = AnalysisConfig(features=["width"], quality_cuts=[])
    >>> X, valid, names = to_features(pd.DataFrame({"width": [5.0, None]}), config)
    >>> valid
    array([ True, False])
    """

    X: FloatArray
    valid: BoolArray
    names: tuple[str, ...]


def to_features(table: pd.DataFrame, config: AnalysisConfig) -> Features:
    """Compute features and quality cuts of a table of events.

    Parameters
    ----------
    table : DataFrame
        The events, with the columns ``config.columns_needed()``.
    config : AnalysisConfig
        Features, derived features and quality cuts. A derived feature hides a column of the same name.

    Returns
    -------
    Features
        ``X`` and ``valid`` for all rows of the table, and the names.

    Raises
    ------
    ValueError
        If a column is missing or holds no numbers, or a quality cut is not a condition.

    Examples
    --------
    >>> import pandas as pd
    >>> from excess.events import AnalysisConfig, to_features
    >>> config = AnalysisConfig(
    ...     features=["width", "area"],
    ...     derived_features={"area": "width * length * pi"},
    ...     quality_cuts=["width < 35"],
    ... )
    >>> features = to_features(pd.DataFrame({"width": [10.0, 40.0], "length": [20.0, 50.0]}), config)
    >>> features.X.round(1)
    array([[  10. ,  628.3],
           [  40. , 6283.2]])
    >>> features.valid
    array([ True, False])
    """
    for name in config.columns_needed():
        if name not in table.columns:
            raise ValueError(f"the table {missing_column(name, map(str, table.columns))}")
    columns = _Columns(table, config.derived_features)
    # column-major, as in files and trees: each feature is copied in one piece
    X = np.empty((len(table), len(config.features)), order="F")
    valid = np.ones(len(table), dtype=np.bool_)
    for position, name in enumerate(config.features):
        X[:, position] = columns[name]
        valid &= np.isfinite(X[:, position])
    for cut in config.quality_cuts:
        passed = compute(cut, columns.of(cut), len(table))
        if passed.dtype != np.bool_:
            raise ValueError(f"quality cut {cut!r} is not a condition, such as 'width < 35'")
        valid &= passed
    return Features(X, valid, config.features)


class _Columns:
    """Columns of a table and derived features by name, each computed once."""

    def __init__(self, table: pd.DataFrame, derived: dict[str, str]) -> None:
        self._table = table
        self._derived = derived
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            if name in self._derived:
                expression = self._derived[name]
                self._known[name] = compute(expression, self.of(expression), len(self._table))
            else:
                self._known[name] = as_numbers(name, self._table[name])
        return self._known[name]

    def of(self, expression: str) -> dict[str, Any]:
        """Return the columns that an expression needs."""
        return {name: self[name] for name in names_in(expression)}
