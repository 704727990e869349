"""CSV files of events: reading and writing."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from excess.io._files import INDEX_COLUMNS, check_columns

COUNT_ROWS = 1_000_000
_OPTIONS: Any = {"encoding": "utf-8-sig", "skipinitialspace": True}
# whether pandas drops surplus values from the first line of a chunk
_CUTS_LONG_LINES = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)


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
    header = [name.strip() for name in rows[0]] if rows else []
    unique = len(set(header)) == len(header) and not any(map(_is_number, header))
    if not unique or any(len(row) != len(header) for row in rows):
        return False
    if len(header) == 1:
        return header[0].isidentifier() and len(rows) > 1 and all(_is_number(row[0]) for row in rows[1:])
    return any(header)


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the columns."""
    names = pd.read_csv(path, nrows=0, **_OPTIONS).columns
    check_columns(path, len(names))
    return tuple(name for name in names if name not in INDEX_COLUMNS)


def count(path: Path) -> int:
    """Return the number of events."""
    return sum(len(chunk) for chunk in chunks(path, [columns(path)[0]], COUNT_ROWS))


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    # All columns are parsed: with a selection, pandas ignores surplus values of a line.
    options = {**_OPTIONS, "low_memory": False, "chunksize": chunk_rows or COUNT_ROWS}
    if _CUTS_LONG_LINES:
        _check_lines(path)
    with pd.read_csv(path, **options) as reader:
        for chunk in reader:
            if chunk.empty:  # a header only; pandas would read its columns as text
                yield pd.DataFrame(columns=list(names), dtype=float)
                return
            yield chunk[list(names)].reset_index(drop=True)


def _check_lines(path: Path) -> None:
    """Raise ValueError if a line has more values than the first one."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, skipinitialspace=True)
        n_columns = len(next(rows, []))
        for row in rows:
            if len(row) > n_columns:
                raise ValueError(f"line {rows.line_num} has more values than {n_columns} columns")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class CsvFile:
    """A new CSV file."""

    def __init__(self, path: Path, first: pd.DataFrame) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        first.iloc[:0].to_csv(self._file, index=False)

    def append(self, chunk: pd.DataFrame) -> None:
        """Write rows."""
        chunk.to_csv(self._file, index=False, header=False)

    def close(self) -> None:
        """Complete the file."""
        self._file.close()
