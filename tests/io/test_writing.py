"""Writing events: round trips, chunks, and files that appear whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import unmeasured_environment

from excess.io import EventFileError, EventWriter, describe, iter_events, read_events, write_events

h5py = pytest.importorskip("h5py")
pytest.importorskip("pyarrow")

SUFFIXES = [".hdf5", ".h5", ".parquet", ".csv"]
TABLE = pd.DataFrame(
    {
        "event_num": np.arange(5),
        "night": np.full(5, 20131103, dtype=np.int32),
        "width": [0.1, 1 / 3, np.nan, np.inf, -1e300],
        "selected": [True, False, True, True, False],
        "name": ["On", "Off", "Grüße", "a,b", 'c"d'],
    }
)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip(tmp_path, suffix):
    path = tmp_path / f"events{suffix}"
    write_events(TABLE.set_index("event_num", drop=False), path)
    read = read_events(path, list(TABLE.columns))
    pd.testing.assert_frame_equal(read, TABLE, check_dtype=suffix != ".csv", check_exact=True)
    assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208 (names only)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_chunks_make_one_table(tmp_path, suffix):
    path = tmp_path / f"events{suffix}"
    with EventWriter(path) as writer:
        writer.append(TABLE.iloc[:0])
        writer.append(TABLE.iloc[:2])
        writer.append(TABLE.iloc[2:, ::-1])
        assert not path.exists()
    pd.testing.assert_frame_equal(read_events(path, list(TABLE.columns)), TABLE, check_dtype=suffix != ".csv")


def test_fact_layout(tmp_path):
    path = tmp_path / "events.hdf5"
    write_events(TABLE, path)
    with h5py.File(path) as file:
        assert sorted(file["events"]) == sorted(TABLE.columns)
        assert file["events/width"].maxshape == (None,)
        assert file["events/night"].dtype == np.int32
        assert file["events/selected"].dtype == np.bool_
        assert h5py.check_string_dtype(file["events/name"].dtype) == ("utf-8", None)


def test_text_times_and_missing_values_in_hdf5(tmp_path):
    table = pd.DataFrame(
        {
            "time": pd.to_datetime(["2013-11-03T01:02:03", None]),
            "kind": pd.Categorical(["On", "Off"]),
            "count": pd.array([1, None], dtype="Int64"),
        }
    )
    write_events(table, tmp_path / "a.hdf5")
    read = read_events(tmp_path / "a.hdf5", list(table.columns))
    assert read["time"].tolist() == ["2013-11-03 01:02:03", ""]
    assert read["kind"].tolist() == ["On", "Off"]
    assert read["count"][0] == 1
    assert np.isnan(read["count"][1])


class BrokenError(Exception):
    pass


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("error", [BrokenError, KeyboardInterrupt])
@pytest.mark.parametrize("n_chunks", [0, 1])
def test_an_exception_leaves_the_old_file(tmp_path, suffix, error, n_chunks):
    path = tmp_path / f"events{suffix}"
    write_events(TABLE, path)
    before = path.read_bytes()
    writer = EventWriter(path)

    def write() -> None:
        with writer:
            for _ in range(n_chunks):
                writer.append(TABLE)
            raise error

    with pytest.raises(error):
        write()
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with writer:
        writer.append(TABLE.iloc[:1])
    assert describe(path).n_events == 1


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_chunks_that_do_not_fit(tmp_path, suffix):
    path = tmp_path / f"events{suffix}"

    def append(second: pd.DataFrame) -> None:
        with EventWriter(path) as writer:
            writer.append(TABLE)
            writer.append(second)

    with pytest.raises(ValueError, match="other columns than the first one: width"):
        append(TABLE.drop(columns="width"))
    with pytest.raises(ValueError, match="other columns than the first one: score"):
        append(TABLE.assign(score=1.0))
    with pytest.raises(ValueError, match="column 'night' changes from int32 to float64"):
        append(TABLE.assign(night=0.5))
    with pytest.raises(ValueError, match="column 'night' changes from int32 to int64"):
        append(TABLE.assign(night=2**40))
    with pytest.raises(ValueError, match="column 'width' changes"):
        append(TABLE.assign(width="x"))
    assert list(tmp_path.iterdir()) == []
    append(TABLE.assign(night=np.arange(5, dtype=np.int64)))
    assert read_events(path, ["night"])["night"].tolist() == [20131103] * 5 + [0, 1, 2, 3, 4]


def test_names_and_suffixes_that_cannot_be_written(tmp_path):
    with pytest.raises(ValueError, match=r"must be \.hdf5 \(or \.h5\), \.parquet or \.csv, got '\.fits'"):
        write_events(TABLE, tmp_path / "events.fits")
    with pytest.raises(ValueError, match="'a/b' cannot name a column"):
        write_events(TABLE.assign(**{"a/b": 1}), tmp_path / "a.hdf5")
    with pytest.raises(ValueError, match="two columns have the name 'x'"):
        write_events(pd.DataFrame([[1, 2]], columns=["x", "x"]), tmp_path / "a.csv")
    with pytest.raises(ValueError, match="without columns"):
        write_events(TABLE[[]], tmp_path / "a.csv")
    with pytest.raises(ValueError, match="inside a with statement"):
        EventWriter(tmp_path / "a.csv").append(TABLE)
    with pytest.raises(EventFileError, match="no table was appended"), EventWriter(tmp_path / "a.csv"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_places_that_cannot_be_written(tmp_path, suffix):
    missing = tmp_path / "nowhere" / f"events{suffix}"
    with pytest.raises(EventFileError, match="No such file or directory") as caught:
        EventWriter(missing).__enter__()
    assert str(caught.value).startswith(f"{missing}: ")
    folder = tmp_path / f"folder{suffix}"
    folder.mkdir()
    with pytest.raises(EventFileError, match="is a folder"):
        write_events(TABLE, folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "store").mkdir()
    link = tmp_path / "events.csv"
    link.symlink_to(tmp_path / "store" / "real.csv")
    write_events(TABLE, link)
    assert link.is_symlink()
    assert describe(tmp_path / "store" / "real.csv").n_events == 5


FULL_DISK = """
import resource, signal, sys
import numpy as np, pandas as pd
from excess.io import EventFileError, EventWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
chunk = pd.DataFrame({"width": np.random.default_rng(0).random(50_000)})
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    with EventWriter(sys.argv[1]) as writer:
        for _ in range(4):
            writer.append(chunk)
