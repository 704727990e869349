"""Noise rates, injection and inversion."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from excess import alpha_from_p_minus, clean_counts, inject_label_noise, p_minus_from_alpha


@pytest.mark.parametrize(("alpha", "p_minus"), [(1.0, 0.5), (0.2, 1 / 6), (4.0, 0.8)])
def test_alpha_and_p_minus(alpha, p_minus):
    assert alpha_from_p_minus(p_minus) == pytest.approx(alpha)
    assert p_minus_from_alpha(alpha) == pytest.approx(p_minus)


@given(st.floats(1e-6, 1e6))
def test_alpha_and_p_minus_are_inverse(alpha):
    assert alpha_from_p_minus(p_minus_from_alpha(alpha)) == pytest.approx(alpha, rel=1e-9)


def test_arrays():
    np.testing.assert_allclose(p_minus_from_alpha([[1.0, 0.25]]), [[0.5, 0.2]])


@pytest.mark.parametrize("p_minus", [0, 1, -0.1, 1.1, math.nan, "half"])
def test_bad_p_minus(p_minus):
    with pytest.raises(ValueError, match="p_minus must"):
        alpha_from_p_minus(p_minus)


def test_bad_alpha():
    with pytest.raises(ValueError, match="alpha must be positive, got -1 at position 1"):
        p_minus_from_alpha([1, -1])


@pytest.mark.parametrize("classes", [(0, 1), (-1, 1), ("background", "signal"), (False, True)])
def test_injection_flips_each_class_at_its_rate(classes):
    y = np.repeat(np.array(classes), [40_000, 10_000])
    noisy = inject_label_noise(y, p_plus=0.1, p_minus=0.4, random_state=0)
    assert noisy.dtype == y.dtype
    flipped = noisy != y
    assert flipped[:40_000].mean() == pytest.approx(0.4, abs=4 * math.sqrt(0.24 / 40_000))
    assert flipped[40_000:].mean() == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / 10_000))


def test_injection_is_seeded_and_leaves_its_input_alone():
    y = np.arange(1000) % 2
    kept = y.copy()
    one = inject_label_noise(y, 0.3, 0.3, random_state=7)
    np.testing.assert_array_equal(y, kept)
    np.testing.assert_array_equal(one, inject_label_noise(list(y), 0.3, 0.3, random_state=7))
    assert (one != inject_label_noise(y, 0.3, 0.3, random_state=8)).any()


def test_no_noise_and_full_noise():
    y = np.array([0, 1, 0, 1])
    np.testing.assert_array_equal(inject_label_noise(y, 0.0, 0.0), y)
    np.testing.assert_array_equal(inject_label_noise(y, 1.0, 1.0), 1 - y)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], -0.1, 0.5), r"p_plus must be in \[0, 1\]"),
        (([0, 1], 0.1, 1.5), r"p_minus must be in \[0, 1\]"),
        (([0, 1, 2], 0.1, 0.5), "y must contain two classes, Off and On, got 3: 0, 1, 2"),
        (([1, 1], 0.1, 0.5), "y contains one class only"),
        (([], 0.1, 0.5), "y is empty"),
        (([0.0, math.nan], 0.1, 0.5), "y contains NaN"),
        (([[0, 1], [1, 0]], 0.1, 0.5), "y must be one-dimensional"),
        ((np.array(["a", 1], dtype=object), 0.1, 0.5), "y mixes labels"),
        ((np.array([0, 1, np.nan], dtype=object), 0.1, 0.5), "y contains NaN"),
        (([0, 1, np.inf], 0.1, 0.5), "y contains NaN or infinity"),
        (([0, 1], 0.1, 0.5, "seed"), "random_state must be an integer"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        inject_label_noise(*arguments)


@given(st.floats(0, 0.49), st.floats(0.01, 0.5), st.floats(0, 1e6), st.floats(0, 1e6))
def test_clean_counts_invert_the_mixture(p_plus, p_minus, n_signal, n_background):
    n_on = (1 - p_plus) * n_signal + p_minus * n_background
    n_off = p_plus * n_signal + (1 - p_minus) * n_background
    found = clean_counts(n_on, n_off, p_plus, p_minus)
    assert found == pytest.approx((n_signal, n_background), rel=1e-9, abs=1e-6)


def test_signal_is_proportional_to_the_excess_whatever_p_plus_is():
    n_on, n_off = np.array([30.0, 100.0]), np.array([20.0, 40.0])
    excess = n_on - alpha_from_p_minus(0.4) * n_off
    for p_plus in (0.0, 0.2, 0.5):
        n_signal, _ = clean_counts(n_on, n_off, p_plus, 0.4)
        np.testing.assert_allclose(n_signal / n_signal[0], excess / excess[0])


@pytest.mark.parametrize(
    ("n_on", "n_off", "message"),
    [
        (None, 1, "n_on must contain numbers, got None"),
        (-1, 1, "n_on must not be negative"),
        (1, np.nan, "n_off must be finite"),
        ([1, 2], [1, 2, 3], r"shapes do not broadcast: n_on \(2,\), n_off \(3,\)"),
    ],
)
def test_clean_counts_bad_input(n_on, n_off, message):
    with pytest.raises(ValueError, match=message):
        clean_counts(n_on, n_off, 0.1, 0.2)


def test_clean_counts_need_informative_labels():
    with pytest.raises(ValueError, match=r"p_plus \+ p_minus must be below 1"):
        clean_counts(10, 10, 0.5, 0.5)
