"""Positions on the sky, the field around the source, and the way back to the files."""

import numpy as np
import pandas as pd
import pytest

from excess import OnOffTreeClassifier
from excess.analysis import detect
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.dataset._regions import (
    exclusion_offsets,
    field_radius,
    offset_position,
    place_by_method,
    region_centers,
    sky_offsets,
)
from excess.io import read_events, write_events

CRAB = (83.6333, 22.0133)
CONFIG = AnalysisConfig(regions={"source_ra": CRAB[0], "source_dec": CRAB[1]})


@pytest.fixture(scope="module")
def table():
    return simulate_observation(30_000, 300, source=CRAB, random_state=0)


def test_sky_positions_agree_with_the_angles(table):
    columns = ["ra", "dec", "pointing_ra", "pointing_dec"]
    theta = place_by_method(table[columns], CONFIG.regions.model_copy(update={"n_regions": 6})).theta
    near = table["theta_deg"].to_numpy() < 1
    np.testing.assert_allclose(theta[near, 0], table["theta_deg"][near], atol=2e-4)
    for k in range(1, 6):
        np.testing.assert_allclose(theta[near, k], table[f"theta_deg_off_{k}"][near], atol=1e-3)
    plain = simulate_observation(30_000, 300, random_state=0)
    pd.testing.assert_frame_equal(table[list(plain)], plain)


@pytest.mark.parametrize("dec", [-89.5, -30.0, 0.0, 60.0])
def test_offsets_undo_positions(dec):
    rng = np.random.default_rng(0)
    east, north = rng.uniform(-2, 2, size=(2, 100))
    ra, found_dec = offset_position(359.9, dec, east=east, north=north)
    columns = {"ra": ra, "dec": found_dec, "pointing_ra": np.full(100, 359.9), "pointing_dec": np.full(100, dec)}
    settings = AnalysisConfig(regions={"source_ra": 359.9, "source_dec": dec}).regions
    found = sky_offsets(pd.DataFrame(columns), settings)
    np.testing.assert_allclose(found, np.column_stack([east, north, 0 * east, 0 * east]), atol=1e-9)


def test_the_field_around_the_regions_is_kept_where_positions_are_known(table):
    observation = OnOffDataset.from_files(table, CONFIG)
    nearby, cut = observation.nearby, CONFIG.regions.theta_squared_cut
    assert observation.sky.shape == (len(observation.X), 5)
    assert OnOffDataset.from_files(table).sky is None  # the source is not known
    assert (
        len(OnOffDataset.from_files(table).nearby.X)
        == nearby.near.sum()
        == observation.summary()["n_nearby"]
        < len(nearby.X)
    )
    assert (np.hypot(*nearby.sky[~nearby.near, :2].T) < field_radius(cut)).all()
    assert OnOffDataset.from_files(table, CONFIG, nearby=False).sky is None
    np.testing.assert_allclose(np.hypot(*observation.sky[:, :2].T), observation.theta[:, 0], atol=2e-4)


def test_regions_are_found_from_angles(table):
    observation = OnOffDataset.from_files(table, CONFIG)
    centers = region_centers(observation.sky, observation.theta)
    expected = [
        [sign * 0.6 * np.sin(angle), sign * 0.6 * (1 - np.cos(angle))]
        for sign in (1, -1)
        for angle in 2 * np.pi * np.arange(1, 6) / 6
    ]
    for center in expected:
        assert np.hypot(*(centers - center).T).min() < 0.005
    assert len(centers) == 10
    assert region_centers(observation.sky, None).shape == (0, 2)


def test_exclusions_and_ring_segments_have_a_map(table):
    star = {"ra": CRAB[0] + 0.8 / np.cos(np.radians(CRAB[1])), "dec": CRAB[1], "radius": 0.2}
    settings = {"source_ra": CRAB[0], "source_dec": CRAB[1], "exclusion": [star], "n_regions": "auto"}
    config = AnalysisConfig(regions={**settings, "method": "ring"})
    np.testing.assert_allclose(exclusion_offsets(config.regions), [[0.8, 0.0, 0.2]], atol=3e-3)
    observation = OnOffDataset.from_files(table, config)
    assert not observation.nearby.near.any()  # a ring has no centre to be near to
    found = detect(observation, {"tree": OnOffTreeClassifier(max_depth=2)}, null_tests=False).detections["tree"]
    assert found.nearby is None
    assert found.sky.layers["all"].significance[30, 30] > 5
    assert len(found.sky.off_centers) == 0
    reflected = OnOffDataset.from_files(table, AnalysisConfig(regions={**settings, "method": "reflected"}))
    centers = region_centers(reflected.sky, reflected.theta)
    assert 2 < len(centers) < 30
    assert (np.hypot(*(centers - [0.8, 0.0]).T) > 0.2 + 0.15).all()


