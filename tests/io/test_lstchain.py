"""lstchain's layout: tables written with PyTables, call for call as lstchain's `write_dl2_dataframe` does it.

lstchain itself cannot be installed beside the ctapipe that the other tests need.
"""

import numpy as np
import pandas as pd
import pytest
from lstchain_file import DL1, DL2, lst_events, write_lstchain

from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset
from excess.io import EventFileError, describe, iter_events, read_events

pytest.importorskip("tables")
units = pytest.importorskip("astropy.units")
coordinates = pytest.importorskip("astropy.coordinates")
time = pytest.importorskip("astropy.time")

PLACE = (-17.891497, 28.761526, 2200.0)
CRAB = (83.6331, 22.0145)


def crab_events(n_events: int, n_signal: int) -> tuple[pd.DataFrame, coordinates.SkyCoord, coordinates.SkyCoord]:
    """Return events of two nights with directions, their sky positions, and the pointing."""
    n = n_events + n_signal
    events = lst_events(n)
    rng = np.random.default_rng(1)
    start = 1_605_920_400 + 86_400 * (np.arange(n) >= n // 2)  # 21 November 2020, 1 h UTC, and a day later
    events["dragon_time"] = start + np.sort(rng.uniform(0, 3000, n))
    events["obs_id"] = 2929 + (np.arange(n) >= n // 2)
    crab = coordinates.SkyCoord(*CRAB, unit="deg")
    pointing = crab.directional_offset_by(30 * units.deg, 0.4 * units.deg)
    offset = 1.2 * np.sqrt(rng.uniform(0, 1, n)) * units.deg
    sky = pointing.directional_offset_by(rng.uniform(0, 360, n) * units.deg, offset)
    near = crab.directional_offset_by(rng.uniform(0, 360, n) * units.deg, rng.rayleigh(0.05, n) * units.deg)
    signal = rng.permutation(n) < n_signal
    sky = coordinates.SkyCoord(np.where(signal, near.ra, sky.ra), np.where(signal, near.dec, sky.dec), unit="deg")
    frame = coordinates.AltAz(
        obstime=time.Time(events["dragon_time"], format="unix"),
        location=coordinates.EarthLocation.from_geodetic(*PLACE),
    )
    for (altitude, azimuth), place in ((("reco_alt", "reco_az"), sky), (("alt_tel", "az_tel"), pointing)):
        horizon = place.transform_to(frame)
        events[altitude], events[azimuth] = horizon.alt.rad, horizon.az.rad
    return events, sky, pointing


@pytest.mark.parametrize(("inside", "level"), [(DL2, "DL2"), (DL1, "DL1")])
def test_columns_of_lstchain(tmp_path, inside, level):
    events = lst_events(100)
    if level == "DL1":
        events = events.drop(columns=["reco_alt", "reco_az", "reco_energy", "gammaness"]).assign(gammaness=0.0)
    write_lstchain(tmp_path / "a.h5", events, inside)
    info = describe(tmp_path / "a.h5")
    assert (info.format, info.telescope, info.data_level) == (f"lstchain HDF5 {level}", "LST-1", level)
    assert (info.n_events, info.is_simulated, info.stored_columns) == (100, False, tuple(events.columns))
    read = read_events(tmp_path / "a.h5", list(info.stored_columns))
    pd.testing.assert_frame_equal(read, events, check_dtype=False)
    assert read["is_good_event"].dtype == bool
    chunks = list(iter_events(tmp_path / "a.h5", ["width", "night"], chunk_rows=33))
    assert [len(chunk) for chunk in chunks] == [33, 33, 33, 1]
    assert {"unix_time", "night", "pointing_ra"} <= set(info.derived)
    assert ("ra" in info.derived) == (level == "DL2")


def test_sky_positions_and_a_detection(tmp_path):
    events, sky, pointing = crab_events(3000, 200)
    write_lstchain(tmp_path / "a.h5", events)
    table = read_events(tmp_path / "a.h5", ["ra", "dec", "pointing_ra", "pointing_dec", "night"])
    for name, expected in (("ra", sky.ra.deg), ("dec", sky.dec.deg)):
        np.testing.assert_allclose(table[name], expected, atol=1e-6)
    np.testing.assert_allclose(table["pointing_ra"], pointing.ra.deg, atol=1e-6)
    assert set(table["night"]) == {20201120, 20201121}
    config = AnalysisConfig(features=["width", "length"], derived_features={}, quality_cuts=["intensity > 50"])
    found = OnOffDataset.from_files(tmp_path / "a.h5", config, source=CRAB)
    assert found.group_column == "night"
    assert found.counts.significance > 8


def test_simulated_events(tmp_path):
    write_lstchain(tmp_path / "a.h5", lst_events(10).drop(columns="dragon_time").assign(mc_energy=1.0))
    info = describe(tmp_path / "a.h5")
    assert info.is_simulated
    assert info.derived == ()


def test_images_of_several_telescopes_are_one_event(tmp_path):
    events = lst_events(100)
    events["event_id"] = np.arange(100) // 2
    events["tel_id"] = (1 + np.arange(100) % 2).astype(np.int16)
    write_lstchain(tmp_path / "a.h5", events)
    info = describe(tmp_path / "a.h5")
    assert (info.telescope, info.n_events, info.n_images) == ("LST", 50, 100)
    table = read_events(tmp_path / "a.h5", ["event_id", "width_mean", "intensity_sum", "n_telescopes"])
    assert set(table["n_telescopes"]) == {2}
    first = events[events["event_id"] == table["event_id"][0]]
    assert table["width_mean"][0] == pytest.approx(np.average(first["width"], weights=first["intensity"]))
    images = read_events(tmp_path / "a.h5", rows="telescopes")
    pd.testing.assert_frame_equal(images[list(events)], events, check_dtype=False)


def test_tables_without_keys(tmp_path):
    write_lstchain(tmp_path / "a.h5", lst_events(10).drop(columns="event_id"))
    with pytest.raises(EventFileError, match=r"LST_LSTCam has no column 'event_id'"):
        describe(tmp_path / "a.h5")
