"""A model applied to files, one after the other and on workers."""

import pandas as pd
import pytest
from helpers import make_forest, write_nights

from excess.analysis import apply, train_in_chunks
from excess.events import read_events

pytest.importorskip("h5py")


@pytest.mark.slow
def test_applying_to_files_of_an_observation(tmp_path):
    paths = write_nights(tmp_path, 3, 60_000)
    trained = train_in_chunks(paths, model=make_forest(), chunk_rows=17_000)
    applied = apply(trained, paths, tmp_path / "scored", chunk_rows=10_000)
    assert [found.n_events for found in applied.values()] == [60_000] * 3
    scored = read_events(applied[paths[1]].path, ["gamma_prediction", "selected"])
    assert scored["selected"].sum() == applied[paths[1]].n_selected > 0


def test_applying_on_workers(tmp_path, shared_client):
    paths = write_nights(tmp_path, 2, 20_000)
    trained = train_in_chunks(paths, model=make_forest())
    scores = {}
    for executor, number in ((shared_client, 0), (None, 1)):
        applied = apply(trained, paths, tmp_path / str(number), executor=executor)
        scores[number] = [read_events(found.path, ["gamma_prediction", "selected"]) for found in applied.values()]
        assert [found.n_events for found in applied.values()] == [20_000] * 2
    for ours, theirs in zip(scores[0], scores[1], strict=True):
        pd.testing.assert_frame_equal(ours, theirs)
