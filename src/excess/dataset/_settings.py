"""Configuration of an observation: the given one, or a proposal from the content of its files."""

import logging
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray

from excess._utils.checks import FloatArray
from excess._utils.errors import ArgumentError, EventFileError, prefix_errors
from excess.config import _columns, _model
from excess.config._model import AnalysisConfig, BinConfig, ObservationEntry, RegionConfig
from excess.config._sources import SourcePosition, find_source, source_of_object
from excess.dataset import _regions
from excess.io._coordinates import add_night
from excess.io._fits import read_rad_max
from excess.io._reading import check_one_telescope, describe, expand_folders, iter_events, list_columns

_MAX_FILES = 12  # maximum number of inspected files, spread over all files
_MAX_EVENTS = 20_000  # events of the sample, from the start of these files


@dataclass(frozen=True, eq=False)
class Inspection:
    """Content of files, from their metadata and the first events of some of them."""

    paths: tuple[Path, ...]
    format: str
    telescope: str | None
    columns: tuple[str, ...]
    only_in_some: tuple[str, ...] = ()
    is_simulated: bool = False
    parts: tuple[tuple[tuple[Path, ...], tuple[str, ...]], ...] = ()
    table: Any = None

    @property
    def name(self) -> str:
        """Short description of the files, for messages."""
        if not self.paths:
            return "the table"
        return str(self.paths[0]) if len(self.paths) == 1 else f"{self.paths[0]} and {len(self.paths) - 1} more"

    @cached_property
    def sampled(self) -> tuple[pd.DataFrame, NDArray[np.int64]]:
        """The sample, and the index of the file of each of its events."""
        if self.table is not None:
            return self.table.head(_MAX_EVENTS), np.zeros(min(len(self.table), _MAX_EVENTS), dtype=np.int64)
        tables, numbers = [], []
        for paths, columns in self.parts:
            chosen = _spread(paths)
            rows = max(_MAX_EVENTS // len(chosen), 1)
            found = [next(iter_events(path, columns, chunk_rows=rows)) for path in chosen]
            numbers.append(np.repeat(np.arange(len(found)), [len(one) for one in found]))
            tables.append(pd.concat([one for one in found if len(one)] or found[:1], ignore_index=True))
        # events of files to join may differ from those in the same rows, which does not matter for a sample
        n_events = min(map(len, tables))
        sample = tables[0] if len(tables) == 1 else pd.concat([one.head(n_events) for one in tables], axis=1)
        return sample, numbers[0][: len(sample)]

    @property
    def sample(self) -> pd.DataFrame:
        """The first events of some files."""
        return self.sampled[0]

    def varies(self, column: str) -> bool:
        """Return whether a column has at least two values, reading files only as far as needed, in constant memory."""
        if self.table is not None:
            return len(self.table[column].dropna().unique()) > 1
        paths = next(paths for paths, columns in self.parts if column in columns)
        ends = dict.fromkeys([*_spread(paths), *paths])  # the last file is most likely from another night
        seen: set[Any] = set()
        for chunk in (chunk for path in ends for chunk in iter_events(path, [column])):
            seen |= set(chunk[column].dropna().unique().tolist()[:2])
            if len(seen) > 1:
                return True
        return False


def inspect_events(events: Any, joined: Any = None, off: Any = None) -> Inspection:
    """Inspect event files, or a table of events in memory."""
    paths, joined, off = as_input(events), as_input(joined or None) or (), as_input(off or None) or ()
    if not isinstance(paths, tuple):
        first = add_night(paths.head(_MAX_EVENTS))
        table = add_night(paths) if "night" in first else paths
        return Inspection((), "table", None, tuple(map(str, first.columns)), table=table)
    info = describe(paths[0])
    own, some = _common_columns(info.columns, [*_spread(paths), *_spread(off)][1:])
    parts = [(paths, own)]
    if joined:
        one, *others = _spread(joined)
        more, _ = _common_columns(describe(one).columns, others)
        parts.append((joined, tuple(name for name in more if name not in own)))
    columns = tuple(name for _, names in parts for name in names)
    return Inspection(paths, info.format, info.telescope, columns, some, info.is_simulated, tuple(parts))


def as_input(given: Any) -> Any:
    """Return a table or None unchanged, and one or several paths as a tuple."""
    if given is None or isinstance(given, pd.DataFrame):
        return given
    paths = [given] if isinstance(given, (str, PathLike)) else list(given)
    if not paths:
        raise ValueError("events must contain at least one file")
    return tuple(expand_folders(paths))


def _common_columns(first: tuple[str, ...], others: Sequence[Path]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns common to all files, and those of only some."""
    found = [first, *(list_columns(path) for path in others)]
    names = dict.fromkeys(name for columns in found for name in columns)
    common = tuple(name for name in names if all(name in columns for columns in found))
    return common, tuple(name for name in names if name not in common)


def _spread(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return files spread evenly over all, including the first and the last."""
    numbers = np.linspace(0, len(paths) - 1, min(len(paths), _MAX_FILES)).round().astype(int)
    return tuple(paths[number] for number in numbers)


@dataclass(frozen=True)
class Preset:
    """Usual features, cuts and regions for the files of a telescope or an analysis chain."""

    name: str
    features: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    derived_features: Mapping[str, str] = field(default_factory=dict)
    quality_cuts: tuple[str, ...] = ()
    theta_squared_cut: float = 0.025
    n_regions: int | str = _model.AUTO
    method: str = "auto"
    rad_max: bool = False
    fixed: bool = False
    formats: tuple[str, ...] = ()
    telescopes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    any_of: bool = False
    default_columns: float = 0.0

    def matches(self, found: Inspection) -> bool:
        """Return whether files satisfy all conditions of the preset, or any of them."""
        conditions = [found.format.startswith(self.formats)] if self.formats else []
        if self.telescopes:
            conditions.append(found.telescope in self.telescopes)
        if self.columns:
            conditions.append(set(self.columns) <= set(found.columns))
        if self.default_columns:
            needed = set(AnalysisConfig().columns_needed())
            conditions.append(len(needed.intersection(found.columns)) >= self.default_columns * len(needed))
        return any(conditions) if self.any_of else all(conditions)

    def prefers(self, column: str) -> bool:
        """Return whether a column is among the usual features."""
        usual, unusual = (any(fnmatchcase(column, one) for one in own) for own in (self.features, self.left_out))
        return usual and not unusual


def _read_presets() -> dict[str, Preset]:
    text = files("excess.config").joinpath("data/presets.yaml").read_text(encoding="utf-8")
    of_default = AnalysisConfig().model_dump(include={"features", "derived_features", "quality_cuts"})
    found = {}
    for name, given in yaml.safe_load(text).items():
        own: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in (given or {}).items()}
        found[name] = Preset(name, **own, **(of_default if "default_columns" in own else {}))
    return found


PRESETS = _read_presets()  # presets by name; the first match is used, and the last one matches all files


def find_preset(found: Inspection) -> Preset:
    """Return the preset of files."""
    return next(preset for preset in PRESETS.values() if preset.matches(found))


_MAX_OBJECT_DISTANCE = 0.5  # maximum distance in deg between a known source and its position in a header
Source = str | tuple[float, float] | None


class RegionChoice(NamedTuple):
    """Regions, a description of On and Off, and the reason if they cannot be defined."""

    regions: RegionConfig
    on_off: str
    obstacle: str | None = None


def choose_regions(
    found: Inspection, preset: Preset, source: Source, *, separate: bool, given: Mapping[str, Any] | None
) -> RegionChoice:
    """Choose On and Off regions."""
    known = dict(given or {})
    _regions.check_regions(known, separate=separate)
    wanted = _regions.change_regions(RegionConfig(), known)
    # given settings take precedence; an unknown number of regions follows from the pointing
    own: dict[str, Any] = {key: getattr(wanted, key) for key in ("theta_squared_cut", "method") if key in known}
    if _takes_rad_max(found, known, separate):
        own |= {"rad_max": True, "theta_squared_cut": _regions.largest_rad_max(found.paths)}
    if wanted.method == _model.AUTO and (wanted.exclusion or wanted.min_distance is not None):
        own["method"] = preset.method if preset.method in _regions.METHODS else "reflected"
    if "n_regions" in known:
        own["n_regions"] = wanted.n_regions
    if "method" in own and not separate:
        method = preset.method if wanted.method == _model.AUTO else wanted.method
        number = wanted.n_regions if "n_regions" in known else _model.AUTO
        try:
            _regions.choose_method(found.columns, wanted.model_copy(update={"method": method, "n_regions": number}))
        except ValueError as error:  # missing columns
            return RegionChoice(wanted, "not defined", f"{found.name}: {error}")
    if wanted.intervals is not None:
        if separate:
            raise ArgumentError("off", "must be intervals of the same column, not files")
        _regions.choose_method(found.columns, wanted)
        position = find_source(source)[1:] if isinstance(source, str) else source
        if position is not None:
            wanted = wanted.model_copy(update=dict(zip(("source_ra", "source_dec"), position, strict=True)))
        return RegionChoice(wanted, str(wanted.intervals))
    chosen, on_off, obstacle = _choose(found, replace(preset, **own), source, separate)
    located = chosen.source_ra is not None and all(name in found.columns for name in _regions.SKY_COLUMNS)
    if separate and wanted.exclusion and obstacle is None and not located:
        raise _regions.unusable_exclusion()
    if wanted.match != "none":
        on_off += f", runs matched by {wanted.match}"
    if wanted.exclusion:
        on_off += f", {len(wanted.exclusion)} exclusion{'s' if len(wanted.exclusion) > 1 else ''}"
    return RegionChoice(_regions.change_regions(chosen, known), on_off, obstacle)


def _takes_rad_max(found: Inspection, given: Mapping[str, Any], separate: bool) -> bool:
    """Return whether the radius of regions follows from the response: if it depends on energy, or if requested."""
    if "rad_max" in given or "theta_squared_cut" in given or given.get("method", "auto") not in ("auto", "reflected"):
        return bool(given.get("rad_max"))
    if separate or not found.format.startswith("FITS") or "energy" not in found.columns:
        return False
    radii = read_rad_max(found.paths[0])
    return radii is not None and radii.radius.size > 1


def _choose(found: Inspection, preset: Preset, source: Source, separate: bool) -> RegionChoice:
    """Choose the usual regions for files."""
    cut: dict[str, Any] = {"theta_squared_cut": preset.theta_squared_cut}
    if preset.rad_max:
        cut["rad_max"] = True
    needed = _regions.METHODS[preset.method].columns if preset.method in _regions.METHODS else _regions.SKY_COLUMNS
    within = f"theta^2 < {preset.theta_squared_cut:.4g}" + (" at most, by RAD_MAX" if preset.rad_max else "")

    def choose(on_off: str, obstacle: str | None = None, **settings: Any) -> RegionChoice:
        problem = None if obstacle is None else f"{found.name}: {obstacle}"
        return RegionChoice(RegionConfig(**cut, **settings), on_off, problem)

    position, named = None, ""
    if source is not None:
        position = find_source(source) if isinstance(source, str) else SourcePosition("", *source)
        cut |= {"source_ra": position.ra, "source_dec": position.dec}
    if separate and not found.format.startswith("FITS"):
        return choose("by their files")
    n_angles = _regions.count_angles(found.columns)
    if n_angles > 1 and not separate and preset.method in (_model.AUTO, "angles"):
        n_regions = min(n_angles, int(preset.n_regions)) if preset.fixed else n_angles
        first, *_, last = _regions.theta_columns(n_regions)
        names = f"{first} {'and' if n_regions == 2 else 'to'} {last}"
        return choose(f"{n_regions} regions by {names}, {within}", n_regions=n_regions)
    if not all(name in found.columns for name in needed):
        return choose("not defined", _no_regions(found))
    if position is None:
        position, named = _observed_object(found)
        if position is None:
            remedy = 'specify source, such as Crab or "83.6333 22.0133" (--source on the command line)'
            problem = f"regions from sky positions require the source position{named}: {remedy}"
            return choose("around an unknown source", problem)
        cut |= {"source_ra": position.ra, "source_dec": position.dec}
    around = f"{position}{named}, {within}"
    if separate:
        return choose(f"by their files, around {around}")
    fixed: dict[str, Any] = {"method": preset.method, "n_regions": preset.n_regions}
    if preset.method == "same_declination":
        return choose(f"{_number_of(preset.n_regions)} of same declination around {around}", **fixed)
    pointing = found.sample[list(_regions.SKY_COLUMNS[2:])].drop_duplicates().dropna().to_numpy(dtype=np.float64)
    offsets, _ = _regions.offset_of_source(*pointing.T, source_ra=position.ra, source_dec=position.dec)
    if len(offsets) and offsets.min() > _regions.LARGEST_OFFSET:
        problem = f"the source {position} is {offsets.min():.0f} deg from the pointing"
        return choose(f"around {position}", f"{problem}; specify the observed source")
    fitting = _count_reflected(offsets, preset)
    if fitting == 0:
        problem = f"the source {position} is too close to the pointing, so regions overlap ({within} deg^2)"
        remedy = "pass separate Off files (--off), or reduce the cut in the configuration"
        return choose(f"around {position}", f"{problem}; {remedy}")
    if preset.method == "ring":
        return choose(f"ring at the offset of {around}", **fixed)
    return choose(f"{_number_of(fitting)} around {around}", n_regions=fitting)


def _number_of(n_regions: int | str) -> str:
    return "as many regions as fit" if n_regions == _model.AUTO else f"{n_regions} regions"


def _no_regions(found: Inspection) -> str:
    """Return why On and Off are not defined."""
    missing = [name for name in _regions.SKY_COLUMNS if name not in found.columns]
    partly = f" ({', '.join(missing)} missing)" if len(missing) < len(_regions.SKY_COLUMNS) else ""
    truth = _columns.truth_columns(found.columns)
    why = "On and Off are not defined: the events require"
    if truth or found.is_simulated:
        which = f" ({truth[0]} is the truth)" if truth else ""
        use = "they can train a model with --simulated GAMMAS PROTONS. Observed events require"
        why = f"contains simulated events{which} without On and Off, so no detection is possible; {use}"
    needed = f"theta_deg and theta_deg_off_1 to theta_deg_off_5, or {', '.join(_regions.SKY_COLUMNS)}{partly}"
    return f"{why} the columns {needed}; or pass separate Off files (--off)"


def _observed_object(found: Inspection) -> tuple[SourcePosition | None, str]:
    """Return the observed object according to the files and its origin; or why it is unknown."""
    sample = found.sample
    if "object" not in sample:
        return None, ""
    names = sorted({str(name).strip() for name in sample["object"].dropna().unique()})
    known = {source_of_object(name) for name in names}
    if len(known) > 1:
        return None, f" (the files name several objects: {', '.join(names[:_MAX_NAMED])})"
    position = next(iter(known), None)
    given, columns = None, ["object_ra", "object_dec"]
    if set(columns) <= set(sample):  # the same position in all files
        place = sample[columns].to_numpy(dtype=np.float64)
        if len(place) and np.isfinite(place).all() and (np.ptp(place, axis=0) <= 0.01).all():
            given = SourcePosition(names[0] if names else "", *place[0].tolist())
    if given is not None and position is not None:
        offset, _ = _regions.offset_of_source([position.ra], [position.dec], source_ra=given.ra, source_dec=given.dec)
        given = given if offset[0] > _MAX_OBJECT_DISTANCE else None
    if given is None and position is None:
        return None, f" (the files name {', '.join(names)}, which is not a known source)" if any(names) else ""
    return given or position, ", named in the files"


def _count_reflected(offsets: FloatArray, preset: Preset) -> int | str:
    """Return the number of regions that fit around a pointing without overlap, limited by the preset; 0 for none."""
    if not len(offsets):
        return preset.n_regions
    ratio = math.sqrt(preset.theta_squared_cut) / max(float(offsets.max()), 1e-9)
    if preset.n_regions == _model.AUTO and ratio * (1 + _regions.FREE_RADII / 2) <= 1:
        return _model.AUTO
    n_fitting = 0 if ratio >= 1 else int(math.pi / math.asin(ratio))
    return min(2 if preset.n_regions == _model.AUTO else int(preset.n_regions), n_fitting) if n_fitting > 1 else 0


SOURCE_ANGLE = "source_angle"  # feature for intervals: distance of events from the source in deg
GROUP_COLUMNS = ("night", "obs_id", "run_id", "run_number", "run")  # columns that may define groups, by preference
_MAX_NAMED = 6
_LINE = 40  # characters of a line for names of features
Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True, eq=False)
class Proposal:
    """A configuration proposed from the content of files."""

    config: AnalysisConfig | None
    regions: RegionConfig
    preset: str
    format: str
    telescope: str | None
    n_files: int
    reasons: Mapping[str, str]
    references: tuple[str, ...]
    energy: str | None
    on_off: str
    grouping: str
    obstacle: str | None = None
    usual: bool = False
    name: str = field(default="", repr=False)

    @property
    def kind(self) -> str:
        """Short description of the files."""
        where = f" of {self.telescope}" if self.telescope else ""
        number = f"{self.n_files:,} files, " if self.n_files > 1 else ""
        return f"{number}{self.format}{where}, preset: {self.preset}"

    def with_features_of(self, other: AnalysisConfig) -> AnalysisConfig:
        """Return the features and cuts of another configuration, with the groups and regions of the files."""
        groups = other.groups if self.config is None else self.config.groups
        return other.without_references().model_copy(update={"groups": groups, "regions": self.regions})

    def describe(self) -> str:
        """Return the assumptions: files, features, and the definition of On and Off."""
        others = f"; {len(self.reasons)} other column{' is' if len(self.reasons) == 1 else 's are'} not used"
        found = f"No features among {len(self.reasons)} columns"
        if self.config is not None:
            found = f"Features: {_shortened(self.config.features)}{others if self.reasons else ''}"
        return f"{self.kind}\n{found}\nOn and Off: {self.on_off}; groups: {self.grouping}"

    def describe_rejected(self) -> str:
        """Return the columns that are not features, by reason."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.reasons.items():
            by_reason.setdefault(reason, []).append(name)
        lines = [f"  {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
        title = "Columns not used as features; --features accepts any except positions, times and labels:"
        return "\n".join([title, *lines]) if lines else ""

    def no_features(self) -> str:
        """Explain why no column can be a feature, and what is possible without features."""
        why = "; ".join(f"{name}: {reason}" for name, reason in list(self.reasons.items())[:_MAX_NAMED])
        more = f"; and {len(self.reasons) - _MAX_NAMED} more" if len(self.reasons) > _MAX_NAMED else ""
        return f"{self.name}: no column can be used as a feature ({why}{more}); only counts without a cut are available"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        plain = {name: getattr(self, name) for name in ("preset", "format", "telescope", "n_files")}
        plain["config"] = None if self.config is None else self.config.model_dump(mode="json")
        plain |= {"not_features": dict(self.reasons), "references": list(self.references), "energy": self.energy}
        return plain | {"on_off": self.on_off, "groups": self.grouping, "obstacle": self.obstacle}

    def to_yaml(self) -> str:
        """Return the configuration as YAML with comments, as read by `load_config`."""
        if self.config is None:
            raise ValueError(self.no_features())
        settings = yaml.safe_load(self.config.to_yaml())
        settings["regions"] = {key: value for key, value in settings["regions"].items() if value is not None}
        about = "Configuration of an analysis, proposed from the content of the files. Edit as needed."
        lines = [*_comment(about), *_comment(f"Files: {self.kind}")]
        if self.energy is not None:
            lines += _comment(f"Reconstructed energy: {self.energy}; for thresholds by energy: --bins {self.energy}:4")
        if self.obstacle is not None:
            lines += _comment(f"No detection yet: {self.obstacle}")
        here = {"groups": f" Here: {self.grouping}."}
        here["regions"] = f" Here: {self.on_off}. A source can be set by name: 'source: Crab'."
        for key, value in settings.items():
            lines += ["", *_comment((AnalysisConfig.model_fields[key].description or "") + here.get(key, ""))]
            lines += yaml.safe_dump({key: value}, sort_keys=False, allow_unicode=True).rstrip("\n").split("\n")
            if key == "features":
                lines += self._about_others()
        return "\n".join([*lines, ""])

    def _about_others(self) -> list[str]:
        lines = _comment("Columns not used as features:") if self.reasons else []
        for name, reason in self.reasons.items():
            lines += _comment(f"{name}: {reason}", "#   ")
        if self.references:
            names = ", ".join(self.references)
            lines += _comment(f"Scores of other classifiers, possible references of the model hybrid: {names}")
            lines += _comment(f"excess detect FILES --reference {self.references[0]} -o FOLDER", "#   ")
        return lines


def propose_config(
    events: pd.DataFrame | Paths,
    *,
    join: Paths | None = None,
    off: Paths | None = None,
    source: Source = None,
    features: Sequence[str] = (),
    exclude: Sequence[str] = (),
    groups: str | None = None,
    regions: Mapping[str, Any] | None = None,
) -> Proposal:
    """Propose the configuration of an analysis from the columns of event files and a sample of their events.

    For files with the columns of FACT's open Crab analysis, the proposal is that analysis.

    Parameters
    ----------
    events : path, sequence of paths, or DataFrame
        Event files of one format, or a table of events.
    join, off : path, sequence of paths or None, default=None
        Files to join event by event, and files of Off events, as for `OnOffDataset.from_files`.
    source : str, tuple of float or None, default=None
        Name of a known source, or its position in deg; by default the observed object named in the files.
    features, exclude : sequence of str, default=()
        Features to use, and columns to exclude: names, or patterns such as ``"hillas_*"``.
    groups : str or None, default=None
        Column of the groups; by default nights or runs, if the files contain several.
    regions : mapping of str to object or None, default=None
        Settings by the keys of `RegionConfig`, such as ``{"method": "ring"}``; other settings are proposed.

    Returns
    -------
    Proposal
        The configuration, with reasons.

    Examples
    --------
    >>> from excess.dataset import propose_config, simulate_observation
    >>> events = simulate_observation(1_000, 10, random_state=0).drop(columns="size")
    >>> proposal = propose_config(events, exclude=["photoncharge*"])
    >>> len(proposal.config.features), proposal.reasons["theta_deg"]
    (18, 'it is the distance to the source or to an Off region')
    """
    found = inspect_events(events, join, off)
    preset = find_preset(found)
    chosen_regions, on_off, obstacle = choose_regions(found, preset, source, separate=off is not None, given=regions)
    derived, intervals, own = _derived(preset, found), chosen_regions.intervals, None
    if intervals is not None:
        own = _regions.choose_method(found.columns, chosen_regions)[1][0]
        groups = _model.NO_GROUPS if groups is None else groups
        if chosen_regions.source_ra is not None and {"ra", "dec"} <= set(found.columns):
            # On and Off share the sky, so the distance to the source is a feature like any other
            place = f"{chosen_regions.source_ra!r}, {chosen_regions.source_dec!r}"
            derived = {**derived, SOURCE_ANGLE: f"separation(ra, dec, {place})"}
    chosen, reasons = _features(found, preset, derived, features, exclude, own)
    column, grouping = _groups(found, groups)
    config, usual = None, False
    if chosen:
        settings = {"derived_features": derived, "quality_cuts": _cuts(preset, found, derived), "groups": column}
        config = _model.make_config(features=tuple(chosen), **settings, regions=chosen_regions)
        usual = preset.fixed and obstacle is None and not regions and config == AnalysisConfig(regions=chosen_regions)
    references = tuple(name for name in found.columns if _columns.is_classifier_output(name))
    about: dict[str, Any] = {"format": found.format, "telescope": found.telescope, "n_files": len(found.paths)}
    about |= {"references": references, "energy": _columns.energy_column(found.columns), "name": found.name}
    about |= {"reasons": reasons, "on_off": on_off, "grouping": grouping, "obstacle": obstacle, "usual": usual}
    return Proposal(config, chosen_regions, preset.name, **about)


def _features(
    found: Inspection,
    preset: Preset,
    known: Mapping[str, str],
    wanted: Sequence[str],
    unwanted: Sequence[str],
    interval: str | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Return the features, and the reasons to exclude other columns."""
    usual = [name for name in found.columns if preset.prefers(name)]
    if preset.fixed:
        reasons = {name: reason for name in found.columns if (reason := _columns.reason_by_name(name))}
    else:
        reasons = _columns.reasons_against(found.columns, *found.sampled, usual)
        reasons |= dict.fromkeys(found.only_in_some, "it is missing in some of the files")
    reasons |= {} if interval is None else {interval: "On and Off are intervals of it"}
    if interval is not None and wanted:  # On and Off share the source; the interval's column is an error elsewhere
        reasons = {name: "" if name == interval or "the distance" in why else why for name, why in reasons.items()}
    allowed = [name for name in found.columns if name not in reasons]
    derived = list(known)
    why = f"it is not among the usual features of {preset.name} files"
    if wanted:
        chosen = _columns.choose_features(wanted, [*found.columns, *derived], reasons)
        why = "it is not among the requested features"
    elif preset.fixed:
        chosen, why = list(preset.features), "it is not among the features of FACT's open Crab analysis"
    else:
        preferred = [name for name in allowed if name in usual]
        chosen = preferred or allowed
        chosen = [*chosen, *(name for name in derived if name not in chosen and (preferred or name == SOURCE_ANGLE))]
    if unwanted:
        chosen = _columns.exclude_features(unwanted, chosen, found.columns)
    left = {name: reasons.get(name) or why for name in found.columns if name not in chosen}
    if unwanted:
        kept = _columns.exclude_features(unwanted, allowed, found.columns) if len(allowed) > len(chosen) else chosen
        left |= {name: "it was excluded" for name in allowed if name not in kept and name not in chosen}
    return chosen, left | {name: reasons[name] for name in found.only_in_some if name in reasons}


