"""File changes on the call path of ``excess detect``: how many files a reader opens to follow it.

Runs the command on a small simulated observation and records every call from a function of one file of the package to a
function of another. A pair of files counts once. Left out: attributes and operators (properties, ``__str__`` and the
like), which do not look like calls; helpers for all layers, which read well without being opened; functions that run
while a module is imported; and the report, which begins when the result is written.

Usage: python tests/project/call_path.py
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import excess
from excess.cli import main as run_command
from excess.report import _page

PACKAGE = f"{Path(excess.__file__).resolve().parent}/"
LEFT_OUT = ("report/", "_utils/")


@functools.cache
def file_of(code: CodeType) -> str | None:
    """Return the file of a function inside the package, None for any other."""
    path = os.path.realpath(code.co_filename)
    return path.removeprefix(PACKAGE).removesuffix(".py") if path.startswith(PACKAGE) else None


def is_call(code: CodeType, file: str) -> bool:
    """Return whether running a function looks like a call to a reader."""
    *owners, name = code.co_qualname.split(".")
    if name.startswith(("__", "<")):
        return False
    found: Any = importlib.import_module(f"excess.{file.replace('/', '.')}")
    for owner in owners:
        found = getattr(found, owner, None)
    attribute = vars(found).get(name) if isinstance(found, type) else None
    return not isinstance(attribute, (property, functools.cached_property))


def run(*arguments: str) -> None:
    """Run a command, which must succeed."""
    try:
        run_command(list(arguments))
    except SystemExit as end:
        if end.code:
            raise


def find_file_changes() -> list[tuple[str, str]]:
    """Return the pairs of calling and called files."""
    functions: set[tuple[CodeType, str, str]] = set()

    def record(frame: FrameType, event: str, _: Any) -> None:
        called = file_of(frame.f_code)
        caller = frame.f_back
        if event != "call" or called is None:
            return
        while caller is not None and file_of(caller.f_code) is None:
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>":
            functions.add((frame.f_code, str(file_of(caller.f_code)), called))

    with tempfile.TemporaryDirectory() as folder:
        run("simulate", "-o", folder, "--events", "20000", "--signal", "400", "--labelled", "1")
        _page._draw_figures = lambda model: None  # matplotlib is slow while every call is recorded
        threading.setprofile(record)
        sys.setprofile(record)
        run("detect", f"{folder}/observation.hdf5", "-o", f"{folder}/result", "-j", "1")
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(
        {
            (caller, called)
            for code, caller, called in functions
            if caller != called
            and not caller.startswith(LEFT_OUT)
            and not called.startswith(LEFT_OUT)
            and code.co_name != "<module>"
            and is_call(code, called)
        }
    )


if __name__ == "__main__":
    for pair in find_file_changes():
        sys.stderr.write(" -> ".join(pair) + "\n")
