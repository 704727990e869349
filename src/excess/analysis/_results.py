"""Results of an analysis: a run, and its folder with one JSON file and the events in Parquet."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from excess._utils import files as on_disk
from excess._utils.checks import check_regular_file
from excess._utils.errors import ArgumentError, EventFileError
from excess._utils.version import versions
from excess.analysis._apply import FOLD_MODELS, Applied, FoldModels, apply, is_of_events
from excess.config._sources import KNOWN_SOURCES
from excess.dataset._build import seconds_of
from excess.dataset._dataset import OnOffDataset
from excess.dataset._regions import theta_columns
from excess.detection._diagnostics import Verdict, WarningSign, assess_models, best_model
from excess.detection._histograms import FeatureHistogram, SkyMap
from excess.detection._null_test import NullTest
from excess.detection._result import (
    Detection,
    DetectionBins,
    Exposure,
    Fold,
    Nearby,
    Outcome,
    QuotedSignificance,
    describe_limits,
    models_table,
    quoted_limits,
    quoted_significance,
)
from excess.detection._simulation_check import SimulationAgreement
from excess.estimators._binned import TunedBin
from excess.io._fits import pointing_zenith, write_sky_map
from excess.io._reading import describe, recognise
from excess.report._page import write_plots, write_report
from excess.stats._direction import PointSpread
from excess.stats._significance import BestOf, OnOffCounts

_EVENTS, _NEARBY, _RESULT = "events.parquet", "nearby.parquet", "result.json"
_SKY = "sky_map.fits"
# in the order of writing; the last marks a finished run
RUN_FILES = ("config.yaml", "events.parquet", "nearby.parquet", FOLD_MODELS, _SKY, "report.html", "result.json")
_FORMAT = 1  # version of the run folder
_SAME_PLACE = 0.02  # deg
_FIRST_DATE = 3e8  # Unix time; smaller values are relative to an unknown origin
_OF_MODEL = ("fold", "score", "selected", "ratio")  # columns of events for each model, prefixed by its name


def check_run_folder(
    folder: str | PathLike[str], inputs: Iterable[str | PathLike[str]] = (), *, overwrite: bool = False
) -> None:
    """Raise EventFileError if a run would replace another run, an input, or unrelated files in a folder."""
    target = Path(folder)
    outputs = [target / name for name in RUN_FILES]
    on_disk.check_outputs(outputs, inputs, overwrite=True)
    if not overwrite and _is_finished(target):
        raise EventFileError(f"{target}: contains a finished run; choose another folder, {on_disk.OR_OVERWRITE}")
    on_disk.check_outputs(outputs, overwrite=overwrite)


def _is_finished(folder: Path) -> bool:
    if not (folder / RUN_FILES[-1]).is_file():
        return False
    try:
        return "models" in json.loads((folder / RUN_FILES[-1]).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


@contextmanager
def claim_run_folder(
    folder: str | PathLike[str], inputs: Iterable[str | PathLike[str]] = (), *, overwrite: bool = False
) -> Iterator[Path]:
    """Lock a folder for the results of one run, from its start until they are written."""
    target, given = Path(folder), list(inputs)
    check_run_folder(target, given, overwrite=True)
    with on_disk.made_folder(target), on_disk.locked(target):
        on_disk.undo_unfinished(target, RUN_FILES)
        check_run_folder(target, given, overwrite=overwrite)
        yield target


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """Result of an analysis.

    Attributes
    ----------
    detections : mapping of str to Detection
        Result of each model; the verdict refers to the first one.
    forward : mapping of str to Outcome
        Both statistics of hold-out events by models trained on earlier events only, in addition to the pooled ones.
    null_tests : mapping of str to NullTest
        Null tests by model.
    no_forward : str
        Reason for missing forward values.
    observed : dict
        Numbers of read, rejected and selected events.
    record : dict
        Title, command, seed, options, files with checksums, and versions.
    config : str
        Configuration as YAML.
    events : DataFrame
        One row per event: its identifiers, angles, region and group.
    simulation : SimulationAgreement or None
        Differences between simulated and observed events, if a simulation was given.
    fold_models : FoldModels or None
        Models of the folds of the first model, if `detect` was called with ``keep_models=True``.
    """

    detections: Mapping[str, Detection]
    forward: Mapping[str, Outcome]
    null_tests: Mapping[str, NullTest]
    no_forward: str
    observed: dict[str, Any]
    record: dict[str, Any]
    config: str
    events: pd.DataFrame
    simulation: SimulationAgreement | None = None
    fold_models: FoldModels | None = None

    @property
    def alpha(self) -> float:
        """Exposure ratio On/Off."""
        return float(self.observed["alpha"])

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """Verdict on each model, with its forward value and the null tests; the first is that of the run."""
        return assess_models(self.detections, self.forward, self.null_tests)

    @property
    def verdict(self) -> Verdict:
        """Verdict on the first model, which was chosen beforehand."""
        return next(iter(self.verdicts.values()))

    @property
    def quoted(self) -> QuotedSignificance:
        """Significance to quote for the first model: the forward one in addition to a pooled one, if known."""
        name, first = next(iter(self.detections.items()))
        return quoted_significance(first, self.forward.get(name))

    @property
    def best(self) -> BestOf:
        """Model with the largest significance, and its p-value corrected for the number of models."""
        return best_model(self.detections, self.forward)

    @cached_property
    def limits(self) -> dict[str, Mapping[str, float]]:
        """Limits on the signal by each model, from the forward result if available; see `Detection.limits`."""
        return {name: quoted_limits(found, self.forward.get(name)) for name, found in self.detections.items()}

    @property
    def limit_sentences(self) -> list[str]:
        """Limits of the first model if it detects no source, and an uncertainty of alpha suggested by Off regions."""
        name, first = next(iter(self.detections.items()))
        lines = [] if self.verdict.feasible else describe_limits(self.limits[name], first.required_significance)
        suggested = self.observed.get("suggested_alpha_error")
        if suggested and first.alpha_error is None:
            what = "Off regions, or On and Off far from the centres of their regions, differ significantly"
            lines.append(f"{what}; an error of alpha of {suggested:.2g} accounts for this.")
        return lines

    def models_table(self) -> pd.DataFrame:
        """Return one row per model with its significances, preceded by all events without a cut."""
        return models_table(self.detections, self.forward, self.null_tests)

    def result(self) -> dict[str, Any]:
        """Return all numbers, as printed by ``--json`` and stored in ``result.json``."""
        return {
            "observation": self.observed,
            "models": {name: self._model_result(name) for name in self.detections},
            "best_model": self.best._asdict(),
            "null_tests": {name: test.to_dict() for name, test in self.null_tests.items()},
            "no_forward": self.no_forward,
            "simulation": None if self.simulation is None else self.simulation.to_dict(),
            "run": self.record,
        }

    def _model_result(self, name: str) -> dict[str, Any]:
        found, forward = self.detections[name], self.forward.get(name)
        weights = {
            key: {**own._asdict(), "folds": [(fold.reference_weights or {}).get(key) for fold in found.folds]}
            for key, own in found.reference_weights.items()
        }
        several, radius = len(found.outcomes_by_observation) > 1, found.containment_radius
        return {
            **found.summary(),
            "required_significance": found.required_significance,
            **self.verdicts[name].summary(),
            "limits": self.limits[name],
            "point_spread": radius and dict(zip(("radius", "radius_error"), radius, strict=True)),
            "constancy": None if found.constancy is None else found.constancy._asdict(),
            "forward": None if forward is None else forward.to_dict(),
            "tuned_alpha": [None if fold.tuned is None else fold.tuned.alpha for fold in found.folds],
            "repeats": {name: values.tolist() for name, values in found.repeats.items()},
            "permutations": {name: values.tolist() for name, values in found.permutations.items()},
            "importances": None if found.importances is None else found.importances.tolist(),
            "reference_weights": weights or None,
            "bins": None if found.bins is None else found.bins.to_dict(),
            **({"observations": found.observations_frame().to_dict("index")} if several else {}),
            "tuned_bins": [[tuned._asdict() for tuned in fold.bins] for fold in found.folds],
        }

    def write(self, folder: str | PathLike[str], *, report: bool = False, overwrite: bool = False) -> Path:
        """Write the run into a folder atomically.

        ``result.json`` stores the numbers, versions, seed and checksums, ``config.yaml`` the configuration,
        ``events.parquet`` one row per event with its score, selection and likelihood ratio by each model, and
        ``nearby.parquet`` the events around the regions. ``result.json`` is written last and marks a complete run. With
        ``report=True``, ``report.html`` and ``sky_map.fits`` are also written, and ``fold_models.zip`` if the models
        were kept. ``overwrite=True`` replaces a finished run, or other files of these names; input files of the run are
        never replaced.
        """
        target = on_disk.prepare_folder(Path(folder))
        current = RUN_FILES[-1]
        inputs = [entry["path"] for entry in self.record.get("files", [])]
        with on_disk.locked(target, ".writing.lock", patience=60.0):
            on_disk.undo_unfinished(target, RUN_FILES)
            check_run_folder(target, inputs, overwrite=overwrite)
            try:
                with on_disk.replacing_together(target, RUN_FILES) as temporary:
                    for current, write in self._writers(report).items():
                        write(temporary / current)
            except OSError as error:
                problem = f"cannot be written: {error.strerror or error}; {target} is unchanged"
                raise EventFileError(f"{target / current}: {problem}") from error
        return target

    def _writers(self, report: bool) -> dict[str, Callable[[Path], object]]:
        """Return a function that writes each file of the run, in the order of `RUN_FILES`."""
        nearby = self._nearby_events()
        return {
            "config.yaml": lambda path: on_disk.write_text(path, self.config),
            _EVENTS: lambda path: self._scored_events().to_parquet(path, index=False),
            **({} if nearby is None else {_NEARBY: lambda path: nearby.to_parquet(path, index=False)}),
            **({} if self.fold_models is None else {FOLD_MODELS: self.fold_models.save}),
            **({_SKY: self._write_sky_map} if report else {}),
            **({"report.html": self.report} if report else {}),
            _RESULT: self._write_result,
        }

    def _write_sky_map(self, path: Path) -> None:
        """Write the sky map of the first model as a FITS file with world coordinates: one image per quantity."""
        sky = next(iter(self.detections.values())).sky
        if sky is not None and sky.center is not None and find_spec("astropy") is not None:
            images = {
                f"{events}_{name}".upper(): getattr(layer, name)
                for events, layer in sky.layers.items()
                for name in ("significance", "excess", "counts")
            }
            write_sky_map(path, images, sky.center, float(sky.axis[1] - sky.axis[0]))

    def _write_result(self, path: Path) -> None:
        """Write the numbers, including those used only by the report, and the checksums of all files of the run."""
        own = {
            name: {
                "folds": [_fold_to_dict(fold) for fold in found.folds],
                "features": None if found.features is None else [one.to_dict() for one in found.features],
                "sky": None if found.sky is None else found.sky.to_dict(),
                "remarks": found.remarks,
                "findings": [one._asdict() for one in found.findings],
                "point_spread": None if found.point_spread is None else found.point_spread.numbers,
            }
            for name, found in self.detections.items()
        }
        files = {name: path.with_name(name) for name in ("config.yaml", _EVENTS, _NEARBY, FOLD_MODELS, _SKY)}
        stored = {
            "format": _FORMAT,
            "files": {name: on_disk.sha256_of(file) for name, file in files.items() if file.exists()},
            "models": own,
        }
        content = on_disk.as_json({**self.result(), "store": stored})
        content["checksum"] = _checksum(content)
        on_disk.write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")

    def write_events(
        self, folder: str | PathLike[str], *, overwrite: bool = False, verbose: bool = False
    ) -> dict[Path, Applied]:
        """Write copies of all event files, with each event scored by a model that was not trained on its group.

        Formats and columns are those of `apply`, with the fold of each event in ``excess_fold``; events outside all
        regions are scored as well.
        """
        if self.fold_models is None:
            raise ArgumentError("keep_models", "must be True in `detect` to write events")
        files = [entry["path"] for entry in self.record["files"] if is_of_events(entry["kind"])]
        if not files:
            raise EventFileError(
                "the events of this run are from a table; save them as a file, and pass it to `detect`"
            )
        Path(folder).mkdir(parents=True, exist_ok=True)
        written = apply(self.fold_models, files, folder, overwrite=overwrite, verbose=verbose)
        self.record["options"]["write_events"] = str(Path(folder).resolve())
        return written

    def write_tables(self, folder: str | PathLike[str], *, overwrite: bool = False) -> list[Path]:
        """Write events, groups, folds and, if there are several, observations and bins as CSV files; return them."""
        tables: dict[str, Callable[[], pd.DataFrame]] = {
            "events.csv": self._scored_events,
            "groups.csv": partial(self._stacked, Detection.groups_frame),
            "folds.csv": partial(self._stacked, Detection.folds_frame),
        }
        if any(len(found.outcomes_by_observation) > 1 for found in self.detections.values()):
            tables["observations.csv"] = partial(self._stacked, Detection.observations_frame)
        if all(found.bins is not None for found in self.detections.values()):
            tables["bins.csv"] = partial(self._stacked, Detection.bins_frame)
        inputs = [entry["path"] for entry in self.record.get("files", [])]
        on_disk.check_outputs([Path(folder) / name for name in tables], inputs, overwrite=overwrite)
        target = on_disk.prepare_folder(Path(folder))
        for name, table in tables.items():
            with on_disk.replacing(target / name) as temporary:
                table().to_csv(temporary, index=False)
        return [target / name for name in tables]

    def report(self, path: str | PathLike[str], title: str | None = None) -> Path:
        """Write the report, one HTML file that opens offline, and return its path; see `excess.report.write_report`."""
        own = ("forward", "no_forward", "simulation", "observed", "config", "events")
        known: dict[str, Any] = {name: getattr(self, name) for name in own}
        known |= {"null_test": self.null_tests, "run": self.record, "title": title or self.record["title"]}
        return write_report(self.detections, Path(path), **known)

    def write_plots(self, folder: str | PathLike[str], suffix: str = "pdf") -> list[Path]:
        """Write the plots of all models as files; see `excess.report.write_plots`."""
        tests: dict[str, Any] = {"null_tests": self.null_tests, "simulation": self.simulation}
        return write_plots(self.detections, Path(folder), suffix, **tests)

    def _scored_events(self) -> pd.DataFrame:
        table = self.events.copy()
        folds = [found.fold for found in self.detections.values()]
        shared = all(np.array_equal(fold, folds[0]) for fold in folds)
        if shared:
            table["fold"] = folds[0]
        # all models use the same events
        alphas = [found.event_alpha for found in self.detections.values() if found.event_alpha is not None]
        if alphas:
            table["alpha"] = alphas[0]
        for name, found in self.detections.items():
            for column in _OF_MODEL[shared:]:
                if getattr(found, column) is not None:
                    table[f"{name}_{column}"] = getattr(found, column)
        return table

    def _nearby_events(self) -> pd.DataFrame | None:
        """Return angles of nearby events, and scores and selection by each model; None without nearby events."""
        known = {name: found.nearby for name, found in self.detections.items() if found.nearby is not None}
        theta = next((nearby.theta for nearby in known.values() if nearby.theta is not None), None)
        if theta is None:
            return None
        columns = dict(zip(theta_columns(theta.shape[1]), theta.T, strict=True))
        for name, nearby in known.items():
            columns |= {f"{name}_score": nearby.score, f"{name}_selected": nearby.selected}
        return pd.DataFrame(columns)

    def _stacked(self, frame: Callable[[Detection], pd.DataFrame]) -> pd.DataFrame:
        frames = {name: frame(found) for name, found in self.detections.items()}
        return pd.concat(frames, names=["model"]).reset_index()


def read_run(folder: str | PathLike[str]) -> Run:
    """Read a run written by `Run.write`, `excess detect` or `excess demo`.

    Parameters
    ----------
    folder : path
        The output folder of the run.

    Returns
    -------
    Run
        The run, for reports and plots.

    Raises
    ------
    EventFileError
        If the folder contains no finished run, or a checksum shows that its files were changed.
    """
    folder = Path(folder)
    if not (folder / _RESULT).is_file():
        needed = "pass the output folder of 'excess detect' or 'excess demo'"
        raise EventFileError(f"{folder}: is not the folder of a finished run: no result.json; {needed}")
    for name in RUN_FILES:
        if (folder / name).exists():
            check_regular_file(folder / name)
    try:
        return _read(folder)
    except Exception as error:  # libraries raise exceptions of many types for damaged files
        problem = f"its files cannot be read as those of one run ({type(error).__name__}: {error})"
        raise EventFileError(
            f"{folder}: {problem}; they were changed, or written by another version; run the analysis again"
        ) from error


def report(
    folder: str | PathLike[str],
    output: str | PathLike[str] | None = None,
    *,
    title: str | None = None,
    plots: str | None = None,
    tables: str | PathLike[str] | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write the report of a finished run again, its plots and its tables; return the files."""
    run = read_run(folder)
    target = Path(folder, "report.html") if output is None else Path(output)
    inputs = [Path(folder) / name for name in RUN_FILES if name != "report.html"]
    is_report = partial(on_disk.has_mark, mark=b'<meta name="generator" content="excess">', n_bytes=2_000)
    on_disk.check_outputs([target], inputs, overwrite=overwrite, is_own=is_report)
    on_disk.prepare_folder(target.parent)
    written = [run.report(target, title)]
    if plots is not None:
        written += run.write_plots(target.parent / "plots", plots)
    if tables is not None:
        written += run.write_tables(tables, overwrite=overwrite)
    return written


