"""Files as the source of chunks."""

import pytest
from chunked_events import NAMES, write_files
from helpers import make_forest, model_bits

from excess.io import EventFileError, write_events
from excess.out_of_core import EventFiles, InProcess, fit_forest


@pytest.mark.parametrize("suffix", ["parquet", "hdf5"])
def test_same_bits_from_files(events, nights, weights, tmp_path, suffix):
    paths = write_files(events, tmp_path, suffix, night=nights.astype("S"), weight=weights)
    chunked = fit_forest(make_forest(), EventFiles(paths, NAMES, "on", chunk_rows=400))
    assert model_bits(chunked, tmp_path) == model_bits(make_forest().fit(*events), tmp_path)
    chunked = fit_forest(make_forest(), EventFiles(paths, NAMES, "on", groups="night", sample_weight="weight"))
    expected = make_forest().fit(*events, groups=nights, sample_weight=weights)
    assert model_bits(chunked, tmp_path) == model_bits(expected, tmp_path)


class Collection:
    """What a collection of Dask looks like."""

    partitions = ()


@pytest.mark.parametrize(
    ("chunks", "error", "message"),
    [
        (EventFiles("a.parquet", [], "on"), ValueError, "features must name"),
        (EventFiles("a.parquet", "x0", "on"), TypeError, "features must be a list"),
        (EventFiles("a.parquet", ["on"], "on"), ValueError, "features must not contain the label"),
        (EventFiles("a.parquet", ["x0"], "on", chunk_rows=0), ValueError, "chunk_rows"),
        (EventFiles([], ["x0"], "on"), ValueError, "paths"),
        (EventFiles(["a.parquet", "./a.parquet"], NAMES, "on"), EventFileError, r"a\.parquet: was given 2 times"),
        (Collection(), TypeError, "got Collection"),
    ],
)
def test_datasets_that_are_rejected(chunks, error, message):
    with pytest.raises(error, match=message):
        fit_forest(make_forest(), chunks)


@pytest.mark.parametrize("changes", ["_count_rows", "_survey_partition"])
def test_a_file_that_changes_is_noticed(events, tmp_path, changes):
    class InPlace(InProcess):
        """Reads partitions as workers do."""

        remote = True

        def run(self, function, arguments, tick=lambda steps: None):
            found = super().run(function, arguments, tick)
            if changes == function.__name__:
                write_events(events[0].iloc[:5].assign(on=events[1][:5]), tmp_path / "2.parquet")
            return found

    files = EventFiles(write_files(events, tmp_path), NAMES, "on")
    with pytest.raises(ValueError, match=r"2\.parquet: had 100 events at first and 5"):
        fit_forest(make_forest(), files, executor=InPlace(1))
