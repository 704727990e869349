"""The result of a search: which significance to quote, the table of models, and files of its parts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from excess import NullTest, OnOffForestClassifier, OnOffTreeClassifier, cross_val_detect, null_test
from excess.detection import DetectionBins, Exposure, Outcome, models_table, quoted_significance


@pytest.fixture(scope="module")
def events():
    rng = np.random.default_rng(0)
    X, signal = rng.normal(size=(1500, 2)), np.arange(1500) < 100
    X[signal] += 2
    region = np.where(signal, 0, rng.integers(0, 4, 1500))
    return X, region, np.arange(1500) % 3


@pytest.fixture(scope="module")
def detections(events):
    X, region, groups = events
    models = {"tree": OnOffTreeClassifier(max_depth=2), "forest": OnOffForestClassifier(5, random_state=0)}
    return cross_val_detect(
        models, X, region == 0, alpha=1 / 3, groups=groups, n_repeats=2, random_state=0, strategy="pooled"
    )


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
@pytest.mark.parametrize("strategy", ["pooled", "forward", "applied"])
def test_a_forward_value_is_quoted_next_to_a_pooled_one(detections, statistic, strategy):
    found = replace(detections["tree"], statistic=statistic, strategy=strategy)
    forward = replace(detections["forest"].outcome, statistic=statistic)
    alone, both = quoted_significance(found), quoted_significance(found, forward)
    assert alone == (found.significance, strategy)
    assert alone.quotable == (strategy != "pooled")
    assert both == ((forward.significance, "forward") if strategy == "pooled" else alone)
    other = {"likelihood": "cut", "cut": "likelihood"}[statistic]
    assert (
        quoted_significance(found, forward, other).value
        == quoted_significance(replace(found, statistic=other), replace(forward, statistic=other)).value
    )


def test_an_unknown_forward_value_is_not_quoted(detections):
    found = detections["tree"]
    assert quoted_significance(found, Outcome(found.counts, None, "likelihood")) == (found.significance, "pooled")


def test_the_table_of_models_has_all_numbers(events, detections):
    X, region, groups = events
    tests = {"tree": null_test(OnOffTreeClassifier(max_depth=2), X, region, n_regions=4, groups=groups)}
    forward = {"forest": detections["tree"].outcome}
    table = models_table(detections, forward, tests)
    assert list(table.index) == ["no cut", "tree", "forest"]
    for name, found in detections.items():
        row = table.loc[name]
        assert (row["n_on"], row["n_off"], row["excess"]) == (
            found.counts.n_on,
            found.counts.n_off,
            found.counts.excess,
        )
        assert (row["cut"], row["likelihood"]) == (found.counts.significance, found.likelihood.significance)
        assert row["likelihood_spread"] == found.spread
        assert row["n_signal"] == found.likelihood.n_signal
    assert table.loc["forest", "cut_forward"] == detections["tree"].counts.significance
    assert np.isnan(table.loc["tree", "cut_forward"])
    assert table.loc["tree", "null_significances"] == tuple(tests["tree"].significances)
    assert table.loc["forest", "null_significances"] == ()
    uncut = detections["tree"].uncut
    assert (table.loc["no cut", "n_on"], table.loc["no cut", "cut"]) == (uncut.n_on, uncut.significance)
    assert np.isnan(table.loc["no cut", "likelihood"])
    fewer = replace(detections["tree"], fold=np.where(groups == 0, -1, detections["tree"].fold))
    assert list(models_table({"tree": fewer, "forest": detections["forest"]}).index) == ["tree", "forest"]


def test_null_regions_without_a_selected_event_are_unknown(detections):
    empty = detections["tree"].count(np.zeros(1500, dtype=bool))
    test = NullTest({1: Outcome(empty, None, "cut"), 2: Outcome(detections["tree"].counts, None, "cut")})
    found = models_table({"tree": replace(detections["tree"], statistic="cut")}, null_tests={"tree": test})
    first, second = found.loc["tree", "null_significances"]
    assert np.isnan(first)
    assert second == detections["tree"].counts.significance


def test_parts_survive_a_file(detections):
    found = detections["tree"]
    binned = found.with_bins("energy", [0.0], (found.score > 0.5).astype(np.int64)).bins
    again = DetectionBins.from_dict(json.loads(json.dumps(binned.to_dict())), found.statistic)
    assert (again.column, again.edges, again.outcomes) == (binned.column, binned.edges, binned.outcomes)
    exposure = Exposure("events", ("a", "b"), ("", "20131101"), np.array([0.5, 1.0]))
    assert Exposure.from_dict(exposure.to_dict()).by_group == {"a": 0.5, "b": 1.0}
    test = NullTest({1: found.outcome, 2: Outcome(found.counts, None, found.statistic)})
    assert NullTest.from_dict(json.loads(json.dumps(test.to_dict())), found.statistic).outcomes == test.outcomes
    with pytest.raises(ValueError, match="hours"):
        Exposure.from_dict({**exposure.to_dict(), "hours": [1.0]})
