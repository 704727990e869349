"""Threshold rules by name, and the bootstrap median."""

import functools
import itertools

import numpy as np
import pytest

from excess import (
    THRESHOLD_METHODS,
    f1_threshold,
    menon_threshold,
    significance_curve,
    significance_threshold,
    tune_threshold,
)
from excess._utils.rng import bootstrap_weights, derive_key
from excess.stats import _thresholds as tuning


def test_equals_the_curves_best():
    rng = np.random.default_rng(3)
    y, score = rng.integers(0, 2, 500), rng.normal(size=500)
    assert significance_threshold(y, score, 0.7) == significance_curve(y, score, 0.7).best_threshold


def _events(rng, n=2000):
    signal = rng.random(n) < 0.15
    y = np.where(signal, rng.random(n) < 0.9, rng.random(n) < 0.4).astype(int)
    return y, rng.normal(1.5 * signal)


def test_bootstrap_is_seeded_and_gives_a_threshold_of_the_curve():
    y, score = _events(np.random.default_rng(0))
    one = significance_threshold(y, score, 2 / 3, n_bootstrap=20, random_state=5)
    assert one == significance_threshold(y, score, 2 / 3, n_bootstrap=20, random_state=5)
    assert one in significance_curve(y, score, 2 / 3).thresholds


def test_bootstrap_median_equals_a_naive_one():
    rng = np.random.default_rng(4)
    for seed in range(30):
        n = 60
        y, score = rng.integers(0, 2, n), rng.integers(0, 20, n).astype(float)
        key = np.uint64(np.random.RandomState(seed).randint(2**31 - 1))
        best = []
        for i in range(9):
            weights = np.empty(n, dtype=np.uint8)
            bootstrap_weights(np.uint64(derive_key(key, i)), 0, weights)
            rows = np.repeat(np.arange(n), weights)
            best.append(significance_curve(y[rows], score[rows], 1.0).best_threshold)
        curve = significance_curve(y, score, 1.0)
        naive = curve.thresholds[curve.index_of(np.sort(best)[4])]
        naive = naive if curve.at(naive).excess > 0 else np.inf
        assert significance_threshold(y, score, 1.0, n_bootstrap=9, random_state=seed) == naive


def test_many_cuts_are_thinned_out_without_harm(monkeypatch):
    y, score = _events(np.random.default_rng(0), n=20_000)
    exact = significance_threshold(y, score, 2 / 3, n_bootstrap=15, random_state=0)
    monkeypatch.setattr(tuning, "_MAX_RESAMPLED_CUTS", 500)
    thinned = significance_threshold(y, score, 2 / 3, n_bootstrap=15, random_state=0)
    selected = [(score > threshold).mean() for threshold in (exact, thinned)]
    assert selected[0] == pytest.approx(selected[1], abs=0.01)


def test_bootstrap_never_settles_on_a_deficit():
    rng = np.random.default_rng(8)
    for seed in range(200):
        y, score = (rng.random(40) < 0.2).astype(int), rng.integers(0, 4, 40).astype(float)
        if len(np.unique(y)) == 1:
            continue
        threshold = significance_threshold(y, score, 0.25, n_bootstrap=5, random_state=seed)
        counts = significance_curve(y, score, 0.25).at(threshold)
        assert counts.excess > 0 or threshold == np.inf


def test_bootstrap_lowers_the_variance():
    single, median = [], []
    for seed in range(40):
        y, score = _events(np.random.default_rng(seed))
        single.append(significance_threshold(y, score, 2 / 3))
        median.append(significance_threshold(y, score, 2 / 3, n_bootstrap=30, random_state=seed))
    assert np.std(median) < 0.9 * np.std(single)


def test_bootstrap_without_any_excess_selects_nothing():
    y, score = np.array([1] + [0] * 99), np.arange(100.0)
    assert significance_threshold(y, score, 1.0, n_bootstrap=5, random_state=0) == np.inf


def _f1_of_cuts(y, score, alpha):
    """F1 at the threshold of every cut, from loops over the events."""
    thresholds = [-np.inf, *((a + b) / 2 for a, b in itertools.pairwise(np.unique(score))), np.inf]
    counts = [(np.sum(y[score > t] == 1), np.sum(y[score > t] == 0)) for t in thresholds]
    n_signal = max(n_on - alpha * n_off for n_on, n_off in counts)
    f1 = {}
    for threshold, (n_on, n_off) in zip(thresholds, counts, strict=True):
        excess = n_on - alpha * n_off
        f1[threshold] = 2 * excess / (n_on + n_off + n_signal) if excess > 0 else 0.0
    return f1


def _strictest_of_largest(f1):
    """The highest threshold of the largest F1, or infinity where it is 0."""
    largest = max(f1.values(), default=0.0)
    return max(t for t, value in f1.items() if value == largest) if largest > 0 else np.inf


def _small_problems(n):
    """Labels and scores with ties, some without any signal and some where nearly all is Off."""
    rng = np.random.default_rng(6)
    for number in range(n):
        score = rng.integers(0, 30, 80).astype(float)
        y = (rng.random(80) < (0.5, 0.05, 0.2 + score / 50)[number % 3]).astype(int)
        if len(np.unique(y)) == 2:
            yield y, score


