"""What the formats share: arrays as columns of a table, slices of rows, and columns that hold no data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["INDEX_COLUMNS", "as_native", "event_words", "slices"]

INDEX_COLUMNS = frozenset({"index", "level_0", "Unnamed: 0", "__index_level_0__"})
"""Columns that only number the rows, as written by table libraries."""


def as_native(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in the byte order of this machine, and bytes as text."""
    if values.dtype.kind == "S":
        return np.array([value.decode("utf-8", "replace") for value in values.tolist()], dtype=object)
    if values.dtype.kind == "U":
        return values.astype(object)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def slices(n_rows: int, chunk_rows: int | None) -> Iterator[slice]:
    """Cut ``n_rows`` rows into slices of at most ``chunk_rows``; no rows give one empty slice."""
    step = max(n_rows, 1) if chunk_rows is None else chunk_rows
    for start in range(0, max(n_rows, 1), step):
        yield slice(start, min(start + step, n_rows))


def event_words(keys: Sequence[str], event: Sequence[Any]) -> str:
    """Return words for an event by what identifies it."""
    return f"the event with {', '.join(f'{key} {value}' for key, value in zip(keys, event, strict=True))}"
