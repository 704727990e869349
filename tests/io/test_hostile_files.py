"""Files that were made to run code or to crash the process: each is an error that names it, or is read safely."""

import base64
import gzip
import io
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import excess
from excess.io import EventFileError, FileCopy, describe, read_events
from excess.io._ctapipe import CtapipeCopy
from excess.io._ctapipe_layout import BLOCKS, MONITORING, PARAMETERS, SHOWER, TEL_TRIGGER, TELESCOPES, TRIGGER
from excess.io._files import copy_attributes
from excess.io._fits import FitsCopy, find_run_index
from excess.io._lstchain import LstchainCopy
from tests.gadf_file import write_gadf_run
from tests.helpers import unmeasured_environment

h5py = pytest.importorskip("h5py")
fits = pytest.importorskip("astropy.io.fits")

N_ROWS = 8
LSTCHAIN = "/dl2/event/telescope/parameters/LST_LSTCam"
IMAGES = f"{PARAMETERS}/tel_001"
RECONSTRUCTED = "/dl2/event/subarray/geometry/HillasReconstructor"
POINTING = f"{MONITORING}/tel_001"
KEYS = [("obs_id", "i4"), ("event_id", "i8"), ("tel_id", "i2")]


FURTHER = {
    LSTCHAIN: [("intensity", "f8"), ("width", "f8"), ("length", "f4")],
    TRIGGER: [("time", "f8"), ("tels_with_trigger", "?", (1,))],
    POINTING: [("time", "f8"), ("altitude", "f8"), ("azimuth", "f8")],
    BLOCKS: [(f"subarray_pointing_{name}", "f8") for name in ("lon", "lat", "frame")],
}
TABLES = [TRIGGER, IMAGES, RECONSTRUCTED, SHOWER, TEL_TRIGGER, TELESCOPES, POINTING, BLOCKS]


def make_rows(inside, member=None):
    """Return rows of a table of lstchain or ctapipe, with a further column ``evil`` of some type."""
    n_rows = 1 if inside == TELESCOPES else N_ROWS
    dtype = [*KEYS, *FURTHER.get(inside, [("value", "f8")]), *([] if member is None else [("evil", member)])]
    rows = np.zeros(n_rows, dtype=dtype)
    rows["obs_id"], rows["event_id"], rows["tel_id"] = 1, np.arange(n_rows), 1
    if inside == TRIGGER:
        rows["tels_with_trigger"] = True
    return rows


def write_tables(path, insides=(LSTCHAIN,), evil_in=None, evil=None):
    """Write tables; one has a column ``evil`` of a type of HDF5, with bytes that no library writes."""
    with h5py.File(path, "w") as file:
        for inside in insides:
            rows = make_rows(inside)
            if inside != evil_in:
                file[inside] = rows
                continue
            plain = h5py.h5t.py_create(rows.dtype, logical=True)
            kind = h5py.h5t.create(h5py.h5t.COMPOUND, rows.itemsize + evil.get_size())
            for number in range(plain.get_nmembers()):
                of_member = plain.get_member_offset(number), plain.get_member_type(number)
                kind.insert(plain.get_member_name(number), *of_member)
            kind.insert(b"evil", rows.itemsize, evil)
            content = np.full((len(rows), kind.get_size()), 0x41, dtype=np.uint8)
            content[:, : rows.itemsize] = rows.view(np.uint8).reshape(len(rows), -1)
            settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            settings.set_chunk((len(rows),))
            group, _, name = inside.rpartition("/")
            space = h5py.h5s.create_simple((len(rows),))
            dataset = h5py.h5d.create(file.require_group(group).id, name.encode(), kind, space, settings)
            dataset.write_direct_chunk((0,), content.tobytes())


def write_rows(path, inside, rows):
    """Write a file with one dataset."""
    with h5py.File(path, "w") as file:
        file[inside] = rows


def write_valid(path, member, make):
    """Write a table whose column ``evil`` is one that h5py writes."""
    rows = make_rows(LSTCHAIN)
    with h5py.File(path, "w") as file:
        stored = np.empty(len(rows), dtype=[*rows.dtype.descr, ("evil", member)])
        for number, row in enumerate(rows.tolist()):
            stored[number] = (*row, make(file))
        file[LSTCHAIN] = stored


