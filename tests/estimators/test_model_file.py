"""Model files: the same bits back, here and in another process, and nothing from a file that was changed."""

import dataclasses
import errno
import hashlib
import json
import os
import pickle
import stat
import subprocess
import sys
import tracemalloc
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import excess
from excess import (
    OnOffForestClassifier,
    OnOffKMeansClassifier,
    OnOffKMeansEnsembleClassifier,
    OnOffTreeClassifier,
    SignificanceThresholdClassifier,
)
from excess.estimators import _model_file
from excess.estimators._forest import predictor
from excess.estimators._model_file import ModelFileError, is_model_file, load, read_header, save
from excess.estimators._random_forest import MEMBERS

MODELS = {
    "tree": OnOffTreeClassifier(max_depth=4, min_samples_leaf=5, alpha=1.0),
    "tree of votes": OnOffTreeClassifier(
        criterion="li_ma", min_samples_leaf=20, output="assignment", max_bins=None, alpha=1.0
    ),
    "forest": OnOffForestClassifier(6, random_state=0, alpha=1.0),
    "forest of votes": OnOffForestClassifier(
        5, min_samples_leaf=8, output="assignment", max_bins=None, max_features=0.5, n_jobs=2, random_state=1, alpha=1.0
    ),
    "forest that selects nothing": OnOffForestClassifier(
        4, min_samples_leaf=20, threshold=np.inf, random_state=2, alpha=1.0
    ),
    "k-means": OnOffKMeansClassifier(7, random_state=0, alpha=1.0),
    "k-means ensemble": OnOffKMeansEnsembleClassifier(6, 9, random_state=0, alpha=1.0),
    "k-means ensemble of votes": OnOffKMeansEnsembleClassifier(
        5,
        400,
        max_features=None,
        output="assignment",
        algorithm="mini_batch",
        threshold="mithal",
        random_state=0,
        alpha=1.0,
    ),
}
LABELS = {
    "int": lambda on: on.astype(np.int64),
    "bool": lambda on: on,
    "str": lambda on: np.where(on, "source", "off"),
    "object": lambda on: np.where(on, "ön", "Off").astype(object),
    "float": lambda on: np.where(on, 3, -1).astype(np.float32),
}
LOST = {"oob_decision_function_", "_oob_score"}


@pytest.fixture(scope="module")
def events(noisy_data):
    return noisy_data.X[:500], noisy_data.y[:500] == 1


def fitted(name, events, labels="int"):
    X, on = events
    return clone(MODELS[name]).set_params(alpha=0.7).fit(X, LABELS[labels](on))


@pytest.fixture(scope="module")
def models(events):
    return {name: fitted(name, events) for name in MODELS}


@pytest.fixture(params=["tree", "forest", "k-means", "k-means ensemble"])
def model(request, models):
    return models[request.param]


def bits(value):
    """All that is in a value, down to types, shapes and bits."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return (value.dtype.str, value.shape, value.tobytes())
    if dataclasses.is_dataclass(value):
        return (type(value), [bits(getattr(value, field.name)) for field in dataclasses.fields(value)])
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return (type(value), [bits(item) for item in value])
    return (type(value), repr(value))


def answers(model, X):
    """What every public method and attribute says."""
    said = {"predict": model.predict(X), "predict_proba": model.predict_proba(X), "counts": repr(model.tuned_counts_)}
    for name in ("apply", "decision_function"):
        if hasattr(model, name):
            said[name] = getattr(model, name)(X)
    for name in ("export_text", "get_depth", "get_n_leaves"):
        if hasattr(model, name):
            said[name] = getattr(model, name)()
    for name in set(dir(model)) - LOST:
        if name.endswith("_") and not name.startswith("_"):
            said[name] = getattr(model, name)
    return said


def assert_same(loaded, model, X):
    assert type(loaded) is type(model)
    kept = {name: value for name, value in vars(model).items() if name not in LOST}
    if "n_jobs" in kept:
        kept["n_jobs"] = None  # the number of threads belongs to a run, not to a model
    assert bits(kept) == bits(vars(loaded))
    assert bits(answers(loaded, X)) == bits(answers(model, X))


DTYPES = {"F64": "float64", "I64": "int64", "U64": "uint64", "U32": "uint32", "U8": "uint8", "BOOL": "bool"}


def repacked(content, edit):
    """Take a file apart by what its description says, let ``edit`` change its parts, and put it together.

    The parts are the header, the entries of the arrays and their bytes; a text that is returned replaces the header.
    """
    length = int.from_bytes(content[:8], "little")
    entries, data = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    header = json.loads(entries.pop("__metadata__")["excess"])
    changed = edit(header, entries, data)
    text = changed if isinstance(changed, str) else json.dumps(header)
    sign(text, entries, data)
    outer = json.dumps({"__metadata__": {"excess": text}, **entries}, separators=(",", ":"), ensure_ascii=False)
    return framed(outer.encode()) + data


def framed(outer):
    """The start of a safetensors file."""
    outer += b" " * (-len(outer) % 8)
    return len(outer).to_bytes(8, "little") + outer


def sign(text, entries, data):
    """Write the checksum that belongs to the parts of a file, as far as they can be read."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(set(entries) - {"sha256"}):
        entry = entries[name]
        try:
            start, end = entry["data_offsets"]
            shape, dtype = tuple(entry["shape"]), DTYPES.get(entry["dtype"], entry["dtype"])
            digest.update(f"\n{name} {dtype} {shape}\n".encode() + data[start:end])
        except (TypeError, KeyError):
            continue
    if "sha256" in entries:
        start, end = entries["sha256"]["data_offsets"]
        data[start:end] = digest.digest()


