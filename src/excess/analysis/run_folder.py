"""The folder of a finished run: its numbers, its events, and all that is needed to repeat it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from excess._core import files
from excess._core.files import prepare_folder
from excess._core.version import versions
from excess.events import AnalysisConfig, EventFileError
from excess.observation.pipeline import Observation
from excess.observation.regions import theta_columns
from excess.stats.significance import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest

__all__ = ["Findings", "RunRecord", "result_of", "write_results"]


@dataclass(frozen=True)
class RunRecord:
    """What a run was started with.

    Attributes
    ----------
    command : str
        The command, such as ``"detect"``.
    seed : int
        Seed of everything random.
    files : sequence of path, or mapping of str to sequence of path
        Input files, by what they are if there are several kinds; their checksums are computed when the run is written.
    options : dict
        Everything else that decides about the result.
    title : str or None
        What was observed, for people.
    """

    command: str
    seed: int
    files: Sequence[Path] | Mapping[str, Sequence[Path]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    title: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the record with versions and checksums."""
        kinds = self.files if isinstance(self.files, Mapping) else {"events": self.files}
        return {
            "title": self.title,
            "command": self.command,
            "seed": self.seed,
            "options": dict(self.options),
            "files": [
                {"kind": kind, "path": str(path), "bytes": path.stat().st_size, "sha256": files.sha256_of(path)}
                for kind, paths in kinds.items()
                for path in map(Path, paths)
            ],
            "versions": versions(),
        }


@dataclass(frozen=True)
class Findings:
    """What models found.

    Attributes
    ----------
    detections : mapping of str to Detection
        What each model found.
    forward : mapping of str to OnOffCounts
        Selected hold-out events of models that were trained on earlier groups only, beside pooled detections.
    null_tests : mapping of str to NullTest
        What was found where there is no source.
    no_forward : str
        Why there are no forward values, if there are none.
    """

    detections: Mapping[str, Detection]
    forward: Mapping[str, OnOffCounts] = field(default_factory=dict)
    null_tests: Mapping[str, NullTest] = field(default_factory=dict)
    no_forward: str = ""


def result_of(observation: Observation, findings: Findings, record: RunRecord) -> dict[str, Any]:
    """Return all numbers of a run, ready for JSON."""
    counts = observation.regions.counts
    return {
        "observation": {
            "n_read": observation.n_read,
            "n_outside": observation.n_outside,
            "n_cut": observation.n_cut,
            "n_overlapping": observation.regions.n_overlapping,
            "n_on": counts.n_on,
            "n_off": counts.n_off,
            "alpha": counts.alpha,
            "significance": counts.significance,
            "theta_squared_cut": observation.theta_squared_cut,
            "groups_are_text": observation.groups is not None and observation.groups.dtype.kind not in "biuf",
            "n_nearby": 0 if observation.nearby is None else len(observation.nearby.X),
            "features": list(observation.names),
        },
        "models": {name: _model_result(findings, name) for name in findings.detections},
        "null_tests": {
            name: {
                "significances": dict(zip(map(str, test.counts), test.significances.tolist(), strict=True)),
                "counts": {str(region): [counts.n_on, counts.n_off] for region, counts in test.counts.items()},
                "alpha": test.alpha,
                "mean": test.mean,
                "spread": test.spread,
                "p_value": test.p_value,
                "suspicious": test.suspicious,
                "verdict": test.verdict,
            }
            for name, test in findings.null_tests.items()
        },
        "no_forward": findings.no_forward,
        "run": record.to_dict(),
    }


def _model_result(findings: Findings, name: str) -> dict[str, Any]:
    found, forward = findings.detections[name], findings.forward.get(name)
    return {
        **found.summary(),
        "required_significance": found.required_significance,
        "verdict": found.verdict,
        "forward": None if forward is None else forward.summary(),
        "significances": found.significances.tolist(),
        "permuted_contrasts": found.permuted_contrasts.tolist(),
        "importances": None if found.importances is None else found.importances.tolist(),
    }


def write_results(
    folder: Path, observation: Observation, findings: Findings, config: AnalysisConfig, record: RunRecord
) -> dict[str, Any]:
    """Write a run into a folder, and return its numbers.

    ``result.json`` holds the numbers, versions, seed and checksums of the input; ``config.yaml`` the configuration;
    ``events.csv`` one row per event with the score and selection by each model; ``groups.csv`` and ``folds.csv`` the
    counts by group and fold; ``nearby.npy`` the events around the regions. ``result.json`` comes last: where it is,
    all is. `excess.analysis.finished_run.read_results` reads the folder.

    Parameters
    ----------
    folder : Path
        Made if it is not there.
    observation : Observation
        The events.
    findings : Findings
        What models found.
    config : AnalysisConfig
        Features, cuts and regions.
    record : RunRecord
        What the run was started with.

    Returns
    -------
    dict
        What ``result.json`` holds.
    """
    result = result_of(observation, findings, record)
    folder = prepare_folder(folder)
    detections = findings.detections
    try:
        for stale in ("result.json", "report.html"):
            (folder / stale).unlink(missing_ok=True)
        files.write_text(folder / "config.yaml", config.to_yaml())
        _write_csv(folder / "events.csv", _events_table(observation, detections))
        for name, method in (("groups.csv", "groups_frame"), ("folds.csv", "folds_frame")):
            _write_csv(folder / name, _stacked({key: getattr(found, method)() for key, found in detections.items()}))
        _write_nearby(folder / "nearby.npy", detections)
        files.write_text(folder / "result.json", json.dumps(as_json(result), indent=2) + "\n")
    except OSError as error:
        raise EventFileError(f"{folder}: the results cannot be written: {error.strerror or error}") from error
    return result


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


def _events_table(observation: Observation, detections: Mapping[str, Detection]) -> Any:
    table = observation.table.copy()
    if observation.theta is not None:
        table[theta_columns(observation.theta.shape[1])] = observation.theta
    table["region"] = observation.regions.region
    if observation.groups is not None:
        table["group"] = observation.groups
    folds = [found.fold for found in detections.values()]
    shared = all(np.array_equal(fold, folds[0]) for fold in folds)
    if shared:
        table["fold"] = folds[0]
    for name, found in detections.items():
        if not shared:
            table[f"{name}_fold"] = found.fold
        table[f"{name}_score"] = found.score
        table[f"{name}_selected"] = found.selected
    return table


def _write_nearby(path: Path, detections: Mapping[str, Detection]) -> None:
    """Write angles of nearby events, and scores and selection by each model; nothing where there are none."""
    known = {name: found.nearby for name, found in detections.items() if found.nearby is not None}
    theta = next((nearby.theta for nearby in known.values() if nearby.theta is not None), None)
    if theta is None:
        path.unlink(missing_ok=True)
        return
    fields: list[Any] = [("theta", np.float64, (theta.shape[1],))]
    for name in known:
        fields += [(f"{name}_score", np.float64), (f"{name}_selected", np.bool_)]
    rows = np.zeros(len(theta), dtype=fields)
    rows["theta"] = theta
    for name, nearby in known.items():
        rows[f"{name}_score"], rows[f"{name}_selected"] = nearby.score, nearby.selected
    with files.replacing(path) as temporary:
        np.save(temporary, rows, allow_pickle=False)


def _stacked(frames: Mapping[str, Any]) -> Any:
    import pandas as pd

    return pd.concat(frames, names=["model"]).reset_index()


def _write_csv(path: Path, table: Any) -> None:
    with files.replacing(path) as temporary:
        table.to_csv(temporary, index=False)
