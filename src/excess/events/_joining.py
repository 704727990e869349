"""Two tables of the same events, joined on their keys."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from excess._core.errors import EventFileError

__all__ = ["KEYS", "joined"]

logger = logging.getLogger("excess.events")

#: What identifies an event in FACT's files.
KEYS = ("event_num", "night", "run_id")


def joined(first: pd.DataFrame, second: pd.DataFrame, first_path: Path, second_path: Path) -> pd.DataFrame:
    """Return the events that both tables have, in the order of the first, with the columns of both.

    Parameters
    ----------
    first, second : DataFrame
        Tables with the columns ``event_num``, ``night`` and ``run_id``; they share no other column.
    first_path, second_path : Path
        Where they come from, for messages.

    Returns
    -------
    DataFrame
        The joined table; its ``attrs["join"]`` counts what was left out.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from excess.events._joining import joined
    >>> keys = {"night": [1, 1], "run_id": [7, 7]}
    >>> dl2 = pd.DataFrame({"event_num": [1, 2], **keys, "width": [5.0, 6.0]})
    >>> dl3 = pd.DataFrame({"event_num": [2, 1], **keys, "theta_deg": [0.2, 0.1]})
    >>> joined(dl2, dl3, Path("dl2"), Path("dl3"))
       event_num  night  run_id  width  theta_deg
    0          1      1       7    5.0        0.1
    1          2      1       7    6.0        0.2
    """
    keys = list(KEYS)
    unique = [table.drop_duplicates(keys) for table in (first, second)]
    try:
        table = unique[0].merge(unique[1], on=keys, how="inner")
    except ValueError as error:
        raise EventFileError(
            f"{second_path}: {', '.join(keys)} are of other types than in {first_path}, so the events cannot be joined"
        ) from error
    if table.empty and not (first.empty and second.empty):
        raise EventFileError(f"{second_path}: has no event of {first_path}; {', '.join(keys)} never agree")
    counts = {
        "n_events": len(table),
        "n_only_first": len(unique[0]) - len(table),
        "n_only_second": len(unique[1]) - len(table),
        "n_duplicates": len(first) + len(second) - len(unique[0]) - len(unique[1]),
    }
    table.attrs["join"] = counts
    if len(table) < len(first) or len(table) < len(second):
        logger.warning(
            "%d events joined; %d only in %s, %d only in %s, %d duplicates dropped",
            counts["n_events"],
            counts["n_only_first"],
            first_path,
            counts["n_only_second"],
            second_path,
            counts["n_duplicates"],
        )
    return table
