"""The competing rules, against simulated truth."""

import math

import numpy as np
import pytest

from excess import (
    alpha_from_p_minus,
    clean_counts,
    default_threshold,
    inject_label_noise,
    menon_threshold,
    mithal_threshold,
    yao_threshold,
)
from excess.stats import _thresholds as baselines

P_PLUS, P_MINUS, PREVALENCE, N = 0.2, 0.3, 0.15, 400_000
ALPHA = alpha_from_p_minus(P_MINUS)


@pytest.fixture(scope="module")
def truth():
    """Clean labels, noisy labels, and the exact P(On given x) of a one-dimensional problem."""
    rng = np.random.default_rng(11)
    signal = (rng.random(N) < PREVALENCE).astype(int)
    x = rng.normal(4.0 * signal)  # the classes are pure at either end
    noisy = inject_label_noise(signal, P_PLUS, P_MINUS, random_state=12)
    odds = PREVALENCE / (1 - PREVALENCE) * np.exp(4.0 * x - 8.0)
    eta = odds / (1 + odds)  # P(signal given x)
    return signal, noisy, P_MINUS + (1 - P_PLUS - P_MINUS) * eta


def _rates(selected, positive):
    return selected[positive].mean(), selected[~positive].mean()


def _clean_f1(signal, selected):
    hit = (selected & (signal == 1)).sum()
    return 2 * hit / (selected.sum() + (signal == 1).sum())


def _simultaneous(tpr, fpr, a, b):
    """Both equations of Menon et al. inverted at once."""
    return ((1 - b) * tpr - a * fpr) / (1 - a - b), ((1 - a) * fpr - b * tpr) / (1 - a - b)


def _sequential(tpr, fpr, a, b):
    """One of them inverted with the already corrected other: wrong, and seen in research code."""
    fpr = ((1 - a) * fpr - b * tpr) / (1 - a - b)
    return ((1 - b) * tpr - a * fpr) / (1 - a - b), fpr


def _contamination(noisy):
    """P(background given On), P(signal given Off)."""
    pi_noisy = noisy.mean()
    return P_MINUS * (1 - PREVALENCE) / pi_noisy, P_PLUS * PREVALENCE / (1 - pi_noisy)


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [0.35, 0.5, 0.7])
def test_corrected_rates_are_the_clean_ones(truth, threshold):
    signal, _, score = truth
    selected = score > threshold
    clean = (*_rates(selected, signal == 1), _clean_f1(signal, selected))
    ours, right, wrong = [], [], []
    for seed in range(20):
        noisy = inject_label_noise(signal, P_PLUS, P_MINUS, random_state=seed)
        on, off = noisy == 1, noisy == 0
        n_signal, n_background = clean_counts(
            [on.sum(), (on & selected).sum()], [off.sum(), (off & selected).sum()], P_PLUS, P_MINUS
        )
        f1 = 2 * n_signal[1] / (n_signal[0] + selected.sum())
        ours.append((n_signal[1] / n_signal[0], n_background[1] / n_background[0], f1))
        contamination = _contamination(noisy)
        right.append(_simultaneous(*_rates(selected, on), *contamination))
        wrong.append(_sequential(*_rates(selected, on), *contamination))

    def deviation(estimates, exact):
        """Distance of the mean from the exact value, in standard errors."""
        estimates = np.asarray(estimates)
        return (estimates.mean(axis=0) - exact) / (estimates.std(axis=0, ddof=1) / math.sqrt(len(estimates)))

    assert (np.abs(deviation(ours, clean)) < 4).all()
    assert (np.abs(deviation(right, clean[:2])) < 4).all()
    assert abs(deviation(wrong, clean[:2])[0]) > 20
    # one estimate from one noisy data set is good to the third digit or so
    assert np.std(ours, axis=0).max() < 0.02


def _best_clean_f1(signal, score):
    order = np.argsort(-score)
    hits = np.cumsum(signal[order])
    return (2 * hits / (np.arange(1, len(signal) + 1) + signal.sum())).max()


