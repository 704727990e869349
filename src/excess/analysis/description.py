"""What a file holds, for people: format, events, columns, On and Off counts; or what a model was trained on."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from excess.analysis.output_columns import OutputColumns
from excess.estimators.model_file import is_model_file, read_header
from excess.events import RegionConfig, describe, iter_events
from excess.observation.observation import as_config
from excess.observation.region_methods import choose_method
from excess.observation.regions import find_regions
from excess.stats.significance import OnOffCounts

__all__ = ["describe_file"]


def describe_file(path: str | PathLike[str], config: Any = None) -> dict[str, Any]:
    """Say what an event file or a model file holds.

    Parameters
    ----------
    path : path
        The file.
    config : AnalysisConfig, path or None, default=None
        Regions to count in; as for `observe`.

    Returns
    -------
    dict
        The header of a model file; or ``format``, ``telescope``, ``data_level``, ``is_simulated``, ``n_events``,
        ``n_array_events``, ``n_images``, ``n_runs``, ``nights``, ``columns``, ``derived`` (columns that are
        computed while reading), ``telescope_columns``, and ``on_off``, the counts of On and Off events where the file
        says enough for them. What a file does not tell is None, or empty.
    """
    if is_model_file(path):
        return read_header(path)
    found = describe(path)
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
        "on_off": _on_off(Path(path), found.columns, as_config(config).regions),
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


def _on_off(path: Path, columns: tuple[str, ...], regions: RegionConfig) -> dict[str, str]:
    """Return the counts in the regions, without a cut and by each selection; nothing where regions are not known."""
    try:
        method, names = choose_method(columns, regions)
    except ValueError:
        return _selected(path, columns)
    if method != "angles" and regions.source_ra is None:
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
