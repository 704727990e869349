"""Files that are written whole or not at all, and what tells one file from another."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, mkstemp

from excess._core.errors import EventFileError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name in the same folder; it takes the place of ``path`` when the block ends without an error.

    After any error, interrupts included, the temporary file is gone and an old file is as it was.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    handle, name = mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


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
