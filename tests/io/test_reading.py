"""Reading events: formats, columns, chunks, joins and damaged files."""

import gzip
import logging
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from excess.io import EventFileError, _csv, describe, iter_events, read_events
from excess.io import write_events as write
from excess.io._fact import canonical_name

h5py = pytest.importorskip("h5py")
pytest.importorskip("pyarrow")
fits = pytest.importorskip("astropy.io.fits")


def make_table(n_events: int = 1000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "event_num": np.arange(n_events),
            "night": np.full(n_events, 20131103, dtype=np.int32),
            "run_id": rng.integers(100, 110, n_events),
            "width": rng.exponential(5, n_events),
            "length": rng.exponential(9, n_events).astype(np.float32),
            "is_valid": rng.random(n_events) < 0.5,
            "timestamp": [f"2013-11-03T01:02:{second % 60:02d}" for second in range(n_events)],
        }
    )


def write_fits(table: pd.DataFrame, path: Path, **header: object) -> None:
    columns = [
        fits.Column("EVENT_ID", "K", array=table["event_num"].to_numpy()),
        fits.Column("ENERGY", "E", unit="TeV", array=table["width"].to_numpy()),
        fits.Column("RA", "D", unit="deg", array=table["width"].to_numpy()),
        fits.Column("DEC", "D", unit="deg", array=table["length"].to_numpy()),
        fits.Column("MULTIP", "J", bzero=2**31, array=np.arange(len(table), dtype=np.uint32)),
        fits.Column("TEL_MASK", "4D", array=np.zeros((len(table), 4))),
        fits.Column("NAME", "3A", array=["abc"] * len(table)),
    ]
    hdu = fits.BinTableHDU.from_columns(columns, name="EVENTS")
    hdu.header.update(header)
    fits.HDUList([fits.PrimaryHDU(), hdu]).writeto(path)


def write_as(table: pd.DataFrame, folder: Path, kind: str) -> Path:
    if kind == "fits":
        write_fits(table, folder / "events.fits", OBS_ID=7)
        return folder / "events.fits"
    write(table, folder / f"events.{kind}")
    return folder / f"events.{kind}"


KINDS = ["hdf5", "parquet", "csv", "fits"]


@pytest.mark.parametrize("kind", ["hdf5", "parquet", "csv"])
def test_format_is_recognised_by_content(tmp_path, kind):
    table = make_table()
    odd = write_as(table, tmp_path, kind).rename(tmp_path / "events.txt")
    expected = {"hdf5": "FACT HDF5", "parquet": "Parquet", "csv": "CSV"}[kind]
    columns = tuple(sorted(table.columns)) if kind == "hdf5" else tuple(table.columns)
    found = describe(odd)
    assert (found.path, found.format, found.n_events, found.columns) == (odd, expected, 1000, columns)
    assert (found.telescope, found.derived) == ("FACT" if kind == "hdf5" else None, ())
    read = read_events(str(odd), list(table.columns))
    pd.testing.assert_frame_equal(read, table, check_dtype=kind != "csv")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk_rows", [1, 7, 20, 1000])
def test_chunks_are_the_whole(tmp_path, kind, chunk_rows):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    paths = [write_as(make_table(20), first, kind), write_as(make_table(13, seed=1), second, kind)]
    chunks = list(iter_events(paths, chunk_rows=chunk_rows))
    assert max(map(len, chunks)) <= chunk_rows
    pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), read_events(paths))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hdf5", "parquet"])
