import json
from importlib.resources import files

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

from excess.dataset._regions import assign_regions
from excess.dataset._simulate import simulate_labelled, simulate_observation

THETAS = ["theta_deg", *(f"theta_deg_off_{k}" for k in range(1, 6))]


@pytest.fixture(scope="module")
def figures():
    return json.loads(files("excess.dataset").joinpath("data/fact_statistics.json").read_text())


@pytest.fixture(scope="module")
def labelled():
    return simulate_labelled(20_000, 20_000, random_state=0)


@pytest.mark.parametrize(("kind", "is_signal"), [("gamma", True), ("proton", False)])
def test_quantiles_and_correlations_are_those_of_the_figures(kind, is_signal, figures, labelled):
    part = labelled.loc[labelled["is_signal"] == is_signal, figures["features"]]
    levels = np.array(figures["quantile_levels"])
    inner = (levels > 0.04) & (levels < 0.96)
    for name, quantiles in zip(figures["features"], figures["classes"][kind]["quantiles"], strict=True):
        wanted = np.array(quantiles)[inner]
        found = np.quantile(part[name], levels[inner])
        if part[name].dtype.kind == "i":
            assert np.abs(found - wanted).max() <= max(1, 0.1 * np.ptp(wanted))
        else:
            assert np.abs(found - wanted).max() < 0.1 * np.ptp(wanted), name
    correlation = np.array(figures["classes"][kind]["normal_score_correlation"])
    smooth = [j for j, name in enumerate(figures["features"]) if name not in ("num_islands", "leakage1", "leakage2")]
    ranks = spearmanr(part.iloc[:, smooth]).statistic
    # Spearman's of a Gaussian copula
    expected = 6 / np.pi * np.arcsin(np.clip(correlation[np.ix_(smooth, smooth)], -1, 1) / 2)
    assert np.abs(ranks - expected).max() < 0.04


def test_classes_can_be_told_apart_as_well_as_in_the_simulation(labelled, figures):
    X, y = labelled[figures["features"]].to_numpy(), labelled["is_signal"].to_numpy()
    half = np.arange(len(y)) % 2 == 0
    model = RandomForestClassifier(50, max_depth=12, min_samples_leaf=5, random_state=0)
    model.fit(X[half][::3], y[half][::3])
    assert 0.84 < roc_auc_score(y[~half], model.predict_proba(X[~half])[:, 1]) < 0.91


@pytest.mark.slow
def test_default_sample_has_the_counts_of_the_open_crab_sample():
    events = simulate_observation(random_state=0)
    assert len(events) == 757_993
    counts = assign_regions(events[THETAS]).counts
    assert abs(counts.n_on - 4332) < 4 * 4332**0.5
    assert abs(counts.n_off - 17229) < 4 * 17229**0.5
    assert 11 < counts.significance < 16
    assert events["night"].nunique() == 5
    assert events["unix_time"].is_monotonic_increasing
    assert not events.duplicated(["night", "run_id", "event_num"]).any()
    assert np.isfinite(events.to_numpy(dtype=float)).all()


def test_signal_comes_from_the_source_and_background_from_everywhere():
    events = simulate_observation(200_000, 2000, random_state=1)
    regions = assign_regions(events[THETAS])
    signal = events["is_signal"].to_numpy()
    assert abs((regions.region[signal] == 0).mean() - 0.71) < 0.05
    assert (regions.region[signal] > 0).mean() < 0.01
    background = np.bincount(regions.region[~signal & regions.inside], minlength=6)
    assert np.abs(background - background.mean()).max() < 5 * background.mean() ** 0.5


def test_nights_drift():
    still, moving = (simulate_observation(50_000, 0, drift=drift, random_state=0) for drift in (0.0, 0.3))
    spread = [np.log(e.groupby("night")["size"].median()).std() for e in (still, moving)]
    assert spread[0] < 0.05 < 0.1 < spread[1]


def test_derived_features():
    events = simulate_observation(1000, 10, random_state=0)
    np.testing.assert_allclose(events["area"], np.pi * events["width"] * events["length"])
    np.testing.assert_allclose(events["log_size"], np.log(events["size"]))
    np.testing.assert_allclose(events["size_area"], events["size"] / events["area"])
    np.testing.assert_allclose(events["area_size_cut_var"], events["area"] / np.log(events["size"]) ** 2)


def test_a_seed_gives_the_same_events():
    one, same, other = (simulate_observation(1000, 100, random_state=seed) for seed in (3, 3, 4))
    assert one.equals(same)
    assert not one["width"].equals(other["width"])


def test_other_geometries():
    events = simulate_observation(50_000, 1000, n_regions=4, n_nights=2, n_runs=7, offset=1.0, random_state=0)
    assert [name for name in events if name.startswith("theta")] == THETAS[:4]
    assert events.groupby("night")["run_id"].nunique().tolist() == [4, 3]
    assert assign_regions(events[THETAS[:4]]).counts.significance > 15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_events": 0}, "n_events must be at least 1"),
        ({"n_events": 10, "n_signal": 20}, "n_signal must be at most n_events, 10, got 20"),
        ({"n_regions": 1}, "n_regions must be at least 2"),
        ({"n_runs": 3}, "n_runs must be at least n_nights, 5, got 3"),
        ({"drift": -1}, "drift must not be negative"),
        ({"random_state": "x"}, "random_state must be"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        simulate_observation(**options)
