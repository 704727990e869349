"""Exact sums of floating-point numbers."""

from fractions import Fraction

import numpy as np
import pytest

from excess._utils.checks import exact_sum


@pytest.mark.parametrize(
    "values",
    [
        [],
        [0.0],
        [0.1] * 10,
        [1e16, 1.0, -1e16, 2.0**-1074],
        [-0.3, 1.7e308, 5e-324, -2.0, 1.7e308],
        np.random.default_rng(0).lognormal(0, 4, 1000).tolist(),
    ],
)
def test_sums_are_those_of_fractions(values):
    expected = sum(map(Fraction, values), Fraction(0))
    array = np.array(values)
    assert exact_sum(array) == expected
    assert exact_sum(array[::-1]) == exact_sum(array[:3]) + exact_sum(array[3:]) == expected


def test_many_large_mantissas_do_not_overflow():
    value = np.nextafter(2.0, 1.0)
    assert exact_sum(np.full(100_000, value)) == 100_000 * Fraction(value)
