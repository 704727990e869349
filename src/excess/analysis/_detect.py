"""Search for a source in an observation: pooled and forward cross-validation, applied models, null tests."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone

from excess._utils.checks import FloatArray
from excess._utils.errors import ArgumentError, EventFileError, MismatchError, prefix_errors
from excess._utils.threads import progress_bar
from excess.analysis._apply import FoldModels, TrainedModel, load_model
from excess.analysis._models import make_model, without_run_settings
from excess.analysis._results import Run, add_zenith, describe_observation, describe_run
from excess.config._model import AnalysisConfig, to_features
from excess.dataset._dataset import OnOffDataset as OnOffDataset
from excess.dataset._simulate import simulate_labelled, simulate_observation
from excess.detection._cross_validation import cross_val_detect, holdout_detect
from excess.detection._null_test import NullTest, null_test
from excess.detection._result import Detection, Outcome
from excess.detection._simulation_check import SimulationAgreement, simulation_agreement
from excess.estimators._base import block_groups
from excess.estimators._binned import OnOffBinnedClassifier
from excess.estimators._boosting import train_boosting
from excess.estimators._hybrid import DROP, OnOffHybridClassifier
from excess.estimators._model_file import ModelFileError, is_model_file
from excess.estimators._onnx import OnnxClassifier
from excess.estimators._random_forest import OnOffForestClassifier
from excess.estimators._threshold import column_baseline
from excess.io._reading import describe, read_events
from excess.stats._likelihood import AlphaError

_logger = logging.getLogger(__name__)

SUPERVISED = "supervised"  # name of the classifiers trained on simulated events, among the models of a run
_MAX_NAMED_GROUPS = 20
CRAB = (83.6333, 22.0133)  # right ascension and declination of the Crab Nebula in deg
SIMULATION, BOOSTED_SIMULATION = "simulation", "boosted simulation"  # references trained on simulated events
# for about 20,000 simulated events; regularised, because smaller samples are common
_BOOSTING = {"max_iter": 400, "max_features": 0.3, "min_samples_leaf": 60, "l2_regularization": 30.0}
ONNX = ".onnx"  # suffix of third-party classifiers

SimulatedKind = str | PathLike[str] | Sequence[str | PathLike[str]] | pd.DataFrame
Simulated = tuple[SimulatedKind, SimulatedKind]  # gammas and protons: a file, several files, or a table each


def detect(
    observation: OnOffDataset,
    models: str | Sequence[str] | Mapping[str, Any] = "forest",
    *,
    model_files: Sequence[str | PathLike[str] | TrainedModel] = (),
    simulated: Simulated | None = None,
    references: Sequence[str | PathLike[str] | TrainedModel] = (),
    folds: int | None = None,
    strategy: str = "pooled",
    statistic: str = "likelihood",
    repeats: int = 1,
    permutations: int = 0,
    alpha_error: float | Mapping[str, float] | None = None,
    null_tests: bool | str = "auto",
    title: str | None = None,
    keep_models: bool = False,
    seed: int = 0,
    n_jobs: int = -1,
    verbose: bool = False,
    command: str = "detect",
) -> Run:
    """Search for a source, as `excess detect` does.

    Parameters
    ----------
    observation : OnOffDataset
        Events of one observation, or of several from `OnOffDataset.stack`, on which one model is trained.
    models : str, sequence of str, or mapping of str to classifier, default="forest"
        Models to cross-validate: names of `MODELS`, or classifiers by any name. The verdict refers to the first.
    model_files : sequence of path or TrainedModel, default=()
        Models trained on other events, applied without training.
    simulated : pair or None, default=None
        Simulated gammas and protons: a file, a sequence of files, or a table each. A forest and boosted trees trained
        on them are references of the model ``"hybrid"``, and are cross-validated without On/Off training as
        ``"supervised"``. Differences from observed events are in ``Run.simulation``; see `simulation_agreement`.
    references : sequence of path or TrainedModel, default=()
        Models trained on other events, as further references of ``"hybrid"``. Reference columns of the observation are
        also used; a cut on each of them is tuned in the same folds, as a model with its name.
    folds : int or None, default=None
        Number of folds; one per group by default.
    strategy : {"pooled", "forward"}, default="pooled"
        Pooled, with an additional forward value; or forward only. See `cross_val_detect`.
    statistic : {"likelihood", "cut"}, default="likelihood"
        Statistic of the verdict, to be declared before the analysis; both are reported.
    repeats, permutations : int
        Number of repetitions with other seeds, and of permutations of On and Off for a p-value.
    alpha_error : float, mapping of group to float, or None, default=None
        Relative uncertainty of the exposure ratio; by default that of the configuration. See `cross_val_detect`.
    null_tests : bool or "auto", default="auto"
        Also search in every Off region, with all models. ``"auto"`` does so with the first model only, trained on the
        first half of the events in time and evaluated on the second, if there are at least two Off regions.
    title : str or None, default=None
        Title of the report, such as the observed source.
    keep_models : bool, default=False
        Store the first model of each fold, for ``Run.write_events`` and `efficiency`.
    seed, n_jobs : int
        Random seed, and number of cores, on which the result does not depend.
    verbose : bool, default=False
        Show progress bars.
    command : str, default="detect"
        Name of the command in the record of the run.

    Returns
    -------
    Run
        Results, with ``write(folder)`` and ``report(path)``.

    Examples
    --------
    >>> from excess.analysis import OnOffDataset, detect
    >>> from excess.dataset import simulate_observation
    >>> run = detect(OnOffDataset.from_files(simulate_observation(60_000, 400, random_state=0)), "li-ma-tree")
    >>> print(run.detections["li-ma-tree"].counts)
    On 390, Off 740, alpha 0.2: excess 242.0 +- 20.5, 14.5 sigma
    """
    observation = fix_edges(observation)
    names = [models] if isinstance(models, str) else list(models)
    trained = [one if isinstance(one, TrainedModel) else load_model(one, n_jobs=n_jobs) for one in model_files]
    applied_names = [str(one.path or f"model {number}") for number, one in enumerate(trained, start=1)]
    for name, number in Counter([*names, *applied_names]).items():
        if number > 1:
            raise ArgumentError("models", f"contain {name!r} twice")
    given = models if isinstance(models, Mapping) else {}
    to_train = dict(given) or {name: make_model(name, random_state=seed, n_jobs=n_jobs) for name in names}
    if null_tests not in (True, False, "auto"):
        raise ArgumentError("null_tests", f"must be True, False or 'auto', got {null_tests!r}")
    _check_request(observation, to_train, null_tests is True, permutations)
    if keep_models:
        _check_folds(observation, to_train, strategy)
    if not to_train and not trained and simulated is None:
        raise ArgumentError("models", "must contain at least one model unless `model_files` are given")
    if references and "hybrid" not in names:
        raise ArgumentError("references", "require the model hybrid, which is not among `models`")
    # events beyond the cut on theta^2 enter the likelihood with their direction
    wide = observation.widen()
    plain = wide.without_references()
    for one in trained:
        check_applicable(one, wide if one.config.references else plain)
    known = collect_references(observation, simulated, references, seed=seed, n_jobs=n_jobs)
    if not isinstance(models, Mapping) and "hybrid" in to_train:
        to_train["hybrid"] = known.complete(to_train["hybrid"])

    files = {**observation.files, "model": tuple(one.path for one in trained if one.path is not None), **known.files}
    searched = dict(to_train)
    if (supervised := known.supervised(seed)) is not None:
        searched[SUPERVISED] = supervised

    to_train, searched = with_bins(to_train, observation), with_bins(searched, observation)
    # cuts on the scores of other analyses, for comparison, if there are folds
    for column in observation.config.references if to_train else ():
        name = column if column not in (*searched, *applied_names) else f"cut on {column}"
        searched[name] = column_baseline(column, random_state=seed)

    alpha_error = observation.config.regions.alpha_error if alpha_error is None else alpha_error
    of_events = {"groups": wide.groups, "time": wide.time, "runs": wide.run_labels, "direction": wide.direction}
    of_folds = {"cv": folds, "strategy": strategy, "statistic": statistic, "n_repeats": repeats}
    shared: dict[str, Any] = {**of_events, **of_folds, "alpha_error": alpha_error, "random_state": seed}
    shared["verbose"] = int(verbose)
    applied = dict(zip(applied_names, trained, strict=True))
    found = {}
    for name, one in applied.items():
        found[name] = detect_with(one, wide if one.config.references else plain, statistic, alpha_error)
    forward: dict[str, Outcome] = {}
    tests: dict[str, NullTest] = {}
    no_forward = ""
    # the same folds and seeds for all models
    further: dict[str, Any] = {"observations": wide.observations, "n_permutations": permutations}
    for own, X, nearby in _by_input(searched, wide, plain):
        own_settings = {**shared, **further, "nearby": nearby, "return_estimator": keep_models}
        found |= cross_val_detect(own, X, wide.on, alpha=wide.exposure_ratio, **own_settings)
        if strategy == "pooled":
            more, no_forward = _search_forward(wide, X, own, shared)
            # remarks about blocks belong to the quoted value
            found |= {name: replace(found[name], remarks=one.remarks) for name, one in more.items()}
            hours = None if wide.exposure is None else wide.exposure.total
            forward |= {name: replace(one.outcome, limits=one.limits(hours)) for name, one in more.items()}
    tested = dict(list(to_train.items())[: 1 if null_tests == "auto" else None]) if null_tests else {}
    for name, one in tested.items():
        # selected on On and Off, not by Off region, and used by the search
        if isinstance(one, OnOffForestClassifier) and one.configuration is None:
            tested[name] = clone(one).set_params(configuration=found[name].folds[-1].configuration)
    # the exposure of each Off region is known inside the cut only
    tested_on = wide if observation.regions.exposure is None else observation
    for own, X, _ in _by_input(tested, tested_on, tested_on.without_references()):
        tests |= _test_null(tested_on, X, own, shared, quick=null_tests == "auto")
    # requested models first, the reference last
    asked = [*names, *applied_names, *(name for name in searched if name not in names)]
    estimators = {**searched, **{name: one.model for name, one in applied.items()}}
    events = add_zenith(wide.events_frame())
    fold_models = _fold_models(wide, names[0], found[names[0]]) if keep_models else None
    requested = {"folds": folds, "strategy": strategy, "statistic": statistic}
    requested |= {"repeats": repeats, "permutations": permutations, "null_test": null_tests}
    options = {
        "models": [*names, *applied_names],
        "estimators": {name: repr(without_run_settings(one)) for name, one in estimators.items()},
        "groups": observation.group_column,
        **requested,
        "alpha": _given_alpha(observation),
        "alpha_error": alpha_error,
        "references": list(known.classifiers) or None,
    }
    simulation = None
    if known.simulated is not None:
        simulation = _check_simulation(known.simulated, observation.without_references(), seed, n_jobs, verbose)
    return Run(
        detections={name: wide.annotate(replace(found[name], estimators=())) for name in asked},
        forward={name: forward[name] for name in asked if name in forward},
        null_tests={name: tests[name] for name in asked if name in tests},
        no_forward=no_forward,
        observed={**observation.summary(), "header": describe_observation(observation, events)},
        record=describe_run(command, seed, files, options, title),
        config=observation.config.to_yaml(),
        events=events,
        simulation=simulation,
        fold_models=fold_models,
    )


def _check_folds(observation: OnOffDataset, models: Mapping[str, Any], strategy: str) -> None:
    """Raise an error unless each group is held out in one fold and identified by a column of the files."""
    groups, column = observation.groups, observation.group_column
    if not models or strategy != "pooled":
        raise ArgumentError("write_events", "requires a model to train, and `strategy` pooled")
    known = None if groups is None else observation.table.get(column)
    # groups of matched Off runs are pairs of runs
    if groups is None or (known is not None and (known.astype(str) != groups.astype(str)).any()):
        raise MismatchError("write_events", "requires groups that are a column of the files, such as nights or runs")


def _fold_models(observation: OnOffDataset, name: str, found: Detection) -> FoldModels:
    """Return the models of the folds of a detection, with their training groups."""
    assert observation.groups is not None
    config = observation.config.model_copy(update={"groups": observation.group_column})
    trained = []
    for number, model in enumerate(found.estimators):
        own = config if is_hybrid(model) else config.without_references()
        groups = sorted(set(observation.groups[found.fold != number].tolist()))
        trained.append(TrainedModel(without_run_settings(model), own, groups, {"model": name, "fold": number}))
    return FoldModels(tuple(trained))


def _check_simulation(
    simulated: SimulatedEvents, observation: OnOffDataset, seed: int, n_jobs: int, verbose: bool
) -> SimulationAgreement:
    """Compare the features of simulated and observed events."""
    forest = make_model("forest", random_state=seed, n_jobs=n_jobs)
    settings: dict[str, Any] = {"groups": observation.groups, "feature_names": simulated.names, "random_state": seed}
    events = observation.X, observation.on, simulated.gammas, simulated.protons
    with progress_bar("Checking the simulation", 1, shown=verbose) as tick:
        found = simulation_agreement(*events, alpha=observation.exposure_ratio, estimator=forest, **settings)
        tick(1)
    return found


def _by_input(
    models: Mapping[str, Any], observation: OnOffDataset, plain: OnOffDataset
) -> Iterator[tuple[dict[str, Any], Any, tuple[Any, Any] | None]]:
    """Yield models with events and nearby events: a hybrid takes a table of all columns, the others the features."""
    for hybrid, own in ((False, plain), (True, observation)):
        found = {name: one for name, one in models.items() if is_hybrid(one) == hybrid}
        if found:
            near = own.nearby
            around = None if near is None else (own.to_frame(near.X) if hybrid else near.X, near.groups)
            yield found, own.frame if hybrid else own.X, around


def _check_request(observation: OnOffDataset, models: Mapping[str, Any], null_tests: bool, permutations: int) -> None:
    """Raise an error for options that these models and regions do not support."""
    for given, argument in ((null_tests, "null_tests"), (permutations, "permutations")):
        if given and not models:
            raise ArgumentError(argument, "requires a model to train; model files are not trained")
    if null_tests and observation.regions.n_regions < 3:
        raise MismatchError("null_tests", "requires at least two Off regions")


def _given_alpha(observation: OnOffDataset) -> float | dict[str, float] | None:
    """Return the given exposure ratio, by group if it varies; None if it follows from regions."""
    if observation.observations is not None:
        if observation.event_alpha is None:
            return observation.alpha
        names = np.unique(observation.observations)
        alphas = [observation.event_alpha[observation.observations == name] for name in names]
        means = (float(own[0] if (own == own[0]).all() else own.mean()) for own in alphas)
        return dict(zip(map(str, names), means, strict=True))
    if "Off events" not in observation.files:
        return None
    if observation.event_alpha is None or observation.groups is None:
        return observation.alpha
    names, number = np.unique(observation.groups, return_inverse=True)
    total, n = np.bincount(number, observation.event_alpha), np.bincount(number)
    return dict(zip(map(str, names), (total / n).round(12).tolist(), strict=True))


def _search_forward(
    observation: OnOffDataset, X: Any, models: dict[str, Any], shared: dict[str, Any]
) -> tuple[dict[str, Detection], str]:
    """Cross-validate forward in time; or return why that is not possible, without losing other results."""
    settings = {**shared, "cv": None, "strategy": "forward"}
    try:
        return cross_val_detect(models, X, observation.on, alpha=observation.exposure_ratio, **settings), ""
    except ValueError as error:
        return {}, str(error) + _blocks_of(observation)


def _test_null(
    observation: OnOffDataset, X: Any, models: dict[str, Any], settings: dict[str, Any], *, quick: bool
) -> dict[str, NullTest]:
    """Search in every Off region; a quick test trains on one half of the groups only, if possible."""
    regions = observation.regions
    own = {"groups": observation.groups, "time": observation.time, "runs": observation.run_labels}
    settings = {**settings, **own, "direction": observation.direction}
    if quick:
        settings |= {"cv": 2, "strategy": "forward", "n_repeats": 1}
        if regions.n_regions < 3:
            return {}
    try:
        return null_test(models, X, regions.region, n_regions=regions.n_regions, exposure=regions.exposure, **settings)
    except ValueError as error:  # too few groups, or too few events in a region
        if not quick:
            raise
        _logger.info("no null test: %s", error)
        return {}


def _blocks_of(observation: OnOffDataset) -> str:
    """Describe blocks of groups that are held out in place of groups, if any."""
    if observation.groups is None:
        return ""
    blocks = block_groups(observation.groups, observation.regions.on)
    if blocks is observation.groups:
        return ""
    found = {str(name): int(block) for name, block in zip(observation.groups, blocks, strict=True)}
    if len(found) > _MAX_NAMED_GROUPS:
        return f". Each of {len(np.unique(blocks))} folds holds out groups of On and of Off events together"
    texts = [" + ".join(name for name in found if found[name] == block) for block in np.unique(blocks)]
    return f". Each fold holds out groups of On and of Off events together: {'; '.join(texts)}"


def check_applicable(trained: TrainedModel, observation: OnOffDataset) -> None:
    """Raise an error for files and groups used to train a model, and for other features than its own."""
    trained.check_unseen(observation, ", or the name of a model to cross-validate")
    for name in ("features", "derived_features", "quality_cuts", "references"):
        if getattr(observation.config, name) != getattr(trained.config, name):
            other = f"was trained with other {name} than these events are read with"
            raise ModelFileError(f"{trained.path}: {other}; use the same configuration")


def detect_with(
    trained: TrainedModel, observation: OnOffDataset, statistic: str, alpha_error: AlphaError | None = None
) -> Detection:
    """Apply a model trained on other events to the events of an observation."""
    nearby = observation.nearby
    settings: dict[str, Any] = {name: getattr(observation, name) for name in ("groups", "observations", "direction")}
    if nearby is not None:
        settings["nearby"] = (observation.to_frame(nearby.X), nearby.groups)
    settings |= {"alpha": observation.exposure_ratio, "alpha_error": alpha_error, "statistic": statistic}
    return holdout_detect(trained.model, observation.frame, observation.on, **settings)


def demo(
    n_events: int = 757_993,
    n_signal: int = 1_242,
    *,
    seed: int = 0,
    n_jobs: int = -1,
    verbose: bool = False,
    notify: Callable[[str], None] = lambda text: None,
) -> Run:
    """Simulate an observation like FACT's open Crab sample, and search for the source in it."""
    notify(f"Simulating {n_events:,} events, {n_signal:,} of them gammas")
    crab = AnalysisConfig().with_source(*CRAB)
    events = simulate_observation(n_events, n_signal, source=CRAB, random_state=seed)
    observation = OnOffDataset.from_files(events, crab)
    notify(str(observation))
    notify("Simulating 20,000 gammas and protons with known labels, for a reference")
    truth = simulate_labelled(random_state=seed + 1)
    settings: dict[str, Any] = {"seed": seed, "n_jobs": n_jobs, "verbose": verbose, "command": "demo"}
    settings["simulated"] = truth[truth["is_signal"]], truth[~truth["is_signal"]]
    settings |= {"null_tests": True, "title": "A simulated observation like FACT's of the Crab Nebula"}
    run = detect(observation, ["forest", "li-ma-tree", "k-means"], **settings)
    run.record["options"] |= {"events": n_events, "signal": n_signal}
    return run