def array_of(entries, data, name):
    """An array of a file that is being changed."""
    entry = entries[name]
    count = int(np.prod(entry["shape"]))
    return np.frombuffer(data, DTYPES[entry["dtype"]], count, entry["data_offsets"][0]).reshape(entry["shape"])


# The same model back.


@pytest.mark.slow
@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("name", ["tree", "forest of votes", "k-means", "k-means ensemble"])
def test_any_classes_come_back(name, labels, events, tmp_path):
    model = fitted(name, events, labels)
    model.save(tmp_path / "model")
    assert_same(load(tmp_path / "model"), model, events[0])
    assert read_header(tmp_path / "model")["classes"] == model.classes_.tolist()


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_comes_back_to_the_bit(name, models, events, tmp_path):
    path = str(tmp_path / "model")
    save(models[name], path)
    loaded = load(path)
    assert_same(loaded, models[name], events[0])
    assert_same(pickle.loads(pickle.dumps(loaded)), loaded, events[0])
    if hasattr(loaded, "n_jobs"):
        assert loaded.n_jobs is None
        loaded.set_params(n_jobs=models[name].n_jobs)
    assert loaded.get_params() == models[name].get_params() == clone(loaded).get_params()
    loaded.save(path + " again")
    assert Path(path + " again").read_bytes() == Path(path).read_bytes()


@pytest.mark.parametrize("name", ["tree", "forest", "forest of votes"])
def test_missing_values_come_back(name, events, tmp_path):
    X, on = events[0].astype(np.float32), events[1]
    X[::3, 0] = X[on, 3] = np.nan
    X[:, 5] = 0.25  # a feature without any edge
    model = fitted(name, (X, on))
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_same(loaded, model, X)
    assert np.isnan(loaded._trees.edges[0]).sum() == 0


@pytest.mark.parametrize("name", ["tree", "forest", "k-means", "k-means ensemble"])
def test_feature_names_come_back_in_order(name, events, tmp_path):
    names = ["width", "Länge / mm", "x0", "size", "a", "c", "b", "µ\n"]
    X = pd.DataFrame(events[0], columns=names)
    model = fitted(name, (X, events[1]))
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert_same(loaded, model, X)
    assert read_header(tmp_path / "model")["feature_names"] == names
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(X[names[::-1]])


def test_tree_of_one_leaf_comes_back(events, tmp_path):
    model = OnOffTreeClassifier(min_samples_leaf=400, alpha=1.0).fit(*events)
    model.save(tmp_path / "model")
    assert_same(load(tmp_path / "model"), model, events[0])


@pytest.mark.slow
def test_another_process_gets_the_same_bits(models, events, tmp_path):
    X = events[0]
    np.save(tmp_path / "X.npy", X)
    for number, model in enumerate(models.values()):
        model.save(tmp_path / str(number))
    code = """
import sys, hashlib, numpy as np
from excess.estimators._model_file import load
X = np.load("X.npy")
for number in range(int(sys.argv[1])):
    model = load(str(number))
    print(hashlib.sha256(model.predict_proba(X).tobytes() + model.predict(X).tobytes()).hexdigest())
"""
    command = [sys.executable, "-W", "error", "-c", code, str(len(models))]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    here = [hashlib.sha256(m.predict_proba(X).tobytes() + m.predict(X).tobytes()).hexdigest() for m in models.values()]
    assert result.stdout.split() == here


@pytest.mark.parametrize("name", ["tree", "forest of votes", "k-means", "k-means ensemble"])
def test_identical_models_give_identical_bytes(name, models, events, tmp_path):
    metadata = {"nights": [1, 2]}
    models[name].save(tmp_path / "one", metadata)
    fitted(name, events).save(tmp_path / "two", metadata=metadata)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    fitted(name, (events[0][::-1], events[1])).save(tmp_path / "two", metadata=metadata)
    assert (tmp_path / "one").read_bytes() != (tmp_path / "two").read_bytes()


