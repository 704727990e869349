"""Times of events in seconds, from the first column that holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from excess._core.checks import FloatArray

if TYPE_CHECKING:
    import pandas as pd

TIME_COLUMNS = ("unix_time", "timestamp", "time")
"""Columns that hold times; the first that a table has is used."""

_DAY = 86_400.0
_DAYS = ((20_000.0, 100_000.0), (2_400_000.0, 2_500_000.0))
"""Ranges of present dates as modified Julian dates, which ctapipe writes, and as Julian dates."""


def seconds_of(table: pd.DataFrame) -> FloatArray | None:
    """Return times in seconds from an arbitrary origin, NaN where one is missing; None if the table has no times.

    Texts and dates become seconds of Unix time. Numbers are seconds, unless their median is a plausible Julian date.
    """
    import pandas as pd

    column = next((name for name in TIME_COLUMNS if name in table), None)
    if column is None:
        return None
    values = table[column]
    if pd.api.types.is_numeric_dtype(values):
        seconds = values.to_numpy(dtype=np.float64, na_value=np.nan)
        known = seconds[np.isfinite(seconds)]
        if len(known) and any(low < np.median(known) < high for low, high in _DAYS):
            seconds = _DAY * seconds
    else:
        moments = pd.to_datetime(values, errors="coerce", format="mixed", utc=True)
        seconds = (moments - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)
    return seconds if np.isfinite(seconds).any() else None
