from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier

from excess import OnOffTreeClassifier, cross_val_detect, null_test
from excess.observation import observe, simulate_observation
from excess.report import (
    plot_feature_importances,
    plot_light_curve,
    plot_likelihood,
    plot_null_test,
    plot_score_histogram,
    plot_significance_over_time,
    plot_theta_squared,
    plot_threshold_curve,
)
from excess.report.files import write_plots
from excess.report.histograms import score_histogram, theta_squared_histogram
from excess.report.likelihood_bins import likelihood_bins
from excess.report.series import significance_over_time
from excess.report.style import GREY, OFF, ON, OTHER
from excess.stats.counts import OnOffCounts
from excess.validation.detection import Detection
from excess.validation.null_tests import NullTest
from excess.validation.outcome import Outcome

PLOTS = [
    plot_theta_squared,
    plot_score_histogram,
    plot_threshold_curve,
    plot_likelihood,
    plot_significance_over_time,
    plot_feature_importances,
]


def null_test_of(counts: dict[int, OnOffCounts]) -> NullTest:
    return NullTest({region: Outcome(one, None, "cut") for region, one in counts.items()})


@pytest.fixture(scope="module")
def seen():
    return observe(simulate_observation(30_000, 400, random_state=0))


@pytest.fixture(scope="module")
def found(seen) -> Detection:
    """Detection with all that plots may want to know."""
    detection = cross_val_detect(
        OnOffTreeClassifier(max_depth=4, min_samples_leaf=20),
        seen.X,
        seen.on,
        alpha=seen.alpha,
        groups=seen.groups,
        nearby=(seen.nearby.X, seen.nearby.groups),
    )
    return seen.annotate(detection)


@pytest.fixture(scope="module")
def nulls() -> NullTest:
    return null_test_of({1: OnOffCounts(30, 100, 0.25), 2: OnOffCounts(18, 100, 0.25), 5: OnOffCounts(25, 100, 0.25)})


def texts(ax) -> str:
    """Return all that the legend and the title say."""
    legend = ax.get_legend()
    return "\n".join(text.get_text() for text in [ax.title, legend.get_title(), *legend.get_texts()])


def with_thresholds(detection: Detection, *thresholds: float) -> Detection:
    """Return a detection whose folds have these thresholds."""
    folds = [detection.folds[0]._replace(threshold=threshold) for threshold in thresholds]
    return replace(detection, folds=tuple(folds))


def nothing_selected(detection: Detection) -> Detection:
    nearby = detection.nearby._replace(selected=np.zeros_like(detection.nearby.selected))
    selected = np.zeros_like(detection.selected)
    return with_thresholds(replace(detection, selected=selected, nearby=nearby), *[np.inf] * 5)


def test_theta_squared_draws_the_histogram(found):
    ax = plot_theta_squared(found)
    shown = theta_squared_histogram(found)
    points, _, errors = ax.containers[0]
    np.testing.assert_array_equal(points.get_xdata(), (shown.edges[1:] + shown.edges[:-1]) / 2)
    np.testing.assert_array_equal(points.get_ydata(), shown.on)
    bars = np.array(errors[0].get_segments())
    np.testing.assert_allclose((bars[:, 1, 1] - bars[:, 0, 1]) / 2, np.sqrt(shown.on))
    filled, band, steps = (patch.get_data() for patch in ax.patches)
    np.testing.assert_allclose(filled.values, shown.off / 5)
    np.testing.assert_allclose(steps.values, shown.off / 5)
    np.testing.assert_array_equal(steps.edges, shown.edges)
    np.testing.assert_allclose(band.values - band.baseline, 2 * np.sqrt(shown.off) / 5)
    assert points.get_color() == ON
    assert list(ax.get_lines()[-1].get_xdata()) == [0.025, 0.025]
    assert ax.get_xlabel() == r"$\theta^2$ / deg$^2$"
    assert ax.get_ylabel() == r"events (Off scaled by $\alpha$ = 0.2)"
    said = texts(ax)
    assert f"{found.counts.significance:.1f} $\\sigma$ inside the cut (pooled)" in said
    assert f"On: {found.counts.n_on:,}" in said
    assert f": {found.counts.n_off / 5:,.1f}" in said
    assert "exploration" not in said


