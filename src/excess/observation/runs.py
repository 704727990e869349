"""Runs: which run an event belongs to, and how long, when and under which zenith distance each run was taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from excess._core.errors import EventFileError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RUN_COLUMNS",
    "RUN_LABELS",
    "TIME_OF_RUN_COLUMNS",
    "TelescopeRun",
    "join_runs",
    "list_runs",
    "run_labels",
]

RUN_LABELS = ("obs_id", "night", "run_id")
"""Columns that tell runs apart."""
TIME_OF_RUN_COLUMNS = ("livetime", "ontime")
"""Live time and observation time of an event's run in seconds; the first column that is known is used."""
LIVE_SHARE_COLUMN = "deadc"
"""Share of the observation time that is live."""
ZENITH_COLUMNS = ("zenith", "zd_tracking", "pointing_position_zd", "pointing_zd")
"""Columns of the zenith distance of the pointing in deg."""
ALTITUDE_COLUMN = "pointing_alt"
_NUMBERS = (*TIME_OF_RUN_COLUMNS, LIVE_SHARE_COLUMN, *ZENITH_COLUMNS, ALTITUDE_COLUMN)
RUN_COLUMNS = (*RUN_LABELS, *_NUMBERS)
"""Columns that say something about runs; none of them has to be there."""
_SAME_TIME = 1e-6
"""Relative difference up to which live times are the same."""


@dataclass(frozen=True)
class TelescopeRun:
    """One run.

    Attributes
    ----------
    name : object
        Its label, of the column ``obs_id`` or ``run_id``, or the name of its file.
    n_events : int
        Events that were read.
    live_time : float
        In seconds; NaN if it is not known.
    zenith, time : float
        Mean zenith distance in deg, and mean time in seconds; NaN if they are not known.
    dead_time_known : bool
        Whether dead time is taken off.

    Examples
    --------
    >>> from excess.observation.runs import TelescopeRun
    >>> TelescopeRun("a", 100, 1200.0, 20.0).add(TelescopeRun("a", 300, 1200.0, 24.0)).zenith
    23.0
    """

    name: Any
    n_events: int
    live_time: float = float("nan")
    zenith: float = float("nan")
    time: float = float("nan")
    dead_time_known: bool = True

    def add(self, other: TelescopeRun) -> TelescopeRun:
        """Return the run with the events of another chunk of it."""
        n = self.n_events + other.n_events
        if abs(self.live_time - other.live_time) > _SAME_TIME * abs(self.live_time):
            raise EventFileError(_several_live_times(self.name, [self.live_time, other.live_time]))
        zenith, time = (
            (self.n_events * one + other.n_events * another) / n
            for one, another in ((self.zenith, other.zenith), (self.time, other.time))
        )
        return TelescopeRun(self.name, n, self.live_time, zenith, time, self.dead_time_known and other.dead_time_known)


def run_labels(table: pd.DataFrame) -> NDArray[Any]:
    """Return the run of each event: ``obs_id``, ``run_id`` with its night, or the name of the file.

    Examples
    --------
    >>> import pandas as pd
    >>> from excess.observation.runs import run_labels
    >>> run_labels(pd.DataFrame({"night": [20131101, 20131102], "run_id": [7, 7]})).tolist()
    ['20131101/7', '20131102/7']
    """
    if "obs_id" in table:
        return table["obs_id"].to_numpy()
    if "run_id" in table and "night" in table:
        return (table["night"].astype(str) + "/" + table["run_id"].astype(str)).to_numpy(dtype=object)
    if "run_id" in table:
        return table["run_id"].to_numpy()
    return np.full(len(table), str(table.attrs.get("file", "all events")), dtype=object)


def list_runs(table: pd.DataFrame, seconds: NDArray[Any] | None) -> list[TelescopeRun]:
    """Return the runs of a table, whose events may be those of any region; ``seconds`` are their times.

    Raises
    ------
    EventFileError
        If a run has several live times.
    """
    import pandas as pd

    labels = run_labels(table)
    columns = {name: table[name].to_numpy(dtype=np.float64) for name in _NUMBERS if name in table}
    frame = pd.DataFrame({"run": labels, **columns, "time": np.nan if seconds is None else seconds})
    found = []
    for name, own in frame.groupby("run", sort=True):
        live_time, dead_time_known = _live_time(name, own)
        found.append(TelescopeRun(name, len(own), live_time, _zenith(own), float(own["time"].mean()), dead_time_known))
    return found


def join_runs(runs: Iterable[TelescopeRun]) -> dict[Any, TelescopeRun]:
    """Return runs by name, those of several chunks together."""
    found: dict[Any, TelescopeRun] = {}
    for run in runs:
        found[run.name] = found[run.name].add(run) if run.name in found else run
    return found


def _live_time(name: Any, own: pd.DataFrame) -> tuple[float, bool]:
    """Return the live time of a run in seconds, NaN for an unknown one, and whether dead time is taken off."""
    if "livetime" in own:
        values, known = own["livetime"], True
    elif "ontime" in own:
        known = "deadc" in own
        values = own["ontime"] * own["deadc"] if known else own["ontime"]
    else:
        return float("nan"), True
    low, high = float(values.min()), float(values.max())
    if high - low > _SAME_TIME * abs(high):
        raise EventFileError(_several_live_times(name, [low, high]))
    if not low > 0:
        raise EventFileError(f"run {name} has a live time of {low:g} s, which must be positive")
    return low, known


def _several_live_times(name: Any, values: list[float]) -> str:
    return (
        f"run {name} has different live times, {values[0]:g} and {values[1]:g} s; give alpha, or a column obs_id "
        "that tells runs apart"
    )


def _zenith(own: pd.DataFrame) -> float:
    """Return the mean zenith distance in deg; NaN if it is not known."""
    for name in ZENITH_COLUMNS:
        if name in own:
            return float(own[name].mean())
    return 90.0 - float(own[ALTITUDE_COLUMN].mean()) if ALTITUDE_COLUMN in own else float("nan")