def _derived(preset: Preset, found: Inspection) -> dict[str, str]:
    """Return the derived features of a preset whose columns are available."""
    derived = preset.derived_features
    inputs = _columns.inputs_of_derived(derived)
    return {name: derived[name] for name in derived if all(one in (*found.columns, *derived) for one in inputs[name])}


def _cuts(preset: Preset, found: Inspection, derived: Mapping[str, str]) -> tuple[str, ...]:
    """Return the quality cuts of a preset whose columns are available and that keep some events."""
    needs = {cut: set(_columns.names_in(cut)) for cut in preset.quality_cuts}
    known = [cut for cut in needs if needs[cut] <= {*found.columns, *derived}]
    if preset.fixed or len(found.sample) == 0:
        return tuple(known)
    # a cut may use other units, or an event type another number
    computed = {cut for cut in known if not needs[cut] <= set(found.columns)}
    return tuple(cut for cut in known if cut in computed or _columns.evaluate(cut, found.sample).any())


def _groups(found: Inspection, asked: str | None) -> tuple[str, str]:
    """Return the column of the groups, and its description."""
    if asked is not None:
        return asked, "no groups" if asked == _model.NO_GROUPS else asked
    there = [name for name in GROUP_COLUMNS if name in found.columns]
    for name in there:
        if (name == "night" and find_preset(found).fixed) or found.varies(name):
            return name, name  # as always for FACT, even for one night
    why = f"all events have the same {there[0]}" if there else "there is no column of nights or runs"
    return _model.NO_GROUPS, f"none, because {why}"


