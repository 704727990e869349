"""Configuration of an analysis: features, cuts, groups, regions and bins, read from YAML."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from glob import has_magic
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from excess._utils.checks import BoolArray, FloatArray, read_input_text
from excess._utils.errors import ArgumentError, EventFileError, missing_column, nearest
from excess.config import _columns
from excess.config._sources import find_source

NO_GROUPS = "none"  # column name for no groups
LARGEST_TEXT = 1 << 20  # bytes of a YAML file
MOST_VALUES = 50_000  # maximum number of values of a YAML file, including aliases
_REASONS: dict[type[Exception], str] = {RecursionError: "nested too deeply", ValueError: "an invalid number or date"}


def parse_yaml(text: str, source: str) -> Any:
    """Return the content of YAML; raise EventFileError starting with ``source`` if it is invalid or too large."""
    if len(text) > LARGEST_TEXT:
        raise EventFileError(f"{source}: has {len(text):,} characters of YAML, above the maximum of {LARGEST_TEXT:,}")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if _count_values(node, {}) > MOST_VALUES:
            raise EventFileError(f"{source}: has more than {MOST_VALUES:,} values, including those of aliases")
        return None if node is None else loader.construct_document(node)
    except EventFileError:
        raise
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        where = f" at line {mark.line + 1}" if (mark := getattr(error, "problem_mark", None)) else ""
        reason = getattr(error, "problem", None) or _REASONS.get(type(error)) or type(error).__name__
        raise EventFileError(f"{source}: is not valid YAML{where} ({reason})") from error


def _count_values(node: Any, known: dict[Any, float]) -> float:
    """Return the number of values below a node, with aliases expanded."""
    if isinstance(node, (yaml.MappingNode, yaml.SequenceNode)) and node not in known:
        known[node] = math.inf  # an alias within its own content
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[node] = 1 + sum(_count_values(part, known) for part in parts)
    return known.get(node, 1)


AUTO = "auto"  # as many regions as fit; or the method supported by the columns of a file
MOST_REGIONS = 360  # on a circle around the pointing: at most one per degree
MOST_EXCLUSIONS, _LARGEST_RADIUS = 1000, 90
_EXAMPLES = 'such as "84.411 21.143 0.3" or "Crab 0.3"'


class Settings(BaseModel):
    """Base of settings: unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)


class Exclusion(Settings):
    """A part of the sky with gamma rays or too much light: events in it are in no region."""

    name: str = Field(default="", description="Name, for messages.")
    ra: float = Field(ge=0, le=360, description="Right ascension of its centre, in degrees.")
    dec: float = Field(ge=-90, le=90, description="Declination of its centre, in degrees.")
    radius: float = Field(gt=0, lt=_LARGEST_RADIUS, description="Its radius, in degrees.")

    @classmethod
    def parse(cls, text: str) -> Exclusion:
        """Parse an exclusion: a known source or a position, and the radius in deg."""
        where, _, last = " ".join(text.replace(",", " ").split()).rpartition(" ")
        with suppress(ArgumentError):
            find_source(text)
            where = ""  # a source or a position only
        if not where:
            raise ArgumentError("exclusion", f"{text!r} has no radius; append one in deg, {_EXAMPLES}")
        try:
            radius = float(last)
        except ValueError as error:
            raise ArgumentError("exclusion", f"{text!r} must end with a radius in deg, {_EXAMPLES}") from error
        if not 0 < radius < _LARGEST_RADIUS:
            problem = f"has the radius {last}, which must be above 0 and below {_LARGEST_RADIUS} deg"
            raise ArgumentError("exclusion", f"{text!r} {problem}")
        try:
            name, ra, dec = find_source(where)
        except ArgumentError as error:
            raise ArgumentError("exclusion", f"{text!r}: {error.problem}") from error
        return cls(name=name, ra=ra, dec=dec, radius=radius)

    def __str__(self) -> str:
        """Return name, place and radius."""
        place = f"ra {self.ra:g}, dec {self.dec:g}, radius {self.radius:g} deg"
        return f"{self.name} ({place})" if self.name else place