def test_theta_squared_at_another_threshold_is_marked(found):
    ax = plot_theta_squared(found, threshold=0.3)
    chosen = found.score > 0.3
    counts = OnOffCounts((chosen & found.on).sum(), (chosen & ~found.on).sum(), found.alpha)
    assert counts.n_on != found.counts.n_on
    assert ax.containers[0][0].get_ydata()[:10].sum() == counts.n_on
    assert ax.get_title() == "exploration: score > 0.3"
    assert f"{counts.significance:.1f} $\\sigma$ inside the cut (exploration)" in texts(ax)


def test_theta_squared_without_nearby_events_ends_at_the_cut(found):
    ax = plot_theta_squared(replace(found, nearby=None))
    assert len(ax.containers[0][0].get_xdata()) == 10
    assert ax.get_xlim()[1] == pytest.approx(0.0255)


def test_score_histogram_draws_the_histogram(found):
    ax = plot_score_histogram(found)
    shown = score_histogram(found)
    np.testing.assert_array_equal(ax.containers[0][0].get_ydata(), shown.on)
    np.testing.assert_allclose(ax.patches[-1].get_data().values, shown.off / 5)
    lines = [line.get_xdata()[0] for line in ax.get_lines() if line.get_linestyle() == "--" and len(line.get_xdata())]
    assert sorted(lines) == sorted(found.thresholds)
    assert "thresholds of 5 folds" in texts(ax)
    assert f"On: {found.uncut.n_on:,}" in texts(ax)


def test_score_histogram_is_logarithmic_where_the_range_asks_for_it(found):
    even = replace(found, score=np.linspace(0, 1, len(found.on)))
    ax = plot_score_histogram(even)
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
    assert sum(line.get_linestyle() == "--" and len(line.get_xdata()) == 2 for line in ax.get_lines()) == n_marks
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
    np.testing.assert_array_equal(rug.get_xdata(), found.thresholds)
    assert f"tuned cut: {found.counts.significance:.1f} $\\sigma$ (pooled)" in texts(ax)
    assert ax.get_ylabel() == r"significance / $\sigma$ ($\alpha$ = 0.2)"
    assert ax.get_title() == ""


def test_threshold_curve_marks_another_threshold(found):
    ax = plot_threshold_curve(found, threshold=0.31)
    dot = next(line for line in ax.get_lines() if line.get_marker() == "o")
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (0.31, pytest.approx(found.curve.at(0.31).significance))
    assert ax.get_title() == "exploration: score > 0.31"
    for bad in (np.inf, -np.inf, np.nan):
        with pytest.raises(ValueError, match="threshold must"):
            plot_threshold_curve(found, threshold=bad)
    with pytest.raises(TypeError, match="threshold must be a number"):
        plot_theta_squared(found, threshold="0.3")


def test_threshold_curve_draws_few_points_of_many(found):
    rng = np.random.default_rng(0)
    repeated = 60 * len(found.on)
    large = Detection(
        on=np.tile(found.on, 60),
        score=rng.random(repeated),
        selected=np.zeros(repeated, dtype=bool),
        ratio=None,
        fold=np.zeros(repeated, dtype=np.int64),
        groups=None,
        folds=found.folds,
        alpha=found.alpha,
        strategy="pooled",
        statistic="cut",
        repeats={"likelihood": np.zeros(1), "cut": np.zeros(1)},
        permutations={"likelihood": np.zeros(0), "cut": np.zeros(0)},
    )
    drawn = plot_threshold_curve(large).get_lines()[0].get_ydata()
    assert len(drawn) <= 2_000 < len(large.curve)
    assert drawn.max() == large.curve.significance.max()


def test_threshold_curve_of_a_deficit_shows_it(found):
    deficit = replace(found, on=~found.on, selected=found.selected & found.on, alpha=5.0)
    assert deficit.counts.significance < -1
    assert plot_threshold_curve(deficit).get_ylim()[0] < deficit.counts.significance


