"""A model applied to files, one after the other and on workers."""

import numpy as np
import pandas as pd
import pytest
from helpers import make_forest, write_nights

from excess.analysis import apply, train, train_in_chunks
from excess.analysis._apply import OutputColumns
from excess.config import AnalysisConfig, to_features
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import EventFileError, read_events, write_events

pytest.importorskip("h5py")

NEW = ["excess_score", "excess_signal_probability", "excess_selected"]


@pytest.fixture(scope="module")
def trained():
    return train(OnOffDataset.from_files(simulate_observation(20_000, 400, random_state=0)), "li-ma-tree")


@pytest.fixture(scope="module")
def table():
    """A night with scores of another analysis, and with events that miss a feature."""
    night = simulate_observation(3_000, 60, n_nights=1, first_night=20140101, random_state=7)
    return night.assign(
        gamma_prediction=np.linspace(0, 1, len(night)), width=night["width"].where(night.index % 10 > 0)
    )


@pytest.mark.slow
def test_applying_to_files_of_an_observation(tmp_path):
    paths = write_nights(tmp_path, 3, 12_000)
    trained = train_in_chunks(paths, model=make_forest(), chunk_rows=3_400)
    applied = apply(trained, paths, tmp_path / "scored", chunk_rows=2_000)
    assert [found.n_events for found in applied.values()] == [12_000] * 3
    scored = read_events(applied[paths[1]].path, NEW)
    assert scored["excess_selected"].sum() == applied[paths[1]].n_selected > 0


@pytest.mark.parametrize(
    ("given", "written"), [("hdf5", "hdf5"), ("hdf5", "parquet"), ("parquet", "parquet"), ("csv", "hdf5")]
)
def test_columns_of_a_file_stay_and_new_ones_say_what_the_model_says(trained, table, tmp_path, given, written):
    path, target = tmp_path / f"in.{given}", tmp_path / f"out.{written}"
    write_events(table, path)
    before = read_events(path)
    [applied] = apply(trained, path, target, chunk_rows=700).values()
    after = read_events(target)
    assert sorted(after) == sorted([*before, *NEW])
    pd.testing.assert_frame_equal(after[list(before)], before)
    features = to_features(table, trained.config)
    X = pd.DataFrame(features.X[features.valid], columns=features.names)
    expected = {
        "excess_score": trained.model.predict_proba(X)[:, 1],
        "excess_signal_probability": trained.model.predict_signal_proba(X),
        "excess_selected": trained.model.predict(X) == 1,
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(after[name][features.valid], values)
    assert after.loc[~features.valid, NEW[:2]].isna().all(axis=None)
    assert not after.loc[~features.valid, "excess_selected"].any()
    assert (applied.n_scored, applied.n_selected) == (features.valid.sum(), after["excess_selected"].sum())
    assert 0 < applied.n_selected < applied.n_scored < len(table)


def test_a_column_that_is_there_is_never_replaced(trained, table, tmp_path):
    """All files are looked at before the first is written."""
    paths = [tmp_path / "first.parquet", tmp_path / "second.parquet"]
    write_events(table, paths[0])
    write_events(table.assign(excess_signal_probability="mine"), paths[1])
    with pytest.raises(
        EventFileError, match=r"second.parquet: already has a column 'excess_signal_probability'.*prefix"
    ):
        apply(trained, paths, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == paths
    applied = apply(trained, paths, tmp_path / "out", prefix="tree")
    found = read_events(applied[paths[1]].path)
    assert (found["excess_signal_probability"] == "mine").all()
    assert [name for name in found if name not in table] == ["excess_signal_probability", *OutputColumns.of("tree")]


def test_several_models_are_applied_one_after_the_other(trained, table, tmp_path):
    write_events(table, tmp_path / "0.hdf5")
    for number, prefix in enumerate(("one", "two")):
        apply(trained, tmp_path / f"{number}.hdf5", tmp_path / f"{number + 1}.hdf5", prefix=prefix)
    found = read_events(tmp_path / "2.hdf5")
    for one, two in zip(OutputColumns.of("one"), OutputColumns.of("two"), strict=True):
        pd.testing.assert_series_equal(found[one], found[two], check_names=False)
    with pytest.raises(EventFileError, match="already has a column 'two_score'"):
        apply(trained, tmp_path / "2.hdf5", tmp_path / "3.hdf5", prefix="two")


@pytest.mark.parametrize("prefix", ["", "a/b", "2nd", "with space", "_x", "\N{GREEK SMALL LETTER ALPHA}", "a\n", None])
def test_prefixes_that_are_refused(trained, prefix):
    with pytest.raises(ValueError, match="prefix must be letters, digits and underscores"):
        apply(trained, "absent.csv", "out.csv", prefix=prefix)


@pytest.mark.parametrize("name", [*NEW, "excess_fold", "crab_signal_probability", "crab_selected"])
def test_what_a_model_says_is_no_feature(name):
    with pytest.raises(ValueError, match="output of a classifier"):
        AnalysisConfig(features=["width", name])


def test_applying_on_workers(tmp_path, shared_client):
    paths = write_nights(tmp_path, 2, 20_000)
    trained = train_in_chunks(paths, model=make_forest())
    scores = {}
    ways = {"dask": {"executor": shared_client}, "memory": {}, "chunks": {"chunk_rows": 3_000}}
    for name, options in ways.items():
        applied = apply(trained, paths, tmp_path / name, **options)
        scores[name] = [read_events(found.path, NEW) for found in applied.values()]
        assert [found.n_events for found in applied.values()] == [20_000] * 2
    for number, expected in enumerate(scores["memory"]):
        assert expected["excess_signal_probability"].max() > 0
        for name in ("dask", "chunks"):
            pd.testing.assert_frame_equal(scores[name][number], expected, check_exact=True)
    with pytest.raises(EventFileError, match="already has a column 'excess_score'"):
        apply(trained, list((tmp_path / "dask").iterdir()), tmp_path / "again", executor=shared_client)
    assert not (tmp_path / "again").exists()


def test_files_with_many_columns_give_no_warning(trained, table, tmp_path):
    wide = pd.concat([table, pd.DataFrame({f"more_{number}": table["width"] for number in range(110)})], axis=1)
    write_events(wide, tmp_path / "wide.hdf5")
    apply(trained, tmp_path / "wide.hdf5", tmp_path / "scored.parquet")
    assert list(read_events(tmp_path / "scored.parquet", NEW).columns) == NEW
