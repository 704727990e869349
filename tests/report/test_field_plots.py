"""Plots of features, rates, bins and the sky for papers, and their data on the page."""

import json
from dataclasses import replace

import numpy as np
import pytest

from excess.analysis import read_run, search
from excess.report import (
    plot_bins,
    plot_excess_rate,
    plot_feature_histograms,
    plot_sky_map,
    write_plots,
    write_report,
)
from excess.report.content import model_content
from excess.report.field_data import bin_rows, feature_data, order_features, rate_data, sky_data
from excess.report.rates import excess_rates, has_rates
from excess.stats.counts import OnOffCounts
from excess.validation.detection_bins import DetectionBins
from excess.validation.exposure import Exposure
from excess.validation.outcome import Outcome


@pytest.fixture(scope="module")
def found(detections):
    return detections["tree"]


@pytest.fixture(scope="module")
def binned(found):
    outcomes = tuple(Outcome(OnOffCounts(n, 30, 0.2), None, "cut") for n in (8, 20, 7))
    edges = (float("-inf"), 1.0, 5.0, float("inf"))
    return replace(found, bins=DetectionBins("energy", edges, outcomes, ("borrows from 1 to 5", "", "")))


def test_rates_are_excesses_over_hours(found):
    rates = excess_rates(found)
    assert rates.labels == [str(group) for group in found.counts_by_group]
    hours = found.exposure.by_group
    for label, counts, rate, error in zip(
        rates.labels, found.counts_by_group.values(), rates.rate, rates.error, strict=True
    ):
        assert rate * hours[label] == pytest.approx(counts.excess)
        assert error * hours[label] == pytest.approx(counts.excess_error)
    assert rates.mean == pytest.approx(found.counts.excess / found.exposure.total)
    frame = found.groups_frame()
    np.testing.assert_allclose(frame["excess_per_hour"], rates.rate)
    np.testing.assert_allclose(frame["hours"], rates.hours)


def test_nights_are_shown_where_groups_are_something_else(found):
    assert has_rates(found, "group")
    assert not has_rates(found, "night")  # groups are nights
    runs = np.array([f"run {i % 8}" for i in range(len(found.on))])
    nights = tuple(str(20131101 + i % 5) for i in range(8))
    exposure = Exposure("ontime", tuple(f"run {i}" for i in range(8)), nights, np.full(8, 0.5))
    by_run = replace(found, groups=runs, exposure=exposure)
    assert has_rates(by_run, "night")
    assert excess_rates(by_run, "night").labels == [str(night) for night in found.counts_by_night]
    data = rate_data(by_run, missing := [], 300)
    assert (set(data), missing) == ({"group", "night", "source", "hours"}, [])
    assert data["hours"] == "4.00"
    some = replace(by_run, exposure=Exposure("ontime", ("run 0",), ("",), np.array([0.5])))
    assert excess_rates(some).n_unknown == 7
    assert "1 of 8" in plot_excess_rate(some).get_legend().get_texts()[-1].get_text()
    rate_data(some, missing, 300)
    assert missing == ["The observation time of 7 of 8 groups is not known."]
    with pytest.raises(ValueError, match="no observation times of a group"):
        excess_rates(replace(found, exposure=None))


def test_features_are_in_the_order_of_their_importance(found):
    names = [one.feature for one in order_features(found)]
    assert names[0] == found.feature_names[int(found.importances.argmax())]
    assert sorted(names) == sorted(found.feature_names)
    assert [one["name"] for one in feature_data(found, [])] == names
    assert [one.feature for one in order_features(replace(found, importances=None))] == list(found.feature_names)
    few = feature_data(found, missing := [], n_models=30)
    assert len(few) == 6
    assert missing == ["On and Off are compared in 6 of 22 features; histograms.json has all of them."]


def test_plots_show_what_the_detection_holds(found, binned):
    axes = plot_feature_histograms(found, n_features=3)
    assert len(axes) == 6
    for ax, one in zip(axes[::2], order_features(found), strict=False):
        assert ax.get_xlabel() == one.feature
        np.testing.assert_array_equal(ax.containers[0].lines[0].get_ydata(), one.before.n_on)
    ax = plot_sky_map(found, quantity="counts", events="all")
    np.testing.assert_array_equal(ax.collections[0].get_array().filled(np.nan), found.sky.layers["all"].counts)
    low, high = ax.get_xlim()
    assert low > high  # east is left
    assert len(ax.patches) == 11  # ten Off regions of two pointings, and On
    np.testing.assert_allclose(plot_excess_rate(found).containers[0].lines[0].get_ydata(), excess_rates(found).rate)
    ax = plot_bins(binned)
    assert [one.get_text() for one in ax.figure.axes[-1].get_xticklabels()] == ["below 1", "1 to 5", "above 5"]
    np.testing.assert_allclose(ax.containers[0].lines[0].get_ydata(), [2.0, 14.0, 1.0])


