"""The verdict: one status from detection, forward value, null test and warnings, and which data make which warning."""

import re
from dataclasses import replace

import numpy as np
import pytest

from excess import NullTest, OnOffTreeClassifier, assess, cross_val_detect, null_test
from excess.dataset import OnOffDataset, simulate_observation
from excess.detection import Outcome, assess_models
from excess.detection._diagnostics import STATUSES
from excess.stats._likelihood import OnOffLikelihood
from excess.stats._significance import OnOffCounts

TREE = OnOffTreeClassifier(max_depth=3, min_samples_leaf=30, random_state=0)
N_NIGHTS = 5


def make_events(seed=0, n_on=2000, n_off=10_000, n_signal=0, shift=2.0):
    """Return features, labels and nights: background everywhere, and signal among the On events."""
    rng = np.random.default_rng(seed)
    on = np.r_[np.ones(n_on + n_signal), np.zeros(n_off)].astype(int)
    X = rng.normal(size=(len(on), 4))
    X[n_on : n_on + n_signal] += shift
    night = rng.integers(0, N_NIGHTS, len(on)) + 20131101
    return X, on, night


def search(X, on, night, alpha=0.2, **options):
    return cross_val_detect(TREE, X, on, alpha=alpha, groups=night, random_state=0, **options)


def codes(verdict):
    return [one.code for one in verdict.warnings]


@pytest.fixture(scope="module")
def source():
    return search(*make_events(n_signal=400))


@pytest.fixture(scope="module")
def nothing():
    return search(*make_events())


def outcome(significance, statistic="likelihood"):
    counts = OnOffCounts(100, 480, 0.2)
    return Outcome(counts, OnOffLikelihood(significance, 0.1, (0.05, 0.15), 40.0, 9.0), statistic)


def null_test_of(*significances):
    return NullTest({number: outcome(value) for number, value in enumerate(significances, start=1)})


def test_a_source_is_detected_without_warning(source):
    verdict = assess(source, outcome(12.0), null_test_of(0.3, -1.2, 0.8))
    assert verdict.status == "detected"
    assert verdict.feasible
    assert verdict.warnings == ()
    assert "12.0 forward, 5 required: On has more signal than Off, and the classifier learned it" in verdict.sentence
    assert source.verdict == assess(source).sentence


def test_nothing_is_no_detection_without_warning(nothing):
    verdict = assess(nothing, outcome(0.3), null_test_of(0.3, -1.2))
    assert verdict.status == "no detection"
    assert not verdict.feasible
    assert verdict.warnings == ()


@pytest.mark.parametrize("forward", [-2.0, 4.9, float("nan")])
def test_a_forward_value_below_the_requirement_does_not_confirm(source, forward):
    verdict = assess(source, outcome(forward))
    assert verdict.status == "not confirmed"
    assert not verdict.feasible
    assert f"{forward:.1f} forward, 5 required: not confirmed" in verdict.sentence
    assert "classifier learned it" not in verdict.sentence


def test_a_suspicious_null_test_makes_any_verdict_doubtful(source, nothing):
    suspicious = null_test_of(0.3, 6.1, -0.2)
    for found in (source, nothing):
        verdict = assess(found, outcome(12.0), suspicious)
        assert verdict.status == "doubtful"
        assert not verdict.feasible
        assert codes(verdict) == ["null-test"]
        assert "Off region 2 shows 6.1 sigma" in verdict.warnings[0].sentence


def test_models_without_a_null_test_take_the_first(source):
    both = {"tree": source, "other": source}
    found = assess_models(both, {}, {"tree": null_test_of(6.1, 0.0)})
    assert [one.status for one in found.values()] == ["doubtful", "doubtful"]
    assert list(assess_models(both, {"other": outcome(1.0)}, {})) == ["tree", "other"]
    assert assess_models(both, {"other": outcome(1.0)}, {})["other"].status == "not confirmed"


@pytest.mark.parametrize("statistic", ["likelihood", "cut"])
def test_more_selected_excess_than_there_is(statistic):
    X, on, night = make_events()
    half = (on == 1) & (np.random.default_rng(1).random(len(on)) < 0.5)
    X[half, 0] += 3
    found = search(X, on, night, statistic=statistic)
    assert found.significance > 20
    verdict = assess(found)
    assert verdict.status == "doubtful"
    assert codes(verdict) == ["missing-on", "rejected-deficit"]
    assert "On events are missing in feature 'x0'" in verdict.warnings[0].sentence
    numbers = verdict.warnings[1].numbers
    assert numbers["selected_excess"] > numbers["excess"] + 10 * numbers["excess_error"]
    assert numbers["rejected_significance"] < -10
    assert "which no source causes. A feature differs between On and Off" in verdict.warnings[1].sentence
    assert found.verdict.startswith("Warning: ")
    assert not found.feasible


