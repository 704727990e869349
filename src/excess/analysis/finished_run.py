"""The folder of a finished run, read again: its detections and null tests, as they were."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from excess.analysis.run_folder import Findings, as_json
from excess.events import EventFileError
from excess.events.times import seconds_of
from excess.observation.regions import theta_columns
from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection, Fold, Nearby
from excess.validation.null_tests import NullTest

__all__ = ["FinishedRun", "read_results"]


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """What a folder of results holds.

    Attributes
    ----------
    findings : Findings
        Detections, their forward values, and null tests.
    observed : dict
        How many events were read, cut away and kept.
    run : dict
        What the run was started with, versions and checksums included.
    config : str
        The configuration, as YAML.
    """

    findings: Findings
    observed: dict[str, Any]
    run: dict[str, Any]
    config: str


def read_results(folder: str | Path) -> FinishedRun:
    """Read what `excess detect` or `excess demo` has written.

    Parameters
    ----------
    folder : path
        The output folder of the run.

    Returns
    -------
    FinishedRun
        Detections with all that plots and reports need.
    """
    folder = Path(folder)
    if not (folder / "result.json").is_file():
        raise EventFileError(
            f"{folder}: is not the folder of a finished run, it has no result.json; give what was the output folder of "
            "'excess detect' or 'excess demo'"
        )
    try:
        return _read(folder)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, EOFError, OSError) as error:
        raise EventFileError(
            f"{folder}: its files cannot be read as those of one run ({type(error).__name__}: {error}); they were "
            "changed, or written by another version; run it again"
        ) from error


def _read(folder: Path) -> FinishedRun:
    import pandas as pd

    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    observed, run = result["observation"], result["run"]
    for key in ("title", "command", "seed", "options", "files", "versions"):
        run[key]
    # older versions of pandas lose the last bits unless they are told not to; newer ones do not want to be told
    exactly: dict[str, Any] = {"float_precision": "round_trip"} if int(pd.__version__.split(".")[0]) < 3 else {}
    events = pd.read_csv(folder / "events.csv", low_memory=False, **exactly)
    if observed["groups_are_text"]:
        # a group named 007 or NA is neither the number 7 nor a missing value
        texts = pd.read_csv(folder / "events.csv", usecols=["group"], dtype=str, keep_default_na=False)
        events["group"] = texts["group"].astype(object)
    folds = pd.read_csv(folder / "folds.csv", dtype={"model": str}, **exactly)
    nearby = folder / "nearby.npy"
    around = np.load(nearby, allow_pickle=False) if nearby.is_file() else None
    if (0 if around is None else len(around)) != observed["n_nearby"]:
        raise ValueError(f"nearby.npy should hold {observed['n_nearby']} events")
    thetas = [name for name in theta_columns(len(events.columns)) if name in events]
    shared = {
        "on": (events["region"] == 0).to_numpy(),
        "groups": events["group"].to_numpy() if "group" in events else None,
        "alpha": observed["alpha"],
        "theta": events[thetas].to_numpy(dtype=np.float64) if thetas else None,
        "theta_squared_cut": observed["theta_squared_cut"],
        "time": seconds_of(events),
        "feature_names": tuple(observed["features"]),
    }
    detections = {
        name: _detection(name, numbers, events, folds[folds["model"] == name], around, shared)
        for name, numbers in result["models"].items()
    }
    for name, found in detections.items():
        written = result["models"][name]
        for key, value in found.summary().items():
            if written[key] != as_json(value):
                raise ValueError(f"{key} of {name} is {value} by events.csv and {written[key]} by result.json")
    forward = {
        name: OnOffCounts(numbers["forward"]["n_on"], numbers["forward"]["n_off"], observed["alpha"])
        for name, numbers in result["models"].items()
        if numbers["forward"] is not None
    }
    null_tests = {
        name: NullTest(
            {int(region): OnOffCounts(n_on, n_off, test["alpha"]) for region, (n_on, n_off) in test["counts"].items()}
        )
        for name, test in result["null_tests"].items()
    }
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    return FinishedRun(Findings(detections, forward, null_tests, result["no_forward"]), observed, run, config)


def _detection(name: str, numbers: dict[str, Any], events: Any, folds: Any, around: Any, shared: dict[str, Any]) -> Any:
    """Put one model's detection together again."""
    alpha = shared["alpha"]
    nearby = None
    if around is not None and f"{name}_score" in around.dtype.names:
        nearby = Nearby(around[f"{name}_score"], around[f"{name}_selected"], around["theta"])
    importances = numbers["importances"]
    return Detection(
        score=events[f"{name}_score"].to_numpy(dtype=np.float64),
        selected=events[f"{name}_selected"].to_numpy(dtype=np.bool_),
        fold=events["fold" if "fold" in events else f"{name}_fold"].to_numpy(dtype=np.int64),
        folds=tuple(_fold(row, alpha) for row in folds.itertuples()),
        strategy=numbers["strategy"],
        significances=np.array(numbers["significances"], dtype=np.float64),
        permuted_contrasts=np.array(numbers["permuted_contrasts"], dtype=np.float64),
        required_significance=numbers["required_significance"],
        nearby=nearby,
        importances=None if importances is None else np.array(importances, dtype=np.float64),
        **shared,
    )


def _fold(row: Any, alpha: float) -> Fold:
    tuned = None if np.isnan(row.tuned_n_on) else OnOffCounts(int(row.tuned_n_on), int(row.tuned_n_off), alpha)
    held_out = OnOffCounts(row.n_on, row.n_off, alpha)
    return Fold(int(row.n_train), int(row.n_held_out), float(row.threshold), tuned, held_out)
