"""Threshold rules by name, and the bootstrap median."""

import functools

import numpy as np
import pytest

from excess import (
    THRESHOLD_METHODS,
    menon_threshold,
    significance_curve,
    significance_threshold,
    tune_threshold,
)
from excess._core.rng import bootstrap_weights, derive_key
from excess.stats import thresholds as tuning


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


def test_tolerance_takes_the_strictest_cut_near_the_best():
    rng = np.random.default_rng(6)
    for _ in range(200):
        y, score = rng.integers(0, 2, 80), rng.integers(0, 30, 80).astype(float)
        if len(np.unique(y)) == 1:
            continue
        curve = significance_curve(y, score, 0.8)
        best = curve.significance.max()
        assert significance_threshold(y, score, 0.8, tolerance=0) == curve.best_threshold
        near = [
            t
            for t, s in zip(curve.thresholds, curve.significance, strict=True)
            if s > 0 and s**2 >= best**2 - 1.5 - 1e-12
        ]
        assert significance_threshold(y, score, 0.8, tolerance=1.5) == (max(near) if near else np.inf)


def test_tolerance_costs_next_to_nothing_where_the_signal_is_strong():
    y, score = _events(np.random.default_rng(0), n=200_000)
    curve = significance_curve(y, score, 2 / 3)
    strict = significance_threshold(y, score, 2 / 3, tolerance=4)
    assert strict > curve.best_threshold
    assert curve.at(strict).significance > curve.best.significance - 0.1
    with pytest.raises(ValueError, match="tolerance must not be negative"):
        significance_threshold(y, score, 2 / 3, tolerance=-1)


@pytest.mark.parametrize(
    ("n_bootstrap", "error", "message"),
    [(-1, ValueError, "n_bootstrap must be at least 0, got -1"), (1.5, TypeError, "whole number, got 1.5")],
)
def test_bad_n_bootstrap(n_bootstrap, error, message):
    with pytest.raises(error, match=message):
        significance_threshold([0, 1], [0, 1], 1.0, n_bootstrap=n_bootstrap)


def test_rules_by_name_and_by_function():
    y, score = _events(np.random.default_rng(0))
    score = 1 / (1 + np.exp(-score))
    assert set(THRESHOLD_METHODS) == {"significance", "menon", "mithal", "yao", "default"}
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
    with pytest.raises(ValueError, match=r"method must be one of 'significance', 'menon'.*got 'meno'"):
        tune_threshold("meno", [0, 1], [0, 1], 1.0)
    with pytest.raises(ValueError, match="bootstrap resamples go with method 'significance' only, got 'mithal'"):
        tune_threshold("mithal", [0, 1], [0, 1], 1.0, n_bootstrap=3)


@pytest.mark.parametrize("labels", [("gamma", "hadron"), ("On", "off"), ("Crab", "proton")])
def test_labels_whose_order_would_swap_signal_and_background_are_refused(labels):
    with pytest.raises(ValueError, match=f"which would be '{labels[1]}' and not '{labels[0]}'"):
        significance_threshold(np.array(labels)[[0, 1, 0, 1]], [0.1, 0.2, 0.3, 0.4], alpha=1.0)
