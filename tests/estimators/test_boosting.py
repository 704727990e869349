"""Boosted trees as references: the scores of scikit-learn, model files, crafted arrays, weights, threads, ONNX."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from excess import ModelFileError, OnOffHybridClassifier, OnOffTreeClassifier, cross_val_detect, export_onnx, load
from excess.estimators._boosting import BoostedClassifier, train_boosting
from excess.estimators._model_file import from_bytes, save, to_bytes

ALPHA = 0.2


def draw_events(seed, n=3000):
    """Events of which two features separate signal, with missing values; their truth and noisy labels."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < 0.3
    X = rng.normal(size=(n, 4))
    X[truth, :2] += 1.5
    X[:, 3] = np.round(X[:, 3])
    X[rng.random(n) < np.where(truth, 0.3, 0.05), 2] = np.nan
    on = truth | (rng.random(n) < ALPHA / (1 + ALPHA))
    return X, truth.astype(int), on.astype(int)


@pytest.fixture(scope="module")
def model():
    X, truth, _ = draw_events(0)
    return HistGradientBoostingClassifier(max_iter=30, random_state=0).fit(X, truth)


@pytest.fixture(scope="module")
def weak():
    X, truth, _ = draw_events(1)
    return OnOffTreeClassifier(1.0, max_depth=1).fit(X[:, [3, 2, 1, 0]], truth)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_are_those_of_scikit_learn(model, dtype):
    X = draw_events(2)[0].astype(dtype)
    X[::7, 0] = np.nan  # a feature without missing values in training
    found = BoostedClassifier(model)
    np.testing.assert_allclose(found.predict_proba(X), model.predict_proba(X), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(found.predict(X), model.predict(X))


def test_values_on_both_sides_of_every_threshold(model):
    trees = BoostedClassifier(model).trees_
    edges = trees.edges[0]
    X = np.zeros((3 * len(edges), 4))
    X[:, 0] = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)])
    np.testing.assert_allclose(BoostedClassifier(model).predict_proba(X), model.predict_proba(X), rtol=1e-12)


@pytest.mark.parametrize("labels", [np.array([0, 1]), np.array(["off", "on"]), np.array([False, True])])
def test_a_model_file_gives_the_same_bits(labels):
    X, truth, _ = draw_events(3, 1000)
    table = pd.DataFrame(X, columns=list("abcd"))
    given = BoostedClassifier(HistGradientBoostingClassifier(max_iter=5).fit(table, labels[truth]))
    again = from_bytes(to_bytes(given))
    np.testing.assert_array_equal(again.predict_proba(table), given.predict_proba(table))
    np.testing.assert_array_equal(again.classes_, labels)
    assert list(again.feature_names_in_) == list("abcd")
    assert to_bytes(again).tobytes() == to_bytes(given).tobytes()
    assert clone(again) is again


def test_a_tree_of_one_leaf():
    X = np.zeros((100, 2))
    model = HistGradientBoostingClassifier(max_iter=2).fit(X, np.arange(100) % 2)
    again = from_bytes(to_bytes(BoostedClassifier(model)))
    np.testing.assert_allclose(again.predict_proba(X), 0.5)


def with_node(trees, column, value):
    """Return trees with another number in their first node."""
    nodes = trees.flat.nodes.copy()
    nodes[0, column] = value
    return replace(trees, flat=trees.flat._replace(nodes=nodes))


def with_values(trees, value):
    return replace(trees, values=np.append(trees.values[:-1], value))


def with_edges(trees, *edges):
    return replace(trees, edges=[np.array(edges, dtype=np.float64), *trees.edges[1:]])


@pytest.mark.parametrize(
    "craft",
    [
        lambda trees: with_node(trees, 0, 4),  # a feature that does not exist
        lambda trees: with_node(trees, 1, 2**10),  # numbers that would change the feature of a packed node
        lambda trees: with_node(trees, 2, 2**20),
        lambda trees: with_node(trees, 3, 0),  # an inner node that leads to itself
        lambda trees: with_node(trees, 3, 2**31),  # a child beyond all nodes
        lambda trees: with_node(trees, 3, int(trees.flat.roots[1])),  # a child of the next tree
        lambda trees: replace(trees, flat=trees.flat._replace(depths=trees.flat.depths + 10_000)),
        lambda trees: replace(trees, flat=trees.flat._replace(roots=trees.flat.roots[::-1].copy())),
        lambda trees: with_values(trees, np.nan),
        lambda trees: with_values(trees, np.inf),
        lambda trees: replace(trees, values=trees.values[:-1]),
        lambda trees: replace(trees, baseline=np.inf),
        lambda trees: replace(trees, baseline=1),
        lambda trees: with_edges(trees, 0.0, np.nan),
        lambda trees: with_edges(trees, np.inf),
        lambda trees: with_edges(trees, 1.0, 0.0),
        lambda trees: replace(trees, edges=trees.edges[:-1]),
    ],
)
def test_crafted_arrays_are_errors(model, craft, tmp_path, monkeypatch):
    given = BoostedClassifier(model)
    wrong = craft(given.trees_)
    monkeypatch.setattr(BoostedClassifier, "_get_state", lambda self: wrong)
    save(given, tmp_path / "model")
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match="does not contain a valid BoostedClassifier"):
        load(tmp_path / "model")


