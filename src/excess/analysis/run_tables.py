"""The tables of a run, as CSV files that no spreadsheet takes for formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from excess._core.files import replacing

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_table", "write_table"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
"""What a cell begins with that a spreadsheet computes; and the apostrophe, which reading takes away."""


def write_table(make: Callable[[], pd.DataFrame], path: Path) -> None:
    """Write a table; texts that a spreadsheet would take for formulas begin with an apostrophe, see `read_table`."""
    table = _map_texts(_as_text, make())
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False)


def _map_texts(function: Callable[[Any], Any], table: pd.DataFrame) -> pd.DataFrame:
    """Call a function with the texts of a table, and the names of its columns."""
    texts: Any = {name: table[name].map(function) for name in table if table[name].dtype.kind not in "biufM"}
    return table.assign(**texts).rename(columns=function)


def _as_text(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _from_text(value: Any) -> Any:
    return value[1:] if isinstance(value, str) and value.startswith("'") else value


def read_table(path: Path, texts: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table that `write_table` has written; columns of texts are texts, whatever they look like."""
    import pandas as pd

    # older versions of pandas lose the last bits unless they are told not to; newer ones do not want to be told
    exactly: dict[str, Any] = {"float_precision": "round_trip"} if int(pd.__version__.split(".")[0]) < 3 else {}
    table = _map_texts(_from_text, pd.read_csv(path, low_memory=False, **exactly))
    known = [name for name in texts if name in table]
    if known:
        # a group named 007 or NA is neither the number 7 nor a missing value
        as_texts = pd.read_csv(path, usecols=known, dtype=str, keep_default_na=False)
        for name in known:
            table[name] = as_texts[name].map(_from_text).astype(object)
    return table