def test_a_wrong_alpha_that_makes_a_deficit():
    found = search(*make_events(n_signal=200), alpha=1.0)
    verdict = assess(found)
    assert found.uncut.significance < -40
    assert verdict.status == "doubtful"
    assert codes(verdict) == ["deficit"]
    assert "Check alpha (1; On/Off is 0.22" in verdict.warnings[0].sentence


def test_a_wrong_alpha_that_makes_an_excess():
    found = search(*make_events(), alpha=0.1)
    verdict = assess(found)
    assert found.significance > 5
    assert verdict.status == "doubtful"
    assert codes(verdict) == ["unexplained-excess"]
    assert "Check alpha (0.1; On/Off is 0.2" in verdict.warnings[0].sentence
    # a null test knows nothing of the On events
    assert assess(found, outcome(20.0), null_test_of(0.1, 0.3)).status == "doubtful"


def test_counts_alone_need_a_null_test():
    found = search(*make_events(seed=1, n_on=500, n_off=2500), alpha=0.14)
    assert 5 < found.uncut.significance < 12
    assert found.significance > 5
    verdict = assess(found)
    assert verdict.status == "not confirmed"
    assert "the features do not separate it from background" in verdict.sentence
    vouched = assess(found, outcome(6.0), null_test_of(0.1, -0.4))
    assert vouched.status == "detected"
    assert "learning did not improve significantly" in vouched.sentence


def test_angles_vouch_for_an_excess_that_features_do_not_show():
    X, on, night = make_events(n_signal=900, shift=0.0)
    found = search(X, on, night)
    assert codes(assess(found)) == ["unexplained-excess"]
    rng = np.random.default_rng(0)
    squared = rng.uniform(0, 0.025, len(on))
    signal = slice(2000, 2900)
    theta = np.sqrt(np.stack([squared, squared], axis=1))
    flat = found.annotated(theta=theta, theta_squared_cut=0.025)
    assert codes(assess(flat)) == ["unexplained-excess"]
    theta[signal] /= 2
    peaked = found.annotated(theta=theta, theta_squared_cut=0.025)
    assert codes(assess(peaked)) == []


def test_swapped_on_and_off():
    X, on, night = make_events(n_signal=200)
    verdict = assess(search(X, 1 - on, night))
    assert verdict.status == "doubtful"
    assert codes(verdict)[0] == "swapped"
    assert "On and Off are swapped, or alpha is inverted" in verdict.warnings[0].sentence
    assert codes(assess(search(X, on, night, alpha=5.0)))[0] == "swapped"


def test_a_strong_source_is_no_swap():
    """Signal that is as frequent as to make On/Off the inverse of alpha, as in the window of a resonance."""
    X, on, night = make_events(n_on=1000, n_off=1500, n_signal=1250, shift=3.0)
    found = search(X, on, night, alpha=2 / 3)
    assert 1.4 < found.uncut.n_on / found.uncut.n_off < 1.6
    verdict = assess(found)
    assert (verdict.status, codes(verdict)) == ("detected", [])
    # the same counts where On and Off are swapped, with and without a source
    for n_signal in (0, 100):
        X, on, night = make_events(n_on=1000, n_off=1500, n_signal=n_signal, shift=3.0)
        assert assess(search(X, 1 - on, night, alpha=2 / 3)).status == "doubtful"
    # alpha is the inverse of what it should be, and there is a source
    X, on, night = make_events(n_on=5000, n_off=1000, n_signal=500, shift=3.0)
    assert "swapped" in codes(assess(search(X, on, night, alpha=0.2)))


