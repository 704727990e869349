"""FITS files of gamma-astro-data-formats: event lists, indices of runs, and instrument response."""

from __future__ import annotations

import filecmp
import gzip
import io
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from textwrap import wrap
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from excess._utils.checks import FloatArray, check_regular_file
from excess._utils.errors import EventFileError, require, wrap_errors
from excess._utils.files import replacing
from excess._utils.version import __version__
from excess.io import _coordinates
from excess.io._coordinates import UNIX_TIME, Derivation, Direction, Location, Origin
from excess.io._files import CopySink, as_native, check_expansion, decompress, slices

BLOCK = 2880
MOST_UNITS = 10_000  # headers of a file, each with its data
MOST_INDEX_ROWS = 200_000  # rows of an index, several for each run
MOST_AXES = 999  # axes, and columns of a table, by the FITS standard
GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_fits(path: Path) -> Iterator[list[Any]]:
    """Open a file for reading and yield its HDUs; raise ValueError if its headers or data are incomplete."""
    fits = require("astropy.io.fits", "reading FITS")
    check_regular_file(path)
    with ExitStack() as opened:
        with warnings.catch_warnings():
            # Truncation is checked exactly; invalid header cards are harmless.
            warnings.simplefilter("ignore")
            file = opened.enter_context(_unpacked(path))
            n_units = count_units(file, os.fstat(file.fileno()).st_size)
            file.seek(0)
            hdus = opened.enter_context(fits.open(file, "readonly", memmap=True, disable_image_compression=True))
            found = [hdus[number] for number in range(n_units)]
        yield found


