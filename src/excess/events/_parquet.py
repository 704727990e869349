"""Parquet files of events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from excess._core.errors import require
from excess.events._arrays import INDEX_COLUMNS

__all__ = ["chunks", "columns", "count"]

BUFFER_BYTES = 1 << 20


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    types = require("pyarrow.types", "reading Parquet")
    with _open(path) as file:
        scalar = [
            field for field in file.schema_arrow if not (types.is_nested(field.type) or types.is_null(field.type))
        ]
        return tuple(field.name for field in scalar if field.name not in INDEX_COLUMNS)


def count(path: Path) -> int:
    """Return the number of events."""
    with _open(path) as file:
        return int(file.metadata.num_rows)


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    with _open(path) as file:
        if file.metadata.num_rows == 0 or chunk_rows is None:
            yield _to_frame(file.read(columns=list(names)), names)
            return
        for batch in file.iter_batches(batch_size=chunk_rows, columns=list(names)):
            yield _to_frame(batch, names)


def _open(path: Path) -> Any:
    # By default Arrow holds all of the file that was read so far; this is as fast, in constant memory.
    return require("pyarrow.parquet", "reading Parquet").ParquetFile(path, pre_buffer=False, buffer_size=BUFFER_BYTES)


def _to_frame(arrow: Any, names: Sequence[str]) -> pd.DataFrame:
    """Convert what Arrow read to a table with its columns in the order asked for."""
    table: pd.DataFrame = arrow.to_pandas(split_blocks=True, ignore_metadata=True)[list(names)]
    for name in table.columns:
        if table[name].dtype == object:
            table[name] = table[name].map(_as_text)
    return table


def _as_text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
