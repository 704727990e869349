"""The compiled kernels, each against a naive twin."""

import itertools
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from excess._utils import rng as keyed
from excess.estimators._forest import binning, ensemble, grower, predictor, splitting
from excess.estimators._forest.ensemble import drop_stale_kernels
from excess.stats import _kernels as score_kernels
from excess.stats._significance import li_ma_significance


def grow(
    events, kinds, *, seed, alpha, max_depth=None, min_leaf=5, max_features=2, splitter=splitting.BEST, n_threads=1
):
    """Return the nodes of one tree for each of some criteria."""
    keys = ensemble.tree_keys(seed, len(kinds))
    trees = [
        ensemble.TreeSettings(key, kind, splitter, min_leaf, max_features)
        for key, kind in zip(keys, kinds, strict=True)
    ]
    settings = ensemble.GrowthSettings(max_depth, alpha, np.arange(events.n_features))
    return ensemble.grow_trees(events, trees, settings, n_threads, None)


class TestRandomNumbers:
    def test_weights_are_poisson(self):
        weights = np.empty(1_000_000, dtype=np.uint8)
        keyed.bootstrap_weights(np.uint64(1), 0, weights)
        observed = np.bincount(weights, minlength=7)[:7] / len(weights)
        expected = np.array([math.exp(-1) / math.factorial(k) for k in range(7)])
        np.testing.assert_allclose(observed, expected, atol=4 * 0.0005)

    def test_weights_of_trees_and_neighbouring_rows_are_unrelated(self):
        weights = np.empty((40, 20_000), dtype=np.uint8)
        for tree in range(40):
            keyed.bootstrap_weights(np.uint64(keyed.derive_key(np.uint64(7), tree)), 0, weights[tree])
        correlation = np.corrcoef(weights)[np.triu_indices(40, 1)]
        assert np.abs(correlation).max() < 5 / math.sqrt(20_000)
        lagged = [np.corrcoef(row[:-lag], row[lag:])[0, 1] for row in weights for lag in (1, 2, 64)]
        assert np.abs(lagged).max() < 5 / math.sqrt(20_000)

    def test_features_are_chosen_evenly(self):
        counts = np.zeros(22)
        pairs = np.zeros((22, 22))
        chosen = np.empty(4, dtype=np.int64)
        for node in range(20_000):
            keyed.choose_features(np.uint64(keyed.derive_key(np.uint64(3), node)), np.arange(22), chosen)
            assert (np.diff(chosen) > 0).all()
            counts[chosen] += 1
            pairs[np.ix_(chosen, chosen)] += 1
        np.testing.assert_allclose(counts / 20_000, 4 / 22, atol=5 * math.sqrt(4 / 22 / 20_000))
        off_diagonal = pairs[np.triu_indices(22, 1)] / 20_000
        np.testing.assert_allclose(off_diagonal, 4 * 3 / (22 * 21), atol=0.006)

    def test_all_features_are_all_features(self):
        chosen = np.empty(5, dtype=np.int64)
        keyed.choose_features(np.uint64(0), np.arange(5), chosen)
        np.testing.assert_array_equal(chosen, np.arange(5))

    def test_features_are_chosen_among_those_that_are_used(self):
        used = np.array([1, 4, 5, 9])
        places, chosen = np.empty((2, 2), dtype=np.int64)
        for key in map(np.uint64, range(100)):
            keyed.choose_features(key, np.arange(4), places)
            keyed.choose_features(key, used, chosen)
            np.testing.assert_array_equal(chosen, used[places])
        everything = np.empty(4, dtype=np.int64)
        keyed.choose_features(np.uint64(0), used, everything)
        np.testing.assert_array_equal(everything, used)

    def test_sampled_rows_do_not_depend_on_what_follows_in_their_order(self):
        few, many = keyed.bottom_rows(5000, 100), keyed.bottom_rows(1000, 100)
        assert len(few) == len(many) == 100
        # a row of the smaller table that is sampled in the larger one is sampled in the smaller one, too
        assert set(few[few < 1000]) <= set(many)
        np.testing.assert_array_equal(keyed.bottom_rows(50, 100), np.arange(50))


