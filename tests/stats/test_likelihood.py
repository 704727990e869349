"""The On/Off likelihood: Li & Ma where all ratios are equal, brute force elsewhere, and its answers to bad input."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from excess import OnOffCounts, OnOffLikelihood, li_ma_significance, on_off_likelihood
from excess.stats import _likelihood as module


def log_likelihood(strength, on, ratio, alpha):
    """Return the formula of the docs, as it stands."""
    odds = strength * ratio + alpha
    with np.errstate(divide="ignore"):
        return np.log(odds[on]).sum() - np.log1p(odds).sum()


def draw_events(rng, n, strength=0.05, alpha=0.2, spread=1.0):
    """Return labels and ratios as the model of the likelihood has them."""
    ratio = np.exp(rng.normal(scale=spread, size=n))
    odds = strength * ratio + alpha
    return rng.random(n) < odds / (1 + odds), ratio


@pytest.mark.parametrize(
    ("n_on", "n_off", "expected"),
    [(20, 25, 4.354298), (10, 0, 5.98625), (3, 40, -1.890794), (618, 1108, 19.155535), (0, 0, 0.0), (5, 25, 0.0)],
)
def test_contract(n_on, n_off, expected):
    y = np.repeat([1, 0], [n_on, n_off])
    assert on_off_likelihood(y, np.ones(len(y)), 0.2).significance == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_equal_ratios_are_li_and_ma():
    """3,000 random counts, with zeros, deficits and exact balance among them."""
    rng = np.random.default_rng(1)
    kinds = set()
    for number in range(3_000):
        alpha = float(rng.choice([0.2, 1 / 49, 1.0, 0.1, 3.7, 1e-3]))
        n_on, n_off = (int(rng.choice([0, 1, rng.integers(50), rng.integers(3000)])) for _ in range(2))
        if number % 7 == 0 and n_on / alpha < 1e5:
            n_off = round(n_on / alpha)
        expected = OnOffCounts(n_on, n_off, alpha)
        ratio = np.append(np.full(n_on + n_off, rng.choice([1e-8, 1.0, 3e7])), np.zeros(3))
        found = on_off_likelihood(np.append(np.repeat([1, 0], [n_on, n_off]), [0, 1, 0]), ratio, alpha)
        assert found.significance == pytest.approx(expected.significance, rel=1e-10, abs=1e-12), (n_on, n_off, alpha)
        assert found.n_signal == pytest.approx(expected.excess, rel=1e-9, abs=1e-9)
        if min(n_on, n_off) > 100:  # an interval of few counts is not symmetric
            assert found.n_signal_error == pytest.approx(expected.excess_error, rel=0.01)
        if n_on and n_off:
            assert found.strength * ratio[0] == pytest.approx(n_on / n_off - alpha, rel=1e-9, abs=1e-12)
        kinds.add((n_on == 0, n_off == 0, np.sign(expected.significance)))
    assert len(kinds) == 6  # nothing at all, only On, only Off, and both in excess, in deficit and in balance


@pytest.mark.parametrize("factor", [1e-12, 0.3, 7.0, 1e9])
def test_a_common_factor_changes_nothing_but_the_unit(factor):
    on, ratio = draw_events(np.random.default_rng(0), 5000)
    found, scaled = (on_off_likelihood(on, c * ratio, 0.2) for c in (1.0, factor))
    assert scaled.significance == pytest.approx(found.significance, rel=1e-10)
    assert scaled.strength * factor == pytest.approx(found.strength, rel=1e-10)
    np.testing.assert_allclose(np.multiply(scaled.strength_interval, factor), found.strength_interval, rtol=1e-7)
    assert scaled.n_signal == pytest.approx(found.n_signal, rel=1e-10)


def test_equal_alphas_of_events_are_one_alpha():
    on, ratio = draw_events(np.random.default_rng(0), 3000)
    assert on_off_likelihood(on, ratio, np.full(3000, 0.2)) == on_off_likelihood(on, ratio, 0.2)


@pytest.mark.parametrize("n_alphas", [1, 3, 400])
def test_the_order_of_events_does_not_matter(n_alphas):
    rng = np.random.default_rng(0)
    on, ratio = draw_events(rng, 3000)
    ratio = ratio.round(1)
    alpha = rng.choice(np.linspace(0.1, 0.4, n_alphas), 3000)
    order = rng.permutation(3000)
    assert on_off_likelihood(on[order], ratio[order], alpha[order]) == on_off_likelihood(on, ratio, alpha)


def test_many_different_alphas_are_as_few(monkeypatch):
    rng = np.random.default_rng(0)
    on, ratio = draw_events(rng, 3000)
    alpha = rng.choice([0.1, 0.2, 0.3], 3000)
    apart = on_off_likelihood(on, ratio, alpha)
    monkeypatch.setattr(module, "_MAX_SORTED_APART", 0)
    assert on_off_likelihood(on, ratio, alpha) == apart


@pytest.mark.parametrize("seed", range(30))
def test_no_strength_is_better(seed):
    """The maximum is not below any value on a fine grid, whatever the ratios; the interval ends 1/2 below it."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 60))
    on = rng.random(n) < rng.choice([0.1, 0.3, 0.8])
    ratio = np.exp(rng.normal(scale=rng.choice([0.1, 1.0, 4.0]), size=n)) * (rng.random(n) < 0.9)
    alpha = rng.choice([0.05, 0.2, 1.5], n) if seed % 2 else np.full(n, 0.3)
    found = on_off_likelihood(on, ratio, alpha)
    some = ratio > 0
    lowest = -(alpha[some] / ratio[some]).min()
    scale = np.concatenate([[0.0], np.geomspace(1e-9, 1e12, 4000)]) / np.median(ratio[some])
    grid = np.concatenate([lowest * (1 - np.geomspace(1e-9, 1.0, 2000)), scale])
    values = np.array([log_likelihood(strength, on, ratio, alpha) for strength in grid])
    best = values.max() - log_likelihood(0.0, on, ratio, alpha)
    assert found.significance**2 / 2 >= best - 1e-9
    if math.isfinite(found.strength):
        own = log_likelihood(found.strength, on, ratio, alpha) - log_likelihood(0.0, on, ratio, alpha)
        assert found.significance**2 / 2 == pytest.approx(own, rel=1e-7, abs=1e-9)
        for bound in found.strength_interval:
            if math.isfinite(bound) and bound > lowest * (1 - 1e-12):
                below = log_likelihood(bound, on, ratio, alpha) - log_likelihood(found.strength, on, ratio, alpha)
                assert below == pytest.approx(-0.5, abs=1e-6)
    assert found.strength_interval[0] <= found.strength <= found.strength_interval[1]