except EventFileError as error:
    sys.exit(3 if str(error).startswith(sys.argv[1] + ": writing failed") else 4)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are a matter of POSIX")
@pytest.mark.parametrize("suffix", [".hdf5", ".parquet", ".csv"])
def test_a_full_disk(tmp_path: Path, suffix: str):
    path = tmp_path / f"events{suffix}"
    path.write_text("old")
    run = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)],
        env=unmeasured_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 3, run.stderr
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


INTERRUPTED = """
import signal, sys
import numpy as np, pandas as pd
from excess.io import EventWriter, _files
chunk = pd.DataFrame({"width": np.random.default_rng(0).random(50_000)})
seek = _files.ErrorKeepingFile.seek
left = int(sys.argv[2])

def interrupted_seek(self, *arguments):
    global left
    left -= 1
    if left == 0:
        signal.raise_signal(signal.SIGINT)
    return seek(self, *arguments)

_files.ErrorKeepingFile.seek = interrupted_seek
try:
    with EventWriter(sys.argv[1]) as writer:
        for _ in range(8):
            writer.append(chunk)
except KeyboardInterrupt:
    sys.exit(5)
sys.exit(6 if left > 0 else 7)
"""


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 5, 20, 30])
def test_an_interrupt_inside_the_hdf5_library(tmp_path, call):
    path = tmp_path / "events.hdf5"
    path.write_text("old")
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(path), str(call)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 5, run.stderr
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_copy_in_chunks(tmp_path):
    table = pd.concat([TABLE] * 100, ignore_index=True)
    write_events(table, tmp_path / "a.hdf5")
    with EventWriter(tmp_path / "b.parquet") as writer:
        for chunk in iter_events(tmp_path / "a.hdf5", list(table.columns), chunk_rows=33):
            writer.append(chunk)
    pd.testing.assert_frame_equal(read_events(tmp_path / "b.parquet"), table)


def test_columns_are_added_to_a_copy_with_all_else_in_it(tmp_path):
    source, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write_events(TABLE, source)
    with h5py.File(source, "r+") as file:
        file["runs/run_id"] = [1, 2, 3]
        file.attrs["sample_fraction"] = 0.5
    before = source.read_bytes()
    with EventWriter(out, copy_of=source) as writer:
        writer.append(pd.DataFrame({"score": np.arange(len(TABLE), dtype=float)}))
    assert source.read_bytes() == before
    with h5py.File(out) as file:
        assert file["runs/run_id"][:].tolist() == [1, 2, 3]
        assert file.attrs["sample_fraction"] == 0.5
    found = read_events(out)
    np.testing.assert_array_equal(found["score"], np.arange(len(TABLE)))
    pd.testing.assert_frame_equal(found[list(TABLE)], read_events(source)[list(TABLE)])


def test_no_column_is_replaced(tmp_path):
    source, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write_events(TABLE, source)
    with h5py.File(source, "r+") as file:
        file["events/image"] = np.zeros((len(TABLE), 3))  # of two dimensions, which is no column of a table
    for name in ("image", TABLE.columns[0]):
        refused = pytest.raises(EventFileError, match=f"in.hdf5: already has '{name}'; choose another name")
        with refused, EventWriter(out, copy_of=source) as writer:
            writer.append(pd.DataFrame({name: np.zeros(len(TABLE))}))
        assert list(tmp_path.iterdir()) == [source]


def test_added_columns_must_have_the_rows_of_the_file(tmp_path):
    source, out = tmp_path / "in.hdf5", tmp_path / "out.hdf5"
    write_events(TABLE, source)
    with pytest.raises(ValueError, match=r"do not match a file of"), EventWriter(out, copy_of=source) as writer:
        writer.append(pd.DataFrame({"score": [0.5]}))
    assert list(tmp_path.iterdir()) == [source]
    with pytest.raises(ValueError, match=r"in the format of .*in\.hdf5 only"):
        EventWriter(tmp_path / "out.parquet", copy_of=source)
