"""Event lists whose events are each scored by the model of a cross-validation that was not trained on their group."""

import zipfile

import numpy as np
import pytest
from helpers import run_command

from excess import ModelFileError
from excess.analysis import FoldModels, OnOffDataset, apply, detect, load_models, read_run
from excess.dataset import simulate_observation
from excess.io import read_events, write_events


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a run and of its scored events, by the command line."""
    folder = tmp_path_factory.mktemp("scored")
    write_events(simulate_observation(40_000, 400, random_state=0), folder / "events.parquet")
    options = ["-o", folder / "run", "--write-events", folder / "scored", "-m", "li-ma-tree", "--no-null-test"]
    assert run_command("detect", folder / "events.parquet", *options) == 0
    return folder


def test_each_event_has_the_score_of_its_fold(folder):
    scored = read_events(folder / "scored" / "events.parquet")
    run = read_run(folder / "run")
    found, used = run.detections["li-ma-tree"], scored.iloc[run.events["row"]]
    assert len(scored) == 40_000
    assert scored["excess_score"].notna().all()  # events outside all regions as well
    np.testing.assert_array_equal(used["excess_score"], found.score)
    np.testing.assert_array_equal(used["excess_fold"], found.fold)
    inside = run.events["core"].to_numpy()
    np.testing.assert_array_equal(used["excess_selected"][inside], found.selected[inside])


def test_models_have_not_seen_the_groups_that_they_score(folder):
    models = load_models(folder / "run")
    scored = read_events(folder / "scored" / "events.parquet")
    assert len(models.models) == scored["night"].nunique() == 5
    for number, trained in enumerate(models.models):
        own = scored.loc[scored["excess_fold"] == number, "night"]
        assert len(own) > 0
        assert not set(own) & set(trained.groups)


def test_a_run_folder_is_applied_like_a_model(folder, tmp_path):
    apply(folder / "run", folder / "events.parquet", tmp_path / "again.parquet")
    written, again = (read_events(path) for path in (folder / "scored" / "events.parquet", tmp_path / "again.parquet"))
    assert again.equals(written)


def test_folds_without_groups_are_rejected(tmp_path):
    observation = OnOffDataset.from_files(simulate_observation(20_000, 200, random_state=0), groups="none")
    with pytest.raises(ValueError, match=r"write_events.*groups"):
        detect(observation, "li-ma-tree", keep_models=True)


def test_a_changed_archive_is_rejected(folder, tmp_path):
    source = folder / "run" / "fold_models.zip"
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(tmp_path / "twice.zip", "w", zipfile.ZIP_DEFLATED) as twice:
        for name in given.namelist():
            twice.writestr(name, given.read(name))
    (tmp_path / "cut.zip").write_bytes(source.read_bytes()[:-100])
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()
    for name in ("twice.zip", "cut.zip", "empty.zip"):
        with pytest.raises(ModelFileError, match=name):
            FoldModels.load(tmp_path / name)
    with pytest.raises(ModelFileError, match="write-events"):
        load_models(tmp_path)
