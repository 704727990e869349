"""Bins of an observation: from a configuration or the command line to thresholds, tables and model files."""

import json

import numpy as np
import pandas as pd
import pytest

from excess._utils.errors import ArgumentError
from excess.analysis import apply, detect, load_model, read_run, train, train_in_chunks
from excess.cli import main as run_command
from excess.config import AnalysisConfig, BinConfig, parse_config
from excess.dataset import OnOffDataset, simulate_observation
from excess.io import read_events, write_events

FEATURES = ["width", "length", "size", "leakage1", "skewness_long"]


@pytest.fixture(scope="module")
def events():
    return simulate_observation(60_000, 700, random_state=0)


@pytest.fixture(scope="module")
def config():
    return AnalysisConfig(features=FEATURES)


def test_a_search_with_bins_and_its_folder(events, config, tmp_path):
    observation = OnOffDataset.from_files(events, config, bins="num_pixel_in_shower:3", nearby=False)
    assert observation.names == (*FEATURES, "num_pixel_in_shower")
    found = detect(observation, "tree", null_tests=False)
    detection = found.detections["tree"]
    assert len(detection.bins.outcomes) == 3
    assert sum(one.counts.n_on for one in detection.bins.outcomes) == detection.counts.n_on
    assert len(found.result()["models"]["tree"]["bins"]["bins"]) == 3
    assert found.result()["observation"]["bins"]["feature"] is False
    again = read_run(found.write(tmp_path / "run"))
    assert again.detections["tree"].bins.labels == detection.bins.labels
    assert again.detections["tree"].bins.outcomes[0].counts == detection.bins.outcomes[0].counts
    assert again.detections["tree"].folds[0].bins == detection.folds[0].bins
    written = pd.read_csv(found.write_tables(tmp_path / "tables")[-1])
    assert written["n_on"].sum() == detection.counts.n_on
    assert parse_config((tmp_path / "run" / "config.yaml").read_text(), "run").bins.edges


def test_bins_that_are_too_small_say_so(events, config):
    run = detect(
        OnOffDataset.from_files(events, config, bins="size:20,200,5000", nearby=False), "tree", null_tests=False
    )
    detection = run.detections["tree"]
    assert detection.bins.notes[0] == "too few events: tuned with its neighbours in 5 of 5 folds"
    assert detection.bins_frame()["note"].iloc[0] == detection.bins.notes[0]


def test_a_model_file_keeps_its_bins(events, config, tmp_path):
    trained = train(OnOffDataset.from_files(events, config, bins="size:100,300", nearby=False), "tree")
    trained.save(tmp_path / "tree.excess")
    assert load_model(tmp_path / "tree.excess").config.bins == trained.config.bins
    write_events(simulate_observation(3_000, 60, random_state=1, first_night=20140101), tmp_path / "new.csv")
    apply(tmp_path / "tree.excess", tmp_path / "new.csv", tmp_path / "scored.csv")
    scored = read_events(tmp_path / "scored.csv")
    known = scored["excess_score"].notna()
    X = scored.loc[known, list(trained.config.features)]
    np.testing.assert_array_equal(scored.loc[known, "excess_selected"], trained.model.predict(X))
    np.testing.assert_allclose(
        scored.loc[known, "excess_signal_probability"], trained.model.predict_signal_proba(X), rtol=1e-6
    )


def test_the_command_line_prints_bins(events, tmp_path, capsys):
    write_events(events, tmp_path / "events.parquet")
    arguments = [
        "detect",
        str(tmp_path / "events.parquet"),
        "-o",
        str(tmp_path / "run"),
        "-m",
        "tree",
        "--no-null-test",
    ]
    with pytest.raises(SystemExit) as ended:
        run_command([*arguments, "--bins", "log_size:4.5,6"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "Bins of log_size, by tree, pooled" in printed
    assert "4.5 to 6" in printed
    with pytest.raises(SystemExit):
        run_command([*arguments, "--bins", "log_size:4.5,6", "--overwrite", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["models"]["tree"]["bins"]["edges"] == ["-inf", 4.5, 6, "inf"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("size", "must be a column with edges"),
        ("size:", "must be a column with edges"),
        ("size:a,b", "must be a column with edges"),
        ("size:5,1", "edges must be ascending"),
        ("size:1", "n_bins: must be at least 2, got 1"),
        (":1,2", "at least 1 character"),
        ("size:nan,2", "finite"),
        ("theta_deg:0.1,0.2", "encodes where an event came from"),
    ],
)
def test_bad_bins(events, config, text, message):
    with pytest.raises(ArgumentError, match=message):
        OnOffDataset.from_files(events, config, bins=text)


def test_bins_of_a_missing_or_constant_column(events, config):
    with pytest.raises(ValueError, match="energy"):
        OnOffDataset.from_files(events, config, bins="energy:3")
    with pytest.raises(ArgumentError, match="same value"):
        detect(OnOffDataset.from_files(events.assign(one=1.0), config, bins="one:3", nearby=False), "tree")


def test_bins_do_not_go_with_chunks(events, config, tmp_path):
    write_events(events, tmp_path / "events.parquet")
    with pytest.raises(ArgumentError, match="bins"):
        train_in_chunks(tmp_path / "events.parquet", config.with_bins(BinConfig.parse("size:3")))
