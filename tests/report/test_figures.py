"""The figures: what they draw, how they are saved, and what is missing for them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier

from excess import cross_val_detect, simulation_agreement
from excess.detection._null_test import NullTest
from excess.detection._result import Detection, DetectionBins, Outcome
from excess.report import (
    plot_bins,
    plot_efficiency,
    plot_feature_histograms,
    plot_feature_importances,
    plot_light_curve,
    plot_likelihood,
    plot_null_test,
    plot_score_histogram,
    plot_significance_over_time,
    plot_simulation_agreement,
    plot_sky_map,
    plot_theta_squared,
    plot_threshold_curve,
    write_plots,
)
from excess.report._series import (
    likelihood_bins,
    order_features,
    score_histogram,
    significance_over_time,
    theta_squared_histogram,
)
from excess.report._style import GREY, OFF, ON, OTHER
from excess.stats import event_fraction
from excess.stats._significance import OnOffCounts

OF_EVENTS = [
    plot_theta_squared,
    plot_score_histogram,
    plot_threshold_curve,
    plot_likelihood,
    plot_significance_over_time,
    plot_feature_importances,
]
OF_A_DETECTION = [*OF_EVENTS, plot_light_curve, plot_feature_histograms, plot_sky_map, plot_bins]


def null_test_of(counts: dict[int, OnOffCounts]) -> NullTest:
    return NullTest({region: Outcome(one, None, "cut") for region, one in counts.items()})


@pytest.fixture(scope="module")
def found(detections) -> Detection:
    """Detection with all that figures may need, bins of a column included."""
    outcomes = tuple(Outcome(OnOffCounts(n, 30, 0.2), None, "cut") for n in (8, 20, 7))
    bins = DetectionBins("energy", (float("-inf"), 1.0, 5.0, float("inf")), outcomes, ("borrows from 1 to 5", "", ""))
    return replace(detections["tree"], bins=bins)


@pytest.fixture(scope="module")
def nulls() -> NullTest:
    return null_test_of({1: OnOffCounts(30, 100, 0.25), 2: OnOffCounts(18, 100, 0.25), 5: OnOffCounts(25, 100, 0.25)})


@pytest.fixture(scope="module")
def agreement():
    """Five features, one of them positive and skewed, one of whole numbers."""
    rng = np.random.default_rng(0)

    def draw(n, shift=0.0):
        normal = rng.normal([shift, 0, 0], size=(n, 3))
        return np.column_stack([normal, rng.lognormal(1, 1.5, n), rng.poisson(3, n)])

    X, y = np.concatenate([draw(3600), draw(400, -2.0)]), np.repeat([0, 1], [3000, 1000])
    gammas = draw(5000, -2.0) + np.array([0, 0.6, 0, 0, 0])
    names = ["width", "length", "price in $", "size", "islands"]
    model = LogisticRegression(max_iter=1000)
    options = {"alpha": 0.2, "estimator": model, "feature_names": names, "random_state": 0}
    return simulation_agreement(X, y, gammas, draw(5000), **options)


def texts(ax) -> str:
    """Return all texts of the legend and the title."""
    legend = ax.get_legend()
    return "\n".join(text.get_text() for text in [ax.title, legend.get_title(), *legend.get_texts()])


def points(ax):
    """Return x, y, and the lower and upper end of the errors of the points of axes."""
    bars, drawn = next(pair for pair in pairwise(ax.lines) if pair[1].get_marker() == "o")
    low, high, _ = bars.get_ydata().reshape(-1, 3).T
    return drawn.get_xdata(), drawn.get_ydata(), low, high


def with_thresholds(detection: Detection, *thresholds: float) -> Detection:
    folds = [detection.folds[0]._replace(threshold=threshold) for threshold in thresholds]
    return replace(detection, folds=tuple(folds))


@pytest.mark.parametrize("plot", OF_A_DETECTION)
def test_every_figure_draws_and_leaves_the_settings_of_matplotlib_alone(found, plot, tmp_path):
    before = dict(mpl.rcParams)
    drawn = plot(found, path=tmp_path / "a.svg")
    first = drawn[0] if isinstance(drawn, list) else drawn
    assert first.has_data()
    assert first.xaxis.label.get_size() <= 8
    assert not first.spines["top"].get_visible()
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    assert dict(mpl.rcParams) == before
    with pytest.raises(TypeError, match="got dict; pick one of 'tree', 'forest'"):
        plot({"tree": found, "forest": found})


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg", ".PNG"])
def test_the_same_plot_is_the_same_file(found, suffix, tmp_path):
    for name in ("a", "b"):
        plot_likelihood(found, path=tmp_path / f"{name}{suffix}")
    first, second = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("a", "b"))
    assert first.startswith({".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}[suffix.lower()])
    assert first == second
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("plot", OF_EVENTS)
def test_axes_of_a_caller_keep_their_style(found, plot):
    with mpl.rc_context({"font.size": 20, "axes.labelsize": 20}):
        figure = Figure()
        left, right = figure.subplots(1, 2)
        assert plot(found, ax=right) is right
    assert not left.has_data()
    assert right.has_data()
    assert right.xaxis.label.get_size() == 20


@pytest.mark.parametrize("plot", OF_EVENTS)
@pytest.mark.parametrize("case", ["one group", "nothing selected"])
def test_odd_detections_are_drawn(found, plot, case):
    odd = replace(found, groups=np.zeros(len(found.on)), time=None)
    if case == "nothing selected":
        nearby = found.nearby._replace(selected=np.zeros_like(found.nearby.selected))
        odd = replace(found, selected=np.zeros_like(found.selected), nearby=nearby, statistic="cut")
        odd = with_thresholds(odd, *[np.inf] * 5)
    ax = plot(odd)
    ax.figure.draw_without_rendering()
    if case == "nothing selected" and plot is plot_theta_squared:
        assert "On: 0\n" in texts(ax)
        assert ax.get_ylim() == (0, 1.6)


def test_text_is_left_to_latex_where_the_caller_uses_it(found):
    with mpl.rc_context({"text.usetex": True}):
        ax = plot_theta_squared(found)
    assert ax.get_xlabel() == r"$\theta$$^2$ / deg$^2$"
    assert r"$\sigma$ inside the cut" in texts(ax)


def test_theta_squared_draws_the_histogram(found):
    ax = plot_theta_squared(found)
    shown = theta_squared_histogram(found)
    x, y, low, high = points(ax)
    np.testing.assert_array_equal(x, (shown.edges[1:] + shown.edges[:-1]) / 2)
    np.testing.assert_array_equal(y, shown.on)
    np.testing.assert_allclose((high - low) / 2, np.sqrt(shown.on))
    filled, band, steps = (patch.get_data() for patch in ax.patches)
    np.testing.assert_allclose(filled.values, shown.off / 5)
    np.testing.assert_allclose(steps.values, shown.off / 5)
    np.testing.assert_array_equal(steps.edges, shown.edges)
    np.testing.assert_allclose(band.values - band.baseline, 2 * np.sqrt(shown.off) / 5)
    assert list(ax.get_lines()[-1].get_xdata()) == [0.025, 0.025]
    assert ax.get_ylabel() == "events (Off scaled by α = 0.2)"
    assert f"{found.counts.significance:.1f} σ inside the cut (pooled)" in texts(ax)
    assert f"On: {found.counts.n_on:,}" in texts(ax)
    assert f": {found.counts.n_off / 5:,.1f}" in texts(ax)
    alone = plot_theta_squared(replace(found, nearby=None))
    assert len(points(alone)[0]) == 10
    assert alone.get_xlim()[1] == pytest.approx(0.0255)


def test_theta_squared_at_another_threshold_is_marked(found):
    threshold = float(np.quantile(found.score, 0.9))
    ax = plot_theta_squared(found, threshold=threshold)
    chosen = found.score > threshold
    counts = OnOffCounts((chosen & found.on).sum(), (chosen & ~found.on).sum(), found.alpha)
    assert counts.n_on != found.counts.n_on
    assert points(ax)[1][:10].sum() == counts.n_on
    assert ax.get_title() == f"exploration: score > {threshold:.3g}"
    assert f"{counts.significance:.1f} σ inside the cut (exploration)" in texts(ax)
    with pytest.raises(TypeError, match="threshold must be a number"):
        plot_theta_squared(found, threshold="0.3")


def test_score_histogram_draws_the_histogram(found):
    ax = plot_score_histogram(found)
    shown = score_histogram(found)
    np.testing.assert_array_equal(points(ax)[1], shown.on)
    np.testing.assert_allclose(ax.patches[-1].get_data().values, shown.off / 5)
    marks = [segment[0, 0] for segment in ax.collections[0].get_segments()]
    assert sorted(marks) == sorted(found.thresholds)
    assert "thresholds of 5 folds" in texts(ax)
    assert f"On: {found.uncut.n_on:,}" in texts(ax)


def test_score_histogram_is_logarithmic_where_counts_differ_much(found):
    ax = plot_score_histogram(replace(found, score=np.linspace(0, 1, len(found.on))))
    assert ax.get_yscale() == "linear"
    assert ax.get_ylim()[0] == 0
    steep = replace(found, score=np.linspace(0, 1, len(found.on)) ** 8)
    ax = plot_score_histogram(steep)
    ax.figure.draw_without_rendering()
    assert ax.get_yscale() == "log"
    low, high = ax.get_ylim()
    assert 0 < low < found.alpha  # a single Off event can be seen
    assert high > score_histogram(steep).on.max()


@pytest.mark.parametrize(
    ("thresholds", "n_marks", "label"),
    [
        ((0.3, 0.4), 2, "thresholds of 2 folds"),
        ((0.3,), 1, "threshold"),
        ((0.3, np.inf, np.inf), 1, "thresholds of 1 of 3 folds (2: nothing selected)"),
        ((-np.inf, 0.2), 1, "thresholds of 1 of 2 folds (1: all selected)"),
        ((np.nan, np.nan), 0, "thresholds of 0 of 2 folds (2: none tuned)"),
        ((np.inf,), 0, "threshold (nothing selected)"),
    ],
)
def test_thresholds_of_folds_are_marked_or_explained(found, thresholds, n_marks, label):
    other = with_thresholds(found, *thresholds)
    ax = plot_score_histogram(other)
    assert label in texts(ax).splitlines()
    assert len(ax.collections[0].get_segments()) == n_marks
    ax = plot_threshold_curve(other)
    assert label in texts(ax).splitlines()
    assert len(ax.get_lines()[-1].get_xdata()) == n_marks
    assert np.isfinite(ax.get_xlim()).all()


def test_threshold_curve_draws_the_curve_and_the_result(found):
    ax = plot_threshold_curve(found)
    curve, result, rug = ax.get_lines()
    np.testing.assert_array_equal(curve.get_ydata(), found.curve.significance)
    np.testing.assert_array_equal(curve.get_xdata()[1:], found.curve.scores)
    assert curve.get_drawstyle() == "steps-post"
    assert set(result.get_ydata()) == {found.counts.significance} != {found.significance}
    np.testing.assert_array_equal(rug.get_xdata(), np.sort(found.thresholds))
    assert f"tuned cut: {found.counts.significance:.1f} σ (pooled)" in texts(ax)
    assert ax.get_ylabel() == "significance / σ (α = 0.2)"
    ax = plot_threshold_curve(found, threshold=0.31)
    dot = next(line for line in ax.get_lines() if line.get_marker() == "o")
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (0.31, pytest.approx(found.curve.at(0.31).significance))
    assert ax.get_title() == "exploration: score > 0.31"
    for bad in (np.inf, -np.inf, np.nan):
        with pytest.raises(ValueError, match="threshold must"):
            plot_threshold_curve(found, threshold=bad)
    deficit = replace(found, on=~found.on, selected=found.selected & found.on, alpha=5.0)
    assert deficit.counts.significance < -1
    assert plot_threshold_curve(deficit).get_ylim()[0] < deficit.counts.significance


def test_missing_scores_are_left_out(found):
    score = found.score.copy()
    score[:500] = np.nan
    some = replace(found, score=score)
    assert f"On: {found.on[500:].sum():,}" in texts(plot_score_histogram(some))
    known = replace(found, on=found.on[500:], score=score[500:], fold=found.fold[500:])
    np.testing.assert_array_equal(plot_threshold_curve(some).get_lines()[0].get_ydata(), known.curve.significance)
    for plot in (plot_score_histogram, plot_threshold_curve):
        with pytest.raises(ValueError, match="no scores to plot"):
            plot(replace(found, score=np.full(len(score), np.nan)))


def test_over_time_draws_the_series_and_a_steady_source(found):
    ax = plot_significance_over_time(found)
    shown = significance_over_time(found)
    _, curve, steady, end = ax.get_lines()
    np.testing.assert_array_equal(curve.get_xdata(), [0, *shown.exposure])
    np.testing.assert_array_equal(curve.get_ydata(), [0, *shown.significance])
    expected = found.significance * np.sqrt(steady.get_xdata() / shown.exposure[-1])
    np.testing.assert_allclose(steady.get_ydata(), expected)
    assert end.get_ydata()[0] == found.significance
    assert ax.get_xlabel() == "time of observation / h"
    assert plot_significance_over_time(replace(found, time=None)).get_xlabel() == "hold-out events"


def test_likelihood_draws_the_bins_and_their_significances(found):
    upper = plot_likelihood(found)
    shown = likelihood_bins(found)
    np.testing.assert_array_equal(points(upper)[1], shown.n_on)
    filled, band, steps, total = (patch.get_data() for patch in upper.patches)
    np.testing.assert_allclose(filled.values, shown.background)
    np.testing.assert_allclose(steps.values, shown.background)
    np.testing.assert_allclose(band.values - band.baseline, 2 * shown.background_error)
    np.testing.assert_allclose(total.values, shown.background + shown.signal)
    assert f"On: {found.uncut.n_on:,}" in texts(upper)
    assert f"+{found.likelihood.n_signal:,.1f}" in texts(upper)
    lower = upper.figure.axes[-1]
    heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in lower.patches}
    np.testing.assert_allclose([heights[number] for number in range(len(shown.n_on))], shown.significance)
    selected = [round(bar.get_x() + bar.get_width() / 2) for bar in lower.patches if bar.get_facecolor()[3] == 1]
    assert selected == np.flatnonzero(shown.mostly_selected).tolist()
    assert 0 < len(selected) < len(heights)
    assert f"cut: filled bins as one, {found.counts.significance:.1f} σ" in texts(lower)
    assert f"likelihood: all bins, each by its weight, {found.likelihood.significance:.1f} σ" in texts(lower)
    upper.figure.draw_without_rendering()
    assert upper.get_position().y0 > lower.get_position().y1  # one above the other


def test_likelihood_divides_axes_that_were_placed_by_hand(found):
    figure = Figure()
    ax = figure.add_axes((0.1, 0.2, 0.4, 0.7))
    assert plot_likelihood(found, ax=ax) is ax
    lower = figure.axes[-1]
    assert (lower.get_position().x0, lower.get_position().y0) == (0.1, 0.2)
    assert ax.get_position().y1 == pytest.approx(0.9)
    assert ax.get_position().y0 > lower.get_position().y1


def test_light_curve_draws_the_numbers_of_the_detection(found):
    ax, frame = plot_light_curve(found), found.groups_frame()
    mjd, rate, low, high = points(ax)
    np.testing.assert_allclose(mjd, frame["mjd"])
    np.testing.assert_array_equal(rate, frame["rate"])
    np.testing.assert_allclose(np.column_stack([low, high]), frame.filter(regex="rate_"))
    assert ax.get_lines()[0].get_ydata()[0] == found.constancy.mean
    assert f"p = {found.constancy.p_value:.2g}" in texts(ax)
    untimed = replace(found, exposure=None, time=None)
    ax = plot_light_curve(untimed)
    np.testing.assert_array_equal(points(ax)[1], frame["relative_strength"])
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(night) for night in frame.index]
    assert set(ax.get_lines()[0].get_ydata()) == {1}
    many = plot_light_curve(replace(untimed, groups=np.arange(len(found.on)) % 30))
    assert len(many.get_xticks()) <= 8
    unbound = replace(found, ratio=np.where(found.groups == frame.index[0], 0.0, found.ratio))
    assert "groups (4 of 5; others have no bound or no time)" in texts(plot_light_curve(unbound))


def test_feature_importances_are_bars_with_the_largest_on_top(found):
    ax = plot_feature_importances(found, n_features=5)
    np.testing.assert_array_equal([bar.get_width() for bar in ax.patches], np.sort(found.importances)[::-1][:5])
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [found.feature_names[i] for i in np.argsort(-found.importances, kind="stable")[:5]]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert ax.get_xlabel() == "importance (5 of 22 features)"
    assert plot_feature_importances(found, n_features=100).get_xlabel() == "importance"
    ax = plot_feature_importances(replace(found, feature_names=None), n_features=1)
    assert ax.get_yticklabels()[0].get_text() == f"x{found.importances.argmax()}"
    odd = replace(found, feature_names=tuple(f"$a_{{{i}$" for i in range(22)))
    plot_feature_importances(odd).figure.draw_without_rendering()
    assert plot_feature_importances(replace(found, importances=np.zeros(22))).get_xlim() == (0, 1)


def test_features_bins_and_sky_show_the_numbers_of_the_detection(found):
    axes = plot_feature_histograms(found, n_features=3)
    assert len(axes) == 6
    for ax, one in zip(axes[::2], order_features(found), strict=False):
        assert ax.get_xlabel() == one.feature
        np.testing.assert_array_equal(points(ax)[1], one.before.n_on)
    ax = plot_sky_map(found, quantity="counts", events="all")
    np.testing.assert_array_equal(ax.images[0].get_array().filled(np.nan), found.sky.layers["all"].counts)
    low, high = ax.get_xlim()
    assert low > high  # east is left
    assert len(ax.patches) == 11  # ten Off regions of two pointings, and On
    ax = plot_bins(found)
    assert [one.get_text() for one in ax.figure.axes[-1].get_xticklabels()] == ["below 1", "1 to 5", "above 5"]
    np.testing.assert_allclose(points(ax)[1], [2.0, 14.0, 1.0])


def test_null_test_draws_every_region(nulls, found):
    ax = plot_null_test(nulls)
    np.testing.assert_array_equal(ax.get_lines()[-1].get_ydata(), nulls.significances)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "5"]
    bands = [patch.get_patch_transform().transform_path(patch.get_path()).vertices[:, 1] for patch in ax.patches]
    assert [sorted(set(band)) for band in bands] == [[-2, 2], [-1, 1]]
    assert ax.get_ylabel() == "significance / σ (α = 0.25)"
    ax = plot_null_test(nulls, detection=found)
    assert ax.get_lines()[-1].get_ydata()[0] == found.significance
    assert [label.get_text() for label in ax.get_xticklabels()] == ["On", "1", "2", "5"]
    assert f"On: {found.significance:.1f} σ (likelihood, pooled, α = 0.2)" in texts(ax)
    assert "Off regions (cut)" in texts(ax)
    assert ax.get_ylim()[1] > found.significance
    wild = null_test_of({1: OnOffCounts(100, 100, 0.25), 2: OnOffCounts(0, 100, 0.25)})
    low, high = plot_null_test(wild).get_ylim()
    assert low < wild.significances.min()
    assert high > wild.significances.max() > 3


def test_simulation_panels_show_the_distributions_worst_first(agreement):
    axes = plot_simulation_agreement(agreement, n_features=5)
    assert len(axes) == 10
    assert len({ax.figure for ax in axes}) == 1
    for ax, one in zip(axes, agreement.comparisons, strict=True):
        assert ax.get_xlabel() == one.feature.replace("$", r"\$")
        _, y, low, high = points(ax)
        np.testing.assert_array_equal(y, one.observed)
        np.testing.assert_allclose((high - low) / 2, one.observed_error)
        band, steps = (patch.get_data() for patch in ax.patches)
        np.testing.assert_array_equal(steps.values, one.simulated)
        np.testing.assert_array_equal(steps.edges, one.edges)
        np.testing.assert_allclose(band.values - band.baseline, 2 * one.simulated_error)
        bottom, top = ax.get_ylim()
        assert bottom <= low.min()
        assert max(high.max(), band.values.max()) < top
        assert ax.get_xscale() == ("log" if one.logarithmic else "linear")
        assert f"shift {one.shift:+.2f}".replace("-", "−") in ax.get_title()
        assert f"(adjusted {one.adjusted_p_value:.1g})" in ax.get_title()
    assert [ax.get_title().startswith("differs") for ax in axes] == [True] + [False] * 9
    (legend,) = axes[0].figure.legends
    labels = ["On - α Off, by P(signal)", "simulated gammas, by P(signal)", "Off", "simulated protons"]
    assert [text.get_text() for text in legend.get_texts()] == labels
    alone = replace(agreement, comparisons=agreement.of_sample("background"))
    assert len(plot_simulation_agreement(alone, n_features=1)) == 1


@pytest.mark.parametrize("what", ["features", "simulation"])
def test_panels_do_not_overlap(found, agreement, what):
    """Titles, labels and tick labels of neighbouring panels stay apart, and nothing leaves the figure."""
    axes = plot_feature_histograms(found) if what == "features" else plot_simulation_agreement(agreement)
    figure = axes[0].figure
    figure.draw_without_rendering()
    boxes = [*(ax.get_tightbbox() for ax in axes), figure.legends[0].get_window_extent()]
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:number])
        assert figure.bbox.fully_containsx(box.x0)
        assert figure.bbox.fully_containsx(box.x1)
        assert figure.bbox.fully_containsy(box.y0)
    for ax in axes:
        ticks = [tick for tick in ax.get_xticklabels() if tick.get_text()]
        for tick, other in pairwise(ticks):
            assert not tick.get_window_extent().overlaps(other.get_window_extent())


def test_efficiency_draws_a_line_for_each_zenith():
    low, high = event_fraction([20, 60], [100, 100]), event_fraction([0, 30], [0, 100])
    ax = plot_efficiency(np.array([0.1, 1.0, 10.0]), {"low": low, "high": high}, event_fraction(110, 300))
    first, second = (container.lines[0].get_ydata() for container in ax.containers)
    np.testing.assert_allclose(first, [0.2, 0.6])
    np.testing.assert_allclose(second, [0.3])  # where there are events
    assert ax.get_xscale() == "log"


@pytest.mark.parametrize("plot", [plot_score_histogram, plot_threshold_curve, plot_significance_over_time])
def test_a_classifier_without_a_tuned_threshold(observation, plot):
    X = (observation.X - observation.X.mean(axis=0)) / observation.X.std(axis=0)
    plain = FixedThresholdClassifier(LogisticRegression(max_iter=500))
    found = cross_val_detect(plain, X, observation.on, alpha=observation.alpha, groups=observation.groups)
    assert np.isnan(found.thresholds).all()
    ax = plot(found)
    ax.figure.draw_without_rendering()
    assert plot is plot_significance_over_time or "none tuned" in texts(ax)


def test_missing_data_is_an_error(found, nulls, agreement):
    gone = {"theta": None, "ratio": None, "importances": None, "features": None, "sky": None, "exposure": None}
    bare = replace(found, **gone, bins=None, fold=np.full(len(found.on), -1))
    for plot in OF_A_DETECTION:
        with pytest.raises(
            ValueError, match=r"the detection has no|no scores|no events were held out|light curve by group requires"
        ):
            plot(bare)
    no_selected = replace(found.sky, layers={"all": found.sky.layers["all"]})
    with pytest.raises(ValueError, match="selected"):
        plot_sky_map(replace(found, sky=no_selected))
    for plot, options in ((plot_sky_map, {"quantity": "flux"}), (plot_sky_map, {"events": "some"})):
        with pytest.raises(ValueError, match=next(iter(options))):
            plot(found, **options)
    for plot, given in ((plot_feature_importances, found), (plot_simulation_agreement, agreement)):
        with pytest.raises(ValueError, match="n_features"):
            plot(given, n_features=0)
    with pytest.raises(ValueError, match="no regions"):
        plot_null_test(NullTest({}))
    for wrong in (found, {"forest": nulls}):
        with pytest.raises(TypeError, match="null_test"):
            plot_null_test(wrong)
    with pytest.raises(TypeError, match="detection"):
        plot_null_test(nulls, detection=nulls)
    with pytest.raises(TypeError, match="agreement"):
        plot_simulation_agreement(agreement.to_dict())
    with pytest.raises(ValueError, match="nothing to plot"):
        plot_simulation_agreement(replace(agreement, comparisons=(), remark="No excess."))


def test_plots_are_written_for_what_is_known(found, tmp_path):
    def names(detection):
        return {path.stem.removeprefix("x_") for path in write_plots({"x": detection}, tmp_path, "svg")}

    found = replace(found, features=found.features[:2])
    always = {"theta_squared", "scores", "threshold_curve", "over_time", "importances", "features"}
    more = {"likelihood", "light_curve", "sky_map", "sky_map_all", "bins"}
    assert names(found) == always | more
    bare = replace(found, sky=None, bins=None)
    assert names(replace(bare, groups=None)) == {*always, "likelihood", "light_curve_by_night"}
    assert names(replace(bare, ratio=None, statistic="cut", exposure=None)) == always
    with pytest.raises(ValueError, match="suffix"):
        write_plots({"x": found}, tmp_path, "bmp")


def test_the_whole_figure_of_a_subfigure_is_saved(found, tmp_path):
    figure = Figure(figsize=(4, 2), layout="constrained")
    left, right = figure.subfigures(1, 2)
    plot_score_histogram(found, ax=left.subplots())
    plot_theta_squared(found, ax=right.subplots(), path=str(tmp_path / "both.png"))
    header = (tmp_path / "both.png").read_bytes()[16:24]
    assert (int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")) == (1200, 600)


def test_files_that_cannot_be_written_are_rejected_before_anything_is_drawn(found, tmp_path):
    ax = Figure().subplots()
    for name in ("plot.gif", "plot", "plot.png.gz"):
        with pytest.raises(ValueError, match="saved as"):
            plot_theta_squared(found, ax=ax, path=tmp_path / name)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        plot_theta_squared(found, ax=ax, path=tmp_path / "nowhere" / "plot.png")
    assert not ax.has_data()


def test_an_old_file_stays_when_saving_fails(found, tmp_path, monkeypatch):
    path = tmp_path / "plot.pdf"
    path.write_text("old")

    def fail(self, target, **options):
        target.write_text("half")
        raise OSError("disk full")

    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        plot_score_histogram(found, path=path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["plot.pdf"]


@pytest.mark.slow
def test_importing_the_plots_imports_no_matplotlib_and_drawing_no_pyplot():
    code = (
        "import sys; from excess import report; assert 'matplotlib' not in sys.modules\n"
        "from excess import NullTest; from excess.stats._significance import OnOffCounts\n"
        "from excess.detection import Outcome\n"
        "report.plot_null_test(NullTest({1: Outcome(OnOffCounts(3, 12, 0.25), None, 'cut')}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_colours_can_be_distinguished():
    """The palette keeps its distance for normal, red-blind and green-blind eyes (Vienot, Brettel & Mollon 1999)."""
    codes = [np.array([int(code[i : i + 2], 16) for i in (1, 3, 5)]) / 255 for code in (ON, OFF, OTHER, GREY)]
    linear = np.array(codes) ** 2.2
    cones = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    red_blind = np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]])
    green_blind = np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]])
    for eyes in (np.eye(3), red_blind, green_blind):
        perceived = linear @ (np.linalg.inv(cones) @ eyes @ cones).T
        seen = np.clip(perceived, 0, 1) ** (1 / 2.2)
        for i in range(3):  # On, Off, other; grey has dashes as well
            for j in range(i):
                assert np.abs(seen[i] - seen[j]).max() > 0.2


def test_off_is_scaled_by_the_ratio_of_each_event_where_it_differs(uneven):
    uncut, threshold = uneven.uncut, float(np.quantile(uneven.score, 0.9))
    background = uneven.event_alpha[uneven.held_out & ~uneven.on].sum()
    assert abs(background - uneven.alpha * uncut.n_off) < 1e-6 * background  # the mean is that of Off events
    assert plot_score_histogram(uneven).get_ylabel() == "events (Off scaled by its own α)"
    shown = score_histogram(uneven)
    assert shown.background.sum() == pytest.approx(background)
    off = uneven.score[uneven.held_out & ~uneven.on]
    lowest = uneven.event_alpha[uneven.held_out & ~uneven.on][off <= shown.edges[1]]
    assert shown.background[0] == pytest.approx(lowest.sum())
    assert shown.background_error[0] == pytest.approx(np.sqrt((lowest**2).sum()))
    exact = replace(uneven, selected=uneven.held_out & (uneven.score > threshold)).counts
    title = plot_theta_squared(uneven, threshold=threshold).get_legend().get_title().get_text()
    assert title.startswith(f"{exact.significance:.1f} ")
    histogram = theta_squared_histogram(uneven, threshold)
    assert histogram.background[:10].sum() == pytest.approx(exact.background)
    errors = histogram.background_error[:10]
    assert errors @ errors == pytest.approx(exact.excess_error**2 - exact.n_on)
    ax = plot_threshold_curve(uneven, threshold=threshold)
    dot = next(line for line in ax.lines if line.get_label().startswith("exploration"))
    assert dot.get_ydata()[0] == pytest.approx(exact.significance)
    assert ax.get_ylabel() == f"significance / σ (mean α = {uneven.alpha:.3g})"
    for at in (0, 60, 200):
        counts = replace(uneven, selected=uneven.held_out & (uneven.score > ax.lines[0].get_xdata()[at])).counts
        assert ax.lines[0].get_ydata()[at] == pytest.approx(max(counts.significance, 0.0))
