"""The classifier that tunes its threshold: where its scores come from, and what it refuses."""

import functools

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.ensemble import BaggingClassifier, ExtraTreesClassifier, RandomForestClassifier, StackingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.metrics import f1_score, get_scorer
from sklearn.model_selection import (
    GroupKFold,
    LeaveOneGroupOut,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from excess import (
    THRESHOLD_METHODS,
    SignificanceThresholdClassifier,
    menon_threshold,
    significance_curve,
    significance_threshold,
)


class Recorder(ClassifierMixin, BaseEstimator):
    """Scores events by their first feature and records which events it was trained on and scored."""

    seen: list = []  # noqa: RUF012  (shared on purpose: clones report to it)

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        Recorder.seen.append(("fit", X[:, -1].copy(), sample_weight))
        return self

    def decision_function(self, X):
        Recorder.seen.append(("score", X[:, -1].copy(), None))
        return X[:, 0]

    def predict(self, X):
        return self.classes_[(X[:, 0] > 0).astype(int)]


class NearestCentroidLike(ClassifierMixin, BaseEstimator):
    """Predicts, but does not score."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.classes_[(X[:, 0] > 0).astype(int)]


@pytest.fixture
def recorded(noisy_data):
    """The data with the number of the event as last feature, and a fresh record."""
    Recorder.seen = []
    X = np.column_stack([noisy_data.X, np.arange(len(noisy_data.y))])
    yield noisy_data._replace(X=X)
    Recorder.seen = []


@pytest.fixture(scope="module")
def out_of_fold_scores(noisy_data):
    """Scores of three folds, by scikit-learn."""
    folds = StratifiedKFold(3)
    return cross_val_predict(LogisticRegression(), noisy_data.X, noisy_data.y, cv=folds, method="predict_proba")[:, 1]


def test_out_of_fold_scores_are_pooled(noisy_data, out_of_fold_scores):
    model = SignificanceThresholdClassifier(LogisticRegression(), noisy_data.alpha, cv=3)
    model.fit(noisy_data.X, noisy_data.y)
    curve = significance_curve(noisy_data.y, out_of_fold_scores, noisy_data.alpha)
    assert model.threshold_ == curve.best_threshold
    assert model.best_significance_ == curve.significance.max()
    np.testing.assert_array_equal(model.curve_.thresholds, curve.thresholds)
    refitted = LogisticRegression().fit(noisy_data.X, noisy_data.y)
    np.testing.assert_array_equal(model.predict_proba(noisy_data.X), refitted.predict_proba(noisy_data.X))
    selected = refitted.predict_proba(noisy_data.X)[:, 1] > model.threshold_
    np.testing.assert_array_equal(model.predict(noisy_data.X), selected.astype(int))


def test_it_beats_the_default_threshold_on_clean_labels(noisy_data):
    X, y, clean = noisy_data.X, noisy_data.y, noisy_data.clean
    forest = RandomForestClassifier(100, min_samples_leaf=10, random_state=0)
    tuned = SignificanceThresholdClassifier(forest, noisy_data.alpha, cv="oob").fit(X[::2], y[::2])
    plain = forest.fit(X[::2], y[::2])
    assert f1_score(clean[1::2], tuned.predict(X[1::2])) > f1_score(clean[1::2], plain.predict(X[1::2])) + 0.1


@pytest.mark.parametrize(
    "forest",
    [
        RandomForestClassifier(30, random_state=0),
        RandomForestClassifier(30, oob_score=True, random_state=0),
        BaggingClassifier(DecisionTreeClassifier(max_depth=3), 30, random_state=0),
    ],
)
def test_out_of_bag_scores(forest, noisy_data):
    X, y = noisy_data.X[:1000], noisy_data.y[:1000]
    model = SignificanceThresholdClassifier(forest, noisy_data.alpha, cv="oob").fit(X, y)
    score = model.estimator_.oob_decision_function_[:, 1]
    assert model.threshold_ == significance_threshold(y, score, noisy_data.alpha)
    assert not hasattr(forest, "estimators_")


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
def test_events_that_were_never_out_of_bag_are_left_out(noisy_data):
    model = SignificanceThresholdClassifier(RandomForestClassifier(3, random_state=0), cv="oob", alpha=1.0)
    model.fit(noisy_data.X, noisy_data.y)
    n_scored = (model.estimator_.oob_decision_function_.sum(axis=1) > 0).sum()
    assert model.curve_.n_on[0] + model.curve_.n_off[0] == n_scored < len(noisy_data.y)


def test_prefit_uses_the_given_estimator_as_it_is(noisy_data):
    X, y = noisy_data.X, noisy_data.y
    fitted = LogisticRegression().fit(X[:1500], y[:1500])
    before = fitted.coef_.copy()
    model = SignificanceThresholdClassifier(fitted, noisy_data.alpha, cv="prefit").fit(X[1500:], y[1500:])
    assert model.estimator_ is fitted
    np.testing.assert_array_equal(fitted.coef_, before)
    score = fitted.predict_proba(X[1500:])[:, 1]
    assert model.threshold_ == significance_threshold(y[1500:], score, noisy_data.alpha)


def test_decision_function_is_used_without_probabilities(noisy_data):
    model = SignificanceThresholdClassifier(LinearSVC(), noisy_data.alpha).fit(noisy_data.X, noisy_data.y)
    assert not hasattr(model, "predict_proba")
    selected = model.decision_function(noisy_data.X) > model.threshold_
    np.testing.assert_array_equal(model.predict(noisy_data.X) == 1, selected)


def test_no_event_is_scored_by_a_model_that_was_trained_on_it(recorded):
    SignificanceThresholdClassifier(Recorder(), recorded.alpha, cv=5).fit(recorded.X, recorded.y)
    *folds, last = Recorder.seen
    assert last[0] == "fit"  # on all events, after the tuning
    assert len(last[1]) == len(recorded.y)
    scored = []
    for (what_fit, trained, _), (what_score, held_out, _) in zip(folds[::2], folds[1::2], strict=True):
        assert (what_fit, what_score) == ("fit", "score")
        assert not set(trained) & set(held_out)
        scored.extend(held_out)
    assert sorted(scored) == list(range(len(recorded.y)))


@pytest.mark.parametrize("cv", [3, None, LeaveOneGroupOut(), GroupKFold(2)])
def test_groups_are_never_split(recorded, cv):
    SignificanceThresholdClassifier(Recorder(), cv=cv, alpha=1.0).fit(recorded.X, recorded.y, groups=recorded.groups)
    folds = Recorder.seen[:-1]
    for (_, trained, _), (_, held_out, _) in zip(folds[::2], folds[1::2], strict=True):
        groups = [set(recorded.groups[rows.astype(int)]) for rows in (trained, held_out)]
        assert not groups[0] & groups[1]


def test_groups_reach_the_splitter_by_metadata_routing(recorded):
    with sklearn.config_context(enable_metadata_routing=True):
        inner = Recorder().set_fit_request(sample_weight=True)
        model = SignificanceThresholdClassifier(inner, cv=LeaveOneGroupOut(), alpha=1.0)
        cross_validate(
            model,
            recorded.X,
            recorded.y,
            cv=GroupKFold(2),
            params={"groups": recorded.groups, "sample_weight": np.arange(3000.0)},
            scoring=get_scorer("accuracy").set_score_request(sample_weight=False),
        )
    fits = [(rows, weight) for what, rows, weight in Recorder.seen if what == "fit"]
    assert len(fits) == 2 * (3 + 1)  # two outer folds, each with three groups left, and the final fit
    for rows, weight in fits:
        np.testing.assert_array_equal(rows, weight)  # weights stay with their events


def test_fit_parameters_reach_the_estimator(recorded):
    SignificanceThresholdClassifier(Recorder(), cv=2, alpha=1.0).fit(
        recorded.X, recorded.y, sample_weight=np.arange(3000.0)
    )
    for rows, weight in [(rows, weight) for what, rows, weight in Recorder.seen if what == "fit"]:
        np.testing.assert_array_equal(rows, weight)


@pytest.mark.parametrize(
    "method",
    [
        "f1",
        "menon",
        "mithal",
        "yao",
        "default",
        functools.partial(menon_threshold, metric="accuracy"),
        functools.partial(menon_threshold, p_plus=0.1),
        functools.partial(menon_threshold, estimate_p_minus=True),
    ],
)
def test_other_rules(method, noisy_data, out_of_fold_scores):
    X, y, alpha = noisy_data.X, noisy_data.y, noisy_data.alpha
    model = SignificanceThresholdClassifier(LogisticRegression(), alpha, method=method, cv=3).fit(X, y)
    rule = THRESHOLD_METHODS[method] if isinstance(method, str) else method
    assert model.threshold_ == rule(y, out_of_fold_scores, alpha)
    assert model.best_significance_ == pytest.approx(max(model.curve_.at(model.threshold_).significance, 0.0))


def test_bootstrap_follows_its_seed_and_number(noisy_data):
    def threshold(n_bootstrap, seed):
        model = SignificanceThresholdClassifier(
            LogisticRegression(), cv=2, n_bootstrap=n_bootstrap, random_state=seed, alpha=1.0
        )
        return model.fit(noisy_data.X, noisy_data.y).threshold_

    assert threshold(11, 1) == threshold(11, 1)
    assert len({threshold(1, seed) for seed in range(5)}) > 1


@pytest.mark.slow
def test_same_result_on_any_number_of_jobs(noisy_data):
    thresholds = {
        SignificanceThresholdClassifier(LogisticRegression(), n_jobs=n_jobs, alpha=1.0)
        .fit(noisy_data.X, noisy_data.y)
        .threshold_
        for n_jobs in (None, 1, 2)
    }
    assert len(thresholds) == 1


def test_any_two_classes_frames_and_pipelines(noisy_data):
    names = np.array(["Off", "On"])
    frame = pd.DataFrame(noisy_data.X).add_prefix("feature_")
    model = SignificanceThresholdClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()), noisy_data.alpha
    ).fit(frame, pd.Series(names[noisy_data.y]))
    assert list(model.classes_) == ["Off", "On"]
    assert list(model.feature_names_in_) == list(frame.columns)
    numbers = SignificanceThresholdClassifier(
        make_pipeline(StandardScaler(), LogisticRegression()), noisy_data.alpha
    ).fit(noisy_data.X, noisy_data.y)
    assert model.threshold_ == pytest.approx(numbers.threshold_)
    np.testing.assert_array_equal(model.predict(frame), names[numbers.predict(noisy_data.X)])


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"alpha": 0}, ValueError, "alpha must be positive, got 0"),
        ({"alpha": None}, ValueError, "alpha is missing"),
        ({"method": "lima"}, ValueError, "method must be one of 'significance'"),
        ({"cv": "loo"}, ValueError, "cv must be 'oob', 'prefit', a number or a splitter, got 'loo'"),
        ({"cv": LeaveOneGroupOut()}, ValueError, r"groups are required by cv=LeaveOneGroupOut\(\)"),
        ({"cv": [(np.arange(3000), np.arange(3000))]}, ValueError, "training and hold-out events must be disjoint"),
        ({"cv": []}, ValueError, "cv must test every event exactly once"),
        ({"cv": 1}, ValueError, "cv=1 cannot split these events"),
        ({"cv": StratifiedKFold}, ValueError, "cv=.* cannot split these events"),
        ({"random_state": "seed"}, ValueError, "random_state must be an integer"),
        ({"estimator": LogisticRegression}, TypeError, "got the class LogisticRegression"),
        ({"estimator": Perceptron(), "method": "menon"}, ValueError, r"score must be in \[0, 1\]"),
        (
            {"estimator": NearestCentroidLike()},
            TypeError,
            "must have predict_proba or .* NearestCentroidLike has neither",
        ),
        ({"estimator": ExtraTreesClassifier(5), "cv": "oob"}, ValueError, "cv='oob' requires an estimator that draws"),
        ({"cv": ShuffleSplit(2)}, ValueError, "cv must test every event exactly once"),
        ({"cv": "oob"}, ValueError, "cv='oob' requires out-of-bag scores, which LogisticRegression lacks"),
        ({"cv": "prefit"}, NotFittedError, "estimator must be fitted before"),
        ({"n_bootstrap": -2}, ValueError, "n_bootstrap must be at least 0"),
        ({"method": "menon", "n_bootstrap": 2}, ValueError, "bootstrap resamples require method 'significance'"),
        ({"method": "menon", "estimator": LinearSVC()}, ValueError, r"score must be in \[0, 1\]"),
        ({"estimator": StandardScaler()}, TypeError, "estimator must be a classifier, got StandardScaler"),
    ],
)
def test_bad_parameters(parameters, error, message, noisy_data):
    model = SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).set_params(**parameters)
    with pytest.raises(error, match=message):
        model.fit(noisy_data.X, noisy_data.y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.arange(60) % 3, "Only binary classification is supported.*y is multiclass"),
        (np.ones(60), "y contains one class only"),
        (np.arange(59) % 2, "X and y must have the same length"),
        (np.linspace(0, 1, 60), "Unknown label type: continuous"),
    ],
)
def test_bad_labels(y, message):
    with pytest.raises(ValueError, match=message):
        SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).fit(np.zeros((60, 2)), y)


@pytest.mark.parametrize("cv", ["oob", "prefit"])
def test_groups_that_cannot_be_honoured_are_refused(cv, noisy_data):
    model = SignificanceThresholdClassifier(RandomForestClassifier(5), cv=cv, alpha=1.0)
    with pytest.raises(ValueError, match=f"groups are not supported with cv='{cv}'"):
        model.fit(noisy_data.X, noisy_data.y, groups=noisy_data.groups)


HALVES = [(np.arange(1500), np.arange(1500, 3000)), (np.arange(1500, 3000), np.arange(1500))]


@pytest.mark.parametrize("cv", [StratifiedKFold(3), HALVES])
@pytest.mark.filterwarnings("ignore:The groups parameter is ignored")
def test_folds_that_split_groups_are_refused(cv, noisy_data):
    model = SignificanceThresholdClassifier(LogisticRegression(), cv=cv, alpha=1.0)
    with pytest.raises(ValueError, match="puts events of group 0 on both sides of a fold"):
        model.fit(noisy_data.X, noisy_data.y, groups=noisy_data.groups)


def test_more_folds_than_groups(noisy_data):
    X, y, groups = noisy_data.X, noisy_data.y, noisy_data.groups // 2
    five, three = (SignificanceThresholdClassifier(LogisticRegression(), cv=n, alpha=1.0) for n in (5, 3))
    assert five.fit(X, y, groups=groups).threshold_ == three.fit(X, y, groups=groups).threshold_
    with pytest.raises(ValueError, match="cv=5 cannot split these events"):
        clone(five).fit(X, y, groups=np.zeros(len(y)))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (3, "groups must be one-dimensional, got 3"),
        (np.full(3000, np.nan), "groups contains NaN"),
        ([1, 2], "y and groups must have the same length"),
    ],
)
def test_bad_groups(groups, message, noisy_data):
    with pytest.raises(ValueError, match=message):
        SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).fit(noisy_data.X, noisy_data.y, groups=groups)


def test_masks_as_folds(noisy_data):
    first = np.arange(3000) < 1500
    thresholds = {
        SignificanceThresholdClassifier(LogisticRegression(), cv=cv, alpha=1.0)
        .fit(noisy_data.X, noisy_data.y)
        .threshold_
        for cv in ([(first, ~first), (~first, first)], HALVES)
    }
    assert len(thresholds) == 1


def test_estimators_that_score_only_when_fitted_and_precomputed_kernels(noisy_data):
    X, y = noisy_data.X[:300], noisy_data.y[:300]
    stacked = StackingClassifier([("one", LogisticRegression())], cv=2)
    SignificanceThresholdClassifier(stacked, cv=2, alpha=1.0).fit(X, y).predict(X)
    kernel = SignificanceThresholdClassifier(SVC(kernel="precomputed"), cv=2, alpha=1.0)
    assert np.isfinite(cross_val_score(kernel, X @ X.T, y, cv=2)).all()


def test_a_frozen_estimator_can_be_cross_validated(noisy_data):
    fitted = LogisticRegression().fit(noisy_data.X, noisy_data.y)
    frozen = SignificanceThresholdClassifier(FrozenEstimator(fitted), cv="prefit", alpha=1.0)
    assert np.isfinite(cross_val_score(frozen, noisy_data.X, noisy_data.y, cv=2)).all()
    with pytest.raises(NotFittedError, match="FrozenEstimator"):
        clone(SignificanceThresholdClassifier(fitted, cv="prefit", alpha=1.0)).fit(noisy_data.X, noisy_data.y)


def test_aliased_metadata_reaches_the_estimator(recorded):
    with sklearn.config_context(enable_metadata_routing=True):
        model = SignificanceThresholdClassifier(Recorder().set_fit_request(sample_weight="weight"), cv=2, alpha=1.0)
        model.fit(recorded.X, recorded.y, weight=np.arange(3000.0))
    for rows, weight in [(rows, weight) for what, rows, weight in Recorder.seen if what == "fit"]:
        np.testing.assert_array_equal(rows, weight)


def test_a_failed_fit_changes_nothing_and_names_do_not_linger(noisy_data):
    frame = pd.DataFrame(noisy_data.X).add_prefix("feature_")
    model = SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).fit(frame, noisy_data.y)
    before = model.threshold_
    with pytest.raises(ValueError, match="must not be NaN"):
        model.set_params(method=lambda y, score, alpha: np.nan).fit(noisy_data.X[:, :3], noisy_data.y)
    assert (model.threshold_, model.n_features_in_) == (before, 8)
    model.set_params(method="significance").fit(noisy_data.X, noisy_data.y)
    assert not hasattr(model, "feature_names_in_")


def test_weights_of_another_length(noisy_data):
    with pytest.raises(ValueError, match="y and sample_weight must have the same length"):
        SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).fit(
            noisy_data.X, noisy_data.y, sample_weight=np.ones(15)
        )


def test_scores_that_are_not_finite(noisy_data):
    class Broken(LogisticRegression):
        def predict_proba(self, X):
            return np.full((len(X), 2), np.nan)

    with pytest.raises(ValueError, match="estimator returned non-finite scores"):
        SignificanceThresholdClassifier(Broken(), alpha=1.0).fit(noisy_data.X, noisy_data.y)


def test_weights_that_leave_one_class(noisy_data):
    with pytest.raises(ValueError, match="y where sample_weight is not 0 contains one class only"):
        SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).fit(
            noisy_data.X, noisy_data.y, sample_weight=noisy_data.y.astype(float)
        )


def test_prefit_refuses_other_classes_and_fit_parameters(noisy_data):
    fitted = LogisticRegression().fit(noisy_data.X, noisy_data.y)
    model = SignificanceThresholdClassifier(fitted, cv="prefit", alpha=1.0)
    with pytest.raises(ValueError, match="y must contain the classes that estimator was fitted on"):
        model.fit(noisy_data.X, 2 * noisy_data.y)
    with pytest.raises(ValueError, match="cv='prefit' fits nothing, so sample_weight cannot be passed on"):
        model.fit(noisy_data.X, noisy_data.y, sample_weight=np.ones(3000))


def test_missing_values_pass_through_to_an_estimator_that_takes_them(noisy_data):
    X = noisy_data.X[:600].copy()
    X[::7, 0] = np.nan
    model = SignificanceThresholdClassifier(DecisionTreeClassifier(max_depth=3), noisy_data.alpha, cv=2)
    assert model.fit(X, noisy_data.y[:600]).predict(X).shape == (600,)


def test_predict_needs_fit(noisy_data):
    with pytest.raises(NotFittedError):
        SignificanceThresholdClassifier(LogisticRegression(), alpha=1.0).predict(noisy_data.X)
