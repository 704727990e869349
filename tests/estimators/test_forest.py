"""Forests: same bits everywhere, out-of-bag honesty, quality on clean labels, and what they refuse."""

import itertools
import pickle
from types import SimpleNamespace

import numba
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score, roc_auc_score

from excess import (
    THRESHOLD_METHODS,
    OnOffForestClassifier,
    SignificanceThresholdClassifier,
    f1_threshold,
    significance_curve,
    significance_threshold,
)
from excess._utils.rng import bootstrap_weights, derive_key
from excess.estimators._forest import ensemble


def fitted_bits(model, X):
    """All that a fit has found, as bytes."""
    trees = model._trees
    arrays = [*trees.flat, trees.n_on, trees.n_off, trees.values, *trees.edges, model.oob_decision_function_]
    arrays += [model.threshold_, model.oob_significance_, model.curve_.significance]
    return b"".join(np.ascontiguousarray(array).tobytes() for array in arrays) + model.predict_proba(X).tobytes()


@pytest.mark.parametrize("max_bins", [255, None])
def test_same_bits_on_any_number_of_threads_and_again(noisy_data, max_bins, monkeypatch):
    monkeypatch.setattr(ensemble, "_ROWS_PER_TASK", 600)  # so that threads share the rows, too
    models = [
        OnOffForestClassifier(
            12, noisy_data.alpha, min_samples_leaf=5, max_bins=max_bins, n_jobs=n_jobs, random_state=3
        ).fit(noisy_data.X, noisy_data.y)
        for n_jobs in (1, 2, 4, 1)
    ]
    assert len({fitted_bits(model, noisy_data.X) for model in models}) == 1
    other = OnOffForestClassifier(12, noisy_data.alpha, min_samples_leaf=5, max_bins=max_bins, random_state=4)
    assert fitted_bits(other.fit(noisy_data.X, noisy_data.y), noisy_data.X) != fitted_bits(models[0], noisy_data.X)


@pytest.mark.slow
def test_same_bits_in_any_memory_layout(noisy_data):
    X = noisy_data.X.astype(np.float32)
    wide = np.zeros((len(X), 2 * X.shape[1]), dtype=np.float32)
    wide[:, ::2] = X
    layouts = [X, np.asfortranarray(X), X.astype(np.float64), np.asfortranarray(X, dtype=np.float64), wide[:, ::2]]
    bits = set()
    for data in [*layouts, pd.DataFrame(X), X.tolist()]:
        model = OnOffForestClassifier(8, noisy_data.alpha, min_samples_leaf=5, random_state=0)
        bits.add(fitted_bits(model.fit(data, noisy_data.y), data))
    assert len(bits) == 1


def test_scores_do_not_depend_on_how_rows_are_divided(noisy_data, monkeypatch):
    def bits():
        model = OnOffForestClassifier(7, noisy_data.alpha, min_samples_leaf=5, n_jobs=2, random_state=1)
        return fitted_bits(model.fit(noisy_data.X, noisy_data.y), noisy_data.X)

    whole = bits()
    monkeypatch.setattr(ensemble, "_ROWS_PER_TASK", 512)
    monkeypatch.setattr(ensemble.predictor, "BLOCK", 97)
    assert bits() == whole


def test_weights_do_not_depend_on_chunks():
    whole = np.empty(1000, dtype=np.uint8)
    bootstrap_weights(np.uint64(9), 0, whole)
    for size in (1, 7, 300):
        part = np.empty(size, dtype=np.uint8)
        for start in range(0, 1000 - size, size):
            bootstrap_weights(np.uint64(9), start, part)
            np.testing.assert_array_equal(part, whole[start : start + size])


def test_out_of_bag_scores_equal_a_naive_sum(noisy_data):
    X, y = noisy_data.X[:400], noisy_data.y[:400]
    model = OnOffForestClassifier(9, noisy_data.alpha, min_samples_leaf=5, random_state=0).fit(X, y)
    seed = np.random.RandomState(0).randint(2**31 - 1)
    leaves = ensemble.leaf_numbers(X, model._trees.edges, model._trees.flat, 1)
    total, n_trees = np.zeros(400), np.zeros(400)
    for tree, key in enumerate(ensemble.tree_keys(seed, 9)):
        weights = np.empty(400, dtype=np.uint8)
        bootstrap_weights(np.uint64(derive_key(key, 0)), 0, weights)
        value = model._trees.values[model._trees.flat.roots[tree] + leaves[:, tree]]
        # and the leaf's value is the On fraction of the events in its bag
        for leaf in np.unique(leaves[:, tree]):
            here = leaves[:, tree] == leaf
            n_on = weights[here][y[here] == 1].astype(int).sum()
            assert value[here][0] == pytest.approx(n_on / weights[here].astype(int).sum())
        total += np.where(weights == 0, value, 0)
        n_trees += weights == 0
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(model.oob_decision_function_[:, 1], total / n_trees)


