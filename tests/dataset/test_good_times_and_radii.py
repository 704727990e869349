"""Good time intervals, the radius of regions from the instrument response, and runs without the source."""

import json

import numpy as np
import pandas as pd
import pytest
from gadf_file import SOURCE, write_gadf_run
from helpers import SHARED
from helpers import run_command as run

from excess.config import RegionConfig
from excess.dataset import OnOffDataset, find_regions, propose_config
from excess.dataset._regions import largest_rad_max
from excess.io import EventFileError, read_events

fits = pytest.importorskip("astropy.io.fits")
FEATURES = {"features": ["hil_msw"], "groups": "none", "source": SOURCE}


def add_rad_max(path, radii, offsets=((0.0, 10.0),)):
    """Append a table RAD_MAX_2D with one radius for each bin of energy, and offset."""
    edges = np.geomspace(0.5, 50, np.shape(radii)[-1] + 1)
    low, high = np.array(offsets).T
    axes = {"ENERG_LO": edges[:-1], "ENERG_HI": edges[1:], "THETA_LO": low, "THETA_HI": high}
    columns = [
        fits.Column(name, f"{len(one)}E", unit="TeV" if name[0] == "E" else "deg", array=[one])
        for name, one in axes.items()
    ]
    values = np.reshape(radii, (len(low), -1))
    dim = f"({values.shape[1]},{values.shape[0]})"
    columns.append(fits.Column("RAD_MAX", f"{values.size}E", unit="deg", dim=dim, array=values[np.newaxis]))
    with fits.open(path, "append") as hdus:
        table = fits.BinTableHDU.from_columns(columns, name="RAD_MAX")
        kinds = {"HDUCLAS1": "RESPONSE", "HDUCLAS2": "RAD_MAX", "HDUCLAS3": "POINT-LIKE", "HDUCLAS4": "RAD_MAX_2D"}
        table.header.update(kinds | {"HDUCLASS": "GADF"})
        hdus.append(table)


def set_good_times(path, intervals, **header):
    with fits.open(path, "update") as hdus:
        number = hdus.index_of("GTI")
        start, stop = np.reshape(np.array(intervals, dtype=float), (-1, 2)).T
        columns = [fits.Column(name, "D", unit="s", array=one) for name, one in (("START", start), ("STOP", stop))]
        old = hdus[number].header
        hdus[number] = fits.BinTableHDU.from_columns(columns, name="GTI")
        hdus[number].header.update({key: old[key] for key in ("MJDREFI", "MJDREFF", "TIMESYS", "TIMEUNIT")} | header)


def test_half_of_the_good_time_has_half_of_the_live_time_and_its_events(tmp_path):
    path = tmp_path / "run.fits"
    write_gadf_run(path)
    whole = OnOffDataset.from_files(path, **FEATURES)
    assert whole.census.n_bad_time == 0
    assert 3600 * whole.exposure.hours.sum() == pytest.approx(1180)
    set_good_times(path, [(300, 900)])
    half = OnOffDataset.from_files(path, **FEATURES)
    time = read_events(path, ["time"])["time"]
    inside = (time >= 300) & (time < 900)
    assert half.census.n_bad_time == (~inside).sum()
    assert 3600 * half.exposure.hours.sum() == pytest.approx(590)
    assert half.table["row"].tolist() == [row for row in whole.table["row"] if inside[row]]
    assert "outside good time intervals" in str(half)


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([(0, 400), (300, 500), (500, 600)], 600),  # overlaps count once
        ([(900, 1200), (0, 100)], 400),
        ([(100, 50), (np.nan, 10), (0, 200)], 200),
    ],
)
def test_intervals_in_any_order(intervals, seconds, tmp_path):
    path = tmp_path / "run.fits"
    write_gadf_run(path)
    set_good_times(path, intervals)
    table = read_events(path, ["time", "in_gti", "livetime", "ontime"])
    assert table["ontime"][0] == seconds
    assert table["livetime"][0] == pytest.approx(seconds * 1180 / 1200)
    good = [pair for pair in intervals if pair[1] > pair[0]]
    expected = np.any([(table["time"] >= low) & (table["time"] < high) for low, high in good], axis=0)
    np.testing.assert_array_equal(table["in_gti"], expected)


def test_intervals_with_another_reference_time(tmp_path):
    path = tmp_path / "run.fits"
    write_gadf_run(path)
    set_good_times(path, [(300 - 86400, 900 - 86400)], MJDREFI=51545)
    table = read_events(path, ["time", "in_gti"])
    np.testing.assert_array_equal(table["in_gti"], (table["time"] >= 300) & (table["time"] < 900))


