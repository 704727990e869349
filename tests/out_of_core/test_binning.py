"""The survey of all events and the store of records: the same edges from any chunks, and temporary files."""

import shutil

import numpy as np
import pytest
from chunked_events import N_EVENTS, cut
from helpers import make_forest

from excess.estimators._forest import binning
from excess.out_of_core import InProcess, _events, fit_forest
from excess.out_of_core._events import CheckedChunk


def test_surveys_of_many_files_stay_small(monkeypatch):
    monkeypatch.setattr(_events, "N_SAMPLED", 400)
    X, y = np.random.default_rng(0).random((5000, 2)), np.arange(5000) % 2
    whole = _events.Survey(9)
    whole.add(CheckedChunk(X, y, None, "all"), 0)
    cutoff = _events._sample_cutoff(5000, 400)
    parts = []
    for first in range(0, 5000, 500):
        parts.append(_events.Survey(9, cutoff))
        parts[-1].add(CheckedChunk(X[first : first + 500], y[first : first + 500], None, "a part"), first)
    assert 400 <= sum(len(part.sample) for part in parts) < 800
    merged = _events.Survey(9, cutoff)
    for part in parts[::-1]:
        merged.merge(part)
    np.testing.assert_array_equal(np.sort(merged.hashes), np.sort(whole.hashes))
    assert merged.labels == whole.labels == {0: 2500, 1: 2500}
    assert _events._sample_cutoff(500, 400) is None


def test_edges_do_not_depend_on_chunks(events, monkeypatch):
    for module in (binning, _events):
        monkeypatch.setattr(module, "N_SAMPLED", 500)
    whole = make_forest(min_samples_leaf=5).fit(*events)
    for n_chunks in (2, 29):
        chunked = fit_forest(make_forest(min_samples_leaf=5), cut(events, n_chunks))
        for ours, theirs in zip(chunked._trees.edges, whole._trees.edges, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_records_go_to_files_that_are_removed(events, weights, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = set()

    class Watching(InProcess):
        def map(self, function, parts):
            seen.update((path.name, path.stat().st_size) for path in tmp_path.glob("excess-*/*"))
            return super().map(function, parts)

    fit_forest(make_forest(), cut(events, 3, None, weights), executor=Watching(2), memory=2**16)
    assert seen == {("records", 8 * N_EVENTS), ("weights", 8 * N_EVENTS)}  # six features and the label are one word
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_for_records(events, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(_events, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 8, 1))
    with pytest.raises(OSError, match=f"{tmp_path}: .* TMPDIR"):
        fit_forest(make_forest(), cut(events, 3), memory=2**16)
    assert list(tmp_path.iterdir()) == []
