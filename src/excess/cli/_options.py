"""Options shared by several commands."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from excess._utils.errors import ArgumentError

_LARGEST_SEED = 2**31 - 1
_LARGEST_CUT = 100
METHODS = ("reflected", "ring", "same-declination", "angles")

_HELP = {
    "alpha": "Exposure ratio On/Off, with --off; by default the ratio of live times, if available. With --on, "
    "also width, fit (a smooth density fitted to the Off intervals) or livetime; by default width for phases, livetime "
    "for times, else fit.",
    "alpha_error": "Relative uncertainty of alpha, such as 0.03; also in the configuration.",
    "bins": "Bins with their own threshold and calibration: a column and the edges between them, such as "
    "energy:1,5, or their number, such as energy:4.",
    "chunk_rows": "Train a forest in chunks of this many events, for data larger than memory; not with --join, "
    "--on, --off, --alpha, --bins or references. Duplicate events in different files are not detected.",
    "config": "YAML file with features, cuts and regions; by default proposed from the content of the files.",
    "dask": "Use the workers of the Dask scheduler at this address, such as tcp://host:8786. They need access to the "
    "files under the same paths.",
    "exclude": "Columns or patterns not to be used as features. Repeatable.",
    "exclusion": 'Region without Off: "RA DEC RADIUS" in deg, or the name of a known source and a radius, such as '
    '"Crab 0.3". Repeatable; replaces those of the configuration.',
    "features": "Features: columns, or patterns such as 'hillas_*', separated by commas. Repeatable.",
    "folds": "Number of folds; by default one per group, at most 20.",
    "groups": "Column of groups that are not split, such as night; 'none' for no groups.",
    "join": "Files to join event by event, such as DL3 files for DL2 files; takes all files up to the next option.",
    "match": "Matching of the runs of FILES and --off: zenith (nearest zenith distance), time (nearest in time), or "
    "none (all runs with all).",
    "null_test": "Also search in every Off region, with all models; or skip null tests. By default a quick test with "
    "the first model, if there are at least two Off regions.",
    "off": "Files of Off events, if FILES contain On events; takes all files up to the next option. With --on, the Off "
    'intervals, such as "mass 9:9.25,9.65:9.85".',
    "on": 'Column and On intervals, such as "mass 9.3:9.6" or "PULSE_PHASE 0.15:0.2,0.55:0.65", with the Off '
    "intervals in --off.",
    "overwrite": "Replace existing output; input files are never replaced.",
    "permutations": "Number of permutations of On and Off, for a p-value.",
    "reference": "Reference of the model hybrid: a column of scores, such as the gammaness of another analysis, a "
    "model file of 'excess train', or an ONNX model. Repeatable.",
    "regions": "Off regions: reflected, ring or same-declination, from sky positions; or angles, from the angle "
    "columns of the files. Overrides the configuration.",
    "repeats": "Number of repetitions with other seeds.",
    "simulated": "Files of simulated gammas and of protons, to train references of the model hybrid.",
    "source": 'The source, for sky positions: a name such as Crab or "Mrk 421", or its position "RA DEC" in deg.',
    "source_dec": "Declination of the source in deg, in place of --source.",
    "source_ra": "Right ascension of the source in deg, in place of --source.",
    "statistic": "Statistic of the verdict: likelihood, which weights all events by likelihood ratio, or cut, which "
    "counts selected events. Declare it before the analysis; both are reported.",
    "strategy": "pooled, which also reports the forward value; or forward, which trains on earlier events only.",
    "theta2": "Cut on theta^2, the squared radius of a region, in deg^2; or irf, for RAD_MAX of the instrument "
    "response of FITS files, by energy. Overrides the configuration.",
}
_HELP["training_dask"] = _HELP["dask"] + " Training is limited as with --chunk-rows."


def _option(panel: str | None, name: str, *declared: str, **settings: Any) -> Any:
    """Return an option with its help text, in a panel of the help of a command."""
    return typer.Option(*declared, help=_HELP[name], rich_help_panel=panel, **settings)


_event = partial(_option, "Events")
_reference = partial(_option, "References")
_validation = partial(_option, "Validation")


def _checked(is_valid: Callable[[Any], bool], problem: str) -> Callable[[Any], Any]:
    """Return a callback that rejects other values; ranges of typer would take half of the width of the help."""

    def check(value: Any) -> Any:
        if value is not None and not is_valid(value):
            raise typer.BadParameter(problem.format(value=value))
        return value

    return check


def one_of(choices: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a callback that rejects all other values."""
    problem = f"must be {', '.join(choices[:-1])} or {choices[-1]}, got {{value!r}}"
    return _checked(lambda value: value in choices, problem)


def _within(low: float, high: float, unit: str = "") -> Callable[[Any], Any]:
    return _checked(lambda value: low <= value <= high, f"must be from {low} to {high}{unit}, got {{value:.10g}}")


