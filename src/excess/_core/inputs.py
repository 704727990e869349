"""Files that are given as input: regular ones only, and texts of bounded length."""

from __future__ import annotations

import stat
from pathlib import Path

from excess._core.errors import EventFileError, wrap_errors

__all__ = ["check_regular_file", "kind_of_file", "read_input_text"]

_KINDS = {
    stat.S_IFDIR: "a folder; name the files in it",
    stat.S_IFIFO: "a pipe, and a file is read more than once; write its content to a file, and give that",
    stat.S_IFSOCK: "a socket; give a file",
    stat.S_IFCHR: "a device; give a file",
    stat.S_IFBLK: "a device; give a file",
}


def kind_of_file(path: Path) -> str | None:
    """Return what a path is, and what to do, None if it is a regular file or a link to one.

    Nothing is opened: to open a pipe would wait until somebody writes into it.
    """
    return _KINDS.get(stat.S_IFMT(path.stat().st_mode), None if path.is_file() else "no regular file; give a file")


def check_regular_file(path: Path) -> None:
    """Raise EventFileError unless a path is a regular file, or a link to one.

    Examples
    --------
    >>> from pathlib import Path
    >>> from excess._core.inputs import check_regular_file
    >>> check_regular_file(Path("/dev/zero"))
    Traceback (most recent call last):
        ...
    excess._core.errors.EventFileError: /dev/zero: is a device; give a file
    """
    with wrap_errors(path, "opening"):
        try:
            kind = kind_of_file(path)
        except FileNotFoundError as error:
            raise EventFileError(f"{path}: does not exist") from error
    if kind is not None:
        raise EventFileError(f"{path}: is {kind}")


def read_input_text(path: Path, largest: int, doing: str) -> str:
    """Return the text of a file of at most ``largest`` bytes; EventFileError if there is none, or it is larger."""
    check_regular_file(path)
    with wrap_errors(path, doing):
        with path.open("rb") as file:
            content = file.read(largest + 1)
        if len(content) > largest:
            raise EventFileError(f"{path}: has more than {largest:,} bytes, which are the most for such a text file")
        return content.decode("utf-8")
