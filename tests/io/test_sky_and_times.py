"""Unix times, nights, sky positions and telescopes, from headers and columns; astropy and gammapy are the oracles."""

import numpy as np
import pandas as pd
import pytest
from helpers import SHARED

from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import (
    EventFileError,
    Location,
    add_night,
    check_one_telescope,
    describe,
    find_telescope,
    iter_events,
    night_of,
    read_events,
    sky_positions,
)
from excess.io._coordinates import TIME_SCALES, unix_from_mjd, unix_from_seconds

fits = pytest.importorskip("astropy.io.fits")
units = pytest.importorskip("astropy.units")
time = pytest.importorskip("astropy.time")
iers = pytest.importorskip("astropy.utils.iers")
coordinates = pytest.importorskip("astropy.coordinates")

LA_PALMA = Location(-17.89139, 28.76139, 2184.0)
START = 1_383_523_200.0
"""4 November 2013, 0 h UTC."""


@pytest.mark.parametrize("scale", ["utc", "tai", "tt", "tdb"])
def test_time_scales_agree_with_astropy(scale):
    mjd = np.linspace(41_500.3, 60_500.7, 400)
    expected = time.Time(mjd, format="mjd", scale=scale).utc.unix
    np.testing.assert_allclose(unix_from_mjd(mjd, scale=scale), expected, atol=3e-3)
    elapsed = np.linspace(0, 6e8, 400)
    moments = time.Time(51_910.00074287037, format="mjd", scale=scale) + elapsed * units.s
    found = unix_from_seconds(elapsed, reference_mjd=51_910.00074287037, scale=scale)
    np.testing.assert_allclose(found, moments.utc.unix, atol=3e-3)
    assert scale in TIME_SCALES


@pytest.mark.parametrize(
    ("date", "longitude", "night"),
    [
        ("2013-11-03T12:00:01", None, 20131103),
        ("2013-11-04T11:59:59", None, 20131103),
        ("2013-11-04T12:59:59", -17.9, 20131103),  # before the local noon
        ("2013-11-04T13:20:00", -17.9, 20131104),
        ("2024-03-01T03:00:00", -110.95, 20240229),
        ("2013-12-31T20:00:00", 16.5, 20131231),
        ("2014-01-01T02:00:00", 16.5, 20131231),
        ("1969-12-31T02:00:00", 0.0, 19691230),
    ],
)
def test_nights_are_from_noon_to_noon(date, longitude, night):
    unix = np.datetime64(date).astype("datetime64[s]").astype(float)
    assert night_of([unix], longitude).tolist() == [night]


def test_nights_of_missing_times():
    found = night_of([START, np.nan])
    assert found[0] == 20131103
    assert np.isnan(found[1])


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("unix_time", [START, START + 86_400]),
        ("timestamp", ["2013-11-04 00:00:00", "2013-11-05 00:00:00"]),
        ("timestamp", [START, START + 86_400]),
        ("time", [56_600.0, 56_601.0]),
        ("time", [2_456_600.5, 2_456_601.5]),
    ],
)
def test_nights_of_tables_and_csv(tmp_path, column, values):
    table = pd.DataFrame({"width": [1.0, 2.0], column: values})
    assert add_night(table)["night"].tolist() == [20131103, 20131104]
    table.to_csv(tmp_path / "a.csv", index=False)
    info = describe(tmp_path / "a.csv")
    assert info.derived == ("night",)
    assert info.stored_columns == ("width", column)
    assert [part["night"].tolist() for part in iter_events(tmp_path / "a.csv", ["night"], chunk_rows=1)] == [
        [20131103],
        [20131104],
    ]


def test_seconds_from_an_unknown_origin_have_no_night(tmp_path):
    table = pd.DataFrame({"time": [66_103_155.0, 66_103_255.0]})
    assert "night" not in add_night(table)
    table.to_csv(tmp_path / "a.csv", index=False)
    assert describe(tmp_path / "a.csv").columns == ("time",)


