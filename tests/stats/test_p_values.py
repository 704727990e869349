from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from excess.stats.p_values import holm, weighted_chi2_sf


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