def test_bins_have_a_row_each_and_a_joint_one(binned):
    rows = bin_rows(binned)
    assert [row["bin"] for row in rows] == ["below 1", "1 to 5", "above 5", "joint"]
    assert rows[0]["note"] == "borrows from 1 to 5"
    assert rows[1]["significance"] == f"{OnOffCounts(20, 30, 0.2).significance:.2f}"
    content = model_content("", binned)
    assert content["data"]["binned"]["likelihood"] == [None] * 3
    assert content["bin_column"] == "energy"
    written = json.loads(json.dumps(binned.bins.to_dict()))
    again = DetectionBins.from_dict(written, "cut")
    assert again.labels == binned.bins.labels
    assert again.outcomes == binned.bins.outcomes


def test_missing_data_is_an_error_with_a_way_out(found):
    bare = replace(found, features=None, sky=None, exposure=None, bins=None)
    for plot, message in (
        (plot_feature_histograms, "give features with"),
        (plot_sky_map, "position of the source"),
        (plot_excess_rate, "give exposure"),
        (plot_bins, "no bins of a column"),
    ):
        with pytest.raises(ValueError, match=message):
            plot(bare)
    no_selected = replace(found.sky, layers={"all": found.sky.layers["all"]})
    with pytest.raises(ValueError, match="too few selected events"):
        plot_sky_map(replace(found, sky=no_selected))
    with pytest.raises(ValueError, match="quantity must be"):
        plot_sky_map(found, quantity="flux")
    missing = []
    sky_data(replace(found, sky=no_selected), missing)
    sky_data(found, missing, number=4)
    assert missing == [
        "Too few events are selected for a map of them.",
        "The maps of the sky of the first 4 models are on the page.",
    ]


def test_plots_are_written_for_what_is_known(binned, tmp_path):
    written = {path.name for path in write_plots({"tree": binned}, tmp_path, "svg")}
    assert {f"tree_{name}.svg" for name in ("features", "excess_rate", "sky_map", "sky_map_all", "bins")} <= written
    assert "tree_excess_rate_by_night.svg" not in written


def test_a_finished_run_shows_all_of_it_again(observation, tmp_path):
    run = search(observation, "tree", null_tests=False)
    run.write(tmp_path / "run", report=True)
    again = read_run(tmp_path / "run")
    found, read = run.detections["tree"], again.detections["tree"]
    assert [one.to_dict() for one in read.features] == [one.to_dict() for one in found.features]
    assert read.sky.to_dict() == found.sky.to_dict()
    assert read.exposure.to_dict() == found.exposure.to_dict()
    np.testing.assert_array_equal(read.nights, found.nights)
    written = (tmp_path / "run" / "report.html").read_bytes()
    assert again.report(tmp_path / "again.html").read_bytes() == written
    # a folder of an older version has less, and is read all the same
    (tmp_path / "run" / "histograms.json").unlink()
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    del result["observation"]["exposure"]
    (tmp_path / "run" / "result.json").write_text(json.dumps(result))
    old = read_run(tmp_path / "run")
    assert old.detections["tree"].features is old.detections["tree"].sky is old.detections["tree"].exposure is None
    text = old.report(tmp_path / "old.html").read_text(encoding="utf-8")
    assert "folders of older runs do not hold them" in text
    assert "Observation times are not known" in text


def test_a_damaged_or_newer_file_of_histograms_is_refused(observation, tmp_path):
    search(observation, "tree", null_tests=False).write(tmp_path / "run")
    path = tmp_path / "run" / "histograms.json"
    whole = json.loads(path.read_text())
    for damage in (
        {**whole, "version": 2},
        {"version": 1},
        {**whole, "models": {"tree": {"features": [{}], "sky": None}}},
    ):
        path.write_text(json.dumps(damage))
        with pytest.raises(ValueError, match="cannot be read as those of one run"):
            read_run(tmp_path / "run")


def test_several_models_share_the_map_of_all_events(found, tmp_path):
    one, four = (
        write_report({f"model {i}": found for i in range(n)}, tmp_path / f"{n}.html").read_text(encoding="utf-8")
        for n in (1, 4)
    )
    counts = json.dumps(found.sky.to_dict()["layers"]["all"]["counts"], separators=(",", ":"))
    assert len(counts) > 5_000
    assert one.count(counts) == four.count(counts) == 1