def _read(folder: Path) -> Run:
    result = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
    if result.pop("checksum") != _checksum(result):
        raise ValueError(f"{_RESULT} was changed")
    stored = result["store"]
    if stored["format"] != _FORMAT:
        raise ValueError(f"the run has format {stored['format']}, but this version of excess reads {_FORMAT}")
    for name, checksum in stored["files"].items():
        if on_disk.sha256_of(folder / name) != checksum:
            raise ValueError(f"{name} was changed")
    models, observed = result["models"], result["observation"]
    events = pd.read_parquet(folder / _EVENTS)
    nearby = pd.read_parquet(folder / _NEARBY) if _NEARBY in stored["files"] else None
    shared = _shared_fields(observed, events)
    own = stored["models"]
    detections = {name: _detection(name, one, own[name], events, nearby, shared) for name, one in models.items()}
    statistic = next(iter(detections.values())).statistic
    known = {name: one["forward"] for name, one in models.items() if one["forward"] is not None}
    forward = {name: Outcome.from_dict(one, statistic) for name, one in known.items()}
    added = {"fold", "alpha", *(f"{name}_{column}" for name in models for column in _OF_MODEL)}
    simulation = result["simulation"]
    return Run(
        detections,
        forward,
        {name: NullTest.from_dict(test, statistic) for name, test in result["null_tests"].items()},
        result["no_forward"],
        observed,
        result["run"],
        (folder / "config.yaml").read_text(encoding="utf-8"),
        events[[name for name in events if name not in added]],
        None if simulation is None else SimulationAgreement.from_dict(simulation),
    )


