"""Regions on the sky: reflected, ring and same declination, against gammapy, astropy and simulated events."""

import numpy as np
import pandas as pd
import pytest

from excess import OnOffCounts, OnOffTreeClassifier, null_test
from excess.analysis import detect, read_run
from excess.analysis._info import info
from excess.config import AnalysisConfig, RegionConfig
from excess.dataset import OnOffDataset, find_regions
from excess.dataset._leakage import find_origin
from excess.dataset._regions import (
    METHODS,
    N_OFFSET_BINS,
    angles_between,
    choose_method,
    reflect,
    ring_exposure,
    shift,
    turn_about,
    unit_vectors,
)
from excess.io import EventFileError

CRAB = {"source_ra": 83.63, "source_dec": 22.01}
SOURCE = unit_vectors(83.63, 22.01)
STARS = [
    {"name": "star", "ra": 84.2, "dec": 22.8, "radius": 0.3},
    {"name": "other", "ra": 82.8, "dec": 22.7, "radius": 0.25},
]
TREE = OnOffTreeClassifier(max_depth=2, min_samples_leaf=30)


def degrees_of(center):
    """Return right ascension and declination of those centres that are there."""
    center = center[np.isfinite(center[..., 0])]
    return np.degrees(np.arctan2(center[:, 1], center[:, 0])) % 360, np.degrees(np.arcsin(center[:, 2]))


def draw_field(rng, pointing_ra, pointing_dec, n_events, width=1.0, run=1, largest=2.5):
    """Return events of one run whose density falls with the offset, as that of a camera does; there is no source."""
    offset = np.radians(
        width * np.sqrt(-2 * np.log(1 - rng.uniform(size=n_events) * (1 - np.exp(-((largest / width) ** 2) / 2))))
    )
    axis = unit_vectors(pointing_ra, pointing_dec)
    start = turn_about(np.cross(axis, [0.0, 0.0, 1.0]) / np.linalg.norm(np.cross(axis, [0.0, 0.0, 1.0])), axis, offset)
    event = turn_about(axis, start, rng.uniform(0, 2 * np.pi, n_events))
    ra, dec = degrees_of(event)
    table = {"ra": ra, "dec": dec, "pointing_ra": pointing_ra, "pointing_dec": pointing_dec, "obs_id": run}
    return pd.DataFrame({**table, "energy": rng.lognormal(size=n_events), "width": rng.normal(size=n_events)})


def field_config(**regions):
    return AnalysisConfig(
        features=["energy", "width"], derived_features={}, quality_cuts=[], groups="obs_id", regions={**CRAB, **regions}
    )


@pytest.fixture(scope="module")
def several_runs():
    """Four pointings; one is so near to the source that fewer regions fit, one has an exclusion in an Off region."""
    rng = np.random.default_rng(0)
    pointings = [(83.63, 22.61), (83.63, 21.41), (83.63, 22.21), (83.0, 22.01)]
    return pd.concat(
        [draw_field(rng, *pointing, 30_000, run=run) for run, pointing in enumerate(pointings)], ignore_index=True
    )


@pytest.mark.parametrize(
    ("pointing", "cut", "exclusion"),
    [
        ((83.63, 22.61), 0.025, []),
        ((83.2, 22.5), 0.025, STARS),
        ((83.2, 22.5), 0.01, STARS),
        ((83.63, 22.31), 0.025, []),
        ((84.3, 21.7), 0.02, STARS[:1]),
    ],
)
def test_as_many_as_fit_against_gammapy(pointing, cut, exclusion):
    units, coordinates = pytest.importorskip("astropy.units"), pytest.importorskip("astropy.coordinates")
    makers, maps = pytest.importorskip("gammapy.makers"), pytest.importorskip("gammapy.maps")
    from regions import CircleSkyRegion

    center = coordinates.SkyCoord(*pointing, unit="deg")
    on = CircleSkyRegion(coordinates.SkyCoord(83.63, 22.01, unit="deg"), np.sqrt(cut) * units.deg)
    mask = None
    if exclusion:
        circles = [
            CircleSkyRegion(coordinates.SkyCoord(one["ra"], one["dec"], unit="deg"), one["radius"] * units.deg)
            for one in exclusion
        ]
        mask = ~maps.WcsGeom.create(skydir=center, binsz=0.01, width=4).region_mask(circles)
    # our smallest distance as the rotation that gammapy adds to that of regions that touch
    sine = np.sin(on.center.separation(center).rad)
    first, width = (2 * np.arcsin(np.sin(factor * np.radians(np.sqrt(cut))) / sine) for factor in (1.25, 1.0))
    finder = makers.ReflectedRegionsFinder(
        angle_increment=0.01 * units.rad, min_distance_input=(first - width) * units.rad, binsz=0.01 * units.deg
    )
    expected = coordinates.SkyCoord([one.center for one in finder.run(on, center, mask)[0]])
    config = RegionConfig(n_regions="auto", theta_squared_cut=cut, exclusion=exclusion)
    ra, dec = degrees_of(reflect(unit_vectors([pointing[0]], [pointing[1]]), SOURCE, config)[0, 1:])
    found = coordinates.SkyCoord(ra, dec, unit="deg")
    assert len(found) == len(expected) >= 4
    # gammapy measures regions in pixels, and the differences of the widths add up
    assert found.separation(expected).deg.max() < 0.1 * np.sqrt(cut) * len(found)
    np.testing.assert_allclose(found.separation(center).deg, on.center.separation(center).deg, atol=1e-9)
    nearest = [np.delete(one.separation(found).deg, k).min() for k, one in enumerate(found)]
    assert min(nearest) >= 2 * np.sqrt(cut) * (1 - 1e-9)


