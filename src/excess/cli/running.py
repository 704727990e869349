"""How the command line runs and ends: one sentence for a failure, exit codes, interrupts and termination."""

from __future__ import annotations

import logging
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from excess._core.errors import ArgumentError
from excess.cli.commands import app

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure is one sentence and an exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in given
    # what Dask has to tell is for --debug
    logging.getLogger("distributed").setLevel(logging.NOTSET if debug else logging.CRITICAL + 1)
    try:
        with _terminated_as_interrupted() as received:
            code = app([word for word in given if word != "--debug"], prog_name="excess", standalone_mode=False)
    except Exception as error:
        if isinstance(error, ArgumentError):
            problem = re.sub("`([a-z_]+)`", lambda name: _as_option(name[1]), error.problem)
            error = typer.BadParameter(problem, param_hint=_as_option(error.argument))
        if hasattr(error, "exit_code") and hasattr(error, "show"):
            error.show()
            sys.exit(error.exit_code)
        if debug:
            raise
        sys.exit(_fail(_sentence_of(error), 1))
    if code == _INTERRUPTED:
        code = 128 + received[0] if received else code
        _fail(f"{'terminated' if received else 'interrupted'}; no half-written file is left", code)
    sys.exit(code if isinstance(code, int) else 0)


def _as_option(argument: str) -> str:
    """Return the option of an argument; several have the singular on the command line, where they are repeated."""
    return "--" + {"models": "model", "null_tests": "null-test"}.get(argument, argument).replace("_", "-")


@contextmanager
def _terminated_as_interrupted() -> Iterator[list[int]]:
    """Let SIGTERM, which batch systems send, end a command as the keyboard does, with all temporary files removed.

    The list that is given has the signal in it afterwards.
    """
    received: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        received.append(number)
        signal.raise_signal(signal.SIGINT)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    usual = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield received
    finally:
        signal.signal(signal.SIGTERM, usual)


def _fail(message: str, code: int) -> int:
    """Say what went wrong, and return the exit code."""
    typer.echo(f"excess: {message}", err=True)
    return code


def _sentence_of(error: Exception) -> str:
    """Return an error as one sentence."""
    if isinstance(error, MemoryError):
        return "not enough memory; give fewer events, or smaller chunks"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return " ".join(str(error).split())
    return f"unexpected {type(error).__name__}: {error}. This is a defect of excess; --debug shows where"