@pytest.mark.parametrize(("n_pure", "farther"), [(20, False), (300, True)])
def test_the_larger_of_two_maxima_is_found(n_pure, farther):
    """Where the ratios are badly wrong, the likelihood is not concave: here it has two maxima above 0."""
    counts = [3, 6, n_pure, n_pure // 3]
    on, ratio = np.repeat([True, False, True, False], counts), np.repeat([1.0, 1.0, 1e-4, 1e-4], counts)
    alpha = np.full(len(on), 0.2)
    grid = np.geomspace(1e-3, 1e6, 2000)
    values = np.array([log_likelihood(strength, on, ratio, alpha) for strength in grid])
    tops = np.flatnonzero((values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])) + 1
    assert len(tops) == 2
    found = on_off_likelihood(on, ratio, alpha)
    assert found.strength == pytest.approx(grid[values.argmax()], rel=0.02)
    assert (values[tops[1]] > values[tops[0]]) == (found.strength > 1000) == farther


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(1e-9, 1e9), st.integers(0, 40), st.sampled_from([1.0, 30.0, 300.0]))
def test_never_nan(seed, alpha, n, spread):
    rng = np.random.default_rng(seed)
    on = rng.integers(0, 2, n)
    ratio = np.exp(np.clip(rng.normal(scale=spread, size=n), -690, 690)) * rng.integers(0, 2, n)
    numbers = list(on_off_likelihood(on, ratio, alpha).summary().values())
    assert not np.isnan(numbers).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 0], [1.0, -2.0], 0.2), "ratio must not be negative, got -2 at position 1"),
        (([1, 0], [1.0, math.nan], 0.2), "ratio must be finite"),
        (([1, 0], [math.inf, 1.0], 0.2), "ratio must be finite"),
        (([1, 0], ["a", "b"], 0.2), "ratio must contain numbers"),
        (([1, 0], [1.0, 2.0, 3.0], 0.2), r"len\(y\) = 2, len\(ratio\) = 3"),
        (([1, 0], [1.0, 2.0], [0.2, 0.2, 0.2]), r"len\(y\) = 2, len\(alpha\) = 3"),
        (([1, 0], [1.0, 2.0], 0.0), "alpha must be positive"),
        (([1, 0], [1.0, 2.0], [0.2, math.nan]), "alpha must be finite"),
        (([1, 0, 2], [1.0, 2.0, 3.0], 0.2), "y "),
        (([7, 7], [1.0, 2.0], 0.2), "y must contain two classes, or only 0"),
        (([1, math.nan], [1.0, 2.0], 0.2), "y contains NaN"),
    ],
)
def test_bad_input_names_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        on_off_likelihood(*arguments)


