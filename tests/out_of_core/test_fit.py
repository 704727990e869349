"""The same forest from chunks as in memory, bit for bit, with groups and weights; and chunks that are rejected."""

import numpy as np
import pandas as pd
import pytest
from chunked_events import N_EVENTS, cut
from helpers import make_forest, model_bits, signal_bits

import excess
from excess.estimators import _random_forest
from excess.out_of_core import InProcess, fit_forest
from excess.stats import _thresholds as score_cells

RANDOM = {"splitter": "random", "min_samples_leaf": 10, "max_features": 0.5}
VOTES = {"output": "assignment", "min_samples_leaf": 20, "criterion": "li_ma"}


@pytest.mark.parametrize(
    ("options", "columns", "ends", "max_moved", "memory"),
    [
        ({"max_depth": 5, "min_samples_leaf": 1}, "", 1, None, 2**30),
        ({}, "", 17, None, 2**16),
        ({"min_samples_leaf": 4}, "", 3, 50, 2**30),
        ({"min_samples_leaf": 10, "max_features": 0.5}, "", 4, 0, 2**30),
        ({"min_samples_leaf": 10, "max_features": 0.5}, "", 4, 300, 2**30),
        (RANDOM, "", 4, 0, 2**16),
        (RANDOM, "", 4, 300, 2**30),
        (VOTES, "", 3, None, 2**16),
        ({"max_features": None, "threshold": "menon", "min_samples_leaf": 5}, "", 3, None, 2**16),
        ({"max_bins": 7, "n_threshold_bootstrap": 0, "min_samples_leaf": 3}, "", 17, 100, 2**30),
        ({}, "groups", [], 0, 2**30),
        ({}, "groups", [500, 1000, 1001, 2900], 300, 2**30),
        ({}, "groups", [400, 401, 2000], 10_000, 2**16),
        ({}, "weights", [1, 2, 700], 0, 2**30),
        ({}, "weights", [500, 1000, 1001, 2900], 300, 2**30),
        (VOTES, "groups, weights", [40, 2000], None, 2**16),
        (RANDOM, "groups, weights", [40, 2000], 300, 2**16),
        ({"threshold": "f1", "n_threshold_bootstrap": 0, "min_samples_leaf": 5}, "weights", [1300], None, 2**16),
    ],
)
def test_same_bits_from_chunks(events, nights, weights, tmp_path, options, columns, ends, max_moved, memory):
    groups = nights if "groups" in columns else None
    sample_weight = weights if "weights" in columns else None
    estimator, executor = make_forest(**options), InProcess(2)
    executor.max_moved = max_moved
    chunks = cut(events, ends, groups, sample_weight)
    chunked = fit_forest(estimator, chunks, executor=executor, memory=memory)
    assert not hasattr(estimator, "threshold_")
    expected = make_forest(**options).fit(*events, groups=groups, sample_weight=sample_weight)
    assert model_bits(chunked, tmp_path) == model_bits(expected, tmp_path)
    assert signal_bits(chunked, events[0]) == signal_bits(expected, events[0])
    if columns:
        assert model_bits(chunked, tmp_path) != model_bits(make_forest(**options).fit(*events), tmp_path)


def test_groups_and_weights_that_change_nothing(events, tmp_path):
    expected = model_bits(make_forest().fit(*events), tmp_path)
    for columns in ({"groups": np.zeros(N_EVENTS)}, {"weights": np.ones(N_EVENTS)}):
        assert model_bits(fit_forest(make_forest(), cut(events, [10], **columns)), tmp_path) == expected


def test_numbers_of_several_types_are_the_same_groups(events, tmp_path):
    groups = np.arange(N_EVENTS) % 3
    (X, y, first), (other_X, other_y, last) = cut(events, [1000], groups)
    chunked = fit_forest(make_forest(), [(X, y, first.astype(np.int16)), (other_X, other_y, last.astype(float))])
    assert model_bits(chunked, tmp_path) == model_bits(make_forest().fit(*events, groups=groups), tmp_path)


