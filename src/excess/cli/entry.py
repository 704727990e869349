"""The entry of the command line: from here on, an interrupt is one line and an exit code."""

from __future__ import annotations

import sys

from excess._core.interrupts import INTERRUPTED, exit_at_interrupts, words_for

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure is one sentence and an exit code."""
    try:
        with exit_at_interrupts():
            from excess.cli.commands import run
        run(arguments)
    except KeyboardInterrupt:  # before a command began, or after it ended
        sys.stderr.write(f"{words_for(INTERRUPTED - 128)}\n")
        sys.exit(INTERRUPTED)
    finally:
        # libraries that end with the process, such as pools of threads, are not interrupted with a traceback
        if arguments is None:
            with exit_at_interrupts(ever_after=True):
                pass
