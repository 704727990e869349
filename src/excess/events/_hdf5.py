"""HDF5 files, opened safely: no other file is read, and no code in the file is run.

An HDF5 file can refer to others by external links, by datasets with external storage, and by virtual datasets. Event
files need none of them, so they are refused. PyTables is not used: it unpickles the attributes of every node that it
opens, and a pickle can run any code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from excess._core.errors import EventFileError, require
from excess.events._bounds import check_columns, check_expansion

__all__ = ["check_sizes", "open_hdf5", "read_texts", "stored_names", "stored_node"]

CHUNK_CACHE = 2**20
"""Cache of each column in bytes; the default of HDF5, 8 MiB in recent versions, adds up over many columns."""
_TEXTS_AT_ONCE = 256
_FILTERS_WITHOUT_COMPRESSION = {2, 3, 5, 6}
"""Filters of HDF5 that make data shorter by a constant factor at most: shuffle, fletcher32, nbit and scaleoffset."""


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file for reading, with the compression filters that ctapipe and FACT use."""
    h5py = require("h5py", "reading HDF5")
    require("hdf5plugin", "reading HDF5")
    with h5py.File(path, "r", rdcc_nbytes=CHUNK_CACHE) as file:
        yield file


@cache  # looking for a library takes longer than looking for a name in a file
def _h5py() -> Any:
    return require("h5py", "reading HDF5")


def stored_names(group: Any) -> list[str]:
    """Return the names in a group, in order, including links that cannot be followed."""
    check_columns(Path(group.file.filename), len(group.id))
    return sorted(name.decode("utf-8", "surrogateescape") for name in group.id)


def stored_node(file: Any, inside: str) -> Any:
    """Return a group or dataset by its path inside a file or group, None if there is none; no other file is read."""
    h5py = _h5py()
    node = file
    for name in inside.strip("/").split("/"):
        key = name.encode("utf-8", "surrogateescape")
        if not isinstance(node, h5py.Group) or not node.id.links.exists(key):
            return None
        if node.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
            raise EventFileError(
                f"{file.file.filename}: {node.name.rstrip('/')}/{name} is a link; store the data itself"
            )
        node = node[key]
    if isinstance(node, h5py.Dataset) and (node.external or node.is_virtual):
        raise EventFileError(f"{file.file.filename}: {node.name} is stored in another file; store the data itself")
    return node


def check_sizes(path: Path, datasets: Sequence[Any]) -> None:
    """Raise EventFileError if datasets hold far more than fits into their file: what they say need not be stored."""
    n_bytes = 0
    for dataset in datasets:
        # a chunk is read as a whole, and may be larger than the dataset
        n_rows = max(len(dataset), dataset.chunks[0] if dataset.chunks else 0)
        n_bytes += n_rows * dataset.dtype.itemsize
        filters = dataset.id.get_create_plist()
        codes = [filters.get_filter(number)[0] for number in range(filters.get_nfilters())]
        if sum(code not in _FILTERS_WITHOUT_COMPRESSION for code in codes) > 1:
            raise EventFileError(f"{path}: {dataset.name} is compressed more than once; write it with one compression")
    check_expansion(path, n_bytes)


def read_texts(dataset: Any, part: slice, path: Path) -> NDArray[Any]:
    """Return rows of a dataset of texts; EventFileError where they are far longer than all of the file.

    Texts of any length lie elsewhere in the file, and many rows may refer to a single long one.
    """
    texts = dataset.asstr(errors="replace")
    pieces = [np.empty(0, dtype=object)]
    n_letters = 0
    for start in range(part.start, part.stop, _TEXTS_AT_ONCE):
        pieces.append(texts[start : min(start + _TEXTS_AT_ONCE, part.stop)].astype(object))
        n_letters += sum(map(len, pieces[-1]))
        check_expansion(path, n_letters)
    return np.concatenate(pieces)
