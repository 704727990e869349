"""Descriptions of files, proposed configurations, and simulated observations."""

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
from excess.io._fits import GOOD_TIME
from excess.io._reading import describe, iter_events, list_columns
from excess.io._reading import expand_folders as expand_folders
from excess.io._writing import write_events
from excess.stats._significance import OnOffCounts


def info(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]],
    config: Any = None,
    *,
    source: str | tuple[float, float] | None = None,
    regions: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Describe a model file, or event files together."""
    given = expand_folders([paths] if isinstance(paths, (str, PathLike)) else paths)
    if models := [path for path in given if is_model_file(path)]:
        if len(given) > 1:
            raise EventFileError(f"{models[0]}: is a model file; pass no other files")
        for argument, value in {"config": config, "source": source, **(regions or {})}.items():
            if value is not None:
                raise MismatchError(argument, f"requires event files, but {given[0]} is a model file")
        return read_header(given[0])
    every = [describe(path) for path in given]
    found = every[0]
    proposal = propose_config(given, source=source, regions=regions) if config is None else None
    chosen = as_config(config, source, regions=regions).regions if proposal is None else proposal.regions
    # requested regions are either counted or rejected; the obstacle of a proposal already explains this
    required = bool(regions) and (proposal is None or proposal.obstacle is None)
    columns = tuple(name for name in found.columns if all(name in one.columns for one in every))
    totals: dict[str, Any] = {name: [getattr(one, name) for one in every] for name in ("n_array_events", "n_images")}
    return {
        **{name: getattr(found, name) for name in ("format", "telescope", "data_level", "is_simulated")},
        "n_files": len(every),
        "n_events": sum(one.n_events for one in every),
        **{name: None if None in own else sum(own) for name, own in totals.items()},
        **_runs_and_nights(given, columns),
        "columns": list(columns),
        **{name: list(getattr(found, name)) for name in ("derived", "telescope_columns")},
        "on_off": _on_off(given, columns, chosen, required=required),
        "assumed": None if proposal is None or proposal.usual else proposal.to_dict(),
    }


def _runs_and_nights(paths: list[Path], columns: tuple[str, ...]) -> dict[str, Any]:
    """Return the number of runs and the nights of files; None and empty if unknown."""
    runs = [name for name in ("obs_id", "run_id") if name in columns][:1]
    wanted = [*runs, *(name for name in ("night",) if name in columns)]
    if not wanted:
        return {"n_runs": None, "nights": []}
    known = pd.concat([table.drop_duplicates() for table in iter_events(paths, wanted)]).drop_duplicates()
    nights = sorted(known["night"].dropna().unique().tolist()) if "night" in known else []
    # FACT numbers the runs of each night
    return {"n_runs": len(known) if runs else None, "nights": nights}


def count_on_off(paths: str | PathLike[str] | Sequence[str | PathLike[str]], regions: RegionConfig) -> OnOffCounts:
    """Count the On and Off events of files, without any cut except that on theta^2."""
    given = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
    columns = list_columns(given[0])
    _, names = _method(given[0], columns, regions)
    wanted = [*names, *({GOOD_TIME} & set(columns))]
    counts = [find_regions(table, regions).counts for table in iter_events(given, wanted)]
    return sum(counts[1:], start=counts[0])


def _method(path: Any, columns: Sequence[str], regions: RegionConfig) -> tuple[str, Any]:
    """Return the method of the regions and the required columns; raise EventFileError if unknown."""
    try:
        method, names = choose_method(columns, regions)
    except ValueError as error:
        raise EventFileError(f"{path}: {error}") from error
    if method not in ("angles", "intervals") and regions.source_ra is None:
        needed = "the source position is required to count On and Off events"
        raise EventFileError(f"{path}: {needed}: specify source (--source), or a configuration with a source")
    return method, names


def _on_off(paths: list[Path], columns: tuple[str, ...], regions: RegionConfig, *, required: bool) -> dict[str, str]:
    """Return the counts in the regions, without a cut and for each selection."""
    selections = [found.selected for found in OutputColumns.found_in(columns)]
    try:
        method, names = _method(paths[0], columns, regions)
    except EventFileError:
        if required:
            raise
        return _selected(paths, selections)
    counts: dict[str, OnOffCounts] = {}
    numbers: set[int] = set()
    wanted = [*names, *selections, *({GOOD_TIME} & set(columns))]
    for table in iter_events(paths, list(dict.fromkeys(wanted))):
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


def _selected(paths: list[Path], selections: list[str]) -> dict[str, str]:
    """Return the number of events of each selection if On and Off are not defined."""
    if not selections:
        return {}
    counted = [(table.astype(bool).sum(), len(table)) for table in iter_events(paths, selections)]
    n_selected: Any = sum(own for own, _ in counted)
    n_events = sum(n for _, n in counted)
    return {name: f"{n_selected[name]:,} of {n_events:,} events" for name in selections}


def check_exclusion(text: str) -> None:
    """Raise ArgumentError unless a text is an exclusion, such as ``"84.411 21.143 0.3"`` or ``"Crab 0.3"``."""
    Exclusion.parse(text)


def propose_listed(path: str | PathLike[str], *, features: Sequence[str] = (), exclude: Sequence[str] = ()) -> Proposal:
    """Propose common features, cuts and groups for the observations of a YAML list; each has its own regions."""
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
    """Return the files named in a YAML list of observations."""
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
    """Write files with a simulated wobble observation, and with labelled gammas and protons."""
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
            reason = getattr(error if isinstance(error, OSError) else error.__cause__, "strerror", None) or error
            raise EventFileError(f"{for_error}: cannot be written: {reason}; {folder} is unchanged") from error
    return {kind: {"path": str(folder / names[kind]), "n_events": len(table)} for kind, table in tables.items()}
