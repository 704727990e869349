"""Errors about event files, settings and arguments, context managers that add context to messages, and signals."""

import ctypes
import importlib
import logging
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from threading import RLock
from typing import Any

_logger = logging.getLogger("excess")


class EventFileError(ValueError):
    """A problem with a file of events or of settings; the message starts with its path."""


class ArgumentError(ValueError):
    """An invalid argument or combination of arguments; the command line reports it as a wrong option."""

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument} {problem.replace('`', '')}")
        self.argument, self.problem = argument, problem


class MismatchError(ArgumentError):
    """A valid argument that does not match the content of files; the command line names its option."""


def require(module: str, doing: str, *, extra: str | None = None) -> Any:
    """Import an optional library; the ImportError names the library, or the extra of this package, to install."""
    try:
        with ignore_local_settings():
            return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        remedy = package if extra is None else f"'excess[{extra}]'"
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == package:
            raise ImportError(f"{doing} requires {package}: pip install {remedy}") from error
        problem = f"{package}, which is installed but does not work here ({error})"
        raise ImportError(f"{doing} requires {problem}: pip install --upgrade {remedy}") from error


_LOCAL_SETTINGS = (".numba_config.yaml", "matplotlibrc")
_hiding = RLock()


@contextmanager
def ignore_local_settings() -> Iterator[None]:
    """Prevent libraries imported in the block from reading settings in the current folder."""

    def exists(path: Any) -> bool:
        return path not in _LOCAL_SETTINGS and usual(path)

    with _hiding:
        usual = os.path.exists
        os.path.exists = exists  # both libraries look for the bare name
        try:
            yield
        finally:
            os.path.exists = usual


def handle_once(number: int, handler: Any) -> Any:
    """Handle a signal once, return the former handler; the next signal ends the process, even inside a C library."""
    handler.once = True
    former = signal.signal(number, handler)
    # Python calls the handler when a library returns. Only the system can restore the default action before that: by
    # the semantics of System V, where a handler is for one signal. Other C libraries than that of GNU have none.
    system: Any = ctypes.CDLL(None) if os.name == "posix" else None
    if hasattr(system, "sysv_signal"):
        system.signal.restype = ctypes.c_void_p
        system.sysv_signal(number, ctypes.c_void_p(system.signal(number, None)))
    return former


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known names closest to an unknown one."""
    by_lower = {other.lower(): other for other in known}
    close = get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(repr(by_lower[other]) for other in close)}?"
    names = sorted(by_lower.values())
    return f"known are {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}" if names else "none is known"


def missing_column(name: str, known: Iterable[str]) -> str:
    """Return the message for a missing column, with the closest names."""
    return f"has no column {name!r}; {nearest(name, known)}"


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Prepend a location to the messages of errors, unless they contain it already."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if not where or where.split(", chunk ")[0] in str(error):
            raise
        if isinstance(error, MismatchError):
            raise MismatchError(error.argument, f"{error.problem} ({where})") from error
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{where}: {error}") from error


@contextmanager
def wrap_errors(path: Path, doing: str) -> Iterator[None]:
    """Convert the exceptions of a library about a file to EventFileError with the path in the message."""
    _logger.debug("%s: %s", path, doing)
    try:
        yield
    except (EventFileError, ImportError):
        raise
    except MemoryError as error:
        raise MemoryError(f"{path}: {doing} requires more memory than available") from error
    except OSError as error:
        raise EventFileError(f"{path}: {doing} failed ({first_line(error)})") from error
    except Exception as error:  # libraries raise exceptions of many types for damaged files
        hint = "; the file may be damaged" if doing.startswith("reading") else ""
        raise EventFileError(f"{path}: {doing} failed ({first_line(error)}){hint}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an exception, or its type."""
    text = (getattr(error, "strerror", None) or str(error)).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def with_error(value: float, error: float, form: str = ",.1f", sign: str = "+-") -> str:
    """Return a value and its error as text, both in the same form."""
    return f"{value:{form}} {sign} {error:{form.lstrip('+')}}"