def test_chunks_take_constant_memory(tmp_path, kind):
    arrow = pytest.importorskip("pyarrow")
    most = []
    for n_events in (400_000, 1_200_000):
        table = pd.DataFrame(np.random.default_rng(0).random((n_events, 4)), columns=list("abcd"))
        write(table, tmp_path / f"events.{kind}")
        del table
        before, held = arrow.total_allocated_bytes(), 0
        tracemalloc.start()
        for _ in iter_events(tmp_path / f"events.{kind}", chunk_rows=10_000):
            held = max(held, arrow.total_allocated_bytes() - before)
        most.append(held + tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < 1.5 * most[0]


@pytest.mark.parametrize("kind", KINDS)
def test_files_without_events(tmp_path, kind):
    empty = write_as(make_table(0), tmp_path, kind)
    name = "ra" if kind == "fits" else "width"
    assert describe(empty).n_events == 0
    assert read_events(empty, [name]).shape == (0, 1)
    assert [chunk.shape for chunk in iter_events(empty, [name])] == [(0, 1)]
    (tmp_path / "full").mkdir()
    full = write_as(make_table(3), tmp_path / "full", kind)
    assert [len(chunk) for chunk in iter_events([empty, full, empty], [name])] == [3]


def test_fact_layout_skips_vectors_indices_and_groups(tmp_path):
    with h5py.File(tmp_path / "a", "w") as file:
        group = file.create_group("events")
        group["size"] = np.array([1.0, 2.0], dtype=">f8")
        group["Size"] = np.array([-1.0, -2.0])
        group["Theta_Off_1"] = np.array([4889.0, 0.0], dtype=">f4")
        group["label"] = np.array([b"On", b"\xff"])
        group["index"] = np.arange(2)
        group["pixels"] = np.zeros((2, 1440))
        group.create_group("more")
        file.create_group("runs")
    table = read_events(tmp_path / "a")
    assert set(table.columns) == {"size", "theta_deg_off_1", "label"}
    assert table["size"].tolist() == [1.0, 2.0]
    assert table["label"].tolist() == ["On", "\ufffd"]
    np.testing.assert_allclose(table["theta_deg_off_1"], [math.degrees(1), 0], rtol=1e-6)
    assert table["theta_deg_off_1"].to_numpy().dtype.isnative


@pytest.mark.parametrize(
    ("older", "current"),
    [
        ("EventNum", "event_num"),
        ("M3Long", "skewness_long"),
        ("Leakage", "leakage1"),
        ("concCOG", "concentration_cog"),
        ("Concentration_twoPixel", "concentration_two_pixel"),
        ("numPixelInShower", "num_pixel_in_shower"),
        ("phChargeShower_variance", "photoncharge_shower_variance"),
        ("Alpha_Off_2", "alpha_off_2"),
        ("Distance", "distance"),
        ("width", "width"),
        ("maxPosShower_mean", "maxPosShower_mean"),
    ],
)
def test_older_names(older, current):
    assert canonical_name(older) == (current, None)


def test_fits_columns_and_header(tmp_path):
    path = tmp_path / "run"
    header = {"RA_PNT": 83.6, "DEC_PNT": 22.0, "LIVETIME": 290, "OBJECT": "Crab", "DATE-OBS": "2013-11-04"}
    write_fits(make_table(5), path, OBS_ID=42, **header)
    table = read_events(path)
    assert list(table.columns[:6]) == ["event_id", "energy", "ra", "dec", "multip", "name"]
    assert table["multip"].tolist() == [0, 1, 2, 3, 4]
    assert table["energy"].to_numpy().dtype == np.float32
    assert table["name"].tolist() == ["abc"] * 5
    assert table.iloc[2][["pointing_ra", "pointing_dec", "obs_id", "livetime", "object", "date_obs"]].tolist() == [
        83.6, 22.0, 42, 290, "Crab", "2013-11-04",
    ]  # fmt: skip
    packed = tmp_path / "run.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    pd.testing.assert_frame_equal(read_events(packed), table)


def test_parquet_bytes_and_nested_columns(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    arrow = pa.table({"name": pa.array([b"On", b"Off"]), "image": [[1.0], [2.0]], "width": pa.array([1, None])})
    pa.parquet.write_table(arrow, tmp_path / "a.parquet")
    table = read_events(tmp_path / "a.parquet")
    assert list(table.columns) == ["name", "width"]
    assert table["name"].tolist() == ["On", "Off"]
    assert np.isnan(table["width"][1])


@pytest.mark.parametrize("kind", KINDS)
def test_missing_column_offers_the_nearest(tmp_path, kind):
    path = write_as(make_table(5), tmp_path, kind)
    wrong, right = ("energi", "energy") if kind == "fits" else ("Widht", "width")
    for read in (read_events, iter_events):
        with pytest.raises(EventFileError, match=f"has no column '{wrong}'; did you mean '{right}'") as caught:
            read(path, [wrong])
        assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0.02, 0.5, 0.99])
