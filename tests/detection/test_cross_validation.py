"""Cross-validation: folds, thresholds, permutations and what is refused."""

from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier, KFold, LeaveOneGroupOut, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_info

from excess import (
    OnOffCounts,
    OnOffForestClassifier,
    OnOffKMeansClassifier,
    OnOffKMeansEnsembleClassifier,
    OnOffTreeClassifier,
    SignificanceThresholdClassifier,
    cross_val_detect,
    supervised_reference,
)

SEEN: list[tuple[frozenset, tuple]] = []


class Recorder(ClassifierMixin, BaseEstimator):
    """Keeps which events, and with which labels, it was fitted on; X holds nothing but the event's number."""

    has_own_threshold = True

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        SEEN.append((frozenset(X[:, 0].astype(int).tolist()), tuple(y)))
        self.seen_ = SEEN[-1][0]
        return self

    def predict_proba(self, X):
        # an event that was trained on would be selected, and nothing else
        known = np.array([int(number) in self.seen_ for number in X[:, 0]], dtype=float)
        return np.column_stack([1 - known, known])

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


@pytest.fixture(scope="module")
def forest():
    return OnOffForestClassifier(20, max_depth=4, min_samples_leaf=10, random_state=0)


@pytest.fixture
def null_data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(600, 4)), (rng.random(600) < 1 / 3).astype(int), np.arange(600) % 5


def test_one_significance_over_all_hold_out_events(forest, noisy_data):
    X, y, groups, alpha = noisy_data.X, noisy_data.y, noisy_data.groups, noisy_data.alpha
    detection = cross_val_detect(forest, X, y, alpha=alpha, groups=groups)
    selected, score = np.zeros(len(y), dtype=bool), np.zeros(len(y))
    for group in range(6):
        model = OnOffForestClassifier(20, alpha, max_depth=4, min_samples_leaf=10, random_state=0)
        model.fit(X[groups != group], y[groups != group])
        selected[groups == group] = model.predict(X[groups == group]) == 1
        score[groups == group] = model.predict_proba(X[groups == group])[:, 1]
        assert detection.folds[group].threshold == model.threshold_
        assert detection.folds[group].tuned == model.tuned_counts_
    np.testing.assert_array_equal(detection.selected, selected)
    np.testing.assert_array_equal(detection.score, score)
    np.testing.assert_array_equal(detection.fold, groups)
    n_on = int((selected & (y == 1)).sum())
    assert detection.counts == OnOffCounts(n_on, int(selected.sum()) - n_on, alpha)
    assert detection.repeats["cut"].tolist() == [detection.counts.significance]
    assert sum(detection.counts_by_group.values()).significance == pytest.approx(detection.counts.significance)
    assert detection.curve.at(0.5) == OnOffCounts(
        int(((score > 0.5) & (y == 1)).sum()), int(((score > 0.5) & (y == 0)).sum()), alpha
    )
    assert detection.feasible
    assert "learned it from these labels" in detection.verdict
    assert detection.uncut == OnOffCounts(int((y == 1).sum()), int((y == 0).sum()), alpha)


@pytest.mark.parametrize("strategy", ["pooled", "forward"])
def test_weights_of_events_in_training(forest, noisy_data, strategy):
    X, y, alpha = noisy_data.X, noisy_data.y, noisy_data.alpha
    settings = {"alpha": alpha, "strategy": strategy, "cv": 3, "random_state": 0, "return_estimator": True}
    models = {"forest": forest, "tree": OnOffTreeClassifier(max_depth=3), "plain": LogisticRegression()}
    weights = np.where(np.arange(len(y)) % 2, 0.5, 1.0)
    found, equal, without = (
        cross_val_detect(models, X, y, sample_weight=own, **settings) for own in (weights, np.ones(len(y)), None)
    )
    for name in models:
        np.testing.assert_array_equal(equal[name].ratio, without[name].ratio)
        assert not np.array_equal(found[name].ratio, without[name].ratio)
        assert found[name].uncut == without[name].uncut  # hold-out events count once each
    if strategy == "pooled":
        train = found["tree"].fold != 0
        tree = OnOffTreeClassifier(alpha, max_depth=3, random_state=found["tree"].estimators[0].random_state)
        tree.fit(X[train], y[train], sample_weight=weights[train])
        np.testing.assert_array_equal(tree.predict_proba(X), found["tree"].estimators[0].predict_proba(X))


