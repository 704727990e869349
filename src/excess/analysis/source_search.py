"""The search for a source in an observation: cross-validation pooled and forward, applied models, null tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from excess._core.errors import ArgumentError, EventFileError
from excess._core.files import sha256_of
from excess.analysis.models import make_model
from excess.analysis.run_folder import Run, describe_run, without_run_settings
from excess.analysis.training import TrainedModel, load_model
from excess.estimators.model_file import ModelFileError
from excess.estimators.supervised import supervised_reference
from excess.events import AnalysisConfig, read_events, to_features
from excess.observation.observation import Observation, observe
from excess.observation.stacking import observe_several, stack
from excess.validation import cross_val_detect, detect, null_test
from excess.validation.detection import Detection
from excess.validation.outcome import Outcome

__all__ = ["Observation", "observe", "observe_several", "search", "stack", "train_reference"]

REFERENCE = "supervised"
"""Name of the supervised reference among the models of a run."""


def search(
    observation: Observation,
    models: str | Sequence[str] | Mapping[str, Any] = "forest",
    *,
    model_files: Sequence[str | PathLike[str] | TrainedModel] = (),
    reference: tuple[str | PathLike[str], str | PathLike[str]] | Any = None,
    folds: int | None = None,
    strategy: str = "pooled",
    statistic: str = "likelihood",
    repeats: int = 1,
    permutations: int = 0,
    null_tests: bool = False,
    title: str | None = None,
    seed: int = 0,
    n_jobs: int = -1,
    verbose: bool = False,
    command: str = "detect",
) -> Run:
    """Search for a source: what `excess detect` does.

    Parameters
    ----------
    observation : Observation
        From `observe`, or several of them from `stack`: one model learns from all, and each has its significance.
    models : str, sequence of str, or mapping of str to classifier, default="forest"
        Models to cross-validate: names of `MODELS`, or classifiers by a name of your choice. The verdict is about the
        first.
    model_files : sequence of path or TrainedModel, default=()
        Models that were trained on other events, applied as they are.
    reference : pair of paths or classifier, default=None
        Files of simulated gammas and of protons to train a supervised reference on, or the reference itself; it is
        cross-validated beside the models, without null tests.
    folds : int or None, default=None
        Number of folds; by default one per group.
    strategy : {"pooled", "forward"}, default="pooled"
        Pooled, with the forward value beside it; or forward alone. See `cross_val_detect`.
    statistic : {"likelihood", "cut"}, default="likelihood"
        What the verdict follows, declared before the events are looked at; the other stands beside it.
    repeats, permutations : int
        Repetitions with other seeds; permutations of On and Off for a p-value.
    null_tests : bool, default=False
        Search in every Off region, too.
    title : str or None, default=None
        What was observed, for the report.
    seed : int, default=0
        Seed of everything random.
    n_jobs : int, default=-1
        Cores; the result does not depend on them.
    verbose : bool, default=False
        Show progress bars.
    command : str, default="detect"
        What the record of the run calls it.

    Returns
    -------
    Run
        Everything that was found, with ``write(folder)`` and ``report(path)``.

    Examples
    --------
    >>> from excess.analysis import observe, search
    >>> from excess.observation import simulate_observation
    >>> run = search(observe(simulate_observation(60_000, 400, random_state=0)), "li-ma-tree")
    >>> print(run.detections["li-ma-tree"].counts)
    On 390, Off 740, alpha 0.2: excess 242.0 +- 20.5, 14.5 sigma
    """
    names = [models] if isinstance(models, str) else list(models)
    trained = [one if isinstance(one, TrainedModel) else load_model(one, n_jobs=n_jobs) for one in model_files]
    applied_names = [str(one.path or f"model {number}") for number, one in enumerate(trained, start=1)]
    for name in (*names, *applied_names):
        if [*names, *applied_names].count(name) > 1:
            raise ArgumentError("models", f"hold {name!r} twice")
    if isinstance(models, Mapping):
        to_train = dict(models)
    else:
        to_train = {name: make_model(name, random_state=seed, n_jobs=n_jobs) for name in names}
    _check_request(observation, to_train, null_tests, permutations)
    if not to_train and not trained:
        raise ArgumentError("models", "must hold at least one model, unless there are `model_files`")
    for one in trained:
        check_unseen(one, observation)

    files = {**observation.files, "model": tuple(one.path for one in trained if one.path is not None)}
    searched = dict(to_train)
    if isinstance(reference, tuple):
        gammas, protons = map(Path, reference)
        files |= {"simulated gammas": (gammas,), "simulated protons": (protons,)}
        reference = train_reference(gammas, protons, observation.config, seed=seed, n_jobs=n_jobs)
    if reference is not None:
        searched[REFERENCE] = reference

    shared: dict[str, Any] = {
        "groups": observation.groups,
        "random_state": seed,
        "verbose": int(verbose),
        "cv": folds,
        "strategy": strategy,
        "statistic": statistic,
        "n_repeats": repeats,
    }
    applied = dict(zip(applied_names, trained, strict=True))
    found = {name: detect_with(one, observation, statistic) for name, one in applied.items()}
    forward: dict[str, Outcome] = {}
    no_forward, tests = "", {}
    if searched:
        nearby = observation.nearby
        found |= cross_val_detect(
            searched,
            observation.X,
            observation.on,
            alpha=observation.exposure_ratio,
            observations=observation.observations,
            nearby=None if nearby is None else (nearby.X, nearby.groups),
            n_permutations=permutations,
            **shared,
        )
        if strategy == "pooled":
            forward, no_forward = _search_forward(observation, searched, shared)
    if null_tests:
        regions = observation.regions
        tests = null_test(to_train, observation.X, regions.region, n_regions=regions.n_regions, **shared)
    # what was asked for comes first, the reference last
    asked = [*names, *applied_names, *(name for name in searched if name not in names)]
    estimators = {**searched, **{name: one.model for name, one in applied.items()}}
    options = {
        "models": [*names, *applied_names],
        "estimators": {name: repr(without_run_settings(one)) for name, one in estimators.items()},
        "groups": observation.group_column,
        "folds": folds,
        "strategy": strategy,
        "statistic": statistic,
        "repeats": repeats,
        "permutations": permutations,
        "null_test": null_tests,
        "alpha": _given_alpha(observation),
    }
    return Run(
        detections={name: observation.annotate(found[name]) for name in asked},
        forward=forward,
        null_tests=tests,
        no_forward=no_forward,
        observed=observation.summary(),
        record=describe_run(command, seed, files, options, title),
        config=observation.config_yaml,
        events=observation.events_frame(),
    )


def _check_request(observation: Observation, models: Mapping[str, Any], null_tests: bool, permutations: int) -> None:
    """Refuse what these models and regions cannot do."""
    for given, argument in ((null_tests, "null_tests"), (permutations, "permutations")):
        if given and not models:
            raise ArgumentError(argument, "needs a model to train; a model file is applied as it is")
    if null_tests and observation.regions.n_regions < 3:
        more = "" if observation.observations is None else ", and the same number of them in all observations"
        raise ArgumentError("null_tests", f"needs at least two Off regions{more}")


def _given_alpha(observation: Observation) -> float | dict[str, float] | None:
    """Return the exposure ratio as it was given, by group where it differs; None where it follows from regions.

    That of stacked observations is the mean of each, because groups may share names.
    """
    if observation.observations is not None:
        if observation.event_alpha is None:
            return observation.alpha
        found = {}
        for name in np.unique(observation.observations):
            own = observation.event_alpha[observation.observations == name]
            found[str(name)] = float(own[0] if (own == own[0]).all() else own.mean())
        return found
    if "Off events" not in observation.files:
        return None
    if observation.event_alpha is None or observation.groups is None:
        return observation.alpha
    names, first = np.unique(observation.groups, return_index=True)
    return dict(zip(map(str, names), observation.event_alpha[first].tolist(), strict=True))


def _search_forward(
    observation: Observation, models: dict[str, Any], shared: dict[str, Any]
) -> tuple[dict[str, Outcome], str]:
    """Cross-validate forward in time; or say why that cannot be done, which is no reason to lose the rest."""
    order: Any = slice(None)
    if observation.groups is None:
        time = observation.time
        if time is None or not np.isfinite(time).all():
            return {}, "there are neither groups nor times, so that what came first is not known"
        order = np.argsort(time, kind="stable")
    ratio = observation.exposure_ratio
    try:
        found = cross_val_detect(
            models,
            observation.X[order],
            observation.on[order],
            alpha=ratio[order] if isinstance(ratio, np.ndarray) else ratio,
            **{**shared, "strategy": "forward"},
        )
    except ValueError as error:
        return {}, str(error)
    return {name: one.outcome for name, one in found.items()}, ""


def train_reference(gammas: Path, protons: Path, config: AnalysisConfig, *, seed: int = 0, n_jobs: int = -1) -> Any:
    """Train the supervised reference on files of simulated gammas and of protons.

    Parameters
    ----------
    gammas, protons : path
        Event files.
    config : AnalysisConfig
        Features and cuts.
    seed, n_jobs : int
        Seed and cores of the forest.

    Returns
    -------
    classifier
        A forest whose threshold is tuned on On and Off events; see `supervised_reference`.
    """
    parts = []
    for path in (gammas, protons):
        features = to_features(read_events(path, config.columns_needed()), config)
        if not features.valid.any():
            raise EventFileError(f"{path}: no event passes the quality cuts")
        parts.append(features.X[features.valid])
    labels = np.repeat([1, 0], [len(part) for part in parts])
    return supervised_reference(np.concatenate(parts), labels, n_jobs=n_jobs, random_state=seed)


def check_unseen(trained: TrainedModel, observation: Observation) -> None:
    """Refuse files and groups that a model was trained on, and other features than its own."""
    seen = {entry["sha256"] for entry in trained.record.get("files", [])}
    for path in (path for paths in observation.files.values() for path in paths):
        if path.is_file() and sha256_of(path) in seen:
            raise ModelFileError(
                f"{trained.path}: was trained on {path}; give it events that it has not seen, or the name of a model "
                "to cross-validate"
            )
    for name in ("features", "derived_features", "quality_cuts"):
        if getattr(observation.config, name) != getattr(trained.config, name):
            raise ModelFileError(
                f"{trained.path}: was trained with other {name} than these events are read with; give the same "
                "configuration"
            )
    if observation.groups is not None:
        shared = sorted(set(observation.groups.tolist()) & set(trained.groups))
        if shared:
            raise ModelFileError(
                f"{trained.path}: was trained on events of group {shared[0]!r}, which these files hold as well"
            )


def detect_with(trained: TrainedModel, observation: Observation, statistic: str) -> Detection:
    """Judge the events of an observation by a model that was trained on others."""
    nearby = observation.nearby
    return detect(
        trained.model,
        observation.frame,
        observation.on,
        alpha=observation.exposure_ratio,
        groups=observation.groups,
        observations=observation.observations,
        nearby=None if nearby is None else (observation.to_frame(nearby.X), nearby.groups),
        statistic=statistic,
    )
