"""Events by models that were fitted before: supervised references, frozen classifiers, and new events."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RidgeClassifier

from excess import (
    OnOffForestClassifier,
    OnOffTreeClassifier,
    SignificanceThresholdClassifier,
    cross_val_detect,
    holdout_detect,
    supervised_reference,
)


def test_supervised_reference(noisy_data):
    X, clean = noisy_data.X, noisy_data.clean
    small = RandomForestClassifier(20, max_depth=6, random_state=0)
    reference = supervised_reference(X[:1000], clean[:1000], estimator=small)
    inside = reference.estimator.estimator
    models = {"reference": reference, "tree": OnOffTreeClassifier(max_depth=4, alpha=1.0)}
    found = cross_val_detect(
        models, X[1000:], noisy_data.y[1000:], alpha=noisy_data.alpha, groups=noisy_data.groups[1000:]
    )
    np.testing.assert_array_equal(found["reference"].score, inside.predict_proba(X[1000:])[:, 1])
    assert found["reference"].folds[0].tuned.alpha == noisy_data.alpha
    assert found["reference"].feasible


def test_supervised_reference_is_the_forest_of_the_field():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    forest = supervised_reference(X, y, random_state=0).estimator.estimator
    assert (forest.n_estimators, forest.max_depth, forest.criterion) == (200, 15, "entropy")
    assert len(forest.estimators_) == 200


def test_reference_with_other_labels_is_refused(noisy_data):
    reference = supervised_reference(noisy_data.X, noisy_data.clean, estimator=RidgeClassifier())
    with pytest.raises(ValueError, match=r"^y "):
        cross_val_detect(reference, noisy_data.X, np.where(noisy_data.y, "On", "Off"), alpha=1.0, random_state=0)


def test_frozen_classifiers_keep_their_alpha(noisy_data):
    X, y, alpha = noisy_data.X, noisy_data.y, noisy_data.alpha
    forest = OnOffForestClassifier(10, 0.1, min_samples_leaf=20, random_state=0).fit(X[:1000], y[:1000])
    tuned = SignificanceThresholdClassifier(FrozenEstimator(forest), cv="prefit", alpha=1.0)
    models = {"tuned": tuned, "as it is": FrozenEstimator(forest)}
    found = cross_val_detect(models, X[1000:], y[1000:], alpha=alpha, random_state=0)
    assert found["tuned"].folds[0].tuned.alpha == alpha
    assert forest.alpha == 0.1
    np.testing.assert_array_equal(found["as it is"].selected, forest.predict(X[1000:]) == 1)


def test_new_events_by_a_fitted_model(noisy_data):
    X, y, alpha = noisy_data.X, noisy_data.y, noisy_data.alpha
    tree = OnOffTreeClassifier(alpha, max_depth=4).fit(X[:2000], y[:2000])
    found = holdout_detect(tree, X[2000:], y[2000:], alpha=alpha, groups=noisy_data.groups[2000:])
    np.testing.assert_array_equal(found.selected, tree.predict(X[2000:]) == 1)
    assert found.strategy == "applied"
    assert "learned" not in found.verdict
    quiet = holdout_detect(tree, X[2000:], np.zeros(1000, dtype=int), alpha=alpha)
    assert quiet.counts.n_on == 0
    with pytest.raises(ValueError, match=r"^y "):
        holdout_detect(tree, X[2000:], np.where(y[2000:], "On", "Off"), alpha=alpha)
