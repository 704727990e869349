from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression, Perceptron
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from excess import OnOffForestClassifier, OnOffTreeClassifier, SimulationAgreement, simulation_agreement
from excess.detection._simulation_check import WeightedSamples, compare_feature

N_FEATURES = 6
ALPHA = 0.2
LOGISTIC = LogisticRegression()
"""A classifier that takes milliseconds, and separates the events below as well as any."""


def draw_gammas(rng, n):
    return rng.normal([-1.5, 0.5, 0, 0, 0, 0], [0.8, 1, 1, 1, 1, 1], size=(n, N_FEATURES))


def draw_protons(rng, n):
    return rng.normal(size=(n, N_FEATURES))


def draw_observation(rng, n_gammas=300, n_off=2500, alpha=ALPHA):
    """Return events and labels; as many background events are On as belong to the Off events."""
    n_on = rng.poisson(alpha * n_off)
    n_off = rng.poisson(n_off)
    X = np.concatenate([draw_protons(rng, n_off + n_on), draw_gammas(rng, rng.poisson(n_gammas))])
    return X, (np.arange(len(X)) >= n_off).astype(int)


@pytest.fixture(scope="module")
def found():
    """Features 1, 2 and 3 of simulated gammas are shifted, and feature 4 of protons."""
    rng = np.random.default_rng(1)
    X, y = draw_observation(rng, n_gammas=500)
    gammas = draw_gammas(rng, 20_000) + np.array([0, 1.2, -0.8, 0.5, 0, 0])
    protons = draw_protons(rng, 20_000) + np.array([0, 0, 0, 0, 0.3, 0])
    return simulation_agreement(X, y, gammas, protons, alpha=ALPHA, estimator=LOGISTIC, random_state=0)


def test_shifted_features_are_found_worst_first(found):
    signal = found.table[found.table["sample"] == "signal"]
    assert signal["feature"].tolist()[:3] == ["x1", "x2", "x3"]
    assert signal["flagged"].tolist() == [True] * 3 + [False] * 3
    np.testing.assert_allclose(signal["shift"].iloc[:3], [-1.2, 0.8, -0.5], atol=0.3)
    background = found.table[found.table["sample"] == "background"]
    assert background["feature"].tolist()[0] == "x4"
    assert background["flagged"].tolist() == [True] + [False] * 5
    assert background["shift"].iloc[0] == pytest.approx(-0.3, abs=0.06)
    assert found.flagged == ("x1", "x2", "x3", "x4")
    assert found.remark is None
    assert (signal["p_value"].diff().dropna() >= 0).all()
    assert (found.table["adjusted_p_value"] >= found.table["p_value"]).all()


def test_text_has_the_worst_features_and_the_verdict(found):
    lines = str(found).splitlines()
    assert lines[0].startswith("weighted excess ")
    assert "x1  shift -1." in lines[2]
    assert lines[2].endswith("differs")
    assert lines[-2:] == [
        "3 of 6 features of simulated gammas differ from observed ones: x1, x2, x3.",
        "1 of 6 features of simulated protons differ from observed ones: x4.",
    ]
    assert found.verdict == " ".join(lines[-2:])


def test_dictionary_is_json_and_comes_back(found):
    text = json.dumps(found.to_dict(), allow_nan=False)
    back = SimulationAgreement.from_dict(json.loads(text))
    pd.testing.assert_frame_equal(back.table, found.table)
    assert str(back) == str(found)
    for one, other in zip(back.comparisons, found.comparisons, strict=True):
        for name, value in vars(one).items():
            np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)


def test_distributions_add_up_and_have_errors(found):
    for one in found.comparisons:
        assert one.observed.sum() == pytest.approx(1)
        assert one.simulated.sum() == pytest.approx(1)
        assert len(one.edges) == len(one.observed) + 1 == len(one.simulated_error) + 1
        assert (np.diff(one.edges) > 0).all()
        assert (one.observed_error > one.simulated_error).mean() > 0.8
    shown = found.of_sample("background")[-1]
    # without weights or subtraction, the error of a share is the binomial one
    expected = np.sqrt(shown.observed * (1 - shown.observed) / found.n_off)
    np.testing.assert_allclose(shown.observed_error, expected)


