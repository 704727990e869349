"""Scores in parts: cells, resamples and counts of labels do not depend on the parts."""

import numpy as np
import pytest

from excess._utils.rng import bootstrap_weights
from excess.out_of_core import InProcess, _fit
from excess.out_of_core._executors import InMemory
from excess.stats import _thresholds as score_cells


@pytest.mark.parametrize("weighted", [False, True])
def test_cells_and_resamples_do_not_depend_on_parts_and_order(weighted):
    rng = np.random.default_rng(0)
    on, score = rng.random(5000) < 0.4, np.round(rng.random(5000), 2)
    weights = rng.gamma(2.0, 0.5, 5000) if weighted else None
    score[::11] = np.nan
    held = ~np.isnan(score)

    def of_events(rows):
        return on[rows], score[rows], None if weights is None else weights[rows]

    parts = []
    for a, b in [(0, 3), (3, 4000), (4000, 5000)]:
        own = of_events(slice(a, b))
        parts.append(InMemory(_fit.ScoredPart(*own[:2], a, own[2])))
    scored = _fit.ScoredParts(InProcess(2), parts)
    whole = score_cells.EventsInMemory(*of_events(held))
    reverse = score_cells.EventsInMemory(*of_events(np.flatnonzero(held)[::-1]))
    for cells in (scored.cells(), reverse.cells()):
        for ours, theirs in zip(cells, whole.cells(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    cuts, keys = whole.cells().low[::3], np.arange(4, dtype=np.uint64)
    found = scored.resampled(cuts, keys)
    np.testing.assert_array_equal(found, whole.resampled(cuts, keys))
    if weighted:
        assert whole.cells().n_on.sum() == pytest.approx(weights[held & on].sum(), rel=1e-12)
    else:
        drawn = np.empty(held.sum(), dtype=np.uint8)
        bootstrap_weights(np.uint64(2), 0, drawn)
        assert found[2, 5:, 1].sum() == drawn[(score[held] >= cuts[5]) & on[held]].sum(dtype=int)
