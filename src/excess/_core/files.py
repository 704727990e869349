"""Files that are written whole or not at all, and what tells one file from another."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, mkstemp

from excess._core.errors import EventFileError
from excess._core.interrupts import defer_interrupts

UNFINISHED = ".excess-unfinished"
"""Folder in an output folder, for files that are not complete yet."""
_REPLACED = "replaced"  # in there: the files whose places are taken
_TAKING = "taking"  # in there: all of them have been moved away, new ones take their places


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name in the same folder; it takes the place of ``path`` when the block ends without an error.

    After any error, interrupts included, the temporary file is gone and an old file is as it was. An OSError names the
    file that was to be written.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    temporary: Path | None = None
    try:
        with defer_interrupts():
            handle, name = mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
            os.close(handle)
            temporary = Path(name)
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            with suppress(FileNotFoundError):
                temporary.unlink()
        # an error without a number has only the text that it was raised with
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


@contextmanager
def replacing_together(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Give a temporary folder for files that appear in ``folder`` together when the block ends without an error.

    After any error, interrupts included, the temporary folder is gone and all old files are as they were. The last name
    is that of the file that says that all are there: it appears last. The caller keeps other runs out of the folder,
    see `locked`; what a run left that was killed is undone by the next one, see `undo_unfinished`.

    Parameters
    ----------
    folder : Path
        Where the files go to.
    names : sequence of str
        All files that belong together. Old ones that have no successor are removed.
    """
    undo_unfinished(folder, names)
    for name in names:
        if (folder / name).is_dir():
            raise IsADirectoryError(f"{folder / name} is a folder, where a file is to be written; give another output")
    temporary = folder / UNFINISHED
    try:
        temporary.mkdir()
        yield temporary
        with defer_interrupts():
            _take_places(temporary, folder, names)
    finally:
        with defer_interrupts():
            undo_unfinished(folder, names)


def undo_unfinished(folder: Path, names: Sequence[str]) -> None:
    """Bring the files of a folder back to what they were before a replacement that was cut off, if there was one."""
    temporary, done = folder / UNFINISHED, folder / f"{UNFINISHED}.done"
    shutil.rmtree(done, ignore_errors=True)
    if not temporary.is_dir():
        return
    taking = (temporary / _TAKING).exists()
    if not taking or (temporary / names[-1]).exists():  # else all have their places
        # in an order in which it can be cut off as well, and done again
        if taking:
            for name in names:
                (folder / name).unlink(missing_ok=True)
            (temporary / _TAKING).unlink()
        for name in names:
            if os.path.lexists(temporary / _REPLACED / name):
                (temporary / _REPLACED / name).rename(folder / name)
    # under another name first: to remove it takes several steps, and what a part of it means would not be clear
    with suppress(OSError):
        temporary.rename(done)
        shutil.rmtree(done, ignore_errors=True)


def _take_places(temporary: Path, folder: Path, names: Sequence[str]) -> None:
    """Move old files away, the one that says that all are there first, and new ones to their places, that one last."""
    (temporary / _REPLACED).mkdir()
    for name in reversed(names):
        if os.path.lexists(folder / name):
            (folder / name).rename(temporary / _REPLACED / name)
    (temporary / _TAKING).touch()
    for name in names:
        if (temporary / name).exists():
            (temporary / name).rename(folder / name)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def prepare_folder(folder: Path) -> Path:
    """Return a folder that can be written to; make it if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise EventFileError(
            f"{folder}: cannot be used as output folder: {error.strerror or error}; give another one"
        ) from error
    return folder


def sha256_of(path: Path) -> str:
    """Return the checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