@pytest.mark.parametrize(("exclusion", "n_off"), [([], 5), (STARS[:1], 4), (STARS, 2)])
def test_equal_steps_against_gammapy(exclusion, n_off):
    units, coordinates = pytest.importorskip("astropy.units"), pytest.importorskip("astropy.coordinates")
    makers, maps = pytest.importorskip("gammapy.makers"), pytest.importorskip("gammapy.maps")
    from regions import CircleSkyRegion

    center = coordinates.SkyCoord(83.3, 22.5, unit="deg")
    circles = [
        CircleSkyRegion(coordinates.SkyCoord(one["ra"], one["dec"], unit="deg"), one["radius"] * units.deg)
        for one in exclusion
    ]
    mask = ~maps.WcsGeom.create(skydir=center, binsz=0.01, width=4).region_mask(circles) if circles else None
    on = CircleSkyRegion(coordinates.SkyCoord(83.63, 22.01, unit="deg"), 0.025**0.5 * units.deg)
    expected = coordinates.SkyCoord([one.center for one in makers.WobbleRegionsFinder(5).run(on, center, mask)[0]])
    ra, dec = degrees_of(reflect(unit_vectors([83.3], [22.5]), SOURCE, RegionConfig(exclusion=exclusion))[0, 1:])
    found = coordinates.SkyCoord(ra, dec, unit="deg")
    assert len(found) == len(expected) == n_off
    assert max(expected.separation(one).deg.min() for one in found) < 0.002


@pytest.mark.parametrize("exclusion", [[], STARS])
def test_ring_against_pixels_of_gammapy(exclusion):
    """The solid angles of On and ring, counted on a map."""
    coordinates, maps = pytest.importorskip("astropy.coordinates"), pytest.importorskip("gammapy.maps")
    center, source = (coordinates.SkyCoord(*one, unit="deg") for one in ((83.3, 22.5), (83.63, 22.01)))
    geom = maps.WcsGeom.create(skydir=center, binsz=0.005, width=2.4)
    pixel, area = geom.get_coord().skycoord, geom.solid_angle().to_value("deg2")
    radius, offset = 0.025**0.5, source.separation(center).deg
    part = np.floor((pixel.separation(center).deg - offset + radius) / (2 * radius) * N_OFFSET_BINS)
    theta = pixel.separation(source).deg
    free = theta > 1.5 * radius
    for one in exclusion:
        free &= pixel.separation(coordinates.SkyCoord(one["ra"], one["dec"], unit="deg")).deg > one["radius"]
    config = RegionConfig(method="ring", n_regions="auto", exclusion=exclusion, **CRAB)
    found = ring_exposure(unit_vectors(83.3, 22.5), SOURCE, config)
    for number in range(N_OFFSET_BINS):
        on, off = (area[(part == number) & chosen].sum() for chosen in (theta < radius, free))
        assert found[number].sum() == pytest.approx(off / on, rel=0.02)