class TestBinning:
    def edges(self, column, max_bins):
        column = np.asarray(column, dtype=np.float64)
        return binning.find_edges(column, binning.sampled_rows(len(column)), max_bins)

    @pytest.mark.parametrize("max_bins", [255, 16, None])
    def test_few_distinct_values_are_told_apart(self, max_bins):
        rng = np.random.default_rng(0)
        values = np.unique(rng.normal(size=15))
        edges = self.edges(rng.choice(values, 500), max_bins)
        assert len(edges) == 14
        np.testing.assert_array_equal(np.searchsorted(edges, values), np.arange(15))

    def test_a_rare_value_outside_the_sample_keeps_its_bin(self):
        column = np.zeros(300_000)
        column[np.setdiff1d(np.arange(300_000), binning.sampled_rows(300_000))[0]] = 1.0
        np.testing.assert_array_equal(self.edges(column, 255), [0.5])

    def test_bins_are_even(self):
        column = np.random.default_rng(0).normal(size=50_000)
        counts = np.bincount(np.searchsorted(self.edges(column, 255), column), minlength=255)
        assert counts.min() > 0.9 * 50_000 / 255
        assert counts.max() < 1.1 * 50_000 / 255

    def test_a_frequent_value_does_not_eat_up_the_bins(self):
        rng = np.random.default_rng(0)
        column = np.where(rng.random(50_000) < 0.9, 0.0, rng.normal(size=50_000))
        edges = self.edges(column, 255)
        assert len(edges) > 250
        others = np.bincount(np.searchsorted(edges, column[column != 0]), minlength=255)
        assert others.max() < 1.2 * 5_000 / 253

    def test_many_frequent_values(self):
        rng = np.random.default_rng(0)
        column = np.where(rng.random(100_000) < 0.8, rng.integers(0, 100, 100_000), 100 * rng.random(100_000))
        edges = self.edges(column, 255)
        assert 200 < len(edges) <= 254
        values = np.arange(100.0)
        # each of the hundred is alone, or nearly so
        shares = [np.mean(column[np.searchsorted(edges, column) == np.searchsorted(edges, v)] == v) for v in values]
        assert np.mean(shares) > 0.95

    def test_edges_separate_what_they_should(self):
        for column in ([1.0, np.nextafter(1.0, 2)], [0.0, -0.0, 5e-324], [np.nan, np.nan], [np.nan, 3.0, 4.0]):
            edges = self.edges(column, 255)
            present = np.unique(np.asarray(column)[~np.isnan(column)] + 0.0)
            assert len(np.unique(np.searchsorted(edges, present))) == len(present)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("max_bins", [255, None])
    def test_codes_equal_searchsorted(self, dtype, max_bins):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(1000, 3)).astype(dtype)
        X[rng.random(X.shape) < 0.1] = np.nan
        events = ensemble.bin_events(X, rng.random(1000) < 0.5, max_bins, 2)
        assert events.codes.dtype == (np.uint8 if max_bins else np.uint32)
        for j in range(3):
            expected = np.where(np.isnan(X[:, j]), 0, 1 + np.searchsorted(events.edges[j], X[:, j].astype(np.float64)))
            np.testing.assert_array_equal(events.codes[:, j], expected)

    @given(st.lists(st.floats(-1e300, 1e300), min_size=2, max_size=60), st.integers(2, 20))
    def test_quantile_edges_are_ascending_and_not_too_many(self, values, max_bins):
        edges = binning._quantile_edges(np.asarray(values), max_bins)
        assert len(edges) <= max_bins - 1
        assert (np.diff(edges) > 0).all()
        assert (edges >= min(values)).all()
        assert (edges < max(values)).all() or len(edges) == 0


