"""Fractions of events: Wilson's interval against astropy, and its ends."""

import numpy as np
import pytest

from excess.stats import event_fraction


@pytest.mark.parametrize("confidence", [0.6827, 0.95])
def test_intervals_are_those_of_astropy(confidence):
    oracle = pytest.importorskip("astropy.stats").binom_conf_interval
    n = np.repeat([1, 3, 10, 400], 4)
    selected = np.floor(n * np.tile([0, 0.3, 0.7, 1], 4)).astype(int)
    found = event_fraction(selected, n, confidence=confidence)
    np.testing.assert_allclose((found.low, found.high), oracle(selected, n, confidence, "wilson"), atol=1e-12)
    np.testing.assert_allclose(found.value, selected / n)
    np.testing.assert_allclose(found.error, (found.high - found.low) / 2)


def test_weights_count_by_their_effective_number():
    weights = np.array([1.0, 1.0, 4.0, 0.5, 0.5])
    effective = weights.sum() ** 2 / (weights**2).sum()
    found = event_fraction(weights[:2].sum(), weights.sum(), n_effective=effective)
    alike = event_fraction(effective * 2 / 7, effective)
    assert found.value == pytest.approx(2 / 7)
    assert (found.low, found.high) == pytest.approx((alike.low, alike.high))
    # a common factor changes nothing
    assert event_fraction(20, 70, n_effective=effective).low == pytest.approx(found.low)


def test_where_there_are_no_events_nothing_is_known():
    found = event_fraction([0, 0], [0, 5])
    assert np.isnan([found.value[0], found.low[0], found.high[0]]).all()
    assert found.low[1] == 0
    assert 0 < found.high[1] < 0.3
    with pytest.raises(ValueError, match="confidence must be"):
        event_fraction(1, 2, confidence=1.5)


def test_the_interval_covers_as_often_as_it_says():
    # a single fraction may be covered more or less often, because counts are whole numbers; on average it is right
    rng = np.random.default_rng(0)
    p = rng.uniform(0.02, 0.98, 20_000)
    found = event_fraction(rng.binomial(50, p), np.full(len(p), 50))
    assert np.mean((found.low <= p) & (p <= found.high)) == pytest.approx(0.6827, abs=0.01)
