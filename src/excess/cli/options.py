"""Options that several commands share, as groups: a command takes a group, its help shows the options in a panel."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from excess._core.errors import ArgumentError
from excess._core.interrupts import exit_at_interrupts

EVENTS = "Events"
REFERENCES = "References"
VALIDATION = "Validation"

_LARGEST_SEED = 2**31 - 1


def _check_seed(seed: int) -> int:
    if not 0 <= seed <= _LARGEST_SEED:
        raise typer.BadParameter(f"must be from 0 to {_LARGEST_SEED}, got {seed}")
    return seed


# a range of typer's own would take half of the help's width
Seed = Annotated[int, typer.Option(help="Seed of everything random.", callback=_check_seed)]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, and no progress.")]

Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace what is there at the output; never what is given as input.")
]


def _check_jobs(jobs: int) -> int:
    if jobs == 0:
        raise typer.BadParameter("must not be 0; -1 is all cores")
    return jobs


Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Cores; -1 is all of them.", callback=_check_jobs)]
Files = Annotated[list[Path], typer.Argument(help="Event files: FACT or ctapipe HDF5, FITS, Parquet or CSV.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="YAML file with features, cuts and regions; by default what the content of the files suggests.",
        rich_help_panel=EVENTS,
    ),
]
ChunkRows = Annotated[
    int | None,
    typer.Option(
        help="Train a forest on more events than fit into memory, reading so many at a time; without --join and "
        "--off, and without looking for events that are in two files.",
        min=1,
    ),
]


def _dask_address(more: str = "") -> Any:
    return typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Use the workers of the Dask scheduler at this address, such as tcp://host:8786. They must see the "
        f"files under the same names.{more}",
    )


DaskAddress = Annotated[str | None, _dask_address()]
TrainingDaskAddress = Annotated[str | None, _dask_address(" Models to train: as with --chunk-rows.")]


def one_of(choices: tuple[str, ...]) -> Callable[[str | None], str | None]:
    """Return a callback that refuses any other value than these."""

    def check(value: str | None) -> str | None:
        if value is not None and value not in choices:
            raise typer.BadParameter(f"must be {', '.join(choices[:-1])} or {choices[-1]}, got {value!r}")
        return value

    return check


def _within(low: float, high: float) -> Callable[[float | None], float | None]:
    """Return a callback that refuses numbers outside of a range; one of typer's own would take much of the help."""

    def check(value: float | None) -> float | None:
        if value is not None and not low <= value <= high:
            raise typer.BadParameter(f"must be from {low} to {high} deg, got {value:g}")
        return value

    return check


def _check_alpha(alpha: float | None) -> float | None:
    if alpha is not None and not 0 < alpha < math.inf:
        raise typer.BadParameter(f"must be positive and finite, got {alpha:g}")
    return alpha


FilesOrList = Annotated[
    list[Path],
    typer.Argument(
        help="Event files: FACT or ctapipe HDF5, FITS, Parquet or CSV; or one YAML file that lists several "
        "observations and the files of each."
    ),
]


Source = Annotated[
    str | None,
    typer.Option(
        help='The source, for sky positions: a name such as Crab or "Mrk 421", or its position "RA DEC" in deg.',
        metavar="NAME|RA DEC",
        rich_help_panel=EVENTS,
    ),
]
METHODS = ("reflected", "ring", "same-declination", "angles")


def _check_method(method: str | None) -> str | None:
    # a configuration writes same_declination
    return one_of(METHODS)(None if method is None else method.lower().replace("_", "-"))


def _check_exclusions(given: list[str] | None) -> list[str]:
    if given:
        with exit_at_interrupts():
            from excess.analysis import check_exclusion
        try:
            for text in given:
                check_exclusion(text)
        except ArgumentError as error:
            raise typer.BadParameter(error.problem) from error
    return given or []  # typer 0.16 asks for the length