def is_hybrid(estimator: BaseEstimator) -> bool:
    """Return whether an estimator, or a nested one, requires reference columns."""
    parts = (estimator, *estimator.get_params().values())
    return any(getattr(part, "needs_columns", False) is True for part in parts)


def check_names(names: Iterable[str]) -> None:
    """Raise ArgumentError for an unknown model name, before events are read."""
    for name in names:
        make_model(name)


def split_references(given: Iterable[str], *, n_jobs: int = -1) -> tuple[list[str], list[TrainedModel | Path]]:
    """Separate references that are columns from those that are models."""
    columns: list[str] = []
    models: list[TrainedModel | Path] = []
    for one in dict.fromkeys(given):
        if not Path(one).exists():
            if Path(one).name != one or Path(one).suffix in (".excess", ONNX):
                raise ModelFileError(f"{one} does not exist; pass a model file or the name of a column")
            columns.append(one)
        elif is_model_file(one):
            models.append(load_model(one, n_jobs=n_jobs))
        elif Path(one).suffix == ONNX:
            models.append(Path(one))
        else:
            neither = "is neither a model file of 'excess train' nor an ONNX model (.onnx)"
            raise ModelFileError(f"{one}: {neither}; pass one of these or the name of a column")
    return columns, models


@dataclass(frozen=True, eq=False)
class SimulatedEvents:
    """Simulated gammas and protons that pass the quality cuts."""

    gammas: FloatArray
    protons: FloatArray
    names: tuple[str, ...]
    files: Mapping[str, tuple[Path, ...]]

    @classmethod
    def read(cls, simulated: Simulated, config: AnalysisConfig) -> SimulatedEvents:
        """Read files of simulated gammas and of protons, or use tables of them."""
        if not isinstance(simulated, tuple) or len(simulated) != 2:
            raise ArgumentError("simulated", "must be a pair: simulated gammas and protons")
        settings = config.without_references()
        parts, files = [], {}
        for kind, given in zip(("gammas", "protons"), simulated, strict=True):
            listed: Any = [given] if isinstance(given, (str, PathLike)) else given
            paths = () if isinstance(given, pd.DataFrame) else tuple(map(Path, listed))
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

    def train(self, *, seed: int, n_jobs: int) -> dict[str, Any]:
        """Return classifiers that separate simulated gammas from protons, by name."""
        X = np.concatenate([self.gammas, self.protons])
        labels = np.repeat([1, 0], [len(self.gammas), len(self.protons)])
        forest = make_model("simulation-forest", random_state=seed, n_jobs=n_jobs)
        return {
            SIMULATION: without_run_settings(forest.fit(X, labels)),
            BOOSTED_SIMULATION: train_boosting(X, labels, random_state=seed, early_stopping=False, **_BOOSTING),
        }