def test_weights_that_a_classifier_does_not_take(noisy_data):
    with pytest.raises(TypeError, match="sample_weight was passed, but Recorder"):
        cross_val_detect(
            Recorder(), noisy_data.X, noisy_data.y, alpha=1.0, sample_weight=np.ones(len(noisy_data.y)), statistic="cut"
        )
    with pytest.raises(ValueError, match="sample_weight"):
        cross_val_detect(OnOffTreeClassifier(), noisy_data.X, noisy_data.y, alpha=1.0, sample_weight=[1.0])


def test_frames(forest, noisy_data):
    detection = cross_val_detect(
        forest, noisy_data.X, noisy_data.y, alpha=noisy_data.alpha, groups=noisy_data.groups, random_state=0
    )
    events, folds, groups = detection.to_frame(), detection.folds_frame(), detection.groups_frame()
    assert list(events) == ["on", "score", "selected", "fold", "ratio", "group"]
    assert len(events) == len(noisy_data.y)
    assert (folds["n_train"] + folds["n_held_out"] == len(noisy_data.y)).all()
    assert folds["n_on"].sum() == groups["n_on"].sum() == detection.counts.n_on
    # tuned on 5/6 of the events, judged on 1/6
    np.testing.assert_allclose(folds["expected"], folds["tuned_significance"] / 5**0.5)
    assert set(pd.DataFrame([detection.summary()])) >= {"significance", "p_value", "n_on", "n_off"}


@pytest.mark.parametrize("strategy", ["pooled", "forward"])
@pytest.mark.parametrize("cv", [None, 3])
@pytest.mark.parametrize("with_groups", [True, False])
def test_hold_out_events_never_reach_training(strategy, cv, with_groups):
    SEEN.clear()
    rng = np.random.default_rng(0)
    X, y, groups = np.arange(300)[:, None].astype(float), rng.integers(0, 2, 300), rng.integers(0, 6, 300)
    detection = cross_val_detect(
        Recorder(), X, y, alpha=1.0, groups=groups if with_groups else None, cv=cv, strategy=strategy, n_repeats=2
    )
    trained = np.isfinite(detection.score)
    assert not detection.selected[trained].any()  # the recorder selects what it was trained on
    n_folds = cv or (20 if strategy == "forward" else 6 if with_groups else 5)
    assert len(detection.folds) == n_folds
    # blocks with fewer than 20 On or Off events before them have no model
    n_models = sum(fold.n_train > 0 for fold in detection.folds)
    assert len(SEEN) == 2 * n_models
    if strategy == "pooled":
        assert n_models == n_folds
        return
    order = np.argsort(groups, kind="stable") if with_groups else np.arange(300)
    place = np.argsort(order)
    assert (np.diff(detection.fold[order]) >= 0).all()
    models = (number for number, fold in enumerate(detection.folds) if fold.n_train > 0)
    for number, (seen, _) in zip(models, SEEN, strict=False):
        assert place[list(map(int, seen))].max() < place[detection.fold == number].min()


@pytest.mark.slow
def test_threshold_is_tuned_on_training_events_alone(noisy_data):
    """Labels of the hold-out are turned round; nothing that a model says about it may change."""
    X, y, groups = noisy_data.X, noisy_data.y, noisy_data.groups
    shallow = DecisionTreeClassifier(max_depth=3)
    models = {
        "forest": OnOffForestClassifier(10, min_samples_leaf=20, random_state=0),
        "folds": SignificanceThresholdClassifier(LogisticRegression(), cv=3),
        "k-means": OnOffKMeansEnsembleClassifier(5, 10, random_state=0),
        "reference": supervised_reference(X[:500], noisy_data.clean[:500], estimator=shallow),
    }
    turned = np.where(groups == 2, 1 - y, y)
    honest = cross_val_detect(models, X, y, alpha=noisy_data.alpha, groups=groups, random_state=0)
    other = cross_val_detect(models, X, turned, alpha=noisy_data.alpha, groups=groups, random_state=0)
    for name in models:
        held_out = groups == 2
        np.testing.assert_array_equal(honest[name].score[held_out], other[name].score[held_out])
        np.testing.assert_array_equal(honest[name].selected[held_out], other[name].selected[held_out])
        assert honest[name].thresholds[2] == other[name].thresholds[2]
        assert (honest[name].thresholds[:2] != other[name].thresholds[:2]).any()


