"""Weights in chunks, in files and on workers, as exposure ratios need them: the same forest as in memory."""

import numpy as np
import pytest
from chunked_events import N_EVENTS, NAMES
from helpers import make_forest, model_bits, signal_bits

from excess import exposure_weights
from excess.distributed import Dask, EventFiles, InProcess, fit_forest, scoring
from excess.distributed.parts import InMemory, ScoredPart
from excess.events import write_events
from excess.stats import score_cells

RATIOS = np.array([0.2, 1 / 3, 1.0])


@pytest.fixture(scope="session")
def weights(events):
    """Weights of events whose exposure ratios differ."""
    return exposure_weights(events[1], np.random.default_rng(2).choice(RATIOS, N_EVENTS))[0]


@pytest.fixture(scope="session")
def nights():
    """Groups of the events."""
    return np.random.default_rng(9).choice(["a", "b", "c", "d"], N_EVENTS)


def cut(events, groups, weights, ends):
    return [
        (events[0].iloc[a:b], events[1][a:b], None if groups is None else groups[a:b], weights[a:b])
        for a, b in zip([0, *ends], [*ends, N_EVENTS], strict=True)
    ]


@pytest.mark.parametrize(
    ("ends", "max_moved"), [([], 10_000), ([1, 2, 700], 0), ([500, 1000, 1001, 2900], 300), ([1300], 10_000)]
)
def test_same_bits_from_chunks(events, weights, tmp_path, ends, max_moved):
    executor = InProcess(2)
    executor.max_moved = max_moved
    chunked = fit_forest(make_forest(), cut(events, None, weights, ends), executor=executor)
    expected = make_forest().fit(*events, sample_weight=weights)
    assert model_bits(chunked, tmp_path) == model_bits(expected, tmp_path)
    assert signal_bits(chunked, events[0]) == signal_bits(expected, events[0])
    assert model_bits(chunked, tmp_path) != model_bits(make_forest().fit(*events), tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {"output": "assignment", "min_samples_leaf": 20, "criterion": "li_ma"},
        {"splitter": "random", "min_samples_leaf": 10, "max_features": 0.5},
        {"threshold": "f1", "n_threshold_bootstrap": 0, "min_samples_leaf": 5},
        {"threshold": 0.5, "max_bins": 7, "min_samples_leaf": 1, "max_depth": 4},
    ],
)
def test_same_bits_with_other_parameters(events, nights, weights, tmp_path, options):
    chunked = fit_forest(make_forest(**options), cut(events, nights, weights, [40, 2000]), memory=2**16)
    expected = make_forest(**options).fit(*events, groups=nights, sample_weight=weights)
    assert model_bits(chunked, tmp_path) == model_bits(expected, tmp_path)


def test_same_bits_where_scores_are_counted_on_a_grid(events, weights, tmp_path, monkeypatch):
    exact = make_forest().fit(*events, sample_weight=weights)
    for module in (score_cells, scoring):
        monkeypatch.setattr(module, "MAX_EXACT", 500)
    monkeypatch.setattr(score_cells, "N_GRID", 64)
    gridded = make_forest().fit(*events, sample_weight=weights)
    assert len(gridded.curve_) <= 65 < len(exact.curve_)
    chunked = fit_forest(make_forest(), cut(events, None, weights, [900, 901]))
    assert model_bits(chunked, tmp_path) == model_bits(gridded, tmp_path)
    # a cut between cells is one of all cuts, and counts the weights that that counts
    for index, threshold in enumerate(gridded.curve_.thresholds):
        counts = exact.curve_.at(threshold)
        assert (counts.n_on, counts.n_off) == (gridded.curve_.n_on[index], gridded.curve_.n_off[index])


def test_same_bits_on_dask(events, nights, weights, tmp_path, shared_client):
    paths = [tmp_path / f"{number}.parquet" for number in range(3)]
    for path, (X, y, night, weight) in zip(paths, cut(events, nights, weights, [700, 1900]), strict=True):
        write_events(X.assign(on=y, night=night, weight=weight), path)
    files = EventFiles(paths, NAMES, "on", chunk_rows=500, groups="night", sample_weight="weight")
    expected = make_forest().fit(*events, groups=nights, sample_weight=weights)
    for chunks in (files, cut(events, nights, weights, [5, 1700])):
        fitted = fit_forest(make_forest(), chunks, executor=Dask(shared_client, max_moved=500))
        assert model_bits(fitted, tmp_path) == model_bits(expected, tmp_path)
        assert signal_bits(fitted, events[0]) == signal_bits(expected, events[0])


def test_counts_of_weights_do_not_depend_on_parts_and_order():
    rng = np.random.default_rng(0)
    on, score, weights = rng.random(5000) < 0.4, np.round(rng.random(5000), 2), rng.gamma(2.0, 0.5, 5000)
    score[::11] = np.nan
    parts = [InMemory(ScoredPart(on[a:b], score[a:b], a, weights[a:b])) for a, b in [(0, 3), (3, 4000), (4000, 5000)]]
    scored = scoring.ScoredParts(InProcess(2), parts)
    held = ~np.isnan(score)
    whole = score_cells.EventsInMemory(on[held], score[held], weights[held])
    turned = score_cells.EventsInMemory(on[held][::-1], score[held][::-1], weights[held][::-1])
    for cells in (scored.cells(), turned.cells()):
        for ours, theirs in zip(cells, whole.cells(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    cuts, keys = whole.cells().low[::3], np.arange(4, dtype=np.uint64)
    np.testing.assert_array_equal(scored.resampled(cuts, keys), whole.resampled(cuts, keys))
    assert whole.cells().n_on.sum() == pytest.approx(weights[held & on].sum(), rel=1e-12)


def test_weights_of_one_are_no_weights(events, tmp_path):
    chunked = fit_forest(make_forest(), cut(events, None, np.ones(N_EVENTS), [10]))
    assert model_bits(chunked, tmp_path) == model_bits(make_forest().fit(*events), tmp_path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a, b: [a, b[:3]], ValueError, "chunks differ: weights in chunks, chunk 0, none in chunks, chunk 1"),
        (lambda a, b: [a, (*b[:3], b[3][:-1])], ValueError, "chunk 1: .*sample_weight"),
        (lambda a, b: [a, (*b[:3], -b[3])], ValueError, "chunk 1: sample_weight must not be negative"),
        (lambda a, b: [a, (*b[:3], 40 * b[3])], ValueError, "sample_weight must be at most 16"),
        (lambda a, b: [a, (*b[:3], 0 * b[3])], ValueError, "leave out events of weight 0"),
        (
            lambda a, b: [(*own[:3], 2 * np.ones(len(own[1]))) for own in (a, b)],
            ValueError,
            "repeat them in the chunks",
        ),
        (lambda a, b: [(*own[:3], own[1]) for own in (a, b)], ValueError, "zero for all Off events"),
    ],
)
def test_weights_that_are_refused(events, weights, change, error, message):
    with pytest.raises(error, match=message):
        fit_forest(make_forest(), change(*cut(events, None, weights, [1000])))


def test_rules_that_count_events_refuse_weights(events, weights):
    forest = make_forest(threshold="menon", n_estimators=3, min_samples_leaf=20)
    for fit in (
        lambda: forest.fit(*events, sample_weight=weights),
        lambda: fit_forest(forest, cut(events, None, weights, [1000])),
    ):
        with pytest.raises(ValueError, match="sample_weight that is not a whole number goes with"):
            fit()