class TestSplitting:
    @pytest.mark.parametrize("kind", list(splitting.CRITERIA))
    @pytest.mark.parametrize("alpha", [0.2, 1.0])
    def test_search_equals_a_naive_one(self, kind, alpha):
        rng = np.random.default_rng(0)
        tables = [splitting.x_log_x_table(size) for size in (100, 2000)]  # small and large: both ways to x ln x
        for trial in range(100):
            table = tables[trial // 2 % 2]
            n_codes = int(rng.integers(3, 20))
            on, off = rng.integers(0, 30, (2, n_codes)) * (rng.random((2, n_codes)) < 0.7)
            if trial % 2:
                on[0] = off[0] = 0  # nothing missing
            if on.sum() == 0 or off.sum() == 0 or ((on + off) > 0).sum() < 2:
                continue
            counts, total = (on << 32) | off, (int(on.sum()) << 32) | int(off.sum())
            present = np.empty((2, n_codes + 1), dtype=np.int64)
            n_present = splitting.present_codes(counts, n_codes, None, present)
            np.testing.assert_array_equal(present[0, :n_present], np.flatnonzero(on + off))
            min_leaf = int(rng.integers(1, 20))
            value, position, missing_left, left = splitting.search_feature(
                present, n_present, total, min_leaf, splitting.CRITERIA[kind], alpha, table, -np.inf
            )

            def value_of(mask, on=on, off=off, table=table):
                sides = [(on[side].sum(), off[side].sum()) for side in (mask, ~mask)]
                if kind == "information":
                    return sum(splitting.information(a, b, table) for a, b in sides)
                return max(splitting.li_ma(a, b, alpha, math.log(alpha), math.log1p(alpha), table) for a, b in sides)

            codes = np.arange(n_codes)
            masks = [(codes > 0) & (codes <= cut) for cut in range(1, n_codes)]
            masks += [mask | (codes == 0) for mask in masks] + [codes == 0]
            sizes = [((on + off)[mask].sum(), (on + off)[~mask].sum()) for mask in masks]
            allowed = [mask for mask, size in zip(masks, sizes, strict=True) if min(size) >= min_leaf]
            if not allowed:
                assert position == -1
                continue
            assert value == pytest.approx(max(map(value_of, allowed)), rel=1e-12, abs=1e-12)
            best = (codes <= present[0, position]) & ((codes > 0) | missing_left)
            assert (left >> 32, left & 0xFFFFFFFF) == (on[best].sum(), off[best].sum())

    @pytest.mark.parametrize("missing", [False, True])
    def test_borders_are_drawn_evenly_among_all_that_leave_enough_events(self, missing):
        rng = np.random.default_rng(1)
        n_bits = 4000
        bits = rng.integers(0, 2**64, n_bits, dtype=np.uint64)
        for trial in range(25):
            n_codes = int(rng.integers(3, 14))
            on, off = rng.integers(0, 12, (2, n_codes)) * (rng.random(n_codes) < 0.6)
            if missing:
                on[0] = 1 + trial % 9
            else:
                on[0] = off[0] = 0
            counts, total = (on << 32) | off, (int(on.sum()) << 32) | int(off.sum())
            present = np.empty((2, n_codes + 1), dtype=np.int64)
            n_present = splitting.present_codes(counts, n_codes, None, present)
            if n_present == 0:
                continue
            min_leaf = int(rng.integers(1, 15))
            drawn = [splitting.draw_border(present, n_present, total, min_leaf, b) for b in bits]
            held = np.flatnonzero(on + off)
            known = held[held > 0]
            codes = np.arange(n_codes)
            for side in (False, True):
                own = [d for d, b in zip(drawn, bits, strict=True) if (bool(b & np.uint64(1)) and missing) == side]
                allowed = []
                # a border beyond all events, or before them, is one however many codes are empty there
                for code in range(known[0] - 1 if len(known) else 0, known[-1] + 1 if len(known) else 1):
                    left = (codes <= code) & ((codes > 0) | side)
                    if min((on + off)[left].sum(), (on + off)[~left].sum()) >= min_leaf:
                        allowed.append(code)
                if not allowed:
                    assert all(d == (-1, False, 0) for d in own)
                    continue
                found, n_found = np.unique([code for code, *_ in own], return_counts=True)
                if not own:
                    assert not missing
                    continue
                np.testing.assert_array_equal(found, allowed)
                expected = len(own) / len(allowed)
                assert np.abs(n_found - expected).max() < 5 * math.sqrt(expected) + 1
                for code, missing_left, left in own:
                    assert missing_left == side
                    here = (codes <= code) & ((codes > 0) | side)
                    assert (left >> 32, left & 0xFFFFFFFF) == (on[here].sum(), off[here].sum())

    def test_no_border_where_all_events_have_one_value(self):
        for code in (0, 2):
            counts = np.zeros(4, dtype=np.int64)
            counts[code] = total = (3 << 32) | 5
            present = np.empty((2, 5), dtype=np.int64)
            assert splitting.present_codes(counts, 4, None, present) == 1
            for bits in np.arange(100, dtype=np.uint64) << np.uint64(57):
                assert splitting.draw_border(present, 1, total, 1, bits) == (-1, False, 0)
                assert splitting.draw_border(present, 1, total, 1, bits + np.uint64(1)) == (-1, False, 0)

    def test_value_of_a_split_is_that_of_the_search(self):
        table = splitting.x_log_x_table(100)
        on, off = np.array([4, 0, 30, 7]), np.array([9, 3, 0, 60])
        counts, total = (on << 32) | off, (41 << 32) | 72
        present = np.empty((2, 5), dtype=np.int64)
        assert splitting.present_codes(counts, 4, None, present) == 4
        for kind in splitting.CRITERIA.values():
            value, _, _, left = splitting.search_feature(present, 4, total, 1, kind, 0.3, table, -np.inf)
            assert splitting.value_of_split(left, total, kind, 0.3, table) == value

    def test_criteria_are_li_ma(self):
        from excess import li_ma_significance

        table = splitting.x_log_x_table(1000)
        for on, off, alpha in [(20, 25, 0.2), (10, 0, 0.2), (0, 10, 0.2), (5, 25, 0.2), (2000, 300, 3.0)]:
            expected = li_ma_significance(on, off, alpha) ** 2 / 2
            found = splitting.li_ma(on, off, alpha, math.log(alpha), math.log1p(alpha), table)
            assert found == pytest.approx(expected, abs=1e-9)


class TestGrowing:
    @pytest.mark.parametrize("n_features", [3, 7, 22, 40])
    @pytest.mark.parametrize("n", [1, 255, 256, 257, 1000])
    def test_records_are_moved_whole(self, n, n_features):
        rng = np.random.default_rng(0)
        records = binning.empty_records(n, n_features, np.uint8)
        codes = binning.as_codes(records, np.uint8)
        codes[:] = rng.integers(0, 256, codes.shape)
        codes[:, n_features] = rng.integers(0, 2, n) << binning.ON_BIT
        weights = rng.integers(0, 3, n).astype(np.uint8)
        bag = np.zeros((n + 1, records.shape[1]), dtype=np.uint64)
        n_bag = grower.take_bag(records, codes, n_features, weights, bag, bag.view(np.uint8))
        expected = codes[weights > 0].copy()
        expected[:, n_features] |= weights[weights > 0]
        np.testing.assert_array_equal(bag.view(np.uint8)[:n_bag], expected)

        moved = np.zeros_like(bag)
        for shift, limit in [(0, 100), (1, 99), (1, 0), (0, 0)]:
            border = grower.partition(bag, bag.view(np.uint8), 0, n_bag, 1, shift, limit, 255, moved)
            left = (expected[:, 1] - np.uint8(shift)) <= limit
            assert border == left.sum()
            for side, rows in ((moved[:border], expected[left]), (moved[border:n_bag], expected[~left])):
                assert sorted(side.view(np.uint8).tolist()) == sorted(rows.tolist())

    @pytest.mark.parametrize("k", [1, 2, 4, 5, 9])
    @pytest.mark.parametrize("dtype", [np.uint8, np.uint32])
    def test_histograms_equal_bincount(self, k, dtype):
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 200, (500, 12)).astype(dtype)
        weights, on = rng.integers(1, 5, 500), rng.integers(0, 2, 500)
        codes[:, 11] = weights | (on << binning.ON_BIT)
        chosen = np.sort(rng.choice(11, k, replace=False))
        histograms = np.zeros((k, 256), dtype=np.int64)
        touched = None if dtype == np.uint8 else np.zeros((k, 4), dtype=np.uint8)
        splitting.fill_histograms(codes, 100, 400, 11, chosen, histograms, touched)
        part = slice(100, 400)
        for row, feature in zip(histograms, chosen, strict=True):
            for packed, label in ((row >> 32, 1), (row & 0xFFFFFFFF, 0)):
                expected = np.bincount(codes[part, feature], (weights * (on == label))[part], minlength=256)
                np.testing.assert_array_equal(packed, expected)
        splitting.clear_histograms(histograms, touched)
        assert not histograms.any()

    @pytest.mark.parametrize("splitter", splitting.SPLITTERS.values())
    def test_narrow_and_wide_codes_grow_the_same_tree(self, splitter):
        rng = np.random.default_rng(0)
        X = np.round(rng.normal(size=(2000, 5)), 1)
        X[rng.random(X.shape) < 0.05] = np.nan
        on = rng.random(2000) < 0.2 + 0.3 * (np.nan_to_num(X[:, 0]) > 0.5)
        options = {"seed": 1, "alpha": 0.3, "max_depth": 6, "splitter": splitter}
        narrow = ensemble.bin_events(X, on, 255, 1)
        codes = narrow.codes
        records = binning.empty_records(2000, 5, np.uint32)
        binning.as_codes(records, np.uint32)[:, :6] = codes[:, :6]

        class Wide(ensemble.BinnedEvents):
            codes = property(lambda self: self.records.view(np.uint32))

        n_nodes = 0
        for one, other in zip(
            grow(narrow, [0, 1, 0, 1], **options),
            grow(Wide(records, narrow.edges), [0, 1, 0, 1], **options),
            strict=True,
        ):
            leaf = one[:, grower.LEFT] == np.arange(len(one))
            n_nodes += len(leaf)
            np.testing.assert_array_equal(one[~leaf], other[~leaf])
            np.testing.assert_array_equal(one[:, grower.N_ON :], other[:, grower.N_ON :])
        assert n_nodes > 40


