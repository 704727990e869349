"""The command ``excess report``: the report of a finished run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.cli.options import Json, Overwrite, one_of
from excess.cli.printing import print_json, say

__all__ = ["report"]


def report(
    folder: Annotated[Path, typer.Argument(help="Output folder of 'excess detect' or 'excess demo'.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="HTML file to write; by default report.html in the folder.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="What was observed; by default as the run was told.")] = None,
    plots: Annotated[
        str | None,
        typer.Option(
            help="Write the plots as files of their own as well: png, pdf or svg.",
            callback=one_of(("png", "pdf", "svg")),
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write the report of a finished run again, and its plots for a paper."""
    with exit_at_interrupts():
        from excess.analysis import check_report_path, prepare_folder, read_run

    target = folder / "report.html" if output is None else output
    finished = read_run(folder)
    check_report_path(target, folder, overwrite=overwrite)
    prepare_folder(target.parent)
    written = [finished.report(target, title)]
    if plots is not None:
        written += finished.write_plots(target.parent / "plots", plots)
    for path in written:
        say(f"{path}", as_json)
    if as_json:
        print_json([str(path) for path in written])
