"""The survey of all events: the same sample and edges from any chunks."""

import numpy as np
from chunked_events import cut
from helpers import make_forest

from excess.distributed import fit_forest, survey
from excess.estimators._forest import binning


def test_surveys_of_many_files_stay_small(monkeypatch):
    monkeypatch.setattr(survey, "N_SAMPLED", 400)
    X, y = np.random.default_rng(0).random((5000, 2)), np.arange(5000) % 2
    whole = survey.Survey(9)
    whole.add(survey.CheckedChunk(X, y, None, "all"), 0)
    cutoff = survey.sample_cutoff(5000)
    parts = []
    for first in range(0, 5000, 500):
        parts.append(survey.Survey(9, cutoff))
        chunk = survey.CheckedChunk(X[first : first + 500], y[first : first + 500], None, "a part")
        parts[-1].add(chunk, first)
    assert 400 <= sum(len(part.sample) for part in parts) < 800
    merged = survey.Survey(9, cutoff)
    for part in parts[::-1]:
        merged.merge(part)
    np.testing.assert_array_equal(np.sort(merged.hashes), np.sort(whole.hashes))
    assert merged.labels == whole.labels == {0: 2500, 1: 2500}
    assert survey.sample_cutoff(500) is None


def test_edges_do_not_depend_on_chunks(events, monkeypatch):
    monkeypatch.setattr(binning, "N_SAMPLED", 500)
    monkeypatch.setattr("excess.distributed.survey.N_SAMPLED", 500)
    whole = make_forest(min_samples_leaf=5).fit(*events)
    for n_chunks in (2, 29):
        chunked = fit_forest(make_forest(min_samples_leaf=5), cut(events, n_chunks))
        for ours, theirs in zip(chunked._trees.edges, whole._trees.edges, strict=True):
            np.testing.assert_array_equal(ours, theirs)
