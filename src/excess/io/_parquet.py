"""Parquet files of events."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess._utils.errors import require
from excess.io._files import INDEX_COLUMNS, check_columns, check_expansion

BUFFER_BYTES = 1 << 20


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns."""
    types = require("pyarrow.types", "reading Parquet")
    with _open(path) as file:
        kinds = {field.name: field.type for field in file.schema_arrow if field.name not in INDEX_COLUMNS}
        return tuple(name for name, kind in kinds.items() if not (types.is_nested(kind) or types.is_null(kind)))


def count(path: Path) -> int:
    """Return the number of events."""
    with _open(path) as file:
        return int(file.metadata.num_rows)


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    texts = _text_columns(path, names)
    with _open(path, texts) as file:
        if file.metadata.num_rows == 0 or chunk_rows is None:
            yield _to_frame(file.read(columns=list(names)), names, texts, path)
            return
        for batch in file.iter_batches(batch_size=chunk_rows, columns=list(names)):
            yield _to_frame(batch, names, texts, path)


@contextmanager
def _open(path: Path, texts: Sequence[str] = ()) -> Iterator[Any]:
    """Open a file after checking its declared size; values of ``texts`` are read once each."""
    parquet = require("pyarrow.parquet", "reading Parquet")
    types = require("pyarrow.types", "reading Parquet")
    # By default Arrow keeps all data read so far in memory; this is as fast, in constant memory.
    options = {"read_dictionary": list(texts), "pre_buffer": False, "buffer_size": BUFFER_BYTES}
    with parquet.ParquetFile(path, **options) as file:
        about, schema = file.metadata, file.schema_arrow
        check_columns(path, len(schema))
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        n_rows = max(about.num_rows, sum(group.num_rows for group in groups))
        # repeated values take almost no space in the file, but all of it in memory
        in_memory = n_rows * sum(_row_bytes(field.type, types) for field in schema)
        check_expansion(path, max(in_memory, sum(group.total_byte_size for group in groups)))
        yield file


def _text_columns(path: Path, names: Sequence[str]) -> list[str]:
    """Return those of some columns that contain text."""
    types = require("pyarrow.types", "reading Parquet")
    checks = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    with _open(path) as file:
        return [name for name in names if any(check(file.schema_arrow.field(name).type) for check in checks)]


def _row_bytes(kind: Any, types: Any) -> int:
    """Return the bytes of one value in memory; for text, those of its reference."""
    if types.is_nested(kind) or types.is_null(kind):  # which are not read
        return 0
    return max(1, kind.bit_width // 8) if types.is_primitive(kind) or types.is_fixed_size_binary(kind) else 8


def _to_frame(arrow: Any, names: Sequence[str], texts: Sequence[str], path: Path) -> pd.DataFrame:
    """Convert Arrow data to a table with its columns in the requested order."""
    table: pd.DataFrame = arrow.to_pandas(split_blocks=True, ignore_metadata=True)[list(names)]
    for name in table.columns:
        if name in texts:
            known = table[name].array
            # the code of a missing text is -1, the last element
            values = np.array([*map(_as_text, known.categories), None], dtype=object)
            lengths = np.array([len(value or "") for value in values])
            check_expansion(path, int(lengths[known.codes].sum()))
            table[name] = values[known.codes]
        elif table[name].dtype == object:
            table[name] = table[name].map(_as_text)
    return table


def _as_text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class ParquetFile:
    """A new Parquet file."""

    def __init__(self, path: Path, first: pd.DataFrame) -> None:
        self._arrow = require("pyarrow", "writing Parquet")
        schema = self._arrow.Schema.from_pandas(first, preserve_index=False).remove_metadata()
        # text columns without a value so far have no type in versions of pandas before 3
        untyped = [i for i, field in enumerate(schema) if self._arrow.types.is_null(field.type)]
        for i in untyped:
            schema = schema.set(i, schema.field(i).with_type(self._arrow.string()))
        self._schema = schema
        # dictionary encoding of floats saves nothing, and takes four times as long to write
        words = [field.name for field in self._schema if not self._arrow.types.is_floating(field.type)]
        parquet = require("pyarrow.parquet", "writing Parquet")
        self._writer = parquet.ParquetWriter(path, self._schema, use_dictionary=words)

    def append(self, chunk: pd.DataFrame) -> None:
        """Write rows."""
        self._writer.write_table(self._arrow.Table.from_pandas(chunk, schema=self._schema, preserve_index=False))

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()