class Pair(Settings):
    """On runs, and the Off runs to compare them with, by the column ``obs_id`` or ``run_id``, or by file."""

    on: tuple[int | str, ...] = Field(min_length=1, description="On runs.")
    off: tuple[int | str, ...] = Field(min_length=1, description="Off runs.")


_PAIR = r"[^\s:,]+:[^\s:,]+"
_TEXT_OF_INTERVALS = re.compile(rf"\s*(?P<column>.*?[^\s:])??\s*(?P<ends>{_PAIR}(\s*,\s*{_PAIR})*)\s*")
MOST_INTERVALS = 100
_Ends = tuple[float, float]


def parse_intervals(argument: str, text: str) -> tuple[str | None, tuple[_Ends, ...]]:
    """Parse the column, if given, and the ends of intervals from a text such as ``"mass 9:9.25,9.65:9.85"``."""
    found = _TEXT_OF_INTERVALS.fullmatch(text)
    try:
        pairs = [tuple(map(float, pair.split(":"))) for pair in found["ends"].split(",")] if found else []
    except ValueError:
        pairs = []
    if not found or not pairs or not np.isfinite(pairs).all():
        example = 'such as "mass 9:9.25,9.65:9.85"'
        raise ArgumentError(argument, f"must be a column and intervals between numbers, {example}, got {text[:200]!r}")
    return found["column"], tuple((low, high) for low, high in pairs)


