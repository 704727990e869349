"""Scores of predictions, against the clean labels behind the noisy ones."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, precision_score, recall_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from excess import (
    OnOffCounts,
    corrected_f1_score,
    corrected_g_score,
    corrected_precision_score,
    corrected_recall_score,
    count_selected,
    inject_label_noise,
    significance_score,
    significance_scorer,
)


def test_counts_and_significance():
    y, y_pred = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    assert count_selected(y, y_pred, 0.2) == OnOffCounts(2, 1, 0.2)
    assert significance_score(y, y_pred, 0.2) == OnOffCounts(2, 1, 0.2).significance
    assert significance_score(y, np.zeros(5, dtype=int), 0.2) == 0.0
    assert significance_score(y, [1, 1, 0, 0, 0], 1.0) == OnOffCounts(0, 2, 1.0).significance < 0
    names = np.array(["hadron", "signal"])
    assert count_selected(names[y], names[y_pred], 0.2) == OnOffCounts(2, 1, 0.2)


def test_corrected_metrics_estimate_the_clean_ones():
    rng = np.random.default_rng(0)
    n, p_plus, p_minus = 300_000, 0.1, 0.4
    clean = (rng.random(n) < 0.2).astype(int)
    y_pred = (rng.normal(2.0 * clean) > 1).astype(int)
    y = inject_label_noise(clean, p_plus, p_minus, random_state=1)
    alpha = p_minus / (1 - p_minus)
    corrected = [
        corrected_precision_score(y, y_pred, alpha, p_plus=p_plus),
        corrected_recall_score(y, y_pred, alpha),
        corrected_f1_score(y, y_pred, alpha, p_plus=p_plus),
        corrected_g_score(y, y_pred, alpha, p_plus=p_plus),
    ]
    np.testing.assert_allclose(corrected, _plain_metrics(clean, y_pred), atol=0.015)
    assert (np.abs(np.subtract(corrected, _plain_metrics(y, y_pred))) > 0.05).all()


def _plain_metrics(y, y_pred):
    precision, recall = precision_score(y, y_pred), recall_score(y, y_pred)
    return precision, recall, f1_score(y, y_pred), np.sqrt(precision * recall)


def test_edges_stay_in_range():
    y = np.array([0, 0, 0, 1])
    for y_pred in ([0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1], [1, 1, 1, 1]):
        for score in (corrected_precision_score, corrected_recall_score, corrected_f1_score, corrected_g_score):
            assert 0.0 <= score(y, y_pred, 1.0) <= 1.0


def test_f1_and_g_agree_with_precision_and_recall():
    rng = np.random.default_rng(5)
    for _ in range(200):
        y, y_pred = rng.integers(0, 2, (2, 12))
        if len(set(y) | set(y_pred)) == 1:
            continue
        precision, recall = corrected_precision_score(y, y_pred, 1.0), corrected_recall_score(y, y_pred, 1.0)
        f1, g = corrected_f1_score(y, y_pred, 1.0), corrected_g_score(y, y_pred, 1.0)
        assert g == pytest.approx(np.sqrt(precision * recall))
        if precision == 0 or recall == 0:
            assert f1 == 0
        elif precision < 1 and recall < 1:  # not clipped
            assert f1 == pytest.approx(2 * precision * recall / (precision + recall))


def test_a_fold_without_on_events_and_selection_counts_nothing():
    assert significance_score([0, 0], [0, 0], 1.0) == 0.0
    assert significance_score([-1, -1], [-1, -1], 1.0) == 0.0
    assert count_selected([1, 1], [1, 1], 1.0) == OnOffCounts(2, 0, 1.0)


def test_scorer_in_search_and_cross_validation(noisy_data):
    X, y = noisy_data.X, noisy_data.y
    scorer = significance_scorer(noisy_data.alpha)
    scores = cross_val_score(LogisticRegression(), X, y, scoring=scorer, cv=3)
    model = LogisticRegression().fit(X, y)
    assert scorer(model, X, y) == significance_score(y, model.predict(X), noisy_data.alpha)
    assert scores.shape == (3,)
    search = GridSearchCV(LogisticRegression(), {"C": [1e-6, 1.0]}, scoring=scorer, cv=3).fit(X, y)
    assert search.best_params_ == {"C": 1.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0, 1, 1], 1.0), "y and y_pred must have the same length"),
        ((["0", "1"], [0, 1], 1.0), "y and y_pred must have the same type of labels"),
        (([0, 1], [0, np.nan], 1.0), "y_pred contains NaN"),
        (([0, 1], [0, 2], 1.0), "y and y_pred together must contain two classes"),
        (([2, 2], [2, 2], 1.0), "y and y_pred together contains one class only"),
        (([0, 1], [0, 1], 0.0), "alpha must be positive"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        significance_score(*arguments)


def test_bad_p_plus_and_alpha():
    with pytest.raises(ValueError, match=r"p_plus \+ p_minus must be below 1"):
        corrected_f1_score([0, 1], [0, 1], 1.0, p_plus=0.7)
    with pytest.raises(ValueError, match="alpha must be positive"):
        significance_scorer(0.0)
