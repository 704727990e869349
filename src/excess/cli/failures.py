"""Failures of commands: one sentence and an exit code, 2 for wrong usage and 1 for all others."""

from __future__ import annotations

import re

import typer

from excess._core.errors import ArgumentError
from excess.cli.printing import LONGEST_TEXT, shortened, visible

__all__ = ["as_option", "as_usage_error", "fail", "is_usage"]


def as_option(argument: str) -> str:
    """Return the option of an argument; several have the singular on the command line, where they are repeated."""
    others = {"models": "model", "null_tests": "null-test", "references": "reference", "model_files": "model-file"}
    return "--" + (others | {"executor": "dask", "method": "regions"}).get(argument, argument).replace("_", "-")


def as_usage_error(error: ArgumentError) -> typer.BadParameter:
    """Return an error about an argument of the analysis as one about the option of it."""
    problem = re.sub("`([a-z_]+)`", lambda name: as_option(name[1]), error.problem)
    return typer.BadParameter(visible(problem), param_hint=as_option(error.argument))


def is_usage(error: BaseException) -> bool:
    """Say whether an error is about options, which are shown with the usage of the command."""
    return hasattr(error, "exit_code") and hasattr(error, "show")


def fail(error: Exception) -> int:
    """Say what went wrong, and return the exit code."""
    if hasattr(error, "exit_code") and hasattr(error, "show"):
        error.show()
        return int(error.exit_code)
    typer.echo(f"excess: {visible(shortened(_sentence_of(error), LONGEST_TEXT))}", err=True)
    return 1


def _sentence_of(error: Exception) -> str:
    """Return an error as one sentence."""
    if isinstance(error, MemoryError):
        where = f" ({error})" if type(error) is MemoryError and str(error) else ""
        return f"not enough memory{where}; give fewer events, or smaller chunks"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    if isinstance(error, (ValueError, OSError, ImportError)):
        return " ".join(str(error).split())
    return f"unexpected {type(error).__name__}: {error}. This is a defect of excess; --debug shows where"
