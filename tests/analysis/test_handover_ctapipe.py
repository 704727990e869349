"""Scored files of ctapipe: its own TableLoader reads our table beside its own."""

import numpy as np
import pandas as pd
import pytest
from ctapipe_files import write_ctapipe_dl2
from helpers import SHARED, files_limited_to, run_command

from excess.analysis import apply, train
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import EventFileError, EventWriter, FileCopy, describe, read_events

h5py = pytest.importorskip("h5py")
pytest.importorskip("ctapipe")

NAMES = {"width": "HillasReconstructor_h_max", "length": "Regressor_energy"}
N_EVENTS = 60


@pytest.fixture(scope="module")
def trained():
    table = simulate_observation(20_000, 400, random_state=0).rename(columns=NAMES)
    config = AnalysisConfig(features=list(NAMES.values()), derived_features={}, quality_cuts=[])
    return train(OnOffDataset.from_files(table, config), "li-ma-tree")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("ctapipe") / "events.dl2.h5"
    events = simulate_observation(1_000, 200, random_state=1).sample(N_EVENTS, random_state=0)
    events = events.rename(columns={"width": "h_max", "length": "energy"})
    events.iloc[5, list(events).index("energy")] = np.nan
    write_ctapipe_dl2(path, events)
    return path


def test_table_loader_reads_our_columns_beside_its_own(trained, path, tmp_path):
    from ctapipe.io import TableLoader

    [applied] = apply(trained, path, tmp_path / "scored.h5", chunk_rows=17).values()
    assert (applied.n_events, applied.n_scored) == (N_EVENTS, N_EVENTS - 1)
    with TableLoader(path) as loader:
        before = loader.read_subarray_events()
    with TableLoader(applied.path) as loader:
        after = loader.read_subarray_events()
        part = loader.read_subarray_events(start=20, stop=30)
    new = ["excess_score", "excess_prediction", "excess_selected", "excess_is_valid"]
    assert [name for name in after.colnames if name not in before.colnames] == new
    for name in before.colnames:
        np.testing.assert_array_equal(after[name], before[name])
    X = pd.DataFrame({name: np.asarray(after[name], dtype=float) for name in NAMES.values()})
    valid = X.notna().all(axis=1).to_numpy()
    np.testing.assert_array_equal(after["excess_is_valid"], valid)
    np.testing.assert_array_equal(after["excess_score"][valid], trained.model.predict_proba(X[valid])[:, 1])
    np.testing.assert_array_equal(after["excess_prediction"][valid], trained.model.predict_signal_proba(X[valid]))
    np.testing.assert_array_equal(after["excess_selected"][valid], trained.model.predict(X[valid]) == 1)
    assert after["excess_selected"].dtype == after["excess_is_valid"].dtype == bool
    assert 0 < after["excess_selected"].sum() < N_EVENTS
    assert np.isnan(after["excess_prediction"][~valid]).all()
    np.testing.assert_array_equal(part["excess_score"], after["excess_score"][20:30])
    assert after["excess_prediction"].description.startswith("Signal probability")


def test_all_else_in_the_file_stays(trained, path, tmp_path):
    before = path.read_bytes()
    [applied] = apply(trained, path, tmp_path / "scored.h5").values()
    assert path.read_bytes() == before
    ours = "dl2/event/subarray/particle_type"
    with h5py.File(path) as source, h5py.File(applied.path) as scored:
        found = []

        def compare(name, node):
            found.append(name)
            other = scored[name]
            assert sorted(other.attrs) == sorted(node.attrs)
            if isinstance(node, h5py.Dataset):
                assert other.dtype == node.dtype
                assert other[()].tobytes() == node[()].tobytes()

        source.visititems(compare)
        names = []
        scored.visit(names.append)
    assert sorted(set(names) - set(found)) == [ours, f"{ours}/excess"]


def test_our_own_reader_and_info(trained, path, tmp_path, capsys):
    [applied] = apply(trained, path, tmp_path / "scored.h5").values()
    table = read_events(applied.path)
    assert {"excess_score", "excess_signal_probability", "excess_selected"} <= set(table)
    assert "excess_prediction" not in table
    assert table["excess_selected"].sum() == applied.n_selected
    assert run_command("info", applied.path) == 0
    assert f"{applied.n_selected} of {N_EVENTS} events" in capsys.readouterr().out
    # a second model goes beside the first; what is there is never replaced
    with pytest.raises(EventFileError, match="already has a column 'excess_score'"):
        apply(trained, applied.path, tmp_path / "again.h5")
    [second] = apply(trained, applied.path, tmp_path / "again.h5", prefix="night").values()
    both = read_events(second.path)
    np.testing.assert_array_equal(both["night_score"], both["excess_score"])
    apply(trained, path, applied.path)  # written by an earlier call


@pytest.mark.skipif(not (SHARED / "data" / "cta").is_dir(), reason="CTA's simulated events are not there")
def test_dl1_of_several_telescopes(tmp_path):
    """Real DL1: images of one shower are one event, with one score; the copy is read as before."""
    path = SHARED / "data" / "cta" / "cta_gammas_diffuse.dl1.h5"
    names = {"width": "hillas_width_mean", "length": "hillas_length_mean"}
    table = simulate_observation(20_000, 400, random_state=0).rename(columns=names)
    config = AnalysisConfig(features=list(names.values()), derived_features={}, quality_cuts=["n_telescopes > 2"])
    trained = train(OnOffDataset.from_files(table.assign(n_telescopes=3), config), "li-ma-tree")
    before = read_events(path)
    [applied] = apply(trained, path, tmp_path / "scored.dl1.h5", chunk_rows=400).values()
    after = read_events(applied.path)
    pd.testing.assert_frame_equal(after[list(before)], before)
    X = before[list(config.features)]
    passed = ((before["n_telescopes"] > 2) & X.notna().all(axis=1)).to_numpy()
    assert applied.n_scored == passed.sum() < len(before) == applied.n_events
    np.testing.assert_array_equal(after["excess_is_valid"], passed)
    np.testing.assert_array_equal(after["excess_score"][passed], trained.model.predict_proba(X[passed])[:, 1])