def test_groups_reach_the_threshold_that_is_tuned_by_folds(noisy_data):
    X, y, groups = noisy_data.X, noisy_data.y, noisy_data.groups
    model = SignificanceThresholdClassifier(LogisticRegression(), noisy_data.alpha, cv=5)
    detection = cross_val_detect(model, X, y, alpha=noisy_data.alpha, groups=groups)
    train = groups != 0
    assert detection.thresholds[0] == model.fit(X[train], y[train], groups=groups[train]).threshold_


def test_alpha_reaches_on_off_classifiers_and_no_others(noisy_data):
    X, y = noisy_data.X, noisy_data.y
    sgd = SGDClassifier(alpha=0.01, random_state=0)
    model = make_pipeline(StandardScaler(), SignificanceThresholdClassifier(sgd, alpha=99.0, cv=3))
    detection = cross_val_detect(model, X, y, alpha=noisy_data.alpha, random_state=0)
    assert detection.folds[0].tuned.alpha == noisy_data.alpha
    assert model[-1].alpha == 99.0  # the given object stays as it is
    assert np.isfinite(detection.thresholds).all()


def test_forward_counts_events_before_the_first_model(forest, noisy_data):
    X, y, groups = noisy_data.X, noisy_data.y, noisy_data.groups
    detection = cross_val_detect(forest, X, y, alpha=noisy_data.alpha, groups=groups, strategy="forward")
    first = detection.fold == 0
    np.testing.assert_array_equal(np.isnan(detection.score), first)
    assert detection.selected[first].all()
    assert (detection.ratio[first] == 1).all()
    assert detection.uncut.n_on == int((y == 1).sum())
    assert len(detection.folds) == 20


def test_forward_ignores_the_future(forest, noisy_data):
    X, y = noisy_data.X, noisy_data.y
    time = np.random.default_rng(0).random(len(y))
    shared = {"alpha": noisy_data.alpha, "time": time, "strategy": "forward"}
    one = cross_val_detect(forest, X, y, **shared)
    late = one.fold >= 12
    two = cross_val_detect(forest, X, np.where(late, 1 - y, y), **shared)
    np.testing.assert_array_equal(one.score[one.fold <= 12], two.score[one.fold <= 12])
    assert not np.array_equal(one.score[one.fold == 13], two.score[one.fold == 13])
    assert time[one.fold == 3].max() < time[one.fold == 4].min()


def test_forward_blocks_do_not_split_runs(noisy_data):
    tree, n = OnOffTreeClassifier(max_depth=3), len(noisy_data.y)
    runs = np.arange(n) * 45 // n
    found = cross_val_detect(tree, noisy_data.X, noisy_data.y, alpha=1.0, runs=runs, strategy="forward")
    assert all(len(np.unique(found.fold[runs == run])) == 1 for run in range(45))
    few = np.arange(n) * 15 // n  # fewer than blocks, so they are split
    found = cross_val_detect(tree, noisy_data.X, noisy_data.y, alpha=1.0, runs=few, strategy="forward")
    assert len(found.folds) == 20


def test_forward_blocks_of_on_and_off_at_different_times_are_drawn(noisy_data):
    tree = OnOffTreeClassifier(max_depth=3)
    time = np.where(noisy_data.y == 1, 0.0, 1.0) + np.linspace(0, 0.5, len(noisy_data.y))
    found = cross_val_detect(tree, noisy_data.X, noisy_data.y, alpha=1.0, time=time, strategy="forward")
    assert any("at random" in remark for remark in found.remarks)
    n_on = np.bincount(found.fold[found.on], minlength=20)
    assert n_on.min() > 0.5 * n_on.mean()


def test_several_estimators_share_the_folds(forest, noisy_data):
    models = {"forest": forest, "tree": OnOffTreeClassifier(max_depth=3), "k-means": OnOffKMeansClassifier(8)}
    found = cross_val_detect(models, noisy_data.X, noisy_data.y, alpha=noisy_data.alpha, random_state=1)
    assert list(found) == list(models)
    for detection in found.values():
        np.testing.assert_array_equal(detection.fold, found["forest"].fold)
    alone = cross_val_detect(forest, noisy_data.X, noisy_data.y, alpha=noisy_data.alpha, random_state=1)
    np.testing.assert_array_equal(alone.score, found["forest"].score)