@pytest.mark.parametrize(
    "known",
    [{}, {"alpha": ALPHA}, {"alpha": ALPHA, "p_plus": P_PLUS}],
    ids=["both unknown", "p_minus known", "both known"],
)
def test_menon_f1_is_near_the_best_on_clean_labels(truth, known):
    signal, noisy, score = truth
    threshold = menon_threshold(noisy, score, **known, metric="f1", quantiles=(0.001, 0.999))
    assert _clean_f1(signal, score > threshold) > _best_clean_f1(signal, score) - 0.005


@pytest.mark.parametrize("known", [{}, {"alpha": ALPHA}, {"alpha": ALPHA, "p_plus": P_PLUS}])
def test_menon_accuracy_is_bayes(truth, known):
    _, noisy, score = truth
    bayes = P_MINUS + (1 - P_PLUS - P_MINUS) / 2
    threshold = menon_threshold(noisy, score, **known, metric="accuracy", quantiles=(0.001, 0.999))
    assert threshold == pytest.approx(bayes, abs=1e-12 if len(known) == 2 else 0.005)


def test_menon_f1_uses_both_rates():
    """With overlapping classes and much noise, the best cut depends on the rates; the clean labels know it."""
    rng = np.random.default_rng(3)
    signal = (rng.random(N) < 0.3).astype(int)
    score = rng.normal(1.0 * signal)
    noisy = inject_label_noise(signal, 0.4, 0.3, random_state=4)
    best = _clean_f1(signal, score > default_threshold(signal, score, metric="f1"))
    right = menon_threshold(noisy, score, alpha_from_p_minus(0.3), p_plus=0.4)
    wrong = menon_threshold(noisy, score, alpha_from_p_minus(0.3), p_plus=0.0)
    assert _clean_f1(signal, score > right) > best - 0.002
    assert _clean_f1(signal, score > wrong) < best - 0.01


def test_menon_estimates_rates_from_the_extreme_scores_by_default(truth):
    _, noisy, score = truth
    threshold = menon_threshold(noisy, score, metric="accuracy")
    assert threshold == (score.max() + score.min()) / 2
    assert menon_threshold(noisy, score, ALPHA, estimate_p_minus=True, metric="accuracy") == threshold


def test_menon_f1_with_known_rates_takes_any_score(truth):
    _, noisy, score = truth
    rates = {"alpha": ALPHA, "p_plus": P_PLUS}
    shifted = menon_threshold(noisy, 10 * score - 3, **rates)
    assert shifted == pytest.approx(10 * menon_threshold(noisy, score, **rates) - 3)


def test_menon_selects_nothing_where_no_signal_fits():
    y, score = [0, 1] * 50, np.linspace(0.2, 0.4, 100)
    assert menon_threshold(y, score, alpha=1.0) == math.inf  # scores never exceed p_minus = 0.5
    assert menon_threshold(y, score, alpha=1.0, metric="accuracy") == math.inf
    assert menon_threshold([0, 0, 0, 1], [0.1, 0.2, 0.3, 0.4], alpha=1.0, p_plus=0.0) == math.inf


def test_mithal_is_near_the_best_g_measure(truth):
    signal, noisy, score = truth
    selected = score > mithal_threshold(noisy, score)
    order = np.argsort(-score)
    hits = np.cumsum(signal[order])
    g_squared = hits**2 / np.arange(1, len(signal) + 1) / signal.sum()
    hit = (selected & (signal == 1)).sum()
    assert hit**2 / selected.sum() / signal.sum() > g_squared.max() - 0.005


def test_mithal_equals_a_naive_twin():
    rng = np.random.default_rng(5)
    for _ in range(200):
        n = 60
        y, score = rng.integers(0, 2, n), rng.integers(0, 20, n) / 20
        lowest = score <= np.sort(score)[2]  # 5 % of 60 are 3 events, with their ties
        beta = y[lowest].mean()
        cuts = [*np.unique(score), np.inf]
        objective = [
            max(y[score >= c].mean() - beta, 0) ** 2 * (score >= c).mean() if (score >= c).any() else 0 for c in cuts
        ]
        threshold = mithal_threshold(y, score)
        found = score > threshold
        value = max(y[found].mean() - beta, 0) ** 2 * found.mean() if found.any() else 0
        assert value == pytest.approx(max(objective), abs=1e-12)


