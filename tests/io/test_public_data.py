"""Reading public files of FACT and CTA, where they lie beside the project."""

import numpy as np
import pandas as pd
import pytest
from helpers import SHARED

from excess.config import load_config, to_features
from excess.io import describe, iter_events, read_events

h5py = pytest.importorskip("h5py")
pytest.importorskip("astropy.io.fits")
pytest.importorskip("tables")

DATA = SHARED / "data"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA.exists(), reason="the public test data is not beside the project"),
]


@pytest.mark.parametrize(
    ("name", "kind", "n_events", "n_columns", "n_array_events"),
    [
        ("fact/gamma.hdf5", "FACT HDF5", 1000, 262, None),
        ("fact/gamma_diffuse.hdf5", "FACT HDF5", 1000, 274, None),
        ("fact/proton.hdf5", "FACT HDF5", 1000, 262, None),
        ("fact/crab_dl3_small.hdf5", "FACT HDF5", 10000, 14, None),
        ("fact/one_run_20151203_106.hdf5", "FACT HDF5", 1000, 237, None),
        ("fact/joint-crab/20131103_103_dl3.fits", "FITS event list", 240, 16, None),
        ("cta/cta_protons.dl1.h5", "ctapipe HDF5 DL1", 1356, 157, 1356),
        ("cta/cta_gammas_diffuse.dl1.h5", "ctapipe HDF5 DL1", 1110, 157, 1110),
    ],
)
def test_public_files(name, kind, n_events, n_columns, n_array_events):
    info = describe(DATA / name)
    assert (info.format, info.n_events, len(info.columns)) == (kind, n_events, n_columns)
    assert info.n_array_events == n_array_events
    table = read_events(DATA / name)
    assert table.shape == (n_events, n_columns)
    assert tuple(table.columns) == info.columns
    assert all(getattr(dtype, "isnative", True) for dtype in table.dtypes)
    chunks = list(iter_events(DATA / name, chunk_rows=333))
    assert max(map(len, chunks)) <= 333
    pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), table)


def test_joint_crab_event_lists():
    files = sorted((DATA / "fact" / "joint-crab").glob("*_dl3.fits"))
    table = read_events(files, ["ra", "dec", "energy", "pointing_ra", "obs_id", "livetime"])
    assert len(files) == table["obs_id"].nunique() == 125
    assert len(table) == 27306
    first = table[table["obs_id"] == 20131103103]
    assert first["pointing_ra"].unique() == [83.1375]
    assert first["livetime"].unique() == [294.99]


def test_older_spelling_against_raw_values():
    path = DATA / "fact" / "one_run_20151203_106.hdf5"
    table = read_events(path, ["theta_deg", "theta_deg_off_5", "width", "leakage1", "night", "photoncharge_shower_max"])
    with h5py.File(path) as file:
        raw = file["events"]
        np.testing.assert_allclose(table["theta_deg"], np.degrees(raw["Theta"][:] / 4889.0), rtol=1e-14)
        np.testing.assert_allclose(table["theta_deg_off_5"], np.degrees(raw["Theta_Off_5"][:] / 4889.0), rtol=1e-14)
        np.testing.assert_array_equal(table["width"], raw["Width"][:])
        np.testing.assert_array_equal(table["leakage1"], raw["Leakage"][:])
        np.testing.assert_array_equal(table["photoncharge_shower_max"], raw["phChargeShower_max"][:])
    assert set(table["night"]) == {20151203}


def test_older_moments_are_standardised():
    table = read_events(DATA / "fact" / "one_run_20151203_106.hdf5")
    for axis in ("long", "trans"):
        # Pearson's inequality, which only standardised moments obey.
        assert (table[f"kurtosis_{axis}"] >= table[f"skewness_{axis}"] ** 2 + 1).all()
    features = to_features(table, load_config())
    assert 0.3 < features.valid.mean() < 0.9


@pytest.mark.parametrize("name", ["gamma", "gamma_diffuse", "proton"])
def test_default_features_of_simulated_events(name):
    config = load_config()
    features = to_features(read_events(DATA / "fact" / f"{name}.hdf5", config.columns_needed()), config)
    assert features.X.shape == (1000, 22)
    assert features.valid.mean() > 0.9


def test_truth_of_ctapipe_dl1_belongs_to_the_same_event():
    tables = pytest.importorskip("tables")
    path = DATA / "cta" / "cta_protons.dl1.h5"
    table = read_events(path, ["obs_id", "event_id", "tel_id", "hillas_width", "true_energy"])
    assert set(table["tel_id"]) == set(range(1, 20))
    with tables.open_file(path) as file:
        shower = file.root.simulation.event.subarray.shower.read()
        third = file.root.dl1.event.telescope.parameters.tel_003.read()
    energy = dict(zip(shower["event_id"].tolist(), shower["true_energy"].tolist(), strict=True))
    assert table["true_energy"].tolist() == [energy[event] for event in table["event_id"]]
    np.testing.assert_array_equal(table.loc[table["tel_id"] == 3, "hillas_width"], third["hillas_width"])