@pytest.mark.campaign
def test_false_alarms_are_as_rare_as_stated():
    """Of 100 observations, 1 is expected to have a flagged feature in each sample at a confidence of 0.99."""
    n_repetitions, flagged, p_values = 100, {"signal": 0, "background": 0}, {"signal": [], "background": []}
    rng = np.random.default_rng(0)
    for _ in range(n_repetitions):
        X, y = draw_observation(rng, n_gammas=200, n_off=1000)
        simulated = draw_gammas(rng, 3000), draw_protons(rng, 3000)
        result = simulation_agreement(X, y, *simulated, alpha=ALPHA, estimator=LOGISTIC, random_state=0)
        for sample, values in p_values.items():
            own = result.of_sample(sample)
            flagged[sample] += any(one.flagged for one in own)
            values += [one.p_value for one in own]
    for sample, values in p_values.items():
        assert len(values) == n_repetitions * N_FEATURES
        assert flagged[sample] <= binom.ppf(0.999, n_repetitions, 0.01)
        n_small = np.count_nonzero(np.array(values) < 0.05)
        low, high = binom.ppf([1e-4, 1 - 1e-4], len(values), 0.05)
        assert low <= n_small <= high


def unweighted(n_observed, n_simulated):
    return WeightedSamples(
        sample="background",
        fold=np.zeros(n_observed, dtype=np.intp),
        count=np.ones(n_observed),
        weight=np.ones(n_observed),
        background_variance=np.zeros(n_observed),
        simulated_weight=np.ones((1, n_simulated)),
        share=np.full(n_simulated, 1 / n_simulated),
    )


def test_without_a_source_there_is_nothing_to_compare():
    rng = np.random.default_rng(3)
    X, y = draw_observation(rng, n_gammas=0)
    simulated = draw_gammas(rng, 2000), draw_protons(rng, 2000)
    result = simulation_agreement(X, y, *simulated, alpha=ALPHA, estimator=LOGISTIC, random_state=0)
    assert result.of_sample("signal") == ()
    assert len(result.of_sample("background")) == N_FEATURES
    assert result.flagged == ()
    assert result.remark.startswith("No excess to compare with simulated gammas: ")
    assert result.verdict.startswith(result.remark)
    assert SimulationAgreement.from_dict(result.to_dict()).remark == result.remark


def test_exposure_ratio_of_each_event_is_used():
    """With one mean ratio, the background of the second run would be taken for gammas of other widths."""
    rng = np.random.default_rng(4)
    runs = [draw_observation(rng, 300, 3000, 0.1), draw_observation(rng, 300, 1000, 0.8)]
    runs[1][0][:, 4] += np.where(np.arange(len(runs[1][0])) < len(runs[1][0]) - 300, 1.0, 0.0)  # other background
    X, y = (np.concatenate([run[part] for run in runs]) for part in (0, 1))
    alpha = np.repeat([0.1, 0.8], [len(run[1]) for run in runs])
    simulated = draw_gammas(rng, 20_000)
    tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    each = simulation_agreement(X, y, simulated, alpha=alpha, estimator=tree, random_state=0)
    assert each.flagged == ()
    mean = simulation_agreement(X, y, simulated, alpha=float(alpha[y == 0].mean()), estimator=tree, random_state=0)
    assert "x4" in mean.flagged


def test_weights_of_simulated_events_change_their_distribution():
    rng = np.random.default_rng(5)
    X, y = draw_observation(rng, n_gammas=500)
    simulated = draw_gammas(rng, 40_000) + np.array([0, 0, 0.7, 0, 0, 0])
    options = {"alpha": ALPHA, "estimator": LOGISTIC, "random_state": 0}
    assert simulation_agreement(X, y, simulated, **options).flagged == ("x2",)
    # the ratio of the two normal densities
    weight = np.exp(-0.7 * simulated[:, 2] + 0.7**2 / 2)
    assert simulation_agreement(X, y, simulated, signal_weight=weight, **options).flagged == ()
    # an event that stands for three is three events, but for the uncertainty
    few = simulated[:300]
    tripled = simulation_agreement(X, y, np.repeat(few, 3, axis=0), **options)
    weighted = simulation_agreement(X, y, few, signal_weight=np.full(300, 3.0), **options)
    by_name = {one.feature: one for one in tripled.comparisons}
    for one in weighted.comparisons:
        assert one.shift == pytest.approx(by_name[one.feature].shift)
        assert one.shift_error > by_name[one.feature].shift_error


