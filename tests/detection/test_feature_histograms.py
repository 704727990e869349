"""Histograms of features, before and after the selection."""

import json
from dataclasses import replace

import numpy as np
import pytest

from excess import OnOffTreeClassifier, cross_val_detect
from excess.detection import FeatureHistogram
from excess.detection._histograms import MAX_FEATURES, FeatureBinning


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    n = 4000
    X = np.column_stack([rng.normal(size=n), rng.lognormal(sigma=2, size=n), rng.integers(0, 5, n), np.full(n, 3.5)])
    return X, rng.random(n) < 1 / 6, rng.random(n) < 0.3, rng.random(n) < 0.9


def test_bins_hold_all_events_before_and_the_selected_ones_after(values):
    X, on, selected, held_out = values
    found = FeatureBinning(X, ["a", "b", "c", "d"]).histograms(on, held_out, selected, 0.2)
    assert [one.feature for one in found] == ["a", "b", "c", "d"]
    assert [one.logarithmic for one in found] == [False, True, False, False]
    for one, column in zip(found, X.T, strict=True):
        for bins, mask in ((one.before, held_out), (one.after, held_out & selected)):
            inner = np.concatenate([[-np.inf], one.edges[1:-1], [np.inf]])
            np.testing.assert_array_equal(bins.n_on, np.histogram(column[mask & on], inner)[0])
            n_off = np.histogram(column[mask & ~on], inner)[0]
            np.testing.assert_allclose(bins.background, 0.2 * n_off)
            np.testing.assert_allclose(bins.background_error, 0.2 * np.sqrt(n_off))
    assert found[2].edges.tolist() == [-0.5, 0.5, 1.5, 2.5, 3.5, 4.5]


def test_every_off_event_counts_with_its_own_alpha(values):
    X, on, selected, held_out = values
    alpha = np.where(X[:, 2] > 2, 0.5, 0.25)
    found = FeatureBinning(X[:, 2:3], ["c"]).histograms(on, held_out, selected, alpha)[0]
    n_off = np.bincount(X[held_out & ~on, 2].astype(int))
    np.testing.assert_allclose(found.before.background, n_off * [0.25, 0.25, 0.25, 0.5, 0.5])
    np.testing.assert_allclose(found.before.background_error, np.sqrt(n_off) * [0.25, 0.25, 0.25, 0.5, 0.5])


def test_missing_values_are_in_no_bin_and_infinite_ones_in_the_outermost():
    column = np.array([[1.0], [2.0], [4.0], [np.nan], [np.inf], [-np.inf]])
    on = np.ones(6, dtype=bool)
    found = FeatureBinning(column, ["x"]).histograms(on, on, ~on, 1.0)[0]
    assert found.before.n_on.sum() == 5
    assert (found.before.n_on[0], found.before.n_on[-1]) == (2, 2)
    assert found.after.n_on.sum() == 0
    nothing = FeatureBinning(np.full((3, 1), np.nan), ["x"]).histograms(on[:3], on[:3], on[:3], 1.0)[0]
    assert nothing.before.n_on.tolist() == [0]


def test_the_most_important_of_many_features_are_kept():
    rng = np.random.default_rng(1)
    X, on = rng.normal(size=(50, MAX_FEATURES + 5)), np.arange(50) < 10
    importances = np.arange(MAX_FEATURES + 5.0)
    binning = FeatureBinning(X, [f"x{i}" for i in range(X.shape[1])])
    kept = [one.feature for one in binning.histograms(on, on | True, on, 0.2, importances)]
    assert (len(kept), kept[0], kept[-1]) == (MAX_FEATURES, "x5", f"x{MAX_FEATURES + 4}")
    assert binning.histograms(on, on | True, on, 0.2)[-1].feature == f"x{MAX_FEATURES - 1}"


def test_a_histogram_is_read_as_it_was_written(values):
    X, on, selected, held_out = values
    one = FeatureBinning(X, ["a", "b", "c", "d"]).histograms(on, held_out, selected, 0.2)[1]
    written = json.loads(json.dumps(one.to_dict()))
    again = FeatureHistogram.from_dict(written)
    assert again.to_dict() == written
    written["after"]["n_on"].pop()
    with pytest.raises(ValueError, match="'b'"):
        FeatureHistogram.from_dict(written)


def test_a_detection_takes_features_of_its_events(values):
    X, on, _, _ = values
    found = cross_val_detect(OnOffTreeClassifier(max_depth=2), X, on, alpha=0.2)
    annotated = found.annotated(features=X)
    assert [one.feature for one in annotated.features] == ["x0", "x1", "x2", "x3"]
    for one in annotated.features:
        assert one.before.n_on.sum() == found.uncut.n_on
        assert one.after.background.sum() == pytest.approx(found.counts.background)
    assert found.annotated(features=X, feature_names="wxyz").features[3].feature == "z"
    with pytest.raises(ValueError, match="features"):
        found.annotated(features=X[1:])
    with pytest.raises(ValueError, match="features"):
        replace(found, feature_names=("a", "b", "c"), importances=None).annotated(features=X)