def test_threshold_is_tuned_on_out_of_bag_scores(noisy_data):
    X, y, alpha = noisy_data.X, noisy_data.y, noisy_data.alpha
    exact = {"min_samples_leaf": 20, "threshold_tolerance": 0, "n_threshold_bootstrap": 0, "random_state": 0}
    model = OnOffForestClassifier(60, alpha, **exact).fit(X, y)
    score = model.oob_decision_function_[:, 1]
    assert model.threshold_ == significance_threshold(y, score, alpha)
    assert model.oob_significance_ == significance_curve(y, score, alpha).significance.max()
    np.testing.assert_array_equal(model.predict(X), (model.predict_proba(X)[:, 1] > model.threshold_).astype(int))
    wrapped = SignificanceThresholdClassifier(OnOffForestClassifier(60, alpha, **exact), alpha, cv="oob")
    assert wrapped.fit(X, y).threshold_ == model.threshold_


@pytest.mark.parametrize("n_bootstrap", [0, 15])
def test_threshold_of_largest_f1(noisy_data, n_bootstrap):
    X, y, alpha = noisy_data.X, noisy_data.y, 0.3
    options = {"min_samples_leaf": 20, "n_threshold_bootstrap": n_bootstrap, "random_state": 0}
    model = OnOffForestClassifier(30, alpha, threshold="f1", **options).fit(X, y)
    score = model.oob_decision_function_[:, 1]
    seed = np.random.RandomState(0).randint(2**31 - 1)
    assert model.threshold_ == f1_threshold(y, score, alpha, n_bootstrap=n_bootstrap, random_state=seed)
    assert model.threshold_ != OnOffForestClassifier(30, alpha, threshold_tolerance=0, **options).fit(X, y).threshold_
    assert model.threshold_ == OnOffForestClassifier(30, alpha, threshold=f1_threshold, **options).fit(X, y).threshold_


@pytest.mark.parametrize("threshold", ["menon", "mithal", "yao", "default", 0.4, lambda y, score, alpha: 0.3])
def test_other_thresholds(threshold, noisy_data):
    X, y, alpha = noisy_data.X, noisy_data.y, noisy_data.alpha
    model = OnOffForestClassifier(30, alpha, min_samples_leaf=20, threshold=threshold, random_state=0).fit(X, y)
    score = model.oob_decision_function_[:, 1]
    if isinstance(threshold, str):
        expected = THRESHOLD_METHODS[threshold](y, score, alpha)
    else:
        expected = threshold if isinstance(threshold, float) else 0.3
    assert model.threshold_ == expected
    assert model.oob_significance_ == pytest.approx(max(model.curve_.at(expected).significance, 0.0))


def test_bootstrapped_threshold(noisy_data):
    X, y, alpha = noisy_data.X, noisy_data.y, noisy_data.alpha
    model = OnOffForestClassifier(30, alpha, min_samples_leaf=20, n_threshold_bootstrap=15, random_state=0).fit(X, y)
    score = model.oob_decision_function_[:, 1]
    seed = np.random.RandomState(0).randint(2**31 - 1)
    assert model.threshold_ == significance_threshold(y, score, alpha, tolerance=9.0, n_bootstrap=15, random_state=seed)
    near = OnOffForestClassifier(
        30, alpha, min_samples_leaf=20, threshold_tolerance=4, n_threshold_bootstrap=0, random_state=0
    ).fit(X, y)
    assert near.threshold_ == significance_threshold(y, score, alpha, tolerance=4)


def test_mixed_alternates_the_criteria(noisy_data):
    X, y = noisy_data.X, noisy_data.y

    def trees(criterion):
        model = OnOffForestClassifier(6, 0.3, criterion=criterion, min_samples_leaf=20, random_state=0).fit(X, y)
        roots = model._trees.flat.roots
        return [model._trees.n_on[a:b].tobytes() for a, b in itertools.pairwise(roots)]

    mixed, information, li_ma = trees("mixed"), trees("information"), trees("li_ma")
    assert mixed[::2] == information[::2]
    assert mixed[1::2] == li_ma[1::2]
    assert information != li_ma


def test_depth_and_leaf_size_are_kept(noisy_data):
    model = OnOffForestClassifier(10, max_depth=3, min_samples_leaf=50, random_state=0, alpha=1.0)
    model.fit(noisy_data.X, noisy_data.y)
    assert model._trees.flat.depths.max() == 3
    leaves = model._trees.leaves
    assert (model._trees.n_on + model._trees.n_off)[leaves].min() >= 50


