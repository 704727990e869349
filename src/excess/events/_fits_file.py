"""FITS files, opened safely: structure and sizes are checked before astropy makes objects of headers.

What a header says about the size of its data decides where the next header is, and how many keywords astropy looks for.
With a negative size a file would never end, and with a hundred billion axes neither would its first header.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

from excess._core.errors import require, wrap_errors
from excess._core.inputs import check_regular_file
from excess.events._bounds import decompress

__all__ = ["check_fits", "count_units", "open_fits"]

BLOCK = 2880
MOST_UNITS = 10_000
"""Headers of a file, each with its data."""
MOST_AXES = 999
"""Axes, and columns of a table, by the FITS standard."""
GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_fits(path: Path) -> Iterator[list[Any]]:
    """Open a file for reading and give its HDUs; ValueError if its headers or data are not complete."""
    fits = require("astropy.io.fits", "reading FITS")
    with ExitStack() as opened:
        with warnings.catch_warnings():
            # Whether the file is cut short is checked exactly; odd header cards do no harm.
            warnings.simplefilter("ignore")
            file = opened.enter_context(_unpacked(path))
            n_units = count_units(file, os.fstat(file.fileno()).st_size)
            file.seek(0)
            hdus = opened.enter_context(fits.open(file, "readonly", memmap=True, disable_image_compression=True))
            found = [hdus[number] for number in range(n_units)]
        yield found


def check_fits(path: Path) -> None:
    """Raise EventFileError unless astropy can open a file and comes to an end."""
    check_regular_file(path)
    with wrap_errors(path, "reading FITS"), open_fits(path):
        pass


@contextmanager
def _unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file; a compressed one is decompressed to a temporary one, so that memory does not depend on its size."""
    with path.open("rb") as file:
        compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
        if not compressed:
            file.seek(0)
            yield file
            return
    with TemporaryFile() as target:
        decompress(path, target)
        with os.fdopen(os.dup(target.fileno()), "rb") as file:  # astropy wants one that cannot be written to
            yield file


def count_units(file: BinaryIO, size: int) -> int:
    """Return the number of headers of an open file of some size in bytes, each with its data.

    Raises
    ------
    ValueError
        If a header has no end, says something impossible about its data, or these are not all there.
    """
    fits = require("astropy.io.fits", "reading FITS")
    position = 0
    for number in range(MOST_UNITS):
        file.seek(position)
        # what follows the last extension, such as zeros up to the end of a tape block, is no header
        if number > 0 and file.read(8) != b"XTENSION":
            return number
        file.seek(position)
        header = fits.Header.fromfile(file)
        where = f"header {number + 1}"
        n_bytes = _data_size(header, where)
        position = file.tell() + -(-n_bytes // BLOCK) * BLOCK
        # the last block may be cut where there are no data any more
        if file.tell() + n_bytes > size:
            raise ValueError(f"the file ends before the data of its {where} do; copy it again")
    raise ValueError(f"it has more than {MOST_UNITS:,} headers")


def _data_size(header: Any, where: str) -> int:
    """Return the bytes of the data behind a header."""

    def number(keyword: str, default: int, low: int, high: int = 2**62) -> int:
        value = header.get(keyword, default)
        if type(value) is not int or not low <= value <= high:
            raise ValueError(f"its {where} has an impossible {keyword}, {value!r:.40}")
        return value

    number("TFIELDS", 0, 0, MOST_AXES)
    axes = [number(f"NAXIS{axis + 1}", 0, 0) for axis in range(number("NAXIS", 0, 0, MOST_AXES))]
    if header.get("GROUPS") is True and axes and axes[0] == 0:  # random groups, by a rule of their own
        axes = axes[1:]
    bits, groups, extra = number("BITPIX", 8, -64, 64), number("GCOUNT", 1, 0), number("PCOUNT", 0, 0)
    return abs(bits) * groups * (extra + prod(axes)) // 8 if axes else 0
