"""Simulated data to try everything on: files of a wobble observation, and a search in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from excess._core.errors import EventFileError
from excess._core.files import prepare_folder, replacing_together, undo_unfinished
from excess._core.locks import locked
from excess.analysis.output_paths import check_outputs
from excess.analysis.run_folder import Run
from excess.analysis.source_search import search
from excess.events import AnalysisConfig, write_events
from excess.observation.observing import observe
from excess.observation.simulation import simulate_labelled, simulate_observation

__all__ = ["FILE_FORMATS", "run_demo", "simulate_files"]

FILE_FORMATS = ("hdf5", "parquet", "csv")
"""Formats of simulated files; the first is FACT's layout."""
CRAB = (83.6333, 22.0133)
"""Right ascension and declination of the Crab Nebula in deg."""


def run_demo(
    n_events: int = 757_993,
    n_signal: int = 1_242,
    *,
    seed: int = 0,
    n_jobs: int = -1,
    verbose: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Run:
    """Simulate an observation like FACT's open Crab sample, and search for the source in it.

    Parameters
    ----------
    n_events, n_signal : int
        Events to simulate, and gammas among them.
    seed, n_jobs, verbose
        As for `search`.
    tell : callable, optional
        Called with a sentence before each step.

    Returns
    -------
    Run
        A forest, a tree, k-means and a supervised forest, with null tests of the first three.
    """
    tell(f"Simulating {n_events:,} events, {n_signal:,} of them gammas")
    crab = AnalysisConfig().with_source(*CRAB)
    observation = observe(simulate_observation(n_events, n_signal, source=CRAB, random_state=seed), crab)
    tell(str(observation))
    tell("Simulating 20,000 gammas and protons with known labels, for a reference")
    truth = simulate_labelled(random_state=seed + 1)
    run = search(
        observation,
        ["forest", "li-ma-tree", "k-means"],
        simulated=(truth[truth["is_signal"]], truth[~truth["is_signal"]]),
        null_tests=True,
        title="A simulated observation like FACT's of the Crab Nebula",
        seed=seed,
        n_jobs=n_jobs,
        verbose=verbose,
        command="demo",
    )
    run.record["options"] |= {"events": n_events, "signal": n_signal}
    return run


def simulate_files(
    folder: Path,
    *,
    n_events: int = 757_993,
    n_signal: int = 1_242,
    n_nights: int = 5,
    first_night: int = 20131101,
    n_labelled: int = 10_000,
    suffix: str = FILE_FORMATS[0],
    seed: int = 0,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Simulate a wobble observation, and labelled gammas and protons, into files.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    n_events, n_signal, n_nights, first_night
        As for `simulate_observation`.
    n_labelled : int, default=10_000
        Labelled gammas, and as many protons.
    suffix : {"hdf5", "parquet", "csv"}, default="hdf5"
        Format of the files.
    seed : int, default=0
        Seed of everything.
    overwrite : bool, default=False
        Replace files of these names.

    Returns
    -------
    dict
        Path and number of events of each file, by what it holds.
    """
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
