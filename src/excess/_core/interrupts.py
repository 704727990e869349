"""Interrupts: deferred where a library must not be interrupted, an exit where nothing has begun, kept in mind after.

Whatever is imported here is imported before an interrupt is one line, so it is little.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

__all__ = [
    "INTERRUPTED",
    "defer_interrupts",
    "exit_at_interrupts",
    "ignore_interrupts",
    "record_signals",
    "removed_at_exit",
    "words_for",
]

INTERRUPTED = 130
"""Exit code of a command that was interrupted from the keyboard: 128 and the number of the signal."""

_to_remove: list[str] = []
"""Files of locks that are held, which a process that ends at once removes."""

_SECONDS_TO_END = 2.0
"""How long further signals are left alone, so that they do not interrupt the removal of temporary files."""


def words_for(number: int) -> str:
    """Return the line that says that a signal has ended a command.

    Examples
    --------
    >>> from excess._core.interrupts import words_for
    >>> words_for(2)
    'excess: interrupted; no half-written file is left'
    """
    word = "interrupted" if number == signal.SIGINT else "terminated"
    return f"excess: {word}; no half-written file is left"


@contextmanager
def exit_at_interrupts(*, ever_after: bool = False) -> Iterator[None]:
    """End the process at once when it is interrupted or terminated, with one line.

    For imports, and for the end of a process, when there is nothing to clean up but locks: libraries print tracebacks,
    and raise exceptions of other types, when their import is interrupted.

    Parameters
    ----------
    ever_after : bool, default=False
        Stay so after the block.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        for path in _to_remove:
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108
        os.write(2, f"{words_for(number)}\n".encode())
        os._exit(128 + number)

    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # Python runs and sets handlers in the main thread only; a signal that is ignored, as after nohup, stays ignored
    if threading.current_thread() is not threading.main_thread() or not callable(usual[signal.SIGINT]):
        yield
        return
    for number in usual:
        signal.signal(number, leave)
    try:
        yield
    finally:
        if not ever_after:
            for number, handler in usual.items():
                signal.signal(number, handler)


@contextmanager
def removed_at_exit(path: str) -> Iterator[None]:
    """Let a process that `exit_at_interrupts` ends inside of the block remove a file, such as that of a lock."""
    _to_remove.append(path)
    try:
        yield
    finally:
        _to_remove.remove(path)


def ignore_interrupts() -> None:
    """Ignore interrupts and terminations from now on: the work is done, and Python takes a while to end.

    Python drops its handlers when it ends, so that a signal would give a finished command the code of a failed one.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def record_signals() -> Iterator[list[int]]:
    """Let SIGTERM, which batch systems send, end a command as the keyboard does, with all temporary files removed.

    The list that is given has the signals in it. A KeyboardInterrupt inside a library may arrive as an exception of
    another type, so that the list, not the exception, says what has happened. One that a library has swallowed is
    raised again.
    """
    received: list[int] = []
    since = [0.0]
    again: list[threading.Timer] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        if received and time.monotonic() - since[0] < _SECONDS_TO_END:
            return
        received.append(number)
        since[0] = time.monotonic()
        raise KeyboardInterrupt

    def notice(unraisable: Any) -> None:
        if not (received and isinstance(unraisable.exc_value, KeyboardInterrupt)):
            usual_hook(unraisable)
            return
        since[0] = 0.0
        again.append(threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)))
        again[-1].daemon = True
        again[-1].start()

    usual_hook = sys.unraisablehook
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if threading.current_thread() is not threading.main_thread() or not callable(usual[signal.SIGINT]):
        yield received
        return
    sys.unraisablehook = notice
    signal.signal(signal.SIGINT, interrupt)
    # by way of SIGINT, which may be deferred
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        yield received
    finally:
        for timer in again:
            timer.cancel()
        for number, handler in usual.items():
            signal.signal(number, handler)
        sys.unraisablehook = usual_hook


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler):
        handler(number, frame)


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Raise a KeyboardInterrupt at the end of the block instead of inside it.

    Examples
    --------
    >>> import signal
    >>> from excess._core.interrupts import defer_interrupts
    >>> done = []
    >>> try:
    ...     with defer_interrupts():
    ...         signal.raise_signal(signal.SIGINT)
    ...         done.append("all of it")
    ... except KeyboardInterrupt:
    ...     done.append("interrupted")
    >>> done
    ['all of it', 'interrupted']
    """
    usual = signal.getsignal(signal.SIGINT)
    # Python runs and sets handlers in the main thread only.
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    caught: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if caught:
        usual(*caught[0])