def test_same_bits_where_scores_are_counted_on_a_grid(events, weights, tmp_path, monkeypatch):
    exact = {weighted: make_forest().fit(*events, sample_weight=weights if weighted else None) for weighted in (0, 1)}
    monkeypatch.setattr(score_cells, "MAX_EXACT", 500)
    monkeypatch.setattr(score_cells, "N_GRID", 64)
    for weighted in (0, 1):
        sample_weight = weights if weighted else None
        gridded, curve = make_forest().fit(*events, sample_weight=sample_weight), exact[weighted].curve_
        chunked = fit_forest(make_forest(), cut(events, [900, 901], None, sample_weight))
        assert model_bits(chunked, tmp_path) == model_bits(gridded, tmp_path)
        assert signal_bits(chunked, events[0]) == signal_bits(gridded, events[0])
        assert len(gridded.curve_) <= 65 < len(curve)
        # a cut between cells is one of all cuts, and its counts are the same
        assert gridded.threshold_ in curve.thresholds
        for index, threshold in enumerate(gridded.curve_.thresholds):
            counts = curve.at(threshold)
            assert (counts.n_on, counts.n_off) == (gridded.curve_.n_on[index], gridded.curve_.n_off[index])


def test_scores_can_be_left_out(events):
    model = fit_forest(make_forest(), cut(events, 3), oob_scores=False)
    assert not hasattr(model, "oob_decision_function_")
    assert model.threshold_ == make_forest().fit(*events).threshold_


def test_same_features_are_left_out_and_same_members_chosen(many_features, tmp_path):
    expected = make_forest(n_estimators=12, alpha=0.2).fit(*many_features)
    assert np.flatnonzero(expected.used_features_).tolist() == [0, 4, 5, 9]
    assert sum(own.n_trees for own in expected.members_ if own.splitter == "random") > 4
    executor = InProcess(2)
    executor.max_moved = 500
    chunked = fit_forest(make_forest(n_estimators=12, alpha=0.2), cut(many_features, 5), executor=executor)
    assert model_bits(chunked, tmp_path) == model_bits(expected, tmp_path)
    assert chunked.members_ == expected.members_


@pytest.mark.parametrize("columns", ["", "groups", "weights"])
@pytest.mark.parametrize("max_moved", [0, 300, None])
def test_same_bits_where_a_sample_is_chosen_on(many_features, tmp_path, monkeypatch, columns, max_moved):
    X, y = many_features
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 6, len(y)) if columns == "groups" else None
    weights = rng.uniform(0.5, 2.0, len(y)) if columns == "weights" else None
    for name, value in (("CHOICE_EVENTS", 500), ("WEAK_CHOICE_EVENTS", 1500), ("BAG_EVENTS", 800), ("MAX_LEAVES", 30)):
        monkeypatch.setattr(_random_forest, name, value)
    monkeypatch.setattr(_random_forest, "_WEAK_GAIN", 1e9)  # pairs of features are scanned
    expected = make_forest(n_estimators=12, alpha=0.2).fit(X, y, groups=groups, sample_weight=weights)
    sizes = (
        expected._trees.n_on[expected._trees.flat.roots[:-1]] + expected._trees.n_off[expected._trees.flat.roots[:-1]]
    )
    assert sizes.mean() < 0.8 * len(y)  # bags are thinned
    parts = [slice(0, 777), slice(777, 778), slice(778, len(y))]
    chunks = [(X[rows], y[rows], *(None if own is None else own[rows] for own in (groups, weights))) for rows in parts]
    executor = InProcess(2)
    executor.max_moved = max_moved
    chunked = fit_forest(make_forest(n_estimators=12, alpha=0.2), chunks, executor=executor)
    assert model_bits(chunked, tmp_path) == model_bits(expected, tmp_path)
    assert repr(chunked.members_) == repr(expected.members_)


FIRST = ([[1.0], [2.0]], [0, 1])


