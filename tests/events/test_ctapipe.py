"""ctapipe's layout: files written with its own writer, and files that try to run code."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import run_command

from excess.events import EventFileError, describe, iter_events, read_events

h5py = pytest.importorskip("h5py")
tables = pytest.importorskip("tables")

N_EVENTS = 50


def write_dl2(path: Path, *, shift: int = 0, trigger: bool = True) -> None:
    """Write array events with ctapipe's writer; the classification lacks the first ``shift`` events."""
    pytest.importorskip("ctapipe")
    import astropy.units as u
    from ctapipe import containers
    from ctapipe.io import HDF5TableWriter

    prefixes = {"geometry": "HillasReconstructor", "energy": "Regressor", "classification": "Classifier"}
    with HDF5TableWriter(path, add_prefix=True) as writer:
        for event in range(N_EVENTS):
            index = containers.EventIndexContainer(obs_id=np.int32(1 + event // 20), event_id=np.int64(event % 20))
            reconstructed = {
                "geometry": containers.ReconstructedGeometryContainer(
                    alt=70 * u.deg, az=event * u.deg, is_valid=event % 2 == 0, telescopes=np.zeros(4, dtype=bool)
                ),
                "energy": containers.ReconstructedEnergyContainer(
                    energy=event * u.TeV, is_valid=True, telescopes=np.zeros(4, dtype=bool)
                ),
                "classification": containers.ParticleClassificationContainer(
                    prediction=event / N_EVENTS, is_valid=True, telescopes=np.zeros(4, dtype=bool)
                ),
            }
            for kind, container in reconstructed.items():
                container.prefix = prefixes[kind]
                if kind != "classification" or event >= shift:
                    writer.write(f"dl2/event/subarray/{kind}/{prefixes[kind]}", [index, container])
            shower = containers.SimulatedShowerContainer(energy=(event + 0.5) * u.TeV)
            writer.write("simulation/event/subarray/shower", [index, shower])
            if trigger:
                writer.write("dl1/event/subarray/trigger", [index])


def test_dl2_of_ctapipes_own_writer(tmp_path):
    path = tmp_path / "events.dl2"
    write_dl2(path)
    info = describe(path)
    assert (info.format, info.n_events, info.n_array_events) == ("ctapipe HDF5 DL2", N_EVENTS, N_EVENTS)
    assert "HillasReconstructor_telescopes" not in info.columns
    table = read_events(path)
    assert table["obs_id"].tolist() == [1 + event // 20 for event in range(N_EVENTS)]
    assert table["HillasReconstructor_az"].tolist() == list(range(N_EVENTS))
    assert table["HillasReconstructor_is_valid"].tolist() == [event % 2 == 0 for event in range(N_EVENTS)]
    assert table["HillasReconstructor_is_valid"].dtype == bool
    np.testing.assert_allclose(table["Classifier_prediction"], np.arange(N_EVENTS) / N_EVENTS)
    np.testing.assert_allclose(table["true_energy"], table["Regressor_energy"] + 0.5)
    chunks = list(iter_events(path, ["Classifier_prediction", "Regressor_energy"], chunk_rows=7))
    assert [len(chunk) for chunk in chunks] == [7] * 7 + [1]
    assert [value for chunk in chunks for value in chunk["Regressor_energy"]] == list(range(N_EVENTS))


def test_dl2_tables_are_merged_by_key(tmp_path, caplog):
    write_dl2(tmp_path / "events.h5", shift=3, trigger=False)
    assert describe(tmp_path / "events.h5").n_array_events == N_EVENTS
    for chunk_rows in (7, 1000):
        chunks = iter_events(
            tmp_path / "events.h5",
            ["HillasReconstructor_az", "Classifier_prediction", "Classifier_is_valid"],
            chunk_rows=chunk_rows,
        )
        for chunk in chunks:
            expected = chunk["HillasReconstructor_az"] / N_EVENTS
            found = chunk["HillasReconstructor_az"] >= 3
            np.testing.assert_allclose(chunk.loc[found, "Classifier_prediction"], expected[found])
            assert chunk.loc[~found, "Classifier_prediction"].isna().all()
            assert chunk["Classifier_is_valid"].tolist() == found.tolist()
    assert "3 of 50 events are not in the table /dl2/event/subarray/classification/Classifier" in caplog.text


def write_dl1(path: Path, *, inside: str = "dl1/event/telescope/parameters/tel_001", **columns: np.ndarray) -> None:
    """Write a table of telescope events with PyTables, compressed as ctapipe does it."""
    n_rows = 4
    data = {
        "obs_id": np.ones(n_rows, dtype=np.int32),
        "event_id": np.arange(n_rows),
        "tel_id": np.ones(n_rows, dtype=np.int16),
        "hillas_width": np.linspace(0, 1, n_rows),
        **columns,
    }
    dtype = [(name, values.dtype, values.shape[1:]) for name, values in data.items()]
    rows = np.zeros(n_rows, dtype=dtype)
    for name, values in data.items():
        rows[name] = values
    with tables.open_file(path, "a") as file:
        group, _, name = f"/{inside}".rpartition("/")
        filters = tables.Filters(complevel=5, complib="blosc:zstd", fletcher32=True)
        file.create_table(group, name, obj=rows, createparents=True, filters=filters)


@pytest.mark.parametrize(
    "inside",
    [f"dl1/event/telescope/{name}" for name in ("parameters/tel_001", "parameters/LST_LSTCam", "parameters")],
)
def test_dl1_by_telescope_by_type_and_in_one_table(tmp_path, inside):
    write_dl1(tmp_path / "a", inside=inside, pixels=np.zeros((4, 7)), name=np.array([b"a", b"b", b"c", b"d"]))
    info = describe(tmp_path / "a")
    assert (info.format, info.n_events, info.n_array_events) == ("ctapipe HDF5 DL1", 4, None)
    table = read_events(tmp_path / "a")
    assert list(table.columns) == ["obs_id", "event_id", "tel_id", "hillas_width", "name"]
    assert table["name"].tolist() == ["a", "b", "c", "d"]


def test_telescopes_of_different_precision_and_columns(tmp_path):
    write_dl1(tmp_path / "a", hillas_length=np.ones(4, dtype=np.float32), more=np.ones(4))
    write_dl1(tmp_path / "a", inside="dl1/event/telescope/parameters/tel_002", hillas_length=np.full(4, 1 / 3))
    chunks = list(iter_events(tmp_path / "a", chunk_rows=3))
    assert [len(chunk) for chunk in chunks] == [3, 1, 3, 1]
    assert {chunk["hillas_length"].dtype for chunk in chunks} == {np.dtype("f8")}
    assert "more" not in chunks[0]


def test_fixed_point_columns(tmp_path):
    tableio = pytest.importorskip("ctapipe.io.tableio")
    values = np.array([0.25, -3.5, np.nan, np.inf])
    for kind in ("u2", "i4"):
        path = tmp_path / kind
        transform = tableio.FixedPointColumnTransform(scale=100, offset=1000, source_dtype="f4", target_dtype=kind)
        with np.errstate(invalid="ignore"):
            write_dl1(path, intensity=transform(values))
        with tables.open_file(path, "a") as file:
            node = file.get_node("/dl1/event/telescope/parameters/tel_001")
            for key, value in transform.get_meta(4).items():
                node.attrs[key] = value
        read = read_events(path)["intensity"]
        assert read.dtype == np.float32
        np.testing.assert_array_equal(read, values.astype("f4"))


class Payload:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:  # noqa: D105
        return os.mkdir, (str(self.path),)


def plain_pickle(trace: Path) -> bytes:
    return pickle.dumps(Payload(trace), 0)


def odd_pickle(trace: Path) -> bytes:
    """Return a pickle that begins with an integer which pickletools cannot parse and pickle can."""
    return b"I0x10\n0" + plain_pickle(trace)


PARAMETERS = "/dl1/event/telescope/parameters"


@pytest.mark.parametrize("pickled", [plain_pickle, odd_pickle])
@pytest.mark.parametrize("place", ["/", "/dl1/event", f"{PARAMETERS}/tel_001", f"{PARAMETERS}/_i_tel_001"])
def test_no_code_of_a_file_is_run(tmp_path, monkeypatch, place, pickled):
    path, trace = tmp_path / "events.h5", tmp_path / "trace"
    write_dl1(path)
    with tables.open_file(path, "a") as file:
        file.get_node(f"{PARAMETERS}/tel_001").cols.event_id.create_index()
    with h5py.File(path, "a") as file:
        file[place].attrs["note"] = np.bytes_(pickled(trace))
        file[place].attrs["CLASS_OF_FIELDS"] = np.bytes_(pickled(trace))
    expected = np.linspace(0, 1, 4)
    with monkeypatch.context() as without_pytables:
        without_pytables.setitem(sys.modules, "tables", None)
        assert describe(path).n_events == 4
        np.testing.assert_array_equal(read_events(path)["hillas_width"], expected)
        assert run_command("info", path) == 0
    assert not trace.exists()
    with tables.open_file(path) as file:
        file.get_node(place)._v_attrs["note"]
    assert trace.exists(), "PyTables runs it, or this test shows nothing"


@pytest.mark.parametrize("layout", ["fact", "ctapipe"])
@pytest.mark.parametrize("way", ["external link", "soft link", "external storage", "virtual"])
def test_data_of_other_files_is_refused(tmp_path, way, layout):
    inside = "events/width" if layout == "fact" else f"{PARAMETERS}/tel_001"
    group, _, name = inside.rpartition("/")
    secret = tmp_path / "secret.h5"
    rows = np.zeros(4, dtype="f8" if layout == "fact" else [("obs_id", "i4"), ("event_id", "i8"), ("x", "f8")])
    with h5py.File(secret, "w") as file:
        file["rows"] = rows
    with h5py.File(tmp_path / "events.h5", "w") as file:
        target = file.create_group(group)
        file["aside/rows"] = rows
        if way == "external link":
            target[name] = h5py.ExternalLink(secret, "rows")
        elif way == "soft link":
            target[name] = h5py.SoftLink("/aside/rows")
        elif way == "external storage":
            target.create_dataset(name, (4,), rows.dtype, external=[(str(secret), 0, h5py.h5f.UNLIMITED)])
        else:
            layout_of = h5py.VirtualLayout((4,), rows.dtype)
            layout_of[:] = h5py.VirtualSource(secret, "rows", (4,))
            target.create_virtual_dataset(name, layout_of)
    for read in (describe, read_events):
        with pytest.raises(EventFileError, match=r"events.h5: .*(is a link|is stored in another file); store the data"):
            read(tmp_path / "events.h5")


def test_tables_without_keys(tmp_path):
    with tables.open_file(tmp_path / "a", "w") as file:
        rows = np.zeros(3, dtype=[("obs_id", "i4"), ("hillas_width", "f8")])
        file.create_table("/dl1/event/telescope/parameters", "tel_001", obj=rows, createparents=True)
    with pytest.raises(EventFileError, match="has no column 'event_id'"):
        read_events(tmp_path / "a")
