"""What a file holds, for people: format, events, columns, On and Off counts; or what a model was trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from excess._core.errors import MismatchError
from excess.analysis.output_columns import OutputColumns
from excess.estimators.model_file import is_model_file, read_header
from excess.events import EventFileError, RegionConfig, describe, iter_events, list_columns
from excess.observation.proposal import propose_config
from excess.observation.region_methods import choose_method
from excess.observation.regions import find_regions
from excess.observation.settings import as_config
from excess.stats.counts import OnOffCounts

__all__ = ["count_on_off", "describe_file"]


def describe_file(
    path: str | PathLike[str],
    config: Any = None,
    *,
    source: str | tuple[float, float] | None = None,
    regions: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Say what an event file or a model file holds.

    Parameters
    ----------
    path : path
        The file.
    config : AnalysisConfig, path or None, default=None
        Regions to count in; as for `observe`.
    source, regions
        The source and settings of the regions, as for `observe`.

    Returns
    -------
    dict
        The header of a model file; or ``format``, ``telescope``, ``data_level``, ``is_simulated``, ``n_events``,
        ``n_array_events``, ``n_images``, ``n_runs``, ``nights``, ``columns``, ``derived`` (columns that are
        computed while reading), ``telescope_columns``, and ``on_off``, the counts of On and Off events where the file
        says enough for them. What a file does not tell is None, or empty. ``assumed`` is the proposal of a
        configuration, None where one is given, or where it is FACT's open Crab analysis.

    Raises
    ------
    EventFileError
        If ``regions`` are given that the file does not have the columns for, or that need a source which is not given.
    MismatchError
        If there are settings of regions for a model file.
    """
    if is_model_file(path):
        given = {"config": config, "source": source, **(regions or {})}
        for argument, value in given.items():
            if value is not None:
                raise MismatchError(argument, f"goes with event files, and {path} is a model file")
        return read_header(path)
    found = describe(path)
    proposal = propose_config(path, source=source, regions=regions) if config is None else None
    chosen = as_config(config, source, regions=regions).regions if proposal is None else proposal.regions
    # what is asked for is either counted in or refused; the obstacle of a proposal says so already
    required = bool(regions) and (proposal is None or proposal.obstacle is None)
    return {
        "format": found.format,
        "telescope": found.telescope,
        "data_level": found.data_level,
        "is_simulated": found.is_simulated,
        "n_events": found.n_events,
        "n_array_events": found.n_array_events,
        "n_images": found.n_images,
        **_runs_and_nights(Path(path), found.columns),
        "columns": list(found.columns),
        "derived": list(found.derived),
        "telescope_columns": list(found.telescope_columns),
        "on_off": _on_off(Path(path), found.columns, chosen, required=required),
        "assumed": None if proposal is None or proposal.usual else proposal.to_dict(),
    }


def _runs_and_nights(path: Path, columns: tuple[str, ...]) -> dict[str, Any]:
    """Return the number of runs and the nights of a file; None and nothing where it does not tell."""
    run = next((name for name in ("obs_id", "run_id") if name in columns), None)
    wanted = [name for name in (run, "night") if name in columns]
    if not wanted:
        return {"n_runs": None, "nights": []}
    parts = [table.drop_duplicates() for table in iter_events(path, [name for name in wanted if name is not None])]
    known = pd.concat(parts).drop_duplicates()
    nights = sorted(known["night"].dropna().unique().tolist()) if "night" in known else []
    # FACT numbers the runs of each night
    return {"n_runs": None if run is None else len(known), "nights": nights}


def count_on_off(paths: str | PathLike[str] | Sequence[str | PathLike[str]], regions: RegionConfig) -> OnOffCounts:
    """Count the On and Off events of files, without any cut but that on theta^2.

    Parameters
    ----------
    paths : path or sequence of paths
        Event files.
    regions : RegionConfig
        The regions.

    Returns
    -------
    OnOffCounts
        All On and Off events.

    Examples
    --------
    >>> import tempfile
    >>> from excess.analysis import count_on_off
    >>> from excess.events import RegionConfig, write_events
    >>> from excess.observation import simulate_observation
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = f"{folder}/crab.csv"
    ...     _ = write_events(simulate_observation(20_000, 100, random_state=0), path)
    ...     print(count_on_off(path, RegionConfig()))
    On 153, Off 482, alpha 0.2: excess 56.6 +- 13.1, 4.8 sigma
    """
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    method, names = choose_method(list_columns(given[0]), regions)
    if method != "angles" and regions.source_ra is None:
        raise _no_source(given[0])
    counts = [find_regions(table, regions).counts for table in iter_events(given, names)]
    return sum(counts[1:], start=counts[0])


def _no_source(path: str | PathLike[str]) -> EventFileError:
    return EventFileError(
        f"{path}: the position of the source is needed to count On and Off events: give source (--source), or a "
        "configuration that has it"
    )


def _on_off(path: Path, columns: tuple[str, ...], regions: RegionConfig, *, required: bool) -> dict[str, str]:
    """Return the counts in the regions, without a cut and by each selection.

    Where regions are not known, that is an error if they are required; else there are the events of each selection.
    """
    try:
        method, names = choose_method(columns, regions)
    except ValueError as error:
        if required:
            raise EventFileError(f"{path}: {error}") from error
        return _selected(path, columns)
    if method != "angles" and regions.source_ra is None:
        if required:
            raise _no_source(path)
        return _selected(path, columns)
    selections = [found.selected for found in OutputColumns.found_in(columns)]
    counts: dict[str, OnOffCounts] = {}
    numbers: set[int] = set()
    for table in iter_events(path, list(dict.fromkeys([*names, *selections]))):
        parts = find_regions(table, regions)
        chosen = {name: parts.take(table[name].to_numpy(dtype=bool)).counts for name in selections}
        for name, value in {"without a cut": parts.counts, **chosen}.items():
            counts[name] = value + counts[name] if name in counts else value
        numbers |= set(parts.n_off_regions)
    found = {name: str(value) for name, value in counts.items()}
    if method != "angles" and numbers:
        number = str(min(numbers)) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"
        found["Off regions"] = f"{method.replace('_', ' ')}, {number} for each pointing"
    return found


def _selected(path: Path, columns: tuple[str, ...]) -> dict[str, str]:
    """Return how many events each selection has, where it is not known which of them are On or Off."""
    selections = [found.selected for found in OutputColumns.found_in(columns)]
    if not selections:
        return {}
    n_events, n_selected = 0, dict.fromkeys(selections, 0)
    for table in iter_events(path, selections):
        n_events += len(table)
        for name in selections:
            n_selected[name] += int(table[name].to_numpy(dtype=bool).sum())
    return {name: f"{found:,} of {n_events:,} events" for name, found in n_selected.items()}
