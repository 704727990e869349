"""HDF5 files, opened safely: no other file is read, and no code in the file is run.

An HDF5 file can refer to others by external links, by datasets with external storage, and by virtual datasets. Event
files need none of them, so they are refused. PyTables is not used: it unpickles the attributes of every node that it
opens, and a pickle can run any code.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from excess._core.errors import EventFileError, require

__all__ = ["open_hdf5", "stored_names", "stored_node"]

CHUNK_CACHE = 2**20
"""Cache of each column in bytes; the default of HDF5, 8 MiB in recent versions, adds up over many columns."""


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """Open a file for reading, with the compression filters that ctapipe and FACT use."""
    h5py = require("h5py", "reading HDF5")
    require("hdf5plugin", "reading HDF5")
    with h5py.File(path, "r", rdcc_nbytes=CHUNK_CACHE) as file:
        yield file


def stored_names(group: Any) -> list[str]:
    """Return the names in a group, in order, including links that cannot be followed."""
    return sorted(name.decode("utf-8", "surrogateescape") for name in group.id)


def stored_node(file: Any, inside: str) -> Any:
    """Return a group or dataset by its path inside a file, None if there is none; one of another file is an error."""
    h5py = require("h5py", "reading HDF5")
    node = file
    for name in inside.strip("/").split("/"):
        key = name.encode("utf-8", "surrogateescape")
        if not isinstance(node, h5py.Group) or not node.id.links.exists(key):
            return None
        if node.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
            raise EventFileError(f"{file.filename}: {node.name.rstrip('/')}/{name} is a link; store the data itself")
        node = node[key]
    if isinstance(node, h5py.Dataset) and (node.external or node.is_virtual):
        raise EventFileError(f"{file.filename}: {node.name} is stored in another file; store the data itself")
    return node
