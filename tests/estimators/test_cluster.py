import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from excess import (
    OnOffKMeansClassifier,
    OnOffKMeansEnsembleClassifier,
    assign_cells,
    count_selected,
    f1_threshold,
    li_ma_significance,
)
from excess.estimators import _kmeans
from excess.stats._significance import signed_significance


def test_clusters_are_counted_and_assigned_exactly(noisy_data):
    model = OnOffKMeansClassifier(16, noisy_data.alpha, random_state=0).fit(noisy_data.X, noisy_data.y)
    number = model.apply(noisy_data.X)
    on = noisy_data.y == 1
    np.testing.assert_array_equal(model.n_on_, np.bincount(number[on], minlength=16))
    np.testing.assert_array_equal(model.n_off_, np.bincount(number[~on], minlength=16))
    np.testing.assert_array_equal(model.assignment_, assign_cells(model.n_on_, model.n_off_, noisy_data.alpha))
    np.testing.assert_array_equal(model.predict(noisy_data.X) == 1, model.assignment_[number])
    np.testing.assert_allclose(
        model.predict_proba(noisy_data.X)[:, 1], (model.n_on_ / (model.n_on_ + model.n_off_))[number]
    )
    assert model.tuned_counts_ == count_selected(noisy_data.y, model.predict(noisy_data.X), noisy_data.alpha)


def test_clusters_are_those_of_scikit_learn_on_scaled_events(noisy_data):
    X = noisy_data.X * np.logspace(-3, 3, noisy_data.X.shape[1]) + 5
    model = OnOffKMeansClassifier(8, random_state=0, alpha=1.0).fit(X, noisy_data.y)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    centers = (model.cluster_centers_ - X.mean(axis=0)) / X.std(axis=0)
    expected = KMeans(8, n_init=1, init=centers).fit(scaled)
    np.testing.assert_allclose(expected.cluster_centers_, centers, atol=1e-2)
    np.testing.assert_array_equal(model.apply(X), cdist(scaled, centers).argmin(axis=1))


def test_decision_function_is_positive_where_selected(noisy_data):
    for model in (
        OnOffKMeansClassifier(16, noisy_data.alpha, random_state=0),
        OnOffKMeansEnsembleClassifier(6, 16, noisy_data.alpha, random_state=0),
        OnOffKMeansEnsembleClassifier(3, 4, noisy_data.alpha, threshold=float("inf"), random_state=0),
        OnOffKMeansEnsembleClassifier(3, 4, noisy_data.alpha, threshold=float("-inf"), random_state=0),
    ):
        model.fit(noisy_data.X, noisy_data.y)
        np.testing.assert_array_equal(model.decision_function(noisy_data.X) > 0, model.predict(noisy_data.X) == 1)


def relaxed_assignment(n_on, n_off, alpha, seed, n_steps=300):
    """The relaxation of the paper: projected gradient ascent over [0, 1]^k, rounded at the end."""
    rng = np.random.default_rng(seed)
    a = rng.random(len(n_on))

    step, h = 0.5, 1e-5
    moves = np.vstack([np.zeros(len(a)), h * np.eye(len(a))])
    for _ in range(n_steps):
        at, *moved = signed_significance((a + moves) @ n_on, (a + moves) @ n_off, alpha)
        gradient = (np.array(moved) - at) / h
        a = np.clip(a + step * gradient / (np.linalg.norm(gradient) + 1e-12), 0.0, 1.0)
        step *= 0.99
    return a > 0.5


@pytest.mark.slow
def test_no_relaxation_beats_the_exact_assignment():
    rng = np.random.default_rng(0)
    exact, relaxed = [], []
    for seed in range(25):
        k = int(rng.integers(4, 10))
        n_off = rng.poisson(rng.gamma(1.0, 20.0, k))
        n_on = rng.poisson(0.2 * n_off + rng.gamma(0.5, 6.0, k) * rng.integers(0, 2, k))
        chosen = assign_cells(n_on, n_off, 0.2)
        found = relaxed_assignment(n_on, n_off, 0.2, seed)
        for mask, values in ((chosen, exact), (found, relaxed)):
            values.append(li_ma_significance(n_on[mask].sum(), n_off[mask].sum(), 0.2))
    exact, relaxed = np.array(exact), np.array(relaxed)
    assert (exact >= relaxed - 1e-9).all()
    assert np.count_nonzero(exact > relaxed + 1e-6) >= 3  # a first-order method does get stuck
    assert np.count_nonzero(exact < relaxed + 1e-6) >= 3  # but is no straw man