def test_same_declination():
    config = RegionConfig(method="same_declination", n_regions=7, theta_squared_cut=0.25, **CRAB)
    ra, dec = degrees_of(shift(SOURCE, config))
    np.testing.assert_allclose(dec, 22.01, atol=1e-9)
    assert ra[0] == pytest.approx(83.63)
    np.testing.assert_allclose(ra[1::2] - 83.63, 83.63 - ra[2::2])  # both sides alike
    center = unit_vectors(ra, dec)
    apart = [np.degrees(angles_between(center[k], np.delete(center, k, axis=0))).min() for k in range(7)]
    np.testing.assert_allclose(sorted(apart), [1.0] * 6 + [1.25])
    # one that overlaps an exclusion is replaced by the next
    star = {"ra": ra[1], "dec": 22.01, "radius": 0.1}
    replaced, _ = degrees_of(shift(SOURCE, config.model_copy(update={"exclusion": (type_of(star),)})))
    assert len(replaced) == 7
    assert ra[1] not in replaced.round(9)


def type_of(exclusion):
    return RegionConfig(exclusion=[exclusion]).exclusion[0]


def test_same_declination_goes_around_and_stops():
    config = RegionConfig(method="same_declination", n_regions=300, theta_squared_cut=4.0, **CRAB)
    center = shift(SOURCE, config)
    assert 80 < len(center) < 90
    apart = [np.degrees(angles_between(one, np.delete(center, k, axis=0))).min() for k, one in enumerate(center)]
    assert min(apart) >= 4.0 - 1e-9
    with pytest.raises(ValueError, match="no room for an Off region at the declination of the source"):
        shift(unit_vectors(0.0, 89.5), config.model_copy(update={"source_dec": 89.5}))


def test_same_declination_is_doubtful_for_a_telescope_that_follows_the_source(several_runs):
    """Regions of the same declination are at other offsets from the pointing, which the null test shows."""
    observation = OnOffDataset.from_files(
        several_runs, field_config(method="same_declination", n_regions=5), nearby=False
    )
    assert observation.alpha == 0.25
    run = detect(observation, {"tree": TREE})
    assert run.verdict.status == "doubtful"
    assert "null-test" in {one.code for one in run.verdict.warnings}


def test_method_of_columns():
    angles = ["theta_deg", "theta_deg_off_1", "theta_deg_off_2", "theta_deg_off_3"]
    sky = ["ra", "dec", "pointing_ra", "pointing_dec"]
    assert choose_method([*angles, *sky], RegionConfig(n_regions="auto")) == ("angles", angles)
    assert choose_method([*angles, *sky], RegionConfig(n_regions=3)) == ("angles", angles[:3])
    assert choose_method([*angles, *sky], RegionConfig())[0] == "reflected"
    # exclusions need positions
    assert choose_method([*angles, *sky], RegionConfig(n_regions=3, exclusion=STARS))[0] == "reflected"
    assert choose_method(sky[:2], RegionConfig(method="same_declination")) == ("same_declination", sky[:2])
    with pytest.raises(ValueError, match="exclusion requires sky positions in the columns ra, dec"):
        choose_method(angles, RegionConfig(n_regions=4, exclusion=STARS))
    with pytest.raises(ValueError, match=r"method ring .*\(pointing_ra, pointing_dec missing\)"):
        choose_method(sky[:2], RegionConfig(method="ring"))
    assert set(METHODS) == {"angles", "reflected", "ring", "same_declination"}


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ({"n_regions": 1}, "must be 2 .*, got 1"),
        ({"n_regions": "many"}, "an integer or auto"),
        ({"n_regions": True}, "an integer or auto"),
        ({"method": "angles", "exclusion": STARS}, "exclusion cannot be combined with method: angles"),
        ({"method": "angles", "min_distance": 0.5}, "min_distance cannot be combined with method: angles"),
        ({"exclusion": [{"ra": 1, "dec": 2}]}, "radius"),
        ({"exclusion": [{"ra": 1, "dec": 2, "radius": 0}]}, "greater than 0"),
        ({"exclusion": [{"ra": 1, "dec": 2, "radius": 0.1, "size": 1}]}, "size"),
    ],
)
def test_bad_settings(regions, message):
    with pytest.raises(ValueError, match=message):
        RegionConfig(**regions)


def test_source_in_an_exclusion_is_refused(several_runs):
    crab = {"name": "Crab", "ra": 83.63, "dec": 22.01, "radius": 0.3}
    with pytest.raises(ValueError, match=r"the exclusion Crab .* overlaps the On region, 0.00 deg away"):
        find_regions(several_runs, RegionConfig(**CRAB, exclusion=[crab]))


