"""The command ``excess info``: what a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from excess._core.interrupts import exit_at_interrupts
from excess.cli.configuration import assumed_rows
from excess.cli.options import Config, Exclusions, Json, RegionMethod, Source, region_settings
from excess.cli.printing import describe_content, print_json, print_table, shortened

__all__ = ["info"]


def info(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Event file, or model file.")],
    config: Config = None,
    source: Source = None,
    method: RegionMethod = None,
    exclusion: Exclusions = None,
    as_json: Json = False,
) -> None:
    """Say what a file holds: its format, events, columns, and On and Off counts; or the header of a model."""
    with exit_at_interrupts():
        from excess.analysis import describe_file

    if len(files) > 1:
        raise typer.BadParameter(
            f"takes one file, got {len(files)}; 'excess init' and 'excess detect' look at several", param_hint="FILE"
        )
    file = files[0]
    found = describe_file(file, config, source=source, regions=region_settings(method, exclusion))
    if as_json:
        print_json(found)
    elif "format" not in found:
        print_table(str(file), {key: shortened(value) for key, value in found.items()})
    else:
        rows = describe_content(found) | found["on_off"] | assumed_rows(found["assumed"])
        rows[f"{len(found['columns'])} columns"] = ", ".join(found["columns"])
        print_table(str(file), rows)