@contextmanager
def _unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file; a compressed one is decompressed to a temporary file, which bounds the memory."""
    with path.open("rb") as file:
        if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            file.seek(0)
            yield file
            return
    with TemporaryFile() as target:
        decompress(path, target)
        with os.fdopen(os.dup(target.fileno()), "rb") as file:  # astropy requires a read-only file
            yield file


def count_units(file: BinaryIO, size: int) -> int:
    """Return the number of headers of an open file of given size in bytes, each with its data."""
    fits = require("astropy.io.fits", "reading FITS")
    position = 0
    for number in range(MOST_UNITS):
        file.seek(position)
        # padding after the last extension, such as zeros up to the end of a tape block, is not a header
        if number > 0 and file.read(8) != b"XTENSION":
            return number
        file.seek(position)
        where = f"header {number + 1}"
        n_bytes = _data_size(fits.Header.fromfile(file), where)
        position = file.tell() + -(-n_bytes // BLOCK) * BLOCK
        # the last block may be truncated after the end of the data
        if file.tell() + n_bytes > size:
            raise ValueError(f"the file ends before the data of its {where}; copy it again")
    raise ValueError(f"it has more than {MOST_UNITS:,} headers")


def _data_size(header: Any, where: str) -> int:
    """Return the number of bytes of the data after a header."""

    def number(keyword: str, default: int, low: int, high: int = 2**62) -> int:
        value = header.get(keyword, default)
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"its {where} has an invalid {keyword}, {value!r:.40}")
        return value

    number("TFIELDS", 0, 0, MOST_AXES)
    axes = [number(f"NAXIS{axis + 1}", 0, 0) for axis in range(number("NAXIS", 0, 0, MOST_AXES))]
    if header.get("GROUPS") is True and axes and axes[0] == 0:  # random groups have their own rule
        axes = axes[1:]
    bits, groups, extra = number("BITPIX", 8, -64, 64), number("GCOUNT", 1, 0), number("PCOUNT", 0, 0)
    return abs(bits) * groups * (extra + prod(axes)) // 8 if axes else 0


HEADER_COLUMNS = {  # header keywords of a run that become constant columns; table columns take precedence
    **{f"pointing_{axis}": f"{axis.upper()}_PNT" for axis in ("ra", "dec", "alt", "az")},
    **{"obs_id": "OBS_ID", "object": "OBJECT", "object_ra": "RA_OBJ", "object_dec": "DEC_OBJ"},
    **{"livetime": "LIVETIME", "ontime": "ONTIME", "deadc": "DEADC", "date_obs": "DATE-OBS"},
}
GOOD_TIME = "in_gti"  # column that is true for events inside the good time intervals of their file
MOVING = ("DRIFT", "RASTER", "SLEW", "SCAN")  # modes with a moving pointing, for which one position is not sufficient


def columns(path: Path) -> tuple[str, ...]:
    """Return the names of the scalar columns in lower case, and those taken from the header."""
    with _events(path) as (hdu, hdus):
        in_table = _scalar_columns(hdu)
        return (*in_table, *(name for name in _constants(hdu.header, hdus) if name not in in_table))


def count(path: Path) -> int:
    """Return the number of events."""
    with _events(path) as (hdu, _):
        return int(hdu.header["NAXIS2"])


def origin(path: Path) -> Origin:
    """Return the metadata of a run from its header: telescope, location, origin of times, and a moving pointing."""
    with _events(path) as (hdu, hdus):
        header, has_times = hdu.header, "time" in _scalar_columns(hdu)
        telescope, time, good = _telescope(header), _time_reference(header), _good_times(hdus, header)
        derived = []
        if time is not None and has_times:
            derived.append(Derivation((UNIX_TIME,), ("time",), lambda table: (_unix(table["time"], time),)))
            if _is_moving(header) and (pointing := _pointing_table(hdus, header)) is not None:
                derived.append(pointing)
        if good is not None and has_times:
            inside = partial(_is_inside, reference=time, good=good)
            derived.append(Derivation((GOOD_TIME,), ("time",), lambda table: (inside(table["time"]),)))
        return Origin(
            telescope=None if telescope is None else telescope.name,
            location=_location(header) or (None if telescope is None else telescope.location),
            data_level="DL3",
            is_simulated=any(name in header for name in ("MC_NAME", "SIMTEL")),
            directions={"": Direction("alt", "az"), "pointing_": Direction("pointing_alt", "pointing_az")},
            derivations=tuple(derived),
        )


def chunks(path: Path, names: Sequence[str], chunk_rows: int | None) -> Iterator[pd.DataFrame]:
    """Yield the events in order, at most ``chunk_rows`` at a time."""
    with _events(path) as (hdu, hdus):
        in_table, constants = _scalar_columns(hdu), _constants(hdu.header, hdus)
        for part in slices(int(hdu.header["NAXIS2"]), chunk_rows):
            # Slicing first: astropy converts a scaled column as a whole otherwise.
            rows = hdu.data[part]
            table = {
                name: as_native(np.array(rows.field(in_table[name]))) if name in in_table else constants[name]
                for name in names
            }
            yield pd.DataFrame(table, index=range(part.stop - part.start), copy=False)


@contextmanager
def _events(path: Path) -> Iterator[tuple[Any, Any]]:
    """Open the extension EVENTS, and the whole file; raise an error if it is truncated."""
    table = require("astropy.io.fits", "reading FITS").BinTableHDU
    with open_fits(path) as hdus:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid header cards are harmless
            found = [hdu for hdu in hdus if hdu.name == "EVENTS" or hdu.header.get("HDUCLAS1") == "EVENTS"]
            # event lists of air-shower arrays without further conventions have at least sky positions
            found = found or [hdu for hdu in hdus if {"RA", "DEC"} <= set(_names(hdu))]
        if not found:
            names = ", ".join(hdu.name for hdu in hdus[:8]) + (", ..." if len(hdus) > 8 else "")
            problem = f"has no extension EVENTS, or another table with RA and DEC, only {names}"
            raise EventFileError(f"{path}: {problem}; exclude files of instrument responses and indices")
        hdu = found[0]
        if not isinstance(hdu, table):
            raise EventFileError(f"{path}: the extension EVENTS is not a binary table")
        if hdu.header["NAXIS2"] > 0 and hdu.header["NAXIS1"] < 1:
            raise EventFileError(f"{path}: its table of events has empty rows; the file may be incomplete")
        yield hdu, hdus


def _names(hdu: Any) -> dict[str, str]:
    """Return the names of the columns of a table by their upper-case names; empty for an image."""
    return {str(name).upper(): name for name in getattr(getattr(hdu, "columns", None), "names", None) or ()}


def _scalar_columns(hdu: Any) -> dict[str, str]:
    """Return the names in the file by their lower-case names, for columns with one value per event."""
    return {
        column.name.lower(): column.name
        for column in hdu.columns
        if column.dtype.shape == () and column.dtype.base.kind in "biufS" and column.format[0] not in "PQ"
    }


def _constants(header: Any, hdus: Any) -> dict[str, Any]:
    """Return the columns from the header; good time intervals replace its observation time and live time."""
    # the header position of a drift scan is that of its start, or of its middle
    without = {"pointing_ra", "pointing_dec"} if _is_moving(header) else set()
    found = {name: header.get(key) for name, key in HEADER_COLUMNS.items() if name not in without}
    found = {name: value for name, value in found.items() if isinstance(value, (int, float, str))}
    good = _good_times(hdus, header)
    if good is None or not len(good):
        return found
    before = {name: value for name, value in found.items() if isinstance(value, (int, float)) and value > 0}
    live = before.get("deadc")
    if live is None and {"livetime", "ontime"} <= set(before):
        live = before["livetime"] / before["ontime"]
    found["ontime"] = float((good[:, 1] - good[:, 0]).sum())
    found.pop("livetime", None)  # of other intervals
    return found if live is None else found | {"livetime": found["ontime"] * live}


def _good_times(hdus: Any, header: Any) -> FloatArray | None:
    """Return the good time intervals as rows of start and stop in s, merged, in the times of `_seconds`; or None."""
    for hdu in hdus:
        names = _names(hdu)
        if "GTI" not in (hdu.name, hdu.header.get("HDUCLAS1")) or not {"START", "STOP"} <= set(names):
            continue
        reference = _time_reference(hdu.header) if _time_reference(header) is not None else None
        both = [np.array(hdu.data[names[key]], dtype=np.float64).ravel() for key in ("START", "STOP")]
        start, stop = (_seconds(one, reference or _time_reference(header)) for one in both)
        known = stop > start  # not so for NaN
        order = np.argsort(start[known], kind="stable")
        start, stop = start[known][order], np.maximum.accumulate(stop[known][order])
        new = np.append(True, start[1:] > stop[:-1]) if len(start) else np.zeros(0, dtype=bool)
        last = np.append(new[1:], True) if len(start) else new
        return np.stack([start[new], stop[last]], axis=1)
    return None


def good_time(path: Path, intervals: Sequence[tuple[float, float]]) -> FloatArray | None:
    """Return the good time in s in intervals of TIME; None if the file has no good time intervals."""
    with wrap_errors(path, "reading FITS"), _events(path) as (hdu, hdus):
        good, reference = _good_times(hdus, hdu.header), _time_reference(hdu.header)
    if good is None:
        return None
    low, high = (_seconds(np.array(ends), reference)[:, np.newaxis] for ends in zip(*intervals, strict=True))
    return np.asarray(np.clip(np.minimum(good[:, 1], high) - np.maximum(good[:, 0], low), 0, None).sum(axis=1))


def _is_inside(time: pd.Series, reference: tuple[float, float, str] | None, good: FloatArray) -> NDArray[np.bool_]:
    """Return whether times are in a good time interval, including its start."""
    at = _seconds(time.to_numpy(dtype=np.float64), reference)
    number = np.searchsorted(good[:, 0], at, side="right") - 1
    return np.asarray(at < np.append(good[:, 1], -np.inf)[number])  # the last one is for times before the first start


def _seconds(times: FloatArray, reference: tuple[float, float, str] | None) -> FloatArray:
    """Return Unix times, or times unchanged if their origin is unknown."""
    return times if reference is None else _unix(pd.Series(times), reference)


def _is_moving(header: Any) -> bool:
    return str(header.get("OBS_MODE", "")).strip().upper() in MOVING


def _telescope(header: Any) -> Any:
    given = (str(header.get(key, "")) for key in ("TELESCOP", "INSTRUME", "ORIGIN"))
    return next((found for name in given if (found := _coordinates.find_telescope(name)) is not None), None)


def _location(header: Any) -> Location | None:
    longitude, latitude = (header.get(key) for key in ("GEOLON", "GEOLAT"))
    if not all(isinstance(value, (int, float)) for value in (longitude, latitude)):
        return None
    height = header.get("ALTITUDE", header.get("GEOALT", 0.0))
    return Location(float(longitude), float(latitude), float(height) if isinstance(height, (int, float)) else 0.0)


def _time_reference(header: Any) -> tuple[float, float, str] | None:
    """Return the origin of times as a modified Julian date, their unit in seconds, and their scale; None if unknown."""
    if isinstance(header.get("MJDREF"), (int, float)):
        reference = float(header["MJDREF"])
    elif isinstance(header.get("MJDREFI"), (int, float)):
        fraction = header.get("MJDREFF", 0.0)
        reference = float(header["MJDREFI"]) + (float(fraction) if isinstance(fraction, (int, float)) else 0.0)
    else:
        return None
    scale = str(header.get("TIMESYS", "TT")).strip().lower()
    unit = {"s": 1.0, "d": 86_400.0, "day": 86_400.0}.get(str(header.get("TIMEUNIT", "s")).strip().lower())
    return (reference, unit, scale) if scale in _coordinates.TIME_SCALES and unit is not None else None


def _unix(time: pd.Series, reference: tuple[float, float, str]) -> FloatArray:
    mjd, unit, scale = reference
    return _coordinates.unix_from_seconds(unit * time.to_numpy(dtype=np.float64), reference_mjd=mjd, scale=scale)


def _pointing_table(hdus: Any, header: Any) -> Derivation | None:
    """Return the pointing by interpolation in the extension POINTING, constant outside; None if there is none."""
    needed = ("TIME", "RA_PNT", "DEC_PNT")
    tables = [hdu for hdu in hdus if "POINTING" in (hdu.name, hdu.header.get("HDUCLAS1"))]
    hdu = next((one for one in tables if set(needed) <= set(_names(one)) and len(one.data)), None)
    reference = None if hdu is None else _time_reference(hdu.header) or _time_reference(header)
    if hdu is None or reference is None:
        return None
    stored = np.stack([np.array(hdu.data[_names(hdu)[name]], dtype=np.float64) for name in needed])
    seconds, ra, dec = stored[:, np.argsort(stored[0])]
    time, ra = _unix(pd.Series(seconds), reference), np.unwrap(ra, period=360)

    def compute(table: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
        at = table[UNIX_TIME].to_numpy(dtype=np.float64)
        return np.interp(at, time, ra) % 360, np.interp(at, time, dec)

    return Derivation(("pointing_ra", "pointing_dec"), (UNIX_TIME,), compute)


FORMS = {"b": "L", "i": "K", "u": "K", "f": "D"}  # formats of new columns by type kind
_ABOUT = ("unit", "null", "bscale", "bzero", "disp", "dim", "coord_type", "coord_unit", "coord_inc", "time_ref_pos")


class FitsCopy(CopySink):
    """A copy of a FITS file with additional columns in its table of events, in upper case."""

    def check(self, first: pd.DataFrame) -> None:
        """Raise EventFileError if the table of events already has a new column."""
        with _events(self.copy.path) as (hdu, _):
            self._n_wanted = int(hdu.header["NAXIS2"])
            self.check_new(map(str.upper, first.columns), map(str.upper, hdu.columns.names))
            _check_lists(self.copy.path, hdu)

    def write(self, table: pd.DataFrame) -> None:
        """Write the copy, with all or selected events."""
        if len(table) != self._n_wanted:
            raise ValueError(f"columns of {len(table)} rows do not match a file of {self._n_wanted}")
        fits = require("astropy.io.fits", "writing FITS")
        only = self.copy.only
        keep = slice(None) if only is None else table[only].to_numpy(dtype=bool)
        new = {str(name).upper(): table[name].to_numpy() for name in table}
        added = {name: fits.Column(name, FORMS[own.dtype.kind], array=own[keep]) for name, own in new.items()}
        with _events(self.copy.path) as (hdu, hdus):
            copy, notes = copy_table(hdu, keep, added), [*self.copy.history]
            if only is not None:
                copy.header["EVTSEL"] = (only.upper(), "only events with this column are here")
                copy.header["EVTALL"] = (self._n_wanted, "number of events before this selection")
                notes.append(f"Only events with {only.upper()} are here.")
            for line in header_lines(notes):
                copy.header.add_history(line)
            if "CHECKSUM" in hdu.header:
                stored = io.BytesIO()
                copy.writeto(stored)  # completes the header of a table with columns of variable length
                stored.seek(0)
                copy = fits.open(stored)[1]
                copy.add_checksum(when=hdu.header.comments["CHECKSUM"])
            write_hdus(self.path, [copy if one is hdu else one for one in hdus], self.path.suffix.lower() == ".gz")


def _check_lists(path: Path, hdu: Any) -> None:
    """Raise EventFileError if columns of variable length declare far more than the file: rows may share values."""
    # a row contains the number of its values, of about 8 bytes each, and the position of the first one
    lists = [column.name for column in hdu.columns if column.format.lstrip("0123456789")[:1] in ("P", "Q")]
    rows = hdu.data.view(np.ndarray) if lists else {}
    check_expansion(path, int(sum(8 * np.maximum(rows[name][:, 0], 0).sum(dtype=np.float64) for name in lists)))


def copy_table(hdu: Any, keep: Any, columns: Mapping[str, Any]) -> Any:
    """Return some rows of a table with columns added, replaced, or removed (None); its header is kept."""
    fits = require("astropy.io.fits", "writing FITS")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid header cards are harmless
        found: dict[str, Any] = {}
        for column in hdu.columns:
            # text as bytes, because it may not be ASCII
            rows = hdu.data.view(np.ndarray) if column.format.endswith("A") else hdu.data
            about = {name: getattr(column, name) for name in _ABOUT}
            found[column.name] = fits.Column(column.name, column.format, array=rows[column.name][keep], **about)
        kept = [column for column in (found | dict(columns)).values() if column is not None]
        new = fits.BinTableHDU.from_columns(kept, header=hdu.header)
        for name in ("CHECKSUM", "DATASUM"):
            new.header.remove(name, ignore_missing=True)
        for card in hdu.header.cards:
            if card.comment and new.header.get(card.keyword) == card.value:
                new.header.comments[card.keyword] = card.comment
    return new


def write_hdus(path: Path, hdus: list[Any], compressed: bool) -> None:
    """Write HDUs to a file; unchanged HDUs keep their bytes."""
    fits = require("astropy.io.fits", "writing FITS")
    written = io.BytesIO()  # because astropy does not propagate write errors
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits.HDUList(hdus).writeto(written)
    # compressed without name and time, so files are reproducible
    path.write_bytes(gzip.compress(written.getbuffer(), 6, mtime=0) if compressed else written.getbuffer())


def header_lines(remarks: Sequence[str]) -> Iterator[str]:
    """Yield remarks in lines that fit into a header, as ASCII."""
    for remark in remarks:
        yield from wrap(remark.encode("ascii", "replace").decode(), 70)


logger = logging.getLogger("excess.io")
HDU_INDEX, OBS_INDEX = "hdu-index.fits.gz", "obs-index.fits.gz"
_STALE = ("SIZE", "MTIME", "MD5", "EVENT_COUNT")  # optional columns whose values differ for a copy
_HISTORY = "excess apply: the runs of this folder have scores."


def find_run_index(paths: Iterable[Path]) -> RunIndex | None:
    """Return the index that lists FITS runs: in their folder, or in its parent folder."""
    given = [_full(path) for path in paths]
    folders = dict.fromkeys(folder for path in given for folder in (path.parent, path.parent.parent))
    found = [RunIndex(folder) for folder in folders if (folder / HDU_INDEX).is_file()]
    found = [index for index in found if any(path in index.event_lists for path in given)]
    if len(found) > 1:
        logger.warning("No index is written: the files are in those of %s and %s", found[0].folder, found[1].folder)
    return found[0] if len(found) == 1 else None


class RunIndex:
    """The tables ``hdu-index.fits.gz`` and ``obs-index.fits.gz`` of a folder, as in gamma-astro-data-formats."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with _open_table(folder / HDU_INDEX) as hdu:
            kinds, folders, names = (_texts(hdu, name) for name in ("HDU_TYPE", "FILE_DIR", "FILE_NAME"))
            self._rows = [
                (int(obs_id), kind.strip().lower(), Path(inside, name))
                for obs_id, kind, inside, name in zip(hdu.data["OBS_ID"], kinds, folders, names, strict=True)
            ]
            self._names = _texts(hdu, "HDU_NAME") if "HDU_NAME" in hdu.columns.names else [""] * len(kinds)

    @property
    def event_lists(self) -> set[Path]:
        """Full paths of all event lists."""
        return {_full(self.folder / file) for _, kind, file in self._rows if kind == "events"}

    def responses_of(self, path: Path) -> dict[Path, dict[str, str]]:
        """Return the other files of the run of an event list that are there, with their HDUs by type."""
        own, found = _full(path), dict[Path, dict[str, str]]()
        of_run = {obs_id for obs_id, kind, file in self._rows if kind == "events" and _full(self.folder / file) == own}
        for (obs_id, kind, inside), name in zip(self._rows, self._names, strict=True):
            if obs_id in of_run and (file := _full(self.folder / inside)) != own and file.is_file():
                found.setdefault(file, {})[kind] = name
        return found

    def _kept(self, folder: Path, copies: Mapping[Path, Path]) -> dict[int, Path]:
        """Return the names of copies by the observations whose events are, or will be, in a folder."""
        names = {_full(path): target.name for path, target in copies.items()}
        kept = {}
        for obs_id, kind, file in self._rows:
            name = names.get(_full(self.folder / file), file.name if (folder / file.name).exists() else None)
            if kind == "events" and name is not None:
                kept[obs_id] = Path(name)
        return kept

    def companions(self, folder: Path, copies: Mapping[Path, Path]) -> dict[Path, Path]:
        """Return other files of the observations, such as instrument response, and the paths of their copies."""
        kept = self._kept(folder, copies)
        events = {file for _, kind, file in self._rows if kind == "events"}
        found = {}
        for obs_id, _, file in self._rows:
            inside = Path(os.path.normpath(file))
            if obs_id in kept and file not in events and (self.folder / file).is_file():
                if inside.is_absolute() or inside.parts[0] == "..":
                    logger.warning("%s: is not copied, because it is outside %s", self.folder / file, self.folder)
                else:
                    found[self.folder / file] = folder / inside
        return found

    def tables(self, folder: Path) -> list[Path]:
        """Return the paths of the tables written by `write` in a folder."""
        return [folder / name for name in (HDU_INDEX, OBS_INDEX) if (self.folder / name).is_file()]

    def write(self, folder: Path, copies: Mapping[Path, Path]) -> None:
        """Write the rows of the observations whose events are in a folder, and copy the other files of these rows."""
        for source, target in self.companions(folder, copies).items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with wrap_errors(target, "writing"), replacing(target) as temporary:
                shutil.copyfile(source, temporary)
        kept = self._kept(folder, copies)
        events = {file: kept[obs_id].name for obs_id, kind, file in self._rows if kind == "events" and obs_id in kept}
        for target in self.tables(folder):
            with _open_table(self.folder / target.name) as hdu:
                columns: dict[str, Any] = dict.fromkeys(_STALE)
                keep = np.isin(hdu.data["OBS_ID"], list(kept))
                if target.name == HDU_INDEX:
                    folders = _texts(hdu, "FILE_DIR")
                    files = [Path(inside, name) for inside, name in zip(folders, _texts(hdu, "FILE_NAME"), strict=True)]
                    new = ["." if file in events else inside for file, inside in zip(files, folders, strict=True)]
                    columns["FILE_DIR"] = _text_column("FILE_DIR", new, keep)
                    columns["FILE_NAME"] = _text_column("FILE_NAME", [events.get(one, one.name) for one in files], keep)
                table = copy_table(hdu, keep, columns)
                table.header["HISTORY"] = _HISTORY
                primary = require("astropy.io.fits", "writing FITS").PrimaryHDU()
                with wrap_errors(target, "writing"), replacing(target) as temporary:
                    write_hdus(temporary, [primary, table], compressed=True)