# not inside the class: typing evaluates its annotations without the names of this module as globals
_INTERVALS = re.compile(r"(\S+\s+)?[-+.\de]+:[-+.\de]+(,[-+.\de]+:[-+.\de]+)*")
_check_alpha = _checked(lambda alpha: 0 < alpha < math.inf, "must be positive and finite, got {value:g}")


def _parse_alpha(text: Any) -> float | str:
    if text in ("width", "fit", "livetime"):
        return str(text)
    try:
        return float(_check_alpha(float(text)))
    except ValueError as error:
        raise typer.BadParameter(f"must be a number, width, fit or livetime, got {text!r}") from error


def _check_method(method: str | None) -> str | None:
    # the configuration key is same_declination
    return one_of(METHODS)(None if method is None else method.lower().replace("_", "-"))


def _check_theta2(given: str | None) -> str | None:
    try:
        is_valid = given in (None, "irf") or 0 < float(given or 0) <= _LARGEST_CUT
    except ValueError:
        is_valid = False
    if not is_valid:
        raise typer.BadParameter(f"must be a number of deg^2 above 0, at most {_LARGEST_CUT}, or irf, got {given!r}")
    return given


def _check_exclusions(given: list[str] | None) -> list[str]:
    if given:
        from excess.analysis import check_exclusion

        try:
            for text in given:
                check_exclusion(text)
        except ArgumentError as error:
            raise typer.BadParameter(error.problem) from error
    return given or []  # typer 0.16 needs the length


Seed = Annotated[int, typer.Option(help="Random seed.", callback=_within(0, _LARGEST_SEED))]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, without progress.")]
Overwrite = Annotated[bool, _option(None, "overwrite", "--overwrite")]
_nonzero = _checked(lambda jobs: jobs != 0, "must not be 0; -1 is all cores")
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Number of cores; -1 uses all.", callback=_nonzero)]
_FORMATS = "Event files: FACT, ctapipe or lstchain HDF5, FITS, Parquet, ROOT or CSV, or folders of them"


def _expand_folders(paths: list[Path]) -> list[Path]:
    if not any(path.is_dir() for path in paths):
        return paths
    from excess.analysis import expand_folders

    return expand_folders(paths)


_OR_LIST = "; or one YAML file that lists several observations and the files of each."
Files = Annotated[list[Path], typer.Argument(help=f"{_FORMATS}.", callback=_expand_folders)]
FilesOrList = Annotated[list[Path], typer.Argument(help=_FORMATS + _OR_LIST, callback=_expand_folders)]
Config = Annotated[Path | None, _event("config", "--config", "-c")]
ChunkRows = Annotated[int | None, _option(None, "chunk_rows", min=1)]
DaskAddress = Annotated[str | None, _option(None, "dask", "--dask", metavar="ADDRESS")]
TrainingDaskAddress = Annotated[str | None, _option(None, "training_dask", "--dask", metavar="ADDRESS")]
Source = Annotated[str | None, _event("source", metavar="NAME|RA DEC")]
RegionMethod = Annotated[str | None, _event("regions", "--regions", metavar="METHOD", callback=_check_method)]
Exclusions = Annotated[
    list[str] | None, _event("exclusion", "--exclusion", metavar="PLACE RADIUS", callback=_check_exclusions)
]
Theta2 = Annotated[str | None, _event("theta2", "--theta2", metavar="CUT|irf", callback=_check_theta2)]


def region_settings(
    method: str | None, exclusion: list[str] | None, match: str | None = None, theta2: str | None = None
) -> dict[str, Any]:
    """Return the given settings of regions by their configuration keys."""
    found = {"method": method and method.replace("-", "_"), "exclusion": exclusion, "match": match}
    size = {} if theta2 is None else {"rad_max": True} if theta2 == "irf" else {"theta_squared_cut": float(theta2)}
    return {key: value for key, value in found.items() if value} | size