def test_repeats_give_a_spread_and_the_median_is_the_result(noisy_data):
    model = OnOffKMeansClassifier(12, random_state=0)
    detection = cross_val_detect(
        model, noisy_data.X, noisy_data.y, alpha=noisy_data.alpha, groups=noisy_data.groups, n_repeats=5, random_state=0
    )
    assert len(np.unique(detection.significances)) == 5
    assert detection.significance == np.median(detection.significances)
    assert detection.spread == pytest.approx(np.std(detection.significances, ddof=1))
    single = cross_val_detect(model, noisy_data.X, noisy_data.y, alpha=noisy_data.alpha, groups=noisy_data.groups)
    assert np.isnan(single.spread)
    assert single.significance == detection.significances[0]  # the first repetition keeps the seeds it was given


@pytest.mark.slow
def test_same_result_on_any_number_of_threads(noisy_data):
    model = {"forest": OnOffForestClassifier(10, min_samples_leaf=20), "k-means": OnOffKMeansClassifier(8)}
    found = [
        cross_val_detect(
            model,
            noisy_data.X,
            noisy_data.y,
            alpha=noisy_data.alpha,
            n_repeats=2,
            n_permutations=3,
            n_jobs=n_jobs,
            random_state=5,
        )
        for n_jobs in (None, 2, 4)
    ]
    for other in found[1:]:
        for name in model:
            np.testing.assert_array_equal(other[name].score, found[0][name].score)
            np.testing.assert_array_equal(other[name].significances, found[0][name].significances)
            for statistic in ("likelihood", "cut"):
                np.testing.assert_array_equal(
                    other[name].permutations[statistic], found[0][name].permutations[statistic]
                )


def test_permutations_stay_within_groups(null_data):
    SEEN.clear()
    _, y, groups = null_data
    X = np.arange(len(y))[:, None].astype(float)
    cross_val_detect(Recorder(), X, y, alpha=0.5, groups=groups, n_permutations=4, random_state=0)
    labels = set()
    for seen, given in SEEN[5:]:
        numbers = sorted(seen)
        for group in set(groups[numbers].tolist()):
            inside = groups[numbers] == group
            assert np.sum(np.array(given)[inside]) == y[groups == group].sum()
        labels.add(given)
    assert len(labels) == 4 * 5


def test_permutation_p_value(noisy_data, null_data):
    tree = OnOffTreeClassifier(max_depth=3)
    strong = cross_val_detect(
        tree, noisy_data.X, noisy_data.y, alpha=noisy_data.alpha, n_permutations=19, random_state=0
    )
    assert strong.permutation_p_value == 1 / 20
    assert "permutation p-value 0.05 (19 permutations)" in str(strong)
    X, y, groups = null_data
    weak = cross_val_detect(tree, X, y, alpha=0.5, groups=groups, n_permutations=19, random_state=0)
    for statistic, p_value in weak.permutation_p_values.items():
        assert p_value == (1 + np.sum(weak.permutations[statistic] >= weak.contrasts[statistic])) / 20
    assert weak.permutation_p_value == weak.permutation_p_values["likelihood"]
    assert np.isnan(cross_val_detect(tree, X, y, alpha=0.5, random_state=0).permutation_p_value)


@pytest.mark.campaign
def test_permutation_p_values_without_a_source(forest):
    """One data set in twenty has the smallest p-value by chance, so one alone is no evidence."""
    p_values = []
    for seed in range(100, 106):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(600, 4)), (rng.random(600) < 1 / 3).astype(int)
        groups = np.arange(600) % 5
        weak = cross_val_detect(forest, X, y, alpha=0.5, groups=groups, n_permutations=19, random_state=0)
        p_values += weak.permutation_p_values.values()
    assert np.mean(p_values) > 0.25