def test_missing_scores_are_left_out(found):
    score = found.score.copy()
    score[:500] = np.nan
    some = replace(found, score=score)
    assert f"On: {found.on[500:].sum():,}" in texts(plot_score_histogram(some))
    known = replace(found, on=found.on[500:], score=score[500:], fold=found.fold[500:])
    drawn = plot_threshold_curve(some).get_lines()[0]
    np.testing.assert_array_equal(drawn.get_ydata(), known.curve.significance)
    none = replace(found, score=np.full(len(score), np.nan))
    for plot in (plot_score_histogram, plot_threshold_curve):
        with pytest.raises(ValueError, match="no scores to show"):
            plot(none)


def test_over_time_draws_the_series_and_a_steady_source(found):
    ax = plot_significance_over_time(found)
    shown = significance_over_time(found)
    _, curve, steady, end = ax.get_lines()
    np.testing.assert_array_equal(curve.get_xdata()[1:], shown.exposure)
    np.testing.assert_array_equal(curve.get_ydata()[1:], shown.significance)
    assert (curve.get_xdata()[0], curve.get_ydata()[0]) == (0, 0)
    np.testing.assert_allclose(
        steady.get_ydata(), found.significance * np.sqrt(steady.get_xdata() / shown.exposure[-1])
    )
    assert end.get_ydata()[0] == found.significance
    assert ax.get_xlabel() == "time of observation / h"
    assert plot_significance_over_time(replace(found, time=None)).get_xlabel() == "hold-out events"


def test_likelihood_draws_the_bins_and_their_significances(found):
    upper = plot_likelihood(found)
    shown = likelihood_bins(found)
    points = upper.containers[0][0]
    np.testing.assert_array_equal(points.get_ydata(), shown.n_on)
    filled, band, steps, total = (patch.get_data() for patch in upper.patches)
    np.testing.assert_allclose(filled.values, shown.background)
    np.testing.assert_allclose(steps.values, shown.background)
    np.testing.assert_allclose(band.values - band.baseline, 2 * shown.background_error)
    np.testing.assert_allclose(total.values, shown.background + shown.signal)
    said = texts(upper)
    assert f"On: {found.uncut.n_on:,}" in said
    assert f"+{found.likelihood.n_signal:,.1f}" in said
    lower = upper.figure.axes[-1]
    heights = {round(bar.get_x() + bar.get_width() / 2): bar.get_height() for bar in lower.patches}
    np.testing.assert_allclose([heights[number] for number in range(len(shown.n_on))], shown.significance)
    selected = [round(bar.get_x() + bar.get_width() / 2) for bar in lower.patches if bar.get_facecolor()[3] == 1]
    assert selected == np.flatnonzero(shown.mostly_selected).tolist()
    assert 0 < len(selected) < len(heights)
    assert f"cut: filled bins as one, {found.counts.significance:.1f} " in texts(lower)
    assert f"likelihood: all bins, each by its weight, {found.likelihood.significance:.1f} " in texts(lower)
    assert lower.get_xlabel().startswith("signal ratio")
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


def test_light_curve_draws_what_the_detection_says(found):
    ax = plot_light_curve(found)
    frame = found.groups_frame()
    points, _, errors = ax.containers[0]
    np.testing.assert_array_equal(points.get_ydata(), frame["relative_strength"])
    bars = np.array(errors[0].get_segments())[:, :, 1]
    np.testing.assert_allclose(bars, frame[["relative_strength_low", "relative_strength_high"]])
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(night) for night in frame.index]
    dashed = next(line for line in ax.get_lines() if line.get_linestyle() == "--")
    assert set(dashed.get_ydata()) == {1}
    many = plot_light_curve(replace(found, groups=np.arange(len(found.on)) % 30))
    assert len(many.get_xticks()) <= 8
    unbound = replace(found, ratio=np.where(found.groups == frame.index[0], 0.0, found.ratio))
    assert "groups (4 of 5; the others have no bound)" in texts(plot_light_curve(unbound))