@dataclass(frozen=True)
class InputOptions:
    """Options that select events, features and groups."""

    files: Files
    features: Annotated[list[str] | None, _event("features", metavar="COLUMNS")] = None
    exclude: Annotated[list[str] | None, _event("exclude", metavar="COLUMNS")] = None
    groups: Annotated[str | None, _event("groups")] = None
    join: Annotated[list[Path] | None, _event("join", metavar="FILES...")] = None
    on: Annotated[str | None, _event("on", metavar="INTERVALS")] = None
    off: Annotated[list[Path] | None, _event("off", metavar="FILES...|INTERVALS")] = None
    source: Source = None
    source_ra: Annotated[float | None, _event("source_ra", callback=_within(0, 360, " deg"))] = None
    source_dec: Annotated[float | None, _event("source_dec", callback=_within(-90, 90, " deg"))] = None
    method: RegionMethod = None
    exclusion: Exclusions = None
    theta2: Theta2 = None
    match: Annotated[str | None, _event("match", metavar="METHOD", callback=one_of(("zenith", "time", "none")))] = None

    @property
    def position(self) -> str | tuple[float, float] | None:
        """The source by name or position, if given."""
        if (self.source_ra is None) != (self.source_dec is None):
            raise typer.BadParameter("must be given together", param_hint="--source-ra and --source-dec")
        if self.source_ra is None or self.source_dec is None:
            return self.source
        if self.source is not None:
            raise typer.BadParameter("cannot be combined with --source-ra and --source-dec", param_hint="--source")
        return self.source_ra, self.source_dec

    @property
    def regions(self) -> dict[str, Any]:
        """Settings of the regions given by options, by their configuration keys."""
        found = region_settings(self.method, self.exclusion, self.match, self.theta2)
        if self.on is None:
            if self.off and _INTERVALS.fullmatch(str(self.off[-1])) and not self.off[-1].exists():
                raise typer.BadParameter("has intervals, which require --on", param_hint="--off")
            return found
        from excess.analysis import make_intervals

        off = " ".join(map(str, self.off)) if self.off else None
        return {**found, "intervals": make_intervals(self.on, off, getattr(self, "alpha", None))}

    @property
    def off_files(self) -> list[Path] | None:
        """Files of Off events, if any."""
        return (self.off or None) if self.on is None else None

    @property
    def given_alpha(self) -> float | None:
        """The exposure ratio, unless it is that of intervals."""
        alpha: Any = getattr(self, "alpha", None)
        if self.on is None and isinstance(alpha, str):
            raise typer.BadParameter("must be a number unless --on specifies intervals", param_hint="--alpha")
        return alpha if self.on is None else None

    @property
    def proposal_settings(self) -> dict[str, Any]:
        """Arguments to propose a configuration for the files."""
        columns = {"features": self.features or [], "exclude": self.exclude or []}
        files = {"join": self.join or None, "off": self.off_files}
        return {**files, "source": self.position, **columns, "regions": self.regions}

    @property
    def lists_observations(self) -> bool:
        """Whether the only file is a YAML list of observations."""
        lists = [path for path in self.files if path.suffix.lower() in (".yaml", ".yml")]
        if lists and len(self.files) > 1:
            raise typer.BadParameter(f"{lists[0]} is a list of observations; pass no other files", param_hint="FILES")
        return bool(lists)


@dataclass(frozen=True)
class EventOptions(InputOptions):
    """Options that select events and define On and Off."""

    files: FilesOrList
    config: Config = None
    alpha: Annotated[Any, _event("alpha", metavar="NUMBER|METHOD", parser=_parse_alpha)] = None
    bins: Annotated[str | None, _event("bins", metavar="COLUMN:EDGES")] = None

    def settings_beside(self, config: Any) -> dict[str, Any]:
        """Groups and features given in addition to a configuration; a proposal already includes the features."""
        features, exclude = (self.features, self.exclude) if config is self.config else (None, None)
        return {"groups": self.groups, "features": features or [], "exclude": exclude or []}


@dataclass(frozen=True)
class ValidationOptions:
    """Options of the validation."""

    folds: Annotated[int | None, _validation("folds", min=2)] = None
    strategy: Annotated[str, _validation("strategy", callback=one_of(("pooled", "forward")))] = "pooled"
    statistic: Annotated[str, _validation("statistic", callback=one_of(("likelihood", "cut")))] = "likelihood"
    repeats: Annotated[int, _validation("repeats", min=1)] = 1
    permutations: Annotated[int, _validation("permutations", min=0)] = 0
    alpha_error: Annotated[float | None, _validation("alpha_error", min=0)] = None
    null_test: Annotated[bool | None, _validation("null_test", "--null-test/--no-null-test")] = None


# the parser takes the next two words as files, even if they are options
_check_simulated = _checked(
    lambda paths: not any(str(path).startswith("-") for path in paths),
    "requires two files, of simulated gammas and of protons, got {value[0]} and {value[1]}",
)


@dataclass(frozen=True)
class ReferenceOptions:
    """References of the model hybrid."""

    simulated: Annotated[
        tuple[Path, Path] | None, _reference("simulated", metavar="GAMMAS PROTONS", callback=_check_simulated)
    ] = None
    reference: Annotated[list[str] | None, _reference("reference", metavar="COLUMN|MODEL_FILE")] = None

    @property
    def given(self) -> bool:
        """Whether there are references."""
        return self.simulated is not None or bool(self.reference)


@dataclass(frozen=True)
class RunOptions:
    """Options of the execution of a command."""

    seed: Seed = 0
    jobs: Jobs = -1
    overwrite: Overwrite = False
    as_json: Json = False


_OPTIONS = {"areas": "aeff", "cv": "folds", "executor": "dask", "method": "regions", "model_files": "model-file"}
_OPTIONS |= {"models": "model", "n_events": "events", "n_signal": "signal", "null_tests": "null-test"}
_OPTIONS |= {
    "references": "reference",
    "theta_squared_cut": "theta2",
    "rad_max": "theta2",
}  # named differently in Python


def as_option(argument: str) -> str:
    """Return the option of an argument; repeatable options are singular on the command line."""
    return "--" + _OPTIONS.get(argument, argument).replace("_", "-")