class IntervalConfig(Settings):
    """On and Off as intervals of a column, such as a phase, a mass or a time.

    Examples
    --------
    >>> from excess.config import IntervalConfig
    >>> IntervalConfig(on="PULSE_PHASE 0.15:0.2,0.55:0.65", off="PULSE_PHASE 0.7:1.1").on
    ((0.15, 0.2), (0.55, 0.65))
    """

    column: str = Field(min_length=1, description="The column.")
    on: tuple[_Ends, ...] = Field(min_length=1, max_length=MOST_INTERVALS, description="On intervals.")
    off: tuple[_Ends, ...] = Field(min_length=1, max_length=MOST_INTERVALS, description="Off intervals.")
    period: float | None = Field(default=None, gt=0)
    """Period of the column; by default 1 if its name ends in phase, else none."""
    alpha: Annotated[float, Field(gt=0)] | Literal["auto", "width", "fit", "livetime"] = "auto"
    """Exposure ratio On/Off: a number, or from the widths of the intervals, a smooth density fitted to the Off
    intervals, or the live time in them; auto: width for periods, livetime for times, else fit."""

    @model_validator(mode="before")
    @classmethod
    def _from_texts(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        # YAML reads the words on and off as True and False
        given = {("off", "on")[key] if isinstance(key, bool) else key: value for key, value in given.items()}
        for side in ("on", "off"):
            if not isinstance(given.get(side), str):
                continue
            column, given[side] = parse_intervals(side, given[side])
            if column is not None and given.setdefault("column", column).lower() != column.lower():
                raise ArgumentError(side, f"must have intervals of {given['column']!r}, got those of {column!r}")
        return given

    @model_validator(mode="after")
    def _apart(self) -> Self:
        period = self.wraps_at
        for side in ("on", "off"):
            for low, high in getattr(self, side):
                if not low < high or (period is not None and high - low > period):
                    most = "" if period is None else f" and must not exceed the period {period:g}"
                    raise ArgumentError(side, f"has the interval {low:g}:{high:g}; its length must be positive{most}")
        for (_, end, *one), (start, _, *other) in pairwise(sorted(self.pieces())):
            if start < end - 1e-12 * abs(end):
                names = [f"{str(side).capitalize()} {low:g}:{high:g}" for side, low, high in sorted((one, other))[::-1]]
                side = "on" if one[0] == other[0] == "on" else "off"
                raise ArgumentError(side, f"has overlapping intervals of {self.column}: {' and '.join(names)}")
        return self

    def pieces(self) -> list[tuple[float, float, str, float, float]]:
        """Return the intervals cut at the period, with the side and the ends of their original interval."""
        found, period = [], self.wraps_at
        for side in ("on", "off"):
            for low, high in getattr(self, side):
                start = low if period is None else low % period
                end = start + high - low
                cut = [(start, end)] if period is None or end <= period else [(start, period), (0.0, end - period)]
                found += [(*piece, side, low, high) for piece in cut]
        return found

    @property
    def wraps_at(self) -> float | None:
        """Period of the column, if it has one."""
        return 1.0 if self.period is None and self.column.lower().endswith("phase") else self.period

    @property
    def is_time(self) -> bool:
        """Whether the column has times."""
        return bool(re.fullmatch(r"(.*_)?(time|timestamp|mjd)", self.column.lower()))

    @property
    def method(self) -> str | float:
        """Origin of the exposure ratio."""
        usual = "width" if self.wraps_at is not None else "livetime" if self.is_time else "fit"
        return usual if self.alpha == AUTO else self.alpha

    def __str__(self) -> str:
        """Return the column and the intervals."""
        on, off = (", ".join(f"{low:g} to {high:g}" for low, high in own) for own in (self.on, self.off))
        return f"{self.column} {on} is On, {off} is Off"


def make_intervals(on: Any, off: Any, alpha: Any = None) -> IntervalConfig:
    """Return the intervals that texts describe; ArgumentError that names the one that is wrong."""
    parse_intervals("on", str(on))
    if not isinstance(off, str):
        raise ArgumentError("off", 'must be intervals of the column of `on`, such as "mass 9:9.25,9.65:9.85"')
    given = {"on": on, "off": off, **({} if alpha is None else {"alpha": alpha})}
    try:
        return IntervalConfig.model_validate(given)
    except ValidationError as error:
        problem: Any = error.errors()[0]
        known = problem.get("ctx", {}).get("error")
        if isinstance(known, ArgumentError):
            raise known from error
        if problem["loc"][:1] == ("column",):
            raise ArgumentError("on", f'must begin with a column, as in "mass 9.3:9.6", got {on!r}') from error
        raise ArgumentError(str((*problem["loc"], "on")[0]), f"is wrong: {describe_error(problem)}") from error


def _parse_exclusion(given: Any) -> Any:
    """Parse an exclusion given as text; return other values unchanged."""
    try:
        return Exclusion.parse(given) if isinstance(given, str) else given
    except ArgumentError as error:  # its argument is the key, which is named with the position in the list
        raise ValueError(error.problem) from error


def _check_number(given: Any) -> Any:
    """Return a number of regions, or "auto"."""
    if given == AUTO:
        return given
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError(f"must be an integer or auto, got {given!r:.60}")  # noqa: TRY004, for pydantic
    if not 2 <= given <= MOST_REGIONS:
        raise ValueError(f"must be 2 (the On region and one Off region) to {MOST_REGIONS}, got {given}")
    return given


_Exclusion = Annotated[Exclusion, BeforeValidator(_parse_exclusion)]


class RegionConfig(Settings):
    """Settings of the On region and the Off regions.

    The source may be given by ``source`` in place of ``source_ra`` and ``source_dec``; see `find_source`.

    Examples
    --------
    >>> from excess.config import RegionConfig
    >>> RegionConfig(n_regions=4).theta_squared_cut
    0.025
    >>> RegionConfig(method="reflected", n_regions="auto", source_ra=83.63, source_dec=22.01).method
    'reflected'
    >>> RegionConfig(source="Mrk 501").source_dec
    39.7602
    """

    theta_squared_cut: float = Field(default=0.025, gt=0, strict=True)
    """Maximum squared distance to the centre of a region, in deg^2."""
    rad_max: bool = Field(default=False, strict=True)
    """Use the energy-dependent RAD_MAX of the response as radius of regions; theta_squared_cut is then the largest."""
    method: Literal["auto", "angles", "reflected", "ring", "same_declination"] = "auto"
    """Definition of Off regions: angles uses the angle columns of the files; reflected, ring and same_declination
    compute regions from sky positions; auto uses angle columns if available, else reflected."""
    n_regions: Annotated[int | Literal["auto"], BeforeValidator(_check_number)] = 6
    """Total number of On and Off regions; auto for as many as fit."""
    overlap: Literal["on_first", "drop", "error"] = "on_first"
    """Treatment of an event in both On and Off: assign it to On, drop it, or raise an error."""
    source_ra: float | None = Field(default=None, ge=0, le=360, strict=True)
    """Right ascension of the source, in degrees."""
    source_dec: float | None = Field(default=None, ge=-90, le=90, strict=True)
    """Declination of the source, in degrees."""
    min_distance: float | None = Field(default=None, gt=0, lt=180)
    """Minimum distance between the source and the centre of an Off region, in degrees. By default, regions do not
    overlap, and with n_regions: auto there is a gap of half a radius between On and the nearest Off region."""
    exclusion: Annotated[tuple[_Exclusion, ...], Field(max_length=MOST_EXCLUSIONS)] = ()
    """Parts of the sky without Off regions: other sources, bright stars."""
    alpha_error: Annotated[float, Field(ge=0)] | dict[str, Annotated[float, Field(ge=0)]] | None = None
    """Relative error of the exposure ratio, such as 0.03; one value, or one for each group. 0 for an exact ratio."""
    match: Literal["none", "zenith", "time"] = "none"
    """Matching of Off runs to On runs: all with all, or by nearest zenith distance or time."""
    match_within: float | None = Field(default=None, gt=0)
    """Maximum difference of matched runs, in degrees of zenith distance or in hours."""
    pairs: tuple[Pair, ...] = ()
    """On runs and their Off runs."""
    intervals: IntervalConfig | None = None
    """On and Off as intervals of a column, in place of regions on the sky."""

    @model_validator(mode="before")
    @classmethod
    def _position_of_source(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("source"), str):
            return given
        if any(given.get(key) is not None for key in ("source_ra", "source_dec")):
            raise ValueError("source cannot be combined with source_ra or source_dec; specify one of both")
        _, ra, dec = find_source(given["source"])
        return {key: given[key] for key in given if key != "source"} | {"source_ra": ra, "source_dec": dec}

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.pairs and self.match != "none":
            raise ValueError("pairs and match are mutually exclusive; specify one of them")
        if self.match_within is not None and self.match == "none":
            raise ValueError("match_within requires match: zenith or time")
        if (self.source_ra is None) != (self.source_dec is None):
            raise ValueError("source_ra and source_dec must be given together")
        if self.method == "angles" and (self.exclusion or self.min_distance is not None):
            key = "exclusion" if self.exclusion else "min_distance"
            remedy = "choose reflected, ring or same_declination, for files with sky positions"
            raise ValueError(f"{key} cannot be combined with method: angles, whose regions are in the files; {remedy}")
        if self.rad_max and self.method not in (AUTO, "reflected"):
            problem = f"rad_max cannot be combined with method: {self.method}"
            raise ValueError(f"{problem}; choose reflected, or specify theta_squared_cut")
        return self

    def with_settings(self, given: Mapping[str, Any]) -> RegionConfig:
        """Return regions with some settings overridden."""
        own = self.model_dump()
        if "source" in given:
            del own["source_ra"], own["source_dec"]
        if "theta_squared_cut" in given or given.get("method", AUTO) not in (AUTO, "reflected"):
            own["rad_max"] = False
        return RegionConfig.model_validate({**own, **given})

    @property
    def radius(self) -> float:
        """Radius of a region in deg."""
        return math.sqrt(self.theta_squared_cut)

    @property
    def n_wanted(self) -> int | None:
        """Number of regions including On; None for as many as fit."""
        return None if isinstance(self.n_regions, str) else self.n_regions


_MAX_BINS = 100


class BinConfig(Settings):
    """Bins of a column, such as energy, each with its own threshold and calibration.

    Examples
    --------
    >>> from excess.config import BinConfig
    >>> BinConfig.parse("energy:0.5,2,8").edges
    (0.5, 2.0, 8.0)
    >>> BinConfig.parse("energy:4").n_bins
    4
    """

    column: str = Field(min_length=1, description="Column or derived feature that defines the bins.")
    edges: tuple[float, ...] = Field(default=(), max_length=_MAX_BINS - 1)
    """Edges between the bins; the first and the last bin are open."""
    n_bins: int | None = Field(default=None, ge=2, le=_MAX_BINS, strict=True)
    """Number of bins with equally many events."""
    feature: bool | None = Field(default=None, strict=True)
    """Whether the column is also a feature of models; by default if it is among the features."""

    @model_validator(mode="after")
    def _edges_or_number(self) -> Self:
        if bool(self.edges) == (self.n_bins is not None):
            raise ValueError("requires either edges, such as [1, 5], or n_bins")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError(f"edges must be ascending, got {', '.join(f'{edge:g}' for edge in self.edges)}")
        return self

    @classmethod
    def parse(cls, text: str) -> BinConfig:
        """Parse bins from a text such as ``"energy:0.5,2,8"`` or ``"energy:4"``."""
        column, _, given = text.rpartition(":")
        try:
            numbers = [float(word) for word in given.split(",")]
            if len(numbers) == 1 and numbers[0].is_integer() and "." not in given:
                return cls(column=column, n_bins=int(numbers[0]))
            return cls(column=column, edges=tuple(numbers))
        except ValidationError as error:
            raise ValueError(f"cannot be {text!r}: {describe_error(error.errors()[0])}") from error
        except (ValueError, OverflowError) as error:
            problem = "must be a column with edges or a number of bins, such as energy:1,5"
            raise ValueError(f"{problem}, got {text!r}") from error


# The open Crab analysis of FACT.
DERIVED_FEATURES = {
    "area": "width * length * pi",
    "log_size": "log(size)",
    "size_area": "size / area",
    "area_size_cut_var": "area / log(size)**2",
}
_COLUMNS = """
    concentration_cog concentration_core concentration_one_pixel concentration_two_pixel leakage1 leakage2 size width
    length skewness_long skewness_trans kurtosis_long kurtosis_trans num_islands num_pixel_in_shower
    photoncharge_shower_mean photoncharge_shower_variance photoncharge_shower_max
"""
FEATURES = (*_COLUMNS.split(), *DERIVED_FEATURES)
_CUTS = "num_pixel_in_shower >= 10, num_islands < 8, length < 70, width < 35, leakage1 < 0.6, leakage2 < 0.85"
QUALITY_CUTS = tuple(_CUTS.split(", "))
MOST_FEATURES, MOST_CUTS = 10_000, 1000


class AnalysisConfig(Settings):
    """Settings of an analysis. The defaults are those of FACT's open Crab analysis.

    Examples
    --------
    >>> from excess.config import AnalysisConfig
    >>> config = AnalysisConfig(features=["width", "ratio"], derived_features={"ratio": "width / length"})
    >>> config.columns_needed()[:2]
    ('width', 'length')
    >>> AnalysisConfig(features=["width", "theta_deg"])
    Traceback (most recent call last):
        ...
    pydantic_core._pydantic_core.ValidationError: 1 validation error for AnalysisConfig
      Value error, feature 'theta_deg' encodes where an event came from ...
    """

    features: tuple[str, ...] = Field(default=FEATURES, min_length=1, max_length=MOST_FEATURES)
    """Columns and derived features used to train models."""
    derived_features: dict[str, str] = DERIVED_FEATURES
    """New columns: names and their expressions. List them in features to train on them."""
    quality_cuts: tuple[str, ...] = Field(default=QUALITY_CUTS, max_length=MOST_CUTS)
    """Conditions on events, as expressions."""
    groups: str = Field(default="night", min_length=1)
    """Column of the groups, which are not split between training and hold-out."""
    regions: RegionConfig = RegionConfig()
    """The On region and the Off regions."""
    allow_origin_features: bool = Field(default=False, strict=True)
    """Allow features that encode the origin of an event."""
    references: tuple[str, ...] = ()
    """Features that are scores of another analysis, such as gammaness, weighted by the model hybrid."""
    bins: BinConfig | None = None
    """Bins with their own thresholds and calibrations, such as of energy."""

    @model_validator(mode="before")
    @classmethod
    def _bins_are_columns(cls, given: Any) -> Any:
        """Read the column of the bins with the features, and store whether it is one."""
        bins = given.get("bins") if isinstance(given, dict) else None
        if isinstance(bins, BinConfig):
            bins = bins.model_dump()
        features = given.get("features", FEATURES) if isinstance(given, dict) else None
        if not isinstance(bins, dict) or not isinstance(features, (list, tuple)):
            return given
        column, is_feature = bins.get("column"), bins.get("column") in features
        bins = {**bins, "feature": is_feature if bins.get("feature") is None else bins["feature"]}
        if is_feature or not isinstance(column, str):
            return {**given, "bins": bins}
        return {**given, "bins": bins, "features": (*features, column)}

    @model_validator(mode="before")
    @classmethod
    def _references_are_features(cls, given: Any) -> Any:
        if not isinstance(given, dict) or not isinstance(given.get("references", ()), (list, tuple)):
            return given
        features, references = given.get("features", FEATURES), given.get("references", ())
        if not isinstance(features, (list, tuple)) or len(features) + len(references) > 2 * MOST_FEATURES:
            return given  # errors are reported by the validation of the fields
        more = [name for name in references if name not in features]
        return {**given, "features": (*features, *more)} if more else given

    @field_validator("features", "references")
    @classmethod
    def _features_once(cls, features: tuple[str, ...]) -> tuple[str, ...]:
        if "" in features:
            raise ValueError("a feature has no name")
        for name, number in Counter(features).items():
            if number > 1:
                raise ValueError(f"feature {name!r} is named twice")
        return features

    @field_validator("quality_cuts")
    @classmethod
    def _cuts_parse(cls, cuts: tuple[str, ...]) -> tuple[str, ...]:
        for cut in cuts:
            _columns.names_in(cut)
        return cuts

    @field_validator("derived_features")
    @classmethod
    def _derived_parse(cls, derived: dict[str, str]) -> dict[str, str]:
        for name in derived:
            if not name.isidentifier() or name in _columns.FUNCTIONS or name in _columns.CONSTANTS:
                raise ValueError(f"{name!r} cannot name a derived feature; use letters, digits and underscores")
        _columns.inputs_of_derived(derived)
        return derived

    @model_validator(mode="after")
    def _check_features(self) -> Self:
        if set(self.features) <= set(self.references):
            raise ValueError("all features are references; add other features")
        if not self.allow_origin_features:
            same_sky = None if self.regions.intervals is None else self.regions.intervals.column
            _columns.check_no_origin(self.features, self.derived_features, self.references, same_sky)
        return self

    def columns_needed(self) -> tuple[str, ...]:
        """Return the columns of a file required by features and cuts; groups and regions require further ones."""
        return tuple(name for name in self.names_needed() if name not in self.derived_features)

    def names_needed(self) -> tuple[str, ...]:
        """Return the columns and derived features that features and cuts depend on, including themselves."""
        inputs = _columns.inputs_of_derived(self.derived_features)
        used = (*self.features, *(name for cut in self.quality_cuts for name in _columns.names_in(cut)))
        return tuple(dict.fromkeys(one for name in used for one in (name, *inputs.get(name, ()))))

    def inputs_of(self, feature: str) -> tuple[str, ...]:
        """Return all names that a derived feature depends on; none for a column of a file."""
        return _columns.inputs_of_derived(self.derived_features).get(feature, ())

    def with_references(self, columns: Sequence[str]) -> AnalysisConfig:
        """Return the configuration with further columns that are scores of another analysis."""
        more = [name for name in columns if name not in self.references]
        if not more:
            return self
        return AnalysisConfig.model_validate({**self.model_dump(), "references": [*self.references, *more]})

    def without_references(self) -> AnalysisConfig:
        """Return the configuration without the columns that are scores of another analysis."""
        if not self.references:
            return self
        features = [name for name in self.features if name not in self.references]
        return AnalysisConfig.model_validate({**self.model_dump(), "features": features, "references": ()})

    def with_bins(self, bins: BinConfig | None) -> AnalysisConfig:
        """Return the configuration with bins; None keeps it unchanged."""
        if bins is None:
            return self
        before = [name for name in self.features if self.bins is None or self.bins.feature or name != self.bins.column]
        return AnalysisConfig.model_validate({**self.model_dump(), "features": before, "bins": bins})

    def with_source(self, ra: float, dec: float) -> AnalysisConfig:
        """Return the configuration with the position of the source in deg."""
        regions = self.regions.model_copy(update={"source_ra": ra, "source_dec": dec})
        return self.model_copy(update={"regions": regions})

    def to_yaml(self) -> str:
        """Return the settings as YAML, as read by ``load_config``."""
        settings = self.model_dump(mode="json")
        for name in ("references", "bins"):
            if not settings[name]:
                del settings[name]  # most analyses have none
        return yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)


