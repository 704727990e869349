"""Scored files of lstchain: pandas, PyTables, ctapipe and astropy read our columns in its table."""

import numpy as np
import pandas as pd
import pytest
from helpers import files_limited_to
from lstchain_file import DL1, DL2, SRC_DEP, lst_events, write_lstchain

from excess.analysis import apply, train
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import EventFileError, FileCopy, read_events
from excess.io._writing import COPIES

h5py = pytest.importorskip("h5py")
tables = pytest.importorskip("tables")

N_EVENTS = 300
NEW = ["excess_score", "excess_signal_probability", "excess_selected"]


@pytest.fixture(scope="module")
def events():
    return lst_events(N_EVENTS)


@pytest.fixture(params=[DL2, DL1], ids=["DL2", "DL1"])
def inside(request):
    return request.param


@pytest.fixture
def path(tmp_path, events, inside):
    write_lstchain(tmp_path / "run.h5", events, inside)
    return tmp_path / "run.h5"


def scores(events):
    score = np.linspace(0, 1, len(events))
    values = dict(zip(NEW, (score, score / 2, score > 0.5), strict=True))
    return events[["obs_id", "event_id"]].assign(**values)


def write_copy(path, target, new, n_rows=70):
    sink = COPIES["lstchain HDF5 DL2"].open(target, new, copy=FileCopy(path, history=("scored",)))
    for start in range(0, len(new), n_rows):
        sink.append(new[start : start + n_rows])
    sink.close()


def test_what_other_tools_read(path, events, inside, tmp_path):
    from astropy.table import Table
    from ctapipe.io import read_table

    target, new = tmp_path / "scored.h5", scores(events)
    write_copy(path, target, new)
    expected = events.assign(**{name: new[name] for name in NEW})
    pd.testing.assert_frame_equal(pd.read_hdf(target, key=inside), expected)  # what lstchain does
    pd.testing.assert_frame_equal(read_table(target, inside).to_pandas(), expected)
    by_astropy = Table.read(target, path=inside)
    np.testing.assert_array_equal(by_astropy["excess_score"], new["excess_score"])
    with tables.open_file(path) as before, tables.open_file(target) as after:
        old, table = before.get_node(inside), after.get_node(inside)
        assert table.filters.complib == old.filters.complib == "blosc:zstd"
        assert table.attrs["config"] == {"source_dependent": False}
        assert table.attrs["LSTCHAIN_VERSION"] == after.root._v_attrs["LSTCHAIN_VERSION"] == "0.10.7"
        assert table.attrs["excess_history_0"] == "scored"
        assert len(table.read_where("excess_selected")) == new["excess_selected"].sum()
        np.testing.assert_array_equal(after.get_node(SRC_DEP)[:], before.get_node(SRC_DEP)[:])


@pytest.mark.parametrize("n_rows", [1, 7, 1000])
def test_images_of_one_shower_get_its_score(events, tmp_path, n_rows):
    images = events.loc[np.repeat(events.index, 1 + events.index % 4)].reset_index(drop=True)
    write_lstchain(tmp_path / "run.h5", images)
    new = scores(events)
    write_copy(tmp_path / "run.h5", tmp_path / "scored.h5", new, n_rows)
    found = pd.read_hdf(tmp_path / "scored.h5", key=DL2)
    pd.testing.assert_frame_equal(found[list(images)], images)
    pd.testing.assert_frame_equal(
        found[list(new)], images[["obs_id", "event_id"]].merge(new, on=["obs_id", "event_id"])
    )


def test_the_old_table_makes_room_for_the_new_one(tmp_path):
    events = lst_events(20_000)
    write_lstchain(tmp_path / "run.h5", events)
    write_copy(tmp_path / "run.h5", tmp_path / "scored.h5", scores(events), n_rows=3_000)
    before, after = ((tmp_path / name).stat().st_size for name in ("run.h5", "scored.h5"))
    assert before < after < before + 20_000 * 17 + 50_000


def test_what_is_refused(path, events, tmp_path):
    new = scores(events)
    cases = [
        (
            new.assign(event_id=new["event_id"] + 1),
            "event with obs_id 2008, event_id 11 is not at its expected position",
        ),
        (new[:10], "columns of 10 rows do not match a file of 300"),
        (pd.concat([new, new]), "is not at its expected position"),
        (new.rename(columns={"excess_score": "gammaness"}), "already has 'gammaness'; choose another name"),
    ]
    for table, message in cases:
        with pytest.raises(ValueError, match=message):
            write_copy(path, tmp_path / "out.h5", table, n_rows=1000)
    with h5py.File(path, "r+") as file:
        group = file["dl2" if "dl2/event/telescope/parameters" in file else "dl1"]["event/telescope/parameters"]
        group["other"] = group["LST_LSTCam"][:]
    with pytest.raises(EventFileError, match="or several"):
        write_copy(path, tmp_path / "out.h5", new)


def test_applying_a_model(path, events, inside, tmp_path):
    names = ["intensity", "width", "length", "wl"]
    given = dict(zip(["size", "width", "length", "area"], names, strict=True))
    table = simulate_observation(20_000, 400, random_state=0).assign(area=1.0).rename(columns=given)
    config = AnalysisConfig(features=names, derived_features={}, quality_cuts=["intensity > 100"])
    trained = train(OnOffDataset.from_files(table, config), "li-ma-tree")
    before = path.read_bytes()
    [applied] = apply(trained, path, tmp_path / "scored.h5", chunk_rows=90).values()
    assert path.read_bytes() == before
    found = pd.read_hdf(applied.path, key=inside)
    pd.testing.assert_frame_equal(found[list(events)], events)
    assert list(found)[-3:] == NEW
    passed = (events["intensity"] > 100).to_numpy()
    np.testing.assert_array_equal(found["excess_score"].notna(), passed)
    X = events.loc[passed, names].astype(float)
    np.testing.assert_array_equal(found["excess_score"][passed], trained.model.predict_proba(X)[:, 1])
    again = read_events(applied.path)
    np.testing.assert_array_equal(again["excess_selected"], found["excess_selected"])
    with pytest.raises(EventFileError, match="already has a column 'excess_score'"):
        apply(trained, applied.path, tmp_path / "again.h5")
    n_bytes, left = path.stat().st_size, sorted(tmp_path.iterdir())
    with pytest.raises(EventFileError, match=r"writing failed \(File too large\)"), files_limited_to(n_bytes):
        apply(trained, path, tmp_path / "full.h5")
    assert sorted(tmp_path.iterdir()) == left
