"""File changes on the call path of ``excess detect``: how many files a reader opens to follow it.

Runs the command on a small simulated observation and notes every call from a function of one file of the package to a
function of another. A pair of files counts once. Left out: attributes and operators (properties, ``__str__`` and the
like), which do not look like calls; `_core`, whose helpers read well without being opened; functions that run while a
module is imported; and the report, which begins when the result is written.

Usage: python benchmarks/call_path.py [SOURCES]

SOURCES is the ``src`` folder of another version, to compare with.
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

LIMIT = 60
SOURCES = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "src").resolve()
CORE = (
    "_core/",
    "_checks",
    "_files",
    "_progress",
    "_threads",
    "_rng",
    "_version",
    "events/_errors",
    "events/_interrupts",
)
"""Helpers for all layers, by their places in this version and in those before the layers."""


@functools.cache
def file_of(code: CodeType) -> str | None:
    """Return the file of a function inside the package, None for any other."""
    path = os.path.realpath(code.co_filename)
    package = f"{SOURCES}/excess/"
    return path[len(package) :].removesuffix(".py") if path.startswith(package) else None


def is_call(code: CodeType, file: str) -> bool:
    """Say whether running a function looks like a call to a reader."""
    *owners, name = code.co_qualname.split(".")
    if name.startswith(("__", "<")):
        return False
    found: Any = importlib.import_module(f"excess.{file.replace('/', '.')}")
    for owner in owners:
        found = getattr(found, owner, None)
    return not isinstance(
        vars(found).get(name) if isinstance(found, type) else None, (property, functools.cached_property)
    )


def main() -> None:
    """Run the command and print the pairs."""
    sys.path.insert(0, str(SOURCES))
    from excess.cli import main as run

    def command(*arguments: str) -> None:
        try:
            run(list(arguments))
        except SystemExit as end:
            if end.code:
                raise

    pairs: set[tuple[str, str]] = set()
    functions: dict[tuple[CodeType, str, str], None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        called = file_of(frame.f_code)
        caller = frame.f_back
        if event != "call" or called is None:
            return
        while caller is not None and file_of(caller.f_code) is None:
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>":
            functions[frame.f_code, str(file_of(caller.f_code)), called] = None

    with tempfile.TemporaryDirectory() as folder:
        command("simulate", "-o", folder, "--events", "60000", "--signal", "400", "--labelled", "1")
        threading.setprofile(note)
        sys.setprofile(note)
        command("detect", f"{folder}/observation.hdf5", "-o", f"{folder}/result", "-j", "1")
        sys.setprofile(None)
        threading.setprofile(None)
    for code, caller, called in functions:
        inside = not (caller + "/").startswith(("report/", *CORE)) and not (called + "/").startswith(("report/", *CORE))
        if caller != called and inside and code.co_name != "<module>" and is_call(code, called):
            pairs.add((caller, called))
    for caller in dict.fromkeys(caller for caller, _ in sorted(pairs)):
        print(f"{caller} -> {', '.join(called for other, called in sorted(pairs) if other == caller)}")
    everything = {(caller, called) for _, caller, called in functions if caller != called}
    print(f"{len(pairs)} file changes; {len(everything)} with attributes, _core and the report")
    if (Path(__file__).parents[1] / "src").resolve() == SOURCES and len(pairs) > LIMIT:
        sys.exit(f"more than {LIMIT} file changes")


if __name__ == "__main__":
    main()
