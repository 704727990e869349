"""Training on the files of an observation, chunk by chunk and on workers."""

import numpy as np
import pandas as pd
import pytest
from helpers import make_forest, model_bits, write_nights
from sklearn import config_context

from excess.analysis import train, train_in_chunks
from excess.config import AnalysisConfig, load_config
from excess.dataset import OnOffDataset
from excess.dataset._simulate import simulate_observation
from excess.io import EventFileError, write_events

pytest.importorskip("h5py")


@pytest.mark.slow
def test_training_on_files_of_an_observation(tmp_path):
    config = load_config()
    paths = write_nights(tmp_path, 3, 60_000)
    observation = OnOffDataset.from_files(paths, config)
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
    with pytest.raises(EventFileError, match=r"copy\.csv: has the same content as .*a\.csv; pass every file once"):
        train_in_chunks([paths["a"], paths["copy"]], model=make_forest())
    with pytest.raises(ValueError, match=r"text\.csv: column 'width' contains"):
        train_in_chunks([paths["a"], paths["text"]], model=make_forest())


def write_runs(folder):
    """Write runs whose pointings have different exposure ratios, one file per run; return the paths."""
    rng = np.random.default_rng(1)
    paths = []
    for run, (ra, dec) in enumerate([(83.63, 22.41), (83.63, 21.16), (84.33, 22.01)]):
        n = 6000
        table = pd.DataFrame({"ra": ra + rng.uniform(-1.3, 1.3, n), "dec": dec + rng.uniform(-1.2, 1.2, n)})
        near = rng.random(n) < 0.05
        table["ra"] = np.where(near, 83.63 + 0.08 * rng.normal(size=n), table["ra"])
        table["dec"] = np.where(near, 22.01 + 0.08 * rng.normal(size=n), table["dec"])
        table = table.assign(pointing_ra=ra, pointing_dec=dec, obs_id=run)
        table["width"] = rng.normal(size=n) + near
        table["size"] = rng.normal(size=n) + 0.5 * near
        paths.append(folder / f"{run}.parquet")
        write_events(table, paths[-1])
    return paths


def sky_config(**regions):
    source = {"source_ra": 83.63, "source_dec": 22.01}
    options = {"derived_features": {}, "quality_cuts": [], "groups": "obs_id"}
    return AnalysisConfig(features=["width", "size"], regions={**source, **regions}, **options)


@pytest.mark.parametrize(
    ("regions", "options"),
    [
        ({"n_regions": "auto"}, {}),
        ({"method": "ring", "n_regions": 11}, {}),
        ({"n_regions": "auto"}, {"threshold": "menon"}),
    ],
)
def test_exposure_ratios_that_differ(tmp_path, regions, options):
    paths, config = write_runs(tmp_path), sky_config(**regions)
    observation = OnOffDataset.from_files(paths, config)
    assert len(np.unique(observation.event_alpha)) > 2
    forest = make_forest(**options)
    train(observation, forest).save(tmp_path / "expected")
    for chunk_rows in (100_000, 1_700):
        train_in_chunks(paths, config, forest, chunk_rows=chunk_rows).save(tmp_path / "found")
        assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()


@pytest.mark.parametrize("ratios", ["one", "several"])
def test_training_on_workers(tmp_path, shared_client, ratios):
    paths = write_nights(tmp_path, 2, 20_000) if ratios == "one" else write_runs(tmp_path)
    config = None if ratios == "one" else sky_config(n_regions="auto")
    trained = train_in_chunks(paths, config, make_forest(), executor=shared_client)
    expected = train_in_chunks(paths, config, make_forest())
    assert model_bits(trained.model, tmp_path) == model_bits(expected.model, tmp_path)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("li-ma-tree", {}, "model must be one of forest, .* if events are read in chunks"),
        ("k-means", {"max_depth": 3}, "max_depth is not a parameter of k-means"),
    ],
)
def test_models_that_are_refused(model, options, message):
    with pytest.raises(ValueError, match=message):
        train_in_chunks("absent.csv", model=model, **options)
