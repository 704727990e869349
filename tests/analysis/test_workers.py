"""A model applied to files, one after the other and on workers."""

import pandas as pd
import pytest
from excess.analysis.workers import apply_to_files
from helpers import make_forest, write_nights

from excess.analysis.training import train_on_files
from excess.events import load_config, read_events

pytest.importorskip("h5py")


def test_applying_to_files_of_an_observation(tmp_path):
    config, paths = load_config(), write_nights(tmp_path, 3, 60_000)
    trained = train_on_files(make_forest(), paths, config, chunk_rows=17_000)
    targets = {path: tmp_path / f"scored-{path.name}" for path in paths}
    applied = apply_to_files(trained.model, config, targets, chunk_rows=10_000)
    assert [found.n_events for found in applied.values()] == [60_000] * 3
    scored = read_events(targets[paths[1]], ["gamma_prediction", "selected"])
    assert scored["selected"].sum() == applied[paths[1]].n_selected > 0


def test_applying_on_workers(tmp_path, shared_client):
    config, paths = load_config(), write_nights(tmp_path, 2, 20_000)
    trained = train_on_files(make_forest(), paths, config)
    scores = {}
    for executor, number in ((shared_client, 0), (None, 1)):
        targets = {path: tmp_path / f"{number}-{path.name}" for path in paths}
        applied = apply_to_files(trained.model, config, targets, executor=executor)
        scores[number] = [read_events(target, ["gamma_prediction", "selected"]) for target in targets.values()]
        assert [found.n_events for found in applied.values()] == [20_000] * 2
    for ours, theirs in zip(scores[0], scores[1], strict=True):
        pd.testing.assert_frame_equal(ours, theirs)
