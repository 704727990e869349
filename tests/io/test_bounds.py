"""Input that would never end, or take all memory: each case is one sentence, in little time and memory."""

import gzip
import os
import socket
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from excess.config import AnalysisConfig, load_config, parse_config, to_features
from excess.config import _model as _yaml
from excess.config._columns import MOST_DERIVED, inputs_of_derived
from excess.config._model import load_observation_list
from excess.io import EventFileError, FileCopy, describe, iter_events, read_events, write_events
from excess.io import _files as bounds
from excess.io._fits import FitsCopy, RunIndex

h5py = pytest.importorskip("h5py")
fits = pytest.importorskip("astropy.io.fits")
pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def message_of(function, *arguments):
    """Return the message of the EventFileError that a function raises."""
    with pytest.raises(EventFileError) as caught:
        function(*arguments)
    return str(caught.value)


# Settings


def test_derived_features_that_use_the_two_before_them():
    derived = {"f1": "width", "f2": "width * 2"} | {f"f{k}": f"f{k - 1} + f{k - 2}" for k in range(3, 60)}
    config = AnalysisConfig(features=["f59"], derived_features=derived)
    assert config.columns_needed()[0] == "width"
    assert config.inputs_of("f59") == ("width", *(f"f{k}" for k in (2, 1, *range(3, 59))))


def test_inputs_come_in_the_order_in_which_they_are_needed():
    derived = {"ratio": "size / area", "cut": "ratio * area", "area": "width * length"}
    assert inputs_of_derived(derived)["cut"] == ("size", "width", "length", "area", "ratio")


def test_long_chains_and_many_derived_features():
    chain = {f"f{k}": f"f{k - 1} + 1" for k in range(1, MOST_DERIVED + 1)}
    last = f"f{MOST_DERIVED}"
    for derived in (chain, dict(reversed(chain.items()))):
        config = AnalysisConfig(features=[last], derived_features=derived, quality_cuts=())
        assert len(config.inputs_of(last)) == MOST_DERIVED
        assert to_features(pd.DataFrame({"f0": [1.5]}), config).X[0, 0] == MOST_DERIVED + 1.5
    with pytest.raises(ValueError, match="at most 10000 items"):
        AnalysisConfig(features=[f"f{k}" for k in range(10_001)])
    with pytest.raises(ValueError, match=r"1,001 derived features, above the maximum of 1,000"):
        AnalysisConfig(features=["width"], derived_features={f"f{k}": "1" for k in range(MOST_DERIVED + 1)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "regions: {n_regions: 99999999999999999999}",
            "regions.n_regions: must be 2 (the On region and one Off region) to 360",
        ),
        ("quality_cuts: [" + ", ".join(["a < 1"] * 1001) + "]", "quality_cuts: tuple should have at most 1000 items"),
        ("features: [" + "a, " * 5001 + "]", "has more than 5,000 values"),
        ("#" * 1_048_577, r"has 1,048,577 characters of YAML, above the maximum of 1,048,576"),
        ("derived_features: {a: '9**9**9**9'}\nfeatures: [a]", None),
    ],
    ids=["regions", "cuts", "values", "large", "power"],
)
def test_large_settings(monkeypatch, text, message):
    monkeypatch.setattr(_yaml, "MOST_VALUES", 5000)
    if message is None:  # an exponent is checked where it is computed
        assert parse_config(text, "crab.yaml").features == ("a",)
        return
    found = message_of(parse_config, text, "crab.yaml")
    assert found.startswith(f"crab.yaml: {message}")
    assert len(found) < 300


@pytest.mark.parametrize("how", ["[{}]", "{{<<: [{}]}}"], ids=["lists", "merged"])
def test_aliases_that_multiply_what_the_text_holds(how):
    first = "a0: &a0 [x, x]\n" if how.startswith("[") else "a0: &a0 {x: 1}\n"
    levels = [f"a{k}: &a{k} {how.format(', '.join([f'*a{k - 1}'] * 9))}\n" for k in range(1, 30)]
    found = message_of(parse_config, first + "".join(levels), "crab.yaml")
    assert found == "crab.yaml: has more than 50,000 values, including those of aliases"


