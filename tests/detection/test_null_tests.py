"""Null tests: searches in the Off regions, where there is no source."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from excess import (
    OnOffForestClassifier,
    OnOffKMeansClassifier,
    OnOffKMeansEnsembleClassifier,
    OnOffTreeClassifier,
    cross_val_detect,
    null_test,
)


@pytest.fixture
def null_data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 4)), (rng.random(600) < 1 / 3).astype(int), np.arange(600) % 5


@pytest.fixture(scope="module")
def wobble():
    """Six regions of equal exposure, a source in the first, five nights."""
    rng = np.random.default_rng(0)
    n_background, n_signal = 6000, 400
    X = rng.normal(size=(n_background + n_signal, 5))
    X[n_background:, :3] += 1.5
    region = np.r_[rng.integers(0, 6, n_background), np.zeros(n_signal, dtype=int)]
    return X, region, rng.integers(0, 5, len(region))


MODELS = {
    "k-means": OnOffKMeansClassifier(32, random_state=0),
    "k-means ensemble": OnOffKMeansEnsembleClassifier(8, 32, random_state=0),
    "tree": OnOffTreeClassifier(max_depth=4, min_samples_leaf=20),
    "li & ma tree": OnOffTreeClassifier(criterion="li_ma", max_depth=4),
    "forest": OnOffForestClassifier(30, max_depth=6, min_samples_leaf=10, random_state=0),
    "li & ma forest": OnOffForestClassifier(30, criterion="li_ma", max_depth=6, min_samples_leaf=10, random_state=0),
}


@pytest.mark.parametrize("names", [["tree", "k-means"], pytest.param(list(MODELS), marks=pytest.mark.campaign)])
def test_null_tests_are_near_zero_where_the_source_is_not(wobble, names):
    X, region, night = wobble
    models = {name: MODELS[name] for name in names}
    found = cross_val_detect(models, X, region == 0, alpha=1 / 5, groups=night)
    tests = null_test(models, X, region, n_regions=6, groups=night, random_state=0)
    for name, test in tests.items():
        assert found[name].significance > 9, name
        assert list(test.detections) == [1, 2, 3, 4, 5]
        assert test.alpha == 1 / 4
        assert abs(test.mean) < 1.3, name
        for counts in test.counts.values():  # three sigma, exactly: of 3 On and 0 Off events, Li & Ma says 3.1
            n = counts.n_on + counts.n_off
            assert stats.binom.sf(counts.n_on - 1, n, test.alpha / (1 + test.alpha)) > stats.norm.sf(3), name
            assert n <= 3 or counts.significance < 3, name
        assert not test.suspicious
        for fake, detection in test.detections.items():
            assert len(detection.on) == np.count_nonzero(region > 0)
            assert detection.uncut.n_on == np.count_nonzero(region == fake)
    assert len(tests["tree"].to_frame()) == 5
    assert "as expected where there is no source" in str(tests["tree"])


@pytest.mark.parametrize(
    "names", [["tree"], pytest.param(["tree", "forest", "k-means ensemble"], marks=pytest.mark.campaign)]
)
def test_null_test_exposes_a_feature_that_encodes_the_region(wobble, names):
    X, region, night = wobble
    noise = np.random.default_rng(1).normal(size=len(region))
    leaky = np.column_stack([X, region + 0.5 * noise])
    models = {name: MODELS[name] for name in names}
    for name, test in null_test(models, leaky, region, n_regions=6, groups=night, random_state=0).items():
        assert test.suspicious, name
        assert test.significances.max() > 8
        assert "Do not claim a detection" in test.verdict


@pytest.mark.parametrize(
    ("region", "n_regions", "argument"),
    [
        (np.arange(600) % 5, 6, "region"),
        (np.arange(600) % 6, 5, "region"),
        (np.arange(600) % 6 - 1, 6, "region"),
        (np.arange(600) / 100, 6, "region"),
        (np.full(600, "a"), 6, "region"),
        (np.arange(600) % 2, 2, "n_regions"),
        (np.arange(6), 6, "region"),
        ([], 6, "region"),
    ],
)
def test_bad_regions(region, n_regions, argument, null_data):
    with pytest.raises(ValueError, match=argument):
        null_test(OnOffTreeClassifier(max_depth=2), null_data[0], region, n_regions=n_regions)


def test_some_off_regions_are_those_of_all(wobble):
    X, region, night = wobble
    tree = MODELS["tree"]
    shared = {"n_regions": 6, "groups": night, "random_state": 0}
    every, some = null_test(tree, X, region, **shared), null_test(tree, X, region, off_regions=[2, 4], **shared)
    assert some.counts == {number: every.counts[number] for number in (2, 4)}
    for wrong in ([0], [6], []):
        with pytest.raises(ValueError, match="off_regions"):
            null_test(tree, X, region, off_regions=wrong, **shared)
