"""Weights of events in trees and forests."""

import numpy as np
import pytest
from helpers import make_forest, model_bits

import excess
from excess._utils.rng import NO_SKETCH, WHOLE_BAG, bag_weights, bootstrap_weights
from excess.estimators._forest import binning, splitting


def make_tree(**parameters):
    return excess.OnOffTreeClassifier(2 / 3, **({"min_samples_leaf": 12, "random_state": 0} | parameters))


@pytest.fixture
def whole(noisy_data):
    """Whole numbers as weights, zeros among them."""
    return np.random.default_rng(0).integers(0, 4, len(noisy_data.y))


@pytest.fixture
def fractions(noisy_data):
    """Weights that are not whole numbers, with a mean of 1."""
    return np.random.default_rng(1).gamma(2.0, 0.5, len(noisy_data.y))


@pytest.mark.parametrize("make", [make_tree, make_forest])
@pytest.mark.parametrize("kind", [int, float])
def test_whole_weights_are_repeated_events(noisy_data, whole, tmp_path, make, kind):
    rows = np.repeat(np.arange(len(whole)), whole)
    weighted = make().fit(noisy_data.X, noisy_data.y, sample_weight=whole.astype(kind))
    repeated = make().fit(noisy_data.X[rows], noisy_data.y[rows])
    for model, name in ((weighted, "one"), (repeated, "other")):
        model.training_sketch_ = NO_SKETCH  # samples rows, of which there are different numbers
        model.save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_out_of_bag_scores_are_means_over_copies(noisy_data, whole):
    rows = np.repeat(np.arange(len(whole)), whole)
    weighted = make_forest().fit(noisy_data.X, noisy_data.y, groups=noisy_data.groups, sample_weight=whole)
    repeated = make_forest().fit(noisy_data.X[rows], noisy_data.y[rows], groups=noisy_data.groups[rows])
    score, copies = weighted.oob_decision_function_[:, 1], repeated.oob_decision_function_[:, 1]
    assert score.shape == whole.shape
    assert np.isnan(score[whole == 0]).all()
    # copies are in the same group, so that they have the same score
    np.testing.assert_allclose(copies, score[rows], rtol=1e-12)


@pytest.mark.parametrize("make", [make_tree, make_forest])
def test_weights_of_one_change_nothing(noisy_data, tmp_path, make):
    models = [make().fit(noisy_data.X, noisy_data.y, sample_weight=w) for w in (None, np.ones(len(noisy_data.y)))]
    for number, model in enumerate(models):
        model.save(tmp_path / str(number))
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


@pytest.mark.parametrize("criterion", ["information", "li_ma"])
@pytest.mark.parametrize("max_bins", [255, None])
def test_a_common_weight_does_not_change_the_splits_of_a_tree(noisy_data, criterion, max_bins):
    options = {"criterion": criterion, "max_bins": max_bins, "max_depth": 5}
    plain = make_tree(min_samples_leaf=20, **options).fit(noisy_data.X, noisy_data.y)
    weights = np.full(len(noisy_data.y), 1.5)
    weighted = make_tree(min_samples_leaf=30, **options).fit(noisy_data.X, noisy_data.y, sample_weight=weights)
    np.testing.assert_array_equal(weighted.apply(noisy_data.X), plain.apply(noisy_data.X))
    np.testing.assert_array_equal(weighted.predict(noisy_data.X), plain.predict(noisy_data.X))
    np.testing.assert_allclose(weighted.curve_.n_on, 1.5 * plain.curve_.n_on)
    assert weighted.export_text().splitlines()[0].split()[3] == f"{1.5 * noisy_data.y.sum():.1f}"