@pytest.mark.parametrize("splitter", splitting.SPLITTERS.values())
def test_descent_equals_a_naive_walk(splitter):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 6))
    X[rng.random(X.shape) < 0.1] = np.nan
    on = rng.random(3000) < 0.4
    events = ensemble.bin_events(X, on, 255, 1)
    tables = grow(events, [0, 1, 0], seed=5, alpha=1.0, min_leaf=1, splitter=splitter, n_threads=2)
    flat = predictor.flatten(tables)
    leaves = ensemble.leaf_numbers(X, events.edges, flat, 2)
    assert flat.depths.max() > predictor._STRIDE
    for t, table in enumerate(tables):
        for row in range(0, 3000, 97):
            node = 0
            while table[node, grower.LEFT] != node:
                code = events.codes[row, table[node, grower.FEATURE]]
                goes_left = (int(code) - table[node, grower.SHIFT]) % 256 <= table[node, grower.LIMIT]
                node = table[node, grower.LEFT] + (not goes_left)
            assert leaves[row, t] == node


@pytest.mark.parametrize("max_bins", [255, None])
@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("splitter", splitting.SPLITTERS.values())
def test_leaves_hold_the_events_that_reach_them(max_bins, kind, splitter):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    on = rng.random(2000) < 0.3
    events = ensemble.bin_events(X, on, max_bins, 1)
    keys = ensemble.tree_keys(2, 2)
    tables = grow(events, [kind, kind], seed=2, alpha=0.4, splitter=splitter)
    leaves = ensemble.leaf_numbers(X, events.edges, predictor.flatten(tables), 1)
    for t, table in enumerate(tables):
        weights = np.empty(2000, dtype=np.uint8)
        keyed.bootstrap_weights(np.uint64(keyed.derive_key(keys[t], 0)), 0, weights)
        is_leaf = table[:, grower.LEFT] == np.arange(len(table))
        for column, label in ((grower.N_ON, True), (grower.N_OFF, False)):
            reached = np.bincount(leaves[:, t], weights * (on == label), minlength=len(table))
            np.testing.assert_array_equal(reached[is_leaf], table[is_leaf, column])
        assert table[is_leaf, grower.N_ON : grower.N_OFF + 1].sum(axis=1).min() >= 5


