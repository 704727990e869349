"""Methods and trials of the tables, against the package's own validation."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

from excess import (
    THRESHOLD_METHODS,
    OnOffForestClassifier,
    OnOffTreeClassifier,
    cross_val_detect,
    null_test,
    supervised_reference,
)
from excess.analysis.models import MODELS, make_model
from excess.reproduction import crab, imbalanced, published
from excess.reproduction.crab import make_crab_model
from excess.reproduction.crab_data import crab_data
from excess.reproduction.imbalanced import IMBALANCED
from excess.reproduction.imbalanced import run as run_imbalanced
from excess.reproduction.methods import METHODS, threshold_rules
from excess.reproduction.settings import Settings
from excess.reproduction.targets import TARGETS
from excess.validation import cross_val_thresholds

SMALL = Settings(small=True)


def test_full_plans_have_every_published_cell():
    trials = crab.CRAB.plan(Settings(), 10)
    assert len({trial.name for trial in trials}) == len(trials) == 400
    cells = set()
    for trial in trials:
        model, size = trial.parameters["model"], trial.parameters["size"]
        n_models = "1" if model in ("k-means", "li-ma-tree", "noisy-tree", "supervised-tree") else "100"
        cells |= {(crab.label_of(key, size), n_models) for key in crab.METHODS_OF[model]}
    assert set(published.CRAB) <= cells
    assert len(IMBALANCED.plan(Settings(), 20)) == 400
    assert {trial.parameters["region"] for trial in crab.CRAB_NULL.plan(SMALL, 10)} == {1, 2, 3, 4, 5}


def test_agreement_needs_a_part_of_the_crab_trials_only():
    wanted = [trial for trial in crab.CRAB.plan(Settings(), 1) if TARGETS["agreement"].wants(trial)]
    assert {(trial.parameters["model"], trial.parameters["size"]) for trial in wanted} == {
        *((model, depth) for model in ("li-ma-tree", "li-ma-forest") for depth in (4, 6)),
        *((model, k) for model in ("k-means", "k-means-ensemble") for k in (32, 128)),
        ("default-forest", 0),
        ("default-k-means-ensemble", 0),
    }


@pytest.mark.parametrize("name", ["li-ma-forest", "noisy-forest", "li-ma-tree", "default-forest"])
def test_rules_on_shared_scores_are_the_thresholds_of_models(name):
    """A rule on the scores of a model against what the model chooses by itself in cross_val_detect."""
    data = crab_data(SMALL)
    model = make_crab_model(name, 4 if name != "default-forest" else 0, SMALL, 3)
    by_rule = cross_val_thresholds(
        model, data.X, data.on, threshold_rules([name], 3), alpha=data.alpha, groups=data.groups
    )[name]
    found = cross_val_detect(model, data.X, data.on.astype(int), alpha=data.alpha, groups=data.groups)
    np.testing.assert_array_equal(by_rule.selected, found.selected)
    np.testing.assert_allclose(by_rule.score, found.score)
    np.testing.assert_allclose(by_rule.thresholds, found.thresholds)


def test_a_fake_on_region_is_null_test():
    data = crab_data(SMALL)
    tree = OnOffTreeClassifier(criterion="li_ma", max_depth=4, max_bins=None, random_state=SMALL.trial_seed(0))
    tested = null_test(tree, data.X, data.regions.region, n_regions=data.regions.n_regions, groups=data.groups)
    for region in (1, 4):
        row = crab.null_run(SMALL, {"model": "li-ma-tree", "size": 4, "trial": 0, "region": region})[0]
        assert row["significance"] == pytest.approx(tested.detections[region].significance)


class ScoreColumn(ClassifierMixin, BaseEstimator):
    """A trained model: the feature is the score."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        return np.column_stack([1 - X[:, 0], X[:, 0]])

    def predict(self, X):
        return self.classes_[(X[:, 0] > 0.5).astype(int)]


def test_scores_of_a_trained_model_are_tuned_on_other_nights():
    on = np.array([1, 0, 1, 0, 1, 0, 0, 1], dtype=bool)
    score = np.array([0.9, 0.1, 0.8, 0.2, 0.1, 0.9, 0.8, 0.2])[:, None]  # the second half has it the wrong way round
    reference = supervised_reference(score, on, estimator=ScoreColumn())
    half = np.repeat([0, 1], 4)
    found = cross_val_thresholds(reference, score, on, {"own": None}, alpha=1.0, groups=half)["own"]
    assert found.selected[4:].tolist() == [False, True, True, False]
    assert found.thresholds[1] == pytest.approx(0.5)  # of the model that was tuned on the first half


