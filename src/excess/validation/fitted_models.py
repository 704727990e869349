"""Detection by a fitted model: the significance of events that are new to it."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from excess._core.checks import as_choice
from excess.validation.detection import Detection
from excess.validation.fold_result import FoldResults, make_detection, predict_new
from excess.validation.onoff_events import check_new_events
from excess.validation.outcome import STATISTICS
from excess.validation.validated_models import check_models, check_references
from excess.validation.verdict import as_required_significance

__all__ = ["detect"]


def detect(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    alpha: ArrayLike,
    groups: ArrayLike | None = None,
    observations: ArrayLike | None = None,
    nearby: tuple[Any, ArrayLike | None] | None = None,
    statistic: str = "likelihood",
    required_significance: float = 5.0,
) -> Detection:
    """Judge new events by a model that is fitted already, and give the significance of a source.

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
    alpha : float or array-like of shape (n_events,)
        Exposure ratio On/Off of the new events, of all or of each.
    groups : array-like of shape (n_events,), default=None
        Groups to count by, such as nights; one is enough.
    observations : array-like of shape (n_events,), default=None
        The observation of each event, as for `cross_val_detect`.
    nearby : tuple of array-like of shape (n_nearby, n_features) and of shape (n_nearby,), default=None
        Further new events that are scored but not counted, as for `cross_val_detect`.
    statistic : {"likelihood", "cut"}, default="likelihood"
        The statistic that counts, as for `cross_val_detect`. ``"likelihood"`` needs a model with ``signal_ratio``.
    required_significance : float, default=5.0
        Significance from which the source counts as detected.

    Returns
    -------
    Detection
        Of one fold, with ``strategy="applied"``.

    See Also
    --------
    cross_val_detect : Trains and predicts on the same observation, in turns.

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
    check_models(model)
    as_choice("statistic", statistic, STATISTICS)
    required = as_required_significance(required_significance)
    events = check_new_events(X, y, alpha, groups, nearby, observations, model.classes_)
    check_references({"": model}, events.groups)
    run = FoldResults.of([predict_new(model, events)], events.on, events.alpha)
    return make_detection(events, [run], 1, "applied", statistic, required)