def test_plots_without_data_are_left_out(found, tmp_path):
    def names(detection):
        return {path.stem.removeprefix("x_") for path in write_plots({"x": detection}, tmp_path, "svg")}

    found = replace(found, features=found.features[:2])
    always = {"theta_squared", "scores", "threshold_curve", "over_time", "importances", "features"}
    assert names(found) == {*always, "likelihood", "light_curve", "excess_rate"}
    assert names(replace(found, groups=None)) == {*always, "likelihood", "excess_rate_by_night"}
    assert names(replace(found, ratio=None, statistic="cut", exposure=None)) == always


@pytest.mark.parametrize("plot", PLOTS)
def test_one_group_only(found, plot):
    one = replace(found, groups=np.zeros(len(found.on)), time=None)
    assert plot(one).figure is not None


def test_feature_importances_are_bars_with_the_largest_on_top(found):
    ax = plot_feature_importances(found, n_features=5)
    largest = np.sort(found.importances)[::-1][:5]
    np.testing.assert_array_equal([bar.get_width() for bar in ax.patches], largest)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [found.feature_names[i] for i in np.argsort(-found.importances)[:5]]
    assert ax.get_ylim()[0] > ax.get_ylim()[1]
    assert ax.get_xlabel() == "importance (5 of 22 features)"
    everything = plot_feature_importances(found, n_features=100)
    assert len(everything.patches) == 22
    assert everything.get_xlabel() == "importance"


def test_feature_importances_without_names_or_with_odd_ones(found):
    ax = plot_feature_importances(replace(found, feature_names=None), n_features=1)
    assert ax.get_yticklabels()[0].get_text() == f"x{found.importances.argmax()}"
    odd = replace(found, feature_names=tuple(f"$a_{{{i}$" for i in range(22)))
    plot_feature_importances(odd).figure.draw_without_rendering()
    zeros = plot_feature_importances(replace(found, importances=np.zeros(22)))
    assert zeros.get_xlim() == (0, 1)


def test_what_is_missing_is_named(found):
    with pytest.raises(ValueError, match=r"no importances.*such as a tree or a forest"):
        plot_feature_importances(replace(found, importances=None))
    with pytest.raises(ValueError, match=r"no angles.*annotated"):
        plot_theta_squared(replace(found, theta=None))
    with pytest.raises(ValueError, match=r"no signal ratios"):
        plot_likelihood(replace(found, ratio=None))
    with pytest.raises(ValueError, match=r"light curve needs signal ratios"):
        plot_light_curve(replace(found, groups=None))
    with pytest.raises(ValueError, match="n_features must be at least 1"):
        plot_feature_importances(found, n_features=0)
    with pytest.raises(ValueError, match="no events were judged"):
        plot_significance_over_time(replace(found, fold=np.full(len(found.on), -1)))
    for plot in PLOTS:
        with pytest.raises(TypeError, match="got dict; pick one of 'tree', 'forest'"):
            plot({"tree": found, "forest": found})


@pytest.mark.parametrize("plot", PLOTS)
def test_nothing_selected(found, plot):
    ax = plot(nothing_selected(replace(found, statistic="cut")))
    ax.figure.draw_without_rendering()
    if plot is plot_theta_squared:
        assert "On: 0\n" in texts(ax)
        assert ax.get_ylim() == (0, 1.35)
    if plot is plot_significance_over_time:
        assert set(ax.get_lines()[1].get_ydata()) == {0.0}


@pytest.mark.parametrize("plot", [plot_score_histogram, plot_threshold_curve, plot_significance_over_time])
def test_a_classifier_without_a_tuned_threshold(seen, plot):
    X = (seen.X - seen.X.mean(axis=0)) / seen.X.std(axis=0)
    plain = FixedThresholdClassifier(LogisticRegression(max_iter=500))
    found = cross_val_detect(plain, X, seen.on, alpha=seen.alpha, groups=seen.groups)
    assert np.isnan(found.thresholds).all()
    ax = plot(found)
    ax.figure.draw_without_rendering()
    assert plot is plot_significance_over_time or "none tuned" in texts(ax)


