"""The command ``excess reproduce``: every table and figure of the paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.cli.options import Jobs, Json, Seed
from excess.cli.printing import print_json, say

_TARGETS = (
    "roc, agreement, crab, crab-null, imbalanced, imbalanced-more-noise, critical-difference, calibration, or all"
)

_FACT = "https://factdata.app.tu-dortmund.de/"


def reproduce(
    targets: Annotated[list[str], typer.Argument(help=f"What to reproduce: {_TARGETS}.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of local data: imbalanced-learn's (zenodo/x*data.npz) and FACT's open Crab sample. Without "
            "it, the first are downloaded, the second is simulated."
        ),
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Repetitions; by default as many as in the paper.", min=1)] = None,
    jobs: Jobs = -1,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for trials and pages.")] = Path("reproduction"),
    seed: Seed = 0,
    small: Annotated[
        bool, typer.Option("--small", help="Small stand-ins for data and models: shows that everything runs, no more.")
    ] = False,
    finished: Annotated[
        bool, typer.Option("--finished", help="Run nothing; write pages from the trials that are finished.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Reproduce tables and figures of the paper. A run that was interrupted is resumed."""
    with exit_at_interrupts():
        from excess._core.files import prepare_folder
        from excess.reproduction.crab_data import fact_files, labelled_files
        from excess.reproduction.running import chosen_targets, reproduce_targets
        from excess.reproduction.settings import Settings

    try:
        chosen = chosen_targets(targets)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="TARGETS") from error
    if data is not None and not data.is_dir():
        raise typer.BadParameter(f"{data} is not a folder", param_hint="--data")
    settings = Settings(seed, data, small)
    if finished:
        if not out.is_dir():
            raise ValueError(f"{out}: is not a folder, so that no page can be made of finished trials")
    else:
        prepare_folder(out)
        if {"crab", "crab-null", "agreement", "roc"} & set(chosen) and not fact_files(settings):
            where = "" if data is None or small else f"{data} holds no file *crab*dl2*.hdf5 or *.h5, so that "
            say(f"{where}the Crab is SIMULATED; {_FACT} has the real sample", as_json)
            if where and labelled_files(settings):
                say("files of gammas and protons are ignored without it", as_json)
    try:
        pages = reproduce_targets(
            targets,
            out,
            settings,
            n_trials=trials,
            n_jobs=jobs,
            show_progress=not as_json,
            only_finished=finished,
            report=lambda text: say(text, as_json),
        )
    except KeyboardInterrupt:
        say("finished trials are kept: the same command resumes the run", as_json)
        raise
    if not pages:
        raise ValueError(f"{out}: no page could be made, as no trial is finished there; run without --finished")
    for name, path in pages.items():
        say(f"{name}: {path}", as_json)
    if as_json:
        print_json({name: str(path) for name, path in pages.items()})