def test_names_come_from_a_table_whose_columns_may_be_in_any_order():
    rng = np.random.default_rng(6)
    X, y = draw_observation(rng)
    names = [f"feature_{j}" for j in range(N_FEATURES)]
    gammas = pd.DataFrame(draw_gammas(rng, 3000), columns=names)
    forest = OnOffForestClassifier(20, min_samples_leaf=20)
    options = {"alpha": ALPHA, "estimator": forest, "random_state": 0}
    found = simulation_agreement(pd.DataFrame(X, columns=names), y, gammas[names[::-1]].assign(energy=1.0), **options)
    assert sorted(found.table["feature"]) == names
    plain = simulation_agreement(X, y, gammas.to_numpy(), feature_names=names, **options)
    pd.testing.assert_frame_equal(found.table, plain.table)
    for events, simulated in ((X, gammas), (pd.DataFrame(X, columns=names), gammas.to_numpy())):
        mixed = simulation_agreement(events, y, simulated, feature_names=names, **options)
        pd.testing.assert_frame_equal(mixed.table, plain.table)
    with pytest.raises(ValueError, match=r"simulated_signal.*feature_2"):
        simulation_agreement(pd.DataFrame(X, columns=names), y, gammas.drop(columns="feature_2"), **options)


def test_same_seed_gives_the_same_result_on_any_number_of_threads():
    rng = np.random.default_rng(7)
    X, y = draw_observation(rng)
    groups = np.arange(len(y)) % 7
    simulated = draw_gammas(rng, 3000)
    forest = OnOffForestClassifier(20, min_samples_leaf=20)
    options = {"alpha": ALPHA, "estimator": forest, "groups": groups}
    first = simulation_agreement(X, y, simulated, random_state=3, **options)
    second = simulation_agreement(X, y, simulated, random_state=3, n_jobs=2, **options)
    assert first.to_dict() == second.to_dict()
    other = simulation_agreement(X, y, simulated, random_state=4, **options)
    assert first.to_dict() != other.to_dict()


def test_events_are_weighted_by_models_of_other_groups():
    """A model that has seen the event, or its group, would know which of them are On."""
    rng = np.random.default_rng(8)
    X, y = draw_observation(rng)
    seen = []

    class Recorder(LogisticRegression):
        def fit(self, X, y):
            seen.append(X[:, -1].copy())
            return super().fit(X[:, :-1], y)

        def predict_proba(self, X):
            return super().predict_proba(X[:, :-1])

    groups = rng.integers(0, 12, len(y))
    with_groups = np.column_stack([X, groups])
    simulated = np.column_stack([draw_gammas(rng, 1000), rng.integers(0, 12, 1000)])
    simulation_agreement(with_groups, y, simulated, alpha=ALPHA, estimator=Recorder(), groups=groups)
    assert len(seen) == 5
    left_out = [set(range(12)) - set(np.unique(part).astype(int).tolist()) for part in seen]
    assert set().union(*left_out) == set(range(12))
    assert sum(map(len, left_out)) == 12


def test_missing_values_are_compared_by_their_share():
    rng = np.random.default_rng(9)
    X, y = draw_observation(rng, n_gammas=500)
    simulated, protons = draw_gammas(rng, 20_000), draw_protons(rng, 20_000)
    X[rng.random(len(X)) < 0.1, 2] = np.nan
    X[rng.random(len(X)) < 0.3, 3] = np.nan
    simulated[rng.random(len(simulated)) < 0.1, 2] = np.nan
    protons[:, 2:4] = np.nan
    tree = OnOffTreeClassifier(max_depth=3, min_samples_leaf=50)
    result = simulation_agreement(X, y, simulated, protons, alpha=ALPHA, estimator=tree, random_state=0)
    signal = result.table[result.table["sample"] == "signal"].set_index("feature")
    assert signal.index[signal["flagged"]].tolist() == ["x3"]
    assert signal.loc["x2", "missing_simulated"] == pytest.approx(0.1, abs=0.02)
    assert signal.loc["x3", "missing_observed"] == pytest.approx(0.3, abs=0.1)
    assert signal.loc["x3", "missing_simulated"] == 0
    background = result.table[result.table["sample"] == "background"].set_index("feature")
    assert np.isnan(background.loc["x3", "shift"])
    assert background.loc["x3", "flagged"]
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("observed", "simulated", "differs"),
    [
        (np.ones(500), np.ones(500), False),
        (np.repeat([0.0, 1.0], [50, 450]), np.ones(500), True),
        (np.repeat([1.0, 2.0], [450, 50]), np.ones(500), True),
        (np.repeat([0.0, 1.0, 2.0], [100, 300, 100]), np.repeat([0.0, 1.0, 2.0], [210, 590, 200]), False),
        (np.repeat([0.0, 1.0, 2.0], [100, 300, 100]), np.repeat([0.0, 1.0, 2.0], [300, 400, 300]), True),
        (np.linspace(0, 1, 500), np.linspace(-1, 2, 500), True),
        (np.linspace(-1, 2, 500), np.linspace(0, 1, 500), True),
    ],
)
def test_constants_and_whole_numbers(observed, simulated, differs):
    found = compare_feature("x", observed, simulated, unweighted(len(observed), len(simulated)))
    assert (found.p_value < 1e-4) == differs
    assert differs or found.p_value > 0.1
    assert found.observed.sum() == pytest.approx(1)


