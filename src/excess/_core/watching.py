"""The process that says which file another one was reading when it crashed, or is reading for long.

It is run by itself, as a script, and imports as little as possible. It reads notes from its standard input, a line
each: ``+`` and a path where reading begins, ``-`` and the path where it ends. See `reading_watch`.
"""

from __future__ import annotations

import os
import select
import sys
import time

_POLL = 1.0


def main(patience: float) -> None:
    """Follow the notes until the other process ends.

    After ``patience`` seconds without any, say which file is still being read, and again after ten times as long.
    """
    watched = os.getppid()
    files: dict[bytes, int] = {}
    rest, since, said = b"", time.monotonic(), patience
    while True:
        ready, _, _ = select.select([0], [], [], min(_POLL, patience))
        if ready:
            piece = os.read(0, 65536)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                _follow(line, files)
            since, said = time.monotonic(), patience
        elif os.getppid() != watched:  # a fork of the other process may still hold the pipe
            break
        waited = time.monotonic() - since
        if files and waited >= said:
            _say(f"has been reading {_names(files)} for {said:g} s; Ctrl-C, or 'kill {watched}', ends it")
            said *= 10
    if files:
        _say(
            f"ended while it was reading {_names(files)}: the library that reads it has crashed, or the system has "
            "ended the process, for instance for lack of memory; check the file, or leave it out"
        )


def _follow(line: bytes, files: dict[bytes, int]) -> None:
    """Count how often each file is being read."""
    name = line[1:]
    files[name] = files.get(name, 0) + (1 if line[:1] == b"+" else -1)
    if files[name] <= 0:
        del files[name]


def _names(files: dict[bytes, int]) -> str:
    return " and ".join(name.decode("utf-8", "backslashreplace") for name in files)


def _say(text: str) -> None:
    visible = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    sys.stderr.write(f"excess: {visible}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