def check_simulated_columns(path: Path, needed: Iterable[str]) -> None:
    """Raise EventFileError for a file of simulated events without the columns required for observed events."""
    found = describe(path)
    present = {*found.columns, *found.telescope_columns}
    missing = [name for name in needed if name not in present]
    if missing:
        columns = f"{'column' if len(missing) == 1 else 'columns'} {', '.join(missing)}"
        raise EventFileError(f"{path}: has no {columns}, required by features or quality cuts of observed events")


@dataclass(frozen=True, eq=False)
class ReferenceSet:
    """All references of a hybrid."""

    classifiers: Mapping[str, Any] = field(default_factory=dict)
    trained_on: Mapping[str, list[Any]] = field(default_factory=dict)
    files: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    seen_files: Sequence[Mapping[str, Any]] = ()
    simulated: SimulatedEvents | None = None

    def complete(self, hybrid: OnOffHybridClassifier) -> OnOffHybridClassifier:
        """Return a hybrid with these references; raise ArgumentError without references."""
        if not self.classifiers:
            raise ArgumentError("model", "hybrid requires references: pass `simulated` or `references`")
        return hybrid.set_params(references=dict(self.classifiers), trained_on=dict(self.trained_on) or None)

    def supervised(self, seed: int) -> OnOffHybridClassifier | None:
        """Return the classifiers of the simulation only, weighted by On and Off events; None without a simulation."""
        if self.simulated is None:
            return None
        own = {name: self.classifiers[name] for name in (SIMULATION, BOOSTED_SIMULATION)}
        return OnOffHybridClassifier(own, DROP, random_state=seed)


