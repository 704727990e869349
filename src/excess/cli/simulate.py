"""The commands ``excess demo`` and ``excess simulate``: observations that need no telescope."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.cli.finish import finish_run
from excess.cli.options import Json, Overwrite, RunOptions, Seed, grouped, one_of
from excess.cli.printing import print_json, say

__all__ = ["demo", "simulate"]


@grouped
def demo(
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder for the results.")] = None,
    events: Annotated[int, typer.Option(help="Events to simulate.", min=1000)] = 757_993,
    signal: Annotated[int, typer.Option(help="Gammas among them.", min=0)] = 1_242,
    *,
    run: RunOptions,
) -> None:
    """Simulate a night-sky observation like FACT's open Crab sample, and detect the source in it."""
    with exit_at_interrupts():
        from excess.analysis import claim_run_folder, run_demo

    with nullcontext() if output is None else claim_run_folder(output, overwrite=run.overwrite):
        found = run_demo(
            events,
            signal,
            seed=run.seed,
            n_jobs=run.jobs,
            verbose=not run.as_json,
            tell=lambda text: say(text, run.as_json),
        )
        finish_run(found, output, run)


def simulate(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the files.")],
    events: Annotated[int, typer.Option(help="Events of the observation.", min=1)] = 757_993,
    signal: Annotated[int, typer.Option(help="Gammas among them.", min=0)] = 1_242,
    nights: Annotated[int, typer.Option(help="Nights.", min=1)] = 5,
    first_night: Annotated[int, typer.Option(help="Date of the first night.")] = 20131101,
    labelled: Annotated[int, typer.Option(help="Labelled gammas, and as many protons.", min=0)] = 10_000,
    suffix: Annotated[
        str,
        typer.Option(
            "--format", help="hdf5 (FACT's layout), parquet or csv.", callback=one_of(("hdf5", "parquet", "csv"))
        ),
    ] = "hdf5",
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Simulate a wobble observation, and labelled gammas and protons, into files."""
    with exit_at_interrupts():
        from excess.analysis import simulate_files

    written = simulate_files(
        output,
        n_events=events,
        n_signal=signal,
        n_nights=nights,
        first_night=first_night,
        n_labelled=labelled,
        suffix=suffix,
        seed=seed,
        overwrite=overwrite,
    )
    for file in written.values():
        say(f"{file['path']}: {file['n_events']:,} events", as_json)
    if as_json:
        print_json(written)