def load_config(path: str | PathLike[str] | None = None) -> AnalysisConfig:
    r"""Read the settings of an analysis from a YAML file.

    Parameters
    ----------
    path : path-like, default=None
        The file; missing keys have their defaults. None uses all defaults.

    Returns
    -------
    AnalysisConfig
        The settings.

    Raises
    ------
    EventFileError
        If the file cannot be read, is not a YAML mapping, or contains an unknown key or a value of the wrong type.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from excess.config import load_config
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "crab.yaml")
    ...     _ = path.write_text("groups: run_id\nregions: {n_regions: 4}\n")
    ...     config = load_config(path)
    >>> config.groups, config.regions.n_regions, len(config.features)
    ('run_id', 4, 22)
    """
    if path is None:
        return AnalysisConfig()
    return parse_config(read_input_text(Path(path), LARGEST_TEXT, "reading the settings"), str(path))


def parse_config(text: str, source: str) -> AnalysisConfig:
    """Read the settings of an analysis from YAML."""
    content = parse_mapping(text, source, "'groups: night'")
    try:
        return AnalysisConfig.model_validate(content)
    except ValidationError as error:
        raise EventFileError(f"{source}: {'; '.join(map(describe_error, error.errors()))}") from error


def parse_mapping(text: str, source: str, example: str) -> dict[str, Any]:
    """Return the mapping of YAML; raise EventFileError with an example for other content."""
    content = parse_yaml(text, source)
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise EventFileError(f"{source}: must contain names and values, such as {example}")
    return content