@pytest.mark.parametrize("n_threads", [1, 2])
def test_all_threads_stop_at_an_error(n_threads):
    done = []

    def work(task, memory):
        if task == 1:
            raise RuntimeError("broken")
        time.sleep(0.005)
        done.append(task)

    with pytest.raises(RuntimeError, match="broken"):
        ensemble.run_tasks(range(1000), work, lambda: None, n_threads)
    assert len(done) < 10


def test_edges_of_many_values_come_from_the_sampled_rows(monkeypatch):
    monkeypatch.setattr(binning, "N_SAMPLED", 500)
    column = np.random.default_rng(0).normal(size=5000)
    sampled = binning.sampled_rows(5000)
    assert len(sampled) == 500
    changed = column.copy()
    changed[np.setdiff1d(np.arange(5000), sampled)] += 100
    np.testing.assert_array_equal(binning.find_edges(column, sampled, 50), binning.find_edges(changed, sampled, 50))


def test_stale_kernels_are_dropped(tmp_path):
    drop_stale_kernels(tmp_path)
    (tmp_path / "grower.nbi").touch()
    drop_stale_kernels(tmp_path)
    assert (tmp_path / "grower.nbi").exists()
    (tmp_path / "excess-kernels.sha256").write_text("of other sources")
    drop_stale_kernels(tmp_path)
    assert not (tmp_path / "grower.nbi").exists()


