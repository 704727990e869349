"""Keyboard interrupts, deferred while a library runs that must not be interrupted."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["defer_interrupts"]


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
