"""The entry of the command line: from here on, an interrupt is one line and an exit code."""

from __future__ import annotations

import sys

from excess._core.interrupts import INTERRUPTED, exit_at_interrupts, ignore_interrupts, words_for
from excess._core.reading_watch import start_watch

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure is one sentence and an exit code."""
    try:
        # a command has handlers of its own, and before and after it nothing is to be cleaned up; libraries that end
        # with the process, such as pools of threads, are not interrupted with a traceback
        with exit_at_interrupts(ever_after=arguments is None):
            from excess.cli.commands import run

            if arguments is None:
                start_watch()
            run(arguments)
    except SystemExit as end:
        if arguments is None and end.code == 0:
            ignore_interrupts()
        raise
    except KeyboardInterrupt:  # where handlers could not be set
        sys.stderr.write(f"{words_for(INTERRUPTED - 128)}\n")
        sys.exit(INTERRUPTED)
