"""Members of a forest: how trees are shared, which features are left out, and what both are judged by."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from helpers import make_forest, model_bits
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from excess import OnOffForestClassifier, load, on_off_likelihood
from excess._utils.rng import bootstrap_weights, derive_key
from excess.estimators import _random_forest
from excess.estimators._base import EventWeights, calibrated_log_likelihood, make_bag
from excess.estimators._forest import ensemble
from excess.estimators._forest.splitting import SPLITTERS
from excess.estimators._random_forest import MEMBERS, N_CELLS, Member, choose_members, share_trees
from excess.estimators._tree import GrownTrees
from excess.stats._kernels import count_labels, count_labels_without

ALPHA = 0.2


def label(rng, signal):
    """Noisy labels: all signal is On, and so is a sixth of the background."""
    return signal | (rng.random(len(signal)) < ALPHA / (1 + ALPHA))


def smooth_problem(seed, n=4000):
    """Many features, of which each says a little, none of them by a sharp edge."""
    rng = np.random.default_rng(seed)
    signal = rng.random(n) < 0.2
    return rng.normal(0.5 * signal[:, None], size=(n, 12)), label(rng, signal)


def tail_problem(seed, n=4000):
    """Signal at the very end of one feature or another, which a cut at random seldom meets."""
    rng = np.random.default_rng(seed)
    signal = rng.random(n) < 0.03
    X, feature = rng.random((n, 6)), rng.integers(0, 6, n)
    X[signal, feature[signal]] = 0.99 + 0.01 * X[signal, feature[signal]]
    return X, label(rng, signal)


def noisy_columns(seed, n=5000, n_noise=30):
    """Two pairs of features that are alike for signal, and features that say nothing."""
    rng = np.random.default_rng(seed)
    signal = rng.random(n) < 0.15
    X = rng.normal(size=(n, 4 + n_noise))
    for one, other in ((0, 1), (2, 3)):
        X[signal, other] = X[signal, one] + 0.3 * rng.normal(size=signal.sum())
    return X, label(rng, signal)


def weak_rectangle(seed, n=6000, n_noise=40):
    """Few signal events in a rectangle of two features, and many uninformative features."""
    rng = np.random.default_rng(seed)
    X, signal = rng.random((n, 2 + n_noise)), np.arange(n) < 80
    X[signal, :2] = 0.4 + 0.15 * X[signal, :2]
    return X, label(rng, signal)


def fit(events, **parameters):
    return make_forest(**({"n_estimators": 30, "alpha": ALPHA} | parameters)).fit(*events)


def trees_of_members(model):
    """Trees of each member, as numbers."""
    ends = np.cumsum([0, *(own.n_trees for own in model.members_)])
    return [range(a, b) for a, b in pairwise(ends)]


class TestShares:
    @given(st.lists(st.floats(0, 1), min_size=1, max_size=8).filter(any), st.integers(1, 400))
    def test_largest_remainders(self, weights, n_trees):
        weights = np.array(weights)
        counts = np.array(share_trees(weights, n_trees))
        exact = weights / weights.sum() * n_trees
        assert counts.sum() == n_trees
        assert (counts >= np.floor(exact)).all()
        assert (counts <= np.floor(exact) + 1).all()
        # whoever is rounded up has a remainder not below that of any other
        up = counts > np.floor(exact)
        remainder = exact - np.floor(exact)
        assert not up.any() or up.all() or remainder[up].min() >= remainder[~up].max()

    def test_examples(self):
        assert share_trees(np.array([1.0, 1.0, 2.0]), 8) == [2, 2, 4]
        assert share_trees(np.array([1.0, 1.0, 1.0]), 8) == [3, 3, 2]  # of equals, the first
        assert share_trees(np.array([1.0, 0.0]), 5) == [5, 0]

    @pytest.mark.parametrize("n_estimators", [1, 7, 45])
    def test_trees_add_up_and_the_share_follows_the_likelihood(self, n_estimators):
        model = fit(smooth_problem(0, 2000), n_estimators=n_estimators)
        assert len(model._trees.flat.depths) == n_estimators
        likelihood = np.array([own.log_likelihood for own in model.members_])
        likelihood[np.isnan(likelihood)] = -np.inf  # smaller leaves that were not tried
        weights = np.exp((likelihood - likelihood.max()) / 8)
        assert [own.n_trees for own in model.members_] == share_trees(weights, n_estimators)
        assert sum(own.n_trees for own in model.members_) == n_estimators

    def test_every_tree_has_the_leaves_of_its_member(self):
        events = smooth_problem(0, 2000)
        model = fit(events, n_estimators=40)
        trees = model._trees
        n, leaves = trees.n_on + trees.n_off, np.flatnonzero(trees.leaves)
        smallest = [n[leaves[(leaves >= a) & (leaves < b)]].min() for a, b in pairwise(trees.flat.roots)]
        for own, numbers in zip(model.members_, trees_of_members(model), strict=True):
            assert all(own.min_samples_leaf <= smallest[tree] for tree in numbers)
        assert len({own.min_samples_leaf for own in model.members_ if own.n_trees}) >= 3

    def test_likelihood_is_that_of_a_small_forest_of_the_member(self):
        X, on = smooth_problem(0, 2000)
        model = fit((X, on), max_features="sqrt")  # nothing is left out
        seed = np.random.RandomState(3).randint(2**31 - 1)
        kinds = choose_members("auto", "auto", "sqrt")
        events = ensemble.bin_events(X, on, 255, 1)
        for number, (member, own) in enumerate(zip(kinds, model.members_, strict=True)):
            trees = [
                ensemble.TreeSettings(key, i % 2, SPLITTERS[own.splitter], own.min_samples_leaf, own.max_features)
                for i, key in enumerate(ensemble.tree_keys(seed, 30, first=number, step=len(kinds)))
            ]
            assert own[:2] == member[:2]
            tables = ensemble.grow_trees(events, trees, ensemble.GrowthSettings(None, ALPHA, np.arange(12)), 1, None)
            grown = GrownTrees.from_tables(tables, events.edges, "fraction", ALPHA, prior=0.5)
            bagged = grown.bagged(np.array([tree.key for tree in trees]))
            counts = np.zeros((2, N_CELLS), dtype=np.int64)
            count_labels(on, ensemble.score_out_of_bag(events.codes, 0, [bagged], 1)[0], None, counts)
            if not np.isnan(own.log_likelihood):  # small leaves are not tried where larger ones are better
                assert own.log_likelihood == calibrated_log_likelihood(counts, ALPHA)
        assert np.isfinite([own.log_likelihood for own in model.members_]).sum() >= 4


class TestChoice:
    def test_defaults_are_all_members(self):
        assert choose_members("auto", "auto", "auto") == MEMBERS

    @pytest.mark.parametrize("splitter", ["best", "random"])
    def test_splitter(self, splitter):
        found = choose_members(splitter, "auto", "auto")
        assert found == tuple(own for own in MEMBERS if own.splitter == splitter)
        model = fit(smooth_problem(0, 1000), splitter=splitter, n_estimators=8)
        assert {own.splitter for own in model.members_} == {splitter}

    def test_features_of_a_node(self):
        found = choose_members("auto", "auto", 0.5)
        assert len(set(found)) == len(found) == len(MEMBERS) - 3  # three pairs of them differ by nothing else
        assert {own.max_features for own in found} == {0.5}
        model = fit(smooth_problem(0, 1000), max_features=3, n_estimators=8)
        assert {own.max_features for own in model.members_} == {3}

    @pytest.mark.parametrize(
        ("parameters", "expected"),
        [
            ({}, Member("best", 7, "sqrt")),
            ({"splitter": "random"}, Member("random", 7, "sqrt")),
            ({"max_features": None}, Member("best", 7, None)),
        ],
    )
    def test_a_leaf_size_is_a_single_member(self, parameters, expected):
        options = {"splitter": "auto", "min_samples_leaf": 7, "max_features": "auto"} | parameters
        assert choose_members(**options) == (expected,)
        model = fit(smooth_problem(0, 1000), n_estimators=8, **options)
        (own,) = model.members_
        n_features = 12 if expected.max_features is None else 3
        assert own[:3] == (expected.splitter, 7, n_features)
        assert np.isnan(own.log_likelihood)
        assert own.n_trees == 8
        assert model.used_features_.all()

    def test_a_single_member_is_a_forest_of_given_parameters(self, tmp_path):
        events = smooth_problem(0, 1000)
        auto = fit(events, min_samples_leaf=7)
        given_all = fit(events, min_samples_leaf=7, splitter="best", max_features="sqrt")
        assert auto.oob_decision_function_.tobytes() == given_all.oob_decision_function_.tobytes()
        assert auto.predict_proba(events[0]).tobytes() == given_all.predict_proba(events[0]).tobytes()

    def test_random_splits_are_for_oblique_signal_and_searches_for_that_at_an_end(self):
        shares = []
        for events in (noisy_columns(0, 4000, 0), tail_problem(0)):
            model = fit(events, n_estimators=100, n_jobs=2)
            shares.append(sum(own.n_trees for own in model.members_ if own.splitter == "random"))
        assert shares[0] > 90
        assert shares[1] < 20


class TestSame:
    def test_seeds_threads_pickles_and_clones(self, tmp_path):
        events = noisy_columns(1, 2000, 8)
        model = fit(events)
        expected = model_bits(model, tmp_path)
        for n_jobs in (1, 2, 3):
            assert model_bits(fit(events, n_jobs=n_jobs).set_params(n_jobs=None), tmp_path) == expected
        assert model_bits(clone(model).fit(*events), tmp_path) == expected
        assert model_bits(pickle.loads(pickle.dumps(model)), tmp_path) == expected
        assert model_bits(fit(events, random_state=4), tmp_path) != expected

    def test_model_file(self, tmp_path):
        for parameters in ({}, {"min_samples_leaf": 30}):
            model = fit(noisy_columns(0, 3000, 12), **parameters)
            model.save(tmp_path / "model")
            loaded = load(tmp_path / "model")
            # as texts, because NaN is not equal to itself
            assert repr(loaded.members_) == repr(model.members_)
            assert [type(own.log_likelihood) for own in loaded.members_] == len(model.members_) * [float]
            np.testing.assert_array_equal(loaded.used_features_, model.used_features_)
            assert loaded.used_features_.dtype == np.bool_


class TestManyEvents:
    """Bags and numbers of trees of forests on more events than the choice needs."""

    @pytest.fixture
    def grown(self, monkeypatch):
        for name, value in (("CHOICE_EVENTS", 400), ("WEAK_CHOICE_EVENTS", 1500), ("BAG_EVENTS", 400)):
            monkeypatch.setattr(_random_forest, name, value)
        calls, grow_trees = [], ensemble.grow_trees
        monkeypatch.setattr(ensemble, "grow_trees", lambda *a: calls.append(a[:3]) or grow_trees(*a))
        return calls

    def test_strong_signals_need_fewer_trees_and_events(self, grown):
        X, y = smooth_problem(0, 6000)
        forest = OnOffForestClassifier(300, ALPHA, random_state=0).fit(X, y)
        assert len(forest._trees.flat.depths) == 100
        events, trees, settings = grown[-1]
        assert len(events.records) == 6000
        assert len(trees) == 100
        assert int(settings.limit) / 2**32 == pytest.approx((400 / 6000) ** 0.5, rel=1e-6)
        assert max(len(events.records) for events, _, _ in grown[:-1]) <= 1500

    def test_search_ends_where_no_signal_is_visible(self, grown):
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(6000, 12)), rng.random(6000) < 1 / 6
        OnOffForestClassifier(120, ALPHA, random_state=0).fit(X, y)
        on_sample = [settings for events, _, settings in grown if len(events.records) == 1500]
        assert [len(settings.used) for settings in on_sample] == [12, 8]  # all features, and those of a scan of pairs
        assert [int(settings.limit) == 2**32 for settings in on_sample] == [False, True]


class TestConfiguration:
    """A choice of members and features that was made before."""

    def test_choice_is_used_again_and_nothing_else_is_grown(self, tmp_path, monkeypatch):
        first = fit(noisy_columns(0, 3000, 12), n_estimators=45)
        grown = []
        grow_trees = ensemble.grow_trees
        monkeypatch.setattr(ensemble, "grow_trees", lambda *a: grown.extend(a[1]) or grow_trees(*a))
        again = fit(noisy_columns(1, 2000, 12), n_estimators=45, configuration=first.configuration_)
        assert len(grown) == 45
        assert again.configuration_ == first.configuration_
        assert [own[:3] for own in again.members_] == [own[:3] for own in first.members_ if own.n_trees]
        np.testing.assert_array_equal(again.used_features_, first.used_features_)
        assert not again.used_features_.all()
        again.save(tmp_path / "model")
        assert load(tmp_path / "model").get_params() == again.get_params()
        assert load(tmp_path / "model").configuration_ == again.configuration_
        assert len(clone(again).set_params(n_estimators=7).fit(*noisy_columns(1, 2000, 12))._trees.flat.depths) == 7

    @pytest.mark.parametrize(
        "text",
        [
            "", "{}", "[]", 3, '{"trees": [], "features": [0]}', '{"trees": [["best", 5, 2, 9]], "features": []}',
            '{"trees": [["best", 0, 2, 9]], "features": [0, 1]}', '{"trees": [["best", 5, 2, 9]], "features": [1, 0]}',
            '{"trees": [["best", 5, 2, 9]], "features": [0, 99]}', '{"trees": [["best", 5, 2, 9]], "features": [0]}',
        ],
    )  # fmt: skip
    def test_other_texts_are_rejected(self, text):
        with pytest.raises(ValueError, match="configuration"):
            fit(smooth_problem(0, 500), configuration=text)


@pytest.fixture(scope="module")
def screened():
    """A forest on few features with signal among many without, and its events."""
    events = noisy_columns(0)
    return fit(events, n_estimators=60, n_jobs=2), events


class TestScreening:
    def test_noise_is_left_out_and_signal_stays(self, screened):
        model, _ = screened
        np.testing.assert_array_equal(np.flatnonzero(model.used_features_), np.arange(4))
        assert (model.feature_importances_[~model.used_features_] == 0).all()
        assert (model.feature_importances_[model.used_features_] > 0).all()
        for own in model.members_:
            assert own.max_features <= model.used_features_.sum()

    def test_new_events_are_told_apart_better(self, screened):
        model, events = screened
        new = noisy_columns(100, 20_000)
        others = [fit(events, n_estimators=60, max_features=size, n_jobs=2) for size in ("sqrt", None)]
        found = [
            on_off_likelihood(new[1], own.likelihood_ratio(new[0]), ALPHA).significance for own in (model, *others)
        ]
        assert found[0] > max(found[1:]) + 3

    def test_values_of_features_that_are_left_out_do_not_matter(self, screened):
        model, (X, _) = screened
        other = np.where(model.used_features_, X, np.nan)
        np.testing.assert_array_equal(model.predict_proba(other), model.predict_proba(X))

    @pytest.mark.parametrize("parameters", [{"max_features": "sqrt"}, {"min_samples_leaf": 40}, {"max_features": None}])
    def test_nothing_is_left_out_where_it_is_not_asked_for(self, parameters):
        assert fit(noisy_columns(0, 3000), **parameters).used_features_.all()

    def test_nothing_is_left_out_where_all_features_say_something(self):
        assert fit(smooth_problem(0)).used_features_.all()

    @pytest.mark.parametrize("seed", range(3))
    def test_weak_signals_are_found_in_pairs_of_features(self, seed):
        used = fit(weak_rectangle(seed)).used_features_
        assert used[:2].all()
        assert np.count_nonzero(used) <= 4

    def test_labels_without_any_signal(self):
        rng = np.random.default_rng(0)
        X, on = rng.normal(size=(2000, 20)), rng.random(2000) < ALPHA / (1 + ALPHA)
        model = fit((X, on))
        assert model.used_features_.any()
        assert np.isfinite([own.log_likelihood for own in model.members_]).any()
        assert np.isfinite(model.predict_proba(X)).all()
        assert model.predict_signal_proba(X).max() < 0.5

    def test_one_feature_is_never_left_out(self):
        rng = np.random.default_rng(0)
        assert fit((rng.normal(size=(500, 1)), rng.random(500) < 0.3)).used_features_.tolist() == [True]


class TestContributions:
    @pytest.mark.parametrize("splitter", ["best", "random"])
    @pytest.mark.parametrize("max_bins", [255, None])
    @pytest.mark.parametrize("grouped", [False, True])
    def test_they_lead_from_the_roots_to_the_scores(self, splitter, max_bins, grouped):
        X, on = smooth_problem(0, 1500)
        X[::5, 3] = np.nan
        groups = np.arange(1500) % 5 if grouped else None
        options = {"min_samples_leaf": 10, "splitter": splitter, "max_bins": max_bins}
        model = make_forest(alpha=ALPHA, **options).fit(X, on, groups=groups)
        events = ensemble.bin_events(X, on, max_bins, 1, make_bag(groups, EventWeights(), 1500))
        seed = np.random.RandomState(3).randint(2**31 - 1)
        forest = model._trees.bagged(ensemble.tree_keys(seed, 8))
        scores, contributions = np.full(1500, -1.0), np.empty((1500, 12))

        def consume(rows, own_scores, own_contributions):
            scores[rows], contributions[rows] = own_scores, own_contributions

        ensemble.contributions_out_of_bag(events.codes, 0, 12, forest, consume, 2, events.bag)
        np.testing.assert_array_equal(scores, model.oob_decision_function_[:, 1])
        roots = model._trees.values[model._trees.flat.roots[:-1]]
        if grouped:
            out = events.bag.groups_of_trees(forest.keys)[:, events.bag.groups] == 0
        else:
            out = np.empty((8, 1500), dtype=np.uint8)
            for key, own in zip(forest.keys, out, strict=True):
                bootstrap_weights(np.uint64(derive_key(key, 0)), 0, own)
            out = out == 0
        with np.errstate(invalid="ignore"):
            mean_root = (roots[:, None] * out).sum(axis=0) / out.sum(axis=0)
        np.testing.assert_allclose(scores - contributions.sum(axis=1), mean_root, rtol=0, atol=1e-12)
        assert np.isfinite(scores).sum() > 1000
        assert (contributions[np.isfinite(scores)] != 0).any(axis=0).all()

    @pytest.mark.parametrize("max_bins", [255, None])
    def test_they_add_up_to_scores_of_new_events(self, max_bins):
        X, on = smooth_problem(0, 1500)
        X[::5, 3] = np.nan
        model = make_forest(alpha=ALPHA, min_samples_leaf=10, max_bins=max_bins).fit(X[:1000], on[:1000])
        found = model.contributions(X)
        np.testing.assert_allclose(found.sum(axis=1), model.predict_proba(X)[:, 1], rtol=0, atol=1e-12)
        roots = model._trees.values[model._trees.flat.roots[:-1]]
        np.testing.assert_allclose(found[:, -1], roots.mean(), rtol=1e-12)
        assert found.shape == (1500, 13)
        np.testing.assert_array_equal(model.set_params(n_jobs=2).contributions(X), found)

    def test_one_cut_contributes_to_its_feature_alone(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(400, 3))
        on = X[:, 1] > 0
        model = make_forest(max_depth=1, max_features=None, min_samples_leaf=5).fit(X, on)
        seed = np.random.RandomState(3).randint(2**31 - 1)
        forest = model._trees.bagged(ensemble.tree_keys(seed, 8))
        found = []
        ensemble.contributions_out_of_bag(
            ensemble.bin_events(X, on, 255, 1).codes, 0, 3, forest, lambda *parts: found.append(parts[2]), 1
        )
        (contributions,) = found
        held = np.isfinite(contributions[:, 0])
        assert (contributions[held][:, [0, 2]] == 0).all()
        far = held & (np.abs(X[:, 1]) > 0.1)
        np.testing.assert_array_equal(contributions[far, 1] > 0, on[far])

    @pytest.mark.parametrize("weighted", [False, True])
    def test_counts_equal_naive_ones(self, weighted):
        rng = np.random.default_rng(0)
        on, score = rng.random(800) < 0.4, rng.random(800)
        score[::7], score[1], score[2] = np.nan, 0.0, 1.0
        contributions, features = rng.normal(0, 0.4, (800, 5)), np.array([1, 2, 4])
        units = rng.integers(0, 2000, 800) if weighted else None
        whole, without = np.zeros((2, 64), dtype=np.int64), np.zeros((3, 2, 64), dtype=np.int64)
        for rows in (slice(0, 300), slice(300, 800)):
            own = None if units is None else units[rows]
            count_labels(on[rows], score[rows], own, whole)
            count_labels_without(on[rows], score[rows], own, contributions[rows], features, without)
        unit = np.ones(800) if units is None else units

        def naive(s):
            expected = np.zeros((2, 64))
            held = ~np.isnan(s)
            cells = np.clip(np.floor(s[held] * 64), 0, 63).astype(int)
            np.add.at(expected, (on[held].astype(int), cells), unit[held])
            return expected

        np.testing.assert_array_equal(whole, naive(score))
        for k, feature in enumerate(features):
            np.testing.assert_array_equal(without[k], naive(score - contributions[:, feature]))


@pytest.mark.parametrize("max_bins", [255, None])
def test_trees_of_random_splits_are_not_those_of_searches(max_bins):
    events = smooth_problem(0, 1500)
    models = [fit(events, splitter=splitter, min_samples_leaf=20, max_bins=max_bins) for splitter in ("best", "random")]
    assert (models[0].oob_decision_function_ != models[1].oob_decision_function_).any()
    for model in models:
        trees = model._trees
        assert (trees.n_on + trees.n_off)[trees.leaves].min() >= 20


def test_a_progress_bar_counts_all_trees(capsys):
    OnOffForestClassifier(40, ALPHA, max_features="sqrt", verbose=1, random_state=0).fit(*smooth_problem(0, 500))
    n_trees = 40 + 40 * len(choose_members("auto", "auto", "sqrt"))
    assert f"{n_trees}/{n_trees}" in capsys.readouterr().err