def compound(*members):
    """Return a type of HDF5 that holds others."""
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, sum(member.get_size() for member in members))
    for number, member in enumerate(members):
        kind.insert(f"x{number}".encode(), sum(before.get_size() for before in members[:number]), member)
    return kind


REFERENCE = h5py.h5t.STD_REF_OBJ
SEQUENCE = h5py.h5t.vlen_create(h5py.h5t.NATIVE_INT64)
TEXT = h5py.h5t.py_create(h5py.string_dtype(), logical=True)
REJECTED = {
    "reference": REFERENCE,
    "region reference": h5py.h5t.STD_REF_DSETREG,
    "text of variable length": TEXT,
    "sequence of variable length": SEQUENCE,
    "array of references": h5py.h5t.array_create(REFERENCE, (2,)),
    "array of texts": h5py.h5t.array_create(TEXT, (2,)),
    "nested numbers": compound(h5py.h5t.NATIVE_DOUBLE, h5py.h5t.NATIVE_INT32),
    "nested reference": compound(h5py.h5t.NATIVE_DOUBLE, REFERENCE),
    "nested sequence": compound(compound(SEQUENCE)),
    "opaque": h5py.h5t.py_create(np.dtype("V8"), logical=True),
}


@pytest.mark.parametrize("case", REJECTED)
def test_members_that_are_not_of_fixed_size_are_named(tmp_path, case):
    path = tmp_path / "evil.h5"
    write_tables(path, evil_in=LSTCHAIN, evil=REJECTED[case])
    for read in (describe, read_events):
        with pytest.raises(EventFileError) as error:
            read(path)
        assert all(name in str(error.value) for name in (str(path), LSTCHAIN, "'evil'"))


VALID = {
    "reference": (h5py.ref_dtype, lambda file: file.ref),
    "text": (h5py.string_dtype(), lambda file: "A" * 50),
    "sequence": (h5py.vlen_dtype(np.int64), lambda file: np.full(4, 0x4141414141414141)),
}


@pytest.mark.parametrize("case", VALID)
def test_members_that_h5py_writes_are_named(tmp_path, case):
    path = tmp_path / "valid.h5"
    write_valid(path, *VALID[case])
    for read in (describe, read_events):
        with pytest.raises(EventFileError, match="'evil'"):
            read(path)


@pytest.mark.parametrize("inside", TABLES, ids=str)
def test_every_table_of_ctapipe_is_checked(tmp_path, inside):
    path = tmp_path / "evil.h5"
    write_tables(path, TABLES)
    assert describe(path).n_events == N_ROWS
    write_tables(path, TABLES, evil_in=inside, evil=REFERENCE)
    with pytest.raises(EventFileError) as error:
        describe(path)
    assert all(name in str(error.value) for name in (str(path), inside, "'evil'"))


def test_tables_are_lists_of_rows(tmp_path):
    path = tmp_path / "evil.h5"
    rows = make_rows(LSTCHAIN)
    for inside, stored in ((LSTCHAIN, rows.reshape(2, 4)), (LSTCHAIN, rows[0]), (BLOCKS, np.arange(3))):
        write_tables(path, [name for name in TABLES if name != BLOCKS] if inside == BLOCKS else ())
        with h5py.File(path, "r+") as file:
            file[inside] = stored
        with pytest.raises(EventFileError, match=f"{path}: {inside} is not a table"):
            describe(path)


def test_members_of_fixed_size_are_read(tmp_path):
    path = tmp_path / "fine.h5"
    colours = h5py.enum_dtype({"RED": 1, "BLUE": 2}, basetype="u1")
    for member, value in ((colours, 2), ("?", True), (">f4", 2.5), ("f2", 0.5), ("S5", b"crab")):
        rows = make_rows(LSTCHAIN, member)
        rows["evil"] = value
        write_rows(path, LSTCHAIN, rows)
        found = read_events(path)["evil"]
        assert found.tolist() == [value.decode() if isinstance(value, bytes) else value] * N_ROWS
    for member in (("f4", (3,)), "c8"):  # are no columns of one number
        write_rows(path, LSTCHAIN, make_rows(LSTCHAIN, member))
        assert "evil" not in read_events(path)


