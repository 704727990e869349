"""A classifier that learns from On and Off labels, and how far to trust others, such as one trained on simulations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_array, check_is_fitted

from excess._core.checks import (
    BoolArray,
    FloatArray,
    as_labels,
    as_random_state,
    as_scalar_alpha,
)
from excess.estimators.calibration import SignalCalibration, calibrate
from excess.estimators.holdout import check_classifier, learn_and_score, score_events
from excess.estimators.model_file import from_bytes
from excess.estimators.model_header import as_json
from excess.estimators.model_state import State, StoredArrays, require, saveable
from excess.estimators.nested_classifier import BaseNestedClassifier
from excess.estimators.nested_models import nested_bytes, prepare_learner, with_threads
from excess.stats.curve import events_curve
from excess.stats.thresholds import out_of_bag_rule

__all__ = ["HybridMember", "OnOffHybridClassifier"]

LABELS = "On/Off"
"""Name of the member that learns from labels alone."""
LABELS_AND_REFERENCES = "On/Off with references"
"""Name of the member that learns from labels, with the scores of references as features."""
_TEMPERATURE = 8.0
"""A member that makes the labels less likely by so many units of the log-likelihood has 1/e of the weight."""


class HybridMember(NamedTuple):
    """One source of knowledge.

    Attributes
    ----------
    name : str
        Of the reference, ``"On/Off"`` or ``"On/Off with references"``.
    log_likelihood : float
        Of the labels, under the member's calibrated out-of-bag or out-of-fold scores.
    trust : float
        Its weight; those of all members add up to 1.
    """

    name: str
    log_likelihood: float
    trust: float


@saveable
class OnOffHybridClassifier(BaseNestedClassifier):
    """On/Off learning with references, each trusted as far as the labels say.

    A reference is a classifier that was trained on something else, such as simulated gammas and protons, or a column of
    scores, such as the gammaness of another analysis. It may be right or wrong about the sky. On and Off labels tell:
    each reference, a learner of the labels alone, and one that has the references as further features are averaged,
    weighted by how likely they make the labels of events that they have not seen.

    Parameters
    ----------
    references : mapping of str to classifier, str or int, or None, default=None
        By name: a fitted classifier, which stays as it is; or the name, or number, of the column of X that holds a
        score. Such columns are no features of the learner of labels alone. A model file keeps columns, classifiers of
        this package, and ONNX models.
    estimator : classifier or None, default=None
        What learns from the labels; by default an `OnOffForestClassifier`. It is cloned.
    alpha : float or None, default=None
        Exposure ratio On/Off. ``fit`` needs it; `cross_val_detect` and `null_test` set it.
    cv : "oob", int, splitter or iterable, default="oob"
        Where the scores come from by which members are judged: out of the bag of ``estimator``, or out of folds.
    trained_on : mapping of str to sequence, or None, default=None
        The groups, such as nights, that a reference was trained on, by its name. Events of these groups are refused.
    threshold, threshold_tolerance, n_threshold_bootstrap
        As for `OnOffForestClassifier`, on the scores by which members are judged.
    n_jobs : int or None, default=None
        Folds that are fitted at the same time; threads of the default estimator, and of all On/Off classifiers when
        events are scored.
    random_state : int, RandomState instance or None, default=None
        Seed of everything random.

    Attributes
    ----------
    members_ : tuple of HybridMember
        What is averaged: the references in their order, the learner of labels with them, and without them.
    trust_ : dict of str to float
        The weight of each member, by name; they add up to 1.
    estimators_ : dict of str to classifier
        The fitted learners, by the names of their members.
    threshold_, curve_, calibration_, classes_, n_features_in_, feature_names_in_
        As for `OnOffForestClassifier`.

    See Also
    --------
    OnnxClassifier : A classifier of others as a reference.
    supervised_reference : A classifier trained on simulated events, alone.
    simulation_agreement : Where simulated events differ from observed ones.

    Notes
    -----
    A reference must not have been trained on events that it is judged by, nor on any of their groups: neither here nor
    by `cross_val_detect`. Give ``trained_on`` where it has seen observed events, so that this is checked.

    ``docs/simulation.md`` shows what it is worth where simulations are right, slightly wrong, or useless.

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
    >>> {name: round(trust, 2) for name, trust in model.trust_.items()}
    {'simulation': 0.17, 'On/Off with references': 0.19, 'On/Off': 0.64}
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
        self.references = references
        self.estimator = estimator
        self.alpha = alpha
        self.cv = cv
        self.trained_on = trained_on
        self.threshold = threshold
        self.threshold_tolerance = threshold_tolerance
        self.n_threshold_bootstrap = n_threshold_bootstrap
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_clone__(self) -> Self:
        """Return a copy that is not fitted; references are shared, because they are not fitted here."""
        parameters = self.get_params(deep=False)
        learner = parameters.pop("estimator")
        shared = {name: parameters.pop(name) for name in ("references", "trained_on")}
        copied = {name: clone(value, safe=False) for name, value in parameters.items()}
        return type(self)(**shared, **copied, estimator=None if learner is None else clone(learner))

    def fit(
        self, X: Any, y: ArrayLike, *, groups: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn from On and Off events, and how far to trust each reference.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events; a DataFrame where references are columns by name, or know their features by name.
        y : array-like of shape (n_events,)
            Noisy labels of two classes; the larger one in sorted order is On.
        groups : array-like of shape (n_events,) or None, default=None
            What must not be split between training and judging, such as nights: with ``cv="oob"``, out of the bag
            means out of the group.
        sample_weight : array-like of shape (n_events,) or None, default=None
            The number of events that each event stands for, at least 0. Trust, threshold and calibration count them,
            and so does the learner, if its ``fit`` takes a ``sample_weight``. ``threshold`` must be
            ``"significance"``, ``"f1"`` or a number.

        Returns
        -------
        self
        """
        alpha = as_scalar_alpha(self.alpha)
        rule = out_of_bag_rule(self)
        random = as_random_state(self.random_state)
        references = self._checked_references()
        events = self._training_events(X, y, groups, sample_weight)
        if events.groups is not None:
            self.check_groups(events.groups)
        features, reference_scores = self._split(events.X, references)

        learner = prepare_learner(self.estimator, alpha, self.n_jobs, random)
        inputs = {LABELS: features}
        if references:
            inputs[LABELS_AND_REFERENCES] = np.column_stack([features, *reference_scores.values()])
        fit_params = events.fit_params(learner)
        fitted: dict[str, Any] = {}
        scores = dict(reference_scores)
        for name in reversed(inputs):
            fitted[name], scores[name] = learn_and_score(
                learner, inputs[name], events.labels, events.groups, self.cv, fit_params, self.n_jobs
            )
        on, known = events.on, events.known(*scores.values())
        of_known = events.weights_of(known)
        calibrations, likelihood = {}, {}
        for name, own in scores.items():
            calibrations[name] = calibrate(events_curve(on[known], own[known], alpha, of_known))
            on_probability = calibrations[name].on_probability_at(own[known])
            likelihood[name] = _log_likelihood(on[known], on_probability, of_known)
        weights = np.exp((np.array(list(likelihood.values())) - max(likelihood.values())) / _TEMPERATURE)
        weights /= weights.sum()
        members = tuple(map(HybridMember, likelihood, likelihood.values(), weights.tolist()))
        score = np.where(known, _average(members, calibrations, scores), np.nan)
        threshold, curve = rule(on, score, alpha, int(random.randint(2**31 - 1)), events.weights)

        # nothing is set before all has succeeded
        self.members_, self.estimators_, self._calibrations = members, fitted, calibrations
        self.threshold_, self.curve_, self.calibration_ = threshold, curve, calibrate(curve)
        self.classes_ = events.classes
        return self

    @property
    def trust_(self) -> dict[str, float]:
        """The weight of each member, by name."""
        return {member.name: member.trust for member in self.members_}

    def predict_proba(self, X: Any) -> FloatArray:
        """Return probabilities of the *noisy* classes, Off and On.

        Parameters
        ----------
        X : array-like of shape (n_events, n_features)
            Events, as for ``fit``.

        Returns
        -------
        ndarray of shape (n_events, 2)
            The second column is the score: the mean over the members' probabilities of On, by their trust.
        """
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        features, scores = self._split(X, self._checked_references())
        for name, model in self.estimators_.items():
            own = features if name == LABELS else np.column_stack([features, *_scores_of_references(scores)])
            scores[name] = score_events(with_threads(model, self.n_jobs), own)
        score = _average(self.members_, self._calibrations, scores)
        return np.column_stack([1 - score, score])

    def check_groups(self, groups: ArrayLike) -> None:
        """Raise ValueError if a reference was trained on one of these groups.

        Parameters
        ----------
        groups : array-like of shape (n_events,)
            Groups of events, such as nights.
        """
        present = set(np.unique(as_labels(groups, name="groups")).tolist())
        for name, seen in (self.trained_on or {}).items():
            shared = sorted(present & set(np.asarray(seen).tolist()))
            if shared:
                raise ValueError(
                    f"reference {name!r} was trained on events of group {shared[0]!r}, which are among these; it has "
                    "seen what it would be judged by. Leave the group out, or give a reference that has not seen it"
                )

    def _get_state(self) -> State:
        """Return what a model file holds: models as files inside it, names and columns as text."""
        arrays: dict[str, NDArray[Any]] = {}
        described = []
        for number, (name, reference) in enumerate(self._checked_references().items()):
            column: str | int | None = reference if isinstance(reference, str) else None
            if isinstance(reference, (int, np.integer)):
                column = int(reference)
            if column is None:
                instead = "; or export it to ONNX, and give it as an OnnxClassifier"
                arrays[f"reference_{number}"] = nested_bytes(f"reference {name!r}", reference, instead)
            described.append({"name": name, "column": column, "trained_on": (self.trained_on or {}).get(name)})
        for number, (name, model) in enumerate(self.estimators_.items()):
            arrays[f"learner_{number}"] = nested_bytes(f"what learns {name}", model)
        for number, member in enumerate(self.members_):
            arrays |= self._calibrations[member.name].to_arrays(f"member_{number}")
        arrays["log_likelihoods"] = np.array([member.log_likelihood for member in self.members_])
        arrays["trust"] = np.array([member.trust for member in self.members_])
        text = as_json({"references": described, "members": list(self.trust_), "learners": list(self.estimators_)})
        return {"hybrid": json.dumps(text), "has_estimator": self.estimator is not None}, arrays

    def _set_state(self, attributes: dict[str, Any], arrays: StoredArrays) -> None:
        text = json.loads(attributes["hybrid"])
        names = [str(own["name"]) for own in text["references"]]
        found = []
        for number, own in enumerate(text["references"]):
            column = own["column"]
            require(column is None or type(column) in (str, int), "a reference is neither a model nor a column")
            found.append(from_bytes(arrays.take(f"reference_{number}", np.uint8, None)) if column is None else column)
        self.references = dict(zip(names, found, strict=True)) or None
        seen = {own["name"]: own["trained_on"] for own in text["references"] if own["trained_on"] is not None}
        self.trained_on = seen or None
        learners = [LABELS_AND_REFERENCES, LABELS] if names else [LABELS]
        require(text["learners"] == learners, "its learners are not those of its references")
        require(text["members"] == [*names, *learners], "its members are not its references and learners")
        self.estimators_ = {
            name: from_bytes(arrays.take(f"learner_{number}", np.uint8, None)) for number, name in enumerate(learners)
        }
        members = text["members"]
        self._calibrations = {
            name: SignalCalibration.from_arrays(arrays, self.curve_.alpha, f"member_{number}")
            for number, name in enumerate(members)
        }
        likelihoods = arrays.take("log_likelihoods", np.float64, len(members))
        trust = arrays.take("trust", np.float64, len(members))
        require(bool((trust >= 0).all()) and abs(trust.sum() - 1) < 1e-9, "the trust in its members does not add up")
        self.members_ = tuple(map(HybridMember, members, likelihoods.tolist(), trust.tolist()))
        if attributes["has_estimator"]:
            self.estimator = clone(self.estimators_[LABELS])

    def _checked_references(self) -> dict[str, Any]:
        """Return the references; each is a column or a fitted classifier."""
        references = {} if self.references is None else self.references
        if not isinstance(references, Mapping):
            raise TypeError(
                "references must be a mapping of names to fitted classifiers or columns, got "
                f"{type(references).__name__}; give such as {{'simulation': forest}}"
            )
        for name, reference in references.items():
            if name in (LABELS, LABELS_AND_REFERENCES) or not isinstance(name, str):
                raise ValueError(f"references must have texts as names, and not {LABELS!r}; got {name!r}")
            if not isinstance(reference, (str, int, np.integer)):
                check_classifier(reference, f"reference {name!r}")
                check_is_fitted(reference)
        unknown = sorted(set(self.trained_on or {}) - set(references))
        if unknown:
            raise ValueError(f"trained_on names {unknown[0]!r}, which is none of the references")
        return dict(references)

    def _find_columns(self, names: Any, n_columns: int) -> tuple[dict[str, int], list[int]]:
        """Return the column of each reference that is one, and the columns of features."""
        columns = {
            name: _column_number(name, own, names, n_columns)
            for name, own in (self.references or {}).items()
            if isinstance(own, (str, int, np.integer))
        }
        kept = [number for number in range(n_columns) if number not in columns.values()]
        if not kept:
            raise ValueError("X has no features besides the columns of references; give features to learn from")
        return columns, kept

    def _split(self, X: Any, references: dict[str, Any]) -> tuple[FloatArray, dict[str, FloatArray]]:
        """Return the features for the learner, and the scores of references."""
        columns, kept = self._find_columns(getattr(X, "columns", None), X.shape[1])
        features = X if len(kept) == X.shape[1] else _safe_indexing(X, kept, axis=1)
        scores = {}
        for name, reference in references.items():
            if name in columns:
                found = np.asarray(_safe_indexing(X, columns[name], axis=1), dtype=np.float64).reshape(-1)
            else:
                known = _features_of(name, reference, X, features)
                found = score_events(with_threads(reference, self.n_jobs), known)
            n_bad = np.count_nonzero(~np.isfinite(found))
            if n_bad:
                raise ValueError(
                    f"reference {name!r} has no finite score for {n_bad} of {len(found)} events; leave these out, or "
                    "give them a score"
                )
            scores[name] = found
        return check_array(features, dtype=np.float64, ensure_all_finite=self._finite, input_name="X"), scores


def _scores_of_references(scores: dict[str, FloatArray]) -> list[FloatArray]:
    """Return the scores of references, in their order, without those of learners."""
    return [own for name, own in scores.items() if name not in (LABELS, LABELS_AND_REFERENCES)]


def _average(
    members: tuple[HybridMember, ...], calibrations: Mapping[str, SignalCalibration], scores: Mapping[str, FloatArray]
) -> FloatArray:
    """Return the mean of the members' probabilities of On, by their trust."""
    total = np.zeros(len(next(iter(scores.values()))))
    for member in members:
        total += member.trust * calibrations[member.name].on_probability_at(scores[member.name])
    return total


def _log_likelihood(on: BoolArray, on_probability: FloatArray, weights: FloatArray | None) -> float:
    terms = np.log(np.where(on, on_probability, 1 - on_probability))
    return float(terms.sum() if weights is None else terms @ weights)


def _column_number(name: str, column: Any, names: Any, n_columns: int) -> int:
    """Return the number of the column of X that holds the scores of a reference."""
    if isinstance(column, str):
        if names is None:
            raise ValueError(f"reference {name!r} is the column {column!r}, but X has no names; give a DataFrame")
        if column not in names:
            raise ValueError(f"reference {name!r} is the column {column!r}, which X does not have")
        return list(names).index(column)
    if not 0 <= column < n_columns:
        raise ValueError(f"reference {name!r} is column {column} of X, which has {n_columns}")
    return int(column)


def _features_of(name: str, reference: Any, X: Any, features: Any) -> Any:
    """Return the features that a reference was trained on."""
    wanted = getattr(reference, "feature_names_in_", None)
    if wanted is not None and hasattr(X, "columns"):
        missing = [feature for feature in wanted if feature not in X.columns]
        if missing:
            raise ValueError(f"reference {name!r} needs features that X does not have: {', '.join(map(str, missing))}")
        return X[list(wanted)]
    n_wanted = getattr(reference, "n_features_in_", None)
    n_given = features.shape[1]
    if n_wanted is not None and n_wanted != n_given:
        raise ValueError(
            f"reference {name!r} needs {n_wanted} features, but X has {n_given} without the columns of references; "
            "give a DataFrame with the names that it was trained on"
        )
    # a reference that was trained without names would wonder about them
    return np.asarray(features) if wanted is None else features
