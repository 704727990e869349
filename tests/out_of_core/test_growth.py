"""Growth of trees by histograms and by moved events."""

import numpy as np
import pytest
from helpers import make_forest, model_bits

from excess._utils.rng import WHOLE_BAG, bootstrap_weights, derive_key, scale_weights
from excess.estimators._forest import ensemble, levels, predictor
from excess.estimators._forest.splitting import BEST
from excess.out_of_core import InProcess, fit_forest
from excess.out_of_core._fit import Budget, EventParts


def test_large_nodes_are_not_moved_when_events_are_many_times_the_memory():
    edges = [np.empty(0)] * 22
    few, many = (Budget.of(EventParts(InProcess(2), [], n, edges, False, 2**30, 2), 4) for n in (10**8, 10**9))
    assert few.max_moved > 10**7
    assert many.max_moved == 65_536


@pytest.mark.parametrize("max_moved", [0, 50])
def test_same_bits_with_more_features_than_a_byte_counts(tmp_path, max_moved):
    rng = np.random.default_rng(2)
    y = rng.random(800) < 0.4
    X = rng.normal(size=(800, 300)) + y[:, None] * (np.arange(300) > 280)
    executor, options = InProcess(2), {"splitter": "best", "min_samples_leaf": 10, "max_features": "sqrt"}
    executor.max_moved = max_moved
    chunked = fit_forest(make_forest(**options), [(X[:300], y[:300]), (X[300:], y[300:])], executor=executor)
    assert model_bits(chunked, tmp_path) == model_bits(make_forest(**options).fit(X, y), tmp_path)


@pytest.mark.parametrize("weighted", [False, True])
def test_histograms_of_nodes_equal_naive_counts(events, weighted):
    X, y = events[0].to_numpy(), events[1].astype(bool)
    binned = ensemble.bin_events(X, y, 255, 1)
    keys = ensemble.tree_keys(1, 3)
    shapes = [ensemble.TreeSettings(key, criterion, BEST, 5, 2) for key, criterion in zip(keys, [0, 1, 0], strict=True)]
    settings = ensemble.GrowthSettings(3, 0.6, np.arange(6))
    trees = predictor.flatten(ensemble.grow_trees(binned, shapes, settings, 1, None))
    packed = predictor.pack_nodes(trees.nodes, 255)
    wanted = np.flatnonzero(predictor.leaf_mask(trees))[1::2]
    slots = np.full(len(trees.nodes), -1, dtype=np.int32)
    slots[wanted] = np.arange(len(wanted))
    chosen = np.random.default_rng(0).integers(0, 6, (len(wanted), 3)).astype(np.uint8)
    counts = np.zeros(chosen.size * levels.WIDTH, dtype=np.int64)
    factors = np.random.default_rng(1).gamma(2.0, 0.5, len(X)) if weighted else None
    for start in (0, 1000, 1010):  # parts of the events
        end = {0: 1000, 1000: 1010, 1010: len(X)}[start]
        bag = None, None, None if factors is None else factors[start:end]
        levels.fill_nodes(
            binned.codes[start:end], start, *bag, WHOLE_BAG, 6, packed, *trees[1:], 255, keys, slots, chosen, counts
        )
    counts = counts.reshape(len(wanted), 3, levels.WIDTH)
    leaves = ensemble.leaf_numbers(X, binned.edges, trees, 1)
    for tree in range(3):
        weights = np.empty(len(X), dtype=np.uint8)
        bootstrap_weights(np.uint64(derive_key(keys[tree], 0)), 0, weights)
        if factors is not None:
            scale_weights(np.uint64(derive_key(keys[tree], 0)), 0, 0, factors, WHOLE_BAG, weights)
        for slot, node in enumerate(wanted):
            if not trees.roots[tree] <= node < trees.roots[tree + 1]:
                continue
            here = leaves[:, tree] + trees.roots[tree] == node
            for k, feature in enumerate(chosen[slot]):
                codes = binned.codes[here, feature]
                on = np.bincount(codes, weights[here] * y[here], minlength=256).astype(np.int64)
                off = np.bincount(codes, weights[here] * ~y[here], minlength=256).astype(np.int64)
                np.testing.assert_array_equal(counts[slot, k], (on << 32) | off)
