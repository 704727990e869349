"""Parquet files of events, written chunk by chunk."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from excess._core.errors import require

__all__ = ["ParquetFile"]


class ParquetFile:
    """A new Parquet file."""

    def __init__(self, path: Path, first: pd.DataFrame) -> None:
        self._arrow = require("pyarrow", "writing Parquet")
        schema = self._arrow.Schema.from_pandas(first, preserve_index=False).remove_metadata()
        # texts without a value so far have no type in versions of pandas before 3
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