def test_labels_of_any_two_classes():
    on, ratio = draw_events(np.random.default_rng(0), 500)
    expected = on_off_likelihood(on, ratio, 0.2)
    assert on_off_likelihood(np.where(on, "on", "off"), ratio, 0.2) == expected
    assert on_off_likelihood(on.astype(float), ratio.tolist(), 0.2) == expected
    assert on_off_likelihood([], [], 0.2).significance == 0.0
    assert on_off_likelihood([1, 1], [1.0, 2.0], 0.2).strength == math.inf
    assert on_off_likelihood([0, 0], [1.0, 2.0], 0.2).significance < 0


def test_without_any_ratio_nothing_is_known():
    found = on_off_likelihood([1, 0, 1], np.zeros(3), 0.2)
    assert found == OnOffLikelihood(0.0, 0.0, (-math.inf, math.inf), 0.0, 0.0)
    assert found.p_value == 0.5


def test_many_ratios_are_exact(monkeypatch):
    """Coarse cells only start the search: the maximum is that of all events."""
    rng = np.random.default_rng(3)
    on, ratio = draw_events(rng, 20_000)
    alpha = rng.choice([0.1, 0.3], 20_000)
    for exposure in (0.2, alpha):
        quick = on_off_likelihood(on, ratio, exposure)
        monkeypatch.setattr(module, "_MAX_FINE", 10**9)
        exact = on_off_likelihood(on, ratio, exposure)
        monkeypatch.undo()
        assert quick.significance == pytest.approx(exact.significance, rel=1e-11)
        assert quick.strength == pytest.approx(exact.strength, rel=1e-11)
        width = exact.strength_interval[1] - exact.strength_interval[0]
        np.testing.assert_allclose(quick.strength_interval, exact.strength_interval, atol=1e-4 * width)


def test_the_border_of_few_cells_is_that_of_all():
    """An On event that bounds the strength must not be averaged away among many others."""
    ratio = np.concatenate([[1.0], np.linspace(0.5, 0.99, 20_000), [0.9901]])
    alpha = np.concatenate([[1.0], np.full(20_001, 0.1)])
    on = np.arange(20_002) == 20_001
    found = on_off_likelihood(on, ratio, alpha)
    assert found.significance < -50
    assert found.strength_interval[0] < found.strength < found.strength_interval[1]


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(400):
        on, ratio = draw_events(rng, 800, strength=0.1)
        low, high = on_off_likelihood(on, ratio, 0.2).strength_interval
        covered += low <= 0.1 <= high
    assert 0.683 - 0.07 < covered / 400 < 0.683 + 0.07


