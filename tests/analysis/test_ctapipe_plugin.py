"""The plugin of ctapipe: its entry point, and predictions in the event loop and for whole tables."""

import json
import tomllib
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ctapipe_events import draw_images, make_events, write_images
from ctapipe_files import make_subarray

from excess import OnOffTreeClassifier
from excess.analysis import load_model
from excess.analysis._apply import TrainedModel, score_features
from excess.config import AnalysisConfig, to_features
from excess.io import read_events
from excess.io._images import to_showers

pytest.importorskip("ctapipe", reason="the plugin is for ctapipe")

OF_SHOWERS = {
    "features": ["hillas_width_mean", "slimness", "n_telescopes", "HillasReconstructor_h_max"],
    "derived_features": {"slimness": "hillas_length_max / hillas_width_max"},
    "quality_cuts": ["hillas_intensity_sum > 60"],
}
OF_IMAGES = {
    "features": ["hillas_width", "hillas_length"],
    "derived_features": {},
    "quality_cuts": ["morphology_n_pixels > 5", "tel_id == 1"],
}


@pytest.fixture(scope="module", autouse=True)
def _plugin():
    """Import the class, as ctapipe does by the entry point of an installed package."""
    import_module("excess.analysis._ctapipe_plugin")


@pytest.fixture(scope="module")
def images():
    images = draw_images(24)
    images["HillasReconstructor_h_max"] = 8000.0 + images["event_id"]
    return images


def write_model(settings, table, path):
    config = AnalysisConfig(**settings)
    features = to_features(table, config)
    X = pd.DataFrame(features.X[features.valid], columns=features.names)
    tree = OnOffTreeClassifier(0.5, max_depth=4, max_bins=None).fit(X, np.arange(len(X)) % 3 == 0)
    return TrainedModel(tree, config, [], {}).save(path)


@pytest.fixture(scope="module")
def shower_model(images, tmp_path_factory):
    needed = AnalysisConfig(**OF_SHOWERS).columns_needed()
    return write_model(OF_SHOWERS, to_showers(images, needed), tmp_path_factory.mktemp("m") / "showers.excess")


@pytest.fixture(scope="module")
def image_model(images, tmp_path_factory):
    return write_model(OF_IMAGES, images, tmp_path_factory.mktemp("m") / "images.excess")


def make_classifier(path, **settings):
    from excess.analysis._ctapipe_plugin import ExcessClassifier

    return ExcessClassifier(make_subarray(2), load_path=path, **settings)


def expected(path, table):
    trained = load_model(path)
    return score_features(trained.model, to_features(table, trained.config))


def test_ctapipe_finds_the_class_by_its_entry_point():
    from ctapipe.reco import Reconstructor

    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = declared[Reconstructor.plugin_entry_point]["ExcessClassifier"].partition(":")
    found = getattr(import_module(module), name)
    assert issubclass(found, Reconstructor)
    assert Reconstructor.non_abstract_subclasses()["ExcessClassifier"] is found


@pytest.mark.slow
def test_nothing_else_imports_ctapipe():
    import subprocess
    import sys

    code = "import sys, excess.analysis as a; [getattr(a, n) for n in a.__all__]; assert 'ctapipe' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_showers_in_the_event_loop(shower_model, images):
    from ctapipe.reco import ShowerProcessor
    from traitlets.config import Config

    settings = Config(
        {
            "ShowerProcessor": {
                "reconstructor_types": ["ExcessClassifier"],
                "ExcessClassifier": {"load_path": str(shower_model), "prefix": "ours"},
            }
        }
    )
    process = ShowerProcessor(make_subarray(2), config=settings)
    table = to_showers(images, load_model(shower_model).config.columns_needed())
    scored = expected(shower_model, table)
    for number, event in enumerate(make_events(images)):
        process(event)
        found = event.dl2.stereo.classification["ours"]
        assert found.is_valid == np.isfinite(scored.score[number])
        np.testing.assert_allclose(found.prediction, scored.signal_probability[number], rtol=1e-12)
        np.testing.assert_allclose(found.score, scored.score[number], rtol=1e-12)
        assert found.selected == scored.selected[number]
        assert found.telescopes == images.loc[images["event_id"] == event.index.event_id, "tel_id"].tolist()
        assert not any(own.classification for own in event.dl2.tel.values())
    assert 0 < np.isfinite(scored.score).sum() < number + 1
    assert 0 < scored.selected.sum() < number + 1


def test_images_in_the_event_loop(image_model, images):
    classify = make_classifier(image_model)
    scored = expected(image_model, images)
    number = 0
    for event in make_events(images):
        classify(event)
        of_event = []
        for tel_id in event.trigger.tels_with_trigger:
            found = event.dl2.tel[tel_id].classification["excess"]
            np.testing.assert_allclose(found.prediction, scored.signal_probability[number], rtol=1e-12)
            assert found.is_valid == np.isfinite(scored.score[number])
            assert found.prefix == "excess_tel"
            of_event.append(found)
            number += 1
        array = event.dl2.stereo.classification["excess"]
        assert array.telescopes == [1] * of_event[0].is_valid  # the cut leaves the first telescope alone
        if array.is_valid:
            assert array.prediction == of_event[0].prediction
    assert number == len(images)