def test_each_pointing_has_its_own_regions(several_runs):
    star = {"name": "star", "ra": 83.63, "dec": 23.2, "radius": 0.2}
    observation = OnOffDataset.from_files(several_runs, field_config(exclusion=[star]))
    by_run = {run: observation.event_alpha[observation.groups == run] for run in range(4)}
    assert {run: set(np.round(1 / alpha).tolist()) for run, alpha in by_run.items()} == {0: {4}, 1: {5}, 2: {2}, 3: {5}}
    assert "2 to 5 Off regions, by pointing" in str(observation)
    counts = observation.counts
    assert counts.background == pytest.approx(observation.event_alpha[observation.on == 0].sum())
    assert len(counts.parts) == 3
    assert abs(counts.significance) < 3
    # every region has as many events as the others of the same run, whatever its number is
    expected = np.bincount(observation.groups[observation.on == 0]) / [4, 5, 2, 5]
    for run in range(4):
        own = observation.regions.region[(observation.groups == run) & (observation.on == 0)]
        assert (np.bincount(own, minlength=6)[1:] < expected[run] + 5 * np.sqrt(expected[run])).all()
    angles = observation.theta[observation.groups == 2]
    assert np.isnan(angles[:, 3:]).all()


def test_chunks_of_files_with_other_numbers_of_regions(several_runs, tmp_path):
    for run, own in several_runs.groupby("obs_id"):
        own.to_csv(tmp_path / f"{run}.csv", index=False)
    config = field_config(n_regions="auto", exclusion=STARS)
    files = sorted(tmp_path.glob("*.csv"))
    in_chunks, at_once = (
        OnOffDataset.from_files(files, config, chunk_rows=7000),
        OnOffDataset.from_files(several_runs, config),
    )
    np.testing.assert_array_equal(in_chunks.regions.region, at_once.regions.region)
    np.testing.assert_array_equal(in_chunks.regions.exposure, at_once.regions.exposure)
    np.testing.assert_array_equal(in_chunks.event_alpha, at_once.event_alpha)
    np.testing.assert_allclose(in_chunks.theta, at_once.theta, atol=1e-9)
    assert in_chunks.nearby.theta.shape[1] == in_chunks.theta.shape[1] == in_chunks.regions.n_regions
    described = info(files[2], config)["on_off"]
    assert described["Off regions"].startswith("reflected, ")
    of_run = at_once.take(at_once.groups == 2)
    assert described["without a cut"] == str(of_run.counts)


def test_exclusions_that_all_pointings_share_leave_one_alpha():
    rng = np.random.default_rng(1)
    table = draw_field(rng, 83.63, 22.61, 20_000)
    star = {"name": "star", "ra": 83.63, "dec": 23.21, "radius": 0.2}
    observation = OnOffDataset.from_files(table, field_config(exclusion=[star]))
    assert observation.event_alpha is None
    assert (observation.alpha, observation.regions.n_regions, observation.theta.shape[1]) == (0.25, 5, 5)
    distance = np.degrees(angles_between(unit_vectors(83.63, 23.21), unit_vectors(table["ra"], table["dec"])))
    assert (distance < 0.2).sum() > 100
    assert observation.counts == OnOffCounts(observation.on.sum(), (1 - observation.on).sum(), 0.25)


def test_pointing_at_the_source():
    rng = np.random.default_rng(2)
    on_source = draw_field(rng, 83.63, 22.01, 5000)
    for method in ("reflected", "ring"):
        with pytest.raises(
            EventFileError, match=r"source is too close to the pointing, .* pass Off observations as files"
        ):
            OnOffDataset.from_files(on_source, field_config(method=method))


def test_runs_without_room_are_left_out_with_a_word(caplog):
    rng = np.random.default_rng(2)
    on_source, beside = draw_field(rng, 83.63, 22.01, 5000), draw_field(rng, 83.63, 22.61, 20_000, run=2)
    alone = OnOffDataset.from_files(beside, field_config())
    assert not caplog.records
    both = OnOffDataset.from_files(pd.concat([on_source, beside], ignore_index=True), field_config())
    assert "5,000 of 25,000 events are excluded" in caplog.text
    assert both.census.n_without_off == 5000
    assert both.counts == alone.counts


