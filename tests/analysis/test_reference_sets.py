"""References of a search as a library: what is taken, what a model sees of them, and what is refused."""

import numpy as np
import pytest

from excess import OnOffForestClassifier, OnOffHybridClassifier, significance_threshold
from excess.analysis import detect, split_references, train
from excess.analysis._detect import SimulatedEvents, collect_references
from excess.config import AnalysisConfig
from excess.dataset import OnOffDataset
from excess.dataset._simulate import simulate_labelled, simulate_observation
from excess.io import EventFileError

CONFIG = AnalysisConfig(features=["width", "length", "log_size"], quality_cuts=["width < 35"])


def small(**parameters) -> OnOffForestClassifier:
    return OnOffForestClassifier(10, min_samples_leaf=20, random_state=0, **parameters)


@pytest.fixture(scope="module")
def table():
    table = simulate_observation(30_000, 300, n_nights=3, random_state=0)
    random = np.random.default_rng(0)
    return table.assign(gammaness=np.where(table["is_signal"], 1.0, 0.0) + random.normal(0, 0.5, len(table)))


@pytest.fixture(scope="module")
def observation(table):
    return OnOffDataset.from_files(table, CONFIG, references=["gammaness"])


@pytest.fixture(scope="module")
def simulated():
    truth = simulate_labelled(300, 400, random_state=1)
    return truth[truth["is_signal"]], truth[~truth["is_signal"]]


def test_a_hybrid_of_your_own_sees_the_columns_and_others_do_not(table, observation):
    own = {"mine": OnOffHybridClassifier({"other": "gammaness"}, small()), "forest": small()}
    run = detect(observation, own)
    assert list(run.detections["mine"].reference_weights) == ["other", "On/Off with references", "On/Off"]
    assert run.detections["mine"].significance > run.detections["forest"].significance + 3
    alone = detect(OnOffDataset.from_files(table, CONFIG), {"forest": small()}).detections["forest"]
    np.testing.assert_array_equal(run.detections["forest"].score, alone.score)
    np.testing.assert_array_equal(run.detections["forest"].nearby.score, alone.nearby.score)
    np.testing.assert_array_equal(run.detections["forest"].fold, run.detections["mine"].fold)
    assert run.simulation is None
    # the cut on the column itself, tuned on the training events of each fold
    cut, core = run.detections["gammaness"], run.events["core"].to_numpy()
    np.testing.assert_array_equal(cut.score, table["gammaness"].to_numpy()[run.events["row"]])
    np.testing.assert_array_equal(cut.fold, run.detections["mine"].fold)
    for number, fold in enumerate(cut.folds):
        seen = core & (cut.fold != number)
        assert fold.threshold == significance_threshold(cut.on[seen], cut.score[seen], observation.alpha)
    assert cut.outcome.significances["likelihood"] > cut.outcome.significances["cut"] > 10


def test_a_cut_on_a_column_has_one_threshold_for_all_bins(table):
    settings = {"references": ["gammaness"], "bins": "log_size:2"}
    run = detect(OnOffDataset.from_files(table, CONFIG, **settings), "li-ma-tree", null_tests=False)
    assert list(run.detections) == ["li-ma-tree", "gammaness"]
    assert [len(found.folds[0].bins) for found in run.detections.values()] == [2, 0]
    assert len(run.detections["gammaness"].bins.outcomes) == 2


def test_other_models_are_trained_without_columns_of_references(table, observation, tmp_path):
    paths = [tmp_path / "with", tmp_path / "without"]
    for path, seen in zip(paths, (observation, OnOffDataset.from_files(table, CONFIG)), strict=True):
        train(seen, "li-ma-tree").save(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_same_events_without_references(observation):
    plain = observation.without_references()
    assert plain.names == ("width", "length", "log_size") == observation.names[:3]
    np.testing.assert_array_equal(plain.X, observation.X[:, :3])
    np.testing.assert_array_equal(plain.nearby.X, observation.nearby.X[:, :3])
    assert plain.without_references() is plain


def test_simulated_events_need_no_columns_of_references(observation, simulated):
    events = SimulatedEvents.read(simulated, observation.config)
    assert events.names == ("width", "length", "log_size")
    assert (len(events.gammas), len(events.protons)) == (300, 400)
    assert events.files == {}


def test_names_of_references(observation, simulated):
    trained = train(
        OnOffDataset.from_files(simulate_observation(20_000, 200, n_nights=1, first_night=20140101), CONFIG),
        "li-ma-tree",
    )
    found = collect_references(observation, simulated, [trained])
    assert list(found.classifiers) == ["simulation", "boosted simulation", "model 1", "gammaness"]
    assert found.trained_on == {"model 1": [20140101]}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"models": "tree", "references": ["x"]},
            ValueError,
            "references require the model hybrid, which is not among",
        ),
        ({"models": "tree", "simulated": ("gamma.csv",)}, ValueError, "simulated must be a pair"),
        ({"models": "tree", "simulated": ("a.csv", "b.csv")}, EventFileError, "a.csv: does not exist"),
        ({"models": ()}, ValueError, "models must contain at least one model"),
    ],
)
def test_what_is_refused(observation, arguments, error, message):
    with pytest.raises(error, match=message):
        detect(observation, **arguments)


def test_tables_that_lack_a_feature_are_named(observation, simulated):
    with pytest.raises(ValueError, match="simulated protons: the table has no column 'width'"):
        detect(observation, "tree", simulated=(simulated[0], simulated[1].drop(columns="width")))


def test_two_references_of_one_name_are_refused(table, simulated):
    seen = OnOffDataset.from_files(table.assign(simulation=table["gammaness"]), CONFIG, references=["simulation"])
    with pytest.raises(ValueError, match="references contain the name 'simulation' twice"):
        detect(seen, "hybrid", simulated=simulated)


def test_columns_are_told_from_files(tmp_path):
    assert split_references(["gammaness", "gammaness", "score"]) == (["gammaness", "score"], [])
    with pytest.raises(ValueError, match=r"models/tree does not exist; pass a model file"):
        split_references(["models/tree"])
