"""The decorator of all kernels: numba's, with a place for compiled code where it finds none."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config

_settings: Any = config  # numba makes its attributes from the environment

__all__ = ["is_compiling", "njit"]

_logger = logging.getLogger("excess")


def njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return numba's decorator ``njit``.

    Numba keeps compiled code beside the source, or in the home folder, and fails where neither can be written. Here it
    is then kept among the temporary files of the user, with a warning, or not at all.
    """

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
    """Return a folder for compiled code that nobody else can write to; None if there is none."""
    where = "neither the folder of excess nor your home can be written; set NUMBA_CACHE_DIR to a folder that can"
    try:
        user = os.getuid() if hasattr(os, "getuid") else "user"
        folder = Path(tempfile.gettempdir()) / f"excess-kernels-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        # compiled code is run: a folder that somebody else has made, or can write to, is not used
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or (user != "user" and found.st_uid != user):
            folder = Path(tempfile.mkdtemp(prefix="excess-kernels-"))
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        _logger.warning("Compiled kernels are not kept, and every process compiles them anew: %s.", where)
        return None
    _logger.warning("Compiled kernels are kept in %s: %s.", folder, where)
    return folder