def _shortened(names: Sequence[str]) -> str:
    """Return as many names as fit into a line."""
    n_shown = max(sum(len(", ".join(names[: number + 1])) < _LINE for number in range(len(names))), 1)
    more = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return ", ".join(names[:n_shown]) + more


def _comment(text: str, prefix: str = "# ") -> list[str]:
    """Return a text as comment lines; unprintable characters, line breaks in particular, are escaped."""
    plain = "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
    whole_words: Any = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(plain, 110, initial_indent=prefix, subsequent_indent=f"{prefix}  ", **whole_words)


logger = logging.getLogger("excess.dataset")
_PEEK_ROWS = 100  # rows of a table used to check whether its times have an absolute origin
Config = AnalysisConfig | str | PathLike[str] | None


def settle_config(
    events: Any,
    config: Config = None,
    *,
    off: Any = None,
    join: Any = None,
    references: Sequence[str] = (),
    bins: BinConfig | str | None = None,
    groups: str | None = None,
    **choice: Any,
) -> AnalysisConfig:
    """Return the configuration of an observation: the given one, or a proposal."""
    if config is None:
        proposal = propose_config(events, off=off, join=join, **choice)
        settings = config_of(proposal)
        if not proposal.usual:
            logger.info("no configuration given; assuming: %s", proposal.describe())
    else:
        settings = config if isinstance(config, AnalysisConfig) else _model.load_config(config)
        features, exclude = choice.get("features"), choice.get("exclude")
        if features or exclude:
            settings = _model.with_choice(settings, features or (), exclude or (), _columns_of(events, join))
        if groups is None:
            settings = _with_default_groups(settings, events, join)
    regions = choice.get("regions") or {}
    _regions.check_regions(regions, separate=off is not None)
    settings = as_config(settings, choice.get("source"), references, bins, regions)
    if config is None or not settings.regions.rad_max or isinstance(events, pd.DataFrame):
        return settings
    largest = {"theta_squared_cut": _regions.largest_rad_max(as_input(events))}
    return settings.model_copy(update={"regions": settings.regions.model_copy(update=largest)})


