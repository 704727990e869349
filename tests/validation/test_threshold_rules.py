"""Rules for the threshold on the scores of one model: against a loop that is written out here."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold

from excess import (
    OnOffCounts,
    OnOffForestClassifier,
    OnOffTreeClassifier,
    cross_val_detect,
    menon_threshold,
    mithal_threshold,
    significance_threshold,
)
from excess.validation import cross_val_thresholds

RULES = {"significance": significance_threshold, "menon": menon_threshold, "mithal": mithal_threshold}
MODELS = {
    "forest": OnOffForestClassifier(15, max_depth=4, min_samples_leaf=10, random_state=0),
    "tree": OnOffTreeClassifier(max_depth=4, min_samples_leaf=10, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
def test_rules_see_the_training_part_alone(name, noisy_data):
    X, y, groups, alpha = noisy_data.X, noisy_data.y, noisy_data.groups, noisy_data.alpha
    found = cross_val_thresholds(
        MODELS[name], X, y, {**{rule: rule for rule in RULES}, "own": None}, alpha=alpha, groups=groups
    )
    assert list(found) == [*RULES, "own"]
    for group in range(6):
        train, held_out = groups != group, groups == group
        model = MODELS[name].__class__(**{**MODELS[name].get_params(), "alpha": alpha}).fit(X[train], y[train])
        scores = model.oob_decision_function_[:, 1] if name == "forest" else model.predict_proba(X[train])[:, 1]
        known = ~np.isnan(scores)
        held_out_scores = model.predict_proba(X[held_out])[:, 1]
        for rule, threshold_of in RULES.items():
            threshold = threshold_of(y[train][known], scores[known], alpha)
            assert found[rule].thresholds[group] == threshold
            np.testing.assert_array_equal(found[rule].score[held_out], held_out_scores)
            np.testing.assert_array_equal(found[rule].selected[held_out], held_out_scores > threshold)
    for detection in found.values():
        n_on = int((detection.selected & (y == 1)).sum())
        assert detection.counts == OnOffCounts(n_on, int(detection.selected.sum()) - n_on, alpha)
        assert detection.significance == detection.significances[0]
        assert sum(fold.held_out.n_on for fold in detection.folds) == n_on
    assert len({detection.significance for detection in found.values()}) > 1
    detected = cross_val_detect(MODELS[name], X, y, alpha=alpha, groups=groups)
    np.testing.assert_array_equal(found["own"].selected, detected.selected)
    assert found["own"].folds == detected.folds


def test_rules_may_be_functions_and_labels_strings(noisy_data):
    labels = np.where(noisy_data.y == 1, "On", "Off")
    shared = {"alpha": noisy_data.alpha, "cv": KFold(3)}
    found = cross_val_thresholds(MODELS["tree"], noisy_data.X, labels, {"half": lambda y, score, alpha: 0.5}, **shared)
    np.testing.assert_array_equal(found["half"].selected, found["half"].score > 0.5)
    assert found["half"].on.sum() == noisy_data.y.sum()


def test_out_of_bag_scores_of_a_frozen_forest_are_of_other_events(noisy_data):
    X, y, groups = noisy_data.X, noisy_data.y, noisy_data.groups
    forest = clone(MODELS["forest"]).set_params(alpha=noisy_data.alpha).fit(X[groups == 0], y[groups == 0])
    shared = {"alpha": noisy_data.alpha, "groups": groups}
    found = cross_val_thresholds(FrozenEstimator(forest), X, y, {"significance": "significance"}, **shared)
    scores = forest.predict_proba(X)[:, 1]
    expected = significance_threshold(y[groups != 3], scores[groups != 3], noisy_data.alpha)
    assert found["significance"].thresholds[3] == expected


def test_bad_rules(noisy_data):
    for rules, message in (({}, "at least one rule"), ({"a": "best"}, "method must be one of")):
        with pytest.raises(ValueError, match=message):
            cross_val_thresholds(MODELS["tree"], noisy_data.X, noisy_data.y, rules, alpha=1.0)