def test_null_test_draws_every_region(nulls, found):
    ax = plot_null_test(nulls)
    _, points = ax.get_lines()
    np.testing.assert_array_equal(points.get_ydata(), nulls.significances)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "5"]
    bands = [
        sorted(set(patch.get_patch_transform().transform_path(patch.get_path()).vertices[:, 1])) for patch in ax.patches
    ]
    assert bands == [[-2, 2], [-1, 1]]
    assert ax.get_ylabel() == r"significance / $\sigma$ ($\alpha$ = 0.25)"
    ax = plot_null_test(nulls, detection=found)
    assert ax.get_lines()[-1].get_ydata()[0] == found.significance
    assert [label.get_text() for label in ax.get_xticklabels()] == ["On", "1", "2", "5"]
    assert f"On: {found.significance:.1f} $\\sigma$ (likelihood, pooled, $\\alpha$ = 0.2)" in texts(ax)
    assert "Off regions (cut)" in texts(ax)
    assert ax.get_ylim()[1] > found.significance


def test_null_test_keeps_outliers_on_the_axes():
    wild = null_test_of({1: OnOffCounts(100, 100, 0.25), 2: OnOffCounts(0, 100, 0.25)})
    low, high = plot_null_test(wild).get_ylim()
    assert low < wild.significances.min()
    assert high > wild.significances.max() > 3


def test_null_test_says_what_is_wrong(nulls, found):
    with pytest.raises(ValueError, match="no regions"):
        plot_null_test(NullTest({}))
    with pytest.raises(TypeError, match="null_test must be a NullTest, got Detection"):
        plot_null_test(found)
    with pytest.raises(TypeError, match="got dict; pick one of 'forest'"):
        plot_null_test({"forest": nulls})
    with pytest.raises(TypeError, match="detection must be a Detection, got NullTest"):
        plot_null_test(nulls, detection=nulls)


def test_null_test_of_a_search(seen):
    tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    found = null_test(tree, seen.X, seen.regions.region, n_regions=6, groups=seen.groups)
    assert len(plot_null_test(found).get_lines()[-1].get_ydata()) == 5


@pytest.mark.parametrize("plot", PLOTS)
def test_axes_of_a_caller_are_drawn_on_and_keep_their_style(found, plot):
    with mpl.rc_context({"font.size": 20, "axes.labelsize": 20}):
        figure = Figure()
        left, right = figure.subplots(1, 2)
        assert plot(found, ax=right) is right
    assert not left.has_data()
    assert right.has_data()
    assert right.xaxis.label.get_size() == 20
    assert not right.spines["top"].get_visible()
    assert not right.spines["right"].get_visible()


@pytest.mark.parametrize("plot", PLOTS)
def test_a_new_figure_fits_a_column_and_leaves_nothing_behind(found, plot):
    before = dict(mpl.rcParams)
    figure = plot(found).figure
    assert tuple(figure.get_size_inches()) == (3.4, pytest.approx(1.4 * 2.6 if plot is plot_likelihood else 2.6))
    assert figure.axes[0].xaxis.label.get_size() == 8
    assert dict(mpl.rcParams) == before


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg", ".PNG"])
@pytest.mark.parametrize("plot", [*PLOTS, plot_null_test])
def test_plots_are_saved_and_the_same_plot_is_the_same_file(found, nulls, plot, suffix, tmp_path):
    what = nulls if plot is plot_null_test else found
    starts = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}
    for name in ("a", "b"):
        assert plot(what, path=tmp_path / f"{name}{suffix}").has_data()
    first, second = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("a", "b"))
    assert first.startswith(starts[suffix.lower()])
    assert first == second
    assert len(list(tmp_path.iterdir())) == 2


