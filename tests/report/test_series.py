from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from excess import OnOffTreeClassifier, cross_val_detect, significance_curve
from excess.dataset import OnOffDataset, simulate_observation
from excess.detection._result import Detection, Exposure, Fold, Nearby
from excess.report._series import (
    find_bins,
    has_light_curve,
    histogram_by,
    light_curve,
    likelihood_bins,
    order_features,
    score_histogram,
    significance_over_time,
    theta_squared_edges,
    theta_squared_histogram,
    threshold_steps,
)
from excess.stats._significance import OnOffCounts, li_ma_significance


@pytest.fixture(scope="module")
def found() -> Detection:
    """Detection with all that plots may want to know."""
    seen = OnOffDataset.from_files(simulate_observation(30_000, 400, random_state=0))
    detection = cross_val_detect(
        OnOffTreeClassifier(max_depth=4, min_samples_leaf=20),
        seen.X,
        seen.on,
        alpha=seen.alpha,
        groups=seen.groups,
        nearby=(seen.nearby.X, seen.nearby.groups),
        strategy="forward",
    )
    return seen.annotate(detection)


def made(on: list[int], score: list[float], threshold: float = 0.5, **others) -> Detection:
    """Detection of a few events by one model, with whatever else is given."""
    mask, scores = np.array(on, dtype=bool), np.array(score, dtype=float)
    fold = others.pop("fold", np.zeros(len(mask), dtype=np.int64))
    selected = (scores > threshold) & (fold >= 0)
    counts = OnOffCounts(int((selected & mask).sum()), int((selected & ~mask).sum()), 0.5)
    return Detection(
        on=mask,
        score=scores,
        selected=selected,
        ratio=others.pop("ratio", None),
        fold=fold,
        groups=others.pop("groups", None),
        folds=(Fold(10, len(mask), threshold, None, counts),),
        alpha=0.5,
        strategy="pooled",
        statistic=others.pop("statistic", "cut"),
        repeats={"likelihood": np.zeros(1), "cut": np.array([counts.significance])},
        permutations={"likelihood": np.zeros(0), "cut": np.zeros(0)},
        **others,
    )


@pytest.mark.parametrize("threshold", [None, 0.3, -np.inf])
def test_theta_squared_counts_like_a_loop_over_events(found, threshold):
    shown = theta_squared_histogram(found, threshold)
    expected = np.zeros((2, len(shown.edges) - 1), dtype=int)
    for part in (found, found.nearby):
        selected = part.selected if threshold is None else part.score > threshold
        for angles in part.theta[selected]:
            for region, angle in enumerate(angles):
                for number in range(len(shown.edges) - 1):
                    if shown.edges[number] <= angle**2 < shown.edges[number + 1]:
                        expected[min(region, 1), number] += 1
    assert expected[:, 10:].sum() > 0
    np.testing.assert_array_equal(shown.on, expected[0])
    np.testing.assert_array_equal(shown.off, expected[1])


def test_theta_squared_inside_the_cut_is_what_the_detection_counts(found):
    shown = theta_squared_histogram(found)
    assert len(shown.on) == len(shown.off) == 40
    assert (shown.on[:10].sum(), shown.off[:10].sum()) == (found.counts.n_on, found.counts.n_off)
    assert found.counts.n_on > 0
    uncut, scored = theta_squared_histogram(found, -np.inf), found.count(found.held_out & np.isfinite(found.score))
    assert (uncut.on[:10].sum(), uncut.off[:10].sum()) == (scored.n_on, scored.n_off)
    assert shown.alpha == found.alpha
    assert shown.edges[10] == found.theta_squared_cut


def test_theta_squared_ends_at_the_cut_without_nearby_events(found):
    whole = theta_squared_histogram(found)
    for alone in (replace(found, nearby=None), replace(found, nearby=found.nearby._replace(theta=None))):
        shown = theta_squared_histogram(alone)
        assert shown.edges[-1] == found.theta_squared_cut
        np.testing.assert_array_equal(shown.on, whole.on[:10])


def test_the_cut_is_an_edge_to_the_last_bit(found):
    cuts = np.random.default_rng(0).uniform(0.001, 1, 500)
    for cut in cuts:
        assert theta_squared_edges(replace(found, theta_squared_cut=cut))[10] == cut
    assert sum(np.linspace(0, 4 * cut, 41)[10] != cut for cut in cuts) > 0  # the easy way is not good enough


