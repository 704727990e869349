"""Decorator of all kernels: numba's ``njit``, with a fallback folder for compiled code.

This is the only module that imports numba, whose settings determine where compiled code is loaded from.
"""

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from excess._utils.errors import ignore_local_settings

with ignore_local_settings():
    import numba
    from numba.core import config
    from numba.core.dispatcher import Dispatcher as Dispatcher

_settings: Any = config  # numba creates its attributes from the environment
_settings._config_fname = ""  # otherwise numba reads the file of the current folder with each compilation
_settings.reload_config()  # resets settings from a file if numba was imported before

_logger = logging.getLogger("excess")


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return numba's decorator ``njit``."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(**options)(function)
        except RuntimeError as error:
            if not options.get("cache") or "no locator" not in str(error):
                raise
        folder = _temporary_cache()
        if folder is None:
            return numba.njit(**{**options, "cache": False})(function)
        usual = _settings.CACHE_DIR
        _settings.CACHE_DIR = str(folder)
        try:
            return numba.njit(**options)(function)
        finally:
            _settings.CACHE_DIR = usual

    return compiled


def is_compiling() -> bool:
    """Return whether kernels are compiled: ``NUMBA_DISABLE_JIT=1`` runs them as Python, for debuggers and coverage."""
    return not _settings.DISABLE_JIT


@cache
def _temporary_cache() -> Path | None:
    """Return a folder for compiled code that no other user can write to; None if there is none."""
    where = "neither the folder of excess nor your home is writable; set NUMBA_CACHE_DIR to a writable folder"
    try:
        user = os.getuid() if hasattr(os, "getuid") else "user"
        folder = Path(tempfile.gettempdir()) / f"excess-kernels-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        # compiled code is executed: a folder created by, or writable for, another user is not used
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or (user != "user" and found.st_uid != user):
            folder = Path(tempfile.mkdtemp(prefix="excess-kernels-"))
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        _logger.warning("Compiled kernels are not cached, and every process compiles them again: %s.", where)
        return None
    _logger.warning("Compiled kernels are cached in %s: %s.", folder, where)
    return folder
