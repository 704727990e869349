"""Copies of FITS event lists with further columns: what stays, byte for byte, and what is added."""

import gzip
import re

import numpy as np
import pandas as pd
import pytest
from gadf_file import N_EVENTS, write_gadf_run
from helpers import files_limited_to

from excess.io import EventFileError, EventWriter, FileCopy, describe, read_events

fits = pytest.importorskip("astropy.io.fits")

NEW = ["excess_score", "excess_signal_probability", "excess_selected"]


def scores(n_events=N_EVENTS):
    score = np.linspace(0, 1, n_events)
    score[::7] = np.nan
    selected = np.nan_to_num(score) > 0.5
    return pd.DataFrame(dict(zip(NEW, (score, score / 2, selected), strict=True)))


def write_copy(source, target, *, n_rows=130, **settings):
    table = scores()
    with EventWriter(target, copy_of=FileCopy(source, **settings)) as writer:
        for start in range(0, N_EVENTS, n_rows):
            writer.append(table[start : start + n_rows])
    return table


def hdu_bytes(path):
    """Return the bytes of each HDU by its name."""
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    with fits.open(path) as hdus:
        places = [hdu.fileinfo() for hdu in hdus]
        names = [hdu.name for hdu in hdus]
    starts = [place["hdrLoc"] for place in places] + [len(content)]
    return {name: content[start:stop] for name, start, stop in zip(names, starts[:-1], starts[1:], strict=True)}


@pytest.mark.parametrize("lists", [False, True], ids=["fixed", "with lists"])
@pytest.mark.parametrize("checksum", [False, True], ids=["plain", "checksums"])
@pytest.mark.parametrize("names", [("a.fits", "b.fits"), ("a.fits.gz", "b.fits.gz"), ("a.fits", "b.fit.gz")])
def test_all_else_stays_byte_for_byte(tmp_path, names, checksum, lists):
    source, target = (tmp_path / name for name in names)
    write_gadf_run(source, checksum=checksum, lists=lists)
    before = source.read_bytes()
    table = write_copy(source, target, history=("scored",))
    assert source.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [source, target]
    old, new = hdu_bytes(source), hdu_bytes(target)
    assert list(new) == list(old) == ["PRIMARY", "EVENTS", "GTI", "EFFECTIVE AREA", "ENERGY DISPERSION"]
    assert [name for name in old if old[name] != new[name]] == ["EVENTS"]
    with fits.open(source) as given, fits.open(target, checksum=True) as found:  # a wrong checksum is a warning
        found.verify("exception")
        events = found["EVENTS"]
        for column in given["EVENTS"].columns:
            values = events.data[column.name]
            if column.name == "PIXELS":
                assert [list(row) for row in values] == [list(row) for row in given["EVENTS"].data[column.name]]
            else:
                np.testing.assert_array_equal(values, given["EVENTS"].data[column.name])
        assert [name for name in events.columns.names if name not in given["EVENTS"].columns.names] == [
            name.upper() for name in NEW
        ]
        for name in NEW:
            np.testing.assert_array_equal(events.data[name], table[name])
        ours = {"TTYPE", "TFORM"}
        changed = {"NAXIS1", "TFIELDS", "THEAP", "CHECKSUM", "DATASUM", "HISTORY"}
        for card in given["EVENTS"].header.cards:
            if card.keyword not in changed:
                assert events.header.cards[card.keyword].image == card.image
        added = set(events.header) - set(given["EVENTS"].header) - {"HISTORY"}
        assert {name.rstrip("0123456789") for name in added} == ours
        assert str(events.header["HISTORY"]) == "scored"
        assert ("CHECKSUM" in events.header) == checksum


def test_reading_it_back(tmp_path):
    write_gadf_run(tmp_path / "a.fits")
    table = write_copy(tmp_path / "a.fits", tmp_path / "b.fits.gz")
    found = read_events(tmp_path / "b.fits.gz")
    assert describe(tmp_path / "b.fits.gz").n_events == N_EVENTS
    pd.testing.assert_frame_equal(found[NEW], table)
    pd.testing.assert_frame_equal(found.drop(columns=NEW), read_events(tmp_path / "a.fits"))
    assert not found["excess_selected"].all()