def test_leaves_of_a_tree_hold_the_weights_that_reach_them(noisy_data, fractions):
    tree = make_tree(min_samples_leaf=30).fit(noisy_data.X, noisy_data.y, sample_weight=fractions)
    leaf, on = tree.apply(noisy_data.X), noisy_data.y == 1
    n_on, n = np.bincount(leaf, fractions * on), np.bincount(leaf, fractions)
    held = n > 0
    np.testing.assert_allclose(tree._trees.n_on[held], n_on[held], atol=1e-4)
    np.testing.assert_allclose(tree.predict_proba(noisy_data.X)[:, 1], (n_on[leaf] / n[leaf]), atol=1e-5)
    assert n[held].min() > 30 - 1e-3


def test_forest_counts_weights(noisy_data, fractions, tmp_path):
    forest = make_forest(n_estimators=60).fit(noisy_data.X, noisy_data.y, sample_weight=fractions)
    on = noisy_data.y == 1
    # every event is out of bag as often as any other, so that the curve holds all of them
    assert forest.curve_.n_on[0] == pytest.approx(fractions[on].sum())
    assert forest.curve_.n_off[0] == pytest.approx(fractions[~on].sum())
    roots = forest._trees.flat.roots[:-1]
    assert forest._trees.n_on[roots].mean() == pytest.approx(fractions[on].sum(), rel=0.02)
    score = forest.oob_decision_function_[:, 1]
    selected = score > forest.threshold_
    assert forest.tuned_counts_.n_on == pytest.approx(fractions[on & selected].sum())
    forest.save(tmp_path / "model")
    loaded = excess.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.likelihood_ratio(noisy_data.X), forest.likelihood_ratio(noisy_data.X))
    np.testing.assert_array_equal(loaded.curve_.n_on, forest.curve_.n_on)


@pytest.mark.parametrize("options", [{}, {"n_threshold_bootstrap": 0}, {"output": "assignment"}, {"max_bins": None}])
def test_nearly_equal_weights_give_nearly_the_same_forest(noisy_data, options):
    plain = make_forest(n_estimators=30, **options).fit(noisy_data.X, noisy_data.y)
    weights = np.ones(len(noisy_data.y))
    weights[0] = 1.5
    nearly = make_forest(n_estimators=30, **options).fit(noisy_data.X, noisy_data.y, sample_weight=weights)
    assert [own[:3] for own in nearly.members_] == [own[:3] for own in plain.members_]
    # half an event more moves the trees that have it in their bag, and with them the likelihood, by little
    for one, other in zip(nearly.members_, plain.members_, strict=True):
        assert one.log_likelihood == pytest.approx(other.log_likelihood, abs=3, nan_ok=True)
        assert abs(one.n_trees - other.n_trees) <= 2
    np.testing.assert_array_equal(nearly.used_features_, plain.used_features_)
    np.testing.assert_allclose(nearly.predict_proba(noisy_data.X), plain.predict_proba(noisy_data.X), atol=0.1)
    assert nearly.threshold_ == pytest.approx(plain.threshold_, abs=0.05)


@pytest.mark.parametrize("max_bins", [255, None])
def test_the_smallest_weights_beside_one_change_no_bag_and_no_likelihood(noisy_data, max_bins):
    plain = make_forest(n_estimators=30, max_bins=max_bins).fit(noisy_data.X, noisy_data.y)
    weights = np.ones(len(noisy_data.y))
    weights[::2] += 2**-20
    nearly = make_forest(n_estimators=30, max_bins=max_bins).fit(noisy_data.X, noisy_data.y, sample_weight=weights)
    np.testing.assert_array_equal(nearly.oob_decision_function_, plain.oob_decision_function_)
    for one, other in zip(nearly.members_, plain.members_, strict=True):
        assert one.log_likelihood == pytest.approx(other.log_likelihood, rel=1e-12, nan_ok=True)
        assert one.n_trees == other.n_trees


def test_same_bits_with_weights_on_any_number_of_threads(noisy_data, fractions, tmp_path):
    bits = set()
    for n_jobs in (1, 2):
        forest = make_forest(n_jobs=n_jobs).fit(noisy_data.X, noisy_data.y, sample_weight=fractions)
        bits.add(model_bits(forest.set_params(n_jobs=None), tmp_path))
    assert len(bits) == 1