def test_booleans_are_0_or_1(tmp_path):
    # NumPy adds up the bytes of booleans where it counts them, and writes behind arrays that are too short
    lstchain, fact = tmp_path / "lstchain.h5", tmp_path / "fact.h5"
    stored = np.array([0, 1, 2, 255, 0x41, 0, 1, 128], dtype=np.uint8)
    rows = make_rows(LSTCHAIN, "?")
    rows["evil"] = stored.view(bool)
    write_rows(lstchain, LSTCHAIN, rows)
    write_rows(fact, "events/evil", stored.view(bool))
    for path in (lstchain, fact):
        found = read_events(path)["evil"].to_numpy()
        assert found.dtype == bool
        assert found.view(np.uint8).tolist() == [0, 1, 1, 1, 1, 0, 1, 1]


def test_columns_of_fact_are_numbers_and_texts(tmp_path):
    path = tmp_path / "fact.h5"
    with h5py.File(path, "w") as file:
        file["events/size"] = np.arange(3.0)
        file["events/name"] = np.array(["a", "b", "c"], dtype=h5py.string_dtype())
        for name, dtype in (("reference", h5py.ref_dtype), ("region", h5py.regionref_dtype)):
            file.create_dataset(f"events/{name}", (3,), dtype=dtype)
        file.create_dataset("events/lists", (3,), dtype=h5py.vlen_dtype(np.int64))
        file["events/nested"] = np.zeros(3, dtype=[("x", "f8")])
    assert sorted(read_events(path)) == ["name", "size"]


HOSTILE_ATTRIBUTES = {
    "reference": lambda file: file["/"].ref,
    "region": lambda file: file[LSTCHAIN].regionref[:3],
    "references": lambda file: np.array([file["/"].ref] * 2, dtype=h5py.ref_dtype),
    "nested": lambda file: np.array((1, "A" * 50), dtype=[("x", "i8"), ("y", h5py.string_dtype())]),
    "texts": lambda file: np.array(["m", "s"], dtype=h5py.string_dtype()),
}


@pytest.mark.parametrize("case", HOSTILE_ATTRIBUTES)
def test_attributes_that_are_not_plain(tmp_path, case):
    path = tmp_path / "attributes.h5"
    write_tables(path)
    with h5py.File(path, "r+") as file:
        value = HOSTILE_ATTRIBUTES[case](file)
        for name in ("width_UNIT", "width_TIME_FORMAT", "CTA PROCESS TYPE"):
            file[LSTCHAIN].attrs[name] = value
    assert len(read_events(path)) == N_ROWS
    with h5py.File(path, "r+") as file:
        file[LSTCHAIN].attrs["event_id_TRANSFORM_SCALE"] = value
    with pytest.raises(EventFileError, match=str(path)):
        read_events(path)


def write_shared_texts(node, name, n_texts, n_letters):
    """Give a node an attribute of many texts, all of which are the same long one in the file."""
    path = Path(node.file.filename)
    node.attrs.create(name, ["x" * n_letters, *["abc"] * (n_texts - 1)], dtype=h5py.string_dtype())
    node.file.close()
    content = bytearray(path.read_bytes())
    # a text of variable length is its length, and the place of its letters
    first, second = (length.to_bytes(4, "little") for length in (n_letters, 3))
    place = content.find(first)
    while content[place + 16 : place + 20] != second:
        place = content.index(first, place + 1)
    content[place : place + 16 * n_texts] = content[place : place + 16] * n_texts
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("inside", "name"),
    [(LSTCHAIN, "width_UNIT"), (TELESCOPES, "other"), (TELESCOPES, "SUBARRAY"), ("/", "CTA INSTRUMENT ID")],
)
def test_attributes_of_texts_that_are_one_text(tmp_path, inside, name):
    path = tmp_path / "evil.h5"
    write_tables(path, (LSTCHAIN,) if inside == LSTCHAIN else TABLES)
    write_shared_texts(h5py.File(path, "r+")[inside], name, 2000, 100_000)
    describe(path)
    path.touch()
    tracemalloc.start()
    try:
        assert describe(path).n_events == N_ROWS
        assert tracemalloc.get_traced_memory()[1] < 20 << 20  # of 190 MiB
    finally:
        tracemalloc.stop()


