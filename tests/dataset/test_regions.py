import numpy as np
import pandas as pd
import pytest
from helpers import SHARED

from excess import OnOffCounts
from excess.config import AnalysisConfig, RegionConfig
from excess.dataset import OnOffDataset
from excess.dataset._regions import Regions, alpha_error_of, assign_regions, find_regions, place_by_method
from excess.dataset._simulate import simulate_observation


@pytest.fixture
def overlapping():
    """Rows: On, Off 2, nothing, On and Off 1 (nearer to Off), Off 1 and Off 2 (nearer to the second), no direction."""
    return np.array(
        [[0.1, 0.9, 0.9], [0.9, 0.9, 0.1], [0.9, 0.9, 0.9], [0.15, 0.1, 0.9], [0.9, 0.15, 0.12], [np.nan] * 3]
    )


@pytest.mark.parametrize(
    ("overlap", "expected"), [("on_first", [0, 2, -1, 0, 2, -1]), ("drop", [0, 2, -1, -1, -1, -1])]
)
def test_every_event_counts_once(overlap, expected, overlapping):
    regions = assign_regions(overlapping, overlap=overlap)
    np.testing.assert_array_equal(regions.region, expected)
    assert regions.n_overlapping == 2
    assert (regions.n_regions, regions.alpha) == (3, 0.5)
    np.testing.assert_array_equal(regions.inside, np.array(expected) >= 0)


def test_overlap_may_be_an_error(overlapping):
    with pytest.raises(ValueError, match=r"2 events are in several regions, the first in row 3 in regions \[0, 1\]"):
        assign_regions(overlapping, overlap="error")
    assert assign_regions(overlapping[:3], overlap="error").n_overlapping == 0


@pytest.mark.parametrize(
    ("theta", "options", "message"),
    [
        ([0.1, 0.2], {}, "theta must have one column for On and at least one for Off"),
        ([[0.1]], {}, "at least one for Off"),
        ([[0.1, -0.2]], {}, "non-negative"),
        ([[0.1, np.inf]], {}, "finite"),
        ([[0.1, 0.2]], {"theta_squared_cut": 0}, "theta_squared_cut must be positive"),
        ([[0.1, 0.2]], {"theta_squared_cut": -1}, "theta_squared_cut must not be negative"),
        ([[0.1, 0.2]], {"overlap": "both"}, "overlap must be 'on_first' or 'drop' or 'error'"),
        ([[0.1, 0.2]], {"alpha": 0}, "alpha must be positive"),
    ],
)
def test_bad_angles(theta, options, message):
    with pytest.raises(ValueError, match=message):
        assign_regions(theta, **options)


def angles_to_regions(ra, dec, pointing_ra, pointing_dec, source_ra, source_dec):
    """Return the angles between events and six reflected regions."""
    table = pd.DataFrame({"ra": ra, "dec": dec, "pointing_ra": pointing_ra, "pointing_dec": pointing_dec})
    return place_by_method(table, RegionConfig(n_regions=6, source_ra=source_ra, source_dec=source_dec)).theta


def test_sky_positions_against_astropy():
    coordinates = pytest.importorskip("astropy.coordinates")
    rng = np.random.default_rng(0)
    source = coordinates.SkyCoord(83.6333, 22.0133, unit="deg")
    pointing = source.directional_offset_by([50, 230] * 50, [0.6] * 100 * source.ra.unit)
    events = pointing.directional_offset_by(rng.uniform(0, 360, 100), rng.uniform(0, 2, 100) * source.ra.unit)
    found = angles_to_regions(events.ra.deg, events.dec.deg, pointing.ra.deg, pointing.dec.deg, 83.6333, 22.0133)
    for k in range(6):
        center = pointing.directional_offset_by(
            pointing.position_angle(source) - 60 * k * source.ra.unit, pointing.separation(source)
        )
        np.testing.assert_allclose(found[:, k], center.separation(events).deg, atol=1e-9)


def test_near_the_pole_and_across_zero():
    theta = angles_to_regions([359.3], [0.0], [0.1], [0.0], 0.9, 0.0)
    assert theta[0, 0] == pytest.approx(1.6, abs=1e-4)
    assert theta[0, 3] == pytest.approx(0.0, abs=1e-4)
    theta = angles_to_regions([10.0], [89.9], [200.0], [89.9], 20.0, 89.6)
    assert theta[0, 0] == pytest.approx(0.3, abs=0.01)
    assert np.isfinite(theta).all()


def test_regions_of_a_table():
    events = simulate_observation(20_000, 500, n_regions=4, random_state=0)
    found = find_regions(events, RegionConfig(n_regions=4))
    names = ["theta_deg", "theta_deg_off_1", "theta_deg_off_2", "theta_deg_off_3"]
    np.testing.assert_array_equal(found.region, assign_regions(events[names]).region)
    assert found.alpha == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match=r"theta_deg_off_5 \(theta_deg_off_4, theta_deg_off_5 missing\)"):
        find_regions(events, RegionConfig(n_regions=6))
    sky = pd.DataFrame({"ra": [83.63], "dec": [22.01], "pointing_ra": [83.1], "pointing_dec": [22.0]})
    with pytest.raises(ValueError, match="specify source_ra and source_dec"):
        find_regions(sky, RegionConfig())
    on_source = find_regions(sky, RegionConfig(source_ra=83.63, source_dec=22.01))
    assert on_source.counts == OnOffCounts(1, 0, 0.2)


