"""Direction in the likelihood: the point spread function, and events beyond the cut on theta^2."""

import numpy as np
import pytest

from excess import Direction, OnOffForestClassifier, cross_val_detect, null_test
from excess.stats._direction import PointSpread
from excess.stats._likelihood import compute_likelihood

CUT = 0.025


def simulate(rng, n_background=12_000, n_signal=600, width=0.1, alpha=0.2, index=None):
    """Return On, theta and a covariate: background flat in theta^2 up to 0.09, signal with a known width."""
    on = rng.random(n_background) < alpha / (1 + alpha)
    theta = np.sqrt(rng.uniform(0, 0.09, n_background))
    covariate = rng.normal(size=n_background + n_signal)
    own = width if index is None else width * np.exp(-index * np.clip(covariate[n_background:], -2, 2))
    angle = np.hypot(*(own * rng.standard_normal((2, n_signal))))
    return np.append(on, np.ones(n_signal, bool)), np.append(theta, angle), covariate


@pytest.mark.parametrize("width", [0.06, 0.1, 0.2])
def test_width_is_found(width):
    on, theta, _ = simulate(np.random.default_rng(1), n_signal=1500, width=width)
    known = theta < 0.3
    found = PointSpread.fit(on[known], theta[known], np.ones(known.sum()), 0.2, CUT)
    radius, error = found.radius
    assert abs(radius - width * np.sqrt(-2 * np.log(0.32))) < 4 * error + 0.05 * width


def test_direction_gains_what_theory_predicts():
    """Weights by a Gaussian have 1.108 times the significance of the best cut, for little signal."""
    gains = []
    for seed in range(20):
        on, theta, _ = simulate(np.random.default_rng(seed), n_signal=300)
        core = theta**2 < CUT
        cut = compute_likelihood(on[core], np.ones(core.sum()), 0.2).significance
        half = np.arange(len(on)) % 2 == 0
        spread = PointSpread.fit(on[half], theta[half], np.ones(half.sum()), 0.2, CUT)
        gains.append(compute_likelihood(on, spread.ratio(theta), 0.2).significance / cut)
    assert 1.05 < np.mean(gains) < 1.16


def test_expected_profile_is_normalised():
    theta = np.sqrt(np.linspace(0, 9, 200_001))
    for spread in (PointSpread.expected(CUT), PointSpread.expected(1.0)):
        scale = np.sqrt(spread.cut / CUT)
        integral = np.trapezoid(spread.ratio(theta * scale), (theta * scale) ** 2) / spread.cut
        assert 0.9 < integral <= 1.0  # King functions have tails


def test_width_that_falls_with_energy_is_found():
    on, theta, covariate = simulate(np.random.default_rng(2), n_signal=4000, index=0.3)
    known = theta < 0.3
    found = PointSpread.fit(on[known], theta[known], np.ones(known.sum()), 0.2, CUT, covariate[known])
    assert 0.15 <= found.weight @ found.slope <= 0.45


def test_round_trip():
    on, theta, _ = simulate(np.random.default_rng(3))
    spread = PointSpread.fit(on, theta, np.ones(len(on)), 0.2, CUT)
    again = PointSpread.from_dict(spread.numbers)
    np.testing.assert_array_equal(spread.ratio(theta), again.ratio(theta))
    assert again.radius == spread.radius


@pytest.fixture(scope="module")
def events():
    """Events with one informative feature; region 0 is On, five regions are Off."""
    rng = np.random.default_rng(5)
    n, n_signal = 9000, 350
    region = np.append(rng.integers(0, 6, n), np.zeros(n_signal, int))
    X = np.concatenate([rng.normal(size=(n, 3)), rng.normal(size=(n_signal, 3)) + np.array([1.5, 0, 0])])
    theta = np.append(np.sqrt(rng.uniform(0, 0.09, n)), np.hypot(*(0.1 * rng.standard_normal((2, n_signal)))))
    order = rng.permutation(n + n_signal)
    return X[order], region[order], Direction(theta[order], CUT)


