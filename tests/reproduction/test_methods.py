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
from excess.reproduction import calibration, crab, imbalanced, published
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
        assert row["significance"] == pytest.approx(tested.counts[region].significance)
        assert row["likelihood"] == pytest.approx(tested.outcomes[region].likelihood.significance)


def test_rows_of_the_crab_have_the_likelihood_beside_the_cut():
    """The likelihood is that of the default statistic, and does not depend on the rule for the threshold."""
    data = crab_data(SMALL)
    rows = crab.run(SMALL, {"model": "noisy-forest", "size": 4, "trial": 0})
    assert [row["method"] for row in rows] == ["noisy-forest", "menon-forest", "mithal-forest"]
    model = make_crab_model("noisy-forest", 4, SMALL, SMALL.trial_seed(0))
    found = cross_val_detect(model, data.X, data.on, alpha=data.alpha, groups=data.groups)
    assert [row["likelihood"] for row in rows] == pytest.approx([found.significance] * 3)
    assert rows[0]["significance"] == pytest.approx(found.counts.significance)
    assert rows[0]["significance"] != rows[0]["likelihood"]


def test_a_calibration_trial_has_both_statistics_of_the_same_models():
    parameters = {"rule": "largest", "n_signal": 40, "trial": 3, "permuted": True}
    rows = {row["statistic"]: row for row in calibration.run(SMALL, parameters)}
    X, on, groups = calibration.draw_data_set(np.random.default_rng([3, 40, 0]), 300, 40)
    forest = OnOffForestClassifier(20, max_depth=4, min_samples_leaf=10, random_state=3, **calibration.RULES["largest"])
    shared = {"alpha": 1 / 5, "groups": groups, "random_state": 3}
    pooled = cross_val_detect(forest, X, on, n_permutations=3, **shared)
    forward = cross_val_detect(forest, X, on, strategy="forward", **shared)
    for statistic, values in rows.items():
        assert values["pooled"] == pytest.approx(pooled.outcome.significances[statistic])
        assert values["forward"] == pytest.approx(forward.outcome.significances[statistic])
        assert values["p_value"] == pytest.approx(pooled.permutation_p_values[statistic])
        assert values["p_value"] - 1 / 4 <= values["p_value_spread"] <= values["p_value"]
    assert rows["likelihood"]["corrected"] == pytest.approx(forward.likelihood.corrected_significance)
    assert rows["likelihood"]["corrected"] != rows["likelihood"]["forward"]
    assert rows["cut"]["corrected"] is None
    assert on[300:].all()
    assert X[300:, :2].mean() == pytest.approx(1.5, abs=0.4)


def test_calibration_trials_without_permutations_and_with_the_default_rule():
    (row,) = calibration.run(SMALL, {"rule": "default", "n_signal": 0, "trial": 1, "permuted": False})
    assert (row["statistic"], row["p_value"], row["p_value_spread"]) == ("cut", None, None)


def test_a_short_calibration_is_the_beginning_of_a_long_one():
    short, long = (calibration.CALIBRATION.plan(Settings(), n) for n in (60, calibration.CALIBRATION.n_trials))
    parameters = {trial.name: trial.parameters for trial in long}
    assert all(parameters[trial.name] == trial.parameters for trial in short)
    assert len(parameters) == len(long)
    null = [own for own in parameters.values() if own["rule"] == "largest" and own["n_signal"] == 0]
    assert len(null) >= 1000
    assert sum(own["permuted"] for own in null) >= 300
    assert not any(own["permuted"] for own in parameters.values() if own["rule"] == "default")
    assert {own["n_signal"] for own in parameters.values()} == {0, *calibration.STRENGTHS}


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