def test_ensemble_detects_more_than_one_clustering(noisy_data):
    X, y, alpha = noisy_data.X, noisy_data.y, noisy_data.alpha
    train, test = slice(0, 2000), slice(2000, None)
    one = OnOffKMeansClassifier(32, alpha, random_state=0).fit(X[train], y[train])
    many = OnOffKMeansEnsembleClassifier(40, 32, alpha, random_state=0).fit(X[train], y[train])
    significance = [count_selected(y[test], model.predict(X[test]), alpha).significance for model in (one, many)]
    assert significance[1] > significance[0]


def test_votes(noisy_data):
    model = OnOffKMeansEnsembleClassifier(10, 16, noisy_data.alpha, output="assignment", random_state=0)
    votes = 10 * model.fit(noisy_data.X, noisy_data.y).predict_proba(noisy_data.X)[:, 1]
    np.testing.assert_allclose(votes, np.round(votes), atol=1e-12)
    assert len(np.unique(np.round(votes))) > 3
    assert model.oob_significance_ > 5


@pytest.mark.parametrize("n_bootstrap", [0, 15])
def test_threshold_of_largest_f1(noisy_data, n_bootstrap):
    X, y, alpha = noisy_data.X, noisy_data.y, 0.3
    options = {"n_threshold_bootstrap": n_bootstrap, "random_state": 0}
    model = OnOffKMeansEnsembleClassifier(10, 16, alpha, threshold="f1", **options).fit(X, y)
    score = model.oob_decision_function_[:, 1]
    held = ~np.isnan(score)
    seed = np.random.RandomState(0).randint(2**31 - 1)
    assert model.threshold_ == f1_threshold(y[held], score[held], alpha, n_bootstrap=n_bootstrap, random_state=seed)
    best = OnOffKMeansEnsembleClassifier(10, 16, alpha, threshold_tolerance=0, **options).fit(X, y)
    assert model.threshold_ != best.threshold_


def test_out_of_bag_scores_are_of_unseen_events():
    """Labels without a pattern: in the bag a cluster of few events knows them by heart, out of it nothing is known."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1000, 6)), rng.integers(0, 2, 1000)
    model = OnOffKMeansEnsembleClassifier(20, 300, random_state=0, alpha=1.0).fit(X, y)
    oob = model.oob_decision_function_[:, 1]
    assert abs(np.corrcoef(oob, y)[0, 1]) < 0.1
    assert np.corrcoef(model.predict_proba(X)[:, 1], y)[0, 1] > 0.5
    assert model.oob_significance_ == max(model.curve_.at(model.threshold_).significance, 0)


@pytest.mark.parametrize("algorithm", ["lloyd", "mini_batch"])
def test_same_bits_on_any_number_of_threads(algorithm, noisy_data):
    fitted = [
        OnOffKMeansEnsembleClassifier(6, 20, algorithm=algorithm, n_jobs=n_jobs, random_state=3, alpha=1.0).fit(
            noisy_data.X, noisy_data.y
        )
        for n_jobs in (1, 2, 4)
    ]
    for model in fitted[1:]:
        np.testing.assert_array_equal(model.oob_decision_function_, fitted[0].oob_decision_function_)
        np.testing.assert_array_equal(model.predict_proba(noisy_data.X), fitted[0].predict_proba(noisy_data.X))


@pytest.mark.slow
def test_same_bits_whatever_the_environment_allows():
    """Scikit-learn's own k-means sums in an order that depends on the number of OpenMP threads."""
    code = (
        "import numpy as np, hashlib; from excess import OnOffKMeansClassifier\n"
        "rng = np.random.default_rng(0); X = rng.normal(size=(5000, 10)); y = rng.integers(0, 2, 5000)\n"
        "print(hashlib.sha256(OnOffKMeansClassifier(40, 1.0, random_state=0).fit(X, y).cluster_centers_).hexdigest())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"OMP_NUM_THREADS": n, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for n in ("1", "4")
    }
    assert len(found) == 1