def test_sky_positions_agree_with_astropy():
    rng = np.random.default_rng(0)
    altitude, azimuth = rng.uniform(30, 89, 500), rng.uniform(0, 360, 500)
    unix = START + rng.uniform(0, 30_000, 500)
    altitude[3] = unix[4] = np.nan
    ra, dec = sky_positions(altitude, azimuth, unix, LA_PALMA)
    assert np.flatnonzero(np.isnan(ra)).tolist() == np.flatnonzero(np.isnan(dec)).tolist() == [3, 4]
    known = np.isfinite(ra)
    place = coordinates.EarthLocation.from_geodetic(*LA_PALMA)
    frame = coordinates.AltAz(obstime=time.Time(unix[known], format="unix"), location=place)
    with iers.conf.set_temp("auto_download", False):
        expected = coordinates.SkyCoord(azimuth[known], altitude[known], unit="deg", frame=frame).icrs
    found = coordinates.SkyCoord(ra[known], dec[known], unit="deg")
    assert found.separation(expected).arcsec.max() < 1e-3
    assert [len(values) for values in sky_positions([], [], [], LA_PALMA)] == [0, 0]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("HESS", "H.E.S.S."),
        ("H.E.S.S.", "H.E.S.S."),
        ("hess-ii", "H.E.S.S."),
        ("VERITAS", "VERITAS"),
        ("MAGIC", "MAGIC"),
        ("CTA-N", "CTAO North"),
        ("CTAO North", "CTAO North"),
        ("cta_lst_1", "cta_lst_1"),
        ("LST-1", "LST-1"),
        ("HAWC", "HAWC"),
        ("SWGO", "SWGO"),
    ],
)
def test_names_of_telescopes(given, name):
    assert find_telescope(given).name == name


@pytest.mark.parametrize("name", [None, "", "UNKNOWN", " other "])
def test_names_that_say_nothing(name):
    assert find_telescope(name) is None


def write_list(path, *, pointing=None, columns=None, extension="EVENTS", **header):
    """Write a FITS event list of 20 events, one per 600 s."""
    own = {"EVENT_ID": np.arange(20), "RA": np.linspace(80, 85, 20), "DEC": np.linspace(20, 23, 20)}
    own |= {"ENERGY": np.ones(20), "TIME": 600.0 * np.arange(20)} if columns is None else columns
    table = fits.BinTableHDU.from_columns(
        [fits.Column(name, "D" if values.dtype.kind == "f" else "K", array=values) for name, values in own.items()],
        name=extension,
    )
    table.header.update(header)
    hdus = [fits.PrimaryHDU(), table]
    if pointing is not None:
        arrays = [fits.Column(name, "D", array=np.asarray(values, float)) for name, values in pointing.items()]
        hdus.append(fits.BinTableHDU.from_columns(arrays, name="POINTING"))
    fits.HDUList(hdus).writeto(path, overwrite=True)
    return path


RUN = {"MJDREFI": 56_600, "MJDREFF": 0.5, "TIMESYS": "TT", "RA_PNT": 83.0, "DEC_PNT": 22.0, "OBS_ID": 7}


def test_header_of_a_run(tmp_path):
    header = {"TELESCOP": "HESS", "LIVETIME": 1600.0, "ONTIME": 1700.0, "DEADC": 0.94, "ALT_PNT": 60.0, "AZ_PNT": 10.0}
    path = write_list(tmp_path / "run.fits", **RUN, **header)
    info = describe(path)
    assert (info.telescope, info.data_level, info.location.longitude) == ("H.E.S.S.", "DL3", 16.5003)
    assert info.derived == ("unix_time", "night")
    table = read_events(path)
    assert table.shape == (20, len(info.columns))
    expected = {
        "deadc": 0.94,
        "livetime": 1600.0,
        "ontime": 1700.0,
        "obs_id": 7,
        "pointing_alt": 60.0,
        "night": 20131104,
    }
    assert {name: table[name].unique().tolist() for name in expected} == {
        key: [value] for key, value in expected.items()
    }
    moments = time.Time(56_600.5 + table["time"].to_numpy() / 86_400, format="mjd", scale="tt").utc.unix
    np.testing.assert_allclose(table["unix_time"], moments, atol=1e-4)


def test_times_agree_with_gammapy():
    gammapy = pytest.importorskip("gammapy.data")
    path = SHARED / "data" / "fact" / "joint-crab" / "20131103_103_dl3.fits"
    if not path.exists():
        pytest.skip("the public test data is not beside the project")
    table = read_events(path, ["unix_time"])
    np.testing.assert_allclose(table["unix_time"], gammapy.EventList.read(path).time.utc.unix, atol=1e-4)


