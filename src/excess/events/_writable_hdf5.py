"""An HDF5 file that is written: errors of the disk are raised where they cannot end the process."""

from __future__ import annotations

import shutil
from pathlib import Path

from excess._core.errors import require
from excess._core.interrupts import defer_interrupts
from excess.events._error_keeping_file import ErrorKeepingFile
from excess.events._hdf5 import CHUNK_CACHE

__all__ = ["WritableHdf5"]


class WritableHdf5:
    """A new HDF5 file, or a copy of another one.

    The HDF5 library writes through a Python file object, and may end the process after an exception in it. So the
    object keeps errors, which `check` raises, and whoever calls the library defers interrupts until it returns.
    """

    def __init__(self, path: Path, copy_of: Path | None = None) -> None:
        h5py = require("h5py", "writing HDF5")
        if copy_of is not None:
            require("hdf5plugin", "writing HDF5")
            shutil.copyfile(copy_of, path)
        with defer_interrupts():
            self._raw = ErrorKeepingFile(path, keep=copy_of is not None)
            self.file = h5py.File(self._raw, "w" if copy_of is None else "r+", rdcc_nbytes=CHUNK_CACHE)

    def check(self) -> None:
        """Raise the first error of the disk, if there was one."""
        if self._raw.error is not None:
            raise self._raw.error

    def close(self) -> None:
        """Complete the file."""
        self.file.close()
        self._raw.close()
        self.check()