def test_theta_squared_counts_an_event_of_several_regions_once_inside_the_cut():
    theta = [[0.1, 0.12, 1.0], [1.0, 0.12, 0.1], [0.1, 1.0, 1.0], [1.0, 1.0, np.nan], [1.0, 0.14, np.nan]]
    # an event that the policy "drop" took out of two regions, and one near two of them
    near = Nearby(np.array([0.9, 0.9]), np.array([True, True]), np.array([[0.1, 0.1, 1.0], [0.2, 0.2, np.nan]]))
    found = made([1, 0, 1, 0, 0], [0.9] * 5, theta=np.array(theta), theta_squared_cut=0.025, nearby=near)
    shown = theta_squared_histogram(found)
    assert (shown.on[:10].sum(), shown.off[:10].sum()) == (2, 2)
    assert (shown.on[10:].sum(), shown.off[10:].sum()) == (1, 1)
    np.testing.assert_array_equal(np.flatnonzero(shown.off), find_bins(np.array([0.1, 0.14, 0.2]) ** 2, shown.edges))


def test_theta_squared_scales_by_the_exposure_ratio_of_the_detection(found):
    assert theta_squared_histogram(replace(found, alpha=0.31)).alpha == 0.31


def test_theta_squared_says_what_is_missing(found):
    with pytest.raises(ValueError, match=r"no angles.*theta and theta_squared_cut to detection.annotated"):
        theta_squared_histogram(replace(found, theta=None))
    with pytest.raises(ValueError, match="no angles"):
        theta_squared_histogram(replace(found, theta_squared_cut=None))
    with pytest.raises(ValueError, match="theta_squared_cut must be positive"):
        theta_squared_histogram(replace(found, theta_squared_cut=0.0))
    fewer = found.nearby._replace(theta=found.nearby.theta[:, :4])
    with pytest.raises(ValueError, match="theta has 6 regions, but nearby_theta has 4"):
        theta_squared_histogram(replace(found, nearby=fewer))


def test_find_bins():
    edges = np.array([0.0, 1.0, 2.0])
    values = np.array([-0.1, 0.0, 0.999, 1.0, 2.0, np.nan, np.inf])
    np.testing.assert_array_equal(find_bins(values, edges), [2, 0, 0, 1, 2, 2, 2])


def test_score_histogram_holds_every_judged_event(found):
    shown = score_histogram(found, 20)
    known = found.held_out & np.isfinite(found.score)  # the first block of a forward search has no model
    scored = found.count(known)
    assert (shown.on.sum(), shown.off.sum()) == (scored.n_on, scored.n_off)
    assert shown.alpha == found.alpha
    score = found.score[known & found.on]
    for number, (low, high) in enumerate(pairwise(shown.edges)):
        below = score <= high if number == 19 else score < high
        assert shown.on[number] == np.count_nonzero((score >= low) & below)


def test_score_histogram_leaves_missing_scores_out():
    shown = score_histogram(made([1, 0, 1, 0], [0.1, 0.4, np.nan, np.nan]))
    assert (shown.on.sum(), shown.off.sum()) == (1, 1)
    with pytest.raises(ValueError, match="no scores to plot"):
        score_histogram(made([1, 0], [np.nan, np.nan]))


@pytest.mark.parametrize("score", [[0.3, 0.3], [0.1, np.nextafter(0.1, 1)], [1e17, 1e17], [0.0, 0.0], [-7.0, -7.0]])
def test_score_histogram_of_scores_that_are_all_the_same(score):
    shown = score_histogram(made([1, 0], score))
    assert (np.diff(shown.edges) > 0).all()
    assert (shown.on.sum(), shown.off.sum()) == (1, 1)


@pytest.mark.parametrize(("statistic", "n_moments"), [("likelihood", 50), ("cut", 100)])
def test_over_time_ends_with_the_result(found, statistic, n_moments):
    detection = replace(found, statistic=statistic)
    shown = significance_over_time(detection)
    assert shown.unit == "h"
    assert len(shown.exposure) == len(shown.significance) == n_moments
    assert shown.significance[-1] == detection.significance == detection.outcome.significances[statistic]
    assert detection.significance > 3


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
@pytest.mark.parametrize("differ", [False, True])
def test_over_time_is_the_result_of_the_events_up_to_each_moment(found, statistic, differ):
    alpha = np.where(np.arange(len(found.on)) % 3 == 0, 0.1, 0.25) if differ else None
    detection = replace(found, statistic=statistic, event_alpha=alpha)
    shown = significance_over_time(detection, 12)
    time = np.where(found.held_out, found.time, np.nan)
    moments = np.sort(time[found.held_out])
    for exposure, significance in zip(shown.exposure, shown.significance, strict=True):
        passed, last = 0.0, moments[0]
        for before, after in pairwise(moments):
            passed += after - before if after - before <= 900 else 0.0
            if passed / 3600 > exposure * (1 + 1e-12):
                break
            last = after
        chosen = time <= last
        so_far = replace(detection, fold=np.where(chosen, found.fold, -1), selected=found.selected & chosen)
        assert significance == pytest.approx(so_far.significance, abs=1e-9)


