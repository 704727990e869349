"""The hybrid of On/Off learning and references: trust, no leaks, tables and columns, model files, errors."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from excess import (
    ModelFileError,
    OnOffForestClassifier,
    OnOffHybridClassifier,
    OnOffKMeansClassifier,
    cross_val_detect,
    holdout_detect,
    load,
    null_test,
)
from excess.estimators import _model_file
from excess.estimators._hybrid import LABELS, LABELS_AND_REFERENCES
from excess.estimators._model_file import save

ALPHA = 0.2
NAMES = ["a", "b", "c", "d"]


def draw_events(seed, n=3000, shift=1.2):
    """Events whose first two features tell signal from background; their truth, noisy labels and nights."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.15
    X = rng.normal(size=(n, 4))
    X[truth, :2] += shift
    on = truth | (rng.random(n) < ALPHA / (1 + ALPHA))
    return X, truth, on.astype(int), np.arange(n) % 5


def forest(**parameters):
    return OnOffForestClassifier(**({"n_estimators": 20, "min_samples_leaf": 40, "random_state": 0} | parameters))


def hybrid(references, **parameters):
    settings = {"estimator": forest(), "alpha": ALPHA, "random_state": 0, "n_threshold_bootstrap": 0}
    return OnOffHybridClassifier(references, **(settings | parameters))


@pytest.fixture(scope="module")
def events():
    return draw_events(0)


@pytest.fixture(scope="module")
def simulated():
    """A classifier that was trained on labelled events of the same kind."""
    X, truth, *_ = draw_events(1, 6000)
    return LogisticRegression().fit(X, truth)


class TestTrust:
    def test_good_references_are_trusted_and_bad_ones_are_not(self, events, simulated):
        X, _, on, _ = events
        noise = LogisticRegression().fit(X, np.random.default_rng(0).integers(0, 2, len(X)))
        model = hybrid({"good": simulated, "noise": noise}).fit(X, on)
        assert list(model.reference_weights_) == ["good", "noise", LABELS_AND_REFERENCES, LABELS]
        assert sum(model.reference_weights_.values()) == pytest.approx(1)
        assert model.reference_weights_["good"] > 0.5
        assert model.reference_weights_["noise"] < 1e-3
        by_likelihood = sorted(model.members_, key=lambda member: member.log_likelihood)
        assert by_likelihood == sorted(model.members_, key=lambda member: member.weight)

    def test_a_reference_that_points_the_wrong_way_is_not_trusted(self, events, simulated):
        """A large score of it means background; a calibration never falls, so it says nothing."""
        X, _, on, _ = events
        model = hybrid({"reversed": 0}).fit(np.column_stack([-simulated.decision_function(X), X]), on)
        assert model.reference_weights_["reversed"] < 1e-3

    def test_the_truth_is_as_good_as_it_can_be(self, events):
        X, truth, on, nights = events
        with_truth = np.column_stack([X, truth])
        found = cross_val_detect(hybrid({"truth": 4}), with_truth, on, alpha=ALPHA, groups=nights)
        alone = cross_val_detect(forest(), X, on, alpha=ALPHA, groups=nights)
        assert found.significance > 1.3 * alone.significance
        n_signal, n_background = truth.sum(), (~truth).sum()
        assert found.likelihood.n_signal == pytest.approx(n_signal, rel=0.1)
        assert found.counts.n_on < n_signal + 0.05 * n_background

    def test_noise_costs_little_and_a_good_reference_helps(self, simulated):
        values = []
        for seed in range(2, 5):
            X, _, on, nights = draw_events(seed)
            noise = np.random.default_rng(seed).normal(size=len(X))
            models = {
                "alone": (forest(), X),
                "noise": (hybrid({"noise": 4}), np.column_stack([X, noise])),
                "good": (hybrid({"good": simulated}), X),
            }
            values.append(
                [
                    cross_val_detect(model, own, on, alpha=ALPHA, groups=nights).significance
                    for model, own in models.values()
                ]
            )
        alone, noise, good = np.mean(values, axis=0)
        assert noise > alone - 0.2
        assert good > alone + 0.3

    def test_scores_are_the_mean_of_members_by_trust(self, events, simulated):
        X, _, on, _ = events
        model = hybrid({"simulation": simulated}).fit(X, on)
        reference = simulated.predict_proba(X)[:, 1]
        scores = {
            "simulation": reference,
            LABELS: model.estimators_[LABELS].predict_proba(X)[:, 1],
            LABELS_AND_REFERENCES: model.estimators_[LABELS_AND_REFERENCES].predict_proba(
                np.column_stack([X, reference])
            )[:, 1],
        }
        expected = sum(
            trust * model._calibrations[name].on_probability_at(scores[name])
            for name, trust in model.reference_weights_.items()
        )
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], expected, rtol=1e-12)
        np.testing.assert_array_equal(model.predict(X) == 1, model.predict_proba(X)[:, 1] > model.threshold_)
        assert (model.likelihood_ratio(X) >= 0).all()

    def test_without_references_only_labels_count(self, events):
        X, _, on, _ = events
        assert hybrid(None).fit(X, on).reference_weights_ == {LABELS: 1.0}


