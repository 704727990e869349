"""One model from observations whose exposure ratios differ: training, detection, and what each observation says."""

from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from excess import (
    OnOffForestClassifier,
    OnOffHybridClassifier,
    OnOffKMeansClassifier,
    OnOffTreeClassifier,
    SignificanceThresholdClassifier,
    cross_val_detect,
    exposure_weights,
    holdout_detect,
    li_ma_significance,
    on_off_likelihood,
)
from excess.estimators._base import ExposureRatios, weight_parameter, with_exposure


def draw(seed, share=0.0, alphas=(0.2, 1.0), n_off=(1500, 500)):
    """Return events of two observations, which the last of four features tells apart, with labels, ratios and names.

    ``share`` is the number of signal events for each background event in On.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for number, (mean, alpha) in enumerate(zip(n_off, alphas, strict=True)):
        n_signal = rng.poisson(share * alpha * mean)
        y = np.repeat([0, 1], [rng.poisson(mean), rng.poisson(alpha * mean) + n_signal])
        X = rng.normal(size=(len(y), 4))
        X[len(y) - n_signal :, :2] += 1.5
        X[:, -1] += 3 * number
        parts.append((X, y, np.full(len(y), alpha), np.full(len(y), ["crab", "mrk421"][number])))
    order = rng.permutation(sum(len(part[1]) for part in parts))
    return tuple(np.concatenate(columns)[order] for columns in zip(*parts, strict=True))


def fit(model, X, y, alpha, *, weighted=True):
    """Fit a model with weights of events, or with the mean exposure ratio."""
    exposed = with_exposure(model, y == 1, alpha if weighted else float(alpha[y == 0].mean()))
    return exposed.estimator.fit(X, y, **exposed.fit_params)


class Recorder(ClassifierMixin, BaseEstimator):
    """Keeps the weights that it is given."""

    seen: ClassVar[list] = []

    def fit(self, X, y, sample_weight=None):
        self.classes_ = np.unique(y)
        Recorder.seen.append(sample_weight)
        return self

    def predict_proba(self, X):
        return np.column_stack([1 - 0.1 * (X[:, 0] > 0), 0.1 * (X[:, 0] > 0)])

    def predict(self, X):
        return self.classes_[(X[:, 0] > 0).astype(int)]


@pytest.fixture(scope="module")
def found():
    """Both observations, judged forward."""
    X, y, alpha, name = draw(0, share=0.2)
    night = np.arange(len(y)) % 4
    forest = OnOffForestClassifier(20, min_samples_leaf=40, random_state=0)
    return cross_val_detect(forest, X, y, alpha=alpha, groups=night, observations=name, strategy="forward")


class TestWeights:
    @pytest.mark.parametrize("alphas", [(0.2, 1.0), (0.05, 0.3), (1e-3, 100.0), (1e-3, 2e-3)])
    def test_background_is_on_with_one_probability(self, alphas):
        on = np.tile([True, False], 2000)
        alpha = np.repeat(alphas, 2000)
        weights, ratio = exposure_weights(on, alpha)
        assert weights.max() <= 16
        assert min(alphas) <= ratio <= max(alphas)
        for one in alphas:
            n_off, n_on = weights[~on & (alpha == one)][0], one * weights[on & (alpha == one)][0]
            assert n_on / n_off == pytest.approx(ratio)

    def test_the_error_of_an_excess_is_that_of_counts(self):
        rng = np.random.default_rng(0)
        alphas, excesses, expected = np.array([0.2, 1.0]), [], []
        on, alpha = np.tile([True, False], 2), np.repeat(alphas, 2)
        for _ in range(4000):
            counts = rng.poisson([60, 300, 150, 150])
            weights, ratio = exposure_weights(np.repeat(on, counts), np.repeat(alpha, counts))
            n_on, n_off = weights[np.repeat(on, counts)].sum(), weights[~np.repeat(on, counts)].sum()
            excesses.append(n_on - ratio * n_off)
            expected.append(n_on + ratio**2 * n_off)
        assert np.mean(excesses) == pytest.approx(0.0, abs=1.0)
        assert np.var(excesses) == pytest.approx(np.mean(expected), rel=0.08)

    def test_one_ratio_has_no_weights(self):
        weights, ratio = exposure_weights([True, False], [0.3, 0.3])
        assert (weights.tolist(), ratio) == ([1.0, 1.0], 0.3)

    def test_neither_order_nor_parts_of_the_events_change_a_bit(self):
        rng = np.random.default_rng(3)
        on, alpha = rng.random(3001) < 0.3, rng.lognormal(-1, 0.5, 3001)
        weights, ratio = exposure_weights(on, alpha)
        order = rng.permutation(len(on))
        for one, other in zip(exposure_weights(on[order], alpha[order]), (weights[order], ratio), strict=True):
            np.testing.assert_array_equal(one, other)
        parts = [slice(1000, 3001), slice(0, 7), slice(7, 7), slice(7, 1000)]
        ratios = sum((ExposureRatios.of(on[part], alpha[part]) for part in parts), ExposureRatios())
        assert ratios == ExposureRatios.of(on, alpha)
        np.testing.assert_array_equal(ratios.weights(on[5:9], alpha[5:9]), weights[5:9])
        q_mean = (alpha / (1 + alpha)).mean()
        assert ratio == pytest.approx(q_mean / (1 - q_mean), rel=1e-12)
        assert ratios.off_mean == pytest.approx(alpha[~on].mean(), rel=1e-12)

    def test_weights_for_any_classifier(self):
        _, y, alpha, _ = draw(0)
        weights, ratio = exposure_weights(np.where(y == 1, "on", "off"), alpha)
        expected, expected_ratio = exposure_weights(y == 1, alpha)
        np.testing.assert_array_equal(weights, expected)
        assert ratio == expected_ratio
        weights, ratio = exposure_weights(y, np.full(len(y), 0.3))
        assert (weights == 1).all()
        assert ratio == 0.3

    @pytest.mark.parametrize("alpha", [[0.2, 0.3], [0.2, 0.3, 0.0, 0.2], [0.2, 0.3, np.nan, 0.2], 0.2])
    def test_ratios_that_are_refused(self, alpha):
        with pytest.raises(ValueError, match="alpha"):
            exposure_weights([0, 1, 0, 1], alpha)


class TestTraining:
    def test_a_tree_does_not_split_on_what_tells_observations_apart(self):
        tree = OnOffTreeClassifier(max_depth=2, min_samples_leaf=100)
        importances = {True: [], False: []}
        for seed in range(10):
            X, y, alpha, _ = draw(seed)
            for weighted, found in importances.items():
                found.append(fit(tree, X, y, alpha, weighted=weighted).feature_importances_[-1])
        assert np.mean(importances[False]) > 0.9
        assert np.mean(importances[True]) < 0.45  # one of four features

    @pytest.mark.campaign
    def test_a_forest_learns_more(self):
        forest = OnOffForestClassifier(30, random_state=0)
        found = []
        for seed in range(6):
            X, y, alpha, _ = draw(seed, share=0.15)
            new, labels, ratios, _ = draw(100 + seed, share=0.15)
            row = []
            for weighted in (True, False):
                model = fit(forest, X, y, alpha, weighted=weighted)
                row.append(on_off_likelihood(labels, model.likelihood_ratio(new) * ratios, ratios).significance)
            found.append(row)
        weighted, mean = np.mean(found, axis=0)
        assert weighted > mean + 1.0

    @pytest.mark.campaign
    def test_hold_out_events_are_standard_normal_without_a_source(self):
        forest = OnOffForestClassifier(10, min_samples_leaf=40, threshold_tolerance=0.0, n_threshold_bootstrap=0)
        likelihood, uncut = [], []
        for seed in range(150):
            X, y, alpha, _ = draw(seed, n_off=(600, 200))
            new, labels, ratios, _ = draw(1000 + seed, n_off=(600, 200))
            model = fit(forest.set_params(random_state=seed), X, y, alpha)
            found = holdout_detect(model, new, labels, alpha=ratios)
            likelihood.append(found.likelihood.significance)
            uncut.append(found.uncut.significance)
        for values in (likelihood, uncut):
            assert np.mean(values) == pytest.approx(0.0, abs=0.25)
            assert np.std(values) == pytest.approx(1.0, abs=0.17)

    @pytest.mark.slow
    def test_equal_ratios_give_the_bits_of_one(self):
        X, y, _, _ = draw(0, share=0.2)
        models = {
            "forest": OnOffForestClassifier(10, random_state=0),
            "threshold": SignificanceThresholdClassifier(LogisticRegression()),
            "k-means": OnOffKMeansClassifier(8, random_state=0),
        }
        one, each = (
            cross_val_detect(models, X, y, alpha=alpha, random_state=0) for alpha in (0.4, np.full(len(y), 0.4))
        )
        for name, found in one.items():
            assert repr(found.summary()) == repr(each[name].summary())
            np.testing.assert_array_equal(found.score, each[name].score)
            assert each[name].event_alpha is None

    @pytest.mark.parametrize(
        "model",
        [
            OnOffKMeansClassifier(8, random_state=0),
            OnOffForestClassifier(10, min_samples_leaf=20, threshold="mithal", random_state=0),
            SignificanceThresholdClassifier(LogisticRegression(), method="mithal"),
        ],
    )
    def test_what_does_not_count_weights_gets_the_mean(self, model):
        X, y, alpha, _ = draw(0, share=0.2)
        assert weight_parameter(model) is None
        found = cross_val_detect(model, X, y, alpha=alpha, cv=2, random_state=0)
        for number, fold in enumerate(found.folds):
            train = found.fold != number
            assert fold.tuned.alpha == pytest.approx(alpha[train & (y == 0)].mean())
        assert found.significance > 3

    @pytest.mark.parametrize(
        "model",
        [Recorder(), make_pipeline(StandardScaler(), Recorder()), SignificanceThresholdClassifier(Recorder(), cv=2)],
    )
    def test_weights_reach_what_takes_them(self, model):
        X, y, alpha, _ = draw(0)
        Recorder.seen.clear()
        cross_val_detect(model, X, y, alpha=alpha, cv=2, random_state=0, statistic="cut")
        assert len(Recorder.seen) >= 2
        for weights in Recorder.seen:
            assert len(np.unique(weights)) == 4  # On and Off of each observation

    @pytest.mark.parametrize(
        "model",
        [
            SignificanceThresholdClassifier(LogisticRegression(), n_bootstrap=5, random_state=0),
            OnOffHybridClassifier({"x0": 0}, OnOffForestClassifier(10, min_samples_leaf=20), random_state=0),
            OnOffHybridClassifier({"x0": 0}, LogisticRegression(), cv=3, random_state=0),
        ],
    )
    def test_curves_count_weights(self, model):
        X, y, alpha, _ = draw(0, share=0.2)
        fitted = fit(model, X, y, alpha)
        weights, ratio = exposure_weights(y == 1, alpha)
        assert fitted.curve_.alpha == ratio
        assert fitted.curve_.n_on[0] == pytest.approx(weights[y == 1].sum(), rel=0.02)  # some may be in every bag
        assert fitted.curve_.n_off[0] == pytest.approx(weights[y == 0].sum(), rel=0.02)
        new, labels, ratios, _ = draw(1, share=0.2)
        assert holdout_detect(fitted, new, labels, alpha=ratios).significance > 4

    def test_whole_weights_of_a_hybrid_are_repeated_events(self):
        X, y, _, _ = draw(0, share=0.2, n_off=(300, 100))
        weights = np.random.default_rng(0).integers(0, 4, len(y))
        group = np.arange(len(y)) % 3
        forest, shared = OnOffForestClassifier(8, min_samples_leaf=5), {"alpha": 1.0, "random_state": 0}
        folds, repeated = (
            [(np.flatnonzero(own != k), np.flatnonzero(own == k)) for k in range(3)]
            for own in (group, group.repeat(weights))
        )
        weighted = OnOffHybridClassifier(estimator=forest, cv=folds, **shared).fit(X, y, sample_weight=weights)
        model = OnOffHybridClassifier(estimator=forest, cv=repeated, **shared)
        model = model.fit(X.repeat(weights, axis=0), y.repeat(weights))
        np.testing.assert_array_equal(weighted.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(weighted.curve_.n_off, model.curve_.n_off)

    def test_weights_of_a_threshold_that_are_refused(self):
        X, y, _, _ = draw(0)
        with pytest.raises(ValueError, match="event_weight"):
            SignificanceThresholdClassifier(LogisticRegression(), 1.0, method="mithal").fit(X, y, event_weight=y + 1.0)
        with pytest.raises(ValueError, match="event_weight"):
            SignificanceThresholdClassifier(LogisticRegression(), 1.0).fit(X, y, event_weight=[1.0, 2.0])
        with pytest.raises(ValueError, match="event_weight"):
            SignificanceThresholdClassifier(LogisticRegression(), 1.0).fit(X, y, event_weight=-np.ones(len(y)))
        with pytest.raises(ValueError, match="sample_weight"):
            OnOffHybridClassifier(estimator=LogisticRegression(), alpha=1.0, cv=2).fit(X, y, sample_weight=1.0 - y)


class TestDetection:
    def test_each_observation_and_the_joint_significance(self, found):
        outcomes, frame = found.outcomes_by_observation, found.observations_frame()
        assert list(outcomes) == list(frame.index) == ["crab", "mrk421"]
        for name, alpha in (("crab", 0.2), ("mrk421", 1.0)):
            own = found.observations == name
            n_on, n_off = (np.count_nonzero(found.selected & own & on) for on in (found.on, ~found.on))
            assert frame.loc[name, "alpha"] == alpha
            assert outcomes[name].counts.significance == li_ma_significance(n_on, n_off, alpha, signed=True)
            held_out = own & found.held_out
            expected = on_off_likelihood(found.on[held_out], found.ratio[held_out], alpha)
            assert frame.loc[name, "likelihood_significance"] == pytest.approx(expected.significance)
        selected = found.selected
        alphas = found.event_alpha[selected]
        joint = on_off_likelihood(found.on[selected], alphas, alphas).significance
        assert found.counts.significance == pytest.approx(joint)
        assert found.significance > max(outcome.significance for outcome in outcomes.values())

    def test_the_table_adds_up(self, found):
        total = found.observations_frame()[["n_on", "n_off", "excess"]].sum()
        counts = found.counts
        assert (total["n_on"], total["n_off"]) == (counts.n_on, counts.n_off)
        assert total["excess"] == pytest.approx(counts.excess)
        assert sum(outcome.counts for outcome in found.outcomes_by_observation.values()) == counts

    def test_it_says_what_each_observation_has(self, found):
        lines = [line for line in str(found).splitlines() if line.startswith(("crab: ", "mrk421: "))]
        assert len(lines) == 2
        assert all("likelihood" in line and "cut: On" in line for line in lines)
        local = {name: one.significance for name, one in found.outcomes_by_observation.items()}
        best = max(local, key=local.__getitem__)
        corrected = norm.isf(2 * norm.sf(local[best]))
        expected = f"Best of 2 observations: {best}, {local[best]:.1f} sigma, {corrected:.1f} after 2 trials."
        assert expected in str(found)
        assert list(found.to_frame()["observation"]) == list(found.observations)

    def test_without_observations_there_are_none(self):
        X, y, alpha, _ = draw(0, share=0.2)
        found = cross_val_detect(OnOffTreeClassifier(max_depth=2), X, y, alpha=alpha, cv=2, random_state=0)
        assert found.outcomes_by_observation == {}
        assert found.observations_frame().empty

    def test_observations_do_not_change_the_result(self, found):
        X, y, alpha, _ = draw(0, share=0.2)
        forest = OnOffForestClassifier(20, min_samples_leaf=40, random_state=0)
        night = np.arange(len(y)) % 4
        alone = cross_val_detect(forest, X, y, alpha=alpha, groups=night, strategy="forward")
        assert repr(alone.summary()) == repr(found.summary())

    def test_observations_that_are_refused(self):
        X, y, alpha, _ = draw(0)
        with pytest.raises(ValueError, match="observations"):
            cross_val_detect(OnOffTreeClassifier(max_depth=2), X, y, alpha=alpha, observations=["crab"])
        with pytest.raises(ValueError, match="observations"):
            cross_val_detect(OnOffTreeClassifier(max_depth=2), X, y, alpha=alpha, observations=[None] * len(y))

    def test_many_ratios_are_counted_in_ranges(self):
        X, y, _, _ = draw(0, share=0.2, alphas=(0.3, 0.3))
        alpha = np.random.default_rng(0).uniform(0.29, 0.31, len(y))
        found = cross_val_detect(OnOffTreeClassifier(max_depth=2), X, y, alpha=alpha, cv=2, random_state=0)
        assert len(found.uncut.parts) == 1000
        assert found.uncut.background == pytest.approx(alpha[y == 0].sum())
        assert found.uncut.significance == pytest.approx(on_off_likelihood(y, alpha, alpha).significance, rel=1e-4)
