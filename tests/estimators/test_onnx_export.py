"""Models exported to ONNX: agreement under onnxruntime, missing values, precision, metadata, reading back."""

import json

import numpy as np
import pandas as pd
import pytest
from helpers import make_forest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

import excess
from excess import (
    ModelFileError,
    OnnxClassifier,
    OnOffBinnedClassifier,
    OnOffForestClassifier,
    OnOffHybridClassifier,
    OnOffKMeansClassifier,
    OnOffKMeansEnsembleClassifier,
    OnOffTreeClassifier,
    SignificanceThresholdClassifier,
    export_onnx,
)

onnx = pytest.importorskip("onnx", reason="ONNX models are built with onnx: pip install 'excess[onnx]'")
runtime = pytest.importorskip(
    "onnxruntime", reason="ONNX models are applied by onnxruntime: pip install 'excess[onnx]'"
)

ALPHA = 0.25
N_EVENTS = 100_000


def draw_events(seed, n, missing=0.0):
    """Events in float64 with a feature of few values, one that is often exactly on a cut, and one that says nothing."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.15
    X = rng.normal(size=(n, 5)) * [1, 1e-3, 1, 1, 1e5]
    X[truth, 0] += 1.5
    X[truth, 1] += 2e-3
    X[:, 2] = np.floor(2 * X[:, 2]) / 2
    X[:, 3] = np.floor(X[:, 0] + X[:, 3])
    X[rng.random(X.shape) < missing] = np.nan
    on = truth | (rng.random(n) < ALPHA / (1 + ALPHA))
    return X, on.astype(int)


def run(content, X, precision="float64"):
    session = runtime.InferenceSession(content)
    return dict(
        zip(
            (one.name for one in session.get_outputs()),
            session.run(None, {"features": X.astype(precision)}),
            strict=True,
        )
    )


def check_equal(model, found, X, atol=1e-9):
    np.testing.assert_allclose(found["score"], model.predict_proba(X)[:, 1], rtol=0, atol=atol)
    np.testing.assert_allclose(found["signal_probability"], model.predict_signal_proba(X), rtol=0, atol=atol)
    np.testing.assert_array_equal(found["selected"], model.predict(X) == model.classes_[1])
    assert 0.001 < found["selected"].mean() < 0.9


@pytest.fixture(scope="module")
def forest():
    X, on = draw_events(0, 6000, missing=0.03)
    return OnOffForestClassifier(40, alpha=ALPHA, random_state=0).fit(X, on)


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_forest_agrees_on_a_hundred_thousand_events(forest, precision):
    X = draw_events(1, N_EVENTS, missing=0.03)[0].astype(precision)
    found = run(export_onnx(forest, precision=precision), X, precision)
    assert found["score"].dtype == precision
    assert found["selected"].dtype == bool
    assert len({own.splitter for own in forest.members_ if own.n_trees}) == 2  # with cuts of both kinds
    check_equal(forest, found, X, atol=1e-6 if precision == "float32" else 1e-9)


@pytest.mark.parametrize("output", ["fraction", "assignment"])
@pytest.mark.parametrize("max_bins", [None, 16])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_trees_and_votes_agree(output, max_bins, missing):
    X, on = draw_events(2, 3000, missing)
    for model in (
        OnOffTreeClassifier(ALPHA, max_depth=5, max_bins=max_bins, output=output),
        make_forest(alpha=ALPHA, max_bins=max_bins, output=output, min_samples_leaf=5, criterion="li_ma"),
    ):
        model.fit(X, on)
        new = draw_events(3, 4000, missing=0.1)[0]  # values are missing that never were before
        check_equal(model, run(export_onnx(model), new), new)


def test_an_event_on_a_cut_goes_the_same_way_in_float32():
    # cuts lie at 0.1, 0.3, ..., which float32 does not hold: rounded to nearest, half of them would be above
    values = np.arange(40) / 5
    X = np.repeat(values, 50)[:, None]
    on = (np.arange(len(X)) % 3 == 0) | (X[:, 0] > 4)
    tree = OnOffTreeClassifier(max_bins=None, alpha=1.0).fit(X, on)
    edges = 0.5 * (values[1:] + values[:-1])
    near = edges.astype(np.float32)
    events = np.concatenate([near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))])
    found = run(export_onnx(tree, precision="float32"), events[:, None], "float32")
    np.testing.assert_allclose(found["score"], tree.predict_proba(events[:, None])[:, 1], rtol=0, atol=1e-7)
    assert (near.astype(np.float64) > edges).any()
    assert (near.astype(np.float64) < edges).any()


def test_a_tree_that_is_one_leaf():
    X, on = np.zeros((200, 2)), np.arange(200) % 4 == 0
    tree = OnOffTreeClassifier(ALPHA).fit(X, on)
    assert tree.get_n_leaves() == 1
    found = run(export_onnx(tree), X[:5])
    np.testing.assert_allclose(found["score"], 0.25, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        OnOffKMeansClassifier(12, ALPHA, random_state=0),
        OnOffKMeansEnsembleClassifier(7, 20, ALPHA, max_features=3, random_state=0),
        OnOffKMeansEnsembleClassifier(7, 20, ALPHA, max_features=3, output="assignment", random_state=0),
    ],
)
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_clusters_agree(model, precision):
    model = model.fit(*draw_events(4, 3000))
    X = draw_events(5, 5000)[0].astype(precision)
    content = export_onnx(model, precision=precision)
    check_equal(model, run(content, X, precision), X.astype(np.float64), atol=1e-7)
    with pytest.raises(ValueError, match="NaN"):
        OnnxClassifier(content).predict_proba(np.full((2, 5), np.nan))


@pytest.fixture(scope="module")
def hybrid():
    """A hybrid with a model that knows its features by name, a column, and learners of its own."""
    names = ["a", "b", "c", "d", "e"]
    X, on = draw_events(6, 6000)
    table = pd.DataFrame(X, columns=names)
    learner = make_forest(n_estimators=60, min_samples_leaf=60)
    reference = make_forest(alpha=ALPHA, min_samples_leaf=20).fit(table[["b", "a"]][:2000], on[:2000])
    tuned = SignificanceThresholdClassifier(FrozenEstimator(reference), ALPHA, cv="prefit")
    tuned = tuned.fit(table[["b", "a"]][2000:3000], on[2000:3000])
    table.insert(2, "gammaness", 1 / (1 + np.exp(-X[:, 0] - 900 * X[:, 1])))
    model = OnOffHybridClassifier({"older": tuned, "other": "gammaness"}, learner, ALPHA, random_state=0).fit(
        table[3000:], on[3000:]
    )
    return model, table


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_hybrid_agrees_with_all_of_its_members(hybrid, precision):
    model, table = hybrid
    assert min(model.reference_weights_.values()) > 0.005, "a member that does not count cannot be wrong"
    X = table.astype(precision)
    found = run(export_onnx(model, precision=precision), X.to_numpy(), precision)
    check_equal(model, found, X.astype(np.float64), atol=1e-6)


@pytest.mark.parametrize("passthrough", [True, False])
@pytest.mark.parametrize("edges", [(-1.0, 0.3, 0.5), ()])
def test_bins_have_their_own_thresholds_and_calibrations(passthrough, edges):
    X, on = draw_events(9, 6000)
    learner = make_forest(n_estimators=20, min_samples_leaf=40)
    model = OnOffBinnedClassifier(learner, 0, edges, ALPHA, passthrough=passthrough, random_state=0).fit(X, on)
    new = draw_events(10, 5000)[0]
    new[:4, 0] = [-1.0, 0.3, 0.5, np.nextafter(0.3, 0)]  # at an edge, an event belongs above it
    for precision in ("float64", "float32"):
        events = new.astype(precision)
        content = export_onnx(model, precision=precision)
        found = run(content, events, precision)
        check_equal(model, found, events.astype(np.float64), atol=1e-6 if precision == "float32" else 1e-9)
    told = json.loads(runtime.InferenceSession(content).get_modelmeta().custom_metadata_map["bins"])
    assert told["edges"] == list(edges)
    assert told["thresholds"] == [own.threshold for own in model.bins_]


@pytest.mark.parametrize("threshold", [-np.inf, np.inf, 0.0, 1.0, 0.4])
def test_thresholds_of_bins_at_the_ends(threshold):
    X, on = draw_events(11, 3000)
    model = OnOffBinnedClassifier(make_forest(min_samples_leaf=40), 0, (), ALPHA, random_state=0).fit(X, on)
    model.bins_ = (model.bins_[0]._replace(threshold=threshold),)
    found = run(export_onnx(model), X)
    np.testing.assert_allclose(found["score"], model.predict_proba(X)[:, 1], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(found["selected"], model.predict(X) == 1)


def test_it_is_read_back_as_the_probability_of_signal(forest, tmp_path):
    X = draw_events(7, 2000, missing=0.1)[0]
    path = tmp_path / "forest.onnx"
    content = export_onnx(forest, path, feature_names=list("abcde"), metadata={"telescope": "FACT"})
    assert (
        path.read_bytes() == content == export_onnx(forest, feature_names=list("abcde"), metadata={"telescope": "FACT"})
    )
    model = OnnxClassifier(path)
    table = pd.DataFrame(X, columns=list("abcde"))
    np.testing.assert_allclose(model.predict_proba(table)[:, 1], forest.predict_signal_proba(X), rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict_proba(table.rename(columns={"a": "z"}))
    assert [str(name) for name in model.feature_names_in_] == list("abcde")
    # it goes into a model file, as any reference does
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(excess.load(tmp_path / "model").predict_proba(table), model.predict_proba(table))


def test_metadata_says_what_the_model_is(forest):
    found = runtime.InferenceSession(export_onnx(forest)).get_modelmeta()
    metadata = found.custom_metadata_map
    assert found.producer_name == "excess"
    assert float(metadata["threshold"]) == forest.threshold_
    assert float(metadata["alpha"]) == ALPHA
    assert json.loads(metadata["classes"]) == [0, 1]
    assert "feature_names" not in metadata  # it was fitted on an array
    named = make_forest().fit(pd.DataFrame({"width": np.arange(50.0), "size": 1.0}), np.arange(50) % 2)
    metadata = runtime.InferenceSession(export_onnx(named)).get_modelmeta().custom_metadata_map
    assert json.loads(metadata["feature_names"]) == ["width", "size"]


@pytest.mark.parametrize("listed", ['["a", "b"]', "no list", '["a", "a", "a", "a", "a"]', "[1, 2, 3, 4, 5]"])
def test_names_in_a_file_that_cannot_be_those_of_its_features_are_ignored(forest, listed):
    model = onnx.load_from_string(export_onnx(forest))
    onnx.helper.set_model_props(model, {"feature_names": listed})
    assert not hasattr(OnnxClassifier(model.SerializeToString()), "feature_names_in_")


class TestRefusals:
    def test_what_cannot_be_exported(self):
        X, on = draw_events(8, 600)
        X = X[:, :1]
        tuned = SignificanceThresholdClassifier(LogisticRegression(), ALPHA).fit(X, on)
        with pytest.raises(TypeError, match="LogisticRegression cannot be exported to ONNX; trees, forests, k-means"):
            export_onnx(tuned)
        hybrid = OnOffHybridClassifier({"other": tuned}, make_forest(min_samples_leaf=20), ALPHA).fit(X, on)
        with pytest.raises(TypeError, match="reference 'other': a LogisticRegression cannot be exported"):
            export_onnx(hybrid)
        with pytest.raises(TypeError, match=r"model must be an On/Off classifier.*got LogisticRegression"):
            export_onnx(LogisticRegression().fit(X, on))

    def test_wrong_arguments(self, forest, tmp_path):
        with pytest.raises(ValueError, match="precision must be"):
            export_onnx(forest, precision="float16")
        with pytest.raises(ValueError, match="feature_names must be 5 different names"):
            export_onnx(forest, feature_names=["a"])
        with pytest.raises(ModelFileError, match="cannot be written"):
            export_onnx(forest, tmp_path / "nowhere" / "forest.onnx")