def test_as_good_as_scikit_learns_forest(noisy_data):
    X, y, clean = noisy_data.X, noisy_data.y, noisy_data.clean
    limits = {"max_depth": 8, "min_samples_leaf": 10, "random_state": 0}
    ours = OnOffForestClassifier(100, noisy_data.alpha, criterion="information", **limits).fit(X[::2], y[::2])
    peer = RandomForestClassifier(100, criterion="entropy", **limits).fit(X[::2], y[::2])
    auc = [roc_auc_score(clean[1::2], model.predict_proba(X[1::2])[:, 1]) for model in (ours, peer)]
    assert auc[0] == pytest.approx(auc[1], abs=0.01)
    assert np.corrcoef(ours.feature_importances_, peer.feature_importances_)[0, 1] > 0.95


def test_default_forest_finds_the_clean_classes(noisy_data):
    X, y, clean = noisy_data.X, noisy_data.y, noisy_data.clean
    model = OnOffForestClassifier(alpha=noisy_data.alpha, random_state=0).fit(X[::2], y[::2])
    assert f1_score(clean[1::2], model.predict(X[1::2])) > 0.85


def test_no_excess_means_no_selection():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 3)), (rng.random(500) < 0.1).astype(int)
    model = OnOffForestClassifier(20, alpha=1e6, random_state=0).fit(X, y)
    assert model.threshold_ == np.inf
    assert not model.predict(X).any()


class TestUnusualEvents:
    def test_missing_values(self, noisy_data):
        X = noisy_data.X.copy()
        X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
        model = OnOffForestClassifier(30, noisy_data.alpha, random_state=0).fit(X[::2], noisy_data.y[::2])
        assert roc_auc_score(noisy_data.clean[1::2], model.predict_proba(X[1::2])[:, 1]) > 0.85
        X[:, 0] = np.nan
        OnOffForestClassifier(5, random_state=0, alpha=1.0).fit(X, noisy_data.y).predict(
            np.full((3, X.shape[1]), np.nan)
        )

    def test_infinity(self, noisy_data):
        X = noisy_data.X.copy()
        X[5, 2] = np.inf
        with pytest.raises(ValueError, match="infinity"):
            OnOffForestClassifier(5, alpha=1.0).fit(X, noisy_data.y)
        model = OnOffForestClassifier(5, random_state=0, alpha=1.0).fit(noisy_data.X, noisy_data.y)
        with pytest.raises(ValueError, match="infinity"):
            model.predict(X)

    def test_constant_columns_and_identical_rows(self):
        y = np.arange(1000) % 4 == 0
        model = OnOffForestClassifier(5, random_state=0, alpha=1.0).fit(np.ones((1000, 3)), y)
        np.testing.assert_allclose(model.predict_proba(np.ones((1, 3)))[0, 1], 0.25, atol=0.03)

    def test_a_million_identical_rows(self):
        y = (np.arange(1_000_000) % 4 == 0).astype(np.int8)
        model = OnOffForestClassifier(3, alpha=1 / 3, min_samples_leaf=1, random_state=0)
        model.fit(np.ones((1_000_000, 2), dtype=np.float32), y)
        assert len(model._trees.n_on) == 3  # three roots
        assert model.predict_proba([[1.0, 1.0]])[0, 1] == pytest.approx(0.25, abs=0.002)

    def test_one_event_per_class(self):
        X, y = [[0.0], [1.0]], [0, 1]
        model = OnOffForestClassifier(50, min_samples_leaf=1, random_state=0, alpha=1.0).fit(X, y)
        assert model.predict_proba(X).shape == (2, 2)
        with pytest.raises(ValueError, match="too few events for out-of-bag scores: of 1 On and 1 Off"):
            OnOffForestClassifier(1, min_samples_leaf=1, random_state=0, alpha=1.0).fit(X, y)

    def test_more_features_than_events(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(30, 500))
        y = X[:, 0] > 0
        X[:, :50] = X[:, :1]
        model = OnOffForestClassifier(50, min_samples_leaf=2, random_state=0, alpha=1.0).fit(X, y)
        assert (model.predict(X) == y).mean() > 0.9

    @pytest.mark.parametrize("alpha", [1e-6, 1e6])
    @pytest.mark.parametrize("criterion", ["information", "li_ma", "mixed"])
    def test_extreme_alpha(self, alpha, criterion, noisy_data):
        model = OnOffForestClassifier(5, alpha, criterion=criterion, random_state=0)
        model.fit(noisy_data.X, noisy_data.y)
        selected = model.predict(noisy_data.X).mean()
        # almost every On event is an excess, or none is
        assert selected > 0.9 if alpha < 1 else selected < 0.05
        assert np.isfinite(model.predict_proba(noisy_data.X)).all()

    def test_any_two_classes(self, noisy_data):
        names = np.array(["Off", "On"])
        model = OnOffForestClassifier(10, random_state=0, alpha=1.0).fit(noisy_data.X, names[noisy_data.y])
        numbers = OnOffForestClassifier(10, random_state=0, alpha=1.0).fit(noisy_data.X, noisy_data.y)
        np.testing.assert_array_equal(model.predict(noisy_data.X), names[numbers.predict(noisy_data.X)])


