"""The curve over all cuts, against brute force."""

import numpy as np
import pytest

from excess import li_ma_significance, significance_curve
from excess.stats._thresholds import count_cells


def brute_force(on, score, alpha):
    """Counts and significance for every cut that selects another set of events, from all to none."""
    cuts = np.append(np.unique(score), np.inf)
    n_on = np.array([(on & (score >= cut)).sum() for cut in cuts])
    n_off = np.array([(~on & (score >= cut)).sum() for cut in cuts])
    return cuts, n_on, n_off, li_ma_significance(n_on, n_off, alpha)


def random_case(rng):
    """A few events with heavy ties, few ties or none."""
    n = int(rng.integers(2, 40))
    on = rng.random(n) < rng.uniform(0.1, 0.9)
    on[0], on[1] = True, False
    score = (rng.integers(0, 4, n) / 3, rng.integers(0, n, n) - n / 2, rng.normal(size=n))[rng.integers(3)]
    return on, score, float(10 ** rng.uniform(-1, 1))


@pytest.mark.slow
def test_equals_brute_force_on_1000_cases():
    rng = np.random.default_rng(0)
    for _ in range(1000):
        on, score, alpha = random_case(rng)
        curve = significance_curve(on.astype(int), score, alpha)
        cuts, n_on, n_off, significance = brute_force(on, score, alpha)
        np.testing.assert_array_equal(curve.n_on, n_on)
        np.testing.assert_array_equal(curve.n_off, n_off)
        np.testing.assert_allclose(curve.significance, significance, rtol=1e-13, atol=1e-13)
        np.testing.assert_array_equal(curve.scores, cuts[:-1])
        assert significance.max() == pytest.approx(max(curve.best.significance, 0.0), rel=1e-13)
        # the threshold does what it says, with > as well as with >=
        for threshold, expected in zip(curve.thresholds, n_on + n_off, strict=True):
            assert (score > threshold).sum() == (score >= threshold).sum() == expected


def test_at_counts_for_any_threshold():
    rng = np.random.default_rng(1)
    on, score = rng.random(300) < 0.4, rng.integers(0, 50, 300) / 50
    curve = significance_curve(on, score, 0.5)
    for threshold in [-np.inf, -1, 0, 0.02, 0.5, 0.501, 0.98, 3, np.inf, *rng.random(50)]:
        counts = curve.at(threshold)
        assert counts.n_on == (on & (score > threshold)).sum()
        assert counts.n_off == (~on & (score > threshold)).sum()
    with pytest.raises(ValueError, match="threshold must not be NaN"):
        curve.at(np.nan)


def test_thresholds_between_neighbouring_floats_still_separate():
    low = 1.0
    score = np.array([low, np.nextafter(low, 2), -5e-324, 0.0, 5e-324, 1.7e308, -1.7e308])
    curve = significance_curve([0, 1, 0, 1, 0, 1, 0], score, 1.0)
    selected = [(score > threshold).sum() for threshold in curve.thresholds]
    assert selected == [7, 6, 5, 4, 3, 2, 1, 0]
    assert np.isfinite(curve.thresholds[1:-1]).all()


def test_ties_go_to_the_cut_with_the_fewest_events():
    # both cuts are perfectly balanced except none: 0 sigma everywhere, so nothing is selected
    curve = significance_curve([0, 1, 0, 1], [1.0, 1.0, 2.0, 2.0], 1.0)
    assert curve.best_threshold == np.inf
    assert (curve.best.n_on, curve.best.n_off) == (0, 0)


def test_larger_class_is_on():
    score = [0.1, 0.2, 0.8, 0.9]
    for y in ([0, 0, 1, 1], [-1, -1, 1, 1], ["Off", "Off", "On", "On"], [False, False, True, True]):
        assert significance_curve(y, score, 1.0).best.n_on == 2


def test_to_frame():
    frame = significance_curve([0, 1], [0.0, 1.0], 1.0).to_frame()
    assert list(frame.columns) == ["threshold", "n_on", "n_off", "significance"]
    assert len(frame) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1, 2], [1, 2, 3], 1.0), "y must contain two classes"),
        (([1, 1, 1], [1, 2, 3], 1.0), r"y contains one class only \(.*1.*\)"),
        (([0, 1, 1], [1, np.nan, 3], 1.0), "score must be finite, got nan at position 1"),
        (([0, 1, 1], [1, np.inf, 3], 1.0), "score must be finite, got inf at position 1"),
        (([0, 1], [1, 2, 3], 1.0), r"y and score must have the same length, got len\(y\) = 2"),
        (([0, 1], [1, 2], 0.0), "alpha must be positive, got 0"),
        (([0, 1], [1, 2], np.nan), "alpha must be finite"),
        (([0, 1], [[1, 2], [3, 4]], 1.0), "score must be one-dimensional"),
        (([0, 1], ["high", "low"], 1.0), "score must contain numbers"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        significance_curve(*arguments)


@pytest.mark.parametrize("on_grid", [False, True])
def test_cells_hold_the_events_of_a_score(on_grid):
    cells = count_cells(np.array([True, False, True, True]), np.array([0.5, 0.5, 0.75, np.nan]), on_grid=on_grid)
    np.testing.assert_array_equal(cells, [[0.5, 0.75], [0.5, 0.75], [1, 1], [1, 0]])
