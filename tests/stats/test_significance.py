"""Li & Ma: the contract's table, properties, and agreement with outside oracles."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from excess import (
    OnOffCounts,
    joint_significance,
    li_ma_p_value,
    li_ma_significance,
    n_on_for_significance,
    on_off_likelihood,
)

COUNTS = st.integers(0, 2**40)
ALPHA = st.floats(0.01, 100)


@pytest.mark.parametrize(
    ("n_on", "n_off", "alpha", "one_sided", "signed"),
    [
        (0, 0, 0.2, 0.0, 0.0),
        (10, 0, 0.2, 5.986, 5.986),
        (0, 10, 0.2, 0.0, -1.910),
        (5, 25, 0.2, 0.0, 0.0),
        (1, 49, 1 / 49, 0.0, 0.0),
        (20, 25, 0.2, 4.354, 4.354),
    ],
)
def test_contract(n_on, n_off, alpha, one_sided, signed):
    assert li_ma_significance(n_on, n_off, alpha) == pytest.approx(one_sided, abs=5e-4)
    assert li_ma_significance(n_on, n_off, alpha, signed=True) == pytest.approx(signed, abs=5e-4)


@pytest.mark.parametrize(
    ("n_on", "n_off", "published"), [(618, 1108, 19.2), (4332, 17229, 13.2)], ids=["joint crab", "open crab"]
)
def test_published_crab_figures(n_on, n_off, published):
    assert li_ma_significance(n_on, n_off, 0.2) == pytest.approx(published, abs=0.05)


@pytest.mark.parametrize("m", range(1, 100))
def test_exact_zero_at_balance_for_every_number_of_off_regions(m):
    n_on = np.array([1, 7, 1000, 123_456_789])
    assert (li_ma_significance(n_on, n_on * m, 1 / m, signed=True) == 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 1, 0), r"alpha must be positive, got 0"),
        ((1, 1, -0.5), r"alpha must be positive, got -0.5"),
        ((1, 1, math.nan), r"alpha must be finite, got nan"),
        ((1, 1, math.inf), r"alpha must be finite"),
        ((-1, 1, 0.2), r"n_on must not be negative, got -1"),
        ((1, [3, -2], 0.2), r"n_off must not be negative, got -2 at position 1"),
        ((math.inf, 1, 0.2), r"n_on must be finite, got inf"),
        ((1, math.nan, 0.2), r"n_off must be finite"),
        (("many", 1, 0.2), r"n_on must contain numbers, got 'many'"),
        (("20", 1, 0.2), r"n_on must contain numbers, got '20'"),
        ((None, 1, 0.2), r"n_on must contain numbers, got None"),
        ((1, np.ma.array([1, 2], mask=[0, 1]), 0.2), "n_off has masked elements"),
        ((1, 1, np.datetime64("2020-01-01")), "alpha must contain numbers"),
        (([1, 2], [1, 2, 3], 0.2), r"shapes do not broadcast: n_on \(2,\), n_off \(3,\), alpha \(\)"),
        ((1, [[1, 2], [3, -4]], 0.2), r"n_off must not be negative, got -4 at position \(1, 1\)"),
    ],
)
def test_bad_input_names_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        li_ma_significance(*arguments)
    with pytest.raises(ValueError, match=message):
        li_ma_p_value(*arguments)


def test_scalars_give_a_float_and_arrays_broadcast():
    assert type(li_ma_significance(20, 25, 0.2)) is float
    assert type(li_ma_p_value(np.int64(20), 25, 0.2)) is float
    grid = li_ma_significance(np.arange(4)[:, None], np.arange(5), [[[0.1]], [[2.0]]])
    assert grid.shape == (2, 4, 5)
    assert grid.dtype == np.float64
    for index in np.ndindex(grid.shape):
        alpha = (0.1, 2.0)[index[0]]
        assert grid[index] == li_ma_significance(index[1], index[2], alpha)


def test_agreement_with_gammapy():
    stats = pytest.importorskip("gammapy.stats")
    rng = np.random.default_rng(1)
    alpha = 10 ** rng.uniform(-2, 1, 12_000)
    n_off = rng.integers(0, 1000, 12_000)
    n_on = rng.poisson(alpha * n_off * rng.uniform(0, 3, 12_000) + rng.uniform(0, 20, 12_000))
    ours = li_ma_significance(n_on, n_off, alpha, signed=True)
    peer = stats.WStatCountsStatistic(n_on, n_off, alpha)
    np.testing.assert_allclose(ours, peer.sqrt_ts, rtol=1e-10, atol=1e-5)
    # The peer subtracts two fit statistics and so loses digits where they are nearly equal; the next
    # test shows that ours are the right ones there. Everywhere else:
    clear = np.flatnonzero(np.abs(ours) > 0.5)[:10_000]
    assert len(clear) == 10_000
    np.testing.assert_allclose(ours[clear], peer.sqrt_ts[clear], rtol=1e-10)
    above = clear[ours[clear] > 0]  # for a deficit the peer gives the lower tail
    p_value = li_ma_p_value(n_on, n_off, alpha)[above]
    np.testing.assert_allclose(p_value, peer.p_value[above], rtol=1e-8, atol=1e-300)


def _exact(n_on, n_off, alpha):
    with mpmath.workdps(60):
        on, off, a = mpmath.mpf(n_on), mpmath.mpf(n_off), mpmath.mpf(alpha)
        total = on + off
        terms = [
            x * mpmath.log(r) if x else 0 for x, r in ((on, (1 + a) / a * on / total), (off, (1 + a) * off / total))
        ]
        return float(mpmath.sign(on - a * off) * mpmath.sqrt(2 * mpmath.fsum(terms)))


def test_all_digits_hold_against_high_precision():
    rng = np.random.default_rng(2)
    for _ in range(1000):
        alpha = 2.0 ** rng.integers(-7, 7)  # exactly representable, and so is its product with a count
        n_off = int(10 ** rng.uniform(0, 12))
        n_on = max(1, int(alpha * n_off * (1 + rng.normal() * 10 ** rng.uniform(-12, 0))))
        exact = _exact(n_on, n_off, alpha)
        assert li_ma_significance(n_on, n_off, alpha, signed=True) == pytest.approx(exact, rel=2e-14)


@pytest.mark.parametrize("k", range(3, 13))
def test_one_event_too_many_is_seen_whatever_the_background(k):
    n_off = 5 * 10**k
    expected = 1 / math.sqrt(0.2 * 1.2 * n_off)  # first order in the excess of one event
    assert li_ma_significance(10**k + 1, n_off, 1 / 5) == pytest.approx(expected, rel=1e-3)


def test_units_must_cancel():
    units = pytest.importorskip("astropy.units")
    assert li_ma_significance(20, 25, 20 * units.percent) == li_ma_significance(20, 25, 0.2)
    with pytest.raises(ValueError, match="alpha must have no unit, got s"):
        li_ma_significance(20, 25, 0.2 * units.s)


@given(COUNTS, COUNTS, ALPHA)
def test_never_nan_and_one_sided_is_the_clipped_signed_value(n_on, n_off, alpha):
    signed = li_ma_significance(n_on, n_off, alpha, signed=True)
    assert math.isfinite(signed)
    assert li_ma_significance(n_on, n_off, alpha) == max(signed, 0.0)


@given(st.integers(0, 2**53), st.integers(0, 2**53), st.floats(1e-300, 1e290))
def test_finite_at_the_ends_of_the_range(n_on, n_off, alpha):
    assert math.isfinite(li_ma_significance(n_on, n_off, alpha, signed=True))


@given(st.integers(0, 10**9), st.integers(0, 10**9), ALPHA, st.integers(1, 1000))
def test_homogeneous(n_on, n_off, alpha, k):
    one = li_ma_significance(n_on, n_off, alpha, signed=True)
    many = li_ma_significance(k * n_on, k * n_off, alpha, signed=True)
    # near balance the relative rounding of the difference is what counts
    assert many == pytest.approx(math.sqrt(k) * one, rel=1e-9, abs=1e-6)


@given(st.integers(0, 10**6), ALPHA, st.integers(0, 10**6), st.integers(1, 10**6))
def test_monotone_in_n_on_above_balance(n_off, alpha, above, step):
    n_on = math.ceil(alpha * n_off) + above
    assert li_ma_significance(n_on + step, n_off, alpha) > li_ma_significance(n_on, n_off, alpha)


@given(COUNTS, COUNTS, ALPHA)
def test_swapping_on_and_off_turns_the_sign(n_on, n_off, alpha):
    ours = li_ma_significance(n_on, n_off, alpha, signed=True)
    assert li_ma_significance(n_off, n_on, 1 / alpha, signed=True) == pytest.approx(-ours, rel=1e-6, abs=1e-6)


def test_p_value_is_the_upper_tail():
    assert li_ma_p_value(5, 25, 0.2) == 0.5
    assert li_ma_p_value(0, 10, 0.2) == pytest.approx(1 - li_ma_p_value(10, 0, 5), rel=1e-12)
    np.testing.assert_allclose(
        li_ma_p_value([20, 200, 250], 25, 0.2), norm.sf(li_ma_significance([20, 200, 250], 25, 0.2))
    )


class TestOnOffCounts:
    def test_values(self):
        counts = OnOffCounts(20, 25, 0.2)
        assert (counts.background, counts.excess) == (5.0, 15.0)
        assert counts.excess_error == pytest.approx(math.sqrt(21))
        assert counts.significance == pytest.approx(4.354, abs=5e-4)
        assert counts.p_value == pytest.approx(6.69e-6, rel=1e-2)
        assert str(counts) == "On 20, Off 25, alpha 0.2: excess 15.0 +- 4.6, 4.4 sigma"

    def test_deficit_is_negative(self):
        assert OnOffCounts(0, 10, 0.2).significance == pytest.approx(-1.910, abs=5e-4)

    def test_frozen_and_of_plain_numbers(self):
        counts = OnOffCounts(np.int64(3), np.float64(4.0), np.float32(0.5))
        assert repr(counts) == "OnOffCounts(n_on=3, n_off=4, alpha=0.5)"
        with pytest.raises(AttributeError):
            counts.n_on = 5

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [((-1, 0, 1), "n_on"), ((0, math.nan, 1), "n_off"), ((0, 0, 0), "alpha"), (([1, 2], 0, 1), "n_on")],
    )
    def test_bad_input(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            OnOffCounts(*arguments)

    def test_stacking_adds_background(self):
        total = OnOffCounts(20, 25, 0.2) + OnOffCounts(10, 75, 0.4)
        assert (total.n_on, total.n_off) == (30, 100)
        assert total.background == pytest.approx(5 + 30)
        assert sum([OnOffCounts(1, 2, 0.5)] * 3) == OnOffCounts(3, 6, 0.5)

    def test_stacking_as_gammapy_does(self):
        datasets = pytest.importorskip("gammapy.datasets")
        maps = pytest.importorskip("gammapy.maps")
        axis = maps.MapAxis.from_energy_bounds("1 TeV", "10 TeV", nbin=1)
        geom = maps.RegionGeom.create(None, axes=[axis])

        def dataset(n_on, n_off, acceptance_off):
            constant = lambda value: maps.RegionNDMap.from_geom(geom, data=float(value))  # noqa: E731
            return datasets.SpectrumDatasetOnOff(
                counts=constant(n_on),
                counts_off=constant(n_off),
                acceptance=constant(1),
                acceptance_off=constant(acceptance_off),
                mask_safe=maps.RegionNDMap.from_geom(geom, data=True, dtype=bool),
            )

        peer = dataset(20, 25, 5)
        peer.stack(dataset(10, 75, 2.5))
        ours = OnOffCounts(20, 25, 1 / 5) + OnOffCounts(10, 75, 1 / 2.5)
        assert ours.alpha == pytest.approx(peer.alpha.data.item())
        # gammapy forgets the parts, so that its significance is that of one measurement with the mean ratio
        forgotten = OnOffCounts(ours.n_on, ours.n_off, ours.alpha)
        assert forgotten.significance == pytest.approx(peer.info_dict()["sqrt_ts"])
        assert abs(ours.significance) < abs(forgotten.significance)

    def test_stacking_without_off_events(self):
        runs = [OnOffCounts(3, 0, 0.2), OnOffCounts(4, 0, 0.5), OnOffCounts(0, 0, 0.1)]
        total = sum(runs)
        assert (total.n_on, total.n_off, total.alpha) == (7, 0, 0.5)
        assert total.significance == pytest.approx(math.hypot(runs[0].significance, runs[1].significance))
        assert OnOffCounts(3, 0, 0.2) + OnOffCounts(0, 0, 0.1) == OnOffCounts(3, 0, 0.2)
        assert OnOffCounts(0, 0, 0.2) + OnOffCounts(0, 0, 0.1) == OnOffCounts(0, 0, 0.2)

    @given(
        st.lists(
            st.tuples(st.integers(0, 50), st.integers(0, 50), st.sampled_from([0.1, 0.2, 1.0, 3.0])),
            min_size=3,
            max_size=3,
        )
    )
    def test_stacking_is_associative_and_commutative(self, runs):
        a, b, c = (OnOffCounts(*run) for run in runs)
        for other in ((a + (b + c)), ((c + b) + a), ((a + c) + b)):
            assert other.alpha == pytest.approx(((a + b) + c).alpha, rel=1e-12)
            assert other.parts == ((a + b) + c).parts

    def test_adding_something_else_is_a_type_error(self):
        with pytest.raises(TypeError):
            OnOffCounts(1, 1, 1) + 1


class TestInverse:
    def test_every_valid_input_converges(self):
        n_off = np.array([0, 1, 2, 10, 1e3, 1e6, 1e9])[:, None, None]
        alpha = np.array([0.01, 0.1, 0.2, 1.0, 5.0, 100.0])[:, None]
        wanted = np.array([0, 1e-3, 0.1, 1, 5, 20, 100.0])
        n_on = n_on_for_significance(n_off, alpha, wanted)
        assert n_on.shape == (7, 6, 7)
        back = li_ma_significance(n_on, n_off, alpha)
        # one unit in the last place of n_on moves the significance by this much
        resolution = 4e-16 * n_on / np.sqrt(np.maximum(alpha * (1 + alpha) * n_off, 1))
        assert (np.abs(back - wanted) <= 1e-10 * wanted + 4 * resolution).all()

    @given(st.floats(0, 1e9), st.floats(0.01, 100), st.floats(0, 100))
    def test_round_trip(self, n_off, alpha, wanted):
        n_on = n_on_for_significance(n_off, alpha, wanted)
        assert n_on >= alpha * n_off * (1 - 1e-15)
        assert li_ma_significance(n_on, n_off, alpha) == pytest.approx(wanted, rel=1e-8, abs=2e-5)

    @given(st.integers(0, 10**6), st.floats(0.01, 100), st.integers(1, 10**6))
    def test_inverts_the_significance(self, n_off, alpha, excess):
        n_on = alpha * n_off + excess
        significance = li_ma_significance(n_on, n_off, alpha)
        assert n_on_for_significance(n_off, alpha, significance) == pytest.approx(n_on, rel=1e-9)

    def test_scalar(self):
        assert type(n_on_for_significance(0, 0.2, 5)) is float
        assert n_on_for_significance(0, 0.2, 5) == pytest.approx(25 / (2 * math.log(6)))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((-1, 0.2, 5), "n_off must not be negative"),
            ((1, 0, 5), "alpha must be positive"),
            ((1, 0.2, -5), "significance must not be negative"),
            ((1, 0.2, math.nan), "significance must be finite"),
        ],
    )
    def test_bad_input(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            n_on_for_significance(*arguments)


class TestJointSignificance:
    @given(
        st.lists(
            st.tuples(st.integers(0, 60), st.integers(0, 60), st.sampled_from([0.05, 0.2, 1.0, 3.0])),
            min_size=1,
            max_size=4,
        )
    )
    def test_it_is_the_likelihood_of_a_common_share_of_the_background(self, runs):
        y = np.concatenate([np.repeat([1, 0], [n_on, n_off]) for n_on, n_off, _ in runs])
        alpha = np.concatenate([np.full(n_on + n_off, ratio) for n_on, n_off, ratio in runs])
        if len(y):
            expected = on_off_likelihood(y, alpha, alpha).significance
            assert joint_significance(*np.transpose(runs)) == pytest.approx(expected, abs=1e-7)
            assert OnOffCounts.stack(runs).significance == pytest.approx(expected, abs=1e-7)

    @pytest.mark.parametrize("counts", [(20, 25, 0.2), (10, 0, 0.2), (0, 10, 0.2), (3, 40, 0.2), (618, 1108, 0.2)])
    def test_one_ratio_is_li_and_ma_to_the_bit(self, counts):
        n_on, n_off, alpha = counts
        expected = li_ma_significance(n_on, n_off, alpha, signed=True)
        assert joint_significance([n_on], [n_off], alpha) == expected
        assert joint_significance([n_on, 0], [0, n_off], [alpha, alpha]) == expected
        assert OnOffCounts.stack([(n_on, 0, alpha), (0, n_off, alpha)]) == OnOffCounts(*counts)

    def test_balance_is_zero(self):
        assert joint_significance([4, 20], [20, 20], [0.2, 1.0]) == pytest.approx(0.0, abs=1e-7)
        assert joint_significance([0, 0], [0, 0], [0.2, 1.0]) == 0.0

    def test_its_scatter_without_a_source(self):
        rng = np.random.default_rng(0)
        alpha = np.array([1.0, 0.2])
        n_off = rng.poisson(1000, (2000, 2))
        n_on = rng.poisson(1000 * alpha, (2000, 2))
        found = [OnOffCounts.stack(np.column_stack([*run, alpha]).tolist()) for run in zip(n_on, n_off, strict=True)]
        joint = [one.significance for one in found]
        mean = [OnOffCounts(one.n_on, one.n_off, one.alpha).significance for one in found]
        assert np.std(joint) == pytest.approx(1.0, abs=0.04)
        assert np.mean(joint) == pytest.approx(0.0, abs=0.07)
        assert np.std(mean) > 1.05  # as if all had been one measurement

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [(([-1], [0], [1]), "n_on"), (([1], [1], [0.0]), "alpha"), (([1, 2], [1, 2, 3], 1.0), "n_on")],
    )
    def test_bad_input(self, arguments, message):
        with pytest.raises(ValueError, match=message):
            joint_significance(*arguments)
