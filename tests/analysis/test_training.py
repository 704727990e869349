"""Training on the files of an observation, chunk by chunk and on workers."""

import pytest
from helpers import make_forest, model_bits, write_nights

from excess.analysis.training import train_on_files
from excess.events import EventFileError, load_config, write_events
from excess.observation import observe
from excess.observation.simulation import simulate_observation

pytest.importorskip("h5py")


def test_training_on_files_of_an_observation(tmp_path):
    config = load_config()
    paths = write_nights(tmp_path, 3, 60_000)
    observation = observe(paths, config)
    expected = make_forest(alpha=observation.alpha).fit(observation.frame, observation.on)
    trained = train_on_files(make_forest(), paths, config, chunk_rows=17_000)
    assert model_bits(trained.model, tmp_path) == model_bits(expected, tmp_path)
    assert str(trained) == str(observation)
    assert trained.groups == sorted(set(observation.groups.tolist()))


def test_files_of_an_observation_that_are_refused(tmp_path):
    table = simulate_observation(20_000, 400, n_nights=1, random_state=0)
    for name in ("a.csv", "copy.csv"):
        write_events(table, tmp_path / name)
    write_events(table.assign(width="wide"), tmp_path / "text.csv")
    paths = {name: tmp_path / f"{name}.csv" for name in ("a", "copy", "text")}
    with pytest.raises(EventFileError, match=r"copy\.csv: has the same content as .*a\.csv; give every file once"):
        train_on_files(make_forest(), [paths["a"], paths["copy"]], load_config())
    with pytest.raises(ValueError, match=r"text\.csv: column 'width' holds"):
        train_on_files(make_forest(), [paths["a"], paths["text"]], load_config())


def test_training_on_workers(tmp_path, shared_client):
    config, paths = load_config(), write_nights(tmp_path, 2, 20_000)
    trained = train_on_files(make_forest(), paths, config, executor=shared_client)
    expected = train_on_files(make_forest(), paths, config)
    assert model_bits(trained.model, tmp_path) == model_bits(expected.model, tmp_path)