def test_huge_limits_are_no_limits(noisy_data):
    model = OnOffForestClassifier(3, max_depth=10**30, min_samples_leaf=10**30, random_state=0, alpha=1.0)
    model.fit(noisy_data.X, noisy_data.y)
    assert len(model._trees.n_on) == 3


def test_a_failed_fit_does_not_look_fitted(noisy_data):
    model = OnOffForestClassifier(3, max_features=99, alpha=1.0)
    with pytest.raises(ValueError, match="max_features"):
        model.fit(noisy_data.X, noisy_data.y)
    with pytest.raises(NotFittedError):
        model.predict(noisy_data.X)


def test_pickle_and_clone(noisy_data):
    model = OnOffForestClassifier(10, noisy_data.alpha, random_state=0).fit(noisy_data.X, noisy_data.y)
    loaded = pickle.loads(pickle.dumps(model))
    assert fitted_bits(loaded, noisy_data.X) == fitted_bits(model, noisy_data.X)
    again = clone(model).fit(noisy_data.X, noisy_data.y)
    assert fitted_bits(again, noisy_data.X) == fitted_bits(model, noisy_data.X)
    assert model.get_params()["alpha"] == noisy_data.alpha


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_estimators": 0}, ValueError, "n_estimators must be at least 1"),
        ({"n_estimators": 2.5}, TypeError, "n_estimators must be an integer"),
        ({"alpha": -1}, ValueError, "alpha must be positive"),
        ({"criterion": "gini"}, ValueError, "criterion must be 'information' or 'li_ma' or 'mixed', got 'gini'"),
        ({"min_samples_leaf": "best"}, ValueError, "min_samples_leaf must be a number or 'auto', got 'best'"),
        ({"min_samples_leaf": 0}, ValueError, "min_samples_leaf must be at least 1"),
        ({"max_features": 99}, ValueError, "max_features must be at most the number of features"),
        ({"splitter": "worst"}, ValueError, "splitter must be 'auto' or 'best' or 'random', got 'worst'"),
        ({"splitter": None}, ValueError, "splitter must be 'auto' or 'best' or 'random', got None"),
        ({"threshold": "lima"}, ValueError, "threshold must be one of 'significance', 'f1', 'menon'"),
        ({"threshold": None}, TypeError, "threshold must be a number, got None"),
        ({"threshold": np.nan}, ValueError, "threshold must not be NaN"),
        ({"n_threshold_bootstrap": -1}, ValueError, "n_threshold_bootstrap must be at least 0"),
        ({"threshold_tolerance": -1}, ValueError, "threshold_tolerance must not be negative"),
        ({"random_state": "seed"}, ValueError, "random_state must be"),
        ({"output": 1}, ValueError, "output must be"),
        ({"n_jobs": 2.5}, TypeError, "n_jobs must be an integer, got 2.5"),
        ({"n_jobs": 0}, ValueError, "n_jobs must not be 0"),
        ({"verbose": None}, TypeError, "verbose must be an integer, got None"),
    ],
)
def test_bad_parameters(parameters, error, message, noisy_data):
    model = OnOffForestClassifier(3, alpha=1.0).set_params(**parameters)
    with pytest.raises(error, match=message):
        model.fit(noisy_data.X, noisy_data.y)


def test_progress_bar_goes_to_standard_error(noisy_data, capsys):
    OnOffForestClassifier(5, min_samples_leaf=20, verbose=1, alpha=1.0).fit(noisy_data.X, noisy_data.y)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Growing trees" in captured.err
    assert "5/5" in captured.err


def test_user_is_told_when_kernels_are_compiled_but_not_when_they_are_loaded(monkeypatch, caplog):
    kernel = numba.njit(lambda x: x)
    monkeypatch.setattr(ensemble, "kernel", kernel, raising=False)
    monkeypatch.setattr(type(kernel), "stats", SimpleNamespace(cache_misses={}))
    ensemble._warn_if_compiling()
    assert not caplog.records
    monkeypatch.setattr(type(kernel), "stats", SimpleNamespace(cache_misses={"float64": 1}))
    ensemble._warn_if_compiling()
    assert "Compiling the forest for this machine" in caplog.text