def is_copied_index(path: Path) -> bool:
    """Return whether an index is from an earlier call of `RunIndex.write`."""
    fits = require("astropy.io.fits", "reading FITS")
    try:
        return _HISTORY in str(fits.getheader(path, 1).get("HISTORY", ""))
    except (OSError, IndexError, ValueError):
        return False


def is_same_content(path: Path, other: Path) -> bool:
    """Return whether two files have the same bytes."""
    return path.is_file() and filecmp.cmp(path, other, shallow=False)


def _full(path: Path) -> Path:
    """Return the full path without resolving links."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (`absolute` leaves ".." in it)


@contextmanager
def _open_table(path: Path) -> Iterator[Any]:
    """Open the table of an index with `astropy.io.fits`, since `astropy.table` creates objects from comments."""
    with wrap_errors(path, "reading the index of the runs"), open_fits(path) as hdus:
        if len(hdus) < 2 or not isinstance(hdus[1], require("astropy.io.fits", "reading FITS").BinTableHDU):
            raise ValueError("its first extension is not a table")
        if (n_rows := hdus[1].header["NAXIS2"]) > MOST_INDEX_ROWS:  # a row becomes objects of half a kilobyte
            raise ValueError(f"it has {n_rows:,} rows, above the maximum of {MOST_INDEX_ROWS:,}")
        _check_lists(path, hdus[1])
        yield hdus[1]


def _texts(hdu: Any, name: str) -> list[str]:
    """Return a column of texts; names of files may have letters that are not ASCII."""
    return [str(text).rstrip() for text in as_native(hdu.data.view(np.ndarray)[name])]


def _text_column(name: str, texts: Sequence[str], keep: NDArray[np.bool_]) -> Any:
    stored = np.array([text.encode() for text in np.array(texts)[keep]], dtype=bytes)
    return require("astropy.io.fits", "writing FITS").Column(name, f"{stored.dtype.itemsize}A", array=stored)


_RESPONSES = {"aeff": "EFFECTIVE AREA", "edisp": "ENERGY DISPERSION", "psf": "POINT SPREAD FUNCTION"}
_MARK = "EXCESSEF"  # keyword of a multiplied effective area, to avoid a second multiplication


def write_efficiency(
    path: Path, energy: FloatArray, zenith: FloatArray, columns: Mapping[str, FloatArray], remarks: Sequence[str]
) -> None:
    """Write a FITS table in the layout of gamma-astro-data-formats: one row, axes as columns of bin edges."""
    fits = require("astropy.io.fits", "writing FITS")
    table = []
    for axis, edges, unit in (("ENERG", energy, "TeV"), ("ZEN", zenith, "deg")):
        for end, values in (("LO", edges[:-1]), ("HI", edges[1:])):
            values = values[np.newaxis].astype(np.float64)
            table.append(fits.Column(f"{axis}_{end}", f"{values.size}D", unit=unit, array=values))
    for name, values in columns.items():
        dim = f"({len(energy) - 1},{len(zenith) - 1})"
        table.append(fits.Column(name, f"{values.size}D", dim=dim, array=values[np.newaxis]))
    hdu = fits.BinTableHDU.from_columns(table, name="EFFICIENCY")
    for key, value in (("HDUCLAS1", "RESPONSE"), ("HDUCLAS2", "EFFICIENCY"), ("HDUCLAS4", "EFF_2D")):
        hdu.header[key] = value
    hdu.header["CREATOR"] = f"excess {__version__}"
    for line in header_lines(remarks):
        hdu.header.add_comment(line)
    with wrap_errors(path, "writing FITS"), replacing(path) as temporary:
        write_hdus(temporary, [fits.PrimaryHDU(), hdu], compressed=path.suffix.lower() == ".gz")


def write_sky_map(path: Path, images: Mapping[str, FloatArray], center: tuple[float, float], step: float) -> None:
    """Write images around a position, with rows from south to north, columns to the east, and world coordinates."""
    fits = require("astropy.io.fits", "writing FITS")
    hdus = [fits.PrimaryHDU()]
    for name, values in images.items():
        # angles to the centre are preserved by the projection ARC; east is on the left, as in sky images
        hdus.append(fits.ImageHDU(values[:, ::-1].astype(np.float32), name=name))
        middle = (len(values) + 1) / 2
        for axis, kind, at, change in ((1, "RA---ARC", center[0], -step), (2, "DEC--ARC", center[1], step)):
            cards = {"CTYPE": kind, "CRVAL": at, "CRPIX": middle, "CDELT": change, "CUNIT": "deg"}
            hdus[-1].header.update({f"{key}{axis}": value for key, value in cards.items()})
        hdus[-1].header["RADESYS"] = "ICRS"
    with wrap_errors(path, "writing FITS"):
        write_hdus(path, hdus, compressed=False)


def read_event_columns(path: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return existing columns of the table of events, by the names of this package."""
    with wrap_errors(path, "reading FITS"), open_fits(path) as hdus:
        tables = [hdu for hdu in hdus if hdu.name == "EVENTS"]
        present = {column.name.upper(): column.name for hdu in tables[:1] for column in hdu.columns}
        return {name: as_native(tables[0].data[present[name.upper()]]) for name in names if name.upper() in present}


