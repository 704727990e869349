"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Files = Annotated[list[Path], typer.Argument(help="Event files: FACT or ctapipe HDF5, FITS, Parquet or CSV.")]
Config = Annotated[Path | None, typer.Option("--config", "-c", help="YAML file with features, cuts and regions.")]
Groups = Annotated[str | None, typer.Option(help="Column that must not be split, such as night; 'none' for no groups.")]
Join = Annotated[
    list[Path] | None, typer.Option(help="Files to join event by event, such as DL3 files beside DL2 files.")
]
Off = Annotated[list[Path] | None, typer.Option(help="Files of Off events, where FILES hold On events alone.")]
Alpha = Annotated[float | None, typer.Option(help="Exposure ratio On/Off; needed with --off.")]
SourceRa = Annotated[float | None, typer.Option(help="Right ascension of the source in deg, for sky positions.")]
SourceDec = Annotated[float | None, typer.Option(help="Declination of the source in deg, for sky positions.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=2**31 - 1)]


def _check_jobs(jobs: int) -> int:
    if jobs == 0:
        raise typer.BadParameter("must not be 0; -1 is all cores")
    return jobs


Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Cores; -1 is all of them.", callback=_check_jobs)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and no progress.")]