def collect_references(
    observation: OnOffDataset,
    simulated: Simulated | None = None,
    models: Sequence[str | PathLike[str] | TrainedModel] = (),
    *,
    seed: int = 0,
    n_jobs: int = -1,
) -> ReferenceSet:
    """Return the references for an observation: classifiers of simulated events, models, and columns."""
    found: dict[str, Any] = {}
    trained_on: dict[str, list[Any]] = {}
    files: dict[str, tuple[Path, ...]] = {}
    seen_files: list[Mapping[str, Any]] = []
    events = None
    if simulated is not None:
        events = SimulatedEvents.read(simulated, observation.config)
        found |= events.train(seed=seed, n_jobs=n_jobs)
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
            raise ArgumentError("references", f"contain the name {column!r} twice")
        _check_scores(column, observation)
        found[column] = column
    return ReferenceSet(found, trained_on, files, seen_files, events)


def _read_onnx(path: Path, config: AnalysisConfig) -> OnnxClassifier:
    """Return the classifier of an ONNX model; the features are those of the configuration unless it names its own."""
    model = OnnxClassifier(path)
    if not hasattr(model, "feature_names_in_"):
        return OnnxClassifier(path, feature_names=config.features)
    _check_present(str(path), model.feature_names_in_, config)
    return model


