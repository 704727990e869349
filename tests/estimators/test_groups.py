"""Groups in the bag of a forest: out of bag means out of the group."""

import numpy as np
import pytest
from helpers import make_forest, model_bits
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import excess
from excess._utils.rng import WHOLE_BAG, bag_weights, bootstrap_weights, choose_groups
from excess.estimators._base import takes_groups
from excess.estimators._forest import ensemble


@pytest.fixture
def grown(noisy_data):
    """A forest that knows of groups, and its events."""
    forest = make_forest(n_estimators=40, min_samples_leaf=5)
    return forest.fit(noisy_data.X, noisy_data.y, groups=noisy_data.groups)


class TestChooseGroups:
    @pytest.mark.parametrize("n_groups", [2, 3, 4, 60])
    def test_some_groups_are_in_and_some_are_out(self, n_groups):
        in_bag = np.empty((2000, n_groups), dtype=np.uint8)
        choose_groups(ensemble.tree_keys(5, 2000), in_bag)
        n_in = in_bag.sum(axis=1)
        assert n_in.min() >= 1
        assert n_in.max() <= n_groups - 1

    def test_a_group_is_in_four_times_of_five(self):
        in_bag = np.empty((2000, 60), dtype=np.uint8)
        choose_groups(ensemble.tree_keys(5, 2000), in_bag)
        np.testing.assert_allclose(in_bag.mean(axis=0), 0.8, atol=5 * 0.4 / np.sqrt(2000))
        correlation = np.corrcoef(in_bag.T)[np.triu_indices(60, 1)]
        assert np.abs(correlation).max() < 5 / np.sqrt(2000)

    def test_weights_are_those_of_the_bootstrap_within_groups_that_are_in(self):
        groups = np.arange(1000, dtype=np.int32) % 3
        in_bag = np.array([[0, 0, 0], [1, 0, 1]], dtype=np.uint8)
        plain, found = np.empty((2, 600), dtype=np.uint8)
        bootstrap_weights(np.uint64(9), 1300, plain)
        bag_weights(np.uint64(9), 1300, 300, groups, in_bag, 1, None, WHOLE_BAG, found)
        np.testing.assert_array_equal(found, np.where(groups[300:900] == 1, 0, plain))
        assert found.any()


def test_out_of_bag_scores_do_not_see_labels_of_their_own_group(noisy_data, grown):
    y = noisy_data.y.copy()
    own = noisy_data.groups == 2
    y[own] = 1 - y[own]
    changed = make_forest(n_estimators=40, min_samples_leaf=5).fit(noisy_data.X, y, groups=noisy_data.groups)
    before, after = grown.oob_decision_function_, changed.oob_decision_function_
    np.testing.assert_array_equal(after[own], before[own])
    assert (after[~own] != before[~own]).any()
    # events that are left out one by one do see the other labels of their group
    forest = make_forest(n_estimators=40, min_samples_leaf=5)
    single, other = (clone(forest).fit(noisy_data.X, labels) for labels in (noisy_data.y, y))
    assert (single.oob_decision_function_[own] != other.oob_decision_function_[own]).any()


def test_out_of_bag_scores_equal_a_naive_mean(noisy_data, grown):
    seed = np.random.RandomState(3).randint(2**31 - 1)
    in_bag = np.empty((40, 6), dtype=np.uint8)
    choose_groups(ensemble.tree_keys(seed, 40), in_bag)
    trees = grown._trees
    leaves = ensemble.leaf_numbers(noisy_data.X, trees.edges, trees.flat, 1)
    values = trees.values[trees.flat.roots[:-1] + leaves]
    out = in_bag[:, noisy_data.groups].T == 0
    np.testing.assert_allclose(grown.oob_decision_function_[:, 1], (values * out).sum(axis=1) / out.sum(axis=1))


@pytest.mark.parametrize("max_bins", [255, None])
def test_same_bits_on_any_number_of_threads(noisy_data, tmp_path, max_bins):
    bits = set()
    for n_jobs in (1, 2, 3):
        forest = make_forest(max_bins=max_bins).set_params(n_jobs=n_jobs)
        forest.fit(noisy_data.X, noisy_data.y, groups=noisy_data.groups)
        bits.add(model_bits(forest.set_params(n_jobs=None), tmp_path))
    assert len(bits) == 1
    assert model_bits(make_forest(max_bins=max_bins).fit(noisy_data.X, noisy_data.y), tmp_path) not in bits


