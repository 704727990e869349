"""A copy of an event file that gets further columns."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

__all__ = ["FileCopy"]


@dataclass(frozen=True)
class FileCopy:
    """What a copy of an event file begins with, for `EventWriter`.

    Attributes
    ----------
    source : path-like
        The file that is copied; it stays as it is.
    prefix : str
        What the names of the new columns begin with; ctapipe's files have a table of this name for them.
    history : tuple of str
        Lines that say what was done, for formats that keep a history.
    only : str or None
        Name of a new column of booleans. Events for which it is False are left out of the copy.

    See Also
    --------
    EventWriter : Writes the copy.

    Examples
    --------
    >>> from excess.events import FileCopy
    >>> FileCopy("run_1.fits", only="excess_selected").prefix
    'excess'
    """

    source: str | PathLike[str]
    prefix: str = "excess"
    history: tuple[str, ...] = ()
    only: str | None = None

    @property
    def path(self) -> Path:
        """The file that is copied."""
        return Path(self.source)
