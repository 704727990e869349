"""Event files: reading and writing tables of events, their times and sky positions."""

from excess._utils.errors import EventFileError
from excess.io._coordinates import (
    KNOWN_TELESCOPES,
    Location,
    Telescope,
    add_night,
    find_telescope,
    night_of,
    sky_positions,
)
from excess.io._files import FileCopy
from excess.io._reading import (
    LOCATION_COLUMNS,
    FileInfo,
    check_one_telescope,
    describe,
    iter_events,
    list_columns,
    read_events,
)
from excess.io._writing import CopyFormat, EventWriter, copy_format, write_events

__all__ = [
    "KNOWN_TELESCOPES",
    "LOCATION_COLUMNS",
    "CopyFormat",
    "EventFileError",
    "EventWriter",
    "FileCopy",
    "FileInfo",
    "Location",
    "Telescope",
    "add_night",
    "check_one_telescope",
    "copy_format",
    "describe",
    "find_telescope",
    "iter_events",
    "list_columns",
    "night_of",
    "read_events",
    "sky_positions",
    "write_events",
]