def test_names_of_groups_do_not_matter_but_their_order(noisy_data, grown):
    def fit(groups):
        return make_forest(n_estimators=40, min_samples_leaf=5).fit(noisy_data.X, noisy_data.y, groups=groups)

    names = np.array(["a", "b", "bb", "c", "d", "e"], dtype=object)[noisy_data.groups]
    np.testing.assert_array_equal(fit(names).oob_decision_function_, grown.oob_decision_function_)
    assert (fit(-noisy_data.groups).oob_decision_function_ != grown.oob_decision_function_).any()


def test_a_single_group_is_no_group(noisy_data, tmp_path):
    one = make_forest().fit(noisy_data.X, noisy_data.y, groups=np.zeros(len(noisy_data.y)))
    assert model_bits(one, tmp_path) == model_bits(make_forest().fit(noisy_data.X, noisy_data.y), tmp_path)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.arange(5), "groups"),
        (np.where(np.arange(3000) == 4, np.nan, 1.0), "groups contains NaN"),
        (np.array(["a", 1] * 1500, dtype=object), "groups mixes values that cannot be ordered"),
        (np.zeros((3000, 2)), "groups"),
    ],
)
def test_groups_that_are_refused(noisy_data, groups, message):
    with pytest.raises(ValueError, match=message):
        make_forest().fit(noisy_data.X, noisy_data.y, groups=groups)


def test_metadata_are_routed(noisy_data):
    with config_context(enable_metadata_routing=True):
        forest = make_forest(n_estimators=40, min_samples_leaf=5).set_fit_request(groups=True, sample_weight=True)
        weights = np.arange(len(noisy_data.y)) % 3
        steps = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), forest)
        steps.fit(noisy_data.X, noisy_data.y, groups=noisy_data.groups, sample_weight=weights)
    scaled = StandardScaler().fit_transform(noisy_data.X)
    expected = make_forest(n_estimators=40, min_samples_leaf=5)
    expected.fit(scaled, noisy_data.y, groups=noisy_data.groups, sample_weight=weights)
    np.testing.assert_array_equal(steps[-1].oob_decision_function_, expected.oob_decision_function_)


class TestInFolds:
    def test_cross_validation_passes_groups_on_where_a_forest_asks_for_them(self, noisy_data):
        seen = []

        class Recording(excess.OnOffForestClassifier):
            def fit(self, X, y, *, groups=None, sample_weight=None):
                seen.append(None if groups is None else np.unique(groups).tolist())
                return super().fit(X, y, groups=groups, sample_weight=sample_weight)

        forest = Recording(8, noisy_data.alpha, random_state=0)
        with config_context(enable_metadata_routing=True):
            asking = clone(forest).set_fit_request(groups=True)
        shared = {"alpha": noisy_data.alpha, "groups": noisy_data.groups, "random_state": 0}
        found = excess.cross_val_detect(asking, noisy_data.X, noisy_data.y, strategy="pooled", **shared)
        assert sorted(map(tuple, seen)) == sorted(tuple(sorted(set(range(6)) - {out})) for out in range(6))
        assert found.counts.significance > 3
        seen.clear()
        excess.cross_val_detect(asking, noisy_data.X, noisy_data.y, strategy="forward", **shared)
        assert seen == 19 * [None]  # blocks may split groups, so these are no reason to leave events out of bags
        seen.clear()
        excess.cross_val_detect(forest, noisy_data.X, noisy_data.y, strategy="pooled", **shared)
        assert seen == 6 * [None]

    def test_groups_are_for_estimators_that_ask_for_them(self):
        groups = np.array([1, 1, 2])
        with config_context(enable_metadata_routing=True):
            asking, declining = (
                excess.OnOffForestClassifier(alpha=1.0).set_fit_request(groups=ask) for ask in (True, False)
            )
        for forest in (asking, clone(asking)):
            assert takes_groups(forest, groups)
            assert not takes_groups(forest, groups[:2])
            assert not takes_groups(forest, None)
        for forest in (declining, excess.OnOffForestClassifier(alpha=1.0)):
            assert not takes_groups(forest, groups)
        assert not takes_groups(excess.OnOffTreeClassifier(alpha=1.0), groups)