def test_weights_move_what_is_learned(noisy_data):
    weights = np.where(noisy_data.X[:, 0] > 0, 0.25, 1.75)
    for make in (make_tree, make_forest):
        plain = make().fit(noisy_data.X, noisy_data.y)
        weighted = make().fit(noisy_data.X, noisy_data.y, sample_weight=np.where(noisy_data.y == 1, 2.5, 0.5))
        assert weighted.predict_proba(noisy_data.X)[:, 1].mean() > plain.predict_proba(noisy_data.X)[:, 1].mean() + 0.1
        other = make().fit(noisy_data.X, noisy_data.y, sample_weight=weights)
        assert (other.predict_proba(noisy_data.X) != plain.predict_proba(noisy_data.X)).any()


class TestKernels:
    def test_scaled_weights_have_the_right_mean_and_are_out_of_bag_with_the_plain_ones(self):
        plain, found = np.empty((2, 200_000), dtype=np.uint8)
        bootstrap_weights(np.uint64(4), 0, plain)
        for factor in (0.1, 1.0, 2.3):
            bag_weights(np.uint64(4), 0, 0, None, None, 0, np.full(len(found), factor), WHOLE_BAG, found)
            assert found.mean() == pytest.approx(factor, rel=0.02)
            assert (found[plain == 0] == 0).all()
            assert (np.abs(found - factor * plain) < 1).all()

    def test_wide_elements_hold_large_weights(self):
        weights = np.array([0, 1, 127, 128, 255, 256, 2**20 + 5, 2**31 - 1])
        elements = binning.pack_weights(weights)
        for element, weight in zip(elements, weights, strict=True):
            assert splitting.packed_counts(np.uint32(element)) == weight
            assert splitting.packed_counts(np.uint32(element | 128)) == weight << 32


@pytest.mark.parametrize("make", [make_tree, make_forest])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w, on: w[:-1], "sample_weight"),
        (lambda w, on: np.ones((len(w), 2)), "sample_weight"),
        (lambda w, on: np.where(np.arange(len(w)) == 7, -0.5, w), "sample_weight must not be negative"),
        (lambda w, on: np.where(np.arange(len(w)) == 7, np.nan, w), "sample_weight must be finite"),
        (lambda w, on: np.where(np.arange(len(w)) == 7, np.inf, w), "sample_weight must be finite"),
        (lambda w, on: np.where(on, 0, w), "sample_weight is zero for all On events"),
        (lambda w, on: np.where(on, w, 0), "sample_weight is zero for all Off events"),
        (lambda w, on: w / w.sum(), "sample_weight must sum to at least 2"),
        (lambda w, on: 1e6 * w, "sample_weight must sum to at least 2 and at most 2147483647"),
        (lambda w, on: w.astype(str), "sample_weight must contain numbers"),
    ],
)
def test_weights_that_are_refused(noisy_data, make, change, message):
    weights = change(np.ones(len(noisy_data.y)), noisy_data.y == 1)
    with pytest.raises(ValueError, match=message):
        make().fit(noisy_data.X, noisy_data.y, sample_weight=weights)


def test_weights_that_a_forest_refuses(noisy_data, fractions):
    large = np.where(np.arange(len(fractions)) == 3, 16.5, 1.0)
    with pytest.raises(ValueError, match=r"sample_weight must be at most 16 .* got 16\.5"):
        make_forest().fit(noisy_data.X, noisy_data.y, sample_weight=large)
    make_tree().fit(noisy_data.X, noisy_data.y, sample_weight=large)
    with pytest.raises(ValueError, match="sample_weight requires threshold"):
        make_forest(threshold="menon").fit(noisy_data.X, noisy_data.y, sample_weight=fractions)
    for threshold in (0.5, "f1", "significance"):
        make_forest(threshold=threshold).fit(noisy_data.X, noisy_data.y, sample_weight=fractions)