def _settings_at(place: Sequence[Any]) -> type[Settings]:
    """Return the settings that contain an unknown key."""
    if place[0] != "regions":
        return AnalysisConfig
    inner: dict[Any, type[Settings]] = {"exclusion": Exclusion, "pairs": Pair, "intervals": IntervalConfig}
    return next((inner[key] for key in place[:-1] if key in inner), RegionConfig)


def describe_error(error: Any, known: Iterable[str] | None = None) -> str:
    """Format an error of pydantic, with the key first; by default one of an analysis."""
    key = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        known = _settings_at(error["loc"]).model_fields if known is None else known
        return f"unknown key {key!r}; {nearest(str(error['loc'][-1]), known)}"
    return f"{key}: {message_of(error)}" if key else message_of(error)


def message_of(error: Any) -> str:
    """Return the message of an error of pydantic, worded like other messages."""
    message = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    message = message.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    message += f", got {error['input']!r:.60}" if message.startswith("must be") and "got" not in message else ""
    return message[0].lower() + message[1:]


_Ratio = Annotated[float, Field(gt=0)]
_Paths = Annotated[tuple[str, ...], BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]


class ObservationEntry(Settings):
    """Files of one observation, and the definition of its On and Off events."""

    events: _Paths = Field(min_length=1, description="Event files; of On events only if there are files of Off events.")
    off: _Paths | None = Field(default=None, description="Files of Off events.")
    alpha: _Ratio | dict[Any, _Ratio] | None = None
    """Exposure ratio On/Off, or one per group, with `off`; by default from live times."""
    join: _Paths | None = Field(default=None, description="Files to join event by event.")
    regions: dict[str, Any] = {}
    """Settings of its regions that differ from the configuration."""

    def settings(self, config: AnalysisConfig) -> AnalysisConfig:
        """Return the settings of the observation: those of a configuration, with its own regions."""
        if not self.regions:
            return config
        return config.model_copy(update={"regions": config.regions.with_settings(self.regions)})


