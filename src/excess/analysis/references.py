"""References of the model hybrid: simulated events, models that were trained on other events, columns of scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator

from excess._core.checks import FloatArray
from excess._core.errors import ArgumentError, EventFileError, prefix_errors
from excess.analysis.models import make_model, without_run_settings
from excess.analysis.trained_model import TrainedModel, load_model
from excess.estimators.hybrid import OnOffHybridClassifier
from excess.estimators.model_file import ModelFileError, is_model_file
from excess.estimators.onnx_model import OnnxClassifier
from excess.estimators.threshold import SignificanceThresholdClassifier
from excess.events import AnalysisConfig, describe, read_events, to_features
from excess.observation.observation import Observation

__all__ = [
    "ReferenceSet",
    "SimulatedEvents",
    "check_simulated_columns",
    "collect_references",
    "is_hybrid",
    "split_references",
]

SIMULATION = "simulation"
"""Name of the forest that was trained on simulated events, among the references."""

ONNX = ".onnx"
"""Suffix of classifiers of others."""

SimulatedKind = str | PathLike[str] | Sequence[str | PathLike[str]] | pd.DataFrame
Simulated = tuple[SimulatedKind, SimulatedKind]
"""Gammas and protons: a file, several files, or a table each."""


def is_hybrid(estimator: BaseEstimator) -> bool:
    """Say whether an estimator is a hybrid, or has one inside, and so wants the columns of references."""
    return any(isinstance(part, OnOffHybridClassifier) for part in (estimator, *estimator.get_params().values()))


def split_references(given: Iterable[str], *, n_jobs: int = -1) -> tuple[list[str], list[TrainedModel | Path]]:
    """Tell references that are columns from those that are models.

    Parameters
    ----------
    given : iterable of str
        Names of columns, and paths of files of `train` or of ONNX models, which end in ``.onnx``. Where there is a file
        of that name, it is a model.
    n_jobs : int, default=-1
        Cores for the predictions of the models.

    Returns
    -------
    columns : list of str
        For ``references`` of `observe`.
    models : list of TrainedModel, or Path of an ONNX model
        For ``references`` of `search` and `train`.

    Examples
    --------
    >>> from excess.analysis import split_references
    >>> split_references(["gammaness"])
    (['gammaness'], [])
    """
    columns: list[str] = []
    models: list[TrainedModel | Path] = []
    for one in dict.fromkeys(given):
        if not Path(one).exists():
            if Path(one).name != one or Path(one).suffix in (".excess", ONNX):
                raise ModelFileError(f"{one} does not exist; give a model file, or the name of a column")
            columns.append(one)
        elif is_model_file(one):
            models.append(load_model(one, n_jobs=n_jobs))
        elif Path(one).suffix == ONNX:
            models.append(Path(one))
        else:
            raise ModelFileError(
                f"{one}: is neither a model file of 'excess train' nor an ONNX model (.onnx); give one, or the name of "
                "a column"
            )
    return columns, models


@dataclass(frozen=True, eq=False)
class SimulatedEvents:
    """Simulated gammas and protons that pass the quality cuts.

    Attributes
    ----------
    gammas, protons : ndarray of shape (n_events, n_features)
        Features, without columns of references.
    names : tuple of str
        Names of the features.
    files : mapping of str to tuple of Path
        The files they are from, by kind; empty for tables.
    """

    gammas: FloatArray
    protons: FloatArray
    names: tuple[str, ...]
    files: Mapping[str, tuple[Path, ...]]

    @classmethod
    def read(cls, simulated: Simulated, config: AnalysisConfig) -> SimulatedEvents:
        """Read files of simulated gammas and of protons, or take tables of them."""
        if not isinstance(simulated, tuple) or len(simulated) != 2:
            raise ArgumentError("simulated", "must be a pair: simulated gammas and protons")
        settings = config.without_references()
        parts, files = [], {}
        for kind, given in zip(("gammas", "protons"), simulated, strict=True):
            paths = _as_paths(given)
            where = str(paths[0]) if paths else f"simulated {kind}"
            for path in paths:
                check_simulated_columns(path, settings.columns_needed())
            table = given if isinstance(given, pd.DataFrame) else read_events(paths, settings.columns_needed())
            with prefix_errors(where):
                features = to_features(table, settings)
            if not features.valid.any():
                raise EventFileError(f"{where}: no event passes the quality cuts")
            parts.append(np.ascontiguousarray(features.X[features.valid]))
            if paths:
                files[f"simulated {kind}"] = paths
        return cls(parts[0], parts[1], settings.features, files)

    def train(self, *, seed: int, n_jobs: int) -> Any:
        """Return a forest that tells simulated gammas from protons."""
        labels = np.repeat([1, 0], [len(self.gammas), len(self.protons)])
        forest = make_model("simulation-forest", random_state=seed, n_jobs=n_jobs)
        return without_run_settings(forest.fit(np.concatenate([self.gammas, self.protons]), labels))


def check_simulated_columns(path: Path, needed: Iterable[str]) -> None:
    """Raise EventFileError for a file of simulated events without columns that the observed ones are read with."""
    found = describe(path)
    present = {*found.columns, *found.telescope_columns}
    missing = [name for name in needed if name not in present]
    if missing:
        raise EventFileError(
            f"{path}: has no {'column' if len(missing) == 1 else 'columns'} {', '.join(missing)}, which features or "
            "quality cuts of the observed events need; simulated events need them as well"
        )


def _as_paths(given: Any) -> tuple[Path, ...]:
    if isinstance(given, pd.DataFrame):
        return ()
    return tuple(Path(path) for path in ([given] if isinstance(given, (str, PathLike)) else given))


@dataclass(frozen=True, eq=False)
class ReferenceSet:
    """All that a hybrid may trust besides the labels.

    Attributes
    ----------
    classifiers : mapping of str to classifier or str
        Fitted classifiers, and names of columns, by the name of the reference.
    trained_on : mapping of str to list
        Groups that a reference was trained on, by its name.
    files : mapping of str to tuple of Path
        Files that they are from, by kind.
    seen_files : sequence of dict
        Records of the files that models were trained on.
    simulated : SimulatedEvents or None
        Simulated gammas and protons.
    """

    classifiers: Mapping[str, Any] = field(default_factory=dict)
    trained_on: Mapping[str, list[Any]] = field(default_factory=dict)
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    seen_files: Sequence[Mapping[str, Any]] = ()
    simulated: SimulatedEvents | None = None

    @property
    def names(self) -> list[str]:
        """Names of the references."""
        return list(self.classifiers)

    def complete(self, hybrid: OnOffHybridClassifier) -> OnOffHybridClassifier:
        """Return a hybrid with these references; ArgumentError if there are none."""
        if not self.classifiers:
            raise ArgumentError("model", "hybrid needs references: give `simulated`, or `references`")
        return hybrid.set_params(references=dict(self.classifiers), trained_on=dict(self.trained_on) or None)

    def supervised(self) -> SignificanceThresholdClassifier | None:
        """Return the forest of the simulation alone, with a threshold tuned on On and Off events; None without one."""
        forest = self.classifiers.get(SIMULATION)
        if self.simulated is None or forest is None:
            return None
        return SignificanceThresholdClassifier(FrozenEstimator(forest), cv="prefit")


def collect_references(
    observation: Observation,
    simulated: Simulated | None = None,
    models: Sequence[str | PathLike[str] | TrainedModel] = (),
    *,
    seed: int = 0,
    n_jobs: int = -1,
) -> ReferenceSet:
    """Return the references for an observation: a forest of simulated events, models, and columns.

    Parameters
    ----------
    observation : Observation
        Its configuration says which columns are references.
    simulated : pair or None, default=None
        Gammas and protons: a file, a sequence of files, or a table each.
    models : sequence of path or TrainedModel, default=()
        Models that were trained on other events; those that have seen these are refused. A file that ends in ``.onnx``
        is an ONNX model, which does not say what it has seen. Unless it names its features, it is given those of the
        configuration, in their order.
    seed, n_jobs : int
        Seed and cores of the forest.

    Returns
    -------
    ReferenceSet
        In this order.
    """
    found: dict[str, Any] = {}
    trained_on: dict[str, list[Any]] = {}
    files: dict[str, tuple[Path, ...]] = {}
    seen_files: list[Mapping[str, Any]] = []
    events = None
    if simulated is not None:
        events = SimulatedEvents.read(simulated, observation.config)
        found[SIMULATION] = events.train(seed=seed, n_jobs=n_jobs)
        files |= events.files
    for number, given in enumerate(models, start=1):
        if not isinstance(given, TrainedModel) and Path(given).suffix == ONNX:
            path = Path(given)
            found[str(path)] = _read_onnx(path, observation.config.without_references())
            files["references"] = (*files.get("references", ()), path)
            continue
        one = given if isinstance(given, TrainedModel) else load_model(given, n_jobs=n_jobs)
        name = str(one.path or f"model {number}")
        _check_features(one, name, observation.config)
        one.check_unseen(observation)
        found[name] = without_run_settings(one.model)
        if one.seen_groups:
            trained_on[name] = one.seen_groups
        if one.path is not None:
            files["references"] = (*files.get("references", ()), one.path)
        seen_files += [{**entry, "kind": f"training of {name}"} for entry in one.record.get("files", [])]
    for column in observation.config.references:
        if column in found:
            raise ArgumentError("references", f"hold two of the name {column!r}")
        _check_scores(column, observation)
        found[column] = column
    return ReferenceSet(found, trained_on, files, seen_files, events)


def _read_onnx(path: Path, config: AnalysisConfig) -> OnnxClassifier:
    """Return the classifier of an ONNX model; the features are those of the configuration unless it names its own."""
    model = OnnxClassifier(path)
    if not hasattr(model, "feature_names_in_"):
        return OnnxClassifier(path, feature_names=config.features)
    missing = [name for name in model.feature_names_in_ if name not in config.features]
    if missing:
        raise ModelFileError(
            f"{path}: needs features that these events are not read with: {', '.join(missing)}; add them to the "
            "configuration"
        )
    return model


def _check_features(trained: TrainedModel, name: str, config: AnalysisConfig) -> None:
    """Refuse a model that needs features which the events do not have, or which mean something else there."""
    missing = [feature for feature in trained.config.features if feature not in config.features]
    if missing:
        raise ModelFileError(
            f"{name}: needs features that these events are not read with: {', '.join(missing)}; add them to the "
            "configuration"
        )
    for feature in trained.config.features:
        if _definition(feature, trained.config) != _definition(feature, config):
            raise ModelFileError(
                f"{name}: was trained with another definition of the feature {feature!r}; give the same configuration"
            )


def _definition(feature: str, config: AnalysisConfig) -> Any:
    """Return a feature as columns of a file; a derived one as expression with all that it is computed from."""
    if feature not in config.derived_features:
        return feature
    used = set(config.inputs_of(feature))
    return [(name, own) for name, own in sorted(config.derived_features.items()) if name == feature or name in used]


def _check_scores(column: str, observation: Observation) -> None:
    """Refuse a column that has one value only."""
    scores = observation.X[:, observation.names.index(column)]
    if (scores == scores[0]).all():
        paths = [path for paths in observation.files.values() for path in paths]
        where = f"{paths[0]}: " if paths else ""
        raise EventFileError(
            f"{where}reference column {column!r} has the value {scores[0]:g} for all {len(scores):,} events, which "
            "tells nothing; was it filled?"
        )
