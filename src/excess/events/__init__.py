"""Events: reading and writing tables of events, quality cuts and features."""

from excess._core.errors import EventFileError
from excess.events._sinks import CopyFormat, copy_format
from excess.events.bin_config import BinConfig
from excess.events.config import AnalysisConfig, load_config, parse_config
from excess.events.expressions import evaluate
from excess.events.features import Features, to_features
from excess.events.file_copy import FileCopy
from excess.events.known_sources import KNOWN_SOURCES, SourcePosition, find_source
from excess.events.observation_list import ObservationEntry, load_observation_list
from excess.events.reading import (
    LOCATION_COLUMNS,
    FileInfo,
    check_one_telescope,
    describe,
    iter_events,
    list_columns,
    read_events,
)
from excess.events.region_config import Exclusion, RegionConfig
from excess.events.sky import sky_positions
from excess.events.telescopes import KNOWN_TELESCOPES, Location, Telescope, find_telescope
from excess.events.times import add_night, night_of
from excess.events.writing import EventWriter, write_events

__all__ = [
    "KNOWN_SOURCES",
    "KNOWN_TELESCOPES",
    "LOCATION_COLUMNS",
    "AnalysisConfig",
    "BinConfig",
    "CopyFormat",
    "EventFileError",
    "EventWriter",
    "Exclusion",
    "Features",
    "FileCopy",
    "FileInfo",
    "Location",
    "ObservationEntry",
    "RegionConfig",
    "SourcePosition",
    "Telescope",
    "add_night",
    "check_one_telescope",
    "copy_format",
    "describe",
    "evaluate",
    "find_source",
    "find_telescope",
    "iter_events",
    "list_columns",
    "load_config",
    "load_observation_list",
    "night_of",
    "parse_config",
    "read_events",
    "sky_positions",
    "to_features",
    "write_events",
]