@pytest.mark.campaign
def test_null_data_are_calibrated():
    """A small version of `python -m studies.paper calibration`, with bounds that a biased procedure breaks."""
    p_values, forward = [], []
    model = OnOffTreeClassifier(max_depth=2, min_samples_leaf=10)
    n_sets = 60
    for number in range(n_sets):
        rng = np.random.default_rng(number)
        X, y, groups = rng.normal(size=(300, 3)), rng.random(300) < 1 / 3, rng.integers(0, 4, 300)
        shared = {"alpha": 0.5, "groups": groups, "random_state": number}
        p_values.append(cross_val_detect(model, X, y, n_permutations=9, **shared).permutation_p_value)
        forward.append(cross_val_detect(model, X, y, strategy="forward", **shared).significance)
    assert 0.4 < np.mean(p_values) < 0.65
    assert np.mean(np.array(p_values) <= 0.1) < 0.1 + 3 * (0.1 * 0.9 / n_sets) ** 0.5
    assert abs(np.mean(forward)) < 3.5 / n_sets**0.5
    assert 0.75 < np.std(forward) < 1.25


def test_a_leak_in_the_permutation_loop_would_show(null_data):
    """A classifier that knows the labels by another way is not calibrated: the test above can fail."""
    X, y, groups = null_data
    leaky = np.column_stack([X, y + 0.1 * X[:, 0]])
    found = cross_val_detect(
        OnOffTreeClassifier(max_depth=1), leaky, y, alpha=0.5, groups=groups, n_permutations=19, random_state=0
    )
    assert found.permutation_p_value == 1 / 20
    assert found.significance > 10


def test_a_fixed_threshold_is_kept(noisy_data):
    model = FixedThresholdClassifier(LogisticRegression())
    detection = cross_val_detect(model, noisy_data.X, noisy_data.y, alpha=noisy_data.alpha, cv=KFold(4))
    np.testing.assert_array_equal(detection.selected, detection.score > 0.5)
    assert np.isnan(detection.thresholds).all()
    assert all(fold.tuned is None for fold in detection.folds)
    assert detection.folds_frame()["tuned_significance"].isna().all()
    assert detection.remarks == ()


def test_string_labels_and_data_frames(forest, noisy_data):
    labels = np.where(noisy_data.y == 1, "On", "Off")
    frame = pd.DataFrame(noisy_data.X, columns=list("abcdefgh"))
    shared = {"alpha": noisy_data.alpha, "groups": noisy_data.groups}
    found = cross_val_detect(forest, frame, pd.Series(labels), **shared)
    expected = cross_val_detect(forest, noisy_data.X, noisy_data.y, **shared)
    assert found.counts == expected.counts


def test_a_group_without_on_events_is_judged(forest, noisy_data):
    y = np.where(noisy_data.groups == 3, 0, noisy_data.y)
    detection = cross_val_detect(forest, noisy_data.X, y, alpha=noisy_data.alpha, groups=noisy_data.groups)
    assert detection.counts_by_group[3].n_on == 0
    assert detection.held_out.all()


def test_nothing_selected_is_no_detection():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), (np.arange(400) % 10 == 0).astype(int)
    model = OnOffForestClassifier(5, min_samples_leaf=50, random_state=0)
    detection = cross_val_detect(model, X, y, alpha=5.0, random_state=0, statistic="cut")
    assert detection.significance == 0.0
    assert detection.p_value == 0.5
    assert "no event was selected" in replace(detection, alpha=1 / 9).verdict
    assert "a deficit of 32.3 sigma" in detection.verdict
    assert not detection.feasible


def test_required_significance_decides(forest, noisy_data):
    shared = {"alpha": noisy_data.alpha, "random_state": 0}
    detection = cross_val_detect(forest, noisy_data.X, noisy_data.y, required_significance=1000.0, **shared)
    assert not detection.feasible
    assert "1000 required: no detection" in detection.verdict


class Scoreless(ClassifierMixin, BaseEstimator):
    has_own_threshold = True

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


class NanScores(Scoreless):
    def predict_proba(self, X):
        return np.full((len(X), 2), np.nan)