def test_long_attributes_are_not_copied(tmp_path):
    path = tmp_path / "evil.h5"
    write_tables(path)
    write_shared_texts(h5py.File(path, "r+")[LSTCHAIN], "long", 2000, 100_000)
    with h5py.File(path, "r+") as file, h5py.File(tmp_path / "target.h5", "w") as copied:
        file[LSTCHAIN].attrs.create("short", ["m"] * 100, dtype=h5py.string_dtype())
        copy_attributes(file[LSTCHAIN], copied.create_dataset("table", data=[1]))
        assert list(copied["table"].attrs) == ["short"]


def test_copied_attributes_have_no_pointers(tmp_path):
    with h5py.File(tmp_path / "source.h5", "w") as file, h5py.File(tmp_path / "target.h5", "w") as copied:
        file[LSTCHAIN] = make_rows(LSTCHAIN)
        source, target = file[LSTCHAIN], copied.create_dataset("table", data=[1])
        for name, value in HOSTILE_ATTRIBUTES.items():
            source.attrs[name] = value(file)
        lists = np.empty(1, dtype=object)
        lists[0] = np.arange(3)
        source.attrs.create("lists", lists, dtype=h5py.vlen_dtype(np.int64))
        source.attrs["plain"], source.attrs["fixed"] = 2.5, np.bytes_(b"cos\nsystem\n")
        copy_attributes(source, target)
        assert sorted(target.attrs) == ["fixed", "plain", "texts"]
        assert target.attrs["texts"].tolist() == ["m", "s"]
        assert (target.attrs["plain"], target.attrs["fixed"]) == (2.5, b"cos\nsystem\n")


def test_copies_of_tables_with_references(tmp_path):
    # the file may change between reading its events and copying it
    path = tmp_path / "evil.h5"
    keys = {name: np.arange(N_ROWS) for name in ("obs_id", "event_id")}
    first = pd.DataFrame(keys | {"model_score": np.zeros(N_ROWS)})
    copy = FileCopy(path, "model", ())
    write_tables(path, evil_in=LSTCHAIN, evil=REFERENCE)
    with pytest.raises(EventFileError, match="'evil'"):
        LstchainCopy(tmp_path / "wide.h5", first, copy)
    write_tables(path, TABLES, evil_in=TRIGGER, evil=SEQUENCE)
    with pytest.raises(EventFileError, match="'evil'"):
        CtapipeCopy(tmp_path / "copy.h5", first, copy)


# FITS


def write_index(folder, comments):
    """Write the index of a run, with comments in its header."""
    columns = [
        fits.Column("OBS_ID", "K", array=[1]),
        fits.Column("HDU_TYPE", "6A", array=["events"]),
        fits.Column("FILE_DIR", "2A", array=["."]),
        fits.Column("FILE_NAME", "12A", array=["run_1.fits"]),
        fits.Column("SIZE", "K", array=[5]),
    ]
    table = fits.BinTableHDU.from_columns(columns, name="HDU_INDEX")
    for line in comments:
        table.header["COMMENT"] = line
    content = io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), table]).writeto(content)
    (folder / "hdu-index.fits.gz").write_bytes(gzip.compress(content.getvalue()))


# astropy.table makes an array of Python objects of them, whose address is 0x4141414141414141
SERIALIZED = """\
--BEGIN-ASTROPY-SERIALIZED-COLUMNS--
datatype:
- name: {column}
  datatype: int64
  meta:
    evil: !numpy.ndarray
      buffer: {buffer}
      dtype: O
      shape: !!python/tuple [1]
meta: !!omap
- __serialized_columns__: {{}}
--END-ASTROPY-SERIALIZED-COLUMNS--"""


def serialized(column):
    """Return the comments of a header that describe a column of Python objects."""
    return SERIALIZED.format(column=column, buffer=base64.b64encode(b"A" * 8).decode()).splitlines()


def test_serialized_columns_of_an_index_are_not_restored(tmp_path):
    run, target = tmp_path / "run_1.fits", tmp_path / "copies"
    target.mkdir()
    write_gadf_run(run)
    write_index(tmp_path, serialized("OBS_ID"))
    index = find_run_index([run])
    assert index.event_lists == {run}
    index.write(target, {run: target / "run_1_with_scores.fits"})
    with fits.open(target / "hdu-index.fits.gz") as hdus:
        assert hdus[1].columns.names == ["OBS_ID", "HDU_TYPE", "FILE_DIR", "FILE_NAME"]
        assert hdus[1].data["FILE_NAME"].tolist() == ["run_1_with_scores.fits"]


