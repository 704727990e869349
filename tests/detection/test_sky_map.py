"""The map of the sky around a source."""

import json

import numpy as np
import pytest

from excess.detection import SkyMap, map_sky
from excess.detection._histograms import _share_allowed, cluster_pointings

RADIUS = 0.158


def wobble(n, rng, width=1.2):
    """Return positions and pointings of background events: two pointings, and an acceptance that falls outwards."""
    pointing = np.where(rng.random(n) < 0.6, 1, -1)[:, None] * np.array([[0.5, 0.3]])
    return pointing + rng.normal(scale=width, size=(n, 2)), pointing


def make(position, pointing, selected=None, **options):
    selected = np.ones(len(position), dtype=bool) if selected is None else selected
    return map_sky(position, pointing, selected, field_radius=1.9, region_radius=RADIUS, **options)


def test_without_a_source_significances_are_standard_normal():
    rng = np.random.default_rng(3)
    spreads = [make(*wobble(40_000, rng)).layers["all"] for _ in range(6)]
    assert np.mean([one.mean for one in spreads]) == pytest.approx(0.0, abs=0.05)
    assert np.mean([one.spread for one in spreads]) == pytest.approx(1.0, abs=0.06)
    middle = [one.significance[30, 30] for one in spreads]
    assert np.abs(middle).max() < 3


def test_a_source_is_in_the_middle_and_its_excess_is_found():
    rng = np.random.default_rng(0)
    position, pointing = wobble(30_000, rng)
    gammas = rng.normal(scale=0.05, size=(200, 2))
    found = make(np.concatenate([position, gammas]), np.concatenate([pointing, np.tile([0.5, 0.3], (200, 1))]))
    layer = found.layers["all"]
    assert np.unravel_index(np.nanargmax(layer.significance), (61, 61)) in [
        (i, j) for i in (29, 30, 31) for j in (29, 30, 31)
    ]
    assert layer.excess[30, 30] == pytest.approx(200, abs=3 * np.sqrt(200 + 30_000 * RADIUS**2))
    assert layer.significance[30, 30] > 8
    assert layer.spread == pytest.approx(1.0, abs=0.12)  # the source is not taken for background


def test_a_source_elsewhere_is_where_it_is():
    """East is to the higher columns, north to the higher rows."""
    rng = np.random.default_rng(1)
    position, pointing = wobble(20_000, rng)
    position[:300] = rng.normal(loc=[1.0, -0.5], scale=0.05, size=(300, 2))
    found = make(position, pointing)
    row, column = np.unravel_index(np.nanargmax(found.layers["all"].significance), (61, 61))
    assert found.axis[column] == pytest.approx(1.0, abs=0.1)
    assert found.axis[row] == pytest.approx(-0.5, abs=0.1)


def test_selected_events_have_a_layer_of_their_own():
    rng = np.random.default_rng(2)
    position, pointing = wobble(20_000, rng)
    selected = rng.random(20_000) < 0.1
    found = make(position, pointing, selected)
    inside = np.hypot(*position.T) < 1.85
    for name, mask in (("all", inside), ("selected", inside & selected)):
        total = np.nansum(found.layers[name].counts)
        assert mask.sum() <= total <= 1.06 * mask.sum()
    assert set(make(position, pointing, selected & (np.arange(20_000) < 500)).layers) == {"all"}
    assert make(position[:90], pointing[:90]) is None


def test_pointings_that_hardly_differ_are_one():
    rng = np.random.default_rng(4)
    _, pointing = wobble(2_000, rng)
    centers, share, number = cluster_pointings(pointing + rng.normal(scale=0.01, size=pointing.shape))
    np.testing.assert_allclose(centers, [[0.5, 0.3], [-0.5, -0.3]], atol=0.05)
    np.testing.assert_array_equal(number == 0, pointing[:, 0] > 0)
    np.testing.assert_allclose(share, [np.mean(number == 0), np.mean(number == 1)])


def test_excluded_places_are_shown_but_are_no_background():
    rng = np.random.default_rng(7)
    position, pointing = wobble(30_000, rng)
    position[:1500] = rng.normal(loc=[-0.9, 0.6], scale=0.05, size=(1500, 2))
    plain, excluded = (make(position, pointing, exclusions=one) for one in (None, np.array([[-0.9, 0.6, 0.35]])))
    assert plain.layers["all"].spread > 2
    assert excluded.layers["all"].spread == pytest.approx(1.0, abs=0.1)
    assert abs(excluded.layers["all"].mean) < 0.1
    np.testing.assert_array_equal(plain.layers["all"].counts, excluded.layers["all"].counts)


def test_events_without_a_position_are_left_out():
    rng = np.random.default_rng(5)
    position, pointing = wobble(3_000, rng)
    missing = np.full((10, 2), np.nan)
    one, other = (
        make(position, pointing),
        make(np.concatenate([position, missing]), np.concatenate([pointing, missing])),
    )
    np.testing.assert_array_equal(one.layers["all"].counts, other.layers["all"].counts)


def test_shares_of_rings_are_those_of_geometry():
    """A ring of radius 1 around a pointing that is 1 away from the source."""
    ring, center = np.array([1.0]), np.array([[1.0, 0.0]])
    for field, excluded, expected in (
        (2.5, np.empty((0, 3)), 1.0),
        (1.0, np.empty((0, 3)), 1 / 3),  # chord of 120 degrees
        (2.5, np.array([[0.0, 0.0, 1.0]]), 2 / 3),
        (2.5, np.array([[0.0, 0.0, 1.0], [2.0, 0.0, 1.0]]), 1 / 3),
    ):
        assert _share_allowed(ring, center, field, excluded)[0, 0] == pytest.approx(expected, abs=2e-3)


def test_a_map_is_read_as_it_was_written():
    rng = np.random.default_rng(6)
    found = make(*wobble(3_000, rng), off_centers=np.array([[0.5, -0.25]]), share=0.5)
    written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    again = SkyMap.from_dict(written)
    assert again.to_dict() == written
    np.testing.assert_allclose(again.axis, found.axis)
    assert len(json.dumps(written, separators=(",", ":"))) < 120_000
    written["layers"]["all"]["counts"].pop()
    with pytest.raises(ValueError, match="does not have 61 x 61 pixels"):
        SkyMap.from_dict(written)


def test_selected_events_that_are_all_at_the_source_have_no_layer():
    """Without background events there is nothing to compare with, and what cannot be written is left out."""
    rng = np.random.default_rng(7)
    position, pointing = wobble(3_000, rng)
    gammas = rng.normal(scale=0.02, size=(200, 2))
    every = np.concatenate([position, gammas])
    selected = np.arange(len(every)) >= len(position)
    found = make(every, np.concatenate([pointing, pointing[:200]]), selected)
    assert list(found.layers) == ["all"]
    json.dumps(found.to_dict(), allow_nan=False)