def test_over_time_of_many_events_has_fewer_moments():
    n = 200_001
    rng = np.random.default_rng(0)
    ratio = rng.exponential(size=n)
    on = rng.random(n) < (0.1 * ratio + 0.5) / (0.1 * ratio + 1.5)
    many = made(on.tolist(), np.zeros(n).tolist(), statistic="likelihood", ratio=ratio)
    shown = significance_over_time(many)
    assert len(shown.significance) == 20
    assert shown.significance[-1] == many.likelihood.significance > 10


def test_over_time_leaves_pauses_out():
    time = np.array([1000.0, 0.0, 100_000.0, 100_800.0, 600.0])
    shown = significance_over_time(made([1, 0, 1, 1, 0], [0.9] * 5, time=time), 3)
    # from 0 to 1000 s and from 100,000 to 100,800 s: half an hour
    np.testing.assert_allclose(shown.exposure, np.array([600, 1200, 1800]) / 3600)
    expected = [OnOffCounts(n_on, 2, 0.5).significance for n_on in (0, 2, 3)]
    np.testing.assert_allclose(shown.significance, expected)


def test_over_time_in_order_of_groups_where_times_are_not_known():
    groups = np.array(["c", "a", "b", "a"])
    detection = made([1, 0, 1, 1], [0.9, 0.9, 0.2, 0.9], groups=groups)
    expected = [OnOffCounts(*counts, 0.5).significance for counts in ((0, 1), (1, 1), (1, 1), (2, 1))]
    for time in (None, np.array([1.0, np.nan, 2.0, 3.0])):
        shown = significance_over_time(replace(detection, time=time))
        assert shown.unit == "events"
        np.testing.assert_allclose(shown.exposure, [1, 2, 3, 4])
        np.testing.assert_allclose(shown.significance, expected)
    as_they_stand = significance_over_time(replace(detection, groups=None))
    assert as_they_stand.significance[0] == OnOffCounts(1, 0, 0.5).significance


def test_over_time_of_judged_events_only():
    fold = np.array([-1, 0, 0])
    shown = significance_over_time(made([1, 1, 0], [np.nan, 0.9, 0.1], fold=fold))
    np.testing.assert_allclose(shown.significance, [OnOffCounts(1, 0, 0.5).significance] * 2)
    with pytest.raises(ValueError, match="no events were held out"):
        significance_over_time(made([1, 0], [0.9, 0.1], fold=np.array([-1, -1])))


@pytest.mark.parametrize("time", [[5.0, 5.0], [0.0, 1e6]])
def test_over_time_counts_events_where_no_time_passes(time):
    shown = significance_over_time(made([1, 0], [0.9, 0.9], time=np.array(time)))
    assert shown.unit == "events"
    np.testing.assert_allclose(shown.exposure, [1, 2])


def test_threshold_steps_are_the_curve_where_it_is_short(found):
    starts, values = threshold_steps(found.curve)
    np.testing.assert_allclose(np.maximum(values, 0), found.curve.significance, atol=1e-12)
    for start, significance in zip(starts, values, strict=True):
        assert found.curve.at(start).significance == pytest.approx(significance, abs=1e-12)
    deficit = threshold_steps(significance_curve([1, 0, 0, 0], [0.1, 0.2, 0.3, 0.4], 0.5))[1]
    assert deficit[1] < 0  # deficits are shown


