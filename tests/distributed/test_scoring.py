"""Scores in parts: cells, resamples and likelihood do not depend on the parts."""

import numpy as np
from chunked_events import cut
from helpers import make_forest, model_bits

from excess._core.rng import bootstrap_weights
from excess.distributed import InProcess, fit_forest, scoring
from excess.distributed.parts import EventRecords, InMemory, ScoredPart
from excess.estimators._forest import ensemble
from excess.estimators.members import N_CELLS
from excess.stats import score_cells


def test_same_bits_when_scores_are_counted_on_a_grid(events, tmp_path, monkeypatch):
    exact = make_forest(n_estimators=40).fit(*events)
    for module in (score_cells, scoring):
        monkeypatch.setattr(module, "MAX_EXACT", 500)
    monkeypatch.setattr(score_cells, "N_GRID", 64)
    gridded = make_forest(n_estimators=40).fit(*events)
    assert len(gridded.curve_) <= 65 < len(exact.curve_)
    assert model_bits(fit_forest(make_forest(n_estimators=40), cut(events, 4)), tmp_path) == model_bits(
        gridded, tmp_path
    )
    # a cut between cells is one of all cuts, and counts what that counts
    for index, threshold in enumerate(gridded.curve_.thresholds):
        assert threshold in exact.curve_.thresholds
        counts = exact.curve_.at(threshold)
        assert (counts.n_on, counts.n_off) == (gridded.curve_.n_on[index], gridded.curve_.n_off[index])
    assert gridded.threshold_ in exact.curve_.thresholds


def test_resamples_do_not_depend_on_parts():
    rng = np.random.default_rng(0)
    on, score = rng.random(5000) < 0.4, np.round(rng.random(5000), 2)
    score[::11] = np.nan
    parts = [InMemory(ScoredPart(on[a:b], score[a:b], a)) for a, b in [(0, 3), (3, 4000), (4000, 5000)]]
    scored = scoring.ScoredParts(InProcess(2), parts)
    held = ~np.isnan(score)
    whole = score_cells.EventsInMemory(on[held], score[held])
    for ours, theirs in zip(scored.cells(), whole.cells(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    cuts, keys = whole.cells().low[::3], np.arange(4, dtype=np.uint64)
    found = scored.resampled(cuts, keys)
    np.testing.assert_array_equal(found, whole.resampled(cuts, keys))
    weights = np.empty(held.sum(), dtype=np.uint8)
    bootstrap_weights(np.uint64(2), 0, weights)
    selected = (score[held] >= cuts[5]) & on[held]
    assert found[2, 5:, 1].sum() == weights[selected].sum(dtype=int)


def test_labels_by_score_do_not_depend_on_parts(events):
    X, on = events[0].to_numpy(), events[1] == 1
    seed = np.random.RandomState(3).randint(2**31 - 1)
    models = [make_forest(min_samples_leaf=size).fit(X, on) for size in (150, 300)]
    forests = [model._trees.bagged(ensemble.tree_keys(seed, 8)) for model in models]
    edges = models[0]._trees.edges
    features = np.array([0, 2, 5])

    def parts(ends):
        for start, end in zip([0, *ends], [*ends, len(on)], strict=True):
            records = ensemble.encode_events(X[start:end], on[start:end], edges, 1)
            yield InMemory(EventRecords(records, start, len(edges)))

    by_score = scoring.LabelsByScore(scoring.OutOfBag(forests))
    without = scoring.LabelsWithout(forests[1], features)
    for ends in ([], [1, 900, 901], list(range(100, 3000, 100))):
        found = InProcess(2).reduce(by_score, list(parts(ends)))
        for own, model in zip(found, models, strict=True):
            score = model.oob_decision_function_[:, 1]
            for counts, label in ((own[0], ~on), (own[1], on)):
                cells = np.minimum(score[label & ~np.isnan(score)] * N_CELLS, N_CELLS - 1).astype(int)
                np.testing.assert_array_equal(counts, np.bincount(cells, minlength=N_CELLS))
        less = InProcess(2).reduce(without, list(parts(ends)))
        assert less.sum() == 3 * found[1].sum()
        if not ends:
            whole = less
        np.testing.assert_array_equal(less, whole)
