"""Events: reading and writing tables of events, quality cuts and features."""

from excess._core.errors import EventFileError
from excess.events.config import AnalysisConfig, RegionConfig, load_config, parse_config
from excess.events.expressions import evaluate
from excess.events.features import Features, to_features
from excess.events.observation_list import ObservationEntry, load_observation_list
from excess.events.reading import FileInfo, describe, iter_events, read_events
from excess.events.writing import EventWriter, write_events

__all__ = [
    "AnalysisConfig",
    "EventFileError",
    "EventWriter",
    "Features",
    "FileInfo",
    "ObservationEntry",
    "RegionConfig",
    "describe",
    "evaluate",
    "iter_events",
    "load_config",
    "load_observation_list",
    "parse_config",
    "read_events",
    "to_features",
    "write_events",
]
