"""Files that are written whole or not at all and never over an input, checksums, and locks on folders."""

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

UNFINISHED = ".excess-unfinished"  # folder in an output folder, for files that are not complete yet
_REPLACED = "replaced"  # in there: the files whose places are taken
_TAKING = "taking"  # in there: all of them have been moved away, new ones take their places
OR_OVERWRITE = "or replace it by overwrite=True (--overwrite on the command line)"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name in the same folder; it takes the place of ``path`` when the block ends without an error."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file")
    temporary = path.with_name(f".{path.name}.{token_hex(4)}{path.suffix}")
    for left in path.parent.glob(f".{escape(path.name)}.{'[0-9a-f]' * 8}{escape(path.suffix)}"):
        with suppress(OSError), left.open("rb") as file:  # of a process that was killed, if it is not locked any more
            if left.is_file() and _lock(file):
                left.unlink()
    try:
        with temporary.open("xb") as file:
            _lock(file)
            mode = temporary.stat().st_mode
            yield temporary
        temporary.chmod(mode)  # safetensors writes files that others cannot read
        temporary.replace(path)
    except BaseException as error:
        with suppress(FileNotFoundError):
            temporary.unlink()
        # an error without a number has only the text that it was raised with
        if isinstance(error, OSError) and error.errno is not None and error.filename in (None, str(temporary)):
            error.filename = str(path)
        raise


def _lock(file: Any) -> bool:
    """Lock an open file until it is closed or the process ends; False if that is not possible."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (OSError, AttributeError):
        return False
    return True


@contextmanager
def replacing_together(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Give a temporary folder for files that appear in ``folder`` together when the block ends without an error."""
    undo_unfinished(folder, names)
    for name in names:
        if (folder / name).is_dir():
            raise IsADirectoryError(f"{folder / name} is a folder, where a file is to be written; give another output")
    temporary = folder / UNFINISHED
    try:
        temporary.mkdir()
        yield temporary
        _take_places(temporary, folder, names)
    except EventFileError as error:  # which names a file of the temporary folder
        raise EventFileError(str(error).replace(f"{temporary}{os.sep}", f"{folder}{os.sep}")) from error.__cause__
    except OSError as error:
        error.filename = str(error.filename or folder).replace(f"{temporary}{os.sep}", f"{folder}{os.sep}")
        raise
    finally:
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
            (temporary / _REPLACED / name).parent.mkdir(parents=True, exist_ok=True)  # of names with a folder
            (folder / name).rename(temporary / _REPLACED / name)
    (temporary / _TAKING).touch()
    for name in names:
        if (temporary / name).exists():
            (folder / name).parent.mkdir(exist_ok=True)
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
        reason = error.strerror or error
        raise EventFileError(f"{folder}: cannot be used as output folder: {reason}; give another one") from error
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
        raise ValueError(f"{folder}: {problem}; wait for it to end, or give another folder") from error
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
    """Raise EventFileError if outputs would replace an input, or something else that is there."""
    given = {name: path for path in map(Path, inputs) for name in _names_of(path)}
    for output in outputs:
        for name in _names_of(output):
            if name in given:
                raise EventFileError(f"{output}: would be written over the input {given[name]}; give another output")
        if output.is_dir():
            raise EventFileError(f"{output}: is a folder, where a file is to be written; give another output")
        if os.path.lexists(output) and not overwrite and not is_own(output):
            problem = "is there already, and was not written by this command"
            raise EventFileError(f"{output}: {problem}; give another output, {OR_OVERWRITE}")


def _names_of(path: Path) -> list[str | tuple[int, int]]:
    """Return what two paths of one file have in common: where links lead to, and the file itself if it is there."""
    names: list[str | tuple[int, int]] = [os.path.realpath(path)]
    with suppress(OSError):
        found = path.stat()
        names.append((found.st_dev, found.st_ino))
    return names


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder for outputs; remove it again if the work ends by an error before anything is in it."""
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
    """Return whether the first bytes of a file have the mark of the software that wrote it."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return mark in file.read(n_bytes)
    return False


def as_json(value: Any) -> Any:
    """Return nested values as JSON accepts them; NaN, which JSON lacks, becomes null."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return None if value != value else str(value)
    return value
