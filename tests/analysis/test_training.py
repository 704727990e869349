"""Training on the files of an observation, chunk by chunk and on workers."""

import pytest
from helpers import make_forest, model_bits, write_nights
from sklearn import config_context

from excess.analysis import train, train_in_chunks
from excess.events import EventFileError, load_config, write_events
from excess.observation import observe
from excess.observation.simulation import simulate_observation

pytest.importorskip("h5py")


@pytest.mark.slow
def test_training_on_files_of_an_observation(tmp_path):
    config = load_config()
    paths = write_nights(tmp_path, 3, 60_000)
    observation = observe(paths, config)
    plain = make_forest(alpha=observation.alpha).fit(observation.frame, observation.on)
    expected = make_forest(alpha=observation.alpha).fit(observation.frame, observation.on, groups=observation.groups)
    assert model_bits(expected, tmp_path) != model_bits(plain, tmp_path)
    with config_context(enable_metadata_routing=True):
        asking = make_forest().set_fit_request(groups=True)
    for model, same in ((make_forest(), plain), (asking, expected)):
        for trained in (train(observation, model), train_in_chunks(paths, config, model, chunk_rows=17_000)):
            assert model_bits(trained.model, tmp_path) == model_bits(same, tmp_path)
            assert str(trained) == str(observation)
            assert trained.groups == sorted(set(observation.groups.tolist()))
    without = train_in_chunks(paths, config, asking, groups="none", chunk_rows=17_000)
    assert model_bits(without.model, tmp_path) == model_bits(plain, tmp_path)


@pytest.mark.slow
def test_files_of_an_observation_that_are_refused(tmp_path):
    table = simulate_observation(20_000, 400, n_nights=1, random_state=0)
    for name in ("a.csv", "copy.csv"):
        write_events(table, tmp_path / name)
    write_events(table.assign(width="wide"), tmp_path / "text.csv")
    paths = {name: tmp_path / f"{name}.csv" for name in ("a", "copy", "text")}
    with pytest.raises(EventFileError, match=r"copy\.csv: has the same content as .*a\.csv; give every file once"):
        train_in_chunks([paths["a"], paths["copy"]], model=make_forest())
    with pytest.raises(ValueError, match=r"text\.csv: column 'width' holds"):
        train_in_chunks([paths["a"], paths["text"]], model=make_forest())


def test_training_on_workers(tmp_path, shared_client):
    paths = write_nights(tmp_path, 2, 20_000)
    trained = train_in_chunks(paths, model=make_forest(), executor=shared_client)
    expected = train_in_chunks(paths, model=make_forest())
    assert model_bits(trained.model, tmp_path) == model_bits(expected.model, tmp_path)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("li-ma-tree", {}, "model must be one of forest, .* where events are read in chunks"),
        ("k-means", {"max_depth": 3}, "max_depth does not go with k-means, which has no such parameter"),
    ],
)
def test_models_that_are_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        train_in_chunks("absent.csv", model=model, **options)
