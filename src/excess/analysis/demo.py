"""Simulated data to try everything on: files of a wobble observation, and a search in one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from excess._core.files import prepare_folder
from excess.analysis.run_folder import Run
from excess.analysis.source_search import search
from excess.events import write_events
from excess.observation.observation import observe
from excess.observation.simulation import simulate_labelled, simulate_observation

__all__ = ["FILE_FORMATS", "run_demo", "simulate_files"]

FILE_FORMATS = ("hdf5", "parquet", "csv")
"""Formats of simulated files; the first is FACT's layout."""


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
    observation = observe(simulate_observation(n_events, n_signal, random_state=seed))
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

    Returns
    -------
    dict
        Path and number of events of each file, by what it holds.
    """
    prepare_folder(folder)
    observation = simulate_observation(
        n_events, n_signal, n_nights=n_nights, n_runs=43 * n_nights, first_night=first_night, random_state=seed
    )
    truth = simulate_labelled(n_labelled, n_labelled, random_state=seed)
    tables = {"observation": observation, "gamma": truth[truth["is_signal"]], "proton": truth[~truth["is_signal"]]}
    written = {}
    for name, table in tables.items():
        path = folder / f"{name}.{suffix}"
        write_events(table, path)
        written[name] = {"path": str(path), "n_events": len(table)}
    return written
