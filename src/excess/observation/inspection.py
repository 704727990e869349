"""Inspection of event files: their format, columns, and a sample of their events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess.events import add_night, describe, iter_events, list_columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Inspection", "inspect_files", "inspect_table"]

_MAX_FILES = 12
"""Files that are looked at, spread over all that are given."""
_MAX_EVENTS = 20_000
"""Events of the sample, from the beginnings of these files."""


@dataclass(frozen=True, eq=False)
class Inspection:
    """What files hold, from their descriptions and the first events of some of them.

    Attributes
    ----------
    paths : tuple of Path
        All files; none for a table in memory.
    format : str
        Format of the files, as `describe` calls it; "table" for a table in memory.
    telescope : str or None
        The telescope, where the files name it.
    columns : tuple of str
        Columns that all files have that were looked at, and those of files to join.
    only_in_some : tuple of str
        Columns that some of these files lack.
    is_simulated : bool
        Whether the files say that their events are simulated.
    """

    paths: tuple[Path, ...]
    format: str
    telescope: str | None
    columns: tuple[str, ...]
    only_in_some: tuple[str, ...] = ()
    is_simulated: bool = False
    parts: tuple[tuple[tuple[Path, ...], tuple[str, ...]], ...] = ()
    table: Any = None

    @property
    def name(self) -> str:
        """The files in a few words, for messages."""
        if not self.paths:
            return "the table"
        return str(self.paths[0]) if len(self.paths) == 1 else f"{self.paths[0]} and {len(self.paths) - 1} more"

    @cached_property
    def _sampled(self) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """The sample, and the number of the file of each of its events."""
        import pandas as pd

        if self.table is not None:
            sample = self.table.head(_MAX_EVENTS)
            return sample, np.zeros(len(sample), dtype=np.int64)
        tables, numbers = [], []
        for paths, columns in self.parts:
            chosen = _spread(paths)
            rows = max(_MAX_EVENTS // len(chosen), 1)
            found = [next(iter_events(path, columns, chunk_rows=rows)) for path in chosen]
            numbers.append(np.repeat(np.arange(len(found)), [len(one) for one in found]))
            tables.append(pd.concat([one for one in found if len(one)] or found[:1], ignore_index=True))
        # events of files to join are others than those beside them, which does no harm to what is asked of a sample
        n_events = min(map(len, tables))
        sample = tables[0] if len(tables) == 1 else pd.concat([one.head(n_events) for one in tables], axis=1)
        return sample, numbers[0][: len(sample)]

    @property
    def sample(self) -> pd.DataFrame:
        """The first events of some files."""
        return self._sampled[0]

    @property
    def file_numbers(self) -> NDArray[np.int64]:
        """The number of the file of each event of the sample."""
        return self._sampled[1]

    def varies(self, column: str) -> bool:
        """Say whether a column has at least two values; files are read as far as that takes, in constant memory."""
        seen: set[Any] = set()
        for values in self._chunks_of(column):
            seen |= set(values.dropna().unique().tolist()[:2])
            if len(seen) > 1:
                return True
        return False

    def _chunks_of(self, column: str) -> Any:
        if self.table is not None:
            return [self.table[column]]
        paths = next(paths for paths, columns in self.parts if column in columns)
        ends = dict.fromkeys([*_spread(paths), *paths])  # the last file is another night sooner than the second one
        return (chunk[column] for path in ends for chunk in iter_events(path, [column]))


def inspect_files(paths: Sequence[Path], joined: Sequence[Path] = (), other: Sequence[Path] = ()) -> Inspection:
    """Look at event files.

    Parameters
    ----------
    paths : sequence of Path
        Event files.
    joined : sequence of Path, default=()
        Files to join event by event, with further columns.
    other : sequence of Path, default=()
        Files of other events, such as Off events: only columns that they have, too, are in ``columns``.

    Returns
    -------
    Inspection
        What they hold.
    """
    info = describe(paths[0])
    own, some = _common_columns(info.columns, [*_spread(tuple(paths)), *_spread(tuple(other))][1:])
    parts = [(tuple(paths), own)]
    if joined:
        first, *others = _spread(tuple(joined))
        more, _ = _common_columns(describe(first).columns, others)
        parts.append((tuple(joined), tuple(name for name in more if name not in own)))
    columns = tuple(name for _, names in parts for name in names)
    return Inspection(tuple(paths), info.format, info.telescope, columns, some, info.is_simulated, tuple(parts))


def inspect_table(table: pd.DataFrame) -> Inspection:
    """Look at a table of events in memory."""
    first = add_night(table.head(_MAX_EVENTS))
    return Inspection(
        (), "table", None, tuple(map(str, first.columns)), table=add_night(table) if "night" in first else table
    )


def _common_columns(first: tuple[str, ...], others: Sequence[Path]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that all files have, and those that only some have."""
    found = [first, *(list_columns(path) for path in others)]
    names = dict.fromkeys(name for columns in found for name in columns)
    common = {name: all(name in columns for columns in found) for name in names}
    return tuple(name for name in names if common[name]), tuple(name for name in names if not common[name])


def _spread(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return files that are spread evenly over all, the first and the last among them."""
    if len(paths) <= _MAX_FILES:
        return paths
    return tuple(paths[number] for number in np.linspace(0, len(paths) - 1, _MAX_FILES).round().astype(int))
