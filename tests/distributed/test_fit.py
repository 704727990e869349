"""The same forest from chunks as in memory, bit for bit, and chunks that are refused."""

import numpy as np
import pandas as pd
import pytest
from chunked_events import cut
from helpers import make_forest, model_bits, signal_bits

import excess
from excess import OnOffForestClassifier
from excess.distributed import Dask, InProcess, fit_forest

KINDS = {
    "shallow": {"max_depth": 5, "min_samples_leaf": 1},
    "default": {},
    "random": {"splitter": "random", "min_samples_leaf": 4, "max_features": 0.5},
    "votes": {"output": "assignment", "min_samples_leaf": 20, "criterion": "li_ma"},
    "all features": {"max_features": None, "threshold": "menon", "min_samples_leaf": 5},
    "coarse": {"max_bins": 7, "n_threshold_bootstrap": 0, "min_samples_leaf": 3},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", [2**30, 2**16])
@pytest.mark.parametrize("n_chunks", [1, 3, 17])
def test_same_bits_from_chunks(events, tmp_path, kind, memory, n_chunks):
    estimator = make_forest(**KINDS[kind])
    chunked = fit_forest(estimator, cut(events, n_chunks), memory=memory)
    assert not hasattr(estimator, "threshold_")
    expected = make_forest(**KINDS[kind]).fit(*events)
    assert model_bits(chunked, tmp_path) == model_bits(expected, tmp_path)
    assert signal_bits(chunked, events[0]) == signal_bits(expected, events[0])


def test_same_signal_ratios_from_chunks(events):
    expected = make_forest().fit(*events)
    for options in ({"executor": InProcess(2)}, {"oob_scores": False, "memory": 2**16}):
        chunked = fit_forest(make_forest(), cut(events, 7), **options)
        assert signal_bits(chunked, events[0]) == signal_bits(expected, events[0])


def test_same_signal_ratios_where_scores_are_counted_on_a_grid(events, monkeypatch):
    exact = make_forest().fit(*events)
    for module in ("excess.stats.score_cells", "excess.distributed.scoring"):
        monkeypatch.setattr(f"{module}.MAX_EXACT", 1_000)
    expected = make_forest().fit(*events)
    assert len(expected.calibration_.score) == len(exact.calibration_.score)
    assert signal_bits(fit_forest(make_forest(), cut(events, 7)), events[0]) == signal_bits(expected, events[0])


def test_scores_can_be_left_out(events):
    model = fit_forest(make_forest(), cut(events, 3), oob_scores=False)
    assert not hasattr(model, "oob_decision_function_")
    assert model.threshold_ == make_forest().fit(*events).threshold_


@pytest.mark.parametrize(
    ("chunks", "error", "message"),
    [
        (iter([]), TypeError, "can be read again.*got an iterator"),
        ([], ValueError, "chunks hold no events"),
        ([([[1.0], [2.0]], [0, 0])], ValueError, "one class only"),
        (
            [([[1.0], [2.0]], [0, 1]), ([[1.0, 2.0]], [1])],
            ValueError,
            "1 features.* chunk 0, 2 features.* chunk 1",
        ),
        ([([[1.0], [2.0]], [0, 1]), ([[np.inf]], [1])], ValueError, "chunks, chunk 1: Input X contains infinity"),
        ([([[1.0], [2.0]], [0, 1]), ([[1.0]], [1, 0])], ValueError, "chunk 1: X and y must have the same length"),
        ([([[1.0], [2.0]], [0, 1]), ([[1.0]], [2])], ValueError, "Only binary .* 3 labels, .* 2 in chunks, chunk 1"),
        ([(pd.DataFrame({"a": [1.0, 2.0], "b": [1.0, np.inf]}), [0, 1])], ValueError, r"infinity.*\(column 'b'\)"),
        ([(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}), [0, 1])], ValueError, r"float.*\(column 'b'\)"),
        ([[[1.0], [2.0], [3.0], [4.0]]], TypeError, "chunk 0: a chunk must be a pair"),
    ],
)
def test_chunks_that_are_refused(chunks, error, message):
    with pytest.raises(error, match=message):
        fit_forest(make_forest(), chunks)


