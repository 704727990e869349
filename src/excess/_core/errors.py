"""Errors about event files, settings and arguments, and context managers that add the place to a message."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from excess._core.interrupts import defer_interrupts
from excess._core.reading_watch import noted

__all__ = [
    "ArgumentError",
    "EventFileError",
    "MismatchError",
    "missing_column",
    "nearest",
    "prefix_errors",
    "require",
    "wrap_errors",
]


class EventFileError(ValueError):
    """A problem with a file of events or of settings; the message starts with its path.

    Examples
    --------
    >>> from excess.events import EventFileError, read_events
    >>> try:
    ...     read_events("nowhere.hdf5")
    ... except EventFileError as error:
    ...     print(error)
    nowhere.hdf5: does not exist
    """


class ArgumentError(ValueError):
    """An argument that is wrong in itself, or does not go with others; the command line shows it as a wrong option.

    Parameters
    ----------
    argument : str
        Its name.
    problem : str
        What is wrong with it; the names of other arguments are in backticks.

    Examples
    --------
    >>> from excess._core.errors import ArgumentError
    >>> print(ArgumentError("alpha", "is needed with `off`"))
    alpha is needed with off
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument} {problem.replace('`', '')}")
        self.argument, self.problem = argument, problem


class MismatchError(ArgumentError):
    """An argument that is right in itself and does not fit what files hold; the command line names its option.

    Examples
    --------
    >>> from excess._core.errors import MismatchError
    >>> print(MismatchError("cv", "must be at most the number of groups, 5, got 50"))
    cv must be at most the number of groups, 5, got 50
    """


def require(module: str, doing: str, *, extra: str | None = None) -> Any:
    """Import a library when it is needed, or raise ImportError that says what to install.

    Parameters
    ----------
    module : str
        What to import.
    doing : str
        What needs it, for the message.
    extra : str, optional
        The extra of this package that has it; without one, the library itself is named.

    Examples
    --------
    >>> from excess._core.errors import require
    >>> require("no_such_library.io", "reading scrolls")
    Traceback (most recent call last):
        ...
    ImportError: reading scrolls needs no_such_library: pip install no_such_library
    >>> require("no_such_library", "writing scrolls", extra="onnx")
    Traceback (most recent call last):
        ...
    ImportError: writing scrolls needs no_such_library: pip install 'excess[onnx]'
    """
    try:
        with defer_interrupts():  # libraries print tracebacks when their import is interrupted
            return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        remedy = package if extra is None else f"'excess[{extra}]'"
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package:
            raise ImportError(f"{doing} needs {package}: pip install {remedy}") from error
        problem = f"{package}, which is installed but does not work here ({error})"
        raise ImportError(f"{doing} needs {problem}: pip install --upgrade {remedy}") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known names that are nearest to an unknown one.

    Examples
    --------
    >>> from excess._core.errors import nearest
    >>> nearest("widht", ["width", "length"])
    "did you mean 'width'?"
    >>> nearest("colour", ["width", "length"])
    'known are length, width'
    """
    by_lower = {other.lower(): other for other in known}
    close = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(repr(by_lower[other]) for other in close)}?"
    names = sorted(by_lower.values())
    return f"known are {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else "none is known"


def missing_column(name: str, known: Iterable[str]) -> str:
    """Return the message that a table lacks a column, with the nearest names."""
    return f"has no column {name!r}; {nearest(name, known)}"


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Put a place in front of the messages of errors, unless they contain it already.

    Examples
    --------
    >>> from excess._core.errors import prefix_errors
    >>> with prefix_errors("night.hdf5, chunk 3"):
    ...     raise ValueError("no angles")
    Traceback (most recent call last):
        ...
    ValueError: night.hdf5, chunk 3: no angles
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        if not where or where.split(", chunk ")[0] in str(error):
            raise
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{where}: {error}") from error


@contextmanager
def wrap_errors(path: Path, doing: str) -> Iterator[None]:
    """Turn the exceptions of a library about a file into EventFileError with the path in the message.

    In the block, the file is noted as being read, so that nothing else is worked on there.
    """
    try:
        with nullcontext() if doing.startswith("writing") else noted(path):
            yield
    except (EventFileError, ImportError):
        raise
    except MemoryError as error:
        raise MemoryError(f"{path}: {doing} needs more memory than there is") from error
    except OSError as error:
        raise EventFileError(f"{path}: {doing} failed ({_reason(error)})") from error
    except Exception as error:  # with damaged files the libraries raise exceptions of many types
        hint = "; is the file damaged?" if doing.startswith("reading") else ""
        raise EventFileError(f"{path}: {doing} failed ({_reason(error)}){hint}") from error


def _reason(error: Exception) -> str:
    """Return the first line of the message of an exception, or its type."""
    text = (getattr(error, "strerror", None) or str(error)).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__
