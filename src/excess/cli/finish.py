"""The end of a search: a run and its report are written, and printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from excess._core.interrupts import exit_at_interrupts
from excess.cli.options import RunOptions
from excess.cli.printing import print_json, print_run, say

if TYPE_CHECKING:
    with exit_at_interrupts():
        from excess.analysis import Run

__all__ = ["finish_run"]


def finish_run(found: Run, output: Path | None, run: RunOptions) -> None:
    """Write a run and its report, and print it as a table or as JSON."""
    if found.no_forward:
        say(f"No forward significance: {found.no_forward}", run.as_json)
    look = ""
    if output is not None:
        try:
            found.write(output, report=True, overwrite=run.overwrite)
            look = f"; look at {output / 'report.html'}"
        except ImportError as error:
            found.write(output, overwrite=run.overwrite)
            say(f"No report was written: {error}; then 'excess report {output}' writes it", run.as_json)
    if run.as_json:
        print_json(found.result())
    else:
        print_run(found)
        if output is not None:
            say(f"Results in {output}{look}", run.as_json)
