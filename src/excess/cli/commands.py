"""The commands together: the app, and how it is run. A command has a module of its own.

Commands take arguments, call the analysis and print words; they hold no science. Every failure is one sentence and an
exit code.
"""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from excess._core.interrupts import INTERRUPTED, record_signals, words_for
from excess.cli.apply import apply
from excess.cli.configuration import init
from excess.cli.detect import detect
from excess.cli.efficiency import efficiency
from excess.cli.export import export
from excess.cli.failures import fail, is_usage
from excess.cli.info import info
from excess.cli.parsing import Command, FilesCommand
from excess.cli.report import report
from excess.cli.reproduce import reproduce
from excess.cli.simulate import demo, simulate
from excess.cli.train import train

__all__ = ["app", "run"]

app = typer.Typer(
    name="excess",
    help="Learn to detect a source from On and Off events alone.",
    epilog="Add --debug to any command to see the traceback of an error. Exit codes: 0 finished, 1 something is wrong "
    "with the input or the output, 2 wrong usage, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    if version:
        from excess import __version__

        typer.echo(f"excess {__version__}")
        raise typer.Exit


# in the order of the help
app.command(cls=Command)(demo)
app.command(cls=Command)(simulate)
app.command(cls=Command)(info)
app.command(cls=FilesCommand)(init)
app.command(cls=FilesCommand)(detect)
app.command(cls=Command)(report)
app.command(cls=FilesCommand)(train)
app.command(cls=Command)(apply)
app.command(cls=Command)(efficiency)
app.command(cls=Command)(export)
app.command(cls=Command)(reproduce)


def run(arguments: list[str] | None = None) -> None:
    """Run a command; every failure is one sentence and an exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in given
    # what Dask has to tell is for --debug
    logging.getLogger("distributed").setLevel(logging.NOTSET if debug else logging.CRITICAL + 1)
    with record_signals() as received:
        try:
            code = app([word for word in given if word != "--debug"], prog_name="excess", standalone_mode=False)
        except (Exception, KeyboardInterrupt) as error:
            if received or isinstance(error, KeyboardInterrupt):
                code = INTERRUPTED
            elif debug and not is_usage(error):
                raise
            else:
                sys.exit(fail(error))
    if code == INTERRUPTED:
        number = received[0] if received else INTERRUPTED - 128
        typer.echo(words_for(number), err=True)
        code = 128 + number
    sys.exit(code if isinstance(code, int) else 0)