def _check_present(name: str, features: Iterable[str], config: AnalysisConfig) -> None:
    """Raise an error for a model with features that the configuration lacks."""
    missing = [feature for feature in features if feature not in config.features]
    if missing:
        needed = f"requires features that are not in the configuration: {', '.join(missing)}"
        raise ModelFileError(f"{name}: {needed}; add them")


def _check_features(trained: TrainedModel, name: str, config: AnalysisConfig) -> None:
    """Raise an error for a model with features that the events lack or that are defined differently."""
    _check_present(name, trained.config.features, config)
    for feature in trained.config.features:
        if _definition(feature, trained.config) != _definition(feature, config):
            other = f"was trained with another definition of the feature {feature!r}"
            raise ModelFileError(f"{name}: {other}; use the same configuration")


def _definition(feature: str, config: AnalysisConfig) -> Any:
    """Return a feature in terms of columns of a file; a derived one as expression with all of its inputs."""
    if feature not in config.derived_features:
        return feature
    used = set(config.inputs_of(feature))
    return [(name, own) for name, own in sorted(config.derived_features.items()) if name == feature or name in used]


def _check_scores(column: str, observation: OnOffDataset) -> None:
    """Raise an error for a constant column."""
    scores = observation.X[:, observation.names.index(column)]
    if (scores == scores[0]).all():
        where = next((f"{path}: " for paths in observation.files.values() for path in paths), "")
        constant = f"has the value {scores[0]:g} for all {len(scores):,} events"
        raise EventFileError(f"{where}reference column {column!r} {constant}; check that it was filled")


