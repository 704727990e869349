"""A run: everything a search found, the folder it is written to, and the same read back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from excess._core.errors import EventFileError
from excess._core.files import (
    prepare_folder,
    replacing,
    replacing_together,
    sha256_of,
    undo_unfinished,
    write_text,
)
from excess._core.inputs import check_regular_file
from excess._core.locks import locked
from excess._core.version import versions
from excess.analysis.output_paths import RUN_FILES, check_run_folder
from excess.analysis.run_histograms import HISTOGRAMS_FILE, read_histograms, write_histograms
from excess.analysis.run_tables import read_table, write_table
from excess.estimators.binned import TunedBin
from excess.observation.pipeline import seconds_of
from excess.observation.region_methods import theta_columns
from excess.report import write_plots, write_report
from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.detection_bins import DetectionBins
from excess.validation.detection_parts import Fold, Nearby
from excess.validation.exposure import Exposure
from excess.validation.null_tests import NullTest
from excess.validation.outcome import STATISTICS, Outcome, count_events
from excess.validation.simulation_agreement import SimulationAgreement
from excess.validation.verdict import Verdict, judge_all

if TYPE_CHECKING:
    import pandas as pd


__all__ = [
    "Run",
    "as_json",
    "describe_run",
    "prepare_folder",
    "read_run",
    "without_run_settings",
]

_WRITING = ".writing.lock"
_TYPES: dict[tuple[str, ...], tuple[type, ...]] = {
    ("models",): (dict,),
    ("null_tests",): (dict,),
    ("no_forward",): (str,),
    ("run", "title"): (str, NoneType),
    ("run", "command"): (str,),
    ("run", "seed"): (int,),
    ("run", "options"): (dict,),
    ("run", "files"): (list,),
    ("run", "versions"): (dict,),
}
"""What ``result.json`` holds besides numbers, which are compared with the other files."""


@dataclass(frozen=True, eq=False)
class Run:
    """Everything that a search found.

    Attributes
    ----------
    detections : mapping of str to Detection
        What each model found; the first is the one that the verdict is about.
    forward : mapping of str to Outcome
        Both statistics of hold-out events by models that were trained on earlier groups only, beside pooled detections.
    null_tests : mapping of str to NullTest
        What was found where there is no source.
    no_forward : str
        Why there are no forward values, if there are none.
    observed : dict
        How many events were read, cut away and kept.
    record : dict
        What the run was started with: title, command, seed, options, files with checksums, versions.
    config : str
        The configuration, as YAML.
    events : DataFrame
        One row per event: which event it is, its angles, region and group.
    simulation : SimulationAgreement or None
        Where simulated events differ from observed ones, if there was a simulation.

    See Also
    --------
    search : Makes one.
    read_run : Reads one from its folder.
    """

    detections: Mapping[str, Detection]
    forward: Mapping[str, Outcome]
    null_tests: Mapping[str, NullTest]
    no_forward: str
    observed: dict[str, Any]
    record: dict[str, Any]
    config: str
    events: pd.DataFrame = field(repr=False)
    simulation: SimulationAgreement | None = None

    @property
    def alpha(self) -> float:
        """Exposure ratio On/Off."""
        return float(self.observed["alpha"])

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict on each model, with its forward value and the null tests; the first is that of the run."""
        return judge_all(self.detections, self.forward, self.null_tests)

    @property
    def verdict(self) -> Verdict:
        """The verdict on the first model, which was chosen before anything was seen."""
        return next(iter(self.verdicts.values()))

    def result(self) -> dict[str, Any]:
        """Return all numbers, as ``result.json`` holds them."""
        return {
            "observation": self.observed,
            "models": {name: self._model_result(name) for name in self.detections},
            "null_tests": {name: _null_result(test) for name, test in self.null_tests.items()},
            "no_forward": self.no_forward,
            "simulation": None if self.simulation is None else self.simulation.to_dict(),
            "run": self.record,
        }

    def _model_result(self, name: str) -> dict[str, Any]:
        found, forward = self.detections[name], self.forward.get(name)
        return {
            **found.summary(),
            "required_significance": found.required_significance,
            **self.verdicts[name].summary(),
            "forward": None if forward is None else _forward_result(forward),
            "tuned_alpha": [None if fold.tuned is None else fold.tuned.alpha for fold in found.folds],
            "repeats": {name: values.tolist() for name, values in found.repeats.items()},
            "permutations": {name: values.tolist() for name, values in found.permutations.items()},
            "importances": None if found.importances is None else found.importances.tolist(),
            "trust": _trust_result(found),
            "bins": None if found.bins is None else found.bins.to_dict(),
            **self._observations_result(found),
            "tuned_bins": [[tuned._asdict() for tuned in fold.bins] for fold in found.folds],
        }

    @staticmethod
    def _observations_result(found: Detection) -> dict[str, Any]:
        """Return the numbers of each observation; nothing unless there are several."""
        if len(found.outcomes_by_observation) < 2:
            return {}
        return {"observations": found.observations_frame().to_dict("index")}

    def write(self, folder: str | PathLike[str], *, report: bool = False, overwrite: bool = False) -> Path:
        """Write the run into a folder, all of it or nothing.

        ``result.json`` holds the numbers, versions, seed and checksums of the input; ``config.yaml`` the configuration;
        ``events.csv`` one row per event with score, selection and signal ratio by each model, and its exposure ratio
        where that differs; ``groups.csv``, ``folds.csv`` and, where there are several observations,
        ``observations.csv`` both statistics by group, fold and observation, ``bins.csv`` those of bins; ``nearby.npy``
        the events around the regions; ``histograms.json`` On and Off in every feature, and the map of the sky.
        ``result.json`` comes last: where it is, all is.

        Parameters
        ----------
        folder : path
            Made if it is not there.
        report : bool, default=False
            Write ``report.html`` as well.
        overwrite : bool, default=False
            Replace a finished run, or other files of these names. Files that the run has read are never replaced.

        Returns
        -------
        Path
            The folder.
        """
        target = prepare_folder(Path(folder))
        current = [RUN_FILES[-1]]
        inputs = [entry["path"] for entry in self.record.get("files", [])]
        with locked(target, _WRITING, patience=60.0):
            undo_unfinished(target, RUN_FILES)
            check_run_folder(target, inputs, overwrite=overwrite)
            try:
                with replacing_together(target, RUN_FILES) as temporary:
                    for name, write in self._writers(report).items():
                        current[0] = name
                        write(temporary / name)
            except OSError as error:
                raise EventFileError(
                    f"{target / current[0]}: cannot be written: {error.strerror or error}; {target} is as it was before"
                ) from error
        return target

    def _writers(self, report: bool) -> dict[str, Callable[[Path], object]]:
        """Return a function that writes each file of the run, in the order of `RUN_FILES`."""
        tables: dict[str, Callable[[], pd.DataFrame]] = {
            "events.csv": self._scored_events,
            "groups.csv": partial(self._stacked, Detection.groups_frame),
            "folds.csv": partial(self._stacked, Detection.folds_frame),
        }
        if any(len(found.outcomes_by_observation) > 1 for found in self.detections.values()):
            tables["observations.csv"] = partial(self._stacked, Detection.observations_frame)
        if all(found.bins is not None for found in self.detections.values()):
            tables["bins.csv"] = partial(self._stacked, Detection.bins_frame)
        return {
            "config.yaml": lambda path: write_text(path, self.config),
            **{name: partial(write_table, table) for name, table in tables.items()},
            "nearby.npy": self._write_nearby,
            HISTOGRAMS_FILE: partial(write_histograms, self.detections),
            **({"report.html": self.report} if report else {}),
            "result.json": lambda path: write_text(path, json.dumps(as_json(self.result()), indent=2) + "\n"),
        }

    def report(self, path: str | PathLike[str], title: str | None = None) -> Path:
        """Write the report, one HTML file that opens anywhere; see `excess.report.write_report`.

        Parameters
        ----------
        path : path
            File to write.
        title : str or None, default=None
            What was observed; by default the title of the run.

        Returns
        -------
        Path
            The file.
        """
        return write_report(
            self.detections,
            Path(path),
            forward=self.forward,
            null_test=self.null_tests,
            no_forward=self.no_forward,
            simulation=self.simulation,
            title=title or self.record["title"],
            observed=self.observed,
            run=self.record,
            config=self.config,
        )

    def write_plots(self, folder: str | PathLike[str], suffix: str = "pdf") -> list[Path]:
        """Write the plots of all models as files; see `excess.report.write_plots`."""
        return write_plots(
            self.detections, Path(folder), suffix, null_tests=self.null_tests, simulation=self.simulation
        )

    def _scored_events(self) -> pd.DataFrame:
        table = self.events.copy()
        folds = [found.fold for found in self.detections.values()]
        shared = all(np.array_equal(fold, folds[0]) for fold in folds)
        if shared:
            table["fold"] = folds[0]
        # all models judge the same events
        alphas = [found.event_alpha for found in self.detections.values() if found.event_alpha is not None]
        if alphas:
            table["alpha"] = alphas[0]
        for name, found in self.detections.items():
            if not shared:
                table[f"{name}_fold"] = found.fold
            table[f"{name}_score"] = found.score
            table[f"{name}_selected"] = found.selected
            if found.ratio is not None:
                table[f"{name}_ratio"] = found.ratio
        return table

    def _stacked(self, frame: Callable[[Detection], pd.DataFrame]) -> pd.DataFrame:
        import pandas as pd

        frames = {name: frame(found) for name, found in self.detections.items()}
        return pd.concat(frames, names=["model"]).reset_index()

    def _write_nearby(self, path: Path) -> None:
        """Write angles of nearby events, and scores and selection by each model; nothing where there are none."""
        known = {name: found.nearby for name, found in self.detections.items() if found.nearby is not None}
        theta = next((nearby.theta for nearby in known.values() if nearby.theta is not None), None)
        if theta is None:
            return
        fields: list[Any] = [("theta", np.float64, (theta.shape[1],))]
        for name in known:
            fields += [(f"{name}_score", np.float64), (f"{name}_selected", np.bool_)]
        rows = np.zeros(len(theta), dtype=fields)
        rows["theta"] = theta
        for name, nearby in known.items():
            rows[f"{name}_score"], rows[f"{name}_selected"] = nearby.score, nearby.selected
        with replacing(path) as temporary:
            np.save(temporary, rows, allow_pickle=False)


