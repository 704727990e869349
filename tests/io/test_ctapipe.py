"""ctapipe's layout: files written with its own writer, and files that try to run code."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ctapipe_files import CRAB, PLACE, write_ctapipe
from helpers import run_command

from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset
from excess.io import EventFileError, describe, iter_events, read_events

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


def by_hand(images, weight="hillas_intensity"):
    """Return statistics of the images of one shower, one by one."""
    known = images[np.isfinite(images[weight])]
    found = {"n_telescopes": len(known)}
    for name in ("hillas_width", "morphology_n_pixels", "Forest_tel_energy"):
        if len(known):
            mean = np.average(known[name], weights=known[weight])
            found[f"{name}_mean"] = mean
            found[f"{name}_std"] = np.sqrt(np.average((known[name] - mean) ** 2, weights=known[weight]))
            found[f"{name}_min"], found[f"{name}_max"] = known[name].min(), known[name].max()
    return found | ({"hillas_intensity_sum": known[weight].sum()} if len(known) else {})


@pytest.mark.parametrize(
    "options",
    [{}, {"simulated": True, "monitoring": False, "time_format": "mjd"}, {"stereo": False}],
    ids=["DL2", "simulated", "DL1"],
)
def test_equal_to_table_loader(tmp_path, options):
    ctapipe = pytest.importorskip("ctapipe.io")
    path = tmp_path / "events.h5"
    write_ctapipe(path, 100, n_signal=0, **options)
    with ctapipe.TableLoader(path) as loader:
        tables = {"telescopes": loader.read_telescope_events(), "events": loader.read_subarray_events()}
    for rows, expected in tables.items():
        found = read_events(path, rows=rows)
        assert len(found) == len(expected)
        scalar = [name for name in expected.colnames if expected[name].ndim == 1]
        assert set(scalar) <= set(found)
        for name in scalar:
            column = expected[name]
            values = column.tai.mjd if hasattr(column, "tai") else np.asarray(column)
            exact = "time" not in name and "pointing" not in name
            np.testing.assert_allclose(found[name], values, rtol=0 if exact else 1e-13, err_msg=name)
        stored = [name for name in found if name not in describe(path).derived]
        for chunk_rows in (150, 9):
            names = stored if chunk_rows > 9 else stored[::4]
            chunks = list(iter_events(path, names, chunk_rows=chunk_rows, rows=rows))
            assert max(map(len, chunks)) <= chunk_rows
            pd.testing.assert_frame_equal(pd.concat(chunks, ignore_index=True), found[names])


def test_images_of_a_shower_are_one_event(tmp_path):
    path = tmp_path / "events.h5"
    write_ctapipe(path, n_telescopes=4)
    info = describe(path)
    assert (info.n_events, info.n_array_events, info.telescope) == (360, 360, "TestArray")
    assert info.n_images > 800
    assert "tel_id" not in info.columns
    assert not [name for name in info.columns if name.startswith(("hillas_fov", "hillas_psi", "hillas_r_"))]
    showers = read_events(path).set_index("event_id")
    images = read_events(path, rows="telescopes")
    for event, own in list(images.groupby("event_id"))[:60]:
        expected = by_hand(own)
        np.testing.assert_allclose([showers.loc[event, name] for name in expected], list(expected.values()))
    assert showers.loc[showers["n_telescopes"] == 0, "hillas_width_mean"].isna().all()
    chunks = list(iter_events(path, ["event_id", "tel_id"], chunk_rows=20))
    together = [set(chunk["event_id"]) for chunk in chunks]
    assert sum(map(len, together)) == len(set().union(*together)), "a shower is split between chunks"


def test_columns_of_images_ask_for_images(tmp_path):
    path = tmp_path / "events.h5"
    write_ctapipe(path)
    assert len(read_events(path, ["hillas_width", "Forest_energy", "ra"])) == describe(path).n_images
    assert len(read_events(path, ["hillas_width_mean", "Forest_energy"])) == describe(path).n_events
    with pytest.raises(EventFileError, match="'hillas_width' has one value per telescope image, but 'n_telescopes'"):
        read_events(path, ["hillas_width", "n_telescopes"])
    with pytest.raises(EventFileError, match="has no column 'hillas_width'; did you mean 'hillas_width_"):
        read_events(path, ["hillas_width"], rows="events")
    with pytest.raises(EventFileError, match="has no column 'hillas_width_mean'"):
        read_events(path, ["hillas_width_mean"], rows="telescopes")


def test_sky_positions_and_nights(tmp_path):
    path = tmp_path / "events.h5"
    truth = write_ctapipe(path)
    table = read_events(path, ["ra", "dec", "pointing_ra", "pointing_dec", "unix_time", "night"])
    known = table["ra"].notna()
    assert 0.9 < known.mean() < 1
    for name in ("ra", "dec"):
        np.testing.assert_allclose(table.loc[known, name], truth[name][known], atol=1e-6)
    for name in ("pointing_ra", "pointing_dec", "unix_time"):
        np.testing.assert_allclose(table[name], truth[name], atol=1e-5)
    assert set(table["night"]) == {20151111, 20151112}
    assert describe(path).location == pytest.approx(PLACE)


def test_simulated_events_have_no_sky_position(tmp_path):
    path = tmp_path / "events.h5"
    write_ctapipe(path, simulated=True, monitoring=False)
    info = describe(path)
    assert info.is_simulated
    assert not {"ra", "dec", "night"} & set(info.columns)
    np.testing.assert_allclose(read_events(path, ["pointing_alt"])["pointing_alt"], np.degrees(1.2))


@pytest.mark.parametrize("frame", [0, 1])
def test_pointing_of_observation_blocks(tmp_path, frame):
    ctapipe = pytest.importorskip("ctapipe.io")
    from astropy import units
    from astropy.table import Table

    path = tmp_path / "events.h5"
    write_ctapipe(path, n_telescopes=2)
    with tables.open_file(path, "a") as file:
        file.remove_node("/dl0", recursive=True)
    blocks = {"obs_id": [100, 101], "subarray_pointing_frame": [frame, frame]}
    blocks |= {f"subarray_pointing_{one}": [1.0, 1.1] * units.rad for one in ("lon", "lat")}
    ctapipe.write_table(Table(blocks), path, "/configuration/observation/observation_block")
    names = ["pointing_ra", "pointing_dec"] if frame else ["pointing_az", "pointing_alt"]
    table = read_events(path, ["obs_id", *names])
    expected = np.degrees(np.where(table["obs_id"] == 100, 1.0, 1.1))
    for name in names:
        np.testing.assert_allclose(table[name], expected)


@pytest.mark.parametrize("damage", ["order", "missing rows", "no mask", "no trigger"])
def test_tables_that_are_not_in_the_order_of_triggers(tmp_path, damage):
    path = tmp_path / "events.h5"
    write_ctapipe(path, n_telescopes=3)
    wanted = ["obs_id", "event_id", "n_telescopes", "hillas_width_mean", "Forest_tel_energy_max"]
    before, images = (
        read_events(path, wanted),
        read_events(path, ["event_id", "tel_id", "hillas_width", "n_trigger_pixels"]),
    )
    with tables.open_file(path, "a") as file:
        node = file.get_node(f"{PARAMETERS}/tel_002")
        rows = node.read()
        node.remove()
        if damage == "order":
            rows = rows[::-1].copy()
        elif damage == "missing rows":
            lost = images[(images["tel_id"] == 2) & (images["event_id"] == rows["event_id"][-1])].index
            rows, images = rows[:-1], images.drop(lost).reset_index(drop=True)
        elif damage == "no mask":
            file.remove_node("/configuration/instrument/subarray", recursive=True)
        else:
            file.remove_node("/dl1/event/subarray/trigger")
        file.create_table(PARAMETERS, "tel_002", obj=rows)
    for chunk_rows in (1000, 40):
        after = pd.concat(list(iter_events(path, wanted, chunk_rows=chunk_rows)), ignore_index=True)
        if damage == "missing rows":
            assert (after["n_telescopes"] != before["n_telescopes"]).sum() <= 1
        else:
            pd.testing.assert_frame_equal(after, before)
        again = list(iter_events(path, list(images), chunk_rows=chunk_rows))
        pd.testing.assert_frame_equal(pd.concat(again, ignore_index=True), images)


def test_detection_with_array_events(tmp_path):
    """Sky positions, nights and statistics of images are all that an analysis needs."""
    path = tmp_path / "events.h5"
    write_ctapipe(path, 3000, n_signal=150, n_telescopes=2)
    settings = {"derived_features": {}, "quality_cuts": ["n_telescopes >= 1"]}
    config = AnalysisConfig(features=["hillas_width_mean", "hillas_width_max", "n_telescopes"], **settings)
    found = OnOffDataset.from_files(path, config, source=CRAB)
    assert (found.group_column, set(found.groups.tolist())) == ("night", {20151111, 20151112})
    assert found.counts.n_on > 140
    assert found.counts.significance > 8
    with pytest.raises(EventFileError, match="telescope images of"):
        OnOffDataset.from_files(
            path, AnalysisConfig(features=["hillas_width"], derived_features={}, quality_cuts=[]), source=CRAB
        )
    one = AnalysisConfig(features=["hillas_width"], derived_features={}, quality_cuts=["tel_id == 1"])
    assert OnOffDataset.from_files(path, one, source=CRAB).counts.n_on > 80


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
    "inside", [f"dl1/event/telescope/{name}" for name in ("parameters/tel_001", "parameters/LST_LSTCam", "parameters")]
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
    chunks = list(iter_events(tmp_path / "a", chunk_rows=3, rows="telescopes"))
    assert [len(chunk) for chunk in chunks] == [2, 2, 2, 2]  # both images of a shower
    assert {chunk["hillas_length"].dtype for chunk in chunks} == {np.dtype("f8")}
    assert "more" not in chunks[0]
    showers = list(iter_events(tmp_path / "a", chunk_rows=3))
    assert [len(chunk) for chunk in showers] == [3, 1]
    assert showers[0]["hillas_length_mean"].tolist() == [2 / 3] * 3


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
