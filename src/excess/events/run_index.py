"""Index of a folder of FITS runs: which file holds what of each observation."""

from __future__ import annotations

import filecmp
import gzip
import io
import logging
import os
import shutil
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from excess._core.errors import require, wrap_errors
from excess._core.files import replacing
from excess.events._fits_file import check_fits

__all__ = ["RunIndex", "find_run_index", "is_copied_index", "is_same_content"]

logger = logging.getLogger("excess.events")

HDU_INDEX = "hdu-index.fits.gz"
OBS_INDEX = "obs-index.fits.gz"
_STALE = ("SIZE", "MTIME", "MD5", "EVENT_COUNT")
"""Optional columns that say what changes with a copy."""
_HISTORY = "excess apply: the runs of this folder have scores."
_DOING = "reading the index of the runs"


def find_run_index(paths: Iterable[Path]) -> RunIndex | None:
    """Return the index that lists FITS runs: in their folder, or in the folder above it.

    Parameters
    ----------
    paths : iterable of Path
        Event lists.

    Returns
    -------
    RunIndex or None
        None where there is no index, or where it has none of the files.

    Examples
    --------
    >>> from pathlib import Path
    >>> from excess.events.run_index import find_run_index
    >>> find_run_index([Path("nowhere/run_1.fits")]) is None
    True
    """
    given = [_full(path) for path in paths]
    folders = dict.fromkeys(folder for path in given for folder in (path.parent, path.parent.parent))
    found = [RunIndex(folder) for folder in folders if (folder / HDU_INDEX).is_file()]
    found = [index for index in found if any(path in index.event_lists for path in given)]
    if len(found) > 1:
        logger.warning(
            "the files are listed in several indices, %s and %s, so that none is written for their copies",
            found[0].folder,
            found[1].folder,
        )
    return found[0] if len(found) == 1 else None


class RunIndex:
    """The tables ``hdu-index.fits.gz`` and ``obs-index.fits.gz`` of a folder, as gamma-astro-data-formats has them.

    Parameters
    ----------
    folder : Path
        Where these tables are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with wrap_errors(folder / HDU_INDEX, _DOING):
            table = _read(folder / HDU_INDEX)
            self._rows = [
                (
                    int(row["OBS_ID"]),
                    str(row["HDU_TYPE"]).strip().lower(),
                    Path(str(row["FILE_DIR"]), str(row["FILE_NAME"])),
                )
                for row in table
            ]

    @property
    def event_lists(self) -> set[Path]:
        """Full paths of all event lists."""
        return {_full(self.folder / file) for _, kind, file in self._rows if kind == "events"}

    def _kept(self, folder: Path, copies: Mapping[Path, Path]) -> dict[int, Path]:
        """Return the names of copies by the observations whose events are in a folder, or are to be."""
        names = {_full(path): target.name for path, target in copies.items()}
        kept = {}
        for obs_id, kind, file in self._rows:
            name = names.get(_full(self.folder / file), file.name if (folder / file.name).exists() else None)
            if kind == "events" and name is not None:
                kept[obs_id] = Path(name)
        return kept

    def companions(self, folder: Path, copies: Mapping[Path, Path]) -> dict[Path, Path]:
        """Return other files of the observations, such as instrument response, and where their copies go.

        Parameters
        ----------
        folder : Path
            Where copies of event lists are.
        copies : mapping of Path to Path
            Event lists that are copied, and their copies.
        """
        kept = self._kept(folder, copies)
        events = {file for _, kind, file in self._rows if kind == "events"}
        found = {}
        for obs_id, _, file in self._rows:
            inside = Path(os.path.normpath(file))
            if obs_id in kept and file not in events and (self.folder / file).is_file():
                if inside.is_absolute() or inside.parts[0] == "..":
                    logger.warning("%s: is not copied, because it is outside of %s", self.folder / file, self.folder)
                else:
                    found[self.folder / file] = folder / inside
        return found

    def tables(self, folder: Path) -> list[Path]:
        """Return the paths that `write` gives the tables in a folder."""
        return [folder / name for name in (HDU_INDEX, OBS_INDEX) if (self.folder / name).is_file()]

    def write(self, folder: Path, copies: Mapping[Path, Path]) -> None:
        """Write the rows of the observations whose events are in a folder, and copy the other files that they name."""
        for source, target in self.companions(folder, copies).items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with wrap_errors(target, "writing"), replacing(target) as temporary:
                shutil.copyfile(source, temporary)
        kept = self._kept(folder, copies)
        events = {file: kept[obs_id].name for obs_id, kind, file in self._rows if kind == "events" and obs_id in kept}
        for target in self.tables(folder):
            source = self.folder / target.name
            with wrap_errors(source, _DOING):
                table = _read(source)
            table = table[[int(obs_id) in kept for obs_id in table["OBS_ID"]]]
            table.remove_columns([name for name in _STALE if name in table.colnames])
            if target.name == HDU_INDEX:
                files = [Path(str(row["FILE_DIR"]), str(row["FILE_NAME"])) for row in table]
                table["FILE_DIR"] = [
                    "." if file in events else str(given) for file, given in zip(files, table["FILE_DIR"], strict=True)
                ]
                table["FILE_NAME"] = [events.get(file, file.name) for file in files]
            with wrap_errors(target, "writing"), replacing(target) as temporary:
                temporary.write_bytes(_to_bytes(table))


def is_copied_index(path: Path) -> bool:
    """Say whether an index is from an earlier call of `RunIndex.write`."""
    fits = require("astropy.io.fits", "reading FITS")
    try:
        return _HISTORY in str(fits.getheader(path, 1).get("HISTORY", ""))
    except (OSError, IndexError, ValueError):
        return False


def is_same_content(path: Path, other: Path) -> bool:
    """Say whether two files have the same bytes."""
    return path.is_file() and filecmp.cmp(path, other, shallow=False)


def _full(path: Path) -> Path:
    """Return the full path; links stay as they are."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (`absolute` leaves ".." in it)


def _read(path: Path) -> Any:
    check_fits(path)  # of bounded size, also where it is compressed
    table = require("astropy.table", "reading FITS").Table.read(path, hdu=1)
    table.convert_bytestring_to_unicode()
    return table


def _to_bytes(table: Any) -> bytes:
    """Return a compressed FITS file, without name and time, so that the same rows give the same bytes."""
    fits = require("astropy.io.fits", "writing FITS")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd header cards do no harm
        hdu = fits.table_to_hdu(table)
        hdu.header["HISTORY"] = _HISTORY
        written = io.BytesIO()
        fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(written)
    return gzip.compress(written.getvalue(), mtime=0)