@pytest.mark.parametrize("n_signal", [0, 400])
def test_exposure_that_differs_from_night_to_night(n_signal):
    X, on, night = make_events(n_on=3000, n_off=15_000, n_signal=n_signal)
    factor = np.array([0.8, 1.2, 0.8, 1.2, 1.0])[night - 20131101]
    kept = np.random.default_rng(0).random(len(on)) < np.where(on == 1, factor / 1.2, 1 / 1.2)
    found = search(X[kept], on[kept], night[kept])
    verdict = assess(found)
    assert verdict.status == "doubtful"
    assert codes(verdict) == ["alpha-by-group"]
    assert verdict.warnings[0].numbers["p_value"] < 1e-5
    assert "background On to Off" in verdict.warnings[0].sentence
    # the right ratio of each night, and nothing is left of it
    right = search(X[kept], on[kept], night[kept], alpha=0.2 * factor[kept])
    assert codes(assess(right)) == []


def test_a_flare_is_no_difference_of_exposure():
    X, on, night = make_events(n_signal=500, shift=3.0)
    night[2000:2500] = 20131103
    verdict = assess(search(X, on, night))
    assert verdict.status == "detected"
    assert verdict.warnings == ()


def test_learning_needs_an_improvement_beyond_its_error(source):
    held_out = np.flatnonzero(source.held_out & ~source.on)[:3]
    selected = source.held_out.copy()
    selected[held_out] = False
    few_removed = replace(source, selected=selected, statistic="cut")
    assert 0 < few_removed.significance - few_removed.uncut.significance < 0.1
    forward = Outcome(OnOffCounts(300, 480, 0.2), None, "cut")
    verdict = assess(few_removed, forward, null_test_of(0.1, 0.2))
    assert verdict.status == "detected"
    assert "classifier learned it" not in verdict.sentence
    assert "learning did not improve significantly" in verdict.sentence
    assert "classifier learned it" in assess(source).sentence


def test_many_small_groups_are_counted_together():
    X, on, _ = make_events(n_signal=100)
    run = np.random.default_rng(0).integers(0, 1500, len(on))
    found = cross_val_detect(TREE, X, on, alpha=0.2, groups=run, cv=4, random_state=0)
    assert codes(assess(found)) == []


@pytest.mark.campaign
def test_warnings_are_rare_without_a_source():
    rng = np.random.default_rng(5)
    n_warned = 0
    for seed in range(40):
        X, on, night = make_events(seed, n_on=rng.poisson(300), n_off=1500)
        n_warned += bool(assess(search(X, on, night)).warnings)
    assert n_warned == 0


def test_a_null_test_of_a_leak_turns_the_verdict():
    rng = np.random.default_rng(0)
    region = rng.integers(0, 6, 6000)
    X = rng.normal(size=(6000, 3))
    X[:, 0] += region
    options = {"groups": rng.integers(0, 4, 6000), "random_state": 0}
    found = cross_val_detect(TREE, X, (region == 0).astype(int), alpha=0.2, **options)
    assert found.significance > 5
    test = null_test(TREE, X, region, n_regions=6, **options)
    verdict = assess(found, None, test)
    assert verdict.status == "doubtful"
    assert "null-test" in codes(verdict)
    assert verdict.summary()["feasible"] is False
    assert verdict.status in STATUSES


def test_a_variable_source_is_variable_and_not_doubtful():
    X, on, night = make_events(n_on=2000, n_off=10_000, n_signal=900, shift=3.0)
    signal = (np.arange(len(on)) >= 2000) & (np.arange(len(on)) < 2900)
    quiet = signal & (night < 20131104) & (np.random.default_rng(0).random(len(on)) < 0.9)
    verdict = assess(search(X[~quiet], on[~quiet], night[~quiet]))
    assert verdict.status == "detected"
    assert "varies between groups" in verdict.sentence


def test_a_verdict_states_how_wrong_alpha_would_have_to_be():
    weak, strong = (
        assess(search(*make_events(n_on=2000, n_off=10_000, n_signal=n, shift=1.6))).sentence for n in (150, 900)
    )
    found = [float(re.search(r"would have to be (\d+) % larger", text).group(1)) for text in (weak, strong)]
    assert 5 < found[0] < found[1]


def test_a_source_that_only_angles_show_is_no_wrong_alpha():
    seen = OnOffDataset.from_files(simulate_observation(60_000, 2500, random_state=0), nearby=False)
    noise = np.random.default_rng(0).normal(size=seen.X.shape)
    tree, shared = OnOffTreeClassifier(max_depth=3), {"alpha": seen.alpha, "groups": seen.groups}
    found = seen.annotate(cross_val_detect(tree, noise, seen.on, direction=seen.direction, **shared))
    assert assess(found).warnings == ()