def test_counts_by_run_add_up():
    events = simulate_observation(20_000, 500, random_state=0)
    names = ["theta_deg", *(f"theta_deg_off_{k}" for k in range(1, 6))]
    regions = assign_regions(events[names])
    of_nights = [regions.take(np.flatnonzero(events["night"] == night)) for night in np.unique(events["night"])]
    assert sum(one.counts for one in of_nights) == regions.counts
    inside = regions.take(regions.inside)
    assert inside.counts == regions.counts
    assert len(inside.region) == regions.inside.sum()


def test_on_and_off_files(tmp_path):
    for name, n_events in (("on", 3), ("off", 5)):
        pd.DataFrame({"width": np.arange(n_events) + 1.0}).to_csv(tmp_path / f"{name}.csv", index=False)
    config = AnalysisConfig(features=["width"], derived_features={}, quality_cuts=[], groups="none")
    found = OnOffDataset.from_files(tmp_path / "on.csv", config, off=tmp_path / "off.csv", alpha=0.3)
    np.testing.assert_array_equal(found.on, [True] * 3 + [False] * 5)
    assert found.regions.counts == OnOffCounts(3, 5, 0.3)
    assert {kind: [path.name for path in paths] for kind, paths in found.files.items()} == {
        "events": ["on.csv"],
        "Off events": ["off.csv"],
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"alpha": 0.2}, "alpha requires off"),
        ({"off": "off.csv", "alpha": 0.2, "join": "more.csv"}, "join cannot be combined with off"),
    ],
)
def test_arguments_that_do_not_go_together(arguments, message):
    with pytest.raises(ValueError, match=message):
        OnOffDataset.from_files("on.csv", **arguments)


@pytest.mark.parametrize("arguments", [{"off": "off.csv", "alpha": 0.2}, {"join": "more.csv"}])
def test_a_table_takes_no_further_files(arguments):
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} requires files, not a table"):
        OnOffDataset.from_files(pd.DataFrame({"width": [1.0]}), **arguments)


@pytest.mark.slow
def test_joint_crab_counts():
    """On and Off counts of 125 real runs, as counted directly with astropy."""
    pytest.importorskip("astropy")
    files = sorted((SHARED / "data" / "fact" / "joint-crab").glob("*_dl3.fits"))
    if not files:
        pytest.skip("the public test data is not beside the project")
    regions = {"source_ra": 83.6333, "source_dec": 22.0133}
    config = AnalysisConfig(features=["energy"], derived_features={}, quality_cuts=[], groups="obs_id", regions=regions)
    observation = OnOffDataset.from_files(files, config)
    assert (observation.regions.counts.n_on, observation.regions.counts.n_off) == (618, 1108)
    assert round(observation.regions.counts.significance, 1) == 19.2
    assert len(np.unique(observation.groups)) > 100


def test_the_suggested_error_of_alpha_is_the_scatter_of_regions():
    rng = np.random.default_rng(2)
    found = []
    for scatter in (0.0, 0.05):
        factors = 1 + scatter * rng.normal(size=(200, 1, 5))
        found.append([alpha_error_of(rng.poisson(10_000 * one), np.ones((1, 5))) for one in factors])
    assert np.mean(np.array(found[0]) > 0) < 0.1
    assert np.sqrt(np.mean(np.square(found[1]))) == pytest.approx(0.05 * np.sqrt(6 / 5), rel=0.1)
    assert alpha_error_of(np.array([[100, 200]]), np.array([[1.0, 2.0]])) == 0
    region = np.repeat([0, 1, 2, 1, 2, -1], [100, 1000, 2000, 2000, 1000, 5])
    groups = np.repeat(["a", "b"], [3100, 3005])
    assert Regions(region, 3, 0.5).suggest_alpha_error(groups) > 0.3
    assert Regions(region, 3, 0.5).suggest_alpha_error() == 0
    assert Regions(region, 2, 1.0).suggest_alpha_error() is None


def test_the_suggested_error_of_alpha_covers_on_far_from_the_source():
    events = simulate_observation(200_000, 300, random_state=1)
    assert OnOffDataset.from_files(events).suggest_alpha_error() == 0
    lost = (events["theta_deg"] < 0.35) & (np.random.default_rng(0).random(len(events)) < 0.15)
    assert OnOffDataset.from_files(events[~lost]).suggest_alpha_error() == pytest.approx(0.15, abs=0.05)


def test_extended_regions_do_not_depend_on_chunks(tmp_path):
    path = tmp_path / "events.parquet"
    simulate_observation(20_000, 100, n_runs=20, random_state=3).to_parquet(path)
    whole, chunked = (OnOffDataset.from_files(path, chunk_rows=n).widen() for n in (200_000, 1_500))
    assert 0 < np.count_nonzero(whole.core) < len(whole.core)
    for name in ("X", "own_theta", "core", "groups"):
        np.testing.assert_array_equal(getattr(chunked, name), getattr(whole, name))
    np.testing.assert_array_equal(chunked.regions.region, whole.regions.region)