def _areas(hdus: Iterable[Any]) -> list[Any]:
    return [hdu for hdu in hdus if {"ENERG_LO", "ENERG_HI", "EFFAREA"} <= set(_names(hdu))]


def _shared_response(path: Path, present: set[str], opened: ExitStack) -> Iterator[Any]:
    """Yield the instrument response of a run from the files that an index lists, with the usual names."""
    for file, wanted in (pair for index in _indices(path) for pair in index.responses_of(path).items()):
        hdus = {hdu.name: hdu for hdu in opened.enter_context(open_fits(file))}
        for kind, name in wanted.items():
            usual, hdu = _RESPONSES.get(kind, name), hdus.get(name.upper())
            if hdu is not None and usual not in present:
                present.add(usual)
                hdu.name = usual
                if "CHECKSUM" in hdu.header:
                    hdu.add_checksum()
                yield hdu


def multiply_effective_area(
    source: Path,
    target: Path,
    factor: Callable[[FloatArray], FloatArray],
    of: str,
    history: Sequence[str],
    keep: NDArray[np.bool_] | None,
    columns: Mapping[str, NDArray[Any]],
) -> None:
    """Copy a FITS file with areas times a factor, and some events with further columns."""
    units = require("astropy.units", "reading FITS")
    with wrap_errors(source, "reading FITS"), ExitStack() as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd header cards do no harm
        hdus = opened.enter_context(open_fits(source))
        if not _areas(hdus):
            hdus += _shared_response(source, {hdu.name for hdu in hdus}, opened)
        if not (found := _areas(hdus)):
            names = ", ".join(hdu.name for hdu in hdus)
            raise EventFileError(f"{source}: has no effective area (EFF_AREA), only {names}; give a file that has one")
        for hdu in found:
            if _MARK in hdu.header:
                problem = "its effective area was already multiplied by an efficiency"
                raise EventFileError(f"{source}: {problem}; use the original file")
            unit = units.Unit(hdu.columns["ENERG_LO"].unit or "TeV")
            low, high = ((hdu.data[name] * unit).to_value("TeV") for name in ("ENERG_LO", "ENERG_HI"))
            area = hdu.data["EFFAREA"]
            values = factor(np.sqrt(np.maximum(low, high / 100) * high))
            # energies are the last axis of the layout, after offsets from the pointing
            area[:] = area * values.reshape(len(area), *(1,) * (area.ndim - 2), -1)
            hdu.header[_MARK] = (of, "EFFAREA times an efficiency of excess")
            for line in header_lines(history):
                hdu.header.add_history(line)
            if "CHECKSUM" in hdu.header:
                hdu.add_checksum()
        written, Column = list(hdus), require("astropy.io.fits", "writing FITS").Column
        for number, hdu in enumerate(hdus):
            if hdu.name == "EVENTS" and (keep is not None or "CALDB" in hdu.header):
                new = {name: Column(name, FORMS[own.dtype.kind], array=own[keep]) for name, own in columns.items()}
                written[number] = copy_table(hdu, slice(None) if keep is None else keep, new)
                # gammapy prefers the response that this keyword names to that of the file
                written[number].header.remove("CALDB", ignore_missing=True)
        with wrap_errors(target, "writing FITS"), replacing(target) as temporary:
            write_hdus(temporary, written, compressed=target.suffix.lower() == ".gz")