def test_loaded_trees_need_no_new_kernels(models, events, tmp_path):
    models["forest"].predict(events[0])
    before = len(predictor.score_rows.signatures)
    models["forest"].save(tmp_path / "model")
    load(tmp_path / "model").predict(events[0])
    assert len(predictor.score_rows.signatures) == before


def test_loaded_forest_lacks_what_is_as_large_as_its_events(models, tmp_path):
    models["forest"].save(tmp_path / "model")
    with pytest.raises(AttributeError, match="oob_decision_function_"):
        _ = load(tmp_path / "model").oob_decision_function_


# What the header says.


def test_header_says_what_the_model_is(models, tmp_path):
    metadata = {
        "units": {"width": "mm", "size": None},
        "groups": np.array([20131001, 20131002]),
        "config": {"cuts": (np.float32(0.5), np.int8(3), np.bool_(True)), "empty": {}},
    }
    models["forest"].save(tmp_path / "model", metadata=metadata)
    header = read_header(tmp_path / "model")
    versions = header.pop("versions")
    assert versions["excess"] == excess.__version__
    assert versions["numpy"] == np.__version__
    assert versions["scikit-learn"] == sklearn.__version__
    assert versions["python"].split(".")[:2] == [str(number) for number in sys.version_info[:2]]
    model = models["forest"]
    assert header == {
        "format_version": 4,
        "class": "OnOffForestClassifier",
        "parameters": model.get_params(),
        "n_features": 8,
        "feature_names": None,
        "classes": [0, 1],
        "classes_dtype": "<i8",
        "alpha": 0.7,
        "threshold": model.threshold_,
        "attributes": {"oob_significance": model.oob_significance_},
        "metadata": {
            "units": {"width": "mm", "size": None},
            "groups": [20131001, 20131002],
            "config": {"cuts": [0.5, 3, True], "empty": {}},
        },
    }


def test_infinite_numbers_are_kept_in_strict_json(models, tmp_path):
    models["forest that selects nothing"].save(tmp_path / "model")
    header = read_header(tmp_path / "model")
    assert header["threshold"] == header["parameters"]["threshold"] == np.inf
    assert b"Infinity" not in (tmp_path / "model").read_bytes()
    assert header["metadata"] == {}


@pytest.mark.parametrize(
    ("metadata", "error", "match"),
    [
        ([1, 2], TypeError, "metadata must be a mapping, got a list"),
        ({"a": {1: "b"}}, TypeError, r"metadata\['a'\] must have string keys, got \[1\]"),
        ({"a": [0, {1, 2}]}, TypeError, r"metadata\['a'\]\[1\] is a set"),
        ({"when": np.datetime64("2013-10-01")}, TypeError, r"metadata\['when'\] is a datetime64"),
        ({"when": np.array(["2013-10-01"], dtype="M8[ns]")}, TypeError, r"metadata\['when'\] is a ndarray"),
        ({"wait": np.timedelta64(1, "s")}, TypeError, r"metadata\['wait'\] is a timedelta64"),
        ({"a": float("nan")}, ValueError, r"metadata\['a'\] is nan, which JSON cannot represent"),
        ({"a": [1.0, np.float64("-inf")]}, ValueError, r"metadata\['a'\]\[1\] is -inf"),
    ],
)
def test_metadata_that_is_not_json_is_refused(metadata, error, match, models, tmp_path):
    with pytest.raises(error, match=match):
        models["tree"].save(tmp_path / "model", metadata=metadata)
    assert list(tmp_path.iterdir()) == []


def test_metadata_that_holds_itself_is_refused(models, tmp_path):
    endless = {}
    endless["a"] = [endless]
    with pytest.raises(ValueError, match="nested at most"):
        models["tree"].save(tmp_path / "model", metadata=endless)


# Models that cannot be saved.


@pytest.mark.parametrize(
    ("name", "parameters", "match"),
    [
        (
            "forest",
            {"threshold": lambda y, score, alpha: 0.5},
            r"threshold is a function.*\(threshold=model.threshold_\)",
        ),
        ("tree", {"random_state": np.random.RandomState(0)}, r"random_state is a RandomState.*\(random_state=None\)"),
        ("k-means", {"random_state": np.random.RandomState(0)}, "random_state is a RandomState"),
        ("tree", {"alpha": Fraction(1, 5)}, "alpha is a Fraction"),
    ],
)
def test_parameters_that_are_objects_are_refused_until_replaced(name, parameters, match, events, tmp_path):
    model = clone(MODELS[name]).set_params(**parameters).fit(*events)
    with pytest.raises(TypeError, match=match):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    threshold = model.threshold_
    replacements = {"threshold": threshold, "random_state": None, "alpha": 0.2}
    model.set_params(**{parameter: replacements[parameter] for parameter in parameters})
    model.save(tmp_path / "model")
    assert_same(load(tmp_path / "model"), model, events[0])
    assert load(tmp_path / "model").threshold_ == threshold


