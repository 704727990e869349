"""Single trees: exact splits against naive references, leaves, cuts, and what they refuse."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier

from excess import OnOffTreeClassifier, assign_cells, li_ma_significance, significance_score


def naive_tree(X, on, alpha, criterion, max_depth, min_leaf=1):
    """Grow a tree by trying every cut of every feature; return sets of rows, one per leaf."""

    def significance_squared(rows, *, signed):
        value = li_ma_significance(on[rows].sum(), (~on[rows]).sum(), alpha, signed=True)
        return value**2 if signed else max(value, 0.0) ** 2

    def value_of(left, right):
        if criterion == "information":
            return significance_squared(left, signed=True) + significance_squared(right, signed=True)
        return max(significance_squared(left, signed=False), significance_squared(right, signed=False))

    def grow(rows, depth):
        own = significance_squared(rows, signed=criterion == "information")
        best, parts = own + 1e-9 * (1 + own), None
        if depth < max_depth:
            for j in range(X.shape[1]):
                for cut in np.unique(X[rows, j])[:-1]:
                    left, right = rows[X[rows, j] <= cut], rows[X[rows, j] > cut]
                    if min(len(left), len(right)) >= min_leaf and value_of(left, right) > best + 1e-9:
                        best, parts = value_of(left, right), (left, right)
        if parts is None:
            return [frozenset(rows.tolist())]
        return grow(parts[0], depth + 1) + grow(parts[1], depth + 1)

    return grow(np.arange(len(on)), 0)


def leaves_of(tree, X):
    """Return sets of rows, one per leaf."""
    leaf = tree.apply(X)
    return [frozenset(np.flatnonzero(leaf == number).tolist()) for number in np.unique(leaf)]


def make_events(seed, n=400, d=4, distinct=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    signal = rng.random(n) < 0.3
    X[signal] += rng.normal(size=d)
    if distinct is not None:
        X = np.round(X * distinct / 6)
    on = np.where(signal, rng.random(n) < 0.9, rng.random(n) < 0.3)
    return X, on


@pytest.mark.slow
@pytest.mark.parametrize("criterion", ["information", "li_ma"])
@pytest.mark.parametrize(("distinct", "max_bins"), [(12, 255), (None, None), (None, 255)])
@pytest.mark.parametrize("alpha", [0.2, 1.0])
@pytest.mark.parametrize("min_leaf", [1, 15])
def test_equals_a_naive_reference(criterion, distinct, max_bins, alpha, min_leaf):
    """With at most 255 distinct values, or without bins, every cut is tried."""
    # more than 255 distinct values take other kernels than fewer do
    n = 300 if max_bins is None else 120
    X, on = make_events(min_leaf, n=n, d=4 if distinct else 2, distinct=distinct)
    tree = OnOffTreeClassifier(alpha, criterion=criterion, max_depth=4, max_bins=max_bins, min_samples_leaf=min_leaf)
    assert set(leaves_of(tree.fit(X, on), X)) == set(naive_tree(X, on, alpha, criterion, 4, min_leaf))


@pytest.mark.parametrize("max_bins", [None, 255])
def test_information_splits_like_scikit_learns_entropy(max_bins):
    for seed in range(3):
        X, on = make_events(seed, n=3000, d=6, distinct=max_bins and 150)
        X = X.astype(np.float32)  # which is what the peer compares
        # large leaves, so that no two splits have the same counts, and with them the same gain
        limits = {"max_depth": 5, "min_samples_leaf": 60}
        ours = OnOffTreeClassifier(0.3, max_bins=max_bins, **limits).fit(X, on)
        peer = DecisionTreeClassifier(criterion="entropy", random_state=0, **limits).fit(X, on)
        peer_leaf = peer.apply(X)
        peer_leaves = {frozenset(np.flatnonzero(peer_leaf == leaf).tolist()) for leaf in np.unique(peer_leaf)}
        assert set(leaves_of(ours, X)) == peer_leaves
        np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X))
        np.testing.assert_allclose(ours.feature_importances_, peer.feature_importances_, atol=1e-10)


@pytest.mark.parametrize("alpha", [1e-6, 0.1, 1.0, 5.0, 1e6])
def test_sum_of_squares_ranks_splits_as_information_gain(alpha):
    rng = np.random.default_rng(0)
    on, off = rng.integers(1, 200, (2, 2, 300))  # two sides of 300 splits of one node
    on[1], off[1] = 250 - on[0], 300 - off[0]

    def entropy(a, b):
        p = a / (a + b)
        return -(a + b) * (p * np.log(p) + (1 - p) * np.log(1 - p))

    information_gain = entropy(250, 300) - entropy(on[0], off[0]) - entropy(on[1], off[1])
    squares = (li_ma_significance(on, off, alpha, signed=True) ** 2).sum(axis=0)
    gain = squares / 2 - li_ma_significance(250, 300, alpha, signed=True) ** 2 / 2
    np.testing.assert_allclose(gain, information_gain, rtol=1e-6, atol=1e-6)


def test_information_trees_do_not_depend_on_alpha():
    X, on = make_events(3)
    trees = [OnOffTreeClassifier(alpha, max_depth=4).fit(X, on) for alpha in (1e-6, 0.2, 1.0, 1e6)]
    assert len({tuple(tree.apply(X)) for tree in trees}) == 1


def test_leaves_are_assigned_exactly():
    X, on = make_events(1, n=2000)
    tree = OnOffTreeClassifier(0.3, max_depth=4, output="assignment").fit(X, on)
    leaf = tree.apply(X)
    numbers = np.unique(leaf)
    n_on = np.array([on[leaf == number].sum() for number in numbers])
    n_off = np.array([(~on[leaf == number]).sum() for number in numbers])
    selected = np.isin(leaf, numbers[assign_cells(n_on, n_off, 0.3)])
    np.testing.assert_array_equal(tree.predict(X), selected)
    np.testing.assert_array_equal(tree.predict_proba(X)[:, 1], selected.astype(float))
    fraction = OnOffTreeClassifier(0.3, max_depth=4).fit(X, on)
    np.testing.assert_array_equal(fraction.predict(X), selected)
    np.testing.assert_allclose(fraction.predict_proba(X)[:, 1], (n_on / (n_on + n_off))[np.searchsorted(numbers, leaf)])
    # no cut on the score of the tree does better
    assert significance_score(on, selected, 0.3) >= max(
        significance_score(on, fraction.predict_proba(X)[:, 1] > t, 0.3) for t in np.linspace(0, 0.99, 50)
    )


def test_stops_where_significance_does_not_increase():
    X, on = np.arange(40.0)[:, None], np.array([True, False] * 20)
    # pairs of neighbours: no cut has more excess than all events together, which have none at alpha = 1
    tree = OnOffTreeClassifier(1.0, criterion="li_ma", min_samples_leaf=2).fit(X[::2].repeat(2, axis=0), on)
    assert tree.get_n_leaves() == 1
    pure = OnOffTreeClassifier(1.0, criterion="li_ma").fit(X, X[:, 0] > 19)
    assert (pure.get_depth(), pure.get_n_leaves()) == (1, 2)


@pytest.mark.parametrize("criterion", ["information", "li_ma"])
def test_missing_values_find_their_side(criterion):
    rng = np.random.default_rng(0)
    n = 2000
    signal = rng.random(n) < 0.3
    on = np.where(signal, rng.random(n) < 0.9, rng.random(n) < 0.2)
    X = rng.normal(size=(n, 2))
    X[signal, 0] = np.nan  # being missing is what tells
    tree = OnOffTreeClassifier(0.25, criterion=criterion, max_depth=1).fit(X, on)
    assert {line.split("-- ")[1].split("  ")[0] for line in tree.export_text().splitlines()[1:]} == {
        "x0 missing",
        "x0 present",
    }
    np.testing.assert_array_equal(tree.predict(X), signal)

    X[:, 0] = np.where(signal, 3.0, 0.0) + rng.normal(size=n)
    X[::10, 0] = np.nan
    tree = OnOffTreeClassifier(0.25, criterion=criterion, max_depth=3).fit(X, on)
    present = ~np.isnan(X[:, 0])
    assert (tree.predict(X)[present] == signal[present]).mean() > 0.9


def test_values_beyond_those_of_a_node_do_not_go_with_the_missing_ones():
    # in the right half of x1, x0 is missing or at most 4; elsewhere it goes up to 9
    x1 = np.repeat([0.0, 1.0], 300)
    x0 = np.where(x1 == 0, np.arange(600) % 10, np.where(np.arange(600) % 2, np.nan, np.arange(600) % 5)).astype(float)
    on = np.where(x1 == 0, np.arange(600) % 3 == 0, np.isnan(x0))
    tree = OnOffTreeClassifier(0.5, max_depth=2).fit(np.column_stack([x1, x0]), on)
    right = tree.predict_proba(np.column_stack([np.ones(12), [*range(10), 99.0, np.nan]]))[:, 1]
    np.testing.assert_array_equal(right, [0.0] * 11 + [1.0])
    assert "x1 missing" in tree.export_text()


def test_missing_values_that_training_did_not_see_go_with_most_events():
    X, on = np.arange(100.0)[:, None], np.arange(100) >= 70
    tree = OnOffTreeClassifier(alpha=1.0).fit(X, on)
    assert tree.predict([[np.nan]])[0] == np.False_
    assert OnOffTreeClassifier(alpha=1.0).fit(-X, on).predict([[np.nan]])[0] == np.False_
    assert OnOffTreeClassifier(alpha=1.0).fit(X, np.arange(100) >= 30).predict([[np.nan]])[0] == np.True_


def test_a_cut_lies_in_the_middle_of_a_gap():
    X = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0])[:, None]
    tree = OnOffTreeClassifier(alpha=1.0).fit(X, X[:, 0] > 5)
    np.testing.assert_array_equal(tree.predict([[5.9], [6.1]]), [False, True])


def test_feature_importances():
    X, on = make_events(0, n=2000, d=3)
    X[:, 1] = 7.0
    tree = OnOffTreeClassifier(0.3, max_depth=4).fit(X, on)
    assert tree.feature_importances_[1] == 0
    assert tree.feature_importances_.sum() == pytest.approx(1)
    constant = OnOffTreeClassifier(alpha=1.0).fit(np.ones((10, 2)), np.arange(10) % 2)
    np.testing.assert_array_equal(constant.feature_importances_, [0, 0])


def test_max_features_is_seeded():
    X, on = make_events(0, n=2000, d=10)

    def leaves(seed, max_features):
        tree = OnOffTreeClassifier(0.3, max_depth=5, max_features=max_features, random_state=seed)
        return tuple(tree.fit(X, on).apply(X))

    assert leaves(0, 3) == leaves(0, 3)
    assert len({leaves(seed, 3) for seed in range(4)}) == 4
    assert len({leaves(seed, None) for seed in range(4)}) == 1
    assert leaves(0, 0.3) == leaves(0, "sqrt") == leaves(0, "log2") == leaves(0, 3)


class TestText:
    def test_lines(self):
        X, on = make_events(1, n=2000, d=3)
        tree = OnOffTreeClassifier(0.3, max_depth=2, min_samples_leaf=100).fit(X, on)
        lines = tree.export_text(["size", "width", "length"]).splitlines()
        assert lines[0].split() == [
            "all",
            "events",
            "On",
            str(on.sum()),
            "Off",
            str((~on).sum()),
            *lines[0].split()[-2:],
        ]
        assert sum(line.endswith(("signal", "background")) for line in lines) == tree.get_n_leaves()
        # the counts of every line are those of its cuts
        root_cut = lines[1].split("|-- ")[1].split("  ")[0]
        name, sign, value = root_cut.split()
        rows = X[:, ["size", "width", "length"].index(name)] <= float(value)
        assert sign == "<="
        assert f"On {on[rows].sum():{len(str(on.sum()))}}" in lines[1]

    def test_cuts_say_where_missing_values_go(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1000, 2))
        X[rng.random(1000) < 0.3, 0] = np.nan
        on = (X[:, 0] > 0) | (np.isnan(X[:, 0]) & (rng.random(1000) < 0.8))
        line = OnOffTreeClassifier(max_depth=1, alpha=1.0).fit(X, on).export_text().splitlines()[2]
        assert "or missing" in line
        value = float(line.split(">")[1].split()[0])
        assert f"On {on[~(X[:, 0] <= value)].sum()}" in line

    def test_cuts_have_the_digits_they_need(self):
        X = 100_000.0 + np.arange(10).repeat(20)[:, None]
        text = OnOffTreeClassifier(alpha=1.0).fit(X, X[:, 0] > 100_006).export_text()
        assert "x0 <= 100006.5" in text

    def test_alpha_of_the_fit_counts(self):
        X, on = make_events(1, n=500)
        tree = OnOffTreeClassifier(0.3, max_depth=2).fit(X, on)
        before = tree.export_text()
        assert tree.set_params(alpha=2.0).export_text() == before

    def test_deep_trees(self):
        X, on = np.arange(3000.0)[:, None], np.arange(3000) % 2 == 1
        tree = OnOffTreeClassifier(max_bins=None, alpha=1.0).fit(X, on)
        assert tree.get_depth() > 1000
        assert len(tree.export_text().splitlines()) == 2 * tree.get_n_leaves() - 1

    def test_names(self):
        X, on = make_events(1, n=500, d=2)
        frame = pd.DataFrame(X, columns=["size", "width"])
        assert "size" in OnOffTreeClassifier(max_depth=2, alpha=1.0).fit(frame, on).export_text()
        tree = OnOffTreeClassifier(max_depth=2, alpha=1.0).fit(X, on)
        assert "x0" in tree.export_text()
        with pytest.raises(ValueError, match="feature_names must be 2 names, got 1"):
            tree.export_text(["size"])
        with pytest.raises(ValueError, match="feature_names must be one-dimensional, got 'size'"):
            tree.export_text("size")

    def test_shortened(self):
        X, on = make_events(1, n=500)
        tree = OnOffTreeClassifier(max_depth=5, alpha=1.0).fit(X, on)
        assert len(tree.export_text(max_depth=1).splitlines()) == 3
        assert tree.export_text(max_depth=1).count("...") == 2
        assert len(tree.export_text(max_depth=0).splitlines()) == 1
        with pytest.raises(ValueError, match="max_depth must be at least 0"):
            tree.export_text(max_depth=-1)


def test_plot():
    plt = pytest.importorskip("matplotlib.pyplot")
    plt.switch_backend("Agg")
    X, on = make_events(1, n=500)
    tree = OnOffTreeClassifier(0.3, max_depth=3, min_samples_leaf=20).fit(X, on)
    ax = tree.plot_tree(["size", "width", "length", "area"])
    text = [item.get_text() for item in ax.texts]
    assert sum("sigma" in item for item in text) == 2 * tree.get_n_leaves() - 1
    assert sum(item.endswith(("signal", "background")) for item in text) == tree.get_n_leaves()
    _, given = plt.subplots()
    assert tree.plot_tree(max_depth=1, ax=given) is given
    assert sum("sigma" in item.get_text() for item in given.texts) == 3
    ax.figure.canvas.draw()
    plt.close("all")


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"alpha": 0}, ValueError, "alpha must be positive"),
        ({"criterion": "gini"}, ValueError, "criterion must be 'information' or 'li_ma', got 'gini'"),
        ({"criterion": "mixed"}, ValueError, "criterion must be 'information' or 'li_ma'"),
        ({"max_depth": 0}, ValueError, "max_depth must be at least 1, got 0"),
        ({"max_depth": 2.5}, TypeError, "max_depth must be an integer"),
        ({"min_samples_leaf": 0}, ValueError, "min_samples_leaf must be at least 1"),
        ({"min_samples_leaf": "auto"}, TypeError, "min_samples_leaf must be an integer, got 'auto'"),
        ({"max_features": 5}, ValueError, "max_features must be at most the number of features, 4, got 5"),
        ({"max_features": 1.5}, ValueError, r"max_features as a fraction must be in \(0, 1\], got 1.5"),
        ({"max_features": "all"}, ValueError, "max_features must be 'sqrt' or 'log2', got 'all'"),
        ({"max_bins": 256}, ValueError, "max_bins must be at most 255, or None for every distinct value, got 256"),
        ({"max_bins": 1}, ValueError, "max_bins must be at least 2"),
        ({"output": "soft"}, ValueError, "output must be 'fraction' or 'assignment', got 'soft'"),
        ({"random_state": "seed"}, ValueError, "random_state must be"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        OnOffTreeClassifier(**({"alpha": 1.0} | parameters)).fit(*make_events(0, n=50))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([[1.0], [math.inf]], [0, 1], "contains infinity"),
        ([[1.0], [2.0]], [1, 1], "y contains one class only"),
        ([[1.0], [2.0], [3.0]], [0, 1, 2], "Only binary classification is supported"),
        ([[1.0], [2.0]], [0.5, 1.5], "Unknown label type: continuous"),
        ([[1.0], [2.0]], [0, 1, 1], "inconsistent numbers of samples"),
        ([["a"], ["b"]], [0, 1], "could not convert string to float"),
    ],
)
def test_bad_events(X, y, message):
    with pytest.raises(ValueError, match=message):
        OnOffTreeClassifier(alpha=1.0).fit(X, y)


def test_needs_fit_and_the_same_features():
    X, on = make_events(0)
    with pytest.raises(NotFittedError):
        OnOffTreeClassifier(alpha=1.0).predict(X)
    with pytest.raises(ValueError, match="X has 3 features, but OnOffTreeClassifier is expecting 4"):
        OnOffTreeClassifier(max_depth=1, alpha=1.0).fit(X, on).predict(X[:, :3])


class TestRandomSplits:
    @pytest.mark.parametrize("criterion", ["information", "li_ma"])
    @pytest.mark.parametrize("max_bins", [255, None])
    def test_they_are_reproducible_and_not_the_best(self, criterion, max_bins):
        X, on = make_events(0, n=1000)
        X[::7, 1] = np.nan
        options = {"criterion": criterion, "max_bins": max_bins, "min_samples_leaf": 5}

        def leaves(splitter, seed):
            return (
                OnOffTreeClassifier(0.4, splitter=splitter, random_state=seed, **options).fit(X, on).apply(X).tobytes()
            )

        assert leaves("random", 0) == leaves("random", 0) != leaves("random", 1)
        assert leaves("random", 0) != leaves("best", 0)
        assert leaves("best", 0) == leaves("best", 1)

    @pytest.mark.parametrize("max_bins", [255, None])
    def test_depth_and_leaf_size_are_kept(self, max_bins):
        X, on = make_events(1, n=2000)
        X[::3, 0] = np.nan
        for seed in range(10):
            tree = OnOffTreeClassifier(
                0.4, splitter="random", max_depth=6, min_samples_leaf=30, max_bins=max_bins, random_state=seed
            ).fit(X, on)
            assert tree.get_depth() <= 6
            assert np.bincount(tree.apply(X), minlength=1)[np.unique(tree.apply(X))].min() >= 30
            assert tree.get_n_leaves() > 5

    def test_wide_codes_give_the_tree_of_narrow_ones(self):
        """With no more than 255 values the bins are the values, however wide their codes are."""
        X, on = make_events(2, n=1500, distinct=60)
        X[::11, 2] = np.nan
        options = {"splitter": "random", "min_samples_leaf": 10, "random_state": 0}
        narrow, wide = (OnOffTreeClassifier(0.4, max_bins=n, **options).fit(X, on) for n in (255, None))
        np.testing.assert_array_equal(narrow.apply(X), wide.apply(X))
        assert narrow.get_n_leaves() > 10
        # some values more than a byte counts
        many = np.column_stack([X, np.linspace(0, 1, 1500)])
        tree = OnOffTreeClassifier(0.4, max_bins=None, **options).fit(many, on)
        leaf, n_on = tree.apply(many), tree._trees.n_on
        np.testing.assert_array_equal(n_on[np.unique(leaf)], np.bincount(leaf, on)[np.unique(leaf)])

    def test_events_without_a_cut(self):
        tree = OnOffTreeClassifier(splitter="random", alpha=1.0).fit(np.ones((10, 2)), np.arange(10) % 2)
        assert tree.get_n_leaves() == 1

    def test_unknown_splitter(self):
        with pytest.raises(ValueError, match="splitter must be 'best' or 'random', got 'auto'"):
            OnOffTreeClassifier(splitter="auto", alpha=1.0).fit([[0.0], [1.0]], [0, 1])