RegionMethod = Annotated[
    str | None,
    typer.Option(
        "--regions",
        help="Where Off is: reflected, ring or same-declination, from sky positions, or angles, by the columns of "
        "angles in the files; in the place of what the configuration says.",
        metavar="METHOD",
        callback=_check_method,
        rich_help_panel=EVENTS,
    ),
]
Exclusions = Annotated[
    list[str] | None,
    typer.Option(
        "--exclusion",
        help='No Off region there: "RA DEC RADIUS" in deg, or the name of a known source and a radius, such as '
        '"Crab 0.3". May be given several times; in the place of those of the configuration.',
        metavar="PLACE RADIUS",
        callback=_check_exclusions,
        rich_help_panel=EVENTS,
    ),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        help="Features to learn from: columns, or patterns such as 'hillas_*', with commas between them. May be given "
        "several times.",
        metavar="COLUMNS",
        rich_help_panel=EVENTS,
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns or patterns that are not to be features. May be given several times.",
        metavar="COLUMNS",
        rich_help_panel=EVENTS,
    ),
]


def region_settings(method: str | None, exclusion: list[str] | None, match: str | None = None) -> dict[str, Any]:
    """Return the settings of regions that are given, by the keys of a configuration."""
    found = {"method": method and method.replace("-", "_"), "exclusion": exclusion, "match": match}
    return {key: value for key, value in found.items() if value}


@dataclass(frozen=True)
class InputOptions:
    """Which events, and what of them is of interest."""

    files: Files
    features: Features = None
    exclude: Exclude = None
    groups: Annotated[
        str | None,
        typer.Option(
            help="Column that must not be split, such as night; 'none' for no groups.", rich_help_panel=EVENTS
        ),
    ] = None
    join: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files to join event by event, such as DL3 files beside DL2 files; all files up to the next option.",
            metavar="FILES...",
            rich_help_panel=EVENTS,
        ),
    ] = None
    off: Annotated[
        list[Path] | None,
        typer.Option(
            help="Files of Off events, where FILES hold On events alone; all files up to the next option.",
            metavar="FILES...",
            rich_help_panel=EVENTS,
        ),
    ] = None
    source: Source = None
    source_ra: Annotated[
        float | None,
        typer.Option(
            help="Right ascension of the source in deg, in the place of --source.",
            callback=_within(0, 360),
            rich_help_panel=EVENTS,
        ),
    ] = None
    source_dec: Annotated[
        float | None,
        typer.Option(
            help="Declination of the source in deg, in the place of --source.",
            callback=_within(-90, 90),
            rich_help_panel=EVENTS,
        ),
    ] = None
    method: RegionMethod = None
    exclusion: Exclusions = None
    match: Annotated[
        str | None,
        typer.Option(
            help="Which runs of FILES and of --off are compared: zenith, those of the nearest zenith distance; time, "
            "those nearest in time; none, all with all.",
            metavar="METHOD",
            callback=one_of(("zenith", "time", "none")),
            rich_help_panel=EVENTS,
        ),
    ] = None

    @property
    def position(self) -> str | tuple[float, float] | None:
        """The source by name or position, if it is given."""
        if (self.source_ra is None) != (self.source_dec is None):
            raise typer.BadParameter("go together", param_hint="--source-ra and --source-dec")
        if self.source_ra is None or self.source_dec is None:
            return self.source
        if self.source is not None:
            raise typer.BadParameter("does not go with --source-ra and --source-dec", param_hint="--source")
        return self.source_ra, self.source_dec

    @property
    def regions(self) -> dict[str, Any]:
        """Settings of the regions that are given by options, by the keys of a configuration."""
        return region_settings(self.method, self.exclusion, self.match)

    @property
    def lists_observations(self) -> bool:
        """Whether the only file is a list of observations, in YAML."""
        lists = [path for path in self.files if path.suffix.lower() in (".yaml", ".yml")]
        if lists and len(self.files) > 1:
            raise typer.BadParameter(f"{lists[0]} lists observations; give it alone", param_hint="FILES")
        return bool(lists)