def test_the_number_of_signal_events_and_its_error():
    """Over many observations, with Poisson numbers of events, the estimate is right and scatters by its error."""
    rng = np.random.default_rng(6)
    pulls, numbers = [], []
    for _ in range(300):
        background = np.exp(rng.normal(size=rng.poisson(2000)))
        # signal has the density of the background times the ratio: the same spread, with a mean of 1 for a spread of 1
        signal = np.exp(rng.normal(loc=1.0, size=rng.poisson(100)))
        ratio = np.concatenate([background, signal]) / math.exp(0.5)
        on = np.concatenate([rng.random(len(background)) < 1 / 6, np.ones(len(signal), dtype=bool)])
        found = on_off_likelihood(on, ratio, 0.2)
        numbers.append(found.n_signal)
        pulls.append((found.n_signal - 100) / found.n_signal_error)
    assert np.mean(numbers) == pytest.approx(100, abs=3 * np.std(numbers) / 300**0.5)
    assert 0.85 < np.std(pulls) < 1.15


@pytest.mark.slow
def test_exposure_ratios_of_runs():
    """Runs with alphas of 0.1 and 0.3: each event with its own gives the true strength, one mean alpha does not."""
    rng = np.random.default_rng(7)
    own, one = [], []
    for _ in range(200):
        alpha = np.repeat([0.1, 0.3], 2000)
        # the run of small alpha was in a better night: more of its events are like signal
        ratio = np.exp(rng.normal(loc=np.repeat([0.5, -0.5], 2000)))
        odds = 0.05 * ratio + alpha
        on = rng.random(4000) < odds / (1 + odds)
        mean = alpha[~on].mean()
        own.append(on_off_likelihood(on, ratio, alpha).strength)
        one.append(on_off_likelihood(on, ratio, mean).strength)
    error = np.std(own) / 200**0.5
    assert abs(np.mean(own) - 0.05) < 3 * error
    assert abs(np.mean(one) - 0.05) > 10 * error


def test_numbers_survive_a_file():
    for y in ([1, 0, 1, 0], [1, 1, 1, 1]):
        found = on_off_likelihood(y, [1.0, 2.0, 3.0, 0.5], 0.2)
        assert OnOffLikelihood.from_summary({key: str(value) for key, value in found.summary().items()}) == found


@pytest.mark.campaign  # a comparison of times
def test_a_million_events_take_no_longer_than_three_sorts():
    rng = np.random.default_rng(0)
    on, ratio = draw_events(rng, 1_000_000)
    score = rng.random(1_000_000)
    on_off_likelihood(on, ratio, 0.2)
    sorting, computing = [], []
    for _ in range(7):
        start = time.process_time()
        np.argsort(score, kind="stable")  # the same algorithm on every processor
        middle = time.process_time()
        on_off_likelihood(on, ratio, 0.2)
        sorting.append(middle - start)
        computing.append(time.process_time() - middle)
    assert min(computing) < 3 * min(sorting)


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.3])
def test_equal_ratios_with_an_error_of_alpha_are_counts(delta):
    """Vianello (2018), on his side by a root of a cubic polynomial, here by the profile likelihood."""
    rng = np.random.default_rng(2)
    for _ in range(100):
        alpha = float(rng.choice([0.2, 1 / 49, 1.0, 3.7]))
        n_on, n_off = (int(rng.choice([0, 1, rng.integers(50), rng.integers(1, 3000)])) for _ in range(2))
        expected = li_ma_significance(n_on, n_off, alpha, signed=True, alpha_error=delta)
        y = np.repeat([1, 0], [n_on, n_off])
        found = on_off_likelihood(y, np.ones(len(y)), alpha, alpha_error=delta)
        assert found.significance == pytest.approx(expected, rel=1e-5, abs=1e-5), (n_on, n_off, alpha)
        assert abs(found.significance) <= abs(li_ma_significance(n_on, n_off, alpha, signed=True)) + 1e-5