def pointing_zenith(path: Path) -> float | None:
    """Return the zenith distance of the pointing of a FITS run in deg; None if unknown."""
    with wrap_errors(path, "reading FITS"), open_fits(path) as hdus:
        for hdu in hdus:
            for key, horizon, sign in (("ZEN_PNT", 0.0, 1.0), ("ALT_PNT", 90.0, -1.0)):
                if isinstance(value := hdu.header.get(key), (int, float)):
                    return horizon + sign * value
    return None


class RadMax(NamedTuple):
    """Maximum angle to the source for which an instrument response is valid, by energy and offset from the pointing."""

    path: Path
    energy: FloatArray  # edges, in the unit of the energies of events
    offset: FloatArray  # centres of bins in deg
    radius: FloatArray  # in deg, by offset and energy

    def at(self, energy: FloatArray, offset: FloatArray) -> FloatArray:
        """Return the maximum angle of events in deg; the first and the last bin are open."""
        column = np.searchsorted(self.energy[1:-1], energy, side="right")
        row = np.abs(np.subtract.outer(offset, self.offset)).argmin(axis=-1)
        return np.asarray(self.radius[row, column])


def read_rad_max(path: Path) -> RadMax | None:
    """Return RAD_MAX of a run: a table or keyword of its response, in its own file or one listed in an index."""
    return _read_rad_max(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=1024)  # files are read in many chunks