def test_truncated_files(tmp_path, kind, part):
    path = write_as(make_table(5000), tmp_path, kind)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    if kind == "csv":
        assert describe(path).n_events < 5000
        return
    for read in (describe, read_events, iter_events):
        with pytest.raises(EventFileError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row", [0, 50, 99, 100, 101, 4999])
@pytest.mark.parametrize("more", ["9", "9,9", ",9"])
@pytest.mark.parametrize("checked", [False, True])
def test_rows_with_too_many_values_show_while_reading(tmp_path, row, more, checked, monkeypatch):
    monkeypatch.setattr(_csv, "_CUTS_LONG_LINES", checked or _csv._CUTS_LONG_LINES)
    table = make_table(5000)
    path = write_as(table, tmp_path, "csv")
    lines = path.read_text().splitlines()
    lines[1 + row] += f",{more}"
    path.write_text("\n".join(lines) + "\n")
    message = "is text, but not a CSV table" if row == 0 else "reading CSV failed"
    with pytest.raises(EventFileError, match=message):
        list(iter_events(path, ["width"], chunk_rows=100))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('"width","name"\n1,a\n2,b,c\n3,d\n', 3),  # a header as R writes it
        ('\ufeff"width","name, in full"\n1,a\n2,b,c\n', 3),
        ('width,name\n1,"a, ""b"", c"\n2,"d\ne, f, g"\n3,"h",i\n', 5),
        ("width,name\n1,a\n2,b,c", 3),
        ("width,name\r\n1,a\r\n2,b,c\r\n3,d\r\n", 3),
        ("width,name\r1,a\r2,b,c\r", 3),
        ('width,name\n1, "a, b, c"\n2,5" wide\n2,b,c\n', 4),
    ],
)
def test_lines_with_too_many_values_are_named(tmp_path, content, line):
    """For versions of pandas that drop values from the first line of a chunk."""
    path = tmp_path / "events.csv"
    path.write_bytes(content.encode())
    with pytest.raises(ValueError, match=rf"line {line} has more values than 2 columns"):
        _csv._check_lines(path)
    path.write_bytes(content.replace("b,c", "c").replace('"h",i', '"h"').encode())
    _csv._check_lines(path)
    assert len(pd.read_csv(path, skipinitialspace=True).columns) == 2


def test_names_behind_spaces(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text("width, length\n1, 2\n3, 4\n")
    assert read_events(path, ["length"])["length"].tolist() == [2, 4]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"Dear reader\nthis is a letter\n", "is text, but not a CSV table"),
        (b"1.0,2.0\n3.0,4.0\n", "is text, but not a CSV table"),
        (b"a,b\n1,2,3\n", "is text, but not a CSV table"),
        (b"\x00\x01\x02\x03", "is neither HDF5, FITS, Parquet, ROOT nor CSV"),
        (b"\xff\xfe\x80", "is neither HDF5, FITS, Parquet, ROOT nor CSV"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "is neither HDF5, FITS, Parquet, ROOT nor CSV"),
        (b"\x1f\x8b", "reading gzip failed"),
        (b"PAR1", "reading Parquet failed"),
        (b"SIMPLE  =", "reading FITS event list failed"),
    ],
)
def test_what_is_no_table_of_events(tmp_path, content, message):
    path = tmp_path / "events.hdf5"
    path.write_bytes(content)
    with pytest.raises(EventFileError, match=message):
        read_events(path)


def test_other_layouts_and_places(tmp_path):
    with pytest.raises(EventFileError, match=r"nowhere: does not exist"):
        read_events(tmp_path / "nowhere")
    with pytest.raises(EventFileError, match="is a folder"):
        describe(tmp_path)
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file.create_group("images")
    with pytest.raises(EventFileError, match=r"neither a group 'events'.*it contains images"):
        read_events(tmp_path / "other.hdf5")
    with h5py.File(tmp_path / "uneven.hdf5", "w") as file:
        file["events/width"] = np.zeros(3)
        file["events/length"] = np.zeros(2)
    with pytest.raises(EventFileError, match="column 'width' has 3 rows and column 'length' has 2"):
        read_events(tmp_path / "uneven.hdf5")
    with h5py.File(tmp_path / "bare.hdf5", "w") as file:
        file.create_group("events")
    with pytest.raises(EventFileError, match="has no columns"):
        describe(tmp_path / "bare.hdf5")
    fits.HDUList([fits.PrimaryHDU()]).writeto(tmp_path / "irf.fits")
    with pytest.raises(EventFileError, match="has no extension EVENTS, or another table with RA and DEC, only PRIMARY"):
        read_events(tmp_path / "irf.fits")