def test_mithal_does_not_reward_a_deficit():
    # the highest scores hold fewer On events than the lowest
    assert mithal_threshold([1] * 10 + [0] * 90, np.arange(100.0)) == math.inf


def test_yao_multiplies_two_transitions():
    # 10 events below and 10 above 0.5; the anchors are the least and the largest score
    score = np.repeat([0.2, 0.4, 0.6, 0.9], 5)
    on = np.array([1, 0, 0, 0, 0] * 2 + [1, 1, 1, 1, 0] * 2, dtype=bool)
    p_plus, p_minus = baselines._dual_t_rates(on, score, quantile=1.0)
    assert p_minus == pytest.approx(0.8 * 0.2 + 0.2 * 0.8)
    assert p_plus == pytest.approx(1 - (0.1 * 0.2 + 0.9 * 0.8))
    assert yao_threshold(on, score, quantile=1.0) == pytest.approx((1 - p_plus + p_minus) / 2)


def test_yao_is_near_bayes_although_its_rates_are_biased(truth):
    _, noisy, score = truth
    bayes = P_MINUS + (1 - P_PLUS - P_MINUS) / 2
    assert yao_threshold(noisy, score) == pytest.approx(bayes, abs=0.05)


def test_yao_with_one_intermediate_class_only():
    y = np.array([0, 1] * 50)
    assert math.isfinite(yao_threshold(y, np.linspace(0.6, 0.9, 100)))
    assert yao_threshold(y, np.linspace(0.1, 0.4, 100)) < math.inf


def test_default():
    y, score = [0, 1, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.9]
    assert default_threshold(y, score) == 0.5
    assert default_threshold(y, score, metric="f1") == pytest.approx(0.15)


@pytest.mark.parametrize("rule", [menon_threshold, yao_threshold, default_threshold])
def test_rules_on_probabilities_refuse_other_scores(rule):
    with pytest.raises(ValueError, match=r"score must be in \[0, 1\] for method .* predict_proba"):
        rule([0, 1], [-3.0, 4.0])


@pytest.mark.parametrize("rule", [menon_threshold, mithal_threshold, yao_threshold, default_threshold])
@pytest.mark.parametrize(
    ("y", "score", "message"),
    [
        ([0, 1, 2], [0.1, 0.2, 0.3], "y must contain two classes"),
        ([0, 0, 0], [0.1, 0.2, 0.3], "y contains one class only"),
        ([0, 1], [0.1, 0.2, 0.3], "same length"),
        ([0, 1], [0.1, math.nan], "score must be finite"),
    ],
)
def test_bad_events(rule, y, score, message):
    with pytest.raises(ValueError, match=message):
        rule(y, score)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y, s: menon_threshold(y, s, metric="auc"), "metric must be 'accuracy' or 'f1', got 'auc'"),
        (lambda y, s: menon_threshold(y, s, alpha=-1), "alpha must be positive"),
        (lambda y, s: menon_threshold(y, s, p_plus=2), r"p_plus must be in \[0, 1\]"),
        (lambda y, s: menon_threshold(y, s, quantiles=(-1, 2)), r"quantiles must be in \[0, 1\]"),
        (lambda y, s: menon_threshold(y, s, quantiles=(0.9, 0.1)), "quantiles"),
        (lambda y, s: menon_threshold(y, s, quantiles=(0.1,)), "quantiles"),
        (lambda y, s: menon_threshold(y, s, quantiles=0.9), "quantiles must be one-dimensional, got 0.9"),
        (lambda y, s: mithal_threshold(y, s, alpha=-1), "alpha must be positive"),
        (lambda y, s: mithal_threshold(y, s, quantile=7), r"quantile must be in \[0, 1\]"),
        (lambda y, s: yao_threshold(y, s, quantile=7), r"quantile must be in \[0, 1\]"),
        (lambda y, s: default_threshold(y, s, metric="auc"), "metric must be"),
    ],
)
def test_bad_options(call, message):
    with pytest.raises(ValueError, match=message):
        call([0, 1], [0.1, 0.9])
