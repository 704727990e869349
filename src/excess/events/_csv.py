"""CSV files of events: one header line with the names of the columns, commas between values."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from excess.events._arrays import INDEX_COLUMNS
from excess.events._bounds import check_columns
from excess.events._lines import LONGEST_LINE, open_lines

__all__ = ["chunks", "columns", "count", "looks_like_csv"]

COUNT_ROWS = 1_000_000
_OPTIONS: Any = {"encoding": "utf-8-sig", "skipinitialspace": True}
_CUTS_LONG_LINES = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
"""Whether pandas takes a line with too many values where it is the first of a chunk, and drops the last ones."""


def looks_like_csv(start: str) -> bool:
    """Return whether a text starts like a table: a line of names, and lines with as many values."""
    # The last line may be cut, so it counts only when it is the header.
    lines = [line for line in start.splitlines() if line.strip()][:5]
    if not start.endswith("\n"):
        lines = lines[: max(len(lines) - 1, 1)] if len(lines) == 5 else lines
    try:
        rows = list(csv.reader(lines, strict=True))
    except csv.Error:
        return False
    if not rows:
        return False
    header = [name.strip() for name in rows[0]]
    if len(set(header)) < len(header) or any(_is_number(name) for name in header):
        return False
    if len(header) == 1:
        return (
            header[0].isidentifier() and len(rows) > 1 and all(len(row) == 1 and _is_number(row[0]) for row in rows[1:])
        )
    return any(header) and all(len(row) == len(header) for row in rows)


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the columns."""
    return tuple(name for name in _header(path) if name not in INDEX_COLUMNS)


def _header(path: Path) -> list[str]:
    """Return the names in the first line, those of an index included."""
    with open_lines(path) as file:
        check_columns(path, file.readline(LONGEST_LINE).count(b",") + 1)
    with open_lines(path) as file:
        return list(pd.read_csv(file, nrows=0, **_OPTIONS).columns)


def count(path: Path) -> int:
    """Return the number of events."""
    first = columns(path)[0]
    return sum(len(chunk) for chunk in chunks(path, [first], COUNT_ROWS))


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    # All columns are parsed: with a selection, pandas passes over lines that have too many values.
    options = {**_OPTIONS, "low_memory": False, "chunksize": chunk_rows or COUNT_ROWS}
    most_values = len(_header(path)) if _CUTS_LONG_LINES else None
    with open_lines(path, most_values) as file, pd.read_csv(file, **options) as reader:
        empty = True
        for chunk in reader:
            if chunk.empty:  # a header alone; pandas takes its columns for texts
                break
            empty = False
            yield chunk[list(names)].reset_index(drop=True)
    if empty:
        yield pd.DataFrame(columns=list(names), dtype=float)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