def settle_configs(
    entries: Mapping[str, ObservationEntry], config: Config = None, *, references: Sequence[str] = (), **choice: Any
) -> dict[str, AnalysisConfig]:
    """Return the configuration of several observations: common features and cuts, and individual regions."""
    if config is not None:
        events, _, join = _files_of(entries)
        shared = settle_config(events, config, join=join, references=references, **choice)
        return {name: entry.settings(shared) for name, entry in entries.items()}
    regions = {}
    for name, entry in entries.items():
        given = entry.regions.get("source")
        source = given if isinstance(given, str) else None
        with prefix_errors(name):
            regions[name] = propose_config(entry.events, off=entry.off, join=entry.join, source=source).regions
    shared = as_config(config_of(propose_for_list(entries, **choice)), references=references)
    return {name: one.settings(shared.model_copy(update={"regions": regions[name]})) for name, one in entries.items()}


def propose_for_list(entries: Mapping[str, ObservationEntry], **choice: Any) -> Proposal:
    """Propose common features, cuts and groups for several observations; each has its own regions."""
    events, off, join = _files_of(entries)
    found = propose_config(events, off=off or None, join=join or None, **choice)
    return replace(found, on_off="by the regions of each observation", obstacle=None)


def _files_of(entries: Mapping[str, ObservationEntry]) -> list[list[Path]]:
    """Return the files of events, of Off events and to join, of all observations."""
    kinds = ("events", "off", "join")
    return [[Path(path) for entry in entries.values() for path in getattr(entry, kind) or ()] for kind in kinds]


