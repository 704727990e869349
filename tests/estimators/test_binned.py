"""Classifiers with a threshold and a calibration for each bin of a column."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import excess
from excess.estimators._base import takes_groups
from excess.estimators._binned import number_bins

ALPHA = 0.2


@pytest.fixture(scope="module")
def binned_events():
    """Signal at high scores in the upper bin, at lower ones in the lower: one threshold cannot serve both."""
    rng = np.random.default_rng(0)
    n = 12_000
    energy = rng.uniform(0, 2, n)
    signal = rng.random(n) < 0.12
    feature = rng.normal(size=n) + np.where(signal, np.where(energy < 1, 1.0, 3.0), 0.0)
    on = signal | (rng.random(n) < ALPHA / (1 + ALPHA))
    return np.column_stack([energy, feature, rng.normal(size=n)]), on.astype(int)


def _model(**settings):
    forest = excess.OnOffForestClassifier(40, min_samples_leaf=40, random_state=0, alpha=1.0)
    given = {"edges": [1.0], "alpha": ALPHA, "passthrough": False, "random_state": 0, **settings}
    return excess.OnOffBinnedClassifier(forest, **given)


@pytest.fixture
def own_thresholds(monkeypatch):
    """Let bins keep the thresholds of their own events."""
    monkeypatch.setattr(excess.OnOffBinnedClassifier, "_choose_share", staticmethod(lambda *_: 1.0))


@pytest.mark.usefixtures("own_thresholds")
def test_each_bin_has_the_threshold_that_is_best_for_its_events(binned_events):
    X, on = binned_events
    model = _model(threshold_tolerance=0.0, n_threshold_bootstrap=0).fit(X, on)
    forest = excess.OnOffForestClassifier(40, ALPHA, min_samples_leaf=40, random_state=0).fit(X[:, 1:], on)
    score, own = forest.oob_decision_function_[:, 1], model.bin_numbers(X)
    for number, tuned in enumerate(model.bins_):
        chosen = (own == number) & ~np.isnan(score)
        assert tuned.threshold == excess.significance_threshold(on[chosen], score[chosen], ALPHA)
        assert (tuned.first, tuned.last, tuned.n_events) == (number, number, chosen.sum())
    assert abs(model.bins_[0].threshold - model.bins_[1].threshold) > 0.05
    # what is selected is what these thresholds select, whatever was done to the scores
    raw = forest.predict_proba(X[:, 1:])[:, 1]
    np.testing.assert_array_equal(model.predict(X), raw > np.array([t.threshold for t in model.bins_])[own])
    assert model.tuned_counts_.n_on == sum(
        (on[own == b] & (score[own == b] > t.threshold)).sum() for b, t in enumerate(model.bins_)
    )


def test_scores_keep_their_order_inside_of_a_bin(binned_events):
    X, on = binned_events
    model = _model().fit(X, on)
    raw, moved = model.estimator_.predict_proba(X[:, 1:])[:, 1], model.predict_proba(X)[:, 1]
    for number in range(2):
        own = model.bin_numbers(X) == number
        order = np.argsort(raw[own])
        assert (np.diff(moved[own][order]) >= 0).all()
    assert ((moved >= 0) & (moved <= 1)).all()


def test_a_calibration_for_each_bin(binned_events):
    X, on = binned_events
    model = _model().fit(X[:8000], on[:8000])
    probability, ratio = model.predict_signal_proba(X[8000:]), model.likelihood_ratio(X[8000:])
    own, raw = model.bin_numbers(X[8000:]), model.estimator_.predict_proba(X[8000:, 1:])[:, 1]
    for number, calibration in enumerate(model.calibrations_):
        chosen = own == number
        np.testing.assert_allclose(probability[chosen], calibration.signal_probability(raw[chosen]), atol=1e-9)
    # densities of all bins together: the mean over the background is about 1, and a ratio is twice another where the
    # excess over the background is
    off = on[8000:] == 0
    assert ratio[off].mean() == pytest.approx(1, abs=0.25)
    odds = probability / (1 - probability)
    positive = ratio > 0
    np.testing.assert_allclose(odds[positive] / ratio[positive], (odds[positive] / ratio[positive])[0], rtol=1e-6)


def test_bins_find_more_than_one_threshold(binned_events):
    X, on = binned_events
    models = {"one": excess.OnOffForestClassifier(40, min_samples_leaf=40, random_state=0, alpha=1.0), "bins": _model()}
    found = {
        "one": excess.cross_val_detect(models["one"], X[:, 1:], on, alpha=ALPHA, random_state=0),
        "bins": excess.cross_val_detect(models["bins"], X, on, alpha=ALPHA, random_state=0),
    }
    assert found["bins"].likelihood.significance > found["one"].likelihood.significance + 1
    assert found["bins"].folds[0].bins[1].n_events > 1000
    named = found["bins"].with_bins("energy", [1.0], (X[:, 0] >= 1).astype(int))
    assert sum(one.counts.n_on for one in named.bins.outcomes) == named.counts.n_on
    assert list(named.bins_frame().index) == ["below 1", "above 1"]
    assert named.bins.notes == ("", "")


@pytest.mark.usefixtures("own_thresholds")
def test_a_bin_with_too_few_events_borrows_from_its_neighbours(binned_events):
    X, on = binned_events
    model = _model(edges=[0.01, 1.0, 1.99]).fit(X, on)
    assert [(tuned.first, tuned.last) for tuned in model.bins_] == [(0, 1), (1, 1), (2, 2), (2, 3)]
    assert model.bins_[0].threshold == model.bins_[1].threshold != model.bins_[2].threshold
    assert model.bins_[0].n_events < 100
    all_events = _model(edges=[0.5, 1.0], min_events=10**6).fit(X, on)
    assert {(tuned.first, tuned.last) for tuned in all_events.bins_} == {(0, 2)}


def test_an_empty_bin_borrows(binned_events):
    X, on = binned_events
    model = _model(edges=[1.0, 5.0]).fit(X, on)
    assert model.bins_[2].n_events == 0
    assert (model.bins_[2].first, model.bins_[2].last) == (1, 2)
    assert np.isfinite(model.likelihood_ratio(X)).all()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_model_file_and_threads_do_not_change_a_bit(binned_events, tmp_path, n_jobs):
    X, on = binned_events
    table = pd.DataFrame(X, columns=["energy", "a", "b"])
    model = _model(column="energy", edges=(0.7, 1.5), n_jobs=n_jobs).fit(table, on)
    model.save(tmp_path / "model.excess")
    again = excess.load(tmp_path / "model.excess")
    assert again.bins_ == model.bins_
    assert again.edges == (0.7, 1.5)
    for name in ("predict", "predict_proba", "predict_signal_proba", "likelihood_ratio"):
        np.testing.assert_array_equal(getattr(again, name)(table), getattr(model, name)(table))
    expected = _model(column="energy", edges=(0.7, 1.5)).fit(table, on)
    np.testing.assert_array_equal(expected.predict_proba(table), model.predict_proba(table))


def test_damaged_state_is_refused(binned_events, tmp_path, monkeypatch):
    X, on = binned_events
    model = _model(edges=(0.7, 1.5)).fit(X[:3000], on[:3000])
    state = model._get_state()
    for wrong, message in (
        ({"bin_thresholds": np.full(3, np.nan)}, "no threshold"),
        ({"bin_thresholds": np.zeros(2)}, "bin_thresholds is an array"),
        ({"bin_windows": state.bin_windows + 1}, "bins that do not exist"),
        ({"bin": {0: state.bin[0], 1: state.bin[1], 3: state.bin[2]}}, "not those of its bins"),
        ({"edges": state.edges[::-1]}, "ascending"),
        ({"strength": -1.0}, "strength"),
        ({"strength": "1"}, "strength is a str"),
        ({"learner": state.learner[:-1]}, "damaged"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(type(model), "_get_state", lambda self, wrong=wrong: state._replace(**wrong))
            model.save(tmp_path / "model")
        with pytest.raises(excess.ModelFileError, match=message):
            excess.load(tmp_path / "model")


def test_a_classifier_without_bags_is_tuned_out_of_fold(binned_events):
    X, on = binned_events
    model = excess.OnOffBinnedClassifier(LogisticRegression(), 0, [1.0], ALPHA, random_state=0).fit(X, on)
    assert model.tuned_counts_.significance > 10


def test_an_event_of_weight_zero_is_none(binned_events):
    X, on = binned_events[0][:3000], binned_events[1][:3000]
    counted = np.arange(3000) % 3 > 0
    model = excess.OnOffBinnedClassifier(excess.OnOffTreeClassifier(max_depth=3, alpha=1.0), 0, [1.0], ALPHA, cv=2)
    model.fit(X, on, sample_weight=counted.astype(float))
    assert sum(tuned.n_events for tuned in model.bins_) == counted.sum()
    assert (model.curve_.n_on[0], model.curve_.n_off[0]) == (on[counted].sum(), (on[counted] == 0).sum())


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.3, 1.0, 2.0, -np.inf, np.inf])
def test_every_threshold_moves_to_one_half(binned_events, threshold):
    X, on = binned_events
    model = _model(threshold=threshold).fit(X, on)
    raw = model.estimator_.predict_proba(X[:, 1:])[:, 1]
    np.testing.assert_array_equal(model.predict(X), raw > threshold)


def test_an_edge_belongs_to_the_bin_above():
    np.testing.assert_array_equal(number_bins(np.array([0.5, 1.0, 2.0, 9.0]), np.array([1.0, 2.0])), [0, 1, 2, 2])
    with pytest.raises(ValueError, match=r"no value for 1 of 2 events"):
        number_bins(np.array([np.nan, 1.0]), np.array([1.0]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"edges": [2.0, 1.0]}, "edges must be finite numbers in ascending order"),
        ({"edges": [np.nan]}, "edges must be finite"),
        ({"column": 7}, "column is 7, but X has 3 columns"),
        ({"column": "energy"}, "X has no names"),
        ({"min_events": 0}, "min_events"),
        ({"cv": "prefit"}, "cv must be"),
        ({"estimator": LinearSVC()}, "between 0 and 1"),
    ],
)
def test_bad_settings(binned_events, settings, message):
    X, on = binned_events
    with pytest.raises(ValueError, match=message):
        _model().set_params(**settings).fit(X[:2000], on[:2000])
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="which X does not have"):
        _model(column="energy").fit(table, on)


@pytest.mark.parametrize(
    ("learner", "cv", "expected"),
    [
        (excess.OnOffTreeClassifier(), "auto", True),  # five folds, which must not split a night
        (None, "auto", False),  # a forest, out of bag
        (excess.OnOffForestClassifier(), "auto", False),
        (excess.OnOffForestClassifier(), 3, True),
        (excess.OnOffForestClassifier(), "oob", False),
    ],
)
def test_folds_for_tuning_get_the_groups(learner, cv, expected):
    model = excess.OnOffBinnedClassifier(learner, 0, edges=[1.0], cv=cv)
    assert takes_groups(model, np.array([1, 1, 2, 2])) is expected


def test_bins_do_not_lower_the_significance_of_the_cut():
    """Most signal is in the upper bins; the best thresholds of the others would add their background."""
    rng = np.random.default_rng(7)
    n_on, n_off, n_signal = 1300, 6500, 300
    on = np.repeat([1, 0], [n_on + n_signal, n_off])
    signal = np.arange(len(on)) < n_signal
    energy = rng.pareto(np.where(signal, 1.0, 1.7)) + 1
    separation = np.where(signal, 0.5 + 0.9 * np.log(energy).clip(0, 3), 0.0)
    X = np.column_stack([energy, rng.normal(separation), rng.normal(separation / 2)])
    edges = np.quantile(energy, [0.25, 0.5, 0.75])
    forest = excess.OnOffForestClassifier(30, min_samples_leaf=20, random_state=0)
    models = {"common": forest, "bins": excess.OnOffBinnedClassifier(forest, 0, edges, random_state=0)}
    found = excess.cross_val_detect(models, X, on, alpha=0.2, cv=3, random_state=0)
    common, bins = (found[name].counts.significance for name in models)
    assert bins > 0.97 * common > 5
