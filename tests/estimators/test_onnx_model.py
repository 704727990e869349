"""ONNX models as classifiers: agreement with scikit-learn, kinds of inputs and outputs, model files, hostile files."""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from excess import (
    ModelFileError,
    OnnxClassifier,
    OnOffForestClassifier,
    OnOffHybridClassifier,
    SignificanceThresholdClassifier,
    cross_val_detect,
    load,
)
from excess.estimators import _onnx
from excess.estimators._model_file import read_header, save

onnx = pytest.importorskip("onnx", reason="ONNX models are built with onnx")
pytest.importorskip("onnxruntime", reason="ONNX models are applied by onnxruntime: pip install 'excess[onnx]'")
skl2onnx = pytest.importorskip("skl2onnx", reason="classifiers are exported with skl2onnx")
helper, numpy_helper, TensorProto = onnx.helper, onnx.numpy_helper, onnx.TensorProto

ALPHA = 0.2
NAMES = ["a", "b", "c", "d"]
CLASSIFIERS = {
    "forest": RandomForestClassifier(30, max_depth=8, random_state=0),
    "logistic": LogisticRegression(),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
}


def draw_events(seed, n=2000):
    """Events whose first two features tell signal from background, as float32 has them; truth and noisy labels."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.3
    X = rng.normal(size=(n, 4))
    X[truth, :2] += 1.2
    on = truth | (rng.random(n) < ALPHA / (1 + ALPHA))
    return X.astype(np.float32).astype(np.float64), truth.astype(int), on.astype(int)


@pytest.fixture(scope="module")
def events():
    return draw_events(0)


def export(model, n_features=4, *, zipmap=False, double=False):
    kind = skl2onnx.common.data_types.DoubleTensorType if double else skl2onnx.common.data_types.FloatTensorType
    types = [("X", kind([None, n_features]))]
    return skl2onnx.convert_sklearn(model, initial_types=types, options={id(model): {"zipmap": zipmap}})


@pytest.fixture(scope="module")
def logistic():
    X, truth, _ = draw_events(1)
    return LogisticRegression().fit(X, truth)


@pytest.fixture(scope="module")
def content(logistic):
    return export(logistic).SerializeToString()


def build(nodes, outputs, *, inputs=None, initializers=(), functions=()):
    """Return the bytes of a model of a few nodes; inputs and outputs are names with type and shape."""
    inputs = [("X", TensorProto.FLOAT, [None, 2])] if inputs is None else inputs
    values = [[helper.make_tensor_value_info(*one) for one in some] for some in (inputs, outputs)]
    graph = helper.make_graph(nodes, "graph", *values, initializer=list(initializers))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    if functions:
        opsets.append(helper.make_opsetid("own", 1))
    model = helper.make_model(graph, opset_imports=opsets, functions=list(functions), ir_version=8)
    return model.SerializeToString()


def summing(*after, shape):
    """A model that adds up two features, and what follows."""
    axes = numpy_helper.from_array(np.array([1]), "axes")
    keep = int(len(shape) == 2)
    first = helper.make_node("ReduceSum", ["X", "axes"], ["sum"], keepdims=keep)
    return build([first, *after], [("score", TensorProto.FLOAT, shape)], initializers=[axes])


SIGMOID = helper.make_node("Sigmoid", ["sum"], ["score"])
COMPLEMENT = [
    helper.make_node("Sigmoid", ["sum"], ["signal"]),
    helper.make_node("Neg", ["sum"], ["negative"]),
    helper.make_node("Sigmoid", ["negative"], ["background"]),
    helper.make_node("Concat", ["background", "signal"], ["score"], axis=1),
]


class TestAgreement:
    @pytest.mark.parametrize("zipmap", [False, True])
    @pytest.mark.parametrize("name", CLASSIFIERS)
    def test_with_scikit_learn(self, name, zipmap, events):
        X, truth, _ = events
        exported = clone(CLASSIFIERS[name]).fit(X, truth)
        model = OnnxClassifier(export(exported, zipmap=zipmap).SerializeToString())
        np.testing.assert_allclose(model.predict_proba(X), exported.predict_proba(X), atol=1e-6, rtol=0)
        clear = abs(exported.predict_proba(X)[:, 1] - 0.5) > 1e-6
        np.testing.assert_array_equal(model.predict(X)[clear], exported.predict(X)[clear])
        np.testing.assert_array_equal(model.classes_, exported.classes_)
        assert model.n_features_in_ == 4
        assert not hasattr(model, "feature_names_in_")

    def test_float64_models_agree_to_more_digits(self, events, logistic):
        X = events[0] + 1e-9
        model = OnnxClassifier(export(logistic, double=True).SerializeToString())
        np.testing.assert_allclose(model.predict_proba(X), logistic.predict_proba(X), atol=1e-6, rtol=0)

    @pytest.mark.parametrize("zipmap", [False, True])
    def test_classes_of_text_and_of_other_numbers(self, zipmap, events):
        X, truth, _ = events
        for labels in (np.array(["gamma", "proton"]), np.array([-7, 3])):
            exported = LogisticRegression().fit(X, labels[truth])
            model = OnnxClassifier(export(exported, zipmap=zipmap).SerializeToString())
            np.testing.assert_array_equal(model.classes_, labels)
            np.testing.assert_allclose(model.predict_proba(X), exported.predict_proba(X), atol=1e-6, rtol=0)
            assert set(model.predict(X)) == set(labels.tolist())

    def test_missing_values_are_taken_where_the_model_has_a_rule(self, events):
        X, truth, _ = events
        X = X.copy()
        X[::3, 1] = np.nan
        forest = RandomForestClassifier(20, max_depth=6, random_state=0).fit(X, truth)
        exported = export(forest)
        with pytest.raises(ValueError, match="the ONNX model: Input X contains NaN"):
            OnnxClassifier(exported.SerializeToString()).predict_proba(X)
        # skl2onnx does not export where a forest sends missing values, so this is done here
        (rule,) = (own for own in exported.graph.node[0].attribute if own.name == "nodes_missing_value_tracks_true")
        rule.ints[:] = np.concatenate([tree.tree_.missing_go_to_left for tree in forest.estimators_]).tolist()
        model = OnnxClassifier(exported.SerializeToString())
        assert get_tags(model).input_tags.allow_nan
        np.testing.assert_allclose(model.predict_proba(X), forest.predict_proba(X), atol=1e-6, rtol=0)

    def test_missing_values_are_taken_by_an_imputer(self, events):
        X, truth, _ = events
        X = X.copy()
        X[::3, 1] = np.nan
        exported = make_pipeline(SimpleImputer(), LogisticRegression()).fit(X, truth)
        model = OnnxClassifier(export(exported).SerializeToString())
        np.testing.assert_allclose(model.predict_proba(X), exported.predict_proba(X), atol=1e-6, rtol=0)

    def test_batches_change_nothing(self, content, events, monkeypatch):
        model = OnnxClassifier(content)
        whole = model.predict_proba(events[0])
        monkeypatch.setattr(_onnx, "_N_BATCH", 256)
        np.testing.assert_allclose(model.predict_proba(events[0]), whole, rtol=0, atol=1e-7)


class TestOutputs:
    @pytest.mark.parametrize(
        ("nodes", "shape"),
        [([SIGMOID], [None]), ([SIGMOID], [None, 1]), (COMPLEMENT, [None, 2])],
        ids=["(n,)", "(n, 1)", "(n, 2)"],
    )
    def test_a_single_output(self, nodes, shape):
        X = np.random.default_rng(0).normal(size=(50, 2))
        model = OnnxClassifier(summing(*nodes, shape=shape))
        expected = 1 / (1 + np.exp(-X.sum(axis=1)))
        np.testing.assert_allclose(model.predict_proba(X), np.column_stack([1 - expected, expected]), atol=1e-6)
        assert model.classes_.tolist() == [0, 1]

    def test_columns_of_classes_that_are_not_sorted(self):
        """The probability of the larger class comes second, whichever column it has."""
        scores = helper.make_node(
            "LinearClassifier",
            ["X"],
            ["label", "probabilities"],
            domain="ai.onnx.ml",
            classlabels_ints=[1, 0],
            coefficients=[1.0, 1.0, -1.0, -1.0],
            intercepts=[0.0, 0.0],
            post_transform="SOFTMAX",
        )
        outputs = [("label", TensorProto.INT64, [None]), ("probabilities", TensorProto.FLOAT, [None, 2])]
        model = OnnxClassifier(build([scores], outputs))
        assert model.classes_.tolist() == [0, 1]
        assert model.predict_proba([[3.0, 3.0]])[0, 1] > 0.99
        assert model.predict([[3.0, 3.0], [-3.0, -3.0]]).tolist() == [1, 0]

    def test_scores_that_are_no_probabilities_are_refused(self):
        model = OnnxClassifier(summing(helper.make_node("Neg", ["sum"], ["score"]), shape=[None, 1]))
        assert model.predict_proba([[-0.25, -0.5]]).tolist() == [[0.25, 0.75]]
        with pytest.raises(ModelFileError, match="gives values from -3 to 4, which are not probabilities"):
            model.predict_proba([[1.0, 2.0], [-2.0, -2.0]])
        twice = helper.make_node("Concat", ["sum", "sum"], ["score"], axis=1)
        with pytest.raises(ModelFileError, match="columns that do not add up to 1"):
            OnnxClassifier(summing(twice, shape=[None, 2])).predict_proba([[0.1, 0.2]])


class TestInputs:
    def test_an_input_for_each_feature(self, events, logistic):
        X, _, _ = events
        kind = skl2onnx.common.data_types.FloatTensorType
        pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, events[1])
        exported = skl2onnx.convert_sklearn(pipeline, initial_types=[(name, kind([None, 1])) for name in NAMES])
        model = OnnxClassifier(exported.SerializeToString())
        assert model.feature_names_in_.tolist() == NAMES
        table = pd.DataFrame(X, columns=NAMES)
        np.testing.assert_allclose(model.predict_proba(table), pipeline.predict_proba(X), atol=1e-6, rtol=0)

    def test_names_are_checked(self, content, events):
        model = OnnxClassifier(content, feature_names=NAMES)
        table = pd.DataFrame(events[0], columns=NAMES)
        np.testing.assert_array_equal(model.predict_proba(table), OnnxClassifier(content).predict_proba(events[0]))
        with pytest.raises(ValueError, match="feature names should match"):
            model.predict_proba(table[NAMES[::-1]])
        with pytest.raises(ValueError, match=r"requires 4 features, but X has 3; .*: a, b, c, d"):
            model.predict_proba(table[NAMES[:3]])
        with pytest.raises(ValueError, match="feature_names must be 4 different strings"):
            OnnxClassifier(content, feature_names=["a", "b", "c"])
        with pytest.raises(ValueError, match="feature_names must be 4 different strings"):
            OnnxClassifier(content, feature_names="abcd")

    def test_a_number_of_features_that_the_file_leaves_open(self):
        inputs = [("X", TensorProto.FLOAT, [None, None])]
        nodes = [helper.make_node("ReduceMean", ["X"], ["sum"], axes=[1], keepdims=0), SIGMOID]
        content = build(nodes, [("score", TensorProto.FLOAT, [None])], inputs=inputs)
        with pytest.raises(ModelFileError, match="does not declare how many features 'X' has; specify feature_names"):
            OnnxClassifier(content)
        table = pd.DataFrame([[1.0, 1.0, 2.0], [-1.0, -1.0, -2.0]], columns=["a", "b", "c"])
        assert OnnxClassifier(content, feature_names=["a", "b", "c"]).predict(table).tolist() == [1, 0]

    def test_values_beyond_float32_are_infinite(self):
        model = OnnxClassifier(summing(SIGMOID, shape=[None, 1]))
        assert model.predict_proba([[1e300, 0.0], [-1e300, 0.0]])[:, 1].tolist() == [1.0, 0.0]
        with pytest.raises(ValueError, match="the ONNX model: Input X contains infinity"):
            model.predict_proba([[np.inf, 0.0]])


class TestConventions:
    def test_it_is_fitted_and_stays_as_it_is(self, content, events):
        X, truth, _ = events
        model = OnnxClassifier(content)
        check_is_fitted(model)
        assert is_classifier(model)
        assert model.fit(X, truth, sample_weight=truth) is model
        assert clone(model) is model
        assert repr(model) == f"OnnxClassifier(model=<{len(content)} bytes>)"

    def test_a_path_is_read_once(self, content, events, tmp_path):
        path = tmp_path / "forest.onnx"
        path.write_bytes(content)
        model = OnnxClassifier(path)
        before = model.predict_proba(events[0])
        pickled = pickle.dumps(model)
        path.unlink()
        for other in (clone(model), pickle.loads(pickled)):
            np.testing.assert_array_equal(other.predict_proba(events[0]), before)
        assert model.get_params() == {"model": path, "feature_names": None}

    def test_parameters_can_be_set(self, content):
        model = OnnxClassifier(content, feature_names=NAMES)
        model.set_params(feature_names=None)
        assert not hasattr(model, "feature_names_in_")
        model.set_params(model=summing(SIGMOID, shape=[None, 1]))
        assert model.n_features_in_ == 2

    def test_a_threshold_is_tuned_in_folds(self, content, events):
        X, _, on = events
        model = SignificanceThresholdClassifier(OnnxClassifier(content), cv="prefit", alpha=1.0)
        assert cross_val_detect(model, X, on, alpha=ALPHA, cv=3, n_jobs=2).significance > 5

    def test_one_thread_whatever_the_machine(self, content):
        options = OnnxClassifier(content)._open().get_session_options()
        assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
        assert options.use_deterministic_compute


class TestModelFile:
    def test_round_trip(self, content, events, tmp_path):
        model = OnnxClassifier(content, feature_names=NAMES)
        model.save(tmp_path / "model", {"trained": "on simulations"})
        again = load(tmp_path / "model")
        assert again.model == content
        assert again.feature_names_in_.tolist() == NAMES
        assert read_header(tmp_path / "model")["metadata"] == {"trained": "on simulations"}
        table = pd.DataFrame(events[0], columns=NAMES)
        np.testing.assert_array_equal(again.predict_proba(table), model.predict_proba(table))
        again.save(tmp_path / "again", {"trained": "on simulations"})
        assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()

    @pytest.mark.parametrize("name", ["forest", "logistic"])
    def test_a_hybrid_holds_it(self, name, events, tmp_path):
        X, _, on = events
        simulated, truth, _ = draw_events(1)
        path = tmp_path / "simulation.onnx"
        path.write_bytes(export(clone(CLASSIFIERS[name]).fit(simulated, truth), zipmap=True).SerializeToString())
        learner = OnOffForestClassifier(10, min_samples_leaf=40, alpha=1.0)
        references = {"simulation": OnnxClassifier(path, feature_names=NAMES)}
        hybrid = OnOffHybridClassifier(references, learner, ALPHA, random_state=0, n_threshold_bootstrap=0)
        table = pd.DataFrame(X, columns=NAMES).assign(other=0.0)[["other", *NAMES]]
        hybrid.fit(table, on).save(tmp_path / "hybrid.excess")
        path.unlink()
        again = load(tmp_path / "hybrid.excess")
        assert again.reference_weights_ == hybrid.reference_weights_
        assert again.reference_weights_["simulation"] > 0.1
        np.testing.assert_array_equal(again.predict_proba(table), hybrid.predict_proba(table))
        np.testing.assert_array_equal(clone(again).fit(table, on).predict(table), hybrid.predict(table))
        again.save(tmp_path / "again.excess")
        assert (tmp_path / "again.excess").read_bytes() == (tmp_path / "hybrid.excess").read_bytes()

    def test_without_onnx_the_extra_is_named(self, content, tmp_path, monkeypatch):
        OnnxClassifier(content).save(tmp_path / "model")
        monkeypatch.setitem(sys.modules, "onnx", None)
        with pytest.raises(ImportError, match=r"reading an ONNX model requires onnx: pip install 'excess\[onnx\]'"):
            load(tmp_path / "model")

    def test_without_onnxruntime_only_predictions_fail(self, content, events, tmp_path, monkeypatch):
        X, _, on = events
        learner = OnOffForestClassifier(5, min_samples_leaf=40, alpha=1.0)
        hybrid = OnOffHybridClassifier({"simulation": OnnxClassifier(content)}, learner, ALPHA, random_state=0)
        hybrid.fit(X, on).save(tmp_path / "hybrid.excess")
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        again = load(tmp_path / "hybrid.excess")
        again.save(tmp_path / "again.excess")
        assert (tmp_path / "again.excess").read_bytes() == (tmp_path / "hybrid.excess").read_bytes()
        with pytest.raises(
            ImportError, match=r"applying an ONNX model requires onnxruntime: pip install 'excess\[onnx\]'"
        ):
            again.predict(X)

    @pytest.mark.parametrize(
        ("attribute", "wrong", "message"),
        [
            ("n_features_in_", 5, "features or classes are not those of the model inside"),
            ("classes_", np.array([0, 2]), "features or classes are not those of the model inside"),
            ("feature_names_in_", np.array(["a"]), "feature_names must be 4 different strings"),
            ("_content", b"", "is empty"),
            ("_content", b"no model", "is damaged or not an ONNX model"),
        ],
    )
    def test_what_does_not_fit_together_is_refused(self, attribute, wrong, message, content, tmp_path):
        model = OnnxClassifier(content)
        setattr(model, attribute, wrong)
        save(model, tmp_path / "model")
        with pytest.raises(ModelFileError, match=f"model does not contain a valid OnnxClassifier: .*{message}"):
            load(tmp_path / "model")

    def test_on_off_classifiers_still_need_their_threshold(self, events, tmp_path, monkeypatch):
        X, _, on = events
        forest = OnOffForestClassifier(2, min_samples_leaf=40, random_state=0, alpha=1.0).fit(X, on)
        monkeypatch.setattr("excess.estimators._model_file._is_tuned", lambda estimator: False)
        save(forest, tmp_path / "model")
        monkeypatch.undo()
        with pytest.raises(ModelFileError, match="has no alpha or no threshold"):
            load(tmp_path / "model")


def external_tensor(name="weights"):
    """A tensor whose values are said to be in another file."""
    tensor = numpy_helper.from_array(np.zeros((2, 1), dtype=np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


def external_models():
    """Models that point to another file, from each place that can hold a tensor."""
    output = [("score", TensorProto.FLOAT, [None, 1])]
    product = [helper.make_node("MatMul", ["X", "weights"], ["sum"]), SIGMOID]
    constant = helper.make_node("Constant", [], ["weights"], value=external_tensor())
    yield "initializer", build(product, output, initializers=[external_tensor()])
    yield "constant", build([constant, *product], output)
    branch = helper.make_graph([constant], "branch", [], [helper.make_tensor_value_info("weights", 1, [2, 1])])
    condition = helper.make_node("Constant", [], ["yes"], value=numpy_helper.from_array(np.array(True)))
    choice = helper.make_node("If", ["yes"], ["weights"], then_branch=branch, else_branch=branch)
    yield "branch", build([condition, choice, *product], output)
    own = helper.make_function("own", "Weights", [], ["weights"], [constant], [helper.make_opsetid("", 17)])
    yield (
        "function",
        build([helper.make_node("Weights", [], ["weights"], domain="own"), *product], output, functions=[own]),
    )
    tensor = external_tensor()
    tensor.ClearField("external_data")
    yield "location alone", build(product, output, initializers=[tensor])
    tensor = external_tensor()
    tensor.ClearField("data_location")
    yield "entries alone", build(product, output, initializers=[tensor])
    sparse = onnx.SparseTensorProto(values=external_tensor(), dims=[2, 1])
    model = onnx.ModelProto.FromString(build(product, output))
    model.graph.sparse_initializer.append(sparse)
    yield "sparse", model.SerializeToString()
    model = onnx.ModelProto.FromString(build(product, output))
    model.training_info.add().initialization.initializer.append(external_tensor())
    yield "training", model.SerializeToString()


def field(number, value, tag=None):
    """A field of a message, under its usual tag or another way to write it."""
    return (varint(number << 3 | 2) if tag is None else tag) + varint(len(value)) + value


def varint(value):
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


class TestHostileFiles:
    @pytest.mark.parametrize("content", [pytest.param(own, id=place) for place, own in external_models()])
    def test_values_in_other_files_are_refused(self, content, tmp_path):
        (tmp_path / "model.onnx").write_bytes(content)
        with pytest.raises(ModelFileError, match=r"model\.onnx stores values in other files, which are never opened"):
            OnnxClassifier(tmp_path / "model.onnx")

    @pytest.mark.parametrize("tag", [b"\x6a", b"\xea\x00", b"\xea\x80\x00", b"\xea\x80\x80\x80\x00"])
    def test_values_in_other_files_are_found_however_they_are_written(self, tag):
        tensor = field(13, field(1, b"location") + field(2, b"/etc/passwd"), tag)
        assert TensorProto.FromString(tensor).external_data[0].value == "/etc/passwd"
        with pytest.raises(ModelFileError, match="stores values in other files"):
            OnnxClassifier(field(7, field(5, tensor)) + field(8, b""))

    def test_truncated_files_are_refused(self, content, tmp_path):
        path = tmp_path / "cut.onnx"
        whole = OnnxClassifier(content).predict_proba(np.zeros((1, 4)))
        accepted = []
        for length in range(len(content)):
            path.write_bytes(content[:length])
            try:
                found = OnnxClassifier(path).predict_proba(np.zeros((1, 4)))
            except ModelFileError as error:
                assert str(error).startswith(str(path))  # noqa: PT017
            else:
                accepted.append(length)
                np.testing.assert_array_equal(found, whole)
        assert len(accepted) <= 2  # the end of the file says which version of operators it needs, and it needs none

    def test_changed_bytes_never_raise_anything_else(self, content):
        for position in range(len(content)):
            for bit in (1, 8, 128):
                changed = bytearray(content)
                changed[position] ^= bit
                try:
                    OnnxClassifier(bytes(changed))
                except ModelFileError:
                    continue

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "is empty"),
            (b"this is text, and no model", "is damaged or not an ONNX model"),
            (pickle.dumps([1, 2]), "is damaged or not an ONNX model"),
            (b"\x1c\x00\x00\x00ORTM" + bytes(40), "is in the format of onnxruntime"),
            (b"\x3a\x02" * 400, "is damaged or not an ONNX model"),
        ],
    )
    def test_other_files_are_refused(self, content, message, tmp_path):
        path = tmp_path / "other.onnx"
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=rf"other\.onnx {message}"):
            OnnxClassifier(path)

    def test_nesting_has_an_end(self):
        content = b""
        for _ in range(60):
            content = field(1, field(5, field(6, content)))  # graph, node, attribute
        with pytest.raises(ModelFileError, match="is damaged"):
            OnnxClassifier(field(7, content) + field(8, b""))

    @pytest.mark.parametrize(
        "graph",
        [
            field(1, b"") * 6_000,
            field(1, field(5, field(1, b"a")) * 6_000),
            field(11, field(1, b"x") + field(2, field(1, field(2, field(1, b"\x08\x01") * 6_000)))),
        ],
        ids=["nodes", "attributes", "dimensions"],
    )
    def test_the_number_of_parts_has_an_end(self, graph, monkeypatch):
        monkeypatch.setattr(_onnx, "_MAX_PARTS", 5_000)
        with pytest.raises(ModelFileError, match="has too many parts, above the maximum of 5,000"):
            OnnxClassifier(field(7, graph) + field(8, b""))

    def test_paths_without_a_model_are_named(self, content, tmp_path, monkeypatch):
        with pytest.raises(ModelFileError, match=r"nowhere\.onnx does not exist"):
            OnnxClassifier(tmp_path / "nowhere.onnx")
        with pytest.raises(ModelFileError, match="is a folder; pass the files in it"):
            OnnxClassifier(tmp_path)
        with pytest.raises(TypeError, match=r"got ModelProto; use SerializeToString"):
            OnnxClassifier(onnx.ModelProto.FromString(content))
        monkeypatch.setattr(_onnx, "MAX_SIZE", 100)
        (tmp_path / "large.onnx").write_bytes(content)
        with pytest.raises(ModelFileError, match=f"large.onnx has {len(content)} bytes; an ONNX model has 100 at most"):
            OnnxClassifier(tmp_path / "large.onnx")

    def test_size_is_bounded_inside_a_model_file(self, content, tmp_path, monkeypatch):
        OnnxClassifier(content).save(tmp_path / "model")
        monkeypatch.setattr(_onnx, "MAX_SIZE", 100)
        with pytest.raises(ModelFileError, match="an ONNX model has 100 at most"):
            load(tmp_path / "model")

    def test_unknown_operators_are_refused(self):
        own = helper.make_node("Detect", ["sum"], ["score"], domain="ai.onnx.ml")
        model = OnnxClassifier(summing(own, shape=[None, 1]))
        with pytest.raises(ModelFileError, match="the ONNX model cannot be opened by onnxruntime"):
            model.predict_proba([[0.0, 0.0]])


class TestOtherModels:
    def test_three_classes_are_refused(self, events):
        X, truth, _ = events
        three = LogisticRegression().fit(X, truth + (X[:, 2] > 1))
        for zipmap in (False, True):
            with pytest.raises(ModelFileError, match="is not a classifier of two classes but of 3"):
                OnnxClassifier(export(three, zipmap=zipmap).SerializeToString())
        columns = helper.make_node("Concat", ["sum", "sum", "sum"], ["score"], axis=1)
        with pytest.raises(ModelFileError, match="but of 3"):
            OnnxClassifier(summing(columns, shape=[None, 3]))
        with pytest.raises(ModelFileError, match=r"gives 'score' of shape \(1, 3\) for 1 events"):
            OnnxClassifier(summing(columns, shape=[None, None])).predict_proba([[0.0, 0.1]])

    @pytest.mark.parametrize(
        ("inputs", "message"),
        [
            (
                [("X", TensorProto.STRING, [None, 2])],
                r"takes 'X' \(text of shape \[any, 2\]\), but events are matrices",
            ),
            ([("X", TensorProto.INT64, [None, 2])], "takes 'X' .int64"),
            ([("X", TensorProto.FLOAT, [None])], "takes 'X' .float32 of shape .any.."),
            ([("X", TensorProto.FLOAT, [1, 2])], "takes 1 events at a time"),
            ([("X", TensorProto.FLOAT, [None, 2]), ("Z", TensorProto.INT64, [1])], "takes 'Z' .int64"),
            ([], "takes no input"),
        ],
    )
    def test_inputs_that_are_no_features_are_refused(self, inputs, message):
        content = build([SIGMOID], [("score", TensorProto.FLOAT, [None, 1])], inputs=inputs)
        with pytest.raises(ModelFileError, match=f"the ONNX model {message}"):
            OnnxClassifier(content)

    def test_outputs_that_are_no_probabilities_are_refused(self, logistic):
        with pytest.raises(ModelFileError, match=r"returns no probabilities, only 'label' \(int64"):
            OnnxClassifier(build([], [("label", TensorProto.INT64, [None])]))
        with pytest.raises(ModelFileError, match=r"has several outputs, .*: 'output_label' .*'i0' .*'zipmap': False"):
            OnnxClassifier(export(logistic, zipmap="columns").SerializeToString())

    def test_a_wrong_number_of_features_is_named(self, content, tmp_path):
        path = tmp_path / "forest.onnx"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"forest\.onnx: requires 4 features, but X has 3; pass those"):
            OnnxClassifier(path).predict_proba(np.zeros((5, 3)))
