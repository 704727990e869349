"""Files as the source of chunks."""

import pytest
from chunked_events import NAMES, write_files
from helpers import make_forest, model_bits

from excess.distributed import EventFiles, InProcess, fit_forest
from excess.events import EventFileError, write_events


@pytest.mark.parametrize("suffix", ["parquet", "hdf5"])
def test_same_bits_from_files(events, tmp_path, suffix):
    X, y = events
    paths = write_files(events, tmp_path, suffix)
    chunked = fit_forest(make_forest(), EventFiles(paths, NAMES, "on", chunk_rows=400))
    assert model_bits(chunked, tmp_path) == model_bits(make_forest().fit(X, y), tmp_path)


def test_datasets_that_are_refused():
    with pytest.raises(ValueError, match="features must name at least one column"):
        fit_forest(make_forest(), EventFiles("a.parquet", [], "on"))

    with pytest.raises(TypeError, match="features must be a list of columns, got the text 'x0'"):
        fit_forest(make_forest(), EventFiles("a.parquet", "x0", "on"))
    with pytest.raises(EventFileError, match=r"a\.parquet: was given 2 times; give every file once"):
        fit_forest(make_forest(), EventFiles(["a.parquet", "./a.parquet"], NAMES, "on"))

    class Collection:
        partitions = ()

    with pytest.raises(TypeError, match=r"such as EventFiles, got Collection; give the files"):
        fit_forest(make_forest(), Collection())


def test_a_file_that_changes_is_noticed(events, tmp_path):
    class InPlace(InProcess):
        """Reads partitions as workers do."""

        remote = True

        def run(self, function, arguments, tick=lambda steps: None):
            found = super().run(function, arguments, tick)
            if self.changes == function.__name__:
                write_events(events[0].iloc[:5].assign(on=events[1][:5]), tmp_path / "2.parquet")
            return found

    for changes in ("count_rows", "survey_partition"):
        files = EventFiles(write_files(events, tmp_path), NAMES, "on")
        executor = InPlace(1)
        executor.changes = changes
        with pytest.raises(ValueError, match=r"2\.parquet: gave 100 events at first and 5 when read again"):
            fit_forest(make_forest(), files, executor=executor)