class TestNoLeak:
    def test_without_a_source_references_do_not_make_one(self, simulated):
        values = []
        for seed in range(20, 32):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(1200, 4))
            on = (rng.random(1200) < ALPHA / (1 + ALPHA)).astype(int)
            noise = rng.normal(size=1200)
            found = cross_val_detect(
                hybrid({"simulation": simulated, "noise": 4}), np.column_stack([X, noise]), on, alpha=ALPHA, cv=4
            )
            values.append(found.significance)
        assert abs(np.mean(values)) < 4 * 1.2 / np.sqrt(len(values))
        assert np.max(values) < 4

    def test_references_are_not_fitted_again(self, events, simulated):
        X, _, on, nights = events
        before = simulated.coef_.copy()
        model = hybrid({"simulation": simulated})
        copy = clone(model)
        assert copy.references["simulation"] is simulated
        assert copy.estimator is not model.estimator
        cross_val_detect(model, X, on, alpha=ALPHA, groups=nights, n_jobs=2)
        np.testing.assert_array_equal(simulated.coef_, before)

    def test_alpha_of_references_stays(self, events):
        X, truth, on, nights = events
        reference = forest(alpha=1.0).fit(X, truth)
        cross_val_detect(hybrid({"old": reference}), X, on, alpha=ALPHA, groups=nights)
        assert reference.alpha == 1.0

    @pytest.mark.parametrize("inside_pipeline", [False, True])
    def test_references_that_have_seen_a_group_are_refused(self, events, simulated, inside_pipeline):
        X, _, on, nights = events
        model = hybrid({"old": simulated}, trained_on={"old": [3, 17]})
        whole = make_pipeline(StandardScaler(), model) if inside_pipeline else model
        message = "reference 'old' was trained on events of group 3"
        with pytest.raises(ValueError, match=message):
            cross_val_detect(whole, X, on, alpha=ALPHA, groups=nights)
        with pytest.raises(ValueError, match=message):
            null_test(whole, X, np.arange(len(X)) % 6, n_regions=6, groups=nights)
        with pytest.raises(ValueError, match=message):
            model.fit(X, on, groups=nights)
        fitted = model.fit(X[nights != 3], on[nights != 3], groups=nights[nights != 3])
        with pytest.raises(ValueError, match=message):
            holdout_detect(fitted, X, on, alpha=ALPHA, groups=nights)
        own = nights == 4
        assert holdout_detect(fitted, X[own], on[own], alpha=ALPHA, groups=nights[own]).strategy == "applied"

    def test_with_groups_bags_or_folds_keep_them_apart(self, events, simulated):
        X, _, on, nights = events
        in_bag = hybrid({"simulation": simulated}).fit(X, on, groups=nights)
        folds = hybrid({"simulation": simulated}, cv=5).fit(X, on, groups=nights)
        for model in (in_bag, folds):
            assert model.reference_weights_["simulation"] > 0.3
        with pytest.raises(ValueError, match="do not respect groups"):
            hybrid({"simulation": simulated}, estimator=LogisticRegression()).fit(X, on, groups=nights)


class TestInput:
    def test_tables_and_arrays_give_the_same(self, events, simulated):
        X, _, on, _ = events
        score = simulated.decision_function(X)
        array = hybrid({"score": 0}).fit(np.column_stack([score, X]), on)
        table = pd.DataFrame(X, columns=NAMES)
        table.insert(0, "score", score)
        named = hybrid({"score": "score"}).fit(table, on)
        assert list(named.feature_names_in_) == ["score", *NAMES]
        np.testing.assert_array_equal(named.predict_proba(table), array.predict_proba(np.column_stack([score, X])))

    def test_references_take_their_own_features_from_a_table(self, events):
        X, truth, on, _ = events
        table = pd.DataFrame(X, columns=NAMES)
        reference = LogisticRegression().fit(table[["b", "a"]], truth)
        model = hybrid({"two": reference}).fit(table, on)
        assert model.reference_weights_["two"] > 0.5
        with pytest.raises(ValueError, match="reference 'two' requires features missing in X: b"):
            model.fit(table.drop(columns="b"), on)
        with pytest.raises(ValueError, match="reference 'two' requires 2 features, but X has 4"):
            hybrid({"two": LogisticRegression().fit(X[:, :2], truth)}).fit(X, on)

    def test_a_learner_without_bags_takes_folds(self, events, simulated):
        X, _, on, _ = events
        model = hybrid({"simulation": simulated}, estimator=OnOffKMeansClassifier(16, random_state=0, alpha=1.0), cv=3)
        assert model.fit(X, on).reference_weights_["simulation"] > 0.5
        with pytest.raises(ValueError, match="cv='oob' requires out-of-bag scores"):
            model.set_params(cv="oob").fit(X, on)

    @pytest.mark.parametrize(
        ("parameters", "error", "message"),
        [
            ({"references": [1]}, TypeError, "references must be a mapping"),
            ({"references": {"x": "x"}}, ValueError, "reference 'x' is 'x', but X has no names"),
            ({"references": {"x": 9}}, ValueError, "reference 'x' is 9, but X has 4 columns"),
            ({"references": {"x": LogisticRegression()}}, ValueError, "not fitted"),
            ({"references": {"x": object()}}, TypeError, "reference 'x' must be a classifier"),
            ({"references": {LABELS: 0}}, ValueError, "must have string names other than 'On/Off'"),
            ({"references": {name: i for i, name in enumerate(NAMES)}}, ValueError, "no features besides"),
            ({"references": {"x": 0}, "trained_on": {"y": [1]}}, ValueError, "trained_on names 'y'"),
            ({"references": {"x": 0}, "cv": "prefit"}, ValueError, "cv must be 'oob'"),
            ({"references": {"x": 0}, "alpha": 0}, ValueError, "alpha"),
        ],
    )
    def test_wrong_input_is_named(self, events, parameters, error, message):
        X, _, on, _ = events
        with pytest.raises(error, match=message):
            hybrid(**parameters).fit(X, on)

    def test_scores_that_are_missing_are_named(self, events):
        X, _, on, _ = events
        X = X.copy()
        X[:7, 1] = np.nan
        with pytest.raises(ValueError, match="reference 'gammaness' has no finite score for 7 of 3000 events"):
            hybrid({"gammaness": 1}).fit(X, on)
        table = pd.DataFrame(X, columns=NAMES)
        with pytest.raises(ValueError, match="which X does not have"):
            hybrid({"gammaness": "gammaness"}).fit(table, on)