@pytest.mark.parametrize("suffix", [".fits", ".fits.gz"])
def test_only_selected_events(tmp_path, suffix):
    source, target = tmp_path / "a.fits", tmp_path / f"b{suffix}"
    write_gadf_run(source, checksum=True, lists=True)
    table = write_copy(source, target, only="excess_selected", history=("by a model",))
    keep = table["excess_selected"].to_numpy()
    with fits.open(source) as given, fits.open(target, checksum=True) as found:
        found.verify("exception")
        events, all_events = found["EVENTS"], given["EVENTS"].data
        assert len(events.data) == keep.sum() == events.header["NAXIS2"]
        for name in ("EVENT_ID", "ENERGY", "NAME", "SCALED"):
            np.testing.assert_array_equal(events.data[name], all_events[name][keep])
        assert [list(row) for row in events.data["PIXELS"]] == [list(row) for row in all_events["PIXELS"][keep]]
        assert events.data["EXCESS_SELECTED"].all()
        assert (events.header["EVTSEL"], events.header["EVTALL"]) == ("EXCESS_SELECTED", N_EVENTS)
        assert list(events.header["HISTORY"]) == ["by a model", "Only events with EXCESS_SELECTED are here."]
    old, new = hdu_bytes(source), hdu_bytes(target)
    assert [name for name in old if old[name] != new[name]] == ["EVENTS"]


def test_the_same_events_give_the_same_bytes(tmp_path):
    write_gadf_run(tmp_path / "a.fits")
    for name, n_rows in (("b.fits.gz", 130), ("c.fits.gz", 500)):
        write_copy(tmp_path / "a.fits", tmp_path / name, n_rows=n_rows)
    assert (tmp_path / "b.fits.gz").read_bytes() == (tmp_path / "c.fits.gz").read_bytes()


def test_a_table_with_positions_under_another_name(tmp_path):
    """As the reader takes it for the events, where there is no EVENTS."""
    write_gadf_run(tmp_path / "a.fits")
    with fits.open(tmp_path / "a.fits") as hdus:
        del hdus["EVENTS"].header["HDUCLAS1"]
        hdus["EVENTS"].name = "SHOWERS"
        fits.HDUList([hdus[0], hdus["GTI"], hdus["SHOWERS"]]).writeto(tmp_path / "b.fits")
    table = write_copy(tmp_path / "b.fits", tmp_path / "c.fits.gz")
    pd.testing.assert_frame_equal(read_events(tmp_path / "c.fits.gz")[NEW], table)
    old, new = (hdu_bytes(tmp_path / name) for name in ("b.fits", "c.fits.gz"))
    assert [name for name in old if old[name] != new[name]] == ["SHOWERS"]


def test_a_run_without_events(tmp_path):
    write_gadf_run(tmp_path / "a.fits")
    with fits.open(tmp_path / "a.fits") as hdus:
        hdus["EVENTS"].data = hdus["EVENTS"].data[:0]
        hdus.writeto(tmp_path / "none.fits")
    with EventWriter(tmp_path / "b.fits", copy_of=tmp_path / "none.fits") as writer:
        writer.append(scores(0))
    assert describe(tmp_path / "b.fits").n_events == 0
    assert "excess_score" in describe(tmp_path / "b.fits").columns


def test_what_is_refused(tmp_path):
    source, target = tmp_path / "a.fits", tmp_path / "b.fits"
    write_gadf_run(source)
    cases = [
        (scores(3), f"columns of 3 rows do not match a file of {N_EVENTS}"),
        (scores(N_EVENTS + 1), "do not match a file of"),
        (scores().rename(columns={"excess_score": "Energy"}), "already has 'ENERGY'; choose another name"),
    ]
    for table, message in cases:
        with pytest.raises(EventFileError, match=message), EventWriter(target, copy_of=source) as writer:
            writer.append(table)
        assert list(tmp_path.iterdir()) == [source]
    with pytest.raises(ValueError, match="columns can be added to a copy in the format of"):
        EventWriter(tmp_path / "b.csv", copy_of=source)


def test_a_file_that_is_cut_short_leaves_nothing(tmp_path):
    source, target = tmp_path / "a.fits", tmp_path / "b.fits"
    write_gadf_run(source)
    content = source.read_bytes()
    # inside of the events, so that the header is whole
    source.write_bytes(content[: len(hdu_bytes(source)["PRIMARY"]) + 8 * 2880])
    with pytest.raises(EventFileError, match="the file ends before"), EventWriter(target, copy_of=source) as writer:
        writer.append(scores())
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(("name", "limit"), [("b.fits", 20_000), ("b.fits", 5_000), ("b.fits.gz", 9_000)])
def test_a_full_disk(tmp_path, name, limit):
    write_gadf_run(tmp_path / "a.fits")
    (tmp_path / name).write_text("old")
    message = re.escape(f"{tmp_path / name}: writing failed (File too large)")
    with pytest.raises(EventFileError, match=message), files_limited_to(limit):
        write_copy(tmp_path / "a.fits", tmp_path / name)
    assert (tmp_path / name).read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.fits", name]