def test_parameters_that_are_refused(events):
    with pytest.raises(ValueError, match="max_bins=None needs all distinct values"):
        fit_forest(make_forest(max_bins=None), cut(events, 2))
    with pytest.raises(TypeError, match="must be an OnOffForestClassifier, got OnOffTreeClassifier"):
        fit_forest(excess.OnOffTreeClassifier(), cut(events, 2))
    with pytest.raises(TypeError, match=r"executor must be a dask.distributed.Client.*got int"):
        fit_forest(make_forest(), cut(events, 2), executor=7)
    with pytest.raises(ValueError, match="n_jobs must not be 0"):
        InProcess(0)


def test_chunks_that_change_are_noticed(events):
    growing = [cut(events, 2), cut(events, 3)[:2]]

    class Shrinking:
        def __iter__(self):
            return iter(growing.pop(0))

    with pytest.raises(ValueError, match="chunks: gave 3000 events at first and 2000 when"):
        fit_forest(make_forest(), Shrinking())


@pytest.fixture(scope="session")
def many_features():
    """Events with two pairs of features that are alike for signal, and features that say nothing; and their labels."""
    rng = np.random.default_rng(0)
    signal = rng.random(4000) < 0.15
    X = rng.normal(size=(4000, 16))
    for one, other in ((0, 9), (4, 5)):
        X[signal, other] = X[signal, one] + 0.3 * rng.normal(size=signal.sum())
    X[::9, 4] = np.nan
    return pd.DataFrame(X).add_prefix("x"), (signal | (rng.random(4000) < 1 / 6)).astype(int)


@pytest.mark.parametrize("max_moved", [pytest.param(0, marks=pytest.mark.slow), 10_000])
def test_same_features_are_left_out_and_same_members_chosen(many_features, tmp_path, max_moved):
    expected = make_forest(n_estimators=12, alpha=0.2).fit(*many_features)
    assert np.flatnonzero(expected.used_features_).tolist() == [0, 4, 5, 9]
    assert sum(own.n_trees for own in expected.members_ if own.splitter == "random") > 8
    executor = InProcess(2)
    executor.max_moved = max_moved
    chunked = fit_forest(make_forest(n_estimators=12, alpha=0.2), cut(many_features, 5), executor=executor)
    assert model_bits(chunked, tmp_path) == model_bits(expected, tmp_path)
    assert chunked.members_ == expected.members_


@pytest.mark.parametrize("max_moved", [0, 300])
@pytest.mark.parametrize("splitter", ["best", "random"])
def test_same_bits_of_either_splitter_by_histograms_and_by_moved_events(events, tmp_path, splitter, max_moved):
    options = {"splitter": splitter, "min_samples_leaf": 10, "max_features": 0.5}
    executor = InProcess(2)
    executor.max_moved = max_moved
    chunked = fit_forest(make_forest(**options), cut(events, 4), executor=executor)
    assert model_bits(chunked, tmp_path) == model_bits(make_forest(**options).fit(*events), tmp_path)


def test_same_default_forest_on_dask(many_features, tmp_path, shared_client):
    X, y = many_features
    expected = OnOffForestClassifier(alpha=0.2, random_state=0).fit(X, y)
    fitted = fit_forest(
        OnOffForestClassifier(alpha=0.2, random_state=0), cut((X, y), 6), executor=Dask(shared_client, max_moved=700)
    )
    assert model_bits(fitted, tmp_path) == model_bits(expected, tmp_path)
    assert signal_bits(fitted, X) == signal_bits(expected, X)
    assert fitted.members_ == expected.members_
    assert not fitted.used_features_.all()
