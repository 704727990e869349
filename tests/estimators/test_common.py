"""scikit-learn's checks, and our own, on every public estimator."""

import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import excess

ESTIMATORS = [
    excess.OnOffTreeClassifier(alpha=1.0),
    excess.OnOffForestClassifier(8, random_state=0, alpha=1.0),
    excess.OnOffHybridClassifier(
        estimator=excess.OnOffForestClassifier(8, min_samples_leaf=2, random_state=0, alpha=1.0),
        random_state=0,
        alpha=1.0,
    ),
    excess.OnOffBinnedClassifier(
        excess.OnOffForestClassifier(8, min_samples_leaf=2, random_state=0, alpha=1.0),
        edges=[0.0],
        random_state=0,
        alpha=1.0,
    ),
    excess.OnOffKMeansClassifier(4, random_state=0, alpha=1.0),
    excess.OnOffKMeansEnsembleClassifier(10, 4, random_state=0, alpha=1.0),
    excess.SignificanceThresholdClassifier(LogisticRegression(solver="liblinear"), cv=2, alpha=1.0),
]


def _is_estimator(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, BaseEstimator)


def test_every_public_estimator_is_checked():
    public = {value for name in excess.__all__ if _is_estimator(value := getattr(excess, name))}
    trained_elsewhere = {excess.OnnxClassifier}  # fit does nothing; see test_onnx_model.py
    assert public == {type(estimator) for estimator in ESTIMATORS} | trained_elsewhere


def _expected_failures(estimator: BaseEstimator) -> dict[str, str]:
    """Checks that cannot hold; scikit-learn exempts its own threshold tuners from the same one."""
    if isinstance(estimator, (excess.OnOffTreeClassifier, excess.OnOffKMeansClassifier)):
        return {}
    failures = {"check_classifiers_train": "predict follows the tuned threshold, not a probability of 0.5"}
    small_leaves = getattr(getattr(estimator, "estimator", estimator), "min_samples_leaf", None) == 2
    if small_leaves or isinstance(estimator, excess.OnOffForestClassifier):
        failures = {}  # their thresholds happen to select the same events of that check
    if isinstance(estimator, excess.OnOffBinnedClassifier):
        failures["check_estimators_pickle"] = "it leaves out values of the column that makes the bins"
    forests = (excess.OnOffForestClassifier, excess.OnOffHybridClassifier, excess.OnOffBinnedClassifier)
    if isinstance(estimator, forests):
        # as scikit-learn's own forests
        failures["check_sample_weight_equivalence_on_dense_data"] = "it shuffles events, and bags depend on their order"
    return failures


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")  # some checks have identical events
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=_expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: str(estimator)[:60])
def test_pickled_and_cloned_estimators_predict_the_same(estimator, noisy_data):
    X, y = noisy_data.X[:600], noisy_data.y[:600]
    model = clone(estimator).set_params(alpha=noisy_data.alpha).fit(X, y)
    again = clone(model).fit(X, y)
    loaded = pickle.loads(pickle.dumps(model))
    for other in (again, loaded):
        assert other.threshold_ == model.threshold_
        np.testing.assert_array_equal(other.predict(noisy_data.X), model.predict(noisy_data.X))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: str(estimator)[:60])
def test_alpha_has_no_default(estimator, noisy_data):
    X, y = noisy_data.X[:60], noisy_data.y[:60]
    with pytest.raises(ValueError, match=r"alpha is missing.* exposure ratio .* 1 / m for m Off .*alpha_from_p_min"):
        clone(estimator).set_params(alpha=None).fit(X, y)
    assert inspect.signature(type(estimator)).parameters["alpha"].default is None


def test_classifiers_inside_get_the_alpha_that_they_lack(noisy_data):
    X, y = noisy_data.X[:600], noisy_data.y[:600]
    fitted = excess.SignificanceThresholdClassifier(excess.OnOffTreeClassifier(max_depth=2), 1 / 5, cv=2).fit(X, y)
    assert fitted.estimator_.alpha == fitted.estimator_.curve_.alpha == 1 / 5
    assert fitted.estimator.alpha is None
    own = excess.OnOffTreeClassifier(1 / 3, max_depth=2)
    assert excess.SignificanceThresholdClassifier(own, 1 / 5, cv=2).fit(X, y).estimator_.alpha == 1 / 3


def test_true_labels_of_a_reference_need_no_alpha(noisy_data):
    X, y, clean = noisy_data.X[:600], noisy_data.y[:600], noisy_data.clean[:600]
    reference = excess.supervised_reference(X, clean, estimator=excess.OnOffTreeClassifier(max_depth=2))
    assert reference.estimator.estimator.alpha == 1.0
    with pytest.raises(ValueError, match="alpha is missing"):
        reference.fit(X, y)
    assert reference.set_params(alpha=noisy_data.alpha).fit(X, y).curve_.alpha == noisy_data.alpha


class TestScore:
    """The likelihood of labels in place of noisy accuracy."""

    @pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda own: type(own).__name__)
    def test_signal_is_above_zero_and_shuffled_labels_are_not(self, estimator):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(3000, 2))
        y = (X[:, 0] > 0.5) | (rng.random(3000) < 0.5)
        model = clone(estimator).fit(X[:2000], y[:2000])
        found = model.score(X[2000:], y[2000:])
        signal = model.predict_signal_proba(X[2000:])
        p = signal + (1 - signal) / 2
        expected = np.log(np.where(y[2000:], p, 1 - p)).mean() - np.log(0.5)
        assert found == pytest.approx(expected, abs=1e-12)
        assert excess.likelihood_scorer(make_pipeline(model), X[2000:], y[2000:]) == found
        assert model.score(X[2000:], rng.permutation(y[2000:])) < 0.5 * found
        weights = (np.arange(1000) < 400).astype(float)
        assert model.score(X[2000:], y[2000:], weights) == pytest.approx(model.score(X[2000:2400], y[2000:2400]))

    def test_other_classifiers_are_rejected(self):
        model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
        with pytest.raises(TypeError, match="estimator"):
            excess.likelihood_scorer(model, [[0.0]], [0])
