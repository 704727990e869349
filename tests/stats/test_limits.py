"""Limits: gammapy's WStat where ratios are equal, Li & Ma for predictions, and coverage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, norm

from excess import (
    hours_to_significance,
    li_ma_significance,
    n_on_for_significance,
    on_off_likelihood,
    sensitivity,
    signal_limits,
)
from excess.stats._likelihood import Nuisance, Signal, compare_with_constant
from studies import limit_coverage

COUNTS = [(20, 25, 0.2), (3, 40, 0.2), (618, 1108, 0.2), (5, 25, 0.2), (1, 40, 0.2), (100, 90, 1.0), (10, 0, 0.2)]


def events(n_on, n_off):
    return np.repeat([1, 0], [n_on, n_off]), np.ones(n_on + n_off)


@pytest.mark.parametrize(("n_on", "n_off", "alpha"), COUNTS)
def test_equal_ratios_are_wstat(n_on, n_off, alpha):
    stats = pytest.importorskip("gammapy.stats")
    wstat = stats.WStatCountsStatistic(n_on, n_off, alpha)
    y, ratio = events(n_on, n_off)
    for level in (0.9, 0.95, 0.99):
        found = signal_limits(y, ratio, alpha, confidence_level=level).n_signal
        assert found.upper == pytest.approx(float(wstat.compute_upper_limit(norm.ppf(level))), rel=1e-7)
        n_sigma = norm.ppf((1 + level) / 2)
        assert found.high - float(wstat.n_sig) == pytest.approx(float(wstat.compute_errp(n_sigma)), rel=1e-6)
        if n_on > 1 and n_off:
            assert float(wstat.n_sig) - found.low == pytest.approx(float(wstat.compute_errn(n_sigma)), rel=1e-6)


def test_the_unit_of_ratios_does_not_matter():
    rng = np.random.default_rng(0)
    y, ratio = rng.random(500) < 0.2, np.exp(rng.normal(size=500))
    one, other = (signal_limits(y, unit * ratio, 0.2, method="cls") for unit in (1.0, 1e3))
    assert other.n_signal == pytest.approx(one.n_signal, rel=1e-7)
    assert np.multiply(other.strength, 1e3) == pytest.approx(one.strength, rel=1e-7)


def test_intervals_are_those_of_the_likelihood():
    rng = np.random.default_rng(0)
    y, ratio = rng.random(500) < 0.2, np.exp(rng.normal(size=500))
    found, likelihood = signal_limits(y, ratio, 0.2, confidence_level=0.6827), on_off_likelihood(y, ratio, 0.2)
    assert found.strength[:2] == pytest.approx(likelihood.strength_interval, rel=1e-3)
    assert found.n_signal[:2] == pytest.approx(likelihood.n_signal_interval, rel=1e-3)


@pytest.mark.parametrize("method", ["profile", "cls"])
def test_the_limit_at_exact_balance_is_the_expected_one(method):
    y, ratio = events(20, 100)
    for found in signal_limits(y, ratio, 0.2, method=method):
        assert found.upper == pytest.approx(found.expected, rel=1e-7)
        assert found.expected_low < found.expected < found.expected_high


def test_cls_excludes_no_signal_that_cannot_be_seen():
    y, ratio = events(1, 60)
    assert signal_limits(y, ratio, 0.2).n_signal.upper < 0
    assert (
        2.9 < signal_limits(y, ratio, 0.2, method="cls").n_signal.upper < 3.5
    )  # 3.0 is the limit without any background
    strong = events(400, 500)
    profile, cls = (signal_limits(*strong, 0.2, method=method).n_signal.upper for method in ("profile", "cls"))
    assert cls == pytest.approx(profile, rel=1e-6)


def test_an_error_of_alpha_widens_limits():
    y, ratio = events(200, 1000)
    for method in ("profile", "cls"):
        plain, wide = (signal_limits(y, ratio, 0.2, method=method, alpha_error=one).n_signal for one in (None, 0.1))
        assert wide.upper > 1.3 * plain.upper
        assert wide.expected == pytest.approx(wide.upper, rel=1e-7)


def test_hours_grow_with_the_square_of_the_significance():
    y, ratio = events(40, 100)
    now = on_off_likelihood(y, ratio, 0.2).significance
    assert hours_to_significance(y, ratio, 0.2, 10) == pytest.approx(10 * (5 / now) ** 2)
    assert hours_to_significance(*events(10, 100), 0.2, 10) == np.inf
    hours = hours_to_significance(*events(400, 1000), 0.2, 10, significance=8, alpha_error=0.1)
    counts = np.array([400, 1000]) * hours / 10
    assert li_ma_significance(*counts, 0.2, alpha_error=0.1) == pytest.approx(8, rel=1e-5)
    assert hours_to_significance(y, ratio, 0.2, 10, alpha_error=0.5) == np.inf


@pytest.mark.parametrize("significance", [3.0, 5.0])
def test_sensitivity_of_equal_ratios_is_that_of_counts(significance):
    found = sensitivity(*events(20, 100), 0.2, hours=10, significance=significance)
    expected = n_on_for_significance(500, 0.2, significance) - 100
    assert found.n_signal == pytest.approx(expected, rel=1e-7)
    assert found.rate == pytest.approx(expected / 50)
    assert found.strength == pytest.approx(expected / 500)


def test_sensitivity_has_the_usual_conditions():
    few, many = events(1, 5), events(20_000, 100_000)
    assert sensitivity(*few, 0.2, hours=50, significance=1, min_signal=10).n_signal == pytest.approx(10)
    assert sensitivity(*many, 0.2, hours=50, min_signal_to_background=0.05).n_signal == pytest.approx(1000)
    with_error = sensitivity(*events(20, 100), 0.2, hours=10, alpha_error=0.1)
    assert with_error.n_signal > sensitivity(*events(20, 100), 0.2, hours=10).n_signal


def test_better_ratios_give_better_limits():
    rng = np.random.default_rng(3)
    x = rng.normal(size=3000)
    y, ratio = rng.random(3000) < 1 / 6, np.exp(2 * x - 2)
    sharp, flat = (signal_limits(y, one, 0.2).n_signal.expected for one in (ratio, np.ones(3000)))
    assert sharp < 0.6 * flat
    sharp, flat = (sensitivity(y, one, 0.2, hours=5).n_signal for one in (ratio, np.ones(3000)))
    assert sharp < 0.6 * flat


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"confidence_level": 1.0}, "confidence_level"),
        ({"confidence_level": 0.4}, "confidence_level"),
        ({"method": "bayes"}, "method"),
        ({"ratio": np.zeros(2)}, "ratio"),
        ({"alpha": -1}, "alpha"),
    ],
)
def test_bad_input_names_the_argument(arguments, message):
    given = {"y": [1, 0], "ratio": np.ones(2), "alpha": 0.2, **arguments}
    with pytest.raises(ValueError, match=message):
        signal_limits(**given)


@pytest.mark.parametrize("timed", [True, False])
def test_a_steady_source_has_uniform_probabilities(timed):
    """Poisson counts in six nights of different length."""
    rng = np.random.default_rng(5)
    hours = np.linspace(1, 3, 6)
    p_values = []
    for number in range(200):
        rates = np.where((number == 199) & (np.arange(6) == 3), 30, 4)
        counts = zip(rng.poisson((3 + rates) * hours), rng.poisson(15 * hours), strict=True)
        signals = [Signal(*(np.asarray(one) for one in events(*two)), 0.2) for two in counts]
        p_values.append(compare_with_constant(signals, hours if timed else None).p_value)
    assert kstest(p_values[:-1], "uniform").pvalue > 0.01
    assert p_values[-1] < 1e-5


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 40, 200]), st.sampled_from([0.0, 1.0, 10.0]), st.integers(0, 2)
)
def test_any_events_have_limits(seed, n, spread, n_errors):
    """Without On events, without Off events, with ratios that are badly wrong, and with large errors of alpha."""
    rng = np.random.default_rng(seed)
    on = rng.random(n) < rng.choice([0.0, 0.05, 0.5, 1.0])
    ratio = np.exp(rng.normal(scale=spread, size=n)) * np.append(True, rng.random(n - 1) < 0.8)
    nuisance = Nuisance(rng.choice([0.01, 0.1, 1.0], n_errors), rng.integers(0, n_errors, n)) if n_errors else None
    signal = Signal(on, ratio, rng.choice([0.05, 0.2, 5.0], n), nuisance)
    for method in ("profile", "cls"):
        for found in signal.limits(0.95, method):
            assert not np.isnan(found).any()
            assert found.expected_low <= found.expected <= found.expected_high
            assert method == "profile" or found.upper >= 0
    assert not np.isnan([signal.hours_to(10.0), *signal.sensitivity(10.0)]).any()
    for hours in (None, np.array([1.0, 2.0])):
        found = compare_with_constant([signal, signal], hours)
        assert found.chi_squared >= 0
        assert 0 <= found.p_value <= 1


@pytest.mark.campaign
@pytest.mark.parametrize("alpha_error", [None, 0.1])
def test_coverage(alpha_error):
    """Intervals and limits by profile likelihood have their level to 2 %; limits by CLs have at least it."""
    for name, level, share in limit_coverage.measure_coverage(1000, alpha_error, seed=1):
        assert share >= level - 0.02, (name, level, share)
        assert share <= level + 0.02 or "cls" in name, (name, level, share)
