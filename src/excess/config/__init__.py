"""Configuration of an analysis: features, quality cuts, regions, groups and bins."""

from excess.config._columns import evaluate
from excess.config._model import (
    AnalysisConfig,
    BinConfig,
    Exclusion,
    Features,
    IntervalConfig,
    ObservationEntry,
    RegionConfig,
    load_config,
    load_observation_list,
    parse_config,
    to_features,
)
from excess.config._sources import KNOWN_SOURCES, SourcePosition, find_source

__all__ = [
    "KNOWN_SOURCES",
    "AnalysisConfig",
    "BinConfig",
    "Exclusion",
    "Features",
    "IntervalConfig",
    "ObservationEntry",
    "RegionConfig",
    "SourcePosition",
    "evaluate",
    "find_source",
    "load_config",
    "load_observation_list",
    "parse_config",
    "to_features",
]