@pytest.mark.parametrize(
    ("options", "error", "argument"),
    [
        ({"groups": np.zeros(600)}, ValueError, "groups"),
        ({"groups": np.zeros(3)}, ValueError, "groups"),
        ({"groups": np.arange(600) % 5, "cv": 6}, ValueError, "cv"),
        ({"cv": 601}, ValueError, "cv"),
        ({"cv": 1}, ValueError, "cv"),
        ({"cv": LeaveOneGroupOut()}, ValueError, "groups"),
        ({"cv": ShuffleSplit(3)}, ValueError, "cv"),
        ({"cv": KFold(3).split(np.zeros(600)), "groups": np.arange(600) % 5}, ValueError, "group"),
        ({"cv": KFold(3), "strategy": "forward"}, ValueError, "cv"),
        ({"strategy": "backward"}, ValueError, "strategy"),
        ({"alpha": 0.0}, ValueError, "alpha"),
        ({"n_repeats": 0}, ValueError, "n_repeats"),
        ({"n_permutations": -1}, ValueError, "n_permutations"),
        ({"n_jobs": 0}, ValueError, "n_jobs"),
        ({"required_significance": -1}, ValueError, "required_significance"),
        ({"y": np.zeros(600)}, ValueError, "y"),
        ({"y": np.zeros(5)}, ValueError, "y"),
        ({"estimator": Scoreless()}, TypeError, "estimator"),
        ({"estimator": NanScores()}, ValueError, "estimator"),
        ({"estimator": {}}, ValueError, "estimator"),
        ({"estimator": OnOffTreeClassifier}, TypeError, "estimator"),
        ({"estimator": OnOffKMeansClassifier(500)}, ValueError, "n_clusters"),
        ({"groups": np.repeat([0, 1], 300), "y": np.repeat([0, 1], 300)}, ValueError, "groups"),
    ],
)
def test_bad_input(options, error, argument, null_data):
    X, y, _ = null_data
    given = {"estimator": OnOffTreeClassifier(max_depth=2), "X": X, "y": y, "alpha": 0.5, **options}
    with pytest.raises(error, match=argument):
        cross_val_detect(given.pop("estimator"), given.pop("X"), given.pop("y"), **given)


def test_progress_is_shown(forest, null_data, capsys):
    X, y, _ = null_data
    cross_val_detect(forest, X, y, alpha=0.5, n_permutations=1, random_state=0, verbose=1)
    assert "10/10" in capsys.readouterr().err


def test_forward_with_a_threshold_tuned_by_folds(noisy_data):
    """The first model has one group to train on, which cannot be left out."""
    model = SignificanceThresholdClassifier(LogisticRegression(), cv=3)
    shared = {"alpha": noisy_data.alpha, "groups": noisy_data.groups, "strategy": "forward"}
    assert cross_val_detect(model, noisy_data.X, noisy_data.y, **shared).feasible


def test_verdict_says_when_no_cut_is_as_good():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 2)), np.r_[np.ones(1200), np.zeros(800)]
    found = cross_val_detect(OnOffTreeClassifier(max_depth=2), X, rng.permutation(y), alpha=1.0, random_state=0)
    assert found.significance > 5
    assert not found.feasible
    assert "the features do not separate it from background" in found.verdict


def test_dates_as_groups(forest, noisy_data):
    dates = np.datetime64("2013-11-01", "ns") + noisy_data.groups * np.timedelta64(1, "D")
    found = cross_val_detect(forest, noisy_data.X, noisy_data.y, alpha=noisy_data.alpha, groups=dates)
    assert sum(found.counts_by_group.values()) == found.counts
    assert np.datetime64("2013-11-02", "ns") in found.counts_by_group


def test_nothing_of_the_process_changes(noisy_data):
    """Threads share warning filters and the threads of linear algebra."""
    before = warnings.filters.copy(), [entry["num_threads"] for entry in threadpool_info()]
    model = OnOffKMeansEnsembleClassifier(8, 16, 1.0, n_jobs=4, random_state=0).fit(noisy_data.X, noisy_data.y)
    model.predict(noisy_data.X)
    many = OnOffKMeansClassifier(16, random_state=0)
    cross_val_detect(many, noisy_data.X, noisy_data.y, alpha=1.0, n_jobs=3, random_state=0)
    assert (warnings.filters, [entry["num_threads"] for entry in threadpool_info()]) == before


@pytest.mark.slow
def test_a_failing_model_ends_the_others():
    code = (
        "import numpy as np; from excess import OnOffForestClassifier, cross_val_detect\n"
        "rng = np.random.default_rng(0); X = rng.normal(size=(400, 4)); y = np.r_[np.ones(80), np.zeros(320)]\n"
        "rng.shuffle(y)\n"
        "forest = OnOffForestClassifier(20, min_samples_leaf=0, random_state=0)\n"
        "more = dict(strategy='forward', n_permutations=99, n_jobs=4, random_state=0)\n"
        "try: cross_val_detect(forest, X, y, alpha=0.1, **more)\n"
        "except ValueError: print('raised')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "raised"), done.stderr
