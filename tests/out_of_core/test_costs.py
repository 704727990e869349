"""The cost model of the benchmarks: the sizes of what is sent."""

import pickle
from pathlib import Path

import pytest
from chunked_events import cut
from helpers import make_forest

from excess.out_of_core import InProcess, fit_forest
from excess.out_of_core._fit import Histograms


@pytest.fixture
def costs(monkeypatch):
    """The module of the benchmarks."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import costs

    return costs


def test_known_costs(costs):
    assert costs.LevelCost(n_slots=12_800, n_nodes=25_500, n_chosen=4, n_workers=2).total == 316_717_200
    assert round(costs.moved_bytes(1e6, 22, 100, 2) / 1e6) == 758


def test_costs_are_the_sizes_of_what_is_sent(events, costs):
    sizes = []

    class Weighing(InProcess):
        def reduce(self, reduction, parts):
            found = super().reduce(reduction, parts)
            if isinstance(reduction, Histograms):
                n_slots, n_chosen = reduction.chosen.shape
                cost = costs.LevelCost(n_slots, len(reduction.routes.slots), n_chosen, n_workers=3)
                assert cost.histograms == found.nbytes
                assert cost.total == 4 * cost.histograms + 4 * cost.routes
                sizes.append((len(pickle.dumps(reduction)), cost.routes))
            return found

    executor = Weighing(1)
    executor.max_moved = 0
    fit_forest(make_forest(n_estimators=100, max_depth=6, min_samples_leaf=1), cut(events, 2), executor=executor)
    assert len(sizes) == 6
    sent, expected = sizes[-1]  # the deepest level; at the root there is little but the envelope
    assert sent == pytest.approx(expected, rel=0.2)
