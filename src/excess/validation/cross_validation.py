"""Cross-validation: the significance of hold-out events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Required, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from excess._core.checks import as_choice, as_column, as_int, as_random_state, check_same_length
from excess._core.progress import progress_bar
from excess._core.threads import map_threaded, n_threads
from excess.estimators.base import ExposedEstimator, with_alpha, with_exposure
from excess.estimators.folds import fold_maker
from excess.stats.thresholds import threshold_rule
from excess.validation.detection import Detection
from excess.validation.fold_result import FoldResults, ThresholdRule, fit_and_predict, make_detection
from excess.validation.onoff_events import OnOffEvents, check_events
from excess.validation.outcome import STATISTICS
from excess.validation.validated_models import (
    check_models,
    check_ratios,
    check_references,
    describe_tuning,
    reseeded,
    tune_thresholds,
)
from excess.validation.verdict import as_required_significance

__all__ = ["STRATEGIES", "cross_val_detect", "cross_val_thresholds"]

STRATEGIES = ("pooled", "forward")


class SharedOptions(TypedDict, total=False):
    """Keyword arguments that `cross_val_detect` and `null_test` share; the functions have their defaults."""

    groups: ArrayLike | None
    time: ArrayLike | None
    cv: Any
    strategy: str
    statistic: str
    n_repeats: int
    n_jobs: int | None
    random_state: Any
    verbose: int


class _Options(SharedOptions, total=False):
    alpha: Required[ArrayLike]
    observations: ArrayLike | None
    nearby: tuple[Any, ArrayLike | None] | None
    n_permutations: int
    required_significance: float


@overload
def cross_val_detect(
    estimator: Mapping[str, Any], X: Any, y: ArrayLike, **options: Unpack[_Options]
) -> dict[str, Detection]: ...
@overload
def cross_val_detect(estimator: Any, X: Any, y: ArrayLike, **options: Unpack[_Options]) -> Detection: ...
def cross_val_detect(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    alpha: ArrayLike,
    groups: ArrayLike | None = None,
    observations: ArrayLike | None = None,
    nearby: tuple[Any, ArrayLike | None] | None = None,
    time: ArrayLike | None = None,
    cv: Any = None,
    strategy: str = "pooled",
    statistic: str = "likelihood",
    n_repeats: int = 1,
    n_permutations: int = 0,
    required_significance: float = 5.0,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> Detection | dict[str, Detection]:
    """Judge every event by a model that has not seen it, and give the significance of a source.

    Models are trained, and their thresholds tuned, on the training part of a fold alone. Over all hold-out events
    together, two significances are computed: by the likelihood, which uses every event by its signal ratio, and of the
    events that the cuts select.

    Parameters
    ----------
    estimator : classifier, or dict of str to classifier
        With ``predict`` and with ``predict_proba`` or ``decision_function``. Several of them share the folds. They are
        cloned; the given objects stay as they are. One without a threshold of its own, such as a plain classifier of
        scikit-learn, is wrapped in `SignificanceThresholdClassifier`; see the notes.
    X : array-like of shape (n_events, n_features)
        Events.
    y : array-like of shape (n_events,)
        Noisy labels of two classes; the larger one in sorted order is On.
    alpha : float or array-like of shape (n_events,)
        Exposure ratio On/Off, of all events or of each, such as that of its run. All On/Off classifiers in
        ``estimator`` get it, whatever theirs was. Where ratios differ, classifiers that count weights learn from
        weighted events with one ratio for all; others, such as k-means, get the mean over the Off events. See
        ``docs/likelihood.md``.
    groups : array-like of shape (n_events,), default=None
        What must not be split between training and hold-out, such as nights. `SignificanceThresholdClassifier` with
        folds gets those of its training events, and so does a classifier that asks for them, such as a forest after
        ``set_fit_request(groups=True)``.
    observations : array-like of shape (n_events,), default=None
        The observation of each event, such as a source, a telescope or a period: the result has the significance of
        each, ``Detection.outcomes_by_observation``, beside the joint one. All of them train one model.
    nearby : tuple of array-like of shape (n_nearby, n_features) and of shape (n_nearby,), default=None
        Further events and their groups (None without groups): neither On nor Off, never trained on and never
        counted, but scored by models that have not seen their group. A plot of theta^2 beyond the cut needs
        them; see ``Detection.nearby``.
    time : array-like of shape (n_events,), default=None
        Times, in any unit. With ``strategy="forward"`` groups go in the order of their times. Without times they are
        sorted, texts by the numbers in them. Without groups, events go in the order in which they stand.
    cv : int, splitter, iterable or None, default=None
        Number of folds, or any splitter of scikit-learn that tests each event once. By default every group is left out
        in turn, or there are five stratified folds where there are no groups. With ``strategy="forward"``, the number
        of consecutive blocks of groups (by default each group is one) or of events (by default five).
    strategy : {"pooled", "forward"}, default="pooled"
        ``"pooled"`` predicts every event; models have seen earlier and later events. ``"forward"`` goes through the
        groups in their order, or through the events as they stand, and trains on earlier ones only; the first block is
        never held out. It is refused where On and Off were observed at different times. Its significances follow the
        normal law where there is no source; pooled ones scatter more. ``docs/honesty.md`` says how much, and which
        number to quote.
    statistic : {"likelihood", "cut"}, default="likelihood"
        The statistic that counts, to be declared before the events are looked at: ``significance`` and ``verdict``
        follow it, and the other stands beside it. ``"likelihood"`` needs a classifier with a signal ratio, or with
        ``predict_proba``; ``"cut"`` is that of the paper.
    n_repeats : int, default=1
        Repeat with other seeds, and with other folds where these are drawn. The median repetition is the result.
    n_permutations : int, default=0
        Permute On and Off within groups so many times, repeat everything for each, threshold and repetitions included,
        and compare; see ``Detection.permutation_p_value``. That tests whether the features tell On from Off. It costs
        as many times the work; at least 99 make sense.
    required_significance : float, default=5.0
        Significance from which learning counts as feasible.
    n_jobs : int or None, default=None
        Models that are fitted at the same time, on threads; -1 is all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of folds and permutations, of classifiers that have no seed of their own, and of all classifiers from the
        second repetition on.
    verbose : int, default=0
        With 1, show a progress bar.

    Returns
    -------
    Detection, or dict of str to Detection
        One for each estimator.

    See Also
    --------
    null_test : What the same analysis says where there is no source.

    Notes
    -----
    A group that has no On events by chance, or no Off events, is held out like any other if the training parts hold
    both. Where On and Off were observed in different groups, blocks of groups with equal shares of both are held out;
    see ``excess.estimators.folds.block_groups``.

    A plain classifier predicts On where that is more likely than Off, so that a small ``alpha`` leaves hardly any
    event. Its threshold is tuned inside of the training part of each fold instead, with the groups of that part, as
    ``SignificanceThresholdClassifier(classifier)`` does it; ``Detection.remarks`` says so. Pipelines and searches count
    as what they end in. Other thresholds are kept: those of On/Off classifiers, of scikit-learn's
    ``TunedThresholdClassifierCV``, and of ``FixedThresholdClassifier``, which is the way to cut at 0.5. A class of your
    own whose ``predict`` has a cut of its own says so by an attribute ``has_own_threshold = True``.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, cross_val_detect, inject_label_noise
    >>> X, y = make_classification(5000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> night = [20131101 + i // 1000 for i in range(5000)]
    >>> forest = OnOffForestClassifier(50, min_samples_leaf=20, random_state=0)
    >>> detection = cross_val_detect(forest, X, on, alpha=1 / 5, groups=night)
    >>> print(detection)
    pooled, 5 folds
    likelihood: 484.7 +- 22.9 signal events, strength 0.137 (0.114 to 0.165), 38.6 sigma
    cut: On 466, Off 27, alpha 0.2: excess 460.6 +- 21.6, 38.3 sigma
    without a cut: 14.5 sigma
    38.6 sigma by the likelihood of all hold-out events, 5 required: On has more signal than Off, and it could be
    learned from these labels.
    """
    given = check_models(estimator)
    models = tune_thresholds(given)
    as_choice("strategy", strategy, STRATEGIES)
    as_choice("statistic", statistic, STATISTICS)
    if statistic == "likelihood":
        check_ratios(models)
    n_repeats = as_int("n_repeats", n_repeats, minimum=1)
    n_permutations = as_int("n_permutations", n_permutations, minimum=0)
    required = as_required_significance(required_significance)
    repeated = {"n_repeats": n_repeats, "n_permutations": n_permutations, "random_state": random_state}
    events = check_events(X, y, alpha, groups, nearby, observations)
    if time is not None:
        moments = as_column("time", np.asarray(time, dtype=np.float64))
        check_same_length(y=events.labels, time=moments)
        events = events._replace(time=moments)
    found = _run_folds(models, events, cv, strategy=strategy, n_jobs=n_jobs, verbose=verbose, **repeated)
    detections = {
        name: replace(
            make_detection(events, runs, n_repeats, strategy, statistic, required),
            remarks=() if models[name] is given[name] else (describe_tuning(given[name]),),
        )
        for name, (runs,) in found.items()
    }
    return detections if isinstance(estimator, Mapping) else detections[""]


def cross_val_thresholds(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    rules: Mapping[str, str | Callable[..., float] | None],
    *,
    alpha: ArrayLike,
    groups: ArrayLike | None = None,
    cv: Any = None,
    n_jobs: int | None = None,
    random_state: Any = None,
) -> dict[str, Detection]:
    """Compare rules for the threshold on the scores of one model, which is fitted once for each fold.

    A threshold is tuned on the training part of a fold alone: on out-of-bag scores where the model has them, else on
    the scores of the events that it was trained on, as the paper does for single trees and clusterings.

    Parameters
    ----------
    estimator, X, y, alpha, groups, cv, n_jobs, random_state
        As for `cross_val_detect`; one estimator, which is never wrapped, and gets the mean exposure ratio where ratios
        differ.
    rules : dict of str to str, callable or None
        Names of ``THRESHOLD_METHODS``, or functions of labels, scores and alpha that return a threshold. None is the
        threshold that the model has chosen itself.

    Returns
    -------
    dict of str to Detection
        One for each rule, with ``statistic="cut"``; they share their scores. ``Fold.tuned`` is None but for the model's
        own threshold.

    See Also
    --------
    cross_val_detect : The same for the model's own threshold.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, inject_label_noise
    >>> from excess.validation import cross_val_thresholds
    >>> X, y = make_classification(2000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> forest = OnOffForestClassifier(20, min_samples_leaf=20, random_state=0)
    >>> rules = {"own": None, "mithal": "mithal"}
    >>> found = cross_val_thresholds(forest, X, on, rules, alpha=1 / 5, random_state=0)
    >>> {name: round(detection.significance, 1) for name, detection in found.items()}
    {'own': 24.7, 'mithal': 24.7}
    """
    if not rules:
        raise ValueError("rules must hold at least one rule, got an empty dict")
    events = check_events(X, y, alpha, groups)
    applied = [None if rule is None else threshold_rule(rule) for rule in rules.values()]
    models = check_models({"": estimator})
    found = _run_folds(models, events, cv, rules=applied, n_jobs=n_jobs, random_state=random_state)[""]
    return {
        name: make_detection(events, runs, 1, "pooled", "cut", 5.0) for name, runs in zip(rules, found, strict=True)
    }


def _run_folds(
    models: Mapping[str, Any],
    events: OnOffEvents,
    cv: Any,
    *,
    rules: Sequence[ThresholdRule | None] = (None,),
    strategy: str = "pooled",
    n_repeats: int = 1,
    n_permutations: int = 0,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> dict[str, list[list[FoldResults]]]:
    """Cross-validate models on shared folds; return all runs of each model and rule: repetitions of each permutation.

    Permutation 0 is the data.
    """
    verbose = as_int("verbose", verbose, minimum=0)
    n_jobs = n_threads(n_jobs)
    check_references(models, events.groups)
    seed = int(as_random_state(random_state).randint(2**31 - 1))
    folds_of = fold_maker(cv, strategy, events.X, events.labels, events.on_class, events.groups, events.time)
    models = {name: with_alpha(model, events.mean_alpha(events.labels)) for name, model in models.items()}
    repeated = [(p, r) for p in range(n_permutations + 1) for r in range(n_repeats)]
    n_folds = len(folds_of(events.labels, _seed(seed, 0, 0)))

    def labels_of(permutation: int) -> NDArray[Any]:
        return events.permute_labels(_seed(seed, permutation, -1)) if permutation else events.labels

    def exposed(model: Any, labels: NDArray[Any], train: NDArray[np.intp]) -> ExposedEstimator:
        if not isinstance(events.alpha, np.ndarray):
            return ExposedEstimator(model, events.alpha, {})
        if any(rule is not None for rule in rules):  # which count events
            mean = events.mean_alpha(labels, train)
            return ExposedEstimator(with_alpha(model, mean), mean, {})
        return with_exposure(model, labels[train] == events.on_class, events.alpha[train])

    def tasks() -> Iterator[Any]:
        for permutation, repeat in repeated:
            # seeds depend on the repetition alone: what is compared is then one and the same function of the labels
            own_seed = _seed(seed, 0, repeat)
            labels = labels_of(permutation)
            folds = folds_of(labels, own_seed)
            n_shares = len(folds) + (strategy == "forward")  # one share belongs to the block that is never held out
            for model in models.values():
                seeded = reseeded(model, own_seed, keep=repeat == 0)
                for number, (train, held_out) in enumerate(folds):
                    none = np.empty(0, dtype=np.intp)
                    nearby = none if permutation else events.nearby_rows(held_out, number, n_shares)
                    own = exposed(seeded, labels, train)
                    yield partial(fit_and_predict, own, events, labels, train, held_out, nearby, rules)

    found: dict[str, list[list[FoldResults]]] = {name: [[] for _ in rules] for name in models}
    with progress_bar("Cross-validating", len(repeated) * len(models) * n_folds, shown=verbose > 0) as tick:
        outcomes = map_threaded(lambda task: task(), tasks(), n_jobs, limit_blas=True)
        for permutation, _ in repeated:
            on = np.asarray(labels_of(permutation) == events.on_class)
            for runs in found.values():
                results = []
                for _ in range(n_folds):
                    results.append(next(outcomes))
                    tick(1)
                for own, folds in zip(runs, zip(*results, strict=True), strict=True):
                    run = FoldResults.of(list(folds), on, events.alpha)
                    own.append(run.without_events() if permutation else run)
    return found


def _seed(seed: int, permutation: int, repeat: int) -> int:
    """Return the seed of one run."""
    return int(np.random.SeedSequence([seed, permutation, repeat + 1]).generate_state(1)[0] >> 1)
