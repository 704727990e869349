"""What a file holds, for people: format, events, columns, On and Off counts; or what a model was trained on."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from excess.analysis.output_columns import OutputColumns
from excess.estimators.model_file import is_model_file, read_header
from excess.events import describe, iter_events
from excess.observation.observation import as_config
from excess.observation.regions import find_regions, theta_columns
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
        The header of a model file; or ``format``, ``n_events``, ``n_array_events``, ``columns`` and ``on_off``, the
        counts of On and Off events where the file says enough for them.
    """
    if is_model_file(path):
        return read_header(path)
    found = describe(path)
    return {
        "format": found.format,
        "n_events": found.n_events,
        "n_array_events": found.n_array_events,
        "columns": list(found.columns),
        "on_off": _on_off(Path(path), found.columns, as_config(config).regions),
    }


def _on_off(path: Path, columns: tuple[str, ...], regions: Any) -> dict[str, str]:
    names = theta_columns(regions.n_regions)
    if not all(name in columns for name in names):
        return {}
    selections = [found.selected for found in OutputColumns.found_in(columns)]
    extra = ["night"] if "night" in columns else []
    counts = dict.fromkeys(["without a cut", *selections], OnOffCounts(0, 0, 1 / (regions.n_regions - 1)))
    nights: set[Any] = set()
    for table in iter_events(path, [*names, *selections, *extra]):
        parts = find_regions(table, regions)
        counts["without a cut"] += parts.counts
        for name in selections:
            counts[name] += parts.take(table[name].to_numpy(dtype=bool)).counts
        if extra:
            nights |= set(table["night"].unique().tolist())
    found = {name: str(value) for name, value in counts.items()}
    return {**found, "nights": ", ".join(map(str, sorted(nights)))} if nights else found
