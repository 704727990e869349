"""Which classifiers keep their threshold in a cross-validation, and which get a tuned one."""

import logging

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from excess import (
    OnOffTreeClassifier,
    SignificanceThresholdClassifier,
    cross_val_detect,
    li_ma_significance,
    null_test,
    significance_scorer,
)
from excess.detection._cross_validation import with_tuned_threshold

TREE = OnOffTreeClassifier(max_depth=2)


class OwnCut(ClassifierMixin, BaseEstimator):
    """A class of a user: it scores by the first feature and selects above a cut of its own."""

    has_own_threshold = True

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        score = 1 / (1 + np.exp(-X[:, 0]))
        return np.column_stack([1 - score, score])

    def predict(self, X):
        return self.classes_[(X[:, 0] > 1.5).astype(int)]


class WithoutCut(OwnCut):
    has_own_threshold = False


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (TREE, True),
        (SignificanceThresholdClassifier(LogisticRegression()), True),
        (FixedThresholdClassifier(LogisticRegression()), True),
        (TunedThresholdClassifierCV(LogisticRegression()), True),
        (make_pipeline(StandardScaler(), TREE), True),
        (GridSearchCV(TREE, {"max_depth": [1, 2]}), True),
        (make_pipeline(StandardScaler(), GridSearchCV(TREE, {"max_depth": [1, 2]})), True),
        (RFE(TREE), True),
        (FrozenEstimator(TREE), True),
        (OwnCut(), True),
        (LogisticRegression(), False),
        (LinearSVC(), False),
        (make_pipeline(StandardScaler(), LogisticRegression()), False),
        (GridSearchCV(LogisticRegression(), {"C": [1, 2]}), False),
        (FrozenEstimator(LogisticRegression()), False),
        (WithoutCut(), False),
    ],
    ids=lambda value: str(value).replace("\n", "")[:50],
)
def test_who_has_a_threshold(estimator, expected):
    assert (with_tuned_threshold(estimator) is estimator) == expected


@pytest.mark.parametrize("model", [LogisticRegression(), make_pipeline(StandardScaler(), LinearSVC(random_state=0))])
def test_a_plain_classifier_is_tuned_as_if_it_were_wrapped(model, noisy_data, caplog):
    X, y, groups = noisy_data.X[:2000], noisy_data.y[:2000], noisy_data.groups[:2000]
    shared = {"alpha": noisy_data.alpha, "groups": groups, "random_state": 0}
    with caplog.at_level(logging.INFO, logger="excess.detection"):
        found = cross_val_detect({"plain": model, "tree": TREE}, X, y, **shared)
    plain, wrapped = found["plain"], cross_val_detect(SignificanceThresholdClassifier(model), X, y, **shared)
    np.testing.assert_array_equal(plain.selected, wrapped.selected)
    np.testing.assert_array_equal(plain.ratio, wrapped.ratio)
    np.testing.assert_array_equal(plain.thresholds, wrapped.thresholds)
    assert all(fold.tuned is not None for fold in plain.folds)
    [said] = plain.remarks
    assert said.startswith(f"{type(model).__name__} has no own threshold: SignificanceThresholdClassifier tunes")
    assert said in str(plain)
    assert [record.message for record in caplog.records] == [said]
    assert wrapped.remarks == found["tree"].remarks == ()


def test_a_threshold_of_one_half_selects_hardly_anything_where_alpha_is_small():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6000, 2))
    signal = np.arange(6000) < 150
    X[signal, 0] += 2
    y = (signal | (rng.random(6000) < 1 / 6)).astype(int)
    at_half = FixedThresholdClassifier(LogisticRegression())
    found = cross_val_detect({"tuned": LogisticRegression(), "half": at_half}, X, y, alpha=1 / 5, random_state=0)
    assert found["half"].counts.n_on < 20
    assert found["tuned"].counts.significance > 2 * max(found["half"].counts.significance, 1)
    np.testing.assert_array_equal(found["half"].selected, found["half"].score > 0.5)


def test_thresholds_of_others_are_kept(noisy_data):
    X, y, alpha = noisy_data.X[:1500], noisy_data.y[:1500], noisy_data.alpha
    scorer = significance_scorer(alpha)
    models = {"own cut": OwnCut(), "tuned": TunedThresholdClassifierCV(LogisticRegression(), scoring=scorer, cv=3)}
    found = cross_val_detect(models, X, y, alpha=alpha, random_state=0)
    np.testing.assert_array_equal(found["own cut"].selected, X[:, 0] > 1.5)
    tuned = found["tuned"]
    assert np.isfinite(tuned.thresholds).all()
    np.testing.assert_array_equal(tuned.selected, tuned.score >= tuned.thresholds[tuned.fold])
    assert tuned.remarks == ()


def test_a_frozen_classifier_is_tuned_but_not_trained(noisy_data):
    X, y, alpha = noisy_data.X, noisy_data.y, noisy_data.alpha
    trained = LogisticRegression().fit(X[:1000], y[:1000])
    found = cross_val_detect(FrozenEstimator(trained), X[1000:2500], y[1000:2500], alpha=alpha, random_state=0)
    np.testing.assert_array_equal(found.score, trained.predict_proba(X[1000:2500])[:, 1])
    for number, fold in enumerate(found.folds):
        tuned, held_out = found.score[found.fold != number], found.score[found.fold == number]
        on = found.on[found.fold != number]
        best = li_ma_significance((tuned[on] > fold.threshold).sum(), (tuned[~on] > fold.threshold).sum(), alpha)
        assert fold.tuned.significance == pytest.approx(best)
        np.testing.assert_array_equal(found.selected[found.fold == number], held_out > fold.threshold)


def test_null_tests_tune_as_well_and_say_so_once(caplog):
    rng = np.random.default_rng(0)
    X, region = rng.normal(size=(1500, 2)), rng.integers(0, 4, 1500)
    shared = {"n_regions": 4, "random_state": 0, "statistic": "cut"}
    with caplog.at_level(logging.INFO, logger="excess.detection"):
        found = null_test(LogisticRegression(), X, region, **shared)
    assert len(caplog.records) == 1
    wrapped = null_test(SignificanceThresholdClassifier(LogisticRegression()), X, region, **shared)
    np.testing.assert_array_equal(found.significances, wrapped.significances)