def config_of(proposal: Proposal) -> AnalysisConfig:
    """Return the configuration of a proposal; raise EventFileError with the reason if no detection is possible."""
    if proposal.obstacle is not None:
        raise EventFileError(proposal.obstacle)
    if proposal.config is None:
        raise EventFileError(proposal.no_features())
    return proposal.config


def as_config(
    config: Config,
    source: Source = None,
    references: Sequence[str] = (),
    bins: BinConfig | str | None = None,
    regions: Mapping[str, Any] | None = None,
) -> AnalysisConfig:
    """Return a configuration, loaded if it is a path, with references, bins, regions and the source if given."""
    settings = config if isinstance(config, AnalysisConfig) else _model.load_config(config)
    if regions:
        settings = settings.model_copy(update={"regions": _regions.change_regions(settings.regions, regions)})
    with _model.convert_errors("references", f"cannot be {', '.join(references)}: "):
        settings = settings.with_references(references)
    with _model.convert_errors("bins"):
        settings = settings.with_bins(BinConfig.parse(bins) if isinstance(bins, str) else bins)
    if source is None:
        return settings
    return settings.with_source(*(find_source(source)[1:] if isinstance(source, str) else source))


def _with_default_groups(
    config: AnalysisConfig, events: pd.DataFrame | Sequence[Path], join: Sequence[Path] | None
) -> AnalysisConfig:
    """Complete a configuration without groups by those of the events: nights, else runs."""
    if "groups" in config.model_fields_set:
        return config
    if config.regions.intervals is not None:
        return config.model_copy(update={"groups": _model.NO_GROUPS})
    present = _columns_of(events, join)
    found = next((name for name in (config.groups, "obs_id", "run_id") if name in present), config.groups)
    return config if found == config.groups else config.model_copy(update={"groups": found})