def test_a_share_of_too_many_events_is_drawn_whatever_the_chunks(table, tmp_path, monkeypatch):
    write_events(table[: len(table) // 2], tmp_path / "a.csv")
    write_events(table[len(table) // 2 :], tmp_path / "b.csv")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    whole = OnOffDataset.from_files(files, CONFIG)
    n_far = int((~whole.nearby.near).sum())
    monkeypatch.setattr("excess.dataset._dataset.thin_field.__defaults__", (n_far // 3,))
    found = [OnOffDataset.from_files(files, CONFIG, chunk_rows=rows).nearby for rows in (1_000, 100_000)]
    assert [one.share for one in found] == [0.25, 0.25]
    np.testing.assert_array_equal(found[0].sky, found[1].sky)
    assert found[0].near.sum() == whole.nearby.near.sum()
    assert (~found[0].near).sum() == pytest.approx(n_far / 4, rel=0.1)
    assert (found[0].sky[~found[0].near, 4] < 0.25).all()
    assert OnOffDataset.from_files(table, CONFIG).nearby.share == 0.25


@pytest.mark.parametrize("chunk_rows", [500, 200_000])
def test_events_lead_back_to_their_files(table, tmp_path, chunk_rows):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path, part in zip(paths, (table[:12_000], table[12_000:]), strict=True):
        write_events(part, path)
    frame = OnOffDataset.from_files(paths, chunk_rows=chunk_rows).events_frame()
    assert set(frame["file"]) == set(map(str, paths))
    for path in paths:
        own = frame[frame["file"] == str(path)]
        events = read_events(path).iloc[own["row"]]
        for name in ("night", "run_id", "event_num", "theta_deg"):
            np.testing.assert_array_equal(own[name], events[name])
    # a table has no file, but rows
    own = OnOffDataset.from_files(table).events_frame()
    assert "file" not in own
    np.testing.assert_array_equal(table["event_num"].iloc[own["row"]], own["event_num"])


def test_joined_and_off_files_lead_back_as_well(table, tmp_path):
    keys = ["event_num", "night", "run_id"]
    thetas = [name for name in table if name.startswith("theta")]
    write_events(table.drop(columns=thetas), tmp_path / "a.csv")
    shuffled = table[[*keys, *thetas]].sample(frac=1, random_state=0)
    write_events(shuffled, tmp_path / "b.csv")
    frame = OnOffDataset.from_files(tmp_path / "a.csv", join=tmp_path / "b.csv").events_frame()
    assert set(frame["file"]) == {str(tmp_path / "a.csv")}
    np.testing.assert_array_equal(table["event_num"].iloc[frame["row"]], frame["event_num"])
    on = table["theta_deg"] ** 2 < 0.025
    off = (table["theta_deg_off_3"] ** 2 < 0.025) & ~on
    for name, part in (("on", table[on]), ("off", table[off])):
        write_events(part, tmp_path / f"{name}.csv")
    found = OnOffDataset.from_files(tmp_path / "on.csv", off=tmp_path / "off.csv", alpha=1.0).events_frame()
    assert found.groupby("file")["row"].max().to_dict() == {
        str(tmp_path / "off.csv"): off.sum() - 1,
        str(tmp_path / "on.csv"): on.sum() - 1,
    }


def test_read_events_says_where_events_are(tmp_path):
    for name, n in (("a", 2), ("b", 3)):
        write_events(pd.DataFrame({"width": np.arange(float(n))}), tmp_path / f"{name}.csv")
    found = read_events([tmp_path / "a.csv", tmp_path / "b.csv"], locate=True)
    assert found["_row"].tolist() == [0, 1, 0, 1, 2]
    assert found["_file"].tolist() == [str(tmp_path / "a.csv")] * 2 + [str(tmp_path / "b.csv")] * 3