def _trust_result(found: Detection) -> dict[str, Any] | None:
    """Return how far each reference was trusted: mean, smallest and largest value, and those of the folds."""
    return {
        name: {**trust._asdict(), "folds": [None if fold.trust is None else fold.trust[name] for fold in found.folds]}
        for name, trust in found.trust.items()
    } or None


def _forward_result(outcome: Outcome) -> dict[str, Any]:
    """Return the numbers of an outcome, with what makes it the same again."""
    parts = {"parts": outcome.counts.parts} if outcome.counts.parts else {}
    return {**outcome.summary(), "alpha": outcome.counts.alpha, **parts}


def _null_result(test: NullTest) -> dict[str, Any]:
    """Return the numbers of a null test; its mean, p-value and verdict are by the declared statistic."""
    by_statistic: dict[str, dict[str, float]] = {statistic: {} for statistic in STATISTICS}
    for region, outcome in test.outcomes.items():
        for statistic, significance in outcome.significances.items():
            by_statistic[statistic][str(region)] = significance
    return {
        "significances": dict(zip(map(str, test.outcomes), test.significances.tolist(), strict=True)),
        **{f"{statistic}_significances": values for statistic, values in by_statistic.items()},
        "regions": {str(region): outcome.summary() for region, outcome in test.outcomes.items()},
        "alpha": test.alpha,
        "mean": test.mean,
        "spread": test.spread,
        "p_value": test.p_value,
        "suspicious": test.suspicious,
        "verdict": test.verdict,
    }