@pytest.mark.parametrize(
    ("chunks", "error", "message"),
    [
        (iter([]), TypeError, "an iterator"),
        ([], ValueError, "no events"),
        ([([[1.0], [2.0]], [0, 0])], ValueError, "one class only"),
        ([FIRST, ([[1.0, 2.0]], [1])], ValueError, "1 features.* chunk 0, 2 features.* chunk 1"),
        ([FIRST, ([[np.inf]], [1])], ValueError, "chunks, chunk 1: .*infinity"),
        ([FIRST, ([[1.0]], [1, 0])], ValueError, "chunk 1: X and y"),
        ([FIRST, ([[1.0]], [2])], ValueError, "3 labels, .* 2 in chunks, chunk 1"),
        ([(pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, np.inf]}), [0, 1])], ValueError, r"infinity.*\(column 'b'\)"),
        ([(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), [0, 1])], ValueError, r"float.*\(column 'b'\)"),
        ([[[1.0], [2.0], [3.0], [4.0]]], TypeError, "chunk 0: a chunk must be"),
        ([(*FIRST, [1, 2]), FIRST], ValueError, "groups in chunks, chunk 0, none in chunks, chunk 1"),
        ([FIRST, (*FIRST, [1, 2])], ValueError, "groups in chunks, chunk 1, none in chunks, chunk 0"),
        ([(*FIRST, [1, 2]), (*FIRST, [1])], ValueError, "chunk 1: .*groups"),
        ([(*FIRST, [1, 2]), (*FIRST, ["a", "b"])], ValueError, "groups mixes"),
        ([(*FIRST, None, [1, 2]), FIRST], ValueError, "weights in chunks, chunk 0, none in chunks, chunk 1"),
        ([(*FIRST, None, [1, 2, 3])], ValueError, "chunk 0: .*sample_weight"),
        ([(*FIRST, None, [1, -2])], ValueError, "chunk 0: sample_weight"),
        ([(*FIRST, None, [1.5, 17])], ValueError, "sample_weight must be at most 16"),
        ([(*FIRST, None, [1.5, 1]), (*FIRST, None, [1.5, 0])], ValueError, "weight 0"),
        ([(*FIRST, None, [2, 2])], ValueError, "integer sample_weight"),
        ([(*FIRST, None, [0, 1])], ValueError, "sample_weight is zero for all Off events"),
    ],
)
def test_chunks_that_are_rejected(chunks, error, message):
    with pytest.raises(error, match=message):
        fit_forest(make_forest(), chunks)


@pytest.mark.parametrize(
    ("estimator", "options", "error", "message"),
    [
        (make_forest(max_bins=None), {}, ValueError, "max_bins"),
        (make_forest(), {"memory": 1}, ValueError, "memory"),
        (excess.OnOffTreeClassifier(), {}, TypeError, "estimator must be an OnOffForestClassifier"),
        (make_forest(n_jobs=0), {}, ValueError, "n_jobs"),
    ],
)
def test_parameters_that_are_rejected(events, estimator, options, error, message):
    with pytest.raises(error, match=message):
        fit_forest(estimator, cut(events, 2), **options)


def test_rules_that_count_events_reject_weights(events, weights):
    forest = make_forest(threshold="menon", n_estimators=3, min_samples_leaf=20)
    with pytest.raises(ValueError, match="sample_weight"):
        fit_forest(forest, cut(events, 2, None, weights))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y, groups: (X[:-9], y[:-9], groups[:-9]), "chunks: had 3000 events at first and 2991"),
        (lambda X, y, groups: (X, y, np.char.add(groups, "!")), "chunk 0: has other groups"),
        (lambda X, y, groups: (X, y), "chunk 0: has fewer columns"),
    ],
)
def test_chunks_that_change_are_noticed(events, nights, change, message):
    class Changing:
        chunks = ([(*events, nights)], [change(*events, nights)])
        n_read = 0

        def __iter__(self):
            self.n_read += 1
            return iter(self.chunks[self.n_read - 1])

    with pytest.raises(ValueError, match=message):
        fit_forest(make_forest(), Changing())