def test_methods_name_known_models_and_rules():
    assert {method.model for method in METHODS.values()} <= set(MODELS)
    assert {method.rule for method in METHODS.values()} <= {*THRESHOLD_METHODS, "near-best", None}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_made_by_its_name(name):
    model = make_model(name, random_state=3, n_jobs=2)
    assert model.random_state == 3
    assert getattr(model, "n_jobs", 2) == 2
    assert MODELS[name].description
    if name.startswith("paper-") and "tree" not in name:
        assert (model.n_estimators, model.threshold_tolerance, model.n_threshold_bootstrap) == (100, 0.0, 0)


def test_options_of_models_and_unknown_names():
    assert make_model("paper-li-ma-tree", max_depth=7).max_depth == 7
    with pytest.raises(ValueError, match="got 'forrest'; did you mean 'forest'"):
        make_model("forrest")
    with pytest.raises(ValueError, match=r"model must be one of forest, .*, got 'model\.excess'$"):
        make_model("model.excess")


@pytest.mark.slow
def test_all_forests_of_a_trial_see_the_same_noise_and_folds(monkeypatch):
    seen = {}

    def spy(model, X, on, rules, *, cv, **options):
        seen.setdefault(current, []).append((on.tolist(), [(a.tolist(), b.tolist()) for a, b in cv]))
        return cross_val_thresholds(model, X, on, rules, cv=cv, **options)

    monkeypatch.setattr(imbalanced, "cross_val_thresholds", spy)
    for number in (0, 1):
        for part in ("paper", "ours"):
            current = (part, number)
            run_imbalanced(SMALL, {"set": "abalone", "p_plus": 0.1, "trial": number, "part": part})
    for number in (0, 1):
        first, *others = seen["paper", number] + seen["ours", number]
        assert len(others) == 2  # LiMa and Noisy Forest, and ours
        assert all(other == first for other in others)
    assert seen["paper", 0][0][0] != seen["paper", 1][0][0]
    assert seen["paper", 0][0][1] != seen["paper", 1][0][1]


@pytest.mark.slow
def test_a_trial_of_the_sets_has_the_methods_of_its_part():
    rows = {
        part: run_imbalanced(SMALL, {"set": "abalone", "p_plus": 0.1, "trial": 0, "part": part})
        for part in ("paper", "ours")
    }
    assert [row["method"] for row in rows["paper"]] == [
        "li-ma-forest",
        "noisy-forest",
        "menon-forest",
        "mithal-forest",
        "noisy-forest-near-best",
    ]
    assert rows["ours"][0]["method"] == "default-forest"
    again = run_imbalanced(SMALL, {"set": "abalone", "p_plus": 0.1, "trial": 0, "part": "paper"})
    assert again == rows["paper"]
    other = run_imbalanced(SMALL, {"set": "abalone", "p_plus": 0.1, "trial": 1, "part": "paper"})
    assert other != rows["paper"]
    row = rows["paper"][0]
    harmonic = 2 * row["precision"] * row["recall"] / (row["precision"] + row["recall"])
    assert row["f1"] == pytest.approx(harmonic)


def test_a_plan_simulates_nothing(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("events were made")

    for name in ("labelled_events", "crab_data"):
        monkeypatch.setattr(crab, name, refuse)
    assert any(trial.parameters["model"] == "supervised-forest" for trial in crab.CRAB.plan(Settings(), 1))
    assert len(crab.CRAB_NULL.plan(Settings(), 10)) == 80


def test_our_threshold_is_the_default_of_the_forest(monkeypatch):
    called = {}
    monkeypatch.setattr(
        "excess.reproduction.methods.significance_threshold", lambda *_, **options: called.update(options) or 0.5
    )
    threshold_rules(["noisy-forest-near-best"], 7)["noisy-forest-near-best"](None, None, 1.0)
    defaults = OnOffForestClassifier()
    assert called == {
        "tolerance": defaults.threshold_tolerance,
        "n_bootstrap": defaults.n_threshold_bootstrap,
        "random_state": 7,
    }