@pytest.mark.parametrize("seed", range(5))
def test_threshold_steps_of_a_long_curve_keep_its_extremes(seed):
    rng = np.random.default_rng(seed)
    score = rng.exponential(size=50_000) ** 2
    curve = significance_curve(rng.random(len(score)) < 0.2, score, 0.2)
    start, significance = threshold_steps(curve)
    assert len(start) <= 2_000
    assert (np.diff(start) > 0).all()
    assert significance.max() == curve.significance.max()
    assert curve.scores[curve.best_index - 1] in start
    assert (start[-1], significance[-1]) == (curve.scores[-1], 0.0)
    signed = li_ma_significance(curve.n_on, curve.n_off, 0.2, signed=True)
    np.testing.assert_array_equal(significance, [signed[curve.index_of(one)] for one in start])
    # what is left out of any hundredth of the axis is no higher and no lower than what is kept around it
    whole = np.append(start[0], curve.scores)
    for low, high in pairwise(np.linspace(whole[0], whole[-1], 101)):
        inside = signed[(whole >= low) & (whole < high)]
        width = (whole[-1] - whole[0]) / 499
        kept = significance[(start >= low - width) & (start < high + width)]
        if len(inside):
            assert kept.max() >= inside.max()
            assert kept.min() <= inside.min()


@pytest.mark.parametrize("logarithmic", [False, True])
def test_selected_events_by_a_number(found, logarithmic):
    values = np.random.default_rng(0).lognormal(size=len(found.on))
    values[:50] = np.nan
    shown = histogram_by(found, values, logarithmic=logarithmic)
    known = found.selected & np.isfinite(values)
    for counts, mask in ((shown.on, known & found.on), (shown.off, known & ~found.on)):
        np.testing.assert_array_equal(counts, np.histogram(values[mask], shown.edges)[0])
    np.testing.assert_allclose(shown.background, shown.alpha * shown.off)
    assert histogram_by(found, np.full(len(values), 2.0)) is None


def test_threshold_steps_of_a_single_score():
    start, significance = threshold_steps(significance_curve([0, 1, 1], [0.3, 0.3, 0.3], 0.5))
    np.testing.assert_allclose(start, [-0.2, 0.3])
    assert significance[0] > 0 == significance[1]


@pytest.mark.parametrize("differ", [False, True])
def test_likelihood_bins_hold_every_judged_event_and_all_signal(found, differ):
    alpha = np.where(np.arange(len(found.on)) % 3 == 0, 0.1, 0.25) if differ else None
    detection = replace(found, event_alpha=alpha)
    shown = likelihood_bins(detection)
    uncut = detection.uncut
    assert (shown.n_on.sum(), shown.n_off.sum()) == (uncut.n_on, uncut.n_off)
    assert shown.n_selected.sum() == found.counts.n_on + found.counts.n_off
    assert shown.background.sum() == pytest.approx(uncut.background)
    assert shown.signal.sum() == pytest.approx(detection.likelihood.n_signal)
    held_out = np.flatnonzero(found.held_out)
    ratio, on = found.ratio[held_out], found.on[held_out]
    alphas = np.broadcast_to(found.alpha if alpha is None else alpha[held_out], len(on))
    for number, (low, high) in enumerate(pairwise(shown.edges)):
        own = (ratio > low) & (ratio <= high)
        if number == 0:
            own |= ratio == 0
        assert (shown.n_on[number], shown.n_off[number]) == ((own & on).sum(), (own & ~on).sum())
        assert shown.background_error[number] == pytest.approx(np.sqrt((alphas[own & ~on] ** 2).sum()))
        odds = detection.likelihood.strength * ratio[own]
        assert shown.signal[number] == pytest.approx((odds / (odds + alphas[own] + 1)).sum())
        values = np.unique(alphas[own])
        parts = [((own & on & (alphas == a)).sum(), (own & ~on & (alphas == a)).sum(), a) for a in values]
        counts = OnOffCounts.stack(parts)
        assert shown.significance[number] == pytest.approx(counts.significance)


def test_likelihood_bins_expect_the_same_signal_and_have_enough_events():
    rng = np.random.default_rng(0)
    ratio = np.where(rng.random(5000) < 0.3, 0.0, rng.exponential(size=5000))
    on = rng.random(5000) < (ratio + 0.5) / (ratio + 1.5)
    shown = likelihood_bins(made(on.tolist(), ratio.tolist(), statistic="likelihood", ratio=ratio))
    assert shown.edges[:2].tolist() == [0.0, 0.0]
    assert shown.n_on[0] + shown.n_off[0] == (ratio == 0).sum()
    assert shown.signal[0] == 0
    np.testing.assert_allclose(shown.signal[1:], shown.signal.sum() / 10, rtol=0.05)
    assert len(shown.n_on) == 11
    few = likelihood_bins(made(on[:70].tolist(), ratio[:70].tolist(), statistic="likelihood", ratio=ratio[:70]))
    assert 2 <= len(few.n_on) < 11
    assert (few.n_on + few.n_off)[1:].min() >= 20
    texts = shown.ticks()
    assert texts[0.0] == "0"
    assert len(set(texts.values())) == len(shown.n_on)


