from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import anderson_ksamp, chi2

from excess.stats._significance import difference_p_value, holm, weighted_chi2_sf


def paired_sf(value: float, weights: list[float]) -> float:
    """Return the exact probability for weights that all come twice: a sum of exponential variables."""
    given = np.array(weights)
    factors = [np.prod([one / (one - other) for other in given if other != one]) for one in given]
    return float(np.sum(factors * np.exp(-value / (2 * given))))


@pytest.mark.parametrize("weights", [[1.0, 0.5], [3.0, 1.0, 0.2], [1.0, 0.9, 0.05, 0.01]])
def test_sum_of_pairs_agrees_with_the_closed_form(weights):
    mean = 2 * sum(weights)
    for value in np.array([0.05, 0.3, 0.9, 1.0, 1.1, 2, 5, 10, 30]) * mean:
        assert weighted_chi2_sf(value, np.repeat(weights, 2)) == pytest.approx(paired_sf(value, weights), rel=0.08)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_equal_weights_are_exact(n):
    for value in (0.1, 1.0, 20.0, 300.0):
        assert weighted_chi2_sf(3 * value, np.full(n, 3.0)) == pytest.approx(chi2.sf(value, n), rel=1e-12)


def test_one_dominant_weight_is_almost_chi_squared():
    for value in (0.5, 3.0, 15.0, 100.0):
        assert weighted_chi2_sf(value, [1.0, 1e-6]) == pytest.approx(chi2.sf(value, 1), rel=0.15)
        assert weighted_chi2_sf(value, [1.0, 1e-13, -1e-17]) == pytest.approx(chi2.sf(value, 1), rel=1e-9)


def test_probability_falls_from_one_to_zero():
    values = np.geomspace(1e-6, 1e5, 200)
    weights = 1 / np.arange(1, 20) ** 2
    found = np.array([weighted_chi2_sf(value, weights) for value in values])
    assert (np.diff(found) <= 1e-3).all()
    assert found[0] == pytest.approx(1)
    assert found[-1] == 0
    assert weighted_chi2_sf(0.0, weights) == weighted_chi2_sf(-1.0, weights) == 1


def test_holm_multiplies_by_the_number_of_tests_that_are_left():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.9]), [0.04, 0.09, 0.09, 0.9])
    assert holm([]).shape == (0,)


def cumulated_differences(x, y, n_cuts=19):
    """Return differences of two cumulated distributions, and their covariance where both are the same."""
    cuts = np.quantile(np.concatenate([x, y]), np.arange(1, n_cuts + 1) / (n_cuts + 1))
    below = np.searchsorted(np.sort(x), cuts) / len(x) - np.searchsorted(np.sort(y), cuts) / len(y)
    share = np.arange(1, n_cuts + 1) / (n_cuts + 1)
    covariance = np.minimum.outer(share, share) - np.outer(share, share)
    return below, covariance * (1 / len(x) + 1 / len(y))


def test_squared_differences_are_the_test_of_anderson_and_darling():
    rng = np.random.default_rng(2)
    ratios = []
    for _ in range(40):
        x, y = rng.normal(size=2000), rng.normal(0.05, size=3000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scipy knows p-values between 0.001 and 0.25 only, and says so
            expected = float(anderson_ksamp([x, y]).pvalue)
        if 0.001 < expected < 0.25:
            ratios.append(difference_p_value(*cumulated_differences(x, y), exponent=1.0) / expected)
    assert len(ratios) > 15
    # single values differ, because scipy's test has a cut at every event, here there are 19
    assert np.exp(np.mean(np.log(ratios))) == pytest.approx(1, abs=0.15)
    assert np.abs(np.log(ratios)).max() < np.log(3)


def test_exponent_zero_is_chi_squared():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(5, 5))
    covariance, difference = root @ root.T, rng.normal(size=5)
    value = difference @ np.linalg.solve(covariance, difference)
    assert difference_p_value(difference, covariance, exponent=0.0) == pytest.approx(chi2.sf(value, 5))


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_differences_by_chance_have_uniform_p_values(exponent):
    rng = np.random.default_rng(4)
    root = np.tri(8) * rng.uniform(0.5, 2, 8)
    p = [difference_p_value(root @ rng.normal(size=8), root @ root.T, exponent) for _ in range(4000)]
    for level in (0.01, 0.1, 0.5):
        assert np.mean(np.array(p) < level) == pytest.approx(level, abs=4 * np.sqrt(level / 4000))


def test_differences_without_a_variance_are_left_out():
    covariance = np.diag([1.0, 0.0])
    assert difference_p_value(np.array([2.0, 5.0]), covariance) == pytest.approx(chi2.sf(4.0, 1))
    assert difference_p_value(np.array([2.0, 5.0]), np.zeros((2, 2))) == 1