_KEYS = (*ObservationEntry.model_fields, *RegionConfig.model_fields)


def load_observation_list(path: str | PathLike[str]) -> dict[str, ObservationEntry]:
    r"""Read a list of observations from a YAML file: the files of each by name."""
    file = Path(path)
    text = read_input_text(file, LARGEST_TEXT, "reading the list of observations")
    content = parse_mapping(text, str(file), "'crab: {events: crab.hdf5}'")
    if not content:
        raise EventFileError(f"{file}: lists no observations; add names and files, such as 'crab: {{events: a.hdf5}}'")
    entries = {}
    for name, given in content.items():
        if isinstance(given, dict):  # YAML reads the word off as False
            given = {"off" if key is False else key: value for key, value in given.items()}
        try:
            entry = ObservationEntry.model_validate(given)
            entry.settings(AnalysisConfig())
        except ValidationError as error:
            problems = "; ".join(describe_error(one, _KEYS) for one in error.errors())
            raise EventFileError(f"{file}: {name}: {problems}") from error
        given_files = entry.model_dump(include={"events", "off", "join"}, exclude_none=True)
        found = {kind: _find_files(file, name, paths) for kind, paths in given_files.items()}
        entries[name] = entry.model_copy(update=found)
    return entries


def _find_files(listed_in: Path, name: str, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return paths relative to the current folder; a pattern is expanded to all matching files."""
    found: list[str] = []
    for path in paths:
        if not has_magic(path):
            found.append(str(listed_in.parent / path))
            continue
        base = Path(path)
        folder = Path(base.anchor) if base.is_absolute() else listed_in.parent
        pattern = str(base.relative_to(base.anchor)) if base.is_absolute() else path
        matches = sorted(map(str, folder.glob(pattern)))
        if not matches:
            raise EventFileError(f"{listed_in}: {name}: no file matches {path!r}")
        found += matches
    return tuple(found)


class Features(NamedTuple):
    """Features of all events of a table, and which events are usable."""

    X: FloatArray
    valid: BoolArray
    names: tuple[str, ...]
    missing: Mapping[str, int] = {}  # events without a value, by feature


def to_features(table: pd.DataFrame, config: AnalysisConfig) -> Features:
    """Compute features and quality cuts of a table of events."""
    for name in config.columns_needed():
        if name not in table.columns:
            raise ValueError(f"the table {missing_column(name, map(str, table.columns))}")
    columns = {name: _columns.as_numbers(name, table[name]) for name in config.columns_needed()}
    needed = config.names_needed()
    for name in _columns.inputs_of_derived(config.derived_features):  # in a computable order
        if name in needed:
            columns[name] = _columns.compute(config.derived_features[name], columns, len(table))
    # column-major, as in files and trees: each feature is copied contiguously
    X = np.empty((len(table), len(config.features)), order="F")
    valid = np.ones(len(table), dtype=np.bool_)
    missing: dict[str, int] = {}
    for position, name in enumerate(config.features):
        X[:, position] = columns[name]
        known = np.isfinite(X[:, position])
        if n_missing := len(known) - int(np.count_nonzero(known)):
            missing[name] = n_missing
            valid &= known
    for cut in config.quality_cuts:
        passed = _columns.compute(cut, columns, len(table))
        if passed.dtype != np.bool_:
            raise ValueError(f"quality cut {cut!r} is not a condition, such as 'width < 35'")
        valid &= passed
    return Features(X, valid, config.features, missing)


def with_choice(
    config: AnalysisConfig, features: Sequence[str], exclude: Sequence[str], columns: Sequence[str]
) -> AnalysisConfig:
    """Return a configuration with requested features, without excluded ones."""
    available = list(dict.fromkeys([*columns, *config.derived_features]))
    chosen = list(config.features)
    if features:
        reasons = {name: reason for name in columns if (reason := _columns.reason_by_name(name))}
        references = [name for name in config.references if name not in features]
        chosen = [*_columns.choose_features(features, available, reasons), *references]
    if exclude:
        chosen = _columns.exclude_features(exclude, chosen, available)
    return make_config(**{**config.model_dump(), "features": chosen})


def make_config(**settings: Any) -> AnalysisConfig:
    """Return a configuration; raise ArgumentError with the names of invalid features."""
    with convert_errors("features", "cannot be used: "):
        return AnalysisConfig.model_validate(settings)


@contextmanager
def convert_errors(argument: str, prefix: str = "") -> Iterator[None]:
    """Convert a ValueError to an ArgumentError, without the multi-line messages of pydantic."""
    try:
        yield
    except ValueError as error:
        message = message_of(error.errors()[0]) if isinstance(error, ValidationError) else str(error)
        raise ArgumentError(argument, prefix + message) from error