def _shared_fields(observed: Mapping[str, Any], events: Any) -> dict[str, Any]:
    """Return the fields of a detection that are common to all models."""
    thetas = [name for name in theta_columns(len(events.columns)) if name in events]
    return {
        "on": (events["region"] == 0).to_numpy(),
        "groups": events["group"].to_numpy() if "group" in events else None,
        "observations": events["observation"].to_numpy() if "observation" in events else None,
        "alpha": observed["alpha"],
        "event_alpha": events["alpha"].to_numpy(dtype=np.float64) if "alpha" in events else None,
        "theta": events[thetas].to_numpy(dtype=np.float64) if thetas else None,
        "theta_squared_cut": observed["theta_squared_cut"],
        "time": seconds_of(events),
        "feature_names": tuple(observed["features"]),
        "exposure": Exposure.from_dict(observed["exposure"]) if observed.get("exposure") else None,
        "nights": events["night"].to_numpy() if "night" in events else None,
        "own_theta": events["own_theta_deg"].to_numpy(dtype=np.float64) if "own_theta_deg" in events else None,
        "core": events["core"].to_numpy(dtype=np.bool_) if "core" in events else None,
    }


def _detection(
    name: str, numbers: dict[str, Any], stored: dict[str, Any], events: Any, nearby: Any, shared: dict[str, Any]
) -> Detection:
    """Return the detection of one model."""
    importances = numbers["importances"]
    around = None
    if nearby is not None and f"{name}_score" in nearby:
        angles = nearby[[column for column in theta_columns(nearby.shape[1]) if column in nearby]]
        around = Nearby(nearby[f"{name}_score"].to_numpy(), nearby[f"{name}_selected"].to_numpy(), angles.to_numpy())
    return Detection(
        score=events[f"{name}_score"].to_numpy(dtype=np.float64),
        selected=events[f"{name}_selected"].to_numpy(dtype=np.bool_),
        ratio=events[f"{name}_ratio"].to_numpy(dtype=np.float64) if f"{name}_ratio" in events else None,
        fold=events["fold" if "fold" in events else f"{name}_fold"].to_numpy(dtype=np.int64),
        folds=tuple(map(_fold_from_dict, stored["folds"])),
        strategy=numbers["strategy"],
        statistic=numbers["statistic"],
        repeats={name: np.array(values, dtype=np.float64) for name, values in numbers["repeats"].items()},
        permutations={name: np.array(values, dtype=np.float64) for name, values in numbers["permutations"].items()},
        required_significance=numbers["required_significance"],
        nearby=around,
        importances=None if importances is None else np.array(importances, dtype=np.float64),
        bins=DetectionBins.from_dict(numbers["bins"], numbers["statistic"]) if numbers.get("bins") else None,
        features=None if stored["features"] is None else tuple(map(FeatureHistogram.from_dict, stored["features"])),
        sky=None if stored["sky"] is None else SkyMap.from_dict(stored["sky"]),
        remarks=tuple(stored["remarks"]),
        findings=tuple(WarningSign(**one) for one in stored["findings"]),
        alpha_error=numbers.get("alpha_error"),
        point_spread=None if stored["point_spread"] is None else PointSpread.from_dict(stored["point_spread"]),
        **shared,
    )


