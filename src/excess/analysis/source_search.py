"""The search for a source in an observation: cross-validation pooled and forward, applied models, null tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import _safe_indexing

from excess._core.errors import ArgumentError, MismatchError
from excess._core.progress import progress_bar
from excess.analysis.bins import fix_edges, with_bins
from excess.analysis.models import make_model, without_run_settings
from excess.analysis.references import Simulated, SimulatedEvents, collect_references, is_hybrid
from excess.analysis.run_folder import Run
from excess.analysis.run_record import describe_run
from excess.analysis.trained_model import TrainedModel, load_model
from excess.estimators.folds import block_groups
from excess.estimators.model_file import ModelFileError
from excess.observation.observation import Observation
from excess.observation.observing import observe
from excess.observation.stacking import observe_several, stack
from excess.validation import cross_val_detect, detect, null_test, simulation_agreement
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest
from excess.validation.outcome import Outcome
from excess.validation.simulation_agreement import SimulationAgreement

__all__ = ["Observation", "observe", "observe_several", "search", "stack"]

_logger = logging.getLogger(__name__)

SUPERVISED = "supervised"
"""Name of the forest that was trained on simulated events, among the models of a run."""

_MAX_NAMED_GROUPS = 20


def search(
    observation: Observation,
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
    null_tests: bool | str = "auto",
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
    simulated : pair or None, default=None
        Simulated gammas and protons: a file, a sequence of files, or a table each. A forest that is trained on them
        is a reference of the model ``"hybrid"``, and is cross-validated alone as ``"supervised"``, without null tests.
        Where simulated events differ from observed ones is in ``Run.simulation``; see `simulation_agreement`.
    references : sequence of path or TrainedModel, default=()
        Models that were trained on other events, as further references of ``"hybrid"``. Those of the observation, which
        are columns, are references as well.
    folds : int or None, default=None
        Number of folds; by default one per group.
    strategy : {"pooled", "forward"}, default="pooled"
        Pooled, with the forward value beside it; or forward alone. See `cross_val_detect`.
    statistic : {"likelihood", "cut"}, default="likelihood"
        What the verdict follows, declared before the events are looked at; the other stands beside it.
    repeats, permutations : int
        Repetitions with other seeds; permutations of On and Off for a p-value.
    null_tests : bool or "auto", default="auto"
        Search in every Off region, too, with all models. ``"auto"`` does so with the first model alone, which learns
        from the first half of the groups and judges the second, where there are at least two Off regions.
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
    observation = fix_edges(observation)
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
    if null_tests not in (True, False, "auto"):
        raise ArgumentError("null_tests", f"must be True, False or 'auto', got {null_tests!r}")
    _check_request(observation, to_train, null_tests is True, permutations)
    if not to_train and not trained and simulated is None:
        raise ArgumentError("models", "must hold at least one model, unless there are `model_files`")
    if references and "hybrid" not in names:
        raise ArgumentError("references", "are for the model hybrid, which is not among `models`")
    plain = observation.without_references()
    for one in trained:
        check_applicable(one, observation if one.config.references else plain)
    known = collect_references(observation, simulated, references, seed=seed, n_jobs=n_jobs)
    if not isinstance(models, Mapping) and "hybrid" in to_train:
        to_train["hybrid"] = known.complete(to_train["hybrid"])

    files = {**observation.files, "model": tuple(one.path for one in trained if one.path is not None), **known.files}
    searched = dict(to_train)
    if (supervised := known.supervised()) is not None:
        searched[SUPERVISED] = supervised

    to_train, searched = with_bins(to_train, observation), with_bins(searched, observation)

    shared: dict[str, Any] = {
        "groups": observation.groups,
        "time": observation.time,
        "random_state": seed,
        "verbose": int(verbose),
        "cv": folds,
        "strategy": strategy,
        "statistic": statistic,
        "n_repeats": repeats,
    }
    applied = dict(zip(applied_names, trained, strict=True))
    found = {
        name: detect_with(one, observation if one.config.references else plain, statistic)
        for name, one in applied.items()
    }
    forward: dict[str, Outcome] = {}
    no_forward = ""
    tests: dict[str, NullTest] = {}
    # the same folds and seeds for all, whatever a model sees
    for own, events in _by_input(searched, observation, plain):
        found |= cross_val_detect(
            own,
            events.X,
            observation.on,
            alpha=observation.exposure_ratio,
            observations=observation.observations,
            nearby=events.nearby,
            n_permutations=permutations,
            **shared,
        )
        if strategy == "pooled":
            more, no_forward = _search_forward(observation, events.X, own, shared)
            forward |= more
    if null_tests == "auto":
        first = dict(list(to_train.items())[:1])
        for own, events in _by_input(first, observation, plain):
            tests |= _test_quickly(observation, events.X, own, shared)
    elif null_tests:
        regions = observation.regions
        for own, events in _by_input(to_train, observation, plain):
            tests |= null_test(
                own, events.X, regions.region, n_regions=regions.n_regions, exposure=regions.exposure, **shared
            )
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
        "references": known.names or None,
    }
    return Run(
        detections={name: observation.annotate(found[name]) for name in asked},
        forward={name: forward[name] for name in asked if name in forward},
        null_tests={name: tests[name] for name in asked if name in tests},
        no_forward=no_forward,
        observed=observation.summary(),
        record=describe_run(command, seed, files, options, title),
        config=observation.config_yaml,
        events=observation.events_frame(),
        simulation=None
        if known.simulated is None
        else _check_simulation(known.simulated, plain, seed, n_jobs, verbose),
    )


def _check_simulation(
    simulated: SimulatedEvents, observation: Observation, seed: int, n_jobs: int, verbose: bool
) -> SimulationAgreement:
    """Find the features in which simulated events differ from observed ones."""
    with progress_bar("Checking the simulation", 1, shown=verbose) as tick:
        found = simulation_agreement(
            observation.X,
            observation.on,
            simulated.gammas,
            simulated.protons,
            alpha=observation.exposure_ratio,
            estimator=make_model("forest", random_state=seed, n_jobs=n_jobs),
            groups=observation.groups,
            feature_names=simulated.names,
            random_state=seed,
        )
        tick(1)
    return found


class _Events(NamedTuple):
    """What models see of the events, and of those nearby."""

    X: Any
    nearby: tuple[Any, Any] | None


def _by_input(
    models: Mapping[str, Any], observation: Observation, plain: Observation
) -> Iterator[tuple[dict[str, Any], _Events]]:
    """Yield models with what they see: a hybrid all columns, by name; the others the features, without references."""
    hybrids = {name: one for name, one in models.items() if is_hybrid(one)}
    others = {name: one for name, one in models.items() if name not in hybrids}
    nearby = plain.nearby
    if others:
        yield others, _Events(plain.X, None if nearby is None else (nearby.X, nearby.groups))
    nearby = observation.nearby
    if hybrids:
        around = None if nearby is None else (observation.to_frame(nearby.X), nearby.groups)
        yield hybrids, _Events(observation.frame, around)


def _check_request(observation: Observation, models: Mapping[str, Any], null_tests: bool, permutations: int) -> None:
    """Refuse what these models and regions cannot do."""
    for given, argument in ((null_tests, "null_tests"), (permutations, "permutations")):
        if given and not models:
            raise ArgumentError(argument, "needs a model to train; a model file is applied as it is")
    if null_tests and observation.regions.n_regions < 3:
        more = "" if observation.observations is None else ", and the same number of them in all observations"
        raise MismatchError("null_tests", f"needs at least two Off regions{more}")


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
    names, number = np.unique(observation.groups, return_inverse=True)
    total, n = np.bincount(number, observation.event_alpha), np.bincount(number)
    return dict(zip(map(str, names), (total / n).round(12).tolist(), strict=True))


def _search_forward(
    observation: Observation, X: Any, models: dict[str, Any], shared: dict[str, Any]
) -> tuple[dict[str, Outcome], str]:
    """Cross-validate forward in time; or say why that cannot be done, which is no reason to lose the rest."""
    order: Any = np.arange(len(observation.on))
    time = observation.time
    if observation.groups is None:
        if time is None or not np.isfinite(time).all():
            return {}, "there are neither groups nor times, so that what came first is not known"
        order = np.argsort(time, kind="stable")
    ratio = observation.exposure_ratio
    try:
        found = cross_val_detect(
            models,
            _safe_indexing(X, order),
            observation.on[order],
            alpha=ratio[order] if isinstance(ratio, np.ndarray) else ratio,
            **{**shared, "time": None if time is None else time[order], "strategy": "forward"},
        )
    except ValueError as error:
        return {}, str(error) + _blocks_of(observation)
    return {name: one.outcome for name, one in found.items()}, ""


def _test_quickly(
    observation: Observation, X: Any, models: dict[str, Any], shared: dict[str, Any]
) -> dict[str, NullTest]:
    """Search in every Off region by models of one half of the groups in the other; nothing where that cannot be done.

    Forward, so that the values follow the normal law. Where there are no groups, both halves are drawn, and judged.
    """
    regions = observation.regions
    strategy = "pooled" if observation.groups is None else "forward"
    quick = {**shared, "cv": 2, "strategy": strategy, "n_repeats": 1}
    if regions.n_regions < 3:
        return {}
    try:
        return null_test(models, X, regions.region, n_regions=regions.n_regions, exposure=regions.exposure, **quick)
    except ValueError as error:  # too few groups, or too few events in a region
        _logger.info("no null test: %s", error)
        return {}


def _blocks_of(observation: Observation) -> str:
    """Return which blocks of groups are held out in the place of groups, if it is so."""
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


def check_applicable(trained: TrainedModel, observation: Observation) -> None:
    """Refuse files and groups that a model was trained on, and other features than its own."""
    trained.check_unseen(observation, ", or the name of a model to cross-validate")
    for name in ("features", "derived_features", "quality_cuts", "references"):
        if getattr(observation.config, name) != getattr(trained.config, name):
            raise ModelFileError(
                f"{trained.path}: was trained with other {name} than these events are read with; give the same "
                "configuration"
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
