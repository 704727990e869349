"""CSV files of events, written chunk by chunk."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

__all__ = ["CsvFile"]


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