def _read_rad_max(path: Path, _: int) -> RadMax | None:
    with wrap_errors(path, "reading FITS"), _events(path) as (hdu, hdus):
        unit = next((column.unit for column in hdu.columns if column.name.upper() == "ENERGY"), None) or "TeV"
        found = _rad_max_in(path, hdus, unit)
    if found is not None:
        return found
    for file in (one for index in _indices(path) for one in index.responses_of(path)):
        with wrap_errors(file, "reading FITS"), open_fits(file) as hdus:
            if (found := _rad_max_in(file, hdus, unit)) is not None:
                return found
    return None


_index_of = lru_cache(maxsize=8)(RunIndex)


def _indices(path: Path) -> Iterator[RunIndex]:
    """Yield the indices that may list a run: of its folder, and of the folder above it."""
    return (_index_of(folder) for folder in list(_full(path).parents)[:2] if (folder / HDU_INDEX).is_file())


def _rad_max_in(path: Path, hdus: Any, energy_unit: str) -> RadMax | None:
    units = require("astropy.units", "reading FITS")
    fixed = None
    for hdu in hdus:
        if {"ENERG_LO", "ENERG_HI", "THETA_LO", "THETA_HI", "RAD_MAX"} <= set(_names(hdu)) and len(hdu.data) == 1:

            def read(name: str, unit: str, hdu: Any = hdu) -> FloatArray:
                given = units.Unit(hdu.columns[name].unit or unit)
                return np.asarray((np.array(hdu.data[name][0], dtype=np.float64) * given).to_value(unit))

            low, high = read("ENERG_LO", energy_unit), read("ENERG_HI", energy_unit)
            offset = (read("THETA_LO", "deg") + read("THETA_HI", "deg")) / 2
            radius = np.nan_to_num(read("RAD_MAX", "deg")).reshape(-1, len(low))
            if len(radius) != len(offset) or not (radius > 0).any() or (np.diff(low) <= 0).any():
                raise ValueError("its table RAD_MAX has invalid axes or values")
            return RadMax(path, np.append(low, high[-1]), offset, radius)
        value = hdu.header.get("RAD_MAX")
        if fixed is None and isinstance(value, float) and 0 < value < 90:
            fixed = RadMax(path, np.array([0.0, np.inf]), np.zeros(1), np.array([[value]]))
    return fixed