@pytest.mark.parametrize("strategy", ["pooled", "forward"])
def test_events_beyond_the_cut_are_not_counted(events, strategy):
    X, region, direction = events
    on = (region == 0).astype(int)
    forest = OnOffForestClassifier(20, min_samples_leaf=40, random_state=0)
    found = cross_val_detect(forest, X, on, alpha=0.2, direction=direction, strategy=strategy, random_state=0)
    assert found.uncut.n_on == int(on[direction.core].sum())
    assert not found.selected[~direction.core].any()
    inside = found.held_out
    own = compute_likelihood(found.on[inside], found.ratio[inside], 0.2).significance
    assert found.significance > own  # events beyond the cut add significance
    assert found.significance > 1.05 * found.uncut.significance
    radius, error = found.point_spread.radius
    assert abs(radius - 0.151) < 4 * error + 0.01
    assert error < 0.06


def test_same_bits_on_any_number_of_threads(events):
    X, region, direction = events
    found = [
        cross_val_detect(
            OnOffForestClassifier(10, min_samples_leaf=40, random_state=0, n_jobs=n),
            X,
            region == 0,
            alpha=0.2,
            direction=direction,
            n_jobs=n,
            strategy="forward",
        )
        for n in (1, 2)
    ]
    np.testing.assert_array_equal(found[0].ratio, found[1].ratio)


def test_null_regions_show_nothing(events):
    X, region, direction = events
    forest = OnOffForestClassifier(20, min_samples_leaf=40, random_state=0)
    test = null_test(forest, X, region, n_regions=6, direction=direction, cv=2, strategy="forward", random_state=0)
    assert np.abs(test.significances).max() < 4


@pytest.mark.campaign
def test_forward_with_direction_is_standard_normal_without_a_source():
    values = []
    for seed in range(200):
        rng = np.random.default_rng(1000 + seed)
        on, theta, covariate = simulate(rng, n_background=3000, n_signal=0)
        forest = OnOffForestClassifier(30, min_samples_leaf=20, random_state=seed)
        direction = Direction(theta, CUT, covariate)
        X = rng.normal(size=(3000, 6))
        values.append(cross_val_detect(forest, X, on, alpha=0.2, direction=direction, strategy="forward").significance)
    assert abs(np.mean(values)) < 0.25
    assert 0.85 < np.std(values) < 1.15


@pytest.mark.parametrize(
    ("direction", "error", "argument"),
    [
        (np.zeros(60), TypeError, "direction"),
        (Direction(np.zeros(59), CUT), ValueError, "theta of direction"),
        (Direction(np.full(60, np.nan), CUT), ValueError, "theta of direction"),
        (Direction(np.full(60, -0.1), CUT), ValueError, "theta of direction"),
        (Direction(np.zeros(60), 0.0), ValueError, "cut of direction"),
        (Direction(np.zeros(60), CUT, np.zeros(59)), ValueError, "covariate of direction"),
        (Direction(np.ones(60), CUT), ValueError, "inside a cut"),
    ],
)
def test_wrong_directions_are_errors(direction, error, argument):
    X, y = np.zeros((60, 2)), np.arange(60) % 2
    with pytest.raises(error, match=argument):
        cross_val_detect(OnOffForestClassifier(2), X, y, alpha=1.0, direction=direction)


def test_forward_keeps_a_given_configuration(events):
    X, region, _ = events
    chosen = OnOffForestClassifier(10, 0.2, random_state=0).fit(X[:3000], region[:3000] == 0)
    used = []

    class Recording(OnOffForestClassifier):
        def fit(self, X, y, *, groups=None, sample_weight=None):
            used.append(self.configuration)
            return super().fit(X, y, groups=groups, sample_weight=sample_weight)

    forest = Recording(10, random_state=0, configuration=chosen.configuration_)
    cross_val_detect(forest, X, region == 0, alpha=0.2, strategy="forward", cv=4)
    assert used == 3 * [chosen.configuration_]
