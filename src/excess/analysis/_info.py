"""Descriptions of files, proposed configurations, and simulated observations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from excess._utils.errors import EventFileError, MismatchError
from excess._utils.files import check_outputs, locked, prepare_folder, replacing_together, undo_unfinished, write_text
from excess.analysis._apply import OutputColumns
from excess.config._model import Exclusion, RegionConfig, load_observation_list
from excess.config._model import make_intervals as make_intervals
from excess.dataset._regions import choose_method, find_regions
from excess.dataset._settings import Proposal as Proposal
from excess.dataset._settings import as_config, propose_for_list
from excess.dataset._settings import check_input as check_input
from excess.dataset._settings import config_of as config_of
from excess.dataset._settings import propose_config as propose_config
from excess.dataset._simulate import simulate_labelled, simulate_observation
from excess.estimators._model_file import is_model_file, read_header
from excess.io._reading import describe, iter_events, list_columns
from excess.io._writing import write_events
from excess.stats._significance import OnOffCounts


def info(
    path: str | PathLike[str],
    config: Any = None,
    *,
    source: str | tuple[float, float] | None = None,
    regions: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Say what an event file or a model file holds."""
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
    """Count the On and Off events of files, without any cut but that on theta^2."""
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    method, names = choose_method(list_columns(given[0]), regions)
    if method not in ("angles", "intervals") and regions.source_ra is None:
        raise _no_source(given[0])
    counts = [find_regions(table, regions).counts for table in iter_events(given, names)]
    return sum(counts[1:], start=counts[0])


def _no_source(path: str | PathLike[str]) -> EventFileError:
    return EventFileError(
        f"{path}: the position of the source is needed to count On and Off events: give source (--source), or a "
        "configuration that has it"
    )


def _on_off(path: Path, columns: tuple[str, ...], regions: RegionConfig, *, required: bool) -> dict[str, str]:
    """Return the counts in the regions, without a cut and by each selection."""
    try:
        method, names = choose_method(columns, regions)
    except ValueError as error:
        if required:
            raise EventFileError(f"{path}: {error}") from error
        return _selected(path, columns)
    if method not in ("angles", "intervals") and regions.source_ra is None:
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


def check_exclusion(text: str) -> None:
    """Raise ArgumentError unless a text is an exclusion, such as ``"84.411 21.143 0.3"`` or ``"Crab 0.3"``."""
    Exclusion.parse(text)


def propose_listed(path: str | PathLike[str], *, features: Sequence[str] = (), exclude: Sequence[str] = ()) -> Proposal:
    """Propose features, cuts and groups for the observations that a YAML file lists; each has regions of its own."""
    return propose_for_list(load_observation_list(path), features=features, exclude=exclude)


def init(
    files: str | PathLike[str] | Sequence[str | PathLike[str]],
    output: str | PathLike[str] | None = None,
    *,
    off: Sequence[str | PathLike[str]] | None = None,
    join: Sequence[str | PathLike[str]] | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Proposal:
    """Propose a configuration for event files, see `propose_config`, and write it to a YAML file with comments."""
    given = [files] if isinstance(files, (str, PathLike)) else files
    if output is not None:
        check_outputs([Path(output)], [*given, *(off or ()), *(join or ())], overwrite=overwrite)
    proposal = propose_config(given, off=off, join=join, **options)
    if output is not None:
        prepare_folder(Path(output).parent)
        write_text(Path(output), proposal.to_yaml())
    return proposal


def listed_files(path: str | PathLike[str]) -> list[Path]:
    """Return the files that a list of observations, in YAML, names."""
    entries = load_observation_list(path).values()
    return [Path(name) for entry in entries for names in (entry.events, entry.off, entry.join) for name in names or ()]


def simulate(
    folder: Path,
    *,
    n_events: int = 757_993,
    n_signal: int = 1_242,
    n_nights: int = 5,
    first_night: int = 20131101,
    n_labelled: int = 10_000,
    suffix: str = "hdf5",
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Simulate a wobble observation, and labelled gammas and protons, into files."""
    prepare_folder(folder)
    names = {kind: f"{kind}.{suffix}" for kind in ("gamma", "proton", "observation")}
    with locked(folder):
        undo_unfinished(folder, [*names.values()])
        check_outputs([folder / name for name in names.values()], overwrite=overwrite)
        observation = simulate_observation(
            n_events, n_signal, n_nights=n_nights, n_runs=43 * n_nights, first_night=first_night, random_state=seed
        )
        truth = simulate_labelled(n_labelled, n_labelled, random_state=seed)
        tables = {"observation": observation, "gamma": truth[truth["is_signal"]], "proton": truth[~truth["is_signal"]]}
        for_error = folder
        try:
            with replacing_together(folder, [*names.values()]) as temporary:
                for kind, table in tables.items():
                    for_error = folder / names[kind]
                    write_events(table, temporary / names[kind])
        except (OSError, EventFileError) as error:
            reason = error if isinstance(error, OSError) else error.__cause__
            raise EventFileError(
                f"{for_error}: cannot be written: {getattr(reason, 'strerror', None) or error}; {folder} is as it was "
                "before"
            ) from error
    return {kind: {"path": str(folder / names[kind]), "n_events": len(table)} for kind, table in tables.items()}