def _columns_of(events: pd.DataFrame | Sequence[Path], join: Sequence[Path] | None) -> list[str]:
    """Return the columns of a table, or of the first file."""
    if not isinstance(events, Sequence):
        return list(map(str, add_night(events.head(_PEEK_ROWS)).columns))
    first = [list_columns(paths[0]) for paths in (events, join or ()) if paths]
    return list(dict.fromkeys(name for columns in first for name in columns))


def check_input(
    events: Any, *, off: Any = None, alpha: float | Mapping[Any, float] | None = None, join: Any = None
) -> dict[str, tuple[Path, ...]]:
    """Raise an error for events and options that cannot be combined, before reading."""
    if off is None and alpha is not None:
        raise ArgumentError("alpha", "requires `off`; with regions, their number defines alpha")
    if off is not None and join is not None:
        raise ArgumentError("join", "cannot be combined with `off`")
    if isinstance(events, pd.DataFrame):
        for argument, given in (("off", off), ("join", join)):
            if given is not None:
                raise ArgumentError(argument, "requires files, not a table")
        return {}
    kinds = {"events": events, "joined events": join, "Off events": off}
    files = {kind: as_input(paths) for kind, paths in kinds.items() if paths is not None}
    own = "On events" if "Off events" in files else "events"
    seen: dict[Path, str] = {}
    for kind, path in ((own if kind == "events" else kind, path) for kind, paths in files.items() for path in paths):
        known, seen[path.resolve()] = seen.get(path.resolve()), kind
        if known is not None:
            what = f"for {known} and for {kind}, so its events would be compared with themselves"
            what = f"twice for {kind}, so its events would be counted twice" if known == kind else what
            raise EventFileError(f"{path}: is given {what}; pass every file once")
    if join is None:
        check_one_telescope([path for paths in files.values() for path in paths])
    return files
