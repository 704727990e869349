"""Scores in parts: cells, resamples and likelihood do not depend on the parts."""

import numpy as np
import pytest
from chunked_events import cut
from helpers import make_forest, model_bits

from excess._core.rng import bootstrap_weights
from excess.distributed import InProcess, fit_forest, scoring
from excess.distributed.parts import EventScores, InMemory
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
    parts = [InMemory(EventScores(on[a:b], score[a:b], a)) for a, b in [(0, 3), (3, 4000), (4000, 5000)]]
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


def test_likelihood_is_the_same_in_any_order(events):
    X, y = events
    model = make_forest(min_samples_leaf=10).fit(X, y)
    scores = model.oob_decision_function_[:, 1]
    total, n = scoring.sum_log_likelihood(y == 1, scores)
    naive = np.log(np.maximum(np.where(y == 1, scores, 1 - scores), 1e-6))
    assert total / 2**24 / n == pytest.approx(np.nanmean(naive), abs=1e-8)
    order = np.random.default_rng(0).permutation(len(y))
    assert scoring.sum_log_likelihood(y[order] == 1, scores[order]) == (total, n)
