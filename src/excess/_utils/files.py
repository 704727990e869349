"""Atomic writing of files, protection of inputs, checksums, and locks on folders."""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import escape
from os import PathLike
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryFile
from typing import Any

from filelock import FileLock, Timeout

from excess._utils.errors import EventFileError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

UNFINISHED = ".excess-unfinished"  # subfolder of an output folder for incomplete files
_REPLACED = "replaced"  # in there: the replaced files
_TAKING = "taking"  # in there: marks that all replaced files were moved away, and new ones are being moved in
OR_OVERWRITE = "or replace it with --overwrite (overwrite=True in Python)"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the same folder; it is renamed to ``path`` if the block ends without an error."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass the name of a file")
    temporary = path.with_name(f".{path.name}.{token_hex(4)}{path.suffix}")
    for left in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 8}{escape(path.suffix)}"):
        with suppress(OSError), left.open("rb") as file:  # of a killed process, if it is no longer locked
            if left.is_file() and _lock(file):
                left.unlink()
    try:
        with temporary.open("xb") as file:
            _lock(file)
            mode = temporary.stat().st_mode
            yield temporary
        temporary.chmod(mode)  # safetensors writes files that other users cannot read
        temporary.replace(path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            temporary.unlink()
        # an error without a number only has its message
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def _lock(file: Any) -> bool:
    """Lock an open file until it is closed or the process ends; return False if not possible."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, AttributeError):
        return False
    return True


@contextmanager
def replacing_together(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Yield a temporary folder for files that are moved to ``folder`` together if the block ends without an error."""
    undo_unfinished(folder, names)
    for name in names:
        if (folder / name).is_dir():
            raise IsADirectoryError(f"{folder / name} is a folder, not a file; choose another output")
    temporary = folder / UNFINISHED
    try:
        temporary.mkdir()
        yield temporary
        _take_places(temporary, folder, names)
    except EventFileError as error:  # names a file of the temporary folder
        raise EventFileError(str(error).replace(f"{temporary}{os.sep}", f"{folder}{os.sep}")) from error.__cause__
    except OSError as error:
        error.filename = str(error.filename or folder).replace(f"{temporary}{os.sep}", f"{folder}{os.sep}")
        raise
    finally:
        undo_unfinished(folder, names)


def undo_unfinished(folder: Path, names: Sequence[str]) -> None:
    """Restore the files of a folder after an interrupted replacement, if there was one."""
    temporary, done = folder / UNFINISHED, folder / f"{UNFINISHED}.done"
    shutil.rmtree(done, ignore_errors=True)
    if not temporary.is_dir():
        return
    taking = (temporary / _TAKING).exists()
    if not taking or (temporary / names[-1]).exists():  # otherwise all were moved
        # in an order that can be interrupted and repeated
        if taking:
            for name in names:
                (folder / name).unlink(missing_ok=True)
            (temporary / _TAKING).unlink()
        for name in names:
            if os.path.lexists(temporary / _REPLACED / name):
                (temporary / _REPLACED / name).rename(folder / name)
    # renamed first: removal takes several steps, and a partial folder would be ambiguous
    with suppress(OSError):
        temporary.rename(done)
        shutil.rmtree(done, ignore_errors=True)


def _take_places(temporary: Path, folder: Path, names: Sequence[str]) -> None:
    """Move old files away, the completion marker first, and new ones to their places, the marker last."""
    (temporary / _REPLACED).mkdir()
    for name in reversed(names):
        if os.path.lexists(folder / name):
            (temporary / _REPLACED / name).parent.mkdir(parents=True, exist_ok=True)  # of names with a folder
            (folder / name).rename(temporary / _REPLACED / name)
    (temporary / _TAKING).touch()
    for name in names:
        if (temporary / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
            (temporary / name).rename(folder / name)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def prepare_folder(folder: Path) -> Path:
    """Return a writable folder; create it if it does not exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = "it is a file" if folder.is_file() else error.strerror or error
        raise EventFileError(f"{folder}: cannot be used as output folder: {reason}; choose another one") from error
    return folder


def sha256_of(path: Path) -> str:
    """Return the checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(folder: Path, name: str = ".lock", patience: float = 0.0) -> Iterator[None]:
    """Reserve a folder for one run, or wait some seconds for another one; the lock ends with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / name, timeout=patience)
    try:
        lock.acquire()
    except Timeout as error:
        problem = "another run is writing into this folder"
        raise ValueError(f"{folder}: {problem}; wait until it ends, or choose another folder") from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows keeps files that are open
            (folder / name).unlink()
        lock.release()


def check_outputs(
    outputs: Iterable[Path],
    inputs: Iterable[str | PathLike[str]] = (),
    *,
    overwrite: bool = False,
    is_own: Callable[[Path], bool] = lambda path: False,
) -> None:
    """Raise EventFileError if outputs would replace an input or another existing file."""
    given = {name: path for path in map(Path, inputs) for name in _names_of(path)}
    for output in outputs:
        for name in _names_of(output):
            if name in given:
                raise EventFileError(f"{output}: would overwrite the input {given[name]}; choose another output")
        if output.is_dir():
            raise EventFileError(f"{output}: is a folder, not a file; choose another output")
        if os.path.lexists(output) and not overwrite and not is_own(output):
            problem = "already exists"
            raise EventFileError(f"{output}: {problem}; choose another output, {OR_OVERWRITE}")


def _names_of(path: Path) -> list[str | tuple[int, int]]:
    """Return common identifiers of all paths to one file: the resolved path, and the inode if it exists."""
    names: list[str | tuple[int, int]] = [os.path.realpath(path)]
    with suppress(OSError):
        found = path.stat()
        names.append((found.st_dev, found.st_ino))
    return names


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Create a folder for outputs; remove it again if an error occurs while it is empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    prepare_folder(folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # a folder that is not empty stays
            for path in made:
                path.rmdir()
        raise


def has_mark(path: Path, mark: bytes, n_bytes: int) -> bool:
    """Return whether the first bytes of a file contain the marker of the software that wrote it."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return mark in file.read(n_bytes)
    return False


def as_json(value: Any) -> Any:
    """Return nested values as valid JSON; NaN becomes null."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return None if value != value else str(value)
    return value
