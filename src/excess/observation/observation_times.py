"""Observation times: the intervals in which events were recorded, run by run, and what they add up to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from excess._core.checks import FloatArray
from excess.observation.runs import RUN_LABELS, TIME_OF_RUN_COLUMNS
from excess.validation.exposure import LONGEST_PAUSE, Exposure

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["join_intervals", "recorded_intervals"]

_HOUR = 3600.0


def recorded_intervals(
    table: pd.DataFrame, seconds: FloatArray | None, group_column: str, file: str
) -> pd.DataFrame | None:
    """Return the intervals in which the events of a table were recorded; None where times are not known.

    All events count, in any region or in none. An interval ends with its run, or before a pause of more than 15
    minutes. Columns: ``run``, ``group``, ``night``, ``start``, ``stop``, and ``livetime`` and ``ontime`` of the run.
    """
    import pandas as pd

    own = [name for name in TIME_OF_RUN_COLUMNS if name in table]
    if seconds is None and not own:
        return None
    times = np.zeros(len(table)) if seconds is None else seconds
    runs = [name for name in RUN_LABELS if name in table]
    parts = list(dict.fromkeys([*runs, *([group_column] if group_column in table else [])]))
    known = np.isfinite(times)
    if parts:
        known &= table[parts].notna().all(axis=1).to_numpy()
    rows = np.flatnonzero(known)
    if len(rows) == 0:
        return None
    kept = table.iloc[rows]
    number = kept.groupby(parts, sort=False).ngroup().to_numpy() if parts else np.zeros(len(rows), dtype=np.int64)
    order = np.lexsort((times[rows], number))
    moment, of_run = times[rows][order], number[order]
    ends = (np.diff(of_run) != 0) | (np.diff(moment) > LONGEST_PAUSE)
    first, last = np.append(0, np.flatnonzero(ends) + 1), np.append(np.flatnonzero(ends), len(order) - 1)
    labels = kept.iloc[order[first]]

    def texts(names: list[str]) -> Any:
        return ["/".join(map(str, row)) for row in labels[names].itertuples(index=False)]

    found = {
        "run": texts(runs) if set(runs) - {"night"} else file,
        "group": texts([group_column]) if group_column in table else "",
        "night": texts(["night"]) if "night" in table else "",
        "start": moment[first],
        "stop": moment[last],
        **{name: labels[name].to_numpy(dtype=np.float64) if name in own else np.nan for name in TIME_OF_RUN_COLUMNS},
    }
    return pd.DataFrame(found)


def join_intervals(parts: list[pd.DataFrame]) -> Exposure | None:
    """Return what the intervals of all tables add up to; None where nothing is known.

    Intervals of one run are joined unless there is a pause of more than 15 minutes between them, and time that they
    share counts once.
    """
    import pandas as pd

    if not parts:
        return None
    keys = ["run", "group", "night"]
    table = pd.concat(parts, ignore_index=True).sort_values([*keys, "start"], kind="stable", ignore_index=True)
    part = table.groupby(keys, sort=False).ngroup().to_numpy()
    start, stop = table["start"].to_numpy(), table["stop"].to_numpy()
    # the end of all earlier intervals of the same run: numbers of runs far apart keep runs from reaching each other
    far = 2 * (stop.max() - start.min() + LONGEST_PAUSE) * part
    so_far = np.maximum.accumulate(stop + far)
    begin = np.append(np.inf, so_far[:-1]) - far
    gap = start - begin
    new = (np.diff(part, prepend=-1) != 0) | (gap > LONGEST_PAUSE)
    seconds = np.where(new, stop - start, np.maximum(stop - begin, 0.0))
    summed = table[keys].assign(seconds=seconds).groupby(keys, sort=False)["seconds"].sum()
    source = "events"
    for name in TIME_OF_RUN_COLUMNS:
        given = table.groupby(keys, sort=False)[name].max()
        if given.notna().all() and (given > 0).all():
            # a run of several groups or nights is divided like its events' times
            of_run = summed.groupby(level="run").transform("sum")
            n_parts = summed.groupby(level="run").transform("size")
            share = (summed / of_run.where(of_run > 0)).fillna(1 / n_parts)
            summed, source = given * share, name
            break
    summed = summed.groupby(level=["group", "night"], sort=False).sum()
    summed = summed[summed > 0]
    if summed.empty:
        return None
    groups, nights = (tuple(map(str, summed.index.get_level_values(name))) for name in ("group", "night"))
    return Exposure(source, groups, nights, summed.to_numpy(dtype=np.float64) / _HOUR)