def _fold_to_dict(fold: Fold) -> dict[str, Any]:
    counts = {key: getattr(fold, key) for key in ("tuned", "held_out")}
    stored = {key: own and [own.n_on, own.n_off, own.alpha, own.parts, own.alpha_error] for key, own in counts.items()}
    return {**fold._asdict(), **stored, "bins": [tuned._asdict() for tuned in fold.bins]}


def _fold_from_dict(stored: dict[str, Any]) -> Fold:
    numbers = {key: stored[key] for key in ("threshold", "likelihood_significance")}
    floats = {key: float("nan" if number is None else number) for key, number in numbers.items()}
    counts = {key: None if stored[key] is None else OnOffCounts(*stored[key]) for key in ("tuned", "held_out")}
    bins = tuple(TunedBin(**{**own, "threshold": float(own["threshold"])}) for own in stored["bins"])
    return Fold(**{**stored, **floats, **counts, "bins": bins})


def describe_run(
    command: str, seed: int, files: Mapping[str, Sequence[Path]], options: Mapping[str, Any], title: str | None = None
) -> dict[str, Any]:
    """Return the record of a run, which contains everything needed to repeat it."""
    return {
        "title": title,
        "command": command,
        "seed": seed,
        "options": dict(options),
        "files": [
            {"kind": kind, "path": str(path), "bytes": path.stat().st_size, "sha256": on_disk.sha256_of(path)}
            for kind, paths in files.items()
            for path in paths
        ],
        "versions": versions(),
    }