def test_longitude_of_the_header_wins(tmp_path):
    path = write_list(tmp_path / "run.fits", **RUN, TELESCOP="HESS", GEOLON=-120.0, GEOLAT=10.0, ALTITUDE=100.0)
    assert describe(path).location == Location(-120.0, 10.0, 100.0)
    assert set(read_events(path, ["night"])["night"]) == {20131103}  # 12 h UTC is the morning there


def test_drift_scan_with_a_table_of_pointings(tmp_path):
    pointing = {"TIME": [0, 12_000], "RA_PNT": [350.0, 40.0], "DEC_PNT": [22.0, 23.0]}
    path = write_list(tmp_path / "drift.fits", pointing=pointing, **RUN, OBS_MODE="DRIFT")
    table = read_events(path, ["pointing_ra", "pointing_dec", "time"])
    np.testing.assert_allclose(table["pointing_ra"], (350 + 50 * table["time"] / 12_000) % 360)
    np.testing.assert_allclose(table["pointing_dec"], 22 + table["time"] / 12_000)
    fixed = write_list(tmp_path / "wobble.fits", pointing=pointing, **RUN, OBS_MODE="WOBBLE")
    assert set(read_events(fixed, ["pointing_ra"])["pointing_ra"]) == {83.0}


def test_drift_scan_with_a_fixed_direction(tmp_path):
    header = {"OBS_MODE": "DRIFT", "ALT_PNT": 70.0, "AZ_PNT": 180.0, "TELESCOP": "HAWC"}
    path = write_list(tmp_path / "drift.fits", **(RUN | header))
    table = read_events(path)
    steps = np.diff(np.unwrap(table["pointing_ra"], period=360))
    np.testing.assert_allclose(steps, 360 * 600 / 86_164.09, rtol=1e-3)
    assert np.ptp(table["pointing_dec"]) < 0.05  # precession tilts the equator of date


def test_lists_of_air_shower_arrays(tmp_path):
    """Few columns, no pointing, no times; the table may have another name."""
    path = write_list(tmp_path / "hawc.fits", columns={"NHIT_BIN": np.arange(20)}, extension="XCDF", TELESCOP="HAWC")
    info = describe(path)
    assert (info.telescope, info.columns) == ("HAWC", ("event_id", "ra", "dec", "nhit_bin"))
    pd.DataFrame({"RA": [83.6], "Dec": [22.0], "bin": [4]}).to_csv(tmp_path / "hawc.csv", index=False)
    assert read_events(tmp_path / "hawc.csv", ["ra", "dec", "bin"]).iloc[0].tolist() == [83.6, 22.0, 4]


def test_files_of_different_telescopes_are_refused(tmp_path):
    files = [write_list(tmp_path / f"{name}.fits", **RUN, TELESCOP=name) for name in ("HESS", "MAGIC")]
    files.append(write_list(tmp_path / "unknown.fits", **RUN))
    read_events([files[0], files[2]])
    message = r"MAGIC.fits: is of MAGIC, but .*HESS.fits is of H.E.S.S.; .* one observation per telescope"
    for call in (read_events, iter_events, check_one_telescope, OnOffDataset.from_files):
        with pytest.raises(EventFileError, match=message):
            call(files)
    with pytest.raises(EventFileError, match=message):
        OnOffDataset.from_files(files[0], off=files[1], alpha=1.0, source=(83.0, 22.5))


def test_nights_are_the_default_groups():
    folder = SHARED / "data" / "fact" / "joint-crab"
    if not folder.exists():
        pytest.skip("the public test data is not beside the project")
    settings = AnalysisConfig(features=["energy"], derived_features={}, quality_cuts=[])
    found = OnOffDataset.from_files(sorted(folder.glob("*_dl3.fits"))[::5], settings, source=(83.6333, 22.0133))
    assert found.group_column == "night"
    assert set(found.groups.tolist()) <= {20131103, 20131104, 20131105}


def test_runs_are_the_groups_where_there_are_no_nights():
    others = ("night", "run_id", "event_num", "timestamp", "unix_time", "time")
    table = simulate_observation(20_000, 100, random_state=0).drop(columns=list(others), errors="ignore")
    table["obs_id"] = np.arange(len(table)) % 4
    found = OnOffDataset.from_files(table)
    assert (found.group_column, found.config.groups) == ("obs_id", "obs_id")
    with pytest.raises(ValueError, match="no column 'night'"):
        OnOffDataset.from_files(table, AnalysisConfig(groups="night"))
