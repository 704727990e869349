"""Threshold rules by name, and the bootstrap median."""

import functools

import numpy as np
import pytest

from excess import menon_threshold, significance_curve, significance_threshold
from excess.threshold import THRESHOLD_METHODS, tune_threshold


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
    for seed in range(20):
        n = 40
        y = rng.integers(0, 2, n)
        score = rng.integers(0, 15, n).astype(float)
        state = np.random.RandomState(seed)
        best = []
        for _ in range(9):
            rows = np.sort(state.randint(0, n, n))  # as positions among the sorted scores
            order = np.argsort(score)[rows]
            if len(np.unique(y[order])) == 1:
                break
            best.append(significance_curve(y[order], score[order], 1.0).best_threshold)
        else:
            curve = significance_curve(y, score, 1.0)
            naive = curve.thresholds[curve.index_of(np.sort(best)[4])]
            assert significance_threshold(y, score, 1.0, n_bootstrap=9, random_state=seed) == naive


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
    for name, rule in THRESHOLD_METHODS.items():
        assert tune_threshold(name, y, score, 2 / 3) == rule(y, score, 2 / 3)
    accuracy = functools.partial(menon_threshold, metric="accuracy")
    assert tune_threshold(accuracy, y, score, 2 / 3) == menon_threshold(y, score, 2 / 3, metric="accuracy")


def test_bad_method():
    with pytest.raises(ValueError, match=r"method must be one of 'significance', 'menon'.*got 'meno'"):
        tune_threshold("meno", [0, 1], [0, 1], 1.0)
    with pytest.raises(ValueError, match="n_bootstrap goes with method 'significance' only, got 'mithal'"):
        tune_threshold("mithal", [0, 1], [0, 1], 1.0, n_bootstrap=3)
