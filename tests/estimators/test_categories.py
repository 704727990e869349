"""Categories of data frames in trees and forests, and trees in the form that shap takes."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, StackingClassifier
from sklearn.metrics import average_precision_score

import excess
from excess.estimators._tree import _order_categories
from excess.out_of_core import fit_forest

ALPHA = 1 / 5
N_CATEGORIES = 20


def make_events(n, seed=0):
    """Return a frame whose categories 0, 4, 8, ... are rich in signal, On labels and the truth."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, N_CATEGORIES, n)
    signal = rng.random(n) < np.where(codes % 4 == 0, 0.4, 0.02)
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    X.loc[signal, "a"] += 1
    X["site"] = pd.Categorical.from_codes(codes, [f"s{number:02}" for number in range(N_CATEGORIES)])
    on = np.where(signal, rng.random(n) < 0.95, rng.random(n) < ALPHA / (1 + ALPHA))
    return X, on.astype(int), signal


@pytest.fixture(scope="module")
def fitted():
    X, on, _ = make_events(4000)
    return excess.OnOffForestClassifier(60, alpha=ALPHA, random_state=0).fit(X, on)


class TestCategories:
    def test_quality_is_that_of_scikit_learn(self, fitted):
        X, on, _ = make_events(4000)
        peer = HistGradientBoostingClassifier(random_state=0, max_iter=50).fit(X, on)
        X_new, _, truth = make_events(4000, seed=1)
        ours, theirs = (
            average_precision_score(truth, model.predict_proba(X_new)[:, 1]) for model in (fitted, peer)
        )  # without an order by On fraction, ours was 0.45
        assert ours > theirs - 0.02

    def test_order_of_categories_and_rows_is_irrelevant(self, fitted):
        X, _, _ = make_events(300, seed=2)
        expected = fitted.predict_proba(X)
        reordered = X.assign(site=X["site"].cat.reorder_categories(X["site"].cat.categories[::-1]))
        np.testing.assert_array_equal(fitted.predict_proba(reordered), expected)
        np.testing.assert_array_equal(fitted.predict_proba(X.assign(site=X["site"].astype(object))), expected)

    def test_unknown_categories_are_missing(self, fitted):
        X, _, _ = make_events(50, seed=2)
        unknown, missing = X.assign(site="elsewhere"), X.assign(site=pd.Categorical([None] * 50))
        np.testing.assert_array_equal(fitted.predict_proba(unknown), fitted.predict_proba(missing))

    def test_arrays_are_rejected(self, fitted):
        with pytest.raises(ValueError, match="X must be a data frame"):
            fitted.predict(np.zeros((3, 3)))

    def test_more_categories_than_bins(self):
        X = pd.DataFrame({"site": pd.Categorical(range(12))})
        forest = excess.OnOffForestClassifier(4, alpha=1.0, max_bins=10)
        with pytest.raises(ValueError, match=r"12 categories in the column 'site', above max_bins"):
            forest.fit(X, np.arange(12) % 2)
        assert forest.set_params(max_bins=None).fit(X, np.arange(12) % 2).predict(X).shape == (12,)

    def test_a_second_fit_forgets_them(self, fitted):
        X, on, _ = make_events(200)
        again = excess.OnOffForestClassifier(5, alpha=ALPHA, random_state=0).fit(X, on).fit(X[["a", "b"]], on)
        assert again.predict(X[["a", "b"]]).shape == (200,)

    def test_model_file(self, fitted, tmp_path):
        fitted.save(tmp_path / "model.excess")
        X, _, _ = make_events(300, seed=3)
        loaded = excess.load(tmp_path / "model.excess")
        np.testing.assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))

    @pytest.mark.parametrize(
        "categories",
        [
            {"9": ["a"]},
            {"2": ["a", "a"]},
            {"2": [["a"]]},
            {"two": ["a"]},
            {"02": ["a"]},
            ["a"],
            {"2": "ab"},
            {"-1": []},
        ],
    )
    def test_impossible_categories_of_a_model_file(self, fitted, tmp_path, categories, monkeypatch):
        dumps = json.dumps
        monkeypatch.setattr(json, "dumps", lambda header, **options: dumps({**header, "categories": categories}))
        fitted.save(tmp_path / "model.excess")
        with pytest.raises(excess.ModelFileError, match="categories"):
            excess.load(tmp_path / "model.excess")

    def test_what_takes_numbers_only(self, fitted):
        with pytest.raises(TypeError, match="categorical features"):
            fitted.to_shap()
        X, on, _ = make_events(100)
        with pytest.raises(TypeError, match="categories"):
            fit_forest(excess.OnOffForestClassifier(2, alpha=ALPHA), [(X, on)])

    def test_text_of_a_tree(self):
        X, on, _ = make_events(2000)
        text = excess.OnOffTreeClassifier(alpha=ALPHA, max_depth=1).fit(X[["site"]], on).export_text()
        rich = [f"s{number:02}" for number in range(0, N_CATEGORIES, 4)]
        assert sorted(text.splitlines()[2].split(" in ")[1].split("  ")[0].split(", ")) == rich


