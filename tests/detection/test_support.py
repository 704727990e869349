"""Comparison of On and Off in their features, near-copies, training events, forward values by default, trials."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from excess import OnOffTreeClassifier, assess, best_of, cross_val_detect, holdout_detect, load
from excess.detection import assess_models
from excess.detection._support import check_features

ALPHA = 0.2
TREE = OnOffTreeClassifier(max_depth=3, min_samples_leaf=30, random_state=0)


def make_events(seed=0, n_on=1500, n_signal=0, shift=2.0, n_features=5):
    """Return features and labels; one feature is discrete, one has a frequent value."""
    rng = np.random.default_rng(seed)
    on = np.r_[np.ones(n_on + n_signal), np.zeros(5 * n_on)].astype(bool)
    X = rng.normal(size=(len(on), n_features))
    X[n_on : n_on + n_signal, :2] += shift
    X[:, 3] = rng.poisson(2.0, len(on))
    X[:, 4] = np.where(rng.random(len(on)) < 0.7, 0.0, np.exp(X[:, 4]))
    return X, on, rng


def codes(X, on, alpha=ALPHA):
    return [one.code for one in check_features(X, on, alpha)]


@pytest.mark.parametrize("n_signal", [0, 60, 300, 3000])
@pytest.mark.parametrize("shift", [0.0, 1.0, 6.0])
def test_no_source_is_suspicious(n_signal, shift):
    X, on, _ = make_events(n_signal=n_signal, shift=shift)
    assert codes(X, on) == []
    assert codes(pd.DataFrame(X).assign(name="text"), on) == []


def test_a_source_in_one_point_is_suspicious_by_no_copies():
    X, on, rng = make_events(n_signal=300)
    X[1500:1800, :3] = 0.05 * rng.normal(size=(300, 3)) + 2
    assert codes(X, on) == []


@pytest.mark.parametrize("part", ["above", "below", "between"])
def test_off_events_that_passed_another_cut(part):
    X, on, _ = make_events()
    x = X[:, 2]
    removed = {"above": x > 1.6, "below": x < -1.6, "between": (x > 0.2) & (x < 0.4)}[part]
    kept = on | ~removed
    assert 0.03 < removed.mean() < 0.1
    [sign] = check_features(X[kept], on[kept], ALPHA, ["a", "b", "width", "d", "e"])
    assert sign.code == "missing-off"
    assert f"Off events are missing in feature 'width' {part}" in sign.sentence
    # the same cut for both
    assert codes(X[~removed], on[~removed]) == []


def test_on_events_that_passed_another_cut():
    X, on, _ = make_events()
    kept = ~on | (X[:, 2] < 1.0)
    [sign] = check_features(X[kept], on[kept], ALPHA * 0.84)
    assert sign.code == "missing-on"
    assert "feature 'x2' from" in sign.sentence


@pytest.mark.parametrize("column", [2, 3, 4])
@pytest.mark.parametrize("value", [-999.0, np.nan, np.inf])
def test_values_for_missing_measurements_in_on_alone(column, value):
    X, on, rng = make_events()
    bad = rng.random(len(on)) < 0.03
    X[on & bad, column] = value
    if value == np.inf:
        assert codes(X, on) == ["value-of-on"]
        return
    [sign] = check_features(X, on, ALPHA)
    assert sign.code == "value-of-on"
    assert f"{np.count_nonzero(on & bad)} On events" in sign.sentence
    assert ("have no value" if np.isnan(value) else "have the value -999") in sign.sentence
    X[bad, column] = value
    assert codes(X, on) == []


@pytest.mark.parametrize("value", [-999.0, np.nan])
def test_a_positive_feature_that_no_on_event_has(value):
    X, on, _ = make_events()
    X[:, 2] = np.exp(X[:, 2])
    X[on, 2] = value
    assert "value-of-on" in codes(X, on)


def test_another_unit_in_some_on_events():
    X, on, rng = make_events()
    X[on & (rng.random(len(on)) < 0.05), 2] *= 10
    [sign] = check_features(X, on, ALPHA)
    assert sign.code == "value-of-on"
    assert "feature 'x2' far outside the range of all Off events" in sign.sentence
    X[~on & (rng.random(len(on)) < 0.05), 2] *= 10
    assert codes(X, on) == []


def test_rounded_on_events():
    X, on, _ = make_events()
    X[on, 2] = X[on, 2].round(1)
    assert "value-of-on" in codes(X, on)


@pytest.mark.parametrize("jitter", [0.0, 0.01])
def test_repeated_on_events(jitter):
    X, on, rng = make_events()
    again = rng.choice(np.flatnonzero(on), 300, replace=False)
    more = X[again] + jitter * rng.normal(size=(300, 5)) * [1, 1, 1, 0, 0]
    [sign] = check_features(np.r_[X, more], np.r_[on, np.ones(300, bool)], ALPHA)
    assert sign.code == "copies"
    share = sign.numbers["share_on"]
    assert f"{100 * share:.0f} % of On events have a near-copy" in sign.sentence
    assert 600 / 1800 - 0.08 < share < 600 / 1800 + 0.05


def test_interpolated_on_events():
    X, on, rng = make_events()
    own = np.flatnonzero(on)
    near = np.argsort(((X[own][:, None, :3] - X[own][None, :, :3]) ** 2).sum(axis=2), axis=1)[:, 1 + rng.integers(5)]
    new = X[own] + rng.random((len(own), 1)) * (X[own[near]] - X[own])
    found = codes(np.r_[X, new], np.r_[on, np.ones(len(own), bool)])
    assert "copies" in found


def test_features_that_are_no_numbers():
    texts = np.array([["a", "b"]] * 40)
    on = np.arange(40) < 10
    assert check_features(texts, on, ALPHA) == ()
    assert check_features(np.zeros((40, 2)), np.zeros(40, bool), ALPHA) == ()


def test_findings_make_a_verdict_doubtful():
    X, on, _ = make_events()
    kept = on | (X[:, 2] < 1.6)
    found = cross_val_detect(TREE, X[kept], on[kept], alpha=ALPHA, random_state=0)
    assert found.significance > 5
    assert (assess(found).status, assess(found).warnings[0].code) == ("doubtful", "missing-off")


@pytest.mark.parametrize("given", [0.02, 0.1])
def test_a_wrong_alpha_next_to_a_source(given):
    X, on, rng = make_events(n_on=2000, n_signal=300, shift=2.5)
    night = rng.integers(0, 5, len(on))
    found = cross_val_detect(TREE, X, on, alpha=given, groups=night, random_state=0)
    [sign] = assess(found).warnings
    assert sign.code == "alpha"
    assert 0.18 < sign.numbers["background_alpha"] < 0.22
    assert f"and {given} is given" in sign.sentence
    right = cross_val_detect(TREE, X, on, alpha=ALPHA, groups=night, random_state=0)
    assert assess(right).warnings == ()


def test_a_model_recognises_its_training_events(tmp_path):
    X, on, rng = make_events(n_signal=150)
    tree = OnOffTreeClassifier(alpha=ALPHA, max_depth=3, min_samples_leaf=30, random_state=0)
    half = rng.random(len(on)) < 0.5
    tree.fit(X[half], on[half])
    tree.save(tmp_path / "tree")
    pipeline = make_pipeline(StandardScaler(), clone(tree))
    for model in (tree, load(tmp_path / "tree"), pipeline.fit(X[half], on[half])):
        new = holdout_detect(model, X[~half], on[~half], alpha=ALPHA)
        assert new.findings == ()
        [sign] = holdout_detect(model, X, on, alpha=ALPHA).findings
        assert sign.code == "training-events"
        assert sign.numbers["share"] == 1.0
        some = half & (rng.random(len(on)) < 0.3)
        seen = holdout_detect(model, X[~half | some], on[~half | some], alpha=ALPHA)
        assert 0.15 < seen.findings[0].numbers["share"] < 0.45
        assert assess(seen).status == "doubtful"


def test_discrete_events_are_not_recognised():
    X, on, _ = make_events(n_signal=150)
    tree = OnOffTreeClassifier(alpha=ALPHA, max_depth=3).fit(X[:, 3:4], on)
    assert holdout_detect(tree, X[:, 3:4], on, alpha=ALPHA).findings == ()


def test_a_pooled_detection_is_confirmed_forward_by_default():
    X, on, rng = make_events(n_signal=300)
    order = rng.permutation(len(on))
    X, on = X[order], on[order]
    both = cross_val_detect(TREE, X, on, alpha=ALPHA, random_state=0)
    pooled, forward = (
        cross_val_detect(TREE, X, on, alpha=ALPHA, random_state=0, strategy=one) for one in ("pooled", "forward")
    )
    assert (both.strategy, both.significance) == ("pooled", pooled.significance)
    assert both.forward.significance == forward.significance
    assert f"{forward.significance:.1f} forward" in both.verdict
    assert pooled.forward is None
    strict = cross_val_detect(TREE, X, on, alpha=ALPHA, random_state=0, required_significance=both.significance)
    assert strict.assessment.status == ("not confirmed" if forward.significance < both.significance else "detected")
    # below the required significance, the verdict does not depend on it
    assert cross_val_detect(TREE, *make_events()[:2], alpha=ALPHA, random_state=0).forward is None


def test_the_best_of_several():
    best = best_of([0.3, 2.0, float("nan"), 1.0])
    assert (best.name, best.significance, best.n_trials) == (1, 2.0, 3)
    assert best.p_value == pytest.approx(1 - norm.cdf(2.0) ** 3, rel=1e-9)
    # of far more sigma than 1 - p has digits
    assert best_of({"a": 12.0, "b": 3.0}).p_value == pytest.approx(2 * norm.sf(12.0), rel=1e-9)
    # of 20 positions without a source
    values = np.random.default_rng(0).normal(size=(4000, 20))
    p_values = np.array([best_of(one).p_value for one in values])
    assert np.mean(p_values < 0.05) == pytest.approx(0.05, abs=0.012)
    assert np.mean(values.max(axis=1) > 1.645) > 0.6
    with pytest.raises(ValueError, match="significances"):
        best_of([])


def test_a_verdict_states_the_model_that_it_is_about():
    X, on, _ = make_events(n_signal=150)
    models = {"tree": TREE, "deeper": OnOffTreeClassifier(max_depth=5, min_samples_leaf=30, random_state=0)}
    found = cross_val_detect(models, X, on, alpha=ALPHA, strategy="pooled", random_state=0)
    first, second = assess_models(found, {}, {}).values()
    assert "This verdict refers to tree, the first of 2 models." in first.sentence
    assert "after a correction for 2 trials" in first.sentence
    assert "first of 2 models" not in second.sentence


def test_functions_of_one_feature_are_no_copies():
    rng = np.random.default_rng(0)
    on = np.repeat([True, False], [618, 1108])
    x = rng.exponential(size=len(on))
    for other in (np.log10(x), -(x**2), np.abs(x - 1)):
        assert codes(np.column_stack([x, other]), on) == []
    again = np.concatenate([np.arange(618), np.arange(618), np.arange(618, len(on))])  # On events are repeated
    assert codes(np.column_stack([x, np.log10(x)])[again], on[again]) == ["copies"]