def test_no_good_time_at_all(tmp_path):
    path = tmp_path / "run.fits"
    write_gadf_run(path)
    set_good_times(path, [])
    with pytest.raises(EventFileError, match=r"run\.fits"):
        OnOffDataset.from_files(path, **FEATURES)


def test_live_times_and_counts_against_gammapy(tmp_path, capsys):
    data = pytest.importorskip("gammapy.data")
    path = tmp_path / "run.fits"
    write_gadf_run(path)
    set_good_times(path, [(0, 250), (400, 700)])
    observation = data.Observation.read(path)
    found = OnOffDataset.from_files(path, **FEATURES)
    assert 3600 * found.exposure.hours.sum() == pytest.approx(observation.observation_live_time_duration.to_value("s"))
    parts = [observation.events.select_time(interval) for interval in observation.gti.time_intervals]
    assert found.census.n_read - found.census.n_bad_time == sum(len(part.table) for part in parts)
    source = parts[0].radec[0].__class__(*SOURCE, unit="deg")
    n_on = sum(np.count_nonzero(part.radec.separation(source).deg ** 2 < 0.025) for part in parts)
    assert found.counts.n_on == n_on
    assert run("info", path, "--source", "Crab", "--theta2", "0.025", "--json") == 0
    counts = json.loads(capsys.readouterr().out)["on_off"]["without a cut"]
    assert counts.startswith(f"On {n_on},")


def test_alpha_of_off_files_follows_good_times(tmp_path):
    on, off = tmp_path / "on.fits", tmp_path / "off.fits"
    write_gadf_run(on)
    write_gadf_run(off, obs_id=2, seed=1)
    set_good_times(off, [(0, 300)])
    found = OnOffDataset.from_files(on, off=off, **FEATURES)
    assert found.alpha == pytest.approx(4.0)


def test_radius_by_energy_against_gammapy(tmp_path):
    data, irf = pytest.importorskip("gammapy.data"), pytest.importorskip("gammapy.irf")
    from astropy.coordinates import SkyCoord

    path = tmp_path / "run.fits"
    write_gadf_run(path)
    add_rad_max(path, [[0.3, 0.2, 0.1, 0.05], [0.15, 0.12, 0.1, 0.05]], offsets=((0.0, 1.0), (1.0, 2.0)))
    proposal = propose_config(path, source=SOURCE)
    assert proposal.config.regions.rad_max
    assert proposal.config.regions.theta_squared_cut == pytest.approx(0.09)
    found = OnOffDataset.from_files(path, regions={"n_regions": 4}, **FEATURES)
    events = data.EventList.read(path)
    radii = irf.RadMax2D.read(path)
    source, pointing = SkyCoord(*SOURCE, unit="deg"), events.pointing_radec
    angle = pointing.position_angle(source).deg + 90 * np.arange(4)
    centers = pointing.directional_offset_by(angle * source.ra.unit, pointing.separation(source))
    counts = [len(events.select_rad_max(radii, center).table) for center in centers]
    assert (found.counts.n_on, found.counts.n_off) == (counts[0], sum(counts[1:]))
    assert found.halo is None
    # angles are in units in which the cut is the same for all energies
    assert (found.own_theta**2 < found.config.regions.theta_squared_cut).all()
    assert not any("RAD_MAX" in note for note in found.notes)


def test_a_given_cut_takes_the_place_of_that_of_the_response(tmp_path, capsys):
    path = tmp_path / "run.fits"
    write_gadf_run(path)
    fixed = OnOffDataset.from_files(path, **FEATURES)
    assert "RAD_MAX of run.fits" not in str(fixed)  # 0.1581 deg is the root of 0.025
    other = OnOffDataset.from_files(path, regions={"theta_squared_cut": 0.01}, **FEATURES)
    assert "radius of 0.1 deg, but the instrument response is for 0.1581 deg (RAD_MAX of run.fits)" in str(other)
    same = OnOffDataset.from_files(path, regions={"rad_max": True}, **FEATURES)
    assert same.config.regions.theta_squared_cut == pytest.approx(0.1581**2)
    options = ("--source", "Crab", "--features", "hil_msw", "--groups", "none", "-m", "tree", "--folds", "2")
    assert run("detect", path, *options, "--theta2", "irf", "--json", "-o", tmp_path / "out") == 0
    assert json.loads(capsys.readouterr().out)["observation"]["n_on"] == same.counts.n_on