class TestOrder:
    def test_by_on_fraction_where_that_differs(self):
        column = pd.Series(pd.Categorical(np.repeat(["a", "b", "c", "rare"], [300, 300, 300, 5])))
        on = np.concatenate([np.arange(300) % 2 == 0, np.arange(300) % 5 == 0, np.arange(300) % 3 == 0, [True] * 5])
        assert _order_categories(column, on) == ["b", "c", "rare", "a"]  # rare ones as the mean of all
        assert _order_categories(column.cat.as_ordered(), on) == ["a", "b", "c", "rare"]

    def test_noise_does_not_order(self):
        rng = np.random.default_rng(0)
        kept = 0
        for _ in range(100):
            column = pd.Series(pd.Categorical(rng.integers(0, 30, 2000)))
            kept += _order_categories(column, rng.random(2000) < 0.3) == list(range(30))
        assert kept >= 97


def walk(tree, x):
    """Return the value of the leaf that an event reaches, as shap does."""
    node = 0
    while tree["children_left"][node] >= 0:
        value = x[tree["features"][node]]
        if np.isnan(value):
            node = tree["children_default"][node]
        else:
            node = tree["children_left" if value <= tree["thresholds"][node] else "children_right"][node]
    return tree["values"][node, 0]


def test_trees_for_shap():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    X[rng.random(X.shape) < 0.2] = np.nan
    on = np.isnan(X[:, 0]) | (X[:, 1] > 1) | (rng.random(600) < 0.2)
    forest = excess.OnOffForestClassifier(10, alpha=1.0, random_state=0).fit(X, on)
    trees = forest.to_shap()["trees"]
    assert any(np.isinf(tree["thresholds"]).any() for tree in trees)  # cuts between missing values and all others
    found = [sum(walk(tree, x) for tree in trees) for x in X[:100]]
    np.testing.assert_allclose(found, forest.predict_proba(X[:100])[:, 1], rtol=1e-12)
    shap = pytest.importorskip("shap")
    values = shap.TreeExplainer(forest.to_shap())(X[:50])
    np.testing.assert_allclose(values.values.sum(axis=1) + values.base_values, found[:50], rtol=1e-9)


def test_stacking_with_its_default_final_estimator():
    X, on, truth = make_events(1500)
    X = X[["a", "b"]].to_numpy()
    members = [("forest", excess.OnOffForestClassifier(10, alpha=ALPHA, random_state=0)),
               ("peer", RandomForestClassifier(10, random_state=0))]  # fmt: skip
    stacked = StackingClassifier(members, cv=3)
    found = excess.cross_val_detect(stacked, X, on, alpha=ALPHA, cv=2, strategy="pooled", random_state=0)
    assert found.significance > 5  # it has predict_proba after fit only
    assert average_precision_score(truth, stacked.fit(X, on).predict_proba(X)[:, 1]) > 2 * truth.mean()


def test_sparse_events_are_rejected():
    with pytest.raises(TypeError, match=r"[Ss]parse.*dense"):
        excess.OnOffForestClassifier(2, alpha=1.0).fit(sparse.csr_array(np.eye(4)), [0, 1, 0, 1])