@dataclass(frozen=True)
class EventOptions(InputOptions):
    """Which events, and how On and Off are told apart."""

    files: FilesOrList
    config: Config = None
    alpha: Annotated[
        float | None,
        typer.Option(
            help="Exposure ratio On/Off, with --off; by default the ratio of live times, if files have them.",
            callback=_check_alpha,
            rich_help_panel=EVENTS,
        ),
    ] = None
    bins: Annotated[
        str | None,
        typer.Option(
            help="Bins with a threshold and a calibration of their own: a column and the edges between them, such as "
            "energy:1,5, or their number, such as energy:4.",
            metavar="COLUMN:EDGES",
            rich_help_panel=EVENTS,
        ),
    ] = None


@dataclass(frozen=True)
class ValidationOptions:
    """How models are validated."""

    folds: Annotated[
        int | None,
        typer.Option(help="Number of folds; by default one per group.", min=2, rich_help_panel=VALIDATION),
    ] = None
    strategy: Annotated[
        str,
        typer.Option(
            help="pooled, with the forward value beside it; or forward alone: train on earlier groups only.",
            callback=one_of(("pooled", "forward")),
            rich_help_panel=VALIDATION,
        ),
    ] = "pooled"
    statistic: Annotated[
        str,
        typer.Option(
            help="What the verdict follows: likelihood, which uses every event by how signal-like it is; or cut, which "
            "counts selected events. Declare it before you look; the other stands beside it.",
            callback=one_of(("likelihood", "cut")),
            rich_help_panel=VALIDATION,
        ),
    ] = "likelihood"
    repeats: Annotated[int, typer.Option(help="Repeat with other seeds.", min=1, rich_help_panel=VALIDATION)] = 1
    permutations: Annotated[
        int,
        typer.Option(help="Permute On and Off so often, for a p-value.", min=0, rich_help_panel=VALIDATION),
    ] = 0
    null_test: Annotated[
        bool | None,
        typer.Option(
            "--null-test/--no-null-test",
            help="Search in every Off region, too, with all models; or in none. By default a quick one with the first "
            "model, where there are two Off regions.",
            rich_help_panel=VALIDATION,
        ),
    ] = None


def _check_simulated(paths: tuple[Path, Path] | None) -> tuple[Path, Path] | None:
    # the parser takes the next two words, whatever they are
    if paths is not None and any(str(path).startswith("-") for path in paths):
        raise typer.BadParameter(
            f"needs two files, of simulated gammas and of protons, got {paths[0]} and {paths[1]}",
            param_hint="--simulated",
        )
    return paths


@dataclass(frozen=True)
class ReferenceOptions:
    """What the model hybrid may trust besides the labels."""

    simulated: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Files of simulated gammas and of protons, to train a forest on: a reference of the model hybrid.",
            metavar="GAMMAS PROTONS",
            callback=_check_simulated,
            rich_help_panel=REFERENCES,
        ),
    ] = None
    reference: Annotated[
        list[str] | None,
        typer.Option(
            help="Column of scores, such as the gammaness of another analysis, model file of 'excess train', or ONNX "
            "model: a reference of the model hybrid. May be given several times.",
            metavar="COLUMN|MODEL_FILE",
            rich_help_panel=REFERENCES,
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Whether there is any reference."""
        return self.simulated is not None or bool(self.reference)


@dataclass(frozen=True)
class RunOptions:
    """How a command runs, whatever it does."""

    seed: Seed = 0
    jobs: Jobs = -1
    overwrite: Overwrite = False
    as_json: Json = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take groups of options: each parameter whose type is a dataclass becomes the options in it."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if hasattr(kind, "__dataclass_fields__")}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            default = inspect.Parameter.empty if field.default is field.default_factory else field.default
            parameters.append(
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[field.name]
                )
            )

    @wraps(command)
    def expanded(**given: Any) -> None:
        own = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        command(**own, **given)

    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return expanded