def test_order_does_not_depend_on_the_unit_of_a_feature():
    rng = np.random.default_rng(10)
    x, y = rng.lognormal(size=500), rng.lognormal(0.1, size=800)
    samples = unweighted(500, 800)
    assert compare_feature("x", x, y, samples).p_value == compare_feature("x", np.log(x), np.log(y), samples).p_value
    assert compare_feature("x", x, y, samples).logarithmic
    assert not compare_feature("x", np.log(x), np.log(y), samples).logarithmic


def test_plain_classifiers_and_pipelines_are_welcome():
    rng = np.random.default_rng(11)
    X, y = draw_observation(rng)
    simulated = draw_gammas(rng, 2000)
    piped = make_pipeline(StandardScaler(), OnOffTreeClassifier(max_depth=3, min_samples_leaf=50))
    result = simulation_agreement(X, y, simulated, alpha=ALPHA, estimator=piped, random_state=0)
    assert result.flagged == ()
    assert result.remark is None
    with pytest.raises(TypeError, match="estimator"):
        simulation_agreement(X, y, simulated, alpha=ALPHA, estimator=Perceptron())


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"simulated_signal": np.zeros((5, 4))}, "simulated_signal"),
        ({"simulated_signal": np.zeros((0, 6))}, "simulated_signal"),
        ({"simulated_signal": np.zeros((1, 6))}, "simulated_signal"),
        ({"simulated_background": np.full((5, 6), np.inf)}, "simulated_background"),
        ({"simulated_background": np.zeros((5, 2))}, "simulated_background"),
        ({"y": np.ones(200)}, "y"),
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": np.ones(3)}, "alpha"),
        ({"confidence": 1.0}, "confidence"),
        ({"confidence": 99}, "confidence"),
        ({"feature_names": ["a", "b"]}, "feature_names"),
        ({"feature_names": list("abcdea")}, "feature_names"),
        ({"signal_weight": np.ones(3)}, "signal_weight"),
        ({"signal_weight": np.zeros(50)}, "signal_weight"),
        ({"signal_weight": -np.ones(50)}, "signal_weight"),
        ({"background_weight": np.ones(3)}, "background_weight"),
        ({"cv": 1}, "cv"),
        ({"groups": np.zeros(200)}, "groups"),
    ],
)
def test_bad_arguments_are_named(change, argument):
    rng = np.random.default_rng(12)
    given = {
        "X": rng.normal(size=(200, N_FEATURES)),
        "y": np.arange(200) % 2,
        "simulated_signal": rng.normal(size=(50, N_FEATURES)),
        "alpha": 1.0,
        "estimator": LOGISTIC,
    }
    with pytest.raises(ValueError, match=argument):
        simulation_agreement(**(given | change))


def test_several_estimators_and_wrong_ones_are_refused():
    X, y = np.zeros((20, 2)), np.arange(20) % 2
    with pytest.raises(TypeError, match="estimator"):
        simulation_agreement(X, y, X, alpha=1.0, estimator={"a": LOGISTIC})
    with pytest.raises(TypeError, match="estimator"):
        simulation_agreement(X, y, X, alpha=1.0, estimator="forest")