class TestModelFile:
    def test_a_file_holds_references_and_learners(self, events, simulated, tmp_path):
        X, truth, on, _ = events
        old = forest(alpha=1.0).fit(X[:2000], truth[:2000])
        score = np.column_stack([X, simulated.decision_function(X)])
        model = hybrid({"score": 4, "old": old}, trained_on={"old": [20131101]}).fit(score, on)
        path = tmp_path / "hybrid.excess"
        model.save(path, {"nights": [1]})
        again = load(path)
        assert again.reference_weights_ == model.reference_weights_
        assert again.members_ == model.members_
        assert again.trained_on == {"old": [20131101]}
        assert again.references["score"] == 4
        np.testing.assert_array_equal(again.predict_proba(score), model.predict_proba(score))
        np.testing.assert_array_equal(again.likelihood_ratio(score), model.likelihood_ratio(score))
        np.testing.assert_array_equal(clone(again).fit(score, on).predict_proba(score), model.predict_proba(score))
        again.save(tmp_path / "again.excess", {"nights": [1]})
        assert (tmp_path / "again.excess").read_bytes() == path.read_bytes()

    def test_models_inside_of_each_other(self, events, tmp_path, monkeypatch):
        X, _, on, _ = events
        inner = hybrid({"score": 0}).fit(X[:600], on[:600])
        hybrid({"inner": inner}).fit(X[:600], on[:600]).save(tmp_path / "model")
        assert list(load(tmp_path / "model").references["inner"].references) == ["score"]
        monkeypatch.setattr(_model_file, "_DEEPEST", 2)
        with pytest.raises(ValueError, match=r"model does not contain a valid .* nested more than 2 deep"):
            load(tmp_path / "model")

    def test_columns_by_name_and_the_default_estimator(self, events, tmp_path):
        X, _, on, _ = events
        table = pd.DataFrame(X[:600], columns=NAMES)
        model = OnOffHybridClassifier({"a": "a"}, alpha=ALPHA, random_state=0).fit(table, on[:600])
        model.save(tmp_path / "model")
        again = load(tmp_path / "model")
        assert again.estimator is None
        assert again.references == {"a": "a"}
        np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))

    def test_other_references_are_refused(self, events, simulated, tmp_path):
        X, _, on, _ = events
        with pytest.raises(TypeError, match=r"reference 'simulation' cannot be stored in a model file: .* ONNX"):
            hybrid({"simulation": simulated}).fit(X, on).save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []

    def test_damaged_state_is_refused(self, events, tmp_path, monkeypatch):
        X, _, on, _ = events
        model = hybrid({"a": 0}).fit(X, on)
        state = model._get_state()
        for wrong in (
            {"weights": state.weights + 1},
            {"learner": {**state.learner, 0: state.learner[0][:-1]}},
            {"learner": {**state.learner, 2: state.learner[0]}},
            {"reference": {0: state.learner[0]}},
            {"member": {0: state.member[0]}},
            {"log_likelihoods": state.log_likelihoods[1:]},
        ):
            with monkeypatch.context() as patch:
                patch.setattr(type(model), "_get_state", lambda self, wrong=wrong: state._replace(**wrong))
                save(model, tmp_path / "model")
            with pytest.raises(ModelFileError, match="does not contain a valid OnOffHybridClassifier"):
                load(tmp_path / "model")