def test_kernels_are_stale_when_any_source_of_kernels_has_changed(tmp_path, monkeypatch):
    for number, module in enumerate((keyed, score_kernels)):
        compiled = tmp_path / f"{number}.nbi"
        drop_stale_kernels(tmp_path)
        compiled.touch()
        changed = tmp_path / f"{number}.py"
        changed.write_bytes(Path(module.__file__).read_bytes() + b"\n")
        monkeypatch.setattr(module, "__file__", str(changed))
        drop_stale_kernels(tmp_path)
        assert not compiled.exists()


@pytest.mark.parametrize("units", [None, [1, 3, 0, 2] * 10])
def test_scan_of_pairs_is_that_of_all_rectangles(units):
    rng = np.random.default_rng(4)
    cells, on = rng.integers(0, 4, (3, 40)).astype(np.uint8), rng.random(40) < 0.4
    weights = np.ones(40, dtype=np.int64) if units is None else np.array(units)
    found, expected = np.zeros(3), np.zeros(3)
    table = splitting.x_log_x_table(8)
    splitting.scan_pairs(cells, 4, on, None if units is None else weights, 0.5, table, found)
    edges = [(low, high) for low in range(4) for high in range(low, 4)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        for (low, high), (left, right) in itertools.product(edges, edges):
            inside = (low <= cells[a]) & (cells[a] <= high) & (left <= cells[b]) & (cells[b] <= right)
            n_on, n_off = weights[inside & on].sum(), weights[inside & ~on].sum()
            expected[[a, b]] = np.maximum(expected[[a, b]], li_ma_significance(n_on, n_off, 0.5) ** 2 / 2)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