def test_tolerance_takes_the_cut_of_largest_f1_near_the_best():
    moved = 0
    for y, score in _small_problems(200):
        curve = significance_curve(y, score, 0.8)
        best = curve.significance.max()
        assert significance_threshold(y, score, 0.8, tolerance=0) == curve.best_threshold
        f1 = _f1_of_cuts(y, score, 0.8)
        for tolerance in (0.3, 1.5, 9.0):
            near = {
                t: f1[t]
                for t, s in zip(curve.thresholds, curve.significance, strict=True)
                if s > 0 and s**2 >= best**2 - tolerance - 1e-12
            }
            found = significance_threshold(y, score, 0.8, tolerance=tolerance)
            assert found == _strictest_of_largest(near)
            moved += found != curve.best_threshold
    assert moved > 100


def test_largest_f1_equals_a_naive_search():
    for y, score in _small_problems(200):
        for alpha in (0.2, 0.8, 3.0):
            assert f1_threshold(y, score, alpha) == _strictest_of_largest(_f1_of_cuts(y, score, alpha))
            assert tune_threshold("f1", y, score, alpha)[0] == f1_threshold(y, score, alpha)


def test_a_wide_tolerance_is_the_rule_of_largest_f1():
    for y, score in _small_problems(60):
        assert significance_threshold(y, score, 0.8, tolerance=1e9) == f1_threshold(y, score, 0.8)


def test_bootstrap_median_of_f1_equals_a_naive_one():
    for seed, (y, score) in enumerate(_small_problems(30)):
        key = np.uint64(np.random.RandomState(seed).randint(2**31 - 1))
        best = []
        for i in range(9):
            weights = np.empty(len(y), dtype=np.uint8)
            bootstrap_weights(np.uint64(derive_key(key, i)), 0, weights)
            rows = np.repeat(np.arange(len(y)), weights)
            best.append(_strictest_of_largest(_f1_of_cuts(y[rows], score[rows], 0.8)))
        curve = significance_curve(y, score, 0.8)
        naive = curve.thresholds[curve.index_of(np.sort(best)[4])]
        naive = naive if curve.at(naive).excess > 0 else np.inf
        assert f1_threshold(y, score, 0.8, n_bootstrap=9, random_state=seed) == naive


def test_f1_is_close_to_that_of_the_signal():
    rng = np.random.default_rng(0)
    signal = rng.random(100_000) < 0.1
    score = rng.normal(2.5 * signal)
    y = (signal | (rng.random(100_000) < 1 / 6)).astype(int)  # no signal in Off
    cuts = np.linspace(-1, 4, 101)
    true = [2 * signal[score > t].sum() / ((score > t).sum() + signal.sum()) for t in cuts]
    selected = score > f1_threshold(y, score, 0.2)
    assert 2 * signal[selected].sum() / (selected.sum() + signal.sum()) > max(true) - 0.005


def test_tolerance_costs_next_to_nothing_where_the_signal_is_strong():
    y, score = _events(np.random.default_rng(0), n=200_000)
    curve = significance_curve(y, score, 2 / 3)
    near = significance_threshold(y, score, 2 / 3, tolerance=4)
    assert near > curve.best_threshold
    assert curve.at(near).significance > curve.best.significance - 0.1
    with pytest.raises(ValueError, match="tolerance must not be negative"):
        significance_threshold(y, score, 2 / 3, tolerance=-1)


@pytest.mark.parametrize(
    ("n_bootstrap", "error", "message"),
    [(-1, ValueError, "n_bootstrap must be at least 0, got -1"), (1.5, TypeError, "integer, got 1.5")],
)
def test_bad_n_bootstrap(n_bootstrap, error, message):
    with pytest.raises(error, match=message):
        significance_threshold([0, 1], [0, 1], 1.0, n_bootstrap=n_bootstrap)


def test_rules_by_name_and_by_function():
    y, score = _events(np.random.default_rng(0))
    score = 1 / (1 + np.exp(-score))
    assert set(THRESHOLD_METHODS) == {"significance", "f1", "menon", "mithal", "yao", "default"}
    found = {name: tune_threshold(name, y, score, 2 / 3)[0] for name in THRESHOLD_METHODS}
    assert found == {name: rule(y, score, 2 / 3) for name, rule in THRESHOLD_METHODS.items()}
    assert len(set(found.values())) >= 4
    accuracy = functools.partial(menon_threshold, metric="accuracy")
    assert tune_threshold(accuracy, y, score, 2 / 3)[0] == menon_threshold(y, score, 2 / 3, metric="accuracy")
    unknown = functools.partial(menon_threshold, estimate_p_minus=True)
    assert tune_threshold(unknown, y, score, 2 / 3)[0] == menon_threshold(y, score) != found["menon"]


@pytest.mark.parametrize("result", [None, "0.5", np.nan, np.array([0.1, 0.2])])
def test_a_rule_must_return_a_number(result):
    with pytest.raises((TypeError, ValueError), match=r"the threshold from method .* must"):
        tune_threshold(lambda y, score, alpha: result, [0, 1], [0, 1], 1.0)


def test_bad_method():
    with pytest.raises(ValueError, match=r"method must be one of 'significance', 'f1', 'menon'.*got 'meno'"):
        tune_threshold("meno", [0, 1], [0, 1], 1.0)
    with pytest.raises(ValueError, match="require method 'significance' or 'f1', got 'mithal'"):
        tune_threshold("mithal", [0, 1], [0, 1], 1.0, n_bootstrap=3)


@pytest.mark.parametrize("labels", [("gamma", "hadron"), ("On", "off"), ("Crab", "proton")])
def test_labels_whose_order_would_swap_signal_and_background_are_refused(labels):
    with pytest.raises(ValueError, match=f"which would be '{labels[1]}' and not '{labels[0]}'"):
        significance_threshold(np.array(labels)[[0, 1, 0, 1]], [0.1, 0.2, 0.3, 0.4], alpha=1.0)
