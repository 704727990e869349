"""Classifier that combines On/Off training with weighted references, such as classifiers trained on simulations."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_array, check_is_fitted

from excess._utils.checks import FloatArray, as_labels
from excess.estimators._base import SignalCalibration, calibrate, check_classifier, score_events, store_parameters
from excess.estimators._model_file import as_json, ensure, from_bytes, saveable
from excess.estimators._threshold import BaseMetaClassifier, column_number, model_bytes, with_threads
from excess.stats._thresholds import events_curve

DROP = "drop"  # in place of an estimator: references only
LABELS = "On/Off"  # name of the member trained on labels only
LABELS_AND_REFERENCES = "On/Off with references"  # name of the member with scores of references as additional features
_TEMPERATURE = 8.0  # difference in log-likelihood of the labels that reduces the weight of a member by 1/e


class HybridMember(NamedTuple):
    """One member of the average: a reference, ``"On/Off"`` or ``"On/Off with references"``."""

    name: str
    log_likelihood: float  # of the labels, under its calibrated out-of-bag or out-of-fold scores
    weight: float  # the weights of all members sum to 1


class _HybridState(NamedTuple):
    """Fitted state of a hybrid; models are embedded model files, names and columns are text."""

    reference: dict[int, NDArray[np.uint8]]  # references that are models, by index
    learner: dict[int, NDArray[np.uint8]]
    member: dict[int, SignalCalibration]
    log_likelihoods: Annotated[FloatArray, "members"]
    weights: Annotated[FloatArray, "members"]
    hybrid: str  # JSON
    has_estimator: bool


@saveable
class OnOffHybridClassifier(BaseMetaClassifier):
    """On/Off classifier with references, weighted by their likelihood of the labels.

    A reference is a classifier trained on other data, such as simulations, or a column of scores, such as the gammaness
    of another analysis. References, a classifier trained on the labels only, and one with the references as additional
    features are averaged, with weights from the likelihood of the labels of events that they were not trained on.

    Parameters
    ----------
    references : mapping of str to classifier, str or int, or None, default=None
        By name: a fitted classifier, or the name or index of a column of X with a score, which is then not a feature. A
        model file supports columns, classifiers of this package, ONNX models, and ``HistGradientBoostingClassifier``.
    estimator : classifier, "drop" or None, default=None
        Classifier trained on the labels, by default an `OnOffForestClassifier`; ``"drop"`` only weights references.
    alpha : float or None, default=None
        Exposure ratio On/Off. Required by ``fit``; `cross_val_detect` and `null_test` set it.
    cv : "oob", int, splitter or iterable, default="oob"
        Source of the scores used to assess members: out-of-bag scores of ``estimator``, or folds.
    trained_on : mapping of str to sequence, or None, default=None
        Groups, such as nights, used to train a reference, by its name. Events of these groups raise an error.
    threshold, threshold_tolerance, n_threshold_bootstrap
        As for `OnOffForestClassifier`, applied to the scores used to assess members.
    n_jobs : int or None, default=None
        Number of folds fitted in parallel, and threads of On/Off classifiers.
    random_state : int, RandomState instance or None, default=None
        Random seed.

    Attributes
    ----------
    members_ : tuple of HybridMember
        Averaged members: the references in their order, the classifier with references as features, and without.
    reference_weights_ : dict of str to float
        Weight of each member, by name; the sum is 1.
    estimators_ : dict of str to classifier
        Fitted classifiers, by the names of their members.
    threshold_, curve_, calibration_, classes_, n_features_in_, feature_names_in_
        As for `OnOffForestClassifier`.

    Notes
    -----
    A reference must not be trained on events, or their groups, used to assess it; ``trained_on`` checks this.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from excess import OnOffHybridClassifier, inject_label_noise
    >>> X, truth = make_classification(6000, weights=[0.9], class_sep=1.5, flip_y=0.0, random_state=0)
    >>> on = inject_label_noise(truth, p_plus=0.05, p_minus=1 / 6, random_state=0)
    >>> simulated = LogisticRegression().fit(X[:2000], truth[:2000])
    >>> model = OnOffHybridClassifier({"simulation": simulated}, alpha=1 / 5, random_state=0)
    >>> model = model.fit(X[2000:4000], on[2000:4000])
    >>> {name: round(weight, 2) for name, weight in model.reference_weights_.items()}
    {'simulation': 0.1, 'On/Off with references': 0.12, 'On/Off': 0.78}
    """

    _in_state = ("references", "estimator", "trained_on")

    def __init__(
        self,
        references: Mapping[str, Any] | None = None,
        estimator: Any = None,
        alpha: float | None = None,
        *,
        cv: Any = "oob",
        trained_on: Mapping[str, Any] | None = None,
        threshold: str | Callable[..., float] | float = "significance",
        threshold_tolerance: float = 9.0,
        n_threshold_bootstrap: int = 25,
        n_jobs: int | None = None,
        random_state: Any = None,
    ) -> None:
        store_parameters(self, locals())

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy; references are shared, because they are not fitted here."""
        parameters = self.get_params(deep=False)
        learner = parameters.pop("estimator")
        shared = {name: parameters.pop(name) for name in ("references", "trained_on")}
        copied = {name: clone(value, safe=False) for name, value in parameters.items()}
        return type(self)(**shared, **copied, estimator=clone(learner, safe=False))

    def fit(
        self, X: Any, y: ArrayLike, *, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train on On and Off events, and compute the weight of each reference.

        X is a DataFrame if references are columns by name, or have named features. The larger of two labels in sorted
        order is On. ``groups``, such as nights, are not split between training and assessment: out of bag means out of
        the group. ``sample_weight`` is the number of events represented by each event; the classifier uses it if its
        ``fit`` supports it, and ``threshold`` must then be ``"significance"``, ``"f1"`` or a number.
        """
        alpha, rule, random = self._check_settings()
        references = self._checked_references()
        events = self._training_events(X, y, groups, sample_weight)
        if events.groups is not None:
            self.check_groups(events.groups)
        features, scores = self._split(events.X, references)
        inputs = self._inputs(features, scores)
        learner = self._learner(alpha, random) if inputs else None
        fitted: dict[str, Any] = {}
        for name, own in inputs.items():
            fitted[name], scores[name] = self._learn(learner, own, events)
        on, known = events.on, events.known(*scores.values())
        of_known = events.weights_of(known)
        calibrations, likelihood = {}, {}
        for name, own in scores.items():
            calibrations[name] = calibrate(events_curve(on[known], own[known], alpha, of_known))
            on_probability = calibrations[name].on_probability_at(own[known])
            terms = np.log(np.where(on[known], on_probability, 1 - on_probability))
            likelihood[name] = float(terms.sum() if of_known is None else terms @ of_known)
        weights = np.exp((np.array(list(likelihood.values())) - max(likelihood.values())) / _TEMPERATURE)
        weights /= weights.sum()
        members = tuple(map(HybridMember, likelihood, likelihood.values(), weights.tolist()))
        score = np.where(known, _average(members, calibrations, scores), np.nan)
        threshold, curve = rule(on, score, alpha, int(random.randint(2**31 - 1)), events.weights)

        # attributes are set only after everything has succeeded
        self.members_, self.estimators_, self._calibrations = members, fitted, calibrations
        self.threshold_, self.curve_, self.calibration_ = threshold, curve, calibrate(curve)
        self.classes_ = events.classes
        return self

    @property
    def reference_weights_(self) -> dict[str, float]:
        """Weight of each member, by name."""
        return {member.name: member.weight for member in self.members_}

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probabilities of Off and On, the *noisy* classes, averaged over members; shape (n_events, 2)."""
        check_is_fitted(self)
        features, scores = self._split(self._validated(X, reset=False), self._checked_references())
        for name, own in self._inputs(features, scores).items():
            scores[name] = score_events(with_threads(self.estimators_[name], self.n_jobs), own)
        score = _average(self.members_, self._calibrations, scores)
        return np.column_stack([1 - score, score])

    @property
    def needs_columns(self) -> bool:
        """Whether reference columns in X are used: a hybrid of classifiers takes the features only."""
        is_column = (isinstance(own, (str, int, np.integer)) for own in (self.references or {}).values())
        return not isinstance(self.estimator, str) or any(is_column)

    def check_groups(self, groups: ArrayLike) -> None:
        """Raise ValueError if a reference was trained on one of these groups of events, such as nights."""
        present = set(np.unique(as_labels(groups, name="groups")).tolist())
        for name, seen in (self.trained_on or {}).items():
            shared = sorted(present & set(np.asarray(seen).tolist()))
            if shared:
                raise ValueError(
                    f"reference {name!r} was trained on events of group {shared[0]!r}; pass events of other groups"
                )

    def _get_state(self) -> _HybridState:
        instead = "; or export it to ONNX, and use an OnnxClassifier"
        models, described = {}, []
        for number, (name, reference) in enumerate(self._checked_references().items()):
            column = int(reference) if isinstance(reference, np.integer) else reference
            if not isinstance(column, (str, int)):
                column = None
                models[number] = model_bytes(f"reference {name!r}", reference, instead)
            described.append({"name": name, "column": column, "trained_on": (self.trained_on or {}).get(name)})
        learners = {name: model_bytes(f"classifier {name!r}", model) for name, model in self.estimators_.items()}
        text = as_json({"references": described, "members": list(self.reference_weights_), "learners": list(learners)})
        return _HybridState(
            models,
            dict(enumerate(learners.values())),
            dict(enumerate(self._calibrations[member.name] for member in self.members_)),
            np.array([member.log_likelihood for member in self.members_]),
            np.array([member.weight for member in self.members_]),
            json.dumps(text),
            self.estimator is not None,
        )

    def _set_state(self, state: _HybridState) -> None:
        text = json.loads(state.hybrid)
        references: dict[str, Any] = {}
        for number, own in enumerate(text["references"]):
            column = own["column"]
            ensure(column is None or type(column) in (str, int), "a reference is neither a model nor a column")
            references[str(own["name"])] = from_bytes(state.reference.pop(number)) if column is None else column
        ensure(not state.reference, "a model is not one of its references")
        self.references = references or None
        seen = {own["name"]: own["trained_on"] for own in text["references"] if own["trained_on"] is not None}
        self.trained_on = seen or None
        learners = [LABELS_AND_REFERENCES, LABELS] if references else [LABELS]
        learners = [] if references and not text["learners"] else learners
        members = [*references, *learners]
        ensure(text["learners"] == learners, "its learners are not those of its references")
        ensure(text["members"] == members, "its members are not its references and learners")
        models = (from_bytes(own) for own in state.learner.values())
        self.estimators_ = dict(zip(learners, models, strict=True))
        self._calibrations = dict(zip(members, state.member.values(), strict=True))
        weights = state.weights
        ensure((weights >= 0).all() and abs(weights.sum() - 1) < 1e-9, "the weights of its members do not sum to 1")
        columns = zip(members, state.log_likelihoods.tolist(), weights.tolist(), strict=True)
        self.members_ = tuple(HybridMember(*own) for own in columns)
        if state.has_estimator or not learners:
            self.estimator = clone(self.estimators_[LABELS]) if learners else DROP

    def _checked_references(self) -> dict[str, Any]:
        """Return the references; each is a column or a fitted classifier."""
        references = {} if self.references is None else self.references
        if not isinstance(references, Mapping):
            raise TypeError(f"references must be a mapping of names to classifiers, got {type(references).__name__}")
        for name, reference in references.items():
            if name in (LABELS, LABELS_AND_REFERENCES) or not isinstance(name, str):
                raise ValueError(f"references must have string names other than {LABELS!r}; got {name!r}")
            if not isinstance(reference, (str, int, np.integer)):
                check_classifier(reference, f"reference {name!r}")
                check_is_fitted(reference)
        if isinstance(self.estimator, str) and (self.estimator != DROP or not references):
            raise ValueError(
                f"estimator must be a classifier, None, or {DROP!r} with references; got {self.estimator!r}"
            )
        unknown = sorted(set(self.trained_on or {}) - set(references))
        if unknown:
            raise ValueError(f"trained_on names {unknown[0]!r}, which is not one of the references")
        return dict(references)

    def _find_columns(self, names: Any, n_columns: int) -> tuple[dict[str, int], list[int]]:
        """Return the column of each reference that is one, and the columns of features."""
        columns = {
            name: column_number(f"reference {name!r}", own, names, n_columns)
            for name, own in (self.references or {}).items()
            if isinstance(own, (str, int, np.integer))
        }
        kept = [number for number in range(n_columns) if number not in columns.values()]
        if not kept:
            raise ValueError("X has no features besides the columns of references; add features")
        return columns, kept

    def _inputs(self, features: FloatArray, scores: dict[str, FloatArray]) -> dict[str, FloatArray]:
        """Return the features of each classifier, with and without the scores of references, by its name."""
        if isinstance(self.estimator, str):
            return {}
        with_references = {LABELS_AND_REFERENCES: np.column_stack([features, *scores.values()])} if scores else {}
        return {**with_references, LABELS: features}

    def _split(self, X: Any, references: dict[str, Any]) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Return the features for the classifier, and the scores of references."""
        columns, kept = self._find_columns(getattr(X, "columns", None), X.shape[1])
        features = X if len(kept) == X.shape[1] else _safe_indexing(X, kept, axis=1)
        scores = {}
        for name, reference in references.items():
            if name in columns:
                found = np.asarray(_safe_indexing(X, columns[name], axis=1), dtype=np.float64).reshape(-1)
            else:
                known = _features_of(name, reference, X, features)
                found = score_events(with_threads(reference, self.n_jobs), known)
            if n_bad := np.count_nonzero(~np.isfinite(found)):
                raise ValueError(f"reference {name!r} has no finite score for {n_bad} of {len(X)} events; remove them")
            scores[name] = found
        return check_array(features, dtype=np.float64, ensure_all_finite=self._finite, input_name="X"), scores


def _average(
    members: tuple[HybridMember, ...], calibrations: Mapping[str, SignalCalibration], scores: Mapping[str, FloatArray]
) -> FloatArray:
    """Return the weighted mean of the members' probabilities of On."""
    probabilities = [own.weight * calibrations[own.name].on_probability_at(scores[own.name]) for own in members]
    return sum(probabilities, start=np.zeros(len(probabilities[0])))


def _features_of(name: str, reference: Any, X: Any, features: Any) -> Any:
    """Return the features that a reference was trained on."""
    wanted = getattr(reference, "feature_names_in_", None)
    if wanted is not None and hasattr(X, "columns"):
        missing = [feature for feature in wanted if feature not in X.columns]
        if missing:
            raise ValueError(f"reference {name!r} requires features missing in X: {', '.join(map(str, missing))}")
        return X[list(wanted)]
    n_wanted, n_given = getattr(reference, "n_features_in_", None), features.shape[1]
    if n_wanted is not None and n_wanted != n_given:
        given = f"X has {n_given} without the columns of references; pass a DataFrame with feature names"
        raise ValueError(f"reference {name!r} requires {n_wanted} features, but {given}")
    # a reference trained without names would warn about them
    return np.asarray(features) if wanted is None else features