def fix_edges(observation: OnOffDataset) -> OnOffDataset:
    """Return an observation with bin edges: a number of bins is converted to bins of equally many events."""
    bins = observation.config.bins
    if bins is None or bins.n_bins is None:
        return observation
    values = observation.X[:, observation.names.index(bins.column)]
    edges = np.unique(np.quantile(values, np.arange(1, bins.n_bins) / bins.n_bins))
    # without unnecessary digits
    edges = np.unique([float(f"{edge:.4g}") for edge in edges])
    edges = edges[(edges > values.min()) & (edges <= values.max())]
    if len(edges) == 0:
        raise MismatchError("bins", f"cannot be defined: {bins.column} has the same value in almost all events")
    fixed = bins.model_copy(update={"edges": tuple(edges.tolist()), "n_bins": None})
    return replace(observation, config=observation.config.model_copy(update={"bins": fixed}))


def with_bins(models: Mapping[str, Any], observation: OnOffDataset) -> dict[str, Any]:
    """Return models with a threshold and a calibration for each bin of an observation; unchanged without bins."""
    bins = observation.config.bins
    if bins is None:
        return dict(models)
    plain = observation.config.without_references().features
    found = {}
    for name, model in models.items():
        known = model.get_params(deep=False)
        shared = ("threshold", "threshold_tolerance", "n_threshold_bootstrap", "n_jobs", "random_state")
        settings = {key: known[key] for key in shared if key in known}
        # a hybrid takes a table, the others an array of the features
        column = bins.column if is_hybrid(model) else plain.index(bins.column)
        if not isinstance(model, OnOffBinnedClassifier):
            model = OnOffBinnedClassifier(model, column, bins.edges, passthrough=bool(bins.feature), **settings)
        found[name] = model
    return found