def test_an_event_without_parameters(shower_model, images):
    event = next(iter(make_events(images)))
    for own in event.dl1.tel.values():
        own.parameters = None
    make_classifier(shower_model)(event)
    found = event.dl2.stereo.classification["excess"]
    assert not found.is_valid
    assert np.isnan(found.prediction)


def test_whole_tables(shower_model, image_model, images):
    from astropy.table import Table
    from ctapipe.reco.reconstructor import ReconstructionProperty

    table = Table.from_pandas(images)
    table["hillas_width"].unit = "deg"
    of_images, of_showers = make_classifier(image_model), make_classifier(shower_model, prefix="array")
    (found,) = of_images.predict_table(None, table).values()
    np.testing.assert_array_equal(found["excess_tel_prediction"], expected(image_model, images).signal_probability)
    assert of_showers.predict_table(None, table) == {}
    array = of_showers.stereo_combiner.predict_table(table)
    assert of_showers.property is of_showers.stereo_combiner.property is ReconstructionProperty.PARTICLE_TYPE
    showers = to_showers(images, load_model(shower_model).config.columns_needed())
    np.testing.assert_array_equal(array["event_id"], showers["event_id"])
    np.testing.assert_array_equal(array["array_score"], expected(shower_model, showers).score)
    assert [len(own) for own in array["array_telescopes"]] == images.groupby("event_id").size().tolist()


def test_settings_that_are_wrong(shower_model, images, tmp_path):
    from traitlets import TraitError

    from excess.analysis._ctapipe_plugin import ExcessClassifier

    with pytest.raises(TraitError, match="load_path is not set; use the model file"):
        ExcessClassifier(make_subarray(2))
    with pytest.raises(TraitError, match="does not exist"):
        make_classifier(tmp_path / "nothing")
    event = next(iter(make_events(images)))
    del event.dl2.stereo.geometry["HillasReconstructor"]
    with pytest.raises(ValueError, match="has no column 'HillasReconstructor_h_max'"):
        make_classifier(shower_model)(event)


@pytest.mark.slow
def test_tools_of_ctapipe_write_what_excess_says_about_the_file(shower_model, image_model, images, tmp_path):
    import joblib
    from ctapipe.core import run_tool
    from ctapipe.io import TableLoader
    from ctapipe.tools.apply_models import ApplyModels
    from ctapipe.tools.process import ProcessorTool

    given = tmp_path / "images.dl1.h5"
    write_images(given, images)
    settings = {"load_path": str(shower_model)}
    config = {"ShowerProcessor": {"reconstructor_types": ["ExcessClassifier"], "ExcessClassifier": settings}}
    (tmp_path / "config.json").write_text(json.dumps({"ProcessorTool": config}))
    arguments = [f"--input={given}", f"--output={tmp_path / 'loop.h5'}", f"--config={tmp_path / 'config.json'}"]
    arguments += ["--DataWriter.write_dl2=True", "--ProcessorTool.force_recompute_dl2=True"]
    assert run_tool(ProcessorTool(), arguments, cwd=tmp_path) == 0
    # the tool for whole tables knows pickles alone
    paths = []
    for name, model in (("excess", shower_model), ("mono", image_model)):
        paths.append(tmp_path / f"{name}.pkl")
        joblib.dump(make_classifier(model, prefix=name), paths[-1])
    arguments = [
        f"--input={given}",
        f"--output={tmp_path / 'tables.h5'}",
        *(f"--reconstructor={path}" for path in paths),
    ]
    assert run_tool(ApplyModels(), [*arguments, "--ApplyModels.progress_bar=False"], cwd=tmp_path) == 0

    needed = load_model(shower_model).config.columns_needed()
    table = read_events(given, ["event_id", *needed])
    scored = expected(shower_model, table)
    assert 0 < scored.selected.sum() < len(table)
    for file in ("loop.h5", "tables.h5"):
        with TableLoader(tmp_path / file) as loader:
            found = loader.read_subarray_events()
        np.testing.assert_array_equal(found["event_id"], table["event_id"])
        np.testing.assert_allclose(found["excess_score"], scored.score, rtol=1e-12)
        np.testing.assert_allclose(found["excess_prediction"], scored.signal_probability, rtol=1e-9)
        np.testing.assert_array_equal(found["excess_selected"], scored.selected)
    with TableLoader(tmp_path / "tables.h5") as loader:
        telescopes = loader.read_telescope_events()
    np.testing.assert_allclose(telescopes["mono_tel_score"], expected(image_model, images).score)