def test_a_few_aliases_are_allowed(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).touch()
    path = tmp_path / "list.yaml"
    path.write_text("a: {events: a.csv, regions: &same {n_regions: 4}}\nb: {events: b.csv, regions: *same}\n")
    assert load_observation_list(path)["b"].regions == {"n_regions": 4}


def test_large_text_files_are_not_read(tmp_path):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no space on disk
    for read in (load_config, load_observation_list):
        assert message_of(read, path) == (f"{path}: has more than 1,048,576 bytes, the maximum for such a text file")


# What is no file


@pytest.mark.parametrize("read", [describe, read_events, load_config, load_observation_list])
def test_what_is_no_regular_file_is_not_opened(tmp_path, read):
    pipe, address, folder = tmp_path / "pipe", tmp_path / "socket", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    (tmp_path / "link").symlink_to(pipe)
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(str(address))
        assert message_of(read, address) == f"{address}: is a socket; use a file"
    again = "is a pipe, but files are read more than once; save its content to a file"
    assert message_of(read, pipe) == f"{pipe}: {again}"
    assert message_of(read, tmp_path / "link") == f"{tmp_path / 'link'}: {again}"
    assert message_of(read, "/dev/zero") == "/dev/zero: is a device; use a file"
    assert message_of(read, folder) == f"{folder}: is a folder; pass the files in it"
    assert message_of(read, tmp_path / "absent") == f"{tmp_path / 'absent'}: does not exist"


# Event files that hold more than fits into them


