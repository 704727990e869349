"""A file object for HDF5 that remembers write errors instead of raising them."""

from __future__ import annotations

import io
import os
from pathlib import Path

__all__ = ["ErrorKeepingFile"]


class ErrorKeepingFile(io.RawIOBase):
    """A binary file that remembers the first write error, and keeps in memory what it could not write.

    The HDF5 library cannot close a file after a failed write, and may end the process when it tries. So every write
    seems to succeed. The caller checks ``error`` after each chunk, so that little is kept in memory. With ``keep``,
    the content of an existing file stays.
    """

    def __init__(self, path: Path, *, keep: bool = False) -> None:
        self._file = path.open("r+b" if keep else "w+b", buffering=0)
        self._kept: list[tuple[int, bytes]] = []
        self._size = os.fstat(self._file.fileno()).st_size
        self._position = 0
        self.error: OSError | None = None

    def seekable(self) -> bool:
        """Return True."""
        return True

    readable = writable = seekable

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position and return it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def write(self, data: object) -> int:
        """Write bytes, or keep them after an error."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        start, written = self._position, 0
        try:
            if self.error is None:
                self._file.seek(start)
                while written < len(view):
                    written += self._file.write(view[written:])
        except OSError as error:
            self.error = error
        if written < len(view):
            self._kept.append((start + written, bytes(view[written:])))
        self._position = start + len(view)
        self._size = max(self._size, self._position)
        return len(view)

    def readinto(self, buffer: object) -> int:
        """Fill a buffer from the file and from what was kept; gaps are zeros."""
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        start = self._position
        length = max(0, min(len(view), self._size - start))
        view[:length] = bytes(length)
        self._file.seek(start)
        stored = self._file.read(length) or b""
        view[: len(stored)] = stored
        for offset, data in self._kept:
            first, last = max(offset, start), min(offset + len(data), start + length)
            if first < last:
                view[first - start : last - start] = data[first - offset : last - offset]
        self._position = start + length
        return length

    def truncate(self, size: int | None = None) -> int:
        """Set the size, or only note it after an error."""
        self._size = self._position if size is None else size
        if self.error is None:
            try:
                self._file.truncate(self._size)
            except OSError as error:
                self.error = error
        return self._size

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self._file.close()
        super().close()
