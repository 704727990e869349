"""Both statistics of a search: the likelihood of all events beside the cut, declared beforehand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from helpers import SHARED
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from excess import (
    OnOffForestClassifier,
    OnOffTreeClassifier,
    SignificanceThresholdClassifier,
    cross_val_detect,
    holdout_detect,
    li_ma_significance,
    null_test,
    on_off_likelihood,
    signal_limits,
)
from excess.dataset import OnOffDataset, simulate_observation
from excess.detection import Outcome
from excess.detection._result import Exposure, describe_limits

ALPHA = 0.2
DIMUON_FEATURES = ("dimu_pt", "dimu_eta", "n_muons", "n_jets", "mu0_ip3d", "mu1_ip3d", "mu0_jetiso", "mu1_jetiso",
                   "mu0_iso04", "mu1_iso04")  # fmt: skip


def draw(seed, n=3000, share=0.06, alpha=ALPHA):
    """Return events, labels and groups; ``alpha`` may differ from event to event."""
    rng = np.random.default_rng(seed)
    signal = rng.random(n) < share
    X = rng.normal(size=(n, 4))
    X[signal, :2] += 1.5
    on = signal | (rng.random(n) < alpha / (1 + alpha))
    return X, on.astype(int), rng.integers(0, 5, n)


@pytest.fixture(scope="module")
def forest():
    return OnOffForestClassifier(30, min_samples_leaf=20, random_state=0)


@pytest.fixture(scope="module")
def found(forest):
    X, y, groups = draw(0)
    return cross_val_detect(forest, X, y, alpha=ALPHA, groups=groups, n_permutations=9, random_state=0)


def test_the_likelihood_is_that_of_hold_out_ratios(found, forest):
    X, y, groups = draw(0)
    ratio = np.empty(len(y))
    for group in range(5):
        model = OnOffForestClassifier(30, ALPHA, min_samples_leaf=20, random_state=0)
        model.fit(X[groups != group], y[groups != group])
        ratio[groups == group] = model.likelihood_ratio(X[groups == group])
    np.testing.assert_array_equal(found.ratio, ratio)
    assert found.likelihood == on_off_likelihood(y, ratio, ALPHA)
    assert found.significance == found.likelihood.significance > found.counts.significance


@pytest.mark.parametrize("strategy", ["pooled", "forward"])
def test_the_declared_statistic_decides(forest, strategy):
    X, y, groups = draw(0)
    shared = {"alpha": ALPHA, "groups": groups, "strategy": strategy, "random_state": 0, "required_significance": 10.0}
    by_cut, by_likelihood = (cross_val_detect(forest, X, y, statistic=name, **shared) for name in ("cut", "likelihood"))
    assert by_cut.significance == by_cut.counts.significance
    assert by_cut.outcome.significances == by_likelihood.outcome.significances
    assert by_cut.p_value != by_likelihood.p_value
    assert "in the selected hold-out events" in by_cut.verdict
    assert "by the likelihood of all hold-out events" in by_likelihood.verdict
    assert {"likelihood_significance", "cut_significance", "strength", "n_signal"} <= set(by_cut.summary())


def test_permutation_p_values_of_both(found):
    assert set(found.permutation_p_values) == {"likelihood", "cut"}
    assert found.permutation_p_values["likelihood"] == 0.1
    assert found.n_permutations == 9
    assert len(set(found.permutations["likelihood"])) == 9


def test_an_excess_of_all_events_alike_is_no_contrast(forest):
    """Permutations ask whether features tell On from Off: where they say nothing, an excess must not matter."""
    rng = np.random.default_rng(3)
    X, y, groups = rng.normal(size=(2000, 4)), (rng.random(2000) < 0.4).astype(int), rng.integers(0, 4, 2000)
    blind = cross_val_detect(forest, X, y, alpha=ALPHA, groups=groups, n_permutations=9, random_state=0)
    assert blind.significance > 10  # there is one
    assert abs(blind.contrasts["likelihood"]) < 4
    assert blind.permutation_p_value > 0.1


def test_strength_by_group_is_a_light_curve(found):
    frame = found.groups_frame()
    assert list(frame.index) == [0, 1, 2, 3, 4]
    mean = found.likelihood.strength
    for group in frame.index:
        own = found.likelihood_of(found.in_likelihood & (found.groups == group))
        assert frame.loc[group, "relative_strength"] == pytest.approx(own.strength / mean)
        assert frame.loc[group, "relative_strength_low"] < frame.loc[group, "relative_strength"]
    assert np.average(frame["relative_strength"]) == pytest.approx(1, abs=0.15)


def test_a_flare_shows_in_the_light_curve():
    rng = np.random.default_rng(4)
    n = 8000
    groups = np.repeat(np.arange(4), n // 4)
    signal = rng.random(n) < np.where(groups == 2, 0.12, 0.03)
    X = rng.normal(size=(n, 4))
    X[signal, :2] += 1.5
    y = (signal | (rng.random(n) < ALPHA / (1 + ALPHA))).astype(int)
    model = OnOffForestClassifier(50, min_samples_leaf=40, random_state=0)
    frame = cross_val_detect(model, X, y, alpha=ALPHA, groups=groups).groups_frame()
    others = frame.drop(index=2)
    assert frame.loc[2, "relative_strength_low"] > 2 * others["relative_strength"].max()


def test_new_events_by_a_fitted_model():
    X, y, groups = draw(0)
    model = OnOffForestClassifier(30, ALPHA, min_samples_leaf=20, random_state=0).fit(X[:2000], y[:2000])
    found = holdout_detect(model, X[2000:], y[2000:], alpha=ALPHA, groups=groups[2000:])
    assert found.likelihood == on_off_likelihood(y[2000:], model.likelihood_ratio(X[2000:]), ALPHA)
    assert found.significance == found.likelihood.significance
    by_cut = holdout_detect(model, X[2000:], y[2000:], alpha=ALPHA, statistic="cut")
    assert by_cut.significance == by_cut.counts.significance == found.counts.significance


def test_null_tests_have_both():
    rng = np.random.default_rng(5)
    X, region = rng.normal(size=(3000, 3)), rng.integers(0, 5, 3000)
    tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    by_likelihood, by_cut = (
        null_test(tree, X, region, n_regions=5, random_state=0, statistic=name) for name in ("likelihood", "cut")
    )
    for one in (by_likelihood, by_cut):
        assert np.abs(one.significances).max() < 4
        assert list(one.to_frame()["cut_significance"]) == [counts.significance for counts in one.counts.values()]
    assert (by_cut.significances == by_likelihood.to_frame()["cut_significance"]).all()
    assert (by_likelihood.significances == by_cut.to_frame()["likelihood_significance"]).all()


def test_a_classifier_without_a_ratio_is_told_so():
    X, y, groups = draw(0)
    shared = {"alpha": ALPHA, "groups": groups, "random_state": 0}
    at_zero = FixedThresholdClassifier(LinearSVC())
    with pytest.raises(ValueError, match=r"statistic.*FixedThresholdClassifier"):
        cross_val_detect(at_zero, X, y, **shared)
    with pytest.raises(ValueError, match="statistic"):
        cross_val_detect(LinearSVC(), X, y, statistic="both", **shared)
    plain = cross_val_detect(at_zero, X, y, statistic="cut", n_permutations=3, **shared)
    assert plain.likelihood is None
    assert np.isnan(plain.permutation_p_values["likelihood"])
    assert np.isnan(plain.summary()["likelihood_significance"])
    assert "likelihood" not in str(plain)
    wrapped = SignificanceThresholdClassifier(LinearSVC(), cv=3)
    assert cross_val_detect(wrapped, X, y, **shared).significance > 5
    # inside of a pipeline, too
    assert cross_val_detect(make_pipeline(StandardScaler(), wrapped), X, y, **shared).significance > 5


def test_probabilities_of_plain_classifiers_are_ratios():
    X, y, groups = draw(0)
    found = cross_val_detect(FixedThresholdClassifier(LogisticRegression()), X, y, alpha=ALPHA, groups=groups)
    assert found.significance > found.uncut.significance
    for group in range(5):
        assert found.ratio[groups == group].mean() == pytest.approx(1)


def draw_runs(seed, alphas=(0.1, 0.3), n_off=2500, strength=0.3):
    """Return events of runs with as many Off events each; On times, and so signal and alpha, differ."""
    rng = np.random.default_rng(seed)
    X, y, alpha, groups = [], [], [], []
    for run, ratio in enumerate(alphas):
        n_on, n_signal = rng.poisson(ratio * n_off), rng.poisson(strength * ratio * n_off)
        events = rng.normal(size=(n_off + n_on + n_signal, 4))
        events[n_off + n_on :, :2] += 1.5
        X.append(events)
        y.append(np.arange(len(events)) >= n_off)
        alpha.append(np.full(len(events), ratio))
        groups.append(run + 2 * rng.integers(0, 3, len(events)))
    return np.concatenate(X), np.concatenate(y).astype(int), np.concatenate(alpha), np.concatenate(groups)


@pytest.mark.campaign
def test_a_steady_source_is_as_strong_in_runs_of_any_exposure(forest):
    """Runs with alphas of 0.1 and 0.3: each event with its own gives the number of signal events, a mean does not."""
    own, mean, expected = [], [], np.array([0.3 * 0.1 * 2500, 0.3 * 0.3 * 2500])
    for seed in range(10):
        X, y, alpha, groups = draw_runs(seed)
        runs = groups % 2
        found = cross_val_detect(forest, X, y, alpha=alpha, groups=groups, random_state=0)
        assert found.alpha == pytest.approx(alpha[y == 0].mean())
        assert found.uncut.background == pytest.approx(alpha[y == 0].sum())
        strengths = [on_off_likelihood(y[runs == run], found.ratio[runs == run], alpha[runs == run]) for run in (0, 1)]
        own.append([one.n_signal for one in strengths] + [strengths[0].strength / strengths[1].strength])
        one_alpha = cross_val_detect(forest, X, y, alpha=found.alpha, groups=groups, random_state=0)
        mean.append(
            [on_off_likelihood(y[runs == run], one_alpha.ratio[runs == run], found.alpha).n_signal for run in (0, 1)]
        )
    error = np.std(own, axis=0) / 10**0.5
    assert (np.abs(np.mean(own, axis=0) - [*expected, 1.0]) < 4 * error).all()
    assert abs(np.mean(mean, axis=0)[0] - expected[0]) > 4 * error[0]


def test_permutations_keep_exposure_ratios_apart(forest):
    """A feature that knows the run tells nothing about a source: permutations must not mix the runs."""
    rng = np.random.default_rng(0)
    alpha = np.repeat([0.1, 0.6], 700)
    y = (rng.random(1400) < alpha / (1 + alpha)).astype(int)
    X = np.column_stack([alpha + 0.01 * rng.normal(size=1400), rng.normal(size=1400)])
    found = cross_val_detect(forest, X, y, alpha=alpha, n_permutations=9, random_state=0)
    assert np.abs(found.permutations["likelihood"]).max() < 4
    assert found.permutation_p_value < 0.95


def test_alpha_of_events_must_fit(forest):
    X, y, groups = draw(0)
    with pytest.raises(ValueError, match="alpha"):
        cross_val_detect(forest, X, y, alpha=[0.1, 0.2], groups=groups)
    with pytest.raises(ValueError, match="alpha"):
        cross_val_detect(forest, X, y, alpha=np.zeros(3000), groups=groups)
    with pytest.raises(ValueError, match="alpha"):
        cross_val_detect(forest, X, y, alpha=np.full((3000, 2), 0.2), groups=groups)
    with pytest.raises(ValueError, match="alpha"):
        cross_val_detect(forest, X, y, alpha=np.append(np.full(2999, 0.2), np.nan), groups=groups)
    column = np.repeat([0.2, 0.1], 1500)[:, None]
    found = cross_val_detect(forest, X, y, alpha=column, groups=groups, random_state=0)
    assert found.event_alpha.shape == (3000,)


def test_the_background_of_a_fitted_plain_classifier_is_not_known():
    X, y, _ = draw(0)
    model = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match="statistic"):
        holdout_detect(model, X, y, alpha=ALPHA)
    assert holdout_detect(model, X, y, alpha=ALPHA, statistic="cut").likelihood is None


def test_new_events_of_one_class_have_a_curve():
    X, y, _ = draw(0)
    model = OnOffForestClassifier(10, ALPHA, min_samples_leaf=20, random_state=0).fit(X, y)
    found = holdout_detect(model, X[y == 0], y[y == 0], alpha=ALPHA)
    assert found.significance < 0
    assert found.curve.n_on.max() == 0


def test_an_outcome_survives_a_file(found):
    for outcome in (found.outcome, Outcome(found.counts, None, "cut")):
        assert Outcome.from_dict(outcome.to_dict(), outcome.statistic) == outcome


@pytest.mark.campaign
def test_more_sigma_than_by_a_cut():
    """A simulated observation, one night held out at a time: the likelihood is worth about three sigma."""
    seen = OnOffDataset.from_files(simulate_observation(random_state=3), nearby=False)
    model = OnOffForestClassifier(n_jobs=2, random_state=0)
    shared = {"alpha": seen.alpha, "groups": seen.groups, "random_state": 0}
    pooled = cross_val_detect(model, seen.X, seen.on, **shared)
    forward = cross_val_detect(model, seen.X, seen.on, strategy="forward", **shared)
    assert pooled.likelihood.significance > pooled.counts.significance + 1.5
    assert forward.likelihood.significance > forward.counts.significance + 1.0


@pytest.mark.campaign
@pytest.mark.skipif(not (SHARED / "data/cms").exists(), reason="the dimuons of CMS are not beside the project")
def test_dimuons_of_cms():
    """Real collision events around the Upsilon: On is its mass window, Off are the sidebands."""
    columns = np.load(SHARED / "data/cms/upsilon.npz", allow_pickle=False)
    mass = columns["dimu_mass"]
    on = (mass > 9.3) & (mass < 9.6)
    used = on | ((mass > 9.0) & (mass < 9.25)) | ((mass > 9.65) & (mass < 9.85))
    X = np.column_stack([columns[name] for name in DIMUON_FEATURES])[used]
    model = OnOffForestClassifier(n_jobs=2, random_state=0)
    found = cross_val_detect(model, X, on[used].astype(int), alpha=2 / 3, cv=10, random_state=0)
    assert (found.uncut.n_on, found.uncut.n_off) == (1932, 1315)
    assert found.uncut.significance == pytest.approx(22.4, abs=0.05)
    assert found.counts.significance > 29
    assert found.likelihood.significance > 30
    assert found.likelihood.n_signal == pytest.approx(found.uncut.excess, rel=0.1)


@pytest.mark.parametrize("alpha_error", [0.1, {0: 0.1, 1: 0.2, 2: 0.05, 3: 0.1, 4: 0.1}])
def test_an_error_of_alpha_weakens_both_statistics(found, alpha_error):
    uncertain = replace(found, alpha_error=alpha_error)
    for one, plain in ((uncertain.likelihood, found.likelihood), (uncertain.counts, found.counts)):
        assert 0 < one.significance < plain.significance
    assert uncertain.contrasts == found.contrasts
    outcome = uncertain.outcome
    assert Outcome.from_dict(json.loads(json.dumps(outcome.to_dict())), outcome.statistic) == outcome
    if isinstance(alpha_error, float):
        assert uncertain.uncut.significance == li_ma_significance(
            found.uncut.n_on, found.uncut.n_off, found.alpha, alpha_error=alpha_error, signed=True
        )


def test_limits_follow_the_declared_statistic(found):
    by_likelihood, by_cut = found.limits(), replace(found, statistic="cut").limits()
    expected = signal_limits(found.on, found.ratio, ALPHA, method="cls").n_signal
    assert by_likelihood["n_signal_limit"] == expected.upper > found.likelihood.n_signal
    assert by_likelihood["n_signal_expected"] == expected.expected
    assert by_cut["n_signal_limit"] != by_likelihood["n_signal_limit"]
    assert "hours" not in by_likelihood
    timed = found.limits(hours=10.0)
    assert timed["rate_limit"] == timed["n_signal_limit"] / 10
    assert timed["hours_to_detection"] == pytest.approx(10 * (5 / found.significance) ** 2, rel=1e-3)
    assert len(describe_limits(timed, 5.0)) == 2  # reached already
    assert len(describe_limits(timed | {"hours_to_detection": 20.0}, 5.0)) == 3
    assert replace(found, statistic="cut", selected=np.zeros_like(found.selected)).limits() == {}


def test_a_steady_source_is_steady_and_a_flare_is_not(found):
    hours = Exposure("test", ("0", "1", "2", "3", "4"), ("",) * 5, np.full(5, 2.0))
    timed = replace(found, exposure=hours, time=1.4e9 + 86_400 * found.groups)
    frame = timed.groups_frame()
    np.testing.assert_allclose(frame["rate"], frame["n_signal"] / 2)
    assert (frame["rate_low"] < frame["rate"]).all()
    np.testing.assert_allclose(np.diff(frame["mjd"]), 1)
    assert timed.constancy.n_degrees_of_freedom == 4
    assert timed.constancy.p_value > 0.01
    assert found.constancy.p_value > 0.01
    assert "rate" not in found.groups_frame()
    short = replace(hours, hours=np.array([2.0, 2.0, 0.05, 2.0, 2.0]))
    assert replace(timed, exposure=short).constancy.p_value < 1e-3
    assert replace(found, ratio=None).constancy is None
