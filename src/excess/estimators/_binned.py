"""Classifier with a threshold and a calibration for each bin of a column, such as energy."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from excess._utils.checks import BoolArray, FloatArray, as_int
from excess.estimators._base import SignalCalibration, calibrate, score_events, store_parameters
from excess.estimators._model_file import ensure, from_bytes, saveable
from excess.estimators._threshold import BaseMetaClassifier, column_number, model_bytes, with_threads
from excess.stats._significance import li_ma_significance
from excess.stats._thresholds import events_curve

CUT = 0.5  # common threshold of all bins, after shifting their scores
_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)  # fractions of the threshold of a bin, relative to that of all bins
_MIN_GAIN = 0.25  # minimum gain in sigma of separate thresholds over a common one
_MIN_LABELS = 20  # minimum number of On and of Off events to tune a bin


class TunedBin(NamedTuple):
    """Threshold of a bin, and the events used to tune it."""

    threshold: float  # on the scores of the inner estimator, before the shift to a common threshold
    first: int  # first and last bin used to tune it; more than its own if it had too few events
    last: int
    n_events: int  # of the bin itself with a score


class BinnedCalibration(NamedTuple):
    """Calibration of the scores of events with known bins."""

    bins: tuple[SignalCalibration, ...]  # of the scores of the inner estimator
    strength: float  # signal events per Off event in all bins together, 0 without an excess
    number: NDArray[np.int64]  # bin of each event
    tuned: tuple[TunedBin, ...]  # thresholds by which scores were shifted

    def ratio(self, score: FloatArray) -> FloatArray:
        """Return the likelihood ratio of scores, for densities over all bins: larger in bins with more signal."""
        if self.strength == 0:
            return np.ones(len(score))  # all events are equivalent
        return self._by_bin(score, lambda own, given: own.ratio(given) * (own.strength / self.strength))

    def signal_probability(self, score: FloatArray) -> FloatArray:
        """Return the probability that an event of the On and Off regions with this score is signal."""
        return self._by_bin(score, lambda own, given: own.signal_probability(given))

    def _by_bin(self, score: FloatArray, of_bin: Callable[[SignalCalibration, FloatArray], FloatArray]) -> FloatArray:
        found = np.zeros(len(score))
        for number, (own, tuned) in enumerate(zip(self.bins, self.tuned, strict=True)):
            rows = self.number == number
            if own.strength > 0:
                end, moved = score_end(tuned.threshold), score[rows]
                moved_back = np.where(moved > CUT, end + (moved - CUT) / (1 - CUT) * (1 - end), moved / CUT * end)
                found[rows] = of_bin(own, moved_back)
        return found


def number_bins(values: FloatArray, edges: FloatArray) -> NDArray[np.int64]:
    """Return the bin of each value, from 0; edges belong to the bin above, missing values are an error."""
    if missing := np.count_nonzero(np.isnan(values)):
        raise ValueError(f"the column of the bins has no value for {missing} of {len(values)} events; remove them")
    return np.searchsorted(edges, values, side="right").astype(np.int64)


def as_edges(edges: Any) -> FloatArray:
    """Return the edges between bins; raise ValueError unless they are finite and ascending."""
    found = np.asarray(edges, dtype=np.float64)
    if found.ndim != 1 or not np.isfinite(found).all() or (np.diff(found) <= 0).any():
        raise ValueError(f"edges must be finite numbers in ascending order, got {edges!r}")
    return found


def tuning_windows(
    number: NDArray[np.int64], on: BoolArray, off: BoolArray, n_bins: int, enough: int
) -> list[tuple[int, int, int]]:
    """Return for each bin the first and last bin used to tune it, and its own number of events."""
    n_on, n_off = (np.bincount(number[chosen], minlength=n_bins) for chosen in (on, off))
    found = []
    for own in range(n_bins):
        first = last = own
        while (first, last) != (0, n_bins - 1):
            in_window = slice(first, last + 1)
            of_on, of_off = int(n_on[in_window].sum()), int(n_off[in_window].sum())
            if of_on + of_off >= enough and min(of_on, of_off) >= _MIN_LABELS:
                break
            first, last = max(first - 1, 0), min(last + 1, n_bins - 1)
        found.append((first, last, int(n_on[own] + n_off[own])))
    return found


def move_by_bin(score: FloatArray, number: NDArray[np.int64], tuned: Sequence[TunedBin]) -> FloatArray:
    """Return scores from 0 to 1 with the threshold of each bin at 0.5, in the same order within a bin."""
    moved = np.full(len(score), np.nan)
    for own, one in enumerate(tuned):
        rows = (number == own) & ~np.isnan(score)  # a score may be NaN
        known, end = score[rows], score_end(one.threshold)
        lower = CUT * known / end if end > 0 else np.zeros(len(known))
        upper = CUT + (1 - CUT) * (known - end) / (1 - end) if end < 1 else np.ones(len(known))
        # rounding must not move an event across
        within = np.minimum(lower, CUT), np.maximum(upper, np.nextafter(CUT, 1.0))
        moved[rows] = np.where(known > one.threshold, within[1], within[0])
    return moved


def blend(own: float, common: float, share: float) -> float:
    """Return the weighted mean of two thresholds of scores from 0 to 1, with the weight of the first."""
    if share in (0.0, 1.0):
        return own if share else common
    low, high = np.clip([own, common], -1e-9, 1.0)  # infinite thresholds select all or no events
    return float(share * low + (1 - share) * high)


def score_end(threshold: float) -> float:
    """Return the last score below and the first above the threshold; beyond, all events are selected or none."""
    return min(max(threshold, 0.0), 1.0)


class _BinnedState(NamedTuple):
    """Fitted state of bins; the estimator is an embedded model file."""

    learner: NDArray[np.uint8]
    edges: Annotated[FloatArray, "edges"]
    bin_thresholds: Annotated[FloatArray, "edges+1"]
    bin_windows: Annotated[NDArray[np.int64], "edges+1", 3]  # first and last bin, and events
    bin: dict[int, SignalCalibration]
    strength: float
    has_estimator: bool


@saveable
class OnOffBinnedClassifier(BaseMetaClassifier):
    """On/Off classifier with a threshold and a calibration for each bin of a column, such as energy.

    One estimator is trained on the events of all bins. Each bin then gets its own threshold and calibration; bins with
    too few events are tuned together with their neighbours. If separate thresholds would reduce the significance
    compared with a common one, they are shrunk towards it by cross-validation.

    Parameters
    ----------
    estimator : classifier or None, default=None
        Classifier to train; by default an `OnOffForestClassifier`. It is cloned. Its scores must be between 0 and 1.
    column : int or str, default=0
        Column of X that defines the bins: its index, or its name in a DataFrame.
    edges : sequence of float, default=()
        Edges between the bins, ascending; an event at an edge belongs to the bin above it. No edges define one bin.
    alpha : float or None, default=None
        Exposure ratio On/Off. Required by ``fit``; `cross_val_detect` and `null_test` set it.
    passthrough : bool, default=True
        Whether the column is also a feature of the estimator.
    min_events : int, default=1000
        Minimum number of events, with at least 20 On and 20 Off, to tune a bin without its neighbours.
    cv : "auto", "oob", int, splitter or iterable, default="auto"
        Source of the scores for the thresholds: out-of-bag scores of the estimator if available, else five folds.
    threshold, threshold_tolerance, n_threshold_bootstrap
        As for `OnOffForestClassifier`, in each bin; the bins share the tolerance.
    n_jobs, random_state
        As for `OnOffHybridClassifier`.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on all events.
    bins_ : tuple of TunedBin
        Threshold of each bin, and the bins used to tune it.
    threshold_ : float
        0.5: scores are shifted such that the threshold of each bin is 0.5, and keep their order within a bin.
    calibrations_ : tuple of SignalCalibration
        Signal probability as a function of the estimator's score, by bin.
    calibration_ : SignalCalibration
        The same for the shifted scores of all bins; ``likelihood_ratio`` and ``predict_signal_proba`` use the bins.
    curve_, classes_, n_features_in_, feature_names_in_
        As for `OnOffForestClassifier`.

    Notes
    -----
    Choose the edges independently of the labels. Do not bin a column that contains the direction of an event.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_classification
    >>> from excess import OnOffBinnedClassifier, OnOffForestClassifier, inject_label_noise
    >>> X, truth = make_classification(6000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(truth, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> energy = np.random.default_rng(0).lognormal(size=6000)
    >>> forest = OnOffForestClassifier(50, min_samples_leaf=20, random_state=0)
    >>> model = OnOffBinnedClassifier(forest, 0, edges=[1.0, 8.0], alpha=1 / 5, passthrough=False, random_state=0)
    >>> model = model.fit(np.column_stack([energy, X]), on)
    >>> [(tuned.first, tuned.last, tuned.n_events) for tuned in model.bins_]
    [(0, 0, 3060), (1, 1, 2828), (1, 2, 112)]
    """

    _in_state = ("estimator", "edges")
    edges: Sequence[float]

    def __init__(
        self,
        estimator: Any = None,
        column: int | str = 0,
        edges: Sequence[float] = (),
        alpha: float | None = None,
        *,
        passthrough: bool = True,
        min_events: int = 1000,
        cv: Any = "auto",
        threshold: str | Callable[..., float] | float = "significance",
        threshold_tolerance: float = 9.0,
        n_threshold_bootstrap: int = 25,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        store_parameters(self, locals())

    def fit(
        self, X: Any, y: ArrayLike, *, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train on all bins, and tune each; labels, groups and weights are as for `OnOffHybridClassifier`."""
        alpha, rule, random = self._check_settings()
        edges = as_edges(self.edges)
        enough = as_int("min_events", self.min_events, minimum=1)
        events = self._training_events(X, y, groups, sample_weight)
        features, number = self._split(events.X)
        estimator, score = self._learn(self._learner(alpha, random), features, events)
        on, known = events.on, events.known(score)
        if ((score[known] < 0) | (score[known] > 1)).any():
            raise ValueError("the scores of estimator must be between 0 and 1; use a classifier with predict_proba")

        # squared significances of bins add up, so the bins share the tolerance
        of_bins = replace(rule, tolerance=rule.tolerance / (len(edges) + 1))
        seed = int(random.randint(2**31 - 1))
        score = np.where(known, score, np.nan)
        windows = tuning_windows(number, on & known, ~on & known, len(edges) + 1, enough)
        parts = [(number >= first) & (number <= last) for first, last, _ in windows]

        def tune(rows: BoolArray) -> list[tuple[float, Any]]:
            """Return threshold and curve of each bin, and of all bins together, from some events."""
            rules = [*[of_bins] * len(parts), rule]
            chosen = zip(rules, (*(rows & part for part in parts), rows), strict=True)
            return [one(on[own], score[own], alpha, seed, events.weights_of(own)) for one, own in chosen]

        *own_cuts, (common, _) = tune(np.ones(len(on), dtype=np.bool_))
        calibrations = [calibrate(curve) for _, curve in own_cuts]
        share = self._choose_share(tune, parts, on, score, number, alpha, events, seed) if len(parts) > 1 else 1.0
        tuned = [
            TunedBin(blend(threshold, common, share), first, last, n_events)
            for (threshold, _), (first, last, n_events) in zip(own_cuts, windows, strict=True)
        ]
        moved = move_by_bin(score, number, tuned)
        curve = events_curve(on[known], moved[known], alpha, events.weights_of(known))
        n_off = np.bincount(number[known & ~on], events.weights_of(known & ~on), len(tuned))

        # attributes are set only after everything has succeeded
        self.estimator_, self.bins_, self.calibrations_ = estimator, tuple(tuned), tuple(calibrations)
        self._strength = float(np.average([own.strength for own in calibrations], weights=np.maximum(n_off, 1e-9)))
        self.threshold_, self.curve_, self.calibration_ = CUT, curve, calibrate(curve)
        self.classes_ = events.classes
        return self

    @staticmethod
    def _choose_share(
        tune: Any,
        parts: list[BoolArray],
        on: BoolArray,
        score: FloatArray,
        number: NDArray[np.int64],
        alpha: float,
        events: Any,
        seed: int,
    ) -> float:
        """Return the weight of separate thresholds that is best for the events of the other half."""
        half = np.random.default_rng(seed).random(len(on)) < 0.5
        quarters = [rows & kind & ~np.isnan(score) for rows in (half, ~half) for kind in (on, ~on)]
        if not all((rows & part).any() for rows in quarters for part in parts):
            return _SHARES[-1]  # a half lacks On or Off events in a bin, so it cannot be tuned
        weights = np.ones(len(on)) if events.weights is None else events.weights
        counts = np.zeros((len(_SHARES), 2))
        for tuned_on in (half, ~half):
            *own, (common, _) = tune(tuned_on)
            for row, share in enumerate(_SHARES):
                cuts = np.array([blend(threshold, common, share) for threshold, _ in own])
                selected = ~tuned_on & (score > cuts[number])
                counts[row] += [weights[selected & on].sum(), weights[selected & ~on].sum()]
        found = np.asarray(li_ma_significance(counts[:, 0], counts[:, 1], alpha))
        return _SHARES[int(np.argmax(found))] if found.max() > found[-1] + _MIN_GAIN else _SHARES[-1]

    def predict_proba(self, X: Any) -> FloatArray:
        """Return scores of Off and On, with the threshold of each bin shifted to 0.5; shape (n_events, 2)."""
        check_is_fitted(self)
        features, number = self._split(self._validated(X, reset=False))
        score = move_by_bin(score_events(with_threads(self.estimator_, self.n_jobs), features), number, self.bins_)
        return np.column_stack([1 - score, score])

    def calibration_of(self, X: Any) -> BinnedCalibration:  # type: ignore[override]
        """Return the calibration of scores, by the bin of each event."""
        check_is_fitted(self)
        return BinnedCalibration(self.calibrations_, self._strength, self.bin_numbers(X), self.bins_)

    def bin_numbers(self, X: Any) -> NDArray[np.int64]:
        """Return the bin of each event, from 0 to the number of edges; shape (n_events,)."""
        column = column_number("column", self.column, getattr(X, "columns", None), np.shape(X)[1])
        values = np.asarray(_safe_indexing(X, column, axis=1), dtype=np.float64).reshape(-1)
        return number_bins(values, as_edges(self.edges))

    @property
    def feature_importances_(self) -> FloatArray:
        """Importance of each feature in the inner estimator; 0 for a bin column that it does not use."""
        check_is_fitted(self)
        own = np.asarray(self.estimator_.feature_importances_, dtype=np.float64)
        return own if self.passthrough else np.insert(own, self._column_in_training(), 0.0)

    def _get_state(self) -> _BinnedState:
        return _BinnedState(
            model_bytes("the estimator of all bins", self.estimator_),
            as_edges(self.edges),
            np.array([own.threshold for own in self.bins_]),
            np.array([own[1:] for own in self.bins_], dtype=np.int64),
            dict(enumerate(self.calibrations_)),
            self._strength,
            self.estimator is not None,
        )

    def _set_state(self, state: _BinnedState) -> None:
        self.estimator_ = from_bytes(state.learner)
        self.edges = tuple(as_edges(state.edges).tolist())
        n_bins = len(state.edges) + 1
        ensure(not np.isnan(state.bin_thresholds).any(), "a bin has no threshold")
        first, last, n_events = state.bin_windows.T
        own = np.arange(n_bins)
        inside = (first >= 0) & (first <= own) & (last >= own) & (last < n_bins) & (n_events >= 0)
        ensure(inside.all(), "a bin was tuned on bins that do not exist")
        columns = zip(state.bin_thresholds.tolist(), state.bin_windows.tolist(), strict=True)
        self.bins_ = tuple(TunedBin(threshold, *window) for threshold, window in columns)
        ensure(list(state.bin) == own.tolist(), "its calibrations are not those of its bins")
        self.calibrations_ = tuple(state.bin.values())
        self._strength = state.strength
        ensure(0 <= self._strength < np.inf, "its signal strength is not a number")
        if state.has_estimator:
            self.estimator = clone(self.estimator_)

    def _split(self, X: Any) -> tuple[Any, NDArray[np.int64]]:
        """Return the features for the estimator, and the bin of each event."""
        number = self.bin_numbers(X)
        if self.passthrough:
            return X, number
        column = column_number("column", self.column, getattr(X, "columns", None), X.shape[1])
        kept = [other for other in range(X.shape[1]) if other != column]
        if not kept:
            raise ValueError("X has no features besides the column of the bins; add features")
        return _safe_indexing(X, kept, axis=1), number

    def _column_in_training(self) -> int:
        return column_number("column", self.column, getattr(self, "feature_names_in_", None), self.n_features_in_)


def learner_of(model: Any) -> Any:
    """Return the fitted estimator of all bins; a model without bins is returned unchanged."""
    return model.estimator_ if isinstance(model, OnOffBinnedClassifier) else model