def test_other_boosted_trees_are_errors():
    X, truth, _ = draw_events(4, 300)
    several = HistGradientBoostingClassifier(max_iter=2).fit(X, truth + (X[:, 0] > 0))
    categorical = HistGradientBoostingClassifier(max_iter=2, categorical_features=[3]).fit(X, (abs(X[:, 3]) == 1) * 1)
    for wrong in (several, categorical):
        with pytest.raises(TypeError, match="two classes and no categorical features"):
            BoostedClassifier(wrong)
    protons = HistGradientBoostingClassifier(max_iter=2).fit(X, np.where(truth, "gamma", "proton"))
    with pytest.raises(ValueError, match="classes"):
        BoostedClassifier(protons)


def test_bits_do_not_depend_on_cores():
    X, truth, _ = draw_events(5, 12_000)
    found = []
    for cores in (1, 2, 3):
        with threadpool_limits(cores, user_api="openmp"):
            found.append(to_bytes(train_boosting(X, truth, max_iter=20, random_state=0)).tobytes())
    assert found[0] == found[1] == found[2]


class TestReferencesAlone:
    """A hybrid without a learner: references weighted by the likelihood of the labels."""

    def test_weights_follow_the_likelihood(self, model, weak):
        X, _, on = draw_events(6)
        references = {"weak": weak, "boosted": BoostedClassifier(model)}
        found = OnOffHybridClassifier(references, "drop", ALPHA, random_state=0).fit(X, on)
        assert [member.name for member in found.members_] == ["weak", "boosted"]
        likelihood = np.array([member.log_likelihood for member in found.members_])
        expected = np.exp((likelihood - likelihood.max()) / 8)
        np.testing.assert_allclose(list(found.reference_weights_.values()), expected / expected.sum())
        assert found.reference_weights_["boosted"] > 0.99
        twice = OnOffHybridClassifier({"a": model, "b": BoostedClassifier(model)}, "drop", ALPHA).fit(X, on)
        assert twice.reference_weights_ == {"a": pytest.approx(0.5), "b": pytest.approx(0.5)}
        assert found.estimators_ == {}

    def test_a_model_file_gives_the_same_bits(self, model, weak, tmp_path):
        X, _, on = draw_events(6)
        found = OnOffHybridClassifier({"weak": weak, "boosted": model}, "drop", ALPHA, random_state=0)
        # scikit-learn adds up trees in the same order, but rounds differently
        scores = found.fit(X, on).predict_proba(X)
        found.save(tmp_path / "model")
        again = load(tmp_path / "model")
        assert again.estimator == "drop"
        assert isinstance(again.references["boosted"], BoostedClassifier)
        np.testing.assert_allclose(again.predict_proba(X), scores, rtol=1e-9)
        again.save(tmp_path / "again")
        np.testing.assert_array_equal(load(tmp_path / "again").predict_proba(X), again.predict_proba(X))

    def test_cross_validation(self, model, weak):
        X, _, on = draw_events(6)
        found = OnOffHybridClassifier({"boosted": model}, "drop", random_state=0)
        detection = cross_val_detect(found, X, on, alpha=ALPHA, cv=3, random_state=0)
        other = cross_val_detect(clone(found).set_params(references={"weak": weak}), X, on, alpha=ALPHA, cv=3)
        assert detection.significance > other.significance + 5

    @pytest.mark.parametrize(("references", "estimator"), [(None, "drop"), ({"a": 0}, "forest")])
    def test_estimator_that_is_no_classifier(self, references, estimator):
        X, _, on = draw_events(6, 200)
        with pytest.raises(ValueError, match="estimator must be a classifier"):
            OnOffHybridClassifier(references, estimator, ALPHA).fit(np.nan_to_num(X), on)

    @pytest.mark.parametrize("estimator", ["drop", OnOffTreeClassifier(max_depth=3)])
    @pytest.mark.parametrize("wrap", [lambda model: model, BoostedClassifier])
    def test_onnx(self, model, weak, wrap, estimator):
        runtime = pytest.importorskip("onnxruntime")
        pytest.importorskip("onnx")
        X, _, on = draw_events(6)
        references = {"weak": weak, "boosted": wrap(model)}
        cv = "oob" if estimator == "drop" else 3
        found = OnOffHybridClassifier(references, estimator, ALPHA, cv=cv, random_state=0).fit(X, on)
        session = runtime.InferenceSession(export_onnx(found), providers=["CPUExecutionProvider"])
        score = session.run(["score"], {"features": X})[0]
        np.testing.assert_allclose(score, found.predict_proba(X)[:, 1], rtol=1e-6)
