"""Showers with several scored images: efficiency, apply and ctapipe's plugin say the same about them."""

import numpy as np
import pytest
from ctapipe_files import make_subarray, write_ctapipe

from excess import OnOffTreeClassifier
from excess.analysis import apply, efficiency
from excess.analysis._apply import EventScores, TrainedModel, score_features, score_showers
from excess.config import AnalysisConfig, to_features
from excess.io import read_events

KEYS = ["obs_id", "event_id"]
FEATURES = ["hillas_length", "hillas_skewness"]
CONFIG = AnalysisConfig(features=FEATURES, derived_features={}, quality_cuts=["concentration_cog > 0.2"])


class Cut:
    threshold_ = 0.5


def test_a_shower_has_the_mean_of_its_images():
    score = np.array([0.9, 0.2, np.nan, 0.4, 0.7, np.nan])
    images = EventScores(score, score / 2, score > Cut.threshold_)
    showers = score_showers(Cut, images, np.array([0, 0, 0, 1, 1, 3]), 4)
    np.testing.assert_allclose(showers.score, [0.55, 0.55, np.nan, np.nan])
    np.testing.assert_allclose(showers.signal_probability, [0.275, 0.275, np.nan, np.nan])
    assert showers.selected.tolist() == [True, True, False, False]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    pytest.importorskip("ctapipe")
    path = tmp_path_factory.mktemp("images") / "gammas.dl1.h5"
    write_ctapipe(path, simulated=True, stereo=False)
    return path


@pytest.fixture(scope="module")
def trained(path):
    images = read_events(path, [*FEATURES, "concentration_cog"])
    labels = np.random.default_rng(0).integers(0, 2, len(images))
    tree = OnOffTreeClassifier(max_depth=3, alpha=1.0, min_samples_leaf=20).fit(images[FEATURES], labels)
    return TrainedModel(tree, CONFIG, [], {})


@pytest.fixture(scope="module")
def showers(path, trained):
    """Mean scores by pandas, in the order of the events of the file."""
    images = read_events(path, [*KEYS, *CONFIG.columns_needed()])
    scored = score_features(trained.model, to_features(images, CONFIG))
    images = images.assign(score=scored.score, probability=scored.signal_probability, selected=scored.selected)
    found = images.groupby(KEYS, sort=False).agg(
        score=("score", "mean"), probability=("probability", "mean"), any=("selected", "any"), n=("score", "count")
    )
    found["selected"] = found["score"] > trained.model.threshold_
    # the test can tell the rules apart
    assert (found["n"] > 1).any()
    assert (found["n"] == 0).any()
    assert 0 < found["selected"].sum() < found["any"].sum() < len(found)
    return found


@pytest.mark.parametrize("chunk_rows", [50, 10_000])
def test_apply_writes_the_mean_of_the_images(path, trained, showers, tmp_path, chunk_rows):
    [applied] = apply(trained, path, tmp_path / "scored.dl1.h5", chunk_rows=chunk_rows).values()
    assert (applied.n_events, applied.n_scored) == (len(showers), (showers["n"] > 0).sum())
    assert applied.n_selected == showers["selected"].sum()
    found = read_events(applied.path, [*KEYS, "excess_score", "excess_signal_probability", "excess_selected"])
    found = found.set_index(KEYS).loc[showers.index]
    np.testing.assert_allclose(found["excess_score"], showers["score"], rtol=1e-12)
    np.testing.assert_allclose(found["excess_signal_probability"], showers["probability"], rtol=1e-12)
    np.testing.assert_array_equal(found["excess_selected"], showers["selected"])


def test_a_table_has_a_row_for_each_image(path, trained, showers, tmp_path):
    [applied] = apply(trained, path, tmp_path / "scored.csv").values()
    found = read_events(applied.path)
    assert len(found) == applied.n_events > len(showers)
    means = found.groupby(KEYS, sort=False)["excess_score"].mean()
    np.testing.assert_allclose(means.loc[showers.index], showers["score"], rtol=1e-9)


def test_efficiency_counts_the_same_showers(path, trained, showers):
    found = efficiency(trained, path, chunk_rows=60)
    counts = [found.counts[kind].sum() for kind in ("all", "quality", "selected")]
    assert counts == [len(showers), (showers["n"] > 0).sum(), showers["selected"].sum()]


def test_the_plugin_says_the_same(path, trained, showers, tmp_path):
    from excess.analysis._ctapipe_plugin import ExcessClassifier

    trained.save(tmp_path / "model")
    images = read_events(path, [*KEYS, "tel_id", *CONFIG.columns_needed()])
    scored, telescopes = ExcessClassifier(make_subarray(3), load_path=tmp_path / "model").score_showers(images)
    np.testing.assert_array_equal(scored.selected, showers["selected"])
    np.testing.assert_allclose(scored.score, showers["score"], rtol=1e-12)
    assert [len(own) for own in telescopes] == showers["n"].tolist()