@pytest.mark.parametrize("method", ["reflected", "ring"])
def test_counts_without_a_source_are_normal(method):
    """The exposure ratio is right whatever the acceptance does with the offset."""
    rng = np.random.default_rng(3)
    config = RegionConfig(method=method, n_regions="auto", theta_squared_cut=0.06, exclusion=STARS, **CRAB)
    values, n_on, expected = [], 0.0, 0.0
    for _ in range(60):
        table = pd.concat(
            [draw_field(rng, *one, 4000, width=0.5) for one in ((83.1, 22.01), (83.63, 22.5))], ignore_index=True
        )
        counts = find_regions(table, config).counts
        values.append(counts.significance)
        n_on, expected = n_on + counts.n_on, expected + counts.background
    assert abs(np.mean(values)) < 3 / np.sqrt(60)
    assert 0.75 < np.std(values) < 1.25
    assert n_on / expected == pytest.approx(1, abs=3 / np.sqrt(n_on) * 1.2)


def test_null_regions_count_with_their_exposure(several_runs):
    star = {"name": "star", "ra": 83.63, "dec": 23.2, "radius": 0.2}
    observation = OnOffDataset.from_files(several_runs, field_config(exclusion=[star]))
    regions = observation.regions
    tested = null_test(
        TREE, observation.X, regions.region, n_regions=6, exposure=regions.exposure, groups=observation.groups,
        random_state=0,
    )  # fmt: skip
    assert set(tested.outcomes) == {1, 2, 3, 4, 5}
    assert np.abs(tested.significances).max() < 4
    for region, found in tested.detections.items():
        runs = np.unique(observation.groups[(regions.exposure[:, region - 1] > 0)])
        assert set(np.unique(found.groups)) == set(runs.tolist())
        for run in runs.tolist():
            n_off = {0: 4, 1: 5, 2: 2, 3: 5}[run]
            alpha = np.broadcast_to(found.alpha if found.event_alpha is None else found.event_alpha, len(found.on))
            np.testing.assert_allclose(alpha[found.groups == run], 1 / (n_off - 1))


@pytest.mark.parametrize(
    ("exposure", "message"),
    [(np.ones((3, 2)), "exposure must have 600 rows and 2 columns"), (-np.ones((600, 2)), "must not be negative")],
)
def test_bad_exposure(exposure, message):
    X, region = np.random.default_rng(0).normal(size=(600, 2)), np.arange(600) % 3
    with pytest.raises(ValueError, match=message):
        null_test(TREE, X, region, n_regions=3, exposure=exposure)


def test_a_run_with_regions_of_each_pointing(several_runs, tmp_path):
    star = {"name": "star", "ra": 83.63, "dec": 23.2, "radius": 0.2}
    observation = OnOffDataset.from_files(several_runs, field_config(exclusion=[star]))
    run = detect(observation, {"tree": TREE}, null_tests=True)
    assert "alpha-by-group" not in {one.code for one in run.verdict.warnings}
    run.write(tmp_path / "run")
    again = read_run(tmp_path / "run")
    assert again.verdict.status == run.verdict.status
    np.testing.assert_allclose(again.detections["tree"].event_alpha, observation.event_alpha)
    assert again.null_tests["tree"].significances == pytest.approx(run.null_tests["tree"].significances)
    assert again.result()["observation"]["n_off_regions"] == [2, 5]


def test_features_that_differ_between_pointings_are_no_positions():
    """Pointings with fewer Off regions may differ in a feature, such as the zenith distance."""
    rng = np.random.default_rng(4)
    n_off = rng.choice([2, 5], size=20_000)
    region = rng.integers(0, n_off + 1)
    exposure = (np.arange(5) < n_off[:, np.newaxis]).astype(float)
    feature = rng.normal(size=20_000) + 2 * (n_off == 5)
    naive = find_origin(feature, region, 1 / n_off, 6)
    assert naive.association > 0.1
    found = find_origin(feature, region, 1 / n_off, 6, exposure)
    assert found.association < 0.02
    assert found.association_p_value > 1e-3
    # and one that tells regions apart is still found
    found = find_origin(feature + region, region, 1 / n_off, 6, exposure)
    assert found.association > 0.1


def test_stack_of_observations_with_exposure(several_runs):
    star = {"name": "star", "ra": 83.63, "dec": 23.2, "radius": 0.2}
    rng = np.random.default_rng(5)
    first = OnOffDataset.from_files(several_runs, field_config(exclusion=[star]))
    second = OnOffDataset.from_files(draw_field(rng, 83.63, 22.61, 20_000, run=9), field_config())
    both = OnOffDataset.stack({"first": first, "second": second})
    assert both.regions.exposure.shape == (len(both.X), 5)
    assert set(np.round(1 / both.event_alpha).tolist()) == {2.0, 4.0, 5.0}
    assert both.counts.background == pytest.approx(first.counts.background + second.counts.background)