def test_numpy_numbers_as_parameters_come_back_as_numbers(events, tmp_path):
    model = OnOffTreeClassifier(np.float32(0.2), max_depth=np.int64(3), random_state=np.array(5)[()]).fit(*events)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").get_params() == model.get_params()
    assert type(load(tmp_path / "model").max_depth) is int


class Sapling(OnOffTreeClassifier):
    """Not a class of the package."""


def test_other_estimators_are_refused(events, tmp_path):
    meta = SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).fit(*events)
    impostor = type("OnOffTreeClassifier", (OnOffTreeClassifier,), {})(alpha=1.0).fit(*events)
    for model in (meta, Sapling(alpha=1.0).fit(*events), impostor, LogisticRegression(), None):
        with pytest.raises(TypeError, match="use joblib for others, at your own risk"):
            save(model, tmp_path / "model")
    with pytest.raises(TypeError, match="not SignificanceThresholdClassifier"):
        meta.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_not_fitted_are_refused(name, tmp_path):
    with pytest.raises(NotFittedError):
        clone(MODELS[name]).save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_classes_of_an_odd_type_are_refused(events, tmp_path):
    model = OnOffTreeClassifier(max_depth=2, alpha=1.0).fit(events[0], events[1].astype(np.float16))
    with pytest.raises(TypeError, match="classes of the dtype <f2"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


# Files that are not as they were written.


def refused(path, match=None):
    for read in (load, read_header):
        with pytest.raises(ModelFileError, match=match) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path} ")
        assert "\n" not in str(caught.value)


def test_every_changed_bit_is_refused(model, tmp_path):
    path = tmp_path / "model"
    model.save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    end = 8 * (8 + int.from_bytes(content[:8], "little"))  # of the part that safetensors reads
    positions = [
        *range(0, 8 * 40, 5),
        *rng.integers(end - 8 * 1500, end, size=150),
        *rng.integers(8 * len(content), size=100),
        8 * len(content) - 1,
    ]
    for position in positions:
        changed = bytearray(content)
        changed[position // 8] ^= 1 << position % 8
        path.write_bytes(changed)
        with pytest.raises(ModelFileError):
            load(path)
    path.write_bytes(content)
    load(path)


def test_truncated_and_extended_files_are_refused(model, tmp_path):
    path = tmp_path / "model"
    model.save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(1)
    for length in [1, 7, 8, 9, 34, 35, 36, 53, *rng.integers(len(content), size=50), len(content) - 1]:
        path.write_bytes(content[:length])
        refused(path)
    for more in (b"\0", b"\n", content[-32:], content):
        path.write_bytes(content + more)
        refused(path, "damaged or incomplete")


EMPTY = b'{"__metadata__":{"excess":"'


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "is empty"),
        (b"excess", "is not a model file of excess"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "is not a model file of excess"),
        (pickle.dumps(OnOffTreeClassifier(alpha=1.0)), "is not a model file of excess"),
        (safetensors.numpy.save({"a": np.zeros(3)}), "is not a model file of excess"),
        (safetensors.numpy.save({"a": np.zeros(3)}, {"format": "pt"}), "is not a model file of excess"),
        (safetensors.numpy.save({"a": np.zeros(3)}, {"excess": "{}"}), "damaged or incomplete"),
        (safetensors.numpy.save({"sha256": np.zeros(32, np.uint8)}, {"excess": "{}"}), "damaged or incomplete"),
        (framed(EMPTY), "damaged or incomplete"),
        ((10**15).to_bytes(8, "little") + EMPTY, "damaged or incomplete"),
        (b"\xff" * 8 + EMPTY, "damaged or incomplete"),
        (framed(EMPTY + b'"}}')[:-1], "damaged or incomplete"),
    ],
)
def test_other_files_are_refused(content, match, tmp_path):
    (tmp_path / "model").write_bytes(content)
    refused(tmp_path / "model", match)


def test_paths_without_a_file_are_refused(tmp_path):
    refused(tmp_path / "none", "does not exist")
    refused(tmp_path, "is a folder; pass the files in it")
    (tmp_path / "file").write_text("text")
    refused(tmp_path / "file" / "model", "cannot be read: Not a directory|does not exist")
    refused(str(tmp_path / "a\0b"), "cannot be read: .*embedded null")