def test_the_whole_figure_of_a_subfigure_is_saved(found, tmp_path):
    figure = Figure(figsize=(4, 2), layout="constrained")
    left, right = figure.subfigures(1, 2)
    plot_score_histogram(found, ax=left.subplots())
    plot_theta_squared(found, ax=right.subplots(), path=str(tmp_path / "both.png"))
    header = (tmp_path / "both.png").read_bytes()[16:24]
    assert (int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")) == (1200, 600)


def test_files_that_cannot_be_written_are_refused_before_anything_is_drawn(found, tmp_path):
    ax = Figure().subplots()
    for name in ("plot.gif", "plot", "plot.png.gz"):
        with pytest.raises(ValueError, match=r"saved as \.png, \.pdf or \.svg"):
            plot_theta_squared(found, ax=ax, path=tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"nowhere does not exist; make it first"):
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


def test_without_matplotlib_a_sentence_says_what_to_install(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"plotting needs matplotlib: pip install matplotlib$"):
        plot_theta_squared(found)


@pytest.mark.slow
def test_importing_the_plots_imports_no_matplotlib_and_drawing_no_pyplot():
    code = (
        "import sys; from excess import report; assert 'matplotlib' not in sys.modules\n"
        "from excess.validation.null_tests import NullTest; from excess.stats.counts import OnOffCounts\n"
        "from excess.validation.outcome import Outcome\n"
        "report.plot_null_test(NullTest({1: Outcome(OnOffCounts(3, 12, 0.25), None, 'cut')}))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_colours_can_be_told_apart():
    """The palette keeps its distance for normal, red-blind and green-blind eyes (Vienot, Brettel & Mollon 1999)."""
    codes = [np.array([int(code[i : i + 2], 16) for i in (1, 3, 5)]) / 255 for code in (ON, OFF, OTHER, GREY)]
    linear = np.array(codes) ** 2.2
    cones = np.array([[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]])
    red_blind = np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]])
    green_blind = np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]])
    for eyes in (np.eye(3), red_blind, green_blind):
        perceived = linear @ (np.linalg.inv(cones) @ eyes @ cones).T
        seen = np.clip(perceived, 0, 1) ** (1 / 2.2)
        for i in range(3):  # On, Off, other; grey is told by its dashes as well
            for j in range(i):
                assert np.abs(seen[i] - seen[j]).max() > 0.2


def test_off_is_scaled_by_the_ratio_of_each_event_where_it_differs(uneven):
    uncut, threshold = uneven.uncut, float(np.quantile(uneven.score, 0.9))
    background = uneven.event_alpha[uneven.held_out & ~uneven.on].sum()
    assert abs(background - uneven.alpha * uncut.n_off) < 1e-6 * background  # the mean is that of Off events
    ax = plot_score_histogram(uneven)
    assert ax.get_ylabel() == r"events (Off scaled by its own $\alpha$)"
    shown = score_histogram(uneven)
    assert shown.background.sum() == pytest.approx(background)
    off = uneven.score[uneven.held_out & ~uneven.on]
    lowest = uneven.event_alpha[uneven.held_out & ~uneven.on][off <= shown.edges[1]]
    assert shown.background[0] == pytest.approx(lowest.sum())
    assert shown.background_error[0] == pytest.approx(np.sqrt((lowest**2).sum()))
    exact = replace(uneven, selected=uneven.held_out & (uneven.score > threshold)).counts
    title = plot_theta_squared(uneven, threshold=threshold).get_legend().get_title().get_text()
    assert title.startswith(f"{exact.significance:.1f} ")
    ax = plot_threshold_curve(uneven, threshold=threshold)
    dot = next(line for line in ax.lines if line.get_label().startswith("exploration"))
    assert dot.get_ydata()[0] == pytest.approx(exact.significance)
    steps = ax.lines[0]
    assert ax.get_ylabel() == rf"significance / $\sigma$ (mean $\alpha$ = {uneven.alpha:.3g})"
    for at in (0, 60, 200):
        chosen = uneven.held_out & (uneven.score > steps.get_xdata()[at])
        counts = replace(uneven, selected=chosen).counts
        assert steps.get_ydata()[at] == pytest.approx(max(counts.significance, 0.0))
