"""Records in a temporary file."""

import shutil

import pytest
from chunked_events import N_EVENTS, cut
from helpers import make_forest

from excess.distributed import InProcess, fit_forest


def test_records_go_to_a_file_that_is_removed(events, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []

    class Watching(InProcess):
        def reduce(self, reduction, parts):
            seen.extend(path.stat().st_size for path in tmp_path.glob("excess-*/records"))
            return super().reduce(reduction, parts)

    fit_forest(make_forest(), cut(events, 3), executor=Watching(2), memory=2**16)
    assert set(seen) == {8 * N_EVENTS}  # six features and the label fit into one word
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_for_records(events, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("excess.distributed.parts.disk_usage", lambda path: shutil._ntuple_diskusage(9, 8, 1))
    with pytest.raises(OSError, match=f"{tmp_path}: binned events take 0.00 GB, .* free; set TMPDIR"):
        fit_forest(make_forest(), cut(events, 3), memory=2**16)
    assert list(tmp_path.iterdir()) == []