def test_model_files_are_known_by_how_they_begin(models, tmp_path):
    models["tree"].save(tmp_path / "model")
    (tmp_path / "broken").write_bytes((tmp_path / "model").read_bytes()[:100])
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "other").write_bytes(b"excess model\n" + bytes(100))
    for name in ("model", "broken"):
        assert is_model_file(tmp_path / name)
    assert is_model_file(str(tmp_path / "model"))
    for name in ("empty", "other", "none", "", "a\0b", "other/model"):
        assert not is_model_file(tmp_path / name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are of POSIX")
def test_pipes_are_refused(models, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "is a pipe, but files are read more than once")
    with pytest.raises(ModelFileError, match="is not a regular file"):
        models["tree"].save(tmp_path / "pipe")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def change(name, /, **values):
    """An edit of the list of arrays."""

    def edit(header, entries, data):
        entries[name].update(values)

    return edit


def put(name, index, value):
    """An edit of the numbers in an array."""

    def edit(header, entries, data):
        array_of(entries, data, name)[index] = value

    return edit


def with_header(**values):
    return lambda header, entries, data: header.update(values)


def without(key):
    return lambda header, entries, data: header.pop(key) and None


def rename(old, new):
    def edit(header, entries, data):
        entries[new] = entries.pop(old)

    return edit


def drop_array(header, entries, data):
    del entries["values"]


def overlapping(header, entries, data):
    for entry in entries.values():
        start, end = entry["data_offsets"]
        entry["data_offsets"] = [0, end - start]


def leaf_that_goes_on(header, entries, data):
    array_of(entries, data, "nodes")[-1, 2] = 0


def nodes_in_a_circle(header, entries, data):
    array_of(entries, data, "nodes")[1, 3] = 0


def last_node_as_left_child(header, entries, data):
    nodes = array_of(entries, data, "nodes")
    nodes[0, 3] = len(nodes) - 1


def bools_of_7(header, entries, data):
    array_of(entries, data, "has_missing").view(np.uint8).fill(7)


DAMAGED = "damaged or incomplete"
OLD_SAFETENSORS = version("safetensors").startswith("0.4.")  # it does not know complex numbers
HEADER_TRICKS = {
    "a newer format": (
        with_header(format_version=5),
        r"format version 5, but excess .* reads versions up to 4; upgrade",
    ),
    "an older format": (with_header(format_version=3), "format version 3, an older one; train the model again"),
    "no format": (without("format_version"), "without a format version"),
    "format 0": (with_header(format_version=0), "without a format version"),
    "format in words": (with_header(format_version="1"), "without a format version"),
    "a list": (lambda header, entries, data: "[]", "without a format version"),
    "not JSON": (lambda header, entries, data: "{'class'}", "not JSON"),
    "not ASCII": (lambda header, entries, data: '{"class": "ä"}', "not JSON"),
    "NaN": (lambda header, entries, data: '{"format_version": NaN}', "not JSON"),
    "endless nesting": (lambda header, entries, data: "[" * 100_000, "not JSON"),
    "no parameters": (without("parameters"), "without parameters"),
    "no classes": (without("classes"), "without classes"),
    "alpha in words": (with_header(alpha="1/5"), "invalid value of alpha"),
    "parameters in a list": (with_header(parameters=[]), "invalid value of parameters"),
    "a list as parameter": (with_header(parameters={"max_depth": [1]}), "a list in its header"),
    "unknown entries": (
        with_header(**{f"note {k}": "x" for k in range(2000)}),
        r"a header with 2,000 unknown entries, such as \['note 0'\]",
    ),
    "a long header": (
        with_header(metadata={"note": "x" * (1 << 24)}),
        r"has a header of 16,77.,... characters, above the maximum of 16,777,216",
    ),
    "many arrays": (lambda header, entries, data: entries.update({
        f"new{k}": {"dtype": "F64", "shape": [0], "data_offsets": [len(data)] * 2} for k in range(1001)}) and None,
        r"has 1,0[12]. arrays, above the maximum of 1,000"),
    "an object as number": (with_header(threshold={"float": "0x1"}), "invalid number"),
    "dtype O": (change("values", dtype="O"), DAMAGED),
    "dtype of nothing": (change("values", dtype=None), DAMAGED),
    "dtype of halves": (change("roots", dtype="F16", shape=[8]), "invalid dtype"),
    "dtype of short floats": (change("roots", dtype="BF16", shape=[8]), "invalid dtype"),
    "dtype of complex numbers": (change("roots", dtype="C64"), DAMAGED if OLD_SAFETENSORS else "invalid dtype"),
    "size beyond the file": (change("values", shape=[10**12]), DAMAGED),
    "product beyond the file": (change("values", shape=[5000, 5000]), DAMAGED),
    "product beyond all numbers": (change("values", shape=[2**62, 2**62]), DAMAGED),
    "negative length": (change("values", shape=[-1]), DAMAGED),
    "two negative lengths": (change("values", shape=[-4, -4]), DAMAGED),
    "length true": (change("values", shape=[True]), DAMAGED),
    "length 1.0": (change("values", shape=[1.0]), DAMAGED),
    "no shape": (change("values", shape=7), DAMAGED),
    "three dimensions": (change("roots", shape=[1, 1, 2]), "invalid dtype or shape"),
    "empty but huge": (lambda header, entries, data: entries.update(
        new={"dtype": "F64", "shape": [0, 2**60], "data_offsets": [len(data)] * 2}) and None, "invalid dtype or shape"),
    "negative offset": (change("values", data_offsets=[-64, 0]), DAMAGED),
    "offset beyond the file": (change("values", data_offsets=[2**63, 2**63 + 64]), DAMAGED),
    "offset 0.0": (change("values", data_offsets=[0.0, 8.0]), DAMAGED),
    "overlap": (overlapping, DAMAGED),
    "array missing": (drop_array, DAMAGED),
    "checksum missing": (rename("sha256", "sha"), DAMAGED),
    "checksum of another type": (change("sha256", dtype="I8"), DAMAGED),
    "bytes after the last array": (lambda header, entries, data: data.extend(b"\0"), DAMAGED),
    "bool of 7": (bools_of_7, "invalid bools"),
}  # fmt: skip
CONTENT_TRICKS = {
    "unknown class": (with_header(**{"class": "os.system"}), "class 'os.system', unknown to excess"),
    "unknown parameter": (with_header(parameters={"depth": 3}), "parameters depth are unknown to this release"),
    "class of another": (with_header(**{"class": "OnOffKMeansClassifier", "parameters": {}}), "is missing"),
    "forest without attributes": (with_header(**{"class": "OnOffForestClassifier", "parameters": {}}), "valid"),
    "no feature": (with_header(n_features=0), "n_features is 0"),
    "too few features": (with_header(n_features=7), "n_edges is an array of int64"),
    "too few names": (with_header(feature_names=["a"]), "feature_names are not 8 strings"),
    "names in numbers": (with_header(feature_names=[1] * 8), "feature_names are not 8 strings"),
    "alpha 0": (with_header(alpha=0.0), "alpha must be positive"),
    "threshold NaN": (with_header(threshold={"float": "nan"}), "threshold must not be NaN"),
    "classes in disorder": (with_header(classes=[1, 0]), "not in sorted order"),
    "one class": (with_header(classes=[1, 1]), "one class only"),
    "three classes": (with_header(classes=[0, 1, 2]), "are not two labels of the dtype '<i8'"),
    "classes in lists": (with_header(classes=[[0], [1]]), "are not two labels of the dtype '<i8'"),
    "classes of another type": (with_header(classes=["0", "1"]), "are not two labels of the dtype '<i8'"),
    "bools as classes": (with_header(classes=[False, True]), "are not two labels of the dtype '<i8'"),
    "text that is too long": (with_header(classes=["ab", "ac"], classes_dtype="<U1"), "are not two labels"),
    "classes that are objects": (with_header(classes_dtype="|O"), r"its classes have the dtype '\|O'"),
    "classes of wide text": (with_header(classes_dtype="<U999999999"), "its classes have the dtype '<U999999999'"),
    "classes beyond the type": (with_header(classes=[0, 2**70]), "does not contain a valid"),
    "depths as floats": (change("depths", dtype="F64"), "depths is an array of float64"),
    "negative counts": (put("n_on", 0, -1), "n_on contains invalid counts"),
    "negative counts of the curve": (put("curve_n_off", 0, -1), "curve_n_off contains invalid counts"),
    "values in two dimensions": (change("roots", shape=[2, 1]), "roots is an array of int64 of shape"),
    "unknown array": (lambda header, entries, data: entries.update(
        new={"dtype": "F64", "shape": [0], "data_offsets": [len(data)] * 2}) and None, "unknown entries new"),
    "array of another name": (rename("has_missing", "code"), "has_missing is missing"),
    "feature beyond": (put("nodes", (0, 0), 8), "a feature that does not exist"),
    "child beyond": (put("nodes", (0, 3), 10**9), "a child that is not of its tree"),
    "right child beyond": (last_node_as_left_child, "a child that is not of its tree"),
    "circle": (nodes_in_a_circle, "a child that is not of its tree"),
    "leaf that goes on": (leaf_that_goes_on, "a child that is not of its tree"),
    "root beyond": (put("roots", 1, 10**9), "a root is none of its nodes"),
    "first root": (put("roots", 0, 1), "do not span"),
    "too deep": (put("depths", 0, 2**40), "deeper than it is large"),
    "edges do not add up": (put("n_edges", 0, 0), "do not add up"),
    "negative number of edges": (put("n_edges", 0, -1), "no valid length"),
}  # fmt: skip


def test_a_header_that_is_too_long_is_not_written(models, tmp_path):
    with pytest.raises(ModelFileError, match=r"model cannot be written: it has a header of .* reduce the metadata"):
        models["tree"].save(tmp_path / "model", metadata={"note": "x" * (1 << 24)})
    assert not list(tmp_path.iterdir())


def test_memory_of_predictions_follows_the_size_of_the_file(tmp_path):
    """One feature has many edges, and there are many features: padded to a matrix, these would take 2 GB."""
    X = np.zeros((600, 2000))
    X[:, 0] = np.arange(600)
    model = OnOffTreeClassifier(max_bins=None, max_depth=2, min_samples_leaf=5, alpha=1.0).fit(
        X, np.arange(600) % 7 < 2
    )
    more = [np.append(model._trees.edges[0], 1000.0 + np.arange(100_000)), *model._trees.edges[1:]]
    model._trees = dataclasses.replace(model._trees, edges=more)
    model.save(tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < 1 << 20
    loaded = load(tmp_path / "model")
    tracemalloc.start()
    try:
        scores = loaded.predict_proba(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20
    np.testing.assert_array_equal(scores, model.predict_proba(X))


@pytest.mark.parametrize("trick", HEADER_TRICKS)
def test_headers_with_a_right_checksum_are_not_trusted(trick, models, tmp_path):
    edit, match = HEADER_TRICKS[trick]
    models["tree"].save(tmp_path / "model")
    (tmp_path / "model").write_bytes(repacked((tmp_path / "model").read_bytes(), edit))
    refused(tmp_path / "model", match)


@pytest.mark.parametrize("trick", CONTENT_TRICKS)
def test_contents_with_a_right_checksum_are_not_trusted(trick, models, tmp_path):
    edit, match = CONTENT_TRICKS[trick]
    path = tmp_path / "model"
    models["tree"].save(path)
    assert repacked(path.read_bytes(), lambda header, entries, data: None) == path.read_bytes()
    path.write_bytes(repacked(path.read_bytes(), edit))
    with pytest.raises(ModelFileError, match=match) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path} ")


@pytest.mark.parametrize(
    ("name", "edit", "match"),
    [
        ("k-means", put("features", (0, 0), 8), "a feature that does not exist"),
        ("k-means", put("features", (0, 0), -1), "a feature that does not exist"),
        ("k-means", put("features", (0, 0), 1), "it clusters a feature more than once"),
        ("k-means", put("n_clusters", 0, 6), "do not add up"),
        ("k-means ensemble", put("n_clusters", 0, 0), "no clusters"),
        ("k-means ensemble", put("n_clusters", slice(None), 2**62), "no valid length"),
        ("k-means ensemble", with_header(attributes={}), "oob_significance"),
        ("forest", with_header(attributes={"oob_significance": "x"}), "valid OnOffForestClassifier"),
        ("forest", put("member_sizes", (0, 0), 2), "the trees of its members do not sum to its trees"),
        ("forest", put("member_sizes", (0, 0), -1), "the trees of its members do not sum to its trees"),
        ("forest", put("member_sizes", (1, 1), -1), "the trees of its members do not sum to its trees"),
        ("forest", put("member_sizes", (0, 3), 7), "the trees of its members do not sum to its trees"),
        ("forest", put("member_sizes", (slice(2), 3), [-1, 2]), "the trees of its members do not sum to its trees"),
        ("forest", change("member_sizes", shape=[4, len(MEMBERS)]), "member_sizes is an array of int64"),
        ("forest", change("member_likelihoods", dtype="I64"), "member_likelihoods is an array of int64"),
        ("forest", rename("member_sizes", "sizes"), "member_sizes is missing"),
        ("forest", rename("used_features", "used"), "used_features is missing"),
        ("forest", change("used_features", dtype="U8"), "used_features is an array of uint8"),
        ("forest", change("used_features", shape=[2, 4]), "used_features is an array of bool"),
        ("forest", put("roots", slice(1, 4), [2**63 - 1, -(2**63), -1]), "a root is none of its nodes"),
        ("forest", put("roots", slice(1, 3), [5, 5]), "do not span"),
        ("forest", put("depths", 0, -1), "deeper"),
        ("forest", with_header(**{"class": "OnOffTreeClassifier", "parameters": {}}), "has_missing is missing"),
    ],
)
def test_other_contents_with_a_right_checksum_are_not_trusted(name, edit, match, models, tmp_path):
    path = tmp_path / "model"
    models[name].save(path)
    path.write_bytes(repacked(path.read_bytes(), edit))
    with pytest.raises(ModelFileError, match=match):
        load(path)


def test_headers_cannot_make_memory_be_taken(models, tmp_path):
    path = tmp_path / "model"
    models["tree"].save(path)
    content = path.read_bytes()
    edits = [change("values", shape=[10**10]), change("values", shape=[len(content) // 2] * 2), overlapping]
    tracemalloc.start()
    try:
        for edit in edits:
            path.write_bytes(repacked(content, edit))
            tracemalloc.reset_peak()
            with pytest.raises(ModelFileError):
                load(path)
            assert tracemalloc.get_traced_memory()[1] < 10 * len(content) + 1_000_000
    finally:
        tracemalloc.stop()


def test_older_files_without_a_parameter_take_its_default(models, events, tmp_path):
    models["tree"].save(tmp_path / "model")
    edit = lambda header, entries, data: header["parameters"].pop("max_bins") and None  # noqa: E731
    (tmp_path / "model").write_bytes(repacked((tmp_path / "model").read_bytes(), edit))
    assert_same(load(tmp_path / "model"), models["tree"], events[0])


# Writing: all or nothing.


def failing_writes():
    """Errors at every stage of a write: between two arrays, at the end, and at the renaming."""

    def partly(error):
        def save_some(arrays, path, metadata):
            Path(path).write_bytes(bytes(1000))
            raise error

        return _model_file, "save_file", save_some

    def raising(error):
        def fail(*args, **kwargs):
            raise error

        return fail

    for error in (KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device"), MemoryError()):
        kind = type(error).__name__
        yield pytest.param(*partly(error), type(error), id=f"{kind} between arrays")
        yield pytest.param(os, "fsync", raising(error), type(error), id=f"{kind} at the end")
        yield pytest.param(Path, "replace", raising(error), type(error), id=f"{kind} at the renaming")


@pytest.mark.parametrize(("where", "name", "function", "error"), list(failing_writes()))
def test_a_failed_write_leaves_everything_as_it_was(where, name, function, error, models, tmp_path, monkeypatch):
    path = tmp_path / "model"
    models["tree"].save(path)
    before = path.read_bytes()
    monkeypatch.setattr(where, name, function)
    expected = ModelFileError if error is OSError else error
    for target in (path, tmp_path / "new"):
        with pytest.raises(expected) as caught:
            models["forest"].save(target)
        if error is OSError:
            assert str(caught.value) == f"{target} cannot be written: No space left on device"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file(models, tmp_path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "model"
    models["tree"].save(path)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(ModelFileError, match="cannot be written"):
            models["forest"].save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_paths_that_cannot_be_written_are_named(models, tmp_path):
    for path, match in [
        (tmp_path, "is a folder; pass the name of a file"),
        (tmp_path / "none" / "model", "cannot be written: No such file"),
        (tmp_path / "a\0b", "cannot be written: .*embedded null"),
        (tmp_path / ("x" * 300), "cannot be written: File name too long"),
    ]:
        with pytest.raises(ModelFileError, match=match) as caught:
            models["tree"].save(path)
        assert str(caught.value).startswith(f"{path} ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="modes and links are of POSIX")
def test_file_has_the_usual_mode_and_a_link_stays_one(models, tmp_path):
    (tmp_path / "usual").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "model")
    for model in (models["forest"], models["tree"]):
        model.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert type(load(tmp_path / "folder" / "model")) is OnOffTreeClassifier
    assert (tmp_path / "folder" / "model").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_file_does_not_decide_on_threads(tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 2))
    forest = OnOffForestClassifier(2, alpha=1.0, random_state=0, max_depth=2).fit(X, X[:, 0] > 0)
    forest.set_params(n_jobs=4000).save(tmp_path / "forest")
    assert read_header(tmp_path / "forest")["parameters"]["n_jobs"] == 4000
    assert load(tmp_path / "forest").n_jobs is None
    for jobs in ("all", 0, 1e300):
        with safetensors.safe_open(tmp_path / "forest", framework="np") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys() if name != "sha256"}  # noqa: SIM118
        text = json.dumps(read_header(tmp_path / "forest") | {"parameters": {**forest.get_params(), "n_jobs": jobs}})
        safetensors.numpy.save_file(
            {**arrays, "sha256": _model_file._checksum(text, arrays)}, tmp_path / "other", metadata={"excess": text}
        )
        assert load(tmp_path / "other").n_jobs is None
