"""A finished run, read back from its folder and checked against what was written."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from excess._core.errors import EventFileError
from excess._core.inputs import check_regular_file
from excess.analysis.output_paths import RUN_FILES
from excess.analysis.run_folder import Run
from excess.analysis.run_histograms import HISTOGRAMS_FILE, read_histograms
from excess.analysis.run_nearby import NEARBY_FILE, nearby_of, read_nearby
from excess.analysis.run_record import as_json
from excess.analysis.run_tables import read_table
from excess.estimators.score_bins import TunedBin
from excess.observation.pipeline import seconds_of
from excess.observation.region_methods import theta_columns
from excess.stats.counts import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.detection_bins import DetectionBins
from excess.validation.detection_parts import Fold
from excess.validation.exposure import Exposure
from excess.validation.null_tests import NullTest
from excess.validation.outcome import Outcome, count_events
from excess.validation.simulation_agreement import SimulationAgreement

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["read_run"]

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
    _check_types(result)
    observed, models = result["observation"], result["models"]
    texts = ["observation", "file", *(["group"] if observed["groups_are_text"] else [])]
    events = read_table(folder / "events.csv", texts)
    detections = _read_detections(folder, models, observed, events)
    _check_numbers(detections, models)
    statistic = next(iter(detections.values())).statistic
    checked = result.get("simulation")
    run = Run(
        detections,
        _forward_values(models, statistic),
        _null_tests(result["null_tests"], statistic),
        result["no_forward"],
        observed,
        result["run"],
        (folder / "config.yaml").read_text(encoding="utf-8"),
        _without_results(events, detections),
        None if checked is None else SimulationAgreement.from_dict(checked),
    )
    _check_verdicts(run, models)
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


def _read_detections(
    folder: Path, models: Mapping[str, Any], observed: Mapping[str, Any], events: pd.DataFrame
) -> dict[str, Detection]:
    """Put the detections of all models together again."""
    folds = read_table(folder / "folds.csv", ["model"])
    around = read_nearby(folder / NEARBY_FILE, observed["n_nearby"])
    shared = _shared_fields(observed, events)
    histograms = read_histograms(folder / HISTOGRAMS_FILE)
    return {
        name: _detection(
            name, numbers, events, folds[folds["model"] == name], around, {**shared, **histograms.get(name, {})}
        )
        for name, numbers in models.items()
    }


def _shared_fields(observed: Mapping[str, Any], events: Any) -> dict[str, Any]:
    """Return the fields of a detection that do not depend on the model."""
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
    }


def _detection(
    name: str, numbers: dict[str, Any], events: Any, folds: Any, around: Any, shared: dict[str, Any]
) -> Detection:
    """Put one model's detection together again."""
    importances = numbers["importances"]
    selected = events[f"{name}_selected"].to_numpy(dtype=np.bool_)
    fold = events["fold" if "fold" in events else f"{name}_fold"].to_numpy(dtype=np.int64)
    alphas = shared["alpha"] if shared["event_alpha"] is None else shared["event_alpha"]
    held_out = [count_events(shared["on"], selected & (fold == number), alphas) for number in range(len(folds))]
    return Detection(
        score=events[f"{name}_score"].to_numpy(dtype=np.float64),
        selected=selected,
        ratio=events[f"{name}_ratio"].to_numpy(dtype=np.float64) if f"{name}_ratio" in events else None,
        fold=fold,
        folds=_folds(numbers, folds, held_out),
        strategy=numbers["strategy"],
        statistic=numbers["statistic"],
        repeats={name: np.array(values, dtype=np.float64) for name, values in numbers["repeats"].items()},
        permutations={name: np.array(values, dtype=np.float64) for name, values in numbers["permutations"].items()},
        required_significance=numbers["required_significance"],
        nearby=nearby_of(name, around),
        importances=None if importances is None else np.array(importances, dtype=np.float64),
        bins=DetectionBins.from_dict(numbers["bins"], numbers["statistic"]) if numbers.get("bins") else None,
        **shared,
    )


def _folds(numbers: dict[str, Any], table: Any, held_out: list[OnOffCounts]) -> tuple[Fold, ...]:
    """Put the folds of a model together again, of which the events tell what was held out."""
    trusted = [
        {name: own["folds"][number] for name, own in (numbers["trust"] or {}).items()} for number in range(len(table))
    ]
    binned = [
        tuple(TunedBin(float(own["threshold"]), own["first"], own["last"], own["n_events"]) for own in fold)
        for fold in numbers.get("tuned_bins", [[]] * len(table))
    ]
    rows = zip(table.itertuples(), numbers["tuned_alpha"], held_out, trusted, binned, strict=True)
    return tuple(_fold(row, tuned_alpha, counts, trust or None, bins) for row, tuned_alpha, counts, trust, bins in rows)


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


def _forward_values(models: Mapping[str, Any], statistic: str) -> dict[str, Outcome]:
    return {
        name: Outcome.from_summary(numbers["forward"], numbers["forward"]["alpha"], statistic)
        for name, numbers in models.items()
        if numbers["forward"] is not None
    }


def _null_tests(tests: Mapping[str, Any], statistic: str) -> dict[str, NullTest]:
    return {
        name: NullTest(
            {
                int(region): Outcome.from_summary(numbers, test["alpha"], statistic)
                for region, numbers in test["regions"].items()
            }
        )
        for name, test in tests.items()
    }


def _without_results(events: pd.DataFrame, models: Mapping[str, Any]) -> pd.DataFrame:
    """Return the events without the columns that say what models found."""
    added = {
        "fold",
        "alpha",
        *(f"{name}_{what}" for name in models for what in ("fold", "score", "selected", "ratio")),
    }
    return events[[name for name in events if name not in added]]


def _check_numbers(detections: Mapping[str, Detection], models: Mapping[str, Any]) -> None:
    """Raise ValueError where a number of ``result.json`` does not follow from the events."""
    for name, found in detections.items():
        for key, value in found.summary().items():
            if key == "feasible":  # which follows from forward values and null tests as well
                continue
            written = models[name][key]
            same = written == as_json(value)
            if isinstance(value, float) and isinstance(written, float):
                same = math.isclose(value, written, rel_tol=1e-9)  # sums of logarithms differ between machines
            if not same:
                raise ValueError(f"{key} of {name} is {value} by events.csv and {written} by result.json")


def _check_verdicts(run: Run, models: Mapping[str, Any]) -> None:
    """Raise ValueError where a verdict of ``result.json`` does not follow from the events."""
    for name, verdict in run.verdicts.items():
        written = models[name]["status"]
        if verdict.status != written:
            raise ValueError(f"status of {name} is {verdict.status} by events.csv and {written} by result.json")