@pytest.mark.parametrize(
    ("on", "ratio", "n_bins"),
    [
        ([1, 0, 1, 0], [0.0, 0.0, 0.0, 0.0], 1),  # nothing has a weight
        ([1, 0, 1, 0], [2.0, 2.0, 2.0, 2.0], 1),
        ([1, 1, 0, 0], [3.0, 2.0, 0.0, 0.0], 2),  # no Off event has a weight: an infinite strength
        ([0, 0, 0, 1] * 30, [1.0, 2.0, 3.0, 0.1] * 30, 3),  # a deficit
    ],
)
def test_likelihood_bins_of_odd_events(on, ratio, n_bins):
    detection = made(on, ratio, statistic="likelihood", ratio=np.array(ratio))
    shown = likelihood_bins(detection)
    assert len(shown.n_on) == n_bins
    assert (shown.n_on.sum(), shown.n_off.sum()) == (sum(on), len(on) - sum(on))
    assert shown.signal.sum() == pytest.approx(detection.likelihood.n_signal)
    assert len(shown.ticks()) >= 1


def test_likelihood_bins_and_light_curve_say_what_is_missing(found):
    bare = replace(found, ratio=None, statistic="cut")
    with pytest.raises(ValueError, match=r"no likelihood ratios.*wrap the model in SignificanceThresholdClassifier"):
        likelihood_bins(bare)
    with pytest.raises(ValueError, match="no events were held out"):
        likelihood_bins(replace(found, fold=np.full(len(found.on), -1)))
    for case in (bare, replace(found, groups=None), replace(found, groups=np.zeros(len(found.on)))):
        with pytest.raises(ValueError, match="a light curve by group requires"):
            light_curve(case)


@pytest.mark.parametrize("timed", [True, False])
def test_light_curve_is_that_of_the_detection(found, timed):
    found = found if timed else replace(found, exposure=None)
    shown, frame = light_curve(found), found.groups_frame()
    assert shown.index.tolist() == frame.index.tolist()
    name = "rate" if timed else "relative_strength"
    for column, end in ((name.removeprefix("relative_"), ""), ("low", "_low"), ("high", "_high")):
        np.testing.assert_array_equal(shown[column], frame[f"{name}{end}"])
    # the mean over the groups is near the mean of all events
    mean = found.likelihood.n_signal / found.exposure.total if timed else 1
    assert shown["low"].min() < mean < shown["high"].max()
    unbound = replace(found, ratio=np.where(found.groups == frame.index[0], 0.0, found.ratio))
    assert light_curve(unbound).index.tolist() == frame.index.tolist()[1:]


def test_nights_are_shown_where_groups_are_something_else(found):
    assert has_light_curve(found)
    assert not has_light_curve(found, "night")  # groups are nights
    runs = np.array([f"run {i % 8}" for i in range(len(found.on))])
    nights = tuple(str(20131101 + i % 5) for i in range(8))
    exposure = Exposure("ontime", tuple(f"run {i}" for i in range(8)), nights, np.full(8, 0.5))
    by_run = replace(found, groups=runs, exposure=exposure)
    assert has_light_curve(by_run, "night")
    assert light_curve(by_run, "night").index.tolist() == list(found.counts_by_night)
    some = replace(by_run, exposure=Exposure("ontime", ("run 0",), ("",), np.array([0.5])))
    assert light_curve(some).index.tolist() == ["run 0"]


def test_features_are_in_the_order_of_their_importance(detections):
    found = detections["tree"]
    names = [one.feature for one in order_features(found)]
    assert names[0] == found.feature_names[int(found.importances.argmax())]
    assert sorted(names) == sorted(found.feature_names)
    assert [one.feature for one in order_features(replace(found, importances=None))] == list(found.feature_names)


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
def test_significance_over_time_has_the_error_of_alpha(found, statistic):
    plain = replace(found, statistic=statistic)
    values, tiny, wide = (
        significance_over_time(replace(plain, alpha_error=error), 8).significance for error in (None, 1e-6, 0.5)
    )
    np.testing.assert_allclose(tiny, values, rtol=1e-4, atol=1e-4)
    assert (np.abs(wide) <= np.abs(values) + 1e-6).all()
    assert wide[-1] < 0.9 * values[-1]