def test_serialized_columns_of_events_are_not_restored(tmp_path):
    plain, run = tmp_path / "plain.fits", tmp_path / "run_1.fits"
    write_gadf_run(plain)
    with fits.open(plain) as hdus:
        for line in serialized("EVENT_ID"):
            hdus["EVENTS"].header["COMMENT"] = line
        hdus.writeto(run)
    assert describe(run).n_events == describe(plain).n_events
    pd.testing.assert_frame_equal(read_events(run), read_events(plain))
    added = pd.DataFrame({"model_score": np.zeros(describe(run).n_events)})
    FitsCopy(tmp_path / "copy.fits", added, FileCopy(run, "model", ())).write(added)
    pd.testing.assert_frame_equal(read_events(tmp_path / "copy.fits")[list(read_events(run))], read_events(run))


def test_only_astropy_io_fits_reads_tables():
    for module in Path(excess.__file__).parent.rglob("*.py"):
        assert "Table.read" not in module.read_text(), module


# Settings of libraries in the current folder


class TouchedWhenUnpickled:
    """An object whose pickle makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        """Return what is called."""
        return Path.touch, (self.path,)


KERNEL = "from numpy import uint64; from excess._utils.rng import draw; draw(uint64(1), uint64(2))"


def run_python(script, folder, **environment):
    """Run a script in a folder, and return what it prints."""
    known = {name: value for name, value in unmeasured_environment().items() if not name.startswith("NUMBA_")}
    source = str(Path(excess.__file__).parents[1])
    known |= {"PYTHONPATH": os.pathsep.join([source, known.get("PYTHONPATH", "")])} | environment
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=known, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_numba_ignores_the_configuration_of_the_current_folder(tmp_path):
    cache, marker = tmp_path / "cache", tmp_path / "code-was-run"
    run_python(KERNEL, tmp_path, NUMBA_CACHE_DIR=str(cache))  # a cache that the user has chosen is used
    indices = list(cache.rglob("*.nbi"))
    assert indices
    for index in indices:
        index.write_bytes(pickle.dumps(TouchedWhenUnpickled(marker)))
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: cache\n")
    later = tmp_path / "later"
    later.mkdir()
    for script in (KERNEL, f"import numba; {KERNEL}"):
        run_python(script, tmp_path)
        assert not marker.exists()
    run_python(f"import os, excess._utils.compilation; os.chdir({str(tmp_path)!r}); {KERNEL}", later)
    assert not marker.exists()
    run_python(KERNEL, tmp_path, NUMBA_CACHE_DIR=str(cache))  # the crafted cache does run code where it is chosen
    assert marker.exists()


@pytest.mark.parametrize("module", ["excess._utils.compilation", "excess.estimators._forest.ensemble"])
def test_damaged_configuration_of_numba_in_the_current_folder(tmp_path, module):
    (tmp_path / ".numba_config.yaml").write_text("[cache_dir, cache]\n")
    assert run_python(f"import {module}; import numba; print(numba.config.CACHE_DIR or None)", tmp_path) == "None"


def test_only_one_module_imports_numba():
    importing = {
        module.name
        for module in Path(excess.__file__).parent.rglob("*.py")
        if any(line.strip().startswith(("import numba", "from numba")) for line in module.read_text().splitlines())
    }
    assert importing == {"compilation.py"}


def test_matplotlib_ignores_the_settings_of_the_current_folder(tmp_path):
    (tmp_path / "matplotlibrc").write_text("axes.titlesize: 33\n")
    script = "from excess._utils.errors import require; print(require('matplotlib', 'drawing').rcParams['{}'])"
    assert run_python(script.format("axes.titlesize"), tmp_path) == "large"
    chosen = tmp_path / "chosen"
    chosen.mkdir()
    (chosen / "matplotlibrc").write_text("axes.titlesize: 11\n")
    assert run_python(script.format("axes.titlesize"), tmp_path, MATPLOTLIBRC=str(chosen)) == "11.0"
