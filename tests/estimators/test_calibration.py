"""How signal-like an event is: ratios and probabilities, their calibration, and its limits."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from excess import (
    OnOffForestClassifier,
    OnOffKMeansClassifier,
    OnOffKMeansEnsembleClassifier,
    OnOffTreeClassifier,
    SignificanceThresholdClassifier,
    load,
    on_off_likelihood,
)
from excess.dataset import OnOffDataset, simulate_observation
from excess.estimators._base import MIN_EVENTS, calibrate, calibrate_out_of_fold, calibrated_log_likelihood
from excess.estimators._random_forest import N_CELLS
from excess.stats._thresholds import significance_curve

ALPHA = 0.2
MODELS = {
    "tree": OnOffTreeClassifier(ALPHA, max_depth=5, min_samples_leaf=400),
    "forest": OnOffForestClassifier(80, ALPHA, min_samples_leaf=20, n_jobs=2, random_state=0),
    "k-means": OnOffKMeansClassifier(24, ALPHA, random_state=0),
    "ensemble": OnOffKMeansEnsembleClassifier(100, 32, ALPHA, n_jobs=2, random_state=0),
    "threshold": SignificanceThresholdClassifier(LogisticRegression(), ALPHA),
    "without probabilities": SignificanceThresholdClassifier(LinearSVC(), ALPHA),
}


def draw(seed, n=12_000, share=0.1):
    """Return On and Off events, their noisy labels, and which of them are signal."""
    rng = np.random.default_rng(seed)
    signal = rng.random(n) < share
    X = rng.normal(size=(n, 4))
    X[signal, :2] += 1.5
    return X, signal | (rng.random(n) < ALPHA / (1 + ALPHA)), signal


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    X, on, _ = draw(0, 60_000)
    return MODELS[request.param].fit(X, on)


def reliability(probability, signal, n_least=200):
    """Return mean probability and share of signal in each tenth that holds enough events."""
    tenth = np.minimum((10 * probability).astype(int), 9)
    held = [tenth == number for number in range(10) if np.count_nonzero(tenth == number) >= n_least]
    return np.array([[probability[own].mean(), signal[own].mean()] for own in held])


def test_probabilities_mean_what_they_say(fitted):
    X, _, signal = draw(1, 200_000)
    probability = fitted.predict_signal_proba(X)
    assert probability.min() >= 0
    assert probability.max() < 1
    found = reliability(probability, signal)
    assert len(found) >= 3
    assert np.abs(found[:, 0] - found[:, 1]).max() < 0.05


def test_ratios_are_densities(fitted):
    X, on, signal = draw(1, 50_000)
    ratio = fitted.likelihood_ratio(X)
    assert np.isfinite(ratio).all()
    assert (ratio >= 0).all()
    assert ratio[~signal].mean() == pytest.approx(1, abs=0.25)
    found = on_off_likelihood(on, ratio, ALPHA)
    true = signal.sum() / np.count_nonzero(~on)
    assert found.strength == pytest.approx(true, rel=0.2)
    assert found.n_signal == pytest.approx(signal.sum(), rel=0.2)


def test_order_is_that_of_the_scores(fitted):
    X, *_ = draw(2, 2000)
    score = fitted.predict_proba(X)[:, 1] if hasattr(fitted, "predict_proba") else fitted.decision_function(X)
    order = np.argsort(score)
    for values in (fitted.likelihood_ratio(X), fitted.predict_signal_proba(X)):
        assert (np.diff(values[order]) >= 0).all()
    assert len(np.unique(fitted.likelihood_ratio(X))) >= 3


@pytest.mark.parametrize("name", ["tree", "forest", "k-means", "ensemble"])
def test_a_model_file_keeps_the_calibration(name, tmp_path):
    X, on, _ = draw(0, 2000)
    model = MODELS[name].fit(X, on)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.likelihood_ratio(X), model.likelihood_ratio(X))
    np.testing.assert_array_equal(again.predict_signal_proba(X), model.predict_signal_proba(X))


def test_labels_of_training_events_are_not_known_by_heart():
    """A tree without limits scores its own events 0 or 1, all of them right; new events say what that is worth."""
    X, on, _ = draw(3)
    tree = OnOffTreeClassifier(ALPHA).fit(X, on)
    np.testing.assert_array_equal(tree.predict_proba(X)[:, 1] > 0.5, on)
    new, _, truth = draw(4, 50_000)
    found = reliability(tree.predict_signal_proba(new), truth)
    assert np.abs(found[:, 0] - found[:, 1]).max() < 0.05


def test_noise_is_told_from_nothing():
    """Without a source, no event may look like signal for sure."""
    rng = np.random.default_rng(5)
    X, on = rng.normal(size=(3000, 6)), rng.random(3000) < 1 / 6
    for model in MODELS.values():
        assert model.fit(X, on).predict_signal_proba(X).max() < 0.5


def test_without_an_excess_all_events_are_alike():
    rng = np.random.default_rng(6)
    score, on = rng.random(2000), rng.random(2000) < 1 / 6
    found = calibrate(significance_curve(on, score, 50.0))  # as if Off were exposed for a fiftieth of the time
    np.testing.assert_array_equal(found.ratio(score), 1.0)
    np.testing.assert_array_equal(found.signal_probability(score), 0.0)


@pytest.mark.parametrize("n", [2, 5, 39, 60])
def test_few_events(n):
    on = np.arange(n) % 2 == 0
    score = on + 0.001 * np.arange(n)
    found = calibrate(significance_curve(on, score, 1.0))
    assert len(found.score) <= max(n // MIN_EVENTS, 1)
    assert np.isfinite(found.ratio(score)).all()
    apart = calibrate_out_of_fold(on, 1.0, lambda train, held_out: score[held_out])
    assert np.isfinite(apart.ratio(score)).all()


def test_certainty_is_bounded():
    """On and Off that are separated without a doubt: probabilities stay below 1, and Off is no signal."""
    on = np.arange(4000) < 1000
    found = calibrate(significance_curve(on, on.astype(float), ALPHA))
    probability = found.signal_probability(np.array([0.0, 1.0, -5.0, 5.0]))
    assert 0.9 < probability[1] < 1
    np.testing.assert_array_equal(probability[2:], probability[:2])  # beyond all scores nothing is added
    assert probability[0] < 0.01
    assert found.ratio(np.ones(1))[0] > 10


def test_every_step_has_enough_events():
    """A score that thousands share leaves too few on either side; they are counted with it."""
    score = np.concatenate([[0.1] * 3, [0.5] * 5000, np.linspace(0.6, 0.9, 4)])
    on = np.random.default_rng(7).random(len(score)) < 0.3
    assert len(calibrate(significance_curve(on, score, ALPHA)).score) == 1


def count_in_cells(on, score, n_cells=N_CELLS):
    """Off and On events in cells of scores."""
    counts = np.zeros((2, n_cells), dtype=np.int64)
    np.add.at(counts, (on.astype(int), np.minimum(score * n_cells, n_cells - 1).astype(int)), 1)
    return counts


def constant_likelihood(on, alpha):
    """Log-likelihood of labels under the best share of On that all have, which is not below that of the background."""
    n_on, n = np.count_nonzero(on), len(on)
    share = max(n_on / n, alpha / (1 + alpha))
    return n_on * np.log(share) + (n - n_on) * np.log(1 - share)


class TestLogLikelihood:
    def test_calibrated_scores(self):
        """Scores that are too sure of themselves: calibrated, they are as good as the true probabilities."""
        rng = np.random.default_rng(1)
        ratio = np.exp(rng.normal(-2, 1.5, 20_000))
        odds = ratio + ALPHA
        on = rng.random(20_000) < odds / (1 + odds)
        score = ratio**2 / (1 + ratio**2)
        calibrated = calibrated_log_likelihood(count_in_cells(on, score), ALPHA)
        plain = np.log(np.clip(np.where(on, score, 1 - score), 1e-6, None)).sum()
        true = np.log(np.where(on, odds, 1.0) / (1 + odds)).sum()
        assert calibrated == pytest.approx(true, abs=8)
        assert plain < true - 100

    def test_counts_of_weights_scale(self):
        rng = np.random.default_rng(2)
        score = rng.random(3000)
        counts = count_in_cells(rng.random(3000) < 0.3 * score + 0.1, score)
        one, half = (calibrated_log_likelihood(own, ALPHA) for own in (counts, counts.astype(float)))
        assert one == pytest.approx(half, rel=1e-12)

    def test_no_events(self):
        assert calibrated_log_likelihood(np.zeros((2, 16), dtype=np.int64), ALPHA) == -np.inf

    @pytest.mark.parametrize("alpha", [0.02, ALPHA, 1.0])
    @pytest.mark.parametrize("far", [1e-4, 0.3, 0.7, 0.95, 0.9999])
    @pytest.mark.parametrize("n_far", [1, 20, 50, 200])
    def test_few_distinct_scores(self, alpha, far, n_far):
        """A score that nearly all share and a few far out: never clearly worse than no scores at all."""
        rng = np.random.default_rng(n_far)
        score = np.full(20_000, 0.5)
        score[:n_far] = far
        share = np.full(20_000, 1.3 * alpha / (1 + alpha))
        share[:n_far] = 0.9 if far > 0.5 else 0.05
        on = rng.random(20_000) < share
        floor = constant_likelihood(on, alpha)
        assert calibrated_log_likelihood(count_in_cells(on, score), alpha) > floor - 1
        found = calibrate(significance_curve(on, score, alpha))
        probability = np.interp(score, found.score, found.on_probability)
        assert np.log(np.where(on, probability, 1 - probability)).sum() > floor - 1

    @pytest.mark.parametrize("seed", range(40))
    def test_any_two_heaps_of_scores(self, seed):
        rng = np.random.default_rng(seed)
        n, n_far, alpha = rng.choice([2000, 40_000]), rng.choice([20, 50, 200, 1000]), rng.choice([0.02, ALPHA, 1.0])
        score = np.full(n, rng.choice([0.02, 0.17, 0.5, 0.98]))
        score[:n_far] = np.clip(
            rng.choice([0.01, 0.3, 0.7, 0.95]) + 0.1 * rng.integers(2) * rng.normal(size=n_far), 0, 1
        )
        share = np.full(n, rng.choice([1.0, 1.3]) * alpha / (1 + alpha))
        share[:n_far] = rng.choice([0.9, 0.05, 0.5])
        on = rng.random(n) < share
        assert calibrated_log_likelihood(count_in_cells(on, score), alpha) > constant_likelihood(on, alpha) - 1

    @pytest.mark.parametrize("seed", range(5))
    def test_scores_that_say_nothing(self, seed):
        rng = np.random.default_rng(seed)
        on, score = rng.random(2000) < ALPHA / (1 + ALPHA), rng.random(2000)
        # up to three parameters may follow the labels
        assert -1 < calibrated_log_likelihood(count_in_cells(on, score), ALPHA) - constant_likelihood(on, ALPHA) < 8


@pytest.mark.campaign
def test_probabilities_of_a_simulated_observation():
    """The forest of the demo, on other nights than it was trained on, with the truth of the simulation."""
    parts = []
    for seed in range(700, 704):
        table = simulate_observation(random_state=seed)
        seen = OnOffDataset.from_files(table, nearby=False)
        keys = ["night", "run_id", "event_num"]
        truth = table.set_index(keys)["is_signal"]
        parts.append((seen, truth.loc[list(seen.table[keys].itertuples(index=False, name=None))].to_numpy()))
    first = parts[0][0]
    forest = OnOffForestClassifier(alpha=first.alpha, n_jobs=2, random_state=0).fit(first.X, first.on)
    probability = np.concatenate([forest.predict_signal_proba(seen.X) for seen, _ in parts[1:]])
    found = reliability(probability, np.concatenate([truth for _, truth in parts[1:]]), n_least=200 * len(parts[1:]))
    assert len(found) >= 3
    assert np.abs(found[:, 0] - found[:, 1]).max() < 0.05