@pytest.mark.parametrize("given", ["0", "-1", "nan", "wide", "1e9"])
def test_impossible_cuts(given, tmp_path, capsys):
    write_gadf_run(tmp_path / "run.fits")
    assert run("info", tmp_path / "run.fits", "--theta2", given) == 2
    assert "--theta2" in capsys.readouterr().err


def test_no_radius_in_a_table():
    table = pd.DataFrame(22.0, index=[0], columns=["ra", "dec", "pointing_ra", "pointing_dec", "energy"])
    with pytest.raises(EventFileError, match="RAD_MAX"):
        find_regions(table, RegionConfig(source_ra=22, source_dec=22, rad_max=True))


def test_runs_without_the_source_are_skipped(tmp_path):
    paths = [tmp_path / f"run{number}.fits" for number in range(4)]
    for number, path in enumerate(paths):
        write_gadf_run(path, obs_id=number, seed=number)
    for path, shift in ((paths[1], 4.0), (paths[3], -30.0)):
        with fits.open(path, "update") as hdus:
            hdus["EVENTS"].header["DEC_PNT"] += shift
            hdus["EVENTS"].data["DEC"] += shift
    found = OnOffDataset.from_files(paths, **FEATURES)
    alone = OnOffDataset.from_files([paths[0], paths[2]], **FEATURES)
    assert found.counts == alone.counts
    assert found.exposure.hours.sum() == pytest.approx(2 * 1180 / 3600)
    assert any(note.startswith("2 of 4 files do not contain the source") for note in found.notes)


@pytest.fixture(scope="module")
def joint_crab():
    files = sorted((SHARED / "data/fact/joint-crab").glob("*_dl3.fits"))
    if not files:
        pytest.skip("the public test data is not next to the project")
    return files, read_events(files, ["ra", "dec", "pointing_ra", "pointing_dec", "in_gti"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_regions", "n_on", "n_off", "off_regions"),
    [(6, 618, 1108, 5), ("auto", 618, 2271, 10), (6, 697, 1344, 5), ("auto", 697, 2437, 9)],
    ids=["fixed", "auto", "fixed with RAD_MAX", "auto with RAD_MAX"],
)
def test_joint_crab_against_gammapy(joint_crab, n_regions, n_on, n_off, off_regions):
    """Counts of real runs in the regions of gammapy's finders."""
    makers, data = pytest.importorskip("gammapy.makers"), pytest.importorskip("gammapy.data")
    from astropy import units
    from astropy.coordinates import SkyCoord
    from gammapy.makers.background.reflected import is_rad_max_compatible_region_geom
    from gammapy.maps import RegionGeom
    from regions import CircleSkyRegion

    files, table = joint_crab
    cut = 0.025 if n_on == 618 else largest_rad_max(files[:1])
    config = RegionConfig(source="Crab", n_regions=n_regions, theta_squared_cut=cut)
    found = find_regions(table, config)
    assert (found.counts.n_on, found.counts.n_off) == (n_on, n_off)
    assert found.n_off_regions == (off_regions, off_regions)
    source, radius = SkyCoord(config.source_ra, config.source_dec, unit="deg"), config.radius
    on = CircleSkyRegion(source, radius * units.deg)
    counts = np.zeros(2)
    for pointing, events in table[table["in_gti"]].groupby(["pointing_ra", "pointing_dec"]):
        center = SkyCoord(*pointing, unit="deg")
        finder = makers.WobbleRegionsFinder(5)
        if n_regions == "auto":
            sine = np.sin(source.separation(center).rad)
            first, width = (2 * np.arcsin(np.sin(factor * np.radians(radius)) / sine) for factor in (1.25, 1.0))
            gap = (first - width) * units.rad
            finder = makers.ReflectedRegionsFinder(0.01 * units.rad, min_distance_input=gap, binsz=0.01 * units.deg)
        off = finder.run(on, center)[0]
        assert len(off) == off_regions
        position = SkyCoord(events["ra"], events["dec"], unit="deg")
        inside = [position.separation(one.center).deg < radius for one in (on, *off)]
        counts += [inside[0].sum(), np.sum(inside[1:])]
    assert counts[0] == n_on
    # gammapy rotates in pixels, in which it also measures the width of regions
    assert counts[1] == pytest.approx(n_off, rel=0.02 if n_regions == "auto" else 0.002)
    if n_on == 697:
        store = data.DataStore.from_dir(files[0].parent)
        observation = store.obs(store.obs_ids[0], required_irf=["aeff", "edisp"])
        assert is_rad_max_compatible_region_geom(observation.rad_max, RegionGeom(on))