def test_ctapipe_reads_rows_into_its_container(trained, path, tmp_path):
    from ctapipe.containers import ParticleClassificationContainer
    from ctapipe.io import HDF5TableReader

    [applied] = apply(trained, path, tmp_path / "scored.h5").values()
    inside = "/dl2/event/subarray/particle_type/excess"
    with HDF5TableReader(applied.path) as reader:
        rows = list(reader.read(inside, ParticleClassificationContainer, prefixes=["excess"]))
    assert len(rows) == N_EVENTS
    assert rows[0].prediction == read_events(applied.path)["excess_signal_probability"][0]


def scores(keys, value=0.5):
    n_events = len(keys)
    return pd.DataFrame(keys, columns=["obs_id", "event_id"]).assign(
        excess_score=np.linspace(0, 1, n_events), excess_signal_probability=value, excess_selected=True
    )


def keys_of(path):
    with h5py.File(path) as file:
        trigger = file["dl1/event/subarray/trigger"][:]
    return list(zip(trigger["obs_id"].tolist(), trigger["event_id"].tolist(), strict=True))


@pytest.mark.parametrize("order", ["reversed", "gaps", "late gaps"])
def test_scores_find_their_rows_by_key(path, tmp_path, order):
    keys = keys_of(path)
    given = {"reversed": keys[::-1], "gaps": keys[1::3], "late gaps": keys[:20] + keys[31::2]}[order]
    table = scores(given)
    with EventWriter(tmp_path / "out.h5", copy_of=FileCopy(path)) as writer:
        for start in range(0, len(table), 10):
            writer.append(table[start : start + 10])
    with h5py.File(tmp_path / "out.h5") as file:
        stored = file["dl2/event/subarray/particle_type/excess"][:]
    assert list(zip(stored["obs_id"].tolist(), stored["event_id"].tolist(), strict=True)) == keys
    expected = table.set_index(["obs_id", "event_id"]).reindex(pd.MultiIndex.from_tuples(keys))
    np.testing.assert_array_equal(stored["excess_score"], expected["excess_score"])
    np.testing.assert_array_equal(stored["excess_is_valid"], expected["excess_score"].notna())


def test_an_image_that_was_cut_away_leaves_the_score_of_the_other_one(path, tmp_path):
    """As by a model of one telescope, with the quality cut tel_id == 1."""
    keys = keys_of(path)
    table = scores([key for key in keys for _ in range(2)])
    table.loc[::2, ["excess_score", "excess_signal_probability"]] = np.nan
    table.loc[::2, "excess_selected"] = False
    with EventWriter(tmp_path / "out.h5", copy_of=FileCopy(path)) as writer:
        writer.append(table[:31])
        writer.append(table[31:])
    with h5py.File(tmp_path / "out.h5") as file:
        stored = file["dl2/event/subarray/particle_type/excess"][:]
    np.testing.assert_array_equal(stored["excess_score"], table["excess_score"][1::2])
    assert stored["excess_is_valid"].all()


def test_events_that_have_no_row_or_two(path, tmp_path):
    keys = keys_of(path)
    for given, message in (
        ([*keys[:3], (9, 9)], "event with obs_id 9, event_id 9 is not in /dl1/event/subarray/trigger"),
        ([keys[0], keys[1], keys[1]], "event with obs_id 2, event_id 1 has several rows with a score"),
    ):
        with pytest.raises(EventFileError, match=message), EventWriter(tmp_path / "out.h5", copy_of=path) as writer:
            writer.append(scores(given))
    assert not list(tmp_path.iterdir())


def test_selected_events_alone_are_refused(trained, path, tmp_path, capsys):
    trained.save(tmp_path / "model")
    assert run_command("apply", tmp_path / "model", path, "-o", tmp_path / "out.h5", "--selected-only") == 1
    assert "requires FITS, Parquet or CSV files" in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert describe(path).format == "ctapipe HDF5 DL2"


def test_a_full_disk_leaves_nothing(trained, path, tmp_path):
    n_bytes = path.stat().st_size
    for limit in (n_bytes // 2, n_bytes):  # while the file is copied, and while the table is written
        message = rf"{tmp_path}/scored.h5: writing failed \(File too large\)"
        with pytest.raises(EventFileError, match=message), files_limited_to(limit):
            apply(trained, path, tmp_path / "scored.h5")
        assert not list(tmp_path.iterdir())


def test_scores_that_earlier_versions_have_written(trained, path, tmp_path):
    [applied] = apply(trained, path, tmp_path / "scored.h5").values()
    now = read_events(applied.path)
    with h5py.File(applied.path, "a") as file:
        file.require_group("dl2/event/subarray/classification")
        file.move("dl2/event/subarray/particle_type/excess", "dl2/event/subarray/classification/excess")
    before = read_events(applied.path)
    pd.testing.assert_frame_equal(before[sorted(before)], now[sorted(now)])
    with pytest.raises(EventFileError, match="already"):
        apply(trained, applied.path, tmp_path / "twice.h5")
