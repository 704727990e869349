"""What a command may write: never over its input, and over nothing else that is there unless it is told to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from excess._core.errors import EventFileError
from excess._core.files import prepare_folder, undo_unfinished
from excess._core.locks import locked
from excess.estimators.model_file import is_model_file
from excess.events.observation_list import load_observation_list

__all__ = [
    "RUN_FILES",
    "check_model_path",
    "check_outputs",
    "check_report_path",
    "check_run_folder",
    "claim_run_folder",
    "listed_files",
    "made_folder",
    "prepare_folder",
]

RUN_FILES = (
    "config.yaml",
    "events.csv",
    "groups.csv",
    "folds.csv",
    "observations.csv",
    "bins.csv",
    "nearby.npy",
    "histograms.json",
    "report.html",
    "result.json",
)
"""Files of a run, in the order in which they appear; the last says that the run is finished."""

_REPORT_BYTES = 2_000
_REPORT_MARK = b'<meta name="generator" content="excess">'
_OR_OVERWRITE = "or replace it by overwrite=True (--overwrite on the command line)"


def check_outputs(
    outputs: Iterable[Path],
    inputs: Iterable[str | PathLike[str]] = (),
    *,
    overwrite: bool = False,
    is_own: Callable[[Path], bool] = lambda path: False,
) -> None:
    """Raise EventFileError if outputs would replace an input, or something else that is there.

    Links, symbolic and hard ones, are the file that they lead to.

    Parameters
    ----------
    outputs : iterable of Path
        Files to write.
    inputs : iterable of path
        Files that are read; these are never replaced.
    overwrite : bool, default=False
        Replace other files.
    is_own : callable, optional
        Says of a file whether it is an older output of the same kind, which is replaced.

    Examples
    --------
    >>> from pathlib import Path
    >>> from excess.analysis.output_paths import check_outputs
    >>> check_outputs([Path("night.hdf5")], ["night.hdf5"], overwrite=True)
    Traceback (most recent call last):
        ...
    excess._core.errors.EventFileError: night.hdf5: would be written over the input night.hdf5; give another output
    """
    given = {name: path for path in map(Path, inputs) for name in _names_of(path)}
    for output in outputs:
        for name in _names_of(output):
            if name in given:
                raise EventFileError(f"{output}: would be written over the input {given[name]}; give another output")
        if output.is_dir():
            raise EventFileError(f"{output}: is a folder, where a file is to be written; give another output")
        if os.path.lexists(output) and not overwrite and not is_own(output):
            raise EventFileError(
                f"{output}: is there already, and was not written by this command; give another output, {_OR_OVERWRITE}"
            )


def _names_of(path: Path) -> list[str | tuple[int, int]]:
    """Return what two paths of one file have in common: where links lead to, and the file itself if it is there."""
    names: list[str | tuple[int, int]] = [os.path.realpath(path)]
    with suppress(OSError):
        found = path.stat()
        names.append((found.st_dev, found.st_ino))
    return names


def check_model_path(
    path: str | PathLike[str], inputs: Iterable[str | PathLike[str]] = (), *, overwrite: bool = False
) -> None:
    """Raise an error if a model cannot be written to a path, before the work of training it begins.

    Parameters
    ----------
    path : path
        File to write; an older model there is replaced, anything else only with ``overwrite``.
    inputs : iterable of path
        Files that are read; these are never replaced.
    overwrite : bool, default=False
        Replace any other file.
    """
    check_outputs([Path(path)], inputs, overwrite=overwrite, is_own=is_model_file)
    prepare_folder(Path(path).parent)


def check_report_path(path: str | PathLike[str], folder: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Raise EventFileError if the report of a run in a folder would replace something other than a report."""
    inputs = [Path(folder) / name for name in RUN_FILES if name != "report.html"]
    check_outputs([Path(path)], inputs, overwrite=overwrite, is_own=_is_report)


def _is_report(path: Path) -> bool:
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return _REPORT_MARK in file.read(_REPORT_BYTES)
    except OSError:
        return False


def check_run_folder(
    folder: str | PathLike[str], inputs: Iterable[str | PathLike[str]] = (), *, overwrite: bool = False
) -> None:
    """Raise EventFileError if a run in a folder would replace another run, an input, or files of another origin."""
    target = Path(folder)
    outputs = [target / name for name in RUN_FILES]
    check_outputs(outputs, inputs, overwrite=True)
    if not overwrite and _is_finished(target):
        raise EventFileError(f"{target}: holds a finished run; give another folder, {_OR_OVERWRITE}")
    check_outputs(outputs, overwrite=overwrite)


def _is_finished(folder: Path) -> bool:
    if not (folder / RUN_FILES[-1]).is_file():
        return False
    try:
        return "models" in json.loads((folder / RUN_FILES[-1]).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


@contextmanager
def claim_run_folder(
    folder: str | PathLike[str], inputs: Iterable[str | PathLike[str]] = (), *, overwrite: bool = False
) -> Iterator[Path]:
    """Keep a folder for the results of one run, from before its work until they are written.

    Parameters
    ----------
    folder : path
        Made if it is not there, and removed again if the work ends by an error before anything is in it.
    inputs : iterable of path
        Files that the run reads; these are never replaced.
    overwrite : bool, default=False
        Replace a finished run, or other files that are there.

    Yields
    ------
    Path
        The folder. Another run that claims it meanwhile is refused.

    Examples
    --------
    >>> import tempfile
    >>> from excess.analysis import claim_run_folder, observe, search
    >>> from excess.observation import simulate_observation
    >>> observation = observe(simulate_observation(60_000, 400, random_state=0))
    >>> with tempfile.TemporaryDirectory() as parent, claim_run_folder(f"{parent}/run") as folder:
    ...     search(observation, "li-ma-tree").write(folder).name
    'run'
    """
    target, given = Path(folder), list(inputs)
    check_run_folder(target, given, overwrite=True)
    with made_folder(target), locked(target):
        undo_unfinished(target, RUN_FILES)
        check_run_folder(target, given, overwrite=overwrite)
        yield target


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


def listed_files(path: str | PathLike[str]) -> list[Path]:
    """Return the files that a list of observations, in YAML, names."""
    entries = load_observation_list(path).values()
    return [Path(name) for entry in entries for names in (entry.events, entry.off, entry.join) for name in names or ()]