def describe_run(
    command: str,
    seed: int,
    files: Mapping[str, Sequence[Path]],
    options: Mapping[str, Any],
    title: str | None = None,
) -> dict[str, Any]:
    """Return what a run was started with, and all that is needed to repeat it."""
    return {
        "title": title,
        "command": command,
        "seed": seed,
        "options": dict(options),
        "files": [
            {"kind": kind, "path": str(path), "bytes": path.stat().st_size, "sha256": sha256_of(path)}
            for kind, paths in files.items()
            for path in paths
        ],
        "versions": versions(),
    }


def without_run_settings(estimator: Any) -> Any:
    """Return an estimator without what does not change its results: cores, and whether progress is shown."""
    usual = {"verbose": 0, "n_jobs": None}
    known = estimator.get_params(deep=False)
    changed = {name: value for name, value in usual.items() if known.get(name, value) != value}
    return copy(estimator).set_params(**changed) if changed else estimator


def as_json(value: Any) -> Any:
    """Return nested values as JSON takes them; NaN, which JSON lacks, becomes null."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return None if value != value else str(value)
    return value


def read_run(folder: str | PathLike[str]) -> Run:
    """Read what `Run.write`, and with it `excess detect` and `excess demo`, has written.

    Parameters
    ----------
    folder : path
        The output folder of the run.

    Returns
    -------
    Run
        The same run, ready for reports and plots.
    """
    folder = Path(folder)
    if not (folder / "result.json").is_file():
        raise EventFileError(
            f"{folder}: is not the folder of a finished run, it has no result.json; give what was the output folder of "
            "'excess detect' or 'excess demo'"
        )
    for name in RUN_FILES:
        if (folder / name).exists():
            check_regular_file(folder / name)
    try:
        return _read(folder)
    except Exception as error:  # with damaged files the libraries raise exceptions of many types
        raise EventFileError(
            f"{folder}: its files cannot be read as those of one run ({type(error).__name__}: {error}); they were "
            "changed, or written by another version; run it again"
        ) from error


def _read(folder: Path) -> Run:
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    observed, record = result["observation"], result["run"]
    _check_types(result)
    events = read_table(
        folder / "events.csv", ["observation", "file", *(["group"] if observed["groups_are_text"] else [])]
    )
    folds = read_table(folder / "folds.csv", ["model"])
    nearby = folder / "nearby.npy"
    # a memory map, because that compares the size that the file claims with the one that it has
    around = np.array(np.lib.format.open_memmap(nearby, mode="r")) if nearby.is_file() else None
    if (0 if around is None else len(around)) != observed["n_nearby"]:
        raise ValueError(f"nearby.npy should hold {observed['n_nearby']} events")
    thetas = [name for name in theta_columns(len(events.columns)) if name in events]
    shared = {
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
    }
    histograms = read_histograms(folder / HISTOGRAMS_FILE)
    detections = {
        name: _detection(
            name, numbers, events, folds[folds["model"] == name], around, {**shared, **histograms.get(name, {})}
        )
        for name, numbers in result["models"].items()
    }
    for name, found in detections.items():
        written = result["models"][name]
        for key, value in found.summary().items():
            if key == "feasible":  # which follows from forward values and null tests as well
                continue
            same = written[key] == as_json(value)
            if isinstance(value, float) and isinstance(written[key], float):
                same = math.isclose(value, written[key], rel_tol=1e-9)  # sums of logarithms differ between machines
            if not same:
                raise ValueError(f"{key} of {name} is {value} by events.csv and {written[key]} by result.json")
    statistic = next(iter(detections.values())).statistic
    forward = {
        name: Outcome.from_summary(numbers["forward"], numbers["forward"]["alpha"], statistic)
        for name, numbers in result["models"].items()
        if numbers["forward"] is not None
    }
    null_tests = {
        name: NullTest(
            {
                int(region): Outcome.from_summary(numbers, test["alpha"], statistic)
                for region, numbers in test["regions"].items()
            }
        )
        for name, test in result["null_tests"].items()
    }
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    added = {
        "fold",
        "alpha",
        *(f"{name}_{what}" for name in detections for what in ("fold", "score", "selected", "ratio")),
    }
    kept = events[[name for name in events if name not in added]]
    checked = result.get("simulation")
    simulation = None if checked is None else SimulationAgreement.from_dict(checked)
    run = Run(detections, forward, null_tests, result["no_forward"], observed, record, config, kept, simulation)
    for name, verdict in run.verdicts.items():
        written = result["models"][name]["status"]
        if verdict.status != written:
            raise ValueError(f"status of {name} is {verdict.status} by events.csv and {written} by result.json")
    return run


def _check_types(result: dict[str, Any]) -> None:
    """Raise TypeError if something in ``result.json`` has a type that no run has written."""
    for place, types in _TYPES.items():
        value: Any = result
        for key in place:
            value = value[key]
        if not isinstance(value, types):
            raise TypeError(f"{' '.join(place)} in result.json is a {type(value).__name__}")
    for entry in result["run"]["files"]:
        if not all(isinstance(entry[key], str) for key in ("kind", "path", "sha256")):
            raise TypeError("run files in result.json have no kind, path and sha256")


def _detection(name: str, numbers: dict[str, Any], events: Any, folds: Any, around: Any, shared: dict[str, Any]) -> Any:
    """Put one model's detection together again."""
    nearby = None
    if around is not None and f"{name}_score" in around.dtype.names:
        nearby = Nearby(around[f"{name}_score"], around[f"{name}_selected"], around["theta"])
    importances = numbers["importances"]
    selected = events[f"{name}_selected"].to_numpy(dtype=np.bool_)
    fold = events["fold" if "fold" in events else f"{name}_fold"].to_numpy(dtype=np.int64)
    alphas = shared["alpha"] if shared["event_alpha"] is None else shared["event_alpha"]
    trusted = [
        {name: own["folds"][number] for name, own in (numbers["trust"] or {}).items()} for number in range(len(folds))
    ]
    binned = [
        tuple(TunedBin(float(own["threshold"]), own["first"], own["last"], own["n_events"]) for own in fold)
        for fold in numbers.get("tuned_bins", [[]] * len(folds))
    ]
    rows = zip(folds.itertuples(), numbers["tuned_alpha"], trusted, binned, strict=True)
    return Detection(
        score=events[f"{name}_score"].to_numpy(dtype=np.float64),
        selected=selected,
        ratio=events[f"{name}_ratio"].to_numpy(dtype=np.float64) if f"{name}_ratio" in events else None,
        fold=fold,
        folds=tuple(
            _fold(
                row, tuned_alpha, count_events(shared["on"], selected & (fold == number), alphas), trust or None, bins
            )
            for number, (row, tuned_alpha, trust, bins) in enumerate(rows)
        ),
        strategy=numbers["strategy"],
        statistic=numbers["statistic"],
        repeats={name: np.array(values, dtype=np.float64) for name, values in numbers["repeats"].items()},
        permutations={name: np.array(values, dtype=np.float64) for name, values in numbers["permutations"].items()},
        required_significance=numbers["required_significance"],
        nearby=nearby,
        importances=None if importances is None else np.array(importances, dtype=np.float64),
        bins=DetectionBins.from_dict(numbers["bins"], numbers["statistic"]) if numbers.get("bins") else None,
        **shared,
    )


def _fold(
    row: Any,
    tuned_alpha: float | None,
    held_out: OnOffCounts,
    trust: dict[str, float] | None,
    bins: tuple[TunedBin, ...],
) -> Fold:
    tuned = None if tuned_alpha is None else OnOffCounts(row.tuned_n_on, row.tuned_n_off, tuned_alpha)
    likelihood = float(row.likelihood_significance)
    return Fold(int(row.n_train), int(row.n_held_out), float(row.threshold), tuned, held_out, likelihood, trust, bins)
