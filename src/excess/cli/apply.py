"""The command ``excess apply``: copies of event files with the score of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.cli.options import DaskAddress, Files, Jobs, Json, Overwrite
from excess.cli.printing import print_json, say

__all__ = ["apply"]


def apply(
    model: Annotated[Path, typer.Argument(help="Model file of 'excess train'.")],
    files: Files,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write; a folder, where there are several files.")
    ],
    prefix: Annotated[
        str,
        typer.Option(
            help="Name the new columns PREFIX_score, PREFIX_signal_probability and PREFIX_selected.", metavar="PREFIX"
        ),
    ] = "excess",
    selected_only: Annotated[
        bool, typer.Option("--selected-only", help="Write selected events only, to FITS, Parquet or CSV files.")
    ] = False,
    chunk_rows: Annotated[int, typer.Option(help="Events read at a time.", min=1)] = 200_000,
    dask: DaskAddress = None,
    jobs: Jobs = -1,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Add score, probability of signal and selection to copies of event files, in constant memory.

    Columns of the files stay as they are.
    """
    with exit_at_interrupts():
        from excess.analysis import apply

    settings: dict[str, Any] = {"prefix": prefix, "chunk_rows": chunk_rows, "executor": dask, "n_jobs": jobs}
    settings |= {"overwrite": overwrite, "selected_only": selected_only}
    done = apply(model, files, output, **settings, verbose=not as_json)
    for applied in done.values():
        say(str(applied), as_json)
    if len(done) > 1:
        totals = {
            name: sum(getattr(one, name) for one in done.values()) for name in ("n_events", "n_scored", "n_selected")
        }
        words = "{n_events:,} events, {n_scored:,} scored, {n_selected:,} selected".format(**totals)
        say(f"{len(done)} files: {words}", as_json)
    if as_json:
        print_json([{**vars(applied), "path": str(applied.path)} for applied in done.values()])