def test_mixed_formats_and_arguments(tmp_path):
    table = make_table(3)
    paths = [write_as(table, tmp_path, kind) for kind in ("csv", "parquet")]
    with pytest.raises(EventFileError, match=r"mixed formats, this file is Parquet, but .*events\.csv is CSV"):
        read_events(paths)
    with pytest.raises(ValueError, match="paths is empty"):
        read_events([])
    with pytest.raises(ValueError, match="columns is empty"):
        read_events(paths[0], [])
    with pytest.raises(TypeError, match=r"columns must be a sequence of names, got the text 'width'"):
        read_events(paths[0], "width")
    with pytest.raises(ValueError, match="chunk_rows must be at least 1"):
        iter_events(paths[0], chunk_rows=0)
    write(table.drop(columns="width"), tmp_path / "narrow.csv")
    with pytest.raises(EventFileError, match=r"narrow\.csv: has no column 'width'"):
        read_events([paths[0], tmp_path / "narrow.csv"])


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    path = write_as(make_table(3), tmp_path, "fits")
    monkeypatch.setitem(__import__("sys").modules, "astropy.io.fits", None)
    with pytest.raises(ImportError, match=r"^reading FITS requires astropy: pip install astropy$"):
        read_events(path)


def test_join(tmp_path, caplog):
    dl2 = make_table(6)[["event_num", "night", "run_id", "width"]].assign(run_id=7)
    dl2 = pd.concat([dl2, dl2.iloc[[2]].assign(width=-1.0)], ignore_index=True)
    dl3 = dl2.iloc[[5, 4, 3, 2]].assign(theta_deg=[0.5, 0.4, 0.3, 0.2], width=0.0)
    dl3 = pd.concat([dl3, dl3.iloc[[0]].assign(run_id=8)], ignore_index=True)
    write(dl2, tmp_path / "dl2.hdf5")
    write(dl3, tmp_path / "dl3.csv")
    with caplog.at_level(logging.WARNING, logger="excess.io"):
        table = read_events(tmp_path / "dl2.hdf5", join=tmp_path / "dl3.csv")
    assert table["event_num"].tolist() == [2, 3, 4, 5]
    assert table["theta_deg"].tolist() == [0.2, 0.3, 0.4, 0.5]
    assert table["width"].tolist() == dl2["width"][2:6].tolist()
    assert table.attrs["join"] == {"n_events": 4, "n_only_first": 2, "n_only_second": 1, "n_duplicates": 1}
    assert "4 events joined; 2 only in" in caplog.text
    assert list(read_events(tmp_path / "dl2.hdf5", ["theta_deg", "width"], join=[tmp_path / "dl3.csv"])) == [
        "theta_deg",
        "width",
    ]


def test_join_without_anything_to_say(tmp_path, caplog):
    table = make_table(4)
    write(table[["event_num", "night", "run_id", "width"]], tmp_path / "a.csv")
    write(table[["event_num", "night", "run_id", "length"]], tmp_path / "b.csv")
    joined = read_events(tmp_path / "a.csv", join=tmp_path / "b.csv")
    assert joined.attrs["join"] == {"n_events": 4, "n_only_first": 0, "n_only_second": 0, "n_duplicates": 0}
    assert caplog.text == ""


def test_join_that_cannot_be(tmp_path):
    table = make_table(4)[["event_num", "night", "run_id", "width"]]
    write(table, tmp_path / "a.csv")
    write(table.assign(night=1), tmp_path / "b.csv")
    with pytest.raises(EventFileError, match=r"b\.csv: has no event of .*a\.csv"):
        read_events(tmp_path / "a.csv", join=tmp_path / "b.csv")
    write(table.drop(columns="night"), tmp_path / "c.csv")
    with pytest.raises(EventFileError, match=r"c\.csv: has no column 'night'"):
        read_events(tmp_path / "a.csv", join=tmp_path / "c.csv")
    write(table.assign(night="x"), tmp_path / "d.csv")
    with pytest.raises(EventFileError, match="have other types"):
        read_events(tmp_path / "a.csv", join=tmp_path / "d.csv")
    with pytest.raises(EventFileError, match=r"a\.csv: has no column 'lenght'.*nor has .*b\.csv"):
        read_events(tmp_path / "a.csv", ["lenght"], join=tmp_path / "b.csv")
