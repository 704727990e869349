"""The fit of a smooth density to Off intervals, and global significances of scans."""

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter1d
from scipy.stats import norm

from excess import fit_sidebands
from excess._utils.errors import ArgumentError
from excess.stats._sideband import correct_for_trials, global_significance

ON, OFF = [(1.0, 1.5)], [(0.5, 1.0), (1.5, 2.5)]


def exact(low, high):
    """Integral of exp(-x)."""
    return np.exp(-low) - np.exp(-high)


TRUE = exact(1.0, 1.5) / (exact(0.5, 1.0) + exact(1.5, 2.5))


def test_a_uniform_density_has_the_ratio_of_the_widths():
    fit = fit_sidebands(np.arange(0, 3, 0.0005) + 1e-9, ON, OFF)
    assert (fit.degree, fit.goodness > 0.99) == (1, True)
    assert fit.alpha == pytest.approx(0.5 / 1.5, rel=1e-3)
    np.testing.assert_allclose(fit.shares, [1.0, 2.0], rtol=1e-3)


def test_an_exponential_density_is_found_with_its_error():
    rng = np.random.default_rng(11)
    fits = [fit_sidebands(rng.exponential(size=3_000), ON, OFF, check=False) for _ in range(60)]
    alpha, error = (np.array([getattr(fit, name) for fit in fits]) for name in ("alpha", "alpha_error"))
    assert abs(np.median(alpha) / TRUE - 1) < 0.005
    pulls = (alpha / TRUE - 1) / error
    assert np.mean(np.abs(pulls) < 2) > 0.9
    assert np.std(alpha / TRUE) / np.median(error) > 0.2  # nor far too large


def test_a_curved_density_needs_a_higher_degree():
    values = np.random.default_rng(2).normal(1.25, 0.5, 50_000)
    fit = fit_sidebands(values, ON, OFF)
    expected = np.diff(norm.cdf([1.0, 1.5], 1.25, 0.5))[0]
    expected /= np.diff(norm.cdf([0.5, 1.0], 1.25, 0.5))[0] + np.diff(norm.cdf([1.5, 2.5], 1.25, 0.5))[0]
    assert fit.degree >= 2
    assert fit.alpha == pytest.approx(expected, rel=4 * fit.alpha_error)


def test_values_are_drawn_from_the_density():
    fit = fit_sidebands(np.random.default_rng(3).exponential(size=40_000), ON, OFF)
    drawn = fit.sample(40_000, 0.5, 2.5, np.random.default_rng(4))
    assert np.mean(drawn < 1.0) == pytest.approx(exact(0.5, 1.0) / exact(0.5, 2.5), abs=0.01)


def test_a_peak_or_an_empty_interval_is_an_error():
    rng = np.random.default_rng(5)
    values = np.append(rng.uniform(0.5, 2.5, 4_000), rng.normal(2.0, 0.01, 400))
    with pytest.raises(ArgumentError, match="not described by a smooth density") as error:
        fit_sidebands(values, ON, OFF)
    assert error.value.argument == "off"
    assert fit_sidebands(values, ON, OFF, check=False).goodness < 0.001
    with pytest.raises(ArgumentError, match="no events between 3 and 4"):
        fit_sidebands(values, ON, [*OFF, (3.0, 4.0)])


@pytest.mark.parametrize(("local", "n"), [(1.0, 1), (2.0, 7), (3.5, 40), (4.9, 3), (8.0, 10), (30.0, 100)])
def test_trials(local, n):
    after = correct_for_trials(local, n)
    expected = 1 - (1 - norm.sf(local)) ** n if local < 5 else n * norm.sf(local)
    assert norm.logsf(after) == pytest.approx(np.log(expected), rel=1e-6)


def test_global_significance_of_independent_positions():
    rng = np.random.default_rng(6)
    toys = rng.normal(size=(4_000, 20))
    for best in (2.0, 3.0):
        local = np.append(best, np.full(19, -1.0))
        truth = 1 - norm.cdf(best) ** 20
        found = global_significance(local, toys)
        assert found.toys == pytest.approx(truth, abs=4 * np.sqrt(truth / 4_000))
        assert found.p_value == pytest.approx(found.toys)
        unordered = global_significance(local, toys, ordered=False)
        assert unordered.upcrossings == pytest.approx(truth, rel=0.1)
    far = global_significance(np.append(9.0, np.zeros(19)), toys)
    assert far.toys == pytest.approx(1 / 4_001)
    assert far.p_value == far.upcrossings < 1e-16
    assert 8.0 < far.significance < 9.0
    assert 5 < far.trials < 200


def test_upcrossings_of_a_smooth_curve():
    smooth = gaussian_filter1d(np.random.default_rng(8).normal(size=(20_000, 100)), 4.0, mode="wrap")
    toys = smooth / smooth.std()
    for best in (2.5, 3.0):
        found = global_significance(np.append(best, np.zeros(99)), toys)
        assert found.upcrossings == pytest.approx(found.toys, rel=0.25)


def test_toys_that_exceed_the_normal_law_make_the_extrapolation_careful():
    toys = gaussian_filter1d(np.random.default_rng(9).normal(size=(500, 60)), 3.0, mode="wrap")
    toys = toys / toys.std() + np.linspace(0, 6, 60)
    usual = global_significance(np.append(12.0, np.zeros(59)), toys - np.linspace(0, 6, 60))
    found = global_significance(np.append(12.0, np.zeros(59)), toys)
    assert usual.significance > 11
    assert 5 < found.significance < 8