def add_zenith(events: pd.DataFrame) -> pd.DataFrame:
    """Return events with the zenith distance of the pointing of their runs, if available in FITS headers."""
    if "zenith" in events or "file" not in events:
        return events
    files = [Path(file) for file in events["file"].unique() if Path(file).is_file()]
    known = {str(file): pointing_zenith(file) for file in files if recognise(file) == "FITS event list"}
    return events.assign(zenith=events["file"].map(known).astype(float)) if any(known.values()) else events


def describe_observation(observation: OnOffDataset, table: pd.DataFrame) -> dict[str, str]:
    """Return target, time and conditions of the observation, if known: the header of the report."""
    settings = observation.config.regions
    found: dict[str, str] = {}
    if settings.source_ra is not None and settings.source_dec is not None:
        ra, dec = settings.source_ra, settings.source_dec
        near = (one.name for one in KNOWN_SOURCES.values() if max(abs(one.ra - ra), abs(one.dec - dec)) < _SAME_PLACE)
        found |= {"Source": next(near, "not in the catalogue"), "RA, Dec (ICRS)": f"{ra:.4f}°, {dec:+.4f}°"}
    files = [path for kind, paths in observation.files.items() if kind.startswith("events") for path in paths]
    if files and (telescope := describe(files[0]).telescope):
        found["Telescope"] = telescope
    seconds = observation.time
    if seconds is not None and len(seconds) and np.nanmin(seconds) > _FIRST_DATE:
        first, last = (f"{pd.Timestamp(at, unit='s'):%Y-%m-%d}" for at in (np.nanmin(seconds), np.nanmax(seconds)))
        found["Dates (UTC)"] = first if first == last else f"{first} to {last}"
    if observation.exposure is not None:
        kinds = {"livetime": "Live time", "ontime": "Observation time"}
        found[kinds.get(observation.exposure.source, "Time of events")] = f"{observation.exposure.total:.2f} h"
    if "zenith" in table and table["zenith"].notna().any():
        found["Zenith distance"] = f"{table['zenith'].min():.0f}° to {table['zenith'].max():.0f}°"
    if observation.sky is not None and len(observation.sky):
        low, high = np.nanquantile(np.hypot(*observation.sky[:, 2:4].T), [0.01, 0.99])
        found["Offset"] = f"{low:.2f}°" if high - low < 0.01 else f"{low:.2f}° to {high:.2f}°"
    if names := [name for name in ("night", "obs_id", "run_id") if name in table]:
        found["Runs"] = f"{len(table[names].drop_duplicates()):,}"
    return found


def _checksum(content: Mapping[str, Any]) -> str:
    """Return the checksum of JSON values, independent of their layout in a file."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()
