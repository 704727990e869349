"""Failures of commands: one sentence and an exit code.

An option that is wrong in itself, or does not go with others, is usage: 2, with the usage of the command. What depends
on the content of files is 1, also where an option has to be changed.
"""

from __future__ import annotations

import re
from typing import Protocol, TypeGuard

import typer

from excess._core.errors import ArgumentError
from excess.cli.printing import LONGEST_TEXT, shortened, visible

__all__ = ["as_option", "as_usage_error", "fail", "is_usage"]

_OPTIONS = {
    "areas": "aeff",
    "cv": "folds",
    "executor": "dask",
    "method": "regions",
    "model_files": "model-file",
    "models": "model",
    "n_events": "events",
    "n_signal": "signal",
    "null_tests": "null-test",
    "references": "reference",
}
"""Options of arguments that have another name in Python."""


def as_option(argument: str) -> str:
    """Return the option of an argument; several have the singular on the command line, where they are repeated."""
    return "--" + _OPTIONS.get(argument, argument).replace("_", "-")


def as_usage_error(error: ArgumentError) -> typer.BadParameter:
    """Return an error about an argument of the analysis as one about the option of it."""
    return typer.BadParameter(visible(_problem_of(error)), param_hint=as_option(error.argument))


def _problem_of(error: ArgumentError) -> str:
    """Return what is wrong with an argument, with options in the place of other arguments."""
    return re.sub("`([a-z_]+)`", lambda name: as_option(name[1]), error.problem)


class _UsageError(Protocol):
    """An error of the library that parses options, which typer has under several names."""

    exit_code: int

    def show(self) -> None: ...


def is_usage(error: BaseException) -> TypeGuard[_UsageError]:
    """Say whether an error is about options, which are shown with the usage of the command."""
    return hasattr(error, "exit_code") and hasattr(error, "show")


def fail(error: Exception) -> int:
    """Say what went wrong, and return the exit code."""
    if is_usage(error):
        error.show()
        return error.exit_code
    typer.echo(f"excess: {visible(shortened(_sentence_of(error), LONGEST_TEXT))}", err=True)
    return 1


def _sentence_of(error: Exception) -> str:
    """Return an error as one sentence."""
    if isinstance(error, ArgumentError):
        return f"{as_option(error.argument)}: {_problem_of(error)}"
    if isinstance(error, MemoryError):
        where = f" ({error})" if type(error) is MemoryError and str(error) else ""
        return f"not enough memory{where}; give fewer events, or smaller chunks"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return " ".join(str(error).split())
    return f"unexpected {type(error).__name__}: {error}. This is a defect of excess; --debug shows where"