def test_large_samples_are_clustered_in_batches(monkeypatch, noisy_data):
    used = []
    for name in ("KMeans", "MiniBatchKMeans"):
        original = getattr(_kmeans, name)
        monkeypatch.setattr(_kmeans, name, lambda *a, _o=original, _n=name, **k: used.append(_n) or _o(*a, **k))
    monkeypatch.setattr(_kmeans, "MAX_LLOYD_EVENTS", 2000)
    OnOffKMeansClassifier(8, alpha=1.0).fit(noisy_data.X[:2000], noisy_data.y[:2000])
    OnOffKMeansClassifier(8, alpha=1.0).fit(noisy_data.X, noisy_data.y)
    OnOffKMeansClassifier(8, algorithm="lloyd", alpha=1.0).fit(noisy_data.X, noisy_data.y)
    assert used == ["KMeans", "MiniBatchKMeans", "KMeans"]


def test_empty_clusters_have_no_events_and_the_overall_score():
    X = np.repeat([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]], 10, axis=0)
    y = np.array([0] * 9 + [1] + [0] * 9 + [1] + [1] * 9 + [0])
    with pytest.warns(ConvergenceWarning, match="distinct clusters"):
        model = OnOffKMeansClassifier(6, random_state=0, alpha=1.0).fit(X, y)
    empty = model.n_on_ + model.n_off_ == 0
    assert empty.sum() == 3
    assert (model.n_on_ + model.n_off_).sum() == len(X)
    np.testing.assert_array_equal(model.predict(X) == 1, np.repeat([False, False, True], 10))
    assert not model.assignment_[empty].any()


def test_constant_features_and_no_excess():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=200), np.full(200, 1e9)])
    y = np.zeros(200, dtype=int)
    y[:2] = 1
    model = OnOffKMeansClassifier(4, alpha=1.0, random_state=0).fit(X, y)
    assert model.threshold_ == np.inf
    assert not model.assignment_.any()
    assert (model.predict(X) == 0).all()


def test_ensemble_with_more_clusters_than_a_bag_has_events(noisy_data):
    X, y = noisy_data.X[:60], noisy_data.y[:60]
    model = OnOffKMeansEnsembleClassifier(20, 60, noisy_data.alpha, random_state=0).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            OnOffKMeansClassifier(5000, alpha=1.0),
            ValueError,
            "n_clusters must be at most the number of events, n_samples=3000",
        ),
        (OnOffKMeansClassifier(0, alpha=1.0), ValueError, "n_clusters must be at least 1, got 0"),
        (OnOffKMeansClassifier(4.5, alpha=1.0), TypeError, "n_clusters must be an integer"),
        (OnOffKMeansClassifier(4, alpha=-1), ValueError, "alpha must be positive"),
        (OnOffKMeansClassifier(4, algorithm="elkan", alpha=1.0), ValueError, "algorithm must be 'auto' or 'lloyd' or"),
        (OnOffKMeansEnsembleClassifier(0, alpha=1.0), ValueError, "n_estimators must be at least 1"),
        (
            OnOffKMeansEnsembleClassifier(5, 9000, alpha=1.0),
            ValueError,
            "n_clusters must be at most the number of events, n_samples=3000",
        ),
        (OnOffKMeansEnsembleClassifier(5, 8, max_features=99, alpha=1.0), ValueError, "max_features must be at most"),
        (OnOffKMeansEnsembleClassifier(5, 8, output="soft", alpha=1.0), ValueError, "output must be"),
        (OnOffKMeansEnsembleClassifier(5, 8, threshold="lima", alpha=1.0), ValueError, "threshold must be one of"),
        (OnOffKMeansEnsembleClassifier(5, 8, n_jobs=0, alpha=1.0), ValueError, "n_jobs must not be 0"),
    ],
)
def test_bad_parameters(model, error, message, noisy_data):
    with pytest.raises(error, match=message):
        model.fit(noisy_data.X, noisy_data.y)


def test_too_few_events_for_out_of_bag_scores():
    with pytest.raises(ValueError, match="too few events for out-of-bag scores"):
        OnOffKMeansEnsembleClassifier(1, 1, random_state=0, alpha=1.0).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_prediction_in_a_forked_process():
    """With one feature scikit-learn starts OpenMP threads, which a forked process would wait for without end."""
    X = np.random.default_rng(0).normal(size=(600, 1))
    model = OnOffKMeansClassifier(4, alpha=1.0, random_state=0).fit(X, X[:, 0] > 0)
    expected = model.predict(X)
    child = os.fork()
    if not child:
        os._exit(int((model.predict(X) != expected).any()))
    until = time.monotonic() + 60
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the forked process hangs")
        time.sleep(0.01)
    assert ended[1] == 0