@pytest.mark.parametrize("several", [False, True])
def test_an_error_of_alpha_is_a_nuisance_parameter(several):
    """The formula of the docs, maximised by an optimiser over strength and factors of alpha; ratio 0 counts as well."""
    rng = np.random.default_rng(4)
    on, ratio = draw_events(rng, 400, strength=0.1)
    ratio[:50] = 0
    groups = np.arange(400) % 3
    number, errors = (groups, {0: 0.1, 1: 0.2, 2: 0.0}) if several else (np.zeros(400, int), 0.1)
    deltas = np.array(list(errors.values()) if several else [errors])

    def negative(parameters, signal):
        factors = 1 + deltas * parameters[1:]
        odds = signal * parameters[0] * ratio + 0.2 * factors[number]
        return -(np.log(odds[on]).sum() - np.log1p(odds).sum() - (parameters[1:] ** 2).sum() / 2)

    start = np.concatenate([[0.1], np.zeros(len(deltas))])
    best, null = (minimize(negative, start, args=(signal,), method="BFGS", tol=1e-9).fun for signal in (1.0, 0.0))
    found = on_off_likelihood(on, ratio, 0.2, alpha_error=errors, groups=groups)
    assert found.significance == pytest.approx(math.sqrt(2 * (null - best)), rel=1e-6)
    assert found == on_off_likelihood(on[::-1], ratio[::-1], 0.2, alpha_error=errors, groups=groups[::-1])
    low, high = found.strength_interval
    for bound in (low, high):
        rest = minimize(lambda eta, at: negative(np.array([at, *eta]), 1.0), start[1:], (bound,), "BFGS", tol=1e-9).fun
        assert rest - best == pytest.approx(0.5, abs=1e-5)


def test_no_error_of_alpha_is_the_same_likelihood():
    on, ratio = draw_events(np.random.default_rng(0), 3000)
    plain = on_off_likelihood(on, ratio, 0.2)
    groups = np.arange(3000) % 2
    assert on_off_likelihood(on, ratio, 0.2, alpha_error=0.0) == plain
    assert on_off_likelihood(on, ratio, 0.2, alpha_error={0: 0.0, 1: 0.0}, groups=groups) == plain
    tiny = on_off_likelihood(on, ratio, 0.2, alpha_error=1e-7)
    assert tiny.significance == pytest.approx(plain.significance, rel=1e-6)
    assert tiny.n_signal_interval == pytest.approx(plain.n_signal_interval, rel=1e-5)


def false_alarms(n_data_sets):
    """Search in a million background events whose alpha is 5 % larger than given: with and without its error."""
    rng = np.random.default_rng(6)
    for _ in range(n_data_sets):
        ratio = np.exp(rng.normal(size=1_000_000)).round(2)
        on = rng.random(1_000_000) < 0.21 / 1.21
        n_on = int(on.sum())
        for error in (None, 0.05):
            counted = li_ma_significance(n_on, 1_000_000 - n_on, 0.2, alpha_error=error)
            yield error, counted, on_off_likelihood(on, ratio, 0.2, alpha_error=error).significance


@pytest.mark.parametrize("n_data_sets", [2, pytest.param(200, marks=pytest.mark.campaign)])
def test_a_wrong_alpha_within_its_error_is_no_source(n_data_sets):
    found = list(false_alarms(n_data_sets))
    assert all(max(abs(counted), abs(learned)) < 5 for error, counted, learned in found if error)
    assert all(counted > 15 and learned > 7 for error, counted, learned in found if not error)


@pytest.mark.parametrize(
    ("error", "groups", "message"),
    [
        (-0.1, None, "alpha_error must not be negative"),
        (math.nan, None, "alpha_error must be finite"),
        ({"a": 0.1}, None, "alpha_error by group requires groups"),
        ({"a": 0.1}, ["a", "b"], "alpha_error has no value for the groups b"),
        ({"a": 0.1}, ["a"], "groups must have one entry per event"),
    ],
)
def test_a_bad_error_of_alpha_names_the_argument(error, groups, message):
    with pytest.raises(ValueError, match=message):
        on_off_likelihood([1, 0], [1.0, 2.0], 0.2, alpha_error=error, groups=groups)


@pytest.mark.slow
def test_the_error_of_signal_events_is_their_scatter_without_a_source():
    rng = np.random.default_rng(8)
    found = []
    for _ in range(400):
        ratio = np.exp(rng.normal(scale=1.5, size=2000))
        found.append(on_off_likelihood(rng.random(2000) < 1 / 6, ratio, 0.2))
    n_signal, errors = (np.array([getattr(one, name) for one in found]) for name in ("n_signal", "n_signal_error"))
    below = n_signal <= 0
    assert 100 < below.sum() < 300
    assert np.median(errors[below]) == pytest.approx(n_signal.std(), rel=0.25)
