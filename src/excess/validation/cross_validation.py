"""Honest validation: the significance of hold-out events, and null tests; re-exports what belongs to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import _num_samples, check_is_fitted

from excess._core.checks import (
    as_binary_target,
    as_choice,
    as_column,
    as_counts,
    as_int,
    as_labels,
    as_random_state,
    as_scalar,
    as_scalar_alpha,
    binary_classes,
    check_same_length,
)
from excess._core.progress import progress_bar
from excess._core.threads import map_threaded, n_threads
from excess.estimators.base import with_alpha
from excess.estimators.holdout import (
    check_classifier,
    check_event_numbers,
    score_method,
)
from excess.stats.significance import OnOffCounts
from excess.validation.agreement import Agreement, agreement
from excess.validation.detection import Detection, Fold, Nearby, contrast
from excess.validation.fold_result import Events, Judgement, Unlabelled, judge, judge_with
from excess.validation.folds import fold_maker
from excess.validation.null_tests import NullTest

__all__ = [
    "Agreement",
    "Detection",
    "Fold",
    "Nearby",
    "NullTest",
    "agreement",
    "cross_val_detect",
    "detect",
    "null_test",
]

STRATEGIES = ("pooled", "forward")


def cross_val_detect(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    alpha: float,
    groups: ArrayLike | None = None,
    nearby: tuple[Any, ArrayLike | None] | None = None,
    cv: Any = None,
    strategy: str = "pooled",
    n_repeats: int = 1,
    n_permutations: int = 0,
    required: float = 5.0,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> Any:
    """Select every event by a model that has not seen it, and give the significance of what was selected.

    Models are trained, and their thresholds tuned, on the training part of a fold alone. One significance is computed
    over all hold-out events together.

    Parameters
    ----------
    estimator : classifier, or dict of str to classifier
        With ``predict`` and with ``predict_proba`` or ``decision_function``. Several of them share the folds. They are
        cloned; the given objects stay as they are.
    X : array-like of shape (n_events, n_features)
        Events.
    y : array-like of shape (n_events,)
        Noisy labels of two classes; the larger one in sorted order is On.
    alpha : float
        Exposure ratio On/Off. All On/Off classifiers in ``estimator`` get it, whatever theirs was.
    groups : array-like of shape (n_events,), default=None
        What must not be split between training and hold-out, such as nights. A classifier whose ``fit`` takes groups,
        such as `SignificanceThresholdClassifier` with folds, gets those of its training events.
    nearby : tuple of array-like of shape (n_nearby, n_features) and of shape (n_nearby,), default=None
        Further events and their groups (None without groups): neither On nor Off, never trained on and never
        counted, but scored by models that have not seen their group. A plot of theta^2 beyond the cut needs
        them; see ``Detection.nearby``.
    cv : int, splitter, iterable or None, default=None
        Number of folds, or any splitter of scikit-learn that tests each event once. By default every group is left out
        in turn, or there are five stratified folds where there are no groups. With ``strategy="forward"``, the number
        of consecutive blocks of groups (by default each group is one) or of events (by default five).
    strategy : {"pooled", "forward"}, default="pooled"
        ``"pooled"`` judges every event; models have seen earlier and later events. ``"forward"`` goes through the
        groups in sorted order, or through the events as they stand, and trains on earlier ones only; the first block is
        never judged. Its significances follow the normal law where there is no source; pooled ones scatter
        more. ``docs/honesty.md`` says how much, and which number to quote.
    n_repeats : int, default=1
        Repeat with other seeds, and with other folds where these are drawn. The median repetition is the result.
    n_permutations : int, default=0
        Permute On and Off within groups so many times, repeat everything for each, threshold and repetitions included,
        and compare; see ``Detection.permutation_p_value``. That tests whether the features tell On from Off. It costs
        as many times the work; at least 99 make sense.
    required : float, default=5.0
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
    A group without On events, or without Off events, is judged like any other, as long as the training parts hold both.
    A plain classifier of scikit-learn selects what it predicts to be On, usually at a probability of 0.5; to tune its
    threshold, wrap it in `SignificanceThresholdClassifier`.

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
    pooled, 5 folds: On 464, Off 26, alpha 0.2: excess 458.8 +- 21.6, 38.3 sigma
    without a cut: 14.5 sigma
    38.3 sigma on hold-out events, 5 required: On has more signal than Off, and it could be learned from these labels.
    """
    models = _check_models(estimator)
    ratio = as_scalar_alpha(alpha)
    as_choice("strategy", strategy, STRATEGIES)
    n_threads(n_jobs)
    n_repeats = as_int("n_repeats", n_repeats, minimum=1)
    n_permutations = as_int("n_permutations", n_permutations, minimum=0)
    wanted = as_scalar("required", as_counts("required", required))
    verbose = as_int("verbose", verbose, minimum=0)
    seed = int(as_random_state(random_state).randint(2**31 - 1))
    events = _check_events(X, y, groups)._replace(nearby=_check_nearby(nearby, groups is not None))
    folds_of = fold_maker(cv, strategy, events.X, events.labels, events.on_class, events.groups)

    models = {name: with_alpha(model, ratio) for name, model in models.items()}
    runs = [(p, r) for p in range(n_permutations + 1) for r in range(n_repeats)]  # permutation 0 is the data
    first_folds = folds_of(events.labels, _seed(seed, 0, 0))
    total = len(runs) * len(models) * len(first_folds)

    def tasks() -> Iterator[Any]:
        for permutation, repeat in runs:
            # seeds depend on the repetition alone: what is compared is then one and the same function of the labels
            own_seed = _seed(seed, 0, repeat)
            labels = _permuted(events, _seed(seed, permutation, -1)) if permutation else events.labels
            folds = folds_of(labels, own_seed)
            n_shares = len(folds) + (strategy == "forward")  # one share belongs to the block that is never judged
            for model in models.values():
                seeded = _reseeded(model, own_seed, keep=repeat == 0)
                for number, (train, held_out) in enumerate(folds):
                    rows = events.rows_nearby(held_out, number, n_shares)
                    yield partial(judge, seeded, events, labels, train, held_out, rows, counts_only=permutation > 0)

    collected: dict[str, list[_Run]] = {name: [] for name in models}
    with progress_bar("Cross-validating", total, shown=verbose > 0) as tick:
        outcomes = map_threaded(lambda task: task(), tasks(), n_threads(n_jobs), limit_blas=True)
        for _ in runs:
            for name in models:
                found = []
                for _ in first_folds:
                    found.append(next(outcomes))
                    tick(1)
                collected[name].append(_Run.of(found, ratio))
    detections = {name: _detection(events, run, n_repeats, ratio, strategy, wanted) for name, run in collected.items()}
    return detections if isinstance(estimator, Mapping) else detections[""]


def detect(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    alpha: float,
    groups: ArrayLike | None = None,
    nearby: tuple[Any, ArrayLike | None] | None = None,
    required: float = 5.0,
) -> Detection:
    """Judge new events by a model that is fitted already, and give the significance of what it selects.

    Nothing is trained or tuned here. The events must be new to the model: none of them, nor any of their night, may
    have been among those that it was trained or tuned on, which this function cannot know.

    Parameters
    ----------
    model : fitted classifier
        With ``predict`` and with ``predict_proba`` or ``decision_function``.
    X : array-like of shape (n_events, n_features)
        New events.
    y : array-like of shape (n_events,)
        Noisy labels of the two classes that the model was fitted on.
    alpha : float
        Exposure ratio On/Off of the new events.
    groups : array-like of shape (n_events,), default=None
        Groups to count by, such as nights; one is enough.
    nearby : tuple of array-like of shape (n_nearby, n_features) and of shape (n_nearby,), default=None
        Further new events that are scored but not counted, as for `cross_val_detect`.
    required : float, default=5.0
        Significance from which the source counts as detected.

    Returns
    -------
    Detection
        Of one fold, with ``strategy="applied"``.

    See Also
    --------
    cross_val_detect : Trains and judges on the same observation, in turns.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, detect, inject_label_noise
    >>> X, y = make_classification(5000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> forest = OnOffForestClassifier(50, 1 / 5, min_samples_leaf=20, random_state=0).fit(X[:4000], on[:4000])
    >>> print(detect(forest, X[4000:], on[4000:], alpha=1 / 5).counts)
    On 99, Off 5, alpha 0.2: excess 98.0 +- 10.0, 17.8 sigma
    """
    check_is_fitted(model)
    _check_models(model)
    ratio = as_scalar_alpha(alpha)
    wanted = as_scalar("required", as_counts("required", required))
    labels = as_labels(y)
    if not np.isin(labels, model.classes_).all():
        raise ValueError(
            f"y must hold the classes that model was fitted on, {np.asarray(model.classes_).tolist()}, got "
            f"{np.unique(labels)[:5].tolist()}"
        )
    check_event_numbers(X, y=labels)
    if groups is not None:
        groups = as_labels(groups, name="groups")
        check_same_length(y=labels, groups=groups)
    more = _check_nearby(nearby, groups is not None)
    events = Events(indexable(X)[0], labels, model.classes_[1], groups, more)
    run = _Run.of([judge_with(model, events)], ratio)
    return _detection(events, [run], 1, ratio, "applied", wanted)


def null_test(
    estimator: Any,
    X: Any,
    region: ArrayLike,
    *,
    n_regions: int,
    groups: ArrayLike | None = None,
    cv: Any = None,
    strategy: str = "pooled",
    n_repeats: int = 1,
    n_jobs: int | None = None,
    random_state: Any = None,
    verbose: int = 0,
) -> Any:
    """Look for a source where there is none: in every Off region in turn (appendix A of the paper).

    The On events are dropped, one Off region takes the place of On and the others stay Off. Whatever the analysis then
    finds is not a source. A feature that tells where an event comes from shows up as a detection.

    Parameters
    ----------
    estimator : classifier, or dict of str to classifier
        As for `cross_val_detect`.
    X : array-like of shape (n_events, n_features)
        Events.
    region : array-like of shape (n_events,)
        Number of the region that an event comes from: 0 is On, 1 to ``n_regions - 1`` are Off. All of them must be of
        the same exposure.
    n_regions : int
        Number of regions, On included; at least 3.
    groups, cv, strategy, n_repeats, n_jobs, random_state
        As for `cross_val_detect`.
    verbose : int, default=0
        With 1, show a progress bar.

    Returns
    -------
    NullTest, or dict of str to NullTest
        One for each estimator; ``alpha`` is ``1 / (n_regions - 2)``.

    Examples
    --------
    >>> import numpy as np
    >>> from excess import OnOffTreeClassifier, null_test
    >>> rng = np.random.default_rng(0)
    >>> X, region = rng.normal(size=(6000, 4)), rng.integers(0, 6, 6000)
    >>> tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    >>> print(null_test(tree, X, region, n_regions=6, random_state=0))
    5 null regions: 0.7, -0.1, -1.1, -0.8, -1.0 sigma (mean -0.43, spread 0.77)
    Between -1.1 and 0.7 sigma: as expected where there is no source.
    """
    n_regions = as_int("n_regions", n_regions, minimum=3)
    numbers = _as_regions(region, n_regions)
    check_event_numbers(X, region=numbers)
    if groups is not None:
        groups = as_labels(groups, name="groups")
        check_same_length(region=numbers, groups=groups)
    off = np.flatnonzero(numbers > 0)
    X_off = _safe_indexing(indexable(X)[0], off)
    models = _check_models(estimator)
    seed = int(as_random_state(random_state).randint(2**31 - 1))
    found: dict[str, dict[int, Detection]] = {name: {} for name in models}
    with progress_bar("Null regions", n_regions - 1, shown=as_int("verbose", verbose, minimum=0) > 0) as tick:
        for fake in range(1, n_regions):
            detections = cross_val_detect(
                models,
                X_off,
                (numbers[off] == fake).astype(np.int64),
                alpha=1 / (n_regions - 2),
                groups=None if groups is None else groups[off],
                cv=cv,
                strategy=strategy,
                n_repeats=n_repeats,
                n_jobs=n_jobs,
                random_state=seed,
            )
            for name, detection in detections.items():
                found[name][fake] = detection
            tick(1)
    tests = {name: NullTest.of(detections) for name, detections in found.items()}
    return tests if isinstance(estimator, Mapping) else tests[""]


class _Run(NamedTuple):
    """One cross-validation of one estimator."""

    judgements: list[Judgement]
    significance: float
    contrast: float

    @classmethod
    def of(cls, judgements: list[Judgement], alpha: float) -> _Run:
        n_on, n_selected, n_on_in_all, n_all = (
            sum(getattr(judgement, name) for judgement in judgements)
            for name in ("n_on", "n_selected", "n_on_in_all", "n_held_out")
        )
        selected = OnOffCounts(n_on, n_selected - n_on, alpha)
        everything = OnOffCounts(n_on_in_all, n_all - n_on_in_all, alpha)
        return cls(judgements, selected.significance, contrast(selected, everything))


def _detection(
    events: Events, runs: list[_Run], n_repeats: int, alpha: float, strategy: str, required: float
) -> Detection:
    """Put the runs of one estimator together: repetitions first, then those of each permutation."""
    significances = np.array([run.significance for run in runs]).reshape(-1, n_repeats)
    median = np.argsort(significances, axis=1, kind="stable")[:, (n_repeats - 1) // 2]
    contrasts = np.array([run.contrast for run in runs]).reshape(-1, n_repeats)
    judgements = runs[median[0]].judgements
    n = len(events.labels)
    score, selected, fold = np.full(n, np.nan), np.zeros(n, dtype=np.bool_), np.full(n, -1)
    folds = []
    for number, judgement in enumerate(judgements):
        if judgement.held_out is not None:
            rows = judgement.held_out.rows
            score[rows], selected[rows], fold[rows] = judgement.held_out.score, judgement.held_out.selected, number
        held_out = OnOffCounts(judgement.n_on, judgement.n_selected - judgement.n_on, alpha)
        folds.append(Fold(judgement.n_train, judgement.n_held_out, judgement.threshold, judgement.tuned, held_out))
    importances = [judgement.importances for judgement in judgements if judgement.importances is not None]
    return Detection(
        on=np.asarray(events.labels == events.on_class),
        score=score,
        selected=selected,
        fold=fold,
        groups=events.groups,
        folds=tuple(folds),
        alpha=alpha,
        strategy=strategy,
        significances=significances[0],
        permuted_contrasts=np.take_along_axis(contrasts, median[:, None], axis=1)[1:, 0],
        required=required,
        nearby=_nearby(events, judgements),
        importances=np.mean(importances, axis=0) if importances else None,
        feature_names=tuple(map(str, events.X.columns)) if hasattr(events.X, "columns") else None,
    )


def _nearby(events: Events, judgements: list[Judgement]) -> Nearby | None:
    """Put the nearby events of all folds together; those of no fold have no score."""
    if events.nearby is None:
        return None
    n = events.nearby.n_events
    score, selected = np.full(n, np.nan), np.zeros(n, dtype=np.bool_)
    for judgement in judgements:
        if judgement.nearby is not None:
            rows = judgement.nearby.rows
            score[rows], selected[rows] = judgement.nearby.score, judgement.nearby.selected
    return Nearby(score, selected)


def _check_models(estimator: Any) -> dict[str, Any]:
    """Return estimators by name; a single one has the empty name."""
    models = dict(estimator) if isinstance(estimator, Mapping) else {"": estimator}
    if not models:
        raise ValueError("estimator must hold at least one classifier, got an empty dict")
    for model in models.values():
        check_classifier(model)
        score_method(model)
    return models


def _check_nearby(nearby: Any, with_groups: bool) -> Unlabelled | None:
    """Return nearby events; their groups are needed where there are groups."""
    if nearby is None:
        return None
    if not isinstance(nearby, tuple) or len(nearby) != 2:
        raise ValueError("nearby must be a tuple of events and their groups (None where there are no groups)")
    X, groups = nearby
    if _num_samples(X) == 0:
        return None
    if with_groups:
        if groups is None:
            raise ValueError("nearby must come with groups, as X does")
        groups = as_labels(groups, name="groups of nearby")
        check_event_numbers(X, **{"the groups of nearby": groups})
    return Unlabelled(indexable(X)[0], groups if with_groups else None)


def _check_events(X: Any, y: ArrayLike, groups: ArrayLike | None) -> Events:
    labels = as_binary_target(y)
    check_event_numbers(X, y=labels)
    if groups is not None:
        groups = as_labels(groups, name="groups")
        check_same_length(y=labels, groups=groups)
        names = np.unique(groups)
        if len(names) < 2:
            raise ValueError(
                f"groups holds one group only ({names.tolist()[0]!r}), so nothing is left to train on when it is held "
                "out; give at least two, or no groups ('none' on the command line) to cross-validate inside it"
            )
    return Events(indexable(X)[0], labels, binary_classes(labels)[1], groups)


def _permuted(events: Events, seed: int) -> NDArray[Any]:
    """Return labels that are permuted within groups."""
    n = len(events.labels)
    group = np.zeros(n, dtype=np.intp)
    if events.groups is not None:
        group = np.unique(events.groups, return_inverse=True)[1]
    labels = np.empty_like(events.labels)
    labels[np.argsort(group, kind="stable")] = events.labels[np.lexsort((np.random.default_rng(seed).random(n), group))]
    return labels


def _seed(seed: int, permutation: int, repeat: int) -> int:
    """Return the seed of one run."""
    return int(np.random.SeedSequence([seed, permutation, repeat + 1]).generate_state(1)[0] >> 1)


def _reseeded(estimator: Any, seed: int, *, keep: bool) -> Any:
    """Set the seeds of an estimator and all inside it; with ``keep``, only those that are None."""
    seeds = {
        name: seed
        for name, value in sorted(estimator.get_params(deep=True).items())
        if (name == "random_state" or name.endswith("__random_state")) and not (keep and value is not None)
    }
    return clone(estimator).set_params(**seeds) if seeds else estimator


def _as_regions(region: ArrayLike, n_regions: int) -> NDArray[np.int64]:
    """Return region numbers; all Off regions must be there."""
    given = as_column("region", region)
    if given.dtype.kind not in "biu" and not (given.dtype.kind == "f" and (given == np.floor(given)).all()):
        raise ValueError(f"region must hold whole numbers from 0 to {n_regions - 1}")
    numbers = given.astype(np.int64)
    if len(numbers) == 0 or numbers.min() < 0 or numbers.max() >= n_regions:
        what = "no events" if len(numbers) == 0 else f"{numbers.min()} to {numbers.max()}"
        raise ValueError(f"region must hold numbers from 0 to {n_regions - 1}, got {what}")
    missing = np.setdiff1d(np.arange(1, n_regions), numbers)
    if len(missing):
        raise ValueError(f"region has no events of Off region {', '.join(map(str, missing.tolist()))}")
    return numbers
