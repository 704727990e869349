"""Cross-validation, detection and null tests: the significance of hold-out events."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import _num_samples, check_is_fitted

from excess._utils import checks
from excess._utils.checks import BoolArray, FloatArray
from excess._utils.rng import NO_SKETCH
from excess._utils.threads import map_threaded, n_threads, progress_bar
from excess.detection._diagnostics import WarningSign
from excess.detection._result import STATISTICS, Detection, Fold, Nearby
from excess.detection._support import check_features, recognise_events
from excess.estimators import _base
from excess.estimators._base import ExposedEstimator, OnOffMixin, score_events
from excess.estimators._binned import OnOffBinnedClassifier
from excess.estimators._hybrid import OnOffHybridClassifier
from excess.estimators._random_forest import OnOffForestClassifier
from excess.estimators._threshold import SignificanceThresholdClassifier
from excess.stats._direction import Direction, PointSpread
from excess.stats._likelihood import AlphaError, as_nuisance

logger = logging.getLogger("excess.detection")

_STRATEGIES = ("both", "pooled", "forward")
_DECIDED_INSIDE = (BaseSearchCV, RFE, FrozenEstimator)  # estimators that predict with an inner classifier
_NO_RATIO = "statistic='likelihood' needs a likelihood ratio: use SignificanceThresholdClassifier, or statistic='cut'"
_DRAWN_BLOCKS = "On and Off were observed at different times, so the blocks of the forward value were drawn at random"
_GROWTH = 1.25  # relative growth of the training sample after which a forest selects its configuration again
_WIDE_TREES = 200  # maximum number of trees if events beyond the cut are trained on, which are several times as many
_WIDE_SHARE = 0.5  # fraction of Off events in the bootstrap sample of a tree, relative to On events at the centre
_FULL_SHARE = 0.5  # fraction of the maximum signal density above which On events have full weight
_CLEARLY_WORSE = 5.0  # decrease of the log-likelihood inside the cut for which events beyond it are not trained on
_MIN_TRAINING = 20  # minimum number of On and of Off events to train a model
_LARGEST_PROBABILITY = 0.98  # maximum P(On) of an uncalibrated classifier, which limits the weight of one event


def cross_val_detect(
    estimator: Any,
    X: Any,
    y: ArrayLike,
    *,
    alpha: ArrayLike,
    alpha_error: AlphaError | None = None,
    groups: ArrayLike | None = None,
    observations: ArrayLike | None = None,
    nearby: tuple[Any, ArrayLike | None] | None = None,
    time: ArrayLike | None = None,
    runs: ArrayLike | None = None,
    direction: Direction | None = None,
    sample_weight: ArrayLike | None = None,
    cv: Any = None,
    strategy: str = "both",
    statistic: str = "likelihood",
    n_repeats: int = 1,
    n_permutations: int = 0,
    required_significance: float = 5.0,
    n_jobs: int | None = None,
    random_state: Any = None,
    return_estimator: bool = False,
    verbose: int = 0,
) -> Any:
    """Predict every event with a model trained on other events, and compute the significance of a source.

    Models are trained, and their thresholds tuned, on the training part of each fold only. Two significances of the
    hold-out events are computed: the likelihood of all events, and the counts of selected events.

    Parameters
    ----------
    estimator : classifier, or dict of str to classifier
        With ``predict``, and ``predict_proba`` or ``decision_function``. Estimators are cloned and share the folds. A
        classifier without its own threshold is wrapped in `SignificanceThresholdClassifier`; see Notes.
    X, y : array-like of shape (n_events, n_features) and of shape (n_events,)
        Events, and noisy labels of two classes; the larger one in sorted order is On.
    alpha : float or array-like of shape (n_events,)
        Exposure ratio On/Off, common to all events or one per event. If ratios differ, classifiers are trained with
        weights (see `exposure_weights`), or with the mean over the Off events.
    alpha_error : float or mapping of group to float, default=None
        Relative uncertainty of alpha, such as 0.05, as a nuisance parameter: common to all events, or per group. With 0
        alpha is exact, and the verdict does not compare it with background-like events.
    groups : array-like of shape (n_events,), default=None
        Groups that are not split between training and hold-out, such as nights. Also passed to classifiers that request
        groups, and used for the folds of `SignificanceThresholdClassifier`.
    observations : array-like of shape (n_events,), default=None
        Observation of each event, such as a source or a telescope, for ``Detection.outcomes_by_observation``.
    nearby : tuple of array-like of shape (n_nearby, n_features) and of shape (n_nearby,), default=None
        Further events and their groups (None without groups). They are scored by models trained on other groups, but
        never used for training or counted; see ``Detection.nearby``.
    time : array-like of shape (n_events,), default=None
        Times, in any unit, by which ``strategy="forward"`` sorts the events. By default events are sorted by group
        (strings by the numbers they contain) or, without groups, kept in the given order.
    runs : array-like of shape (n_events,), default=None
        Runs. ``strategy="forward"`` does not split a run between blocks if there are at least as many runs as blocks.
    direction : Direction or None, default=None
        Angles to the centre of the event's own region. The likelihood ratio is multiplied by a point spread function
        relative to a flat background, fitted on the training part of each fold. Events beyond the cut on theta^2 are
        not counted; they enter the likelihood and the training of forests, unless out-of-bag scores get worse.
    sample_weight : array-like of shape (n_events,), default=None
        Event weights in training, for classifiers whose ``fit`` accepts them; hold-out events are not weighted.
        ``alpha`` must be correct for the weighted events, as it is if the weights do not depend on the label.
    cv : int, splitter, iterable or None, default=None
        Number of folds, or a splitter that tests each event once. By default each group is left out in turn, in at
        most 20 folds; without groups, five stratified folds are used. With ``strategy="forward"``, the number of
        consecutive blocks of events, 20 by default.
    strategy : {"both", "pooled", "forward"}, default="both"
        ``"pooled"`` trains on earlier and later events. ``"forward"`` trains on earlier events only (until there are
        enough of them, all events have the same likelihood ratio), or on random blocks if On and Off were observed at
        different times. Quote the forward significance: without a source it follows a standard normal distribution,
        while the pooled one has a larger spread. ``"both"`` computes the pooled significance and, if that reaches the
        required one, also the forward significance (``Detection.forward``), which the verdict requires.
    statistic : {"likelihood", "cut"}, default="likelihood"
        Statistic of ``significance`` and ``verdict``, to be declared before the analysis; both are always computed.
        ``"likelihood"`` requires a classifier with a likelihood ratio or with ``predict_proba``.
    n_repeats : int, default=1
        Number of repetitions with other seeds, and other folds if these are random. The median is returned.
    n_permutations : int, default=0
        Number of permutations of On and Off within groups for ``Detection.permutation_p_value``, for example 99.
    required_significance : float, default=5.0
        Significance required for a detection.
    n_jobs : int or None, default=None
        Number of models fitted in parallel threads; -1 uses all cores. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of folds, permutations and classifiers without a seed; from the second repetition on, of all classifiers.
    return_estimator : bool, default=False
        Store the fitted model of each fold in ``Detection.estimators``.
    verbose : int, default=0
        If 1, show a progress bar.

    Returns
    -------
    Detection, or dict of str to Detection
        One for each estimator.

    Notes
    -----
    A group without On or without Off events is held out like any other if the training parts contain both. If On
    and Off were observed in different groups, blocks of groups with equal fractions of both are held out.

    The threshold of a plain classifier is tuned within the training part of each fold (see ``Detection.remarks``);
    for pipelines and searches, the last step decides. On/Off classifiers, ``TunedThresholdClassifierCV``,
    ``FixedThresholdClassifier``, and classes with the attribute ``has_own_threshold = True`` keep their threshold.

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
    likelihood: 484.7 +- 22.8 signal events, signal strength 0.137 (0.114 to 0.165), 38.6 sigma
    cut: On 466, Off 27, alpha 0.2: excess 460.6 +- 21.6, 38.3 sigma
    without a cut: 14.5 sigma
    38.6 sigma by the likelihood of all hold-out events, 37.3 forward, 5 required: On has more signal than Off, and the
    classifier learned it from these labels. No alpha up to 20 times the given one reduces it below 5 sigma.
    """
    given = check_models(estimator)
    models = tune_thresholds(given)
    checks.as_choice("strategy", strategy, _STRATEGIES)
    checks.as_choice("statistic", statistic, STATISTICS)
    if statistic == "likelihood":
        _check_ratios(models)
    n_repeats = checks.as_int("n_repeats", n_repeats, minimum=1)
    n_permutations = checks.as_int("n_permutations", n_permutations, minimum=0)
    required = checks.as_count("required_significance", required_significance)
    events = _with_error(check_events(X, y, alpha, groups, nearby, observations, time), alpha_error)
    events = _with_weights(_with_direction(events, runs, direction), sample_weight, models)
    pooled = "pooled" if strategy == "both" else strategy
    settings = (cv, pooled, n_repeats, n_permutations, n_jobs, random_state, return_estimator, verbose)
    found = _run_folds(models, events, *settings)
    drawn = strategy == "forward" and _base.forward_blocks(events.on, events.groups, events.time, events.runs, cv)[1]
    findings, detections = _compare_features(events), {}
    for name, own in found.items():
        one = _make_detection(events, own, n_repeats, pooled, statistic, required)
        tuned = [] if models[name] is given[name] else [_describe_tuning(given[name])]
        remarks = (*tuned, *((_DRAWN_BLOCKS,) if drawn else ()))
        detections[name] = replace(one, findings=findings, remarks=remarks)
    if strategy == "both":
        detections = _confirm_forward(detections, models, events, n_jobs, random_state, verbose)
    return detections if isinstance(estimator, Mapping) else detections[""]


def _confirm_forward(
    detections: dict[str, Detection], models: Mapping[str, Any], events: Events, n_jobs: Any, seed: Any, verbose: int
) -> dict[str, Detection]:
    """Add the forward outcome to pooled detections that reach the required significance, or a remark on failure."""
    own = {name: models[name] for name, one in detections.items() if one.significance >= one.required_significance}
    if not own:
        return detections
    try:
        found = _run_folds(own, events, None, "forward", 1, 0, n_jobs, seed, False, verbose)
    except ValueError as error:
        remark = f"There is no forward value: {error}"
        return {name: replace(one, remarks=(*one.remarks, remark)) for name, one in detections.items()}
    drawn = _base.forward_blocks(events.on, events.groups, events.time, events.runs)[1]
    for name, [run] in found.items():
        one = detections[name]
        ahead = _make_detection(events, [run], 1, "forward", one.statistic, one.required_significance)
        remarks = (*one.remarks, *((_DRAWN_BLOCKS,) if drawn else ()))
        detections[name] = replace(one, forward=ahead.outcome, remarks=remarks)
    return detections


def holdout_detect(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    alpha: ArrayLike,
    alpha_error: AlphaError | None = None,
    groups: ArrayLike | None = None,
    observations: ArrayLike | None = None,
    nearby: tuple[Any, ArrayLike | None] | None = None,
    direction: Direction | None = None,
    statistic: str = "likelihood",
    required_significance: float = 5.0,
) -> Detection:
    """Predict new events with a fitted model, and compute the significance of a source.

    The model must not have been trained on these events or on other events of the same nights. Training events are
    recognised by a sample of hashes stored in the model, which results in a doubtful verdict; other events of the same
    nights are not recognised.

    Parameters
    ----------
    model : fitted classifier
        With ``predict`` and with ``predict_proba`` or ``decision_function``.
    X, y, alpha, alpha_error, observations, nearby, statistic, required_significance
        As for `cross_val_detect`, of the new events. ``"likelihood"`` needs a model with ``likelihood_ratio``.
    groups : array-like of shape (n_events,), default=None
        Groups to count by, such as nights; one is enough.
    direction : Direction or None, default=None
        As for `cross_val_detect`, with the point spread function for which the cut on theta^2 is optimal.

    Returns
    -------
    Detection
        With one fold and ``strategy="applied"``.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffForestClassifier, holdout_detect, inject_label_noise
    >>> X, y = make_classification(5000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(y, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> forest = OnOffForestClassifier(50, 1 / 5, min_samples_leaf=20, random_state=0).fit(X[:4000], on[:4000])
    >>> print(holdout_detect(forest, X[4000:], on[4000:], alpha=1 / 5).counts)
    On 99, Off 5, alpha 0.2: excess 98.0 +- 10.0, 17.8 sigma
    """
    check_is_fitted(model)
    check_models(model)
    checks.as_choice("statistic", statistic, STATISTICS)
    required = checks.as_count("required_significance", required_significance)
    events = _with_error(check_events(X, y, alpha, groups, nearby, observations, classes=model.classes_), alpha_error)
    check_references({"": model}, events.groups)
    rows = np.arange(len(events.labels))
    events = _with_direction(events, None, direction)
    result = _predict_fold(model, events, events.X, rows, np.arange(events.n_nearby), n_train=0, alpha=None)
    if direction is not None and result.held_out.ratio is not None:
        spread = PointSpread.expected(direction.cut)
        held_out = result.held_out._replace(ratio=result.held_out.ratio * direction.ratio(spread))
        result = result._replace(held_out=held_out, spread=spread)
    found = _make_detection(events, [_evaluate(events, events.on, [result])], 1, "applied", statistic, required)
    innermost, steps = _unwrap(model)
    X_seen = events.X
    for step in steps:
        X_seen = step.transform(X_seen)
    known = recognise_events(getattr(innermost, "training_sketch_", NO_SKETCH), X_seen)
    return replace(found, findings=(*known, *_compare_features(events)))


def _compare_features(events: Events) -> tuple[WarningSign, ...]:
    """Return differences in the features of the counted events that no source explains."""
    core = np.flatnonzero(events.core)
    alpha = events.alpha[core] if isinstance(events.alpha, np.ndarray) else events.alpha
    return check_features(_safe_indexing(events.X, core), events.on[core], alpha)


class Events(NamedTuple):
    """Validated arguments of a cross-validation: events with labels and exposure ratios, and nearby events."""

    X: Any
    labels: NDArray[Any]
    on_class: Any
    alpha: FloatArray | float  # per event, or one for all events
    groups: NDArray[Any] | None
    X_nearby: Any = None
    nearby_groups: NDArray[Any] | None = None
    observations: NDArray[Any] | None = None
    time: FloatArray | None = None
    alpha_error: AlphaError | None = None
    runs: NDArray[Any] | None = None
    direction: Direction | None = None
    weights: FloatArray | None = None  # of events in training
    share: FloatArray | None = None  # expected signal at the angle of each event, if those beyond the cut are used

    @property
    def core(self) -> BoolArray:
        """True for events that are trained on and counted; the others enter the likelihood with their direction."""
        return np.ones(len(self.labels), dtype=np.bool_) if self.direction is None else self.direction.core

    @property
    def on(self) -> BoolArray:
        """True for On events."""
        return np.asarray(self.labels == self.on_class)

    @property
    def n_nearby(self) -> int:
        """Number of nearby events."""
        return 0 if self.X_nearby is None else _num_samples(self.X_nearby)

    @property
    def blocks(self) -> NDArray[Any] | None:
        """Groups, or blocks of groups with both On and Off events, that are not split between training and hold-out."""
        return None if self.groups is None else _base.block_groups(self.groups, self.on)

    def mean_alpha(self, rows: Any = None) -> float:
        """Return the exposure ratio of some events, by default the counted ones; the mean over Off if it varies."""
        if not isinstance(self.alpha, np.ndarray):
            return self.alpha
        rows = self.core if rows is None else rows
        alpha, off = self.alpha[rows], self.labels[rows] != self.on_class
        return float(alpha[off].mean() if off.any() else alpha.max())

    def nearby_rows(self, held_out: Any, number: int, n_shares: int, *, by_group: bool) -> NDArray[np.intp]:
        """Return the nearby events scored by a fold: those of its groups, or an equal share without groups."""
        if self.groups is None or self.nearby_groups is None or not by_group:
            return np.arange(number, self.n_nearby, n_shares)
        return np.flatnonzero(np.isin(self.nearby_groups, np.unique(self.groups[held_out])))

    def permute_labels(self, seed: int) -> NDArray[Any]:
        """Permute labels within groups and among events with the same exposure ratio."""
        n = len(self.labels)
        group = np.zeros(n, dtype=np.intp)
        if (blocks := self.blocks) is not None:
            group = np.unique(blocks, return_inverse=True)[1]
        if isinstance(self.alpha, np.ndarray):
            values, number = np.unique(self.alpha, return_inverse=True)
            group = group * len(values) + number
        labels = np.empty_like(self.labels)
        random = np.random.default_rng(seed).random(n)
        labels[np.argsort(group, kind="stable")] = self.labels[np.lexsort((random, group))]
        return labels


def check_events(
    X: Any,
    y: ArrayLike,
    alpha: ArrayLike,
    groups: ArrayLike | None,
    nearby: Any = None,
    observations: ArrayLike | None = None,
    time: ArrayLike | None = None,
    classes: NDArray[Any] | None = None,
) -> Events:
    """Validate events: two classes and at least two groups, unless they are for a model with known classes."""
    labels = checks.as_binary_target(y) if classes is None else checks.as_labels(y)
    ratio = _check_alpha(alpha, labels)
    if classes is not None and not np.isin(labels, classes).all():
        known, other = np.asarray(classes).tolist(), np.unique(labels)[:5].tolist()
        raise ValueError(f"y must contain the classes that model was fitted on, {known}, got {other}")
    checks.check_same_length(X=X, y=labels)
    by_group = _base.as_groups(groups, y=labels)
    if classes is None and by_group is not None and len(distinct := np.unique(by_group)) < 2:
        problem = f"groups contains a single group ({distinct.tolist()[0]!r}), which leaves no training events"
        raise ValueError(f"{problem}; pass at least two groups, or none ('none' on the command line)")
    X_nearby, nearby_groups = _check_nearby(nearby, with_groups=groups is not None)
    names = None if observations is None else checks.as_labels(observations, name="observations")
    moments = None if time is None else checks.as_column("time", np.asarray(time, dtype=np.float64))
    for name, column in (("observations", names), ("time", moments)):
        if column is not None:
            checks.check_same_length(y=labels, **{name: column})
    on_class = checks.binary_classes(labels)[1] if classes is None else classes[1]
    return Events(indexable(X)[0], labels, on_class, ratio, by_group, X_nearby, nearby_groups, names, moments)


def _with_error(events: Events, alpha_error: AlphaError | None) -> Events:
    """Return events with a validated uncertainty of the exposure ratio."""
    if alpha_error is not None:
        as_nuisance(alpha_error, events.groups, len(events.labels))
    return events._replace(alpha_error=alpha_error)


def _with_weights(events: Events, sample_weight: ArrayLike | None, models: Mapping[str, Any]) -> Events:
    """Return events with validated weights, which all models must support."""
    if sample_weight is None:
        return events
    weights = checks.as_counts("sample_weight", checks.as_column("sample_weight", sample_weight))
    checks.check_same_length(y=events.labels, sample_weight=weights)
    for model in models.values():
        if _base.weight_parameter(model) is None:
            raise TypeError(f"sample_weight was passed, but {type(model).__name__}.fit does not support it")
    return events._replace(weights=weights)


def _with_direction(events: Events, runs: ArrayLike | None, direction: Direction | None) -> Events:
    """Return events with validated runs and directions."""
    known = None if runs is None else checks.as_labels(runs, name="runs")
    if known is not None:
        checks.check_same_length(y=events.labels, runs=known)
    if direction is not None:
        if not isinstance(direction, Direction):
            raise TypeError(f"direction must be a Direction, got {type(direction).__name__}")
        checks.check_same_length(y=events.labels, **{"theta of direction": direction.theta})
        if not np.isfinite(direction.theta).all() or (np.asarray(direction.theta) < 0).any():
            raise ValueError("theta of direction must be finite, non-negative angles in deg; remove other events")
        if not 0 < direction.cut < np.inf:
            raise ValueError(f"cut of direction must be positive, in deg^2, got {direction.cut}")
        if direction.covariate is not None:
            checks.check_same_length(y=events.labels, **{"covariate of direction": direction.covariate})
        if not direction.core.any():
            raise ValueError(
                f"direction has no event inside a cut of {direction.cut:g} deg^2; check the units of theta"
            )
        checks.binary_classes(events.labels[direction.core], name="y inside the cut on theta^2")
        if direction.training and not direction.core.all():
            spread = PointSpread.expected(direction.cut)
            share = direction.ratio(spread) / (_FULL_SHARE * spread.ratio(np.zeros(1)))
            events = events._replace(share=np.minimum(share, 1.0))
    return events._replace(runs=known, direction=direction)


def _check_alpha(alpha: ArrayLike, labels: NDArray[Any]) -> FloatArray | float:
    """Return the exposure ratio as a number, or per event if it varies."""
    ratio = checks.as_alpha(alpha)
    if ratio.ndim == 0:
        return float(ratio)
    column = checks.as_column("alpha", ratio)
    checks.check_same_length(y=labels, alpha=column)
    return float(column[0]) if (column == column[0]).all() else column


def _check_nearby(nearby: Any, *, with_groups: bool) -> tuple[Any, NDArray[Any] | None]:
    """Return nearby events, None if there are none, and their groups, which are required if X has groups."""
    if nearby is None:
        return None, None
    if not isinstance(nearby, tuple) or len(nearby) != 2:
        raise ValueError("nearby must be a tuple of events and their groups (None where there are no groups)")
    X, groups = nearby
    if _num_samples(X) == 0:
        return None, None
    if with_groups:
        if groups is None:
            raise ValueError("nearby must have groups, as X has groups")
        groups = checks.as_labels(groups, name="groups of nearby")
        checks.check_same_length(**{"nearby": X, "the groups of nearby": groups})
    return indexable(X)[0], groups if with_groups else None


def check_models(estimator: Any) -> dict[str, Any]:
    """Return estimators by name; a single one has the empty name."""
    models = dict(estimator) if isinstance(estimator, Mapping) else {"": estimator}
    if not models:
        raise ValueError("estimator must contain at least one classifier, got an empty dict")
    for model in models.values():
        _base.check_classifier(model)
        _base.score_method(model)
    return models


def with_tuned_threshold(estimator: Any) -> Any:
    """Return a classifier with a threshold tuned by significance; unchanged if it has its own threshold."""
    inner = estimator
    while hasattr(inner, "steps") or isinstance(inner, _DECIDED_INSIDE):
        inner = inner.steps[-1][1] if hasattr(inner, "steps") else inner.estimator
    known = (FixedThresholdClassifier, TunedThresholdClassifierCV)
    if isinstance(inner, known) or getattr(inner, "has_own_threshold", False):
        return estimator
    # avoid inner folds where nothing is fitted
    return SignificanceThresholdClassifier(estimator, cv="prefit" if isinstance(estimator, FrozenEstimator) else 5)


def tune_thresholds(models: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap models without their own threshold, and log it."""
    tuned = {name: with_tuned_threshold(model) for name, model in models.items()}
    for name, model in models.items():
        if tuned[name] is not model:
            logger.info(_describe_tuning(model))
    return tuned


def _describe_tuning(model: Any) -> str:
    """Describe that a model was wrapped, for `Detection.remarks` and the log."""
    kind = type(model).__name__
    return f"{kind} has no own threshold: SignificanceThresholdClassifier tunes one within the training folds"


def _nested(model: Any) -> tuple[Any, ...]:
    """Return a model and all of its nested parameters."""
    return (model, *model.get_params(deep=True).values())


def check_references(models: Mapping[str, Any], groups: NDArray[Any] | None) -> None:
    """Raise an error for models with references trained on events of these groups."""
    if groups is None:
        return
    for part in (part for model in models.values() for part in _nested(model)):
        if isinstance(part, OnOffHybridClassifier):
            part.check_groups(groups)


def _check_ratios(models: Mapping[str, Any]) -> None:
    """Raise ValueError for classifiers without a likelihood ratio."""
    for model in models.values():
        known = any(isinstance(part, OnOffMixin) for part in _nested(model))
        if not known and _base.score_method(model) != "predict_proba":
            raise ValueError(f"{_NO_RATIO}; {type(model).__name__} has no likelihood ratio and no predict_proba")


def reseeded(estimator: Any, seed: int, *, keep: bool) -> Any:
    """Set the seeds of an estimator and of all nested estimators; with ``keep``, only those that are None."""
    seeds = {
        name: seed
        for name, value in sorted(estimator.get_params(deep=True).items())
        if (name == "random_state" or name.endswith("__random_state")) and not (keep and value is not None)
    }
    return clone(estimator).set_params(**seeds) if seeds else estimator


class _Prediction(NamedTuple):
    """Scores, selection and likelihood ratios of hold-out events."""

    rows: NDArray[np.intp]
    score: FloatArray
    selected: BoolArray
    ratio: FloatArray | None


class _FoldResult(NamedTuple):
    """Predictions of one model for its hold-out and nearby events, and the tuning fields of `Fold`."""

    held_out: _Prediction
    nearby: _Prediction | None
    importances: FloatArray | None
    tuning: dict[str, Any]
    spread: PointSpread | None = None
    model: Any = None


class _Run(NamedTuple):
    """One cross-validation of one model: folds, and significances and contrasts for each statistic."""

    folds: list[_FoldResult]
    significances: dict[str, float]
    contrasts: dict[str, float]


def _run_folds(
    models: Mapping[str, Any],
    events: Events,
    cv: Any,
    strategy: str,
    n_repeats: int,
    n_permutations: int,
    n_jobs: int | None,
    random_state: Any,
    keep_models: bool,
    verbose: int,
) -> dict[str, list[_Run]]:
    """Cross-validate models on shared folds; return all runs of each model; permutation 0 is the data."""
    verbose = checks.as_int("verbose", verbose, minimum=0)
    n_jobs = n_threads(n_jobs)
    check_references(models, events.groups)
    seed = int(checks.as_random_state(random_state).randint(2**31 - 1))
    order = events.groups, events.time, events.runs
    folds_of = _base.fold_maker(cv, strategy, events.X, events.labels, events.on_class, *order)
    models = {name: _base.with_alpha(model, events.mean_alpha()) for name, model in models.items()}
    repeated = [(p, r) for p in range(n_permutations + 1) for r in range(n_repeats)]
    n_folds = len(folds_of(events.labels, _seed(seed, 0, 0)))

    def labels_of(permutation: int) -> NDArray[Any]:
        return events.permute_labels(_seed(seed, permutation, -1)) if permutation else events.labels

    def tasks() -> Iterator[Any]:
        for permutation, repeat in repeated:
            # seeds depend on the repetition only: permutations then use the same function of the labels
            own_seed = _seed(seed, 0, repeat)
            labels = labels_of(permutation)
            folds = folds_of(labels, own_seed)
            for model in models.values():
                seeded = reseeded(model, own_seed, keep=repeat == 0)
                parts = []
                for number, (train, held_out) in enumerate(folds):
                    nearby = np.arange(0)
                    if not permutation:
                        nearby = events.nearby_rows(held_out, number, len(folds), by_group=strategy == "pooled")
                    parts.append(_Part(train, held_out, nearby))
                forward = strategy == "forward"
                for own in [parts] if forward else [[part] for part in parts]:
                    yield partial(_fit_parts, seeded, events, labels, own, with_groups=not forward)

    found: dict[str, list[_Run]] = {name: [] for name in models}
    with progress_bar("Cross-validating", len(repeated) * len(models) * n_folds, shown=verbose > 0) as tick:
        outcomes = map_threaded(lambda task: task(), tasks(), n_jobs, limit_blas=True)
        for permutation, _ in repeated:
            on = np.asarray(labels_of(permutation) == events.on_class)
            for runs in found.values():
                results: list[_FoldResult] = []
                while len(results) < n_folds:
                    own = next(outcomes)
                    results += own if keep_models else [result._replace(model=None) for result in own]
                    tick(len(own))
                run = _evaluate(events, on, results)
                runs.append(run._replace(folds=[]) if permutation else run)
    return found


class _Part(NamedTuple):
    """Rows of one fold: training, hold-out, and nearby events."""

    train: NDArray[np.intp]
    held_out: NDArray[np.intp]
    nearby: NDArray[np.intp]


class _Choice(NamedTuple):
    """Choices made on training events that are reused in later blocks with nearly the same events."""

    n_train: int
    configuration: str | None  # of a forest
    wide: bool  # whether events beyond the cut on theta^2 improve it
    spread: PointSpread | None


def _fit_parts(model: Any, events: Events, labels: Any, parts: list[_Part], *, with_groups: bool) -> list[_FoldResult]:
    """Fit and predict a fold, or all blocks of a forward validation, with new configurations as the sample grows."""
    found, chosen = [], None
    for part in parts:
        if chosen is not None and np.count_nonzero(events.core[part.train]) >= _GROWTH * chosen.n_train:
            chosen = None
        result, chosen = _fit_and_predict(model, events, labels, part, with_groups=with_groups, chosen=chosen)
        found.append(result)
    return found


def _seed(seed: int, permutation: int, repeat: int) -> int:
    """Return the seed of one run."""
    return int(np.random.SeedSequence([seed, permutation, repeat + 1]).generate_state(1)[0] >> 1)


def _fit_and_predict(
    estimator: Any, events: Events, labels: Any, part: _Part, *, with_groups: bool, chosen: _Choice | None = None
) -> tuple[_FoldResult, _Choice | None]:
    """Fit the training part of a fold, and predict its hold-out part and nearby events."""
    core, on = events.core, labels == events.on_class
    train = part.train[core[part.train]]
    n_on = int(np.count_nonzero(on[train]))
    if min(n_on, len(train) - n_on) < _MIN_TRAINING:
        return _predict_constant(events, part), None
    exposed = ExposedEstimator(estimator, events.mean_alpha(), {})
    if isinstance(events.alpha, np.ndarray):
        exposed = _base.with_exposure(estimator, on[train], events.alpha[train])
    model, alpha, of_training = exposed
    groups = None if events.groups is None or not with_groups else events.groups[train]
    fit_params: dict[str, Any] = {"groups": events.blocks} if _base.takes_groups(model, groups) else {}
    rows = train
    if isinstance(model, OnOffForestClassifier):
        fitted, rows = _fit_forest(estimator, events, labels, part.train, fit_params.get("groups"), chosen)
        X_held_out = _safe_indexing(events.X, part.held_out)
    else:
        if events.weights is not None and (name := _base.weight_parameter(model)) is not None:
            of_training = {name: events.weights[train] * of_training.get(name, 1.0)}
        for name, values in of_training.items():
            fit_params[name] = np.zeros(len(labels))
            fit_params[name][train] = values
        fitted, X_held_out = _base.fit_part(model, events.X, labels, train, part.held_out, fit_params)
    result = _predict_fold(fitted, events, X_held_out, part.held_out, part.nearby, n_train=len(train), alpha=alpha)
    spread = None if chosen is None else chosen.spread
    if events.direction is not None and result.held_out.ratio is not None:
        if spread is None:
            spread = _learn_spread(fitted, events, on, part.train, rows)
        ratio = result.held_out.ratio * events.direction.take(part.held_out).ratio(spread)
        result = result._replace(held_out=result.held_out._replace(ratio=ratio), spread=spread)
    choice = chosen or _Choice(len(train), result.tuning["configuration"], len(rows) > len(train), spread)
    return result._replace(model=fitted), choice


def _fit_forest(
    forest: OnOffForestClassifier, events: Events, labels: Any, train: Any, groups: Any, chosen: _Choice | None
) -> tuple[OnOffForestClassifier, NDArray[np.intp]]:
    """Fit a forest, including events beyond the cut on theta^2 unless they degrade it; return it with its events.

    On events are then weighted by the expected signal at their angle; threshold and calibration use the inner events.
    """
    on, share, core = labels == events.on_class, events.share, events.core[train]
    inside, rows = train[core], [train[core]]
    if share is not None and _base.weight_parameter(forest) is not None:
        forest = clone(forest).set_params(n_estimators=min(forest.n_estimators, _WIDE_TREES))
        rows += [np.concatenate([inside, train[~core]])]
    if chosen is not None:
        rows = rows[int(chosen.wide) :][:1]
        forest = clone(forest).set_params(configuration=chosen.configuration)
    found: list[tuple[float, OnOffForestClassifier, NDArray[np.intp]]] = []
    for own in rows:
        alpha = events.alpha[own] if isinstance(events.alpha, np.ndarray) else events.alpha
        model, ratio, fit_params = _base.with_exposure(forest, on[own], alpha)
        if events.weights is not None:
            fit_params["sample_weight"] = events.weights[own] * fit_params.get("sample_weight", 1.0)
        weights = fit_params.get("sample_weight", np.ones(len(own)))
        if groups is not None:
            fit_params["groups"] = groups[own]
        if found:
            model.set_params(configuration=found[0][1].configuration_)
        if share is not None and len(own) > len(inside):
            background = np.where(on[own], 0.0, weights)
            model.set_params(alpha=ratio * float(background @ share[own] / background.sum()) / _WIDE_SHARE)
            fit_params["sample_weight"] = weights * np.where(on[own], share[own], _WIDE_SHARE)
        model.fit(_safe_indexing(events.X, own), labels[own], **fit_params)
        weights = weights[: len(inside)]
        if len(own) > len(inside):
            weighted = isinstance(alpha, np.ndarray) or events.weights is not None
            model.retune(on[own], np.arange(len(inside)), ratio, weights if weighted else None)
        gain = _log_likelihood(model, on[inside], weights) if len(rows) > 1 else 0.0
        found.append((gain + _CLEARLY_WORSE * (len(own) > len(inside)), model, own))
    return max(found, key=lambda one: one[0])[1:]


def _log_likelihood(forest: OnOffForestClassifier, on: BoolArray, weights: FloatArray) -> float:
    """Return the log-likelihood of the labels of the first training events given their out-of-bag scores."""
    score = forest.oob_decision_function_[: len(on), 1]
    known = np.isfinite(score)
    probability = forest.calibration_.on_probability_at(score[known])
    return float(weights[known] @ np.where(on[known], np.log(probability), np.log1p(-probability)))


def _learn_spread(
    model: Any, events: Events, on: BoolArray, wide: NDArray[np.intp], train: NDArray[np.intp]
) -> PointSpread:
    """Fit the point spread function to all events of the training part, including those beyond the cut on theta^2."""
    assert events.direction is not None
    ratio = np.ones(len(events.labels))
    if isinstance(model, OnOffForestClassifier):  # out of bag; other models have no such scores
        ratio[train] = model.calibration_.ratio(np.nan_to_num(model.oob_decision_function_[:, 1]))
        beyond = np.setdiff1d(wide, train, assume_unique=True)
        if len(beyond):
            ratio[beyond] = model.calibration_.ratio(score_events(model, _safe_indexing(events.X, beyond)))
    alpha = events.alpha[wide] if isinstance(events.alpha, np.ndarray) else events.alpha
    return events.direction.take(wide).fit(on[wide], ratio[wide], alpha)


def _predict_constant(events: Events, part: _Part) -> _FoldResult:
    """Predict events before the first model: all are selected with equal ratios, up to their direction."""
    rows = part.held_out
    ratio, unknown = np.ones(len(rows)), np.full(len(rows), np.nan)
    if events.direction is not None:
        ratio = events.direction.take(rows).ratio(PointSpread.expected(events.direction.cut))
    tuning = {"n_train": 0, "threshold": np.nan, "tuned": None, "reference_weights": None, "bins": ()}
    return _FoldResult(_Prediction(rows, unknown, events.core[rows], ratio), None, None, tuning)


def _predict_fold(
    model: Any, events: Events, X: Any, rows: Any, nearby: NDArray[np.intp], *, n_train: int, alpha: float | None
) -> _FoldResult:
    """Predict hold-out and nearby events with a model fitted with this exposure ratio; None if unknown."""
    innermost, _ = _unwrap(model)
    binned = isinstance(innermost, OnOffBinnedClassifier)
    learner = innermost.estimator_ if binned else innermost
    around = None
    if len(nearby):
        around = _predict(model, _safe_indexing(events.X_nearby, nearby), nearby, events.on_class, alpha)
    tuning = {
        "n_train": n_train,
        # the second is the attribute name in scikit-learn's own tuners
        "threshold": float(getattr(innermost, "threshold_", getattr(innermost, "best_threshold_", np.nan))),
        "tuned": innermost.tuned_counts_ if isinstance(innermost, OnOffMixin) else None,
        "reference_weights": learner.reference_weights_ if isinstance(learner, OnOffHybridClassifier) else None,
        "bins": innermost.bins_ if binned else (),
        "configuration": getattr(model, "configuration_", None),
    }
    held_out = _predict(model, X, rows, events.on_class, alpha)
    held_out = held_out._replace(selected=held_out.selected & events.core[rows])
    return _FoldResult(held_out, around, _importances(model, X), tuning)


def _predict(model: Any, X: Any, rows: NDArray[np.intp], on_class: Any, alpha: float | None) -> _Prediction:
    """Score and select events, and compute their likelihood ratios."""
    score = score_events(model, X)
    if n_bad := np.count_nonzero(~np.isfinite(score)):
        raise ValueError(f"estimator returned non-finite scores for {n_bad} of {len(score)} events")
    own = isinstance(model, OnOffMixin)  # classifiers whose predict would compute the scores again
    selected = score > model.threshold_ if own else np.asarray(model.predict(X)) == on_class
    return _Prediction(rows, score, selected, _ratio(model, X, score, alpha))


def _ratio(model: Any, X: Any, score: FloatArray, alpha: float | None) -> FloatArray | None:
    """Return likelihood ratios from scores; None if these are not probabilities with a known background."""
    innermost, steps = _unwrap(model)
    if isinstance(innermost, OnOffBinnedClassifier):
        for step in steps:
            X = step.transform(X)
        return innermost.calibration_of(X).ratio(score)
    calibration = getattr(innermost, "calibration_", None)
    if isinstance(calibration, _base.SignalCalibration):
        return calibration.ratio(score)
    if alpha is None or not hasattr(model, "predict_proba"):
        return None
    probability = np.minimum(score, _LARGEST_PROBABILITY)
    excess = np.maximum(probability / (1 - probability) - alpha, 0.0)
    # the mean over all events, independent of labels: folds must not differ by their estimated signal fraction
    mean = excess.mean() if len(excess) else 0.0
    return excess / mean if mean > 0 else np.ones(len(score))


def _importances(model: Any, X: Any) -> FloatArray | None:
    """Return feature importances of a model or its inner classifier; None if not available."""
    while model is not None:
        model, _ = _unwrap(model)
        found = getattr(model, "feature_importances_", None)
        if found is not None:
            # after a step that creates other features, importances do not refer to X
            return np.asarray(found, dtype=np.float64) if np.shape(found) == np.shape(X)[1:] else None
        model = getattr(model, "estimator_", getattr(model, "estimator", None))
    return None


def _unwrap(model: Any) -> tuple[Any, list[Any]]:
    """Return the final classifier of pipelines and searches, and the preceding transformers."""
    steps: list[Any] = []
    while True:
        if hasattr(model, "steps"):
            steps += [model[:-1]] if len(model.steps) > 1 else []
            model = model.steps[-1][1]
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        else:
            return model, steps


def _join(events: Events, on: BoolArray, folds: list[_FoldResult]) -> Detection:
    """Combine the hold-out events of all folds, without fields that do not follow from them."""
    score, selected, ratio = _scatter(len(on), [result.held_out for result in folds])
    fold = np.full(len(on), -1)
    for number, result in enumerate(folds):
        fold[result.held_out.rows] = number
    known = all(result.held_out.ratio is not None for result in folds)
    event_alpha = events.alpha if isinstance(events.alpha, np.ndarray) else None
    if event_alpha is not None:
        ratio *= event_alpha / event_alpha.mean()
    predicted = on, score, selected, ratio if known else None, fold, events.groups
    core = None if events.direction is None else events.core
    more: dict[str, Any] = {"event_alpha": event_alpha, "alpha_error": events.alpha_error, "core": core}
    return Detection(*predicted, (), events.mean_alpha(), "pooled", "cut", {}, {}, **more)


def _evaluate(events: Events, on: BoolArray, folds: list[_FoldResult]) -> _Run:
    """Compute both statistics of the hold-out events of all folds."""
    joined = _join(events, on, folds)
    return _Run(folds, joined.outcome.significances, joined.contrasts)


def _make_detection(
    events: Events, runs: list[_Run], n_repeats: int, strategy: str, statistic: str, required_significance: float
) -> Detection:
    """Combine the runs of one model: repetitions first, then the permutations of each."""
    significances, contrasts = (
        {name: np.array([getattr(run, what)[name] for run in runs]).reshape(-1, n_repeats) for name in STATISTICS}
        for what in ("significances", "contrasts")
    )
    if np.isnan(significances[statistic]).any():
        raise ValueError(_NO_RATIO)
    median = np.argsort(significances[statistic], axis=1, kind="stable")[:, (n_repeats - 1) // 2]
    results = runs[median[0]].folds
    joined = _join(events, events.on, results)
    folds = []
    for number, result in enumerate(results):
        outcome = joined.outcome_of(joined.fold == number)
        likelihood = outcome.significances["likelihood"]
        n_held_out = int(np.count_nonzero(events.core[result.held_out.rows]))
        held_out: dict[str, Any] = {"n_held_out": n_held_out, "held_out": outcome.counts}
        folds.append(Fold(**held_out, likelihood_significance=likelihood, **result.tuning))
    spreads = [result.spread for result in results if result.spread is not None]
    importances = [result.importances for result in results if result.importances is not None]
    around = _scatter(events.n_nearby, [result.nearby for result in results if result.nearby is not None])
    return replace(
        joined,
        folds=tuple(folds),
        observations=events.observations,
        strategy=strategy,
        statistic=statistic,
        repeats={name: values[0] for name, values in significances.items()},
        permutations={name: values[np.arange(1, len(values)), median[1:]] for name, values in contrasts.items()},
        required_significance=required_significance,
        nearby=Nearby(*around[:2]) if events.n_nearby else None,
        importances=np.mean(importances, axis=0) if importances else None,
        feature_names=tuple(map(str, events.X.columns)) if hasattr(events.X, "columns") else None,
        point_spread=PointSpread.average(spreads[-1:] if strategy == "forward" else spreads),
        estimators=tuple(result.model for result in results if result.model is not None),
    )


def _scatter(n_events: int, predictions: list[_Prediction]) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Return scores, selection and likelihood ratios of all events; NaN for events without a prediction."""
    score, selected, ratio = np.full(n_events, np.nan), np.zeros(n_events, dtype=np.bool_), np.full(n_events, np.nan)
    for one in predictions:
        score[one.rows], selected[one.rows] = one.score, one.selected
        if one.ratio is not None:
            ratio[one.rows] = one.ratio
    return score, selected, ratio