def read_with_little_memory(*paths):
    """Read files in another process, whole and a part of them; return what was said of each."""
    code = """
import resource, sys
import astropy.io.fits, h5py, pyarrow.parquet
from excess.io import EventFileError, _files, describe, iter_events, read_events
_files.ALWAYS_ALLOWED = 32 << 20  # in place of 256 MiB, which takes a while to decompress
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20),) * 2)
for path in sys.argv[1:]:
    for read in (describe, read_events, lambda path: next(iter_events(path, chunk_rows=10))):
        try:
            read(path)
            print(path, "was read")
        except EventFileError as error:
            print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return list(dict.fromkeys(done.stdout.splitlines()))


def write_fits(path, **header):
    """Write an event list whose header says something else."""
    table = fits.BinTableHDU.from_columns([fits.Column("ENERGY", "D", array=np.ones(40))], name="EVENTS")
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(path, overwrite=True)
    content = bytearray(path.read_bytes())
    for keyword, value in header.items():
        place = content.index(keyword.ljust(8).encode(), 0 if keyword == "NAXIS" else 2880)
        content[place + 10 : place + 30] = str(value).rjust(20).encode()
    path.write_bytes(content)
    return path


@pytest.mark.slow
def test_files_that_hold_far_more_than_their_size(tmp_path):
    packed = tmp_path / "packed.fits.gz"
    content = write_fits(tmp_path / "small.fits", NAXIS2=200 << 17).read_bytes()
    with gzip.open(packed, "wb", compresslevel=1) as file:
        file.write(content[: 2880 * 3])
        for _ in range(200):
            file.write(bytes(1 << 20))
    declared = tmp_path / "declared.hdf5"
    with h5py.File(declared, "w") as file:
        file.create_dataset("events/width", shape=(10**12,), dtype="f8", chunks=(1000,))
    repeated = tmp_path / "repeated.parquet"
    table = pyarrow.table({"width": np.zeros(10**6)})
    with parquet.ParquetWriter(repeated, table.schema) as writer:
        for _ in range(10):
            writer.write_table(table)
    sizes = {packed: "more than 87", declared: "7,629,395", repeated: "76"}
    for (path, size), said in zip(sizes.items(), read_with_little_memory(*sizes), strict=True):
        assert path.stat().st_size < 2 << 20
        assert said.startswith(f"{path}: declares {size} MiB of events in a file of ")
        assert said.endswith(
            " MiB; more than 100 times its size and 32 MiB are not read; if it is not damaged, write it again without "
            "compression"
        )


def test_compressed_fits_files_are_read_from_a_temporary_file(tmp_path, monkeypatch):
    path = write_fits(tmp_path / "run.fits")
    packed = tmp_path / "run.fits.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    pd.testing.assert_frame_equal(read_events(packed), read_events(path))
    monkeypatch.setattr(bounds, "ALWAYS_ALLOWED", 1000)
    monkeypatch.setattr(bounds, "LARGEST_RATIO", 2)
    assert "run.fits.gz: declares more than 0 MiB of events" in message_of(read_events, packed)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"NAXIS": 99999999999}, "its header 1 has an invalid NAXIS, 99999999999"),
        ({"TFIELDS": 2147483647}, "its header 2 has an invalid TFIELDS, 2147483647"),
        ({"NAXIS2": -360}, "its header 2 has an invalid NAXIS2, -360"),
        ({"PCOUNT": -2880}, "its header 2 has an invalid PCOUNT, -2880"),
        ({"BITPIX": "T"}, "its header 2 has an invalid BITPIX, True"),
        ({"NAXIS2": 99999999999}, "the file ends before the data of its header 2; copy it again"),
        ({"NAXIS1": 0, "NAXIS2": 99999999999}, "its table of events has empty rows; the file may be incomplete"),
    ],
)
def test_fits_headers_that_lead_nowhere(tmp_path, header, message):
    path = write_fits(tmp_path / "run.fits", **header)
    assert message in message_of(describe, path)


def test_an_index_of_runs_is_bounded_like_the_runs(tmp_path, monkeypatch):
    path = write_fits(tmp_path / "small.fits")
    (tmp_path / "hdu-index.fits.gz").write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr(bounds, "ALWAYS_ALLOWED", 1000)
    monkeypatch.setattr(bounds, "LARGEST_RATIO", 2)
    assert "hdu-index.fits.gz: declares more than 0 MiB" in message_of(RunIndex, tmp_path)


def test_an_index_of_runs_has_a_limited_number_of_rows(tmp_path, monkeypatch):
    path = write_fits(tmp_path / "small.fits")
    (tmp_path / "hdu-index.fits.gz").write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setattr("excess.io._fits.MOST_INDEX_ROWS", 39)
    assert (
        "hdu-index.fits.gz: reading the index of the runs failed (it has 40 rows, above the maximum of 39"
        in message_of(RunIndex, tmp_path)
    )


def test_lists_that_share_their_values_are_not_copied(tmp_path, monkeypatch):
    path = tmp_path / "run.fits"
    lists = np.array([np.arange(1000), *[np.arange(1)] * 99], dtype=object)
    columns = [fits.Column("RA", "D", array=np.ones(100)), fits.Column("DEC", "D", array=np.ones(100))]
    table = fits.BinTableHDU.from_columns([*columns, fits.Column("PIXELS", "PJ()", array=lists)], name="EVENTS")
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(path)
    monkeypatch.setattr(bounds, "ALWAYS_ALLOWED", 1000)
    monkeypatch.setattr(bounds, "LARGEST_RATIO", 8)
    added, copy = pd.DataFrame({"model_score": np.zeros(100)}), FileCopy(path, "model", ())
    FitsCopy(tmp_path / "copy.fits", added, copy).write(added)
    content = path.read_bytes()
    row = np.array([1000, 0], dtype=">i4").tobytes()
    start = content.index(row)
    path.write_bytes(
        b"".join([content[:start], *[row + content[start + 8 : start + 24]] * 100, content[start + 2400 :]])
    )
    assert len(read_events(path)) == 100
    assert "run.fits: declares 1 MiB of events" in message_of(FitsCopy, tmp_path / "copy.fits", added, copy)


def test_fits_files_with_something_behind_them_are_read(tmp_path):
    path = write_fits(tmp_path / "run.fits")
    with path.open("ab") as file:
        file.write(bytes(4 * 2880))
    assert len(read_events(path)) == 40


def test_hdf5_compressed_twice(tmp_path):
    path = tmp_path / "twice.hdf5"
    with h5py.File(path, "w") as file:
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_chunk((100,))
        for _ in range(2):
            settings.set_deflate(9)
        group, space = file.create_group("events"), h5py.h5s.create_simple((1000,))
        h5py.h5d.create(group.id, b"width", h5py.h5t.NATIVE_DOUBLE, space, settings)
    assert message_of(describe, path) == (
        f"{path}: /events/width is compressed more than once; write it with one compression"
    )


def test_chunks_larger_than_their_dataset(tmp_path):
    path = tmp_path / "chunk.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("events/width", shape=(10,), maxshape=(None,), dtype="f8", chunks=(1 << 28,))
    assert "declares 2,048 MiB of events" in message_of(read_events, path)


def test_texts_that_many_rows_refer_to(tmp_path, monkeypatch):
    """In HDF5 and Parquet, a long text is stored once."""
    monkeypatch.setattr(bounds, "ALWAYS_ALLOWED", 1 << 20)
    path = tmp_path / "texts.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("events/name", data=["x" * 1000] * 3, dtype=h5py.string_dtype())
    assert read_events(path)["name"].str.len().tolist() == [1000] * 3
    with h5py.File(path, "r+") as file:
        name = file["events/name"]
        place, length = name.id.get_offset(), len(name) * 16
    content = bytearray(path.read_bytes())
    content[place : place + length] = content[place : place + 16] * 3
    path.write_bytes(content)
    monkeypatch.setattr(bounds, "ALWAYS_ALLOWED", 2000)
    monkeypatch.setattr(bounds, "LARGEST_RATIO", 0)
    assert "texts.hdf5: declares 0 MiB of events" in message_of(read_events, path)


@pytest.mark.parametrize("chunk_rows", [None, 3])
def test_texts_of_parquet_files(tmp_path, chunk_rows):
    path = tmp_path / "texts.parquet"
    columns = {
        "text": ["a", None, "b", "a", "c"],
        "bytes": [b"a", b"b", None, b"a", b"\xff"],
        "width": [1.0, 2, 3, 4, 5],
    }
    parquet.write_table(pyarrow.table(columns), path)
    chunks = [read_events(path)] if chunk_rows is None else iter_events(path, chunk_rows=chunk_rows)
    table = pd.concat(chunks, ignore_index=True)
    assert table["text"].fillna("-").tolist() == ["a", "-", "b", "a", "c"]
    assert table["bytes"].fillna("-").tolist() == ["a", "b", "-", "a", "\N{REPLACEMENT CHARACTER}"]


def test_long_texts_of_parquet_files_are_not_repeated(tmp_path, monkeypatch):
    path = tmp_path / "texts.parquet"
    parquet.write_table(pyarrow.table({"name": ["x" * 2000] * 2000}), path)
    monkeypatch.setattr(bounds, "ALWAYS_ALLOWED", 1 << 20)
    monkeypatch.setattr(bounds, "LARGEST_RATIO", 10)
    assert "texts.parquet: declares 4 MiB of events" in message_of(read_events, path)


def test_quotes_that_are_not_closed(tmp_path):
    path = tmp_path / "line.csv"
    path.write_bytes(b"width,length\n" + b"1,2\n" * 20_000 + b'1,"' + b"5\n" * 20_000)
    assert message_of(read_events, path).startswith(f"{path}: reading CSV failed")


def test_lines_in_quotes_are_read(tmp_path):
    path = tmp_path / "quotes.csv"
    row = '"a, b\nc",2,"say ""on"""\n'
    path.write_text("name,width,word\n" + row * 30_000)
    table = read_events(path)
    assert len(table) == 30_000
    assert table.loc[29_999].tolist() == ["a, b\nc", 2, 'say "on"']


@pytest.mark.parametrize("suffix", ["csv", "hdf5", "parquet"])
def test_too_many_columns(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"wide.{suffix}"
    write_events(pd.DataFrame(np.ones((2, 12)), columns=[f"c{k}" for k in range(12)]), path)
    assert len(describe(path).columns) == 12
    monkeypatch.setattr(bounds, "MOST_COLUMNS", 11)
    assert message_of(describe, path) == f"{path}: has 12 columns, above the maximum of 11"
